//! Moves the writer role before the writer has to give a joining node its state: on the donor, writes stand still
//! until the transfer has begun, half a second and more.
//!
//! A joiner asks for its state when its server is ready to receive it, a moment after the view in which it appears
//! (it starts a program first). That is the time for a switchover that nobody notices. The group chooses the donor, by
//! a rule that its members know (MariaDB 10.11 with Galera 26.4.23, seen in every one of some 30 rejoins): of the
//! Synced nodes the one that keeps the fewest transactions (`wsrep_local_cached_downto` is greatest), of equal ones the
//! last in the view. Where the joiner names a donor itself (`wsrep_sst_donor`), or needs everything, another one may be
//! chosen; then a switchover was for nothing, or the writer gives way when it is the donor.

use std::cmp::Reverse;

use super::{Cluster, healthy};
use crate::{Endpoint, Group, LocalState};

/// A joiner that has not asked by then will not.
const JOIN_MS_MAX: u64 = 10_000;

impl Cluster<'_> {
    /// Asks for a switchover if a node joins and the writer would be its donor.
    pub(super) fn propose_to_yield(&self, group: &mut Group) {
        let Some(view) = &self.view else { return };
        let in_view = healthy(&self.members).filter(|(_, state)| state.cluster_conf_id == view.number);
        let size = in_view.map(|(_, state)| state.cluster_size).max().unwrap_or(0);
        let before = self.before.view.as_ref().filter(|before| before.number == view.number);
        group.view_size = size;
        group.joined_at = match before {
            Some(_) => self.before.joined_at,
            None => (self.before.view_size > 0 && size > self.before.view_size).then_some(self.now),
        };
        let here = healthy(&self.members).count();
        if u32::try_from(here).is_ok_and(|here| here >= size) {
            // It is here. Whoever is missing later has not joined, but gone.
            group.joined_at = None;
        }
        let [writer] = group.writers.as_slice() else { return };
        if self.before.yields_to.as_ref() == Some(writer) {
            // Once for each join: what the nodes keep changes while it goes on, and with it the answer.
            group.joined_at = None;
        }
        let is_due = group.joined_at.is_some_and(|at| self.now.since(at) < JOIN_MS_MAX);
        let Some(donor) = self.next_donor(view.number).filter(|_| is_due) else { return };
        if donor == writer {
            group.yields_to = group.successors.first().cloned();
        }
    }

    /// Tells whom a node that joins should name as its donors, so that the writer never is: first those that could not
    /// write anyway, then the one that would be the writer last of all.
    pub(super) fn name_donors(&self, group: &mut Group) {
        let Some(view) = &self.view else { return };
        let mut donors: Vec<_> = healthy(&self.members)
            .filter(|(member, state)| {
                state.cluster_conf_id == view.number
                    && state.local_state == LocalState::Synced
                    && !group.writers.contains(member.endpoint)
                    // A comma separates the names of the list that the joiner has.
                    && !state.node_name.is_empty()
                    && !state.node_name.contains(',')
            })
            .collect();
        donors.sort_by_key(|(member, _)| {
            let turn = group.successors.iter().position(|successor| successor == member.endpoint);
            (Reverse(turn.unwrap_or(usize::MAX)), member.endpoint)
        });
        group.donors = donors.into_iter().map(|(_, state)| state.node_name.clone()).collect();
    }

    /// Who will be the donor of a member of the view that is not there yet; none if that can't be told.
    fn next_donor(&self, view: u64) -> Option<&Endpoint> {
        let members = || healthy(&self.members).map(|(member, state)| (member.endpoint, state));
        let (_, first) = members().next()?;
        let is_certain = members().all(|(_, state)| {
            state.cluster_conf_id == view
                && state.segment == first.segment
                && (state.local_state == LocalState::Synced || state.desync)
        });
        if !is_certain {
            return None;
        }
        let donors = members().filter(|(_, state)| state.local_state == LocalState::Synced);
        let donor = donors.max_by_key(|(_, state)| (state.cached_downto, state.local_index))?;
        Some(donor.0)
    }
}
