//! Sets the stage that scenarios share: the servers, and how a run through proxies is recorded and checked.

use std::cell::{Cell, OnceCell};
use std::net::SocketAddrV4;
use std::path::Path;

use weir_lab::figures::Figures;
use weir_lab::log_watch::Log;
use weir_lab::probe::Target;
use weir_lab::record::{Recording, Source};
use weir_lab::report::Machine;
use weir_lab::rows::{self, Audit, Rows};
use weir_lab::servers::network::Network;
use weir_lab::servers::{Server, Servers, Start, machine};
use weir_lab::{Error, Stop};
use weir_testkit::{Account, Family, Galera, Sysbench};

use crate::args::{Args, Scale};
use crate::peer::{Peer, PeerKind};
use crate::run::Run;
use crate::scenario::Place;

/// The longest that a proxy may take to serve writes and reads.
const READY_TIMEOUT_S: u64 = 60;
/// The longest until a server tells which rows it has.
const ROWS_TIMEOUT_S: u64 = 30;
/// HAProxy's check logs in with it.
pub(crate) const CHECK_USER: &str = "haproxy_check";

/// What is asked for, and the servers once a scenario needs them.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// What was asked for.
    pub(crate) args: &'a Args,
    /// How much of everything.
    pub(crate) scale: Scale,
    /// Raised by Ctrl-C.
    pub(crate) stop: Stop,
    place: Place,
    // Dropped in this order: servers before the network that they are in.
    servers: OnceCell<Servers>,
    network: OnceCell<Network>,
    machine: OnceCell<Machine>,
    group_priority: OnceCell<bool>,
    next: Cell<u32>,
}

