//! Finds out which transactions a server has executed, for statements that name one (`min_gtid`).
//!
//! | server | how |
//! | --- | --- |
//! | with a `gtid_port` | what ProxySQL's binlog reader tells there is followed; while it tells nothing, as below |
//! | without | it is asked, while somebody waits, and for a while after that |
//! | Galera, without | not at all: see `weir_topology::ExecutedGtids::is_told_by_checks` |

use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use tracing::{debug, info, warn};
use weir_client::{Address, Connection, Error, Options};
use weir_topology::{GtidFault, GtidSet, GtidStream, ServerShared, StreamFault, WhyUnknown};

use crate::probe_thread::{Order, ends};
use crate::settings::GtidPort;

/// What a server has executed, and whether it counts at all.
const EXECUTED_MYSQL: &str = "SELECT @@GLOBAL.gtid_executed, @@GLOBAL.gtid_mode";
/// On a replica what it has applied, on a source what it has written itself.
const EXECUTED_MARIADB: &str = "SELECT @@GLOBAL.gtid_current_pos, 'ON'";
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// The first pause between two questions while somebody waits; the next ones are longer as long as nothing new is told...
const ASK_PAUSE_MIN: Duration = Duration::from_millis(1);
/// ... up to this.
const ASK_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Who waits says so again within this time.
const WANTED_FOR: Duration = Duration::from_millis(60);
/// So often a server is asked that nobody waits for...
const ASK_SELDOM: Duration = Duration::from_secs(1);
/// ... as long as somebody has waited within this time. Then what is known is forgotten, as it may not be true for ever.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// The pause after a question that failed.
const FAILED_PAUSE: Duration = Duration::from_millis(100);
/// Nothing to do for so long, unless somebody rings.
const SLEEP: Duration = Duration::from_secs(3600);
/// Bytes read of a stream at a time.
const CHUNK_BYTES: usize = 16 * 1024;

/// Wakes the thread: somebody waits, or it has to end.
pub(crate) struct Bell(Arc<OwnedFd>);

impl Bell {
    /// From now on [`weir_topology::ExecutedGtids::wake`] rings this one.
    pub(crate) fn of(shared: &ServerShared) -> io::Result<Self> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let rung = eventfd.clone();
        shared.gtids.set_alarm(move || {
            let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
        });
        Ok(Self(eventfd))
    }

    /// Waits until `stream` has something to read, the bell rings, or the time is over. Has it?
    fn wait(&self, stream: Option<&TcpStream>, timeout: Duration) -> bool {
        let mut waited = vec![PollFd::new(&*self.0, PollFlags::IN)];
        waited.extend(stream.map(|stream| PollFd::new(stream, PollFlags::IN)));
        // Interrupted or not: what is there is seen the next time.
        let _ = poll(&mut waited, Timespec::try_from(timeout).ok().as_ref());
        let speaks = waited.get(1).is_some_and(|fd| !fd.revents().is_empty());
        let _ = rustix::io::read(&*self.0, &mut [0; 8]);
        speaks
    }
}

/// Keeps what is known of a server up to date until it is told to end.
pub(crate) fn run(
    options: Options,
    port: Option<GtidPort>,
    shared: &ServerShared,
    bell: &Bell,
    orders: &Receiver<Order>,
) {
    shared.gtids.forget(WhyUnknown::NotYet);
    let now = Instant::now();
    let mut follower =
        Follower { port, host: options.clone(), stream: None, connect_at: now, last_fault: None };
    let mut questions = Questions::new(options, now);
    while !ends(orders) {
        follower.connect_if_due(shared);
        let mut pause = follower.pause();
        if !follower.has_begun() {
            pause = pause.min(questions.go_on(shared));
        }
        if bell.wait(follower.stream.as_ref().map(|(socket, _)| socket), pause) && !ends(orders) {
            let had_begun = follower.has_begun();
            follower.read(shared);
            if follower.has_begun() && !had_begun {
                questions.end();
            }
        }
    }
}

/// Follows a binlog reader.
struct Follower {
    port: Option<GtidPort>,
    host: Options,
    stream: Option<(TcpStream, GtidStream)>,
    connect_at: Instant,
    /// Told once, until it is another one.
    last_fault: Option<String>,
}

