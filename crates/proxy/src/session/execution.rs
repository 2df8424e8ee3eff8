//! Holds what a session runs: the command, what it was sent as, how often it was tried, what has come of it.

use std::rc::Rc;

use weir_routing::Consistency;
use weir_session::prepared::Prepared;
use weir_sql::Several;
use weir_topology::Gtid;

use crate::context::Context;
use crate::context::timers::WATCHED_BELOW_NS;
use crate::keys::{Nanos, ServerIndex};
use crate::plan::execution_plan::ExecutionPlan;
use crate::session::Session;
use crate::session::text::Words;
use crate::session::tracking::Tracking;
use crate::stats::query_log::LoggedStatement;

/// The command that a session runs.
#[derive(Default)]
pub(crate) struct Execution {
    pub plan: ExecutionPlan,
    /// The hash of its digest, if digests are made.
    pub digest: Option<u64>,
    pub record: Record,
    /// Where it goes.
    pub hostgroup: u32,
    /// The hostgroup of the server that was chosen: a reader hostgroup for a read that has left the writer.
    pub served_by: u32,
    pub tries: Tries,
    /// SET TRANSACTION READ ONLY was sent in front of it, which Weir had answered itself.
    pub has_announced: bool,
    pub reply: Reply,
    pub text: Text,
    /// How fresh its read has to be.
    pub consistency: Consistency,
    /// The transaction that its comment names, which its server must have.
    pub min_gtid: Option<Box<Gtid>>,
    /// Only this server can answer it.
    pub only_server: Option<Box<ServerIndex>>,
    /// A reader could not take on the session's state: stay with the writer.
    pub writer_only: bool,
    /// Reads of this session must see what it may have done.
    pub may_have_written: bool,
    /// How its reply ended.
    pub ending: Ending,
    pub kill: Struck,
    /// It may ask for conditions of its session's, and there are none: those on the connection are others'.
    pub needs_no_conditions: bool,
    /// They have been ended on the connection that it has now.
    pub has_ended_conditions: bool,
    /// What a `SET session_track_...` has come to.
    pub tracking: Option<Box<Tracking>>,
}

/// What the client has sent, and what goes out in its place.
#[derive(Default)]
pub(crate) struct Text {
    /// The command's code, until it is over; 0 for none.
    pub code: u8,
    /// The client's id of it.
    pub statement_id: u32,
    /// The prepared statement of an EXECUTE, or the one that a PREPARE makes.
    pub prepared: Option<Rc<Prepared>>,
    /// The query attributes that the client has sent with its text, if there were any: see `query_attributes`.
    pub attributes: Option<Box<[u8]>>,
    /// They, or the sign that there are none, were taken out of the command in the inbox.
    pub is_bare: bool,
    /// The text that goes out instead of the client's.
    pub rewritten: Option<Vec<u8>>,
    /// Sequence id of the reply to the login that this belongs to.
    pub login_sequence: u8,
    /// An execution that asks for a cursor.
    pub wants_cursor: bool,
}

/// How often a statement was started and sent, and what has become of that.
#[derive(Default)]
pub(crate) struct Tries {
    /// Times that it was started.
    pub attempts: u32,
    /// The server whose connection was lost last while it had it.
    pub lost_on: Option<Box<ServerIndex>>,
    pub lost_at: Nanos,
    /// The server with which a write of a careful transaction was lost: it may have written there without one.
    pub written_on: Option<Box<ServerIndex>>,
    /// How many failures of servers have taken its answer from it: see `retry`.
    pub failures: u32,
    /// How often it has gone out to any.
    pub times_sent: u32,
    /// It has gone out to the server that has it now.
    pub is_sent: bool,
    /// It is being prepared on the connection where it is to run.
    pub is_being_prepared: bool,
    /// Since when it has been kept back on its connection, 0 if it has not: see `write_lease`.
    pub kept_back_since: Nanos,
    /// How often it was run again after its server had undone it.
    pub repeats: u8,
    pub started_at: Nanos,
}

