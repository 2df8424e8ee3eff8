//! Servers of plain hostgroups that fail, leave, are full or hang, and what is done about their connections.

mod connections;

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::error::CON_COUNT_ERROR;
use weir_testkit::wire::Login;
use weir_testkit::{Account, FakeServer, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("servers::one_that_refuses_logins_is_shunned", logins_refused),
        Case::parallel("servers::a_monitor_that_cannot_log_in_is_told", blind_monitor),
        Case::parallel("servers::offline_soft_lets_transactions_end", offline_soft),
        Case::parallel("servers::offline_hard_cuts_at_once", offline_hard),
        Case::parallel("servers::more_online_than_there_may_be_serve_nobody", too_many_online),
        Case::parallel("servers::statements_go_where_fewer_are_under_way", least_in_flight),
        Case::parallel("servers::a_distant_server_gets_less", latency),
        Case::serial("servers::one_that_is_full_is_shunned_until_it_has_room", full),
        Case::serial("servers::one_that_hangs_is_shunned_and_its_connections_are_cut", hangs),
    ];
    cases.extend(connections::trials());
    cases
}

/// Which node answered. A sure read: it may run again elsewhere.
const WHERE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
const HOSTGROUP: i64 = 7;
const PATIENCE: Duration = Duration::from_secs(15);

/// These nodes as servers of a plain hostgroup, without any cluster.
fn config(env: &Env, nodes: &[usize]) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    for node in nodes {
        config.server(env.cluster()?.node(*node).addr(), HOSTGROUP, &[]);
    }
    config.user(Account::APP, HOSTGROUP, &[]);
    config.monitor(Account::MONITOR);
    config.variable("threads", 1);
    Ok(config)
}

/// Sets a column of the row of a node.
fn set(config: &mut WeirConfig, row: usize, column: &str, value: &str) {
    let rows = config.document_mut().get_mut("mysql_servers").and_then(|rows| rows.as_array_of_tables_mut());
    if let Some(row) = rows.and_then(|rows| rows.get_mut(row)) {
        row.insert(column, value.into());
    }
}

/// Statements one after the other; returns how many the node answered.
fn answered_by(session: &mut Session, node: &str, count: usize) -> Result<usize, Box<dyn Error>> {
    let mut found = 0;
    for _ in 0..count {
        found += usize::from(session.value(WHERE)? == node);
    }
    Ok(found)
}

fn reload(weir: &Weir, config: &WeirConfig) -> CaseResult {
    let before = weir.log().matches("configuration applied").count();
    weir.reload(config)?;
    eventually("the configuration is taken", PATIENCE, || {
        Ok(weir.log().matches("configuration applied").count() > before)
    })
}

/// A session in a transaction on this node.
fn in_transaction_on(weir: &Weir, node: &str) -> Result<Session, Box<dyn Error>> {
    let mut session = Session::open(weir.addr(), "test")?;
    for _ in 0..20 {
        session.run("BEGIN")?;
        if session.value(WHERE)? == node {
            return Ok(session);
        }
        session.run("COMMIT")?;
    }
    Err(format!("no transaction begins on {node}").into())
}

fn logins_refused(env: &Env) -> CaseResult {
    let full = FakeServer::refusing(CON_COUNT_ERROR, "Too many connections there")?;
    let mut config = config(env, &[1])?;
    config.server(full.addr(), HOSTGROUP, &[]);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let is_shunned = || weir.log().contains("(SHUNNED)");
    eventually("the server is shunned", PATIENCE, || {
        ensure!(answered_by(&mut session, "n1", 1)? == 1, "another server answered");
        Ok(is_shunned())
    })?;
    let log = weir.log();
    ensure!(
        log.contains("connections failed, the last: ") && log.contains("Too many connections there"),
        "{log}"
    );
    let app_logins = || {
        let packets = full.received();
        packets.iter().filter(|(_, packet)| packet.payload.windows(4).any(|part| part == b"app\0")).count()
    };
    let (before, started, monitor_before) = (app_logins(), Instant::now(), full.connections());
    while started.elapsed() < Duration::from_secs(3) {
        ensure!(answered_by(&mut session, "n1", 20)? == 20, "another server answered");
    }
    // One may have been under way.
    ensure!(app_logins() <= before + 1, "{} logins before, {} now", before, app_logins());
    ensure!(full.connections() > monitor_before, "the monitor does not look whether it takes connections");
    Ok(())
}

