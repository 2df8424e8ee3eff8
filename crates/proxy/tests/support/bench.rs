//! Workers whose clients and servers a test plays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Receiver;

use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, put_query};
use weir_protocol::frame;
use weir_protocol::handshake::{AuthSwitchRequest, Greeting, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket, SessionTrack};
use weir_protocol::proxy_header::{self, Opening, ProxiedClient};
use weir_protocol::status::StatusFlags;
use weir_proxy::outbox::{Order, SocketId};
use weir_proxy::peer::Peer;
use weir_proxy::shared::{Message, Report, Shared};
use weir_proxy::snapshot::{Account, Hostgroup, Server};
use weir_proxy::worker::Worker;
use weir_routing::Rules;
use weir_session::login::Check;

/// Has two rows in a transaction.
pub const TWO_ROWS: &str = "SELECT two FROM rows";
/// What Weir asks so that FOUND_ROWS() is 0.
const NO_ROWS: &[u8] = b"SELECT 1 LIMIT 0";
const IN_TRANSACTION: StatusFlags = StatusFlags::AUTOCOMMIT.union(StatusFlags::IN_TRANS);

const OUTSIDE: &str = "WSREP has not yet prepared node for application use";
/// What a member of a group says when it gives up a commit.
const CUT_OFF: &str = "Error on observer while running replication hook 'before_commit'.";
/// What a primary says to everything while it hands over.
const HANDING_OVER: &str = "All queries have been blocked while function 'group_replication_set_as_primary()' is \
                            executing. Please refer timeout parameter of function 'group_replication_set_as_primary()'.";
/// What a server says to a write while it is read_only.
const READ_ONLY: &str =
    "The MySQL server is running with the --read-only option so it cannot execute this statement";

/// Workers, clients of theirs, and servers that answer every statement with OK unless they are told otherwise.
pub struct Bench {
    pub cores: Vec<Worker>,
    pub inboxes: Vec<Receiver<Message>>,
    pub servers: Vec<Arc<Server>>,
    pub clients: Vec<Client>,
    pub conns: Vec<Conn>,
    pub now: u64,
    /// Statements of clients in the order in which servers got them: server and text.
    pub log: Vec<(usize, String)>,
    /// For whom the connections were, with which each of them came; none without a header of the PROXY protocol.
    pub told: Vec<Option<ProxiedClient>>,
    /// Servers leave statements of clients unanswered.
    pub holds: bool,
    /// Servers hang up when a client's statement comes.
    pub hangs_up: bool,
    /// And when one of these commands comes, Weir's own too: COM_INIT_DB, COM_STMT_PREPARE, COM_RESET_CONNECTION.
    pub hangs_up_on_commands: bool,
    /// These servers refuse connections.
    pub down: Vec<usize>,
    /// What Weir has asked of its own, on all connections: server and text.
    pub own: Vec<(usize, String)>,
    /// Statements of Weir's own with this in them are answered with error 1193.
    pub refused: &'static str,
    /// A SET with this in it is not answered: its connection breaks.
    pub lost: &'static str,
    /// These servers leave their group while it is to decide on an INSERT: error 3100.
    pub cut_off: Vec<usize>,
    /// Nodes that take no question for what an error has left behind.
    pub answers_no_question: Vec<usize>,
    /// These servers hand over the primary's role: every statement is answered with error 4094.
    pub handing_over: Vec<usize>,
    /// These servers are read_only: INSERT, CALL and ALTER are answered with error 1290.
    pub read_only: Vec<usize>,
    /// UPDATEs, and what says `broken`, are answered with this error; 0 for none.
    pub fails: u16,
    /// What INSERTs of transactions are told to have got.
    pub insert_id: u64,
    /// So many UPDATEs are undone for a deadlock.
    pub deadlocks: u32,
    /// The conditions that servers show: numbers.
    pub conditions: Vec<u16>,
    /// How many they say that there are, if not as many as they show.
    pub condition_count: Option<usize>,
    /// Nodes that are outside of their cluster.
    pub outside: Vec<usize>,
    /// Servers leave COM_STMT_PREPARE unanswered.
    pub holds_prepares: bool,
    /// Servers do not answer COM_PING.
    pub ignores_pings: bool,
    /// The servers that got COM_STMT_PREPARE, in order.
    pub prepared: Vec<usize>,
    /// No server is known to have what was seen at another one.
    pub lags: bool,
    /// These servers have another version than the others.
    pub versions: Vec<(usize, &'static [u8])>,
    /// Servers greet only when they are told to.
    pub greets_late: bool,
    /// What the workers have told of servers that could not be connected to.
    pub failures: Arc<AtomicU32>,
    pub users: Vec<Arc<Account>>,
    pub variables: MysqlVariables,
    pub logins: usize,
    pub user_changes: usize,
    /// Passwords that are to be checked: [`Bench::check`].
    pub checks: Vec<(usize, SocketId, Box<Check>)>,
    /// Connections that were given so many milliseconds for what is on its way.
    pub hurried: Vec<(SocketId, u128)>,
    /// Servers to which what was on its way was not to be delivered any more.
    pub forfeited: Vec<usize>,
}

pub struct Client {
    pub core: usize,
    pub id: SocketId,
    pub got: Vec<u8>,
    /// What the greeting has told.
    pub connection_id: u32,
}

pub struct Conn {
    pub core: usize,
    pub id: SocketId,
    pub node: usize,
    pub inbox: Vec<u8>,
    pub is_logged_in: bool,
    /// A statement that is not answered yet.
    pub held: bool,
    /// BEGIN was its last statement of that kind.
    pub is_in_transaction: bool,
    /// The server has not said anything yet.
    pub is_silent: bool,
    /// The server has asked for a file, and waits for its end.
    pub takes_file: bool,
    /// What a header of the PROXY protocol has told.
    pub told: Option<ProxiedClient>,
}

impl Bench {
    pub fn new(
        workers: usize,
        max_connections: &[u32],
        hostgroup: Hostgroup,
        variables: MysqlVariables,
    ) -> Self {
        let ports = 3306..;
        let servers: Vec<_> =
            ports.zip(max_connections).map(|(port, max)| super::server(port, *max)).collect();
        Self::with_servers(workers, servers, hostgroup, variables)
    }

