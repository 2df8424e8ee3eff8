//! Decides when a server that comes before the writer by weight gets the role back.

use std::cmp::Reverse;

use super::{Cluster, Member};
use crate::{Endpoint, Failback, GaleraState, Group, Millis};

impl Cluster<'_> {
    /// Since when those who do not write could. A writer's time begins when it stops, so that a switchover to a lighter
    /// server lasts for the least time up, too.
    pub(super) fn note_readiness(&self, group: &mut Group) {
        let ready = self.candidates(|obstacle| obstacle.is_none());
        let ready = ready.into_iter().filter(|(member, _)| !group.writers.contains(member.endpoint));
        let since = |member: &Member<'_>| self.ready_since(member.endpoint).unwrap_or(self.now);
        group.ready_since = ready.map(|(member, _)| (member.endpoint.clone(), since(member))).collect();
    }

    /// Asks for a switchover to the server that is to get the role back, if failback is `drained`.
    pub(super) fn propose_failback(&self, group: &mut Group) {
        if self.policy.choices.failback != Failback::Drained || group.writers.len() != 1 {
            return;
        }
        let candidates = self.candidates(|obstacle| obstacle.is_none());
        let heavier =
            candidates.iter().filter(|(member, _)| self.outweighs(member, &group.writers, &candidates));
        let best = heavier.min_by_key(|(member, _)| (Reverse(self.weights(member)), member.endpoint));
        group.failback = best.map(|(member, _)| member.endpoint.clone());
    }

    /// Whether a writer that works has given way to a heavier one, where that is done at once: its transactions may end.
    pub(super) fn gave_way(&self, from: &Endpoint, to: &Endpoint) -> bool {
        let member = |endpoint: &Endpoint| self.members.iter().find(|member| member.endpoint == endpoint);
        self.policy.choices.failback == Failback::Immediate
            && member(from)
                .zip(member(to))
                .is_some_and(|(from, to)| from.state.is_ok() && self.weights(to) > self.weights(from))
    }

    /// Who is to take the role at once from a writer that works.
    pub(super) fn to_return(&self) -> Option<Endpoint> {
        let candidates = self.candidates(|obstacle| obstacle.is_none());
        let heavier = candidates.iter().filter(|(member, _)| self.takes_back(member, &candidates));
        let best = heavier.min_by_key(|(member, _)| (Reverse(self.weights(member)), member.endpoint));
        best.map(|(member, _)| member.endpoint.clone())
    }

    /// Whether a server takes the role from a writer that works.
    pub(super) fn takes_back(&self, member: &Member<'_>, candidates: &[(&Member<'_>, &GaleraState)]) -> bool {
        self.policy.choices.failback == Failback::Immediate
            && self.outweighs(member, self.before.last_writers(), candidates)
    }

    /// Whether a writer that still works has lost the role to a heavier one.
    pub(super) fn gave_way_to_weight(&self, from: &Endpoint) -> bool {
        let candidates = self.candidates(|obstacle| obstacle.is_none());
        self.policy.choices.failback == Failback::Immediate
            && self.switch.is_none()
            && candidates.iter().any(|(member, _)| member.endpoint == from)
    }

    /// Whether a server has been able to write for long enough, and comes by weight before every one of these
    /// writers that still can.
    fn outweighs(
        &self,
        member: &Member<'_>,
        writers: &[Endpoint],
        candidates: &[(&Member<'_>, &GaleraState)],
    ) -> bool {
        let uptime_ms = self.ready_since(member.endpoint).map(|since| self.now.since(since));
        if writers.contains(member.endpoint)
            || uptime_ms.is_none_or(|uptime_ms| uptime_ms < self.policy.choices.uptime_min_ms)
        {
            return false;
        }
        let mut present = candidates.iter().filter(|(other, _)| writers.contains(other.endpoint)).peekable();
        present.peek().is_some() && present.all(|(writer, _)| self.weights(member) > self.weights(writer))
    }

    fn weights(&self, member: &Member<'_>) -> (Option<u32>, Option<u32>) {
        (
            member.weight_in(self.policy.writer_hostgroup),
            member.weight_in(self.policy.backup_writer_hostgroup),
        )
    }

    fn ready_since(&self, endpoint: &Endpoint) -> Option<Millis> {
        let mut known = self.before.ready_since.iter();
        known.find(|(ready, _)| ready == endpoint).map(|(_, since)| *since)
    }
}
