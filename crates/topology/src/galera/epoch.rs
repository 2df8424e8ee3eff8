//! Applies the epoch on which several Weirs agree to the decision about a cluster.

use super::{Candidate, Cluster};
use crate::health::HealthCheck;
use crate::leadership::{Approval, ChangeReason, Facts, Leadership};
use crate::member::healthy;
use crate::{Endpoint, GaleraState, Group, Observation, Reason, SwitchStep, Wish};

impl Cluster<'_> {
    /// Takes in what was read of the epoch. From then on the row's writer counts as the last writer, whoever it was here.
    pub(super) fn learn_epoch(&mut self, health: &HealthCheck<'_>) {
        let Some(policy) = self.epoch else { return };
        // What a person has taken out may be a component that was given up: it counts for nothing here either.
        let is_member = |endpoint: &Endpoint| {
            self.members.iter().any(|member| member.endpoint == endpoint && !member.is_taken_out())
        };
        // A node that was started as a cluster of its own has other tables.
        let trusted = self.before.view.as_ref().map(|view| &view.history);
        let is_ours = |endpoint: &Endpoint| {
            let state = health.galera_state(endpoint).filter(|state| state.has_history());
            state.zip(trusted).is_none_or(|(state, trusted)| state.cluster_state_uuid == *trusted)
        };
        // So has a component that goes on apart, and those go by the same UUID.
        let is_apart = |endpoint: &Endpoint| self.split.apart.contains(endpoint);
        // Also before that is certain.
        let is_suspected = |endpoint: &Endpoint| {
            let state = health.galera_state(endpoint).filter(|state| state.is_primary());
            let is_one = |nodes: &Vec<&Endpoint>| nodes.contains(&endpoint);
            state.is_some() && self.contested.as_ref().is_some_and(|nodes| !is_one(nodes))
        };
        let is_read = |endpoint: &Endpoint| {
            is_member(endpoint) && is_ours(endpoint) && !is_apart(endpoint) && !is_suspected(endpoint)
        };
        let reads = health.observations.iter().filter(|seen| is_read(&seen.endpoint));
        // What another Weir has claimed in a node's tables counts once the node was asked again in which view it is: the
        // claim may be that of a component which goes on apart, and which was none yet when it was asked last.
        let known_row = self.before.leadership.as_ref().and_then(|leadership| leadership.row.clone());
        let is_looked_at = |seen: &&Observation| {
            let row = seen.epoch.as_ref().and_then(|read| read.row.as_ref());
            row.zip(known_row.as_ref()).is_none_or(|(row, known)| {
                row.epoch <= known.epoch
                    || row.claimed_by == policy.instance
                    || known.switching.as_ref().is_some_and(|switching| {
                        (&switching.to, &switching.by) == (&row.writer, &row.claimed_by)
                    })
                    || seen.epoch.as_ref().is_some_and(|read| read.asked_at <= seen.state_asked_at)
            })
        };
        let reads = reads.filter(is_looked_at).filter_map(|seen| seen.epoch.as_ref());
        let (known, view) = (self.before.leadership.as_ref(), self.before.writer_view.as_ref());
        let mut leadership = Leadership::after(known, policy, reads, view, self.now);
        self.note_deposed(&mut leadership);
        if let Some(row) = &leadership.row {
            let last = self.before.last_writers();
            let epoch = |leadership: &Leadership| leadership.row.as_ref().map(|row| row.epoch);
            // Unless another Weir was quicker.
            let is_unchanged = self.before.leadership.as_ref().and_then(epoch) == Some(row.epoch);
            let is_ahead = is_unchanged
                && leadership.ahead.as_ref().is_some_and(|ahead| last == std::slice::from_ref(ahead));
            if last != std::slice::from_ref(&row.writer) && !is_ahead {
                self.before.writers = vec![row.writer.clone()];
                (self.before.hold, self.before.writer_view, leadership.ahead) = (None, None, None);
            }
        }
        self.leadership = Some(leadership);
    }

    /// What was read in another history tells nothing of the present one, and gives no right to write in it.
    pub(super) fn leave_history(&mut self) {
        if let (Some(before), Some(view), Some(leadership)) =
            (&self.before.view, &self.view, &mut self.leadership)
            && before.history != view.history
        {
            *leadership = Leadership::anew(self.now);
        }
    }

    /// A writer that the epoch has left behind must not be written to within old transactions either, unless it left in
    /// order, which lets them end, or they have ended before: no session had it any more when a switchover was made.
    fn note_deposed(&self, leadership: &mut Leadership) {
        let known = self.before.leadership.as_ref().and_then(|leadership| leadership.row.as_ref());
        let (Some(known), Some(row)) = (known, &leadership.row) else { return };
        if known.epoch == row.epoch {
            return;
        }
        leadership.deposed = None;
        let switched_here = self.switch.filter(|switch| switch.step == SwitchStep::Move);
        let switched_there =
            known.switching.as_ref().filter(|_| leadership.announcement.clear_of == known.version);
        let is_switched = switched_here.is_some_and(|switch| switch.to == row.writer)
            || switched_there.is_some_and(|switching| switching.to == row.writer);
        if is_switched || leadership.ahead.as_ref() == Some(&row.writer) {
            return;
        }
        let leaves = |endpoint: &Endpoint| {
            let member = self.members.iter().find(|member| member.endpoint == endpoint);
            member.is_some_and(|member| match &member.state {
                Ok(_) => self.cannot_write(member).is_some(),
                Err(out) => !out.lost,
            })
        };
        let is_gone = self.healthy().any(|(_, state)| has_left(leadership, state))
            || self.gave_way(&known.writer, &row.writer);
        let is_deposed = known.writer != row.writer && !leaves(&known.writer) && !is_gone;
        leadership.deposed = is_deposed.then(|| known.writer.clone());
    }

    /// Lets the epoch have its say on whom the facts choose.
    pub(super) fn agree(&mut self, group: &mut Group, candidates: Vec<Candidate<'_>>) {
        // What is asked below looks at what was known before, too.
        let (Some(policy), Some(mut leadership)) = (self.epoch, self.leadership.clone()) else { return };
        let first = candidates.first().copied();
        let switch = self.switch.and_then(|switch| {
            let (_, state) = candidates.iter().find(|(endpoint, _)| **endpoint == switch.to)?;
            Some((switch, state.own_address()))
        });
        let writer = leadership.row.as_ref().map(|row| row.writer.clone());
        let is = |endpoint: &Endpoint| writer.as_ref() == Some(endpoint);
        let facts = Facts {
            choice: first.map(|(endpoint, _)| endpoint),
            address: first.and_then(|(_, state)| state.own_address()),
            reason: self.reason(first.map(|(_, state)| state), &leadership),
            is_former_gone: first.is_some_and(|(_, state)| has_left(&leadership, state)),
            knows_writer: self.members.iter().any(|member| is(member.endpoint)),
            sees_writer: healthy(&self.members).any(|(member, _)| is(member.endpoint)),
            is_leaving: writer.as_ref().is_some_and(|writer| self.is_leaving(writer)),
            switch,
            returns: self.returning(&candidates),
            now: self.now,
        };
        let approval = leadership.rule(&facts, policy);
        let cleared = self.cleared.iter().find(|cleared| cleared.writer_hostgroup == group.writer_hostgroup);
        leadership.note_cleared(cleared.map(|cleared| cleared.version), policy);
        if let Approval::Wait(reason) = approval {
            group.waits_for = Some(reason);
            let mut waiting = std::mem::take(&mut group.writers);
            waiting.append(&mut group.successors);
            group.successors = waiting;
            group.hold = self.hold.clone();
            group.last_wrote.clone_from(&self.before.last_wrote);
            // What is known of the last writer is needed until there is another.
            group.writer_view = self.before.writer_view.clone();
            group.writer_segment = self.before.writer_segment;
        } else if let (Some(hold), Some(peer)) = (&group.hold, leadership.peer_with_writer(policy, self.now))
            && let Some(lost) = hold.lost.first()
        {
            group.waits_for = Some(Reason::AwaitsPeer { lost: lost.clone(), peer: peer.clone() });
        }
        self.leadership = Some(leadership.clone());
        group.leadership = Some(leadership);
    }

    /// The heaviest server that is to take the role from a writer that works, at once; and its address.
    fn returning<'c>(&self, candidates: &[Candidate<'c>]) -> Option<(&'c Endpoint, Option<&'c str>)> {
        let best = self.to_return()?;
        let (endpoint, state) = candidates.iter().find(|(endpoint, _)| **endpoint == best)?;
        Some((endpoint, state.own_address()))
    }

    /// Whether a server is to leave by somebody's will.
    fn is_leaving(&self, endpoint: &Endpoint) -> bool {
        let member = self.members.iter().find(|member| member.endpoint == endpoint);
        member.is_some_and(|member| match &member.state {
            Ok(_) => member.wish_in(self.policy.writer_hostgroup) == Wish::OfflineSoft,
            Err(out) => out.reason == Reason::Wished(Wish::OfflineSoft),
        })
    }

    fn reason(&self, chosen: Option<&GaleraState>, leadership: &Leadership) -> ChangeReason {
        // Where nodes don't tell their addresses, a new view may still have the writer that another Weir reaches.
        let last = self.before.writer_view.as_ref();
        let is_named = last.is_none_or(|view| view.writer_address.is_some());
        let is_seen =
            self.epoch.is_some_and(|policy| leadership.peer_with_writer(policy, self.now).is_some());
        match chosen {
            Some(state) if self.hold.is_some() && self.confirms_loss(state) && (is_named || !is_seen) => {
                ChangeReason::NewView
            }
            Some(_) if self.hold.is_some() => ChangeReason::Unconfirmed,
            _ => ChangeReason::InOrder,
        }
    }

    /// How a server became the writer that the row makes it.
    pub(super) fn epoch_reason(&self) -> Option<Reason> {
        let leadership = self.leadership.as_ref()?;
        let row = leadership.row.as_ref()?;
        if row.claimed_by != self.epoch?.instance {
            return Some(Reason::WriterOfEpoch { epoch: row.epoch, claimed_by: row.claimed_by.clone() });
        }
        let from = leadership.former.clone()?;
        Some(Reason::TookOver { from, confirmed: row.is_open })
    }
}

/// Whether a node is in a newer view than the one in which the epoch's former writer was last seen writing, and that
/// view has it no more.
fn has_left(leadership: &Leadership, state: &GaleraState) -> bool {
    leadership.former_view.as_ref().is_some_and(|former| {
        state.cluster_state_uuid == former.history
            && state.cluster_conf_id > former.number
            && former.writer_address.as_ref().is_some_and(|address| !state.members.contains(address))
    })
}
