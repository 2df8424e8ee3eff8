//! The admin port's tables of statistics are checked against known traffic.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use weir_testkit::{Weir, hostgroup, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::{Admin, start};
use crate::stats::{EXECUTIONS, INSERTS, SELECTS, known_traffic};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("statistics::the_tables_know_what_has_run", what_has_run),
        Case::parallel("statistics::the_pool_is_counted_by_hostgroup", pool),
        Case::parallel("statistics::the_processlist_tells_why_a_connection_is_kept", processlist),
        Case::parallel("statistics::counters_that_begin_again_lose_nothing", begin_again),
        Case::parallel("statistics::digests_beyond_the_maximum_are_counted_and_told_of", beyond_maximum),
        Case::parallel("statistics::the_monitors_looks_can_be_read", monitor),
        Case::parallel("statistics::history_is_kept", history),
    ]
}

const PATIENCE: Duration = Duration::from_secs(30);

/// The number that a query gives.
fn number(admin: &Admin, sql: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let rows = admin.run(sql)?;
    let [row] = rows.as_slice() else { return Err(format!("{sql}: {rows:?}").into()) };
    Ok(row.parse().map_err(|error| format!("{sql}: {row}: {error}"))?)
}

fn what_has_run(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |config| {
        config.variable("threads", 2);
    })?;
    let schema = env.schema()?;
    let mut sessions = known_traffic(&weir, &schema)?;
    sessions[0].refused("SELECT * FROM no_such_table_here", 1146)?;

    let digest = |table: &str, columns: &str, text: &str| {
        let sql = format!("SELECT {columns} FROM {table} WHERE digest_text = '{text}' AND username = 'app'");
        admin.run(&sql)
    };
    let counts = digest("stats_mysql_query_digest", "SUM(count_star), MIN(schemaname)", SELECTS)?;
    ensure!(counts == [format!("20\t{schema}")], "{counts:?}");
    let counts = digest("stats_mysql_query_digest", "SUM(count_star), SUM(sum_rows_affected)", INSERTS)?;
    ensure!(counts == ["4\t4"], "{counts:?}");
    ensure!(digest("stats_mysql_query_digest", "SUM(count_star)", EXECUTIONS)? == ["8"], "executions");
    let order = "MIN(p50_time <= p95_time AND p95_time <= p99_time AND p99_time <= max_time)";
    ensure!(digest("stats_weir_query_digest", order, SELECTS)? == ["1"], "quantiles");

    let commands = "SELECT Total_cnt FROM stats_mysql_commands_counters WHERE Command";
    ensure!(number(&admin, &format!("{commands} = 'INSERT'"))? == 4, "INSERT");
    ensure!(number(&admin, &format!("{commands} = 'SELECT'"))? == 29, "SELECT");
    let users = admin.run("SELECT frontend_connections FROM stats_mysql_users WHERE username = 'app'")?;
    ensure!(users == ["4"], "{users:?}");
    let errors = admin.run(
        "SELECT errno, count_star, schemaname FROM stats_mysql_errors \
         WHERE last_error LIKE '%no_such_table_here%'",
    )?;
    ensure!(errors == [format!("1146\t1\t{schema}")], "{errors:?}");
    let prepared = admin.run(&format!(
        "SELECT SUM(ref_count_client), MAX(num_params) FROM stats_mysql_prepared_statements_info \
         WHERE query = '{EXECUTIONS}'",
    ))?;
    ensure!(prepared == ["4\t1"], "{prepared:?}");

    let global = |name: &str| {
        number(
            &admin,
            &format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = '{name}'"),
        )
    };
    ensure!(global("Client_Connections_connected")? == 4, "connected");
    // Whoever started this Weir has looked whether it is there.
    ensure!(global("Client_Connections_created")? >= 4, "created");
    ensure!(
        global("Com_frontend_stmt_prepare")? == 4 && global("Com_frontend_stmt_execute")? == 8,
        "prepared"
    );
    ensure!(global("Questions")? >= 34, "questions");
    for name in
        ["Queries_frontends_bytes_recv", "Queries_frontends_bytes_sent", "Queries_backends_bytes_sent"]
    {
        ensure!(global(name)? > 1000, "{name}: {}", global(name)?);
    }
    ensure!(global("Server_Connections_created")? > 0, "server connections");
    let memory = "SELECT Variable_Value FROM stats_memory_metrics WHERE Variable_Name =";
    ensure!(number(&admin, &format!("{memory} 'resident'"))? > 1 << 20, "memory");
    ensure!(number(&admin, &format!("{memory} 'query_digest_memory'"))? > 0, "memory of digests");
    Ok(())
}

