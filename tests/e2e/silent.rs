//! Servers that fall silent: what they send and should get is lost, their connections stay open, and nobody says
//! goodbye. Later they are heard again. (Whole nodes that are cut off, in network namespaces: `make failover`.)

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Forwarder, Session, ensure, eventually};

use crate::switchover::{wait_writer, writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("silent::reads_go_on_when_a_reader_falls_silent_and_it_comes_back", reader),
        Case::serial("silent::writes_wait_for_the_successor_of_a_silent_writer", silent_writer),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);
const CLIENTS: usize = 4;
/// Which node answers, asked for in a way that goes to a reader.
const NODE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

/// A Weir whose way to one node can fall silent: the writer n1, or the reader n2. `account` may write `weir.topology`.
fn weir(env: &Env, silences: usize, account: Option<Account>) -> Result<(Weir, Forwarder), Box<dyn Error>> {
    let way = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
    let forwarder = Forwarder::start(way, env.cluster()?.node(silences).addr())?;
    let mut config = WeirConfig::for_servers(&[], env.free_address()?);
    for node in env.cluster()?.nodes() {
        let address = if node.index() == silences { way } else { node.addr() };
        let weight = if node.index() == 1 { 1000 } else { 1 };
        config.server(address, hostgroup::WRITER, &[("weight", weight.into())]);
    }
    config.variable("threads", 2).variable("connect_timeout_server_max", 60_000);
    let row = [("writer_hostgroup", hostgroup::WRITER.into()), ("unconfirmed_failover_ms", 1000.into())];
    config.push("weir_topology", &row);
    if let Some(account) = account {
        // One that may keep the epoch row: then the old writer is left for good.
        config.user(account, hostgroup::WRITER, &[]);
        config.monitor(account);
    }
    let weir = env.weir_with(&config)?;
    wait_writer(&weir)?;
    Ok((weir, forwarder))
}

/// Whether one of some reads runs on a node.
fn serves(session: &mut Session, node: &str) -> Result<bool, Box<dyn Error>> {
    for _ in 0..12 {
        if session.value(NODE)? == node {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Reads on kept and on new connections; every answer has to be whole.
fn read(weir: &Weir, reads: &AtomicU32, stop: &AtomicBool, is_new: bool) -> Result<(), String> {
    let told = |error: Box<dyn Error>| error.to_string();
    let mut session = Session::open(weir.addr(), "test").map_err(|error| error.to_string())?;
    while !stop.load(Ordering::Relaxed) {
        let one = |session: &mut Session| -> CaseResult {
            let rows = session.rows("SELECT seq, VERSION() FROM seq_1_to_50")?;
            ensure!(rows.len() == 50 && rows[49][0] == "50", "{rows:?}");
            Ok(())
        };
        one(&mut session).map_err(told)?;
        reads.fetch_add(1, Ordering::Relaxed);
        if is_new {
            session = Session::open(weir.addr(), "test").map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn reader(env: &Env) -> CaseResult {
    let (weir, way) = weir(env, 2, None)?;
    let mut session = Session::open(weir.addr(), "test")?;
    eventually("n2 serves reads", PATIENCE, || serves(&mut session, "n2"))?;
    let mut inside = Session::open(weir.addr(), "test")?;
    eventually("a transaction is on n2", PATIENCE, || {
        inside.run("ROLLBACK")?;
        inside.run("START TRANSACTION READ ONLY")?;
        Ok(inside.value(NODE)? == "n2")
    })?;
    let (stop, counts) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; CLIENTS]);
    thread::scope(|scope| -> CaseResult {
        let (stop, weir) = (&stop, &weir);
        let threads: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(at, count)| scope.spawn(move || read(weir, count, stop, at % 2 == 1)))
            .collect();
        let more = |what: &str| {
            let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            eventually(what, PATIENCE, || {
                let is_more =
                    |(count, before): (&AtomicU32, u32)| count.load(Ordering::Relaxed) > before + 20;
                Ok(counts.iter().zip(before).all(is_more))
            })
        };
        let done = (|| {
            more("all read")?;
            way.silence(true);
            // Also those whose read was on its way to n2.
            more("all read while n2 is silent")?;
            ensure!(!serves(&mut session, "n2")?, "a silent node answers");
            way.silence(false);
            eventually("n2 serves again", PATIENCE, || serves(&mut session, "n2"))?;
            more("all read when it is back")
        })();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| "a reader has panicked")??;
        }
        done
    })?;
    // Its server was silent, not gone: the transaction has lost nothing, or is told so.
    if let Err(error) = inside.value(NODE) {
        ensure!(error.to_string().contains("transaction"), "{error}");
    }
    Ok(())
}

/// What a client that writes has met with.
#[derive(Debug, Default)]
struct Written {
    acknowledged: Vec<u32>,
    unknown: Vec<u32>,
}

/// Writes numbered rows. One whose outcome is unknown is not written again.
fn write(
    weir: &Weir,
    login: &Login,
    client: usize,
    count: &AtomicU32,
    stop: &AtomicBool,
) -> Result<Written, String> {
    let text = |error: weir_testkit::TestkitError| error.to_string();
    let mut written = Written::default();
    let mut session = Session::with(weir.addr(), login).map_err(text)?;
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        match session.run(&format!("INSERT INTO numbers (client, number) VALUES ({client}, {number})")) {
            Ok(_) => {
                written.acknowledged.push(number);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) if error.to_string().contains("it may or may not have taken effect") => {
                written.unknown.push(number);
                session = Session::with(weir.addr(), login).map_err(text)?;
            }
            Err(error) => return Err(format!("client {client}, row {number}: {error}")),
        }
    }
    Ok(written)
}

