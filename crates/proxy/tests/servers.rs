//! Servers that fail, leave and come back; connections that grow old; transactions that take too long.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_proxy::shared::Message;
use weir_proxy::snapshot::{Balancing, Care, Health, Hostgroup, Server, Throttle};

fn two_servers() -> Bench {
    Bench::new(1, &[10, 10], support::hostgroup([0, 1]), MysqlVariables::default())
}

/// The hostgroup of both servers, each as healthy as told.
fn hostgroup_with(one: Health, two: Health) -> Hostgroup {
    let mut hostgroup = support::hostgroup([0, 1]);
    hostgroup.members.iter_mut().zip([one, two]).for_each(|(member, health)| member.health = health);
    hostgroup
}

/// The same servers, changed.
fn changed(bench: &Bench, change: impl Fn(usize, &mut Server)) -> Vec<Arc<Server>> {
    let server = |(at, old): (usize, &Arc<Server>)| {
        let mut new = Server {
            endpoint: old.endpoint.clone(),
            addr: old.addr,
            max_connections: old.max_connections,
            is_gone: old.is_gone,
            is_silent: old.is_silent,
            tls: None,
            proxy_header: old.proxy_header,
            is_leaving: old.is_leaving,
            leave_by: old.leave_by,
            care: old.care.clone(),
            shared: old.shared.clone(),
        };
        change(at, &mut new);
        Arc::new(new)
    };
    bench.servers.iter().enumerate().map(server).collect()
}

