//! How sessions come to connections: weights, queues, users, workers, failures.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use weir_config::MysqlVariables;
use weir_protocol::command::{Command, put_query};
use weir_protocol::frame;
use weir_protocol::handshake::{AuthSwitchRequest, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER};
use weir_proxy::core::Core;
use weir_proxy::listener::Peer;
use weir_proxy::outbox::{Order, SocketId};
use weir_proxy::shared::{Message, Shared};
use weir_proxy::snapshot::{Hostgroup, Server};

/// Workers, clients of theirs, and servers that answer every statement with OK unless they are told otherwise.
struct Bench {
    cores: Vec<Core>,
    inboxes: Vec<Receiver<Message>>,
    servers: Vec<Arc<Server>>,
    clients: Vec<Client>,
    conns: Vec<Conn>,
    now: u64,
    /// Statements of clients in the order in which servers got them: server and text.
    log: Vec<(usize, String)>,
    /// Servers leave statements of clients unanswered.
    holds: bool,
    /// Servers hang up when a client's statement comes.
    hangs_up: bool,
    /// These servers refuse connections.
    down: Vec<usize>,
    logins: usize,
    user_changes: usize,
}

struct Client {
    core: usize,
    id: SocketId,
    got: Vec<u8>,
}

struct Conn {
    core: usize,
    id: SocketId,
    node: usize,
    inbox: Vec<u8>,
    is_logged_in: bool,
    /// A statement that is not answered yet.
    held: bool,
}

impl Bench {
    fn new(workers: usize, max_connections: &[u32], hostgroup: Hostgroup, variables: MysqlVariables) -> Self {
        let ports = 3306..;
        let servers: Vec<_> =
            ports.zip(max_connections).map(|(port, max)| support::server(port, *max)).collect();
        let users = [support::account("app", 0), support::account("bob", 0)];
        let snapshot = support::snapshot(&users, &servers, [(0, hostgroup)], variables);
        let (shared, inboxes) = Shared::new(workers, Box::new(|_| ())).unwrap();
        let core = |worker| Core::new(worker, shared.clone(), snapshot.clone(), [7; 32], 1);
        Self {
            cores: (0..workers).map(core).collect(),
            inboxes,
            servers,
            clients: Vec::new(),
            conns: Vec::new(),
            now: 1,
            log: Vec::new(),
            holds: false,
            hangs_up: false,
            down: Vec::new(),
            logins: 0,
            user_changes: 0,
        }
    }

    fn client(&mut self, core: usize, user: &str) -> usize {
        let id = self.cores[core].accept(Peer::Unix, &support::listener(), self.now).unwrap();
        self.clients.push(Client { core, id, got: Vec::new() });
        let client = self.clients.len() - 1;
        self.run();
        let (_, greeting) = support::take_packet(&mut self.clients[client].got).unwrap();
        self.send(client, &support::login(&greeting, support::MODERN, user.as_bytes(), b"shop", 45));
        let (_, reply) = support::take_packet(&mut self.clients[client].got).unwrap();
        assert_eq!(reply[0], OK_HEADER);
        client
    }

    fn send(&mut self, client: usize, bytes: &[u8]) {
        let Client { core, id, .. } = self.clients[client];
        self.cores[core].data(id, &mut bytes.to_vec(), self.now);
        self.run();
    }

    fn query(&mut self, client: usize, sql: &str) {
        let mut bytes = Vec::new();
        put_query(&mut bytes, sql.as_bytes());
        self.send(client, &bytes);
    }

    /// The next reply of a client, if it is there.
    fn reply(&mut self, client: usize) -> Option<Vec<u8>> {
        support::take_packet(&mut self.clients[client].got).map(|(_, payload)| payload)
    }

    fn is_answered(&mut self, client: usize) -> bool {
        self.reply(client).is_some_and(|reply| reply[0] == OK_HEADER)
    }

