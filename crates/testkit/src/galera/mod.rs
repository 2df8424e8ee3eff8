//! Runs a MariaDB Galera cluster of real servers on loopback.

mod config;
mod node;
mod priority;
mod template;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use node::Node;

use crate::TestkitError;
use crate::preflight;
use crate::run_dir::{ROOT, RunDir};
use config::{GALERA_PORTS, NodeConfig};
use node::Programs;

/// A node of a small test database needs about this much, MiB.
const NODE_MEMORY_MIB: u64 = 450;
/// Data, redo log and write-set cache of a node with a small test database, MiB.
const NODE_DISK_MIB: u64 = 600;
/// More than two times after which nodes tell each other how far they are.
const WRITES_BEFORE_JOIN: usize = 300;
/// The longest a node may take from its start to Synced; a state transfer on a busy machine is slow.
const SYNC_TIMEOUT: Duration = Duration::from_secs(90);

/// The survivors agree on a killed node's end within `evs.inactive_timeout` and a new view.
const NOTICE_TIMEOUT: Duration = Duration::from_secs(6);

/// An account of the servers, and its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// The user's name.
    pub user: &'static str,
    /// Its password, in clear.
    pub password: &'static str,
}

impl Account {
    /// May do everything everywhere.
    pub const APP: Account = Account { user: "app", password: "app" };
    /// As [`Account::APP`]: a second user, to see that two users' sessions stay apart.
    pub const APP2: Account = Account { user: "app2", password: "app2" };
    /// May use the schema `limited` only.
    pub const LIMITED: Account = Account { user: "limited", password: "limited" };
    /// What Weir's monitor gets, which is nothing: an account that may log in can read the status and the variables.
    pub const MONITOR: Account = Account { user: "monitor", password: "monitor" };
    /// What Weir evicts dead nodes with: SUPER alone.
    pub const ASSIST: Account = Account { user: "assist", password: "assist" };
}

/// Where a node stands that is not on loopback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A network namespace as `ip netns` knows it; the caller makes and removes it, and has to be root.
    pub namespace: String,
    /// The node's address within.
    pub address: Ipv4Addr,
}

/// What cluster to start, and where.
#[derive(Debug, Clone)]
pub struct GaleraOptions {
    /// Part of the directory's name, `/var/tmp/weir-PURPOSE-PID`: lower-case letters.
    pub purpose: String,
    /// How many nodes, 1..=9.
    pub nodes: u8,
    /// The first node's address; node N gets the N-1st address after it.
    pub first_address: Ipv4Addr,
    /// Network namespaces, one for each node, instead of loopback addresses; empty: none.
    pub places: Vec<Place>,
    /// The port for clients, the same on all addresses. 4567, 4568 and 4444 are used beside it.
    pub port: u16,
    /// Further lines for every node's `[mysqld]` section; they win over the ones before.
    pub extra_cnf: String,
    /// Further `wsrep_provider_options`, separated by semicolons; they win over the ones before.
    pub provider_options: String,
    /// Where that directory is, instead of `/var/tmp`; the servers' user must be able to reach it.
    pub root: PathBuf,
    /// Give the thread of each node's group messages a real-time priority, where this machine allows it.
    pub group_priority: bool,
    /// Keep the directory with data and logs.
    pub keep: bool,
    /// Called with a line for everything that may take more than two seconds.
    pub progress: fn(&str),
    /// Raised by a signal handler to give up the start.
    pub cancel: Arc<AtomicBool>,
}

impl GaleraOptions {
    /// For `make demo`: 127.0.0.21 and following, port 3306.
    pub fn demo() -> GaleraOptions {
        GaleraOptions::new("demo", Ipv4Addr::new(127, 0, 0, 21))
    }

    /// For the end-to-end tests: 127.0.0.31 and following, port 3306.
    pub fn tests() -> GaleraOptions {
        GaleraOptions::new("tests", Ipv4Addr::new(127, 0, 0, 31))
    }

    /// For the benchmark: 127.0.0.41 and following, port 3306.
    pub fn bench() -> GaleraOptions {
        GaleraOptions::new("bench", Ipv4Addr::new(127, 0, 0, 41))
    }

    /// Three nodes from `first_address` on, port 3306, nothing special.
    pub fn new(purpose: &str, first_address: Ipv4Addr) -> GaleraOptions {
        GaleraOptions {
            purpose: purpose.to_owned(),
            nodes: 3,
            first_address,
            places: Vec::new(),
            port: 3306,
            extra_cnf: String::new(),
            provider_options: String::new(),
            root: PathBuf::from(ROOT),
            group_priority: false,
            keep: false,
            progress: |_| {},
            cancel: Arc::default(),
        }
    }

