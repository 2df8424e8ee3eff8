//! Few connections to the servers for many sessions: everybody is served, and no server gets more than allowed.

mod outage;

use std::error::Error;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::command::Command;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// How long a load lasts: whoever is served only behind it waits longer than [`SERVED`].
const LOAD: Duration = Duration::from_secs(12);
/// The longest that a statement may take.
const SERVED: Duration = Duration::from_secs(10);

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("pool::everybody_is_served_over_four_connections", everybody_is_served),
        Case::parallel("pool::one_connection_for_two_workers", one_connection_for_two_workers),
        Case::parallel("pool::a_busy_worker_does_not_starve_an_idle_one", busy_and_idle_worker),
        Case::parallel("pool::a_busy_user_does_not_starve_another", busy_and_idle_user),
        Case::parallel("pool::clients_are_spread_over_the_workers", clients_are_spread),
        Case::parallel("pool::waiters_get_the_connection_when_a_transaction_ends", transaction_ends),
        Case::parallel("pool::idle_connections_shrink_to_free_connections_pct", idle_connections_shrink),
    ];
    cases.extend(outage::trials());
    cases
}

/// In front of the cluster, with so many connections to each node, for these users alone.
fn weir_with(env: &Env, connections: i64, threads: i64, users: &[Account]) -> Result<Weir, String> {
    env.weir(|config| {
        config.document_mut().remove("mysql_servers");
        config.document_mut().remove("mysql_users");
        for node in env.cluster().map(|cluster| cluster.nodes()).unwrap_or_default() {
            config.server(node.addr(), hostgroup::WRITER, &[("max_connections", connections.into())]);
        }
        for user in users {
            config.user(*user, hostgroup::WRITER, &[]);
        }
        config.variable("threads", threads);
    })
}

/// Samples how many connections these users have at each node while `run` runs; returns the most at one node.
fn most_connections(
    env: &Env,
    users: &[Account],
    run: impl FnOnce() -> CaseResult,
) -> Result<u64, Box<dyn Error>> {
    let names: Vec<String> = users.iter().map(|account| format!("'{}'", account.user)).collect();
    let sql =
        format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER IN ({})", names.join(","));
    let nodes: Result<Vec<Session>, _> =
        env.cluster()?.nodes().iter().map(|node| Session::open(node.addr(), "test")).collect();
    let mut nodes = nodes?;
    let (stop, most, samples) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for node in &mut nodes {
                    let mut count =
                        || node.value(&sql).ok().and_then(|count| count.parse().ok()).unwrap_or(u64::MAX);
                    // A connection that gives its place to another worker's may still be there for a moment.
                    let first = count();
                    thread::sleep(Duration::from_millis(20));
                    let count = first.min(count());
                    most.fetch_max(count, Ordering::Relaxed);
                    samples.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        let result = run();
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    ensure!(samples.load(Ordering::Relaxed) > 30, "only {samples:?} samples");
    Ok(most.load(Ordering::Relaxed))
}

/// What the clients of a load have seen.
#[derive(Debug, Default, Clone, Copy)]
struct Load {
    statements: u64,
    slowest: Duration,
}

/// Every session runs `sql` again and again for a while, each in a thread; some pause in between.
fn load(
    sessions: Vec<Session>,
    sql: &'static str,
    pause: Duration,
    time: Duration,
) -> Result<Load, Box<dyn Error>> {
    let until = Instant::now() + time;
    let threads: Vec<_> = sessions
        .into_iter()
        .map(|mut session| {
            thread::spawn(move || -> Result<Load, String> {
                let mut load = Load::default();
                while Instant::now() < until {
                    let started = Instant::now();
                    session.run(sql).map_err(|error| error.to_string())?;
                    load.slowest = load.slowest.max(started.elapsed());
                    load.statements += 1;
                    thread::sleep(pause);
                }
                Ok(load)
            })
        })
        .collect();
    let mut all = Load::default();
    for thread in threads {
        let load = thread.join().map_err(|_| "a client panicked")??;
        ensure!(load.statements > 0, "a client was never served");
        all.statements += load.statements;
        all.slowest = all.slowest.max(load.slowest);
    }
    Ok(all)
}

fn sessions(server: SocketAddrV4, account: Account, count: usize) -> Result<Vec<Session>, Box<dyn Error>> {
    let login = Login::new(account).schema("test");
    (0..count).map(|_| Ok(Session::with(server, &login)?)).collect()
}

/// Sessions of one worker only: the ids of its sessions leave its number when divided by the number of workers.
fn sessions_of_worker(
    server: SocketAddrV4,
    account: Account,
    count: usize,
    worker: u32,
) -> Result<Vec<Session>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut others = Vec::new();
    while found.len() < count {
        ensure!(others.len() < 20 * count + 100, "no session of worker {worker} comes up");
        let session = sessions(server, account, 1)?.remove(0);
        if session.id() % 2 == worker { found.push(session) } else { others.push(session) }
    }
    Ok(found)
}

