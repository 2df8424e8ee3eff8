//! Rules out, in one pass over a text, most of the patterns that can't match it: a pattern has words that each text it
//! matches must contain, and most texts contain the words of few.

use std::collections::HashMap;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::rules::Rule;

/// With fewer rules it is quicker to try them.
const RULES_MIN: usize = 64;
/// Shorter words are in every other statement.
const NEEDLE_BYTES_MIN: usize = 3;

/// So many words that are new are looked for by themselves: it takes longer to prepare for ten thousand of them than
/// nearly all else that follows when a rule is changed.
const NEW_WORDS_MAX: usize = 256;

/// The words of `match_digest` of all rules.
#[derive(Debug, Default)]
pub(crate) struct Needles {
    /// None: all rules are to be tried.
    words: Option<Arc<Words>>,
    /// Words that came when most of those were known; numbers go on behind theirs.
    new_words: Option<AhoCorasick>,
    needs: Needs,
    /// A bit for each rule that needs none.
    without: Vec<u64>,
}

/// The words that each rule needs.
#[derive(Debug, Default)]
struct Needs {
    /// By position of the rule: the number of its word, or [`NO_WORD`].
    words: Vec<u32>,
    /// The rules by the numbers of their words,
    rules: Vec<u16>,
    /// and where those of each number begin there; one more is the end.
    starts: Vec<u32>,
}

/// Of a rule that needs none.
const NO_WORD: u32 = u32::MAX;

/// Words to look for. Some of them may not be needed any more.
#[derive(Debug)]
struct Words {
    finder: AhoCorasick,
    /// Their numbers, by the word in lower case.
    numbers: HashMap<Box<[u8]>, u32>,
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
    /// Those of `rules`; what `before` looks for, of rules that it has with it, need not be prepared again.
    pub(crate) fn of(rules: &[Arc<Rule>], before: &Self, rules_before: &[Arc<Rule>]) -> Self {
        if rules.len() < RULES_MIN {
            return Self::default();
        }
        let known = before.words.as_ref().filter(|words| words.numbers.len() <= 2 * rules.len());
        let known = known.map(|words| Known { words, needs: &before.needs, rules: rules_before });
        let gathered = Gathered::of(rules, known.as_ref());
        if let (Some(known), true) = (&known, gathered.words.len() <= NEW_WORDS_MAX) {
            let new_words = if gathered.words.is_empty() { None } else { Some(finder(&gathered.words)) };
            if let Some(new_words) = new_words.map_or(Some(None), |built| built.map(Some)) {
                let Gathered { needs, without, .. } = gathered;
                return Self { words: Some(known.words.clone()), new_words, needs, without };
            }
        }
        let Gathered { words, needs, without } =
            if known.is_some() { Gathered::of(rules, None) } else { gathered };
        let numbers = words.iter().map(|word| word.as_slice().into()).zip(0..).collect();
        let words = finder(&words).map(|finder| Arc::new(Words { finder, numbers }));
        Self { words, new_words: None, needs, without }
    }

    /// Finds the rules whose `match_digest` this text may match.
    pub(crate) fn find(&self, text: &[u8], possible: &mut Possible) {
        let Some(words) = &self.words else {
            possible.is_all = true;
            return;
        };
        possible.is_all = false;
        possible.bits.clone_from(&self.without);
        for found in words.finder.find_overlapping_iter(text) {
            self.note(found.pattern().as_usize(), possible);
        }
        if let Some(new_words) = &self.new_words {
            for found in new_words.find_overlapping_iter(text) {
                self.note(words.numbers.len() + found.pattern().as_usize(), possible);
            }
        }
    }

    /// The word of this number is in the text.
    fn note(&self, word: usize, possible: &mut Possible) {
        for position in self.needs.rules_of(word) {
            if let Some(bits) = possible.bits.get_mut(usize::from(*position) / 64) {
                *bits |= 1 << (position % 64);
            }
        }
    }
}

impl Needs {
    /// Of rules that need these words, of so many.
    fn of(words: Vec<u32>, count: usize) -> Self {
        let mut starts = vec![0; count + 1];
        let needed = || (0..=u16::MAX).zip(&words).filter(|(_, word)| **word != NO_WORD);
        needed().for_each(|(_, word)| starts[*word as usize + 1] += 1);
        for at in 0..count {
            starts[at + 1] += starts[at];
        }
        let mut rules = vec![0; starts[count] as usize];
        let mut next = starts.clone();
        for (position, word) in needed() {
            let next = &mut next[*word as usize];
            rules[*next as usize] = position;
            *next += 1;
        }
        Self { words, rules, starts }
    }

    fn rules_of(&self, word: usize) -> &[u16] {
        match self.starts.get(word..word + 2) {
            Some(&[from, to]) => &self.rules[from as usize..to as usize],
            _ => &[],
        }
    }
}

/// Words that are looked for already.
struct Known<'k> {
    words: &'k Arc<Words>,
    /// Of these rules.
    needs: &'k Needs,
    rules: &'k [Arc<Rule>],
}

