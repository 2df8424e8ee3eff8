//! Names a stage's schemas and accounts, so that several stages can work beside each other at one server.

/// Fills in the placeholders of states and ways.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    number: usize,
    /// The first number that `RAND()` gives after both seeds were set to 77.
    seeded: String,
}

impl Names {
    /// Of stage `number`.
    pub(crate) fn new(number: usize, seeded: &str) -> Names {
        Names { number, seeded: seeded.to_owned() }
    }

    /// The schema of a session, by its letter, or `s` for what all share.
    pub(crate) fn schema(&self, letter: char) -> String {
        format!("fid{}_{letter}", self.number)
    }

    /// The account of the sessions A, B and D ('a'), or of C ('c').
    pub(crate) fn user(&self, letter: char) -> String {
        format!("fid{}{letter}", self.number)
    }

    /// A text with everything filled in.
    pub(crate) fn fill(&self, text: &str) -> String {
        if !text.contains('<') {
            return text.to_owned();
        }
        text.replace("<a>", &self.schema('a'))
            .replace("<s>", &self.schema('s'))
            .replace("<other>", &self.schema('o'))
            .replace("<role>", &format!("fid{}role", self.number))
            .replace("<lock>", &format!("fid{}lock", self.number))
            .replace("<seeded>", &self.seeded)
    }
}
