//! Applies the rules by which several Weirs agree on a writer.
//!
//! ```text
//! the row's writer can write ───────────────────────────► it writes, once the epoch is open
//! it can't: what do the facts say?
//!   a newer view has it no more ── alone ───────────────► the next one writes, the row follows
//!                               └─ others are there ────► claim, then by the row
//!   it left in order ───────────────────────────────────► claim, then by the row
//!   lost, and the view still has it ── a peer sees it ──► hold, and say so
//!                                   └─ nobody does ─────► claim; closed until every lease by the old epoch is over
//! ```

use crate::epoch::{
    Announcement, BEAT_AGE_MAX_MS, DrainRow, EpochPolicy, EpochRead, EpochRow, Peer, Proposal, Switching,
    drift_ms,
};
use crate::{Endpoint, InstanceId, Millis, Reason, Switch, SwitchStep, View};

/// Without a read as fresh as this nothing is known of other Weirs, and no reachable writer is taken for lost.
const READ_AGE_MAX_MS: u64 = 1_000;
/// How long the role of a writer that is to leave waits until the other Weirs know that.
const DRAIN_TOLD_MS: u64 = 3_000;
/// A writer that another Weir has just chosen is not replaced for a wish within this time: users who want opposite
/// things of two Weirs must not make the role wander to and fro.
const CLAIM_PAUSE_MS: u64 = 5_000;

/// The state of a cluster's epoch as this Weir knows it; also the memory for the next decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Leadership {
    /// The newest row that was read.
    pub row: Option<EpochRow>,
    /// When the row's epoch was first seen.
    pub since: Millis,
    /// Reads that were sent before this tell nothing: they are of a row that was removed, or of the tables of a cluster whose
    /// place this one has taken. Servers keep such reads for as long as nobody reads there again.
    pub not_before: Millis,
    /// When the row that is now the newest was first seen.
    pub learned_at: Millis,
    /// The last read that confirms the epoch, and the lease that it gives.
    pub confirmed: Option<Confirmed>,
    /// When the read was sent that tells of the other Weirs.
    pub read_at: Option<Millis>,
    /// The other Weirs.
    pub peers: Vec<Peer>,
    /// What all Weirs, this one too, have said of servers that leave; none where that can't be read.
    pub drains: Option<Vec<DrainRow>>,
    /// The row's writer is to leave, by somebody's will, since then.
    pub leaving_since: Option<Millis>,
    /// What should be written.
    pub proposal: Option<Proposal>,
    /// What this Weir should say of itself.
    pub announcement: Announcement,
    /// The row announces the planned change that was ordered here last, and not an earlier one.
    pub is_announced: bool,
    /// Other Weirs that may still write while this one wants to move the role.
    pub awaited: Vec<InstanceId>,
    /// Other Weirs that have been heard of lately.
    pub live: Vec<InstanceId>,
    /// Other Weirs that have not been heard of lately and may still write.
    pub silent: Vec<InstanceId>,
    /// The writer that was published before the row names it, since nobody else is there.
    pub ahead: Option<Endpoint>,
    /// The writer of the epoch before, if it was known here.
    pub former: Option<Endpoint>,
    /// The view in which the epoch's former writer was last seen writing.
    pub former_view: Option<View>,
    /// A former writer that did not leave in order and that the cluster may still have: no session may go on with a
    /// transaction there.
    pub deposed: Option<Endpoint>,
}

/// A moment at which the epoch was in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Just before the read was sent.
    pub at: Millis,
    /// For so long from then on writes may be sent.
    pub lease_ms: u64,
}

/// Why the facts choose another writer than the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeReason {
    /// The cluster goes on without it.
    NewView,
    /// It can't be reached for long, and the cluster still has it.
    Unconfirmed,
    /// It is not to write any more, or is not known.
    InOrder,
}

