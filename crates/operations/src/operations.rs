//! Runs the operations on clusters that take a while: switchovers, drains, failovers. Each is on a thread of its own, and
//! of each cluster there is one at a time. The thread that owns them waits for none: signals, configurations, roles and
//! the other clusters are seen to meanwhile.
//!
//! An operation reads what it needs, and asks that thread, by [`crate::Proxy`], for the little that only it changes: whose
//! statements are held, which servers are drained.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_config::Config;
use weir_monitor::Reach;
use weir_topology::Endpoint;
use weir_topology::procedure::Entry;

use crate::cluster_automation::ClusterAutomation;
use crate::context::Context;
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;
use crate::progress::Progress;
use crate::proxy::Proxy;
use crate::recovery;
use crate::switchover::SwitchoverOrder;

/// The clusters' operations. Owned by the one thread that publishes to the proxy.
pub struct Operations {
    pub(crate) context: Context,
    /// By writer hostgroup.
    pub(crate) clusters: BTreeMap<u32, ClusterAutomation>,
    running: BTreeMap<u64, Running>,
    begun: u64,
    /// Nothing is begun by itself: another process is about to take over, or has.
    pub(crate) is_suspended: bool,
    is_ending: Arc<AtomicBool>,
    /// Counts sessions on servers that leave, while there are any.
    pub(crate) counting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Running {
    name: &'static str,
    /// Their writer hostgroups.
    clusters: BTreeSet<u32>,
}

/// A notice of another thread for [`Operations::take`].
#[derive(Debug)]
pub struct Notice(pub(crate) News);

#[derive(Debug)]
pub(crate) enum News {
    /// A look for a switchover that was left half made has ended.
    Looked { hostgroup: u32, entry: Option<Entry> },
    /// An operation has ended.
    Ended { operation: u64, outcome: Outcome },
}

/// The outcome of an operation.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Whoever ordered it has been told.
    Told,
    /// A switchover that Weir began by itself.
    FailedBack { hostgroup: u32, is_done: bool },
    /// A switchover that another Weir has left half made.
    Recovered { hostgroup: u32, entry: Entry, done: recovery::Outcome },
    /// Something that `auto_failover` calls for: what was done, or why it was not.
    Repaired {
        hostgroup: u32,
        name: &'static str,
        pause: Duration,
        done: Result<Option<String>, SwitchoverError>,
    },
}

/// An operation that Weir begins by itself.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) run: Box<dyn FnOnce(&OperationRunner) -> Outcome + Send>,
    /// What comes of it if the system gives no thread.
    pub(crate) not_begun: Box<dyn FnOnce(io::Error) -> Outcome>,
}

/// Tells that an operation has ended, also where it has panicked.
struct End {
    operation: u64,
    outcome: Option<Outcome>,
    proxy: Arc<dyn Proxy>,
}

impl Drop for End {
    fn drop(&mut self) {
        let outcome = self.outcome.take().unwrap_or(Outcome::Told);
        self.proxy.notify(Notice(News::Ended { operation: self.operation, outcome }));
    }
}

impl Operations {
    /// None yet.
    pub fn new(context: Context) -> Self {
        Self {
            context,
            clusters: BTreeMap::new(),
            running: BTreeMap::new(),
            begun: 0,
            is_suspended: false,
            is_ending: Arc::default(),
            counting: None,
        }
    }

    /// Operations that begin from now on go by this configuration.
    pub fn configure(&mut self, config: &Config, reach: Reach) {
        self.context.config = Arc::new(config.clone());
        self.context.reach = reach;
    }

    /// Operations that begin from now on know this Weir by this name.
    pub fn rename(&mut self, instance: Arc<str>) {
        self.context.instance = instance;
    }

    /// Moves a cluster's writer role.
    pub fn switchover(&mut self, order: SwitchoverOrder, progress: Progress) {
        let clusters = BTreeSet::from([order.writer_hostgroup]);
        self.begin_for(progress, "switchover", clusters, move |runner, progress| {
            runner.switchover(&order, progress).map_err(|cause| cause.to_string())
        });
    }

    /// Takes a server out of service, in all its clusters.
    pub fn drain(&mut self, server: Endpoint, progress: Progress) {
        let clusters = self.clusters_of(&server);
        self.begin_for(progress, "drain", clusters, move |runner, progress| {
            runner.drain_server(&server, progress).map_err(|cause| cause.to_string())
        });
    }

    /// Takes a server in again; with `force` also where Weirs want it out that are no more.
    pub fn undrain(&mut self, server: Endpoint, force: bool, progress: Progress) {
        let clusters = self.clusters_of(&server);
        self.begin_for(progress, "undrain", clusters, move |runner, _| {
            runner.undrain_server(&server, force).map_err(|cause| cause.to_string())
        });
    }

    /// When [`Operations::see_to_clusters`] is to be called though nothing has changed; none: never.
    pub fn next(&self) -> Option<Instant> {
        if self.is_suspended {
            return None;
        }
        let next =
            |(hostgroup, automation): (&u32, &ClusterAutomation)| automation.next(self.is_busy(*hostgroup));
        self.clusters.iter().filter_map(next).min()
    }

