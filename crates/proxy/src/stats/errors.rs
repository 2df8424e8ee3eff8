//! Counts the errors with which servers have answered statements.

use std::collections::HashMap;

use super::CallerId;
use crate::keys::Nanos;

/// Rows of one worker. Errors of further kinds are counted as dropped.
const ERRORS_MAX: usize = 1024;
/// So much of an error's text is kept.
const MESSAGE_BYTES_MAX: usize = 512;

/// Which errors are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ErrorKey {
    pub hostgroup: u32,
    /// The server's index in its worker.
    pub server: usize,
    pub caller: CallerId,
    pub code: u16,
}

/// One kind of error.
#[derive(Clone, Debug)]
pub(crate) struct ErrorCount {
    pub count: u64,
    pub first_seen: Nanos,
    pub last_seen: Nanos,
    pub last_message: Vec<u8>,
}

/// All kinds of errors that a worker has seen.
#[derive(Debug, Default)]
pub(crate) struct Errors {
    pub rows: HashMap<ErrorKey, ErrorCount>,
    pub dropped: u64,
}

impl Errors {
    /// Counts one.
    pub(crate) fn count(&mut self, key: ErrorKey, message: &[u8], now: Nanos) {
        let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
        if let Some(known) = self.rows.get_mut(&key) {
            known.count += 1;
            known.last_seen = now;
            known.last_message.clear();
            known.last_message.extend_from_slice(message);
        } else if self.rows.len() < ERRORS_MAX {
            let row = ErrorCount { count: 1, first_seen: now, last_seen: now, last_message: message.into() };
            self.rows.insert(key, row);
        } else {
            self.dropped += 1;
        }
    }

    /// All of them; from now on they begin again.
    pub(crate) fn begin_again(&mut self) {
        *self = Self::default();
    }
}
