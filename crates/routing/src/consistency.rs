//! Names how fresh a read has to be.

/// How fresh the reads of a session, a user, a hostgroup or a rule have to be, from the cheapest to the dearest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Consistency {
    /// Whatever the server has.
    Eventual,
    /// The session's own writes, and nothing older than it has seen already, on whichever server.
    #[default]
    Session,
    /// Every write that was acknowledged to anybody, through whichever Weir, before the read began.
    Global,
    /// Every write that was committed anywhere before the read began: the server itself checks that, for each read.
    Strict,
}

impl Consistency {
    /// All of them, the cheapest first.
    pub const ALL: [Self; 4] = [Self::Eventual, Self::Session, Self::Global, Self::Strict];

    /// Its word in the configuration, in SQL and in statistics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Eventual => "eventual",
            Self::Session => "session",
            Self::Global => "global",
            Self::Strict => "strict",
        }
    }

    /// Reads such a word, in any case.
    pub fn of_word(word: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str().as_bytes().eq_ignore_ascii_case(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_there_and_back() {
        for level in Consistency::ALL {
            assert_eq!(Consistency::of_word(level.as_str().to_uppercase().as_bytes()), Some(level));
        }
        assert_eq!(Consistency::of_word(b"causal"), None);
        assert!(Consistency::Eventual < Consistency::Session && Consistency::Global < Consistency::Strict);
    }
}
