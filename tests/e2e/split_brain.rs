//! Somebody bootstraps a node that has lost its Galera cluster, while that goes on: two components of one history call
//! themselves Primary. The node gets nothing, and is told apart by its reason.

use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{Galera, Node, Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::failover_basic::{Load, READ_NAME, make_table, serves_reads_on, writer_name};
use crate::switchover::reasons;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("split_brain::a_bootstrapped_reader_gets_nothing", |env| bootstrapped(env, false)),
        Case::serial("split_brain::a_bootstrapped_former_writer_gets_nothing", |env| bootstrapped(env, true)),
        Case::serial("split_brain::what_was_out_takes_over_only_if_told", takes_over_if_told),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);
const STATEMENTS: usize = 100;
const NO_CONNECTION: u16 = 9001;

fn bootstrapped(env: &Env, is_writer: bool) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let weir = env.weir(|config| {
        config.variable("threads", 2).variable("connect_timeout_server_max", 20_000);
    })?;
    make_table(env, &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let writer = writer_name(&mut session)?;
    serves_reads_on(&mut session, 2)?;
    let apart = cluster.nodes().iter().find(|node| (node.name() == writer) == is_writer);
    let apart = apart.ok_or("no such node")?;
    let load = Load::start(weir.addr(), &schema);
    let split = split(env, &weir, apart, &schema);
    let done = load.finish();
    rejoin(cluster, apart)?;
    split?;
    done?.check(env, &schema, apart.index())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    eventually("the node serves reads again", PATIENCE, || Ok(session.value(READ_NAME)? == apart.name()))
}

/// Its component must not meet the other one, or all nodes abort; one that is killed would come back with it.
fn rejoin(cluster: &Galera, apart: &Node) -> CaseResult {
    apart.stop()?;
    Ok(cluster.start_node(apart.index())?)
}

/// Cuts the node off from the others, which go on with one of them as the writer.
fn cut_off(weir: &Weir, apart: &Node, others: &[&Node], schema: &str) -> CaseResult {
    thread::sleep(Duration::from_secs(1));
    provider_option(apart, "gmcast.isolate=1")?;
    eventually("the node is alone", PATIENCE, || Ok(apart.status("wsrep_cluster_status")? != "Primary"))?;
    eventually("the others go on", PATIENCE, || {
        let size = others[0].status("wsrep_cluster_size")?;
        Ok(size == "2" && others[0].status("wsrep_cluster_status")? == "Primary")
    })?;
    // Until the next probe it is like any other reader, and nobody is to be quicker than that.
    eventually("Weir knows that the node is alone", PATIENCE, || {
        let reasons = reasons(weir, &apart.addr().to_string())?;
        Ok(reasons.iter().any(|reason| reason.contains("non-Primary") || reason.contains("wsrep_connected")))
    })?;
    eventually("one of them writes", PATIENCE, || {
        Ok(writer_name(&mut Session::open(weir.addr(), schema)?)? != apart.name())
    })
}

fn others<'a>(cluster: &'a Galera, apart: &Node) -> Vec<&'a Node> {
    cluster.nodes().iter().filter(|node| node.index() != apart.index()).collect()
}

