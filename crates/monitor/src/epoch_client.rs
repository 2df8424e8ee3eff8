//! Takes one cluster's part in the agreement of several Weirs: has the topology thread's decisions written, and limits
//! the data path's writes to what the others know.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use tracing::{error, info, warn};
use weir_client::Options;
use weir_topology::{
    Announcement, DrainRow, Endpoint, EpochPolicy, EpochRead, EpochTrouble, Group, InstanceId, InstanceRow,
    Leadership, Millis, Peer, Role, Roles, ServerRegistry,
};

use crate::epoch_tables::Fault;
use crate::epoch_trouble::{self, Facts};
use crate::epoch_writer::{Beats, EpochTask, EpochWriter, GALERA_WAITS, Released, WriteRequest, Written};
use crate::topology_thread::Event;

/// How often a Weir says that it is there, while there are others.
const BEAT_MS: u64 = 1_000;
/// The same while it is alone: often enough that its reads confirm the epoch.
const LONE_BEAT_MS: u64 = 3_000;
/// How long after a failure the own row is written again.
const BEAT_RETRY_MS: u64 = 200;
/// How long after a failure a change of the epoch row is proposed again. Statements are held meanwhile: what has waited
/// in vain for a new view must not miss it when it comes.
const CLAIM_RETRY_MS: u64 = 20;
/// The same for both if the account may not, and facts must do.
const DENIED_RETRY_MS: u64 = 30_000;
/// The same where writes need the epoch.
const REQUIRED_RETRY_MS: u64 = 1_000;
/// Rows of Weirs that have been silent for so long are removed; their leases have long ended.
const SILENT_MS: u64 = 3_600_000;
/// Of more silent Weirs those are removed, too, whose leases have ended.
const SILENT_KEPT: usize = 16;
/// With one beat no more rows are removed than these.
const PURGED_MAX: usize = 100;

/// How often the tables are read at the only writer of servers with replication, while there are other Weirs or a
/// switchover is planned. Of Galera's nodes causal probes read them.
const LOOK_MS: u64 = 100;
/// How often servers that users keep out are asked whether that still is so, where there is no other.
const KEPT_OUT_LOOK_MS: u64 = 1_000;
/// Sessions on a server that leaves are told no more often.
const DRAINS_PAUSE_MS: u64 = 200;

/// Beats that another Weir of the same name has written: what an earlier run of this one had sent, and a server has done
/// late, are two at most.
const STRANGE_BEATS: usize = 3;

/// The subject of the agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EpochScope {
    /// Who writes, and what is planned: Galera.
    Writer,
    /// What is planned, at a writer that `read_only` tells: replication.
    Plans,
}

/// A cluster's servers as they are at a moment.
pub(crate) struct ClusterServers<'a> {
    pub(crate) roles: &'a Roles,
    /// How to connect to the servers of the cluster.
    pub(crate) options: &'a BTreeMap<Endpoint, Options>,
    /// Those that work and that users keep out, where there is no writer.
    pub(crate) kept_out: &'a [Endpoint],
}

impl ClusterServers<'_> {
    fn ways<'e>(&self, servers: impl Iterator<Item = &'e Endpoint>) -> Vec<(Endpoint, Options)> {
        let way = |endpoint: &Endpoint| Some((endpoint.clone(), self.options.get(endpoint)?.clone()));
        servers.filter_map(way).collect()
    }
}

