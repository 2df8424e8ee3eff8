//! `auto_failover`: a replica is made the writer in the place of one that is lost, with asynchronous replication. When
//! that is to be done is decided where roles are ([`weir_topology::Succession`]), how it is done is
//! [`weir_topology::procedure::Failover`]'s.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use weir_client::Options;
use weir_config::ServerStatus;
use weir_topology::procedure::{Candidate, Failover, Server as _, TakeBack};
use weir_topology::{Endpoint, Group, Succession};

use super::super::Server;
use super::super::failback::Failbacks;
use super::super::handover::Handover;
use super::super::operations::Outcome;
use super::Operator;
use super::replication::server::ReplicationServer;

/// A switchover that is under way sees to its old writer itself.
const RETURN_DELAY: Duration = Duration::from_secs(2);
/// When a failover that could not be made is tried again.
const FAILOVER_PAUSE: Duration = Duration::from_secs(2);
/// The same for servers that are to replicate from the writer.
const RETURN_PAUSE: Duration = Duration::from_secs(15);
/// The same for replicas that are to connect to their source.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// What Weir does by itself about lost writers, and what it has said of it, by writer hostgroup.
#[derive(Debug, Default)]
pub(in super::super) struct Successions {
    pauses: Failbacks,
    /// What was done last.
    last: HashMap<u32, &'static str>,
    told: HashMap<u32, String>,
}

impl Successions {
    /// When something is due that has been put off; none if nothing has.
    pub(in super::super) fn next(&self) -> Option<Instant> {
        self.pauses.next()
    }

    /// Nothing is done there for a while.
    pub(in super::super) fn rest(&mut self, hostgroup: u32, pause: Duration) {
        self.pauses.rest(hostgroup, pause);
    }
}

/// What there is to do.
enum Deed {
    Replace { lost: Endpoint, id: String },
    TakeBack { returned: Vec<Endpoint>, writer: Endpoint },
    Reconnect(Vec<Endpoint>),
}

impl Deed {
    fn of(group: &Group) -> Option<Self> {
        let Succession { due, returned, unconnected, writer_id, .. } = group.succession.as_ref()?;
        match (due, &*group.writers) {
            (Some(lost), _) => Some(Self::Replace { lost: lost.clone(), id: writer_id.clone() }),
            (None, [writer]) if !returned.is_empty() => {
                Some(Self::TakeBack { returned: returned.clone(), writer: writer.clone() })
            }
            _ => (!unconnected.is_empty()).then(|| Self::Reconnect(unconnected.clone())),
        }
    }

    fn pause(&self) -> Duration {
        match self {
            Self::Replace { .. } => FAILOVER_PAUSE,
            Self::TakeBack { .. } => RETURN_PAUSE,
            Self::Reconnect(_) => CONNECT_PAUSE,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Replace { .. } => "failover",
            Self::TakeBack { .. } => "return",
            Self::Reconnect(_) => "reconnect",
        }
    }
}

impl Server {
    /// Does what `auto_failover` calls for.
    pub(in super::super) fn see_to_successions(&mut self) {
        if self.handover != Handover::None {
            return;
        }
        let roles = self.roles.latest();
        let is_wanted = |hostgroup| roles.group(hostgroup).is_some_and(|group| Deed::of(group).is_some());
        self.successions.pauses.keep(is_wanted);
        self.successions.last.retain(|hostgroup, _| is_wanted(*hostgroup));
        self.successions.told.retain(|hostgroup, _| is_wanted(*hostgroup));
        for group in &roles.groups {
            let hostgroup = group.writer_hostgroup;
            let Some(deed) = Deed::of(group).filter(|_| !self.operations.is_busy(hostgroup)) else {
                continue;
            };
            let is_new = self.successions.last.insert(hostgroup, deed.name()) != Some(deed.name());
            if is_new && matches!(deed, Deed::TakeBack { .. }) {
                self.successions.pauses.rest(hostgroup, RETURN_DELAY);
                continue;
            }
            if !is_new && !self.successions.pauses.is_due(hostgroup) {
                continue;
            }
            let (name, pause) = (deed.name(), deed.pause());
            let work = move |operator: &Operator| {
                let done = operator.do_deed(hostgroup, &deed);
                Outcome::Succeeded { hostgroup, name, pause, done }
            };
            if let Err(cause) = self.operate(name, BTreeSet::from([hostgroup]), work) {
                self.successions.rest(hostgroup, pause);
                self.tell_succession(hostgroup, name, Err(format!("can't start a thread: {cause}")));
            }
        }
    }

