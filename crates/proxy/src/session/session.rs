//! The things that a worker keeps: sessions, backend connections, and what a session is doing.

use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;
use weir_config::Listener;
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::{Collation, Encoding};
use weir_protocol::error::ServerError;
use weir_protocol::handshake::Scramble;
use weir_routing::Decision;
use weir_session::defaults::Defaults;
use weir_session::login::{Channel, ClientLogin};
use weir_session::pin::{PinBoard, Pins};
use weir_session::prepared::{ClientStatement, Prepared};
use weir_session::state::State;
use weir_session::track::TrackPreferences;
use weir_sql::{Dialect, Several};

use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::server::connection::Retained;

use crate::answers::session_track::Tracking;
use crate::client::eof_packets::OpenEof;
use crate::client::eof_packets::Results;
use crate::client::local_infile::Infile;
use crate::listener::Peer;
use crate::outbox::SocketId;
use crate::shared::{KillOutcome, Victims};
use crate::snapshot::{Account, Held};
use crate::statement::detour::Detour;
use crate::statement::moving::Moving;
use crate::statement::recovery::connection_lost::PendingError;
use crate::statement::relay::Words;
use crate::statement::reported_state::Reported;
use crate::statement::route::KnownScope;
use crate::stats::query_log::LoggedStatement;
use crate::stats::statements::KnownCaller;
use crate::worker::keys::*;

/// A client connection with its tracked state.
pub(crate) struct Session {
    /// Its key in its worker.
    pub key: SessionKey,
    pub socket: SocketId,
    /// The connection id that the client knows.
    pub id: u32,
    /// Where the client came in, and so what it gets.
    pub listener: Arc<Listener>,
    pub client: Client,
    pub capabilities: Capabilities,
    pub phase: Phase,
    pub input: Input,
    pub account: Option<Arc<Account>>,
    pub identity: usize,
    pub tracked: Tracked,
    pub place: Place,
    pub times: Times,
    pub lease: Option<ConnectionKey>,
    /// The lease was taken for a read, on a server that takes no writes now.
    pub is_pinned_to_reader: bool,
    pub stay: Stay,
    pub pins: PinBoard,
    /// It leaves its server with what it has there, has left it, or can't: see `moving`.
    pub moving: Option<Box<Moving>>,
    /// What is being done for the client.
    pub execution: Execution,
    pub prepared: ClientStatements,
    pub track: Option<Box<TrackPreferences>>,
    pub diagnostics: Diagnostics,
    pub transaction: Transaction,
    pub writes: Writes,
    pub farewell: Farewell,
}

/// What the client sends.
pub(crate) struct Input {
    /// Bytes from the client that are not answered yet: the running command first.
    pub inbox: Vec<u8>,
    /// Bytes at the front of the inbox that belong to the running command; 0 when it is no longer needed.
    pub command_bytes: usize,
    /// What has not arrived yet of a long command: it goes straight to the backend, or to nobody if the command is over.
    pub upload: Option<Box<Upload>>,
    /// Bytes are still to come of a command that is over, and they can't be told from the next one: the session ends when
    /// they come.
    pub is_cut_short: bool,
    /// The session has killed itself: it ends with its reply.
    pub close_when_done: bool,
    /// A file for the server that the client is sending.
    pub infile: Option<Box<Infile>>,
}

/// What is known of the client since its login.
pub(crate) struct Client {
    pub peer: Peer,
    pub is_tls: bool,
    /// What the client calls itself (the connection attribute program_name), for the log.
    pub program: Option<Box<str>>,
    /// The collation of the login, to which COM_RESET_CONNECTION goes back.
    pub login_collation: &'static Collation,
    /// What the client proves its passwords against, as long as it is connected. COM_CHANGE_USER has no other: libmariadb
    /// (3.3) answers with a proof for the greeting's, whatever it is sent, and MariaDB's own servers send that one again.
    pub scramble: Scramble,
    /// How often a COM_CHANGE_USER was refused.
    pub refused_changes: u8,
    /// When the connection was made.
    pub connected_at: Nanos,
    /// A login of it has succeeded.
    pub has_logged_in: bool,
}

/// The state in which its statements run, and how they are read in it.
pub(crate) struct Tracked {
    pub state: Rc<State>,
    /// What it has begun with; none before a connection has told.
    pub defaults: Option<Rc<Defaults>>,
    /// Other defaults, of connections that were lent to it: what is different there is a part of its state.
    pub suits: Option<Rc<Defaults>>,
    /// How its statements are to be read, from the state.
    pub dialect: Dialect,
    /// Its character set is one in which SQL can be read.
    pub is_text_certain: bool,
    /// It has set sql_mode itself.
    pub knows_sql_mode: bool,
}

