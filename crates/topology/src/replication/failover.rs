//! Decides for `auto_failover` when a lost writer is to be replaced, and which server may write where Weir replaces
//! writers.
//!
//! Both are questions to all configured servers, and the answer is that of more than half of them:
//!
//! - a lost writer is given up when more than half say that they can't connect to it, and this Weir can't either, all
//!   that for `failover_after_ms`;
//! - a server that is not read_only is the writer while more than half are seen, itself included, that get their data
//!   from it. If the last writer was made read_only and has no source, it and its replicas stand for the only one that is
//!   not read_only, if that replicated from it: so goes a switchover by hand. The same holds for its source, whoever that
//!   is: after a restart of everything a replica may be the one that is writable. Nobody else without a source stands for
//!   anybody: who once replicated and does no more may have been the writer meanwhile, and be read_only since it was
//!   started again.
//!
//! Two majorities have a server in common, so another Weir can't replace a writer for which there still is one. It may
//! have seen that server some time ago: what was seen counts for less than `failover_after_ms`, also where this Weir was
//! stopped since, and what is decided by it for [`ReplicationPolicy::LEASE_MS`]. An old writer that
//! comes back writable has no majority, as the others replicate from the new one before that one is made writable.

use super::Member;
use crate::health::{HealthCheck, OutOfService};
use crate::{
    Endpoint, Group, Link, ProbeError, Reason, ReplicaState, ReplicationPolicy, SourceLink, Succession, Wish,
};

/// Of fewer servers those that are left are never more than half.
const SERVERS_MIN: usize = 3;

/// Takes roles from servers that are not read_only, or read, beside the writer's line, and tells what is to be done about
/// a lost writer, and what its successor waits for. None where that is not wanted, or there are too few servers.
pub(super) fn rule(
    policy: &ReplicationPolicy,
    members: &mut [Member<'_>],
    before: &Group,
    health: &HealthCheck<'_>,
) -> Option<(Succession, Option<Reason>)> {
    let after_ms = policy.failover_after_ms?;
    let is_counted = |member: &&Member<'_>| {
        !matches!(&member.state, Err(OutOfService { reason: Reason::Wished(Wish::OfflineHard), .. }))
    };
    let count = members.iter().filter(is_counted).count();
    if count < SERVERS_MIN {
        return None;
    }
    for member in members.iter_mut().filter(|member| member.state.is_ok()) {
        if let Some(age_ms) = too_old_ms(after_ms, member.endpoint, health) {
            member.state = Err(OutOfService::silent(Reason::NotObservedForLong { age_ms }));
        }
    }
    let seen = members.iter().map(|member| seen(policy, after_ms, member, health)).collect();
    let line = Line { policy, members, seen, before, majority: count / 2 + 1 };
    let writer = line.writer().filter(|at| line.works(*at));
    let mut succession = line.succession(writer, before);
    let waits_for = match line.lost(writer, before, health) {
        Some(lost) => line.give_up(lost, &mut succession, after_ms, health),
        None => {
            succession.gone_since = None;
            None
        }
    };
    let refused: Vec<_> = (0..members.len()).map(|at| line.refusal(at, writer)).collect();
    for (member, out) in members.iter_mut().zip(refused) {
        if let Some(out) = out.filter(|_| member.state.is_ok()) {
            member.state = Err(out);
        }
    }
    Some((succession, waits_for))
}

/// What counts of a server: also of one that the user keeps from work, which replicates and finds its source lost like
/// any other.
fn seen<'a>(
    policy: &ReplicationPolicy,
    after_ms: u64,
    member: &Member<'a>,
    health: &HealthCheck<'a>,
) -> Option<&'a ReplicaState> {
    match &member.state {
        Ok(state) => Some(state),
        Err(OutOfService { reason: Reason::Wished(Wish::OfflineSoft), .. }) => {
            let is_fresh = too_old_ms(after_ms, member.endpoint, health).is_none();
            super::answering(policy, health, member.endpoint).ok().filter(|_| is_fresh)
        }
        Err(_) => None,
    }
}