fn everybody_is_served(env: &Env) -> CaseResult {
    let users = [env.account()?, env.account()?];
    let weir = weir_with(env, 4, 2, &users)?;
    let most = most_connections(env, &users, || {
        let mut all = Vec::new();
        for user in users {
            all.extend(sessions(weir.addr(), user, 12)?);
        }
        // To the writer, so that all of them want the same four connections.
        let load = load(all, "DO SLEEP(0.005)", Duration::ZERO, LOAD)?;
        ensure!(load.slowest < SERVED, "{load:?}");
        ensure!(load.statements > 100, "{load:?}");
        Ok(())
    })?;
    ensure!(most <= 4, "{most} connections to one node");
    Ok(())
}

fn one_connection_for_two_workers(env: &Env) -> CaseResult {
    let user = env.account()?;
    let weir = weir_with(env, 1, 2, &[user])?;
    let most = most_connections(env, &[user], || {
        let mut all = sessions_of_worker(weir.addr(), user, 4, 0)?;
        all.extend(sessions_of_worker(weir.addr(), user, 4, 1)?);
        let load = load(all, "DO 1", Duration::ZERO, LOAD)?;
        ensure!(load.slowest < SERVED, "{load:?}");
        Ok(())
    })?;
    // The server may still be closing one when the next one is there.
    ensure!(most <= 2, "{most} connections to one node");
    Ok(())
}

fn busy_and_idle_worker(env: &Env) -> CaseResult {
    let user = env.account()?;
    let weir = weir_with(env, 4, 2, &[user])?;
    let most = most_connections(env, &[user], || {
        let busy = sessions_of_worker(weir.addr(), user, 16, 0)?;
        let idle = sessions_of_worker(weir.addr(), user, 2, 1)?;
        let busy = thread::spawn(move || {
            load(busy, "DO SLEEP(0.01)", Duration::ZERO, LOAD + Duration::from_secs(1))
                .map_err(|error| error.to_string())
        });
        thread::sleep(Duration::from_millis(500));
        let seldom = load(idle, "DO 1", Duration::from_millis(100), LOAD)?;
        let busy = busy.join().map_err(|_| "panicked")??;
        ensure!(seldom.slowest < SERVED, "the other worker's: {seldom:?}, busy {busy:?}");
        ensure!(busy.slowest < SERVED, "the busy worker's: {busy:?}");
        Ok(())
    })?;
    ensure!(most <= 4, "{most} connections to one node");
    Ok(())
}

fn busy_and_idle_user(env: &Env) -> CaseResult {
    let users = [env.account()?, env.account()?];
    let weir = weir_with(env, 2, 1, &users)?;
    let busy = sessions(weir.addr(), users[0], 16)?;
    let idle = sessions(weir.addr(), users[1], 1)?;
    let busy = thread::spawn(move || {
        load(busy, "DO SLEEP(0.01)", Duration::ZERO, LOAD + Duration::from_secs(1))
            .map_err(|error| error.to_string())
    });
    thread::sleep(Duration::from_millis(500));
    let seldom = load(idle, "DO 1", Duration::from_millis(50), LOAD)?;
    let busy = busy.join().map_err(|_| "panicked")??;
    ensure!(seldom.slowest < SERVED, "the other user's: {seldom:?}, busy {busy:?}");
    ensure!(busy.slowest < SERVED, "the busy user's: {busy:?}");
    Ok(())
}

