//! Signals: a new configuration by SIGHUP, a gentle end by SIGTERM.

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::wire::{Login, RawClient};
use weir_testkit::{Account, Signal, Weir, WeirConfig, hostgroup, weir_binary};
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("reload::a_user_is_added_and_removed", user_added_and_removed),
        Case::parallel("reload::a_password_changes", password_changes),
        Case::parallel("reload::a_server_is_removed_and_added", server_removed_and_added),
        Case::parallel("reload::a_broken_file_changes_nothing", broken_file),
        Case::parallel("reload::what_needs_a_restart_is_said", needs_restart),
        Case::parallel("reload::another_io_driver_needs_a_restart", io_driver),
        Case::parallel("reload::workers_are_scheduled_as_wanted_and_nobody_else", worker_scheduling),
        Case::parallel("reload::variables_take_effect", variables),
        Case::parallel("reload::sessions_do_not_notice", sessions_do_not_notice),
        Case::parallel("reload::sigterm_lets_transactions_end", drain),
        Case::parallel("reload::sigterm_waits_no_longer_than_drain_timeout_ms", drain_timeout),
        Case::parallel("reload::a_second_signal_ends_at_once", second_signal),
        Case::parallel("reload::sigterm_without_clients", drain_of_nobody),
    ]
}

const PATIENCE: Duration = Duration::from_secs(10);
const TAKEN: &str = "configuration applied";
const NOT_TAKEN: &str = "configuration rejected";

/// A Weir and the configuration that it runs with.
fn start(env: &Env, change: impl FnOnce(&mut WeirConfig)) -> Result<(Weir, WeirConfig), String> {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    change(&mut config);
    Ok((env.weir_with(&config)?, config))
}

/// Asks for a reload and waits until it was taken, for the `count`th time.
fn reload(weir: &Weir, config: &WeirConfig, count: usize) -> CaseResult {
    weir.reload(config)?;
    eventually("the configuration is taken", PATIENCE, || {
        let log = weir.log();
        ensure!(!log.contains(NOT_TAKEN), "{log}");
        Ok(log.matches(TAKEN).count() >= count)
    })
}

/// The error of a login, if it is refused.
fn refusal(weir: &Weir, account: Account) -> Result<Option<u16>, Box<dyn std::error::Error>> {
    let packet = RawClient::connect(weir.addr())?.authenticate(&Login::new(account))?;
    Ok(if packet.first() == Some(0) { None } else { Some(packet.err()?.code) })
}

fn user_added_and_removed(env: &Env) -> CaseResult {
    let user = env.account()?;
    let (weir, config) = start(env, |_| {})?;
    ensure!(refusal(&weir, user)? == Some(1045), "the user is known before");
    let mut with_user = config.clone();
    with_user.user(user, hostgroup::WRITER, &[]);
    reload(&weir, &with_user, 1)?;
    let mut session = Session::with(weir.addr(), &Login::new(user).schema("test"))?;
    let name = session.value("SELECT CURRENT_USER()")?;
    ensure!(name == format!("{}@%", user.user), "{name}");
    reload(&weir, &config, 2)?;
    ensure!(refusal(&weir, user)? == Some(1045), "the user is still known");
    // Whoever is in may stay or be sent away, but gets no wrong answer.
    if let Ok(name) = session.value("SELECT CURRENT_USER()") {
        ensure!(name == format!("{}@%", user.user), "{name}");
    }
    // An inactive user is none.
    with_user.document_mut().remove("mysql_users");
    with_user.user(user, hostgroup::WRITER, &[("active", 0.into())]);
    reload(&weir, &with_user, 3)?;
    ensure!(refusal(&weir, user)? == Some(1045), "an inactive user is known");
    Ok(())
}

