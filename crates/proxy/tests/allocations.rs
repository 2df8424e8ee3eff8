//! A statement in the steady state allocates nothing: neither in the core nor in the driver.
//!
//! A test binary of its own, because its allocator counts what every thread does.

#![allow(clippy::unwrap_used)]

mod support;

use std::alloc::System;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use weir_config::MysqlVariables;
use weir_protocol::command::{Command, StmtExecute, StmtPrepareOk};
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::ok::{OK_AS_EOF_HEADER, OK_HEADER, OkPacket, SessionTrack};
use weir_protocol::resultset::{BinaryValue, ColumnDefinition, TextResult, put_binary_row};
use weir_protocol::status::StatusFlags;
use weir_proxy::outbox::{Order, SocketId};
use weir_proxy::peer::Peer;
use weir_proxy::service::Service;
use weir_proxy::shared::{Message, Shared};
use weir_proxy::stats::{Clock, DigestSums, ReportPart};
use weir_proxy::worker::Worker;
use weir_query_log::QueryLogs;
use weir_routing::{Options, QueryRule, Rules};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WARM_UP: usize = 200;
const STATEMENTS: usize = 10_000;

/// One test, so that nothing else runs in the process while it counts.
#[test]
fn a_statement_in_the_steady_state_allocates_nothing() {
    let mut bench = Bench::new();
    bench.counts_nothing("point select", &[query("SELECT c FROM sbtest1 WHERE id=4711")]);
    let statement = bench.prepare("SELECT c FROM sbtest1 WHERE id=?");
    bench.counts_nothing("prepared execution", &[statement]);
    let transaction = [
        query("BEGIN"),
        query("SELECT c FROM sbtest1 WHERE id=4711"),
        query("UPDATE sbtest1 SET k=k+1 WHERE id=4711"),
        query("COMMIT"),
    ];
    bench.counts_nothing("transaction", &transaction);
    bench.counts_nothing("ping", &[packet(Command::Ping, b"")]);
    bench.has_counted();
    logged();
    through_sockets();
}

/// With the events log on, into a buffer that is as large as it gets.
fn logged() {
    let mut variables = MysqlVariables::default();
    variables.logs.eventslog_filename = Some("events".into());
    variables.logs.eventslog_default_log = true;
    let mut bench = Bench::with(variables);
    let query_logs = bench.query_logs.clone();
    // Some 180 bytes each, of a mebibyte that the buffer holds; from the half of it on nothing is to be had.
    bench.counts_nothing_after(
        3_400,
        1_500,
        "logged point select",
        &[query("SELECT c FROM t WHERE id=4711")],
    );
    assert_eq!(query_logs.counts().map(|counts| counts.dropped), [0; 3]);
}

/// By digest, by pattern, by user and schema, and one that has to look at each statement; most match nothing.
fn twenty_rules() -> std::sync::Arc<Rules> {
    let rule = |rule_id: u32| {
        let row = QueryRule { rule_id, active: true, ..QueryRule::default() };
        match rule_id % 5 {
            0 => QueryRule { match_digest: Some(format!("^SELECT .* FROM sbtest{rule_id} ")), ..row },
            1 => QueryRule { digest: Some(rule_id.into()), ..row },
            2 => QueryRule { username: Some(format!("user{rule_id}")), ..row },
            3 => QueryRule { match_pattern: Some(format!("id={rule_id}$")), ..row },
            _ => QueryRule { schemaname: Some("sbtest".into()), flag_in: rule_id, ..row },
        }
    };
    let last =
        QueryRule { timeout_ms: Some(5_000), retries: Some(1), destination_hostgroup: Some(0), ..rule(20) };
    let rows: Vec<QueryRule> = (1..20).map(rule).chain([QueryRule { match_digest: None, ..last }]).collect();
    Rules::compile(&rows, &[], Options::default()).unwrap()
}

fn query(sql: &str) -> Vec<u8> {
    packet(Command::Query, sql.as_bytes())
}

fn packet(command: Command, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::packet(&mut out, &mut 0, |out| {
        out.push(command.code());
        out.extend_from_slice(body);
    });
    out
}

