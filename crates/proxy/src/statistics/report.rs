//! What a worker tells of its statistics: plain copies, for whoever sums them.

use std::sync::Arc;

use super::{Caller, CallerId, CommandRow, Histogram, Statistics};
use crate::core::Nanos;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportPart {
    /// [`WorkerReport::digests`]
    Digests,
    /// [`WorkerReport::commands`]
    Commands,
    /// [`WorkerReport::errors`]
    Errors,
    /// [`WorkerReport::servers`]
    Servers,
    /// [`WorkerReport::writing`]
    Writing,
    /// [`WorkerReport::rules`]
    Rules,
}

/// A worker's part of a report. Of the tables only the one that was asked for is filled.
#[derive(Clone, Debug, Default)]
pub struct WorkerReport {
    /// When it was made. All times in it are of the same clock.
    pub now: Nanos,
    /// The digest table, in no order.
    pub digests: Vec<DigestRow>,
    /// Statements by kind.
    pub commands: Vec<CommandRow>,
    /// The errors, in no order.
    pub errors: Vec<ErrorRow>,
    /// The servers that this worker knows.
    pub servers: Vec<ServerRow>,
    /// Sessions that may write to a server, by its endpoint and by what keeps them there.
    pub writing: Vec<WritingRow>,
    /// How often each active query rule has matched, by rule_id.
    pub rules: Vec<(u32, u64)>,
    /// Executions, or errors, that found no room in their table.
    pub dropped: u64,
}

/// Executions of one digest by one caller in one hostgroup.
#[derive(Clone, Debug)]
pub struct DigestRow {
    /// Where they ran.
    pub hostgroup: u32,
    /// Whose they were.
    pub caller: Arc<Caller>,
    /// The digest's hash.
    pub digest: u64,
    /// The digest's text.
    pub text: Box<[u8]>,
    /// How many.
    pub count: u64,
    /// When the first and the last ended.
    pub seen: (Nanos, Nanos),
    /// How long they took in all.
    pub sum_us: u64,
    /// The quickest.
    pub min_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// Rows that they changed.
    pub rows_affected: u64,
    /// Rows of their results.
    pub rows_sent: u64,
    /// How long they took.
    pub latency: Histogram,
}

/// Errors of one kind.
#[derive(Clone, Debug)]
pub struct ErrorRow {
    /// Where the statement was to run.
    pub hostgroup: u32,
    /// The server that has answered so.
    pub endpoint: String,
    /// Whose statements they were.
    pub caller: Arc<Caller>,
    /// The error's number.
    pub code: u16,
    /// How many.
    pub count: u64,
    /// When the first and the last came.
    pub seen: (Nanos, Nanos),
    /// The text of the last one.
    pub last_message: Vec<u8>,
}

/// A worker's dealings with one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerRow {
    /// The server.
    pub endpoint: String,
    /// Connections that are lent to sessions.
    pub used: u64,
    /// Connections that are idle.
    pub free: u64,
    /// Connections opened so far.
    pub opened: u64,
    /// Attempts to open one that failed.
    pub failed: u64,
    /// The most connections at a time.
    pub open_max: u64,
    /// Statements sent.
    pub queries: u64,
    /// Bytes of statements sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// How long it took from sending a statement to the end of its reply.
    pub latency: Histogram,
}

/// Sessions that a server has as a writer, and that would not go on elsewhere with their next statement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WritingRow {
    /// The server.
    pub endpoint: String,
    /// The names of the pins, or `statement` for one that runs.
    pub because: String,
    /// How many.
    pub sessions: u64,
}

impl Statistics {
    /// Copies the digest table.
    pub(crate) fn digest_rows(&self) -> Vec<DigestRow> {
        let callers = self.caller_names();
        let row = |(key, at): (&super::DigestKey, &usize)| {
            let counts = self.counts.get(*at)?;
            Some(DigestRow {
                hostgroup: key.hostgroup,
                caller: name_of(&callers, key.caller),
                digest: key.digest,
                text: self.texts.get(&key.digest)?.clone(),
                count: counts.count,
                seen: (counts.first_seen, counts.last_seen),
                sum_us: counts.sum_us,
                min_us: counts.min_us,
                max_us: counts.max_us,
                rows_affected: counts.rows_affected,
                rows_sent: counts.rows_sent,
                latency: counts.latency.clone(),
            })
        };
        self.rows.iter().filter_map(row).collect()
    }

    /// Executions that found no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Copies the errors. `endpoint` tells a server's name by its index.
    pub(crate) fn error_rows(&self, endpoint: impl Fn(usize) -> String) -> Vec<ErrorRow> {
        let callers = self.caller_names();
        let row = |(key, row): (&super::ErrorKey, &super::errors::ErrorCount)| ErrorRow {
            hostgroup: key.hostgroup,
            endpoint: endpoint(key.server),
            caller: name_of(&callers, key.caller),
            code: key.code,
            count: row.count,
            seen: (row.first_seen, row.last_seen),
            last_message: row.last_message.clone(),
        };
        self.errors.rows.iter().map(row).collect()
    }

    /// Callers by their numbers.
    fn caller_names(&self) -> Vec<Arc<Caller>> {
        let mut names = vec![Arc::default(); self.callers.len()];
        for (caller, id) in &self.callers {
            if let Some(place) = names.get_mut(*id as usize) {
                *place = Arc::new(caller.clone());
            }
        }
        names
    }
}

fn name_of(callers: &[Arc<Caller>], id: CallerId) -> Arc<Caller> {
    id.0.and_then(|id| callers.get(id as usize)).cloned().unwrap_or_default()
}
