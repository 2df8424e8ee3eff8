//! Runs the threads that write this Weir's own row and the changes of the epoch row that it proposes.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::debug;
use weir_client::{Connection, Options};
use weir_topology::{DrainRow, Endpoint, EpochRead, InstanceId, InstanceRow, Millis, Proposal};

use crate::clock::monotonic_ms;
use crate::epoch_tables::{self, Fault, Guard};
use crate::topology_thread::Event;

/// How long a statement of an epoch writer may take. A cluster that forms a new view takes longer, and then it is tried again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Servers that are tried for one task.
const TRIES_MAX: usize = 3;
/// Beats that are remembered: those of minutes, and no read takes that long.
const BEATS_MAX: usize = 256;
/// Old rows of `weir.outcomes` are removed so long after the start, and then so often.
const SWEEP_FIRST: Duration = Duration::from_secs(5);
const SWEEP_EVERY: Duration = Duration::from_secs(3600);
/// Makes a session's reads wait for everything that the cluster has ordered before (Galera manual).
pub(crate) const GALERA_WAITS: &str = "SET SESSION wsrep_sync_wait = 1";

/// A request to an epoch writer.
pub(crate) struct WriteRequest {
    /// The servers that work, and how to connect to them; the first that can is asked.
    pub(crate) servers: Vec<(Endpoint, Options)>,
    pub(crate) task: EpochTask,
    /// The row of this Weir; its beat is set when it is written.
    pub(crate) own: InstanceRow,
    /// Its rows about servers that leave, where they have changed.
    pub(crate) drains: Option<Vec<DrainRow>>,
    /// Servers whose rows by Weirs that are no more are to be removed.
    pub(crate) released: Vec<Released>,
}

/// A server that a Weir wants out which is no more.
pub(crate) type Released = (Endpoint, InstanceId);

pub(crate) enum EpochTask {
    /// Write the own row, and remove those of Weirs that have been silent for ages.
    Beat { purge: Vec<(InstanceId, u64)> },
    /// Make a change of the epoch row, and write the own one.
    Propose(Proposal),
    /// Only read, and make nothing.
    Read,
    /// Remove the own row: the end. Who else may be writing it is waited for before. Which servers this Weir's user wants
    /// out stays written down, unless another process has taken over and says it.
    Leave { others: Option<JoinHandle<()>>, is_followed: bool },
}

/// The last beats of this Weir in a cluster, by all of its epoch writers. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Beats(Arc<Mutex<VecDeque<u64>>>);

impl Beats {
    fn note(&self, beat: u64) {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if beats.len() >= BEATS_MAX {
            beats.pop_front();
        }
        beats.push_back(beat);
    }

    /// Whether it was written here, as far as that is remembered.
    pub(crate) fn has(&self, beat: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&beat)
    }
}

/// The result of a request.
pub(crate) struct Written {
    /// Where, and what a causal read has shown afterwards. With replication the read is of the writer.
    pub(crate) result: Result<(Endpoint, EpochRead), Fault>,
}

/// A running epoch writer, which does one thing at a time.
pub(crate) struct EpochWriter {
    requests: SyncSender<WriteRequest>,
    thread: JoinHandle<()>,
}

impl EpochWriter {
    /// `name` tells the epoch writers of one cluster apart; `which` comes back with what they report. The beats of a cluster are
    /// noted in `written` by all of them.
    pub(crate) fn start(
        name: &str,
        cluster: (u32, Option<&'static str>),
        written: Beats,
        events: SyncSender<Event>,
        which: fn(u32, Written) -> Event,
    ) -> io::Result<Self> {
        let (requests, inbox) = sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("{name} {}", cluster.0))
            .spawn(move || run(cluster, &written, &inbox, &events, which))?;
        Ok(Self { requests, thread })
    }