impl<'a> Stage<'a> {
    /// Nothing is started yet.
    pub(crate) fn new(args: &'a Args, place: Place, stop: Stop) -> Stage<'a> {
        Stage {
            args,
            scale: args.scale(),
            place,
            stop,
            servers: OnceCell::new(),
            network: OnceCell::new(),
            machine: OnceCell::new(),
            group_priority: OnceCell::new(),
            next: Cell::new(1),
        }
    }

    /// The servers; the first caller waits for them.
    pub(crate) fn servers(&self) -> Result<&Servers, Error> {
        if self.servers.get().is_none() {
            let servers = self.start()?;
            // Nobody else has set it meanwhile: a stage belongs to one thread.
            let _ = self.servers.set(servers);
        }
        self.servers.get().ok_or_else(|| Error::Impossible("there are no servers".to_owned()))
    }

    /// The Galera cluster.
    pub(crate) fn cluster(&self) -> Result<&Galera, Error> {
        self.servers()?.galera()
    }

    /// The network of namespaces that the servers are in.
    pub(crate) fn network(&self) -> Result<&Network, Error> {
        self.network.get().ok_or_else(|| Error::Impossible("the servers are on loopback".to_owned()))
    }

    /// What it runs on, once servers were started.
    pub(crate) fn machine(&self) -> Option<&Machine> {
        self.machine.get()
    }

    /// Whether the threads of the Galera nodes' group messages have a real-time priority, once nodes were started.
    pub(crate) fn group_priority(&self) -> Option<bool> {
        self.group_priority.get().copied()
    }

    fn start(&self) -> Result<Servers, Error> {
        let starter = Start {
            purpose: "failover",
            address: self.args.address,
            data_dir: &self.args.data_dir,
            keep: self.args.servers.keep,
            progress,
            stop: &self.stop,
        };
        let servers = match self.place {
            Place::Galera => Servers::Galera(self.start_galera(&starter, Vec::new())?),
            Place::Namespaces => {
                // It stays, should the servers' start fail: the next scenario tries again.
                if self.network.get().is_none() {
                    let network = Network::create()?;
                    network.enter()?;
                    let _ = self.network.set(network);
                }
                Servers::Galera(self.start_galera(&starter, self.network()?.places())?)
            }
            Place::Group => Servers::Group(starter.group()?),
            Place::Replication => Servers::Replication(starter.replication(Family::Mariadb)?),
        };
        progress("filling sysbench's tables");
        let first = servers.all().first().map(|server| server.address);
        let first = first.ok_or_else(|| Error::Impossible("there are no servers".to_owned()))?;
        let amount = self.scale.load;
        let direct = Target { writes: first, reads: first };
        Sysbench { threads: amount.tables, ..amount.sysbench("oltp_read_write", direct) }.prepare()?;
        servers.root_query(1, &rows::schema_sql())?;
        servers.root_query(1, &format!("CREATE USER {CHECK_USER}@'%'"))?;
        Ok(servers)
    }

    fn start_galera(&self, starter: &Start<'_>, places: Vec<weir_testkit::Place>) -> Result<Galera, Error> {
        let cluster = starter.galera(|options| {
            options.provider_options.push(';');
            options.provider_options.push_str(&self.args.provider_options);
            options.group_priority = !self.args.no_group_priority;
            options.places = places;
        })?;
        let _ = self.machine.set(machine(&cluster)?);
        let _ = self.group_priority.set(cluster.has_group_priority());
        Ok(cluster)
    }

    /// All servers up and well.
    pub(crate) fn healthy(&self) -> Result<&Servers, Error> {
        let servers = self.servers()?;
        servers.repair()?;
        Ok(servers)
    }

    /// Removes what earlier scenarios' Weirs have left, which were killed with them: until their leases of minutes have
    /// ended, none moves the role on somebody's order.
    pub(crate) fn forget_weirs(&self) -> Result<(), Error> {
        let servers = self.servers()?;
        let Some(server) = servers.makers()?.into_iter().next() else { return Ok(()) };
        let is_there = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'weir' AND TABLE_NAME = 'instances'";
        if servers.root_query(server.index, is_there)?.is_empty() {
            return Ok(());
        }
        self.for_all("DELETE FROM weir.instances")
    }

    /// A statement on the first server that does not refuse it: all the others get what it does.
    fn for_all(&self, sql: &str) -> Result<(), Error> {
        let servers = self.servers()?;
        // A group's secondaries refuse it, and one of the servers does not.
        let mut refused = None;
        let done = servers.makers()?.iter().any(|server| match servers.root_query(server.index, sql) {
            Ok(_) => true,
            Err(error) => {
                refused = Some(error);
                false
            }
        });
        refused.filter(|_| !done).map_or(Ok(()), |error| Err(error.into()))
    }

    /// A table for a run's rows, on all servers that run. `writer` is one that can write.
    fn table(&self) -> Result<String, Error> {
        let table = format!("rows_{}", self.number());
        let servers = self.servers()?;
        self.for_all(&rows::table_sql(&table))?;
        let addresses: Vec<SocketAddrV4> = servers.awake().iter().map(|server| server.address).collect();
        rows::wait_for_table(&addresses, &Account::APP.into(), &table)?;
        Ok(table)
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u32 {
        self.next.replace(self.next.get() + 1)
    }

    /// Starts a proxy in front of healthy servers, and a run through it that is under load and undisturbed for a
    /// moment.
    pub(crate) fn begin(&self, kind: PeerKind) -> Result<(Peer, Run), Error> {
        self.healthy()?;
        let peer = Peer::start(kind, self)?;
        let run = self.run(&[&peer], true)?;
        Ok((peer, run))
    }

    /// A run through the first of these proxies, with load or with probes alone. All of them and the servers are
    /// watched.
    pub(crate) fn run(&self, peers: &[&Peer], has_load: bool) -> Result<Run, Error> {
        self.run_with(peers, if has_load { self.scale.load.threads } else { 0 })
    }

    /// The same with so many threads of sysbench.
    pub(crate) fn run_with(&self, peers: &[&Peer], threads: u32) -> Result<Run, Error> {
        let first = peers.first().ok_or_else(|| Error::Impossible("no proxy".to_owned()))?;
        let servers = self.servers()?;
        let table = self.table()?;
        let log = |server: &Server| Log {
            source: Source::Server(u8::try_from(server.index).unwrap_or(0)),
            path: servers.log_path(server.index),
        };
        let mut logs: Vec<Log> = servers.all().iter().map(log).collect();
        logs.extend(peers.iter().zip(1..).filter_map(|(peer, number)| {
            Some(Log { source: Source::Proxy(number), path: peer.log_path()? })
        }));
        let run = Run::start(first.target(), table, logs, servers.dir(), self, threads)?;
        self.stop.wait(
            "writes and reads through the proxy",
            READY_TIMEOUT_S,
            || Ok(run.probes_answered()),
        )?;
        self.stop.sleep(self.scale.warm_up)?;
        Ok(run)
    }

    /// Ends a run, and compares what was acknowledged with what every server that runs has.
    pub(crate) fn finish(&self, run: Run) -> Result<Finished, Error> {
        let (table, threads) = (run.table().to_owned(), run.threads());
        let recording = run.finish()?;
        let servers = self.servers()?;
        servers.wait_alike()?;
        let mut found: Vec<(String, Rows)> = Vec::new();
        for server in servers.awake() {
            // A node that has just come back may need a moment.
            let mut rows = Err(Error::Impossible("nobody was asked".to_owned()));
            let asked = self.stop.wait("an answer about the rows", ROWS_TIMEOUT_S, || {
                rows = rows::rows(server.address, &Account::APP.into(), &table, servers.causal());
                Ok(rows.is_ok())
            });
            match (asked, rows) {
                (Err(Error::Interrupted), _) => return Err(Error::Interrupted),
                (_, rows) => found.push((server.name, rows?)),
            }
        }
        let audit = Audit::of(&recording.ledger(), &found);
        let rows = found.into_iter().next().map(|(_, rows)| rows).unwrap_or_default();
        Ok(Finished { recording, audit, rows, threads })
    }

    /// The directory of the servers' data and logs; proxies put theirs beside them.
    pub(crate) fn dir(&self) -> Result<&Path, Error> {
        Ok(self.servers()?.dir())
    }
}

/// A run that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    /// What was seen.
    pub(crate) recording: Recording,
    /// What became of the rows.
    pub(crate) audit: Audit,
    /// The rows as one server has them.
    pub(crate) rows: Rows,
    /// sysbench's threads.
    threads: u32,
}

impl Finished {
    /// What clients saw.
    pub(crate) fn figures(&self) -> Figures {
        Figures::new(&self.recording, &self.audit, self.threads)
    }
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("--- {line}");
}