fn pool(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for id in 0..7 {
        session.run(&format!("INSERT INTO t VALUES ({id})"))?;
    }
    env.wait_applied()?;
    let mut reader = Session::open(weir.addr(), &schema)?;
    for _ in 0..9 {
        reader.rows("SELECT COUNT(*) FROM t")?;
    }
    let sum = |column: &str, hostgroup: i64| {
        number(
            &admin,
            &format!("SELECT SUM({column}) FROM stats_mysql_connection_pool WHERE hostgroup = {hostgroup}"),
        )
    };
    // And some of Weir's own, such as the check of a login's schema.
    let (writes, reads) = (sum("Queries", hostgroup::WRITER)?, sum("Queries", hostgroup::READER)?);
    ensure!(writes >= 8 && reads >= 9, "writer {writes}, readers {reads}");
    ensure!(sum("ConnOK", hostgroup::WRITER)? >= 1 && sum("ConnERR", hostgroup::WRITER)? == 0, "connections");
    let open =
        sum("ConnUsed + ConnFree", hostgroup::WRITER)? + sum("ConnUsed + ConnFree", hostgroup::READER)?;
    let free = number(&admin, "SELECT COUNT(*) FROM stats_mysql_free_connections WHERE user = 'app'")?;
    ensure!(open >= 2 && free >= 2, "{open} open, {free} free");
    ensure!(sum("Bytes_data_sent", hostgroup::WRITER)? > 100, "bytes");
    eventually("every node's latency", PATIENCE, || {
        let seen = admin.run(
            "SELECT COUNT(DISTINCT srv_port || srv_host) FROM stats_mysql_connection_pool \
             WHERE status = 'ONLINE' AND Latency_us > 0",
        )?;
        Ok(seen == [env.cluster()?.nodes().len().to_string()])
    })?;
    let roles = admin.run(
        "SELECT COUNT(*) FROM runtime_mysql_servers r JOIN stats_mysql_connection_pool p \
         ON p.hostgroup = r.hostgroup_id AND p.srv_host = r.hostname AND p.srv_port = r.port \
         AND p.status = r.status",
    )?;
    ensure!(roles == admin.run("SELECT COUNT(*) FROM runtime_mysql_servers")?, "{roles:?}");
    Ok(())
}

fn processlist(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let id = session.rows("SELECT CONNECTION_ID()")?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let row = |columns: &str| -> Result<Vec<String>, Box<dyn std::error::Error>> {
        admin.run(&format!("SELECT {columns} FROM stats_mysql_processlist WHERE SessionID = {}", id[0][0]))
    };
    let idle = row("user, db, command, srv_host, info")?;
    ensure!(idle == [format!("app\t{schema}\tSleep\tNULL\t")], "{idle:?}");
    session.run("BEGIN")?;
    session.run("INSERT INTO t VALUES (1)")?;
    let pinned = row("hostgroup, extended_info")?;
    let [pinned] = pinned.as_slice() else { return Err(format!("{pinned:?}").into()) };
    let (hostgroup, info) = pinned.split_once('\t').ok_or("two columns")?;
    // The client shows backslashes and quotes as they are.
    let info: Value = serde_json::from_str(info)?;
    ensure!(hostgroup == hostgroup::WRITER.to_string(), "{pinned}");
    ensure!(info["pins"] == json!("transaction") && info["lease"]["thread_id"].is_u64(), "{info}");
    ensure!(info["transaction_ms"].is_u64(), "{info}");
    session.run("ROLLBACK")?;
    ensure!(row("srv_host")? == ["NULL"], "the pin has ended");
    let shown = admin.run("SHOW FULL PROCESSLIST")?;
    ensure!(shown.iter().any(|row| row.contains(&schema)), "{shown:?}");
    Ok(())
}

