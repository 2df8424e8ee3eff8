//! Holds a session and its parts. Nothing here knows a server, nor sends anything.

use std::rc::Rc;
use std::sync::Arc;

use foldhash::HashMap;
use weir_config::Listener;
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::{Collation, Encoding};
use weir_protocol::error::ServerError;
use weir_protocol::handshake::Scramble;
use weir_routing::{Decision, TransactionSettings};
use weir_session::accounts::ClientCertificate;
use weir_session::defaults::Defaults;
use weir_session::login::Channel;
use weir_session::pin::{PinBoard, Pins};
use weir_session::prepared::ClientStatement;
use weir_session::state::State;
use weir_session::track::TrackPreferences;
use weir_sql::Dialect;

use crate::keys::{ConnectionKey, Nanos, SessionKey};
use crate::outbox::SocketId;
use crate::peer::Peer;
use crate::plan::execution_plan::CommandKind;
use crate::session::bonds::{Detour, Lease};
use crate::session::execution::Execution;
use crate::session::farewell::PendingError;
use crate::session::freshness::Freshness;
use crate::session::infile::Infile;
use crate::session::moving::Moving;
use crate::session::phase::Phase;
use crate::session::retained::Retained;
use crate::session::scope::KnownScope;
use crate::session::transaction_log::TransactionLog;
use crate::session::upload::Upload;
use crate::snapshot::Account;
use crate::stats::statements::KnownCaller;

pub(crate) mod bonds;
pub(crate) mod causal_token;
pub(crate) mod counting;
pub(crate) mod execution;
pub(crate) mod farewell;
pub(crate) mod freshness;
pub(crate) mod infile;
pub(crate) mod logging;
pub(crate) mod moving;
pub(crate) mod phase;
pub(crate) mod prepared;
pub(crate) mod retained;
pub(crate) mod scope;
pub(crate) mod status_flags;
pub(crate) mod text;
pub(crate) mod tracked;
pub(crate) mod tracking;
pub(crate) mod transaction_log;
pub(crate) mod transaction_settings;
pub(crate) mod upload;

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
    pub lease: Option<Lease>,
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
    pub freshness: Freshness,
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
    /// Where it is: as the system says, or as a header of the PROXY protocol has told.
    pub peer: Peer,
    /// Such a header may come in front of its first packet.
    pub awaits_proxy_header: bool,
    pub is_tls: bool,
    /// What it has shown in TLS.
    pub certificate: Option<Arc<ClientCertificate>>,
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
    /// It has servers wait until they have everything before they read.
    pub has_servers_wait: bool,
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
    /// The open transaction has begun without a log, and gets none in its middle.
    pub is_unlogged: bool,
    /// What its SETs say of its next transactions.
    pub own: TransactionSettings,
    /// When the open transaction began.
    pub since: Nanos,
    /// What it has done, where it may run again on another server.
    pub log: Option<Box<TransactionLog>>,
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
    /// Whether its statement may mean LAST_INSERT_ID(), as its plan says. With `sql_auto_is_null` every statement may.
    pub(crate) fn depends_on_insert_id(&self) -> bool {
        let is_null_meant = self.pins.pins().contains(Pins::AUTO_IS_NULL)
            && matches!(self.execution.plan.kind(), CommandKind::Query | CommandKind::Execute);
        is_null_meant || self.execution.plan.depends_on_insert_id()
    }

    /// The client's name of itself; empty if it told none.
    pub(crate) fn program(&self) -> &str {
        self.client.program.as_deref().unwrap_or_default()
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

/// SHOW WARNINGS as it was.
#[derive(Default)]
pub(crate) struct SavedWarnings {
    /// The packets of the reply. None at all: nobody knows them any more.
    pub packets: Vec<u8>,
    /// In which bytes the text in them came, if that is known.
    pub encoding: Option<Encoding>,
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
        assert!(size_of::<Session>() <= 1112, "{} bytes", size_of::<Session>());
    }
}
