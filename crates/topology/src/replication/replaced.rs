//! Keeps writes from a lost writer that comes back after another one has taken its place. Without
//! `auto_failover` whoever sets read_only decides who writes. A writer that was lost, and whose place another one has
//! taken meanwhile, may come back as it was, not read_only: nobody has decided that. It gets no write until somebody
//! does: by making it read_only, or others its replicas, or by taking the others out of its cluster. Also not while none
//! of the others answers: it lacks what they have acknowledged, and they may answer again in a moment.

use super::Member;
use crate::health::OutOfService;
use crate::{Endpoint, Group, Link, Reason, ReplicationPolicy, Wish};

/// Takes the role from writers that were replaced while they were away; all of these.
pub(super) fn rule(policy: &ReplicationPolicy, members: &mut [Member<'_>], before: &Group) -> Vec<Endpoint> {
    let mut replaced = before.replaced.clone();
    let is_writable = |member: &Member<'_>| {
        member.state.as_ref().is_ok_and(|state| state.is_read_only(policy.check) == Ok(false))
    };
    let last = before.last_writers();
    let next = members.iter().find(|member| {
        is_writable(member) && !last.contains(member.endpoint) && !replaced.contains(member.endpoint)
    });
    if let Some(next) = next {
        let is_gone = |endpoint: &&Endpoint| {
            let member = members.iter().find(|member| member.endpoint == *endpoint);
            member.is_some_and(|member| member.state.as_ref().is_err_and(|out| out.lost))
        };
        for former in last.iter().filter(is_gone).filter(|former| *former != next.endpoint) {
            if !replaced.contains(former) {
                replaced.push(former.clone());
            }
        }
    }
    replaced.retain(|former| is_still_replaced(former, policy, members));
    // The writer of now, or of before: for the reason only.
    let heir = members.iter().find(|member| is_writable(member) && !replaced.contains(member.endpoint));
    let heir = heir.map(|member| member.endpoint).or(last.first()).cloned();
    for member in members.iter_mut().filter(|member| replaced.contains(member.endpoint)) {
        if member.state.is_ok()
            && let Some(writer) = &heir
        {
            member.state = Err(OutOfService::lost(Reason::Replaced { writer: writer.clone() }));
        }
    }
    replaced
}

fn is_still_replaced(former: &Endpoint, policy: &ReplicationPolicy, members: &[Member<'_>]) -> bool {
    let Some(member) = members.iter().find(|member| member.endpoint == former) else { return false };
    let Ok(state) = member.state else { return true };
    let follows = |other: &&Member<'_>| {
        let source = other.state.as_ref().ok().and_then(|state| state.source.as_ref());
        source.is_some_and(|source| source.link == Link::Up && source.names(former, &state.id))
    };
    let is_in = |other: &&Member<'_>| {
        !other.state.as_ref().is_err_and(|out| out.reason == Reason::Wished(Wish::OfflineHard))
    };
    let mut others = members.iter().filter(|other| other.endpoint != former).filter(is_in);
    let is_decided =
        state.is_read_only(policy.check) != Ok(false) || others.clone().any(|other| follows(&other));
    !is_decided && others.next().is_some()
}
