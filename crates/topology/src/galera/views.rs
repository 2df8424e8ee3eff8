//! Finds the nodes of the cluster's present component: its history, and its newest view.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::Cluster;
use crate::health::OutOfService;
use crate::{Endpoint, GaleraState, Millis, Reason, Status, View};

/// A view spreads in a fraction of this; a node still in an older one is cut off.
const VIEW_SPREAD_MS: u64 = 1000;
/// A cluster that was started anew counts its views from 1. Older views than the newest that was seen are believed after
/// this time: a node that was stopped finds out sooner that the others have gone on without it.
const VIEWS_RESTART_MS: u64 = 3000;

impl<'a> Cluster<'a> {
    /// Nodes may disagree on the history only if one was set up apart, which the present writer may be, too, if it was
    /// started anew. The history so far counts while any node has it. Without it, another one counts if more than half
    /// of all servers have it that a person has not taken out: the cluster was made anew. In the beginning that of most nodes does, also of those that
    /// do not work, then that with the most advanced position.
    pub(super) fn drop_other_histories(&mut self) {
        let mut votes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for (_, state) in self.healthy() {
            let (count, position) = votes.entry(&state.cluster_state_uuid).or_default();
            *count += 1;
            *position = (*position).max(state.last_committed);
        }
        let wanted = self.members.iter().filter(|member| !member.is_taken_out()).count();
        let most = votes.iter().max_by_key(|(_, votes)| **votes);
        let known = self.before.view.as_ref().or(self.before.writer_view.as_ref());
        let last = known.map(|view| view.history.as_str());
        let trusted = match (last, most) {
            (Some(last), Some((uuid, (count, _)))) if !votes.contains_key(last) && count * 2 > wanted => {
                Some(*uuid)
            }
            (Some(last), _) => Some(last),
            (None, most) => self.most_common_history().or(most.map(|(uuid, _)| *uuid)),
        };
        let Some(trusted) = trusted.map(str::to_owned) else { return };
        self.history = Some(trusted.clone());
        for member in &mut self.members {
            if let Ok(state) = member.state
                && state.cluster_state_uuid != trusted
            {
                let cluster_state_uuid = state.cluster_state_uuid.clone();
                member.state = Err(OutOfService::lost(Reason::OtherHistory { cluster_state_uuid }));
            }
        }
    }

    fn most_common_history(&self) -> Option<&'a str> {
        let mut votes: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
        for state in self.reported.iter().map(|(_, state)| *state).filter(|state| state.has_history()) {
            let (count, position) = votes.entry(&state.cluster_state_uuid).or_default();
            *count += 1;
            *position = (*position).max(state.last_committed);
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(uuid, _)| uuid)
    }

    /// A node whose view has been superseded for a while is not in the component that the others are in, also if those
    /// can't be seen any more: a node that was stopped for a while goes on in its old view.
    pub(super) fn drop_old_views(&mut self) {
        let is_silent = |endpoint: &Endpoint| self.unanswered.contains(&endpoint);
        // Where components exclude each other, the numbers of the others say nothing.
        let is_ours =
            |endpoint: &Endpoint| self.contested.as_ref().is_some_and(|nodes| nodes.contains(&endpoint));
        let newest = self
            .healthy()
            .max_by_key(|(endpoint, state)| (is_ours(endpoint), state.cluster_conf_id, !is_silent(endpoint)));
        let Some((endpoint, newest)) = newest else {
            let known = self.before.view.clone();
            self.view = known.map(|view| match self.has_older_view(&view) {
                true => view,
                false => View { older_since: None, ..view },
            });
            return;
        };
        let known = self.before.view.as_ref().filter(|view| view.history == newest.cluster_state_uuid);
        let has_spread = |view: &View| self.now.since(view.since) >= VIEW_SPREAD_MS;
        let view = match known {
            None => view_of(newest, self.now),
            Some(known) => {
                let oldest = if has_spread(known) { known.number } else { known.oldest };
                match newest.cluster_conf_id.cmp(&known.number) {
                    Ordering::Greater => View { oldest, ..view_of(newest, self.now) },
                    Ordering::Equal => View { oldest, older_since: None, ..known.clone() },
                    Ordering::Less => {
                        let since = known.older_since.unwrap_or(self.now);
                        let older_since = (!is_silent(endpoint)).then_some(since);
                        match self.now.since(since) < VIEWS_RESTART_MS || older_since.is_none() {
                            true => View { oldest, older_since, ..known.clone() },
                            false => view_of(newest, self.now),
                        }
                    }
                }
            }
        };
        for member in &mut self.members {
            if let Ok(state) = member.state
                && state.cluster_conf_id < view.oldest
            {
                let reason = Reason::OldView { conf_id: state.cluster_conf_id, newest: view.number };
                member.state = Err(OutOfService::lost(reason));
            }
        }
        self.view = Some(view);
    }

    /// A silent node may still answer what it was asked, unless the others have gone on without it: then nothing of
    /// that will ever be committed, clients need not wait for it, and neither need the choice of the next writer wait
    /// until enough probes have had no answer.
    pub(super) fn give_up_silent(&mut self) {
        let answered = self.healthy().filter(|(endpoint, _)| !self.unanswered.contains(endpoint));
        let Some((_, newest)) = answered.max_by_key(|(_, state)| state.cluster_conf_id) else { return };
        let (reported, unanswered) = (&self.reported, &self.unanswered);
        for member in &mut self.members {
            let is_given_up = match &member.state {
                Ok(_) => unanswered.contains(&member.endpoint),
                Err(out) => out.lost && out.status == Status::OfflineSoft,
            };
            let last = reported.iter().find(|(endpoint, _)| *endpoint == member.endpoint);
            let Some((_, last)) = last.filter(|_| is_given_up) else { continue };
            let is_out = last.cluster_state_uuid == newest.cluster_state_uuid
                && last.cluster_conf_id < newest.cluster_conf_id
                && last.own_address().is_some_and(|own| newest.members.iter().all(|member| member != own));
            if is_out {
                member.state = Err(OutOfService::lost(Reason::NotInView { newest: newest.cluster_conf_id }));
            }
        }
    }

    /// Whether some node, which may not be able to work, has just said that it is in an older view.
    fn has_older_view(&self, view: &View) -> bool {
        let is_older = |state: &&GaleraState| state.is_primary() && state.cluster_conf_id < view.number;
        let answered = self.reported.iter().filter(|(endpoint, _)| !self.unanswered.contains(endpoint));
        answered.map(|(_, state)| *state).any(|state| is_older(&state))
    }
}

/// The view that a node says it is in.
pub(super) fn view_of(state: &GaleraState, since: Millis) -> View {
    View {
        history: state.cluster_state_uuid.clone(),
        number: state.cluster_conf_id,
        size: state.cluster_size,
        writer_address: None,
        since,
        older_since: None,
        oldest: 0,
    }
}
