//! Tests how sessions come to connections: weights, queues, users, workers, failures.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::capability::Capabilities;

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

/// Their connections are not interchangeable, and become ready in another order than they were asked for.
#[test]
fn clients_of_two_kinds_who_wait_together_are_all_served() {
    let mut bench = one_server(100);
    let kinds = [support::MODERN, support::MODERN ^ Capabilities::FOUND_ROWS];
    let clients: Vec<usize> =
        (0..24).map(|at| bench.client_with(0, "app", kinds[usize::from(at % 5 == 0)])).collect();
    bench.greets_late = true;
    bench.holds = true;
    for client in &clients {
        bench.query(*client, "INSERT INTO t VALUES (1)");
    }
    bench.pass_ms(20);
    let mut greeted = 0;
    while bench.greet_last() {
        greeted += 1;
        assert!(greeted <= clients.len(), "one for each is enough");
        bench.pass_ms(20);
    }
    assert_eq!(bench.log.len(), clients.len());
    assert_eq!((bench.open(0), bench.logins), (24, 24));
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
    let variables = MysqlVariables { query_retries_on_failure: 3, ..MysqlVariables::default() };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let client = bench.client(0, "app");
    bench.hangs_up = true;
    bench.query(client, "SELECT 1 FROM t");
    bench.pass_ms(2_000);
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 1053, "{message}");
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
    assert_eq!((code, bench.log.len()), (1053, 1), "{message}");
    assert!(message.contains("may or may not have taken effect"), "{message}");
    assert_eq!(bench.open(0), 0);
}

#[test]
fn connections_beyond_free_connections_pct_are_closed_when_they_have_rested() {
    let mut bench = Bench::new(1, &[20], support::hostgroup([0]), MysqlVariables::default());
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