fn password_changes(env: &Env) -> CaseResult {
    let user = env.account()?;
    let (weir, mut config) = start(env, |config| {
        config.user(user, hostgroup::WRITER, &[]);
    })?;
    let mut session = Session::with(weir.addr(), &Login::new(user).schema("test"))?;
    session.value("SELECT 1")?;
    let changed = Account { password: "another secret", ..user };
    let sql = format!("ALTER USER {}@'%' IDENTIFIED BY '{}'", user.user, changed.password);
    env.cluster()?.node(1).root_query(&sql)?;
    for node in env.cluster()?.nodes() {
        node.root_query("SET wsrep_sync_wait = 1; SELECT COUNT(*) FROM mysql.global_priv")?;
    }
    config.document_mut().remove("mysql_users");
    config.user(changed, hostgroup::WRITER, &[]);
    reload(&weir, &config, 1)?;
    ensure!(refusal(&weir, user)? == Some(1045), "the old password is still good");
    let mut anew = Session::with(weir.addr(), &Login::new(changed).schema("test"))?;
    // More sessions than idle connections, so that some are opened with the new password.
    let mut pinned = Vec::new();
    for _ in 0..4 {
        let mut session = Session::with(weir.addr(), &Login::new(changed).schema("test"))?;
        session.run("SET @pinned = 1")?;
        pinned.push(session);
    }
    let value = anew.value("SELECT 'in'")?;
    ensure!(value == "in", "{value}");
    // The old session proved who it is when it logged in.
    let value = session.value("SELECT 'still in'")?;
    ensure!(value == "still in", "{value}");
    Ok(())
}

fn server_removed_and_added(env: &Env) -> CaseResult {
    let (cluster, user) = (env.cluster()?, env.account()?);
    let (weir, all) = start(env, |config| {
        config.user(user, hostgroup::WRITER, &[]);
    })?;
    let sql = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
    let mut session = Session::with(weir.addr(), &Login::new(user).schema("test"))?;
    let is_serving = |session: &mut Session, node: &str| -> Result<bool, Box<dyn std::error::Error>> {
        for _ in 0..6 {
            if session.value(sql)? == node {
                return Ok(true);
            }
        }
        Ok(false)
    };
    eventually("n3 serves reads", PATIENCE, || is_serving(&mut session, "n3"))?;
    let mut fewer = all.clone();
    fewer.document_mut().remove("mysql_servers");
    for node in cluster.nodes().iter().take(2) {
        fewer.server(node.addr(), hostgroup::WRITER, &[]);
    }
    reload(&weir, &fewer, 1)?;
    ensure!(!is_serving(&mut session, "n3")?, "n3 still serves");
    let mut direct = Session::open(cluster.node(3).addr(), "test")?;
    let count = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'", user.user);
    eventually("no connection to n3 is left", PATIENCE, || Ok(direct.value(&count)? == "0"))?;
    reload(&weir, &all, 2)?;
    eventually("n3 serves reads again", PATIENCE, || is_serving(&mut session, "n3"))
}

