//! Names what can be chosen for a transaction: whether it runs again where its server is lost, and whether the outcome of its
//! COMMIT is found out.

/// Whether a transaction runs again where its server is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReplayMode {
    /// It does not.
    Off,
    /// Only where that can't do anything twice, whatever tables it writes to.
    #[default]
    Safe,
    /// Also where that is certain for tables with transactions only.
    On,
}

impl ReplayMode {
    /// All of them, the most careful first.
    pub const ALL: [Self; 3] = [Self::Off, Self::Safe, Self::On];

    /// Its word in the configuration and in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Safe => "safe",
            Self::On => "on",
        }
    }

    /// Reads such a word, in any case; `1` and `0` stand for `on` and `off`.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        match word {
            b"1" => Some(Self::On),
            b"0" => Some(Self::Off),
            _ => Self::ALL.into_iter().find(|replay| replay.as_str().as_bytes().eq_ignore_ascii_case(word)),
        }
    }
}

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
    pub replay: Option<ReplayMode>,
    /// `weir_commit_outcome`: how the end of their COMMIT is found out.
    pub commit_outcome: Option<CommitOutcome>,
}

impl TransactionSettings {
    /// What `self` says, and where it says nothing, what `other` does.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            replay: self.replay.or(other.replay),
            commit_outcome: self.commit_outcome.or(other.commit_outcome),
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
        for replay in ReplayMode::ALL {
            assert_eq!(ReplayMode::of_word(replay.as_str().to_uppercase().as_bytes()), Some(replay));
        }
        let numbers = [b"1".as_slice(), b"0", b"2", b"yes"].map(ReplayMode::of_word);
        assert_eq!(numbers, [Some(ReplayMode::On), Some(ReplayMode::Off), None, None]);
    }

    #[test]
    fn each_says_something_of_its_own() {
        let one = TransactionSettings { replay: Some(ReplayMode::Off), commit_outcome: None };
        let other =
            TransactionSettings { replay: Some(ReplayMode::On), commit_outcome: Some(CommitOutcome::Marker) };
        let both = TransactionSettings { replay: Some(ReplayMode::Off), ..other };
        assert_eq!((one.or(other), other.or(one)), (both, other));
    }
}