fn insert(bench: &mut Bench, client: usize, times: usize) {
    for _ in 0..times {
        bench.query(client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(1);
        assert!(bench.is_answered(client));
    }
}

#[test]
fn a_write_that_a_writer_turns_away_as_read_only_runs_on_the_next_one() {
    let writers = || Hostgroup { reader_hostgroup: Some(1), ..support::hostgroup([0, 1]) };
    let mut bench = Bench::new(1, &[10, 10], writers(), MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.read_only = vec![0];
    insert(&mut bench, client, 4);
    assert!((0..4).all(|_| bench.error(client).is_none()));
    let ran = |bench: &Bench, node| bench.log.iter().filter(|(at, _)| *at == node).count();
    assert_eq!((ran(&bench, 0), ran(&bench, 1)), (1, 4), "it is left alone until the monitor has looked");

    // A routine may have done something before; a transaction is over, and the session goes on elsewhere.
    bench.pass_ms(200);
    bench.read_only = vec![0, 1];
    bench.query(client, "CALL p()");
    bench.pass_ms(1);
    assert_eq!(bench.error(client).map(|(code, _)| code), Some(1290));
    let client = bench.client(0, "bob");
    bench.query(client, "BEGIN");
    bench.pass_ms(1);
    bench.reply(client);
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(1);
    let (code, text) = bench.error(client).unwrap();
    assert!(code == 1213 && text.contains("has become read_only, the transaction is rolled back"), "{text}");
    bench.read_only = Vec::new();
    bench.pass_ms(200);
    insert(&mut bench, client, 1);

    // DDL commits the transaction first, and may be refused at its own end.
    bench.query(client, "BEGIN");
    bench.pass_ms(1);
    bench.reply(client);
    bench.read_only = vec![0, 1];
    bench.query(client, "ALTER TABLE t ADD c INT");
    bench.pass_ms(1);
    let (code, text) = bench.error(client).unwrap();
    assert!(code == 1053 && text.contains("may or may not have been committed"), "{text}");
}

/// Where nobody writes soon, the server's own answer is better than none; and on a reader it is the answer.
#[test]
fn a_write_that_all_turn_away_gets_the_servers_error() {
    let writers = Hostgroup { reader_hostgroup: Some(1), ..support::hostgroup([0]) };
    for (hostgroup, patience_ms) in [(writers, 3000), (support::hostgroup([0]), 1)] {
        let mut bench = Bench::new(1, &[10], hostgroup, MysqlVariables::default());
        let client = bench.client(0, "app");
        bench.read_only = vec![0];
        bench.query(client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(patience_ms);
        assert_eq!(bench.error(client).map(|(code, _)| code), Some(1290));
    }
}

#[test]
fn failures_are_told_to_the_monitor_and_come_fast_only_until_it_shuns() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    bench.down = vec![0];
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(30);
    assert_eq!(bench.failures.load(Ordering::Relaxed), 5, "a millisecond apart");
    bench.pass_ms(2_000);
    let failures = bench.failures.load(Ordering::Relaxed);
    assert!((6..=8).contains(&failures), "{failures} failures");
    bench.down.clear();
    bench.pass_ms(3_000);
    assert!(bench.is_answered(client));
}

#[test]
fn a_shunned_server_serves_where_no_other_can() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    bench.publish(bench.servers.clone(), hostgroup_with(Health::Shunned, Health::Good));
    insert(&mut bench, client, 10);
    assert_eq!((bench.count(0), bench.count(1)), (0, 10));
    bench.publish(bench.servers.clone(), hostgroup_with(Health::Shunned, Health::Slow));
    insert(&mut bench, client, 10);
    assert_eq!((bench.count(0), bench.count(1)), (0, 20));
    bench.publish(bench.servers.clone(), hostgroup_with(Health::Shunned, Health::Shunned));
    insert(&mut bench, client, 10);
    assert_eq!(bench.count(0), 5, "an early try");
}

#[test]
fn one_that_comes_back_begins_slowly() {
    let mut bench = two_servers();
    let client = bench.client(0, "app");
    insert(&mut bench, client, 10);
    assert_eq!(bench.count(0), 5, "nobody was away at the start");
    bench.publish(bench.servers.clone(), hostgroup_with(Health::Shunned, Health::Good));
    bench.pass_ms(10_000);
    bench.publish(bench.servers.clone(), hostgroup_with(Health::Good, Health::Good));
    let before = bench.count(0);
    insert(&mut bench, client, 100);
    assert!((2..12).contains(&(bench.count(0) - before)), "{}", bench.count(0) - before);
    bench.pass_ms(5_000);
    let before = bench.count(0);
    insert(&mut bench, client, 100);
    assert!((48..=52).contains(&(bench.count(0) - before)), "{}", bench.count(0) - before);
}

#[test]
fn a_server_that_leaves_ends_its_transactions_first() {
    let mut bench = two_servers();
    let (busy, free) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.query(busy, "SET transaction_open");
    assert!(bench.is_answered(busy));
    insert(&mut bench, free, 2);
    let (stays, leaves) = (bench.open(0), bench.open(1));
    assert_eq!((stays, leaves), (2, 1));
    // The transaction is on the first server, whose idle connections go at once.
    bench.publish(changed(&bench, |at, server| server.is_leaving = at == 0), support::hostgroup([1]));
    insert(&mut bench, free, 10);
    assert_eq!((bench.open(0), bench.open(1)), (1, 1));
    bench.query(busy, "INSERT INTO t VALUES (2)");
    assert!(bench.is_answered(busy), "it may go on");
    bench.pass_ms(10);
    assert_eq!(bench.open(0), 0, "and with its end the connection");
    bench.publish(changed(&bench, |at, server| server.is_leaving = at == 1), support::hostgroup([0]));
    assert_eq!(bench.open(1), 0, "idle ones go at once");
}

#[test]
fn who_still_has_a_server_that_leaves_is_closed_when_the_grace_is_over() {
    let mut bench = two_servers();
    let clients = [0; 3].map(|core| bench.client(core, "app"));
    let [idle, busy, next] = clients;
    for client in clients {
        bench.query(client, "SET transaction_open");
        assert!(bench.is_answered(client));
    }
    let leave_by = bench.now + 5_300_000_000;
    let leaving = |server: &mut Server| (server.is_leaving, server.leave_by) = (true, Some(leave_by));
    bench.publish(changed(&bench, |_, server| leaving(server)), support::hostgroup([]));
    bench.pass_ms(5_200);
    bench.holds = true;
    bench.query(busy, "INSERT INTO t VALUES (1)");
    bench.pass_ms(200);
    // Between two looks: whoever comes with a statement is told at once.
    assert_eq!(bench.error(idle), None);
    bench.query(next, "INSERT INTO t VALUES (2)");
    let (code, text) = bench.error(next).unwrap();
    assert_eq!((code, text.ends_with("this session lost there: transaction")), (1053, true), "{text}");
    bench.pass_ms(1_000);
    let (code, text) = bench.error(idle).unwrap();
    assert_eq!(code, 1053);
    assert!(text.contains("is drained, and drain_grace_ms is over"), "{text}");
    assert_eq!(bench.reply(busy), None, "what runs is not cut");
    bench.release_one();
    assert!(bench.is_answered(busy));
}

/// The only server that has a statement sends something.
fn answer(bench: &mut Bench, bytes: &[u8]) {
    let conn = bench.conns.iter().find(|conn| conn.held).unwrap();
    let (core, id) = (conn.core, conn.id);
    bench.cores[core].data(id, &mut bytes.to_vec(), bench.now);
    bench.run();
}

#[test]
fn reads_do_not_outstay_the_grace_of_a_server_that_leaves() {
    // A count, a definition and a row.
    let begun = b"\x01\0\0\x01\x01\x03\0\0\x02def\x04\0\0\x03\x03row";
    let mut hostgroup = support::hostgroup([0, 1]);
    hostgroup.retry_buffer_bytes = 0;
    let mut bench = Bench::new(1, &[10, 10], hostgroup, MysqlVariables::default());
    bench.holds = true;
    let (reads, waits) = (bench.client(0, "app"), bench.client(0, "app"));
    let leave_by = bench.now + 1_000_000_000;
    let read = "SELECT a FROM t";
    bench.query(reads, read);
    let there = bench.log[0].0;
    answer(&mut bench, begun);
    let leaving = |at: usize, server: &mut Server| {
        (server.is_leaving, server.leave_by) = (at == there, Some(leave_by));
    };
    // The second begins there, too: nobody else has a place in the hostgroup.
    bench.publish(bench.servers.clone(), support::hostgroup([there]));
    bench.query(waits, read);
    assert_eq!(bench.count(there), 2);
    bench.publish(changed(&bench, leaving), support::hostgroup([1 - there]));
    bench.pass_ms(900);
    assert_eq!((bench.clients[reads].got.as_slice(), bench.log.len()), (&begun[..], 2));
    bench.pass_ms(1_200);
    // What its client has seen nothing of is run again by the other one.
    assert_eq!(bench.count(1 - there), 1, "{:?}", bench.log);
    assert_eq!(bench.reply(waits), None);
    let at = bench.conns.iter().position(|conn| conn.held && conn.node != there).unwrap();
    bench.conns[at].held = false;
    let (core, id) = (bench.conns[at].core, bench.conns[at].id);
    bench.cores[core].data(id, &mut support::plain_ok(1), bench.now);
    bench.run();
    assert!(bench.is_answered(waits));
    // What it has a part of ends with an error in place of the rest.
    for _ in 0..3 {
        bench.reply(reads).unwrap();
    }
    let (code, text) = bench.error(reads).unwrap();
    assert_eq!(code, 1053);
    assert!(text.ends_with("drain_grace_ms is over; the rest of this result is missing"), "{text}");
}

#[test]
fn a_server_without_connections_is_passed_over() {
    let mut bench = Bench::new(1, &[0, 10], support::hostgroup([0, 1]), MysqlVariables::default());
    let client = bench.client(0, "app");
    insert(&mut bench, client, 10);
    assert_eq!((bench.count(0), bench.count(1)), (0, 10));

    let variables = MysqlVariables {
        connect_timeout_server_max: Duration::from_millis(100),
        ..MysqlVariables::default()
    };
    let mut bench = Bench::new(1, &[0], support::hostgroup([0]), variables);
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(120);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 9001 && message.ends_with("max_connections is 0"), "{message}");
}

