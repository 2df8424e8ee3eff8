//! By whichever way a statement comes to a connection: its server is known to have what the session has to see.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::frame;
use weir_protocol::ok::OkPacket;
use weir_protocol::status::StatusFlags;
use weir_proxy::shared::Message;
use weir_proxy::snapshot::Hostgroup;
use weir_proxy::stats::{ReportPart, WorkerReport};
use weir_routing::{Consistency, Options, QueryRule, Rules};
use weir_topology::Unchecked;

const MS: u64 = 1_000_000;
/// How long a read waits for a reader.
const TIMEOUT_MS: u64 = 200;

/// Server 0 writes, in hostgroup 0; 1 and perhaps others read, in hostgroup 1. What names `far` is sent to the readers.
fn bench_of(readers: usize, consistency: Consistency) -> Bench {
    let all = vec![5; 1 + readers];
    let mut bench = Bench::new(1, &all, support::hostgroup([0]), MysqlVariables::default());
    bench.lags = true;
    publish(&mut bench, consistency);
    // There is a connection to each already.
    let client = bench.client(0, "app");
    for _ in 0..20 * readers {
        bench.query(client, "SELECT /* weir_consistency=eventual */ a FROM t");
    }
    assert!((1..=readers).all(|reader| bench.open(reader) > 0));
    bench.log.clear();
    cover(&mut bench, 0..1 + readers);
    bench
}

fn publish(bench: &mut Bench, consistency: Consistency) {
    let rule = QueryRule {
        rule_id: 1,
        active: true,
        match_pattern: Some("far".to_owned()),
        destination_hostgroup: Some(1),
        ..QueryRule::default()
    };
    let rules = Rules::compile(&[rule], &[], Options::default()).unwrap();
    let group = |servers: std::ops::Range<usize>, reader_hostgroup| Hostgroup {
        is_replicated: true,
        reader_hostgroup,
        consistency,
        consistency_timeout: Duration::from_millis(TIMEOUT_MS),
        ..support::hostgroup(servers)
    };
    bench.publish_rules(rules, [(0, group(0..1, Some(1))), (1, group(1..bench.servers.len(), None))]);
    cover(bench, 0..bench.servers.len());
}

/// Checks that begin now end well.
fn cover(bench: &mut Bench, servers: std::ops::Range<usize>) {
    bench.pass_ms(1);
    bench.servers[servers].iter().for_each(|server| server.shared.coverage.cover_until(bench.now));
    bench.pass_ms(1);
}

/// A user who keeps a connection to a reader.
fn keeps_reader(bench: &mut Bench) {
    let mut account = support::account("app", 1);
    Arc::make_mut(&mut Arc::get_mut(&mut account).unwrap().user).fast_forward = true;
    bench.users[0] = account;
}

fn report(bench: &mut Bench) -> WorkerReport {
    let (to, report) = channel();
    let message = Message::Report { part: ReportPart::Servers, begins_again: false, to };
    bench.cores[0].message(message, bench.now);
    report.recv().unwrap()
}

/// The server that has got the last statement of a client, and how many have come.
fn last(bench: &Bench) -> (usize, usize) {
    let of_clients =
        bench.log.iter().filter(|(_, text)| !text.starts_with("SELECT CAST(") && text != "SHOW WARNINGS");
    (of_clients.clone().next_back().map_or(usize::MAX, |(server, _)| *server), of_clients.count())
}

#[test]
fn a_replica_that_was_restored_is_checked_before_it_is_read() {
    let mut bench = bench_of(1, Consistency::Session);
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(client));
    cover(&mut bench, 1..2);
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client));
    assert_eq!(last(&bench), (1, 2));
    // Its backup is older than the write, and than what the session has read there.
    bench.lose(1);
    bench.query(client, "SELECT a FROM t");
    bench.pass_ms(5);
    assert!(!bench.is_answered(client) && last(&bench).1 == 2, "what the former one had counts for nothing");
    cover(&mut bench, 1..2);
    assert!(bench.is_answered(client));
    assert_eq!(last(&bench), (1, 3));
    let counted = report(&mut bench).reads;
    let of_writer = &counted.iter().find(|(hostgroup, _)| *hostgroup == 0).unwrap().1;
    assert_eq!((of_writer.at_once, of_writer.waited), (21, 1), "each counts once: {of_writer:?}");
    // Over the same connection there is nothing to prove.
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (1, 4));
}

#[test]
fn while_a_restored_replica_is_not_checked_another_server_is_read() {
    for others in [0, 1] {
        let mut bench = bench_of(1 + others, Consistency::Session);
        let client = bench.client(0, "app");
        bench.query(client, "INSERT INTO t VALUES (1)");
        cover(&mut bench, 0..2 + others);
        for reader in 1..2 + others {
            bench.lose(reader);
            bench.servers[reader].shared.coverage.note_unchecked(Unchecked::NotYet);
        }
        bench.clients[client].got.clear();
        bench.query(client, "SELECT a FROM t");
        assert!(bench.is_answered(client), "{others}");
        assert_eq!(last(&bench), (0, 2), "{others}");
    }
}

