//! Reports a worker's statistics: plain copies, for whoever sums them.

use std::sync::Arc;

use weir_topology::Unchecked;

use super::{Caller, CommandRow, DigestTable, Histogram, ReadCounts, RuleTimes, Statistics, Totals};
use crate::keys::Nanos;
use crate::peer::Peer;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportPart {
    /// [`WorkerReport::digests`]. The worker hands its table over and begins another one.
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
    /// [`WorkerReport::totals`]
    Totals,
    /// A part of [`WorkerReport::sessions`], from this place on.
    Sessions(usize),
    /// [`WorkerReport::statements`]
    Statements,
    /// [`WorkerReport::free_connections`]
    FreeConnections,
}

/// A worker's part of a report. Of the tables only the one that was asked for is filled.
#[derive(Debug, Default)]
pub struct WorkerReport {
    /// The worker's number.
    pub worker: usize,
    /// When it was made. All times in it are of the same clock.
    pub now: Nanos,
    /// What was counted by digest since the last such report.
    pub digests: DigestTable,
    /// Digests of statements that run now; told when the counters begin again.
    pub running: Vec<u64>,
    /// Statements by kind.
    pub commands: Vec<CommandRow>,
    /// The errors, in no order.
    pub errors: Vec<ErrorRow>,
    /// The servers that this worker knows, by the hostgroups for which they were used.
    pub servers: Vec<ServerRow>,
    /// In which way the reads of hostgroups were fresh enough, told with the servers.
    pub reads: Vec<(u32, ReadCounts)>,
    /// What replicated servers have applied, told with the servers.
    pub coverage: Vec<CoverageRow>,
    /// Sessions that may write to a server, by its endpoint and by what keeps them there.
    pub writing: Vec<WritingRow>,
    /// How often each active query rule has matched, by rule_id.
    pub rules: Vec<(u32, u64)>,
    /// How long statements took, by the rule_id of the last rule that they matched; told with the hits.
    pub rule_times: Vec<(u32, RuleTimes)>,
    /// What is counted in all.
    pub totals: Totals,
    /// The sessions, at most [`SESSIONS_PER_REPORT`] of them.
    pub sessions: Vec<SessionRow>,
    /// Where the next part of the sessions begins, if there is one.
    pub next_session: Option<usize>,
    /// Prepared statements that some client has.
    pub statements: Vec<StatementRow>,
    /// Connections that nobody has.
    pub free_connections: Vec<FreeConnectionRow>,
    /// Errors that found no room in their table.
    pub dropped: u64,
}

/// Sessions of one report: copying so many takes a fraction of a millisecond.
pub const SESSIONS_PER_REPORT: usize = 256;

/// What a replicated server has applied.
#[derive(Clone, Debug)]
pub struct CoverageRow {
    /// The server.
    pub endpoint: String,
    /// So long ago is the moment up to which it certainly has everything; none: nothing is known.
    pub age_ns: Option<Nanos>,
    /// How long causality checks take, on average.
    pub latency_ns: u64,
    /// Checks that have ended.
    pub checks: u64,
    /// Why there are none, if there are none.
    pub unchecked: Option<Unchecked>,
}

