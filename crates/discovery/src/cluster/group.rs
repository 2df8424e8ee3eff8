//! Lists the members of a Group Replication group.

use super::{Cluster, Kind, Member, Refusal, Remark};
use crate::facts::GroupFacts;
use crate::findings::Findings;
use weir_topology::MemberState;

/// The group to which a member belongs.
pub(super) fn cluster(findings: &Findings, wanted: &GroupFacts) -> Result<Cluster, Refusal> {
    let is_online = |group: &GroupFacts| {
        group.own().is_some_and(|own| own.state == MemberState::Online) && group.state.has_quorum()
    };
    let is_same = |group: &GroupFacts| group.state.group_name == wanted.state.group_name;
    let servers = || {
        let servers = findings.servers.iter().enumerate();
        servers.filter_map(|(index, server)| Some((index, server, server.facts.group.as_ref()?)))
    };
    let view = match is_online(wanted) {
        true => Some(wanted),
        false => servers().map(|(_, _, group)| group).find(|group| is_same(group) && is_online(group)),
    };
    let view = view.ok_or(Refusal::NoGroup)?;
    let (mut members, mut remarks, mut writer) = (Vec::new(), Vec::new(), None);
    for (index, server, group) in servers().filter(|(_, _, group)| is_same(group)) {
        let seen = view.state.member(&group.state.server_uuid);
        let is_primary = seen.is_some_and(|seen| seen.is_primary);
        let state = seen.map_or("in no view of the group", |seen| seen.state.name());
        if seen.is_none_or(|seen| seen.state != MemberState::Online) {
            remarks.push(Remark::of(
                &server.endpoint,
                format!("the member takes no statements now: it is {state}"),
            ));
        }
        writer = writer.or(is_primary.then_some(index));
        let read_only = if server.facts.is_read_only { ", read_only" } else { "" };
        let role = if is_primary { "primary" } else { "secondary" };
        let (role, state) = (role.to_owned(), format!("{state}{read_only}"));
        members.push(Member { server: index, role, state, segment: 0 });
    }
    let (size, has_one_primary) = (view.state.members.len(), view.state.single_primary);
    if size.is_multiple_of(2) && size > 0 {
        remarks.push(Remark::of_cluster(format!(
            "the group has {size} members: if half of them are lost at once, the others stop too; add a member"
        )));
    }
    if !has_one_primary {
        remarks.push(Remark::of_cluster(
            "every member of the group is a primary: Weir writes to one of them, and makes another one the writer when that is lost",
        ));
        writer = None;
    }
    let kind = Kind::Group { has_one_primary };
    Ok(Cluster { kind, name: view.state.group_name.clone(), members, writer, remarks })
}