#[test]
fn a_full_server_is_passed_over() {
    let mut bench = Bench::new(1, &[1, 10], support::hostgroup([0, 1]), MysqlVariables::default());
    bench.holds = true;
    let clients: Vec<usize> = (0..10).map(|_| bench.client(0, "app")).collect();
    for client in &clients {
        bench.query(*client, "INSERT INTO t VALUES (1)");
        bench.pass_ms(1);
    }
    bench.pass_ms(30);
    // The first has one connection. Its second statement waits in line and finds that out.
    assert!((8..=9).contains(&bench.log.len()), "{:?}", bench.log.len());
    assert_eq!(bench.count(0), 1);
}

#[test]
fn no_more_connections_in_a_second_than_the_hostgroup_may_have() {
    let mut hostgroup = support::hostgroup([0, 1]);
    hostgroup.throttle = Arc::new(Throttle::new(2));
    let mut bench = Bench::new(1, &[10, 10], hostgroup, MysqlVariables::default());
    bench.holds = true;
    let clients: Vec<usize> = (0..6).map(|_| bench.client(0, "app")).collect();
    for client in &clients {
        bench.query(*client, "INSERT INTO t VALUES (1)");
    }
    for seconds in 1..=3 {
        assert_eq!(bench.logins, 2 * seconds, "in second {seconds}");
        bench.pass_ms(1_000);
    }
    assert_eq!(bench.log.len(), 6);
}

