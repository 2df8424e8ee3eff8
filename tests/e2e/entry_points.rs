//! Listeners for users who separate reads themselves: one server for each session.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

const NODE: &str = "SELECT @@wsrep_node_name";
/// How long a change of roles may take to be seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("entry_points::a_primary_session_has_one_connection_to_the_writer", primary),
        Case::parallel("entry_points::replicas_sessions_have_one_reader_each", replicas),
        Case::parallel("entry_points::users_with_fast_forward_have_one_connection_each", fast_forward),
        Case::parallel("entry_points::users_with_schema_locked_stay_in_their_schema", schema_locked),
        Case::parallel("entry_points::sessions_leave_their_connections_as_new", left_as_new),
        Case::serial("entry_points::idle_sessions_go_on_when_their_server_stops", server_stops),
    ]
}

/// A Weir with a split, a primary and a replicas listener, and the addresses of the latter two.
fn doors(env: &Env) -> Result<(Weir, [std::net::SocketAddrV4; 2]), String> {
    let (primary, replicas) = (env.free_address()?, env.free_address()?);
    let weir = env.weir(|config: &mut WeirConfig| {
        for (address, mode) in [(primary, "primary"), (replicas, "replicas")] {
            config.push("weir_listeners", &[("address", address.to_string().into()), ("mode", mode.into())]);
        }
    })?;
    Ok((weir, [primary, replicas]))
}

/// The server's id of the connection that runs this session's statements.
fn connection(session: &mut Session) -> Result<String, Box<dyn std::error::Error>> {
    let mark = format!("own_{}", session.id());
    let list = "information_schema.PROCESSLIST";
    Ok(session.value(&format!("SELECT ID FROM {list} WHERE INFO LIKE '%{mark}%' AND COMMAND = 'Query'"))?)
}

fn primary(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let (weir, [primary, _]) = doors(env)?;
    let writer = Session::open(weir.addr(), &schema)?.value("SELECT @@wsrep_node_name FOR UPDATE")?;
    let mut session = Session::open(primary, &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let own = connection(&mut session)?;
    let mut others: Vec<Session> =
        (0..10).map(|_| Session::open(primary, &schema)).collect::<Result<_, _>>()?;
    for number in 0..20 {
        for other in &mut others {
            other.run("SELECT COUNT(*) FROM t")?;
        }
        session.run(&format!("INSERT INTO t VALUES ({number})"))?;
        ensure!(session.value(NODE)? == writer, "a read of a primary session left the writer");
        let count = session.value("SELECT COUNT(*) FROM t")?;
        ensure!(count == (number + 1).to_string(), "{count} rows after {} inserts", number + 1);
    }
    let now = connection(&mut session)?;
    ensure!(now == own, "the session's connection was {own} and is {now}");
    Ok(())
}

fn replicas(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let (weir, [_, replicas]) = doors(env)?;
    let mut split = Session::open(weir.addr(), &schema)?;
    let writer = split.value("SELECT @@wsrep_node_name FOR UPDATE")?;
    let mut seen = BTreeSet::new();
    eventually("both readers serve sessions", PATIENCE, || {
        let mut session = Session::open(replicas, &schema)?;
        let (node, own) = (session.value(NODE)?, connection(&mut session)?);
        for _ in 0..10 {
            let now = session.value(NODE)?;
            ensure!(now == node, "the session was at {node} and is at {now}");
        }
        let now = connection(&mut session)?;
        ensure!(now == own, "the session's connection was {own} and is {now}");
        // Before it was known who writes, it may have been a replica for a moment.
        ensure!(node != writer || seen.is_empty(), "a replicas session reads at the writer");
        if node != writer {
            seen.insert(node);
        }
        Ok(seen.len() == 2)
    })
}

fn fast_forward(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let config = config_with_app(env, "fast_forward")?;
    let weir = env.weir_with(&config)?;
    let mut session = eventually_open(&weir, &schema)?;
    let (node, own) = (session.value(NODE)?, connection(&mut session)?);
    let mut other = Session::open(weir.addr(), &schema)?;
    for _ in 0..10 {
        other.run("DO 0")?;
        ensure!(session.value(NODE)? == node, "a read left the session's server");
    }
    let now = connection(&mut session)?;
    ensure!(now == own, "the session's connection was {own} and is {now}");
    Ok(())
}

fn schema_locked(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let config = config_with_app(env, "schema_locked")?;
    let weir = env.weir_with(&config)?;
    let mut session = eventually_open(&weir, &schema)?;
    let message = session.refused("USE mysql", 1044)?;
    ensure!(message.contains("schema_locked"), "{message}");
    let login = Login::new(Account::APP).schema(&schema).with(Capabilities::MULTI_STATEMENTS);
    let mut several = Session::with(weir.addr(), &login)?;
    several.query("SELECT 1; USE mysql")?;
    let now = several.value("SELECT DATABASE()")?;
    ensure!(now == schema, "the session is in {now}");
    ensure!(session.value("SELECT DATABASE()")? == schema, "the other session has moved");
    Ok(())
}

/// The cluster with one of the users' switches on for app.
fn config_with_app(env: &Env, switch: &str) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.user_column(Account::APP.user, switch, 1);
    Ok(config)
}

fn eventually_open(weir: &Weir, schema: &str) -> Result<Session, Box<dyn std::error::Error>> {
    let mut session = Session::open(weir.addr(), schema)?;
    session.run("DO 0")?;
    Ok(session)
}

fn left_as_new(env: &Env) -> CaseResult {
    let (_weir, [primary, replicas]) = doors(env)?;
    for door in [primary, replicas] {
        for _ in 0..5 {
            let mut session = Session::open(door, "test")?;
            let seen =
                session.value("SELECT CONCAT_WS(',', @mine, @@autocommit, @@sql_mode = '', DATABASE())")?;
            ensure!(seen == "ON,0,test", "a new session sees {seen}");
            session.run("SET @mine = 7, autocommit = 0, sql_mode = ''")?;
            session.run("USE mysql")?;
            session.run("CREATE TEMPORARY TABLE test.own (id INT)")?;
        }
    }
    Ok(())
}

fn server_stops(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let (_weir, [primary, replicas]) = doors(env)?;
    let mut at_writer = Session::open(primary, &schema)?;
    let writer = at_writer.value(NODE)?;
    // At the start, before it is known who writes, the next writer may be a replica for a moment.
    let mut session = Session::open(replicas, &schema)?;
    eventually("a session at a reader", PATIENCE, || {
        session = Session::open(replicas, &schema)?;
        Ok(session.value(NODE)? != writer)
    })?;
    session.run("SET SESSION sort_buffer_size = 65536")?;
    let before = session.value(NODE)?;
    let mut busy = Session::open(replicas, &schema)?;
    eventually("a second session at the same server", PATIENCE, || {
        busy = Session::open(replicas, &schema)?;
        Ok(busy.value(NODE)? == before)
    })?;
    busy.run("BEGIN")?;

    let number = before.trim_start_matches('n').parse()?;
    env.cluster()?.node(number).stop()?;
    let after = session.value(NODE)?;
    ensure!(after != before, "the session is still at {before}");
    let kept = session.value("SELECT @@sort_buffer_size")?;
    ensure!(kept == "65536", "sort_buffer_size is {kept} at the next server");
    let told = busy.refused("SELECT 1", 1053)?;
    ensure!(told.contains("Lost connection") && told.contains("transaction"), "{told}");
    ensure!(busy.query("SELECT 1").is_err(), "a transaction that was lost goes on");
    ensure!(at_writer.value(NODE)? == writer, "the primary session has moved, too");
    Ok(())
}
