//! Starts and stops the data plane: its listeners and its workers' threads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::ServerConfig;
use weir_config::{IoDriver, Listener, WorkerScheduling};
use weir_query_log::QueryLogs;

use crate::io::{Lobby, epoll, now, uring};
use crate::listener::{ListenError, Listeners, TakeoverSocket};
use crate::session_id;
use crate::shared::{Drain, Mailbox, Message, Reporter, Shared};
use crate::snapshot::{Snapshot, Users};
use crate::stats::{DigestTable, ReportPart, SessionRow, WorkerReport};
use crate::verifier::Verifier;
use crate::worker::Worker;

/// A worker looks at its messages after each batch of events.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the data plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// io_uring was asked for.
    #[error(
        "mysql_variables.io_driver = \"io_uring\": {0} (\"auto\" uses epoll where io_uring is not available)"
    )]
    NoUring(io::Error),
    /// Threads, descriptors or randomness are not to be had.
    #[error("can't start a worker: {0}")]
    Worker(#[from] io::Error),
}

/// Running workers. Dropping it does not stop them: see [`Service::stop`] and [`Service::drain`].
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    listeners: Listeners,
    is_uring: bool,
}

impl Service {
    /// Listens on `wanted` and starts `workers` threads. `reporter` hears of servers with which something
    /// seems to be wrong.
    ///
    /// # Errors
    /// When an address is taken or the system gives no more threads or descriptors.
    pub fn start(
        wanted: &[Listener],
        workers: usize,
        snapshot: &Arc<Snapshot>,
        tls: Option<Arc<ServerConfig>>,
        reporter: Reporter,
    ) -> Result<Self, StartError> {
        let mut service = Self::prepare(Listeners::default(), wanted, workers, snapshot, tls, reporter)?;
        service.open()?;
        Ok(service)
    }

