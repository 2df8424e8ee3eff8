//! Obtains this process's name, the datadir and the listening sockets: by itself, or from the Weir that it takes
//! over from.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use weir_admin::TakeoverSocket;
use weir_config::ListenAddress;
use weir_monitor::{LatestRoles, Monitor};
use weir_proxy::listener::{self, Listeners};
use weir_topology::{Endpoint, Flavour, Reason, Roles};

use super::{Event, ServeError};
use crate::config_file::Source;
use crate::control::Control;
use crate::instance;
use crate::startup::Origin;
use crate::takeover::{ADMIN, CONTROL, HTTP, LISTENER, Predecessor, Sockets, TakeoverError};

/// How long the writers that the old process knows are looked for. The epoch row, or nodes that are down, take 5 s.
const WRITERS_WAIT: Duration = Duration::from_secs(20);
/// How long everything else is, once the writers are known: servers that don't answer must not hold up an upgrade.
const REST_WAIT: Duration = Duration::from_secs(3);

/// The way in, from before anything is said in this Weir's name to where it may take clients.
pub(super) struct Inheritance {
    datadir: PathBuf,
    instance: String,
    /// Who has the datadir as yet.
    predecessor: Option<Predecessor>,
    sockets: Sockets,
    /// None: the predecessor's.
    control: Option<Control>,
}

impl Inheritance {
    /// Reads the file. A datadir serves one Weir: without a predecessor the control socket has to be free.
    ///
    /// Who takes over has a new name. To the other Weirs in front of a cluster, and to the epoch's rules, the two processes
    /// are two, each with a lease of its own, until the first has drained.
    pub(super) fn begin(origin: &Origin, is_takeover: bool) -> Result<(Self, Source), ServeError> {
        let mut source = origin.read().map_err(ServeError::Config)?;
        let datadir = origin.datadir(&source);
        let predecessor = if is_takeover { Predecessor::greet(&datadir)? } else { None };
        if predecessor.is_some() {
            // From here on nobody changes anything.
            source = origin.read().map_err(ServeError::Config)?;
        }
        let control = match &predecessor {
            Some(_) => None,
            None => Some(Control::listen(&datadir)?),
        };
        let instance = match &predecessor {
            Some(_) => instance::new_instance_name(&datadir),
            None => instance::instance_name(&datadir),
        };
        let instance = instance.map_err(ServeError::Instance)?;
        Ok((Self { datadir, instance, predecessor, sockets: Sockets::default(), control }, source))
    }

    pub(super) fn datadir(&self) -> &Path {
        &self.datadir
    }

    /// This Weir's name.
    pub(super) fn instance(&self) -> &str {
        &self.instance
    }

    /// Waits until statements can be sent where the predecessor sends them, and gets its sockets.
    pub(super) fn follow(
        &mut self,
        monitor: &Monitor,
        roles: &LatestRoles,
        inbox: &Receiver<Event>,
    ) -> Result<(), ServeError> {
        let Some(mut predecessor) = self.predecessor.take() else { return Ok(()) };
        tracing::info!(version = predecessor.version(), "taking over from the running weir");
        // Without a word of its own it would learn of no writer that several Weirs agree on.
        monitor.serve();
        await_roles(&predecessor, monitor, roles, inbox)?;
        match predecessor.sockets()? {
            Some(mut sockets) => {
                if let Some(socket) = sockets.take(CONTROL) {
                    self.control = Some(Control::adopt(&self.datadir, socket)?);
                }
                self.sockets = sockets;
                self.predecessor = Some(predecessor);
            }
            None => tracing::warn!("the old process has died: its sockets are free"),
        }
        if self.control.is_none() {
            self.control = Some(Control::listen(&self.datadir)?);
        }
        Ok(())
    }

    /// The predecessor's listeners for clients.
    pub(super) fn listeners(&mut self) -> Result<Listeners, ServeError> {
        let handed = self.sockets.at_addresses(LISTENER)?.into_iter();
        Ok(Listeners::adopt(
            handed.map(|(address, socket)| listener::TakeoverSocket { address, socket }).collect(),
        )?)
    }

