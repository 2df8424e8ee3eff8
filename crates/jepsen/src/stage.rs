//! Starts the servers of a run, with the schema and the tables of the workloads.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_lab::report::Machine;
use weir_lab::rows;
use weir_lab::servers::network::Network;
use weir_lab::servers::{Servers, Start};
use weir_lab::{Error, Stop};
use weir_testkit::{Account, OUTCOMES_TABLE};

use crate::args::Args;
use crate::nemesis::Fault;
use crate::place::Place;
use crate::workload::Workload;

/// The schema of all workloads.
pub(crate) const SCHEMA: &str = "jepsen";
/// HAProxy's check logs in with it.
pub(crate) const CHECK_USER: &str = "haproxy_check";
/// Nothing that was acknowledged may be lost in a crash, and snapshots are snapshots: what docs/guide/consistency.md asks for.
const GALERA_SETTINGS: &str = "innodb_flush_log_at_trx_commit=1\ninnodb_snapshot_isolation=ON";
/// The same of a group's members, which shall have it after a crash, too.
const GROUP_SETTINGS: &str = "SET PERSIST innodb_flush_log_at_trx_commit = 1; SET PERSIST sync_binlog = 1";
/// Rows of one INSERT.
const ROWS_AT_ONCE: u64 = 5_000;

/// Running servers.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// What was asked for.
    pub(crate) args: &'a Args,
    /// Raised by Ctrl-C.
    pub(crate) stop: Stop,
    /// Their kind.
    pub(crate) place: Place,
    // Dropped in this order: servers before the network that they are in.
    /// The servers.
    pub(crate) servers: Servers,
    /// The namespaces that they are in, if links are to be cut.
    pub(crate) network: Option<Network>,
    /// Why there are none.
    pub(crate) no_network: Option<String>,
    next: AtomicU32,
}

impl<'a> Stage<'a> {
    /// Starts them, in network namespaces if links are to be cut.
    pub(crate) fn start(args: &'a Args, place: Place, stop: Stop) -> Result<Stage<'a>, Error> {
        let is_cut = |fault: &Fault| fault.cuts_links();
        let (mut network, mut no_network) = (None, None);
        if args.guards().is_empty() && args.faults(place).iter().any(is_cut) {
            match Network::create() {
                Ok(made) => {
                    made.enter()?;
                    network = Some(made);
                }
                Err(Error::Impossible(why)) if !args.names(Fault::Partition) => no_network = Some(why),
                Err(error) => return Err(error),
            }
        }
        let places = network.as_ref().map(Network::places).unwrap_or_default();
        let servers = start(args, place, &stop, places)?;
        let stage = Stage { args, stop, place, servers, network, no_network, next: AtomicU32::new(1) };
        if place == Place::Group {
            stage.on_each(GROUP_SETTINGS)?;
        }
        stage.for_all(&rows::schema_sql())?;
        stage.for_all(&format!("CREATE DATABASE {SCHEMA}; CREATE USER {CHECK_USER}@'%'"))?;
        stage.for_all(OUTCOMES_TABLE)?;
        stage.wait_alike()?;
        stage.servers.repair()?;
        Ok(stage)
    }

    /// What it runs on.
    pub(crate) fn machine(&self) -> Result<Machine, Error> {
        let version = self.servers.root_query(1, "SELECT VERSION()")?.concat().concat();
        Ok(Machine::observe(&version, []))
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether InnoDB's log is mapped into memory: SIGKILL loses nothing of it, whatever the settings are.
    pub(crate) fn has_mapped_log(&self) -> bool {
        let log = std::fs::read_to_string(self.servers.log_path(1)).unwrap_or_default();
        log.contains("(memory-mapped)")
    }

    /// The faults of a run that can be done here.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let mut faults = self.args.faults(self.place);
        faults.retain(|fault| !fault.cuts_links() || self.network.is_some());
        faults
    }

    /// Statements on the first server that does not refuse them: all others get what they do.
    pub(crate) fn for_all(&self, sql: &str) -> Result<(), Error> {
        let mut refused = None;
        for server in self.servers.makers()? {
            match self.servers.root_query(server.index, sql) {
                Ok(_) => return Ok(()),
                // A group's secondaries do.
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(()), |error| Err(error.into()))
    }

    /// A statement on every server, which others do not get.
    pub(crate) fn on_each(&self, sql: &str) -> Result<(), Error> {
        self.servers
            .awake()
            .iter()
            .try_for_each(|server| Ok(self.servers.root_query(server.index, sql).map(drop)?))
    }

    /// Makes the workloads' tables anew, with their rows.
    pub(crate) fn make_tables(
        &self,
        workloads: &[Workload],
        rotating: u64,
        sessions: u64,
    ) -> Result<(), Error> {
        for workload in workloads {
            self.for_all(&format!("USE {SCHEMA}; {}", workload.table_sql()))?;
            let (rows, value) = workload.rows(rotating, sessions);
            let ids: Vec<u64> = (0..rows).collect();
            for some in ids.chunks(usize::try_from(ROWS_AT_ONCE).unwrap_or(usize::MAX)) {
                let rows: Vec<String> = some.iter().map(|id| format!("({id}, {value})")).collect();
                // A statement each: together those of an hour are longer than an argument of a program may be.
                let (table, rows) = (workload.table(), rows.join(", "));
                self.for_all(&format!("INSERT INTO {SCHEMA}.{table} (id, v) VALUES {rows}"))?;
            }
        }
        self.wait_alike()
    }

    /// Waits until all servers have what was made before.
    fn wait_alike(&self) -> Result<(), Error> {
        let table = format!("{SCHEMA}.made_{}", self.number());
        self.for_all(&format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))?;
        let addresses: Vec<SocketAddrV4> = self.servers.awake().iter().map(|server| server.address).collect();
        rows::wait_for_table(&addresses, &Account::APP.into(), &table)
    }
}

fn start(args: &Args, place: Place, stop: &Stop, places: Vec<weir_testkit::Place>) -> Result<Servers, Error> {
    let starter = Start {
        purpose: "jepsen",
        address: args.address,
        data_dir: &args.data_dir,
        keep: args.servers.keep,
        progress,
        stop,
    };
    let nodes = match place {
        Place::Group => return Ok(Servers::Group(starter.group()?)),
        Place::Galera => 3,
        Place::Galera5 => 5,
    };
    let galera = starter.galera(|options| {
        options.nodes = nodes;
        options.places = places;
        options.extra_cnf.push('\n');
        options.extra_cnf.push_str(GALERA_SETTINGS);
        for line in args.server_settings.split(';') {
            options.extra_cnf.push('\n');
            options.extra_cnf.push_str(line.trim());
        }
    })?;
    Ok(Servers::Galera(galera))
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("--- {line}");
}