/// The agreement about one cluster: what was said of this Weir, what is under way, and what can't be read.
pub(crate) struct EpochClient {
    hostgroup: u32,
    pub(crate) scope: EpochScope,
    instance: InstanceId,
    beats: EpochWriter,
    claims: EpochWriter,
    written: Beats,
    /// Beats in this Weir's row that it has not written.
    strange: BTreeSet<u64>,
    beats_busy: bool,
    claims_busy: bool,
    /// This run of Weir has written its row: what is read from then on counts.
    is_registered: bool,
    /// What was written last, and when.
    said: Option<(Announcement, Millis)>,
    /// When the tables were last read for no other reason.
    looked_at: Millis,
    /// What was written last of servers that leave, and when.
    said_drains: Option<(Vec<DrainRow>, Millis)>,
    /// Rows of Weirs that are no more, to be removed with the next beat.
    released: Vec<Released>,
    /// `weir.drains` can be read.
    has_drains: bool,
    /// Not before these moments is anything written or proposed again.
    beat_at: Millis,
    claim_at: Millis,
    /// The account may not, and why.
    denied: Option<String>,
    /// Writes need the epoch.
    is_required: bool,
    is_begun: bool,
    /// When the tables were last read or written, and what has come between since.
    read_at: Option<Millis>,
    fault: Option<String>,
    /// Why this Weir's row could not be written last.
    unwritten: Option<String>,
    /// Since when the lease has been over.
    stopped_since: Option<Millis>,
    /// What is wrong, as it was said.
    trouble: Option<EpochTrouble>,
    /// A row that was passed over, as it was said.
    malformed: Option<String>,
    /// The epochs that were learned until then have no sessions left on the writer that they have deposed. Their numbers may
    /// begin anew.
    cut_until: Millis,
}

impl EpochClient {
    pub(crate) fn start(
        hostgroup: u32,
        scope: EpochScope,
        instance: &InstanceId,
        events: &SyncSender<Event>,
    ) -> io::Result<Self> {
        let waiting = (scope == EpochScope::Writer).then_some(GALERA_WAITS);
        let beat = |hostgroup, written| Event::Beat { hostgroup, written };
        let written = Beats::default();
        let beats = EpochWriter::start("beat", (hostgroup, waiting), written.clone(), events.clone(), beat)?;
        let claim = |hostgroup, written| Event::Claim { hostgroup, written };
        let claims =
            EpochWriter::start("claim", (hostgroup, waiting), written.clone(), events.clone(), claim)?;
        Ok(Self {
            hostgroup,
            scope,
            looked_at: Millis(0),
            said_drains: None,
            released: Vec::new(),
            has_drains: false,
            instance: instance.clone(),
            beats,
            claims,
            written,
            strange: BTreeSet::new(),
            beats_busy: false,
            claims_busy: false,
            is_registered: false,
            said: None,
            beat_at: Millis(0),
            claim_at: Millis(0),
            denied: None,
            is_required: false,
            is_begun: false,
            read_at: None,
            fault: None,
            unwritten: None,
            stopped_since: None,
            trouble: None,
            malformed: None,
            cut_until: Millis(0),
        })
    }

    /// Whether facts alone must do: the account may not use the tables, and nobody wants them to be used.
    pub(crate) fn goes_by_facts(&self) -> bool {
        self.denied.is_some() && !self.is_required
    }

    /// Whether writes need the epoch from now on.
    pub(crate) fn require(&mut self, is_required: bool) {
        if is_required && !self.is_required && self.denied.is_some() {
            (self.beat_at, self.claim_at) = (Millis(0), Millis(0));
        }
        self.is_required = is_required;
    }

    /// Whether a causal read should look at the tables.
    pub(crate) fn wants_reads(&self) -> bool {
        self.is_registered && self.denied.is_none()
    }

    /// Whether it should look at the table of servers that leave, too.
    pub(crate) fn has_drains(&self) -> bool {
        self.has_drains
    }

    /// Servers that Weirs want out which are no more may come in again.
    pub(crate) fn release(&mut self, released: Vec<Released>) {
        self.released = released;
    }

    pub(crate) fn cut(&mut self, learned_at: Millis) {
        self.cut_until = self.cut_until.max(learned_at);
    }

    /// Gives what a read has shown, if it counts.
    pub(crate) fn beat_written(&mut self, written: Written, now: Millis) -> Option<(Endpoint, EpochRead)> {
        self.beats_busy = false;
        self.unwritten = written.result.as_ref().err().map(ToString::to_string);
        if written.result.is_err() {
            (self.said, self.said_drains) = (None, None);
            self.beat_at = Millis(now.0 + BEAT_RETRY_MS);
        }
        let read = self.written(written, now)?;
        self.is_registered = true;
        Some(read)
    }