    /// The predecessor's sockets of the admin port.
    pub(super) fn admin(&mut self) -> Result<Vec<TakeoverSocket>, ServeError> {
        let handed = self.sockets.at_addresses(ADMIN)?.into_iter();
        Ok(handed.map(|(address, socket)| TakeoverSocket { address, socket }).collect())
    }

    /// The predecessor's sockets of HTTP.
    pub(super) fn http(&mut self) -> Result<Vec<(SocketAddr, OwnedFd)>, ServeError> {
        let handed = self.sockets.at_addresses(HTTP)?.into_iter();
        let at_port = |(address, socket)| match address {
            ListenAddress::Tcp(address) => Some((address, socket)),
            ListenAddress::Unix(_) => None,
        };
        Ok(handed.filter_map(at_port).collect())
    }

    /// Nothing can fail any more: the predecessor lets go of everything. Clients wait meanwhile.
    pub(super) fn take_over(self) -> Result<Control, ServeError> {
        if let Some(predecessor) = self.predecessor {
            predecessor.ready()?;
            tracing::info!("taken over: the old process drains");
        }
        let control = match self.control {
            Some(control) => control,
            None => Control::listen(&self.datadir)?,
        };
        control.own();
        Ok(control)
    }
}

/// Waits until statements can be sent where the old process sends them.
///
/// # Errors
/// When a writer that the old process has is not found, or a signal says that this one is to end.
fn await_roles(
    predecessor: &Predecessor,
    monitor: &Monitor,
    roles: &LatestRoles,
    inbox: &Receiver<Event>,
) -> Result<(), TakeoverError> {
    let begun = Instant::now();
    let mut known_at = None;
    loop {
        let latest = roles.latest();
        let lacking = lacking(&latest, predecessor);
        if lacking.is_none() {
            let since = *known_at.get_or_insert_with(Instant::now);
            if is_complete(&latest) || since.elapsed() >= REST_WAIT {
                break;
            }
        }
        if let Some(hostgroup) = lacking.filter(|_| begun.elapsed() >= WRITERS_WAIT) {
            return Err(TakeoverError::NoWriter { hostgroup, seconds: WRITERS_WAIT.as_secs() });
        }
        match inbox.recv_timeout(Duration::from_millis(50)) {
            Ok(Event::Signal(SIGTERM | SIGINT)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(TakeoverError::Interrupted);
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
    }
    keep_writers(predecessor, monitor, roles);
    Ok(())
}

/// A cluster for which the old process has a writer and this one has none.
fn lacking(roles: &Roles, predecessor: &Predecessor) -> Option<u32> {
    let lacks = |hostgroup: u32, writers: &[Endpoint]| {
        writers.is_empty() && !predecessor.writers(hostgroup).is_empty()
    };
    let mut groups = roles.groups.iter();
    groups.find(|group| lacks(group.writer_hostgroup, &group.writers)).map(|group| group.writer_hostgroup)
}

/// Every server has been looked at.
fn is_complete(roles: &Roles) -> bool {
    !roles.places.is_empty() && roles.places.iter().all(|place| place.reason != Reason::NotObserved)
}

/// Where facts alone tell who writes, weights would give the role to another node than the one that has it.
fn keep_writers(predecessor: &Predecessor, monitor: &Monitor, roles: &LatestRoles) {
    for group in &roles.latest().groups {
        let hostgroup = group.writer_hostgroup;
        let has_row = group.leadership.as_ref().is_some_and(|leadership| leadership.row.is_some());
        let ([chosen], [known]) = (group.writers.as_slice(), predecessor.writers(hostgroup)) else {
            continue;
        };
        let Ok(known) = known.parse::<Endpoint>() else { continue };
        if group.flavour != Flavour::Galera || has_row || *chosen == known {
            continue;
        }
        monitor.planner().switch(hostgroup, chosen, &known);
        // A row that was read in the same moment would have it stand, and nobody has been asked to hold.
        monitor.planner().switch_ends(hostgroup);
        let is_kept = roles.latest().group(hostgroup).is_some_and(|group| group.writers == [known.clone()]);
        if is_kept {
            tracing::info!(hostgroup, writer = %known, "the writer is the same as in the old process");
        } else {
            tracing::warn!(hostgroup, %chosen, was = %known, "the writer differs from that of the old process");
        }
    }
}
