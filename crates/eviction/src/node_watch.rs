//! Watches one node: a connection that is kept, and what is known of the node.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use tracing::debug;
use weir_client::{Capabilities, Connection, Error, Options};
use weir_sql::literal;
use weir_topology::{Endpoint, Millis};

use crate::decision::{Liveness, Node};
use crate::evictor::{Clock, Waker};
use crate::{Membership, Obstacle, ports};

const QUESTION: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_gcomm_uuid', 'wsrep_connected', \
    'wsrep_cluster_status', 'wsrep_local_state', 'wsrep_cluster_state_uuid', 'wsrep_cluster_conf_id', \
    'wsrep_cluster_size', 'wsrep_cluster_weight', 'wsrep_evs_evict_list', 'wsrep_provider_version'); \
    SHOW GLOBAL VARIABLES LIKE 'wsrep_provider_options'";
/// ER_SPECIFIC_ACCESS_DENIED_ERROR.
const DENIED: u16 = 1227;

/// The pause between questions.
const ASK_PAUSE: Duration = Duration::from_millis(250);
/// The pause when a new view is waited for.
const HASTE_PAUSE: Duration = Duration::from_millis(3);
/// How long an answer may take; a silent node is one that hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a silent node's connection is kept, since a hung node's may break when it is killed.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The pause between two attempts to prove a death, as long as the process may be about to end.
const PROOF_PAUSE: Duration = Duration::from_millis(2);
/// How long a process may be about to end: the kernel closes a process's sockets one after the other.
const ENDING: Duration = Duration::from_millis(100);
/// The pause between two attempts to connect.
const DIAL_PAUSE: Duration = Duration::from_millis(250);
/// The pause after a refusal that will not go away by itself.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
/// How long connecting and logging in may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection to one node.
pub(crate) struct NodeWatch {
    pub(crate) endpoint: Endpoint,
    options: Options,
    /// Whether a node that hangs is to be evicted.
    evicts_hung: bool,
    clock: Clock,
    waker: Waker,
    dialed: Sender<Dialed>,
    link: Link,
    liveness: Liveness,
    last: Option<Membership>,
    obstacles: Vec<Obstacle>,
    /// Where the last connection went: clients' port and group's.
    addresses: Option<(SocketAddr, SocketAddr)>,
}

enum Link {
    /// None; the next attempt is due at this moment.
    Down { dial_at: Instant },
    /// A thread connects.
    Dialing,
    /// It broke at `since`, the next attempt to prove the death is due at `knock_at`.
    Lost { since: Instant, knock_at: Instant },
    /// There is one.
    Up(Box<Up>),
}

struct Up {
    connection: Connection,
    /// When a question was sent that is not answered yet.
    asked: Option<(Instant, Millis)>,
    ask_at: Instant,
    asked_last: Instant,
}

/// The outcome of an attempt to connect.
pub(crate) struct Dialed {
    pub(crate) endpoint: Endpoint,
    result: Result<Greeted, Error>,
}

struct Greeted {
    connection: Connection,
    membership: Membership,
    obstacles: Vec<Obstacle>,
    addresses: (SocketAddr, SocketAddr),
}

impl NodeWatch {
    pub(crate) fn new(
        endpoint: Endpoint,
        options: Options,
        evicts_hung: bool,
        clock: Clock,
        waker: Waker,
        dialed: Sender<Dialed>,
    ) -> Self {
        Self {
            endpoint,
            options: fit(options),
            evicts_hung,
            clock,
            waker,
            dialed,
            link: Link::Down { dial_at: Instant::now() },
            liveness: Liveness::Unknown,
            last: None,
            obstacles: Vec::new(),
            addresses: None,
        }
    }

    pub(crate) fn node(&self) -> Node {
        Node {
            endpoint: self.endpoint.clone(),
            liveness: self.liveness,
            last: self.last.clone(),
            obstacles: self.obstacles.clone(),
        }
    }

    /// Whether the node has ever answered, if only with a refusal.
    pub(crate) fn is_known(&self) -> bool {
        self.last.is_some() || !self.obstacles.is_empty()
    }

    pub(crate) fn obstacles(&self) -> Vec<Obstacle> {
        let of_node = self.last.iter().flat_map(Membership::obstacles);
        self.obstacles.iter().cloned().chain(of_node).collect()
    }

    pub(crate) fn connection(&self) -> Option<&Connection> {
        match &self.link {
            Link::Up(up) => Some(&up.connection),
            _ => None,
        }
    }

    /// When something has to be done.
    pub(crate) fn due(&self) -> Instant {
        match &self.link {
            Link::Down { dial_at } => *dial_at,
            Link::Dialing => Instant::now() + DIAL_TIMEOUT,
            Link::Lost { knock_at, .. } => *knock_at,
            Link::Up(up) => match up.asked {
                Some((at, _)) if self.liveness == Liveness::Alive => at + ANSWER_TIMEOUT,
                Some((at, _)) => at + SILENCE_MAX,
                None => up.ask_at,
            },
        }
    }

