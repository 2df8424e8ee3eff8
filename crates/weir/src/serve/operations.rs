//! Runs the operations on a cluster's servers that take a while: switchovers, drains, failovers. Each is on a
//! thread of its own, and of each cluster there is one at a time. The main thread waits for none of them: signals,
//! configurations, roles and the other clusters are seen to meanwhile.
//!
//! An operation reads what it needs, and asks the main thread for the little that only that thread changes: whose
//! statements are held, which servers are drained.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, sleep};
use std::time::Duration;

use weir_config::Config;
use weir_monitor::{Planner, Reach, Reporter};
use weir_proxy::service::Publisher;
use weir_topology::{Endpoint, ServerRegistry};

use super::recovery::Recovered;
use super::{Event, Server};
use crate::control::Steps;
use crate::drained::Drained;
use crate::latest_roles::LatestRoles;
use crate::topology_log::TopologyLog;

/// How often an operation looks whether something has come to pass.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Why an operation is given up.
const ENDING: &str = "weir is ending";

/// The operations under way.
#[derive(Debug, Default)]
pub(super) struct Operations {
    running: BTreeMap<u64, Running>,
    begun: u64,
    is_ending: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    /// Their writer hostgroups.
    clusters: BTreeSet<u32>,
}

/// What an operation wants of the main thread.
pub(super) enum Request {
    /// Statements of a cluster's writer wait, or no longer. `done` is dropped when that has been published.
    Hold { hostgroup: u32, because: Option<String>, done: Sender<()> },
    /// Other servers are drained. `done` is dropped when that has been published.
    Drained { done: Sender<()> },
    /// A look for a switchover that was left half made has ended.
    Looked { hostgroup: u32, is_found: bool },
    /// It has ended.
    Ended { operation: u64, outcome: Outcome },
}

/// What the main thread makes of an operation's end.
pub(super) enum Outcome {
    /// Whoever ordered it has been told.
    Told,
    /// A switchover that Weir began by itself.
    FailedBack { hostgroup: u32, is_done: bool },
    /// A switchover that another Weir has left half made.
    Recovered { hostgroup: u32, done: Recovered },
    /// Something that `auto_failover` calls for: what was done, or why it was not.
    Succeeded { hostgroup: u32, name: &'static str, pause: Duration, done: Result<Option<String>, String> },
}

/// An operation's view of Weir.
pub(super) struct Operator {
    pub(super) config: Arc<Config>,
    /// Where servers are, and how connections to them are encrypted.
    pub(super) reach: Reach,
    pub(super) registry: ServerRegistry,
    pub(super) roles: LatestRoles,
    pub(super) planner: Planner,
    pub(super) reporter: Reporter,
    pub(super) publisher: Publisher,
    pub(super) log: TopologyLog,
    pub(super) drained: Drained,
    /// This Weir's name among those in front of one cluster.
    pub(super) instance: Arc<str>,
    events: Sender<Event>,
    is_ending: Arc<AtomicBool>,
}

/// Tells the main thread that an operation has ended, also where it has panicked.
struct End {
    operation: u64,
    outcome: Option<Outcome>,
    events: Sender<Event>,
}

impl Drop for End {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or(Outcome::Told);
        let _ = self.events.send(Event::Operation(Request::Ended { operation: self.operation, outcome }));
    }
}

impl Operations {
    /// What is done with one of these clusters now.
    pub(super) fn busy_with(&self, clusters: &BTreeSet<u32>) -> Option<String> {
        let running = self.running.values().find(|running| !running.clusters.is_disjoint(clusters))?;
        let common = running.clusters.intersection(clusters).next()?;
        Some(format!("a {} of hostgroup {common} is under way", running.name))
    }

    pub(super) fn is_busy(&self, hostgroup: u32) -> bool {
        self.running.values().any(|running| running.clusters.contains(&hostgroup))
    }

    /// What is done now with any cluster.
    pub(super) fn any(&self) -> Option<&'static str> {
        self.running.values().next().map(|running| running.name)
    }

    /// Those that wait are given up; new ones are not begun.
    pub(super) fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }
}

impl Server {
    /// Has something done with these clusters that somebody has ordered, unless something else is done with one of them.
    pub(super) fn operate_for(
        &mut self,
        steps: Steps,
        name: &'static str,
        clusters: BTreeSet<u32>,
        work: impl FnOnce(&Operator, &Steps) -> Result<String, String> + Send + 'static,
    ) {
        if let Some(cause) = self.operations.busy_with(&clusters) {
            return steps.end(Err(format!("{cause}: try again when it has ended")));
        }
        let work = move |operator: &Operator| {
            let done = work(operator, &steps);
            steps.end(done);
            Outcome::Told
        };
        if let Err(cause) = self.operate(name, clusters, work) {
            // Whoever ordered is told by the end of the channel.
            tracing::error!(%cause, "can't start a thread for a {name}");
        }
    }

