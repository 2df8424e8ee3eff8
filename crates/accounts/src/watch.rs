//! Keeps the accounts of each followed hostgroup up to date, on a thread of its own.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{info, warn};
use weir_client::Options;
use weir_session::accounts::AccountList;
use weir_topology::{Endpoint, ServerShared};

use crate::reader::{AccountReader, LastRead, ReadError};

/// How often a server is asked whether its accounts have changed...
pub const INTERVAL: Duration = Duration::from_secs(1);
/// ... unless the answer takes long: the pause is so many times that.
const PAUSE_PER_ANSWER: u32 = 50;
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// The first pause after a question that failed while nothing is known; further ones are longer.
const RETRY: Duration = Duration::from_millis(200);
/// So many different troubles are told as they come...
const TOLD_AT_ONCE: u32 = 5;
/// ... and then one at a time.
const TOLD_AGAIN: Duration = Duration::from_secs(10);
/// How long a server may take to let the account in, and to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A hostgroup whose accounts are followed.
#[derive(Clone, Debug, Default)]
pub struct FollowedHostgroup {
    /// The servers to ask: the first that answers counts. While there is none, what is known stays.
    pub servers: Vec<Options>,
    /// All servers of the cluster. If none of them is the same as before, nothing is known any more.
    pub members: BTreeSet<Endpoint>,
    /// All servers that users of these accounts may be at: connections there are logged in anew when the accounts have been
    /// read that may have changed.
    pub concerned: Vec<Arc<ServerShared>>,
}

impl PartialEq for FollowedHostgroup {
    fn eq(&self, other: &Self) -> bool {
        let same = |(one, other): (&Arc<ServerShared>, &Arc<ServerShared>)| Arc::ptr_eq(one, other);
        (&self.servers, &self.members) == (&other.servers, &other.members)
            && self.concerned.len() == other.concerned.len()
            && self.concerned.iter().zip(&other.concerned).all(same)
    }
}

/// What is known of a hostgroup's accounts.
#[derive(Clone, Debug, Default)]
pub struct KnownAccounts {
    /// The accounts as they were read last; none: they never were.
    pub list: Option<Arc<AccountList>>,
    /// Why they can't be read now.
    pub trouble: Option<Arc<str>>,
}

/// How often the accounts of servers may have changed.
struct Renewals(Vec<(Arc<ServerShared>, u64)>);

impl Renewals {
    fn of(servers: &[Arc<ServerShared>]) -> Self {
        Self(servers.iter().map(|server| (server.clone(), server.renewal())).collect())
    }

    fn settle(&self) {
        self.0.iter().for_each(|(server, renewals)| server.follow_renewals(*renewals));
    }
}

/// Follows the accounts of hostgroups. Dropped, it ends its threads.
pub struct AccountWatch {
    shared: Arc<Shared>,
    /// The way to the thread of a hostgroup, and what it was sent last.
    followers: BTreeMap<u32, (Sender<FollowedHostgroup>, FollowedHostgroup)>,
    /// Threads that were started.
    started: u64,
}

struct Shared {
    /// With the number of the thread that may write there: another one may still be at its last question.
    known: Mutex<BTreeMap<u32, (u64, KnownAccounts)>>,
    changed: Condvar,
    on_change: Box<dyn Fn() + Send + Sync>,
}

impl AccountWatch {
    /// A watch that follows nobody yet; `on_change` is called by its threads, and must not block.
    pub fn new(on_change: impl Fn() + Send + Sync + 'static) -> Self {
        let (known, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { known, changed, on_change: Box::new(on_change) });
        Self { shared, followers: BTreeMap::new(), started: 0 }
    }

