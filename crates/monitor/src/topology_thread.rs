//! Runs the one thread that decides roles.

mod epoch;
mod event;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};
use weir_client::Address;
use weir_eviction::Evictor;
use weir_topology::{
    Change, Cleared, Endpoint, EpochPolicy, Group, Hold, InstanceId, Leadership, Millis, Observation, Place,
    ProbeError, Reason, Role, Roles, ServerRegistry, Status, Switch, roles,
};

use crate::causal_probe::{Source, Writer};
use crate::clock::monotonic_ms;
use crate::epoch_client::EpochClient;
use crate::probe::ProbeResult;
use crate::probe_log::ProbeLog;
use crate::probe_thread::{Order, ProbeHandle};
use crate::server_check::SeveralWriters;
use crate::settings::{Kind, Settings};
pub(crate) use event::Event;

/// How often roles are decided although nothing was seen: observations grow old, holds end.
const TICK: Duration = Duration::from_millis(100);
/// With fewer servers each look at one of them is followed by a decision at once.
const MANY_SERVERS: usize = 100;
/// No decision is put off for longer.
const GATHERING_MAX: Duration = Duration::from_millis(20);
/// Suspicions of one server that come faster than this count as one.
const SUSPICION_PAUSE: Duration = Duration::from_millis(20);
/// How long probes go as fast as they can when a writer is lost. A cluster has another one by then; where people choose
/// it, with asynchronous replication, it may take hours.
const HURRY_MS: u64 = 60_000;
/// How long the end waits for probes that hang on a silent server.
const END_WAIT: Duration = Duration::from_millis(300);
/// How long it waits until this Weir's rows are removed, for which others would wait longer.
const LEAVE_WAIT: Duration = Duration::from_secs(2);

/// The settings of the agreement with other Weirs.
pub(crate) struct Epochs {
    pub(crate) policy: EpochPolicy,
    /// Writer hostgroups of clusters whose epoch has been in force here.
    pub(crate) known: BTreeSet<u32>,
}

/// Runs until [`Event::Stop`].
pub(crate) fn run(
    settings: Settings,
    epochs: Epochs,
    registry: ServerRegistry,
    events: SyncSender<Event>,
    inbox: Receiver<Event>,
    log: Arc<ProbeLog>,
    publish: impl Fn(Arc<Roles>),
) {
    let mut topology = TopologyThread {
        settings: settings.clone(),
        registry,
        events,
        log,
        probes: BTreeMap::new(),
        evictors: Vec::new(),
        generation: 0,
        seen: Vec::new(),
        suspicions: HashMap::new(),
        roles: Arc::new(Roles::default()),
        hurry: Arc::new(AtomicBool::new(false)),
        epoch: epochs.policy,
        known_epochs: epochs.known,
        epoch_clients: BTreeMap::new(),
        switches: Vec::new(),
        cleared: Vec::new(),
        used: HashMap::new(),
        serves: false,
        is_followed: false,
        renamed: None,
        has_news: false,
        several_writers: SeveralWriters::default(),
    };
    topology.configure(settings);
    topology.decide(&publish);
    let (mut took, mut decided_at) = (Duration::ZERO, Instant::now());
    'run: loop {
        let mut next = match inbox.recv_timeout(TICK.saturating_sub(decided_at.elapsed())) {
            Err(RecvTimeoutError::Disconnected) => break,
            event => event.ok(),
        };
        let until = Instant::now() + topology.gathering(took);
        let mut who_waits = None;
        while let Some(event) = next.take() {
            if matches!(event, Event::Stop) {
                break 'run;
            }
            let is_seen = event.is_seen();
            who_waits = topology.handle(event);
            let left = until.saturating_duration_since(Instant::now());
            if is_seen && !left.is_zero() {
                next = inbox.recv_timeout(left).ok();
            }
        }
        if !topology.has_news && decided_at.elapsed() < TICK {
            continue;
        }
        let begun = Instant::now();
        topology.decide(&publish);
        decided_at = Instant::now();
        took = decided_at - begun;
        drop(who_waits);
    }
    // Probes that wait to be heard must not wait for ever.
    drop(inbox);
    topology.end();
}