    /// The same after a proposal.
    pub(crate) fn claim_written(&mut self, written: Written, now: Millis) -> Option<(Endpoint, EpochRead)> {
        self.claims_busy = false;
        if written.result.is_err() {
            self.claim_at = Millis(now.0 + CLAIM_RETRY_MS);
        }
        self.written(written, now)
    }

    fn written(&mut self, written: Written, now: Millis) -> Option<(Endpoint, EpochRead)> {
        match written.result {
            Ok(read) => {
                self.has_read(&read.1, now);
                self.has_drains = read.1.drains.is_some();
                if self.denied.take().is_some() || !self.is_begun {
                    self.is_begun = true;
                    let (hostgroup, instance) = (self.hostgroup, &self.instance);
                    match self.scope {
                        EpochScope::Writer => {
                            info!(hostgroup, %instance, "weir.topology decides for all Weirs which server writes");
                        }
                        EpochScope::Plans => {
                            info!(hostgroup, %instance, "weir.topology announces planned changes to all Weirs");
                        }
                    }
                }
                Some(read)
            }
            Err(fault) => {
                self.refused(&fault, now);
                None
            }
        }
    }

    /// The tables have been read.
    pub(crate) fn has_read(&mut self, read: &EpochRead, now: Millis) {
        (self.read_at, self.fault) = (Some(now), None);
        let own = read.instances.iter().find(|row| row.instance == self.instance);
        if let Some(own) = own.filter(|own| self.is_registered && !self.written.has(own.beat)) {
            self.strange.insert(own.beat);
        }
        if read.malformed.is_some() && self.malformed != read.malformed {
            let (hostgroup, row) = (self.hostgroup, read.malformed.as_deref().unwrap_or_default());
            warn!(hostgroup, "a row of weir.instances that no Weir has written is ignored: {row}; DELETE it");
        }
        self.malformed.clone_from(&read.malformed);
    }

    /// Whether another Weir goes on writing this one's row: each takes the other for itself, and neither would wait for it.
    pub(crate) fn shares_its_name(&self) -> bool {
        self.strange.len() >= STRANGE_BEATS
    }

    /// What is to be known of an epoch that can't be read or written; said once where it changes. `writes_until` is when the
    /// lease is over, if there is one.
    pub(crate) fn look_for_trouble(
        &mut self,
        now: Millis,
        has_others: bool,
        writes_until: Option<Millis>,
    ) -> Option<EpochTrouble> {
        let since = *self.read_at.get_or_insert(now);
        let is_over = writes_until.is_none_or(|until| now >= until);
        self.stopped_since = is_over.then(|| self.stopped_since.unwrap_or(now));
        let trouble = epoch_trouble::trouble(&Facts {
            scope: self.scope,
            goes_by_facts: self.goes_by_facts(),
            has_others,
            denied: self.denied.as_deref(),
            fault: self.fault.as_deref().or(self.unwritten.as_deref()),
            unread_ms: now.since(since),
            stopped_ms: self.stopped_since.map(|since| now.since(since)),
        });
        if trouble != self.trouble {
            let hostgroup = self.hostgroup;
            match &trouble {
                Some(trouble) if trouble.stops_writes || self.scope == EpochScope::Plans => {
                    error!(hostgroup, "{trouble}");
                }
                Some(trouble) if !self.goes_by_facts() => warn!(hostgroup, "{trouble}"),
                None => info!(hostgroup, "weir.topology can be read again"),
                // Said with what ends it, by `refused`.
                Some(_) => {}
            }
            self.trouble = trouble;
        }
        self.trouble.clone()
    }

