//! The one place where roles are decided.

use crate::galera;
use crate::judge::Judge;
use crate::{Endpoint, Intent, Millis, Observation, Place, Policy, Reason, Role, Roles, Status, Wish};

/// Decides the role of every server.
///
/// `intent` may name a server several times, in different hostgroups; `observations` holds at most one of each
/// server; `previous` is the last result (`Roles::default()` at the start), from which come the present writers, the
/// hysteresis of readers and how long a lost writer has been waited for. The result depends on nothing else.
pub fn roles(
    policy: &Policy,
    intent: &[Intent],
    observations: &[Observation],
    previous: &Roles,
    now: Millis,
) -> Roles {
    let judge = Judge { policy, observations, now };
    let mut result = Roles::default();
    let plain = |row: &&Intent| !policy.galera.iter().any(|galera| galera.owns(row.hostgroup));
    result.places.extend(intent.iter().filter(plain).map(|row| plain_place(row, &judge)));
    for galera in &policy.galera {
        let (places, group) = galera::decide(galera, intent, &judge, previous);
        result.places.extend(places);
        result.groups.push(group);
    }
    result.places.sort_by(|one, two| (one.hostgroup, &one.endpoint).cmp(&(two.hostgroup, &two.endpoint)));
    result.groups.sort_by_key(|group| group.writer_hostgroup);
    result.server_version = server_version(&result, observations);
    result
}

/// A server of a hostgroup without rules: what the user says, unless it can't be reached. One that was never probed is
/// given the benefit of the doubt.
fn plain_place(row: &Intent, judge: &Judge<'_>) -> Place {
    let (status, reason) = match (row.wish, judge.unreachable(&row.endpoint)) {
        (Wish::OfflineSoft, _) => (Status::OfflineSoft, Reason::Wished(row.wish)),
        (Wish::OfflineHard, _) => (Status::OfflineHard, Reason::Wished(row.wish)),
        (Wish::Online, Some(reason)) => (Status::Shunned, reason),
        (Wish::Online, None) => (Status::Online, Reason::Configured),
    };
    Place {
        hostgroup: row.hostgroup,
        endpoint: row.endpoint.clone(),
        role: Role::Plain,
        status,
        weight: row.weight,
        max_connections: row.max_connections,
        reason,
    }
}

fn server_version(roles: &Roles, observations: &[Observation]) -> Option<std::sync::Arc<str>> {
    let version = |endpoint: &Endpoint| {
        observations.iter().find(|seen| seen.endpoint == *endpoint).and_then(|seen| seen.version.clone())
    };
    let writers = roles.groups.iter().flat_map(|group| &group.writers);
    let others = roles.places.iter().map(|place| &place.endpoint);
    writers.chain(others).find_map(version)
}