#[test]
fn statements_go_where_the_fewest_are_under_way() {
    let mut hostgroup = support::hostgroup([0, 1]);
    hostgroup.balancing = Balancing::LeastInFlight;
    let mut bench = Bench::new(1, &[10, 10], hostgroup, MysqlVariables::default());
    let (slow, quick) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.holds = true;
    bench.query(slow, "INSERT INTO t VALUES (1)");
    bench.holds = false;
    insert(&mut bench, quick, 20);
    assert_eq!((bench.count(0), bench.count(1)), (1, 20));
    bench.release_one();
    assert!(bench.is_answered(slow));
    insert(&mut bench, quick, 20);
    // Nothing stays counted, and what the first was owed meanwhile is limited.
    assert!((11..=14).contains(&bench.count(0)), "{}", bench.count(0));
}

#[test]
fn statements_go_to_those_that_answer_sooner() {
    let mut hostgroup = support::hostgroup([0, 1]);
    hostgroup.balancing = Balancing::Latency;
    let mut bench = Bench::new(1, &[10, 10], hostgroup, MysqlVariables::default());
    let client = bench.client(0, "app");
    for _ in 0..400 {
        bench.holds = true;
        bench.query(client, "INSERT INTO t VALUES (1)");
        let is_first = bench.log.last().unwrap().0 == 0;
        bench.pass_ms(if is_first { 20 } else { 2 });
        bench.holds = false;
        bench.release_one();
        assert!(bench.is_answered(client));
    }
    assert!((1..40).contains(&bench.count(0)), "{}", bench.count(0));
}

#[test]
fn old_connections_are_closed_when_they_are_free() {
    let variables =
        MysqlVariables { connection_max_age_ms: Duration::from_secs(10), ..MysqlVariables::default() };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let (busy, idle) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.query(busy, "SET transaction_open");
    assert!(bench.is_answered(busy));
    insert(&mut bench, idle, 1);
    assert_eq!(bench.open(0), 2);
    bench.pass_ms(7_000);
    assert_eq!(bench.open(0), 2, "three quarters of the time at least");
    bench.pass_ms(5_000);
    assert_eq!(bench.open(0), 1, "never in a transaction");
    bench.query(busy, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(busy));
    assert_eq!(bench.open(0), 0);
    insert(&mut bench, idle, 3);
    assert_eq!((bench.open(0), bench.logins), (1, 3));
}

#[test]
fn a_connection_that_does_not_answer_a_ping_is_closed() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    let client = bench.client(0, "app");
    insert(&mut bench, client, 1);
    bench.pass_ms(30_000);
    assert_eq!((bench.open(0), bench.logins), (1, 1), "as long as it answers");
    bench.ignores_pings = true;
    bench.pass_ms(12_500);
    assert_eq!(bench.open(0), 0);
}

#[test]
fn connections_are_opened_in_advance() {
    let server = support::server(3306, 40);
    let mut bench = Bench::with_servers(2, vec![server], support::hostgroup([0]), MysqlVariables::default());
    let warm = Care { free_connections_pct: 50, is_warmed: true, ..Care::default() };
    bench.publish(changed(&bench, |_, server| server.care = warm.clone()), support::hostgroup([0]));
    bench.pass_ms(2_000);
    assert_eq!(bench.open(0), 0, "nobody knows as whom");
    let client = bench.client(0, "app");
    insert(&mut bench, client, 1);
    bench.pass_ms(1_100);
    assert_eq!(bench.open(0), 10, "one of two workers has half of them");
    bench.pass_ms(30_000);
    assert_eq!(bench.open(0), 10, "and keeps them");
}

fn with_init_connect(statements: &[&str]) -> Bench {
    let server = support::server(3306, 10);
    let mut bench = Bench::with_servers(1, vec![server], support::hostgroup([0]), MysqlVariables::default());
    let init_connect: Vec<String> = statements.iter().map(|text| (*text).to_owned()).collect();
    let care = Care { init_connect, free_connections_pct: 10, is_warmed: false };
    bench.publish(changed(&bench, |_, server| server.care = care.clone()), support::hostgroup([0]));
    bench
}