    /// A fault of a read or of a write.
    pub(crate) fn refused(&mut self, fault: &Fault, now: Millis) {
        self.fault = Some(fault.to_string());
        if matches!(fault, Fault::Missing(_)) {
            self.has_drains = false;
        }
        let cause = match fault {
            Fault::Denied(_) | Fault::Unfit(_) => fault.to_string(),
            _ => return,
        };
        let later = Millis(now.0 + if self.is_required { REQUIRED_RETRY_MS } else { DENIED_RETRY_MS });
        (self.beat_at, self.claim_at) = (later, later);
        let (is_new, hostgroup) = (self.denied.is_none() && !self.is_required, self.hostgroup);
        if is_new && self.scope == EpochScope::Plans {
            info!(
                hostgroup,
                "the monitor's account can't use weir.topology ({cause}): other Weirs in front of these servers do not hold statements during switchovers and are not informed of drains; it needs GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.*"
            );
        } else if is_new {
            warn!(
                hostgroup,
                "the monitor's account can't use weir.topology ({cause}): with several Weirs in front of this cluster, two may write to different servers where their observations differ; it needs GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.*"
            );
        }
        self.denied = Some(cause);
        self.is_registered = false;
    }

    /// Has written what is due after a decision.
    pub(crate) fn act(
        &mut self,
        policy: &EpochPolicy,
        at: &ClusterServers<'_>,
        drains: Vec<DrainRow>,
        now: Millis,
    ) {
        let Some(group) = at.roles.group(self.hostgroup) else { return };
        let nothing = Leadership::default();
        let leadership = group.leadership.as_ref().unwrap_or(&nothing);
        let says = match group.leadership {
            Some(_) => leadership.announcement,
            None if self.scope == EpochScope::Plans => {
                Announcement { lease_ms: policy.lease_ms, ..Announcement::default() }
            }
            None => Announcement { lease_ms: policy.lone_lease_ms, ..Announcement::default() },
        };
        let drains = self.changed_drains(leadership, drains, now);
        let pause_ms = if leadership.peers.is_empty() { LONE_BEAT_MS } else { BEAT_MS };
        let is_new = drains.is_some() || !self.released.is_empty();
        let is_due = is_new || self.said.is_none_or(|(said, at)| said != says || now.since(at) >= pause_ms);
        let own = InstanceRow { instance: self.instance.clone(), beat: 0, says };
        let servers = self.servers(group, at, None);
        if is_due && now >= self.beat_at && !self.beats_busy && !servers.is_empty() {
            let purge = to_purge(leadership, policy, now);
            let request = WriteRequest {
                servers,
                task: EpochTask::Beat { purge },
                own: own.clone(),
                drains: drains.clone(),
                released: self.released.clone(),
            };
            if self.beats.give(request) {
                (self.beats_busy, self.said) = (true, Some((says, now)));
                // Whoever wants it asks again, if it fails.
                self.released.clear();
                if let Some(drains) = drains {
                    self.said_drains = Some((drains, now));
                }
            }
        } else if self.is_to_look(leadership, policy, now) || self.is_to_ask_kept_out(leadership, at, now) {
            let servers = if servers.is_empty() { at.ways(at.kept_out.iter()) } else { servers };
            let request = WriteRequest {
                servers,
                task: EpochTask::Read,
                own: own.clone(),
                drains: None,
                released: Vec::new(),
            };
            if !request.servers.is_empty() && self.beats.give(request) {
                (self.beats_busy, self.looked_at) = (true, now);
            }
        }
        let may_claim = now >= self.claim_at && self.wants_reads() && !self.claims_busy;
        if let Some(proposal) = leadership.proposal.clone().filter(|_| may_claim) {
            let to = match &proposal {
                weir_topology::Proposal::Claim { to, .. } => Some(to),
                _ => None,
            };
            let request = WriteRequest {
                servers: self.servers(group, at, to),
                task: EpochTask::Propose(proposal.clone()),
                own,
                drains: None,
                released: Vec::new(),
            };
            self.claims_busy = !request.servers.is_empty() && self.claims.give(request);
        }
    }

