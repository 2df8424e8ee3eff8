//! The cluster itself does what the other cases rely on.

use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::Account;
use weir_testkit::wire::{Login, RawClient};
use weir_tests::{Case, CaseResult, Env, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("galera::a_row_written_on_n1_is_seen_on_n2", a_row_written_on_n1_is_seen_on_n2),
        Case::parallel(
            "galera::accounts_have_their_rights_and_no_more",
            accounts_have_their_rights_and_no_more,
        ),
        Case::serial("galera::a_stopped_node_comes_back_with_what_it_missed", a_stopped_node_comes_back),
        Case::serial("galera::a_killed_node_comes_back_with_what_it_missed", a_killed_node_comes_back),
        Case::serial("galera::a_lost_quorum_is_restored_by_the_nodes_return", a_lost_quorum_is_restored),
    ]
}

fn a_row_written_on_n1_is_seen_on_n2(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let login = Login::new(Account::APP).schema(&schema);
    let mut writer = RawClient::login(cluster.node(1).addr(), &login)?;
    writer.query("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(20))")?.ok()?;
    let inserted = writer.query("INSERT INTO t VALUES (1, 'one'), (2, NULL)")?;
    ensure!(inserted.ok()?.affected_rows == 2, "affected rows: {:?}", inserted.ok()?);

    let mut reader = RawClient::login(cluster.node(2).addr(), &login)?;
    // A read that waits for what was committed before it.
    reader.query("SET SESSION wsrep_sync_wait = 1")?.ok()?;
    let rows = reader.query("SELECT id, word FROM t ORDER BY id")?.rows()?;
    ensure!(rows == [["1", "one"], ["2", "NULL"]], "n2 has {rows:?}");
    Ok(())
}

fn accounts_have_their_rights_and_no_more(env: &Env) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    let node = cluster.node(3).addr();
    for account in [Account::APP, Account::APP2] {
        RawClient::login(node, &Login::new(account).schema(&schema))?;
    }
    RawClient::login(node, &Login::new(Account::LIMITED).schema("limited"))?;
    for (account, schema) in [(Account::LIMITED, schema.as_str()), (Account::MONITOR, "sbtest")] {
        let refused = RawClient::connect(node)?.authenticate(&Login::new(account).schema(schema))?;
        let code = refused.err()?.code;
        ensure!(code == 1044, "{} in {schema}: {refused}", account.user);
    }
    let mut monitor = RawClient::login(node, &Login::new(Account::MONITOR))?;
    let rows = monitor.query("SHOW GLOBAL STATUS LIKE 'wsrep_local_state_comment'")?.rows()?;
    ensure!(rows == [["wsrep_local_state_comment", "Synced"]], "the monitor sees {rows:?}");
    Ok(())
}

fn a_stopped_node_comes_back(env: &Env) -> CaseResult {
    comes_back(env, 3, |env| Ok(env.cluster()?.node(3).stop()?))
}

fn a_killed_node_comes_back(env: &Env) -> CaseResult {
    comes_back(env, 1, |env| Ok(env.cluster()?.node(1).kill()?))
}

fn comes_back(env: &Env, index: usize, end: fn(&Env) -> CaseResult) -> CaseResult {
    let (cluster, schema) = (env.cluster()?, env.schema()?);
    end(env)?;
    ensure!(!cluster.node(index).is_running(), "n{index} still runs");
    cluster.wait_synced(Duration::from_secs(60))?;
    let survivor = cluster.node(2);
    survivor.root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    survivor.root_query(&format!("INSERT INTO {schema}.t VALUES (7)"))?;

    let started = Instant::now();
    cluster.start_node(index)?;
    let rows = cluster.node(index).root_query(&format!("SELECT id FROM {schema}.t"))?;
    ensure!(rows == [["7"]], "n{index} has {rows:?} {:?} after its start", started.elapsed());
    Ok(())
}

fn a_lost_quorum_is_restored(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    for index in [2, 3] {
        cluster.node(index).kill()?;
    }
    let (survivor, started) = (cluster.node(1), Instant::now());
    while survivor.status("wsrep_cluster_status")? == "Primary" {
        ensure!(started.elapsed() < Duration::from_secs(60), "n1 alone still believes in its quorum");
        thread::sleep(Duration::from_millis(50));
    }
    cluster.repair()?;
    let status = survivor.status("wsrep_cluster_status")?;
    ensure!(status == "Primary", "n1 is {status}");
    Ok(())
}
