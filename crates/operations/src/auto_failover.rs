//! Carries out `auto_failover`: a replica is made the writer in the place of one that is lost, with asynchronous
//! replication. When that is to be done is decided where roles are ([`weir_topology::Succession`]), how it is done is
//! [`weir_topology::procedure::Failover`]'s.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Options;
use weir_config::ServerStatus;
use weir_topology::procedure::{
    Candidate, Failover, ProcedureError, Rejoin, Server as _, ServerError, Source,
};
use weir_topology::{Endpoint, Group, Succession};

use crate::cluster_automation::Pause;
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;
use crate::operations::{Operations, Outcome, Work};
use crate::replication_server::ReplicationServer;

/// A switchover that is under way sees to its old writer itself.
const RETURN_DELAY: Duration = Duration::from_secs(2);
/// When a failover that could not be made is tried again.
const FAILOVER_PAUSE: Duration = Duration::from_secs(2);
/// The same for servers that are to replicate from the writer.
const RETURN_PAUSE: Duration = Duration::from_secs(15);
/// The same for replicas that are to connect to their source.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// What Weir does by itself about a cluster's lost writer, and what it has said of it.
#[derive(Debug, Default)]
pub(crate) struct AutoFailover {
    pause: Pause,
    /// What was done last.
    last: Option<&'static str>,
    told: Option<String>,
}

/// A repair of a cluster's servers.
enum Repair {
    Replace { lost: Endpoint, id: String },
    Rejoin { returned: Vec<Endpoint>, writer: Endpoint },
    Reconnect(Vec<Endpoint>),
}

impl Repair {
    fn of(group: &Group) -> Option<Self> {
        let Succession { due, returned, unconnected, writer_id, .. } = group.succession.as_ref()?;
        match (due, &*group.writers) {
            (Some(lost), _) => Some(Self::Replace { lost: lost.clone(), id: writer_id.clone() }),
            (None, [writer]) if !returned.is_empty() => {
                Some(Self::Rejoin { returned: returned.clone(), writer: writer.clone() })
            }
            _ => (!unconnected.is_empty()).then(|| Self::Reconnect(unconnected.clone())),
        }
    }

    fn pause(&self) -> Duration {
        match self {
            Self::Replace { .. } => FAILOVER_PAUSE,
            Self::Rejoin { .. } => RETURN_PAUSE,
            Self::Reconnect(_) => CONNECT_PAUSE,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Replace { .. } => "failover",
            Self::Rejoin { .. } => "return",
            Self::Reconnect(_) => "reconnect",
        }
    }
}

impl AutoFailover {
    /// When something is due that has been put off; none if nothing has.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pause.until()
    }

    pub(crate) fn forget_what_is_over(&mut self, group: Option<&Group>) {
        if group.and_then(Repair::of).is_none() {
            *self = Self::default();
        }
    }

    /// What `auto_failover` calls for now.
    pub(crate) fn due(&mut self, group: &Group, is_busy: bool) -> Option<Work> {
        let hostgroup = group.writer_hostgroup;
        let repair = Repair::of(group).filter(|_| !is_busy)?;
        let (name, pause) = (repair.name(), repair.pause());
        let is_new = self.last.replace(name) != Some(name);
        if is_new && matches!(repair, Repair::Rejoin { .. }) {
            self.pause.begin(RETURN_DELAY);
            return None;
        }
        if !is_new && !self.pause.is_over() {
            return None;
        }
        self.pause.end();
        let run = move |runner: &OperationRunner| {
            let done = runner.repair(hostgroup, &repair);
            Outcome::Repaired { hostgroup, name, pause, done }
        };
        let not_begun = move |cause| {
            let done = Err(SwitchoverError::NoThread(cause));
            Outcome::Repaired { hostgroup, name, pause, done }
        };
        Some(Work { name, run: Box::new(run), not_begun: Box::new(not_begun) })
    }
}

impl Operations {
    /// Logs what was done, or why it was not, unless that is known.
    pub(crate) fn repaired(
        &mut self,
        hostgroup: u32,
        name: &str,
        pause: Duration,
        done: Result<Option<String>, SwitchoverError>,
    ) {
        let proxy = self.context.proxy.clone();
        let state = &mut self.automation(hostgroup).auto_failover;
        state.pause.begin(pause);
        match done {
            Ok(None) => {}
            Ok(Some(done)) => {
                tracing::warn!(hostgroup, "{name}: {done}");
                proxy.log_change(Some(hostgroup), name, done);
                state.told = None;
            }
            Err(cause) => {
                let cause = cause.to_string();
                let told = state.told.replace(cause.clone());
                if told.as_ref() != Some(&cause) {
                    tracing::error!(hostgroup, "{name} failed: {cause}");
                    proxy.log_change(Some(hostgroup), &format!("{name} failed"), cause);
                }
            }
        }
    }
}

