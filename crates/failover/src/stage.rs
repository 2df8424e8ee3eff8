//! What all scenarios on Galera share: the cluster, its proxies, and how a run is recorded.

use std::cell::{Cell, OnceCell};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::report::Machine;
use weir_testkit::{Galera, GaleraOptions, Node, preflight};

use crate::args::{Args, Scale};
use crate::error::FailoverError;
use crate::peer::{Peer, PeerKind};
use crate::record::{Recording, Source};
use crate::rows::{self, Audit};
use crate::run::Run;
use crate::watch::Log;

/// How quickly a Ctrl-C is noticed.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The longest that a proxy may take to serve writes and reads.
const READY_TIMEOUT_S: u64 = 60;
/// The group's timings: a killed node is given up after 2 s. What is in front of it can't be faster.
const PROVIDER_OPTIONS: &str = "evs.inactive_check_period=PT0.1S;evs.keepalive_period=PT0.1S;\
    evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.join_retrans_period=PT0.1S;evs.install_timeout=PT4S";
/// A statement that a server sees the end of others before.
const CAUSAL: &str = "SET SESSION wsrep_sync_wait = 15";
/// HAProxy's check logs in with it.
pub(crate) const CHECK_USER: &str = "haproxy_check";

/// What is asked for, and the servers once a scenario needs them.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// What was asked for.
    pub(crate) args: &'a Args,
    /// How much of everything.
    pub(crate) scale: Scale,
    cancel: Arc<AtomicBool>,
    cluster: OnceCell<Galera>,
    machine: OnceCell<Machine>,
    next: Cell<u32>,
}

impl<'a> Stage<'a> {
    /// Nothing is started yet.
    pub(crate) fn new(args: &'a Args, cancel: Arc<AtomicBool>) -> Stage<'a> {
        Stage {
            args,
            scale: args.scale(),
            cancel,
            cluster: OnceCell::new(),
            machine: OnceCell::new(),
            next: Cell::new(1),
        }
    }

    /// Raised by Ctrl-C.
    pub(crate) fn cancel(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.cancel)
    }

    /// The cluster; the first caller waits for it.
    pub(crate) fn cluster(&self) -> Result<&Galera, FailoverError> {
        if self.cluster.get().is_none() {
            let cluster = self.start_cluster()?;
            // Nobody else has set it meanwhile: there is one thread.
            let _ = self.cluster.set(cluster);
        }
        self.cluster.get().ok_or_else(|| FailoverError::Impossible("there is no cluster".to_owned()))
    }

    /// What it runs on, once a cluster was started.
    pub(crate) fn machine(&self) -> Option<&Machine> {
        self.machine.get()
    }

    fn start_cluster(&self) -> Result<Galera, FailoverError> {
        let cluster = Galera::start(GaleraOptions {
            keep: self.args.keep,
            progress,
            cancel: self.cancel(),
            provider_options: PROVIDER_OPTIONS.to_owned(),
            ..GaleraOptions::new("failover", self.args.address)
        })?;
        let first = cluster.node(1);
        let _ = self.machine.set(Machine::observe(&cluster)?);
        progress("filling sysbench's tables");
        let direct = crate::probe::Target { writes: first.addr(), reads: first.addr() };
        let amount = self.scale.load;
        weir_testkit::Sysbench { threads: amount.tables, ..amount.sysbench("oltp_read_write", direct) }
            .prepare()?;
        first.root_query(&rows::schema_sql())?;
        first.root_query(&format!("CREATE USER {CHECK_USER}@'%'"))?;
        Ok(cluster)
    }

    /// All nodes up and Synced, each with its own number in the table `node`.
    pub(crate) fn healthy_cluster(&self) -> Result<&Galera, FailoverError> {
        let cluster = self.cluster()?;
        cluster.repair()?;
        for node in cluster.nodes() {
            self.name_node(node)?;
        }
        Ok(cluster)
    }

