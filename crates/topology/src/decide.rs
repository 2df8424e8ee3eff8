//! Decides roles: the one place where that is done.

use std::collections::HashMap;

use crate::health::HealthCheck;
use crate::{
    Endpoint, Intent, Millis, Observation, Place, Policy, Reason, Role, Roles, Shun, Status, Trouble, Wish,
};
use crate::{galera, group_replication, replication};

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
    let health = HealthCheck::new(policy, observations, now);
    let mut result = Roles::default();
    let plain = |row: &&Intent| !policy.owns(row.hostgroup);
    result.places.extend(intent.iter().filter(plain).map(|row| plain_place(row, &health)));
    let galera = policy.galera.iter().map(|row| galera::decide(row, intent, &health, previous));
    let grouped =
        policy.group_replication.iter().map(|row| group_replication::decide(row, intent, &health, previous));
    let replicated = policy.replication.iter().map(|row| replication::decide(row, intent, &health, previous));
    for (places, group) in galera.chain(grouped).chain(replicated) {
        result.places.extend(places);
        result.groups.push(group);
    }
    result.places.sort_by(|one, two| (one.hostgroup, &one.endpoint).cmp(&(two.hostgroup, &two.endpoint)));
    result.groups.sort_by_key(|group| group.writer_hostgroup);
    shun(&mut result.places, &health);
    pass_over_slow(&mut result.places, intent, &health);
    result.server_version = server_version(&result, &health);
    result
}

/// A server of a hostgroup without rules: what the user says, unless it can't be reached. One that was never probed is
/// given the benefit of the doubt.
fn plain_place(row: &Intent, health: &HealthCheck<'_>) -> Place {
    let unreachable = health.unreachable(&row.endpoint, health.policy.ping_failures_max);
    let (status, reason) = match (row.wish, unreachable) {
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
        trouble: None,
    }
}

/// Takes servers to which connections fail out of the way, unless one is the last of its hostgroup and has taken the
/// monitor's connection since: then it comes back before its time.
fn shun(places: &mut [Place], health: &HealthCheck<'_>) {
    for place in &mut *places {
        if let (Status::Online, Some(shun)) = (place.status, health.shun(&place.endpoint)) {
            place.status = Status::Shunned;
            place.trouble = Some(trouble(shun));
        }
    }
    for group in places.chunk_by_mut(|one, two| one.hostgroup == two.hostgroup) {
        if group.iter().any(|place| place.status == Status::Online) {
            continue;
        }
        for place in group.iter_mut().filter(|place| place.trouble.is_some()) {
            if health.shun(&place.endpoint).is_some_and(Shun::takes_connections) {
                place.status = Status::Online;
                place.trouble = None;
            }
        }
    }
}

fn trouble(shun: &Shun) -> Trouble {
    Trouble::ConnectFailures { failures: shun.failures, cause: shun.cause.clone() }
}

/// Marks servers whose pings take longer than the row in this hostgroup allows. In a cluster a server may have been
/// given a hostgroup in which it has no row: then the strictest of its rows counts.
fn pass_over_slow(places: &mut [Place], intent: &[Intent], health: &HealthCheck<'_>) {
    let mut limited: HashMap<&Endpoint, Vec<&Intent>> = HashMap::new();
    for row in intent.iter().filter(|row| row.latency_max_us > 0) {
        limited.entry(&row.endpoint).or_default().push(row);
    }
    for place in places.iter_mut().filter(|place| place.status == Status::Online) {
        let rows = || limited.get(&place.endpoint).into_iter().flatten();
        let own = rows().find(|row| row.hostgroup == place.hostgroup);
        let limit_us =
            own.or_else(|| rows().min_by_key(|row| row.latency_max_us)).map(|row| row.latency_max_us);
        if let (Some(limit_us), Some(latency_us)) = (limit_us, health.latency_us(&place.endpoint))
            && latency_us >= limit_us
        {
            place.trouble = Some(Trouble::Slow { latency_ms: latency_us / 1000, limit_ms: limit_us / 1000 });
        }
    }
}

fn server_version(roles: &Roles, health: &HealthCheck<'_>) -> Option<std::sync::Arc<str>> {
    let version = |endpoint: &Endpoint| health.observation(endpoint).and_then(|seen| seen.version.clone());
    let writers = roles.groups.iter().flat_map(|group| &group.writers);
    let others = roles.places.iter().map(|place| &place.endpoint);
    writers.chain(others).find_map(version)
}
