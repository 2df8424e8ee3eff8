//! Runs what the fuzz targets and the corpus test need: a worker whose client, or whose server, says anything. A broken
//! rule panics, and so does nothing else.

mod detour;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_config::{ListenAddress, Listener, MysqlUser, MysqlVariables, Password, Secret};
use weir_protocol::auth::{Credential, StoredPassword};
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, StmtPrepareOk};
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::handshake::{AuthSwitchRequest, Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{OK_AS_EOF_HEADER, OK_HEADER, OkPacket};
use weir_protocol::resultset::{ColumnDefinition, TextResult};
use weir_protocol::status::StatusFlags;
use weir_routing::Rules;
use weir_session::accounts::LoginTerms;
use weir_topology::{Endpoint, ServerShared};

use crate::outbox::{Order, SocketId};
use crate::peer::Peer;
use crate::session::causal_token::{CausalToken, TOKEN_BYTES_MAX};
use crate::shared::{Message, Shared};
use crate::snapshot::{Account, Hostgroup, Member, Server, Snapshot, Users};
use crate::worker::Worker;

pub use detour::fuzz_core_aside;

/// Fewer steps than this lead to an end, whatever comes.
const STEPS_MAX: usize = 10_000;
/// What a MariaDB 10.11 can.
const SERVER_CAPABILITIES: Capabilities = Capabilities::from_parts(0x81FF_F7FE, 0);

/// Text that somebody gives for a causal token: what is read is written as it was, but for zeros in front, and is of no
/// moment to come.
pub fn fuzz_causal_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(token) = CausalToken::parse(&text) else { return };
    assert!(text.is_ascii() && text.len() <= TOKEN_BYTES_MAX);
    let written = token.to_string();
    assert!(written.len() <= text.len());
    assert_eq!(CausalToken::parse(&written), Ok(token));
    for origin in [0, token.origin, token.origin ^ 1] {
        assert!(token.told_at(origin, 1 << 40) <= 1 << 40);
    }
}

/// A client that says anything: the first byte chooses whether it logs in properly first (bit 0), as an old client
/// (bit 1) and whether its server answers (bit 2), the second the length of the chunks, the rest are its bytes.
pub fn fuzz_core_client(data: &[u8]) {
    let &[choice, chunk, ref bytes @ ..] = data else { return };
    let mut bench = Bench::new();
    if choice & 1 != 0 {
        bench.log_in(choice & 2 != 0);
    }
    bench.server = if choice & 4 != 0 { Role::Answers } else { Role::Silent };
    for chunk in bytes.chunks(usize::from(chunk).max(1)) {
        bench.client_sends(chunk);
    }
    bench.server = Role::Answers;
    bench.end();
}

/// A server that says anything: the first byte chooses the client's statement (bits 0 to 2), whether the server's
/// login is in order (bit 3), whether the client is an old one (bit 4) and whether its statement is another command
/// (bit 5), the second the length of the chunks.
pub fn fuzz_core_server(data: &[u8]) {
    let &[choice, chunk, ref bytes @ ..] = data else { return };
    let mut bench = Bench::new();
    bench.log_in(choice & 16 != 0);
    bench.server = if choice & 8 != 0 { Role::Answers } else { Role::Silent };
    let statements: [(Command, &[u8]); 8] = [
        (Command::Query, b"SELECT c FROM t WHERE id=1"),
        (Command::Query, b"INSERT INTO t VALUES (1)"),
        (Command::Query, b"BEGIN"),
        (Command::Query, b"SET NAMES latin1"),
        (Command::StmtPrepare, b"SELECT ? FROM t"),
        (Command::InitDb, b"shop"),
        (Command::Query, b"CALL p()"),
        (Command::Query, b"SELECT LAST_INSERT_ID()"),
    ];
    let prepared: [(Command, &[u8]); 8] = [
        (Command::StmtExecute, b"\x01\0\0\0\x01\x01\0\0\0\0\x01\xFD\0\x01x"),
        (Command::StmtExecute, b"\x01\0\0\0\0\x01\0\0\0\0\x01\xFC\0"),
        (Command::StmtFetch, b"\x01\0\0\0\x05\0\0\0"),
        (Command::StmtReset, b"\x01\0\0\0"),
        (Command::FieldList, b"t\0%"),
        (Command::SetOption, b"\0\0"),
        (Command::Query, b"LOAD DATA LOCAL INFILE 'f' INTO TABLE t"),
        (Command::Query, b"SELECT 1; LOAD DATA LOCAL INFILE 'f' INTO TABLE t"),
    ];
    if choice & 8 != 0 {
        // The connection stands before anything strange comes.
        bench.client_commands(Command::Query, b"SELECT 1 FROM t");
        bench.server = Role::Silent;
    }
    let (command, body) = if choice & 32 == 0 {
        statements[usize::from(choice & 7)]
    } else {
        bench.prepares_and_opens(choice & 7 == 1);
        prepared[usize::from(choice & 7)]
    };
    bench.client_commands(command, body);
    if command == Command::Query {
        // A file, whether it was asked for or not.
        bench.client_sends(b"\x04\0\0\x02a,b\n\0\0\0\x03");
    }
    for chunk in bytes.chunks(usize::from(chunk).max(1)) {
        bench.server_sends(chunk);
    }
    bench.client_commands(Command::Query, b"SELECT 2 FROM t");
    bench.end();
}