    /// Follows these hostgroups from now on, and no others.
    ///
    /// # Errors
    /// If the system gives no more threads.
    pub fn follow(&mut self, wanted: BTreeMap<u32, FollowedHostgroup>) -> io::Result<()> {
        let ids: HashSet<u32> = wanted.keys().copied().collect();
        self.followers.retain(|hostgroup, _| ids.contains(hostgroup));
        self.shared.known().retain(|hostgroup, _| ids.contains(hostgroup));
        for (hostgroup, wanted) in wanted {
            if let Some((follower, before)) = self.followers.get_mut(&hostgroup) {
                if *before != wanted {
                    before.clone_from(&wanted);
                    // The thread ends with its sender only.
                    let _ = follower.send(wanted);
                }
                continue;
            }
            let (sender, orders) = channel();
            self.started += 1;
            let (shared, number, first) = (self.shared.clone(), self.started, wanted.clone());
            self.shared.known().insert(hostgroup, (number, KnownAccounts::default()));
            thread::Builder::new().name(format!("accounts {hostgroup}")).spawn(move || {
                Follower {
                    hostgroup,
                    number,
                    shared,
                    wanted,
                    asked: None,
                    last: LastRead::default(),
                    told_at: None,
                    told: 0,
                }
                .run(&orders);
            })?;
            self.followers.insert(hostgroup, (sender, first));
        }
        Ok(())
    }

    /// What is known, by hostgroup.
    pub fn latest(&self) -> BTreeMap<u32, KnownAccounts> {
        self.shared.known().iter().map(|(hostgroup, (_, known))| (*hostgroup, known.clone())).collect()
    }

