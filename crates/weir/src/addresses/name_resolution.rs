//! Resolves the names of servers, on threads of its own.
//!
//! A name is looked up when a configuration is loaded, when its answer is older than `monitor_local_dns_cache_ttl` at one
//! of the rounds of `monitor_local_dns_cache_refresh_interval`, and at once when its server has stopped to answer: it
//! may be somewhere else by now. At most one thread at a time asks for the same server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weir_config::Config;
use weir_topology::Endpoint;

use super::{Dialer, Resolver, ServerAddress, ServerAddresses, choose, dialer, endpoints, literal, system};

/// Names that are looked up at a time. A resolver that does not answer holds a thread for half a minute.
const THREADS_MAX: usize = 64;
/// The stack of a thread that looks a name up, in bytes.
const STACK_BYTES: usize = 512 << 10;
/// The pauses, in seconds, before a name is looked up again that could not be resolved, or whose server does not answer.
const RETRIES_S: [u64; 4] = [1, 2, 4, 5];
/// For so long an answer is kept for a server that is not in force: its configuration may be on its way.
const UNUSED: Duration = Duration::from_secs(60);
/// The shortest pause between two rounds.
const ROUND_MIN: Duration = Duration::from_secs(1);

/// The names of the servers in force. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Names(Arc<Inner>);

struct Inner {
    resolver: Resolver,
    dialer: Dialer,
    state: Mutex<State>,
    /// Something has been answered, or there is something to do for the thread that watches.
    news: Condvar,
}

#[derive(Default)]
struct State {
    /// By server, those whose hostname is no address.
    names: BTreeMap<Endpoint, Name>,
    /// To be looked up.
    queue: VecDeque<Endpoint>,
    threads: usize,
    /// What everybody goes by, names and addresses alike.
    known: ServerAddresses,
    silent: BTreeSet<Endpoint>,
    ttl: Duration,
    refresh_interval: Duration,
}

