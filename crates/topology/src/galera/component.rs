//! Compares nodes that are in the same view of a Galera cluster with others.

use std::cmp::Ordering;

use crate::{Endpoint, GaleraState, Millis, Observation};

/// Nodes that say the same of their view.
pub(super) struct Component<'a> {
    pub(super) view: &'a GaleraState,
    /// When the last of them was asked.
    pub(super) asked_at: Millis,
    /// They can't be one component, as two have the same place in it, and nobody knows who is with whom.
    pub(super) is_several: bool,
    nodes: Vec<(&'a Endpoint, &'a GaleraState)>,
    /// How many there are, however many names they have.
    count: usize,
    /// What the view weighs. Nodes tell that of their next view a moment before they are in it.
    weight: u32,
}

impl<'a> Component<'a> {
    pub(super) fn new(endpoint: &'a Endpoint, view: &'a GaleraState, seen: &Observation) -> Self {
        let mut component =
            Self { view, asked_at: Millis(0), is_several: false, nodes: Vec::new(), count: 0, weight: 0 };
        component.add(endpoint, view, seen);
        component
    }

    pub(super) fn add(&mut self, endpoint: &'a Endpoint, state: &'a GaleraState, seen: &Observation) {
        let is_named = self.nodes.iter().any(|(_, known)| known.is_same_node(state));
        let has_place =
            |known: &GaleraState| known.local_index.is_some() && known.local_index == state.local_index;
        self.is_several |= !is_named && self.nodes.iter().any(|(_, known)| has_place(known));
        self.count += usize::from(!is_named);
        self.weight = self.weight.max(state.cluster_weight);
        self.nodes.push((endpoint, state));
        self.asked_at = self.asked_at.max(seen.state_asked_at);
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &'a Endpoint> + '_ {
        self.nodes.iter().map(|(endpoint, _)| *endpoint)
    }

    pub(super) fn has(&self, node: &Endpoint) -> bool {
        self.nodes().any(|known| known == node)
    }

    pub(super) fn is_in(&self, state: &GaleraState) -> bool {
        let of = |state: &GaleraState| (state.cluster_conf_id, state.cluster_size);
        // A component of one is nobody else's.
        (state.cluster_size != 1 || self.view.is_same_node(state))
            && of(self.view) == of(state)
            && self.view.members == state.members
    }

    /// Whether a node that does not answer may be in the view: it has an address there, or is not known to have another one
    /// and there are more members than have answered.
    pub(super) fn may_have(&self, silent: Option<&GaleraState>) -> bool {
        match silent.and_then(GaleraState::own_address).filter(|_| self.tells_addresses()) {
            Some(own) => self.view.members.iter().any(|member| member == own),
            None => self.count < self.view.cluster_size as usize,
        }
    }

    /// Whether all members of the view tell their addresses; an arbitrator has an empty one.
    fn tells_addresses(&self) -> bool {
        let is_told =
            |member: &String| !member.eq_ignore_ascii_case("AUTO") && !member.starts_with("0.0.0.0");
        self.view.members.len() == self.view.cluster_size as usize && self.view.members.iter().all(is_told)
    }

    /// Whether they can't be parts of one succession of views.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        let (newer, older) = match self.view.cluster_conf_id.cmp(&other.view.cluster_conf_id) {
            Ordering::Less => (other, self),
            Ordering::Equal | Ordering::Greater => (self, other),
        };
        // The older view's nodes would have known that they are left behind by now, if a majority of it had gone on; but
        // not if a minority did that outweighs them: they may have lost each other, too, and then it takes them longer.
        let size = older.view.cluster_size;
        self.parts_from(other) || newer.is_minority_of(older) && older.count * 2 > size as usize
    }

    /// Whether its view has no quorum by itself in the one before.
    fn is_minority_of(&self, older: &Self) -> bool {
        match (self.weight, older.weight) {
            (0, _) | (_, 0) => self.view.cluster_size * 2 <= older.view.cluster_size,
            (weight, before) => weight.saturating_mul(2) <= before,
        }
    }

    /// Whether neither can be what was before the other: the views have the same number, or no node of the one is in the
    /// view of the other.
    pub(super) fn parts_from(&self, other: &Self) -> bool {
        self.view.cluster_conf_id == other.view.cluster_conf_id || self.lacks(other) && other.lacks(self)
    }

    /// Whether none of another component's nodes can be in the view: all its members are known to be others, or tell their
    /// addresses. An arbitrator has an empty one.
    fn lacks(&self, other: &Self) -> bool {
        let (members, size) = (&self.view.members, self.view.cluster_size as usize);
        let is_whole = members.len() == size;
        let arbitrators =
            if is_whole { members.iter().filter(|member| member.is_empty()).count() } else { 0 };
        let is_elsewhere = |(_, state): &(&Endpoint, &GaleraState)| {
            state.own_address().is_some_and(|own| members.iter().all(|member| member != own))
        };
        self.count + arbitrators >= size || self.tells_addresses() && other.nodes.iter().all(is_elsewhere)
    }
}
