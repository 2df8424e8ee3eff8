//! Chooses weights: near servers before far ones, and one of those that could write before the others.

use std::time::Duration;

use crate::cluster::{Cluster, Kind, Member};
use crate::findings::{Findings, Server};

/// Of servers as near as the nearest, where others are far.
const NEAR: u32 = 10;
/// Of all others.
const FAR: u32 = 1;
/// Added to that of the preferred writer. It reads a little more than the others when it is not the writer.
const PREFERRED: u32 = 1;
/// A server whose answers take this much longer than those of the nearest, and twice as long, is far.
const FAR_AWAY: Duration = Duration::from_millis(2);

/// The weight of each member, in their order.
pub(super) fn weights(findings: &Findings, cluster: &Cluster) -> Vec<u32> {
    let members: Vec<(&Member, &Server)> = cluster.servers(findings).collect();
    let nearest = members.iter().map(|(_, server)| server.rtt).min().unwrap_or_default();
    let is_far = |server: &Server| server.rtt > nearest.saturating_mul(2) && server.rtt > nearest + FAR_AWAY;
    let some_are_far = members.iter().any(|(_, server)| is_far(server));
    let preferred = preferred_writer(findings, cluster, &is_far);
    let weight = |(member, server): &(&Member, &Server)| {
        let base = if some_are_far && !is_far(server) { NEAR } else { FAR };
        base + if preferred == Some(member.server) { PREFERRED } else { 0 }
    };
    members.iter().map(weight).collect()
}

/// Whether a weight is that of the preferred writer.
pub(super) fn is_preferred(weight: u32) -> bool {
    weight == NEAR + PREFERRED || weight == FAR + PREFERRED
}

/// Where Weir chooses the writer: the server that the user has named, if it is near and can write, else the first that is
/// and can. A group with one primary and a replication have one already.
fn preferred_writer(
    findings: &Findings,
    cluster: &Cluster,
    is_far: &dyn Fn(&Server) -> bool,
) -> Option<usize> {
    let chooses = matches!(cluster.kind, Kind::Galera { .. } | Kind::Group { has_one_primary: false });
    if !chooses || cluster.members.len() < 2 {
        return None;
    }
    let near = |index: &usize| findings.servers.get(*index).is_some_and(|server| !is_far(server));
    let able: Vec<usize> = cluster.able(findings).filter(near).collect();
    able.iter().copied().find(|index| *index == findings.start).or(able.first().copied())
}

/// The network segment of the nearest node, where there are several.
pub(super) fn preferred_segment(findings: &Findings, cluster: &Cluster) -> Option<u8> {
    let nearest = cluster.servers(findings).min_by_key(|(_, server)| server.rtt)?.0.segment;
    cluster.members.iter().any(|member| member.segment != nearest).then_some(nearest)
}