struct TopologyThread {
    settings: Settings,
    registry: ServerRegistry,
    events: SyncSender<Event>,
    log: Arc<ProbeLog>,
    probes: BTreeMap<Endpoint, ProbeHandle>,
    evictors: Vec<Evictor>,
    generation: u64,
    seen: Vec<Observation>,
    suspicions: HashMap<Endpoint, Instant>,
    roles: Arc<Roles>,
    /// Probes go as fast as they can: the cluster is about to form a new view.
    hurry: Arc<AtomicBool>,
    epoch: EpochPolicy,
    /// Writer hostgroups of clusters whose epoch has been in force here.
    known_epochs: BTreeSet<u32>,
    /// By writer hostgroup.
    epoch_clients: BTreeMap<u32, EpochClient>,
    /// Planned changes that have not been made yet, of each cluster one at most.
    switches: Vec<Switch>,
    cleared: Vec<Cleared>,
    /// How many sessions have a connection to servers that are to leave.
    used: HashMap<Endpoint, u64>,
    /// What this Weir says of itself is written.
    serves: bool,
    /// Another process has taken over.
    is_followed: bool,
    /// Its name, if it is another one than at the start.
    renamed: Option<InstanceId>,
    /// Something was heard since the last decision that the next one may depend on.
    has_news: bool,
    several_writers: SeveralWriters,
}

impl TopologyThread {
    /// For how long what is seen of other servers still counts for the same decision, where the last one `took` so
    /// long. With very many servers there is always something new: decisions are to take a tenth of a processor, not
    /// all of it.
    fn gathering(&self, took: Duration) -> Duration {
        if self.probes.len() < MANY_SERVERS { Duration::ZERO } else { (took * 9).min(GATHERING_MAX) }
    }

    /// Returns what is to be dropped when the roles that follow from the event have been published.
    fn handle(&mut self, event: Event) -> Option<SyncSender<()>> {
        // Of what a probe saw it is told by `fold`.
        self.has_news |= !matches!(event, Event::Observed { .. });
        match event {
            Event::Observed { endpoint, generation, look, version } => {
                if self.probes.get(&endpoint).is_some_and(|probe| probe.generation == generation) {
                    self.fold(&endpoint, *look, version.as_deref());
                }
            }
            Event::Suspect(endpoint) => self.suspect(endpoint),
            Event::ConnectFailed(endpoint, cause) => {
                let now = self.now();
                if let Some(seen) = self.seen.iter_mut().find(|seen| seen.endpoint == endpoint) {
                    seen.connects.failed(now, &cause, &self.settings.policy);
                }
                self.suspect(endpoint);
            }
            Event::Configure { settings, published } => {
                self.configure(*settings);
                // New ones have to be told although nothing changes.
                self.tell_causal_probes();
                return Some(published);
            }
            Event::Switch { switch, published } => {
                self.begin_switch(switch);
                return Some(published);
            }
            Event::SwitchEnds { writer_hostgroup } => self.forget_switch(writer_hostgroup),
            Event::Serve => self.serves = true,
            Event::Followed => self.is_followed = true,
            Event::Release { hostgroup, rows } => {
                if let Some(client) = self.epoch_clients.get_mut(&hostgroup) {
                    client.release(rows);
                }
            }
            Event::Epoch { endpoint, generation, result } => {
                if self.probes.get(&endpoint).is_some_and(|probe| probe.generation == generation) {
                    self.epoch_read(&endpoint, result);
                }
            }
            Event::Beat { hostgroup, written } => {
                let now = self.now();
                let client = self.epoch_clients.get_mut(&hostgroup);
                let read = client.and_then(|client| client.beat_written(written, now));
                self.take_read(read);
            }
            Event::Claim { hostgroup, written } => {
                let now = self.now();
                let client = self.epoch_clients.get_mut(&hostgroup);
                let read = client.and_then(|client| client.claim_written(written, now));
                self.take_read(read);
            }
            Event::Cleared(cleared) => {
                self.cleared.retain(|known| known.writer_hostgroup != cleared.writer_hostgroup);
                self.cleared.push(cleared);
            }
            Event::Cut { hostgroup, learned_at } => {
                if let Some(client) = self.epoch_clients.get_mut(&hostgroup) {
                    client.cut(learned_at);
                }
            }
            Event::Used(counts) => self.used = counts.into_iter().collect(),
            Event::Stop => {}
        }
        None
    }