    pub fn with_servers(
        workers: usize,
        servers: Vec<Arc<Server>>,
        hostgroup: Hostgroup,
        variables: MysqlVariables,
    ) -> Self {
        let users = vec![super::account("app", 0), super::account("bob", 0)];
        let snapshot = super::snapshot(&users, &servers, [(0, hostgroup)], variables.clone());
        let failures = Arc::new(AtomicU32::new(0));
        let count = failures.clone();
        let reporter = Box::new(move |report: Report<'_>| {
            let is_failure = matches!(report, Report::ConnectFailed { .. });
            count.fetch_add(is_failure.into(), Ordering::Relaxed);
        });
        let (shared, inboxes) = Shared::new(workers, 1, reporter).unwrap();
        let core = |worker| Worker::new(worker, shared.clone(), snapshot.clone(), [7; 32], 1);
        Self {
            cores: (0..workers).map(core).collect(),
            inboxes,
            servers,
            clients: Vec::new(),
            conns: Vec::new(),
            now: 1,
            log: Vec::new(),
            told: Vec::new(),
            holds: false,
            hangs_up: false,
            hangs_up_on_commands: false,
            down: Vec::new(),
            own: Vec::new(),
            refused: "\0",
            lost: "\0",
            cut_off: Vec::new(),
            answers_no_question: Vec::new(),
            handing_over: Vec::new(),
            read_only: Vec::new(),
            fails: 0,
            insert_id: 0,
            deadlocks: 0,
            conditions: Vec::new(),
            condition_count: None,
            outside: Vec::new(),
            holds_prepares: false,
            ignores_pings: false,
            lags: false,
            prepared: Vec::new(),
            versions: Vec::new(),
            greets_late: false,
            failures,
            users,
            variables,
            logins: 0,
            user_changes: 0,
            checks: Vec::new(),
            hurried: Vec::new(),
            forfeited: Vec::new(),
        }
    }