/// Its place in statistics and query rules.
pub(crate) struct Place {
    /// Its number in the statistics, once it was needed.
    pub caller: Option<KnownCaller>,
    /// Its place in the query rules, once it was needed.
    pub scope: Option<KnownScope>,
    /// flagIN of its next statement.
    pub next_flag_in: u32,
    /// What was decided of the command that is about to be looked at anew.
    pub decided: Option<Box<Decision>>,
}

/// What binds it to servers, but for its pins.
pub(crate) struct Stay {
    /// Another lease, which waits while one statement runs on this one.
    pub detour: Option<Box<Detour>>,
    /// The hostgroup of the lease, if sessions keep their connections there.
    pub stays_in: Option<u32>,
    /// It waits for a server of a cluster.
    pub held: Option<Held>,
}

/// The statements that the client has prepared.
pub(crate) struct ClientStatements {
    pub all: HashMap<u32, ClientStatement>,
    /// Bytes that they take: their share of what all may have.
    pub bytes: usize,
    pub next_id: u32,
    /// The id that the last COM_STMT_PREPARE has given; 0 if it failed.
    pub last_prepared: u32,
    /// Long data that is kept for executions, bytes.
    pub long_data_bytes: usize,
}

/// What the client may ask for of its last statements.
pub(crate) struct Diagnostics {
    /// An idle connection that still knows diagnostics of this session.
    pub retained_on: Option<ConnectionKey>,
    pub retained: Retained,
    /// The lease's LAST_INSERT_ID() is this session's.
    pub has_own_insert_id: bool,
    /// The connection that knew LAST_INSERT_ID() is gone.
    pub is_insert_id_lost: bool,
    /// A reply with kept diagnostics is on its way.
    pub fetching: u32,
    pub last_insert_id: u64,
    /// `@@last_gtid`, as its last reply with one has told (MariaDB).
    pub last_gtid: String,
    pub row_count: i64,
    /// FOUND_ROWS(), unless only a connection knows it ([`Retained::FOUND_ROWS`]). None: nobody knows it any more.
    pub found_rows: Option<u64>,
    /// SHOW WARNINGS as it was when the connection had to go to another session.
    pub saved_warnings: Option<Box<SavedWarnings>>,
    /// The last error of a server's.
    pub last_error: Option<ServerError>,
}

/// Its transaction, or its next one.
pub(crate) struct Transaction {
    pub is_autocommit: bool,
    /// The open transaction is read-only.
    pub is_read_only: bool,
    /// SET TRANSACTION READ ONLY, which no server knows of yet.
    pub is_next_read_only: bool,
    /// When the open transaction began.
    pub since: Nanos,
}

/// What it has to see of its own.
pub(crate) struct Writes {
    /// When the last write of this session was answered (or broke off); 0 for never.
    pub last_at: Nanos,
    /// When something of this session may last have been committed; 0 for never.
    pub last_commit_at: Nanos,
    /// The server that took the last write.
    pub last_server: ServerIndex,
}

/// What its client is still to be told.
pub(crate) struct Farewell {
    /// An error that the server gave for the session's transaction while Weir asked something: the next command's.
    pub owed_error: Option<Box<(ServerError, Box<str>)>>,
    /// What it had on a lost connection is gone: its next command is told, and ends it.
    pub pending_error: Option<Box<PendingError>>,
}

/// Since when, and how long, it is left alone.
pub(crate) struct Times {
    /// A timer looks at its running statement at this time; 0 for none.
    pub watched_at: Nanos,
    pub last_active_at: Nanos,
    /// `wait_timeout` as it has set it itself, seconds; 0 if it has not.
    pub own_wait_s: u64,
}

/// A longer one is none.
const GTID_BYTES_MAX: usize = 64;

impl Session {
    /// Whether its statement may mean LAST_INSERT_ID(): see [`Execution::depends_on_insert_id`]. With `sql_auto_is_null` every
    /// statement may.
    pub(crate) fn depends_on_insert_id(&self) -> bool {
        let is_null_meant = self.pins.pins().contains(Pins::AUTO_IS_NULL)
            && matches!(self.execution.plan.kind(), CommandKind::Query | CommandKind::Execute);
        is_null_meant || self.execution.plan.depends_on_insert_id()
    }

    /// The client's name of itself; empty if it told none.
    pub(crate) fn program(&self) -> &str {
        self.client.program.as_deref().unwrap_or_default()
    }

