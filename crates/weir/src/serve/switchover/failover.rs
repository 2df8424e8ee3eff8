//! `auto_failover`: a replica is made the writer in the place of one that is lost, with asynchronous replication.
//!
//! ```text
//! more than half of the servers are locked ─► who has received most? ─► it applies that ─► the others replicate
//!     from it ─► together they are more than half ─► it receives no more, and is made writable
//! ```
//!
//! When that is to be done is decided where roles are ([`weir_topology::Succession`]). The lock is GET_LOCK() on the very
//! connections by which everything is done: of several Weirs one gets more than half, and a connection that is lost takes
//! its lock along. Whoever dies on the way leaves servers that are read_only, and more than half of them still say, or get
//! their data from one that says, that the writer is lost; the next one begins again. Only who dies within the last step
//! leaves a replica that is stopped: as after a STOP by hand, nothing is done until somebody starts it.
//!
//! Acknowledged writes that no replica has received are lost. What came after the position that is logged stays on the
//! old writer: if it has such transactions it is never made a replica by force.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use weir_client::{Connection, Error, Options};
use weir_config::ServerStatus;
use weir_topology::{Endpoint, Group, Link, Succession};

use super::super::Server;
use super::super::failback::Failbacks;
use super::super::handover::Handover;
use super::super::operations::Outcome;
use super::replication::server::{Login, ReplicationServer, Source};
use super::replication::wait_connected;
use super::{LOOK_EVERY, Operator};