/// How long ago a server was asked, where its answer does not count any more for that: since then others may have
/// replaced the writer. Probes that come in time are never so late.
fn too_old_ms(after_ms: u64, endpoint: &Endpoint, health: &HealthCheck<'_>) -> Option<u64> {
    let counts_ms = after_ms.saturating_sub(ReplicationPolicy::LEASE_MS);
    let age_ms = health.now.since(health.observation(endpoint)?.state_asked_at);
    (age_ms > counts_ms).then_some(age_ms)
}

/// Through whom a server gets its data in the end.
enum Origin<'m> {
    /// A server that is not read_only, by its place among the members.
    Writable(usize),
    /// A read_only server that replicates from nobody, by its place among the members.
    Nobody(usize),
    /// This source, to which the connection can't be made.
    Lost(&'m SourceLink),
    /// Nobody knows.
    Unknown,
}

/// The servers and from whom they replicate.
struct Line<'m, 'a> {
    policy: &'m ReplicationPolicy,
    members: &'m [Member<'a>],
    /// What counts of each.
    seen: Vec<Option<&'m ReplicaState>>,
    before: &'m Group,
    majority: usize,
}

impl<'m> Line<'m, '_> {
    fn state(&self, at: usize) -> Option<&'m ReplicaState> {
        self.seen.get(at).copied().flatten()
    }

    /// Whether the user does not keep it from work: then nothing is done with it either.
    fn works(&self, at: usize) -> bool {
        self.members.get(at).is_some_and(|member| member.state.is_ok())
    }

    fn endpoint(&self, at: usize) -> Option<&'m Endpoint> {
        self.members.get(at).map(|member| member.endpoint)
    }

    fn is_writable(&self, at: usize) -> bool {
        self.state(at).is_some_and(|state| state.is_read_only(self.policy.check) == Ok(false))
    }

    fn writable(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|at| self.is_writable(*at))
    }

    /// Whom a replica names as its source, if it is seen.
    fn source(&self, link: &SourceLink) -> Option<usize> {
        let is_it = |at: &usize| {
            self.state(*at).zip(self.endpoint(*at)).is_some_and(|(state, at)| link.names(at, &state.id))
        };
        (0..self.members.len()).find(is_it)
    }

    fn origin(&self, mut at: usize) -> Origin<'m> {
        // A ring has no origin.
        for _ in 0..self.members.len() {
            let Some(state) = self.state(at) else { return Origin::Unknown };
            if self.is_writable(at) {
                return Origin::Writable(at);
            }
            match &state.source {
                None => return Origin::Nobody(at),
                Some(link) if link.link == Link::Down => return Origin::Lost(link),
                Some(SourceLink { link: Link::Trying, .. }) => return Origin::Unknown,
                Some(link) => match self.source(link) {
                    Some(source) => at = source,
                    None => return Origin::Unknown,
                },
            }
        }
        Origin::Unknown
    }

    /// How many servers stand for this one: also those that get their data from one whose heir it is, where it has no
    /// rival.
    fn support(&self, at: usize) -> usize {
        let has_rival = self.writable().any(|other| other != at);
        let stands = |member: &usize| match self.origin(*member) {
            Origin::Writable(origin) => origin == at,
            Origin::Nobody(root) => !has_rival && self.is_heir(at, root),
            Origin::Lost(_) | Origin::Unknown => false,
        };
        (0..self.members.len()).filter(stands).count()
    }

    /// Whether a server replicates from `root`, or has taken its place, or is the first to: `root` was the last writer, and
    /// it replicated from that.
    fn is_heir(&self, at: usize, root: usize) -> bool {
        let (heir, source) =
            (self.state(at).zip(self.endpoint(at)), self.state(root).zip(self.endpoint(root)));
        let Some(((heir, endpoint), (source, source_at))) = heir.zip(source) else { return false };
        let link = heir.source.as_ref().filter(|link| link.link == Link::Up);
        if link.is_some_and(|link| link.names(source_at, &source.id)) {
            return true;
        }
        let Some(known) = &self.before.succession else { return false };
        let followed = known.writer_id == source.id && known.followers.contains(endpoint);
        let has_followed = known.writer_id == heir.id && known.deposed.contains(source_at);
        followed && !known.deposed.contains(endpoint) || has_followed
    }

    /// The one that may write: two majorities would have a server in common.
    fn writer(&self) -> Option<usize> {
        self.writable().find(|at| self.support(*at) >= self.majority)
    }

    /// Why a server has no role besides its own state.
    fn refusal(&self, at: usize, writer: Option<usize>) -> Option<OutOfService> {
        let (state, own) = (self.state(at)?, writer == Some(at));
        let by = writer.and_then(|writer| self.endpoint(writer)).cloned();
        match (self.origin(at), by) {
            _ if own => None,
            (Origin::Writable(origin), Some(writer)) if origin == at => {
                Some(OutOfService::lost(Reason::Deposed { writer }))
            }
            (Origin::Writable(origin), None) if origin == at => {
                let reason = Reason::NoMajority { support: self.support(at), majority: self.majority };
                Some(OutOfService::lost(reason))
            }
            (Origin::Writable(origin), Some(_)) if Some(origin) != writer => {
                let source = state.source.as_ref().and_then(|link| link.endpoint.clone());
                let source = source.or_else(|| self.endpoint(origin).cloned())?;
                Some(OutOfService::leaving(Reason::OtherSource { of: source }))
            }
            (Origin::Nobody(_), Some(writer)) => Some(OutOfService::leaving(Reason::NoSource { writer })),
            (Origin::Nobody(root) | Origin::Writable(root), None) if self.is_of_another_line(root) => {
                Some(OutOfService::leaving(Reason::OtherLine))
            }
            _ => None,
        }
    }

    /// Whether a server that replicates from nobody is neither the last writer nor was seen to replicate from it: what it
    /// has may have parted from what clients wrote last.
    fn is_of_another_line(&self, root: usize) -> bool {
        let Some(known) = self.before.succession.as_ref().filter(|known| !known.writer_id.is_empty()) else {
            return false;
        };
        let has_followed = |endpoint| known.followers.contains(endpoint);
        let is_writer = self.state(root).is_some_and(|state| state.id == known.writer_id);
        !is_writer && !self.endpoint(root).is_some_and(has_followed)
    }

    /// What is known of writers, present and former.
    fn succession(&self, writer: Option<usize>, before: &Group) -> Succession {
        let mut next = before.succession.clone().unwrap_or_default();
        (next.due, next.returned) = (None, Vec::new());
        let has_lost_source = |at: &usize| match self.origin(*at) {
            Origin::Lost(link) => self.source(link).is_some_and(|source| self.is_writable(source)),
            _ => false,
        };
        let endpoints = |at: usize| self.endpoint(at).cloned();
        let working = || (0..self.members.len()).filter(|at| self.works(*at));
        next.unconnected = working().filter(has_lost_source).filter_map(endpoints).collect();
        let Some(writer) = writer else {
            self.note_replaced(&mut next);
            return next;
        };
        let Some((state, endpoint)) = self.state(writer).zip(self.endpoint(writer)) else { return next };
        let is_same = next.writer_id == state.id;
        next.writer_id.clone_from(&state.id);
        let follows = |at: usize| matches!(self.origin(at), Origin::Writable(origin) if origin == writer);
        // Whoever can't be seen now is believed to be what it was.
        let followed = |at: usize| {
            let was = |endpoint| is_same && next.followers.contains(endpoint);
            matches!(self.origin(at), Origin::Unknown | Origin::Lost(_)) && self.endpoint(at).is_some_and(was)
        };
        let followers = (0..self.members.len()).filter(|at| *at != writer && (follows(*at) || followed(*at)));
        next.followers = followers.filter_map(endpoints).collect();
        // Whoever is writable beside the writer was one before this Weir began.
        let is_beside = |at: &usize| matches!(self.origin(*at), Origin::Writable(origin) if origin == *at);
        let beside = (0..self.members.len()).filter(is_beside).filter_map(endpoints);
        // So was whoever the writer is the heir of.
        let is_root = |at: &usize| matches!(self.origin(*at), Origin::Nobody(root) if root == *at);
        let inherited = (0..self.members.len()).filter(|at| is_root(at) && self.is_heir(writer, *at));
        let inherited = inherited.filter_map(endpoints);
        for former in before.last_writers().iter().cloned().chain(beside).chain(inherited) {
            if !next.deposed.contains(&former) {
                next.deposed.push(former);
            }
        }
        next.deposed.retain(|former| {
            let at = (0..self.members.len()).find(|at| self.endpoint(*at) == Some(former));
            former != endpoint && at.is_some_and(|at| !follows(at))
        });
        let is_back = |at: &usize| match self.origin(*at) {
            Origin::Writable(origin) => origin == *at && *at != writer,
            Origin::Nobody(_) => self.endpoint(*at).is_some_and(|at| next.deposed.contains(at)),
            Origin::Lost(_) | Origin::Unknown => false,
        };
        next.returned = working().filter(is_back).filter_map(endpoints).collect();
        next
    }

    /// Where most servers can't be seen: one that others replicate from has taken the last writer's place all the same.
    fn note_replaced(&self, next: &mut Succession) {
        let is_next = |at: &usize| {
            let replaces = self.state(*at).is_some_and(|state| state.id != next.writer_id);
            let mut others = (0..self.members.len()).filter(|other| other != at);
            replaces
                && others.any(|other| matches!(self.origin(other), Origin::Writable(origin) if origin == *at))
        };
        if self.writable().any(|at| is_next(&at)) {
            for last in self.before.last_writers() {
                if !next.deposed.contains(last) {
                    next.deposed.push(last.clone());
                }
            }
        }
    }

    /// The only writer of before, if it is not there any more, does not answer, and nobody else is writable.
    fn lost(
        &self,
        writer: Option<usize>,
        before: &'m Group,
        health: &HealthCheck<'_>,
    ) -> Option<&'m Endpoint> {
        let [lost] = before.last_writers() else { return None };
        let member = self.members.iter().find(|member| member.endpoint == lost)?;
        let is_silent = member
            .state
            .as_ref()
            .is_err_and(|out| matches!(out.reason, Reason::Unreachable { .. } | Reason::TimedOut { .. }));
        // Whoever answers with an error lives.
        let fault = health.observation(lost).and_then(|seen| seen.fault.as_ref());
        let is_gone = matches!(fault, Some(ProbeError::Unreachable(_) | ProbeError::Timeout(_)));
        (writer.is_none() && self.writable().next().is_none() && is_silent && is_gone).then_some(lost)
    }

    /// Whether a writer that does not answer is to be replaced; what its successor waits for.
    fn give_up(
        &self,
        lost: &Endpoint,
        succession: &mut Succession,
        after_ms: u64,
        health: &HealthCheck<'_>,
    ) -> Option<Reason> {
        let misses = |at: &usize| match self.origin(*at) {
            Origin::Lost(link) => link.names(lost, &succession.writer_id),
            _ => false,
        };
        let votes = (0..self.members.len()).filter(misses).count();
        let lost = lost.clone();
        if votes < self.majority {
            succession.gone_since = None;
            return Some(Reason::AwaitsVotes { lost, votes, majority: self.majority });
        }
        let since = *succession.gone_since.get_or_insert(health.now);
        if health.now.since(since) < after_ms {
            return Some(Reason::AwaitsReturn { lost });
        }
        succession.due = Some(lost.clone());
        Some(Reason::AwaitsFailover { lost })
    }
}