    fn node_configs(&self, dir: &Path) -> Result<Vec<NodeConfig>, TestkitError> {
        let nodes = usize::from(self.nodes);
        if !self.places.is_empty() && self.places.len() != nodes {
            let places = self.places.len();
            return Err(TestkitError::Options(format!("{nodes} nodes have {places} namespaces")));
        }
        if !(1..=9).contains(&nodes) || !self.first_address.is_loopback() {
            let (nodes, address) = (self.nodes, self.first_address);
            return Err(TestkitError::Options(format!(
                "a cluster has 1 to 9 nodes on loopback addresses, not {nodes} from {address} on"
            )));
        }
        let loopback = |i: u8| Ipv4Addr::from_bits(self.first_address.to_bits() + u32::from(i));
        let addresses: Vec<Ipv4Addr> = match self.places.is_empty() {
            true => (0..self.nodes).map(loopback).collect(),
            false => self.places.iter().map(|place| place.address).collect(),
        };
        let config = |(i, &address): (usize, &Ipv4Addr)| NodeConfig {
            index: i + 1,
            dir: dir.to_owned(),
            address: SocketAddrV4::new(address, self.port),
            members: addresses.clone(),
            cluster_name: format!("weir-{}", self.purpose),
            extra_cnf: self.extra_cnf.clone(),
            provider_options: self.provider_options.clone(),
            namespace: self.places.get(i).map(|place| place.namespace.clone()),
            starter: None,
        };
        Ok(addresses.iter().enumerate().map(config).collect())
    }
}

/// A running cluster. Dropping it kills the nodes and, unless `keep` was asked for, removes their data.
#[derive(Debug)]
pub struct Galera {
    // Dropped in this order: first the servers, then their directory.
    nodes: Vec<Node>,
    dir: RunDir,
    cancel: Arc<AtomicBool>,
}

impl Galera {
    /// Checks programs, ports, memory and disk, then starts the nodes and waits until all are Synced.
    ///
    /// The first start on a machine initialises a data directory and keeps it under /var/tmp/weir-cache; all starts
    /// copy it to the nodes, which then have the same history and need no full state transfer (4 to 6 s).
    pub fn start(options: GaleraOptions) -> Result<Galera, TestkitError> {
        let programs = Arc::new(Programs::find()?);
        // Removes what a crashed run left running, so it comes before the ports are looked at.
        let dir = RunDir::create_in(&options.root, &options.purpose, options.keep)?;
        let mut configs = options.node_configs(dir.path())?;
        if options.group_priority {
            let starter = priority::starter(programs.user);
            configs.iter_mut().for_each(|config| config.starter = starter);
        }
        check_machine(&options, &configs)?;
        let nodes: Vec<Node> =
            configs.into_iter().map(|config| Node::new(config, Arc::clone(&programs))).collect();
        let cluster = Galera { nodes, dir, cancel: options.cancel };
        let template = template::find_or_make(&cluster.nodes, &cluster.cancel, options.progress)?;
        (options.progress)(&format!(
            "starting {} MariaDB Galera nodes on {}..{}",
            cluster.nodes.len(),
            cluster.node(1).addr(),
            cluster.node(cluster.nodes.len()).addr().ip().octets()[3],
        ));
        for node in &cluster.nodes {
            template.copy_to(&node.data_dir())?;
            node.spawn(node.index() == 1)?;
        }
        cluster.wait_synced(SYNC_TIMEOUT)?;
        Ok(cluster)
    }