fn silent_writer(env: &Env) -> CaseResult {
    env.forget_epochs()?;
    let account = env.account()?;
    let (weir, way) = weir(env, 1, Some(account))?;
    let (before, schema) = (writer(&weir)?, env.schema()?);
    let login = Login::new(account).schema(&schema);
    Session::with(weir.addr(), &login)?.run(
        "CREATE TABLE numbers (id INT AUTO_INCREMENT PRIMARY KEY, client INT, number INT, KEY (client))",
    )?;
    let (stop, counts) = (AtomicBool::new(false), [const { AtomicU32::new(0) }; CLIENTS]);
    let written = thread::scope(|scope| -> Result<Vec<Written>, Box<dyn Error>> {
        let (stop, weir, login) = (&stop, &weir, &login);
        let threads: Vec<_> = counts
            .iter()
            .enumerate()
            .map(|(at, count)| scope.spawn(move || write(weir, login, at, count, stop)))
            .collect();
        let more = |what: &str| {
            let before = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
            eventually(what, PATIENCE, || {
                let is_more = |(count, before): (&AtomicU32, u32)| count.load(Ordering::Relaxed) > before + 3;
                Ok(counts.iter().zip(before).all(is_more))
            })
        };
        let done = (|| {
            more("all write")?;
            way.silence(true);
            eventually("there is another writer", PATIENCE, || {
                let now = writer(weir)?;
                Ok(!now.is_empty() && now != before)
            })?;
            more("all write at the next writer")?;
            // What the old writer should have got reaches it now.
            way.silence(false);
            more("all write when it is back")?;
            ensure!(writer(weir)? != before, "the role has gone back");
            Ok(())
        })();
        stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in threads {
            all.push(thread.join().map_err(|_| "a writer has panicked")??);
        }
        done.map(|()| all)
    })?;
    let mut straight = Session::open(env.cluster()?.node(3).addr(), &schema)?;
    straight.run("SET SESSION wsrep_sync_wait = 1")?;
    for (client, Written { acknowledged, unknown }) in written.iter().enumerate() {
        ensure!(unknown.len() <= 1, "client {client}: unknown {unknown:?}");
        let sql = format!("SELECT number, COUNT(*) FROM numbers WHERE client = {client} GROUP BY number");
        let found: Vec<(u32, String)> = straight
            .rows(&sql)?
            .into_iter()
            .map(|row| Ok::<_, std::num::ParseIntError>((row[0].parse()?, row[1].clone())))
            .collect::<Result<_, _>>()?;
        ensure!(found.iter().all(|(_, count)| count == "1"), "client {client}: written twice: {found:?}");
        let is_there = |number: &u32| found.iter().any(|(there, _)| there == number);
        let lost: Vec<&u32> = acknowledged.iter().filter(|number| !is_there(number)).collect();
        ensure!(lost.is_empty(), "client {client}: acknowledged and lost: {lost:?}");
        ensure!(found.len() <= acknowledged.len() + unknown.len(), "client {client}: {found:?}");
    }
    // It takes its row of the epoch away.
    weir.sigterm()?;
    ensure!(weir.wait_exit(PATIENCE)?.success(), "{}", weir.log());
    Ok(())
}