    /// Has a server looked at now.
    fn suspect(&mut self, endpoint: Endpoint) {
        let now = Instant::now();
        let last = self.suspicions.get(&endpoint);
        if last.is_some_and(|last| now.duration_since(*last) < SUSPICION_PAUSE) {
            return;
        }
        if let Some(probe) = self.probes.get(&endpoint) {
            self.suspicions.insert(endpoint, now);
            probe.order(Order::Now);
        }
    }

    fn fold(&mut self, endpoint: &Endpoint, look: ProbeResult, version: Option<&str>) {
        let now = self.now();
        let is_in_cluster = self.probes.get(endpoint).is_some_and(|probe| probe.settings.kind != Kind::Ping);
        let is_out = match &look.result {
            Ok(state) => !state.works(),
            Err(ProbeError::Timeout(_) | ProbeError::Busy(_)) => false,
            Err(_) => true,
        };
        let at = self.seen.iter().position(|seen| seen.endpoint == *endpoint);
        let before = at.and_then(|at| self.seen.get(at));
        let mut after = Observation::after(before, endpoint, now, look.result);
        if let Some(asked_at) = look.asked_at {
            after = after.with_question(asked_at);
        }
        if let Some(took) = look.ping {
            after = after.with_ping(took);
        }
        if look.accepts {
            after.connects.accepted(now);
        }
        if is_in_cluster && is_out {
            // That it takes no connections is explained, and its state tells when it is back.
            after.connects.forget();
        }
        if let Some(version) = version {
            after = after.with_version(version);
        }
        let ping_failures_max = self.settings.policy.ping_failures_max;
        let is_known = |before| !is_in_cluster && repeats(before, &after, ping_failures_max);
        self.has_news |= self.probes.len() < MANY_SERVERS || !before.is_some_and(is_known);
        match at.and_then(|at| self.seen.get_mut(at)) {
            Some(seen) => *seen = after,
            None => self.seen.push(after),
        }
    }

    /// Starts and ends probes so that there is one for each server of the configuration.
    fn configure(&mut self, settings: Settings) {
        self.forget_moved(&settings);
        self.probes.retain(|endpoint, probe| {
            let stays = settings.probes.get(endpoint) == Some(&probe.settings);
            if !stays {
                probe.order(Order::End);
            }
            stays
        });
        for (endpoint, probe) in &settings.probes {
            if self.probes.contains_key(endpoint) {
                continue;
            }
            self.generation += 1;
            let started = ProbeHandle::start(
                endpoint,
                self.generation,
                probe.clone(),
                self.registry.server(endpoint),
                self.events.clone(),
                self.hurry.clone(),
                self.log.clone(),
            );
            match started {
                Ok(handle) => {
                    self.probes.insert(endpoint.clone(), handle);
                }
                Err(cause) => error!(server = %endpoint, %cause, "can't start the thread of a probe"),
            }
        }
        self.configure_evictors(&settings);
        self.seen.retain(|seen| settings.probes.contains_key(&seen.endpoint));
        self.log.forget_others(|endpoint| settings.probes.contains_key(endpoint));
        self.suspicions.retain(|endpoint, _| settings.probes.contains_key(endpoint));
        self.several_writers.look(&settings.policy);
        self.settings = settings;
        self.forget_leases();
        self.forget_reads();
        self.configure_epoch_clients();
    }

    /// What was seen of a server at another address says nothing of the one that is there now. What is still heard of
    /// the former one is of a probe that has ended, and whoever counts for it counts elsewhere.
    fn forget_moved(&mut self, settings: &Settings) {
        for (endpoint, probe) in &settings.probes {
            if let Address::At(address) = &probe.options.address {
                self.registry.is_at(endpoint, *address);
            }
            let known = self.probes.get(endpoint);
            if known.is_some_and(|known| known.settings.options.address != probe.options.address) {
                self.seen.retain(|seen| seen.endpoint != *endpoint);
                self.suspicions.remove(endpoint);
            }
        }
    }

