//! Holds a connection to a server: its state, the replies it owes, and what it knows of the sessions that have had it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_config::SendProxyProtocol;
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::Encoding;
use weir_protocol::proxy_header;
use weir_protocol::response::{ReplyKind, ReplyReader};
use weir_session::defaults::Defaults;
use weir_session::login::{BackendLogin, Greeted};
use weir_session::prepared::{BackendStatements, Prepared};
use weir_session::state::State;
use weir_topology::SessionVariables;

use crate::context::Context;
use crate::keys::{ConnectionKey, Nanos, ServerIndex, SessionKey};
use crate::outbox::{Order, SocketId};
use crate::session::execution::{Lost, Settle};
use crate::session::retained::Retained;
use crate::snapshot::ServerTls;

/// A connection to a server.
pub(crate) struct ServerConnection {
    /// Its key in its worker.
    pub key: ConnectionKey,
    pub socket: SocketId,
    pub server: ServerIndex,
    pub identity: usize,
    /// The only client that it is for: the server has been told its address.
    pub client: Option<IpAddr>,
    /// How it has been told, if it has.
    pub proxy_header: SendProxyProtocol,
    /// Those of its identity.
    pub capabilities: Capabilities,
    pub purpose: Purpose,
    /// How it is encrypted.
    pub tls: Option<Arc<ServerTls>>,
    pub access: Access,
    pub stage: Stage,
    pub state: Rc<State>,
    /// What it has begun with, and what others call a default; of an unknown one only what Weir's init_connect has set.
    pub defaults: Rc<Defaults>,
    pub holder: Option<SessionKey>,
    pub traces: Traces,
    pub replies: Replies,
    pub statements: BackendStatements,
    /// Why it must not be used again.
    pub discard_reason: Option<DiscardReason>,
    /// A KILL is under way against it and not confirmed.
    pub kills_pending: u32,
    pub age: Age,
    /// Whether it counts against the server's max_connections.
    pub has_credit: bool,
    /// The hostgroup for which it was used last, or is being opened.
    pub hostgroup: u32,
    pub known: Known,
    pub settling: Settling,
    /// The server ends it with a transaction, unless the session says otherwise: completion_type=RELEASE.
    pub releases_by_default: bool,
    /// Bytes that are not acknowledged at once end it: its server's lease has lapsed while a statement was under way.
    pub is_hurried: bool,
}

/// As whom a connection is logged in, and since when.
pub(crate) struct Access {
    pub login: Option<Box<BackendLogin>>,
    pub greeted: Greeted,
    /// The server's renewal number from before the last login.
    pub renewal: u64,
    /// When that login began.
    pub logged_in_at: Nanos,
    /// To be logged in for these when the replies owed are in.
    pub next_principal: Option<Principal>,
}

/// Those whom a connection may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Principal {
    /// As whom it is logged in: the place of an `Identity`.
    pub identity: usize,
    /// The client whose address the server has been told, where it is told of any.
    pub client: Option<IpAddr>,
}

impl ServerConnection {
    /// Those whom it may serve.
    pub(crate) fn principal(&self) -> Principal {
        Principal { identity: self.identity, client: self.client }
    }

    /// The connection stands: before anything else its server is told for whom it is. There is no port to tell, as the client's
    /// sessions share it.
    pub(crate) fn introduce_client(&self, ctx: &mut Context, server: SocketAddr) {
        if self.proxy_header == SendProxyProtocol::Off {
            return;
        }
        let Some(out) = ctx.out.buffer(self.socket) else { return };
        let client = self.client.map(|ip| SocketAddr::new(ip, 0));
        match (self.proxy_header, client) {
            (SendProxyProtocol::Off, _) => {}
            (SendProxyProtocol::V1, Some(client)) => proxy_header::write_v1(client, server, out),
            (SendProxyProtocol::V2, Some(client)) => proxy_header::write_v2(client, server, out),
            (SendProxyProtocol::V1, None) => proxy_header::write_unknown_v1(out),
            (SendProxyProtocol::V2, None) => proxy_header::write_unknown_v2(out),
        }
    }
}

/// What sessions that have had a connection may have left there.
#[derive(Default)]
pub(crate) struct Traces {
    /// Idle, and the last session's diagnostics can still be asked for here.
    pub retained_for: Option<RetainedFor>,
    /// Something may have been changed here that nobody can name: it is wiped before another session gets it.
    pub is_suspect: bool,
    /// The session of which a statement has failed that may have switched session tracking off before: another one gets the
    /// connection when the server has said that it tracks. For MySQL; MariaDB is asked behind the statement itself.
    pub unproven: Option<SocketId>,
    /// The session that has had it last.
    pub last_holder: Option<SocketId>,
    /// Whose statements may have run hidden code here, since it was fresh.
    pub hidden_code_of: HiddenCode,
    /// Its set-up has been reported: so will be whatever a session sets.
    pub is_tracked: bool,
}