    /// The error that a client got.
    fn error(&mut self, client: usize) -> Option<(u16, String)> {
        let reply = self.reply(client)?;
        let err = ErrPacket::parse(&reply).ok()?;
        Some((err.code, String::from_utf8_lossy(err.message).into_owned()))
    }

    fn pass_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += 1_000_000;
            for core in &mut self.cores {
                if core.next_deadline() <= self.now {
                    core.tick(self.now);
                }
            }
            self.run();
        }
    }

    /// The servers answer what they hold.
    fn release_one(&mut self) {
        let conn = self.conns.iter_mut().find(|conn| conn.held).unwrap();
        conn.held = false;
        let (core, id) = (conn.core, conn.id);
        self.cores[core].data(id, &mut support::plain_ok(1), self.now);
        self.run();
    }

    fn open(&self, server: usize) -> u32 {
        self.servers[server].shared.connections_open.load(Ordering::Relaxed)
    }

    fn count(&self, server: usize) -> usize {
        self.log.iter().filter(|(at, _)| *at == server).count()
    }

    /// Until nothing more happens.
    fn run(&mut self) {
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
        let out = &mut self.cores[core].out;
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
                    let conn = Conn { core, id, node, inbox: Vec::new(), is_logged_in: false, held: false };
                    self.conns.push(conn);
                    self.cores[core].connected(id, Ok(()), self.now);
                    self.cores[core].data(id, &mut support::greeting(1), self.now);
                }
                Order::Close(id) => {
                    self.flush(core, id);
                    self.conns.retain(|conn| (conn.core, conn.id) != (core, id));
                    self.cores[core].out.forget(id);
                }
                Order::Resume(_) => {}
                Order::StartTls(..) | Order::StartServerTls(..) => panic!("TLS was ordered"),
                Order::Check(..) => panic!("a check was ordered"),
            }
        }
        !is_quiet
    }

    fn flush(&mut self, core: usize, id: SocketId) {
        let bytes = self.cores[core].out.unsent(id).to_vec();
        if let Some(client) = self.clients.iter_mut().find(|client| (client.core, client.id) == (core, id)) {
            client.got.extend_from_slice(&bytes);
        } else if let Some(conn) = self.conns.iter_mut().find(|conn| (conn.core, conn.id) == (core, id)) {
            conn.inbox.extend_from_slice(&bytes);
        }
        if self.cores[core].out.sent(id, bytes.len()) {
            self.cores[core].drained(id, self.now);
        }
    }

    /// A server answers a packet. False if there is none.
    fn serve(&mut self, at: usize) -> bool {
        let conn = &mut self.conns[at];
        let Some((sequence, payload)) = support::take_packet(&mut conn.inbox) else { return false };
        let (core, id) = (conn.core, conn.id);
        let mut sequence = sequence.wrapping_add(1);
        let mut answer = support::plain_ok(sequence);
        if !std::mem::replace(&mut conn.is_logged_in, true) {
            self.cores[core].data(id, &mut answer, self.now);
            return true;
        }
        match Command::parse(payload[0]) {
            Some(Command::ChangeUser) => {
                self.user_changes += 1;
                conn.is_logged_in = false;
                answer.clear();
                let switch =
                    AuthSwitchRequest { plugin: MYSQL_NATIVE_PASSWORD, data: b"abcdefghijklmnopqrst" };
                frame::packet(&mut answer, &mut sequence, |out| switch.write(out));
            }
            Some(Command::Query) if !payload[1..].starts_with(b"SET ") => {
                let text = String::from_utf8_lossy(&payload[1..]).into_owned();
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
            _ => {}
        }
        self.cores[core].data(id, &mut answer, self.now);
        true
    }
}

fn one_server(max_connections: u32) -> Bench {
    Bench::new(1, &[max_connections], support::hostgroup([0]), MysqlVariables::default())
}

fn weighted(weights: &[u32]) -> Bench {
    let mut hostgroup = support::hostgroup(0..weights.len());
    hostgroup.members.iter_mut().zip(weights).for_each(|(member, weight)| member.weight = *weight);
    Bench::new(1, &vec![10; weights.len()], hostgroup, MysqlVariables::default())
}