/// The facts about a cluster's writer at one moment.
pub(crate) struct Facts<'a> {
    /// The writer that they choose.
    pub(crate) choice: Option<&'a Endpoint>,
    /// The chosen node's address among the members of the view.
    pub(crate) address: Option<&'a str>,
    pub(crate) reason: ChangeReason,
    /// The chosen node is in a newer view than the epoch's former writer, which has it no more.
    pub(crate) is_former_gone: bool,
    /// The row's writer is a server of this configuration.
    pub(crate) knows_writer: bool,
    /// The row's writer works, as seen from here.
    pub(crate) sees_writer: bool,
    /// Somebody wants the row's writer to leave, and it works.
    pub(crate) is_leaving: bool,
    /// A planned change whose target can write, and the target's address.
    pub(crate) switch: Option<(&'a Switch, Option<&'a str>)>,
    /// A server that is to take the role from the row's writer, which goes on until it has; and its address.
    pub(crate) returns: Option<(&'a Endpoint, Option<&'a str>)>,
    pub(crate) now: Millis,
}

/// Whether the choice may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Publish,
    Wait(Reason),
}

impl Leadership {
    /// How many of the other Weirs that have been heard of lately come before this one: the one that claimed the epoch is
    /// the first, the others follow by name.
    pub fn rank(&self, policy: &EpochPolicy, now: Millis) -> u32 {
        let claimed_by = self.row.as_ref().map(|row| &row.claimed_by);
        let place = |instance: &InstanceId| (claimed_by != Some(instance), instance.clone());
        let before =
            |peer: &&Peer| place(&peer.instance) < place(&policy.instance) && peer.is_live(policy, now);
        u32::try_from(self.peers.iter().filter(before).count()).unwrap_or(u32::MAX)
    }

    /// Until when writes may be sent: one lease from the last read that confirms the epoch, or that there is none yet.
    /// Without such a read none may.
    pub fn writes_until(&self) -> Millis {
        let until = |confirmed: Confirmed| Millis(confirmed.at.0.saturating_add(confirmed.lease_ms));
        self.confirmed.map(until).unwrap_or_default()
    }

    /// A switchover that another Weir has announced and for which this one is to hold.
    pub fn foreign_switch(&self, policy: &EpochPolicy) -> Option<(&Switching, u64)> {
        let row = self.row.as_ref()?;
        let switching = row.switching.as_ref()?;
        (switching.by != policy.instance).then_some((switching, row.version))
    }

    /// What is known where the tables are others from `now` on: nothing, and nothing that was read in those before.
    pub(crate) fn anew(now: Millis) -> Self {
        Self { not_before: now, ..Self::default() }
    }