/// What a server owes on a connection, and what has come of it.
pub(crate) struct Replies {
    /// Replies that are to come, in order.
    pub expected: VecDeque<Expected>,
    pub reply: ReplyReader,
    pub inbox: Vec<u8>,
    /// Since when the reply at the front is waited for.
    pub asked_at: Nanos,
    /// Rows of the last result of the last reply.
    pub rows: u64,
}

/// How long a connection has lived, and how it is used.
pub(crate) struct Age {
    pub idle_since: Nanos,
    pub opened_at: Nanos,
    /// When its server has accepted it. None of another one in its place has answered since, as long as it lives.
    pub reached_at: Nanos,
    /// By so much of connection_max_age_ms it ends before that, so that those opened together do not end together.
    pub early_permille: u64,
    /// Some session has had it since it was opened.
    pub has_served: bool,
}

/// What Weir knows of what the connection would answer. None where only the server knows.
pub(crate) struct Known {
    /// What LAST_INSERT_ID() is on this connection; `None` where only the server knows.
    pub insert_id: Option<u64>,
    /// What FOUND_ROWS() is on this connection; `None` where only the server knows.
    pub found_rows: Option<u64>,
    /// What ROW_COUNT() is on this connection; `None` where only the server knows.
    pub row_count: Option<i64>,
    /// It may know conditions (errors, warnings, notes), of whomever.
    pub has_conditions: bool,
}

/// What has come of a question of Weir's behind a statement.
pub(crate) struct Settling {
    /// The rows of an answer to [`Expected::Settle`].
    pub bytes: Vec<u8>,
    /// The server could not answer: ask once more.
    pub again: bool,
    /// How often it could not, in a row.
    pub refusals: u8,
    /// The server refused a question because it takes no statements.
    pub is_rejected: bool,
}

impl ServerConnection {
    /// Everything is reset: what is known of sessions that have had it does not count any more.
    pub(crate) fn forget_sessions(&mut self) {
        self.statements.clear();
        self.known.insert_id = Some(0);
        self.known.found_rows = None;
        self.known.row_count = None;
        self.known.has_conditions = true;
        self.traces.is_suspect = false;
        self.traces.unproven = None;
        self.traces.last_holder = None;
        self.traces.hidden_code_of = HiddenCode::None;
    }
}

/// Whose statements may have run hidden code on a connection. Of such code servers do not report `SELECT ... INTO @x`,
/// NEXTVAL() and GET_LOCK() (MariaDB 10.11, MySQL 9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HiddenCode {
    /// Nobody's.
    #[default]
    None,
    /// Only this session's.
    Of(SocketId),
    /// Several sessions'.
    OfSeveral,
}

impl HiddenCode {
    /// A session's statement has run.
    pub(crate) fn note(&mut self, session: SocketId) {
        *self = match *self {
            Self::None => Self::Of(session),
            Self::Of(known) if known == session => Self::Of(known),
            _ => Self::OfSeveral,
        };
    }

    /// Whether another session's may have left something behind.
    pub(crate) fn is_of_another(self, session: SocketId) -> bool {
        self != Self::None && self != Self::Of(session)
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Connecting, logging in, being set up.
    Dialing,
    /// Being logged in as another user.
    HandingOver,
    /// In use or idle.
    Ready,
}

/// Diagnostics of a session that live on an idle connection until another session needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedFor {
    pub session: SessionKey,
    /// Tells whether the key still means the same session.
    pub socket: SocketId,
    pub what: Retained,
}

/// A connection was asked for what it knew of a session that has left it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub session: SessionKey,
    pub socket: SocketId,
    /// What the connection does not know any more, answered or not.
    pub what: Retained,
    /// Answers that are to come.
    pub answers: u32,
    /// A question has also set LAST_INSERT_ID() to that of the session that gets the connection.
    pub gives_id: bool,
}

/// What a connection was opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Statements of sessions.
    Pool,
    /// One KILL.
    Kill(Kill),
}

/// A KILL on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kill {
    pub victim: ConnectionKey,
    /// Tells whether the key still means the same connection.
    pub victim_socket: SocketId,
    pub thread_id: u32,
    /// KILL QUERY instead of KILL CONNECTION.
    pub query_only: bool,
}