fn begin_again(env: &Env) -> CaseResult {
    const STATEMENTS: u64 = 3000;
    let (weir, admin) = start(env, |config| {
        config.variable("threads", 2);
    })?;
    let schema = env.schema()?;
    let counted = std::thread::scope(|scope| -> Result<BTreeMap<&str, u64>, Box<dyn std::error::Error>> {
        let addr = weir.addr();
        let work = |_| {
            let schema = &schema;
            scope.spawn(move || -> Result<(), String> {
                let mut session = Session::open(addr, schema).map_err(|error| error.to_string())?;
                for at in 0..STATEMENTS / 2 {
                    session
                        .rows(&format!("SELECT {at} AS counted_again"))
                        .map_err(|error| error.to_string())?;
                }
                Ok(())
            })
        };
        let workers: Vec<_> = (0..2).map(work).collect();
        let mut counted = BTreeMap::new();
        let mut is_last = false;
        while !is_last {
            is_last = workers.iter().all(|worker| worker.is_finished());
            for (table, column, filter) in [
                ("stats_mysql_query_digest_reset", "count_star", "digest_text = 'SELECT ? AS counted_again'"),
                ("stats_mysql_connection_pool_reset", "Queries", "1"),
            ] {
                let sql = format!("SELECT coalesce(SUM({column}), 0) FROM {table} WHERE {filter}");
                *counted.entry(table).or_default() += number(&admin, &sql)?;
            }
        }
        for worker in workers {
            worker.join().map_err(|_| "a worker has panicked")??;
        }
        Ok(counted)
    })?;
    ensure!(counted["stats_mysql_query_digest_reset"] == STATEMENTS, "{counted:?}");
    // Some of Weir's own are among them.
    ensure!(counted["stats_mysql_connection_pool_reset"] >= STATEMENTS, "{counted:?}");
    let rest = number(
        &admin,
        "SELECT COUNT(*) FROM stats_mysql_query_digest WHERE digest_text = 'SELECT ? AS counted_again'",
    )?;
    ensure!(rest == 0, "{rest} rows are left");
    Ok(())
}

