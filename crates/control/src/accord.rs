//! One cluster's part in the agreement of several Weirs: what the owner of the roles has written, and what follows for the
//! data path.

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::SyncSender;
use std::thread::JoinHandle;

use tracing::{info, warn};
use weir_client::Options;
use weir_topology::{
    Announcement, Endpoint, EpochPolicy, EpochRead, Group, InstanceId, InstanceRow, Millis, Peer, Role,
    Roles, ServerRegistry, Tenure,
};

use crate::owner::Event;
use crate::scribe::{Deed, Scribe, Task, Written};
use crate::tables::Fault;

/// How often a Weir says that it is there, while there are others.
const BEAT_MS: u64 = 1_000;
/// The same while it is alone: often enough that its reads confirm the epoch.
const LONE_BEAT_MS: u64 = 3_000;
/// How long after a failure the own row is written again.
const BEAT_RETRY_MS: u64 = 200;
/// How long after a failure a change of the epoch row is proposed again. Statements are held meanwhile: what has waited
/// in vain for a new view must not miss it when it comes.
const CLAIM_RETRY_MS: u64 = 20;
/// The same for both if the account may not.
const DENIED_RETRY_MS: u64 = 30_000;
/// Rows of Weirs that have been silent for so long are removed; their leases have long ended.
const SILENT_MS: u64 = 3_600_000;

/// See the module's documentation.
pub(crate) struct Accord {
    hostgroup: u32,
    instance: InstanceId,
    beats: Scribe,
    claims: Scribe,
    beats_busy: bool,
    claims_busy: bool,
    /// This run of Weir has written its row: what is read from then on counts.
    is_registered: bool,
    /// What was written last, and when.
    said: Option<(Announcement, Millis)>,
    /// Not before these moments is anything written or proposed again.
    beat_at: Millis,
    claim_at: Millis,
    /// The account may not, and why.
    denied: Option<String>,
    is_begun: bool,
    /// The epoch up to which the sessions on a deposed writer have been closed.
    cut_until: u64,
}

impl Accord {
    pub(crate) fn start(
        hostgroup: u32,
        instance: &InstanceId,
        events: &SyncSender<Event>,
    ) -> io::Result<Self> {
        let beats = Scribe::start("beat", hostgroup, events.clone(), |hostgroup, written| Event::Beat {
            hostgroup,
            written,
        })?;
        let claims = Scribe::start("claim", hostgroup, events.clone(), |hostgroup, written| Event::Claim {
            hostgroup,
            written,
        })?;
        Ok(Self {
            hostgroup,
            instance: instance.clone(),
            beats,
            claims,
            beats_busy: false,
            claims_busy: false,
            is_registered: false,
            said: None,
            beat_at: Millis(0),
            claim_at: Millis(0),
            denied: None,
            is_begun: false,
            cut_until: 0,
        })
    }

    /// Whether facts alone must do.
    pub(crate) fn is_denied(&self) -> bool {
        self.denied.is_some()
    }

    /// Whether a causal read should look at the tables.
    pub(crate) fn wants_reads(&self) -> bool {
        self.is_registered && !self.is_denied()
    }

    pub(crate) fn cut(&mut self, epoch: u64) {
        self.cut_until = self.cut_until.max(epoch);
    }