impl Known<'_> {
    /// The number of the word that a rule has had, if it is the same rule as then. Mostly it is the `next` one.
    fn number_of(&self, rule: &Arc<Rule>, next: &mut usize) -> Option<u32> {
        let is_it = |at: usize| self.rules.get(at).is_some_and(|known| Arc::ptr_eq(known, rule));
        if !is_it(*next) {
            let at = self.rules.binary_search_by_key(&rule.row.rule_id, |known| known.row.rule_id).ok()?;
            *next = at;
            if !is_it(at) {
                return None;
            }
        }
        let number = self.needs.words.get(*next).copied();
        *next += 1;
        // The numbers of words that were new then are given anew.
        number.filter(|number| *number == NO_WORD || (*number as usize) < self.words.numbers.len())
    }
}

/// The rules that need each word.
struct Gathered {
    /// Those that are not known, in lower case. They have the numbers behind those that are.
    words: Vec<Vec<u8>>,
    needs: Needs,
    without: Vec<u64>,
}

impl Gathered {
    fn of(rules: &[Arc<Rule>], known: Option<&Known<'_>>) -> Self {
        let mut without = vec![0_u64; rules.len().div_ceil(64)];
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut numbers = Vec::with_capacity(rules.len());
        let known_count = known.map_or(0, |known| known.words.numbers.len());
        let mut new_numbers: HashMap<&[u8], u32> = HashMap::new();
        let mut next = 0;
        for (position, rule) in rules.iter().enumerate() {
            let number = known.and_then(|known| known.number_of(rule, &mut next)).unwrap_or_else(|| {
                let Some(word) = word_of(rule) else { return NO_WORD };
                let number = known.and_then(|known| known.words.numbers.get(word).copied());
                number.unwrap_or_else(|| {
                    *new_numbers.entry(word).or_insert_with(|| {
                        words.push(word.to_owned());
                        // There are no more rules than 16 bits can count, and twice as many known words at most.
                        (known_count + words.len() - 1) as u32
                    })
                })
            });
            if number == NO_WORD {
                without[position / 64] |= 1 << (position % 64);
            }
            numbers.push(number);
        }
        let needs = Needs::of(numbers, known_count + words.len());
        Self { words, needs, without }
    }
}

/// A word that each text has which the rule's `match_digest` matches.
fn word_of(rule: &Rule) -> Option<&[u8]> {
    let pattern = rule.match_digest.as_deref().filter(|_| !rule.row.negate_match_pattern)?;
    pattern.needle().filter(|needle| needle.len() >= NEEDLE_BYTES_MIN)
}

fn finder(words: &[Vec<u8>]) -> Option<AhoCorasick> {
    let mut builder = AhoCorasick::builder();
    builder.ascii_case_insensitive(true).match_kind(MatchKind::Standard).build(words).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, QueryRule, Rules};

    fn rules(before: &Rules, texts: impl Iterator<Item = String>) -> Arc<Rules> {
        let row = |(rule_id, text): (u32, String)| QueryRule {
            rule_id,
            active: true,
            match_digest: Some(text),
            ..QueryRule::default()
        };
        let rows: Vec<_> = (1..).zip(texts).map(row).map(Arc::new).collect();
        Rules::compile_after(before, &rows, &[], Options::default()).expect("rules")
    }

    fn possible(rules: &Rules, text: &str) -> Vec<u16> {
        let mut possible = Possible::default();
        rules.needles.find(text.as_bytes(), &mut possible);
        (0..rules.rules.len() as u16).filter(|position| possible.contains(*position)).collect()
    }

    #[test]
    fn words_that_are_known_are_not_prepared_again_and_new_ones_are_found() {
        let shop = |at: u32| format!("^SELECT .* FROM shop_{at} ");
        let first = rules(&Rules::default(), (0..1000).map(shop));
        assert_eq!(possible(&first, "select 1 from SHOP_7 where"), [7]);
        let more = (0..1000).map(shop).chain(["^UPDATE cart".to_owned(), ".".to_owned()]);
        let second = rules(&first, more);
        assert!(Arc::ptr_eq(first.needles.words.as_ref().unwrap(), second.needles.words.as_ref().unwrap()));
        assert_eq!(possible(&second, "select 1 from shop_999 where"), [999, 1001]);
        assert_eq!(possible(&second, "update CART set a"), [1000, 1001]);
        // Without most of them, and with others.
        let third = rules(&second, (0..300).map(|at| shop(at * 3)).chain(["^UPDATE cart".to_owned()]));
        assert_eq!(possible(&third, "select 1 from shop_27 where"), [9]);
        assert_eq!(possible(&third, "update cart set a"), [300]);
        assert!(third.needles.words.as_ref().unwrap().numbers.len() <= 301);
        let fourth = rules(&third, (2000..3000).map(shop));
        assert_eq!(possible(&fourth, "select 1 from shop_2001 where"), [1]);
        assert_eq!(possible(&fourth, "select 1 from shop_27 where"), [0; 0]);
    }
}