#[test]
fn sessions_that_have_to_see_nothing_wait_for_no_check() {
    let mut bench = bench_of(1, Consistency::Session);
    let client = bench.client(0, "app");
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (1, 1));
    // Where nothing can be checked the server that was read is read again.
    bench.lose(1);
    bench.servers[1].shared.coverage.note_unchecked(Unchecked::NoPositions);
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (1, 2));
    publish(&mut bench, Consistency::Eventual);
    bench.lose(1);
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (1, 4));
}

#[test]
fn a_read_that_asks_for_diagnostics_too_is_no_less_fresh() {
    let mut bench = bench_of(1, Consistency::Global);
    let client = bench.client(0, "app");
    bench.query(client, "SELECT a FROM t /* warns */");
    cover(&mut bench, 0..2);
    assert!(bench.is_answered(client));
    assert_eq!(last(&bench).0, 1);
    bench.pass_ms(1);
    let asked = bench.log.len();
    bench.query(client, "SELECT FOUND_ROWS(), a FROM t");
    let of_client = |bench: &Bench| bench.log[asked..].iter().any(|(_, text)| text.ends_with("a FROM t"));
    assert!(!of_client(&bench), "the connection that knows the number is not known to be fresh");
    // It is asked for the number, which goes with the statement to wherever that runs.
    assert!(bench.log[asked..].iter().any(|(at, text)| *at == 1 && text.contains("FOUND_ROWS() USING")));
}

#[test]
fn a_kept_connection_waits_for_its_server() {
    let mut bench = bench_of(1, Consistency::Global);
    keeps_reader(&mut bench);
    publish(&mut bench, Consistency::Global);
    let client = bench.client(0, "app");
    let all = ["SELECT a FROM t", "SELECT f(a) FROM t", "BEGIN", "SELECT a FROM t"];
    for (at, sql) in all.into_iter().enumerate() {
        bench.pass_ms(1);
        bench.query(client, sql);
        if sql == "SELECT a FROM t" && at > 0 {
            // In the transaction.
            assert!(bench.is_answered(client) && last(&bench) == (1, at + 1), "{sql}");
            continue;
        }
        assert_eq!(last(&bench).1, at, "{sql}: nobody knows yet how fresh the server is");
        cover(&mut bench, 1..2);
        if at == 0 {
            // Of the server that the new connection leads to.
            cover(&mut bench, 1..2);
        }
        assert!(bench.is_answered(client), "{sql}");
        assert_eq!(last(&bench), (1, at + 1), "{sql}");
    }
    assert_eq!(bench.open(1), 1, "all of that on one connection");
    bench.query(client, "COMMIT");
    assert!(bench.is_answered(client));
    bench.query(client, "SELECT a FROM t");
    bench.pass_ms(TIMEOUT_MS - 5);
    assert_eq!(bench.error(client), None);
    bench.pass_ms(10);
    let (code, text) = bench.error(client).unwrap();
    assert!(code == 9001 && text.contains("is held there (consistency_timeout_ms)"), "{code} {text}");
    // The session goes on.
    bench.query(client, "SELECT a FROM t");
    cover(&mut bench, 1..2);
    assert!(bench.is_answered(client));
}

/// A result of one row.
fn one_row() -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let column =
        [["def", "", "", "", "a", ""].map(text).concat(), vec![12, 45, 0, 9, 0, 0, 0, 0xFD, 0, 0, 0, 0, 0]];
    let mut bytes = Vec::new();
    for (sequence, payload) in (1..).zip([vec![1], column.concat(), text("1")]) {
        frame::write_packet(&mut bytes, &mut { sequence }, &payload);
    }
    bytes.extend(support::ok(4, OkPacket::new(0xFE, StatusFlags::AUTOCOMMIT), &[]));
    bytes
}

/// It did not wait for what the session had seen elsewhere.
#[test]
fn rows_that_a_change_returns_are_no_word_on_what_was_seen_before() {
    let mut bench = bench_of(1, Consistency::Session);
    let client = bench.client(0, "app");
    // The connection knows nothing of others any more.
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client));
    for (sql, server) in [("SELECT a FROM t", 1), ("DELETE FROM u RETURNING a", 0)] {
        bench.holds = true;
        bench.query(client, sql);
        assert_eq!(last(&bench).0, server, "{sql}: a change waits for locks only");
        bench.release_with(one_row());
        bench.holds = false;
        if bench.conns.iter().any(|conn| conn.held) {
            // Weir asks for what the reader's connection knows of the session.
            bench.release_one();
        }
        bench.pass_ms(1);
    }
    bench.clients[client].got.clear();
    bench.servers[1].shared.coverage.note_unchecked(Unchecked::NotYet);
    bench.query(client, "SELECT a FROM t");
    assert_eq!(last(&bench).1, 3, "the writer may still have to make visible what the reader has shown");
    cover(&mut bench, 0..1);
    assert_eq!(last(&bench), (0, 4));
}

