//! The settings of `weir_topology` work on a real cluster.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use toml_edit::Value;
use weir_testkit::{Weir, WeirConfig};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::switchover::{run, text, wait_writer, while_written, writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("policies::a_drained_writer_hands_over_without_an_error", drained_writer),
        Case::parallel("policies::the_role_goes_back_without_an_error", failback_drained),
        Case::parallel("policies::the_articles_set_up", articles),
        Case::parallel("policies::too_many_wait", held),
        Case::serial("policies::desync_and_large_transactions_leave_readers_and_order", storms),
        Case::serial("policies::a_reader_that_falls_behind_leaves_and_comes_back", behind),
        Case::serial("policies::a_read_only_writer_gives_way", read_only),
        Case::serial("policies::a_donor_leaves_readers", donor),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);
const HOSTGROUP: i64 = 100;
const READERS: i64 = 102;

/// A Weir for the cluster with a row of `weir_topology`.
fn weir(env: &Env, keys: &[(&str, Value)], change: impl FnOnce(&mut WeirConfig)) -> Result<Weir, String> {
    env.weir(|config| {
        let mut row: Vec<(&str, Value)> = vec![("writer_hostgroup", HOSTGROUP.into())];
        // The grace of a switchover: transactions are short here, but the machine may be slow.
        row.push(("switchover_pin_grace_ms", 8000.into()));
        row.extend_from_slice(keys);
        config.push("weir_topology", &row);
        change(config);
    })
}

fn drain(weir: &Weir, verb: &str, server: &str) -> Result<String, Box<dyn Error>> {
    let done = run(weir, &[verb, server])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    Ok(text(&done.stderr))
}

fn drained_writer(env: &Env) -> CaseResult {
    let weir = weir(env, &[], |_| {})?;
    wait_writer(&weir)?;
    while_written(&weir, &env.schema()?, || {
        for _ in 0..4 {
            let server = writer(&weir)?;
            let told = drain(&weir, "drain", &server)?;
            ensure!(told.contains("statements were held for"), "{told}");
            ensure!(writer(&weir)? != server, "{server} still writes");
            drain(&weir, "undrain", &server)?;
        }
        Ok(())
    })
}

fn failback_drained(env: &Env) -> CaseResult {
    let heavy = env.cluster()?.node(2).addr();
    let keys = [("failback", "drained".into()), ("min_uptime_s", 1.into())];
    let weir = weir(env, &keys, |config| {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        let ip = heavy.ip().to_string();
        for row in rows.into_iter().flat_map(|rows| rows.iter_mut()) {
            if row.get("hostname").and_then(|host| host.as_str()) == Some(ip.as_str()) {
                row.insert("weight", toml_edit::value(1000));
            }
        }
    })?;
    wait_writer(&weir)?;
    let heavy = heavy.to_string();
    ensure!(writer(&weir)? == heavy, "the weight does not decide");
    while_written(&weir, &env.schema()?, || {
        drain(&weir, "drain", &heavy)?;
        ensure!(writer(&weir)? != heavy, "{heavy} still writes");
        drain(&weir, "undrain", &heavy)?;
        eventually("the role goes back", PATIENCE, || Ok(writer(&weir)? == heavy))
    })?;
    ensure!(weir.log().contains("failback: moving the writer role"), "{}", weir.log());
    // All of this is in the topology log, also when Weir has ended.
    weir.sigterm()?;
    weir.wait_exit(PATIENCE)?;
    let json = text(&run(&weir, &["status", "--log", "1000", "--json"])?.stdout);
    let entries: Vec<serde_json::Value> = json.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let moves: Vec<&str> = entries
        .iter()
        .filter(|entry| entry["change"] == "switchover" && entry["cluster"] == HOSTGROUP)
        .filter_map(|entry| entry["reason"].as_str())
        .collect();
    ensure!(moves.len() == 2 && moves[1].contains(&format!("-> {heavy}")), "{json}");
    let is_writer =
        |entry: &&serde_json::Value| entry["change"] == "writer" && entry["server"] == heavy.as_str();
    ensure!(entries.iter().filter(is_writer).all(|entry| entry["view"].is_u64()), "{json}");
    ensure!(entries.iter().filter(is_writer).count() >= 2, "{json}");
    let words = text(&run(&weir, &["status", "--log"])?.stdout);
    ensure!(words.lines().count() <= 21 && words.starts_with("time "), "{words}");
    Ok(())
}

fn json_status(weir: &Weir) -> Result<serde_json::Value, Box<dyn Error>> {
    Ok(serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?)
}