/// What Weir has asked of its own that begins like this.
fn own(bench: &Bench, start: &str) -> Vec<String> {
    bench.own.iter().map(|(_, text)| text.clone()).filter(|text| text.starts_with(start)).collect()
}

#[test]
fn init_connect_runs_on_each_new_connection_and_after_each_reset() {
    let mut bench = with_init_connect(&["SET wait_timeout=60", "SET @a=1"]);
    let client = bench.client(0, "app");
    insert(&mut bench, client, 5);
    assert_eq!((own(&bench, "SET wait_timeout").len(), own(&bench, "SET @a").len()), (1, 1));
    // A session that goes with an open transaction leaves its connection to be reset.
    bench.query(client, "SET transaction_open");
    let id = bench.clients[client].id;
    bench.cores[0].closed(id, bench.now);
    bench.run();
    assert_eq!((own(&bench, "SET wait_timeout").len(), bench.logins), (2, 1));
}

#[test]
fn what_init_connect_sets_is_the_default_of_all_sessions() {
    let mut bench = with_init_connect(&["SET wait_timeout=60"]);
    let (one, two) = (bench.client(0, "app"), bench.client(0, "app"));
    insert(&mut bench, two, 1);
    bench.query(one, "SET wait_timeout=5");
    assert!(bench.is_answered(one));
    bench.own.clear();
    insert(&mut bench, two, 1);
    assert!(own(&bench, "SET").iter().any(|text| text.contains("wait_timeout=60")), "{:?}", bench.own);
    insert(&mut bench, one, 1);
    assert!(own(&bench, "SET").iter().any(|text| text.contains("wait_timeout=5")), "{:?}", bench.own);
}

#[test]
fn a_connection_on_which_init_connect_fails_is_not_used() {
    let mut bench = with_init_connect(&["SET @a=1", "SET nonsense=1"]);
    bench.refused = "nonsense";
    let client = bench.client(0, "app");
    bench.query(client, "INSERT INTO t VALUES (1)");
    bench.pass_ms(11_000);
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 9001 && message.contains("init_connect: error 1193"), "{message}");
    assert_eq!((bench.open(0), bench.log.len()), (0, 0));
}

#[test]
fn transactions_that_take_too_long_are_ended() {
    let variables = MysqlVariables {
        max_transaction_time: Duration::from_secs(20),
        max_transaction_idle_time: Duration::from_secs(5),
        ..MysqlVariables::default()
    };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let (idle, busy, free) = (bench.client(0, "app"), bench.client(0, "app"), bench.client(0, "app"));
    for client in [idle, busy] {
        bench.query(client, "SET transaction_open");
        assert!(bench.is_answered(client));
    }
    let mut seconds = 0;
    let sessions = |bench: &Bench| bench.cores[0].sessions();
    while sessions(&bench) > 1 && seconds < 60 {
        bench.pass_ms(1_000);
        seconds += 1;
        if seconds < 19 {
            bench.query(busy, "SET transaction_open");
        }
        insert(&mut bench, free, 1);
        match seconds {
            0..=5 => assert_eq!(sessions(&bench), 3, "after {seconds} s"),
            7..=20 => assert_eq!(sessions(&bench), 2, "after {seconds} s"),
            _ => {}
        }
    }
    assert!((20..=23).contains(&seconds), "the busy one ended after {seconds} s");
}

/// What ran when the writer was taken away is not said to have had no effect, unless that is certain.
#[test]
fn who_is_cut_from_a_former_writer_is_told_the_truth() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    let [writes, commits, idles, reads] = [0; 4].map(|_| bench.client(0, "app"));
    for client in [commits, idles] {
        bench.query(client, "BEGIN");
        assert!(bench.reply(client).is_some());
    }
    bench.holds = true;
    bench.query(writes, "INSERT INTO t VALUES (1)");
    bench.query(commits, "COMMIT");
    bench.query(reads, "SELECT a FROM t");
    let endpoint = bench.servers[0].endpoint.as_str().into();
    bench.cores[0].message(Message::CutWriters { endpoint }, bench.now);
    bench.run();
    let unknown = |told: Option<(u16, String)>| {
        told.map(|(code, message)| (code, message.ends_with("it may or may not have taken effect")))
    };
    assert_eq!(
        [writes, commits, idles].map(|client| unknown(bench.error(client))),
        [Some((1053, true)), Some((1053, true)), Some((1053, false))]
    );
    assert_eq!(bench.error(reads), None, "it may be a reader now");
}

