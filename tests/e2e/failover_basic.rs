//! Nodes that stop and nodes that are killed, under a load of numbered rows: the service goes on, no acknowledged row
//! is lost, none is there twice, and only what was in flight ends with an error.

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_testkit::wire::Login;
use weir_testkit::{Account, Node, TestkitError, Weir};
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("failover_basic::a_reader_stops", |env| accident(env, Whom::Reader, Node::stop)),
        Case::serial("failover_basic::a_reader_is_killed", |env| accident(env, Whom::Reader, Node::kill)),
        Case::serial("failover_basic::the_writer_stops", |env| accident(env, Whom::Writer, Node::stop)),
        Case::serial("failover_basic::the_writer_is_killed", |env| accident(env, Whom::Writer, Node::kill)),
        Case::serial("failover_basic::one_node_is_left", one_node_is_left),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Reader,
    Writer,
}

const CLIENTS: u32 = 6;
/// Galera needs a few seconds to give a killed node up, longer on a busy machine.
const PAUSE_MAX: Duration = Duration::from_secs(20);

/// Which node serves, asked for in a way that goes to a reader.
pub(crate) const READ_NAME: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

fn weir(env: &Env) -> Result<Weir, String> {
    env.weir(|config| {
        config.variable("threads", 2).variable("connect_timeout_server_max", 20_000);
    })
}

fn accident(env: &Env, whom: Whom, happen: fn(&Node) -> Result<(), TestkitError>) -> CaseResult {
    let (cluster, schema, weir) = (env.cluster()?, env.schema()?, weir(env)?);
    make_table(env, &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let writer = writer_name(&mut session)?;
    serves_reads_on(&mut session, 2)?;
    let victim = cluster
        .nodes()
        .iter()
        .rfind(|node| (node.name() == writer) == (whom == Whom::Writer))
        .ok_or("no such node")?;

    let load = Load::start(weir.addr(), &schema);
    thread::sleep(Duration::from_secs(2));
    happen(victim)?;
    thread::sleep(Duration::from_secs(6));
    let after = writer_name(&mut Session::open(weir.addr(), &schema)?)?;
    ensure!((after == writer) == (whom == Whom::Reader), "the writer was {writer} and is {after}");
    thread::sleep(Duration::from_secs(1));
    let done = load.finish()?;
    done.check(env, &schema, victim.index())?;

    // It comes back and serves again, as a reader.
    cluster.start_node(victim.index())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    eventually("the node serves reads again", Duration::from_secs(15), || {
        Ok((0..6).any(|_| session.value(READ_NAME).is_ok_and(|name| name == victim.name())))
    })?;
    // Galera may take the writer for the donor, which then gives way to the third node; the role never goes back.
    let now = writer_name(&mut session)?;
    ensure!(now != victim.name(), "the writer moved from {after} back to {now}");
    // With everything that it missed.
    let rows = session.value("SELECT COUNT(*) FROM t FOR UPDATE")?;
    let there = cluster
        .node(victim.index())
        .root_query(&format!("SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM {schema}.t"))?;
    ensure!(there == [[rows.clone()]], "{} has {there:?} rows of {rows}", victim.name());
    Ok(())
}

fn one_node_is_left(env: &Env) -> CaseResult {
    let (cluster, schema, weir) = (env.cluster()?, env.schema()?, weir(env)?);
    make_table(env, &schema)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let writer = writer_name(&mut session)?;
    let load = Load::start(weir.addr(), &schema);
    // In good order, so that the one that is left keeps its quorum: first the other reader, then the writer.
    let reader = cluster.nodes().iter().find(|node| node.name() != writer).ok_or("no reader")?;
    let other = cluster.nodes().iter().rfind(|node| node.name() != writer).ok_or("no reader")?;
    thread::sleep(Duration::from_secs(1));
    reader.stop()?;
    thread::sleep(Duration::from_secs(2));
    let old_writer = cluster.nodes().iter().find(|node| node.name() == writer).ok_or("no writer")?;
    old_writer.stop()?;
    thread::sleep(Duration::from_secs(5));
    // The only node writes and reads.
    let mut session = Session::open(weir.addr(), &schema)?;
    let (writes, reads) = (writer_name(&mut session)?, session.value(READ_NAME)?);
    ensure!(writes == other.name() && reads == other.name(), "{writes} writes and {reads} reads");
    let done = load.finish()?;
    let gone = old_writer.index();
    done.check(env, &schema, gone)?;
    cluster.start_node(reader.index())?;
    cluster.start_node(gone)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    serves_reads_on(&mut session, 2)
}

pub(crate) fn make_table(env: &Env, schema: &str) -> CaseResult {
    let cluster = env.cluster()?;
    let sql = format!(
        "CREATE TABLE {schema}.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, n INT NOT NULL, \
         KEY (client, n))"
    );
    cluster.node(1).root_query(&sql)?;
    for node in cluster.nodes() {
        node.root_query(&format!("SET wsrep_sync_wait = 15; SELECT COUNT(*) FROM {schema}.t"))?;
    }
    Ok(())
}

pub(crate) fn writer_name(session: &mut Session) -> Result<String, Box<dyn Error>> {
    Ok(session.value("SELECT @@wsrep_node_name FOR UPDATE")?)
}

/// Waits until so many different nodes serve reads.
pub(crate) fn serves_reads_on(session: &mut Session, nodes: usize) -> CaseResult {
    let mut seen = BTreeSet::new();
    eventually(&format!("{nodes} nodes serve reads"), Duration::from_secs(15), || {
        seen.insert(session.value(READ_NAME)?);
        Ok(seen.len() >= nodes)
    })
}

/// Clients that insert numbered rows and read each of them back.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Done>>,
}