impl OperationRunner {
    fn repair(&self, hostgroup: u32, repair: &Repair) -> Result<Option<String>, SwitchoverError> {
        let done = match repair {
            Repair::Replace { lost, id } => self.replace(hostgroup, lost, id).map(Some),
            Repair::Rejoin { returned, writer } => self.rejoin(hostgroup, returned, writer).map(Some),
            Repair::Reconnect(replicas) => self.reconnect(hostgroup, replicas).map(|()| None),
        };
        done.map_err(SwitchoverError::Procedure)
    }

    /// Says what a failover costs, and looks whether all that it needs is there.
    pub(crate) fn announce_failovers(&self) {
        for row in self.context.config.replication_hostgroups.iter().map(|row| row.writer_hostgroup) {
            if !self.context.config.topology_of(row).auto_failover {
                continue;
            }
            tracing::warn!(
                hostgroup = row,
                "auto_failover is on: if the writer is lost, Weir promotes a replica, and acknowledged writes that no replica has received ARE LOST; the writer gets writes only while more than half of the servers are seen to replicate from it"
            );
            let servers: Vec<(Endpoint, Options)> = self
                .members(row)
                .into_keys()
                .map(|server| {
                    let options = self.account_at(row, &server);
                    (server, options)
                })
                .collect();
            if servers.len() < 3 {
                tracing::warn!(
                    hostgroup = row,
                    "auto_failover has no effect: it needs three servers or more"
                );
            }
            let look = move || {
                for (server, options) in servers {
                    if let Some(lacking) = lacks(&server, &options) {
                        tracing::warn!(
                            hostgroup = row,
                            "auto_failover is not possible with this server: {lacking}"
                        );
                    }
                }
            };
            if let Err(cause) = thread::Builder::new().name("failover look".to_owned()).spawn(look) {
                tracing::error!(%cause, "can't start a thread");
            }
        }
    }

    /// The servers of a cluster that count, and their weight as readers; none for those that the user has taken out.
    fn members(&self, hostgroup: u32) -> BTreeMap<Endpoint, Option<u32>> {
        let (drained, mut members) = (self.context.drained.all(), BTreeMap::new());
        for row in self.rows_of(hostgroup).filter(|row| row.status != ServerStatus::OfflineHard) {
            let is_wanted = row.status == ServerStatus::Online && !drained.contains(&row.endpoint());
            let weight: &mut Option<u32> = members.entry(row.endpoint()).or_default();
            let is_readers = row.hostgroup_id != hostgroup;
            if is_wanted && (weight.is_none() || is_readers) {
                *weight = Some(row.weight);
            }
        }
        members
    }

    /// The servers of a cluster that count.
    pub(crate) fn counted(&self, hostgroup: u32) -> Vec<Endpoint> {
        self.members(hostgroup).into_keys().collect()
    }

    /// Makes a replica the writer.
    fn replace(&self, hostgroup: u32, lost: &Endpoint, id: &str) -> Result<String, ProcedureError> {
        let members = self.members(hostgroup);
        let majority = members.len() / 2 + 1;
        let others = members.into_iter().filter(|(server, _)| server != lost);
        let failover = Failover {
            writer_hostgroup: hostgroup,
            majority,
            lost: lost.clone(),
            id: id.to_owned(),
            others: others.map(|(server, weight)| Candidate { server, weight }).collect(),
        };
        tracing::warn!(hostgroup, %lost, "failover begins");
        failover.make(&mut self.surroundings(hostgroup, None))
    }

    /// Has servers replicate from the writer that have no part in its line: they are made read_only first.
    fn rejoin(
        &self,
        hostgroup: u32,
        returned: &[Endpoint],
        writer: &Endpoint,
    ) -> Result<String, ProcedureError> {
        let mut done = Vec::new();
        for server in returned {
            let (server, writer) = (server.clone(), writer.clone());
            let back = Rejoin { writer_hostgroup: hostgroup, server, writer };
            done.push(back.make(&mut self.surroundings(hostgroup, None))?);
        }
        Ok(done.join("; "))
    }

    fn reconnect(&self, hostgroup: u32, replicas: &[Endpoint]) -> Result<(), ProcedureError> {
        let with_options = |server: &Endpoint| (server.clone(), self.account_at(hostgroup, server));
        let replicas: Vec<_> = replicas.iter().map(with_options).collect();
        for (server, options) in &replicas {
            ReplicationServer::connect(server, options)?.reconnect()?;
        }
        Ok(())
    }
}

/// What a server lacks for a failover, in words for the log; none if it lacks nothing.
fn lacks(server: &Endpoint, options: &Options) -> Option<String> {
    match look_at(server, options).as_deref() {
        Ok([]) => None,
        Ok([source]) if source.has_positions => None,
        Ok([_]) => Some(format!("{server} does not replicate by GTID")),
        Ok(several) => Some(format!("{server} replicates from {} servers", several.len())),
        Err(cause) => Some(cause.to_string()),
    }
}

/// Tries what a failover needs. Returns where the server replicates from.
fn look_at(server: &Endpoint, options: &Options) -> Result<Vec<Source>, ServerError> {
    let mut server = ReplicationServer::connect(server, options)?;
    server.check_privileges()?;
    server.position()?;
    server.sources()
}