/// What a MariaDB with full session tracking answers (docs/internals/session-tracking.md).
fn answer(command: &[u8]) -> Vec<u8> {
    let auto = StatusFlags::AUTOCOMMIT;
    let trans = StatusFlags::AUTOCOMMIT | StatusFlags::IN_TRANS;
    let gtid = SessionTrack::SystemVariable { name: b"last_gtid", value: b"100-1-98" };
    let none = [SessionTrack::TransactionState(b"________"), SessionTrack::TransactionCharacteristics(b"")];
    let started = [
        SessionTrack::TransactionState(b"T_______"),
        SessionTrack::TransactionCharacteristics(b"START TRANSACTION;"),
    ];
    let done = OkPacket::new(OK_HEADER, auto);
    match (Command::parse(command[0]), &command[1..]) {
        (Some(Command::Query), b"BEGIN") => support::ok(1, OkPacket::new(OK_HEADER, trans), &started),
        (Some(Command::Query), b"COMMIT") => support::ok(1, done, &[gtid, none[0], none[1]]),
        (Some(Command::Query), text) if text.starts_with(b"SET SESSION session_track") => {
            let mode = SessionTrack::SystemVariable { name: b"sql_mode", value: b"STRICT_TRANS_TABLES" };
            support::ok(1, done, &[mode, SessionTrack::StateChange(true)])
        }
        (Some(Command::InitDb), schema) => {
            support::ok(1, done, &[SessionTrack::Schema(schema), SessionTrack::StateChange(true)])
        }
        (Some(Command::Query), text) if text.starts_with(b"SET") => {
            support::ok(1, done, &[SessionTrack::StateChange(true)])
        }
        (Some(Command::Query), text) if text.starts_with(b"UPDATE") => {
            let info = b"Rows matched: 1  Changed: 1  Warnings: 0";
            let ok = OkPacket { affected_rows: 1, info, ..OkPacket::new(OK_HEADER, trans) };
            support::ok(1, ok, &[SessionTrack::TransactionState(b"T___W___")])
        }
        (Some(Command::Query), text) if text.starts_with(b"SELECT") => {
            let (mut out, mut sequence) = (Vec::new(), 1);
            let columns = [ColumnDefinition::text(b"c", 480)];
            let mut result =
                TextResult::begin(&mut out, &mut sequence, support::SERVER_CAPABILITIES, auto, &columns);
            result.row([Some(&[b'x'; 119][..])]);
            result.finish(auto, 0);
            out
        }
        (Some(Command::StmtPrepare), _) => {
            let (mut out, mut sequence) = (Vec::new(), 1);
            let prepared = StmtPrepareOk { stmt_id: 7, columns: 1, params: 1, warnings: 0 };
            frame::packet(&mut out, &mut sequence, |out| prepared.write(out));
            for name in [b"?", b"c"] {
                let column = ColumnDefinition::text(name, 480);
                frame::packet(&mut out, &mut sequence, |out| column.write(support::SERVER_CAPABILITIES, out));
            }
            out
        }
        (Some(Command::StmtExecute), _) => {
            let (mut out, mut sequence) = (Vec::new(), 1);
            frame::packet(&mut out, &mut sequence, |out| out.push(1));
            let column = ColumnDefinition::text(b"c", 480);
            frame::packet(&mut out, &mut sequence, |out| column.write(support::SERVER_CAPABILITIES, out));
            frame::packet(&mut out, &mut sequence, |out| {
                put_binary_row(out, &[BinaryValue::Bytes(&[b'x'; 119])])
            });
            let end = OkPacket::new(OK_AS_EOF_HEADER, auto);
            frame::packet(&mut out, &mut sequence, |out| end.write(support::SERVER_CAPABILITIES, out));
            out
        }
        _ => support::ok(1, done, &[]),
    }
}

/// A core with one client and one server, both played by the test.
struct Bench {
    core: Worker,
    query_logs: QueryLogs,
    client: SocketId,
    backend: SocketId,
    now: u64,
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    orders: Vec<Order>,
    dirty: Vec<SocketId>,
}

impl Bench {
    fn new() -> Self {
        Self::with(MysqlVariables::default())
    }

    fn with(variables: MysqlVariables) -> Self {
        let servers = [support::server(3306, 10)];
        let users = [support::account("app", 0)];
        let mut snapshot = support::snapshot(&users, &servers, [(0, support::hostgroup([0]))], variables);
        std::sync::Arc::get_mut(&mut snapshot).unwrap().rules = twenty_rules();
        let (shared, _inboxes) = Shared::new(1, 1, Box::new(|_| ())).unwrap();
        let query_logs = shared.query_logs.clone();
        let mut core = Worker::new(0, shared, snapshot, [7; 32], 1);
        let client = core.accept(Peer::Unix, &support::listener(), 1).unwrap();
        let mut bench = Self {
            core,
            query_logs,
            client,
            backend: client,
            now: 1,
            to_client: Vec::with_capacity(1 << 16),
            to_server: Vec::with_capacity(1 << 16),
            orders: Vec::with_capacity(16),
            dirty: Vec::with_capacity(16),
        };
        bench.carry_out();
        let (_, greeting) = support::take_packet(&mut bench.to_client).unwrap();
        bench.client_sends(&support::login(&greeting, support::MODERN, b"app", b"information_schema", 45));
        let (_, reply) = support::take_packet(&mut bench.to_client).unwrap();
        assert_eq!(reply[0], OK_HEADER, "{}", reply.escape_ascii());
        bench.dial();
        bench
    }