    /// Has something done with these clusters, with which nothing else is done now.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub(super) fn operate(
        &mut self,
        name: &'static str,
        clusters: BTreeSet<u32>,
        work: impl FnOnce(&Operator) -> Outcome + Send + 'static,
    ) -> std::io::Result<()> {
        self.operations.begun += 1;
        let (operation, operator) = (self.operations.begun, self.operator());
        let events = self.events.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut end = End { operation, outcome: None, events };
            end.outcome = Some(work(&operator));
        })?;
        self.operations.running.insert(operation, Running { name, clusters });
        Ok(())
    }

    pub(super) fn operator(&self) -> Operator {
        Operator {
            config: Arc::new(self.config.clone()),
            reach: self.snapshots.reach(),
            registry: self.snapshots.registry.clone(),
            roles: self.roles.clone(),
            planner: self.monitor.planner(),
            reporter: self.monitor.reporter(),
            publisher: self.publisher.clone(),
            log: self.log.clone(),
            drained: self.drained.clone(),
            instance: self.snapshots.instance.clone(),
            events: self.events.clone(),
            is_ending: self.operations.is_ending.clone(),
        }
    }

    /// Does what only this thread does.
    pub(super) fn oblige(&mut self, request: Request) {
        match request {
            Request::Hold { hostgroup, because, done } => {
                self.set_held(hostgroup, because);
                drop(done);
            }
            Request::Drained { done } => {
                self.apply(&self.config);
                self.publish();
                drop(done);
            }
            Request::Looked { hostgroup, is_found } => self.looked_for_entry(hostgroup, is_found),
            Request::Ended { operation, outcome } => {
                let ended = self.operations.running.remove(&operation);
                // Only one that has panicked leaves anything held.
                for hostgroup in ended.into_iter().flat_map(|running| running.clusters) {
                    self.set_held(hostgroup, None);
                }
                self.take_outcome(outcome);
            }
        }
    }

    fn set_held(&mut self, hostgroup: u32, because: Option<String>) {
        let before = match because {
            Some(because) => self.snapshots.held.insert(hostgroup, because),
            None => self.snapshots.held.remove(&hostgroup),
        };
        if before.as_ref() != self.snapshots.held.get(&hostgroup) {
            self.publish();
        }
    }

    fn take_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Told => {}
            Outcome::Recovered { hostgroup, done } => self.recovered(hostgroup, done),
            Outcome::FailedBack { hostgroup, is_done } => self.failbacks.ended(hostgroup, is_done),
            Outcome::Succeeded { hostgroup, name, pause, done } => {
                self.successions.rest(hostgroup, pause);
                self.tell_succession(hostgroup, name, done);
            }
        }
    }

    /// The writer hostgroups of the clusters that a server is in.
    pub(super) fn clusters_of(&self, endpoint: &Endpoint) -> BTreeSet<u32> {
        let ids = self.config.hostgroups_of(endpoint);
        let clusters = self.config.clusters();
        let clusters = clusters.filter(|cluster| cluster.hostgroups().any(|id| ids.contains(&id)));
        clusters.map(|cluster| cluster.writer_hostgroup).collect()
    }
}

impl Operator {
    /// Tells the main thread something, and waits for nothing.
    pub(super) fn tell_main(&self, request: Request) {
        let _ = self.events.send(Event::Operation(request));
    }

    /// Asks the main thread for something; returns when it has been published.
    ///
    /// # Errors
    /// Weir has ended.
    pub(super) fn ask(&self, request: impl FnOnce(Sender<()>) -> Request) -> Result<(), String> {
        let (done, is_done) = channel();
        self.events.send(Event::Operation(request(done))).map_err(|_| ENDING.to_owned())?;
        // Ends when the sender is dropped.
        let _ = is_done.recv();
        Ok(())
    }

    /// Between two looks at something that is waited for.
    ///
    /// # Errors
    /// Weir is to end: then nothing is waited for any more.
    pub(super) fn look_again(&self) -> Result<(), String> {
        self.look_again_after(LOOK_EVERY)
    }

    /// # Errors
    /// As [`Operator::look_again`].
    pub(super) fn look_again_after(&self, pause: Duration) -> Result<(), String> {
        sleep(pause);
        if self.is_ending.load(Ordering::Relaxed) { Err(ENDING.to_owned()) } else { Ok(()) }
    }
}
