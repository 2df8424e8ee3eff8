//! Names what can be chosen for a transaction: whether it runs again where its server is lost, and whether the outcome of its
//! COMMIT is found out.

/// How the end of a COMMIT is found out whose answer is lost with its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CommitOutcome {
    /// Not at all: its client is told that nobody knows.
    #[default]
    Off,
    /// The transaction has a row of `weir.outcomes`, for which the next writer is asked.
    Marker,
}

impl CommitOutcome {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 2] = [Self::Off, Self::Marker];

    /// Its word in the configuration and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Marker => "marker",
        }
    }

    /// Reads such a word, in any case.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str().as_bytes().eq_ignore_ascii_case(word))
    }
}

/// What somebody says of transactions: a comment, a session, a rule, a user. `None`: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TransactionSettings {
    /// `weir_replay`: whether they run again where their server is lost.
    pub replays: Option<bool>,
    /// `weir_commit_outcome`: how the end of their COMMIT is found out.
    pub commit_outcome: Option<CommitOutcome>,
}

impl TransactionSettings {
    /// What `self` says, and where it says nothing, what `other` does.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            replays: self.replays.or(other.replays),
            commit_outcome: self.commit_outcome.or(other.commit_outcome),
        }
    }

    /// Reads a word of `weir_replay`, in any case.
    pub fn replays_of_word(word: &[u8]) -> Option<bool> {
        match word {
            b"1" => Some(true),
            b"0" => Some(false),
            _ if word.eq_ignore_ascii_case(b"on") => Some(true),
            _ if word.eq_ignore_ascii_case(b"off") => Some(false),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_there_and_back() {
        for outcome in CommitOutcome::ALL {
            assert_eq!(CommitOutcome::of_word(outcome.as_str().to_uppercase().as_bytes()), Some(outcome));
        }
        assert_eq!(CommitOutcome::of_word(b"1"), None);
        let replays =
            [b"on".as_slice(), b"Off", b"1", b"0", b"yes"].map(TransactionSettings::replays_of_word);
        assert_eq!(replays, [Some(true), Some(false), Some(true), Some(false), None]);
    }

    #[test]
    fn each_says_something_of_its_own() {
        let one = TransactionSettings { replays: Some(false), commit_outcome: None };
        let other = TransactionSettings { replays: Some(true), commit_outcome: Some(CommitOutcome::Marker) };
        let both = TransactionSettings { replays: Some(false), ..other };
        assert_eq!((one.or(other), other.or(one)), (both, other));
    }
}