#[derive(Default)]
struct Name {
    is_under_way: bool,
    asked_at: Option<Instant>,
    /// Lookups in a row of which nothing good has come.
    retries: usize,
    answer: Option<Result<Vec<SocketAddr>, Arc<str>>>,
    /// Where the server is spoken to by this answer.
    at: Option<SocketAddr>,
    answers: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self::by(system(), dialer())
    }

    pub(super) fn by(resolver: Resolver, dialer: Dialer) -> Self {
        Self(Arc::new(Inner { resolver, dialer, state: Mutex::default(), news: Condvar::new() }))
    }

    /// Looks up the servers of a configuration. Returns after `limit` at the latest; what is answered later counts when
    /// it comes.
    pub(crate) fn look_up(&self, config: &Config, limit: Duration) {
        let until = Instant::now() + limit;
        let wanted: BTreeSet<Endpoint> =
            endpoints(config).filter(|endpoint| literal(endpoint).is_none()).collect();
        let mut state = self.state();
        let mut awaited = Vec::with_capacity(wanted.len());
        for endpoint in wanted {
            let answers = state.names.get(&endpoint).map_or(0, |name| name.answers);
            self.begin(&mut state, &endpoint);
            awaited.push((endpoint, answers));
        }
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            awaited.retain(|(endpoint, answers)| {
                state.names.get(endpoint).is_some_and(|name| name.answers == *answers)
            });
            if awaited.is_empty() {
                return;
            }
            state = self.0.news.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Where the servers of a configuration are by the latest answers. One whose name can't be resolved now stays where
    /// it was.
    pub(crate) fn known(&self, config: &Config, before: &ServerAddresses) -> ServerAddresses {
        let state = self.state();
        let mut known = ServerAddresses::new();
        for endpoint in endpoints(config) {
            let now = state.whereabouts(&endpoint, before);
            known.insert(endpoint, now);
        }
        known
    }

    /// Everybody goes by this from now on; names are looked up as often as the configuration says.
    pub(crate) fn follow(&self, config: &Config, known: &ServerAddresses) {
        let mut state = self.state();
        state.known.clone_from(known);
        state.ttl = config.variables.monitor_local_dns_cache_ttl;
        state.refresh_interval = config.variables.monitor_local_dns_cache_refresh_interval;
        let State { names, .. } = &mut *state;
        names.retain(|endpoint, name| {
            let is_fresh = name.asked_at.is_some_and(|at| at.elapsed() < UNUSED);
            name.is_under_way || is_fresh || known.contains_key(endpoint)
        });
        self.0.news.notify_all();
    }

    /// These servers do not answer, all others do or have not been asked.
    pub(crate) fn note_silent(&self, silent: BTreeSet<Endpoint>) {
        let mut state = self.state();
        if state.silent != silent {
            let State { names, silent: before, .. } = &mut *state;
            for endpoint in silent.difference(before) {
                names.entry(endpoint.clone()).and_modify(|name| name.retries = 0);
            }
            state.silent = silent;
            self.0.news.notify_all();
        }
    }

    /// Where all servers in force are, for whoever shows it.
    pub(crate) fn all(&self) -> ServerAddresses {
        self.state().known.clone()
    }

    /// Looks names up again and again, on a thread that lasts as long as the process, and `tell`s when
    /// [`Names::known`] has something else to say than what was last [followed](Names::follow).
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn watch(&self, tell: impl Fn() + Send + 'static) -> std::io::Result<()> {
        let names = self.clone();
        std::thread::Builder::new().name("resolver".into()).spawn(move || {
            let mut told = ServerAddresses::new();
            loop {
                let pause = names.begin_what_is_due();
                let state = names.state();
                let others = state.others();
                if !others.is_empty() && others != told {
                    drop(state);
                    told = others;
                    tell();
                    continue;
                }
                told = others;
                drop(names.0.news.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner));
            }
        })?;
        Ok(())
    }

    /// Begins the lookups that are due; how long there is nothing more to begin.
    fn begin_what_is_due(&self) -> Duration {
        let now = Instant::now();
        let mut state = self.state();
        let mut pause = Duration::from_secs(3600);
        let names: Vec<Endpoint> =
            state.known.keys().filter(|endpoint| literal(endpoint).is_none()).cloned().collect();
        for endpoint in names {
            let Some(left) = state.due_in(&endpoint, now) else { continue };
            if left.is_zero() {
                self.begin(&mut state, &endpoint);
            } else {
                pause = pause.min(left);
            }
        }
        pause
    }

    /// Has a name looked up, unless somebody is at it.
    fn begin(&self, state: &mut State, endpoint: &Endpoint) {
        let name = state.names.entry(endpoint.clone()).or_default();
        if name.is_under_way {
            return;
        }
        (name.is_under_way, name.asked_at) = (true, Some(Instant::now()));
        state.queue.push_back(endpoint.clone());
        if state.threads >= THREADS_MAX {
            return;
        }
        let names = self.clone();
        let thread = std::thread::Builder::new().name("lookup".into()).stack_size(STACK_BYTES);
        match thread.spawn(move || names.work_off()) {
            Ok(_) => state.threads += 1,
            Err(error) => {
                tracing::warn!(%error, "can't start a thread to resolve names");
                if state.threads == 0 {
                    state.queue.retain(|queued| queued != endpoint);
                    let name = state.names.entry(endpoint.clone()).or_default();
                    name.is_under_way = false;
                }
            }
        }
    }

    /// A thread's work: one name after the other, until none is left.
    fn work_off(&self) {
        let mut state = self.state();
        while let Some(endpoint) = state.queue.pop_front() {
            let current = state.known.get(&endpoint).and_then(|known| known.at);
            let is_silent = state.silent.contains(&endpoint);
            drop(state);
            let answer = self.ask(&endpoint);
            let at = answer.as_deref().ok().and_then(|all| choose(all, current, is_silent, &self.0.dialer));
            state = self.state();
            if let Some(name) = state.names.get_mut(&endpoint) {
                let is_good = answer.is_ok() && !is_silent;
                name.retries = if is_good { 0 } else { name.retries + 1 };
                name.at = at;
                name.answer = Some(answer);
                name.is_under_way = false;
                name.answers += 1;
            }
            self.0.news.notify_all();
        }
        state.threads -= 1;
    }

    fn ask(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Arc<str>> {
        let found = (self.0.resolver)(&endpoint.host).map_err(|error| Arc::from(error.to_string()))?;
        let mut all: Vec<SocketAddr> = Vec::with_capacity(found.len());
        for ip in found {
            let address = SocketAddr::new(ip, endpoint.port);
            if !all.contains(&address) {
                all.push(address);
            }
        }
        if all.is_empty() { Err("the name has no address".into()) } else { Ok(all) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn whereabouts(&self, endpoint: &Endpoint, before: &ServerAddresses) -> ServerAddress {
        if let Some(address) = literal(endpoint) {
            return ServerAddress::fixed(address);
        }
        let before = before.get(endpoint).cloned().unwrap_or_default();
        let name = self.names.get(endpoint);
        match name.and_then(|name| Some((name.answer.as_ref()?, name.at))) {
            Some((Ok(all), at)) => {
                let mut all = all.clone();
                all.sort_unstable();
                ServerAddress { at, all, fault: None }
            }
            Some((Err(cause), _)) => ServerAddress { fault: Some(cause.clone()), ..before },
            None if before.at.is_some() => before,
            None => ServerAddress { fault: Some(ServerAddress::NOT_ANSWERED.into()), ..before },
        }
    }

    /// The servers that are not where everybody believes.
    fn others(&self) -> ServerAddresses {
        let now = |endpoint: &Endpoint| self.whereabouts(endpoint, &self.known);
        let all = self.known.iter().map(|(endpoint, known)| (endpoint, known, now(endpoint)));
        let others = all.filter(|(_, known, now)| *known != now);
        others.map(|(endpoint, _, now)| (endpoint.clone(), now)).collect()
    }

    /// In which time a name of a server in force is to be looked up; none while somebody is at it.
    fn due_in(&self, endpoint: &Endpoint, now: Instant) -> Option<Duration> {
        let Some(name) = self.names.get(endpoint) else { return Some(Duration::ZERO) };
        if name.is_under_way {
            return None;
        }
        let Some(asked_at) = name.asked_at else { return Some(Duration::ZERO) };
        let is_troubled = self.silent.contains(endpoint) || !matches!(name.answer, Some(Ok(_)));
        let pause = if is_troubled {
            let pause_s = RETRIES_S.get(name.retries).or(RETRIES_S.last()).copied().unwrap_or(1);
            Duration::from_secs(pause_s)
        } else {
            self.lifetime()
        };
        Some((asked_at + pause).saturating_duration_since(now))
    }

    /// How long an answer is good for: until the first round after the time to live.
    fn lifetime(&self) -> Duration {
        let round = self.refresh_interval.max(ROUND_MIN);
        let rounds = self.ttl.as_nanos().div_ceil(round.as_nanos()).max(1);
        round.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.state().known).finish()
    }
}