/// How the server behaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It accepts connections and says nothing of its own.
    Silent,
    /// It answers every command.
    Answers,
}

/// A worker with one client and any number of connections to its servers.
struct Bench {
    core: Worker,
    shared: Arc<Shared>,
    servers: Vec<Arc<Server>>,
    client: Option<SocketId>,
    to_client: Vec<u8>,
    conns: Vec<Conn>,
    server: Role,
    now: u64,
    steps: usize,
}

struct Conn {
    id: SocketId,
    inbox: Vec<u8>,
    /// The greeting is out.
    is_greeted: bool,
    is_logged_in: bool,
    /// It has asked for a file, whose packets come now.
    wants_file: bool,
    /// Of the transaction that is open.
    status: StatusFlags,
}

impl Bench {
    /// With one server, and without rules.
    fn new() -> Self {
        Self::with(&[3306], Arc::default(), true)
    }

    /// With a server on each port, alone in the hostgroup of its place.
    fn with(ports: &[u16], rules: Arc<Rules>, is_persistent: bool) -> Self {
        let servers: Vec<Arc<Server>> = ports.iter().map(|port| Arc::new(server(*port))).collect();
        let snapshot = snapshot(&servers, rules, is_persistent);
        let (shared, _) = Shared::new(1, 1, Box::new(|_| ())).expect("an eventfd");
        let mut core = Worker::new(0, shared.clone(), snapshot, [7; 32], 1);
        let listener = Listener::split(ListenAddress::Unix("/run/weir.sock".into()));
        let client = core.accept(Peer::Unix, &Arc::new(listener), 1);
        let (conns, to_client) = (Vec::new(), Vec::new());
        let mut bench =
            Self { core, shared, servers, client, to_client, conns, server: Role::Answers, now: 1, steps: 0 };
        bench.settle();
        bench
    }

    fn log_in(&mut self, is_old: bool) {
        let (_, greeting) = take_packet(&mut self.to_client).expect("a greeting");
        let greeting = Greeting::parse(&greeting).expect("a greeting that parses");
        let proof = Credential::clear_text(b"secret").response(MYSQL_NATIVE_PASSWORD, &greeting.scramble);
        let mut capabilities = greeting.capabilities - Capabilities::CONNECT_ATTRS;
        if is_old {
            capabilities -= Capabilities::DEPRECATE_EOF | Capabilities::SESSION_TRACK;
        }
        let response = HandshakeResponse {
            capabilities,
            max_packet_size: 1 << 24,
            collation: 45,
            user: b"app",
            auth_data: &proof.unwrap_or_default(),
            database: Some(b"shop"),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: Default::default(),
            zstd_level: None,
        };
        let mut out = Vec::new();
        frame::packet(&mut out, &mut 1, |out| response.write(out));
        self.client_sends(&out);
        let (_, reply) = take_packet(&mut self.to_client).expect("a reply to the login");
        assert_eq!(reply.first(), Some(&OK_HEADER), "{}", reply.escape_ascii());
    }

