//! Recognises two components of one history that both call themselves Primary: somebody has bootstrapped a part of a
//! cluster whose other part goes on (`pc.bootstrap`), or has it go on without quorum (`pc.ignore_sb`). Each would take
//! writes that the other never sees. One of them counts: that with the last writer, else the larger one, else none. When
//! it is lost, the other one does not take its place: it lacks what was acknowledged since they parted. Only who takes the
//! lost servers out, or has one of them join the other component, has decided so.

use std::collections::BTreeSet;

use super::{Cluster, Member};
use crate::health::OutOfService;
use crate::{Endpoint, GaleraState, Reason, Role, Wish};

/// Nodes don't report a change of their view at the same moment.
const SPLIT_MS: u64 = 500;

/// Nodes that say the same of their view.
struct Component<'a> {
    view: &'a GaleraState,
    nodes: Vec<&'a Endpoint>,
    /// They can't be one component, as two have the same place in it, and nobody knows who is with whom.
    is_several: bool,
}

impl Component<'_> {
    fn is_in(&self, state: &GaleraState) -> bool {
        let of = |state: &GaleraState| (state.cluster_conf_id, state.cluster_size);
        of(self.view) == of(state) && self.view.members == state.members
    }

    /// Whether they can't be parts of one succession of views.
    fn excludes(&self, other: &Self) -> bool {
        let (newer, older) = match self.view.cluster_conf_id.cmp(&other.view.cluster_conf_id) {
            std::cmp::Ordering::Equal => return true,
            std::cmp::Ordering::Greater => (self, other),
            std::cmp::Ordering::Less => (other, self),
        };
        // The older view's nodes would have known that they are left behind by now, if a majority of it had gone on.
        let size = older.view.cluster_size;
        newer.view.cluster_size * 2 <= size && older.nodes.len() * 2 > size as usize
    }
}

impl<'a> Cluster<'a> {
    /// Takes the nodes out that are not in the component that counts.
    pub(super) fn drop_other_components(&mut self) {
        let components = self.components();
        let is_split = components.iter().enumerate().any(|(at, one)| {
            one.is_several || components.iter().skip(at + 1).any(|other| one.excludes(other))
        });
        self.split_since = is_split.then(|| self.before.split_since.unwrap_or(self.now));
        // The first writer is not chosen by what may be over in a moment.
        let last = self.last_wrote();
        let patience_ms = if last.is_empty() { 0 } else { SPLIT_MS };
        let is_due = self.split_since.is_some_and(|since| self.now.since(since) >= patience_ms);
        let counts = self.one_that_counts(&components);
        let mut out: BTreeSet<&Endpoint> = BTreeSet::new();
        for (at, component) in components.iter().enumerate() {
            if counts != Some(at) && self.is_known_apart(component, &components, counts, is_due) {
                out.extend(&component.nodes);
            } else if component.is_several && is_due {
                out.extend(component.nodes.iter().copied().filter(|node| !last.contains(node)));
            }
        }
        // Who says nothing for a while, and lives, has not left its component.
        let was_primary =
            |node: &Endpoint| self.reported.iter().any(|(known, state)| *known == node && state.is_primary());
        let is_silent = |node: &&Endpoint| self.unanswered.contains(node) && was_primary(node);
        let silent = self.before.apart.iter().filter(is_silent);
        self.apart = out.iter().copied().chain(silent).cloned().collect();
        let has_lasted = self.split_since.is_some_and(|since| self.now.since(since) >= SPLIT_MS);
        self.is_apart_proven = !self.apart.is_empty() && (self.before.is_apart_proven || has_lasted);
        for member in &mut self.members {
            if let Ok(state) = member.state
                && self.apart.contains(member.endpoint)
            {
                let reason = Reason::SplitBrain { conf_id: state.cluster_conf_id, size: state.cluster_size };
                member.state = Err(OutOfService::lost(reason));
            }
        }
    }