    /// Node `index`, counted from 1 as in the servers' own names (n1, n2, ...).
    ///
    /// # Panics
    /// If the cluster has no such node.
    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index - 1]
    }

    /// All nodes, n1 first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether the threads of group messages have a real-time priority.
    pub fn has_group_priority(&self) -> bool {
        self.nodes.iter().all(Node::has_group_priority)
    }

    /// The cluster's directory; other servers of the same run may put theirs beside the nodes'.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a stopped or killed node again and waits until it is Synced. At least one other node must run.
    pub fn start_node(&self, index: usize) -> Result<(), TestkitError> {
        self.start_node_from(index, "")
    }

    /// The same with the nodes that are to be its donors, as `wsrep_sst_donor` has them; empty: any.
    pub fn start_node_from(&self, index: usize, donors: &str) -> Result<(), TestkitError> {
        if !self.nodes.iter().any(|node| node.index() != index && node.is_running()) {
            return Err(TestkitError::Options(format!("n{index} has no running node to join")));
        }
        self.outgrow_lost_caches();
        self.node(index).spawn_with(false, donors)?;
        self.wait_synced(SYNC_TIMEOUT)
    }

    /// Starts a stopped or killed node again without waiting for anything.
    pub fn spawn_node(&self, index: usize) -> Result<(), TestkitError> {
        self.node(index).spawn(false)
    }

    /// Lets paused nodes go on, starts nodes that are down, and waits until all are Synced. At least one must run;
    /// if the others were killed and it has lost the Primary component, their return restores it.
    pub fn repair(&self) -> Result<(), TestkitError> {
        for node in self.nodes.iter().filter(|node| node.is_paused()) {
            node.resume()?;
        }
        let down: Vec<&Node> = self.nodes.iter().filter(|node| !node.is_running()).collect();
        if down.len() == self.nodes.len() {
            return Err(TestkitError::Options("no node runs".to_owned()));
        }
        if !down.is_empty() {
            // A killed node that returns before the others have noticed its end can cost them the Primary component.
            // Without a quorum they never agree, and there is nothing to wait for.
            let _ = self.wait_synced(NOTICE_TIMEOUT);
        }
        if !down.is_empty() {
            self.outgrow_lost_caches();
        }
        for node in down {
            node.spawn(false)?;
        }
        self.wait_synced(SYNC_TIMEOUT)
    }

    /// Starts all nodes when none is left: the one whose data goes furthest begins a new cluster, as an administrator would
    /// have it, and the others join it. What only another one has is lost.
    pub fn start_all_after_crash(&self) -> Result<(), TestkitError> {
        let mut furthest: Option<(i64, &Node)> = None;
        for node in &self.nodes {
            let seqno = node.last_seqno()?;
            if furthest.is_none_or(|(other, _)| seqno > other) {
                furthest = Some((seqno, node));
            }
        }
        let Some((_, first)) = furthest else { return Ok(()) };
        first.spawn(true)?;
        self.wait_synced(SYNC_TIMEOUT)?;
        self.repair()
    }

    /// Commits so much that a node which has been killed can find a donor.
    ///
    /// A donor must have in its write-set cache all that certification may still refer to. A killed node keeps only the
    /// gapless end of its cache, and in a cluster where next to nothing is written the limit does not move: it does when
    /// nodes tell each other how far they are, every 128 transactions. Once each of the others has been killed, nobody
    /// can give anything, not even all of its data ("Cert index preload first seqno ... not found from gcache", seen with
    /// Galera 26.4.23), and who wants to join is told to abort.
    fn outgrow_lost_caches(&self) {
        let insert = "INSERT INTO testkit.writes () VALUES ();".repeat(WRITES_BEFORE_JOIN);
        let sql = format!(
            "CREATE DATABASE IF NOT EXISTS testkit; \
             CREATE TABLE IF NOT EXISTS testkit.writes (id INT AUTO_INCREMENT PRIMARY KEY); {insert}"
        );
        let is_awake = |node: &&Node| node.is_running() && !node.is_paused();
        if let Some(node) = self.nodes.iter().find(is_awake) {
            // Without a quorum nothing can be written, and nobody has to be outgrown.
            let _ = node.root_query(&sql);
        }
    }

    /// Waits until every running node that is not paused is Synced and sees exactly those nodes as its cluster.
    pub fn wait_synced(&self, timeout: Duration) -> Result<(), TestkitError> {
        let deadline = Instant::now() + timeout;
        let awake: Vec<&Node> =
            self.nodes.iter().filter(|node| node.is_running() && !node.is_paused()).collect();
        for node in &awake {
            node.wait_synced(awake.len(), deadline, &self.cancel)?;
        }
        Ok(())
    }
}

/// Fails as soon as the caller's flag is up.
fn check_cancel(cancel: &AtomicBool) -> Result<(), TestkitError> {
    if cancel.load(Ordering::Relaxed) { Err(TestkitError::Cancelled) } else { Ok(()) }
}

fn check_machine(options: &GaleraOptions, nodes: &[NodeConfig]) -> Result<(), TestkitError> {
    // What is in use in a namespace can't be seen from here.
    for node in nodes.iter().filter(|node| node.namespace.is_none()) {
        for port in GALERA_PORTS.into_iter().chain([options.port]) {
            preflight::port_is_free(SocketAddrV4::new(*node.address.ip(), port))?;
        }
    }
    let count = u64::from(options.nodes);
    preflight::memory(&format!("a Galera cluster of {count} nodes"), count * NODE_MEMORY_MIB)?;
    preflight::disk(&options.root, count * NODE_DISK_MIB)
}