    /// Whether it is time to read at the writer what others have written.
    fn is_to_look(&self, leadership: &Leadership, policy: &EpochPolicy, now: Millis) -> bool {
        let is_planned = leadership.row.as_ref().is_some_and(|row| row.switching.is_some());
        let is_wanted = leadership.has_live_peers(policy, now) || is_planned;
        self.scope == EpochScope::Plans
            && is_wanted
            && self.wants_reads()
            && !self.beats_busy
            && now >= self.beat_at
            && now.since(self.looked_at) >= LOOK_MS
    }

    /// Whether it is time to ask servers that other Weirs keep out, as there is no writer, whether they still do.
    fn is_to_ask_kept_out(&self, leadership: &Leadership, at: &ClusterServers<'_>, now: Millis) -> bool {
        let mut drains = leadership.drains.iter().flatten();
        let is_wanted = drains.any(|row| row.wants_out && row.instance != self.instance);
        self.scope == EpochScope::Plans
            && is_wanted
            && !at.kept_out.is_empty()
            && self.wants_reads()
            && !self.beats_busy
            && now.since(self.looked_at) >= KEPT_OUT_LOOK_MS
    }

    /// The rows about servers that leave, if others are to be written than are there.
    fn changed_drains(
        &self,
        leadership: &Leadership,
        rows: Vec<DrainRow>,
        now: Millis,
    ) -> Option<Vec<DrainRow>> {
        let there = leadership.drains.as_ref()?;
        let own: Vec<&DrainRow> = there.iter().filter(|row| row.instance == self.instance).collect();
        let is_there = own.len() == rows.len() && rows.iter().all(|row| own.contains(&row));
        let is_told = self.said_drains.as_ref().is_some_and(|(said, at)| {
            now.since(*at) < DRAINS_PAUSE_MS || (*said == rows && now.since(*at) < BEAT_MS)
        });
        (!is_there && !is_told).then_some(rows)
    }

    /// Where something can be written: with replication only at the writer, also while users keep it out. Another server
    /// that they keep out and that is not read_only may be a replica, which must get no transaction of its own.
    fn servers(
        &self,
        group: &Group,
        at: &ClusterServers<'_>,
        first: Option<&Endpoint>,
    ) -> Vec<(Endpoint, Options)> {
        match (self.scope, &*group.writers, at.kept_out) {
            (EpochScope::Writer, _, _) => at.ways(ordered(group, at, first).into_iter()),
            (EpochScope::Plans, [writer], _) => at.ways([writer].into_iter()),
            (EpochScope::Plans, [], [server]) if is_agreed_writer(group, server) => {
                at.ways([server].into_iter())
            }
            (EpochScope::Plans, _, _) => Vec::new(),
        }
    }

    /// Tells the data path until when it may write where.
    pub(crate) fn limit_writes(&self, roles: &Roles, members: &[Endpoint], registry: &ServerRegistry) {
        if self.scope == EpochScope::Plans {
            return;
        }
        let Some(group) = roles.group(self.hostgroup) else { return };
        let lease_ns = |leadership: &Leadership| leadership.writes_until().0.saturating_mul(1_000_000);
        for endpoint in members {
            let until_ns = match &group.leadership {
                None => u64::MAX,
                Some(leadership) => {
                    let row = leadership.row.as_ref();
                    let is_named = row.is_some_and(|row| row.writer == *endpoint);
                    let is_cut = leadership.since <= self.cut_until;
                    if is_named || group.writers.contains(endpoint) {
                        lease_ns(leadership)
                    } else if leadership.deposed.as_ref() == Some(endpoint) && !is_cut {
                        0
                    } else {
                        u64::MAX
                    }
                }
            };
            registry.server(endpoint).write_until(until_ns);
        }
    }

