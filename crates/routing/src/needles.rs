//! Which of many patterns a text can't match, told by one pass over it: most patterns have words that each text that they
//! match must contain, and most texts contain those of few.

use std::collections::HashMap;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::pattern::Pattern;
use crate::rules::Rule;

/// With fewer rules it is quicker to try them.
const RULES_MIN: usize = 64;
/// Shorter words are in every other statement.
const NEEDLE_BYTES_MIN: usize = 3;

/// The words of `match_digest` of all rules.
#[derive(Debug, Default)]
pub(crate) struct Needles {
    /// None: all rules are to be tried.
    words: Option<AhoCorasick>,
    /// By word: the rules that need it.
    needed_by: Vec<Vec<u16>>,
    /// A bit for each rule that needs none.
    without: Vec<u64>,
}

/// The rules that a text may match; reused.
#[derive(Debug, Default)]
pub(crate) struct Possible {
    is_all: bool,
    bits: Vec<u64>,
}

impl Possible {
    pub(crate) fn contains(&self, position: u16) -> bool {
        let (word, bit) = (usize::from(position) / 64, position % 64);
        self.is_all || self.bits.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }
}

impl Needles {
    pub(crate) fn of(rules: &[Rule]) -> Self {
        if rules.len() < RULES_MIN {
            return Self::default();
        }
        let mut without = vec![0_u64; rules.len().div_ceil(64)];
        let mut words: Vec<&[u8]> = Vec::new();
        let mut needed_by: Vec<Vec<u16>> = Vec::new();
        let mut known = HashMap::new();
        for (position, rule) in (0..=u16::MAX).zip(rules) {
            let pattern = rule.match_digest.as_deref().filter(|_| !rule.row.negate_match_pattern);
            let Some(needle) =
                pattern.and_then(Pattern::needle).filter(|needle| needle.len() >= NEEDLE_BYTES_MIN)
            else {
                without[usize::from(position) / 64] |= 1 << (position % 64);
                continue;
            };
            let word = *known.entry(needle.to_ascii_lowercase()).or_insert_with(|| {
                words.push(needle);
                needed_by.push(Vec::new());
                words.len() - 1
            });
            needed_by[word].push(position);
        }
        let built =
            AhoCorasick::builder().ascii_case_insensitive(true).match_kind(MatchKind::Standard).build(words);
        Self { words: built.ok(), needed_by, without }
    }

    /// Finds the rules whose `match_digest` this text may match.
    pub(crate) fn find(&self, text: &[u8], possible: &mut Possible) {
        let Some(words) = &self.words else {
            possible.is_all = true;
            return;
        };
        possible.is_all = false;
        possible.bits.clone_from(&self.without);
        for found in words.find_overlapping_iter(text) {
            for position in self.needed_by.get(found.pattern().as_usize()).into_iter().flatten() {
                if let Some(bits) = possible.bits.get_mut(usize::from(*position) / 64) {
                    *bits |= 1 << (position % 64);
                }
            }
        }
    }
}