    /// What is known after further reads.
    pub(crate) fn after<'a>(
        before: Option<&Self>,
        policy: &EpochPolicy,
        reads: impl Iterator<Item = &'a EpochRead> + Clone,
        former_view: Option<&View>,
        now: Millis,
    ) -> Self {
        let mut leadership = before.cloned().unwrap_or_default();
        (leadership.proposal, leadership.awaited, leadership.is_announced) = (None, Vec::new(), false);
        leadership.forget_removed_row(reads.clone(), now);
        let not_before = leadership.not_before;
        let reads = reads.filter(|read| read.asked_at >= not_before);
        leadership.learn_row(reads.clone(), former_view, now);
        if let Some(newest) = reads.clone().max_by_key(|read| read.asked_at) {
            leadership.learn_peers(newest, policy, now);
        }
        let live = leadership.peers.iter().filter(|peer| peer.is_live(policy, now));
        leadership.live = live.map(|peer| peer.instance.clone()).collect();
        let is_silent = |peer: &&Peer| !peer.is_live(policy, now) && now < peer.may_write_until();
        leadership.silent =
            leadership.peers.iter().filter(is_silent).map(|peer| peer.instance.clone()).collect();
        let lease_ms = if leadership.peers.is_empty() { policy.lone_lease_ms } else { policy.lease_ms };
        leadership.announcement.lease_ms = lease_ms;
        // Also shortens the lease at hand when another Weir appears.
        if let Some(confirmed) = &mut leadership.confirmed {
            confirmed.lease_ms = confirmed.lease_ms.min(lease_ms);
        }
        for read in reads {
            leadership.confirm(read, policy, lease_ms);
        }
        leadership
    }

    /// Somebody has removed the row: what was agreed on is over, and reads of before tell nothing.
    fn forget_removed_row<'a>(&mut self, reads: impl Iterator<Item = &'a EpochRead>, now: Millis) {
        if self.row.is_some()
            && let Some(last) = reads.max_by_key(|read| read.asked_at)
            && last.row.is_none()
            && last.asked_at > self.learned_at
        {
            (self.row, self.confirmed, self.ahead, self.not_before) = (None, None, None, now);
        }
    }

    fn learn_row<'a>(
        &mut self,
        reads: impl Iterator<Item = &'a EpochRead> + Clone,
        former_view: Option<&View>,
        now: Millis,
    ) {
        let number = |row: &EpochRow| (row.epoch, row.version);
        let newest =
            reads.filter_map(|read| Some((number(read.row.as_ref()?), read))).max_by_key(|(n, _)| *n);
        let Some((newest, read)) = newest else { return };
        let known = self.row.as_ref().map(number);
        // A read of later that shows less: the table is another one, as after a restored backup.
        let is_newer =
            known.is_none_or(|known| newest > known || newest < known && read.asked_at > self.learned_at);
        if !is_newer {
            return;
        }
        if known.is_none_or(|known| known.0 != newest.0) {
            (self.since, self.confirmed) = (now, None);
            self.former_view = former_view.cloned();
            self.former = self.row.as_ref().map(|row| row.writer.clone());
        }
        self.learned_at = now;
        self.row = read.row.clone();
    }

    fn learn_peers(&mut self, newest: &EpochRead, policy: &EpochPolicy, now: Millis) {
        if self.read_at.is_some_and(|known| newest.asked_at < known) {
            return;
        }
        self.read_at = Some(newest.asked_at);
        let others = newest.instances.iter().filter(|row| row.instance != policy.instance);
        let peers = others.map(|row| {
            let known = self.peers.iter().find(|peer| peer.instance == row.instance && peer.beat == row.beat);
            let beat_since = known.map_or(now, |peer| peer.beat_since);
            Peer { instance: row.instance.clone(), beat: row.beat, beat_since, says: row.says }
        });
        self.peers = peers.collect();
        self.drains.clone_from(&newest.drains);
    }

    /// Another Weir that has been heard of lately and does not know yet that a server is to leave.
    fn unaware_of(&self, server: &Endpoint, policy: &EpochPolicy, now: Millis) -> Option<&InstanceId> {
        let drains = self.drains.as_ref()?;
        let knows =
            |peer: &Peer| drains.iter().any(|row| row.server == *server && row.instance == peer.instance);
        self.peers.iter().find(|peer| peer.is_live(policy, now) && !knows(peer)).map(|peer| &peer.instance)
    }

    /// A read confirms the epoch, or that there is none yet, from the moment at which it was sent, if the others could see this Weir in it.
    fn confirm(&mut self, read: &EpochRead, policy: &EpochPolicy, lease_ms: u64) {
        let epoch = |row: &Option<EpochRow>| row.as_ref().map(|row| row.epoch);
        let own = read.instances.iter().find(|row| row.instance == policy.instance);
        let Some(own) = own.filter(|_| epoch(&read.row) == epoch(&self.row)) else { return };
        // Who comes later and claims the first epoch is to wait for a short lease only.
        let lease_ms = if self.row.is_some() { lease_ms } else { lease_ms.min(policy.lease_ms) };
        let is_fresh = read.asked_at.0.saturating_sub(own.beat) <= BEAT_AGE_MAX_MS;
        if is_fresh && self.confirmed.is_none_or(|known| known.at <= read.asked_at) {
            self.confirmed = Some(Confirmed { at: read.asked_at, lease_ms: lease_ms.min(own.says.lease_ms) });
        }
    }

    /// Whether what the facts choose is to write now; notes what is to be written and said.
    pub(crate) fn rule(&mut self, facts: &Facts<'_>, policy: &EpochPolicy) -> Approval {
        if self.read_at.is_none() {
            return Approval::Wait(Reason::AwaitsEpoch);
        }
        self.announcement.epoch = self.row.as_ref().map_or(0, |row| row.epoch);
        self.announcement.sees_writer = facts.sees_writer;
        self.leaving_since = facts.is_leaving.then(|| self.leaving_since.unwrap_or(facts.now));
        let Some(choice) = facts.choice else { return Approval::Publish };
        let Some(row) = self.row.clone() else {
            return self.claim_first(facts, choice, ChangeReason::NewView);
        };
        if row.writer != *choice {
            if self.ahead.as_ref() == Some(choice) {
                return self.claim_first(facts, choice, ChangeReason::NewView);
            }
            return self.replace(facts, choice, &row, policy);
        }
        self.ahead = None;
        self.plan_switch(facts.switch, &row, policy, facts.now);
        self.rule_return(facts, &row, policy);
        if row.is_open {
            return Approval::Publish;
        }
        let is_over = |peer: &Peer| peer.says.epoch >= row.epoch || facts.now >= self.old_lease_ends(peer);
        if !facts.is_former_gone && !self.peers.iter().all(is_over) {
            return Approval::Wait(Reason::AwaitsLeases { epoch: row.epoch });
        }
        if self.proposal.is_none() {
            self.proposal = Some(Proposal::Open { from: (row.epoch, row.version) });
        }
        Approval::Publish
    }

    /// When a peer that goes by an earlier epoch has sent its last write: a read that was sent after the present epoch was
    /// seen here would have shown it.
    fn old_lease_ends(&self, peer: &Peer) -> Millis {
        let lease_ms = peer.says.lease_ms;
        let by_epoch = self.since.0.saturating_add(lease_ms).saturating_add(drift_ms(lease_ms));
        Millis(by_epoch).min(peer.may_write_until())
    }

    /// Nobody else can be writing.
    fn is_alone(&self, now: Millis) -> bool {
        self.peers.iter().all(|peer| now >= peer.may_write_until())
    }

    /// Whether other Weirs have been heard of lately.
    pub fn has_live_peers(&self, policy: &EpochPolicy, now: Millis) -> bool {
        self.peers.iter().any(|peer| peer.is_live(policy, now))
    }

    /// A live peer that reaches the writer of the epoch.
    pub(crate) fn peer_with_writer(&self, policy: &EpochPolicy, now: Millis) -> Option<&InstanceId> {
        let epoch = self.row.as_ref()?.epoch;
        let sees =
            |peer: &&Peer| peer.is_live(policy, now) && peer.says.epoch == epoch && peer.says.sees_writer;
        self.peers.iter().find(sees).map(|peer| &peer.instance)
    }

    /// A Weir that has not been heard of lately, knew of no other one, and so may write for long.
    fn silent_with_long_lease(&self, policy: &EpochPolicy, now: Millis) -> Option<&InstanceId> {
        let may_write = |peer: &&Peer| !peer.is_live(policy, now) && now < peer.may_write_until();
        let mut silent = self.peers.iter().filter(may_write);
        silent.find(|peer| peer.says.lease_ms > policy.lease_ms).map(|peer| &peer.instance)
    }

    fn claim_first(&mut self, facts: &Facts<'_>, to: &Endpoint, reason: ChangeReason) -> Approval {
        let from = self.row.as_ref().map_or((0, 0), |row| (row.epoch, row.version));
        let address = facts.address.map(str::to_owned);
        // Who goes by no epoch yet may write where it wants.
        let is_open = reason != ChangeReason::Unconfirmed && (self.row.is_some() || self.is_alone(facts.now));
        self.proposal = Some(Proposal::Claim { from, to: to.clone(), address, is_open });
        if self.ahead.as_ref() == Some(to) {
            return Approval::Publish;
        }
        if reason == ChangeReason::NewView && self.is_alone(facts.now) {
            self.ahead = Some(to.clone());
            return Approval::Publish;
        }
        Approval::Wait(Reason::AwaitsClaim)
    }

    /// The row's writer can't write: another one is claimed for, or there is a reason not to.
    fn replace(
        &mut self,
        facts: &Facts<'_>,
        choice: &Endpoint,
        row: &EpochRow,
        policy: &EpochPolicy,
    ) -> Approval {
        let peer = self.peer_with_writer(policy, facts.now).cloned();
        let lost = row.writer.clone();
        match (facts.reason, peer) {
            (ChangeReason::Unconfirmed, Some(peer)) => {
                return Approval::Wait(Reason::AwaitsPeer { lost, peer });
            }
            (ChangeReason::Unconfirmed, None) => {
                let is_fresh = self.read_at.is_some_and(|at| facts.now.since(at) < READ_AGE_MAX_MS);
                if !is_fresh {
                    return Approval::Wait(Reason::AwaitsEpoch);
                }
                // A claim would have to wait for it all the same, and the lost one could not come back meanwhile.
                if let Some(peer) = self.silent_with_long_lease(policy, facts.now).cloned() {
                    return Approval::Wait(Reason::AwaitsSilentPeer { lost, peer });
                }
            }
            (ChangeReason::InOrder, Some(peer)) if !facts.knows_writer => {
                return Approval::Wait(Reason::UnknownWriter { writer: lost, peer });
            }
            (ChangeReason::InOrder, Some(_)) if self.is_anothers(row, policy, facts.now) => {
                return Approval::Wait(Reason::AwaitsClaim);
            }
            _ => {}
        }
        // Who does not know would close its transactions there, as those on a writer that was taken for lost.
        if self.leaving_since.is_some_and(|since| facts.now.since(since) < DRAIN_TOLD_MS)
            && let Some(peer) = self.unaware_of(&row.writer, policy, facts.now).cloned()
        {
            return Approval::Wait(Reason::AwaitsDrain { server: row.writer.clone(), peer });
        }
        self.claim_first(facts, choice, facts.reason)
    }

    /// Whether another Weir has chosen the writer only just now.
    fn is_anothers(&self, row: &EpochRow, policy: &EpochPolicy, now: Millis) -> bool {
        row.claimed_by != policy.instance && now.since(self.since) < CLAIM_PAUSE_MS
    }

    /// A heavier server takes the role, unless a switchover is under way.
    fn rule_return(&mut self, facts: &Facts<'_>, row: &EpochRow, policy: &EpochPolicy) {
        let is_free = row.is_open && row.switching.is_none() && facts.switch.is_none();
        if let Some((to, address)) = facts.returns
            && is_free
            && self.proposal.is_none()
            && !self.is_anothers(row, policy, facts.now)
        {
            let (from, address) = ((row.epoch, row.version), address.map(str::to_owned));
            self.proposal = Some(Proposal::Claim { from, to: to.clone(), address, is_open: true });
        }
    }

    /// Where a server's own state tells who writes: the row follows it, and announces planned changes.
    pub(crate) fn follow(
        &mut self,
        writer: &Endpoint,
        switch: Option<&Switch>,
        policy: &EpochPolicy,
        now: Millis,
    ) {
        if self.read_at.is_none() {
            return;
        }
        self.announcement.epoch = self.row.as_ref().map_or(0, |row| row.epoch);
        self.announcement.sees_writer = true;
        match self.row.clone() {
            Some(row) if row.writer == *writer => {
                self.plan_switch(switch.map(|switch| (switch, None)), &row, policy, now);
            }
            row => {
                if switch.is_some() {
                    self.await_all(now);
                }
                // It has been made, and the row that says so may be one that this Weir can't read.
                if let Some(known) = &mut self.row {
                    known.switching.take_if(|switching| switching.to == *writer);
                }
                self.forget_silent_switch(policy, now);
                let from = row.map_or((0, 0), |row| (row.epoch, row.version));
                let to = writer.clone();
                self.proposal = Some(Proposal::Claim { from, to, address: None, is_open: true });
            }
        }
    }

    /// The tables can't be read: what another Weir has announced counts as long as that one has been heard of lately. It
    /// waits in vain for this one from then on.
    pub(crate) fn forget_silent_switch(&mut self, policy: &EpochPolicy, now: Millis) {
        let peers = &self.peers;
        let is_silent = |switching: &mut Switching| {
            let is_by = |peer: &Peer| peer.instance == switching.by && peer.is_live(policy, now);
            switching.by != policy.instance && !peers.iter().any(is_by)
        };
        if let Some(row) = &mut self.row {
            row.switching.take_if(is_silent);
        }
    }

    /// Notes for which announced switchover this Weir's sessions write no more.
    pub(crate) fn note_cleared(&mut self, cleared: Option<u64>, policy: &EpochPolicy) {
        let is_asked = self.foreign_switch(policy).is_some_and(|(_, asked)| Some(asked) == cleared);
        self.announcement.clear_of = cleared.filter(|_| is_asked).unwrap_or(0);
    }

    /// A planned change for which nobody can be asked yet, as the row does not name the writer: every other Weir may still
    /// write.
    pub(crate) fn await_all(&mut self, now: Millis) {
        self.awaited = self.may_write(None, now);
    }

    /// Other Weirs that may still write: those that have not said that they hold for the row of this version.
    fn may_write(&self, version: Option<u64>, now: Millis) -> Vec<InstanceId> {
        let is_clear = |peer: &Peer| version == Some(peer.says.clear_of);
        let may_write = |peer: &&Peer| !is_clear(peer) && now < peer.may_write_until();
        self.peers.iter().filter(may_write).map(|peer| peer.instance.clone()).collect()
    }

    /// The steps of a planned change, and the end of those that nobody goes on with.
    fn plan_switch(
        &mut self,
        switch: Option<(&Switch, Option<&str>)>,
        row: &EpochRow,
        policy: &EpochPolicy,
        now: Millis,
    ) {
        let from = (row.epoch, row.version);
        let switch = switch.filter(|(switch, _)| switch.from == row.writer && switch.to != row.writer);
        let is_mine = row.switching.as_ref().map(|switching| switching.by == policy.instance);
        let announces = |switch: &Switch| {
            row.version > switch.ordered_at
                && row.switching.as_ref().is_some_and(|switching| switching.to == switch.to)
        };
        self.is_announced = is_mine == Some(true) && switch.is_some_and(|(switch, _)| announces(switch));
        self.proposal = match (is_mine, switch) {
            (None | Some(true), Some((switch, _)))
                if !self.is_announced && (switch.step == SwitchStep::Ask || is_mine.is_some()) =>
            {
                self.awaited = self.may_write(Some(row.version), now);
                // Also where nobody has to answer: one that starts meanwhile holds, too.
                Some(Proposal::Ask { from, to: switch.to.clone() })
            }
            (None | Some(true), Some((switch, address))) => {
                self.awaited = self.may_write(Some(row.version), now);
                // One that starts at this moment would not know that it is to hold.
                let moves = self.is_announced && switch.step == SwitchStep::Move && self.awaited.is_empty();
                let (to, address) = (switch.to.clone(), address.map(str::to_owned));
                moves.then_some(Proposal::Claim { from, to, address, is_open: true })
            }
            (Some(true), None) => Some(Proposal::Unask { from }),
            (Some(false), _) => {
                let by = row.switching.as_ref().map(|switching| &switching.by);
                let is_alive = |peer: &Peer| Some(&peer.instance) == by && peer.is_live(policy, now);
                // One that has been suspended itself knows of others what was so before.
                let is_fresh = self.read_at.is_some_and(|at| now.since(at) < READ_AGE_MAX_MS);
                let is_abandoned = is_fresh && !self.peers.iter().any(is_alive);
                is_abandoned.then_some(Proposal::Unask { from })
            }
            (None, None) => None,
        };
    }
}