/// What the reply to a session's own command looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Relayed {
    pub kind: ReplyKind,
    /// Of a command of several packets: the sequence id of the last one as it was sent, and as it was received.
    pub continued: Option<(u8, u8)>,
}

impl Relayed {
    /// The reply to a command of one packet.
    pub(crate) fn new(kind: ReplyKind) -> Self {
        Self { kind, continued: None }
    }
}

/// A reply that a server connection owes.
#[derive(Debug)]
pub(crate) enum Expected {
    /// Of the SET that switches tracking on.
    Setup,
    /// Of a statement of init_connect.
    Init,
    /// The variables of a fresh connection.
    Defaults(Arc<SessionVariables>),
    /// COM_INIT_DB or SET that carries a session's state; the last of a group brings the state with it.
    Sync(Option<Rc<State>>),
    /// COM_STMT_PREPARE that Weir sends to run a statement here.
    Prepare(Rc<Prepared>),
    /// The session's own command.
    Relay(Relayed),
    /// A statement of the session's transaction, which runs again.
    Replay,
    /// What a transaction writes of itself in front of its COMMIT: see `commit_outcome`.
    Marker,
    /// START TRANSACTION around a session's write: see `wrapped_write`.
    Wrap,
    /// COMMIT behind it.
    CommitWrapped,
    /// ROLLBACK behind it.
    UndoWrapped,
    /// A number, in front of a transaction that runs again.
    Number,
    /// COM_PING behind an error of a transaction that runs again.
    IsOpen,
    /// The command was sent together with a Sync that failed: its reply is thrown away.
    Discard(Relayed),
    /// SET ROLE NONE, in front of a COM_CHANGE_USER: see `relogin`.
    LeaveRole,
    /// COM_CHANGE_USER: a login on an open connection.
    ChangeUser,
    /// COM_RESET_CONNECTION of an abandoned connection.
    Reset,
    /// The schema and the role of a connection that was reset: see `verify`.
    Verify,
    /// Whether the server still tracks: see `verify`.
    Tracks,
    /// COMMIT of a read-only transaction, in front of a statement that does not belong on its reader.
    Leave,
    /// SET last_insert_id, in front of a statement that asks for it.
    InsertId,
    /// A query of as many rows as FOUND_ROWS() is to be, in front of a statement that may leave it as it is.
    FoundRows,
    /// COM_PING of an idle connection.
    Ping,
    /// What Weir asks at the end of a statement.
    Settle(Settle),
    /// What a session has on a connection that it is to leave: see `moving`.
    Moving,
    /// SET of a session's user variables, which it had on another connection.
    Carried,
    /// A SELECT or SHOW that saves a session's diagnostics before another one takes the connection.
    Fetch(Fetch),
    /// The KILL of [`Purpose::Kill`].
    Kill,
}

impl Expected {
    /// What it looks like.
    fn kind(&self) -> ReplyKind {
        match self {
            Self::Relay(relayed) | Self::Discard(relayed) => relayed.kind,
            Self::Prepare(_) => ReplyKind::Prepare,
            Self::Ping | Self::IsOpen | Self::Reset => ReplyKind::Simple,
            _ => ReplyKind::Results,
        }
    }

    /// Nobody gets it.
    pub(crate) fn discard(&mut self) {
        if let Self::Relay(relayed) = *self {
            *self = Self::Discard(relayed);
        }
    }

    /// Whether a session's statement runs, or is made ready to.
    pub(crate) fn is_work(&self) -> bool {
        match self {
            Self::Relay(_)
            | Self::Prepare(_)
            | Self::Sync(_)
            | Self::InsertId
            | Self::FoundRows
            | Self::Carried
            | Self::Leave
            | Self::Replay
            | Self::Marker
            | Self::Wrap
            | Self::CommitWrapped
            | Self::Number
            | Self::IsOpen
            | Self::Tracks => true,
            Self::Discard(_)
            | Self::Setup
            | Self::Init
            | Self::Defaults(_)
            | Self::LeaveRole
            | Self::ChangeUser
            | Self::Reset
            | Self::Verify
            | Self::Ping
            | Self::UndoWrapped
            | Self::Settle(_)
            | Self::Moving
            | Self::Fetch(_)
            | Self::Kill => false,
        }
    }

    /// Whether it is the reply to a statement of a session, wanted or not.
    pub(crate) fn is_statement(&self) -> bool {
        matches!(self, Self::Relay(_) | Self::Discard(_))
    }
}