    /// The same for those that help a cluster to get over a dead node.
    fn configure_evictors(&mut self, settings: &Settings) {
        self.evictors.retain(|evictor| {
            let stays = settings.evictors.contains(&evictor.settings);
            if !stays {
                evictor.stop();
            }
            stays
        });
        for wanted in &settings.evictors {
            if self.evictors.iter().any(|evictor| evictor.settings == *wanted) {
                continue;
            }
            match Evictor::start(wanted.clone(), self.suspicion()) {
                Ok(handle) => self.evictors.push(handle),
                Err(cause) => {
                    let hostgroup = wanted.writer_hostgroup;
                    error!(hostgroup, %cause, "can't start the thread that evicts dead nodes");
                }
            }
        }
    }

    /// Has a server probed at once, for whom it does not answer.
    fn suspicion(&self) -> Box<dyn Fn(&Endpoint) + Send> {
        let events = self.events.clone();
        Box::new(move |endpoint| drop(events.try_send(Event::Suspect(endpoint.clone()))))
    }

    /// Decides the roles, and publishes and logs them if they changed.
    fn decide(&mut self, publish: &impl Fn(Arc<Roles>)) {
        let now = self.now();
        self.has_news = false;
        if self.epoch_clients.values().any(EpochClient::shares_its_name) {
            self.take_another_name();
        }
        self.prepare_policy();
        let Settings { policy, .. } = &self.settings;
        self.seen.iter_mut().for_each(|seen| seen.connects.expire(now, policy));
        let intents = self.intents_of_all();
        let mut decided = roles(policy, &intents, &self.seen, &self.roles, now);
        decided.renamed.clone_from(&self.renamed);
        for group in &mut decided.groups {
            let of_group = |evictor: &&Evictor| evictor.settings.writer_hostgroup == group.writer_hostgroup;
            group.assist = self.evictors.iter().find(of_group).and_then(Evictor::status);
            let has_others = epoch::has_others(&self.roles, group.writer_hostgroup);
            let client = self.epoch_clients.get_mut(&group.writer_hostgroup);
            let until = group.leadership.as_ref().map(Leadership::writes_until);
            group.epoch_trouble = client.and_then(|client| client.look_for_trouble(now, has_others, until));
        }
        let changed = !decided.same_as(&self.roles);
        let decided = Arc::new(decided);
        let previous = std::mem::replace(&mut self.roles, decided);
        self.end_switches();
        self.forget_answered();
        self.note_epochs();
        self.limit_writes(now);
        if changed {
            log(&self.roles, &previous);
            // First: what a causal probe finds out must hold for all that is done by the new roles.
            self.tell_causal_probes();
            publish(self.roles.clone());
        }
        self.write_down(now);
        let shunned: HashSet<&Endpoint> =
            self.seen.iter().filter(|seen| seen.connects.is_shunned()).map(|seen| &seen.endpoint).collect();
        for (endpoint, probe) in &self.probes {
            probe.shunned.store(shunned.contains(endpoint), Ordering::Relaxed);
            let epoch_of = self.epoch_to_read(endpoint);
            let has_peers = epoch_of.is_some_and(|of| self.has_peers(of.hostgroup, now));
            probe.standing.read_epoch_of(epoch_of, has_peers);
        }
        self.rank_evictors(now);
        let hurry = self.is_in_hurry(now);
        if hurry && !self.hurry.swap(hurry, Ordering::Relaxed) {
            self.probes.values().for_each(|probe| probe.order(Order::Now));
        } else if !hurry {
            self.hurry.store(false, Ordering::Relaxed);
        }
    }

    /// Whether a writer is lost, or about to be: its last probe had no answer.
    fn is_in_hurry(&self, now: Millis) -> bool {
        let is_fresh = |hold: &Hold| now.since(hold.since) < HURRY_MS;
        let is_silent =
            |writer: &Endpoint| self.seen.iter().any(|seen| seen.endpoint == *writer && seen.fault.is_some());
        let in_hurry =
            |group: &Group| group.hold.as_ref().is_some_and(is_fresh) || group.writers.iter().any(is_silent);
        self.roles.groups.iter().any(in_hurry)
    }

    /// Which of several Weirs is to evict dead nodes, as far as the epoch's rows tell.
    fn rank_evictors(&self, now: Millis) {
        for evictor in &self.evictors {
            let group = self.roles.group(evictor.settings.writer_hostgroup);
            let leadership = group.and_then(|group| group.leadership.as_ref());
            let epoch = self.settings.policy.epoch.as_ref();
            evictor.rank(leadership.zip(epoch).map_or(0, |(leadership, epoch)| leadership.rank(epoch, now)));
        }
    }

