//! Starts, reconfigures and stops the threads that watch servers and decide roles.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weir_config::Config;
use weir_topology::{
    Cleared, Endpoint, EpochPolicy, InstanceId, Millis, Roles, ServerRegistry, Switch, SwitchStep,
};

use crate::probe_log::ProbeLog;
use crate::settings::{Reach, Settings};
use crate::topology_thread::{self, Epochs, Event};

/// The most events that wait for the topology thread. Probes wait for room, suspicions of the data path are dropped.
const EVENTS_MAX: usize = 1024;

/// Watches the servers of a configuration, and decides and publishes their roles.
///
/// Dropping it ends its threads as [`Monitor::stop`] does.
pub struct Monitor {
    events: SyncSender<Event>,
    topology: Option<JoinHandle<()>>,
    log: Arc<ProbeLog>,
    /// What the topology thread goes by, or will when it has heard of it.
    applied: Mutex<Settings>,
}

impl Monitor {
    /// Starts watching. `instance` is this Weir's name among those in front of the same clusters; `known_epochs` are the
    /// writer hostgroups of those whose epoch has been in force for it, so that it does not write without. Servers that are
    /// `drained` get no new work, whatever the configuration says.
    ///
    /// `publish` is called on the monitor's own thread with the roles that follow from the configuration alone, and
    /// then whenever they change; it must not block. The probes keep `registry` up to date.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub fn start(
        config: &Config,
        instance: &str,
        known_epochs: BTreeSet<u32>,
        drained: &BTreeSet<Endpoint>,
        reach: &Reach,
        registry: ServerRegistry,
        publish: impl Fn(Arc<Roles>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (events, inbox) = sync_channel(EVENTS_MAX);
        let settings = Settings::of(config, drained, reach);
        let applied = Mutex::new(settings.clone());
        let epochs = Epochs { policy: EpochPolicy::new(instance), known: known_epochs };
        let log = Arc::new(ProbeLog::default());
        log.set_retention(config.variables.monitor_history);
        let owners_log = log.clone();
        let probes_events = events.clone();
        let topology = std::thread::Builder::new().name("topology".to_owned()).spawn(move || {
            topology_thread::run(settings, epochs, registry, probes_events, inbox, owners_log, publish)
        })?;
        Ok(Self { events, topology: Some(topology), log, applied })
    }

    /// Goes over to another configuration; returns when the roles that follow from it have been published. What is
    /// known of servers that stay where they are is kept. One that says the same of servers changes nothing, and nobody
    /// is asked.
    pub fn apply(&self, config: &Config, drained: &BTreeSet<Endpoint>, reach: &Reach) {
        self.log.set_retention(config.variables.monitor_history);
        let settings = Settings::of(config, drained, reach);
        {
            let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
            if *applied == settings {
                return;
            }
            applied.clone_from(&settings);
        }
        let (published, is_published) = sync_channel(0);
        let settings = Box::new(settings);
        // Fails only if the topology thread is gone, which has then been logged as a panic.
        if self.events.send(Event::Configure { settings, published }).is_ok() {
            let _ = is_published.recv();
        }
    }

    /// From now on this Weir says in the clusters that it is there, where several Weirs agree on a writer. Before that it
    /// only looks, so that one whose start fails is not waited for by others.
    pub fn serve(&self) {
        let _ = self.events.send(Event::Serve);
    }

    /// From now on another process says which servers this Weir's user wants out; this one only says how many of its
    /// sessions are still there.
    pub fn is_followed(&self) {
        let _ = self.events.send(Event::Followed);
    }

    /// A way to plan changes of writers from any thread.
    pub fn planner(&self) -> Planner {
        Planner { events: self.events.clone() }
    }

    /// What the probes have seen lately.
    pub fn probe_log(&self) -> Arc<ProbeLog> {
        self.log.clone()
    }

