//! Recognises two components of one history that both call themselves Primary: somebody has bootstrapped a part of a
//! cluster whose other part goes on (`pc.bootstrap`), or has it go on without quorum (`pc.ignore_sb`). Each would take
//! writes that the other never sees. One of them counts: that with the last writer, else the larger one, else none.
//!
//! ```text
//! together ── views that exclude each other ─► suspected ── both say so half a second later ─► proven apart
//!    ▲                                              └─ they agree, or one is gone ─► together      │
//!    ├─ shares a view with a node of the component that counts ───────────────────────────────────┤
//!    └─ all nodes of that are OFFLINE_HARD or removed: a person has given it up ──────────────────┘
//! ```
//!
//! A node that is proven apart does not take the place of the component that counts, whatever becomes of that: it lacks
//! what was acknowledged since they parted.

use super::Cluster;
use super::component::Component;
use crate::health::{HealthCheck, OutOfService};
use crate::leadership::Leadership;
use crate::{Endpoint, EpochRow, GaleraState, InstanceId, Millis, Reason, Role, Split};

/// Nodes don't report a change of their view at the same moment.
const SPLIT_MS: u64 = 500;
impl<'a> Cluster<'a> {
    /// Takes the nodes out that are not in the component that counts.
    pub(super) fn drop_other_components(&mut self, health: &HealthCheck<'a>) {
        self.forget_given_up();
        let components = self.components(health);
        let counts = self.one_that_counts(&components);
        let last = &self.before.last_wrote;
        let open: Vec<&Component<'_>> = components.iter().filter(|one| !self.is_known_apart(one)).collect();
        let mut pairs = open
            .iter()
            .enumerate()
            .flat_map(|(at, one)| open.iter().skip(at + 1).map(move |other| (*one, *other)));
        let is_split = open.iter().any(|one| one.is_several) || pairs.any(|(one, other)| one.excludes(other));
        let since = is_split.then(|| self.before.split.since.unwrap_or(self.now));
        let mut split = Split { since, ..self.before.split.clone() };
        // Who only answered first has acknowledged nothing here, and is not to outweigh a larger one that answers next.
        if let Some(kept) = counts.filter(|_| !last.is_empty()) {
            self.note_counting(kept, &components, &mut split);
        }
        // The first writer is not chosen by what may be over in a moment.
        let patience_ms = if last.is_empty() { 0 } else { SPLIT_MS };
        let mut out: Vec<&Endpoint> = Vec::new();
        for component in components.iter().filter(|one| counts.is_none_or(|kept| !std::ptr::eq(kept, *one))) {
            let is_due = self.is_settled(component, counts, since, patience_ms);
            if self.is_out(component, &components, counts, is_due) {
                out.extend(component.nodes());
            }
            let beside = counts.filter(|kept| self.is_proven(component, kept, since));
            if beside.is_some() || self.is_known_apart(component) {
                split.proven.extend(component.nodes().cloned());
            }
            if let Some(kept) = beside {
                // Who can't be seen may have been with them from the beginning, and frees nobody when it answers.
                split.counting.retain(|node| kept.has(node) || !component.may_have(self.said_last(node)));
            }
        }
        for component in components.iter().filter(|one| one.is_several) {
            if self.is_settled(component, None, since, patience_ms) {
                out.extend(component.nodes().filter(|node| !last.contains(node)));
            }
        }
        let is_another = counts.is_some_and(|kept| self.is_another(kept));
        self.contested = counts.filter(|_| is_split).map(|kept| kept.nodes().collect());
        self.close(split, out, counts.is_some(), health);
        if is_another {
            self.forget_agreement();
        }
    }

    /// Whether the component that counts now is none that has followed from the one that counted: either that was lost, and
    /// what is left of it has joined one that was apart; or all of its nodes are known, and none is here.
    fn is_another(&self, kept: &Component<'_>) -> bool {
        let is_member = |endpoint: &Endpoint| self.members.iter().any(|member| member.endpoint == endpoint);
        let mut worked = self.previous.places.iter().filter(|place| place.role != Role::Offline);
        let was_lost = !worked.any(|place| is_member(&place.endpoint));
        let split = &self.before.split;
        let view = self.before.writer_view.as_ref();
        let is_known = view.is_some_and(|view| (1..=split.counting.len()).contains(&(view.size as usize)));
        was_lost && kept.nodes().any(|node| split.proven.contains(node))
            || is_known && !self.is_of_counting(kept)
    }

    /// What this Weir went by has gone, and with it the tables of the agreement. Others hold now, in which the same numbers
    /// mean something else: no epoch or lease of before counts there.
    fn forget_agreement(&mut self) {
        if let Some(leadership) = &mut self.before.leadership {
            *leadership = Leadership::anew(self.now);
        }
    }