    /// Only servers that work in their cluster are asked how far they are.
    fn tell_causal_probes(&self) {
        let works = |place: &&Place| matches!(place.role, Role::Writer | Role::BackupWriter | Role::Reader);
        let working: HashSet<&Endpoint> =
            self.roles.places.iter().filter(works).map(|place| &place.endpoint).collect();
        for (endpoint, probe) in &self.probes {
            let works = working.contains(endpoint);
            let writer = if works { self.only_writer_of(endpoint) } else { None };
            probe.standing.set(works, writer);
        }
    }

    /// The writer of the servers with replication that `endpoint` belongs to, if there is exactly one.
    fn only_writer_of(&self, endpoint: &Endpoint) -> Option<Writer> {
        let Settings { policy, intents, .. } = &self.settings;
        let rows = || intents.iter().filter(|row| row.endpoint == *endpoint);
        let cluster =
            policy.replication.iter().find(|cluster| rows().any(|row| cluster.owns(row.hostgroup)))?;
        let [writer] = &*self.roles.group(cluster.writer_hostgroup)?.writers else { return None };
        let check = cluster.check;
        if writer == endpoint {
            return Some(Writer::Itself(check));
        }
        let options = self.probes.get(writer)?.settings.options.clone();
        Some(Writer::Other(Box::new(Source { options, check })))
    }

    fn now(&self) -> Millis {
        monotonic_ms()
    }

    fn end(mut self) {
        self.probes.values().for_each(|probe| probe.order(Order::End));
        self.evictors.iter().for_each(Evictor::stop);
        self.leave(Instant::now() + LEAVE_WAIT);
        let deadline = Instant::now() + END_WAIT;
        for (_, probe) in self.probes {
            probe.join_until(deadline);
        }
        for evictor in self.evictors {
            evictor.join_until(deadline);
        }
    }
}

/// Whether a server without a cluster is as it was when it was looked at before, but for how long its pings take: what
/// follows from that can wait for the next tick. Where there are a thousand such servers, somebody has always just looked.
fn repeats(before: &Observation, after: &Observation, ping_failures_max: u32) -> bool {
    let is_same =
        (before.timeouts > 0, before.fault.is_some(), &before.back, &before.version, &before.connects)
            == (after.timeouts > 0, after.fault.is_some(), &after.back, &after.version, &after.connects);
    is_same && (before.timeouts == after.timeouts || before.timeouts >= ping_failures_max)
}

/// One line for each place that changed, and for the begin and the end of a hold.
fn log(roles: &Roles, previous: &Roles) {
    for group in &roles.groups {
        let hostgroup = group.writer_hostgroup;
        let before = previous.group(hostgroup).and_then(|group| group.hold.as_ref());
        match (&group.hold, before) {
            (Some(hold), None) => {
                let lost: Vec<String> = hold.lost.iter().map(ToString::to_string).collect();
                warn!(hostgroup, "lost the writer {}: statements wait for the next", lost.join(", "));
            }
            (None, Some(hold)) => {
                let writers: Vec<String> = group.writers.iter().map(ToString::to_string).collect();
                let lost: Vec<String> = hold.lost.iter().map(ToString::to_string).collect();
                info!(hostgroup, "the hold for {} ends, writer: {}", lost.join(", "), writers.join(", "));
            }
            _ => {}
        }
        let known = previous.group(hostgroup).map(|group| group.second_names.as_slice()).unwrap_or_default();
        for (second, first) in group.second_names.iter().filter(|pair| !known.contains(pair)) {
            warn!(hostgroup, "{second} is the same node as {first} (wsrep_gcomm_uuid): list it once");
        }
    }
    for change in roles.changes(previous) {
        match change {
            Change::Is(place) if place.reason == Reason::NotObserved => {}
            Change::Is(place) if matches!(place.reason, Reason::WrittenApart { .. }) => error!("{change}"),
            Change::Is(place) if place.role == Role::Offline || place.status == Status::Shunned => {
                warn!("{change}");
            }
            _ => info!("{change}"),
        }
    }
}