/// The servers that work in a hostgroup, with their weights.
fn online(weir: &Weir, hostgroup: i64) -> Result<Vec<(String, u64)>, Box<dyn Error>> {
    let status = json_status(weir)?;
    let rows = status["servers"].as_array().cloned().unwrap_or_default();
    let is_there = |row: &&serde_json::Value| row["hostgroup"] == hostgroup && row["status"] == "ONLINE";
    let place = |row: &serde_json::Value| {
        (row["server"].as_str().unwrap_or_default().to_owned(), row["weight"].as_u64().unwrap_or(0))
    };
    Ok(rows.iter().filter(is_there).map(place).collect())
}

/// Hostgroups 100, 101, 102 and 9101, the preferred writer with weights 10000 and 100, the others as readers with 10000,
/// and nobody read_only.
fn articles(env: &Env) -> CaseResult {
    const NODE: &str = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = \
                        'WSREP_NODE_NAME'";
    let nodes: Vec<_> = env.cluster()?.nodes().iter().map(|node| node.addr()).collect();
    for reads in 0..=2 {
        let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
        config.document_mut().remove("mysql_servers");
        config.server(nodes[0], 100, &[("weight", 10_000.into()), ("max_connections", 2000.into())]);
        config.server(nodes[0], 101, &[("weight", 100.into()), ("max_connections", 2000.into())]);
        for node in &nodes[1..] {
            config.server(*node, 101, &[("weight", 10_000.into()), ("max_connections", 2000.into())]);
        }
        // A node that is looked at a moment after the others is no server that comes back.
        config.push("weir_topology", &[("writer_hostgroup", HOSTGROUP.into()), ("slow_start_ms", 0.into())]);
        let document = config.document_mut();
        let row =
            document["mysql_galera_hostgroups"].as_array_of_tables_mut().and_then(|rows| rows.get_mut(0));
        let row = row.ok_or("no cluster")?;
        row.insert("backup_writer_hostgroup", toml_edit::value(102));
        row.insert("reader_hostgroup", toml_edit::value(101));
        row.insert("offline_hostgroup", toml_edit::value(9101));
        row.insert("writer_is_also_reader", toml_edit::value(reads));
        row.insert("max_transactions_behind", toml_edit::value(10));
        let weir = env.weir_with(&config)?;
        wait_writer(&weir)?;
        ensure!(writer(&weir)? == nodes[0].to_string(), "the preferred writer does not write");
        let others: Vec<(String, u64)> = nodes[1..].iter().map(|node| (node.to_string(), 10_000)).collect();
        let mut wanted = others.clone();
        if reads == 1 {
            wanted.insert(0, (nodes[0].to_string(), 100));
        }
        eventually("all read who should", PATIENCE, || Ok(online(&weir, 101)? == wanted))?;
        // Both readers read; the writer once in 200 times, or never.
        let writer_max = if reads == 1 { 8 } else { 0 };
        let mut session = Session::open(weir.addr(), "test")?;
        // A server that is being connected to is not waited for while another one is there.
        let mut unheard = vec!["n2", "n3"];
        session.run("SET weir_consistency = eventual")?;
        eventually("both readers have connections", PATIENCE, || {
            let node = session.value(NODE)?;
            unheard.retain(|name| *name != node);
            Ok(unheard.is_empty())
        })?;
        let mut by_node = std::collections::BTreeMap::new();
        for _ in 0..100 {
            *by_node.entry(session.value(NODE)?).or_insert(0) += 1;
        }
        let of = |name: &str| by_node.get(name).copied().unwrap_or(0);
        ensure!(
            of("n1") <= writer_max && of("n2") > 25 && of("n3") > 25,
            "writer_is_also_reader {reads}: {by_node:?}"
        );
    }
    Ok(())
}

