//! Watches whether clusters have the members that are configured, on a thread of its own.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{info, warn};
use weir_topology::Endpoint;

use crate::membership::{About, Configured, Difference, differences};
use crate::walk::{Dialling, Limits, walk_from};

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(10);

/// How to log in to a server of a cluster.
pub type Dial = Box<dyn Fn(&Endpoint) -> Result<Dialling, String> + Send + Sync>;

/// A cluster that is watched.
pub struct WatchedCluster {
    /// Names it.
    pub writer_hostgroup: u32,
    /// Its servers, and all others.
    pub configured: Configured,
    /// Members that are not configured are added.
    pub is_followed: bool,
    /// How to log in.
    pub dial: Dial,
}

/// What the watch needs of the running Weir.
pub trait Watched: Send {
    /// The clusters to be watched, as configured now.
    fn clusters(&self) -> Vec<WatchedCluster>;

    /// Adds servers to the configuration of a cluster that was compared with what was found.
    ///
    /// # Errors
    /// Why they are not added; also when the configuration is another one by now.
    fn add(&self, cluster: &WatchedCluster, servers: &[Endpoint]) -> Result<(), String>;
}

/// What was found last, by writer hostgroup. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct KnownDifferences(Arc<Mutex<BTreeMap<u32, Vec<Difference>>>>);

impl KnownDifferences {
    /// All of them.
    pub fn all(&self) -> BTreeMap<u32, Vec<Difference>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, found: BTreeMap<u32, Vec<Difference>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }
}

/// The watch. Dropped, it ends its thread after the look that is under way.
pub struct MemberWatch {
    _stop: Sender<()>,
}

impl MemberWatch {
    /// Starts it; `known` gets what is found.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn start(watched: impl Watched + 'static, known: KnownDifferences) -> io::Result<Self> {
        let (stop, is_over) = channel::<()>();
        thread::Builder::new().name("members".to_owned()).spawn(move || {
            let mut look = Look { watched, known, troubles: BTreeMap::new(), refusals: BTreeMap::new() };
            while is_over.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                look.at_all();
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

struct Look<W> {
    watched: W,
    known: KnownDifferences,
    /// Why a cluster could not be looked at last.
    troubles: BTreeMap<u32, String>,
    /// Why servers could not be added last.
    refusals: BTreeMap<u32, String>,
}

impl<W: Watched> Look<W> {
    fn at_all(&mut self) {
        let mut before = self.known.all();
        let mut found = BTreeMap::new();
        for cluster in self.watched.clusters() {
            let hostgroup = cluster.writer_hostgroup;
            let before = before.remove(&hostgroup).unwrap_or_default();
            let mut now = match at_one(&cluster) {
                Ok(now) => now,
                Err(trouble) => {
                    self.tell_trouble(hostgroup, trouble);
                    // What was so is probably still so.
                    found.insert(hostgroup, before);
                    continue;
                }
            };
            if self.troubles.remove(&hostgroup).is_some() {
                info!(hostgroup, "the members of the cluster are compared with mysql_servers again");
            }
            tell_news(hostgroup, &before, &now);
            if cluster.is_followed {
                self.add(&cluster, &before, &mut now);
            }
            found.insert(hostgroup, now);
        }
        self.troubles.retain(|hostgroup, _| found.contains_key(hostgroup));
        self.refusals.retain(|hostgroup, _| found.contains_key(hostgroup));
        self.known.set(found);
    }

    fn tell_trouble(&mut self, hostgroup: u32, trouble: String) {
        if self.troubles.get(&hostgroup) != Some(&trouble) {
            warn!(hostgroup, "the members of the cluster can't be compared with mysql_servers: {trouble}");
            self.troubles.insert(hostgroup, trouble);
        }
    }

    /// Adds the servers that may be, and were there at the look before, too: one that starts has another identity for a moment.
    fn add(&mut self, cluster: &WatchedCluster, before: &[Difference], now: &mut Vec<Difference>) {
        let hostgroup = cluster.writer_hostgroup;
        let was_there = |found: &Difference| {
            before.iter().any(|before| before.may_be_added && before.server == found.server)
        };
        let addable = now.iter().filter(|found| found.may_be_added && was_there(found));
        let addable: Vec<Endpoint> = addable.map(|found| found.server.clone()).collect();
        if addable.is_empty() {
            self.refusals.remove(&hostgroup);
            return;
        }
        let servers = addable.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self.watched.add(cluster, &addable) {
            Ok(()) => {
                info!(hostgroup, servers, "added to mysql_servers (auto_discover = 'follow')");
                now.retain(|found| !addable.contains(&found.server));
            }
            Err(error) if self.refusals.get(&hostgroup) == Some(&error) => {}
            Err(error) => {
                warn!(hostgroup, servers, "can't be added to mysql_servers: {error}");
                self.refusals.insert(hostgroup, error);
            }
        }
    }
}

/// Once for each server: what its state is may change with every look.
fn tell_news(hostgroup: u32, before: &[Difference], now: &[Difference]) {
    let is_known = |found: &&Difference| {
        before.iter().any(|before| (&before.server, before.about) == (&found.server, found.about))
    };
    for Difference { server, text, about, .. } in now.iter().filter(|found| !is_known(found)) {
        match about {
            // A node that starts is none for a moment.
            About::Strange => info!(hostgroup, %server, "{text}"),
            About::Lacking | About::Unreached => warn!(hostgroup, %server, "{text}"),
        }
    }
}

fn at_one(cluster: &WatchedCluster) -> Result<Vec<Difference>, String> {
    let limits = Limits { pings: 1, asks_about_account: false, ..Limits::default() };
    let members = &cluster.configured.members;
    let findings = walk_from(members, &*cluster.dial, &limits).map_err(|error| error.to_string())?;
    differences(&findings, &cluster.configured).map_err(|refusal| refusal.to_string())
}