    /// Another configuration: these servers in hostgroup 0.
    pub fn publish(&mut self, servers: Vec<Arc<Server>>, hostgroup: Hostgroup) {
        let groups = [(0, hostgroup)];
        let snapshot = super::snapshot(&self.users, &servers, groups, self.variables.clone());
        self.servers = servers;
        for core in &mut self.cores {
            core.message(Message::Snapshot(snapshot.clone()), self.now);
        }
        self.run();
    }

    /// The same configuration with query rules.
    pub fn publish_rules(
        &mut self,
        rules: Arc<Rules>,
        hostgroups: impl IntoIterator<Item = (u32, Hostgroup)>,
    ) {
        let mut snapshot = super::snapshot(&self.users, &self.servers, hostgroups, self.variables.clone());
        Arc::get_mut(&mut snapshot).unwrap().rules = rules;
        for core in &mut self.cores {
            core.message(Message::Snapshot(snapshot.clone()), self.now);
        }
        self.run();
    }

    pub fn client(&mut self, core: usize, user: &str) -> usize {
        self.client_with(core, user, super::MODERN)
    }

    pub fn client_with(&mut self, core: usize, user: &str, capabilities: Capabilities) -> usize {
        self.client_at(core, user, capabilities, Peer::Unix)
    }

    pub fn client_at(&mut self, core: usize, user: &str, capabilities: Capabilities, peer: Peer) -> usize {
        let id = self.cores[core].accept(peer, &super::listener(), self.now).unwrap();
        self.clients.push(Client { core, id, got: Vec::new(), connection_id: 0 });
        let client = self.clients.len() - 1;
        self.run();
        let (_, greeting) = super::take_packet(&mut self.clients[client].got).unwrap();
        self.clients[client].connection_id = Greeting::parse(&greeting).unwrap().thread_id;
        self.send(client, &super::login(&greeting, capabilities, user.as_bytes(), b"information_schema", 45));
        let (_, reply) = super::take_packet(&mut self.clients[client].got).unwrap();
        assert_eq!(reply[0], OK_HEADER);
        client
    }

    pub fn send(&mut self, client: usize, bytes: &[u8]) {
        let Client { core, id, .. } = self.clients[client];
        self.cores[core].data(id, &mut bytes.to_vec(), self.now);
        self.run();
    }

    pub fn query(&mut self, client: usize, sql: &str) {
        let mut bytes = Vec::new();
        put_query(&mut bytes, sql.as_bytes());
        self.send(client, &bytes);
    }

    /// The next reply of a client, if it is there.
    pub fn reply(&mut self, client: usize) -> Option<Vec<u8>> {
        super::take_packet(&mut self.clients[client].got).map(|(_, payload)| payload)
    }

    pub fn is_answered(&mut self, client: usize) -> bool {
        self.reply(client).is_some_and(|reply| reply[0] == OK_HEADER)
    }

    /// The error that a client got.
    pub fn error(&mut self, client: usize) -> Option<(u16, String)> {
        let reply = self.reply(client)?;
        let err = ErrPacket::parse(&reply).ok()?;
        Some((err.code, String::from_utf8_lossy(err.message).into_owned()))
    }

