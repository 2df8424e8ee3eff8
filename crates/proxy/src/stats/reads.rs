//! Counts in which way reads were fresh enough.

use crate::stats::Histogram;

/// How the reads of a hostgroup came to be fresh enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// A reader had at once what they had to see.
    pub at_once: u64,
    /// They waited for a reader to have it.
    pub waited: u64,
    /// The writer served them at once, since no reader had it.
    pub on_writer: u64,
    /// The writer served them after they had waited for a reader in vain.
    pub timed_out: u64,
    /// How long those waited that did.
    pub waits: Histogram,
}

impl ReadCounts {
    /// Counts a read that has found its server.
    pub(crate) fn count(&mut self, is_writer: bool, waited_us: Option<u64>) {
        let count = match (is_writer, waited_us) {
            (false, None) => &mut self.at_once,
            (false, Some(_)) => &mut self.waited,
            (true, None) => &mut self.on_writer,
            (true, Some(_)) => &mut self.timed_out,
        };
        *count += 1;
        if let Some(waited_us) = waited_us {
            self.waits.record(waited_us);
        }
    }

    /// Adds what another worker has counted.
    pub fn add(&mut self, other: &Self) {
        self.at_once += other.at_once;
        self.waited += other.waited;
        self.on_writer += other.on_writer;
        self.timed_out += other.timed_out;
        self.waits.add(&other.waits);
    }
}