/// Errors of one kind.
#[derive(Clone, Debug)]
pub struct ErrorRow {
    /// Where the statement ran.
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

/// A worker's dealings with one server for one hostgroup. Connections serve all hostgroups of their server: one that is
/// open counts where it was last used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerRow {
    /// The server.
    pub endpoint: String,
    /// The hostgroup.
    pub hostgroup: u32,
    /// Connections that are lent to sessions.
    pub used: u64,
    /// Connections that are idle.
    pub free: u64,
    /// Connections opened so far.
    pub opened: u64,
    /// Attempts to open one that failed.
    pub failed: u64,
    /// The most connections to the server at a time, as of when one was opened for this hostgroup.
    pub open_max: u64,
    /// Statements sent.
    pub queries: u64,
    /// Of these: those that a server with a certain transaction had to have.
    pub gtid_queries: u64,
    /// Bytes of statements sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// How long it took from sending a statement to the end of its reply.
    pub latency: Histogram,
    /// All of that together.
    pub latency_sum_us: u64,
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

/// A session.
#[derive(Clone, Debug)]
pub struct SessionRow {
    /// The connection id that its client knows.
    pub id: u32,
    /// Its user; none before the end of the login.
    pub username: Option<String>,
    /// Its schema; empty for none.
    pub schema: Vec<u8>,
    /// Where its client is.
    pub peer: Peer,
    /// What the client calls itself; empty if it told no name.
    pub program: String,
    /// Whether its client uses TLS.
    pub is_tls: bool,
    /// Where it came in.
    pub listener: String,
    /// Where its running statement goes, or the last one went.
    pub hostgroup: Option<u32>,
    /// The server whose connection it has.
    pub server: Option<String>,
    /// The id of that connection at the server.
    pub server_thread_id: Option<u32>,
    /// What it is at: `Sleep`, `Query`, `Execute`, ...
    pub command: &'static str,
    /// What it waits for or does, more exactly: `idle`, `waiting`, `running`, ...
    pub phase: &'static str,
    /// For how long, in nanoseconds.
    pub since_ns: Nanos,
    /// The beginning of its statement's text.
    pub text: Vec<u8>,
    /// The digest of the statement.
    pub digest: Option<u64>,
    /// Names of the pins that keep its connection; empty without one.
    pub pins: String,
    /// How long its transaction has been open, in nanoseconds.
    pub transaction_ns: Option<Nanos>,
    /// Status flags as the server last reported them.
    pub status: u16,
    /// Prepared statements that it has.
    pub statements: usize,
}

/// A prepared statement that clients of one worker have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementRow {
    /// The schema in which it was prepared; empty for none.
    pub schema: Vec<u8>,
    /// Who prepared it, one of them.
    pub username: String,
    /// The digest of its text, once it was made.
    pub digest: Option<u64>,
    /// Its text.
    pub text: Vec<u8>,
    /// Clients that have it.
    pub clients: u64,
    /// Connections to servers that have it.
    pub servers: u64,
    /// Its parameters, as a server told it.
    pub params: u16,
}

/// A connection to a server that nobody has.
#[derive(Clone, Debug)]
pub struct FreeConnectionRow {
    /// The server.
    pub endpoint: String,
    /// The hostgroup for which it was used last.
    pub hostgroup: u32,
    /// Weir's number of the socket, unique in its worker.
    pub socket: u32,
    /// Its id at the server.
    pub thread_id: u32,
    /// Who it is logged in as.
    pub username: String,
    /// Its schema; empty for none.
    pub schema: Vec<u8>,
    /// The session variables that differ from the server's defaults, those that are known: name and value.
    pub variables: Vec<(String, String)>,
    /// For how long nobody has had it, in nanoseconds.
    pub idle_ns: Nanos,
    /// How long it has been open, in nanoseconds.
    pub age_ns: Nanos,
    /// Statements prepared on it.
    pub statements: usize,
    /// Whether it is encrypted.
    pub is_tls: bool,
}

impl Statistics {
    /// Copies the errors. `endpoint` tells a server's name by its index.
    pub(crate) fn error_rows(&self, endpoint: impl Fn(usize) -> String) -> Vec<ErrorRow> {
        let row = |(key, row): (&super::ErrorKey, &super::errors::ErrorCount)| ErrorRow {
            hostgroup: key.hostgroup,
            endpoint: endpoint(key.server),
            caller: self.caller_name(key.caller),
            code: key.code,
            count: row.count,
            seen: (row.first_seen, row.last_seen),
            last_message: row.last_message.clone(),
        };
        self.errors.rows.iter().map(row).collect()
    }
}