fn broken_file(env: &Env) -> CaseResult {
    let (weir, config) = start(env, |_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let good = fs::read_to_string(weir.config_path())?;
    let file = weir.config_path().file_name().ok_or("no name")?.to_string_lossy().into_owned();
    let port = good.lines().position(|line| line.starts_with("port = 3306")).ok_or("no port")? + 1;
    let broken = [
        (good.replacen("port = 3306", "port = 70000", 1), format!("{file}:{port}: mysql_servers[0].port")),
        (good.replacen("port = 3306", "prot = 3306", 1), format!("{file}:{port}: mysql_servers[0].prot")),
        (good.replacen("port = 3306", "port = ", 1), format!("{file}:{port}")),
        (String::new(), file.clone()),
    ];
    for (at, (text, wanted)) in broken.iter().enumerate() {
        fs::write(weir.config_path(), text)?;
        weir.sighup()?;
        eventually("the refusal is logged", PATIENCE, || Ok(weir.log().matches(NOT_TAKEN).count() > at))?;
        let log = weir.log();
        let line = log.lines().rfind(|line| line.contains(NOT_TAKEN)).unwrap_or_default().to_owned();
        let rest = log.rsplit(NOT_TAKEN).next().unwrap_or_default();
        ensure!(line.contains("ERROR"), "{line}");
        // An empty file is one without users or servers: whether that is a fault is not asked here.
        ensure!(
            at == 3 || rest.contains(wanted) || line.contains(wanted),
            "{wanted} is not in: {line}{rest}"
        );
        session.value("SELECT 1")?;
        Session::open(weir.addr(), "test")?.value("SELECT 1")?;
        if at == 2 {
            break;
        }
    }
    // The next good one is taken.
    weir.reload(&config)?;
    weir.wait_log(TAKEN, PATIENCE)?;
    session.value("SELECT 1")?;
    Ok(())
}

fn needs_restart(env: &Env) -> CaseResult {
    let (weir, mut config) = start(env, |config| {
        config.variable("threads", 1);
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    config.variable("threads", 2);
    weir.reload(&config)?;
    weir.wait_log(NOT_TAKEN, PATIENCE)?;
    let log = weir.log();
    let line = log.lines().rfind(|line| line.contains(NOT_TAKEN)).unwrap_or_default();
    ensure!(line.contains("threads") && line.contains("restart"), "{line}");
    session.value("SELECT 1")?;
    Ok(())
}

/// The scheduling policies of a Weir's threads, by name (proc_pid_stat(5): the name is the second field, the policy
/// the 41st).
fn policies(weir: &Weir) -> Result<Vec<(String, u8)>, Box<dyn std::error::Error>> {
    let mut policies = Vec::new();
    for task in fs::read_dir(format!("/proc/{}/task", weir.process().pid()))? {
        let stat = fs::read_to_string(task?.path().join("stat"))?;
        let (name, fields) =
            stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).ok_or("stat")?;
        let policy = fields.split_whitespace().nth(41 - 3).ok_or("stat has fewer fields")?;
        policies.push((name.to_owned(), policy.parse()?));
    }
    Ok(policies)
}

fn worker_scheduling(env: &Env) -> CaseResult {
    const NORMAL: u8 = 0;
    const BATCH: u8 = 3;
    for (wanted, of_workers) in [(None, BATCH), (Some("batch"), BATCH), (Some("normal"), NORMAL)] {
        let (weir, mut config) = start(env, |config| {
            config.variable("threads", 2);
            if let Some(wanted) = wanted {
                config.variable("worker_scheduling", wanted);
            }
        })?;
        // Workers that serve have been scheduled.
        Session::open(weir.addr(), "test")?.value("SELECT 1")?;
        eventually("every thread is scheduled as wanted", PATIENCE, || {
            let policies = policies(&weir)?;
            let is_right = |(name, policy): &(String, u8)| {
                *policy == if name.starts_with("worker-") { of_workers } else { NORMAL }
            };
            let workers = policies.iter().filter(|(name, _)| name.starts_with("worker-")).count();
            Ok(workers == 2 && policies.iter().all(is_right))
        })?;
        config.variable("worker_scheduling", if of_workers == BATCH { "normal" } else { "batch" });
        weir.reload(&config)?;
        weir.wait_log("needs a restart", PATIENCE)?;
    }
    Ok(())
}

fn io_driver(env: &Env) -> CaseResult {
    let mut config = WeirConfig::for_cluster(env.cluster()?, env.free_address()?);
    config.variable("io_driver", "epoll");
    let weir = Weir::start(&weir_binary()?, &config, env.dir()?, "io-driver")?;
    let text = fs::read_to_string(weir.config_path())?;
    ensure!(text.contains("\"epoll\""), "{text}");
    fs::write(weir.config_path(), text.replace("\"epoll\"", "\"auto\""))?;
    weir.sighup()?;
    weir.wait_log("what=\"mysql-io_driver\"", PATIENCE)?;
    fs::write(weir.config_path(), text)?;
    weir.sighup()?;
    weir.wait_log("configuration applied", PATIENCE)?;
    Ok(())
}

fn variables(env: &Env) -> CaseResult {
    let (weir, mut config) = start(env, |_| {})?;
    let mut before = Session::open(weir.addr(), "test")?;
    config.variable("server_version", "8.0.99").variable("max_connections", 2);
    config.variable("default_query_timeout", 1000);
    reload(&weir, &config, 1)?;
    let mut after = RawClient::connect(weir.addr())?;
    ensure!(after.greeting().version == "8.0.99", "{:?}", after.greeting());
    let accepted = after.authenticate(&Login::new(Account::APP))?;
    ensure!(accepted.first() == Some(0), "the second client: {accepted}");
    ensure!(Session::open(weir.addr(), "test").is_err(), "a third client in spite of max_connections");
    let started = Instant::now();
    // Whatever a server makes of it, it ends.
    before.query("SELECT SLEEP(20)")?;
    ensure!(started.elapsed() < Duration::from_secs(8), "ended after {:?}", started.elapsed());
    Ok(())
}

fn sessions_do_not_notice(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    let (weir, mut config) = start(env, |config| {
        config.variable("threads", 2);
    })?;
    let bystanders = Bystanders::start(weir.addr(), &Login::new(Account::APP).schema(&schema), 4)?;
    for round in 1..=10_usize {
        config.variable("wait_timeout", 1_000_000 + i64::try_from(round)?);
        reload(&weir, &config, round)?;
        thread::sleep(Duration::from_millis(100));
    }
    let seen = bystanders.finish()?;
    ensure!(seen.statements > 100, "{seen:?}");
    Ok(())
}

/// Whether a new client is turned away, before or behind its login.
fn takes_no_clients(weir: &Weir) -> bool {
    match TcpStream::connect(weir.addr()) {
        Err(_) => true,
        Ok(_) => Session::open(weir.addr(), "test").is_err(),
    }
}

fn drain(env: &Env) -> CaseResult {
    for signal in [Signal::TERM, Signal::INT] {
        let schema = env.schema()?;
        let (weir, _) = start(env, |config| {
            config.variable("threads", 2);
        })?;
        env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
        let mut idle = Session::open(weir.addr(), &schema)?;
        let mut transaction = Session::open(weir.addr(), &schema)?;
        transaction.run("BEGIN")?;
        transaction.run("INSERT INTO t VALUES (1)")?;
        let mut running = Session::open(weir.addr(), &schema)?;
        running.send_query("SELECT SLEEP(1.5), 'whole'")?;
        thread::sleep(Duration::from_millis(200));
        weir.process().signal(signal)?;
        weir.wait_log("draining", PATIENCE)?;
        eventually("new clients are turned away", PATIENCE, || Ok(takes_no_clients(&weir)))?;
        // Idle sessions are closed; what runs, runs to its end.
        idle.raw().packets().set_read_timeout(Duration::from_secs(3))?;
        ensure!(idle.raw().packets().is_closed(), "an idle session is still open");
        let rows = running.results()?.rows()?;
        ensure!(rows == [["0", "whole"]], "{rows:?}");
        transaction.run("INSERT INTO t VALUES (2)")?;
        let count = transaction.value("SELECT COUNT(*) FROM t")?;
        ensure!(count == "2", "{count} rows in the transaction");
        ensure!(weir.process().exit_status().is_none(), "ended before the transaction did");
        transaction.run("COMMIT")?;
        let status = weir.wait_exit(Duration::from_secs(20))?;
        ensure!(status.code() == Some(0), "{signal:?}: {status}");
        let rows = env.cluster()?.node(1).root_query(&format!("SELECT COUNT(*) FROM {schema}.t"))?;
        ensure!(rows == [["2"]], "{signal:?}: {rows:?}");
    }
    Ok(())
}

fn drain_timeout(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let (weir, _) = start(env, |config| {
        config.variable("drain_timeout_ms", 1500);
    })?;
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    let mut transaction = Session::open(weir.addr(), &schema)?;
    transaction.run("BEGIN")?;
    transaction.run("INSERT INTO t VALUES (1)")?;
    let started = Instant::now();
    weir.sigterm()?;
    let status = weir.wait_exit(Duration::from_secs(10))?;
    let took = started.elapsed();
    ensure!(status.code() == Some(0), "{status}");
    ensure!((1.4..5.0).contains(&took.as_secs_f64()), "ended after {took:?}");
    eventually("the transaction is rolled back", Duration::from_secs(20), || {
        let sql =
            format!("SET innodb_lock_wait_timeout = 1; SELECT COUNT(*) FROM {schema}.t LOCK IN SHARE MODE");
        Ok(env.cluster()?.node(1).root_query(&sql).is_ok_and(|rows| rows == [["0"]]))
    })
}

fn second_signal(env: &Env) -> CaseResult {
    let (weir, _) = start(env, |_| {})?;
    let mut transaction = Session::open(weir.addr(), "test")?;
    transaction.run("BEGIN")?;
    transaction.run("SELECT 1 FOR UPDATE")?;
    weir.sigterm()?;
    weir.wait_log("draining", PATIENCE)?;
    thread::sleep(Duration::from_millis(300));
    ensure!(weir.process().exit_status().is_none(), "ended at the first signal");
    let started = Instant::now();
    weir.sigterm()?;
    weir.wait_exit(Duration::from_secs(20))?;
    ensure!(started.elapsed() < Duration::from_secs(10), "ended after {:?}", started.elapsed());
    Ok(())
}

fn drain_of_nobody(env: &Env) -> CaseResult {
    let (weir, _) = start(env, |_| {})?;
    let mut half = RawClient::connect(weir.addr())?;
    let started = Instant::now();
    weir.sigterm()?;
    let status = weir.wait_exit(Duration::from_secs(20))?;
    ensure!(status.code() == Some(0), "{status}");
    ensure!(started.elapsed() < Duration::from_secs(15), "ended after {:?}", started.elapsed());
    ensure!(half.packets().is_closed(), "half a login kept its connection");
    Ok(())
}