/// A query for diagnostics of a session that has left the connection.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub session: SessionKey,
    pub socket: SocketId,
    pub what: Retained,
    /// Packets (SHOW WARNINGS) or the text of the first row (SELECT).
    pub bytes: Vec<u8>,
    pub is_too_long: bool,
    /// In which bytes the text in them comes: the connection's `character_set_results`, if that is known.
    pub encoding: Option<Encoding>,
    /// It also sets LAST_INSERT_ID() to that of the session which has the connection now.
    pub gives_id: bool,
}

/// Why a connection is thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscardReason {
    /// Its client went away while a statement ran.
    ClientGone,
    /// A KILL against it was sent and never answered.
    KillAstray,
    /// The server broke the protocol.
    BrokenReply,
    /// A session's state could not be brought to it.
    SyncFailed,
    /// It has a role that its login does not give, or is not proven to have none.
    RoleLeft,
    /// The user or the server was removed or changed, or it is one too many.
    Stale,
    /// connection_max_age_ms is over.
    Aged,
    /// No answer to a ping within ping_timeout_server.
    Silent,
    /// The lease of its server has lapsed before a statement had gone out whole.
    Lapsed,
    /// The server takes no statements, or no writes, any more, and what was begun on it is lost.
    Rejected,
}

impl Replies {
    /// A reader for the reply at the front, when it has just become the front.
    pub(crate) fn restart_reply(&mut self, now: Nanos) {
        self.asked_at = now;
        let kind = self.expected.front().map_or(ReplyKind::Results, Expected::kind);
        self.reply = ReplyReader::new(kind, 1);
        // A command of several packets may have gone out while replies to others were still owed.
        if let Some(Expected::Relay(Relayed { continued: Some((sent, received)), .. })) =
            self.expected.front()
        {
            self.reply.command_continued(*sent, *received);
        }
    }

    /// Whether the reply at the front is an answer of one row to a question of Weir's.
    pub(crate) fn is_asked_for_row(&self) -> bool {
        let asked = self.expected.front();
        asked.is_some_and(|expected| {
            matches!(
                expected,
                Expected::Settle(_)
                    | Expected::Moving
                    | Expected::Number
                    | Expected::Verify
                    | Expected::Tracks
                    | Expected::Defaults(_)
            )
        })
    }

    /// Another packet of the holder's command has gone out: its reply's sequence ids begin behind it.
    pub(crate) fn command_continued(&mut self, sent: u8, received: u8) {
        if let Some(Expected::Relay(_)) = self.expected.front() {
            self.reply.command_continued(sent, received);
        }
        let mut relayed = self.expected.iter_mut().filter_map(|expected| match expected {
            Expected::Relay(relayed) => Some(relayed),
            _ => None,
        });
        if let Some(relayed) = relayed.next_back() {
            relayed.continued = Some((sent, received));
        }
    }
}

impl ServerConnection {
    /// What is to be remembered of a connection when it is lost.
    pub(crate) fn loss_of(&self) -> Lost {
        Lost { server: self.server, opened_at: self.age.opened_at }
    }
}

impl ServerConnection {
    /// TLS stands: the login goes on in it.
    pub(crate) fn server_encrypted(&mut self, ctx: &mut Context) {
        let Some(login) = &mut self.access.login else { return };
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            login.encrypted(buffer);
        }
    }
}

impl ServerConnection {
    /// The session's statement is answered: its connection has all the time again.
    pub(crate) fn end_hurry(&mut self, ctx: &mut Context) {
        if std::mem::take(&mut self.is_hurried) {
            ctx.out.order(Order::AcknowledgeWithin(self.socket, Duration::ZERO));
        }
    }
}

impl ServerConnection {
    /// In which bytes text comes from this connection.
    pub(crate) fn results_on(&self) -> Option<Encoding> {
        Encoding::of(self.state.variable("character_set_results")?)
    }

    /// The message of an error that this connection has sent.
    pub(crate) fn message_from(&self, message: &[u8]) -> String {
        let text = self.results_on().and_then(|encoding| encoding.decode(message));
        text.unwrap_or_else(|| String::from_utf8_lossy(message).into_owned())
    }
}

impl Replies {
    /// Where an error may stand in the answer that a session is getting from this connection: its sequence id.
    pub(crate) fn breaks_off(&self) -> Option<u8> {
        matches!(self.expected.front(), Some(Expected::Relay(_))).then(|| self.reply.break_off())?
    }
}
