//! Writes and reads the causal token: what `SELECT @@weir_token` gives and `SET weir_token` takes.
//!
//! ```text
//! w1-<history>-<origin>-<moment>      16 digits, 1 to 16, 1 to 16, all hexadecimal in small letters
//! ```
//!
//! It stands for everything that its session has written or seen. A position in the history is not in it: who is given a
//! token learns that what it stands for was acknowledged before now, and a check of causality that begins after now covers
//! that. Where the token comes from the same process its own moment serves, and needs no wait if it is covered already.
//! Nothing in it is secret, and none that somebody has made up does more harm than a wait.

use std::fmt;

use weir_protocol::error::{self, ServerError};

use crate::keys::Nanos;
use crate::snapshot::History;

/// A longer text is no token of any version.
pub(crate) const TOKEN_BYTES_MAX: usize = 200;
/// Digits of a number of 64 bits.
const DIGITS_MAX: usize = 16;
/// What tells this version.
const PREFIX: &str = "w1-";

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CausalToken {
    /// The history that it belongs to.
    pub history: History,
    /// The process whose clock `moment` was read from; 0: the token has no moment of its own.
    pub origin: u64,
    /// The last moment at which something was acknowledged that it stands for; 0: it stands for nothing.
    pub moment: Nanos,
}

/// Why a text is no token for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadToken {
    /// It is longer than any token.
    #[error("it is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Another release of Weir has made it.
    #[error("it is of another version than this Weir's, which begins with {PREFIX}")]
    OtherVersion,
    /// It is something else.
    #[error("it is no token that SELECT @@weir_token has given")]
    Malformed,
    /// What it stands for is not in this cluster's history.
    #[error("it is of another history than that of hostgroup {hostgroup}")]
    OtherHistory {
        /// The session's.
        hostgroup: u32,
    },
    /// Nobody can say whether it is.
    #[error("the history of hostgroup {hostgroup} is not known: it is no cluster's, or was not seen yet")]
    UnknownHistory {
        /// The session's.
        hostgroup: u32,
    },
    /// NULL is what is given where the history is not known.
    #[error("where it was read the history was not known, so that there was no token")]
    Null,
}

impl BadToken {
    /// The number of the error to clients.
    pub(crate) const CODE: ServerError = error::WRONG_VALUE_FOR_VAR;
}

impl CausalToken {
    /// Reads a token.
    ///
    /// # Errors
    /// [`BadToken::TooLong`], [`BadToken::OtherVersion`] or [`BadToken::Malformed`].
    pub(crate) fn parse(text: &str) -> Result<Self, BadToken> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(BadToken::TooLong);
        }
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return Err(if is_of_some_version(text) { BadToken::OtherVersion } else { BadToken::Malformed });
        };
        let mut parts = rest.split('-');
        let history = parts.next().filter(|part| part.len() == DIGITS_MAX).and_then(number);
        let [origin, moment] = [(); 2].map(|()| parts.next().and_then(number));
        match (history, origin, moment, parts.next()) {
            (Some(history), Some(origin), Some(moment), None) => {
                Ok(Self { history: History(history), origin, moment })
            }
            _ => Err(BadToken::Malformed),
        }
    }

    /// From when on a check has to have begun for a server to have what the token stands for, as seen by the process
    /// `origin` now; 0 if it stands for nothing. Moments to come are nobody's.
    pub(crate) fn told_at(&self, origin: u64, now: Nanos) -> Nanos {
        match self.origin {
            0 => now,
            _ if self.moment == 0 => 0,
            own if own == origin => self.moment.min(now),
            _ => now,
        }
    }
}

impl fmt::Display for CausalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { history: History(history), origin, moment } = self;
        write!(f, "{PREFIX}{history:016x}-{origin:x}-{moment:x}")
    }
}

/// Whether it begins as a token of any version does: `w`, a number, a hyphen.
fn is_of_some_version(text: &str) -> bool {
    let version = text.strip_prefix('w').and_then(|rest| rest.split_once('-')).map(|(version, _)| version);
    version.is_some_and(|version| !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit()))
}

fn number(digits: &str) -> Option<u64> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fits = (1..=DIGITS_MAX).contains(&digits.len()) && digits.bytes().all(is_digit);
    u64::from_str_radix(digits, 16).ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for (origin, moment) in [(0, 0), (1, 7), (u64::MAX, u64::MAX)] {
            let token = CausalToken { history: History::of("a"), origin, moment };
            let text = token.to_string();
            assert!(text.is_ascii() && text.len() <= TOKEN_BYTES_MAX, "{text}");
            assert_eq!(CausalToken::parse(&text), Ok(token));
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_cause() {
        let token = CausalToken { history: History::of("a"), origin: 5, moment: 9 }.to_string();
        let malformed = [
            "",
            "w1-",
            "w",
            "w1",
            "w-1",
            "1-2-3",
            &token[..token.len() - 1],
            &format!("{token}-"),
            &format!("{token}-1"),
            &format!(" {token}"),
            &format!("{token} "),
            &token.to_uppercase(),
            "w1-0-5-9",
            "w1-00000000000000000-5-9",
            "w1-0000000000000000--9",
            "w1-0000000000000000-+5-9",
            "w1-0000000000000000-5-00000000000000009",
            "w1-000000000000000g-5-9",
        ];
        for text in malformed {
            assert_eq!(CausalToken::parse(text), Err(BadToken::Malformed), "{text:?}");
        }
        for text in ["w2-0000000000000000-5-9", "w0-", "w10-0-0-0"] {
            assert_eq!(CausalToken::parse(text), Err(BadToken::OtherVersion), "{text:?}");
        }
        let long = format!("{PREFIX}{}", "0".repeat(TOKEN_BYTES_MAX));
        assert_eq!(CausalToken::parse(&long), Err(BadToken::TooLong));
    }

    #[test]
    fn only_the_process_that_made_a_token_goes_by_its_moment() {
        let token = CausalToken { history: History::of("a"), origin: 5, moment: 9 };
        assert_eq!(token.told_at(5, 20), 9);
        assert_eq!(token.told_at(5, 8), 8);
        assert_eq!(token.told_at(6, 20), 20);
        assert_eq!(CausalToken { origin: 0, moment: 0, ..token }.told_at(0, 20), 20);
        assert_eq!(CausalToken { moment: 0, ..token }.told_at(6, 20), 0);
    }
}