/// Behind a broken path a server may still do what it was asked.
#[test]
fn who_reads_at_a_server_that_has_fallen_silent_reads_elsewhere() {
    let mut bench = two_servers();
    let clients = [0; 4].map(|_| bench.client(0, "app"));
    let [reads, writes, holds, waits] = clients;
    bench.publish(changed(&bench, |_, _| {}), support::hostgroup([0]));
    bench.query(holds, "BEGIN");
    assert!(bench.reply(holds).is_some());
    bench.holds = true;
    bench.query(writes, "INSERT INTO t VALUES (1)");
    bench.query(reads, "SELECT a FROM t");
    bench.query(holds, "SELECT b FROM t");
    bench.query(waits, "SELECT SLEEP(1), GET_LOCK('l', 1)");
    assert_eq!(bench.count(0), 5);
    bench.holds = false;
    bench.publish(changed(&bench, |at, server| server.is_silent = at == 0), support::hostgroup([1]));
    bench.pass_ms(100);
    assert!(bench.is_answered(reads));
    let elsewhere: Vec<&str> =
        bench.log.iter().filter(|(at, _)| *at == 1).map(|(_, text)| text.as_str()).collect();
    assert_eq!(elsewhere, ["SELECT a FROM t"]);
    for client in [writes, holds, waits] {
        assert_eq!(bench.reply(client), None, "it is waited for");
    }
}

/// Its other connections have broken too, and that is heard of one after the other.
#[test]
fn a_begin_that_was_lost_is_not_sent_on_the_next_dying_connection() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    let clients = [0; 3].map(|_| bench.client(0, "app"));
    for client in clients {
        bench.query(client, "SET transaction_open");
        assert!(bench.is_answered(client));
    }
    for client in clients {
        bench.query(client, "COMMIT");
        assert!(bench.is_answered(client));
    }
    bench.hangs_up = true;
    bench.query(clients[0], "BEGIN");
    bench.pass_ms(5);
    assert_eq!(bench.log.iter().filter(|(_, text)| text == "BEGIN").count(), 1);
    bench.hangs_up = false;
    bench.pass_ms(40);
    assert!(bench.reply(clients[0]).is_some_and(|reply| reply[0] == 0), "nothing of it was lost");
}

/// The host behind a server's name is another one: what is idle at the former is closed, what runs there comes to its
/// end, and counts for neither the limit nor the positions of the one that is there now.
#[test]
fn a_server_at_another_address_is_another_server() {
    let mut bench = Bench::new(1, &[2, 10, 10], support::hostgroup([0]), MysqlVariables::default());
    let (busy, free) = (bench.client(0, "app"), bench.client(0, "app"));
    bench.query(busy, "SET transaction_open");
    assert!(bench.is_answered(busy));
    insert(&mut bench, free, 1);
    let before = bench.servers[0].clone();
    let open = |server: &Arc<Server>| server.shared.connections_open.load(Ordering::Relaxed);
    assert_eq!(open(&before), 2);
    let moved = |bench: &Bench, to: usize| {
        let (addr, shared) = (bench.servers[to].addr, bench.servers[to].shared.clone());
        changed(bench, move |at, server| {
            if at == 0 {
                (server.addr, server.shared) = (addr, shared.clone());
            }
        })
    };
    bench.publish(moved(&bench, 1), support::hostgroup([0]));
    assert_eq!(open(&before), 1, "the idle one is closed at once");
    insert(&mut bench, free, 1);
    assert_eq!((bench.count(0), bench.count(1)), (1, 1), "{:?}", bench.log);
    bench.query(busy, "INSERT INTO t VALUES (2)");
    assert!(bench.is_answered(busy), "it may go on");
    assert_eq!(bench.log.last().unwrap().0, 0, "where its transaction is");
    bench.pass_ms(10);
    assert_eq!((open(&before), open(&bench.servers[0])), (0, 1), "and with its end the connection");
    // A right to a connection that another worker gives up comes too late.
    before.shared.connections_open.store(1, Ordering::Relaxed);
    bench.cores[0].message(Message::Credit { server: before.shared.clone() }, bench.now);
    assert_eq!((open(&before), open(&bench.servers[0])), (0, 1));
    // And to a third one: nothing is left of the first, whose place it takes.
    bench.publish(moved(&bench, 2), support::hostgroup([0]));
    insert(&mut bench, free, 1);
    assert_eq!((bench.count(2), open(&bench.servers[0])), (1, 1));
}
