//! A connection of a model server: a MariaDB that knows the few statements of the simulation, and tracks a
//! session's state as docs/internals/session-tracking.md says.

mod answer;
pub(crate) mod variables;

use std::collections::{BTreeMap, HashMap};

use weir_protocol::auth::native;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{ChangeUser, Command, StmtExecute, StmtPrepareOk};
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame;
use weir_protocol::handshake::{AuthSwitchRequest, HandshakeResponse, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_protocol::resultset::ColumnDefinition;
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Reader;

use crate::cluster::{Cluster, OutcomeChange};
use crate::support::{self, SERVER_CAPABILITIES, take_packet};
use crate::token::Token;

/// Schemas that exist.
pub(crate) const SCHEMAS: [&str; 3] = ["a", "b", "c"];
/// A table or a key that is not as the statement would have it.
const NO_SUCH_TABLE: ServerError = ServerError { code: 1146, sqlstate: *b"42S02" };
const UNKNOWN_COMMAND: ServerError = ServerError { code: 1047, sqlstate: *b"08S01" };
const UNKNOWN_DATABASE: ServerError = ServerError { code: 1049, sqlstate: *b"42000" };
const NO_TRACKS: &str = "________";

/// What a command wants from outside the connection.
pub(crate) enum Outside {
    Nothing,
    /// KILL of a thread of the same server.
    Kill {
        thread: u32,
        query_only: bool,
    },
}

enum Phase {
    Login,
    /// An auth switch of COM_CHANGE_USER is out: this user and schema.
    Switching(Vec<u8>, String, u16),
    Ready,
}

#[derive(Clone)]
struct Prepared {
    text: String,
    schema: String,
    has_types: bool,
}

#[derive(Default)]
struct Session {
    schema: String,
    variables: BTreeMap<String, String>,
    user_variable: String,
    in_transaction: bool,
    /// It is Weir's, around one write of a session that has none.
    is_wrapped: bool,
    insert_id: u64,
    /// Writes in front of the savepoint.
    savepoint: usize,
    /// `SET insert_id`
    forced_id: u64,
    /// Its last statement was answered with 1213.
    is_undone: bool,
    warnings: Vec<String>,
    uncommitted: Vec<(usize, usize)>,
    /// Its row of `weir.outcomes`.
    outcome: Option<OutcomeChange>,
    statements: HashMap<u32, Prepared>,
    is_tracking: bool,
    /// The last statement began a transaction, because autocommit is off.
    has_just_begun: bool,
    /// A SET was refused: a read that Weir has sent along may run, but nobody may see its result.
    is_refused: bool,
}

pub(crate) struct Conn {
    pub node: usize,
    pub thread: u32,
    /// Bytes that have come.
    pub inbox: Vec<u8>,
    /// Bytes to send.
    pub out: Vec<u8>,
    pub is_closed: bool,
    /// The reply to a statement that takes its time, and when it is due.
    pub sleeping: Option<(u64, Vec<u8>)>,
    /// The cluster has rolled its transaction back: the next command is answered with that, and not done.
    is_aborted: bool,
    phase: Phase,
    user: Vec<u8>,
    login_collation: u16,
    session: Session,
    next_statement: u32,
    sequence: u8,
}

impl Conn {
    pub(crate) fn new(node: usize, cluster: &mut Cluster) -> Self {
        cluster.nodes[node].threads += 1;
        let thread = cluster.nodes[node].threads;
        Self {
            node,
            thread,
            inbox: Vec::new(),
            out: support::greeting(thread),
            is_closed: false,
            sleeping: None,
            is_aborted: false,
            phase: Phase::Login,
            user: Vec::new(),
            login_collation: 45,
            session: Session::default(),
            next_statement: 0,
            sequence: 0,
        }
    }

    /// Whether there is something to do.
    pub(crate) fn is_ready(&self, now: u64) -> bool {
        match &self.sleeping {
            Some((due, _)) => *due <= now,
            None => frame::Header::parse(&self.inbox)
                .is_some_and(|header| self.inbox.len() >= header.packet_len()),
        }
    }

    /// Answers one packet.
    pub(crate) fn step(&mut self, cluster: &mut Cluster, now: u64) -> Outside {
        if let Some((_, reply)) = self.sleeping.take() {
            self.out.extend_from_slice(&reply);
            return Outside::Nothing;
        }
        let Some((sequence, payload)) = take_packet(&mut self.inbox) else { return Outside::Nothing };
        self.sequence = sequence.wrapping_add(1);
        match std::mem::replace(&mut self.phase, Phase::Ready) {
            Phase::Login => self.login(cluster, &payload),
            Phase::Switching(user, schema, collation) => {
                self.switched(cluster, &payload, user, schema, collation)
            }
            Phase::Ready => {
                if sequence != 0 {
                    cluster.fault(format!("a command with sequence id {sequence} came to a server"));
                }
                return self.command(cluster, &payload, now);
            }
        }
        Outside::Nothing
    }

    /// KILL has struck.
    pub(crate) fn killed(&mut self, cluster: &mut Cluster, query_only: bool) {
        if !query_only {
            self.close(cluster);
        } else if self.sleeping.take().is_some() {
            self.sequence = 1;
            // As if it had not begun: its client can't know how far it was.
            self.session.in_transaction &= !self.session.has_just_begun;
            self.error(error::QUERY_INTERRUPTED, "Query execution was interrupted");
        }
    }

    /// Another node's write wins over this connection's transaction, which waits for its next statement.
    pub(crate) fn abort(&mut self, cluster: &mut Cluster) {
        let waits = self.inbox.is_empty() && self.sleeping.is_none();
        if waits && self.session.in_transaction && !self.session.uncommitted.is_empty() {
            trace!("    server {} thread {} is aborted", self.node, self.thread);
            cluster.roll_back(&std::mem::take(&mut self.session.uncommitted));
            self.session.outcome = None;
            self.session.in_transaction = false;
            self.is_aborted = true;
        }
    }

    /// The connection ends, whoever ended it: an open transaction is rolled back.
    pub(crate) fn close(&mut self, cluster: &mut Cluster) {
        trace!("    server {} thread {} is closed", self.node, self.thread);
        cluster.roll_back(&std::mem::take(&mut self.session.uncommitted));
        self.is_closed = true;
        self.sleeping = None;
    }

    fn login(&mut self, cluster: &mut Cluster, payload: &[u8]) {
        let response = HandshakeResponse::parse(payload).expect("Weir's handshake response parses");
        let scramble = b"abcdefghijklmnopqrst";
        let proof = native::response(support::PASSWORD, scramble).expect("a password");
        if response.auth_data != proof {
            cluster.fault("Weir logged in with a wrong proof");
        }
        self.user = response.user.to_vec();
        self.login_collation = response.collation.into();
        self.reset(cluster, String::new());
        self.ok(StatusFlags::AUTOCOMMIT, &[], |ok| ok);
    }

    fn switched(
        &mut self,
        cluster: &mut Cluster,
        payload: &[u8],
        user: Vec<u8>,
        schema: String,
        collation: u16,
    ) {
        let proof = native::response(support::PASSWORD, b"ABCDEFGHIJKLMNOPQRST").expect("a password");
        if payload != proof {
            cluster.fault("Weir changed the user with a wrong proof");
        }
        self.user = user;
        self.login_collation = collation;
        self.reset(cluster, schema);
        self.ok(StatusFlags::AUTOCOMMIT, &[], |ok| ok);
    }

    /// COM_RESET_CONNECTION, and what a login begins with.
    fn reset(&mut self, cluster: &mut Cluster, schema: String) {
        cluster.roll_back(&std::mem::take(&mut self.session.uncommitted));
        self.session = Session { schema, ..Session::default() };
        let (charset, collation) = if self.login_collation == 8 {
            ("latin1", "latin1_swedish_ci")
        } else {
            ("utf8mb4", "utf8mb4_general_ci")
        };
        self.set_names(charset, collation);
    }

    fn command(&mut self, cluster: &mut Cluster, payload: &[u8], now: u64) -> Outside {
        let Some((&code, body)) = payload.split_first() else {
            cluster.fault("an empty command came to a server");
            return Outside::Nothing;
        };
        trace!(
            "    server {} thread {} gets {:?} {}",
            self.node,
            self.thread,
            Command::parse(code),
            body.get(..160).unwrap_or(body).escape_ascii()
        );
        let is_answered = !matches!(Command::parse(code), Some(Command::StmtClose | Command::Quit));
        if is_answered && !matches!(body, b"SHOW WARNINGS" | b"SHOW COUNT(*) WARNINGS") {
            self.session.is_undone = self.is_aborted;
        }
        if is_answered && std::mem::take(&mut self.is_aborted) {
            self.error(
                error::LOCK_DEADLOCK,
                "Deadlock found when trying to get lock; try restarting transaction",
            );
            return Outside::Nothing;
        }
        match Command::parse(code) {
            Some(Command::Query) => return self.query(cluster, &String::from_utf8_lossy(body), now),
            Some(Command::InitDb) => self.use_schema(&String::from_utf8_lossy(body)),
            Some(Command::Ping) => self.ok(self.status(), &[], |ok| ok),
            Some(Command::Quit) => self.close(cluster),
            Some(Command::ResetConnection) => {
                let schema = self.session.schema.clone();
                self.reset(cluster, schema);
                self.ok(StatusFlags::AUTOCOMMIT, &[], |ok| ok);
            }
            Some(Command::ChangeUser) => self.change_user(payload),
            Some(Command::StmtPrepare) => self.prepare(&String::from_utf8_lossy(body)),
            Some(Command::StmtExecute) => self.execute(cluster, payload, now),
            Some(Command::StmtClose) => {
                let id = Reader::new(body).u32().unwrap_or(0);
                if self.session.statements.remove(&id).is_none() {
                    cluster.fault(format!("Weir closed statement {id}, which does not exist"));
                }
            }
            other => cluster.fault(format!("a server was sent {other:?}")),
        }
        Outside::Nothing
    }

    fn change_user(&mut self, payload: &[u8]) {
        let change = ChangeUser::parse(payload, SERVER_CAPABILITIES).expect("Weir's COM_CHANGE_USER parses");
        let schema = String::from_utf8_lossy(change.database).into_owned();
        self.phase = Phase::Switching(change.user.to_vec(), schema, change.collation.unwrap_or(8));
        let switch = AuthSwitchRequest { plugin: MYSQL_NATIVE_PASSWORD, data: b"ABCDEFGHIJKLMNOPQRST" };
        let mut sequence = self.sequence;
        frame::packet(&mut self.out, &mut sequence, |out| switch.write(out));
    }

    fn query(&mut self, cluster: &mut Cluster, text: &str, now: u64) -> Outside {
        if let Some(kill) = text.strip_prefix("KILL ") {
            let (what, thread) = kill.split_once(' ').unwrap_or_default();
            self.ok(self.status(), &[], |ok| ok);
            return Outside::Kill { thread: thread.parse().unwrap_or(0), query_only: what == "QUERY" };
        }
        if text == "SET TRANSACTION READ WRITE" {
            let track = [SessionTrack::TransactionCharacteristics(b"SET TRANSACTION READ WRITE;")];
            self.ok(self.status(), &track, |ok| ok);
        } else if text == "SET ROLE NONE" {
            // There are no roles here.
            self.ok(self.status(), &[], |ok| ok);
        } else if let Some(list) = text.strip_prefix("SET ") {
            self.set(cluster, list);
        } else if let Some(schema) = text.strip_prefix("USE ") {
            self.use_schema(schema);
        } else {
            match text {
                "BEGIN" | "START TRANSACTION READ WRITE" => self.begin(cluster),
                "START TRANSACTION" => {
                    self.begin(cluster);
                    self.session.is_wrapped = true;
                }
                "COMMIT" | "COMMIT AND NO CHAIN NO RELEASE" => self.end(cluster, true),
                "SELECT LAST_INSERT_ID() LIMIT 1" => {
                    let id = self.session.insert_id.to_string();
                    self.rows(&["LAST_INSERT_ID()"], &[&[&id]]);
                }
                text if text.contains(" weir.outcomes ") => self.outcome(cluster, text),
                "ROLLBACK" | "ROLLBACK AND NO CHAIN NO RELEASE" => self.end(cluster, false),
                text if text.starts_with("SAVEPOINT weir_replay_") => {
                    self.session.savepoint = self.session.uncommitted.len();
                    self.ok(self.status(), &[], |ok| ok);
                }
                text if text.starts_with("ROLLBACK TO SAVEPOINT weir_replay_") => {
                    let undone = self.session.uncommitted.split_off(self.session.savepoint);
                    cluster.roll_back(&undone);
                    self.ok(self.status(), &[], |ok| ok);
                }
                "SHOW WARNINGS" if self.session.is_undone => {
                    self.rows(&["Level", "Code", "Message"], &[&["Error", "1213", "Deadlock found"]]);
                }
                "SHOW COUNT(*) WARNINGS" => self.rows(&["@@session.warning_count"], &[&["1"]]),
                "SHOW WARNINGS" => self.show_warnings(),
                // The session's FOUND_ROWS(), in front of a statement that may leave it as it is.
                "SELECT 1" => self.rows(&["1"], &[&["1"]]),
                "SELECT 1 LIMIT 0" => self.rows(&["1"], &[]),
                text if text.starts_with("SELECT CAST(CONVERT(LAST_INSERT_ID() USING latin1)") => {
                    let id = self.session.insert_id.to_string();
                    if text.contains(", LAST_INSERT_ID(") {
                        let given = given_id(text);
                        self.session.insert_id = given;
                        let names = ["LAST_INSERT_ID()", "FOUND_ROWS()", "LAST_INSERT_ID(n)"];
                        self.rows(&names, &[&[&id, "1", &given.to_string()]]);
                    } else {
                        self.rows(&["LAST_INSERT_ID()", "FOUND_ROWS()"], &[&[&id, "1"]]);
                    }
                }
                // The plugin is not there: sessions with user variables stay where they are.
                text if text.contains("FROM information_schema.USER_VARIABLES") => {
                    let unknown = ServerError { code: 1109, sqlstate: *b"42S02" };
                    self.error(unknown, "Unknown table 'USER_VARIABLES' in information_schema");
                }
                // There are no roles here.
                text if text.starts_with("SELECT CAST(CONVERT(DATABASE()") => {
                    let schema = self.session.schema.clone();
                    self.rows(&["schema", "role"], &[&[&schema, "login"]]);
                }
                text if text.starts_with("SELECT CAST(CONVERT(@@session.character_set_connection") => {
                    let [charset, collation] = ["character_set_connection", "collation_connection"]
                        .map(|name| self.variable(name).to_owned());
                    self.rows(
                        &["character_set_connection", "collation_connection"],
                        &[&[&charset, &collation]],
                    );
                }
                _ => match Token::find(text) {
                    Some(token) => self.statement(cluster, &token, text, false, now),
                    None => cluster.fault(format!("a server was sent {text:?}")),
                },
            }
        }
        Outside::Nothing
    }

    /// A statement of a client: an INSERT, or a SELECT that may ask for something else besides its token.
    fn statement(&mut self, cluster: &mut Cluster, token: &Token, text: &str, is_binary: bool, now: u64) {
        if cluster.nodes[self.node].is_out {
            return self.error(UNKNOWN_COMMAND, "WSREP has not yet prepared node for application use");
        }
        let is_write = text.starts_with("INSERT");
        let is_in_vain = self.session.is_refused && !is_write;
        if !is_in_vain {
            self.check(cluster, token);
        }
        self.session.warnings.clear();
        if token.wishes.fails {
            self.session.warnings.push(token.to_string());
            return self.error(NO_SUCH_TABLE, &token.to_string());
        }
        self.session.is_wrapped &= self.session.in_transaction;
        self.session.has_just_begun = self.variable("autocommit") == "OFF" && !self.session.in_transaction;
        self.session.in_transaction |= self.session.has_just_begun;
        let start = self.out.len();
        if is_write {
            self.insert(cluster, token);
        } else {
            let mut value = if is_in_vain { "in vain".into() } else { token.to_string() };
            value.push_str(&"x".repeat(token.wishes.kilobytes << 10));
            let extra = match text.strip_prefix("SELECT ") {
                Some(rest) if rest.starts_with("LAST_INSERT_ID()") => {
                    Some(self.session.insert_id.to_string())
                }
                Some(rest) => rest.split_once(" AS `").map(|(value, _)| answer::number(value)),
                None => None,
            };
            match (extra, is_binary) {
                (Some(extra), _) => self.rows(&["extra", "token"], &[&[&extra, &value]]),
                (None, false) => self.rows(&["token"], &[&[&value]]),
                (None, true) => self.binary_row(&value),
            }
        }
        if token.wishes.sleep_ms > 0 {
            let reply = self.out.split_off(start);
            self.sleeping = Some((now + token.wishes.sleep_ms * 1_000_000, reply));
        }
    }

    fn insert(&mut self, cluster: &mut Cluster, token: &Token) {
        let forced = std::mem::take(&mut self.session.forced_id);
        let insert_id = cluster.write(self.node, token, (forced != 0).then_some(forced));
        self.session.insert_id = insert_id;
        self.session.uncommitted.push(token.name());
        let mut tracks = Vec::new();
        let gtid;
        if !self.session.in_transaction {
            cluster.commit(self.node, &std::mem::take(&mut self.session.uncommitted));
            gtid = format!("100-1-{}", cluster.commits);
            tracks.push(SessionTrack::SystemVariable { name: b"last_gtid", value: gtid.as_bytes() });
        } else {
            tracks.push(SessionTrack::TransactionState(b"T___W___"));
        }
        let warnings = u16::from(token.wishes.warns);
        if token.wishes.warns {
            self.session.warnings.push(token.to_string());
        }
        self.ok(self.status(), &tracks, |ok| OkPacket {
            affected_rows: 1,
            last_insert_id: insert_id,
            warnings,
            ..ok
        });
    }

    /// A transaction's row, which is written in front of its COMMIT, or looked for when the answer to that is lost.
    fn outcome(&mut self, cluster: &mut Cluster, text: &str) {
        let digits = text.split(|letter: char| !letter.is_ascii_digit());
        let numbers: Vec<u64> = digits.filter_map(|number| number.parse().ok()).collect();
        if let (true, [owner, slot, _limit]) = (text.starts_with("SELECT number"), &numbers[..]) {
            let key = (*owner, *slot);
            let own = self.session.outcome.filter(|change| change.key == key).map(|change| change.number);
            let held = own.or(cluster.outcomes.get(&key).map(|row| row.0)).map(|number| number.to_string());
            let row = held.as_deref().map(|held| [held]);
            let rows: Vec<&[&str]> = row.iter().map(|row| row.as_slice()).collect();
            return self.rows(&["number"], &rows);
        }
        let Some(change) = cluster.change_outcome(&numbers) else {
            return cluster.fault(format!("a server was sent {text:?}"));
        };
        self.session.in_transaction |= self.variable("autocommit") == "OFF";
        if self.session.in_transaction {
            self.session.outcome = Some(change);
        } else if !cluster.commit_outcome(change) {
            cluster.fault("a row of weir.outcomes has changed in one statement");
        }
        self.ok(self.status(), &[], |ok| ok);
    }

    /// Compares what the statement's session believes with what is.
    fn check(&self, cluster: &mut Cluster, token: &Token) {
        let session = &self.session;
        let mut is = token.claims.clone();
        is.schema = session.schema.clone();
        is.time_zone = self.variable("time_zone").into();
        is.lock_wait = self.variable("innodb_lock_wait_timeout").into();
        is.sql_mode = self.variable("sql_mode").into();
        is.charset = self.variable("character_set_connection").into();
        is.collation = self.variable("collation_connection").into();
        is.is_autocommit = self.variable("autocommit") != "OFF";
        // A statement that is taken back to a savepoint, to run with another number, has begun the transaction already.
        is.in_transaction =
            if session.forced_id == 0 { session.in_transaction } else { token.claims.in_transaction };
        if session.in_transaction && session.is_wrapped {
            if token.claims.in_transaction || !session.uncommitted.is_empty() {
                cluster.fault(format!("in a transaction of another statement's: {token}"));
            }
            is.in_transaction = false;
        }
        is.user_variable = session.user_variable.clone();
        if token.wishes.leaves && !session.in_transaction && !cluster.nodes[self.node].may_write {
            is.in_transaction = token.claims.in_transaction; // it is open elsewhere
        }
        if is != token.claims {
            cluster.fault(format!(
                "a statement ran in another state:\n  is     {is:?}\n  claims {:?}",
                token.claims
            ));
        }
        if cluster.nodes[self.node].applied < token.claims.wrote {
            let applied = cluster.nodes[self.node].applied;
            cluster.fault(format!(
                "a session did not see its own write: server {} is at {applied}: {token}",
                self.node
            ));
        }
    }

    fn begin(&mut self, cluster: &mut Cluster) {
        cluster.commit(self.node, &std::mem::take(&mut self.session.uncommitted));
        self.session.outcome = None;
        (self.session.in_transaction, self.session.is_wrapped) = (true, false);
        let tracks = [
            SessionTrack::TransactionState(b"T_______"),
            SessionTrack::TransactionCharacteristics(b"START TRANSACTION;"),
        ];
        self.ok(self.status(), &tracks, |ok| ok);
    }

    fn end(&mut self, cluster: &mut Cluster, commits: bool) {
        let writes = std::mem::take(&mut self.session.uncommitted);
        let change = self.session.outcome.take();
        if commits && change.is_some_and(|change| !cluster.commit_outcome(change)) {
            // Another one has changed its row.
            cluster.roll_back(&writes);
            self.session.in_transaction = false;
            self.session.is_undone = true;
            return self.error(error::LOCK_DEADLOCK, "Deadlock: another write set came first");
        }
        let gtid = format!("100-1-{}", cluster.commits + 1);
        let mut tracks = Vec::new();
        if commits && !writes.is_empty() {
            tracks.push(SessionTrack::SystemVariable { name: b"last_gtid", value: gtid.as_bytes() });
        }
        if commits {
            cluster.commit(self.node, &writes);
        } else {
            cluster.roll_back(&writes);
        }
        self.session.in_transaction = false;
        tracks.push(SessionTrack::TransactionState(NO_TRACKS.as_bytes()));
        tracks.push(SessionTrack::TransactionCharacteristics(b""));
        self.ok(self.status(), &tracks, |ok| ok);
    }

    fn use_schema(&mut self, schema: &str) {
        if !SCHEMAS.contains(&schema) {
            return self.error(UNKNOWN_DATABASE, &format!("Unknown database '{schema}'"));
        }
        self.session.schema = schema.into();
        let tracks = [SessionTrack::Schema(schema.as_bytes()), SessionTrack::StateChange(true)];
        self.ok(self.status(), &tracks, |ok| ok);
    }

    fn show_warnings(&mut self) {
        let rows = self.session.warnings.clone();
        let rows: Vec<[&str; 3]> = rows.iter().map(|message| ["Warning", "1264", message.as_str()]).collect();
        let rows: Vec<&[&str]> = rows.iter().map(<[&str; 3]>::as_slice).collect();
        self.rows(&["Level", "Code", "Message"], &rows);
    }

    fn prepare(&mut self, text: &str) {
        self.next_statement += 1;
        let (columns, params) = (u16::from(text.starts_with("SELECT")), text.matches('?').count() as u16);
        let prepared = Prepared { text: text.into(), schema: self.session.schema.clone(), has_types: false };
        self.session.statements.insert(self.next_statement, prepared);
        let answer = StmtPrepareOk { stmt_id: self.next_statement, columns, params, warnings: 0 };
        let mut sequence = self.sequence;
        frame::packet(&mut self.out, &mut sequence, |out| answer.write(out));
        for _ in 0..columns + params {
            let column = ColumnDefinition::text(b"?", 100);
            frame::packet(&mut self.out, &mut sequence, |out| column.write(SERVER_CAPABILITIES, out));
        }
    }

    /// One parameter, the token.
    fn execute(&mut self, cluster: &mut Cluster, payload: &[u8], now: u64) {
        let execute = StmtExecute::parse(payload).expect("an execution that parses");
        let Some(prepared) = self.session.statements.get_mut(&execute.stmt_id) else {
            cluster.fault(format!("Weir executed statement {}, which does not exist", execute.stmt_id));
            return self.error(error::UNKNOWN_STMT_HANDLER, "Unknown prepared statement handler");
        };
        let found = StmtExecute::parameters(payload, 1, Capabilities::empty()).expect("parameters");
        prepared.has_types |= found.new_params_bound;
        if !prepared.has_types {
            cluster.fault("an execution came without types to a connection that never got them");
        }
        let value = Reader::new(&payload[found.values]).lenenc_bytes().unwrap_or_default();
        let Prepared { text, schema, .. } = prepared.clone();
        let Some(token) = Token::find(&String::from_utf8_lossy(value)) else {
            return cluster.fault("an execution lost its parameter");
        };
        if token.prepared_in.as_deref() != Some(schema.as_str()) {
            cluster.fault(format!("a statement prepared in schema {schema:?} was executed for {token}"));
        }
        self.statement(cluster, &token, &text, true, now);
    }
}

/// The number in `..., LAST_INSERT_ID(n)`.
fn given_id(text: &str) -> u64 {
    let number = text.rsplit_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}