/// What has come of the reply.
#[derive(Default)]
pub(crate) struct Reply {
    /// The server has answered with an error that is not for the client as it is.
    pub refusal: Option<Refusal>,
    /// Sequence id of the server's error, in whose place another one may stand.
    pub refused_at: u8,
    /// The server says that it has undone the statement, and is asked whether it has undone all of it.
    pub deadlock: Option<Box<Deadlock>>,
    /// Something of the reply has reached the client's buffer.
    pub is_answering: bool,
    /// What has reached it is not sent before the reply is complete, up to so many bytes; 0: it is sent at once.
    pub buffered_bytes_max: u32,
    /// The reply reported character set variables, of which the server tells only a part.
    pub charset_reported: bool,
    /// What its replies have reported of the session's state.
    pub reported: Reported,
    /// The server has opened one.
    pub has_cursor: bool,
    /// The cursor has no more rows.
    pub is_last_row: bool,
    /// Sequence id of an EOF behind column definitions that is held back until it is clear whether rows follow.
    pub owed_eof: Option<u8>,
    /// An EOF behind column definitions that waits for the end of its result.
    pub open_eof: Option<OpenEof>,
    /// Results of the reply that are complete.
    pub results: u32,
    /// Of several statements in one text: how far they were read, what stands in it, what it gives.
    pub several: Several,
    pub words: Option<Words>,
    pub results_of_text: Option<Results>,
    /// One of its results told of warnings.
    pub has_warned: bool,
    /// What it leaves behind is noted, although it is not over.
    pub is_noted: bool,
    /// Rows in it.
    pub rows_sent: u64,
    /// When the server's reply was complete; 0 for not yet.
    pub answered_at: Nanos,
}

/// Who has ended it, or tried to.
#[derive(Default)]
pub(crate) struct Struck {
    /// It has been killed for running too long.
    pub deadline_passed: bool,
    /// A KILL QUERY that means itself.
    pub is_interrupted: bool,
    /// It was killed before it had gone out.
    pub is_killed_unsent: bool,
}

/// For statistics and logs.
#[derive(Default)]
pub(crate) struct Record {
    /// How long it is still to be held before it starts.
    pub held_for_ns: Nanos,
    /// When Weir had it from the client; 0 before a session's first.
    pub begun_at: Nanos,
    /// The error that Weir itself has answered with; 0 for none.
    pub own_errno: u16,
    /// It is in the statistics.
    pub is_counted: bool,
    /// For the logs.
    pub logged: Option<Box<LoggedStatement>>,
}

/// An error 1213 that its client has not been told of.
#[derive(Debug, Default)]
pub(crate) struct Deadlock {
    /// The server's packet, its header included.
    pub packet: Box<[u8]>,
    /// How many conditions the server shows, if none of them says that something could not be undone.
    pub conditions: Option<usize>,
    /// The transaction is still open: not all of it is undone.
    pub is_open: bool,
}

/// How the reply to a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    #[default]
    None,
    /// OK, or the OK behind the rows of a result.
    Ok {
        affected_rows: u64,
        insert_id: u64,
        warnings: u16,
        has_rows: bool,
        /// With a text, as "Records: 2  Duplicates: 0  Warnings: 0".
        has_info: bool,
    },
    /// ERR.
    Err(u16),
}

/// What to ask the server after a statement, before its lease may go elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Settle {
    #[default]
    Nothing,
    /// character_set_connection and collation_connection: reported only in part.
    Collation,
    /// After an error: the status flags.
    Status,
    /// Whatever the server has noted and not reported yet.
    Pending,
    /// What MariaDB's question for that has done is taken back.
    Undone,
    /// Whether that server still reports what is set: else its word on what is pending counts for nothing.
    Tracking,
    /// After a 1213: the conditions, of which one says whether something of the statement could not be undone.
    Conditions,
    /// How many there were: the server does not show all.
    ConditionCount,
}

/// What an error of a server's means that its client does not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A Galera node has left its component: it has done nothing, and can't commit anything.
    LeftCluster,
    /// The server has been made read_only: the statement has done nothing.
    ReadOnly,
    /// The server is about to hand its role to another: the statement has done nothing.
    HandsOver,
    /// The server keeps no more statements, and this connection has some that nobody uses: it goes on without them.
    StatementsFull,
    /// The server has undone what its group may commit all the same.
    OutcomeUnknown,
    /// As LeftCluster, but the statement runs others, some of which may have committed.
    LeftAmid,
    /// As ReadOnly, but the statement ends a transaction first, which may have been committed.
    ReadOnlyAmid,
    /// The statement met another one's locks, or write set, and the server has undone it: it may be run again.
    Undone,
}