fn split(env: &Env, weir: &Weir, apart: &Node, schema: &str) -> CaseResult {
    let others = others(env.cluster()?, apart);
    cut_off(weir, apart, &others, schema)?;
    let writer = writer_name(&mut Session::open(weir.addr(), schema)?)?;

    provider_option(apart, "pc.bootstrap=1")?;
    // From the first moment on.
    let (mut session, begun) = (Session::open(weir.addr(), schema)?, Instant::now());
    while begun.elapsed() < Duration::from_secs(2) {
        ensure!(session.value(READ_NAME)? != apart.name(), "{} serves reads", apart.name());
    }
    eventually("the node is Primary, too", PATIENCE, || {
        Ok(apart.status("wsrep_cluster_status")? == "Primary" && apart.status("wsrep_ready")? == "ON")
    })?;
    let history = |node: &Node| node.status("wsrep_cluster_state_uuid");
    ensure!(history(apart)? == history(others[0])?, "it has a history of its own");
    eventually("the reason is shown", PATIENCE, || {
        let reasons = reasons(weir, &apart.addr().to_string())?;
        Ok(!reasons.is_empty() && reasons.iter().all(|reason| reason.starts_with("split brain: ")))
    })?;
    let rows = format!("SELECT COUNT(*) FROM {schema}.t");
    let before = apart.root_query(&rows)?;
    for _ in 0..STATEMENTS {
        ensure!(writer_name(&mut session)? == writer, "the writer has moved");
        ensure!(session.value(READ_NAME)? != apart.name(), "{} serves reads", apart.name());
    }
    thread::sleep(Duration::from_secs(2));
    ensure!(apart.root_query(&rows)? == before, "{} has been written to", apart.name());
    Ok(())
}

fn provider_option(node: &Node, option: &str) -> CaseResult {
    node.root_query(&format!("SET GLOBAL wsrep_provider_options = '{option}'"))?;
    Ok(())
}

fn takes_over_if_told(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let mut config = WeirConfig::for_cluster(cluster, env.free_address()?);
    config.variable("connect_timeout_server_max", 1_000);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let writer = writer_name(&mut session)?;
    serves_reads_on(&mut session, 2)?;
    let apart = cluster.nodes().iter().rfind(|node| node.name() != writer).ok_or("no reader")?;
    let told = left_alone(&weir, &mut config, apart, &others(cluster, apart), &schema);
    // Two that were paused take each other for dead until they have met again.
    for node in cluster.nodes().iter().filter(|node| node.is_paused()) {
        node.resume()?;
    }
    rejoin(cluster, apart)?;
    told
}

/// The node is Primary by somebody's word when the others, which are the cluster, hang.
fn left_alone(
    weir: &Weir,
    config: &mut WeirConfig,
    apart: &Node,
    others: &[&Node],
    schema: &str,
) -> CaseResult {
    cut_off(weir, apart, others, schema)?;
    provider_option(apart, "pc.bootstrap=1")?;
    eventually("the node is Primary, too", PATIENCE, || {
        Ok(apart.status("wsrep_cluster_status")? == "Primary" && apart.status("wsrep_ready")? == "ON")
    })?;
    eventually("the reason is shown", PATIENCE, || {
        let reasons = reasons(weir, &apart.addr().to_string())?;
        Ok(!reasons.is_empty() && reasons.iter().all(|reason| reason.starts_with("split brain: ")))
    })?;
    // A split is proven by what both sides say half a second after it began.
    thread::sleep(Duration::from_secs(2));
    others.iter().try_for_each(|node| node.pause())?;
    let mut session = Session::open(weir.addr(), schema)?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        // Until it is known that they hang, statements that have been sent there end with an error.
        for sql in ["SELECT @@wsrep_node_name FOR UPDATE", READ_NAME] {
            let answer = Session::open(weir.addr(), schema)?.value(sql);
            ensure!(answer.is_err(), "{sql}: answered by {answer:?}");
        }
    }
    let refused = session.refused("SELECT @@wsrep_node_name FOR UPDATE", NO_CONNECTION)?;
    ensure!(refused.contains(": split brain: "), "{refused}");

    for node in others {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        let address = node.addr().ip().to_string();
        for row in rows.into_iter().flat_map(|rows| rows.iter_mut()) {
            if row["hostname"].as_str() == Some(&address) {
                row.insert("status", "OFFLINE_HARD".into());
            }
        }
    }
    weir.reload(config)?;
    eventually("the others are given up", PATIENCE, || {
        Ok(Session::open(weir.addr(), schema)?.value("SELECT @@wsrep_node_name FOR UPDATE").ok()
            == Some(apart.name()))
    })
}