    /// Logs what was done, or why it was not, unless that is known.
    pub(in super::super) fn tell_succession(
        &mut self,
        hostgroup: u32,
        name: &str,
        done: Result<Option<String>, String>,
    ) {
        match done {
            Ok(None) => {}
            Ok(Some(done)) => {
                tracing::warn!(hostgroup, "{name}: {done}");
                self.log.event(Some(hostgroup), name, done);
                self.successions.told.remove(&hostgroup);
            }
            Err(cause) => {
                let told = self.successions.told.insert(hostgroup, cause.clone());
                if told.as_ref() != Some(&cause) {
                    tracing::error!(hostgroup, "{name} not done: {cause}");
                    self.log.event(Some(hostgroup), &format!("{name} not done"), cause);
                }
            }
        }
    }
}

impl Operator {
    fn do_deed(&self, hostgroup: u32, deed: &Deed) -> Result<Option<String>, String> {
        match deed {
            Deed::Replace { lost, id } => self.replace(hostgroup, lost, id).map(Some),
            Deed::TakeBack { returned, writer } => self.take_back(hostgroup, returned, writer).map(Some),
            Deed::Reconnect(replicas) => self.reconnect(hostgroup, replicas).map(|()| None),
        }
    }

    /// Says what a failover costs, and looks whether all that it needs is there.
    pub(in super::super) fn announce_failovers(&self) {
        for row in self.config.replication_hostgroups.iter().map(|row| row.writer_hostgroup) {
            if !self.config.topology_of(row).auto_failover {
                continue;
            }
            tracing::warn!(
                hostgroup = row,
                "auto_failover: if the writer is lost, a replica takes its place, and writes that were acknowledged and \
                 that no replica has received ARE LOST; it gets writes only while more than half of the servers are seen \
                 that replicate from it"
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
                    "auto_failover has no effect: it takes three servers or more"
                );
            }
            let look = move || {
                for (server, options) in servers {
                    if let Err(lacking) = look_at(&server, &options) {
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
        let (drained, mut members) = (self.drained.all(), BTreeMap::new());
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
    pub(in super::super) fn counted(&self, hostgroup: u32) -> Vec<Endpoint> {
        self.members(hostgroup).into_keys().collect()
    }

    /// Makes a replica the writer.
    fn replace(&self, hostgroup: u32, lost: &Endpoint, id: &str) -> Result<String, String> {
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
        failover.make(&mut self.around(hostgroup, None))
    }

    /// Has servers replicate from the writer that have no part in its line: they are made read_only first.
    fn take_back(&self, hostgroup: u32, returned: &[Endpoint], writer: &Endpoint) -> Result<String, String> {
        let mut done = Vec::new();
        for server in returned {
            let (server, writer) = (server.clone(), writer.clone());
            let back = TakeBack { writer_hostgroup: hostgroup, server, writer };
            done.push(back.make(&mut self.around(hostgroup, None))?);
        }
        Ok(done.join("; "))
    }

    fn reconnect(&self, hostgroup: u32, replicas: &[Endpoint]) -> Result<(), String> {
        let with_options = |server: &Endpoint| (server.clone(), self.account_at(hostgroup, server));
        let replicas: Vec<_> = replicas.iter().map(with_options).collect();
        for (server, options) in &replicas {
            ReplicationServer::connect(server, options)?.reconnect()?;
        }
        Ok(())
    }
}

/// What a server lacks for a failover.
fn look_at(server: &Endpoint, options: &Options) -> Result<(), String> {
    let mut server = ReplicationServer::connect(server, options)?;
    server.check_privileges()?;
    server.position()?;
    match server.sources()?.as_slice() {
        [] => Ok(()),
        [source] if source.has_positions => Ok(()),
        [_] => Err(format!("{} replicates without global positions", server.endpoint())),
        several => Err(format!("{} replicates from {} servers", server.endpoint(), several.len())),
    }
}
