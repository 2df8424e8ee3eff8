//! Keeps statements of some of many clients on their way; all clients come round.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use weir_protocol::response::{ReplyKind, ReplyReader};

use crate::client::{self, Client, Progress};
use crate::{ClientError, Error, Latencies, Stop};

/// A reply takes no longer than a proxy's own time-outs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Events taken at a time.
const EVENTS: usize = 1024;
/// How quickly a Ctrl-C is noticed.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Lets `active` of the clients, whose connections are in clear, have a statement on its way for so long, the client that
/// has rested longest next. `statement` makes the text of each, which it gets the number of, counted from 1.
///
/// # Errors
/// [`Error::Interrupted`], and what the system has against waiting. Errors of clients are counted.
pub fn run(
    clients: Vec<Client>,
    active: usize,
    time: Duration,
    stop: &Stop,
    statement: impl FnMut(u64) -> String,
) -> Result<Seen, Error> {
    let mut crowd = Crowd::new(clients, statement).map_err(Error::io("wait for clients"))?;
    let started = Instant::now();
    let end = started + time;
    (0..active).for_each(|_| crowd.send_next());
    while crowd.in_flight > 0 && Instant::now() < end + REPLY_TIMEOUT {
        stop.check()?;
        let done = crowd.wait().map_err(Error::io("wait for clients"))?;
        if Instant::now() < end {
            (0..done).for_each(|_| crowd.send_next());
        }
    }
    // Statements without an answer are errors.
    crowd.seen.errors += crowd.in_flight as u64;
    crowd.seen.took = started.elapsed();
    Ok(crowd.seen)
}

/// What a crowd has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of answered statements.
    pub latencies: Latencies,
    /// Statements that were answered by an error or not at all, and connections that were lost.
    pub errors: u64,
    /// One of them.
    pub first_error: Option<ClientError>,
    /// From the first statement to the last answer.
    pub took: Duration,
}

/// Clients whose sockets are waited for together.
struct Crowd<S> {
    epoll: rustix::fd::OwnedFd,
    members: Vec<Member>,
    /// Members without a statement; the one that has rested longest comes first.
    resting: VecDeque<usize>,
    /// Statements on their way.
    in_flight: usize,
    /// Statements sent.
    statements: u64,
    statement: S,
    seen: Seen,
}

struct Member {
    socket: TcpStream,
    /// A statement on its way: when it was sent, and how much of its reply has come.
    waiting: Option<Waiting>,
}

struct Waiting {
    since: Instant,
    reader: ReplyReader,
    unread: Vec<u8>,
}

impl<S: FnMut(u64) -> String> Crowd<S> {
    fn new(clients: Vec<Client>, statement: S) -> io::Result<Crowd<S>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut members = Vec::with_capacity(clients.len());
        for socket in clients.into_iter().filter_map(Client::into_socket) {
            socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(members.len() as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)?;
            members.push(Member { socket, waiting: None });
        }
        let resting = (0..members.len()).collect();
        Ok(Crowd { epoll, members, resting, in_flight: 0, statements: 0, statement, seen: Seen::default() })
    }

    /// Sends a statement of the member that has rested longest.
    fn send_next(&mut self) {
        let Some(at) = self.resting.pop_front() else { return };
        let Some(member) = self.members.get_mut(at) else { return };
        self.statements += 1;
        let packet = client::query(&(self.statement)(self.statements));
        match member.socket.write(&packet) {
            Ok(sent) if sent == packet.len() => {
                let reader = ReplyReader::new(ReplyKind::Results, 1);
                member.waiting = Some(Waiting { since: Instant::now(), reader, unread: Vec::new() });
                self.in_flight += 1;
            }
            Ok(_) => self.failed(ClientError::Protocol("a full socket of an idle client".to_owned())),
            Err(error) => self.failed(error.into()),
        }
    }

    /// Takes what has come; gives the number of statements that are through, well or not.
    fn wait(&mut self) -> io::Result<usize> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&WAIT)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut done = 0;
        for event in events {
            let at = usize::try_from(event.data.u64()).unwrap_or(usize::MAX);
            let Some(member) = self.members.get_mut(at) else { continue };
            let was_waiting = member.waiting.is_some();
            match member.read() {
                Ok(None) => continue,
                Ok(Some(latency)) => {
                    self.seen.latencies.record(latency);
                    self.resting.push_back(at);
                }
                Err(error) => {
                    // A connection that has failed rests for good.
                    let _ = epoll::delete(&self.epoll, &member.socket);
                    member.waiting = None;
                    self.failed(error);
                }
            }
            done += usize::from(was_waiting);
        }
        self.in_flight -= done;
        Ok(done)
    }

    fn failed(&mut self, error: ClientError) {
        self.seen.errors += 1;
        self.seen.first_error.get_or_insert(error);
    }
}

impl Member {
    /// Reads what is there; gives the time that the statement took if its reply is complete.
    fn read(&mut self) -> Result<Option<Duration>, ClientError> {
        let mut buffer = [0; 4096];
        let read = match self.socket.read(&mut buffer) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(waiting) = &mut self.waiting else {
            return Err(ClientError::Protocol("a reply that nobody waits for".to_owned()));
        };
        waiting.unread.extend_from_slice(buffer.get(..read).unwrap_or_default());
        match client::progress(&mut waiting.reader, &mut waiting.unread)? {
            Progress::Done => {
                let latency = waiting.since.elapsed();
                self.waiting = None;
                Ok(Some(latency))
            }
            Progress::Unread(from) => {
                waiting.unread.drain(..from);
                Ok(None)
            }
            Progress::File(_) => Err(ClientError::Protocol("the server asks for a file".to_owned())),
        }
    }
}