#[test]
fn what_a_query_has_put_into_a_variable_was_seen() {
    for (sql, counts) in
        [("SELECT a INTO @a FROM t", true), ("SET @a = (SELECT a FROM t)", true), ("SET @a = 1", false)]
    {
        let mut bench = bench_of(1, Consistency::Session);
        let client = bench.client(0, "app");
        bench.query(client, sql);
        assert!(bench.is_answered(client), "{sql}");
        // The variable, which keeps the session on the writer, is over; what it has shown is not.
        bench.send(client, &[1, 0, 0, 0, 0x1F]);
        assert!(bench.is_answered(client), "{sql}");
        let before = last(&bench).1;
        bench.query(client, "SELECT a FROM t");
        let is_at_reader = last(&bench) == (1, before + 1);
        assert_eq!(is_at_reader, !counts, "{sql}: {:?}", bench.log);
        cover(&mut bench, 1..2);
        assert!(bench.is_answered(client), "{sql}");
    }
}

#[test]
fn what_a_transaction_reads_was_seen_to_at_its_begin() {
    let mut bench = bench_of(1, Consistency::Global);
    let client = bench.client(0, "app");
    bench.query(client, "BEGIN");
    cover(&mut bench, 0..1);
    assert!(bench.is_answered(client));
    bench.pass_ms(1);
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (0, 2));
    bench.query(client, "COMMIT AND CHAIN");
    assert_eq!(last(&bench).1, 2, "what was acknowledged since has to be there for the next one");
    cover(&mut bench, 0..1);
    assert!(bench.is_answered(client) && last(&bench) == (0, 3));
    bench.query(client, "SELECT a FROM t");
    assert!(bench.is_answered(client) && last(&bench) == (0, 4));
}

#[test]
fn a_read_that_a_rule_sends_to_readers_waits_and_gets_the_reason() {
    let mut bench = bench_of(1, Consistency::Session);
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(client));
    bench.query(client, "SELECT a FROM far");
    // Longer than other reads wait for a reader: there is no writer to go to.
    bench.pass_ms(TIMEOUT_MS + 100);
    assert_eq!(bench.error(client), None);
    bench.pass_ms(10_000);
    let (code, text) = bench.error(client).unwrap();
    assert_eq!(code, 9001);
    let reason = "127.0.0.1:3307: may not have applied yet what this session has to see";
    assert!(text.contains("hostgroup 1") && text.contains(reason), "{text}");
    bench.query(client, "SELECT a FROM far");
    bench.pass_ms(TIMEOUT_MS + 100);
    cover(&mut bench, 1..2);
    assert!(bench.is_answered(client) && last(&bench) == (1, 2));
}

/// The check is redone a moment later; nobody waits for that who can be served by others.
#[test]
fn a_failed_check_moves_those_who_wait_for_it() {
    for (readers, serves) in [(1, 0), (2, 2)] {
        let mut bench = bench_of(readers, Consistency::Session);
        let client = bench.client(0, "app");
        bench.query(client, "INSERT INTO t VALUES (1)");
        bench.clients[client].got.clear();
        let coverage = |bench: &Bench, server: usize| bench.servers[server].shared.clone();
        bench.query(client, "SELECT a FROM t");
        assert!(!bench.is_answered(client), "{readers}");
        // The last one is fresh, but nobody has told the session: it waits for the first.
        if readers == 2 {
            coverage(&bench, 2).coverage.cover_until(bench.now + MS);
        }
        coverage(&bench, 1).coverage.note_unchecked(Unchecked::NotYet);
        bench.tell_covered();
        if readers == 2 && last(&bench).1 == 1 {
            // It has waited for the second.
            bench.pass_ms(1);
        }
        assert!(bench.is_answered(client), "{readers}");
        assert_eq!(last(&bench).0, serves, "{readers}");
    }
}

/// It may find rows of others that no lock guards.
#[test]
fn a_change_waits_until_its_new_writer_has_what_the_old_one_had_acknowledged() {
    let mut bench = bench_of(1, Consistency::Global);
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t SELECT a FROM u");
    assert!(bench.is_answered(client) && last(&bench) == (0, 1), "it has been checked since it writes");
    // The role moves. This one has not written yet.
    let client = bench.client(0, "app");
    let group = |server: usize, reader_hostgroup| Hostgroup {
        is_replicated: true,
        reader_hostgroup,
        consistency: Consistency::Global,
        ..support::hostgroup([server])
    };
    let rules = Rules::compile(&[], &[], Options::default()).unwrap();
    bench.pass_ms(1);
    bench.publish_rules(rules, [(0, group(1, Some(1))), (1, group(0, None))]);
    bench.query(client, "INSERT INTO t SELECT a FROM u");
    bench.pass_ms(1);
    assert_eq!((bench.is_answered(client), last(&bench).1), (false, 1));
    cover(&mut bench, 1..2);
    assert!(bench.is_answered(client) && last(&bench) == (1, 2));
    bench.query(client, "INSERT INTO t SELECT a FROM u");
    assert!(bench.is_answered(client) && last(&bench) == (1, 3), "once is enough");
}