    /// Whether a component is to be out beside the one that counts. `is_due`: they have not agreed for long enough. One
    /// whose nodes were out before stays out at once, and one that was known for another component while anything else is
    /// left of the cluster, whatever the numbers of its view have become.
    fn is_known_apart(
        &self,
        component: &Component<'_>,
        components: &[Component<'_>],
        counts: Option<usize>,
        is_due: bool,
    ) -> bool {
        if self.was_apart(component) && self.is_cluster_left(components) {
            return true;
        }
        let worked = |node: &&Endpoint| {
            let mut places = self.previous.places.iter().filter(|place| place.endpoint == **node);
            places.any(|place| place.role != Role::Offline)
        };
        if !is_due && component.nodes.iter().any(worked) {
            return false;
        }
        let excludes = |other: &Component<'_>| !std::ptr::eq(component, other) && component.excludes(other);
        match counts.and_then(|kept| components.get(kept)) {
            Some(kept) => component.excludes(kept),
            None => is_due || components.iter().any(excludes),
        }
    }

    fn was_apart(&self, component: &Component<'_>) -> bool {
        component.nodes.iter().all(|node| self.before.apart.contains(node))
    }

    /// Whether there is any working node, or component, that was not known for a part of another one; or, where one has
    /// counted, any server of it that nobody has taken out, whether it works or not.
    fn is_cluster_left(&self, components: &[Component<'_>]) -> bool {
        let is_apart = |node: &Endpoint| self.before.apart.contains(node);
        let last = self.last_wrote();
        let has_counted = self.before.is_apart_proven && !last.is_empty() && !last.iter().any(is_apart);
        let is_out = |member: &Member<'_>| {
            member.state.as_ref().is_err_and(|out| out.reason == Reason::Wished(Wish::OfflineHard))
        };
        components.iter().any(|component| !self.was_apart(component))
            || self.healthy().any(|(node, _)| !is_apart(node))
            || has_counted && self.members.iter().any(|member| !is_apart(member.endpoint) && !is_out(member))
    }

    /// Who wrote in the component that counted last. A row of the epoch alone tells nothing: each component has its own.
    fn last_wrote(&self) -> &[Endpoint] {
        match self.before.last_writers() {
            [] => &self.before.last_wrote,
            _ if self.before.last_wrote.is_empty() => &[],
            last => last,
        }
    }

    /// Of all nodes that have just answered. One that is to take no work, or is about to join, belongs to a component, too:
    /// else that would be gone as soon as its last working node is.
    fn components(&self) -> Vec<Component<'a>> {
        let mut components: Vec<Component<'a>> = Vec::new();
        let Some(history) = self.healthy().next().map(|(_, state)| &state.cluster_state_uuid) else {
            return components;
        };
        let is_in_one = |state: &GaleraState| {
            state.connected && state.is_primary() && state.cluster_state_uuid == *history
        };
        for (endpoint, state) in &self.reported {
            if self.unanswered.contains(endpoint) || !is_in_one(state) {
                continue;
            }
            // A component of one is nobody else's.
            let is_alone = state.cluster_size == 1;
            match components.iter_mut().find(|component| !is_alone && component.is_in(state)) {
                Some(component) => {
                    let index = |node: &&Endpoint| {
                        let state = self.reported.iter().find(|(known, _)| known == node);
                        state.and_then(|(_, state)| state.local_index)
                    };
                    component.is_several |= component
                        .nodes
                        .iter()
                        .any(|node| state.local_index.is_some() && index(node) == state.local_index);
                    component.nodes.push(*endpoint);
                }
                None => {
                    let nodes = vec![*endpoint];
                    components.push(Component { view: state, nodes, is_several: false });
                }
            }
        }
        components
    }

    fn one_that_counts(&self, components: &[Component<'_>]) -> Option<usize> {
        let last = self.last_wrote();
        let has_writer = |component: &Component<'_>| component.nodes.iter().any(|node| last.contains(node));
        if let Some(at) = components.iter().position(has_writer) {
            return Some(at);
        }
        let is_left = self.is_cluster_left(components);
        let able = || components.iter().enumerate().filter(|(_, one)| !is_left || !self.was_apart(one));
        let size = |component: &Component<'_>| component.view.cluster_size;
        let largest = able().map(|(_, one)| size(one)).max()?;
        let mut of_that_size = able().filter(|(_, one)| size(one) == largest);
        let first = of_that_size.next()?;
        (of_that_size.next().is_none() && !first.1.is_several).then_some(first.0)
    }
}