    fn client_commands(&mut self, command: Command, body: &[u8]) {
        let mut out = Vec::new();
        frame::packet(&mut out, &mut 0, |out| {
            out.push(command.code());
            out.extend_from_slice(body);
        });
        self.client_sends(&out);
    }

    /// A statement with a parameter, its long data or its cursor, and a transaction.
    fn prepares_and_opens(&mut self, has_long_data: bool) {
        let before = std::mem::replace(&mut self.server, Role::Answers);
        self.client_commands(Command::Query, b"BEGIN");
        self.client_commands(Command::StmtPrepare, b"SELECT c FROM t WHERE id = ?");
        if has_long_data {
            self.client_commands(Command::StmtSendLongData, b"\x01\0\0\0\0\0some long data");
        } else {
            self.client_commands(Command::StmtExecute, b"\x01\0\0\0\x01\x01\0\0\0\0\x01\xFD\0\x01x");
        }
        self.server = before;
    }

    fn client_sends(&mut self, bytes: &[u8]) {
        if let Some(client) = self.client {
            self.pass_time(1_000_000);
            self.core.data(client, &mut bytes.to_vec(), self.now);
            self.settle();
        }
    }

    /// The oldest connection that stands gets these bytes.
    fn server_sends(&mut self, bytes: &[u8]) {
        if let Some(conn) = self.conns.first() {
            let id = conn.id;
            self.pass_time(1_000_000);
            self.core.data(id, &mut bytes.to_vec(), self.now);
            self.settle();
        }
    }

    fn pass_time(&mut self, ns: u64) {
        self.now += ns;
        if self.core.next_deadline() <= self.now {
            self.core.tick(self.now);
        }
    }

    /// Everybody goes; nothing may be left.
    fn end(&mut self) {
        self.check_packets();
        for _ in 0..3 {
            self.pass_time(2_000_000_000);
            self.settle();
        }
        if let Some(client) = self.client.take() {
            self.core.closed(client, self.now);
        }
        self.server = Role::Answers;
        for _ in 0..20 {
            self.settle();
            self.pass_time(2_000_000_000);
        }
        while let Some(conn) = self.conns.first() {
            let id = conn.id;
            self.conns.remove(0);
            self.core.closed(id, self.now);
            self.settle();
        }
        let census = self.core.census();
        assert_eq!((census.sessions, census.connections, census.parked), (0, 0, 0), "{census:?}");
        assert!(census.pools.iter().all(|pool| pool.open == 0 && pool.dialing == 0 && pool.handovers == 0));
        let open = |server: &Arc<Server>| server.shared.connections_open.load(Ordering::Relaxed);
        assert!(self.servers.iter().all(|server| open(server) == 0));
        assert_eq!(self.shared.clients.load(Ordering::Relaxed), 0);
    }

    /// What the client got is whole packets.
    fn check_packets(&mut self) {
        let mut rest = &self.to_client[..];
        while let Some(header) = Header::parse(rest) {
            // A result that its server broke off ends with the connection.
            let Some(next) = rest.get(header.packet_len()..) else { break };
            rest = next;
        }
    }

