//! Sessions that wait for a server of a cluster: for how long, and how many.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_proxy::snapshot::{Holding, Hostgroup};

/// The server of a cluster, or nobody, by these limits.
fn hostgroup(has_server: bool, holding: &Arc<Holding>) -> Hostgroup {
    let servers = if has_server { vec![0] } else { Vec::new() };
    let absent = if has_server { String::new() } else { "nobody writes".to_owned() };
    Hostgroup { holding: Some(holding.clone()), absent, ..support::hostgroup(servers) }
}

fn insert(bench: &mut Bench, clients: &[usize]) {
    clients.iter().for_each(|client| bench.query(*client, "INSERT INTO t VALUES (1)"));
}

#[test]
fn a_cluster_has_its_own_time_limit() {
    let holding = Arc::new(Holding::new(Some(Duration::from_millis(300)), 10));
    let mut bench = Bench::new(1, &[10], hostgroup(true, &holding), MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.publish(bench.servers.clone(), hostgroup(false, &holding));
    insert(&mut bench, &[client]);
    bench.pass_ms(298);
    assert_eq!(bench.error(client), None);
    bench.pass_ms(3);
    let (code, text) = bench.error(client).unwrap();
    assert_eq!(code, 9001);
    assert!(text.contains("hostgroup 0 after 300ms: nobody writes"), "{text}");
    // Longer than connect_timeout_server_max, too.
    let holding = Arc::new(Holding::new(Some(Duration::from_secs(15)), 10));
    bench.publish(bench.servers.clone(), hostgroup(false, &holding));
    insert(&mut bench, &[client]);
    bench.pass_ms(14_990);
    assert_eq!(bench.error(client), None);
    bench.publish(bench.servers.clone(), hostgroup(true, &holding));
    assert!(bench.is_answered(client));
}

#[test]
fn only_so_many_sessions_wait() {
    let holding = Arc::new(Holding::new(None, 2));
    let mut bench = Bench::new(2, &[10], hostgroup(true, &holding), MysqlVariables::default());
    let clients: Vec<usize> = (0..4).map(|at| bench.client(at % 2, "app")).collect();
    bench.publish(bench.servers.clone(), hostgroup(false, &holding));
    insert(&mut bench, &clients[..3]);
    let (code, text) = bench.error(clients[2]).unwrap();
    assert_eq!(code, 9001);
    assert_eq!(
        text,
        "hostgroup 0 has no server for this statement, and 2 sessions wait already (max_held): nobody writes"
    );
    bench.pass_ms(100);
    assert!(
        bench.error(clients[0]).is_none() && bench.error(clients[1]).is_none(),
        "looking again is no new wait"
    );
    // One that goes makes room.
    let gone = &bench.clients[clients[0]];
    let (core, id) = (gone.core, gone.id);
    bench.cores[core].closed(id, bench.now);
    bench.run();
    insert(&mut bench, &clients[2..]);
    assert_eq!(bench.error(clients[2]), None);
    assert_eq!(bench.error(clients[3]).map(|(code, _)| code), Some(9001));
    bench.publish(bench.servers.clone(), hostgroup(true, &holding));
    assert!(bench.is_answered(clients[1]) && bench.is_answered(clients[2]));
    // And so does one that has got its server.
    bench.publish(bench.servers.clone(), hostgroup(false, &holding));
    insert(&mut bench, &clients[1..3]);
    assert!(bench.error(clients[1]).is_none() && bench.error(clients[2]).is_none());
}

#[test]
fn writes_wait_while_the_epoch_is_not_confirmed() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    let [plain, inside, reader] = [(); 3].map(|()| bench.client(0, "app"));
    bench.query(inside, "BEGIN");
    assert!(bench.is_answered(inside));
    let shared = bench.servers[0].shared.clone();
    shared.write_until(bench.now);
    bench.query(plain, "INSERT INTO t VALUES (1)");
    bench.query(inside, "INSERT INTO t VALUES (2)");
    bench.pass_ms(100);
    assert!(bench.reply(plain).is_none() && bench.reply(inside).is_none());
    bench.query(reader, "SELECT 1 FROM t");
    assert!(bench.reply(reader).is_some(), "reads go on");
    shared.write_until(u64::MAX);
    bench.pass_ms(25);
    assert!(bench.is_answered(plain) && bench.is_answered(inside));
    // As long as under a hold, each from its own begin.
    shared.write_until(bench.now);
    bench.query(inside, "COMMIT");
    bench.pass_ms(5_000);
    bench.query(plain, "INSERT INTO t VALUES (3)");
    bench.pass_ms(4_995);
    assert!(bench.reply(inside).is_none());
    bench.pass_ms(10);
    let (code, text) = bench.error(inside).unwrap();
    assert!(code == 9001 && text.contains("not confirmed as the writer in time"), "{text}");
    assert!(bench.reply(plain).is_none());
    bench.query(inside, "ROLLBACK");
    assert!(bench.is_answered(inside), "which changes nothing");
    bench.pass_ms(5_000);
    let (code, text) = bench.error(plain).unwrap();
    assert!(code == 9001 && text.contains("not confirmed as the writer in time"), "{text}");
    // Who goes in the meantime leaves nothing behind.
    bench.query(inside, "BEGIN");
    bench.query(plain, "INSERT INTO t VALUES (4)");
    for client in [inside, plain] {
        let (core, id) = (bench.clients[client].core, bench.clients[client].id);
        bench.cores[core].closed(id, bench.now);
    }
    bench.run();
    shared.write_until(u64::MAX);
    bench.pass_ms(100);
}