impl Tries {
    /// Whether a server is busy with it, so that it has a time limit.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_sent || self.is_being_prepared
    }
}

impl Execution {
    /// Makes room for a new command.
    pub(crate) fn reset(&mut self, now: crate::keys::Nanos) {
        *self = Self::default();
        self.record.begun_at = now;
        self.tries.started_at = now;
    }
}

impl Execution {
    /// Whether the client's statement may have had an effect on the server that has not answered it.
    pub(crate) fn may_have_run(&self) -> bool {
        self.tries.is_sent && !self.plan.is_read() && !self.plan.kind().is_harmless()
    }
}

const NS_PER_MS: Nanos = 1_000_000;
/// The same where only the server is left on which its connection was lost: if that has died, its other connections have
/// broken, too, and the worker will have heard of it by then. So long again with each time that it was sent.
const AGAIN_THERE_AFTER_NS: Nanos = 10_000_000;

/// For so long after it has lost a connection a server may still be losing the others. Who ends single connections of a
/// server that lives, one query after the other, takes longer.
const DYING_NS: Nanos = 2_000_000_000;

impl Tries {
    /// How many failures of servers it has seen, this loss included.
    pub(crate) fn failures_with(&self, lost: Lost, now: Nanos) -> u32 {
        let is_same_failure = self.lost_on.as_deref() == Some(&lost.server)
            && lost.opened_at < self.lost_at
            && now < self.lost_at + DYING_NS;
        // Losses before it was sent are no failures.
        (self.failures + u32::from(!is_same_failure)).max(1)
    }

    /// Until when the server on which its connection was lost is avoided even where no other is left.
    pub(crate) fn avoided_until(&self) -> Nanos {
        self.lost_at + AGAIN_THERE_AFTER_NS * Nanos::from(self.times_sent.max(1))
    }
}

impl Session {
    /// A statement has been sent: where the look-over would come late, a timer of its own sees to its time limit. One
    /// timer serves all the statements of a session that follow each other.
    pub(crate) fn watch(&mut self, ctx: &mut Context) {
        let timeout = ctx.query_timeout(self);
        let at = self.execution.tries.started_at + timeout;
        let is_watched = self.times.watched_at != 0 && self.times.watched_at <= at;
        if timeout > WATCHED_BELOW_NS || is_watched {
            return;
        }
        let socket = self.socket;
        self.times.watched_at = at;
        ctx.timers.watch(self.key, socket, at);
    }
}

impl Context {
    /// How long a session's statement may run.
    pub(crate) fn query_timeout(&self, session: &Session) -> Nanos {
        let default = self.snapshot.variables.default_query_timeout.as_nanos() as Nanos;
        session
            .execution
            .plan
            .decision()
            .timeout_ms
            .map_or(default, |timeout_ms| Nanos::from(timeout_ms) * NS_PER_MS)
    }
}

/// A connection that is lost to the session that had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lost {
    pub server: ServerIndex,
    pub opened_at: Nanos,
}

/// The kinds of changes that an OK has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reported {
    /// Variables, with their values.
    pub variable: bool,
    /// A schema.
    pub schema: bool,
    /// That some state has changed, with or without the others.
    pub state: bool,
}

impl Reported {
    /// Adds what another reply of the same command has reported.
    pub(crate) fn add(&mut self, other: Reported) {
        self.variable |= other.variable;
        self.schema |= other.schema;
        self.state |= other.state;
    }

    /// Whether anything of the session's state has changed, as far as the server tells.
    pub(crate) fn is_change(self) -> bool {
        self.variable || self.schema || self.state
    }
}

/// An EOF whose flags are not sure yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenEof {
    /// Its place behind the begin of what is held.
    pub at: u32,
    /// What it says is certain: it is worth waiting for more.
    pub is_sure: bool,
}

/// The results of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Results {
    /// If each statement gives one.
    pub count: u32,
    /// The first of them, which surely give one.
    pub sure: u32,
}