    pub fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1_000_000;
            if !self.lags {
                self.servers.iter().for_each(|server| server.shared.coverage.cover_until(self.now));
            }
            for core in &mut self.cores {
                core.message(Message::Covered, self.now);
                if core.next_deadline() <= self.now {
                    core.tick(self.now);
                }
            }
            self.run();
        }
    }

    /// The monitor tells that checks have ended, or that there are none.
    pub fn tell_covered(&mut self) {
        let now = self.now;
        self.cores.iter_mut().for_each(|core| core.message(Message::Covered, now));
        self.run();
    }

    /// The servers answer what they hold.
    pub fn release_one(&mut self) {
        self.release_with(super::plain_ok(1));
    }

    pub fn release_with(&mut self, mut answer: Vec<u8>) {
        let conn = self.conns.iter_mut().find(|conn| conn.held).unwrap();
        conn.held = false;
        let (core, id) = (conn.core, conn.id);
        self.cores[core].data(id, &mut answer, self.now);
        self.run();
    }

    /// The passwords are checked that wait for it.
    pub fn check(&mut self) {
        for (core, id, check) in std::mem::take(&mut self.checks) {
            self.cores[core].message(Message::Checked(id, check.run()), self.now);
        }
        self.run();
    }

    /// A server is lost: its connections break.
    pub fn lose(&mut self, node: usize) {
        let lost = self.conns.extract_if(.., |conn| conn.node == node);
        for Conn { core, id, .. } in lost.collect::<Vec<_>>() {
            self.cores[core].closed(id, self.now);
        }
        self.run();
    }

    /// The connection that came last is greeted. False if all are.
    pub fn greet_last(&mut self) -> bool {
        let Some(conn) = self.conns.iter_mut().rfind(|conn| conn.is_silent) else { return false };
        conn.is_silent = false;
        let (core, id) = (conn.core, conn.id);
        self.cores[core].data(id, &mut super::greeting(1), self.now);
        self.run();
        true
    }

    pub fn open(&self, server: usize) -> u32 {
        self.servers[server].shared.connections_open.load(Ordering::Relaxed)
    }

    pub fn count(&self, server: usize) -> usize {
        self.log.iter().filter(|(at, _)| *at == server).count()
    }

    /// Until nothing more happens.
    pub fn run(&mut self) {
        loop {
            let mut is_quiet = true;
            for core in 0..self.cores.len() {
                is_quiet &= !self.carry_out(core);
            }
            for core in 0..self.cores.len() {
                while let Ok(message) = self.inboxes[core].try_recv() {
                    self.cores[core].message(message, self.now);
                    is_quiet = false;
                }
            }
            for at in 0..self.conns.len() {
                is_quiet &= !self.serve(at);
            }
            self.conns.retain(|conn| conn.node != usize::MAX);
            if is_quiet {
                return;
            }
        }
    }

    fn carry_out(&mut self, core: usize) -> bool {
        let (mut dirty, mut orders) = (Vec::new(), Vec::new());
        let out = self.cores[core].out();
        out.take_dirty(&mut dirty);
        out.take_orders(&mut orders);
        let is_quiet = dirty.is_empty() && orders.is_empty();
        for id in dirty {
            self.flush(core, id);
        }
        for order in orders {
            match order {
                Order::Connect(id, addr) => {
                    let node = usize::from(addr.port() - 3306);
                    if self.down.contains(&node) {
                        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
                        self.cores[core].connected(id, Err(refused), self.now);
                        continue;
                    }
                    self.logins += 1;
                    let conn = Conn {
                        core,
                        id,
                        node,
                        inbox: Vec::new(),
                        is_logged_in: false,
                        held: false,
                        is_in_transaction: false,
                        is_silent: self.greets_late,
                        takes_file: false,
                        told: None,
                    };
                    self.conns.push(conn);
                    self.cores[core].connected(id, Ok(()), self.now);
                    if !self.greets_late {
                        let other = self.versions.iter().find(|(of, _)| *of == node);
                        let mut greeting =
                            other.map_or_else(|| super::greeting(1), |(_, v)| super::greeting_as(1, v));
                        self.cores[core].data(id, &mut greeting, self.now);
                    }
                }
                Order::Close(id) => {
                    self.flush(core, id);
                    self.conns.retain(|conn| (conn.core, conn.id) != (core, id));
                    self.cores[core].out().forget(id);
                }
                Order::Resume(_) => {}
                Order::AcknowledgeWithin(id, time) => self.hurried.push((id, time.as_millis())),
                Order::Forfeit(id) => {
                    self.forfeited
                        .extend(self.conns.iter().filter(|c| (c.core, c.id) == (core, id)).map(|c| c.node));
                }
                Order::StartTls(..) | Order::StartServerTls(..) => panic!("TLS was ordered"),
                Order::Check(id, check) => self.checks.push((core, id, check)),
            }
        }
        !is_quiet
    }

    fn flush(&mut self, core: usize, id: SocketId) {
        let bytes = self.cores[core].out().unsent(id).to_vec();
        if let Some(client) = self.clients.iter_mut().find(|client| (client.core, client.id) == (core, id)) {
            client.got.extend_from_slice(&bytes);
        } else if let Some(conn) = self.conns.iter_mut().find(|conn| (conn.core, conn.id) == (core, id)) {
            conn.inbox.extend_from_slice(&bytes);
        }
        if self.cores[core].out().sent(id, bytes.len()) {
            self.cores[core].drained(id, self.now);
        }
    }

    fn shows_conditions(&self) -> bool {
        !self.conditions.is_empty()
    }

    /// A server answers a packet. False if there is none.
    fn serve(&mut self, at: usize) -> bool {
        let conn = &mut self.conns[at];
        if !conn.is_logged_in
            && let Ok(Opening::Header { len, client }) = proxy_header::parse(&conn.inbox)
        {
            conn.inbox.drain(..len);
            assert!(conn.told.replace(client).is_none(), "told twice");
        }
        let Some((sequence, payload)) = super::take_packet(&mut conn.inbox) else { return false };
        let (core, id) = (conn.core, conn.id);
        let mut sequence = sequence.wrapping_add(1);
        let mut answer = super::plain_ok(sequence);
        if !std::mem::replace(&mut conn.is_logged_in, true) {
            self.cores[core].data(id, &mut answer, self.now);
            return true;
        }
        if conn.takes_file {
            conn.takes_file = !payload.is_empty();
            if payload.is_empty() {
                if self.cut_off.contains(&conn.node) {
                    answer = super::error(sequence, 3100, CUT_OFF);
                }
                self.cores[core].data(id, &mut answer, self.now);
            }
            return true;
        }
        match Command::parse(payload[0]) {
            Some(command @ (Command::InitDb | Command::StmtPrepare | Command::ResetConnection))
                if self.hangs_up_on_commands =>
            {
                self.told.push(conn.told);
                self.log.push((conn.node, command.name().into()));
                conn.node = usize::MAX;
                self.cores[core].closed(id, self.now);
                return true;
            }
            Some(Command::StmtPrepare) if self.holds_prepares => {
                conn.held = true;
                return true;
            }
            Some(Command::StmtPrepare) => {
                self.prepared.push(conn.node);
                if self.outside.contains(&conn.node) {
                    answer = super::error(sequence, 1047, OUTSIDE);
                } else {
                    answer.clear();
                    frame::write_packet(&mut answer, &mut sequence, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
                }
            }
            Some(Command::ChangeUser) => {
                self.user_changes += 1;
                conn.is_logged_in = false;
                answer.clear();
                let switch =
                    AuthSwitchRequest { plugin: MYSQL_NATIVE_PASSWORD, data: b"abcdefghijklmnopqrst" };
                frame::packet(&mut answer, &mut sequence, |out| switch.write(out));
            }
            Some(Command::Query) if !payload[1..].starts_with(b"SET ") && payload[1..] != *NO_ROWS => {
                let text = String::from_utf8_lossy(&payload[1..]).into_owned();
                conn.is_in_transaction |= text.ends_with("BEGIN") || text.starts_with("START TRANSACTION");
                conn.is_in_transaction &= text != "COMMIT";
                if conn.is_in_transaction {
                    // From the first write on.
                    let state = SessionTrack::TransactionState(b"T___W___");
                    let has_changed = StatusFlags::SESSION_STATE_CHANGED;
                    let inserted = OkPacket {
                        last_insert_id: self.insert_id,
                        ..OkPacket::new(OK_HEADER, IN_TRANSACTION | has_changed)
                    };
                    answer = match text.starts_with("INSERT") {
                        true => super::ok(sequence, inserted, &[state]),
                        false if text == TWO_ROWS => {
                            super::rows_and(IN_TRANSACTION, 1, [&["1"][..], &["2"]].into_iter())
                        }
                        false => super::ok(sequence, OkPacket::new(OK_HEADER, IN_TRANSACTION), &[]),
                    };
                }
                if text.starts_with("LOAD DATA LOCAL") {
                    conn.takes_file = true;
                    answer.clear();
                    frame::write_packet(&mut answer, &mut sequence, b"\xFBfile");
                }
                if text.contains("/* warns */") {
                    let warned =
                        OkPacket { warnings: 1, ..OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT) };
                    answer = super::ok(sequence, warned, &[]);
                }
                if self.handing_over.contains(&conn.node) {
                    answer = super::error(sequence, 4094, HANDING_OVER);
                }
                if self.cut_off.contains(&conn.node) && text.starts_with("INSERT") {
                    answer = super::error(sequence, 3100, CUT_OFF);
                }
                if self.read_only.contains(&conn.node)
                    && ["INSERT", "CALL", "ALTER"].iter().any(|w| text.starts_with(w))
                {
                    answer = super::error(sequence, 1290, READ_ONLY);
                }
                if self.fails != 0 && (text.starts_with("UPDATE") || text.contains("broken")) {
                    answer = super::error(sequence, self.fails, "as told");
                }
                if self.deadlocks > 0 && text.starts_with("UPDATE") {
                    self.deadlocks -= 1;
                    answer = super::error(sequence, 1213, "Deadlock found when trying to get lock");
                }
                if self.shows_conditions() && text == "SHOW WARNINGS" {
                    let codes: Vec<String> = self.conditions.iter().map(u16::to_string).collect();
                    let rows: Vec<[&str; 3]> = codes.iter().map(|code| ["Error", code, "text"]).collect();
                    answer = super::rows(3, rows.iter().map(|row| &row[..]));
                }
                if self.shows_conditions() && text == "SHOW COUNT(*) WARNINGS" {
                    let count = self.condition_count.unwrap_or(self.conditions.len()).to_string();
                    answer = super::rows(1, [&[&*count][..]].into_iter());
                }
                let conn = &mut self.conns[at];
                if self.outside.contains(&conn.node) {
                    answer = super::error(sequence, 1047, OUTSIDE);
                }
                self.told.push(conn.told);
                self.log.push((conn.node, text));
                if self.hangs_up {
                    conn.node = usize::MAX;
                    self.cores[core].closed(id, self.now);
                    return true;
                }
                if self.holds {
                    conn.held = true;
                    return true;
                }
            }
            Some(Command::Query) => {
                let text = String::from_utf8_lossy(&payload[1..]).into_owned();
                if self.answers_no_question.contains(&conn.node) && text.starts_with("SET TRANSACTION") {
                    answer = super::error(sequence, 1047, OUTSIDE);
                } else if text.contains(self.lost) {
                    conn.node = usize::MAX;
                    self.cores[core].closed(id, self.now);
                    return true;
                } else if text.contains(self.refused) {
                    answer = super::error(sequence, 1193, "Unknown system variable");
                } else if text.starts_with("SET transaction_open") {
                    answer = super::ok(sequence, OkPacket::new(OK_HEADER, IN_TRANSACTION), &[]);
                } else if let Some(value) = text.strip_prefix("SET wait_timeout=") {
                    let name: &[u8] = b"wait_timeout";
                    let track = SessionTrack::SystemVariable { name, value: value.as_bytes() };
                    let changed = StatusFlags::AUTOCOMMIT | StatusFlags::SESSION_STATE_CHANGED;
                    answer = super::ok(sequence, OkPacket::new(OK_HEADER, changed), &[track]);
                }
                self.own.push((conn.node, text));
            }
            Some(Command::ResetConnection) => conn.is_in_transaction = false,
            Some(Command::Ping) if self.ignores_pings => return true,
            Some(Command::Ping) if conn.is_in_transaction => {
                answer = super::ok(sequence, OkPacket::new(OK_HEADER, IN_TRANSACTION), &[]);
            }
            _ => {}
        }
        self.cores[core].data(id, &mut answer, self.now);
        true
    }
}