    /// The first statement makes the core open its connection.
    fn dial(&mut self) {
        self.client_sends(&query("SELECT 1"));
        assert_ne!(self.backend, self.client, "no connection was ordered");
        self.core.connected(self.backend, Ok(()), self.now);
        self.server_sends(&support::greeting(1));
        assert!(support::take_packet(&mut self.to_server).is_some());
        self.server_sends(&support::plain_ok(2));
        self.serve();
        assert!(!self.to_client.is_empty());
        self.to_client.clear();
    }

    fn prepare(&mut self, sql: &str) -> Vec<u8> {
        self.client_sends(&packet(Command::StmtPrepare, sql.as_bytes()));
        self.serve();
        let (_, reply) = support::take_packet(&mut self.to_client).unwrap();
        let prepared = StmtPrepareOk::parse(&reply).unwrap();
        let mut out = Vec::new();
        frame::packet(&mut out, &mut 0, |out| {
            StmtExecute { stmt_id: prepared.stmt_id, flags: 0, iteration_count: 1 }.write(out);
            // No NULL, with types: one LONGLONG.
            out.extend_from_slice(&[0, 1, 8, 0]);
            out.extend_from_slice(&4711u64.to_le_bytes());
        });
        out
    }

    fn counts_nothing(&mut self, what: &str, commands: &[Vec<u8>]) {
        self.counts_nothing_after(WARM_UP, STATEMENTS, what, commands);
    }

    fn counts_nothing_after(&mut self, warm_up: usize, rounds: usize, what: &str, commands: &[Vec<u8>]) {
        // The steady state: answers prepared, so that only the core can allocate.
        let answers: Vec<Vec<u8>> = commands.iter().map(|command| self.answer_as_sent(command)).collect();
        let mut scratch = Vec::with_capacity(1 << 16);
        let mut run = |bench: &mut Self, rounds: usize| {
            for _ in 0..rounds {
                for (command, answer) in commands.iter().zip(&answers) {
                    bench.exchange(command, answer, &mut scratch);
                }
            }
        };
        run(self, warm_up);
        let region = Region::new(ALLOCATOR);
        run(self, rounds);
        let change = region.change();
        let calls = change.allocations + change.reallocations;
        assert_eq!(calls, 0, "{what}: {:.3} allocations for each round", calls as f64 / rounds as f64);
    }

    /// Statistics were on all the time, and nothing is missing in them.
    fn has_counted(&mut self) {
        let rounds = (WARM_UP + STATEMENTS) as u64;
        let (to, from) = channel();
        self.core.message(
            Message::Report { part: ReportPart::Digests, begins_again: false, to: to.clone() },
            self.now,
        );
        let report = from.recv().unwrap();
        let mut sums = DigestSums::new(10);
        sums.add(report.digests, &Clock { unix_s: 0, now: self.now });
        let count = |text: &[u8]| {
            let rows = sums.rows().filter(|row| *row.text == *text);
            rows.map(|row| (row.count, row.rows_sent, row.rows_affected)).collect::<Vec<_>>()
        };
        assert_eq!(count(b"SELECT c FROM sbtest1 WHERE id=?"), [(3 * (rounds + 1), 3 * (rounds + 1), 0)]);
        assert_eq!(count(b"UPDATE sbtest1 SET k=k+? WHERE id=?"), [(rounds + 1, 0, rounds + 1)]);
        assert_eq!(sums.dropped(), 0);
        self.core.message(Message::Report { part: ReportPart::Servers, begins_again: false, to }, self.now);
        let servers = from.recv().unwrap().servers;
        assert_eq!((servers[0].opened, servers[0].failed, servers[0].open_max), (1, 0, 1));
        assert!(servers[0].queries > 6 * rounds && servers[0].bytes_received > servers[0].bytes_sent);
    }