/// While nobody writes, only so many sessions wait.
fn held(env: &Env) -> CaseResult {
    let keys = [("max_held", 1.into()), ("hold_timeout_ms", 3000.into())];
    let weir = weir(env, &keys, |config| {
        // Nobody may write.
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        for row in rows.into_iter().flat_map(|rows| rows.iter_mut()) {
            row.insert("hostgroup_id", toml_edit::value(READERS));
        }
        for node in env.cluster().into_iter().flat_map(|cluster| cluster.nodes()) {
            config.server(node.addr(), HOSTGROUP, &[("status", "OFFLINE_SOFT".into())]);
        }
    })?;
    eventually("all nodes read", PATIENCE, || Ok(online(&weir, READERS)?.len() == 3))?;
    let write = |mut session: Session| session.run("DO 1").map_err(|error| error.to_string());
    let sessions = [Session::open(weir.addr(), "test")?, Session::open(weir.addr(), "test")?];
    let errors: Vec<String> = thread::scope(|scope| {
        let threads = sessions.map(|session| scope.spawn(move || write(session)));
        threads.into_iter().filter_map(|thread| thread.join().ok()?.err()).collect()
    });
    let count = |part: &str| errors.iter().filter(|error| error.contains(part)).count();
    ensure!(count("1 sessions wait already (max_held)") == 1, "{errors:?}");
    let waited_ms = |error: &String| -> Option<u64> {
        let (_, waited) =
            error.split_once("Max connect timeout reached while reaching hostgroup 100 after ")?;
        waited.split_once("ms")?.0.parse().ok()
    };
    let waited_ms: Vec<u64> = errors.iter().filter_map(waited_ms).collect();
    // Not connect_timeout_server_max, which is 10 s.
    ensure!(waited_ms.len() == 1 && (3000..10_000).contains(&waited_ms[0]), "{errors:?}");
    Ok(())
}

/// Does something while it is watched that there are always readers; returns how often that was looked at.
fn with_readers(weir: &Weir, act: impl FnOnce() -> CaseResult) -> Result<u32, Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| -> Result<u32, String> {
            let mut looks = 0;
            while !stop.load(Ordering::Relaxed) {
                let readers = online(weir, READERS).map_err(|error| error.to_string())?;
                if readers.is_empty() {
                    return Err(format!("nobody reads: {:?}", json_status(weir).ok()));
                }
                looks += 1;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(looks)
        });
        let done = act();
        stop.store(true, Ordering::Relaxed);
        let looks = watch.join().map_err(|_| "the watcher has panicked")??;
        done.map(|()| looks)
    })
}