    /// The same up to where the first client could be taken: those who come wait for [`Service::open`]. `listeners`
    /// may be those of another process.
    ///
    /// # Errors
    /// As [`Service::start`].
    pub fn prepare(
        mut listeners: Listeners,
        wanted: &[Listener],
        workers: usize,
        snapshot: &Arc<Snapshot>,
        tls: Option<Arc<ServerConfig>>,
        reporter: Reporter,
    ) -> Result<Self, StartError> {
        listeners.bind(wanted)?;
        let mut origin = [0; 8];
        getrandom::fill(&mut origin).map_err(|error| io::Error::other(error.to_string()))?;
        let (shared, inboxes) = Shared::new(workers, u64::from_le_bytes(origin).max(1), reporter)?;
        shared.set_users(&snapshot.users);
        let verifier = Verifier::start(shared.clone())?;
        let is_uring = is_uring(snapshot.variables.io_driver)?;
        let scheduling = snapshot.variables.worker_scheduling;
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (worker, inbox) in inboxes.into_iter().enumerate() {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
            let verifier = verifier.clone();
            let (shared, snapshot, tls, stop) = (shared.clone(), snapshot.clone(), tls.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
                schedule(scheduling);
                // Sessions share what is counted without atomics, so they are born on their worker's thread.
                let core = Worker::new(worker, shared.clone(), snapshot, seed, now());
                let lobby = Lobby::new(worker, shared.clone(), verifier, inbox);
                let run = || match is_uring {
                    true => uring::Driver::new(core, lobby, uring::Driver::ring()?, tls)?.run(&stop),
                    false => epoll::Driver::new(core, lobby, tls)?.run(&stop),
                };
                run().inspect_err(|error| shared.worker_ended(worker, &error.to_string()))
            })?;
            threads.push(thread);
        }
        Ok(Self { shared, stop, threads, listeners, is_uring })
    }

    /// How bytes are moved: `io_uring` or `epoll`.
    pub fn io_driver(&self) -> &'static str {
        if self.is_uring { "io_uring" } else { "epoll" }
    }

    /// The listeners, with the ports that the system chose.
    pub fn listening(&self) -> impl Iterator<Item = &Listener> {
        self.listeners.iter()
    }

    /// Listens on `wanted` from now on and on nothing else. Clients stay, wherever they came in. Nothing changes
    /// after an error.
    ///
    /// # Errors
    /// When an address is taken or the system gives no more descriptors.
    pub fn listen(&mut self, wanted: &[Listener]) -> Result<(), StartError> {
        self.listeners.bind(wanted)?;
        Ok(self.share()?)
    }

    /// Begins to take clients. Nobody else listens on the sockets any more.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn open(&mut self) -> io::Result<()> {
        self.listeners.own_files();
        self.share()
    }

    fn share(&self) -> io::Result<()> {
        let shares = self.shared.mailboxes.iter().map(|_| self.listeners.share());
        let shares = shares.collect::<io::Result<Vec<_>>>()?;
        for (mailbox, share) in self.shared.mailboxes.iter().zip(shares) {
            mailbox.send(Message::Listen(share));
        }
        Ok(())
    }

    /// All listening sockets, for a process that takes them over: see [`Service::let_go`].
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn takeover_sockets(&self) -> io::Result<Vec<TakeoverSocket>> {
        self.listeners.takeover_sockets()
    }

    /// Takes no more clients; those who come wait for the process that has the sockets now. All that were accepted
    /// before are served here.
    pub fn let_go(&mut self) {
        self.listeners.leave_files();
        self.listeners = Listeners::default();
        self.shared.broadcast(|| Message::Listen(Vec::new()));
        // When all have stopped, the last client may still be on its way from one worker to another.
        let publisher = self.publisher();
        let _ = publisher.settle() && publisher.settle();
    }

    /// A handle to publish snapshots with.
    pub fn publisher(&self) -> Publisher {
        Publisher { shared: self.shared.clone() }
    }

    /// Takes no more clients and lets the running transactions end; returns when that is done.
    pub fn drain(mut self, drain: Drain) -> io::Result<()> {
        self.listeners = Listeners::default();
        self.shared.broadcast(|| Message::Drain(drain));
        self.join()
    }

    /// Ends at once: sessions are cut off.
    pub fn stop(mut self) -> io::Result<()> {
        self.listeners = Listeners::default();
        self.stop.store(true, Ordering::Relaxed);
        self.shared.broadcast(|| Message::Wake);
        self.join()
    }

    fn join(self) -> io::Result<()> {
        for thread in self.threads {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker has panicked")))?;
        }
        Ok(())
    }
}

/// Whether the workers are to use io_uring: many container runtimes forbid it.
fn is_uring(wanted: IoDriver) -> Result<bool, StartError> {
    if wanted == IoDriver::Epoll {
        return Ok(false);
    }
    match uring::Driver::ring() {
        Ok(_) => Ok(true),
        Err(error) if wanted == IoDriver::IoUring => Err(StartError::NoUring(error)),
        Err(error) => {
            tracing::info!(%error, "io_uring is not available: using epoll");
            Ok(false)
        }
    }
}

/// Sets how this thread, a worker, is scheduled. Where every packet's arrival pushes aside who is about to send the next
/// one, each packet costs a wake-up and two context switches of its own; waiting for them to stop makes batches.
fn schedule(wanted: WorkerScheduling) {
    let set = match wanted {
        WorkerScheduling::Batch => weir_uring::wait_for_a_processor(),
        WorkerScheduling::Normal => Ok(()),
    };
    if let Err(error) = set {
        tracing::info!(%error, "a worker can't be scheduled as a batch thread: it costs more CPU time");
    }
}

/// Gives the workers new snapshots.
#[derive(Clone, Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
}

impl Publisher {
    /// Servers have applied what sessions of these workers wait for: worker n is bit n modulo 64.
    pub fn covered(&self, workers: u64) {
        let waits = |worker: &usize| workers & (1 << (worker % 64)) != 0;
        for worker in (0..self.shared.mailboxes.len()).filter(waits) {
            self.shared.mailboxes[worker].send(Message::Covered);
        }
    }

    /// From now on the workers go by this snapshot.
    pub fn publish(&self, snapshot: &Arc<Snapshot>) {
        self.shared.set_users(&snapshot.users);
        self.shared.broadcast(|| Message::Snapshot(snapshot.clone()));
    }