    /// Whether the server runs the command as several statements. It refuses them as a whole if the client did not ask
    /// for that, and then none of them does anything.
    pub(crate) fn runs_several(&self) -> bool {
        self.execution.plan.statement().multi && self.capabilities.contains(Capabilities::MULTI_STATEMENTS)
    }

    /// What lies between Weir and its client.
    pub(crate) fn channel(&self) -> Channel {
        match self.client.peer {
            _ if self.client.is_tls => Channel::Tls,
            Peer::Unix => Channel::Local,
            Peer::Tcp(_) => Channel::Plain,
        }
    }
}

/// Where a session stands.
///
/// ```text
/// Login ──► Idle ◄────────────────────────────────────────┐
///            │ command                                     │ reply complete
///            ▼                                             │
///   (answered here) ──► Idle      Waiting ──► Running ─────┤
///            │                       ▲ lease     │         │
///            └── needs a server ─────┘           ▼         │
///                                            Settling ─────┘   (asks the server what it did not report)
/// ```
pub(crate) enum Phase {
    /// Logging in.
    Login(Box<ClientLogin>),
    /// Between commands.
    Idle,
    /// Held for as long as a rule says.
    Held,
    /// Waiting for a lease since the given time.
    Waiting(Nanos),
    /// A lease is being made ready, or the command runs.
    Running,
    /// The reply is complete; the lease is asked for what the reply did not tell.
    Settling,
    /// Other workers are asked to kill sessions of theirs.
    Asking(Asking),
    /// Everything has been said; the socket closes when it is drained.
    Closing,
}

/// A KILL that sessions of other workers may be meant by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    /// Workers that have not answered yet.
    pub due: u32,
    /// Of whom the KILL spoke.
    pub victims: Victims,
    /// What has become of it so far.
    pub outcome: KillOutcome,
}

/// SHOW WARNINGS as it was.
#[derive(Default)]
pub(crate) struct SavedWarnings {
    /// The packets of the reply. None at all: nobody knows them any more.
    pub packets: Vec<u8>,
    /// In which bytes the text in them came, if that is known.
    pub encoding: Option<Encoding>,
}

/// The rest of a command that is too long to be kept.
pub(crate) struct Upload {
    /// Payload bytes of the client's current packet still to come.
    pub packet_left: usize,
    /// Another packet of the same command follows.
    pub continues: bool,
    /// The command has begun to flow to the backend.
    pub is_flowing: bool,
    /// Sequence id of the client's last packet header.
    pub sequence: u8,
    /// Payload bytes that the packet on its way to the server still takes. Packets differ from the client's where
    /// Weir has put something in.
    pub room: usize,
    /// The packet on its way to the server has the greatest length, so that another one follows it.
    pub is_full: bool,
    /// Sequence id of the last packet header sent to the server.
    pub sent_sequence: u8,
    /// All payload bytes of the command so far.
    pub total_bytes: usize,
}

impl Upload {
    /// Whether all of the command has come.
    pub(crate) fn is_complete(&self) -> bool {
        self.packet_left == 0 && !self.continues
    }
}

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
    /// Only this server can answer it.
    pub only_server: Option<ServerIndex>,
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
    pub lost_on: Option<ServerIndex>,
    pub lost_at: Nanos,
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
    pub started_at: Nanos,
}

/// What has come of the reply.
#[derive(Default)]
pub(crate) struct Reply {
    /// The server has answered with an error that is not for the client as it is.
    pub refusal: Option<Refusal>,
    /// Sequence id of the server's error, in whose place another one may stand.
    pub refused_at: u8,
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

/// How the reply to a command ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ending {
    #[default]
    None,
    /// OK, or the OK behind the rows of a result.
    Ok { affected_rows: u64, insert_id: u64, warnings: u16, has_rows: bool },
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
}

impl Tries {
    /// Whether a server is busy with it, so that it has a time limit.
    pub(crate) fn is_under_way(&self) -> bool {
        self.is_sent || self.is_being_prepared
    }
}

impl Diagnostics {
    /// The reply tells what the session has written last. In place, as every write does.
    pub(crate) fn take_last_gtid(&mut self, value: &[u8]) {
        self.last_gtid.clear();
        if let Some(text) = std::str::from_utf8(value).ok().filter(|text| text.len() <= GTID_BYTES_MAX) {
            self.last_gtid.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There are ten thousand of them, most of them idle: what only some need is boxed.
    #[test]
    fn a_session_is_small() {
        assert!(size_of::<Session>() <= 1024, "{} bytes", size_of::<Session>());
    }
}