    /// Waits until the accounts of all hostgroups are known, but not longer than `timeout`.
    pub fn wait(&self, timeout: Duration) {
        let until = Instant::now() + timeout;
        let mut known = self.shared.known();
        while known.values().any(|(_, known)| known.list.is_none()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.changed.wait_timeout(known, left);
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl fmt::Debug for AccountWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountWatch").field("hostgroups", &self.followers.keys()).finish_non_exhaustive()
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, (u64, KnownAccounts)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Follower {
    hostgroup: u32,
    /// Its own, among all threads of its watch.
    number: u64,
    shared: Arc<Shared>,
    wanted: FollowedHostgroup,
    /// The server that is asked, as long as it is one of them.
    asked: Option<(Options, AccountReader)>,
    last: LastRead,
    /// When a trouble was told last, and how many since the accounts were read last.
    told_at: Option<Instant>,
    told: u32,
}

impl Follower {
    fn run(mut self, orders: &Receiver<FollowedHostgroup>) {
        let mut retry = RETRY;
        loop {
            let since = Instant::now();
            let is_known = self.look();
            let pause = if is_known { INTERVAL.max(since.elapsed() * PAUSE_PER_ANSWER) } else { retry };
            retry = (2 * retry).min(INTERVAL);
            match orders.recv_timeout(pause.min(PAUSE_MAX)) {
                Ok(wanted) => {
                    retry = RETRY;
                    self.take(orders.try_iter().last().unwrap_or(wanted));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Asks these servers from now on. Another cluster has other accounts.
    fn take(&mut self, wanted: FollowedHostgroup) {
        let is_another = self.wanted.members.is_disjoint(&wanted.members) && !self.wanted.members.is_empty();
        self.wanted = wanted;
        if !is_another {
            return;
        }
        self.last = LastRead::default();
        if let Some((number, entry)) = self.shared.known().get_mut(&self.hostgroup)
            && *number == self.number
        {
            entry.list = None;
        }
        (self.shared.on_change)();
    }

    /// Asks once. Whether anything is known.
    fn look(&mut self) -> bool {
        let renewals = Renewals::of(&self.wanted.concerned);
        let read = self.read();
        let mut known = self.shared.known();
        // Nobody follows any more, or another thread does.
        let Some((_, entry)) = known.get_mut(&self.hostgroup).filter(|(number, _)| *number == self.number)
        else {
            return true;
        };
        let hostgroup = self.hostgroup;
        let is_changed = match read {
            Ok(list) => {
                self.told = 0;
                if entry.trouble.take().is_some() {
                    info!(hostgroup, "the accounts of the servers are followed again");
                }
                if let Some(list) = list {
                    info!(hostgroup, accounts = list.len(), "read the accounts of the servers");
                    entry.list = Some(Arc::new(list));
                    true
                } else {
                    false
                }
            }
            Err(trouble) => {
                let is_first = entry.trouble.is_none();
                let is_due = is_first
                    || self.told < TOLD_AT_ONCE
                    || self.told_at.is_none_or(|at| at.elapsed() > TOLD_AGAIN);
                let is_new = is_due && entry.trouble.as_deref() != Some(trouble.as_str());
                if is_new {
                    warn!(hostgroup, trouble, "the accounts of the servers can't be read");
                    entry.trouble = Some(trouble.into());
                    self.told_at = Some(Instant::now());
                    self.told += 1;
                }
                is_new
            }
        };
        let is_known = entry.list.is_some();
        drop(known);
        if !is_changed {
            // What has changed before is in force since the last look, and whoever makes several changes has made them.
            renewals.settle();
        } else {
            self.shared.changed.notify_all();
            (self.shared.on_change)();
        }
        is_known
    }

    /// The accounts if they have changed; else why they can't be read.
    fn read(&mut self) -> Result<Option<AccountList>, String> {
        self.asked = self.asked.take().filter(|(options, _)| self.wanted.servers.contains(options));
        if let Some((options, reader)) = &mut self.asked {
            match reader.read_if_changed(&mut self.last) {
                Ok(list) => return Ok(list),
                Err(error) => tracing::debug!(server = %name(options), %error, "asked for accounts in vain"),
            }
            self.asked = None;
        }
        let mut troubles = Vec::new();
        for options in &self.wanted.servers {
            let asked = options.clone().timeouts(CONNECT_TIMEOUT, ANSWER_TIMEOUT);
            let outcome = AccountReader::connect(&asked).and_then(|mut reader| {
                let list = reader.read_if_changed(&mut self.last)?;
                Ok((reader, list))
            });
            match outcome {
                Ok((reader, list)) => {
                    self.asked = Some((options.clone(), reader));
                    return Ok(list);
                }
                Err(error) => troubles.push(trouble(options, &error)),
            }
        }
        if troubles.is_empty() {
            troubles.push(format!("no server of hostgroup {} is online", self.hostgroup));
        }
        Err(troubles.join("; "))
    }
}

fn name(options: &Options) -> String {
    format!("{}:{}", options.host, options.port)
}

fn trouble(options: &Options, error: &ReadError) -> String {
    format!("{} (as {}): {error}", name(options), options.user)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_server_the_reason_is_told_and_the_wait_ends() {
        let (sender, told) = channel();
        let mut watch = AccountWatch::new(move || _ = sender.send(()));
        watch.wait(Duration::from_secs(60));
        watch.follow([(7, FollowedHostgroup::default())].into()).unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        let known = watch.latest();
        assert_eq!(known[&7].trouble.as_deref(), Some("no server of hostgroup 7 is online"));
        watch.wait(Duration::from_millis(10));
        watch.follow(BTreeMap::new()).unwrap();
        assert!(watch.latest().is_empty());
    }

    #[test]
    fn servers_that_do_not_answer_are_named_with_the_account() {
        let (sender, told) = channel();
        let mut watch = AccountWatch::new(move || _ = sender.send(()));
        // Nobody listens there.
        let servers = vec![Options::new("127.0.0.1", 1, "monitor", "")];
        let concerned = vec![Arc::new(ServerShared::new(Endpoint::new("127.0.0.1", 1)))];
        concerned[0].renew();
        watch
            .follow(
                [(7, FollowedHostgroup { servers, concerned: concerned.clone(), members: BTreeSet::new() })]
                    .into(),
            )
            .unwrap();
        told.recv_timeout(Duration::from_secs(10)).unwrap();
        let trouble = watch.latest()[&7].trouble.clone().unwrap();
        assert!(trouble.starts_with("127.0.0.1:1 (as monitor): "), "{trouble}");
        // The next look finds the same.
        let until = Instant::now() + Duration::from_secs(10);
        while concerned[0].followed_renewal() < 1 {
            assert!(Instant::now() < until, "logins are not renewed");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