    /// False if it is busy.
    pub(crate) fn give(&self, request: WriteRequest) -> bool {
        match self.requests.try_send(request) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// It ends after what it has been given; the thread, to wait for.
    pub(crate) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

fn run(
    (hostgroup, waiting): (u32, Option<&'static str>),
    written: &Beats,
    requests: &Receiver<WriteRequest>,
    events: &SyncSender<Event>,
    which: fn(u32, Written) -> Event,
) {
    let mut session: Option<(Endpoint, Session)> = None;
    let mut sweep_at = Instant::now() + SWEEP_FIRST;
    for mut request in requests {
        let is_beat = matches!(request.task, EpochTask::Beat { .. });
        let is_last = matches!(request.task, EpochTask::Leave { .. });
        if let EpochTask::Leave { others, .. } = &mut request.task
            && let Some(others) = others.take()
        {
            let _ = others.join();
        }
        let result = carry_out((hostgroup, waiting), written, &request, &mut session);
        if let Err(fault) = &result {
            debug!(hostgroup, %fault, "weir.topology was not written");
        }
        // Nobody may listen any more: a stop may have come while this was written, and its own request is behind it.
        let is_heard = events.send(which(hostgroup, Written { result })).is_ok();
        if is_last {
            return;
        }
        // Behind the report: it may wait for others' rows.
        if let Some((_, session)) =
            session.as_mut().filter(|_| is_beat && is_heard && Instant::now() >= sweep_at)
        {
            let swept = epoch_tables::sweep_outcomes(&mut session.connection, session.guard);
            if let Err(fault) = &swept {
                debug!(hostgroup, %fault, "weir.outcomes was not swept");
            }
            // If there are more, with the next beat.
            if !matches!(swept, Ok(true)) {
                sweep_at = Instant::now() + SWEEP_EVERY;
            }
        }
    }
}

/// Does it on the first server that lets it be done.
fn carry_out(
    (hostgroup, waiting): (u32, Option<&'static str>),
    written: &Beats,
    request: &WriteRequest,
    session: &mut Option<(Endpoint, Session)>,
) -> Result<(Endpoint, EpochRead), Fault> {
    let mut fault = Fault::NoServer;
    for (endpoint, options) in request.servers.iter().take(TRIES_MAX) {
        let known =
            session.take().filter(|(known, session)| known == endpoint && !session.connection.is_broken());
        let mut options = options.clone();
        options.read_timeout = Some(WRITE_TIMEOUT);
        options.connect_timeout = options.connect_timeout.min(WRITE_TIMEOUT);
        let opened = match known {
            Some((_, session)) => Ok(session),
            None => Session::open(&options, waiting),
        };
        let mut known = match opened {
            Ok(known) => known,
            Err(error) => {
                fault = error;
                continue;
            }
        };
        match known.write(hostgroup, written, request) {
            Ok(read) => {
                *session = Some((endpoint.clone(), known));
                return Ok((endpoint.clone(), read));
            }
            Err(error @ Fault::Denied(_)) => return Err(error),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

struct Session {
    connection: Connection,
    guard: Guard,
    /// `weir.drains` can be used; none: that has not been looked at.
    has_drains: Option<bool>,
}

impl Session {
    fn open(options: &Options, waiting: Option<&'static str>) -> Result<Self, Fault> {
        let mut connection = Connection::connect(options)?;
        // `autocommit = 0`, or an init_connect that sets it, would keep all of this in one transaction that never ends.
        connection.query("SET SESSION autocommit = 1")?;
        let guard = match waiting {
            Some(waiting) => {
                connection.query(waiting)?;
                Guard::Always
            }
            None => Guard::of_replication(&mut connection),
        };
        Ok(Self { connection, guard, has_drains: None })
    }

    fn write(&mut self, hostgroup: u32, written: &Beats, request: &WriteRequest) -> Result<EpochRead, Fault> {
        match self.write_once(hostgroup, written, request) {
            Err(Fault::Missing(_)) if !matches!(request.task, EpochTask::Read) => {
                epoch_tables::make(&mut self.connection, self.guard)?;
                self.has_drains = None;
                self.write_once(hostgroup, written, request)
            }
            other => other,
        }
    }

    fn write_once(
        &mut self,
        hostgroup: u32,
        written: &Beats,
        request: &WriteRequest,
    ) -> Result<EpochRead, Fault> {
        let instance: &Arc<str> = &request.own.instance;
        let (connection, guard) = (&mut self.connection, self.guard);
        match &request.task {
            EpochTask::Leave { is_followed, .. } => {
                // The read is causal: what was written at another node just before is here by then, and can be deleted.
                epoch_tables::read(connection, hostgroup, false, monotonic_ms())?;
                epoch_tables::forget(connection, hostgroup, instance, None, guard)?;
                if self.has_drains == Some(true) {
                    epoch_tables::forget_drains(connection, hostgroup, instance, *is_followed, guard)?;
                }
                return epoch_tables::read(connection, hostgroup, false, monotonic_ms());
            }
            EpochTask::Propose(proposal) => {
                epoch_tables::propose(connection, hostgroup, instance, proposal, guard)?
            }
            EpochTask::Beat { purge } => {
                for (silent, beat) in purge {
                    epoch_tables::forget(connection, hostgroup, silent, Some(*beat), guard)?;
                    if self.has_drains == Some(true) {
                        epoch_tables::forget_drains(connection, hostgroup, silent, false, guard)?;
                    }
                }
            }
            EpochTask::Read => {}
        }
        if !matches!(request.task, EpochTask::Read) {
            let Millis(beat) = monotonic_ms();
            // First: whoever reads it must know it.
            written.note(beat);
            epoch_tables::beat(connection, hostgroup, &InstanceRow { beat, ..request.own.clone() }, guard)?;
        }
        let makes = !matches!(request.task, EpochTask::Read);
        let has_drains = match self.has_drains {
            Some(has_drains) => has_drains,
            None => epoch_tables::has_drains(connection, makes)?,
        };
        self.has_drains = Some(has_drains).filter(|has_drains| *has_drains || makes);
        if let Some(rows) = request.drains.as_ref().filter(|_| has_drains) {
            epoch_tables::write_drains(connection, hostgroup, instance, rows, guard)?;
        }
        for (server, gone) in request.released.iter().filter(|_| has_drains) {
            epoch_tables::release(connection, hostgroup, server, gone, guard)?;
        }
        epoch_tables::read(connection, hostgroup, has_drains, monotonic_ms())
    }
}