    /// Notes who is apart, and takes those out that work.
    fn close(&mut self, mut split: Split, out: Vec<&'a Endpoint>, is_there: bool, health: &HealthCheck<'a>) {
        split.proven.sort();
        split.proven.dedup();
        split.counting.retain(|node| !split.proven.contains(node));
        // Who says nothing for a while, and lives, has not left its component.
        let was_primary =
            |node: &Endpoint| self.reported.iter().any(|(known, state)| *known == node && state.is_primary());
        let is_silent = |node: &&Endpoint| self.unanswered.contains(node) && was_primary(node);
        let silent = self.before.split.apart.iter().filter(is_silent);
        split.apart = out.into_iter().chain(silent).chain(&split.proven).cloned().collect();
        split.apart.sort();
        split.apart.dedup();
        let written = self.written_apart(&split, health);
        for member in &mut self.members {
            if let Ok(state) = member.state
                && split.apart.contains(member.endpoint)
            {
                let (conf_id, size) = (state.cluster_conf_id, state.cluster_size);
                let reason = match (is_there, &written) {
                    (true, Some((writer, claimed_by))) => {
                        let (writer, claimed_by) = (writer.clone(), claimed_by.clone());
                        Reason::WrittenApart { conf_id, size, writer, claimed_by }
                    }
                    (true, None) => Reason::SplitBrain { conf_id, size },
                    _ if split.proven.contains(member.endpoint) => Reason::SplitOff { conf_id, size },
                    _ => Reason::Undecided { conf_id, size },
                };
                member.state = Err(OutOfService::lost(reason));
            }
        }
        self.split = split;
    }

    /// Whom another Weir has made the writer of nodes that are apart, as their own tables have it.
    fn written_apart(&self, split: &Split, health: &HealthCheck<'a>) -> Option<(Endpoint, InstanceId)> {
        let own = &self.epoch?.instance;
        let row = |node: &Endpoint| health.observation(node)?.epoch.as_ref()?.row.as_ref();
        let is_apart = |row: &&EpochRow| split.proven.contains(&row.writer) && row.claimed_by != *own;
        let row = split.proven.iter().filter_map(row).find(is_apart)?;
        Some((row.writer.clone(), row.claimed_by.clone()))
    }

    /// A person has taken all servers of the component that counts out, or the cluster has been made anew.
    fn forget_given_up(&mut self) {
        let members = &self.members;
        let find = |node: &Endpoint| members.iter().find(|member| member.endpoint == node);
        let split = &mut self.before.split;
        split.proven.retain(|node| find(node).is_some());
        split.apart.retain(|node| find(node).is_some());
        split.counting.retain(|node| find(node).is_some_and(|member| !member.is_taken_out()));
        let known = self.before.view.as_ref().map(|view| &view.history);
        let is_anew =
            self.history.is_some() && known.is_some_and(|known| self.history.as_ref() != Some(known));
        if is_anew || split.counting.is_empty() && !split.proven.is_empty() {
            *split = Split::default();
            // What is left counts its views by itself.
            self.before.view = self.before.view.take().filter(|_| is_anew);
            self.forget_agreement();
        }
    }

