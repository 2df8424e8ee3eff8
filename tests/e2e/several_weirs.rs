//! Several Weirs in front of one cluster: they agree on the writer, through a table in the cluster.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Signal, Weir, WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Gate, Session, ensure, eventually};

use crate::switchover::{run, text, wait_variables, wait_writer, while_written, writer};

mod leaving;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = leaving::trials();
    cases.extend([
        Case::serial("several_weirs::a_switchover_by_either_is_one_for_both", switchover),
        Case::serial("several_weirs::one_s_switchover_is_not_cut_across_by_another_one_s", second),
        Case::serial("several_weirs::one_that_loses_its_way_to_the_writer_holds", own_path),
        Case::serial("several_weirs::a_writer_that_none_reaches_is_replaced_for_all", all_paths),
        Case::serial("several_weirs::a_killed_writer_has_one_successor", killed_writer),
        Case::serial("several_weirs::one_that_was_stopped_writes_by_no_old_epoch", stopped),
        Case::serial("several_weirs::a_killed_one_leaves_the_other_alone", killed_weir),
        Case::serial("several_weirs::without_the_privilege_facts_must_do", no_privilege),
        Case::serial("several_weirs::one_that_can_not_read_the_epoch_writes_nothing", unread),
        Case::serial("several_weirs::a_drain_by_either_is_one_for_both", drains),
        Case::serial("several_weirs::a_writer_that_leaves_ends_the_transactions_of_all", leaves),
        Case::serial("several_weirs::what_one_cluster_agrees_on_is_not_another_s", two_clusters),
        Case::serial("several_weirs::two_with_one_name_take_two", leaving::one_name),
        Case::serial("several_weirs::rows_that_no_weir_has_written_stop_nobody", ghosts),
    ]);
    cases
}

const PATIENCE: Duration = Duration::from_secs(60);
const HOSTGROUP: &str = "100";
const NODE_NAME: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
/// The configurable wait, short; leases come on top of it.
const UNCONFIRMED_MS: i64 = 2000;
/// How long a statement waits for a server, where it should get one.
const WAIT_MAX_MS: i64 = 30_000;
/// The same where it should get none.
const WAIT_SHORT_MS: i64 = 3000;

/// Some Weirs, each with an account of its own, and the way to the first node, which they share.
struct Weirs {
    weirs: Vec<(Weir, Account)>,
    gate: Gate,
    first: SocketAddrV4,
    /// How long a statement waits for a server.
    wait_max_ms: i64,
}

impl Weirs {
    /// Starts so many, and waits until they know each other.
    fn start(env: &Env, count: usize) -> Result<Self, Box<dyn Error>> {
        Self::start_with(env, count, WAIT_MAX_MS)
    }

    fn start_with(env: &Env, count: usize, wait_max_ms: i64) -> Result<Self, Box<dyn Error>> {
        env.cluster()?.node(1).root_query("DROP DATABASE IF EXISTS weir")?;
        let cluster = env.cluster()?;
        let first = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
        let gate = Gate::start(first, cluster.node(1).addr())?;
        let mut all = Self { weirs: Vec::new(), gate, first, wait_max_ms };
        for _ in 0..count {
            all.add(env)?;
        }
        Ok(all)
    }

    fn add(&mut self, env: &Env) -> CaseResult {
        let account = env.account()?;
        let nodes = env.cluster()?.nodes();
        let mut servers: Vec<SocketAddrV4> = nodes.iter().map(|node| node.addr()).collect();
        servers[0] = self.first;
        let mut config = WeirConfig::for_servers(&servers, env.free_address()?);
        config.user(account, 100, &[]);
        config.variable("threads", 2).variable("connect_timeout_server_max", self.wait_max_ms);
        config.monitor(account);
        config.push(
            "weir_topology",
            &[("writer_hostgroup", 100.into()), ("unconfirmed_failover_ms", UNCONFIRMED_MS.into())],
        );
        self.weirs.push((env.weir_with(&config)?, account));
        let known = self.weirs.len() - 1;
        for at in 0..self.weirs.len() {
            wait_writer(self.weir(at))?;
            wait_variables(self.weir(at))?;
            eventually("the Weirs know each other", PATIENCE, || {
                Ok(status(self.weir(at))?["other_weirs"]
                    .as_array()
                    .is_some_and(|others| others.len() == known))
            })?;
        }
        Ok(())
    }

