//! Passes records to the logs: statements when they have ended, and the begin and end of sessions.

use weir_config::LogVariables;
use weir_query_log::Feed;

use crate::keys::Nanos;
use crate::random::Dice;

/// Copies what is wanted. When nothing is, it costs a look at a flag.
pub(crate) struct QueryLog {
    pub(crate) feed: Feed,
    pub(crate) dice: Dice,
    /// Statements are looked at when they end.
    pub(crate) watches_statements: bool,
    pub(crate) has_events: bool,
    pub(crate) logs_by_default: bool,
    /// Of so many statements one is logged.
    pub(crate) one_of: u64,
    /// What takes longer is slow.
    pub(crate) long_ns: Nanos,
    pub(crate) has_slow: bool,
    pub(crate) query_bytes_max: usize,
    pub(crate) audits: bool,
    /// Room for a client's address.
    pub(crate) address: Vec<u8>,
}

/// What must be kept of a statement for the logs, because it is gone when the statement ends.
#[derive(Debug, Default)]
pub(crate) struct LoggedStatement {
    /// The beginning of a text that was passed on as it came.
    pub(crate) text: Box<[u8]>,
    pub(crate) text_bytes: usize,
    /// What the last error says.
    pub(crate) error: Box<[u8]>,
}

impl QueryLog {
    pub(crate) fn new(feed: Feed, worker: usize) -> Self {
        Self {
            feed,
            dice: Dice::new(worker as u64),
            watches_statements: false,
            has_events: false,
            logs_by_default: false,
            one_of: 1,
            long_ns: Nanos::MAX,
            has_slow: false,
            query_bytes_max: 0,
            audits: false,
            address: Vec::new(),
        }
    }

    /// New variables.
    pub(crate) fn go_by(&mut self, logs: &LogVariables) {
        self.has_events = logs.eventslog_filename.is_some();
        self.logs_by_default = logs.eventslog_default_log;
        self.one_of = u64::from(logs.eventslog_rate_limit);
        self.long_ns = Nanos::try_from(logs.long_query_time.as_nanos()).unwrap_or(Nanos::MAX);
        self.has_slow = logs.slowlog_filename.is_some();
        self.watches_statements = self.has_events || self.has_slow;
        self.query_bytes_max = logs.eventslog_buffer_max_query_length as usize;
        self.audits = logs.auditlog_filename.is_some();
    }

    /// Whether a statement that took so long is a slow one.
    pub(crate) fn is_long(&self, took_ns: Nanos) -> bool {
        took_ns > self.long_ns
    }

    pub(crate) fn is_drawn(&mut self) -> bool {
        self.one_of <= 1 || self.dice.below(self.one_of) == Some(0)
    }
}