/// Why a binlog reader is not followed.
#[derive(Debug, thiserror::Error)]
enum NoStream {
    #[error("{0}")]
    Unresolved(Arc<str>),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has closed the connection")]
    Closed,
    #[error(transparent)]
    Fault(#[from] StreamFault),
    #[error(transparent)]
    Set(#[from] GtidFault),
}

impl Follower {
    fn has_begun(&self) -> bool {
        self.stream.as_ref().is_some_and(|(_, stream)| stream.has_begun())
    }

    fn pause(&self) -> Duration {
        match (&self.port, &self.stream) {
            (Some(_), None) => self.connect_at.saturating_duration_since(Instant::now()),
            _ => SLEEP,
        }
    }

    fn connect_if_due(&mut self, shared: &ServerShared) {
        let Some(port) = self.port.filter(|_| self.stream.is_none() && self.connect_at <= Instant::now())
        else {
            return;
        };
        match connect(&self.host, port.port) {
            Ok(socket) => self.stream = Some((socket, GtidStream::default())),
            Err(error) => self.lose(shared, &error),
        }
    }

    fn read(&mut self, shared: &ServerShared) {
        let Some((socket, stream)) = &mut self.stream else { return };
        let had_begun = stream.has_begun();
        match take(socket, stream, shared) {
            Ok(()) if stream.has_begun() && !had_begun => {
                self.last_fault = None;
                info!(server = %shared.endpoint, "its binlog reader tells which transactions it has executed");
            }
            Ok(()) => {}
            Err(error) => self.lose(shared, &error),
        }
    }

    /// It may have executed more since, or have been set up anew: nothing is known of it now.
    fn lose(&mut self, shared: &ServerShared, error: &NoStream) {
        if self.has_begun() {
            shared.gtids.forget(WhyUnknown::NotYet);
        }
        self.stream = None;
        self.connect_at = Instant::now() + self.port.map_or(SLEEP, |port| port.retry);
        let fault = error.to_string();
        if self.last_fault.as_ref() != Some(&fault) {
            let port = self.port.map_or(0, |port| port.port);
            warn!(server = %shared.endpoint, gtid_port = port, error = fault, "no binlog reader is followed");
            self.last_fault = Some(fault);
        }
    }
}

fn connect(host: &Options, port: u16) -> Result<TcpStream, NoStream> {
    let socket = match &host.address {
        Address::At(address) => {
            TcpStream::connect_timeout(&SocketAddr::new(address.ip(), port), host.connect_timeout)?
        }
        Address::Unresolved(why) => return Err(NoStream::Unresolved(why.clone())),
        Address::ByName => {
            let address = (host.host.as_str(), port).to_socket_addrs()?.next();
            let address = address.ok_or_else(|| io::Error::other("its name has no address"))?;
            TcpStream::connect_timeout(&address, host.connect_timeout)?
        }
    };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn take(socket: &mut TcpStream, stream: &mut GtidStream, shared: &ServerShared) -> Result<(), NoStream> {
    let mut chunk = [0; CHUNK_BYTES];
    let len = match socket.read(&mut chunk) {
        Ok(0) => return Err(NoStream::Closed),
        Ok(len) => len,
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let told = stream.take(chunk.get(..len).unwrap_or_default())?;
    if let Some(first) = told.first {
        shared.gtids.replace(first);
    }
    if !told.more.is_empty() {
        shared.gtids.add(&told.more)?;
    }
    Ok(())
}

/// Asks the server itself.
struct Questions {
    options: Options,
    connection: Option<Connection>,
    wanted_until: Instant,
    asked_until: Instant,
    next: Instant,
    pause: Duration,
}

impl Questions {
    fn new(options: Options, now: Instant) -> Self {
        Self {
            options: Options { read_timeout: Some(ANSWER_TIMEOUT), ..options },
            connection: None,
            wanted_until: now,
            asked_until: now,
            next: now,
            pause: ASK_PAUSE_MIN,
        }
    }

    /// Asks if that is due. How long it is until it is again.
    fn go_on(&mut self, shared: &ServerShared) -> Duration {
        let now = Instant::now();
        if shared.gtids.takes_wanted() {
            if self.wanted_until < now {
                self.pause = ASK_PAUSE_MIN;
                self.next = self.next.min(now);
            }
            (self.wanted_until, self.asked_until) = (now + WANTED_FOR, now + ASKED_FOR);
        }
        if self.asked_until <= now {
            if self.connection.take().is_some() {
                shared.gtids.forget(WhyUnknown::NotYet);
            }
            return SLEEP;
        }
        if self.next <= now {
            let pause = self.ask(shared);
            self.next = Instant::now() + pause;
        }
        self.next.min(self.asked_until).saturating_duration_since(Instant::now())
    }

    /// Somebody else tells.
    fn end(&mut self) {
        *self = Self::new(self.options.clone(), Instant::now());
    }

    fn ask(&mut self, shared: &ServerShared) -> Duration {
        let is_wanted = Instant::now() < self.wanted_until;
        match self.executed() {
            Ok(Ok(set)) => {
                let has_grown = shared.gtids.replace(set);
                self.pause = if has_grown { ASK_PAUSE_MIN } else { (2 * self.pause).min(ASK_PAUSE_MAX) };
                if is_wanted { self.pause } else { ASK_SELDOM }
            }
            Ok(Err(why)) => {
                shared.gtids.forget(why);
                ASK_SELDOM
            }
            Err(error) => {
                debug!(server = %shared.endpoint, %error, "not asked what it has executed");
                self.connection = None;
                shared.gtids.forget(WhyUnknown::NotYet);
                FAILED_PAUSE
            }
        }
    }

    fn executed(&mut self) -> Result<Result<GtidSet, WhyUnknown>, Error> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(Connection::connect(&self.options)?),
        };
        let question = match connection.server_version().contains("MariaDB") {
            true => EXECUTED_MARIADB,
            false => EXECUTED_MYSQL,
        };
        let answer = connection.query(question)?;
        Ok(read_answer(answer.text(0, 0).unwrap_or_default(), answer.text(0, 1).unwrap_or_default()))
    }
}

/// The set, and `gtid_mode`. With OFF_PERMISSIVE and ON_PERMISSIVE some transactions have ids.
fn read_answer(executed: &str, mode: &str) -> Result<GtidSet, WhyUnknown> {
    if mode.eq_ignore_ascii_case("OFF") {
        return Err(WhyUnknown::NoGtids);
    }
    GtidSet::parse(executed.as_bytes()).map_err(|_| WhyUnknown::Unreadable)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::thread;

    use weir_topology::{Endpoint, Gtid};

    use super::*;

    const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    #[test]
    fn what_a_server_answers() {
        assert_eq!(read_answer("", "OFF"), Err(WhyUnknown::NoGtids));
        assert_eq!(read_answer("what", "ON"), Err(WhyUnknown::Unreadable));
        let set = read_answer(&format!("{SOURCE}:1-5,\n{SOURCE}:7"), "ON").unwrap();
        assert_eq!(set.to_string(), format!("{SOURCE}:1-5,{SOURCE}:7-7"));
        assert!(read_answer("", "ON").unwrap().is_empty());
    }

    fn until(condition: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "not within 10 s");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_binlog_reader_is_followed_and_found_again() {
        let reader = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = reader.local_addr().unwrap();
        let shared = Arc::new(ServerShared::new(Endpoint::new("127.0.0.1", 1)));
        let (bell, (sender, orders)) = (Bell::of(&shared).unwrap(), channel());
        let port = Some(GtidPort { port: address.port(), retry: Duration::from_millis(10) });
        // Nobody listens on port 1: the server itself answers nothing.
        let options = Options::new("127.0.0.1", 1, "nobody", "").at(Address::At(address));
        let watched = shared.clone();
        let watch = thread::spawn(move || run(options, port, &watched, &bell, &orders));
        let has =
            |number: u64| shared.gtids.has(&Gtid::parse(format!("{SOURCE}:{number}").as_bytes()).unwrap());
        let (mut stream, _) = reader.accept().unwrap();
        stream.write_all(format!("ST={SOURCE}:1-3\n").as_bytes()).unwrap();
        until(|| has(3));
        assert!(!has(4));
        stream.write_all(format!("I1={SOURCE}:4\nI2=").as_bytes()).unwrap();
        until(|| has(4));
        stream.write_all(b"5\n").unwrap();
        until(|| has(5));
        assert_eq!(shared.gtids.shown().unwrap().events, 2);
        stream.write_all(b"rubbish\n").unwrap();
        until(|| !has(3));
        let (mut stream, _) = reader.accept().unwrap();
        stream.write_all(format!("ST={SOURCE}:1-9\n").as_bytes()).unwrap();
        until(|| has(9));
        drop(stream);
        until(|| !has(9));
        sender.send(Order::End).unwrap();
        shared.gtids.wake();
        watch.join().unwrap();
    }
}