fn offline_soft(env: &Env) -> CaseResult {
    let account = env.account()?;
    let mut config = config(env, &[1, 2])?;
    config.user(account, HOSTGROUP, &[]);
    let weir = env.weir_with(&config)?;
    let mut leaving = in_transaction_on(&weir, "n2")?;
    let mut other = Session::with(weir.addr(), &Login::new(account).schema("test"))?;
    ensure!(answered_by(&mut other, "n2", 10)? == 5, "both serve");
    set(&mut config, 1, "status", "OFFLINE_SOFT");
    reload(&weir, &config)?;
    eventually("no new work goes there", PATIENCE, || Ok(answered_by(&mut other, "n2", 10)? == 0))?;
    let mut direct = Session::open(env.cluster()?.node(2).addr(), "test")?;
    let count = |direct: &mut Session, user: &str| -> Result<u64, Box<dyn Error>> {
        let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{user}'");
        Ok(direct.value(&sql)?.parse()?)
    };
    eventually("its idle connections close", PATIENCE, || Ok(count(&mut direct, account.user)? == 0))?;
    ensure!(leaving.value(WHERE)? == "n2", "the transaction goes on");
    leaving.run("COMMIT")?;
    ensure!(answered_by(&mut leaving, "n2", 4)? == 0, "and then elsewhere");
    // Back again, slowly.
    set(&mut config, 1, "status", "ONLINE");
    reload(&weir, &config)?;
    eventually("it serves again", PATIENCE, || Ok(answered_by(&mut other, "n2", 10)? > 0))
}

fn offline_hard(env: &Env) -> CaseResult {
    let mut config = config(env, &[1, 2])?;
    let weir = env.weir_with(&config)?;
    let mut cut = in_transaction_on(&weir, "n2")?;
    let mut other = Session::open(weir.addr(), "test")?;
    set(&mut config, 1, "status", "OFFLINE_HARD");
    reload(&weir, &config)?;
    eventually("the transaction is cut", PATIENCE, || Ok(cut.query(WHERE).is_err()))?;
    ensure!(answered_by(&mut other, "n1", 10)? == 10, "others do not notice");
    Ok(())
}

fn too_many_online(env: &Env) -> CaseResult {
    let mut config = config(env, &[1, 2])?;
    let row = [("hostgroup_id", HOSTGROUP.into()), ("max_num_online_servers", 1.into())];
    config.push("mysql_hostgroup_attributes", &row);
    config.variable("connect_timeout_server_max", 300);
    let weir = env.weir_with(&config)?;
    let message = Session::open(weir.addr(), "test")?.refused(WHERE, 9001)?;
    ensure!(message.ends_with("2 servers are online, more than max_num_online_servers 1"), "{message}");
    Ok(())
}

fn least_in_flight(env: &Env) -> CaseResult {
    let mut config = config(env, &[1, 2])?;
    let row = [("hostgroup_id", HOSTGROUP.into()), ("balancing", "least_in_flight".into())];
    config.push("weir_hostgroups", &row);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    ensure!(answered_by(&mut session, "n1", 10)? == 5, "both are idle");
    let mut slow = Session::open(weir.addr(), "test")?;
    slow.send_query("SELECT @@wsrep_node_name, SLEEP(3)")?;
    thread::sleep(Duration::from_millis(300));
    let on_first = answered_by(&mut session, "n1", 20)?;
    let answer = slow.results()?;
    let busy = answer.rows()?[0][0].clone();
    let expected = if busy == "n1" { 0 } else { 20 };
    ensure!(on_first == expected, "{busy} was busy, and n1 answered {on_first} of 20");
    Ok(())
}