    /// Does what is due.
    pub(crate) fn tend(&mut self) {
        let now = Instant::now();
        if now < self.due() {
            return;
        }
        match &mut self.link {
            Link::Down { .. } => self.dial(),
            Link::Dialing => {}
            Link::Lost { since, .. } => {
                let since = *since;
                self.knock(since);
            }
            Link::Up(up) => match up.asked {
                None => self.ask(),
                Some((at, _)) if now.duration_since(at) >= SILENCE_MAX => {
                    self.liveness = Liveness::Unknown;
                    self.link = Link::Down { dial_at: now };
                }
                Some(_) => self.fall_silent(),
            },
        }
    }

    /// It has not answered in time.
    fn fall_silent(&mut self) {
        self.liveness = match self.evicts_hung {
            true => Liveness::Hung { since: self.clock.now() },
            false => Liveness::Unknown,
        };
    }

    /// Asks as soon as the pause between two questions allows.
    pub(crate) fn ask_soon(&mut self) {
        if let Link::Up(up) = &mut self.link {
            up.ask_at = up.ask_at.min(up.asked_last + HASTE_PAUSE);
        }
    }

    fn ask(&mut self) {
        let now = Instant::now();
        let Link::Up(up) = &mut self.link else { return };
        up.asked = Some((now, self.clock.now()));
        up.asked_last = now;
        up.ask_at = now + ASK_PAUSE;
        if up.connection.begin(QUESTION).is_err() {
            self.lose();
        }
    }

    /// The connection has something to say: the answer, or that it is broken.
    pub(crate) fn hear(&mut self) {
        let Link::Up(up) = &mut self.link else { return };
        let answer = up.asked.take().map(|(_, at)| (at, up.connection.finish()));
        match answer {
            Some((at, Ok(results))) => {
                let rows = results.iter().flat_map(|result| result.pairs());
                self.last = Some(Membership::from_rows(at, rows));
                self.liveness = Liveness::Alive;
            }
            Some((_, Err(error))) if !error.is_fatal() => {
                debug!(server = %self.endpoint, %error, "eviction: the node refuses the status query");
                self.liveness = Liveness::Unknown;
            }
            // It fell silent in the middle of its answer: nothing more is read from there, and a connection that is
            // refused instead of left waiting shows that it has died since.
            Some((_, Err(error))) if error.is_timeout() => {
                self.fall_silent();
                self.link = Link::Down { dial_at: Instant::now() };
            }
            // Nobody had asked: it is broken, or about to be.
            Some((_, Err(_))) | None => self.lose(),
        }
    }

    /// Sets provider options.
    pub(crate) fn set(&mut self, options: &str) -> Result<(), Error> {
        let Link::Up(up) = &mut self.link else { return Err(Error::Closed) };
        // An answer that is on its way comes first.
        if up.asked.is_some() {
            self.hear();
        }
        let Link::Up(up) = &mut self.link else { return Err(Error::Closed) };
        let done =
            up.connection.query(&format!("SET GLOBAL wsrep_provider_options = {}", literal::text(options)));
        if done.as_ref().is_err_and(Error::is_fatal) {
            self.lose();
        }
        done.map(|_| ())
    }

    fn lose(&mut self) {
        let now = Instant::now();
        self.liveness = Liveness::Unknown;
        self.link = Link::Lost { since: now, knock_at: now };
        self.knock(now);
    }

    /// Tries to prove that the node is dead. If it lives it is connected to again.
    fn knock(&mut self, since: Instant) {
        let now = Instant::now();
        let Some((clients, group)) = self.addresses else {
            self.link = Link::Down { dial_at: now };
            return;
        };
        if ports::both_refuse(clients, group) {
            self.liveness = Liveness::Dead { since: self.clock.now() };
            self.link = Link::Down { dial_at: now + DIAL_PAUSE };
        } else if now.duration_since(since) < ENDING {
            self.link = Link::Lost { since, knock_at: Instant::now() + PROOF_PAUSE };
        } else {
            self.dial();
        }
    }

    /// Connects, on a thread of its own: a node that hangs takes its time.
    fn dial(&mut self) {
        let (endpoint, options, clock) = (self.endpoint.clone(), self.options.clone(), self.clock);
        let (dialed, waker) = (self.dialed.clone(), self.waker.clone());
        let thread = thread::Builder::new().name(format!("assist {endpoint}"));
        let started = thread.spawn(move || {
            let result = greet(&options, clock);
            // Nobody listens any more at the end.
            let _ = dialed.send(Dialed { endpoint, result });
            waker.wake();
        });
        self.link = match started {
            Ok(_) => Link::Dialing,
            Err(_) => Link::Down { dial_at: Instant::now() + REFUSED_PAUSE },
        };
    }