/// What the clients of a load have seen.
#[derive(Default)]
pub(crate) struct Done {
    /// Rows (client, n) that were acknowledged.
    acknowledged: BTreeSet<(u32, u32)>,
    /// Rows of which nobody can say.
    unknown: BTreeSet<(u32, u32)>,
    errors: Vec<String>,
    /// Reads that did not see the row written just before.
    stale: Vec<String>,
    /// The longest time without an acknowledgement for a client.
    pause: Duration,
}

impl Load {
    pub(crate) fn start(server: SocketAddrV4, schema: &str) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = (1..=CLIENTS)
            .map(|client| {
                let (stop, login) = (Arc::clone(&stop), Login::new(Account::APP).schema(schema));
                thread::spawn(move || {
                    let mut done = Done::default();
                    done.work(server, &login, client, &stop);
                    done
                })
            })
            .collect();
        Load { stop, clients }
    }

    pub(crate) fn finish(self) -> Result<Done, String> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Done::default();
        for client in self.clients {
            let done = client.join().map_err(|_| "a client panicked")?;
            all.acknowledged.extend(done.acknowledged);
            all.unknown.extend(done.unknown);
            all.errors.extend(done.errors);
            all.stale.extend(done.stale);
            all.pause = all.pause.max(done.pause);
        }
        Ok(all)
    }
}

impl Done {
    fn work(&mut self, server: SocketAddrV4, login: &Login, client: u32, stop: &AtomicBool) {
        let mut session = None;
        let mut last = Instant::now();
        for n in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let Some(open) = session.take().or_else(|| self.open(server, login)) else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            session = self.write_and_read(open, client, n);
            if self.acknowledged.contains(&(client, n)) {
                self.pause = self.pause.max(last.elapsed());
                last = Instant::now();
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    fn open(&mut self, server: SocketAddrV4, login: &Login) -> Option<Session> {
        Session::with(server, login).map_err(|error| self.errors.push(format!("login: {error}"))).ok()
    }

    /// Returns the session if it is still of use.
    fn write_and_read(&mut self, mut session: Session, client: u32, n: u32) -> Option<Session> {
        match session.query(&format!("INSERT INTO t (client, n) VALUES ({client}, {n})")) {
            Err(error) => {
                self.unknown.insert((client, n));
                self.errors.push(format!("INSERT {client}/{n}: {error}"));
                return None;
            }
            Ok(answer) => match answer.results.first() {
                Some(Outcome::Ok(_)) => {
                    self.acknowledged.insert((client, n));
                }
                Some(Outcome::Err { code, sqlstate, message }) => {
                    self.errors.push(format!("INSERT {client}/{n}: {code} ({sqlstate}) {message}"));
                    // Only these leave it open whether the row is there.
                    if *code == 1053 || sqlstate == "08007" {
                        self.unknown.insert((client, n));
                        return None;
                    }
                    return Some(session);
                }
                other => self.errors.push(format!("INSERT {client}/{n}: {other:?}")),
            },
        }
        match session.value(&format!("SELECT COUNT(*) FROM t WHERE client = {client} AND n = {n}")) {
            Ok(count) if count == "1" => Some(session),
            Ok(count) => {
                self.stale.push(format!("{client}/{n} is seen {count} times"));
                Some(session)
            }
            Err(error) => {
                self.errors.push(format!("SELECT {client}/{n}: {error}"));
                None
            }
        }
    }

    /// `gone` is a node that does not run, or that is not the cluster's.
    pub(crate) fn check(&self, env: &Env, schema: &str, gone: usize) -> CaseResult {
        let cluster = env.cluster()?;
        let alive = cluster.nodes().iter().find(|node| node.index() != gone && node.is_running());
        let rows = alive.ok_or("no node runs")?.root_query(&format!(
            "SET wsrep_sync_wait = 15; SELECT client, n, COUNT(*) FROM {schema}.t GROUP BY client, n"
        ))?;
        let mut there = BTreeSet::new();
        for row in &rows {
            let [client, n, count] = row.as_slice() else { return Err(format!("{row:?}").into()) };
            ensure!(count == "1", "row {client}/{n} is there {count} times");
            there.insert((client.parse()?, n.parse()?));
        }
        let lost: Vec<_> = self.acknowledged.difference(&there).take(5).collect();
        ensure!(lost.is_empty(), "acknowledged, and not there: {lost:?}; errors: {:#?}", self.errors);
        let odd: Vec<_> = there
            .iter()
            .filter(|row| !self.acknowledged.contains(row) && !self.unknown.contains(row))
            .collect();
        ensure!(odd.is_empty(), "there although it was refused: {odd:?}; errors: {:#?}", self.errors);
        ensure!(self.stale.is_empty(), "not seen after it was written: {:?}", self.stale);
        ensure!(self.acknowledged.len() > 200, "only {} rows: {:#?}", self.acknowledged.len(), self.errors);
        ensure!(self.pause < PAUSE_MAX, "a client waited {:?}", self.pause);
        // One statement of each client was in flight.
        let in_flight = CLIENTS as usize;
        ensure!(self.errors.len() <= in_flight, "{} errors: {:#?}", self.errors.len(), self.errors);
        Ok(())
    }
}