fn beyond_maximum(env: &Env) -> CaseResult {
    const TOLD: &str = "the table of digests is full";
    let (weir, admin) = start(env, |config| {
        config.variable("threads", 2).variable("query_digests_max", 10);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    let dropped = || {
        number(
            &admin,
            "SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = 'Weir_digests_dropped'",
        )
    };
    let rows = |table: &str| number(&admin, &format!("SELECT COUNT(*) FROM {table}"));
    let counted = || number(&admin, "SELECT SUM(count_star) FROM stats_mysql_query_digest");
    for round in 1..=2 {
        for number in 0..40 {
            session.value(&format!("SELECT 1 AS digest_{number}"))?;
        }
        ensure!(rows("stats_mysql_query_digest")? == 10, "there are more digests than the maximum");
        // The session has asked for something of its own before, too.
        let all = counted()? + dropped()?;
        ensure!(all >= 40 * round, "{all} statements are known, in rows or without");
    }
    let (kept, left_out) = (counted()?, dropped()?);
    ensure!(left_out >= 60, "{left_out} without a row");
    session.value("SELECT 1 AS digest_0")?;
    session.value("SELECT 1 AS digest_39")?;
    ensure!(counted()? == kept + 1, "a digest that has a row goes on being counted");
    ensure!(dropped()? == left_out + 1, "one without a row is counted without");
    let told = || weir.log().matches(TOLD).count();
    ensure!(told() == 1, "{} lines in the log", told());
    let sum: Vec<Value> = weir_stats(&weir, "digests")?;
    ensure!(sum.len() == 10, "weir stats shows {}", sum.len());

    // With more room new ones get rows; what was left out stays counted.
    admin.run("SET mysql-query_digests_max=1000; LOAD MYSQL VARIABLES TO RUNTIME")?;
    for number in 0..40 {
        session.value(&format!("SELECT 1 AS digest_{number}"))?;
    }
    ensure!(rows("stats_mysql_query_digest")? >= 40, "there is room for all");
    ensure!(dropped()? == left_out + 1, "{} without a row", dropped()?);
    ensure!(rows("stats_mysql_query_digest_reset")? >= 40, "the reset shows all");
    ensure!(rows("stats_mysql_query_digest")? < 10, "they have begun again");
    Ok(())
}

/// The rows of a report of `weir stats`.
fn weir_stats(weir: &Weir, report: &str) -> Result<Vec<Value>, Box<dyn std::error::Error>> {
    let config = weir.config_path().display().to_string();
    let output = Command::new(weir_binary()?).args(["stats", report, "--json", "-c", &config]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

fn monitor(env: &Env) -> CaseResult {
    let (_weir, admin) = start(env, |_| {})?;
    let nodes = env.cluster()?.nodes().len().to_string();
    for (table, filter) in [
        ("mysql_server_connect_log", "connect_success_time_us > 0 AND connect_error IS NULL"),
        ("mysql_server_ping_log", "ping_success_time_us > 0 AND ping_error IS NULL"),
        ("mysql_server_galera_log", "primary_partition = 'YES' AND wsrep_local_state = 4 AND error IS NULL"),
    ] {
        eventually(table, PATIENCE, || {
            let sql =
                format!("SELECT COUNT(DISTINCT hostname || ':' || port) FROM monitor.{table} WHERE {filter}");
            Ok(admin.run(&sql)? == [nodes.clone()])
        })?;
    }
    let fresh = number(
        &admin,
        "SELECT COUNT(*) FROM monitor.mysql_server_galera_log \
         WHERE time_start_us > (strftime('%s', 'now') - 600) * 1000000",
    )?;
    ensure!(fresh > 0, "its times are of another clock");
    ensure!(admin.run("SELECT * FROM monitor.mysql_server_group_replication_log")?.is_empty(), "no group");
    Ok(())
}

fn history(env: &Env) -> CaseResult {
    let (weir, admin) = start(env, |_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.rows("SELECT 1 AS for_the_history")?;
    admin.run(
        "SET admin-stats_mysql_connections=1; SET admin-stats_system_memory=1; \
         SET admin-stats_mysql_query_digest_to_disk=1; LOAD ADMIN VARIABLES TO RUNTIME",
    )?;
    for (table, filter) in [
        ("mysql_connections", "Client_Connections_connected >= 1 AND Questions >= 1"),
        ("history_mysql_status_variables", "variable_value <> ''"),
        ("system_memory", "resident > 1000000"),
        ("history_mysql_query_digest", "digest_text = 'SELECT ? AS for_the_history' AND count_star = 1"),
    ] {
        eventually(table, PATIENCE, || {
            Ok(number(&admin, &format!("SELECT COUNT(*) FROM stats_history.{table} WHERE {filter}"))? > 0)
        })?;
    }
    let left = "SELECT COUNT(*) FROM stats_mysql_query_digest WHERE digest_text LIKE '%for_the_history'";
    ensure!(number(&admin, left)? == 0, "what is on disk is not counted any more");
    Ok(())
}
