//! Matches patterns in PCRE's syntax, by the regex crate where it means the same, else by PCRE2 with limits.

use std::sync::Arc;

use regex::bytes::{Regex, RegexBuilder};

use crate::portable::{Obstacle, translate};
use crate::replacement::Replacement;

/// The longest pattern, in bytes.
pub const PATTERN_BYTES_MAX: usize = 16 << 10;
/// Memory for a compiled pattern of the regex crate, and for the states that it remembers.
const PROGRAM_BYTES_MAX: usize = 4 << 20;
/// How much PCRE2 may try before it gives up, nest, and take of memory: some milliseconds, and 8 MiB.
const PCRE_LIMITS: &str = "(*LIMIT_MATCH=500000)(*LIMIT_DEPTH=100000)(*LIMIT_HEAP=8192)";

/// A compiled pattern. A clone shares the program and has working memory of its own.
#[derive(Clone, Debug)]
pub(crate) enum Pattern {
    /// With the text that each match contains, but for upper and lower case.
    Linear(Regex, Arc<[u8]>),
    /// With what is in the way of the regex crate.
    Pcre(pcre2::bytes::Regex, Obstacle),
}

/// A pattern that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PatternFault {
    #[error("longer than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    #[error("contains a zero byte")]
    Zero,
    #[error("{message}{}", .at.map(|at| format!(" (at character {at})")).unwrap_or_default())]
    Syntax {
        message: String,
        /// From 1.
        at: Option<usize>,
    },
}

/// PCRE2 gave up: whether there is a match is not known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct GaveUp;

impl Pattern {
    /// `wants_captures`: replacements will be made.
    pub(crate) fn compile(pattern: &str, caseless: bool, wants_captures: bool) -> Result<Self, PatternFault> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(PatternFault::TooLong);
        }
        if pattern.contains('\0') {
            return Err(PatternFault::Zero);
        }
        let obstacle = match translate(pattern, wants_captures) {
            Ok(translated) => {
                let built = RegexBuilder::new(&translated.pattern)
                    .unicode(false)
                    .case_insensitive(caseless)
                    .size_limit(PROGRAM_BYTES_MAX)
                    .dfa_size_limit(PROGRAM_BYTES_MAX)
                    .build();
                match built {
                    Ok(regex) => {
                        return Ok(Self::Linear(regex, translated.needle.to_ascii_lowercase().into()));
                    }
                    Err(_) => "its size",
                }
            }
            Err(obstacle) => obstacle,
        };
        let built =
            pcre2::bytes::RegexBuilder::new().caseless(caseless).build(&format!("{PCRE_LIMITS}{pattern}"));
        match built {
            Ok(regex) => Ok(Self::Pcre(regex, obstacle)),
            Err(error) => Err(PatternFault::Syntax {
                at: error.offset().map(|at| at.saturating_sub(PCRE_LIMITS.len()) + 1),
                message: message_of(&error.to_string()),
            }),
        }
    }

    /// Why it is PCRE2's.
    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        match self {
            Self::Linear(..) => None,
            Self::Pcre(_, obstacle) => Some(obstacle),
        }
    }

    /// A text that each match contains, but for upper and lower case; in lower case.
    pub(crate) fn needle(&self) -> Option<&[u8]> {
        match self {
            Self::Linear(_, needle) => Some(needle),
            Self::Pcre(..) => None,
        }
    }

    pub(crate) fn is_match(&self, text: &[u8]) -> Result<bool, GaveUp> {
        match self {
            Self::Linear(regex, _) => Ok(regex.is_match(text)),
            Self::Pcre(regex, _) => regex.is_match(text).map_err(|_| GaveUp),
        }
    }

    /// Groups that capture.
    pub(crate) fn groups(&self) -> usize {
        match self {
            Self::Linear(regex, _) => regex.captures_len() - 1,
            Self::Pcre(regex, _) => regex.captures_len() - 1,
        }
    }

    /// The text with the first match, or all of them, replaced. `None` if nothing matches.
    pub(crate) fn replace(
        &self,
        text: &[u8],
        replacement: &Replacement,
        global: bool,
    ) -> Result<Option<Vec<u8>>, GaveUp> {
        let mut out = Vec::new();
        let mut end = 0;
        let matches_max = if global { usize::MAX } else { 1 };
        match self {
            Self::Linear(regex, _) => {
                for found in regex.captures_iter(text).take(matches_max) {
                    let Some(whole) = found.get(0) else { continue };
                    out.extend_from_slice(&text[end..whole.start()]);
                    replacement.put(
                        |group| found.get(group).map(|part| part.as_bytes()).unwrap_or_default(),
                        &mut out,
                    );
                    end = whole.end();
                }
            }
            Self::Pcre(regex, _) => {
                for found in regex.captures_iter(text).take(matches_max) {
                    let found = found.map_err(|_| GaveUp)?;
                    let Some(whole) = found.get(0) else { continue };
                    out.extend_from_slice(&text[end..whole.start()]);
                    replacement.put(
                        |group| found.get(group).map(|part| part.as_bytes()).unwrap_or_default(),
                        &mut out,
                    );
                    end = whole.end();
                }
            }
        }
        if end == 0 && out.is_empty() && !matches!(self.is_match(text), Ok(true)) {
            return Ok(None);
        }
        out.extend_from_slice(&text[end..]);
        Ok(Some(out))
    }
}