    /// Carries out what the core wants, and lets the server answer, until nothing more happens.
    fn settle(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "no end");
            let (mut dirty, mut orders) = (Vec::new(), Vec::new());
            self.core.out().take_dirty(&mut dirty);
            for id in &dirty {
                self.send(*id);
            }
            self.core.out().take_orders(&mut orders);
            let is_idle = dirty.is_empty() && orders.is_empty();
            for order in orders {
                self.carry_out(order);
            }
            if !self.serve() && is_idle {
                return;
            }
        }
    }

    fn send(&mut self, id: SocketId) {
        let bytes = self.core.out().unsent(id).to_vec();
        if Some(id) == self.client {
            self.to_client.extend_from_slice(&bytes);
        } else if let Some(conn) = self.conns.iter_mut().find(|conn| conn.id == id) {
            conn.inbox.extend_from_slice(&bytes);
        }
        if self.core.out().sent(id, bytes.len()) {
            self.core.drained(id, self.now);
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Connect(id, _) => {
                let (inbox, wants_file) = (Vec::new(), false);
                let status = StatusFlags::AUTOCOMMIT;
                self.conns.push(Conn {
                    id,
                    inbox,
                    is_greeted: false,
                    is_logged_in: false,
                    wants_file,
                    status,
                });
                self.core.connected(id, Ok(()), self.now);
            }
            Order::Resume(_) | Order::AcknowledgeWithin(..) | Order::Forfeit(_) => {}
            Order::StartTls(id, _) | Order::StartServerTls(id, _) => self.core.closed(id, self.now),
            Order::Check(id, check) => self.core.message(Message::Checked(id, check.run()), self.now),
            Order::Close(id) => {
                self.send(id);
                self.conns.retain(|conn| conn.id != id);
                self.client = self.client.filter(|client| *client != id);
                self.core.out().forget(id);
            }
        }
    }

    /// Lets the server say one thing. False if it has nothing to say.
    fn serve(&mut self) -> bool {
        if self.server == Role::Silent {
            return false;
        }
        let mut said = None;
        for conn in &mut self.conns {
            let reply = conn.step();
            if !reply.is_empty() {
                said = Some((conn.id, reply));
                break;
            }
        }
        let Some((id, mut reply)) = said else { return false };
        self.core.data(id, &mut reply, self.now);
        true
    }
}

impl Conn {
    /// The answer to the next packet; empty for none.
    fn step(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.is_greeted {
            self.is_greeted = true;
            let greeting = Greeting {
                version: b"5.5.5-10.11.19-MariaDB",
                thread_id: 1,
                scramble: *b"abcdefghijklmnopqrst",
                capabilities: SERVER_CAPABILITIES,
                collation: 8,
                status: StatusFlags::AUTOCOMMIT,
                auth_plugin: MYSQL_NATIVE_PASSWORD,
            };
            frame::packet(&mut out, &mut 0, |out| greeting.write(out));
            return out;
        }
        let Some((sequence, payload)) = take_packet(&mut self.inbox) else { return out };
        let mut sequence = sequence.wrapping_add(1);
        if !std::mem::replace(&mut self.is_logged_in, true) {
            put_ok(&mut out, &mut sequence, self.status);
            return out;
        }
        if self.wants_file {
            self.wants_file = !payload.is_empty();
            if self.wants_file {
                return self.step();
            }
            put_ok(&mut out, &mut sequence, self.status);
            return out;
        }
        self.note_transaction(&payload);
        match payload.first().copied().and_then(Command::parse) {
            Some(Command::Query) if payload[1..].starts_with(b"LOAD") => {
                self.wants_file = true;
                frame::write_packet(&mut out, &mut sequence, b"\xFBf");
            }
            Some(Command::StmtFetch | Command::FieldList) => {
                let end = OkPacket::new(OK_AS_EOF_HEADER, self.status | StatusFlags::LAST_ROW_SENT);
                frame::packet(&mut out, &mut sequence, |out| end.write(SERVER_CAPABILITIES, out));
            }
            Some(Command::StmtExecute) if payload.get(5) == Some(&1) => {
                let columns = [ColumnDefinition::text(b"c", 100)];
                let status = self.status | StatusFlags::CURSOR_EXISTS;
                TextResult::begin(&mut out, &mut sequence, SERVER_CAPABILITIES, status, &columns)
                    .finish(status, 0);
            }
            Some(Command::Query) if payload[1..].starts_with(b"SELECT") => {
                let columns = [ColumnDefinition::text(b"c", 100), ColumnDefinition::text(b"d", 100)];
                let mut result =
                    TextResult::begin(&mut out, &mut sequence, SERVER_CAPABILITIES, self.status, &columns);
                result.row([Some(&b"1"[..]), Some(b"2")]);
                result.finish(self.status, 0);
            }
            Some(Command::StmtPrepare) => {
                let params = payload.iter().filter(|byte| **byte == b'?').count().min(100) as u16;
                let answer = StmtPrepareOk { stmt_id: 1, columns: 0, params, warnings: 0 };
                frame::packet(&mut out, &mut sequence, |out| answer.write(out));
                for _ in 0..params {
                    let column = ColumnDefinition::text(b"?", 100);
                    frame::packet(&mut out, &mut sequence, |out| column.write(SERVER_CAPABILITIES, out));
                }
            }
            Some(Command::ChangeUser) => {
                let switch =
                    AuthSwitchRequest { plugin: MYSQL_NATIVE_PASSWORD, data: b"abcdefghijklmnopqrst" };
                frame::packet(&mut out, &mut sequence, |out| switch.write(out));
                self.is_logged_in = false;
            }
            Some(Command::StmtClose | Command::StmtSendLongData | Command::Quit) => return self.step(),
            _ => put_ok(&mut out, &mut sequence, self.status),
        }
        out
    }

