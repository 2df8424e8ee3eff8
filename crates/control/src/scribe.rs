//! The threads that write what this Weir says of itself, and the changes of the epoch row that it proposes.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::debug;
use weir_client::{Connection, Options};
use weir_topology::{Endpoint, EpochRead, InstanceId, InstanceRow, Millis, Proposal};

use crate::clock::monotonic_ms;
use crate::owner::Event;
use crate::tables::{self, Fault};

/// How long a statement of a scribe may take. A cluster that forms a new view takes longer, and then it is tried again.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Servers that are tried for one task.
const TRIES_MAX: usize = 3;
/// Makes a session's reads wait for everything that the cluster has ordered before (Galera manual).
const WAITING: &str = "SET SESSION wsrep_sync_wait = 1";

/// What a scribe is to do.
pub(crate) struct Task {
    /// The servers that work, and how to connect to them; the first that can is asked.
    pub(crate) servers: Vec<(Endpoint, Options)>,
    pub(crate) deed: Deed,
    /// The row of this Weir; its beat is set when it is written.
    pub(crate) own: InstanceRow,
}

pub(crate) enum Deed {
    /// Write the own row, and remove those of Weirs that have been silent for ages.
    Beat { purge: Vec<(InstanceId, u64)> },
    /// Make a change of the epoch row, and write the own one.
    Propose(Proposal),
    /// Remove the own row: the end.
    Leave,
}

/// What has come of a task.
pub(crate) struct Written {
    /// Where, and what a causal read has shown afterwards.
    pub(crate) result: Result<(Endpoint, EpochRead), Fault>,
}

/// A running scribe, which does one thing at a time.
pub(crate) struct Scribe {
    tasks: SyncSender<Task>,
    thread: JoinHandle<()>,
}

impl Scribe {
    /// `name` tells the scribes of one cluster apart; `which` comes back with what they report.
    pub(crate) fn start(
        name: &str,
        hostgroup: u32,
        events: SyncSender<Event>,
        which: fn(u32, Written) -> Event,
    ) -> io::Result<Self> {
        let (tasks, inbox) = sync_channel(1);
        let thread = thread::Builder::new()
            .name(format!("{name} {hostgroup}"))
            .spawn(move || run(hostgroup, &inbox, &events, which))?;
        Ok(Self { tasks, thread })
    }

    /// False if it is busy.
    pub(crate) fn give(&self, task: Task) -> bool {
        match self.tasks.try_send(task) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// It ends after what it has been given; the thread, to wait for.
    pub(crate) fn end(self) -> JoinHandle<()> {
        self.thread
    }
}

fn run(hostgroup: u32, tasks: &Receiver<Task>, events: &SyncSender<Event>, which: fn(u32, Written) -> Event) {
    let mut session: Option<(Endpoint, Connection)> = None;
    for task in tasks {
        let is_last = matches!(task.deed, Deed::Leave);
        let result = carry_out(hostgroup, &task, &mut session);
        if let Err(fault) = &result {
            debug!(hostgroup, %fault, "weir.topology was not written");
        }
        if is_last || events.send(which(hostgroup, Written { result })).is_err() {
            return;
        }
    }
}

/// Does it on the first server that lets it be done.
fn carry_out(
    hostgroup: u32,
    task: &Task,
    session: &mut Option<(Endpoint, Connection)>,
) -> Result<(Endpoint, EpochRead), Fault> {
    let mut fault = Fault::Nonsense("no server works".to_owned());
    for (endpoint, options) in task.servers.iter().take(TRIES_MAX) {
        let known = session.take().filter(|(known, connection)| known == endpoint && !connection.is_broken());
        let mut options = options.clone();
        options.read_timeout = Some(WRITE_TIMEOUT);
        options.connect_timeout = options.connect_timeout.min(WRITE_TIMEOUT);
        let opened = match known {
            Some((_, connection)) => Ok(connection),
            None => open(&options),
        };
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(error) => {
                fault = error;
                continue;
            }
        };
        match write(hostgroup, task, &mut connection) {
            Ok(read) => {
                *session = Some((endpoint.clone(), connection));
                return Ok((endpoint.clone(), read));
            }
            Err(error @ Fault::Denied(_)) => return Err(error),
            Err(error) => fault = error,
        }
    }
    Err(fault)
}

fn open(options: &Options) -> Result<Connection, Fault> {
    let mut connection = Connection::connect(options)?;
    connection.query(WAITING)?;
    Ok(connection)
}

fn write(hostgroup: u32, task: &Task, connection: &mut Connection) -> Result<EpochRead, Fault> {
    match write_once(hostgroup, task, connection) {
        Err(Fault::Missing(_)) => {
            tables::make(connection)?;
            write_once(hostgroup, task, connection)?;
        }
        other => other?,
    }
    let asked_at = monotonic_ms();
    tables::read(connection, hostgroup, asked_at)
}

fn write_once(hostgroup: u32, task: &Task, connection: &mut Connection) -> Result<(), Fault> {
    let instance: &Arc<str> = &task.own.instance;
    match &task.deed {
        Deed::Leave => return tables::forget(connection, hostgroup, instance, None),
        Deed::Propose(proposal) => tables::propose(connection, hostgroup, instance, proposal)?,
        Deed::Beat { purge } => {
            for (silent, beat) in purge {
                tables::forget(connection, hostgroup, silent, Some(*beat))?;
            }
        }
    }
    let Millis(beat) = monotonic_ms();
    tables::beat(connection, hostgroup, &InstanceRow { beat, ..task.own.clone() })
}
