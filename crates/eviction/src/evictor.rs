//! Watches the nodes of a Galera cluster and talks to them: what is done and why is decided by [`crate::Sequence`].
//!
//! One thread per Galera cluster keeps an idle connection to each node, beside the probes and the data path. It sleeps
//! in poll(2) until one of them breaks, which a killed process does to it at once: the kernel closes its sockets. Then
//! it knocks at the node's two ports, for clients and for its group. Only if both refuse is the node dead. (A node that
//! stops in good order closes the port for its group first and that for clients when it has left the group, so it is
//! in the view no more when both refuse; a killed connection leaves both open.)
//!
//! | statement | how often | privilege |
//! | --- | --- | --- |
//! | `SHOW GLOBAL STATUS WHERE Variable_name IN (...); SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'` | 4 times a second; every 3 ms between an eviction and the new view | none |
//! | `SET GLOBAL wsrep_provider_options = ''` | at each connect, to see whether it is allowed; changes nothing | SUPER |
//! | `SET GLOBAL wsrep_provider_options = 'evs.evict=...'` | for each eviction, and to clear the lists after it | SUPER |

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};
use weir_client::Options;
use weir_topology::{Endpoint, Millis};

use crate::Obstacle;
use crate::decision::{Doubt, Eviction, Liveness, Node};
use crate::node_watch::{self, Dialed, NodeWatch};
use crate::sequence::{Act, Note, Sequence};

/// The longest sleep; everything that is due has a time of its own.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// For how long the nodes may take to answer for the first time before it is said whether the cluster can be helped.
const ACQUAINTANCE_MS: u64 = 5000;

/// The settings of a cluster's evictor. It goes on over a reload if this is the same.
#[derive(Clone, PartialEq)]
pub struct EvictorSettings {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// Whether hung nodes are evicted, too.
    pub evicts_hung: bool,
    /// Its nodes, and how to connect to each.
    pub nodes: Vec<(Endpoint, Options)>,
}

/// Calls for a look at a server.
pub type Suspect = Box<dyn Fn(&Endpoint) + Send>;

/// The thread that evicts the dead nodes of one cluster.
pub struct Evictor {
    /// What it was started with.
    pub settings: EvictorSettings,
    /// How many other Weirs come before this one.
    rank: Arc<AtomicU32>,
    status: Arc<Mutex<Option<Arc<str>>>>,
    orders: Sender<()>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Evictor {
    /// Begins to watch the nodes. `suspect` is called with one that is dead, and must not wait.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(settings: EvictorSettings, suspect: Suspect) -> std::io::Result<Self> {
        let (waker, bell) = UnixStream::pair()?;
        waker.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        let waker = Waker(Arc::new(waker));
        let (orders, inbox) = channel();
        let (dialed, calls) = channel();
        let clock = Clock(Instant::now());
        let rank = Arc::new(AtomicU32::new(0));
        let watches = settings
            .nodes
            .iter()
            .map(|(endpoint, options)| {
                let (waker, dialed) = (waker.clone(), dialed.clone());
                NodeWatch::new(endpoint.clone(), options.clone(), settings.evicts_hung, clock, waker, dialed)
            })
            .collect();
        let status = Arc::new(Mutex::new(None));
        let evictor = EvictorThread {
            status: status.clone(),
            hostgroup: settings.writer_hostgroup,
            evicts_hung: settings.evicts_hung,
            rank: rank.clone(),
            watches,
            sequence: Sequence::default(),
            bell,
            orders: inbox,
            calls,
            suspect,
            clock,
            said: Said::default(),
        };
        let name = format!("assist {}", settings.writer_hostgroup);
        let thread = thread::Builder::new().name(name).spawn(move || evictor.run())?;
        Ok(Self { settings, rank, status, orders, waker, thread: Some(thread) })
    }

    /// Whether it would evict a dead node, or what is missing; none until that is known.
    pub fn status(&self) -> Option<Arc<str>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tells it how many other Weirs come before this one.
    pub fn rank(&self, rank: u32) {
        self.rank.store(rank, Ordering::Relaxed);
    }

    /// Tells it to end.
    pub fn stop(&self) {
        // One that has ended needs no order.
        let _ = self.orders.send(());
        self.waker.wake();
    }