    /// What the server answers to this command; empty if the core answers itself.
    fn answer_as_sent(&mut self, command: &[u8]) -> Vec<u8> {
        self.client_sends(command);
        let mut answers = Vec::new();
        while let Some((_, payload)) = support::take_packet(&mut self.to_server) {
            let reply = answer(&payload);
            self.server_sends(&reply);
            answers = reply;
        }
        self.to_client.clear();
        answers
    }

    fn exchange(&mut self, command: &[u8], answer: &[u8], scratch: &mut Vec<u8>) {
        for (socket, bytes) in [(self.client, command), (self.backend, answer)] {
            if bytes.is_empty() {
                continue;
            }
            scratch.clear();
            scratch.extend_from_slice(bytes);
            self.now += 50_000;
            self.core.data(socket, scratch, self.now);
            self.carry_out();
            if self.core.next_deadline() <= self.now {
                self.core.tick(self.now);
            }
        }
        assert!(!self.to_client.is_empty(), "no reply");
        self.to_client.clear();
        self.to_server.clear();
    }

    fn client_sends(&mut self, bytes: &[u8]) {
        self.core.data(self.client, &mut bytes.to_vec(), self.now);
        self.carry_out();
    }

    fn server_sends(&mut self, bytes: &[u8]) {
        self.core.data(self.backend, &mut bytes.to_vec(), self.now);
        self.carry_out();
    }

    /// Answers everything that the core asks the server.
    fn serve(&mut self) {
        while let Some((_, payload)) = support::take_packet(&mut self.to_server) {
            let reply = answer(&payload);
            self.server_sends(&reply);
        }
    }

    /// What a driver does after each batch of events.
    fn carry_out(&mut self) {
        self.core.out().take_dirty(&mut self.dirty);
        for socket in self.dirty.drain(..) {
            let bytes = self.core.out().unsent(socket);
            let to = if socket == self.client { &mut self.to_client } else { &mut self.to_server };
            to.extend_from_slice(bytes);
            let count = bytes.len();
            self.core.out().sent(socket, count);
        }
        self.core.out().take_orders(&mut self.orders);
        for order in self.orders.drain(..) {
            match order {
                Order::Connect(socket, _) => self.backend = socket,
                Order::Resume(_) => {}
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}

/// The same with sockets, the real driver and a thread for each side.
fn through_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || serve_socket(&listener));
    let servers = [support::server(port, 10)];
    let snapshot = support::snapshot(
        &[support::account("app", 0)],
        &servers,
        [(0, support::hostgroup([0]))],
        MysqlVariables::default(),
    );
    let service =
        Service::start(&[(*support::listener()).clone()], 1, &snapshot, None, Box::new(|_| ())).unwrap();
    let address = service.listening().next().unwrap().address.to_string();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let count = stream.read(&mut buffer).unwrap();
    let greeting = &buffer[HEADER_LEN..count];
    stream.write_all(&support::login(greeting, support::MODERN, b"app", b"information_schema", 45)).unwrap();
    let _ = stream.read(&mut buffer).unwrap();

    let command = query("SELECT c FROM sbtest1 WHERE id=4711");
    let reply_len = answer(&command[HEADER_LEN..]).len();
    let mut run = |statements: usize| {
        for _ in 0..statements {
            stream.write_all(&command).unwrap();
            stream.read_exact(&mut buffer[..reply_len]).unwrap();
        }
    };
    run(WARM_UP);
    let region = Region::new(ALLOCATOR);
    run(STATEMENTS);
    let change = region.change();
    let calls = change.allocations + change.reallocations;
    drop(stream);
    service.stop().unwrap();
    server.join().unwrap();
    assert_eq!(calls, 0, "through sockets: {:.3} allocations a statement", calls as f64 / STATEMENTS as f64);
}

/// A server of one connection that answers without allocating, once it is logged in.
fn serve_socket(listener: &TcpListener) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; 1 << 16];
    stream.write_all(&support::greeting(1)).unwrap();
    let _ = stream.read(&mut buffer).unwrap();
    stream.write_all(&support::plain_ok(2)).unwrap();
    let select = answer(b"\x03SELECT");
    let done = answer(b"\x03SET SESSION session_track");
    loop {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        let mut rest = &buffer[..count];
        while let Some(header) = Header::parse(rest) {
            let is_select = rest[HEADER_LEN..].starts_with(b"\x03SELECT");
            stream.write_all(if is_select { &select } else { &done }).unwrap();
            rest = &rest[header.packet_len()..];
        }
    }
}