#[test]
fn weights_are_exact_and_interleaved() {
    let mut bench = weighted(&[5, 3, 1, 0]);
    let client = bench.client(0, "app");
    for _ in 0..900 {
        bench.query(client, "INSERT INTO t VALUES (1)");
        assert!(bench.is_answered(client));
    }
    assert_eq!([0, 1, 2, 3].map(|server| bench.count(server)), [500, 300, 100, 0]);
    for (at, round) in bench.log.chunks(9).enumerate() {
        let share = [0, 1, 2].map(|server| round.iter().filter(|(at, _)| *at == server).count());
        assert_eq!(share, [5, 3, 1], "in round {at}");
        let longest = round.chunk_by(|a, b| a.0 == b.0).map(<[_]>::len).max();
        assert!(longest <= Some(2), "in round {at}: {round:?}");
    }
}

#[test]
fn weight_zero_serves_only_where_nobody_else_can() {
    let mut bench = weighted(&[0, 0]);
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(client));
    let mut bench = weighted(&[1, 0]);
    bench.down = vec![0];
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(100);
    assert!(bench.is_answered(client));
    assert_eq!(bench.count(1), 1);
}

#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let mut bench = one_server(1);
    let clients: Vec<usize> = (0..6).map(|_| bench.client(0, "app")).collect();
    bench.holds = true;
    for client in &clients {
        bench.query(*client, &format!("INSERT INTO t VALUES ({client})"));
    }
    assert_eq!(bench.log.len(), 1);
    assert_eq!(bench.cores[0].census().pools[0].waiters, 5);
    for client in &clients {
        bench.release_one();
        assert!(bench.is_answered(*client));
    }
    let order: Vec<String> =
        clients.iter().map(|client| format!("INSERT INTO t VALUES ({client})")).collect();
    assert_eq!(bench.log.iter().map(|(_, text)| text.clone()).collect::<Vec<_>>(), order);
    assert_eq!((bench.open(0), bench.logins), (1, 1));
}

#[test]
fn who_leaves_the_queue_holds_up_nobody() {
    let mut bench = one_server(1);
    let clients: Vec<usize> = (0..4).map(|_| bench.client(0, "app")).collect();
    bench.holds = true;
    for client in &clients {
        bench.query(*client, &format!("INSERT INTO t VALUES ({client})"));
    }
    for gone in &clients[1..3] {
        let id = bench.clients[*gone].id;
        bench.cores[0].closed(id, bench.now);
        bench.run();
    }
    bench.release_one();
    bench.release_one();
    assert!(bench.is_answered(clients[0]) && bench.is_answered(clients[3]));
    assert_eq!(bench.log.len(), 2);
}

#[test]
fn no_more_connections_than_sessions_that_need_one() {
    let mut bench = one_server(100);
    let clients: Vec<usize> = (0..5).map(|_| bench.client(0, "app")).collect();
    for _ in 0..3 {
        for client in &clients {
            bench.query(*client, "INSERT INTO t VALUES (1)");
            assert!(bench.is_answered(*client));
        }
    }
    assert_eq!((bench.open(0), bench.logins), (1, 1));
}

#[test]
fn a_connection_goes_to_another_user_where_no_other_may_be_opened() {
    let mut bench = one_server(1);
    let (app, bob) = (bench.client(0, "app"), bench.client(0, "bob"));
    for _ in 0..2 {
        for client in [app, bob] {
            bench.query(client, "INSERT INTO t VALUES (1)");
            bench.pass_ms(50);
            assert!(bench.is_answered(client));
        }
    }
    assert_eq!((bench.open(0), bench.logins, bench.user_changes), (1, 1, 3));
}