    /// Waits until every worker goes by what was published before, and listens where it was told to. False if one has
    /// not answered within 5 s (none should).
    pub fn settle(&self) -> bool {
        let (barrier, passed) = channel();
        self.shared.broadcast(|| Message::Barrier(barrier.clone()));
        drop(barrier);
        passed.recv_timeout(REPORT_TIMEOUT) == Err(RecvTimeoutError::Disconnected)
    }

    /// How many workers there are: a complete report has as many parts.
    pub fn workers(&self) -> usize {
        self.shared.mailboxes.len()
    }

    /// Kills a client's session, or only its statement. False if nobody has this connection id.
    pub fn kill(&self, session: u32, query_only: bool) -> bool {
        let workers = self.shared.mailboxes.len().max(1);
        let (to, answer) = channel();
        let worker = session_id::worker_of(session, workers).and_then(|at| self.shared.mailboxes.get(at));
        worker.is_some_and(|worker| worker.send(Message::KillByAdmin { session, query_only, to }))
            && answer.recv_timeout(REPORT_TIMEOUT).unwrap_or(false)
    }

    /// Has sessions that may write to a server leave it, with open transactions that can run again elsewhere.
    pub fn move_writers(&self, endpoint: &str) {
        let endpoint: Arc<str> = endpoint.into();
        self.shared.broadcast(|| Message::MoveWriters { endpoint: endpoint.clone() });
    }

    /// Closes the sessions that may still write to a server.
    pub fn cut_writers(&self, endpoint: &str) {
        let endpoint: Arc<str> = endpoint.into();
        self.shared.broadcast(|| Message::CutWriters { endpoint: endpoint.clone() });
    }

    /// What all workers have counted; a worker that does not answer within 5 s (none should) is left out.
    pub fn report(&self, part: ReportPart) -> Vec<WorkerReport> {
        self.ask(part, false)
    }

    /// The same, and these counters begin again: what is counted is in this report or in a later one, never in both.
    pub fn report_and_begin_again(&self, part: ReportPart) -> Vec<WorkerReport> {
        self.ask(part, true)
    }

    /// The users that were published last; how many clients each has is counted with them.
    pub fn users(&self) -> Arc<Users> {
        self.shared.users()
    }

    /// Tables of digests that workers have filled since the last call.
    pub fn full_tables(&self) -> Vec<DigestTable> {
        self.shared.full_tables.take()
    }

    /// All sessions. The workers are asked for a few at a time, so that none is held up; a session that begins or ends
    /// meanwhile may be missing.
    pub fn sessions(&self) -> Vec<(usize, Vec<SessionRow>)> {
        let sessions = |worker: usize, mailbox: &Mailbox| {
            let (mut rows, mut from) = (Vec::new(), Some(0));
            while let Some(at) = from.take() {
                let (to, answer) = channel();
                let part = ReportPart::Sessions(at);
                mailbox.send(Message::Report { part, begins_again: false, to });
                if let Ok(report) = answer.recv_timeout(REPORT_TIMEOUT) {
                    rows.extend(report.sessions);
                    from = report.next_session;
                }
            }
            (worker, rows)
        };
        let mailboxes = self.shared.mailboxes.iter().enumerate();
        mailboxes.map(|(worker, mailbox)| sessions(worker, mailbox)).collect()
    }

    fn ask(&self, part: ReportPart, begins_again: bool) -> Vec<WorkerReport> {
        let (to, answers) = channel();
        self.shared.broadcast(|| Message::Report { part, begins_again, to: to.clone() });
        drop(to);
        let mut reports = Vec::new();
        while let Ok(report) = answers.recv_timeout(REPORT_TIMEOUT) {
            reports.push(report);
        }
        reports
    }

    /// The way to the events log, the slow log and the audit log.
    pub fn query_logs(&self) -> &QueryLogs {
        &self.shared.query_logs
    }

    /// Clients connected now.
    pub fn clients(&self) -> u32 {
        self.shared.clients.load(Ordering::Relaxed)
    }
}