    /// A way to report suspicions from any thread.
    pub fn reporter(&self) -> Reporter {
        Reporter { events: self.events.clone() }
    }

    /// Ends all threads; waits for those that hang on a silent server no longer than a moment.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let _ = self.events.send(Event::Stop);
        if let Some(topology) = self.topology.take() {
            let _ = topology.join();
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

/// Has the monitor make planned changes of writers.
#[derive(Clone)]
pub struct Planner {
    events: SyncSender<Event>,
}

impl Planner {
    /// Has `to` come before `from`, the present writer of a cluster, if it can write; returns when the next roles have been
    /// published. If there is another writer by then, nothing happens. With an epoch the role moves when the epoch row says
    /// so, and until then the order stands: see [`Planner::switch_ends`].
    pub fn switch(&self, writer_hostgroup: u32, from: &Endpoint, to: &Endpoint) {
        self.order(writer_hostgroup, from, to, SwitchStep::Move);
    }

    /// Has the other Weirs in front of a cluster hold for a switchover from `from` to `to`, if there are any. Those that may
    /// still write are in [`weir_topology::Leadership::awaited`].
    pub fn ask_to_hold(&self, writer_hostgroup: u32, from: &Endpoint, to: &Endpoint) {
        self.order(writer_hostgroup, from, to, SwitchStep::Ask);
    }

    /// A planned change is given up; one that has been made stays.
    pub fn switch_ends(&self, writer_hostgroup: u32) {
        let _ = self.events.send(Event::SwitchEnds { writer_hostgroup });
    }

    fn order(&self, writer_hostgroup: u32, from: &Endpoint, to: &Endpoint, step: SwitchStep) {
        let (published, is_published) = sync_channel(0);
        let (from, to) = (from.clone(), to.clone());
        let switch = Switch { writer_hostgroup, from, to, step, ordered_at: 0 };
        if self.events.send(Event::Switch { switch, published }).is_ok() {
            let _ = is_published.recv();
        }
    }
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").finish_non_exhaustive()
    }
}

/// Tells the monitor what the data path met.
#[derive(Clone)]
pub struct Reporter {
    events: SyncSender<Event>,
}

impl Reporter {
    /// Has a server probed at once because a connection to it failed. Never blocks; too many reports are dropped.
    ///
    /// A report changes no role by itself, so that a client can't force a failover.
    pub fn suspect(&self, endpoint: &Endpoint) {
        let _ = self.events.try_send(Event::Suspect(endpoint.clone()));
    }

    /// For another Weir's switchover that the epoch row of this version announces: none of the sessions here may write
    /// to the cluster's writer any more, and none will before the row changes.
    pub fn cleared(&self, writer_hostgroup: u32, version: u64) {
        let _ = self.events.send(Event::Cleared(Cleared { writer_hostgroup, version }));
    }

    /// So many sessions have a connection to these servers, which are to leave.
    pub fn used(&self, counts: Vec<(Endpoint, u64)>) {
        let _ = self.events.send(Event::Used(counts));
    }

    /// Has the rows removed by which these Weirs, which are no more, want servers of a cluster out.
    pub fn release(&self, hostgroup: u32, rows: Vec<(Endpoint, InstanceId)>) {
        let _ = self.events.send(Event::Release { hostgroup, rows });
    }

    /// The sessions that could still write to a writer have been closed which was deposed by the epoch that was first seen
    /// then ([`weir_topology::Leadership::since`]).
    pub fn cut(&self, hostgroup: u32, learned_at: Millis) {
        let _ = self.events.send(Event::Cut { hostgroup, learned_at });
    }

    /// Tells that the data path could not connect to a server, and why. Enough of these within a second, from all
    /// workers together, shun it. Never blocks; too many reports are dropped.
    pub fn connect_failed(&self, endpoint: &Endpoint, cause: &str) {
        let _ = self.events.try_send(Event::ConnectFailed(endpoint.clone(), cause.into()));
    }
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}