#[test]
fn a_worker_gives_up_an_idle_connection_to_one_that_needs_it() {
    let mut bench = Bench::new(2, &[1], support::hostgroup([0]), MysqlVariables::default());
    let (here, there) = (bench.client(0, "app"), bench.client(1, "app"));
    for round in 0..3 {
        for client in [here, there] {
            bench.query(client, "INSERT INTO t VALUES (1)");
            bench.pass_ms(100);
            assert!(bench.is_answered(client), "round {round}");
            assert_eq!(bench.open(0), 1);
        }
    }
    let open: Vec<u32> = bench.cores.iter().map(|core| core.census().pools[0].open).collect();
    assert_eq!(open, [0, 1]);
}

#[test]
fn both_workers_get_their_turn_with_the_only_connection() {
    let mut bench = Bench::new(2, &[1], support::hostgroup([0]), MysqlVariables::default());
    let clients: Vec<usize> = (0..6).map(|at| bench.client(at % 2, "app")).collect();
    bench.holds = true;
    for client in &clients {
        bench.query(*client, &format!("INSERT INTO t VALUES ({client})"));
    }
    for _ in &clients {
        bench.release_one();
        bench.pass_ms(100);
    }
    assert!(clients.iter().all(|client| bench.is_answered(*client)), "{:?}", bench.log);
    assert_eq!(bench.open(0), 1);
}

#[test]
fn a_server_that_refuses_connections_is_passed_over() {
    let mut bench = weighted(&[1, 1]);
    bench.down = vec![0];
    let client = bench.client(0, "app");
    for _ in 0..20 {
        bench.query(client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(20);
        assert!(bench.is_answered(client));
    }
    assert_eq!((bench.count(0), bench.count(1)), (0, 20));
    assert_eq!(bench.open(0), 0);
    // It is taken up again, once its pause is over.
    bench.down.clear();
    bench.pass_ms(3_000);
    for _ in 0..20 {
        bench.query(client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(20);
        assert!(bench.is_answered(client));
    }
    assert!((9..=11).contains(&bench.count(0)), "{}", bench.count(0));
}

#[test]
fn who_finds_no_server_is_told_why() {
    let variables = MysqlVariables {
        connect_timeout_server_max: Duration::from_millis(500),
        ..MysqlVariables::default()
    };
    let mut bench = Bench::new(1, &[1], support::hostgroup([0]), variables);
    bench.down = vec![0];
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(499);
    assert!(bench.reply(client).is_none());
    bench.pass_ms(20);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 9001);
    assert!(message.contains("hostgroup 0") && message.contains("127.0.0.1:3306"), "{message}");
    assert!(message.contains("refused"), "{message}");
    // The session lives, and so does the server's count.
    bench.down.clear();
    bench.pass_ms(3_000);
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(100);
    assert!(bench.is_answered(client));
    assert_eq!(bench.open(0), 1);
}

#[test]
fn a_read_is_run_again_so_often_and_no_oftener() {
    let variables = MysqlVariables { connect_retries_on_failure: 3, ..MysqlVariables::default() };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 1 FROM t");
    bench.pass_ms(2_000);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 2013, "{message}");
    assert_eq!(bench.log.len(), 4);
}

#[test]
fn a_write_is_never_run_again() {
    let mut bench = one_server(10);
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(1_000);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!((code, bench.log.len()), (2013, 1), "{message}");
    assert!(message.contains("may or may not have taken effect"), "{message}");
    assert_eq!(bench.open(0), 0);
}

#[test]
fn connections_beyond_free_connections_pct_are_closed_when_they_have_rested() {
    let variables = MysqlVariables { free_connections_pct: 20, ..MysqlVariables::default() };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let clients: Vec<usize> = (0..8).map(|_| bench.client(0, "app")).collect();
    bench.holds = true;
    for client in &clients {
        bench.query(*client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(50);
    }
    assert_eq!(bench.open(0), 8);
    bench.holds = false;
    for client in &clients {
        bench.release_one();
        assert!(bench.is_answered(*client));
    }
    bench.pass_ms(15_000);
    assert_eq!(bench.open(0), 2);
    assert_eq!(bench.cores[0].census().pools[0].idle, 2);
}