fn clients_are_spread(env: &Env) -> CaseResult {
    let weir = env.weir(|config| {
        config.variable("threads", 2);
    })?;
    let mut open = sessions(weir.addr(), Account::APP, 64)?;
    let of_first = |open: &[Session]| open.iter().filter(|session| session.id() % 2 == 0).count();
    ensure!((24..=40).contains(&of_first(&open)), "{} of 64 sessions are worker 0's", of_first(&open));
    let mut ids: Vec<u32> = open.iter().map(Session::id).collect();
    ids.sort_unstable();
    ids.dedup();
    ensure!(ids.len() == 64, "only {} different connection ids", ids.len());
    // All of one worker's clients leave: those who come then go to it.
    open.retain(|session| session.id() % 2 == 0);
    let wanted = format!("  Threads: {}  ", open.len());
    eventually("only they are left", Duration::from_secs(20), || {
        let first = open[0].raw();
        first.send_command(&[Command::Statistics.code()])?;
        let packet = first.packets().read_packet()?;
        Ok(String::from_utf8_lossy(&packet.payload).contains(&wanted))
    })?;
    let before = open.len();
    open.extend(sessions(weir.addr(), Account::APP, 32)?);
    let gained = of_first(&open) - before;
    ensure!(gained <= 12, "{gained} of 32 new sessions went to the worker that had all the others");
    Ok(())
}

fn transaction_ends(env: &Env) -> CaseResult {
    let (user, schema) = (env.account()?, env.schema()?);
    env.cluster()?.node(1).root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY)"))?;
    let weir = weir_with(env, 1, 1, &[user])?;
    let mut holder = sessions(weir.addr(), user, 1)?.remove(0);
    for end in ["COMMIT", "ROLLBACK", "SET autocommit = 1", ""] {
        holder.run(if end.starts_with("SET") { "SET autocommit = 0" } else { "BEGIN" })?;
        holder.run(&format!("SELECT COUNT(*) FROM {schema}.t FOR UPDATE"))?;
        let mut waiter = sessions(weir.addr(), user, 1)?.remove(0);
        let waiting = thread::spawn(move || {
            let started = Instant::now();
            waiter
                .value("SELECT 5 FOR UPDATE")
                .map(|value| (value, started.elapsed()))
                .map_err(|e| e.to_string())
        });
        thread::sleep(Duration::from_millis(300));
        ensure!(!waiting.is_finished(), "{end:?}: two sessions at once on one connection");
        if end.is_empty() {
            holder.vanish();
            holder = sessions(weir.addr(), user, 1)?.remove(0);
        } else {
            holder.run(end)?;
        }
        let (value, waited) = waiting.join().map_err(|_| "panicked")??;
        ensure!(value == "5" && waited < SERVED, "{end:?}: {value} after {waited:?}");
    }
    Ok(())
}

fn idle_connections_shrink(env: &Env) -> CaseResult {
    let user = env.account()?;
    let node = env.cluster()?.node(2);
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(node.addr(), 1, &[("max_connections", 20.into())]);
    config.user(user, 1, &[]);
    config.variable("free_connections_pct", 10);
    config.variable("ping_interval_server_msec", 1000);
    let weir = env.weir_with(&config)?;
    load(sessions(weir.addr(), user, 20)?, "DO SLEEP(0.05)", Duration::ZERO, Duration::from_millis(500))?;
    let mut direct = Session::open(node.addr(), "test")?;
    let sql = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '{}'", user.user);
    let at_first: u64 = direct.value(&sql)?.parse()?;
    ensure!(at_first > 5, "only {at_first} connections after the load");
    eventually("2 of 20 connections are kept", Duration::from_secs(15), || {
        Ok(direct.value(&sql)?.parse::<u64>()? <= 2 + 1)
    })?;
    // And they still serve.
    sessions(weir.addr(), user, 1)?.remove(0).run("DO 1")?;
    Ok(())
}