    fn weir(&self, at: usize) -> &Weir {
        &self.weirs[at].0
    }

    fn session(&self, at: usize) -> Result<Session, Box<dyn Error>> {
        let login = Login { schema: Some("test".to_owned()), ..Login::new(self.weirs[at].1) };
        Ok(Session::with(self.weir(at).addr(), &login)?)
    }

    fn close(&self, at: usize) {
        self.gate.close_for(self.weirs[at].1.user);
    }

    fn open(&self, at: usize) {
        self.gate.open_for(self.weirs[at].1.user);
    }

    /// The writer on which these agree.
    fn wait_agreement(&self, of: &[usize], unlike: &str) -> Result<String, Box<dyn Error>> {
        let mut agreed = String::new();
        eventually("the Weirs agree on another writer", PATIENCE, || {
            let writers = of.iter().map(|at| writer(self.weir(*at))).collect::<Result<Vec<_>, _>>()?;
            agreed.clone_from(&writers[0]);
            Ok(writers.iter().all(|one| *one == agreed && one != unlike && !one.is_empty()))
        })?;
        Ok(agreed)
    }
}

fn status(weir: &Weir) -> Result<Value, Box<dyn Error>> {
    let mut status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    // None right after a start.
    Ok(status.pointer_mut("/clusters/0").map(Value::take).unwrap_or_default())
}

fn epoch(weir: &Weir) -> Result<u64, Box<dyn Error>> {
    Ok(status(weir)?["epoch"].as_u64().unwrap_or(0))
}