    /// Takes what another thread tells. Returns the writer hostgroups whose statements are not to be held any more.
    pub fn take(&mut self, notice: Notice) -> BTreeSet<u32> {
        match notice.0 {
            News::Looked { hostgroup, entry } => {
                self.looked_for_entry(hostgroup, entry.as_ref());
                BTreeSet::new()
            }
            News::Ended { operation, outcome } => {
                let ended = self.running.remove(&operation);
                // What a recovery has left has a time of its own.
                let is_switchover = matches!(outcome, Outcome::Told);
                self.take_outcome(outcome);
                // Only one that has panicked leaves anything held, here or by others.
                let clusters = ended.map(|running| running.clusters).unwrap_or_default();
                if is_switchover {
                    clusters.iter().for_each(|hostgroup| self.automation(*hostgroup).recovery.look_soon());
                }
                clusters.iter().for_each(|hostgroup| self.context.planner.switch_ends(*hostgroup));
                clusters
            }
        }
    }

    /// What is done now with any cluster.
    pub fn any(&self) -> Option<&'static str> {
        self.running.values().next().map(|running| running.name)
    }

    /// Begins nothing by itself from now on.
    ///
    /// # Errors
    /// The name of an operation that is under way; then nothing has changed.
    pub fn suspend(&mut self) -> Result<(), &'static str> {
        match self.any() {
            Some(name) => Err(name),
            None => {
                self.is_suspended = true;
                Ok(())
            }
        }
    }

    /// The end of that.
    pub fn resume(&mut self) {
        self.is_suspended = false;
    }

    /// Has operations that wait be given up.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Says what `auto_failover` costs, where it is on, and looks whether all that it needs is there.
    pub fn announce_failovers(&self) {
        self.runner().announce_failovers();
    }

    /// Has something done with these clusters, with which nothing else is done now.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub(crate) fn begin(
        &mut self,
        name: &'static str,
        clusters: BTreeSet<u32>,
        run: impl FnOnce(&OperationRunner) -> Outcome + Send + 'static,
    ) -> io::Result<()> {
        self.begin_and_tell(name, clusters, move |runner| (run(runner), ()), |()| {})
    }

    /// The same, and tells what came of it. Whoever hears that may order something else at once: by then this one has
    /// ended for the thread that takes orders, too.
    fn begin_and_tell<T>(
        &mut self,
        name: &'static str,
        clusters: BTreeSet<u32>,
        run: impl FnOnce(&OperationRunner) -> (Outcome, T) + Send + 'static,
        tell: impl FnOnce(T) + Send + 'static,
    ) -> io::Result<()> {
        self.begun += 1;
        let (operation, runner) = (self.begun, self.runner());
        let proxy = self.context.proxy.clone();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut end = End { operation, outcome: None, proxy };
            let (outcome, done) = run(&runner);
            end.outcome = Some(outcome);
            drop(end);
            tell(done);
        })?;
        self.running.insert(operation, Running { name, clusters });
        Ok(())
    }

    pub(crate) fn is_busy(&self, hostgroup: u32) -> bool {
        self.running.values().any(|running| running.clusters.contains(&hostgroup))
    }

    pub(crate) fn runner(&self) -> OperationRunner {
        OperationRunner { context: self.context.clone(), is_ending: self.is_ending.clone() }
    }

    pub(crate) fn take_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Told => {}
            Outcome::Recovered { hostgroup, entry, done } => self.recovered(hostgroup, entry, done),
            Outcome::FailedBack { hostgroup, is_done } => self.automation(hostgroup).failback.ended(is_done),
            Outcome::Repaired { hostgroup, name, pause, done } => self.repaired(hostgroup, name, pause, done),
        }
    }

    /// Has something done with these clusters that somebody has ordered, unless something else is done with one of them.
    fn begin_for(
        &mut self,
        progress: Progress,
        name: &'static str,
        clusters: BTreeSet<u32>,
        run: impl FnOnce(&OperationRunner, &Progress) -> Result<String, String> + Send + 'static,
    ) {
        if let Some(cause) = self.busy_with(&clusters) {
            return progress.end(Err(format!("{cause}: try again when it has ended")));
        }
        let run = move |runner: &OperationRunner| {
            let done = run(runner, &progress);
            (Outcome::Told, (progress, done))
        };
        let tell = |(progress, done): (Progress, Result<String, String>)| progress.end(done);
        if let Err(cause) = self.begin_and_tell(name, clusters, run, tell) {
            // Whoever ordered is told by the end of the channel.
            tracing::error!(%cause, "can't start a thread for a {name}");
        }
    }

    /// What is done with one of these clusters now.
    fn busy_with(&self, clusters: &BTreeSet<u32>) -> Option<String> {
        let running = self.running.values().find(|running| !running.clusters.is_disjoint(clusters))?;
        let common = running.clusters.intersection(clusters).next()?;
        Some(format!("a {} of hostgroup {common} is under way", running.name))
    }

    /// The writer hostgroups of the clusters that a server is in.
    fn clusters_of(&self, endpoint: &Endpoint) -> BTreeSet<u32> {
        let config = &self.context.config;
        let ids = config.hostgroups_of(endpoint);
        let clusters = config.clusters().filter(|cluster| cluster.hostgroups().any(|id| ids.contains(&id)));
        clusters.map(|cluster| cluster.writer_hostgroup).collect()
    }
}