    /// Waits for the thread, which has been told to end; no longer than until `deadline`.
    pub fn join_until(mut self, deadline: Instant) {
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// Ends the sleep of an evictor's thread.
#[derive(Clone)]
pub(crate) struct Waker(pub(crate) Arc<UnixStream>);

impl Waker {
    pub(crate) fn wake(&self) {
        // Full means that it has been woken already.
        let _ = (&*self.0).write(&[0]);
    }
}

/// The moments of one evictor.
#[derive(Clone, Copy)]
pub(crate) struct Clock(pub(crate) Instant);

impl Clock {
    pub(crate) fn now(self) -> Millis {
        Millis(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// Connects once and looks what speaks against evicting anybody from the node's cluster.
///
/// # Errors
/// If it can't connect, or the node breaks the connection.
pub fn obstacles(options: Options) -> Result<Vec<Obstacle>, weir_client::Error> {
    node_watch::obstacles(options)
}

struct EvictorThread {
    status: Arc<Mutex<Option<Arc<str>>>>,
    hostgroup: u32,
    evicts_hung: bool,
    rank: Arc<AtomicU32>,
    watches: Vec<NodeWatch>,
    sequence: Sequence,
    bell: UnixStream,
    orders: Receiver<()>,
    calls: Receiver<Dialed>,
    suspect: Suspect,
    clock: Clock,
    said: Said,
}

/// The last lines of the log: the same is not said again.
#[derive(Default)]
struct Said {
    obstacles: Option<Vec<(Endpoint, Obstacle)>>,
    doubt: Option<Doubt>,
    dead: Vec<Endpoint>,
}

impl EvictorThread {
    fn run(mut self) {
        while self.orders.try_recv() == Err(TryRecvError::Empty) {
            while let Ok(call) = self.calls.try_recv() {
                if let Some(watch) = self.watches.iter_mut().find(|watch| watch.endpoint == call.endpoint) {
                    watch.answered(call);
                }
            }
            for watch in &mut self.watches {
                watch.tend();
            }
            self.announce();
            if !self.step() {
                self.sleep();
            }
        }
    }

    /// One decision and what follows from it; true if the next one is due at once.
    fn step(&mut self) -> bool {
        let nodes: Vec<Node> = self.watches.iter().map(NodeWatch::node).collect();
        self.note_deaths(&nodes);
        let rank = self.rank.load(Ordering::Relaxed);
        let step = self.sequence.step(&nodes, rank, self.evicts_hung, self.clock.now());
        self.say(step.note);
        match step.act {
            Act::Nothing => false,
            Act::Ask(endpoints) => {
                for watch in self.watches.iter_mut().filter(|watch| endpoints.contains(&watch.endpoint)) {
                    watch.ask_soon();
                }
                false
            }
            Act::Evict(eviction) => {
                self.evict(&eviction);
                true
            }
            Act::Clear(endpoints) => {
                self.clear(&endpoints);
                true
            }
        }
    }

    /// Sleeps until a node says something, or something is due.
    fn sleep(&mut self) {
        let now = Instant::now();
        let due = self.watches.iter().map(|watch| watch.due()).min();
        let pause = due.map_or(SLEEP_MAX, |due| due.saturating_duration_since(now).min(SLEEP_MAX));
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        let mut asked = Vec::new();
        for (index, watch) in self.watches.iter().enumerate() {
            if let Some(connection) = watch.connection() {
                fds.push(PollFd::new(connection, PollFlags::IN));
                asked.push(index);
            }
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = Timespec::try_from(pause).unwrap_or(timeout);
        if poll(&mut fds, Some(&timeout)).is_err() {
            // Interrupted, or short of memory: what is due is looked at again.
            return;
        }
        let heard: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if heard.first() == Some(&true) {
            let mut rings = [0; 64];
            while std::io::Read::read(&mut self.bell, &mut rings).is_ok_and(|count| count > 0) {}
        }
        for (index, heard) in asked.into_iter().zip(heard.into_iter().skip(1)) {
            if heard && let Some(watch) = self.watches.get_mut(index) {
                watch.hear();
            }
        }
    }

    fn evict(&mut self, eviction: &Eviction) {
        let Eviction { evictor, victims, .. } = eviction;
        let names: Vec<String> =
            victims.iter().map(|victim| format!("{} ({})", victim.endpoint, victim.uuid)).collect();
        warn!(hostgroup = self.hostgroup, at = %evictor, "evicting {}", names.join(", "));
        let Some(watch) = self.watches.iter_mut().find(|watch| watch.endpoint == *evictor) else { return };
        for (index, victim) in victims.iter().enumerate() {
            let done = watch.set(&format!("evs.evict={}", victim.uuid));
            if let Err(error) = done {
                warn!(hostgroup = self.hostgroup, at = %evictor, %error, "{} is not evicted", victim.endpoint);
                // After a lost answer nobody knows; then what follows clears the lists.
                if index == 0 && !error.is_fatal() {
                    self.sequence.not_done();
                }
                return;
            }
        }
        info!(hostgroup = self.hostgroup, at = %evictor, "evicted: waiting for the new view");
    }

    fn clear(&mut self, endpoints: &[Endpoint]) {
        for watch in self.watches.iter_mut().filter(|watch| endpoints.contains(&watch.endpoint)) {
            if let Err(error) = watch.set("evs.evict=") {
                warn!(hostgroup = self.hostgroup, at = %watch.endpoint, %error, "the evict list can't be cleared");
            }
        }
    }

    /// Tells once whether the cluster can be helped, and again when that changes.
    fn announce(&mut self) {
        if !self.watches.iter().all(NodeWatch::is_known) && self.clock.now().0 < ACQUAINTANCE_MS {
            return;
        }
        let obstacles: Vec<(Endpoint, Obstacle)> = self
            .watches
            .iter()
            .flat_map(|watch| {
                watch.obstacles().into_iter().map(|obstacle| (watch.endpoint.clone(), obstacle))
            })
            .collect();
        if self.said.obstacles.as_ref() == Some(&obstacles) {
            return;
        }
        let hostgroup = self.hostgroup;
        let status = match obstacles.as_slice() {
            [] if self.evicts_hung => "on, also for nodes that hang".to_owned(),
            [] => "on".to_owned(),
            [(node, obstacle)] => format!("off: {node}: {obstacle}"),
            [(node, obstacle), more @ ..] => format!("off: {node}: {obstacle}, and {} more", more.len()),
        };
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status.into());
        match obstacles.first() {
            None => {
                let whom = if self.evicts_hung { "killed or hangs" } else { "killed" };
                info!(hostgroup, "assisted eviction is on, for a node that is {whom}");
            }
            Some((node, obstacle)) => {
                let more = obstacles.len() - 1;
                info!(hostgroup, more, "assisted eviction is off: {node}: {obstacle}");
            }
        }
        self.said.obstacles = Some(obstacles);
    }

    fn note_deaths(&mut self, nodes: &[Node]) {
        for node in nodes {
            let was_dead = self.said.dead.contains(&node.endpoint);
            let words = match node.liveness {
                Liveness::Dead { .. } if !was_dead => {
                    "is dead: its connections broke, and its ports are closed"
                }
                Liveness::Hung { .. } if !was_dead => {
                    "hangs: its connections are open, and it answers nothing"
                }
                Liveness::Alive if was_dead => {
                    self.said.dead.retain(|dead| *dead != node.endpoint);
                    continue;
                }
                _ => continue,
            };
            warn!(hostgroup = self.hostgroup, server = %node.endpoint, "{words}");
            self.said.dead.push(node.endpoint.clone());
            // Its probe needs not wait until the data path notices.
            (self.suspect)(&node.endpoint);
        }
    }

    fn say(&mut self, note: Option<Note>) {
        let Some(note) = note else {
            self.said.doubt = None;
            return;
        };
        let hostgroup = self.hostgroup;
        match &note {
            Note::Refrained(doubt) if self.said.doubt.as_ref() == Some(doubt) => {}
            Note::Refrained(doubt) => {
                info!(hostgroup, "no node is evicted: {doubt}");
                self.said.doubt = Some(doubt.clone());
            }
            Note::NewView { after_ms } => {
                info!(hostgroup, after_ms, "the cluster has a view without the evicted node")
            }
            Note::NoNewView { after_ms } => {
                warn!(hostgroup, after_ms, "the cluster has no view without the evicted node yet")
            }
            Note::Clean => info!(hostgroup, "all evict lists are empty"),
            Note::LeftOver(node) => {
                warn!(hostgroup, server = %node, "clearing evict lists that another Weir or an administrator has left behind");
            }
            Note::NeedsRestart(node) => {
                warn!(hostgroup, server = %node, "was evicted while it hung: restart it, it can't come back by itself");
            }
        }
    }
}