/// The words of PCRE2 without what the crate puts in front.
fn message_of(error: &str) -> String {
    error
        .rsplit_once("offset ")
        .and_then(|(_, rest)| rest.split_once(": "))
        .map_or(error, |(_, words)| words)
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::compile(text, true, false).unwrap_or_else(|fault| panic!("{text}: {fault}"))
    }

    #[test]
    fn matches_as_pcre_does() {
        for (text, subject, expected) in [
            ("^select", "SELECT 1", true),
            ("^SELECT.*FOR UPDATE$", "select 1\nfor update", false),
            ("^SELECT.*FOR UPDATE$", "select 1 for update", true),
            ("^SELECT.*FOR UPDATE$", "select 1 for update\n", true),
            ("^SELECT.*FOR UPDATE$", "select 1 for update\n\n", false),
            ("^(?!SELECT)", "SELECT 1", false),
            ("^(?!SELECT)", "INSERT 1", true),
            ("(a)\\1", "xAA", true),
            ("é", "caf\u{e9}", true),
            ("\\d{3}", "12", false),
            ("[[:digit:]]{2}", "12", true),
            ("", "anything", true),
        ] {
            assert_eq!(pattern(text).is_match(subject.as_bytes()), Ok(expected), "{text} on {subject}");
        }
    }

    #[test]
    fn both_engines_agree() {
        let subjects = [
            "SELECT c FROM t WHERE id=?",
            "select\n1",
            "",
            "\n",
            "INSERT INTO t VALUES (?,?)\n",
            "a$b",
            "x[y]z",
            "1.5",
        ];
        for text in [
            "^SELECT",
            "from t$",
            "\\bwhere\\b",
            "[^a-z ]+",
            "(insert|update)\\s+into",
            "^$",
            "a|$",
            "\\.",
            "\\W$",
            "s.l",
            "e{1,2}",
            "[]x]",
            "^\\s*select",
        ] {
            let linear = pattern(text);
            assert!(matches!(linear, Pattern::Linear(..)), "{text}");
            let pcre = pcre2::bytes::RegexBuilder::new().caseless(true).build(text).expect("a pattern");
            for subject in subjects {
                let subject = subject.as_bytes();
                assert_eq!(linear.is_match(subject).ok(), pcre.is_match(subject).ok(), "{text}");
            }
        }
    }

    #[test]
    fn a_pattern_that_would_take_for_ever_gives_up() {
        let slow = pattern("^(a+)+(?!x)$");
        let subject = [&[b'a'; 60][..], b"!"].concat();
        assert_eq!(slow.is_match(&subject), Err(GaveUp));
        assert_eq!(slow.is_match(b"aaa"), Ok(true));
    }

    #[test]
    fn faults_say_where_and_why() {
        for (text, message) in [
            ("(a", "missing closing parenthesis (at character 3)"),
            ("a)", "unmatched closing parenthesis (at character 2)"),
            ("[z-a]", "range out of order in character class (at character 4)"),
            ("*a", "quantifier does not follow a repeatable item (at character 1)"),
            ("a\0b", "contains a zero byte"),
        ] {
            let fault = Pattern::compile(text, true, false).expect_err(text);
            assert_eq!(fault.to_string(), message, "{text}");
        }
    }
}