fn latency(env: &Env) -> CaseResult {
    let (near, far) = (env.cluster()?.node(1).addr(), env.cluster()?.node(2).addr());
    let between = env.free_address()?;
    let _slow = weir_tests::Forwarder::start_with_delay(between, far, Duration::from_millis(20))?;
    let mut config = config(env, &[])?;
    config.server(near, HOSTGROUP, &[]);
    config.server(between, HOSTGROUP, &[]);
    config.push("weir_hostgroups", &[("hostgroup_id", HOSTGROUP.into()), ("balancing", "latency".into())]);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    answered_by(&mut session, "n1", 10)?;
    let near = answered_by(&mut session, "n1", 200)?;
    ensure!(near >= 150, "the near one answered {near} of 200");
    // A limit on pings does the same, and leaves nothing.
    let mut config = config.clone();
    config.document_mut().remove("weir_hostgroups");
    config.variable("default_max_latency_ms", 10).variable("monitor_ping_interval", 100);
    reload(&weir, &config)?;
    weir.wait_log("a ping takes", PATIENCE)?;
    eventually("the far one is passed over", PATIENCE, || Ok(answered_by(&mut session, "n1", 20)? == 20))
}

fn full(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let before = &cluster.node(2).root_query("SELECT @@global.max_connections")?[0][0];
    let mut config = config(env, &[1, 2])?;
    config.variable("shun_recovery_time_sec", 2);
    let weir = env.weir_with(&config)?;
    // The monitor has its connection, and has ended the one by which it learns the variables. Then there is no room any more, and no session's connection is there yet.
    let connected = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'",
        Account::MONITOR.user
    );
    eventually("the monitor is there", PATIENCE, || Ok(cluster.node(2).root_query(&connected)? != [["0"]]))?;
    let learnt = format!("session variables have been read server={}", cluster.node(2).addr());
    eventually("the variables are known", PATIENCE, || Ok(weir.log().contains(&learnt)))?;
    cluster.node(2).root_query("SET GLOBAL max_connections = 10")?;
    let login = Login::new(Account::APP).schema("test");
    let mut crowd = Vec::new();
    while let Ok(one) = Session::with(cluster.node(2).addr(), &login) {
        ensure!(crowd.len() < 20, "max_connections does not hold");
        crowd.push(one);
    }
    let mut session = Session::open(weir.addr(), "test")?;
    let result = eventually("n2 is shunned", PATIENCE, || {
        ensure!(answered_by(&mut session, "n1", 10)? == 10, "n2 answered");
        Ok(weir.log().contains("(SHUNNED)"))
    })
    .and_then(|()| {
        thread::sleep(Duration::from_secs(3));
        ensure!(answered_by(&mut session, "n1", 50)? == 50, "back although there is no room");
        drop(crowd);
        eventually("n2 serves again", PATIENCE, || Ok(answered_by(&mut session, "n2", 10)? > 0))
    });
    cluster.node(2).root_query(&format!("SET GLOBAL max_connections = {before}"))?;
    result
}

fn hangs(env: &Env) -> CaseResult {
    let mut config = config(env, &[1, 3])?;
    config.variable("monitor_ping_interval", 200).variable("monitor_ping_timeout", 300);
    config.variable("monitor_ping_max_failures", 2).variable("connect_timeout_server", 500);
    let weir = env.weir_with(&config)?;
    let mut pinned = in_transaction_on(&weir, "n3")?;
    let mut reader = Session::open(weir.addr(), "test")?;
    ensure!(answered_by(&mut reader, "n3", 10)? == 5, "both serve");
    env.cluster()?.node(3).pause()?;
    // Reads that are caught there are run again elsewhere as soon as the connections are cut.
    ensure!(answered_by(&mut reader, "n1", 4)? == 4, "a server that hangs has answered");
    let answer = pinned.query("SELECT 1 FOR UPDATE");
    ensure!(answer.as_ref().map_or(true, |answer| answer.error() == Some(1053)), "{answer:?}");
    ensure!(weir.log().contains("probes in a row without an answer (SHUNNED)"), "{}", weir.log());
    env.cluster()?.node(3).resume()?;
    eventually("it serves again", PATIENCE, || Ok(answered_by(&mut reader, "n3", 10)? > 0))
}

/// Without a cluster it shows nowhere else.
fn blind_monitor(env: &Env) -> CaseResult {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(env.cluster()?.node(1).addr(), hostgroup::WRITER, &[]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.variable("monitor_username", "nobody").variable("monitor_password", "wrong");
    let weir = env.weir_with(&config)?;
    let told = "the monitor can't log in";
    weir.wait_log(told, Duration::from_secs(10))?;
    thread::sleep(Duration::from_secs(3));
    let log = weir.log();
    ensure!(log.matches(told).count() == 1, "{log}");
    Ok(())
}
