//! Lists the nodes of a Galera cluster.

use weir_topology::{GaleraState, LocalState, Maintenance};

use super::{Cluster, Kind, Member, Refusal, Remark};
use crate::facts::GaleraFacts;
use crate::findings::Findings;

/// The cluster to which a node belongs, whose history is that of the nodes with quorum.
pub(super) fn cluster(findings: &Findings, wanted: &GaleraFacts) -> Result<Cluster, Refusal> {
    let nodes = || {
        let servers = findings.servers.iter().enumerate();
        servers.filter_map(|(index, server)| Some((index, server, server.facts.galera.as_ref()?)))
    };
    let is_same = |node: &GaleraFacts| node.cluster_name == wanted.cluster_name;
    let reference = match wanted.state.is_primary() {
        true => Some(wanted),
        false => nodes().map(|(_, _, node)| node).find(|node| is_same(node) && node.state.is_primary()),
    };
    let Some(reference) = reference else {
        return Err(Refusal::NoPrimaryComponent { name: wanted.cluster_name.clone() });
    };
    let history = &reference.state.cluster_state_uuid;
    let (mut members, mut remarks) = (Vec::new(), Vec::new());
    for (index, server, node) in nodes() {
        let state = &node.state;
        if !is_same(node) || (state.is_primary() && state.cluster_state_uuid != *history) {
            continue;
        }
        let mut words = vec![state.local_state.name().to_owned()];
        if !state.is_primary() {
            words = vec![format!("{}, no quorum", state.cluster_status)];
        }
        words.extend(hindrances(state).map(str::to_owned));
        if !is_able(node) {
            let now = words.join(", ");
            remarks.push(Remark::of(&server.endpoint, format!("the node takes no writes now: it is {now}")));
        }
        let (role, segment) = ("node".to_owned(), state.segment);
        members.push(Member { server: index, role, state: words.join(", "), segment });
    }
    let arbitrators = arbitrators(&reference.state);
    remarks.extend(of_size(&reference.state, members.len(), arbitrators));
    let name = reference.cluster_name.clone();
    Ok(Cluster { kind: Kind::Galera { arbitrators }, name, members, writer: None, remarks })
}

/// Whether a node could take writes.
pub(super) fn is_able(node: &GaleraFacts) -> bool {
    let state = &node.state;
    state.is_primary() && state.local_state == LocalState::Synced && hindrances(state).next().is_none()
}

fn hindrances(state: &GaleraState) -> impl Iterator<Item = &'static str> {
    let hindrances = [
        (state.read_only, "read_only"),
        (state.desync, "wsrep_desync"),
        (state.reject_queries, "wsrep_reject_queries"),
        (state.maintenance != Maintenance::None, "in maintenance (pxc_maint_mode)"),
    ];
    hindrances.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word)
}

/// Members of the view without an address for clients, which is what garbd has.
fn arbitrators(state: &GaleraState) -> usize {
    let size = usize::try_from(state.cluster_size).unwrap_or(0);
    let empty = state.members.iter().filter(|member| member.is_empty()).count();
    // A node that was not told its address says AUTO. An empty list is one empty member.
    if state.members.len() < size.max(1) || size <= 1 { 0 } else { empty }
}

fn of_size(state: &GaleraState, found: usize, arbitrators: usize) -> Vec<Remark> {
    let size = usize::try_from(state.cluster_size).unwrap_or(0);
    let mut remarks = Vec::new();
    if size > found + arbitrators {
        let missing = size - found - arbitrators;
        remarks.push(Remark::of_cluster(format!(
            "the cluster has {size} members, and {missing} of them were not found: their wsrep_node_incoming_address tells \
             nothing; add them to mysql_servers"
        )));
    }
    if size > 0 && size.is_multiple_of(2) {
        let advice = if size == 2 {
            "add a third node, or garbd on a third host"
        } else {
            "add garbd on another host"
        };
        remarks.push(Remark::of_cluster(format!(
            "the cluster has {size} members: if half of them are lost at once, the others stop too; {advice}"
        )));
    }
    if arbitrators > 0 {
        remarks.push(Remark::of_cluster(format!(
            "{arbitrators} of the {size} members has no address for clients: an arbitrator (garbd), which takes no statements; \
             dead nodes are not evicted then, as Weir can't ask it"
        )));
    }
    remarks
}