/// How long the next writer may take to apply what it has received.
const APPLY_WAIT: Duration = Duration::from_secs(45);
/// It is asked so often meanwhile whether it has, in less time than an answer may take.
const APPLY_SLICE: Duration = Duration::from_secs(2);
/// A switchover that is under way sees to its old writer itself.
const RETURN_DELAY: Duration = Duration::from_secs(2);
/// When a failover that could not be made is tried again.
const FAILOVER_PAUSE: Duration = Duration::from_secs(2);
/// The same for servers that are to replicate from the writer.
const RETURN_PAUSE: Duration = Duration::from_secs(15);
/// The same for replicas that are to connect to their source.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);
/// No more of a position is shown.
const POSITION_CHARS_MAX: usize = 300;

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

    /// Makes a replica the writer.
    fn replace(&self, hostgroup: u32, lost: &Endpoint, id: &str) -> Result<String, String> {
        let members = self.members(hostgroup);
        let majority = members.len() / 2 + 1;
        let others = members.into_iter().filter(|(server, _)| server != lost);
        let others = others.map(|(server, weight)| {
            let options = self.account_at(hostgroup, &server);
            Other { server, options, weight }
        });
        let failover = Failover {
            lock: lock_name(hostgroup),
            majority,
            lost: lost.clone(),
            id: id.to_owned(),
            others: others.collect(),
            lost_options: self.account_at(hostgroup, lost),
        };
        tracing::warn!(hostgroup, %lost, "failover begins");
        failover.make()
    }

    /// Has servers replicate from the writer that have no part in its line: they are made read_only first.
    fn take_back(&self, hostgroup: u32, returned: &[Endpoint], writer: &Endpoint) -> Result<String, String> {
        let (lock, login) = (lock_name(hostgroup), self.replication_login(hostgroup, writer));
        let writers_options = self.account_at(hostgroup, writer);
        let with_options = |server: &Endpoint| (server.clone(), self.account_at(hostgroup, server));
        let returned: Vec<_> = returned.iter().map(with_options).collect();
        let mut done = Vec::new();
        for (server, options) in &returned {
            done.push(take_back(server, options, writer, &writers_options, &login, &lock)?);
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

/// One for all Weirs in front of a server.
fn lock_name(hostgroup: u32) -> String {
    format!("weir_failover_{hostgroup}")
}

/// What a server lacks for a failover.
fn look_at(server: &Endpoint, options: &Options) -> Result<(), String> {
    let mut server = ReplicationServer::connect(server, options)?;
    server.check_privileges()?;
    server.position()?;
    match server.sources()?.as_slice() {
        [] => Ok(()),
        [source] if source.has_positions => Ok(()),
        [_] => Err(format!("{} replicates without global positions", server.endpoint)),
        several => Err(format!("{} replicates from {} servers", server.endpoint, several.len())),
    }
}

/// Another server than the lost one.
struct Other {
    server: Endpoint,
    options: Options,
    /// None: it has a vote, and is not to be the writer.
    weight: Option<u32>,
}

/// A failover that is to be made.
struct Failover {
    lock: String,
    majority: usize,
    lost: Endpoint,
    /// How replicas name it.
    id: String,
    lost_options: Options,
    others: Vec<Other>,
}

/// A replica of the lost writer, locked.
struct Replica {
    server: ReplicationServer,
    source: Source,
    /// None: it is not to be the writer.
    weight: Option<u32>,
    received: String,
}

impl Failover {
    /// Returns what was done and what is left to do.
    fn make(&self) -> Result<String, String> {
        if is_there(&self.lost_options) {
            return Err(format!("{} answers", self.lost));
        }
        let (mut replicas, mut left) = self.gather()?;
        let best = best(&mut replicas)?;
        let mut to = replicas.swap_remove(best);
        to.apply(&self.lost)?;
        let (mut undo, endpoint) = (Vec::new(), to.server.endpoint.clone());
        let moved = self.move_to(&mut to, &mut replicas, &mut undo, &mut left);
        if let Err(cause) = moved {
            for at in undo {
                let Some(Replica { server, source, .. }) = replicas.get_mut(at) else { continue };
                let back = source.link.endpoint.as_ref().unwrap_or(&self.lost);
                left.extend(server.follow(back).err());
            }
            left.extend(to.server.start_replication().err());
            return Err([vec![cause], left].concat().join("; not undone: "));
        }
        left.extend(to.server.forget_source().err());
        let left: String = left.iter().map(|left| format!("; {left}")).collect();
        let position: String = to.received.chars().take(POSITION_CHARS_MAX).collect();
        Ok(format!(
            "{endpoint} is the writer in the place of {}, which is lost; acknowledged writes beyond {position} are lost{left}",
            self.lost
        ))
    }

    /// Locks all that can be reached, and looks again whether the writer is lost for more than half.
    fn gather(&self) -> Result<(Vec<Replica>, Vec<String>), String> {
        let (mut replicas, mut left) = (Vec::new(), Vec::new());
        for other in &self.others {
            let mut server = match ReplicationServer::connect(&other.server, &other.options) {
                Ok(server) => server,
                Err(cause) => {
                    left.push(format!("{} was not told of the new writer ({cause})", other.server));
                    continue;
                }
            };
            if !server.lock(&self.lock)? {
                return Err(format!("another Weir sees to it: it has the lock at {}", other.server));
            }
            server.check_privileges()?;
            if !server.is_read_only()? {
                return Err(format!("{} is not read_only: it may be the next writer already", other.server));
            }
            match <[Source; 1]>::try_from(server.sources()?) {
                Ok([source]) if other.weight.is_none() && source.link.link == Link::Idle => {
                    left.push(format!(
                        "{} is drained and its replication stopped: it is left alone",
                        other.server
                    ));
                }
                Ok([source]) if source.has_positions && self.is_of_cluster(&source) => {
                    let received = server.received(&source)?;
                    replicas.push(Replica { server, source, weight: other.weight, received });
                }
                _ => left.push(format!(
                    "{} replicates from elsewhere, or without global positions, and is left alone",
                    other.server
                )),
            }
        }
        if let Some(replica) = replicas.iter().find(|replica| self.is_source(replica, Link::Up)) {
            return Err(format!("{} still receives from {}", replica.server.endpoint, self.lost));
        }
        let is_cut_off = |replica: &&Replica| {
            self.is_source(replica, Link::Down) || !replica.source.link.names(&self.lost, &self.id)
        };
        let votes = replicas.iter().filter(is_cut_off).count();
        if votes < self.majority {
            let mut causes = vec![format!(
                "only {votes} replicas say now that they can't connect to {}, {} must",
                self.lost, self.majority
            )];
            causes.append(&mut left);
            return Err(causes.join("; "));
        }
        Ok((replicas, left))
    }

    /// Of the lost one, or of another server of the cluster, as somebody who died on the way may have left it.
    fn is_of_cluster(&self, source: &Source) -> bool {
        source.link.names(&self.lost, &self.id)
            || self.others.iter().any(|other| source.link.names(&other.server, ""))
    }

    fn is_source(&self, replica: &Replica, link: Link) -> bool {
        replica.source.link.names(&self.lost, &self.id) && replica.source.link.link == link
    }

    /// Applying takes a while, in which the lost one may have come back. By a replica that receives from it again other
    /// Weirs know it for the writer, and go by that for some time although the replica is stopped.
    fn is_still_lost_to(&self, replica: &mut Replica) -> Result<(), String> {
        let receives =
            |source: &Source| source.link.link == Link::Up && source.link.names(&self.lost, &self.id);
        match replica.server.sources()?.iter().any(receives) {
            true => Err(format!("{} receives from {} again", replica.server.endpoint, self.lost)),
            false => Ok(()),
        }
    }

    /// The order matters: until the last moment the next writer itself says that its source is lost, and when it is made
    /// writable, more than half replicate from it already, itself included, and nothing comes from the lost one any more.
    /// `undo` gets those that replicate from it.
    fn move_to(
        &self,
        to: &mut Replica,
        replicas: &mut [Replica],
        undo: &mut Vec<usize>,
        left: &mut Vec<String>,
    ) -> Result<(), String> {
        for (at, replica) in replicas.iter_mut().enumerate() {
            self.is_still_lost_to(replica)?;
            replica.server.stop_replication()?;
            undo.push(at);
            replica.look_again()?;
            replica.server.follow(&to.server.endpoint)?;
        }
        if undo.len() + 1 < self.majority {
            return Err(format!(
                "{} replicas can replicate from {}, {} must",
                undo.len(),
                to.server.endpoint,
                self.majority - 1
            ));
        }
        self.is_still_lost_to(to)?;
        to.server.stop_replication()?;
        to.look_again()?;
        if let Err(cause) = to.server.set_read_only(false) {
            left.extend(to.server.set_read_only(true).err());
            return Err(cause);
        }
        Ok(())
    }
}

/// The one that has received most: all that any has. Of equal ones that with the greatest weight, then by name; none that
/// the user keeps from work.
fn best(replicas: &mut [Replica]) -> Result<usize, String> {
    let is_wanted = |at: &usize| replicas.get(*at).is_some_and(|replica| replica.weight.is_some());
    let mut order: Vec<usize> = (0..replicas.len()).filter(is_wanted).collect();
    order.sort_by_key(|at| {
        replicas.get(*at).map(|replica| (Reverse(replica.weight), replica.server.endpoint.clone()))
    });
    let received: Vec<String> = replicas.iter().map(|replica| replica.received.clone()).collect();
    for at in order {
        let Some(Replica { server, received: own, .. }) = replicas.get_mut(at) else { continue };
        let mut has_all = true;
        for other in &received {
            has_all = has_all && server.covers(own, other)?;
        }
        if has_all {
            return Ok(at);
        }
    }
    let told = |replica: &Replica| {
        let drained = if replica.weight.is_none() { " (drained)" } else { "" };
        format!("{}{drained} {}", replica.server.endpoint, replica.received)
    };
    let told: Vec<String> = replicas.iter().map(told).collect();
    Err(format!("no replica that may be the writer has all that the others have: {}", told.join(" | ")))
}

impl Replica {
    /// Waits until all is applied that was received.
    fn apply(&mut self, lost: &Endpoint) -> Result<(), String> {
        if !self.source.applies {
            let error = &self.source.error;
            return Err(format!("{} does not apply what it has received: {error}", self.server.endpoint));
        }
        let until = Instant::now() + APPLY_WAIT;
        while let Err(cause) = self.server.wait_for(&self.received, APPLY_SLICE) {
            if Instant::now() >= until {
                return Err(format!("{cause}, nor within {} s", APPLY_WAIT.as_secs()));
            }
            let sources = self.server.sources()?;
            if sources.iter().any(|source| source.link.link == Link::Up) {
                return Err(format!("{} receives from {lost} again", self.server.endpoint));
            }
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// It receives nothing any more: nothing may have come since it was compared with the others.
    fn look_again(&mut self) -> Result<(), String> {
        let sources = self.server.sources()?;
        let source = sources.first().ok_or_else(|| format!("{} has no source", self.server.endpoint))?;
        let received = self.server.received(source)?;
        match self.server.covers(&self.received, &received)? {
            true => Ok(()),
            false => Err(format!("{} has received more meanwhile", self.server.endpoint)),
        }
    }
}

/// Whether a server lives, whatever it answers.
fn is_there(options: &Options) -> bool {
    matches!(Connection::connect(options), Ok(_) | Err(Error::Server { .. }))
}

/// Has one server replicate from the writer, if the writer has all that it has.
fn take_back(
    server: &Endpoint,
    options: &Options,
    writer: &Endpoint,
    writers_options: &Options,
    login: &Login,
    lock: &str,
) -> Result<String, String> {
    let mut back = ReplicationServer::connect(server, options)?;
    let mut source = ReplicationServer::connect(writer, writers_options)?;
    if !back.lock(lock)? {
        return Err(format!("another Weir sees to it: it has the lock at {server}"));
    }
    back.check_privileges()?;
    if back.id == source.id || source.is_read_only()? {
        return Err(format!("{writer} is not the writer any more"));
    }
    if !back.is_read_only()? {
        back.set_read_only(true)?;
        tracing::warn!(%server, %writer, "was writable beside the writer, and has been made read_only");
    }
    if let Some(errant) = source.lacks_of(&mut back)? {
        let errant: String = errant.chars().take(POSITION_CHARS_MAX).collect();
        return Err(format!(
            "{server} has transactions that {writer} lacks ({errant}): it is read_only, and stays without work until \
             somebody has looked at them and made it a replica of {writer}"
        ));
    }
    match back.sources()?.as_slice() {
        [] => {}
        [own] if own.link.names(writer, &source.id) => {
            return Ok(format!("{server} replicates from {writer} already"));
        }
        _ => return Err(format!("{server} is read_only, replicates from elsewhere and is left alone")),
    }
    back.become_replica(writer, login, writers_options.tls.is_some())?;
    wait_connected(&mut back)?;
    Ok(format!("{server} has nothing that {writer} lacks, and replicates from it"))
}