/// Changes of roles since the start, as the topology log has them.
fn role_changes(weir: &Weir) -> Result<Vec<String>, Box<dyn Error>> {
    let json = text(&run(weir, &["status", "--log", "10000", "--json"])?.stdout);
    Ok(json.lines().filter(|line| line.contains(r#""server""#)).map(str::to_owned).collect())
}

fn storms(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let weir = weir(env, &[], |_| {})?;
    wait_writer(&weir)?;
    let old = writer(&weir)?;
    let node = cluster.nodes().iter().find(|node| node.addr().to_string() == old).ok_or("no such node")?;
    let reader = cluster.nodes().iter().find(|node| node.addr().to_string() != old).ok_or("no reader")?;
    let schema = env.schema()?;
    let watched = with_readers(&weir, || {
        while_written(&weir, &schema, || {
            // A desynced writer gives way and does not get the role back; as a reader it is back when it is synced.
            node.root_query("SET GLOBAL wsrep_desync = ON")?;
            eventually("another writes", PATIENCE, || Ok(writer(&weir)? != old))?;
            node.root_query("SET GLOBAL wsrep_desync = OFF")?;
            eventually("it reads", PATIENCE, || {
                Ok(online(&weir, READERS)?.iter().any(|(server, _)| *server == old))
            })?;
            // The log on disk is behind the roles.
            let is_back = |changes: &[String]| {
                let place = format!(r#""hostgroup":{READERS},"server":"{old}""#);
                let of_it = |line: &&String| line.contains(&place);
                changes.iter().rev().find(of_it).is_some_and(|last| last.contains(r#""change":"reader""#))
            };
            eventually("the log has that", PATIENCE, || Ok(is_back(&role_changes(&weir)?)))?;
            // A reader whose queue grows again and again: nothing moves.
            let before = role_changes(&weir)?;
            let threads = reader.root_query("SELECT @@wsrep_slave_threads")?[0][0].clone();
            reader.root_query("SET GLOBAL wsrep_slave_threads = 1")?;
            // Large transactions, behind which those of the others queue up.
            let now = writer(&weir)?;
            let place =
                cluster.nodes().iter().find(|node| node.addr().to_string() == now).ok_or("no writer")?;
            place.root_query(&format!("CREATE TABLE {schema}.large (id INT PRIMARY KEY, text CHAR(200))"))?;
            for from in 0..8 {
                place.root_query(&format!(
                    "USE {schema}; INSERT INTO large SELECT {from} * 20000 + seq, 'x' FROM seq_1_to_20000"
                ))?;
            }
            reader.root_query(&format!("SET GLOBAL wsrep_slave_threads = {threads}"))?;
            let after = role_changes(&weir)?;
            ensure!(after.len() == before.len(), "roles changed: {:?}", after.get(before.len()..));
            Ok(())
        })
    });
    let _ = node.root_query("SET GLOBAL wsrep_desync = OFF");
    ensure!(watched? > 20, "nobody has watched");
    Ok(())
}

/// What a node has received and not applied is more than `max_transactions_behind`: it does not read until it is half of
/// that.
fn behind(env: &Env) -> CaseResult {
    /// Fewer than those at which flow control would hold up the cluster.
    const WRITES: u32 = 14;
    let cluster = env.cluster()?;
    let weir = weir(env, &[], |config| {
        let groups = config.document_mut()["mysql_galera_hostgroups"].as_array_of_tables_mut();
        if let Some(row) = groups.and_then(|rows| rows.get_mut(0)) {
            row.insert("max_transactions_behind", toml_edit::value(5));
        }
    })?;
    wait_writer(&weir)?;
    let now = writer(&weir)?;
    let node = cluster.nodes().iter().find(|node| node.addr().to_string() != now).ok_or("no reader")?;
    let name = node.addr().to_string();
    let reads = || Ok::<_, Box<dyn Error>>(online(&weir, READERS)?.iter().any(|(server, _)| *server == name));
    eventually("it reads", PATIENCE, reads)?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    node.root_query(&format!("SET wsrep_sync_wait = 15; SELECT * FROM {schema}.t"))?;
    let watched = with_readers(&weir, || {
        // What others have written to the table can't be applied here.
        let mut beside = Session::open(node.addr(), &schema)?;
        beside.run("LOCK TABLES t READ")?;
        for id in 0..WRITES {
            session.run(&format!("INSERT INTO t VALUES ({id})"))?;
            let seen = session.value("SELECT COUNT(*) FROM t")?;
            ensure!(seen == (id + 1).to_string(), "{} rows written, {seen} seen", id + 1);
        }
        eventually("it does not read", PATIENCE, || Ok(!reads()?))?;
        eventually("the log tells why", PATIENCE, || {
            let is_told = |line: &String| line.contains(&name) && line.contains("recv_queue");
            Ok(role_changes(&weir)?.iter().any(is_told))
        })?;
        beside.run("UNLOCK TABLES")?;
        eventually("it reads again", PATIENCE, reads)
    });
    watched.map(drop)
}

fn read_only(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let weir = weir(env, &[], |_| {})?;
    wait_writer(&weir)?;
    let old = writer(&weir)?;
    let node = cluster.nodes().iter().find(|node| node.addr().to_string() == old).ok_or("no such node")?;
    let schema = env.schema()?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    let watched = with_readers(&weir, || {
        node.root_query("SET GLOBAL read_only = 1")?;
        for id in 0..50 {
            session.run(&format!("INSERT INTO t VALUES ({id})"))?;
        }
        eventually("another writes", PATIENCE, || Ok(writer(&weir)? != old))?;
        eventually("it reads", PATIENCE, || {
            Ok(online(&weir, READERS)?.iter().any(|(server, _)| *server == old))
        })?;
        ensure!(session.value("SELECT COUNT(*) FROM t")? == "50", "rows are missing");
        node.root_query("SET GLOBAL read_only = 0")?;
        thread::sleep(Duration::from_secs(1));
        ensure!(writer(&weir)? != old, "the role has gone back");
        Ok(())
    });
    let _ = node.root_query("SET GLOBAL read_only = 0");
    watched.map(drop)
}

/// A node that comes back takes what it missed from a donor: there are readers all the time, and nobody sees an error.
fn donor(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let weir = weir(env, &[("donor", "avoid".into())], |_| {})?;
    wait_writer(&weir)?;
    let schema = env.schema()?;
    let joiner =
        cluster.nodes().iter().rfind(|node| writer(&weir).is_ok_and(|now| now != node.addr().to_string()));
    let joiner = joiner.ok_or("no reader")?;
    let name = joiner.addr().to_string();
    let watched = with_readers(&weir, || {
        while_written(&weir, &schema, || {
            drain(&weir, "drain", &name)?;
            joiner.stop()?;
            thread::sleep(Duration::from_secs(2));
            cluster.start_node(joiner.index())?;
            drain(&weir, "undrain", &name)?;
            eventually("it reads again", PATIENCE, || {
                Ok(online(&weir, READERS)?.iter().any(|(server, _)| *server == name))
            })
        })
    });
    watched.map(drop)
}