    /// The nodes of the component that counts are remembered, also those that are lost. Those that answer and say something
    /// else have left it, unless that may be its next view; or another component waits for that: then they may come back to
    /// this one or join that.
    fn note_counting(&self, kept: &Component<'a>, components: &[Component<'a>], split: &mut Split) {
        split.proven.retain(|node| !kept.has(node));
        let answers = |node: &Endpoint| {
            self.reported.iter().any(|(known, _)| *known == node) && !self.unanswered.contains(&node)
        };
        let goes_on = |node: &Endpoint| {
            components.iter().any(|one| {
                one.has(node) && one.view.cluster_conf_id > kept.view.cluster_conf_id && !one.excludes(kept)
            })
        };
        let waits = !split.proven.is_empty();
        split.counting.retain(|node| !kept.has(node) && (waits || !answers(node) || goes_on(node)));
        // Where two have the same place, nobody knows who is with whom.
        let is_sure = |node: &&Endpoint| !kept.is_several || self.before.last_wrote.contains(node);
        split.counting.extend(kept.nodes().filter(is_sure).cloned());
    }

    /// Whether what a component and the one that counts say now they have said for long enough, or, where none counts, it
    /// alone.
    fn is_settled(
        &self,
        component: &Component<'_>,
        kept: Option<&Component<'_>>,
        since: Option<Millis>,
        patience_ms: u64,
    ) -> bool {
        let is_asked_anew = |one: &Component<'_>| {
            since.is_some_and(|since| {
                patience_ms == 0 || one.asked_at.0 >= since.0.saturating_add(patience_ms)
            })
        };
        is_asked_anew(component) && kept.is_none_or(is_asked_anew)
    }

    /// Whether a component is to be out. `is_due`: they have not agreed for long enough. One whose nodes were out before
    /// stays out at once while anything else is left of the cluster, whatever the numbers of its view have become.
    fn is_out(
        &self,
        component: &Component<'_>,
        components: &[Component<'_>],
        counts: Option<&Component<'_>>,
        is_due: bool,
    ) -> bool {
        let was_apart =
            |component: &Component<'_>| component.nodes().all(|node| self.before.split.apart.contains(node));
        let is_left = || {
            counts.is_some()
                || components.iter().any(|other| !was_apart(other))
                || self.healthy().any(|(node, _)| !self.before.split.apart.contains(node))
        };
        if self.is_known_apart(component) || was_apart(component) && is_left() {
            return true;
        }
        let worked = |node: &Endpoint| {
            let mut places = self.previous.places.iter().filter(|place| place.endpoint == *node);
            places.any(|place| place.role != Role::Offline)
        };
        if !is_due && component.nodes().any(worked) {
            return false;
        }
        let excludes = |other: &Component<'_>| !std::ptr::eq(component, other) && component.excludes(other);
        match counts {
            Some(kept) => component.excludes(kept),
            None => is_due || components.iter().any(excludes),
        }
    }

    /// Whether a component goes on beside the one that counts, and neither can be what was before the other.
    fn is_proven(&self, component: &Component<'_>, kept: &Component<'_>, since: Option<Millis>) -> bool {
        // Who counts only by its size has acknowledged nothing here.
        let is_known = kept.nodes().any(|node| self.before.last_wrote.contains(node))
            || !self.before.last_wrote.is_empty() && self.is_of_counting(kept);
        is_known && component.parts_from(kept) && self.is_settled(component, Some(kept), since, SPLIT_MS)
    }

    /// Whether a component has a node of the one that counts, also where only its view tells so, a newer one than any before:
    /// nobody else may be in sight.
    fn is_of_counting(&self, component: &Component<'_>) -> bool {
        let is_told = |node: &Endpoint| {
            let own = self.said_last(node).and_then(|state| state.own_address().map(str::to_owned));
            component.view.members.contains(&own.unwrap_or_else(|| node.to_string()))
        };
        let is_newer =
            self.before.view.as_ref().is_none_or(|known| component.view.cluster_conf_id > known.number);
        self.before.split.counting.iter().any(|node| component.has(node) || is_newer && is_told(node))
    }

    /// What a server said last, also if it does not answer now.
    fn said_last(&self, node: &Endpoint) -> Option<&'a GaleraState> {
        self.reported.iter().find(|(known, _)| *known == node).map(|(_, state)| *state)
    }

    /// Whether a component has a node that was proven apart, and none of the component that counted.
    fn is_known_apart(&self, component: &Component<'_>) -> bool {
        component.nodes().any(|node| self.before.split.proven.contains(node))
            && !self.is_of_counting(component)
    }

    /// The component with the last writer, else that with most nodes of the one that counted, else the largest.
    fn one_that_counts<'c>(&self, components: &'c [Component<'a>]) -> Option<&'c Component<'a>> {
        let last = &self.before.last_wrote;
        let able = || components.iter().filter(|one| !self.is_known_apart(one));
        if let Some(with_writer) = last.iter().find_map(|writer| able().find(|one| one.has(writer))) {
            return Some(with_writer);
        }
        let rank = |one: &Component<'_>| (self.is_of_counting(one), one.view.cluster_size);
        let best = able().map(rank).max()?;
        let mut of_that_rank = able().filter(|one| rank(one) == best);
        let first = of_that_rank.next()?;
        (of_that_rank.next().is_none() && !first.is_several).then_some(first)
    }

    /// Of all nodes that have just answered, unless a person has taken them out. One that is to take no work, or is about to
    /// join, belongs to a component, too: else that would be gone as soon as its last working node is.
    fn components(&self, health: &HealthCheck<'a>) -> Vec<Component<'a>> {
        let mut components: Vec<Component<'a>> = Vec::new();
        let is_wanted = |endpoint: &Endpoint| {
            self.members.iter().any(|member| member.endpoint == endpoint && !member.is_taken_out())
        };
        for (endpoint, state) in &self.reported {
            let is_in_one = state.connected
                && state.is_primary()
                && self.history.as_ref().is_none_or(|history| *history == state.cluster_state_uuid);
            if !is_in_one || self.unanswered.contains(endpoint) || !is_wanted(endpoint) {
                continue;
            }
            let Some(seen) = health.observation(endpoint) else { continue };
            match components.iter_mut().find(|component| component.is_in(state)) {
                Some(component) => component.add(endpoint, state, seen),
                None => components.push(Component::new(endpoint, state, seen)),
            }
        }
        components
    }
}