    /// Gives what a read has shown, if it counts.
    pub(crate) fn beat_written(&mut self, written: Written, now: Millis) -> Option<(Endpoint, EpochRead)> {
        self.beats_busy = false;
        if written.result.is_err() {
            self.said = None;
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
                if self.denied.take().is_some() || !self.is_begun {
                    self.is_begun = true;
                    let (hostgroup, instance) = (self.hostgroup, &self.instance);
                    info!(hostgroup, %instance, "weir.topology tells which server writes, to all Weirs alike");
                }
                Some(read)
            }
            Err(fault) => {
                self.refused(&fault, now);
                None
            }
        }
    }

    /// A fault of a read or of a write.
    pub(crate) fn refused(&mut self, fault: &Fault, now: Millis) {
        let cause = match fault {
            Fault::Denied(_) | Fault::Unfit(_) => fault.to_string(),
            _ => return,
        };
        let later = Millis(now.0 + DENIED_RETRY_MS);
        (self.beat_at, self.claim_at) = (later, later);
        if self.denied.is_none() {
            let hostgroup = self.hostgroup;
            warn!(
                hostgroup,
                "the monitor's account can't use weir.topology ({cause}): with several Weirs in front of this cluster, two \
                 may write to different servers where what they see does not settle who writes; GRANT SELECT, INSERT, \
                 UPDATE, DELETE, CREATE ON weir.* ends that"
            );
        }
        self.denied = Some(cause);
        self.is_registered = false;
    }

    /// Has written what is due after a decision.
    pub(crate) fn act(
        &mut self,
        policy: &EpochPolicy,
        roles: &Roles,
        options: &BTreeMap<Endpoint, Options>,
        now: Millis,
    ) {
        let Some(group) = roles.group(self.hostgroup) else { return };
        let nothing = Tenure::default();
        let tenure = group.tenure.as_ref().unwrap_or(&nothing);
        let says = match group.tenure {
            Some(_) => tenure.announcement,
            None => Announcement { lease_ms: policy.lone_lease_ms, ..Announcement::default() },
        };
        let pause_ms = if tenure.peers.is_empty() { LONE_BEAT_MS } else { BEAT_MS };
        let is_due = self.said.is_none_or(|(said, at)| said != says || now.since(at) >= pause_ms);
        let own = InstanceRow { instance: self.instance.clone(), beat: 0, says };
        if is_due && now >= self.beat_at && !self.beats_busy {
            let is_silent = |peer: &&Peer| now.since(peer.beat_since) >= SILENT_MS;
            let silent = tenure.peers.iter().filter(is_silent);
            let purge = silent.map(|peer| (peer.instance.clone(), peer.beat)).collect();
            let task = Task {
                servers: servers(group, roles, options, None),
                deed: Deed::Beat { purge },
                own: own.clone(),
            };
            if !task.servers.is_empty() && self.beats.give(task) {
                (self.beats_busy, self.said) = (true, Some((says, now)));
            }
        }
        let may_claim = now >= self.claim_at && self.wants_reads() && !self.claims_busy;
        if let Some(proposal) = tenure.proposal.clone().filter(|_| may_claim) {
            let to = match &proposal {
                weir_topology::Proposal::Claim { to, .. } => Some(to),
                _ => None,
            };
            let task = Task {
                servers: servers(group, roles, options, to),
                deed: Deed::Propose(proposal.clone()),
                own,
            };
            self.claims_busy = !task.servers.is_empty() && self.claims.give(task);
        }
    }

    /// Tells the data path until when it may write where.
    pub(crate) fn limit_writes(&self, roles: &Roles, members: &[Endpoint], registry: &ServerRegistry) {
        let Some(group) = roles.group(self.hostgroup) else { return };
        let lease_ns = |tenure: &Tenure| {
            tenure.writes_until().map_or(u64::MAX, |until| until.0.saturating_mul(1_000_000))
        };
        for endpoint in members {
            let until_ns = match &group.tenure {
                None => u64::MAX,
                Some(tenure) => {
                    let row = tenure.row.as_ref();
                    let is_named = row.is_some_and(|row| row.writer == *endpoint);
                    let is_cut = row.is_some_and(|row| row.epoch <= self.cut_until);
                    if is_named || group.writers.contains(endpoint) {
                        lease_ns(tenure)
                    } else if tenure.deposed.as_ref() == Some(endpoint) && !is_cut {
                        0
                    } else {
                        u64::MAX
                    }
                }
            };
            registry.server(endpoint).write_until(until_ns);
        }
    }

    /// Takes this Weir's row away, so that nobody waits for it, and ends.
    pub(crate) fn end(self, roles: &Roles, options: &BTreeMap<Endpoint, Options>) -> Vec<JoinHandle<()>> {
        if self.is_registered
            && let Some(group) = roles.group(self.hostgroup)
        {
            let own = InstanceRow { instance: self.instance.clone(), beat: 0, says: Announcement::default() };
            self.beats.give(Task { servers: servers(group, roles, options, None), deed: Deed::Leave, own });
        }
        vec![self.beats.end(), self.claims.end()]
    }
}

/// The servers that work, `first` before the others and the writer last: it has enough to do, and is the one that may
/// hang.
fn servers(
    group: &Group,
    roles: &Roles,
    options: &BTreeMap<Endpoint, Options>,
    first: Option<&Endpoint>,
) -> Vec<(Endpoint, Options)> {
    let others = group.successors.iter().chain(&group.writers);
    let readers = roles.places.iter().filter(|place| place.role == Role::Reader).map(|place| &place.endpoint);
    let mut ordered: Vec<&Endpoint> = Vec::new();
    for endpoint in first.into_iter().chain(others).chain(readers) {
        if !ordered.contains(&endpoint) {
            ordered.push(endpoint);
        }
    }
    let known = |endpoint: &Endpoint| Some((endpoint.clone(), options.get(endpoint)?.clone()));
    ordered.into_iter().filter_map(known).collect()
}