    /// What a transaction's beginning and its end do to the flags.
    fn note_transaction(&mut self, payload: &[u8]) {
        let ends = [&b"COMMIT"[..], b"ROLLBACK"];
        match payload.split_first() {
            Some((3, text)) if text.starts_with(b"BEGIN") => self.status |= StatusFlags::IN_TRANS,
            Some((3, text)) if ends.iter().any(|end| text.starts_with(end)) => {
                self.status = StatusFlags::AUTOCOMMIT;
            }
            Some((17 | 31, _)) => self.status = StatusFlags::AUTOCOMMIT,
            _ => {}
        }
    }
}

fn put_ok(out: &mut Vec<u8>, sequence: &mut u8, status: StatusFlags) {
    let ok = OkPacket::new(OK_HEADER, status);
    frame::packet(out, sequence, |out| ok.write(SERVER_CAPABILITIES, out));
}

fn take_packet(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let header = Header::parse(bytes)?;
    let payload = bytes.get(HEADER_LEN..header.packet_len())?.to_vec();
    bytes.drain(..header.packet_len());
    Some((header.seq, payload))
}

fn server(port: u16) -> Server {
    let endpoint = Endpoint::new("127.0.0.1", port);
    Server {
        endpoint: endpoint.to_string(),
        addr: SocketAddr::from(([127, 0, 0, 1], port)),
        max_connections: 2,
        is_gone: false,
        is_silent: false,
        tls: None,
        proxy_header: Default::default(),
        is_leaving: false,
        leave_by: None,
        care: Default::default(),
        shared: Arc::new(ServerShared::new(endpoint)),
    }
}

fn snapshot(servers: &[Arc<Server>], rules: Arc<Rules>, is_persistent: bool) -> Arc<Snapshot> {
    let password = Password::Clear(Secret::new("secret"));
    let user = MysqlUser { password, transaction_persistent: is_persistent, ..MysqlUser::named("app") };
    let terms = LoginTerms::with_password(StoredPassword::ClearText(b"secret"[..].into()));
    let account = Account::configured(Arc::new(user), terms, Some(Credential::clear_text(b"secret")));
    let hostgroups = (0..servers.len()).map(|server| {
        let members = vec![Member { server, weight: 1, health: Default::default() }];
        (server as u32, Hostgroup { members, ..Hostgroup::default() })
    });
    Arc::new(Snapshot {
        users: Arc::new(Users {
            configured: HashMap::from([(b"app".to_vec(), Arc::new(account))]),
            ..Users::default()
        }),
        servers: servers.to_vec(),
        hostgroups: hostgroups.collect(),
        rules,
        variables: MysqlVariables::default(),
        server_version: "5.5.5-10.11.19-MariaDB".into(),
        is_mariadb: true,
        default_collation: "latin1_swedish_ci".into(),
        dialect: Default::default(),
        tls: true,
        decoy: None,
        rsa_key: None,
    })
}