    /// Takes this Weir's row away, so that nobody waits for it, and ends. `is_followed`: another process speaks for it.
    pub(crate) fn end(self, at: &ClusterServers<'_>, is_followed: bool) -> Vec<JoinHandle<()>> {
        let may_be_there = self.is_registered || self.beats_busy || self.claims_busy;
        let group = at.roles.group(self.hostgroup).filter(|_| may_be_there);
        let servers = group.map(|group| self.servers(group, at, None));
        let claims = self.claims.end();
        // What is being written at this moment may be the first that is written at all.
        let Some(servers) = servers else { return vec![self.beats.end(), claims] };
        let own = InstanceRow { instance: self.instance.clone(), beat: 0, says: Announcement::default() };
        let task = EpochTask::Leave { others: Some(claims), is_followed };
        self.beats.give(WriteRequest { servers, task, own, drains: None, released: Vec::new() });
        vec![self.beats.end()]
    }
}

/// Whether the Weirs have agreed that a server is the writer.
fn is_agreed_writer(group: &Group, server: &Endpoint) -> bool {
    let row = group.leadership.as_ref().and_then(|leadership| leadership.row.as_ref());
    row.is_some_and(|row| row.writer == *server)
}

/// The rows of Weirs that have ended without taking theirs away, with the beats that they have.
fn to_purge(leadership: &Leadership, policy: &EpochPolicy, now: Millis) -> Vec<(InstanceId, u64)> {
    let silent = leadership.peers.iter().filter(|peer| !peer.is_live(policy, now)).count();
    let is_over = |peer: &&Peer| {
        let is_crowded = silent > SILENT_KEPT && now >= peer.may_write_until();
        is_crowded || now.since(peer.beat_since) >= SILENT_MS
    };
    let over = leadership.peers.iter().filter(is_over).take(PURGED_MAX);
    over.map(|peer| (peer.instance.clone(), peer.beat)).collect()
}

/// The servers that work, `first` before the others and the writer last: it has enough to do, and is the one that may
/// hang. Those that users keep out only where there are no others.
fn ordered<'g>(group: &'g Group, at: &ClusterServers<'g>, first: Option<&'g Endpoint>) -> Vec<&'g Endpoint> {
    let others = group.successors.iter().chain(&group.writers);
    let readers = at.roles.places.iter().filter(|place| place.role == Role::Reader);
    let readers = readers.map(|place| &place.endpoint);
    let mut ordered: Vec<&Endpoint> = Vec::new();
    for endpoint in first.into_iter().chain(others).chain(readers).chain(at.kept_out) {
        if !ordered.contains(&endpoint) {
            ordered.push(endpoint);
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use weir_topology::EpochRow;

    use super::*;

    #[test]
    fn that_a_deposed_writer_was_left_says_nothing_of_an_epoch_of_other_tables() {
        let (events, _inbox) = sync_channel(16);
        let mut client = EpochClient::start(10, EpochScope::Writer, &"a".into(), &events).unwrap();
        let (old, new) = (Endpoint::new("a", 3306), Endpoint::new("b", 3306));
        let registry = ServerRegistry::default();
        let may_write = |client: &EpochClient, epoch, since| {
            let row = EpochRow {
                epoch,
                version: epoch,
                writer: new.clone(),
                writer_address: None,
                claimed_by: "b".into(),
                is_open: true,
                switching: None,
            };
            let (row, deposed) = (Some(row), Some(old.clone()));
            let leadership = Some(Leadership { row, since, deposed, ..Leadership::default() });
            let group = Group { writer_hostgroup: 10, leadership, ..Group::default() };
            let roles = Roles { groups: vec![group], ..Roles::default() };
            client.limit_writes(&roles, std::slice::from_ref(&old), &registry);
            registry.server(&old).may_write_at(1)
        };
        assert!(!may_write(&client, 5, Millis(100)));
        client.cut(Millis(100));
        assert!(may_write(&client, 5, Millis(100)));
        // A row that was removed, or a component that was given up: the next tables begin with the first epoch.
        assert!(!may_write(&client, 2, Millis(200)));
        assert!(!may_write(&client, 5, Millis(300)));
    }
}
