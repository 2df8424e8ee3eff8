//! Many clients over few server connections: a tenth of them has a statement on its way at any moment, and all of
//! them come round.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use weir_protocol::response::{ReplyKind, ReplyReader};
use weir_testkit::report::percentile;

use crate::bench::{Bench, empty_case, progress};
use crate::client::{self, Client, Login, Progress};
use crate::error::{BenchError, ClientError};
use crate::metric::{Metric, Sample};
use crate::peer::{Kind, Peer};
use crate::results::Case;
use crate::row::{Layout, Row};
use crate::rows::idle;

/// HAProxy would need a server connection for each client.
const KINDS: [Kind; 3] = [Kind::ProxySql, Kind::Weir, Kind::WeirEpoll];
/// `max_connections` of the server.
const SERVER_CONNECTIONS: u32 = 50;
/// Clients of which one is active.
const ACTIVE_ONE_OF: usize = 10;
/// A reply takes no longer than a proxy's own time-outs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Events taken at a time.
const EVENTS: usize = 1024;
/// How quickly a Ctrl-C is noticed.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Case>, BenchError> {
    let clients = bench.scale.clients;
    let peers = bench.peers(Layout::Narrow(SERVER_CONNECTIONS), clients, &KINDS)?;
    let name = format!("{clients} clients, {SERVER_CONNECTIONS} connections");
    let mut case = empty_case(Row::Crowd, &name, Row::Crowd.goals(clients), &peers);
    bench.rounds(&mut case, &peers, 0, |peer| visit(bench, peer))?;
    Ok(vec![case])
}

fn visit(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, BenchError> {
    let (connections, sample) = bench.counting_connections(|| run(bench, peer))?;
    Ok(sample.with(Metric::ServerConnections, connections as f64))
}

fn run(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, BenchError> {
    let clients = idle::log_in(bench, &Login::new(peer.addr), bench.scale.clients)?;
    let waiting = || BenchError::io("wait for clients".to_owned());
    let mut crowd = Crowd::new(clients, bench.scale.tables, bench.scale.table_rows).map_err(waiting())?;
    let active = (bench.scale.clients as usize / ACTIVE_ONE_OF).max(1);
    progress(&format!("crowd: {active} of {} clients are active at {}", bench.scale.clients, peer.addr));
    let cpu_before = peer.cpu_time()?;
    let started = Instant::now();
    let end = started + Duration::from_secs(u64::from(bench.scale.idle_seconds));
    (0..active).for_each(|_| crowd.send_next());
    while crowd.in_flight > 0 && Instant::now() < end + REPLY_TIMEOUT {
        bench.check_cancel()?;
        let done = crowd.wait().map_err(waiting())?;
        if Instant::now() < end {
            (0..done).for_each(|_| crowd.send_next());
        }
    }
    let took = started.elapsed();
    let cpu = peer.cpu_time()?.zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
    if let Some(error) = &crowd.first_error {
        progress(&format!("crowd: the first of {} errors via {}: {error}", crowd.errors, peer.kind));
    }
    Ok(crowd.sample(took, cpu))
}

/// Clients whose sockets are waited for together.
struct Crowd {
    epoll: rustix::fd::OwnedFd,
    members: Vec<Member>,
    /// Members without a statement; the one that has rested longest comes first.
    resting: VecDeque<usize>,
    /// Statements on their way.
    in_flight: usize,
    /// Statements sent.
    statements: u64,
    tables: u32,
    table_rows: u32,
    latencies_ms: Vec<f64>,
    errors: u64,
    first_error: Option<ClientError>,
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

impl Crowd {
    fn new(clients: Vec<Client>, tables: u32, table_rows: u32) -> io::Result<Crowd> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut members = Vec::with_capacity(clients.len());
        for socket in clients.into_iter().filter_map(Client::into_socket) {
            socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(members.len() as u64);
            epoll::add(&epoll, &socket, data, epoll::EventFlags::IN)?;
            members.push(Member { socket, waiting: None });
        }
        let resting = (0..members.len()).collect();
        Ok(Crowd {
            epoll,
            members,
            resting,
            in_flight: 0,
            statements: 0,
            tables,
            table_rows,
            latencies_ms: Vec::new(),
            errors: 0,
            first_error: None,
        })
    }

    /// Sends a point select for the member that has rested longest.
    fn send_next(&mut self) {
        let Some(at) = self.resting.pop_front() else { return };
        let Some(member) = self.members.get_mut(at) else { return };
        self.statements += 1;
        let (table, id) = point(self.statements, self.tables, self.table_rows);
        let packet = client::query(&format!("SELECT c FROM sbtest{table} WHERE id={id}"));
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
                    self.latencies_ms.push(latency.as_secs_f64() * 1000.0);
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
        self.errors += 1;
        self.first_error.get_or_insert(error);
    }

    /// What came of it. Statements without an answer are errors.
    fn sample(mut self, took: Duration, cpu: Option<Duration>) -> Sample {
        self.latencies_ms.sort_by(f64::total_cmp);
        let statements = self.latencies_ms.len() as f64;
        let per_statement = |time: Duration| time.as_secs_f64() * 1e6 / statements.max(1.0);
        Sample::default()
            .with(Metric::StatementsPerS, statements / took.as_secs_f64())
            .with_some(Metric::CpuUsPerStatement, cpu.map(per_statement))
            .with_some(Metric::P50Ms, percentile(&self.latencies_ms, 50.0))
            .with_some(Metric::P99Ms, percentile(&self.latencies_ms, 99.0))
            .with(Metric::Errors, self.errors as f64 + self.in_flight as f64)
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

/// Table and row of a statement: all over the tables, the same in every run.
fn point(statement: u64, tables: u32, table_rows: u32) -> (u64, u64) {
    // The fractional part of n times the golden ratio is spread evenly.
    let spread = statement.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    (statement % u64::from(tables.max(1)) + 1, spread % u64::from(table_rows.max(1)) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_spread_over_all_rows_that_exist() {
        let points: Vec<(u64, u64)> = (0..10_000).map(|n| point(n, 4, 100)).collect();
        assert!(points.iter().all(|&(table, id)| (1..=4).contains(&table) && (1..=100).contains(&id)));
        for id in 1..=100 {
            let hits = points.iter().filter(|point| point.1 == id).count();
            assert!((50..200).contains(&hits), "row {id}: {hits} times");
        }
    }
}