    /// An attempt to connect has ended.
    pub(crate) fn answered(&mut self, call: Dialed) {
        let now = Instant::now();
        match call.result {
            Ok(Greeted { connection, membership, obstacles, addresses }) => {
                let is_refused =
                    obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::NoPrivilege { .. }));
                self.obstacles = obstacles;
                self.last = Some(membership);
                self.addresses = Some(addresses);
                if is_refused {
                    // Not worth a connection.
                    self.liveness = Liveness::Unknown;
                    self.link = Link::Down { dial_at: now + REFUSED_PAUSE };
                    return;
                }
                self.liveness = Liveness::Alive;
                let up = Up { connection, asked: None, ask_at: now, asked_last: now };
                self.link = Link::Up(Box::new(up));
            }
            Err(error) => {
                debug!(server = %self.endpoint, %error, "eviction: can't connect to the node");
                let mut pause = DIAL_PAUSE;
                if matches!(error, Error::Server { .. } | Error::Unsupported(_) | Error::NoTls)
                    && self.last.is_none()
                {
                    self.obstacles = vec![Obstacle::Refuses { cause: error.to_string() }];
                    pause = REFUSED_PAUSE;
                } else if !matches!(self.liveness, Liveness::Dead { .. })
                    && let Some((clients, group)) = self.addresses
                    && ports::both_refuse(clients, group)
                {
                    self.liveness = Liveness::Dead { since: self.clock.now() };
                }
                self.link = Link::Down { dial_at: now + pause };
            }
        }
    }
}

/// What speaks against evicting anybody from the node's cluster.
pub(crate) fn obstacles(options: Options) -> Result<Vec<Obstacle>, Error> {
    let greeted = greet(&fit(options), Clock(Instant::now()))?;
    let of_node = greeted.membership.obstacles();
    Ok(greeted.obstacles.into_iter().chain(of_node).collect())
}

/// The options of a connection that is kept for this.
fn fit(options: Options) -> Options {
    let mut options = options.timeouts(DIAL_TIMEOUT, ANSWER_TIMEOUT);
    options.capabilities |= Capabilities::MULTI_STATEMENTS;
    options
}

/// Connects, asks, and looks whether the account may set provider options.
fn greet(options: &Options, clock: Clock) -> Result<Greeted, Error> {
    let mut connection = Connection::connect(options)?;
    let asked_at = clock.now();
    let results = connection.query_all(QUESTION)?;
    let membership = Membership::from_rows(asked_at, results.iter().flat_map(|result| result.pairs()));
    let mut obstacles = Vec::new();
    match connection.query("SET GLOBAL wsrep_provider_options = ''") {
        Ok(_) => {}
        Err(Error::Server { code: DENIED, .. }) => {
            obstacles.push(Obstacle::NoPrivilege { user: options.user.clone() });
        }
        Err(error) if !error.is_fatal() => obstacles.push(Obstacle::Refuses { cause: error.to_string() }),
        Err(error) => return Err(error),
    }
    let clients = connection.peer_addr()?;
    let (ip, port) = membership.provider.group_address();
    let group = SocketAddr::new(ip.unwrap_or(clients.ip()), port);
    if obstacles.is_empty() && membership.is_connected && !ports::answers(group) {
        obstacles.push(Obstacle::GroupPortSilent { address: group.to_string() });
    }
    Ok(Greeted { connection, membership, obstacles, addresses: (clients, group) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use weir_testkit::{FakeServer, Script, Step};

    use super::*;

    /// Drives the watch as its thread does, until it says this.
    fn liveness_of(server: &FakeServer, evicts_hung: bool, is_it: impl Fn(Liveness) -> bool) {
        let address = server.addr();
        let endpoint = Endpoint::new(&address.ip().to_string(), address.port());
        let options = Options::new(&address.ip().to_string(), address.port(), "assist", "");
        let (waker, _bell) = UnixStream::pair().unwrap();
        let (dialed, calls) = channel();
        let (clock, waker) = (Clock(Instant::now()), Waker(Arc::new(waker)));
        let mut watch = NodeWatch::new(endpoint, options, evicts_hung, clock, waker, dialed);
        let begun = Instant::now();
        while !watch.is_known() || !is_it(watch.liveness) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it is {:?}", watch.liveness);
            if let Ok(call) = calls.try_recv() {
                watch.answered(call);
            }
            watch.tend();
            if matches!(&watch.link, Link::Up(up) if up.asked.is_some()) {
                watch.hear();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_node_that_stops_in_the_middle_of_its_answer_hangs() {
        let script = || {
            let greeted = Script::new().query("SHOW GLOBAL STATUS").ok().query("SET GLOBAL").ok();
            // A result set of one column, of which no more comes.
            greeted.query("SHOW GLOBAL STATUS").send([1]).step(Step::Ignore)
        };
        let server = FakeServer::with_login(Default::default(), move |_| script()).unwrap();
        liveness_of(&server, true, |liveness| matches!(liveness, Liveness::Hung { .. }));
        liveness_of(&server, false, |liveness| liveness == Liveness::Unknown);
    }
}