    /// Writes a node's number into its own table `node`.
    pub(crate) fn name_node(&self, node: &Node) -> Result<(), FailoverError> {
        node.root_query(CAUSAL)?;
        node.root_query(&rows::node_sql(node.index(), "wsrep_on = OFF"))?;
        Ok(())
    }

    /// A table for a run's rows, on all nodes.
    pub(crate) fn table(&self) -> Result<String, FailoverError> {
        let table = format!("rows_{}", self.number());
        let cluster = self.cluster()?;
        let running: Vec<&Node> = cluster.nodes().iter().filter(|node| node.is_running()).collect();
        let first = running.first().ok_or_else(|| FailoverError::Impossible("no node runs".to_owned()))?;
        first.root_query(&rows::table_sql(&table))?;
        let servers: Vec<SocketAddrV4> = running.iter().map(|node| node.addr()).collect();
        rows::wait_for_table(&servers, &table)?;
        Ok(table)
    }

    /// A number that no other run has.
    pub(crate) fn number(&self) -> u32 {
        self.next.replace(self.next.get() + 1)
    }

    /// Starts a proxy in front of the healthy cluster, and a run through it that is under load and undisturbed for a
    /// moment.
    pub(crate) fn begin(&self, kind: PeerKind) -> Result<(Peer, Run), FailoverError> {
        self.healthy_cluster()?;
        let peer = Peer::start(kind, self)?;
        let run = self.run(&[&peer])?;
        Ok((peer, run))
    }

    /// A run through the first of these proxies. All of them and the nodes are watched.
    pub(crate) fn run(&self, peers: &[&Peer]) -> Result<Run, FailoverError> {
        let first = peers.first().ok_or_else(|| FailoverError::Impossible("no proxy".to_owned()))?;
        let cluster = self.cluster()?;
        let table = self.table()?;
        let nodes = cluster.nodes().iter().map(|node| Log {
            source: Source::Server(u8::try_from(node.index()).unwrap_or(0)),
            path: node.log_path(),
        });
        let proxies = peers
            .iter()
            .zip(1..)
            .filter_map(|(peer, number)| Some(Log { source: Source::Proxy(number), path: peer.log_path()? }));
        let run = Run::start(first.target(), table, nodes.chain(proxies).collect(), cluster.dir(), self)?;
        self.wait("writes and reads through the proxy", READY_TIMEOUT_S, || Ok(run.probes_answered()))?;
        self.pause(self.scale.warm_up)?;
        Ok(run)
    }

    /// What a run's rows have become: asks every node that runs and is Synced.
    pub(crate) fn audit(&self, table: &str, recording: &Recording) -> Result<Audit, FailoverError> {
        let mut servers = Vec::new();
        for node in self.cluster()?.nodes().iter().filter(|node| node.is_running() && !node.is_paused()) {
            servers.push((node.name(), rows::rows(node.addr(), table, Some(CAUSAL))?));
        }
        Ok(Audit::of(recording, &servers))
    }

    /// Waits, unless somebody presses Ctrl-C.
    pub(crate) fn pause(&self, time: Duration) -> Result<(), FailoverError> {
        let deadline = Instant::now() + time;
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return Err(FailoverError::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(CANCEL_POLL_INTERVAL));
        }
    }

    /// Waits until `condition` holds.
    pub(crate) fn wait(
        &self,
        what: &str,
        timeout_s: u64,
        mut condition: impl FnMut() -> Result<bool, FailoverError>,
    ) -> Result<(), FailoverError> {
        let deadline = Instant::now() + Duration::from_secs(timeout_s);
        while !condition()? {
            if Instant::now() > deadline {
                return Err(FailoverError::Timeout { what: what.to_owned(), timeout_s });
            }
            self.pause(CANCEL_POLL_INTERVAL)?;
        }
        Ok(())
    }
}

/// An address of 127.0.0.1 that nobody uses.
pub(crate) fn free_address() -> Result<SocketAddrV4, FailoverError> {
    Ok(SocketAddrV4::new(Ipv4Addr::LOCALHOST, preflight::free_port(Ipv4Addr::LOCALHOST)?))
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("--- {line}");
}