fn switchover(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let (one, two) = (weirs.weir(0), weirs.weir(1));
    let (schema, other_schema) = (env.schema()?, env.schema()?);
    let before = epoch(one)?;
    while_written(one, &schema, || {
        while_written(two, &other_schema, || {
            for round in 0..6 {
                let at = writer(weirs.weir(0))?;
                let by = weirs.weir(round % 2);
                let done = run(by, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
                ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
                weirs.wait_agreement(&[0, 1], &at)?;
            }
            Ok(())
        })
    })?;
    ensure!(epoch(two)? == before + 6, "{} epochs", epoch(two)? - before);
    // One that can't be waited for has it undone, for both.
    let mut pinned = weirs.session(1)?;
    pinned.run("CREATE TEMPORARY TABLE mine (id INT)")?;
    let undone = run(one, &["switchover", HOSTGROUP, "--grace-ms", "300"])?;
    let said = text(&undone.stderr);
    ensure!(!undone.status.success() && said.contains("sessions of other Weirs may still write"), "{said}");
    pinned.run("INSERT INTO mine VALUES (1)")?;
    weirs.session(0)?.run("DO 1 /* FOR UPDATE */")?;
    ensure!(epoch(one)? == before + 6, "an undone switchover is no epoch");
    Ok(())
}

/// A session of the first Weir keeps its switchover waiting: the second one holds for it, and begins none of its own.
fn second(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let (one, two) = (weirs.weir(0), weirs.weir(1));
    let (before, at) = (epoch(one)?, writer(one)?);
    let mut kept = weirs.session(0)?;
    kept.run("CREATE TEMPORARY TABLE kept (id INT)")?;
    let first = thread::scope(|scope| -> Result<_, Box<dyn Error>> {
        let order = ["switchover", HOSTGROUP, "--grace-ms", "9000"];
        let first = scope.spawn(move || run(one, &order).map_err(|error| error.to_string()));
        two.wait_log("statements are held for another Weir's switchover", PATIENCE)?;
        for order in [&["switchover", HOSTGROUP][..], &["drain", &at][..]] {
            let refused = run(two, order)?;
            let said = text(&refused.stderr);
            ensure!(!refused.status.success(), "{order:?}: {}", text(&refused.stdout));
            ensure!(
                said.contains("another Weir, is under way") && !said.contains("are held"),
                "{order:?}: {said}"
            );
        }
        ensure!(!is_out(two, &at)?, "a refused drain has taken {at} out");
        kept.run("INSERT INTO kept VALUES (1)")?;
        drop(kept);
        Ok(first.join().map_err(|_| "the switchover's thread has panicked")??)
    })?;
    ensure!(first.status.success(), "{}{}", text(&first.stdout), text(&first.stderr));
    weirs.wait_agreement(&[0, 1], &at)?;
    ensure!(epoch(two)? == before + 1, "{} epochs", epoch(two)? - before);
    Ok(())
}

fn own_path(env: &Env) -> CaseResult {
    let weirs = Weirs::start_with(env, 2, WAIT_SHORT_MS)?;
    let first = weirs.first.to_string();
    ensure!(writer(weirs.weir(0))? == first, "the writer is {}", writer(weirs.weir(0))?);
    let before = epoch(weirs.weir(1))?;
    let schema = env.schema()?;
    while_written(weirs.weir(1), &schema, || {
        // The load logs in as another user than the Weir's own, which the gate knows apart.
        weirs.close(0);
        eventually("the Weir holds", PATIENCE, || Ok(writer(weirs.weir(0))?.is_empty()))?;
        eventually("and says why", PATIENCE, || {
            let status = status(weirs.weir(0))?;
            Ok(status["waits_for"].as_str().is_some_and(|why| why.contains("another Weir")))
        })?;
        let mut session = weirs.session(0)?;
        let refused = session.refused("CREATE TABLE never (id INT)", 9001)?;
        ensure!(refused.contains("only the path to it from here is broken"), "{refused}");
        thread::sleep(Duration::from_millis(2 * UNCONFIRMED_MS.unsigned_abs()));
        ensure!(writer(weirs.weir(0))?.is_empty(), "it has chosen {}", writer(weirs.weir(0))?);
        Ok(())
    })?;
    ensure!(
        writer(weirs.weir(1))? == first && epoch(weirs.weir(1))? == before,
        "the other has moved the role"
    );
    weirs.open(0);
    wait_writer(weirs.weir(0))?;
    ensure!(writer(weirs.weir(0))? == first, "it came back to {}", writer(weirs.weir(0))?);
    weirs.session(0)?.run("DO 1 /* again */")?;
    Ok(())
}

fn all_paths(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let first = weirs.first.to_string();
    let before = epoch(weirs.weir(1))?;
    weirs.close(0);
    weirs.close(1);
    let next = weirs.wait_agreement(&[0, 1], &first)?;
    ensure!(epoch(weirs.weir(0))? == before + 1, "one epoch, not {}", epoch(weirs.weir(0))? - before);
    for at in [0, 1] {
        weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.written (id INT PRIMARY KEY)")?;
    }
    // The way is back: the role stays where it is.
    weirs.open(0);
    weirs.open(1);
    eventually("the first node could write again", PATIENCE, || {
        let done = run(weirs.weir(0), &["switchover", HOSTGROUP, "--to", &first, "--dry-run"])?;
        Ok(done.status.success())
    })?;
    ensure!(weirs.wait_agreement(&[0, 1], &first)? == next, "the role went on");
    Ok(())
}

fn killed_writer(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start(env, 2)?;
    let first = weirs.first.to_string();
    env.cluster()?.node(1).kill()?;
    weirs.wait_agreement(&[0, 1], &first)?;
    env.cluster()?.start_node(1)?;
    eventually("the first node could write again", PATIENCE, || {
        let done = run(weirs.weir(0), &["switchover", HOSTGROUP, "--to", &first, "--dry-run"])?;
        Ok(done.status.success())
    })?;
    // The role has not come back; it may have left its first successor, if that was the donor of the node that joined.
    let next = weirs.wait_agreement(&[0, 1], &first)?;
    // One that knows nothing of all that would choose the first node.
    weirs.add(env)?;
    ensure!(writer(weirs.weir(2))? == next, "a new Weir writes on {}", writer(weirs.weir(2))?);
    Ok(())
}

fn stopped(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let (schema, first) = (env.schema()?, weirs.first.to_string());
    let mut plain = weirs.session(0)?;
    plain.run(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, node VARCHAR(64))"))?;
    let mut inside = weirs.session(0)?;
    // Else it would run again at the next writer.
    inside.run("SET weir_replay = OFF")?;
    inside.run("BEGIN")?;
    inside.run(&format!("INSERT INTO {schema}.t VALUES (1, @@wsrep_node_name)"))?;
    weirs.weir(0).process().pause()?;
    eventually("the Weir is stopped", PATIENCE, || is_stopped(weirs.weir(0)))?;
    // Statements that are there when it goes on.
    plain.send_query(&format!("INSERT INTO {schema}.t VALUES (2, @@wsrep_node_name)"))?;
    inside.send_query(&format!("INSERT INTO {schema}.t VALUES (3, @@wsrep_node_name)"))?;
    weirs.close(1);
    let next = weirs.wait_agreement(&[1], &first)?;
    let mut there = weirs.session(1)?;
    there.run(&format!("INSERT INTO {schema}.t VALUES (4, @@wsrep_node_name)"))?;
    weirs.weir(0).process().signal(Signal::CONT)?;
    plain.next_result()?;
    ensure!(inside.next_result().is_err() || inside.run("COMMIT").is_err(), "the old transaction went on");
    weirs.wait_agreement(&[0, 1], &first)?;
    there.run("SET SESSION wsrep_sync_wait = 1")?;
    let rows = there.rows(&format!("SELECT id, node FROM {schema}.t ORDER BY id"))?;
    let ids: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    let node = rows.iter().map(|row| row[1].clone()).collect::<std::collections::BTreeSet<_>>();
    ensure!(ids == ["2", "4"] && node.len() == 1, "{rows:?}, written on {next} only?");
    weirs.open(1);
    Ok(())
}

/// A signal reaches the threads of a process one after the other.
fn is_stopped(weir: &Weir) -> Result<bool, Box<dyn Error>> {
    for task in std::fs::read_dir(format!("/proc/{}/task", weir.process().pid()))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        if !status.lines().any(|line| line.starts_with("State:\tT")) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn killed_weir(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let schema = env.schema()?;
    let stop = AtomicBool::new(false);
    let before = writer(weirs.weir(1))?;
    thread::scope(|scope| -> CaseResult {
        let mut other = weirs.session(0)?;
        other.run(&format!("CREATE TABLE {schema}.other (id INT)"))?;
        let sql = format!("INSERT INTO {schema}.other VALUES (1)");
        let stop = &stop;
        let load = scope.spawn(move || {
            let mut session = other;
            while !stop.load(Ordering::Relaxed) && session.run(&sql).is_ok() {}
        });
        let done = while_written(weirs.weir(1), &schema, || {
            weirs.weir(0).process().kill();
            // Longer than it takes until nobody counts on it any more.
            thread::sleep(Duration::from_secs(8));
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        load.join().map_err(|_| "the load has panicked")?;
        done
    })?;
    ensure!(writer(weirs.weir(1))? == before, "the role has moved");
    let done = run(weirs.weir(1), &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
    let said = text(&done.stderr);
    ensure!(done.status.success() || said.contains("has not been heard of lately"), "{said}");
    eventually("the dead one is not waited for for ever", PATIENCE, || {
        Ok(run(weirs.weir(1), &["switchover", HOSTGROUP, "--grace-ms", "8000"])?.status.success())
    })
}

fn no_privilege(env: &Env) -> CaseResult {
    env.cluster()?.node(1).root_query("DROP DATABASE IF EXISTS weir")?;
    let weir = env.weir(|_| {})?;
    weir.wait_log("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.*", PATIENCE)?;
    wait_writer(&weir)?;
    ensure!(status(&weir)?["epoch"].is_null(), "{:?}", status(&weir)?);
    let before = writer(&weir)?;
    let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
    ensure!(done.status.success() && writer(&weir)? != before, "{done:?}");
    Ok(())
}

/// Takes the right to use the tables away from an account, or gives it back.
fn allow(env: &Env, account: Account, is_allowed: bool) -> CaseResult {
    let user = account.user;
    let sql = match is_allowed {
        true => format!("GRANT ALL ON *.* TO {user}@'%'"),
        false => format!("REVOKE ALL PRIVILEGES ON *.* FROM {user}@'%'; GRANT ALL ON test.* TO {user}@'%'"),
    };
    env.cluster()?.node(1).root_query(&sql)?;
    env.wait_applied()?;
    // Who is logged in keeps what the account could do.
    for node in env.cluster()?.nodes() {
        node.root_query(&format!("KILL CONNECTION USER {user}@'%'"))?;
    }
    Ok(())
}

fn unread(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start_with(env, 2, WAIT_SHORT_MS)?;
    let account = weirs.weirs[0].1;
    for at in [0, 1] {
        weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.unread (id INT)")?;
    }
    allow(env, account, false)?;
    let says_so = |weir: &Weir| -> Result<bool, Box<dyn Error>> {
        let trouble = status(weir)?["epoch_trouble"].as_str().unwrap_or_default().to_owned();
        Ok(trouble.contains("denied")
            && trouble.contains("NO WRITE IS SENT")
            && trouble.contains("GRANT SELECT, INSERT"))
    };
    for round in ["running", "restarted"] {
        eventually(&format!("{round}: it says that it sends no write"), PATIENCE, || says_so(weirs.weir(0)))?;
        eventually(&format!("{round}: writes wait"), PATIENCE, || {
            let mut session = weirs.session(0)?;
            Ok(session.query("INSERT INTO test.unread VALUES (1)")?.error() == Some(9001))
        })?;
        let shown = run(weirs.weir(0), &["status"])?;
        ensure!(shown.status.code() == Some(3), "{shown:?}");
        weirs.session(0)?.value("SELECT COUNT(*) FROM test.unread")?;
        weirs.session(1)?.run("INSERT INTO test.unread VALUES (2)")?;
        if round == "running" {
            let (weir, account) = weirs.weirs.remove(0);
            weirs.weirs.insert(0, (weir.restart(&weir_binary()?)?, account));
        }
    }
    weirs.weir(0).wait_log("NO WRITE IS SENT to this cluster", PATIENCE)?;
    allow(env, account, true)?;
    eventually("it writes again", PATIENCE, || {
        let answer = weirs.session(0)?.query("INSERT INTO test.unread VALUES (3)")?;
        Ok(answer.error().is_none())
    })?;
    eventually("and has nothing to say", PATIENCE, || Ok(status(weirs.weir(0))?["epoch_trouble"].is_null()))
}

fn ghosts(env: &Env) -> CaseResult {
    let mut weirs = Weirs::start_with(env, 2, WAIT_SHORT_MS)?;
    let root = |sql: &str| -> Result<(), Box<dyn Error>> {
        env.cluster()?.node(2).root_query(sql)?;
        Ok(())
    };
    for at in [0, 1] {
        weirs.session(at)?.run("CREATE TABLE IF NOT EXISTS test.ghosts (id INT)")?;
    }
    root(
        "ALTER TABLE weir.instances MODIFY lease_ms VARCHAR(20) NOT NULL; \
         INSERT INTO weir.instances SELECT 100, CONCAT('ghost-', seq), 1, 1, 300000, 0, 0 FROM test.seq_1_to_100; \
         INSERT INTO weir.instances VALUES (100, 'nonsense', 1, 1, 'x', 0, 0)",
    )?;
    weirs.weir(0).wait_log("a row of weir.instances that no Weir has written is ignored", PATIENCE)?;
    // Longer than a lease.
    for _ in 0..14 {
        for at in [0, 1] {
            weirs.session(at)?.run("INSERT INTO test.ghosts VALUES (1)")?;
        }
        thread::sleep(Duration::from_millis(500));
    }
    // One that is started among ghosts goes by the row like the others.
    root("DELETE FROM weir.instances WHERE instance = 'nonsense'")?;
    let (weir, account) = weirs.weirs.remove(1);
    weirs.weirs.push((weir.restart(&weir_binary()?)?, account));
    eventually("it writes among ghosts", PATIENCE, || {
        Ok(weirs.session(1)?.query("INSERT INTO test.ghosts VALUES (2)")?.error().is_none())
    })?;
    // An epoch that can't be understood is nobody's, and everybody says so.
    root("UPDATE weir.topology SET writer = 'db1' WHERE writer_hostgroup = 100")?;
    for at in [0, 1] {
        eventually("writes wait", PATIENCE, || {
            Ok(weirs.session(at)?.query("INSERT INTO test.ghosts VALUES (3)")?.error() == Some(9001))
        })?;
        let trouble = status(weirs.weir(at))?["epoch_trouble"].to_string();
        ensure!(trouble.contains("db1") && trouble.contains("NO WRITE IS SENT"), "{trouble}");
    }
    root("DELETE FROM weir.instances WHERE instance LIKE 'ghost-%'; DELETE FROM weir.topology")?;
    for at in [0, 1] {
        eventually("they have agreed anew", PATIENCE, || {
            Ok(weirs.session(at)?.query("INSERT INTO test.ghosts VALUES (4)")?.error().is_none())
        })?;
    }
    weirs.wait_agreement(&[0, 1], "")?;
    Ok(())
}

/// A cluster that is down has no row in another one, which goes on as before.
fn two_clusters(env: &Env) -> CaseResult {
    let root = |sql: &str| env.cluster()?.node(1).root_query(sql).map_err(Box::<dyn Error>::from);
    root("DROP DATABASE IF EXISTS weir")?;
    let account = env.account()?;
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.user(account, 100, &[]).variable("threads", 2);
    config.monitor(account);
    for _ in 0..2 {
        config.server(env.free_address()?, 200, &[]);
    }
    let hostgroups = [("writer", 200), ("backup_writer", 201), ("reader", 202), ("offline", 9201)];
    let hostgroups: Vec<_> = hostgroups.iter().map(|(name, id)| (format!("{name}_hostgroup"), *id)).collect();
    let mut row: Vec<(&str, toml_edit::Value)> =
        hostgroups.iter().map(|(name, id)| (name.as_str(), i64::from(*id).into())).collect();
    row.extend([("active", 1.into()), ("max_writers", 1.into())]);
    config.push("mysql_galera_hostgroups", &row);
    let weir = env.weir_with(&config)?;
    wait_writer_of(&weir, 0)?;
    let (before, log) = (writer(&weir)?, weir.log().len());
    let login = Login { schema: Some("test".to_owned()), ..Login::new(account) };
    let mut session = Session::with(weir.addr(), &login)?;
    session.run("CREATE TABLE IF NOT EXISTS test.two (id INT)")?;
    // Longer than a beat.
    for _ in 0..50 {
        session.run("INSERT INTO test.two VALUES (1)")?;
        ensure!(writer(&weir)? == before && epoch(&weir)? == 1, "{}", status(&weir)?);
        thread::sleep(Duration::from_millis(100));
    }
    let rows = root("SELECT DISTINCT writer_hostgroup FROM weir.instances")?;
    ensure!(rows.concat() == ["100"], "{rows:?}");
    let since = weir.log()[log..].to_owned();
    // A slow answer may cost a server its role; what the Weirs agree on is left alone.
    let is_agreement = |line: &str| {
        line.contains("hostgroup 100 ") && ["epoch", "another Weir"].iter().any(|word| line.contains(word))
    };
    ensure!(!since.lines().any(is_agreement), "{since}");
    Ok(())
}

/// Waits for the writer of one of the clusters.
fn wait_writer_of(weir: &Weir, at: usize) -> CaseResult {
    eventually("there is a writer", PATIENCE, || {
        let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
        Ok(status["clusters"][at]["writers"].as_array().is_some_and(|writers| !writers.is_empty()))
    })
}

/// The places of a server, as a Weir has them.
fn places(weir: &Weir, server: &str) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
    let servers = status["servers"].as_array_mut().map(std::mem::take).unwrap_or_default();
    Ok(servers.into_iter().filter(|row| row["server"] == server).collect())
}

fn is_out(weir: &Weir, server: &str) -> Result<bool, Box<dyn Error>> {
    Ok(places(weir, server)?.iter().all(|row| row["status"] == "OFFLINE_SOFT"))
}

fn drains(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let third = env.cluster()?.node(3).addr().to_string();
    let node = NODE_NAME;
    // A transaction of the second Weir's is on the third node.
    let mut holder = weirs.session(1)?;
    eventually("a transaction is on n3", PATIENCE, || {
        holder.run("ROLLBACK")?;
        holder.run("START TRANSACTION READ ONLY")?;
        Ok(holder.rows(node)?[0][0] == "n3")
    })?;
    let waiting = run(weirs.weir(0), &["drain", &third, "--timeout-s", "3"])?;
    let said = text(&waiting.stderr);
    ensure!(
        waiting.status.code() == Some(3),
        "{waiting:?} {:?} {:?}",
        places(weirs.weir(1), &third)?,
        holder.rows(node)?
    );
    ensure!(said.contains("1 session is still there (") && said.contains(": 1)"), "{said}");
    ensure!(is_out(weirs.weir(1), &third)?, "{:?}", places(weirs.weir(1), &third)?);
    let mut session = weirs.session(1)?;
    for _ in 0..20 {
        ensure!(session.rows(node)?[0][0] != "n3", "the other Weir reads from the drained node");
    }
    ensure!(holder.rows(node)?[0][0] == "n3", "the transaction goes on elsewhere");
    holder.run("COMMIT")?;
    let done = run(weirs.weir(0), &["drain", &third, "--timeout-s", "20"])?;
    ensure!(done.status.success(), "{done:?}");
    // Only who has drained it lets it in again.
    let refused = run(weirs.weir(1), &["undrain", &third])?;
    ensure!(!refused.status.success() && text(&refused.stderr).contains("is undrained here"), "{refused:?}");
    run(weirs.weir(0), &["undrain", &third])?;
    for at in [0, 1] {
        eventually("it gets work again", PATIENCE, || Ok(!is_out(weirs.weir(at), &third)?))?;
    }
    // Under load, by either, readers and the writer.
    let (one, two) = (weirs.weir(0), weirs.weir(1));
    while_written(one, &env.schema()?, || {
        while_written(two, &env.schema()?, || {
            for round in 0..4 {
                let by = weirs.weir(round % 2);
                let server = if round < 2 { third.clone() } else { writer(by)? };
                let done = run(by, &["drain", &server, "--timeout-s", "30"])?;
                ensure!(done.status.success(), "{done:?}");
                for at in [0, 1] {
                    ensure!(is_out(weirs.weir(at), &server)?, "{server} is not out everywhere");
                    ensure!(writer(weirs.weir(at))? != server, "{server} still writes");
                }
                run(by, &["undrain", &server])?;
                for at in [0, 1] {
                    eventually("it gets work again", PATIENCE, || Ok(!is_out(weirs.weir(at), &server)?))?;
                    wait_writer(weirs.weir(at))?;
                }
            }
            Ok(())
        })
    })
}

/// OFFLINE_SOFT in the configuration of one Weir: the transactions of the other go on where they are.
fn leaves(env: &Env) -> CaseResult {
    let weirs = Weirs::start(env, 2)?;
    let schema = env.schema()?;
    let first = weirs.first.to_string();
    let mut inside = weirs.session(1)?;
    inside.run(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    inside.run("BEGIN")?;
    inside.run(&format!("INSERT INTO {schema}.t VALUES (1)"))?;
    let config = std::fs::read_to_string(weirs.weir(0).config_path())?;
    let mut document: toml_edit::DocumentMut = config.parse()?;
    let servers = document["mysql_servers"].as_array_of_tables_mut().ok_or("no servers")?;
    for row in servers.iter_mut() {
        if row["port"].as_integer() == Some(i64::from(weirs.first.port())) {
            row["status"] = toml_edit::value("OFFLINE_SOFT");
        }
    }
    std::fs::write(weirs.weir(0).config_path(), document.to_string())?;
    while_written(weirs.weir(0), &schema, || {
        while_written(weirs.weir(1), &env.schema()?, || {
            weirs.weir(0).sighup()?;
            weirs.wait_agreement(&[0, 1], &first)?;
            inside.run(&format!("INSERT INTO {schema}.t VALUES (2)"))?;
            inside.run("COMMIT")?;
            Ok(())
        })
    })?;
    ensure!(is_out(weirs.weir(1), &first)?, "{:?}", places(weirs.weir(1), &first)?);
    let count = weirs.session(1)?.value(&format!("SELECT COUNT(*) FROM {schema}.t FOR UPDATE"))?;
    ensure!(count == "2", "{count} rows");
    Ok(())
}
