//! Tells what holds for every kind of cluster: settings with which data is lost, different versions, servers that
//! could not tell everything.

use std::collections::{BTreeMap, BTreeSet};

use weir_topology::{Endpoint, Risk};

use super::{Kind, Member, Remark};
use crate::facts::Refused;
use crate::findings::Findings;

/// What is to be said of the members, and of servers that were found beside them.
pub(super) fn of_all(findings: &Findings, kind: Kind, members: &[Member]) -> Vec<Remark> {
    let is_member = |index: usize| members.iter().any(|member| member.server == index);
    let mut remarks = Vec::new();
    let mut versions: BTreeMap<String, Vec<Endpoint>> = BTreeMap::new();
    for (index, server) in findings.servers.iter().enumerate() {
        let (endpoint, facts) = (&server.endpoint, &server.facts);
        if !is_member(index) {
            let text = "was found, but belongs to another cluster or to none: it is left out";
            remarks.push(Remark::of(endpoint, text));
            continue;
        }
        versions.entry(facts.server_name()).or_default().push(endpoint.clone());
        for Risk { setting, effect, remedy } in &facts.settings.risks {
            remarks.push(Remark::of(endpoint, format!("{setting}: {effect}; set {remedy}")));
        }
        for refused in facts.refused.iter().filter(|refused| counts(kind, refused)) {
            let (lost, cause) = (refused.lost, &refused.cause);
            remarks.push(Remark::of(
                endpoint,
                format!("the account is not told {lost} ({cause}): servers may be missing"),
            ));
        }
    }
    if versions.len() > 1 {
        let of =
            |(version, servers): (&String, &Vec<Endpoint>)| format!("{version} ({})", super::listed(servers));
        let list: Vec<String> = versions.iter().map(of).collect();
        let list = list.join(", ");
        remarks.push(Remark::of_cluster(format!("the servers have different versions: {list}")));
    }
    if kind == Kind::Single && !findings.unreached.is_empty() {
        remarks.push(Remark::of_cluster(
            "servers that belong to it were not reached: it is taken for a single server; run this again when they are there",
        ));
    }
    let cut_off = findings.cut_off.iter();
    remarks.extend(cut_off.map(|why| Remark::of_cluster(format!("servers may be missing: {why}"))));
    remarks
}

/// Whether members may be missing because of it: those of a Galera cluster or a group are known without replication.
fn counts(kind: Kind, refused: &Refused) -> bool {
    let is_of_replication = ["SHOW ", "information_schema.PROCESSLIST", "performance_schema.threads"]
        .iter()
        .any(|word| refused.statement.contains(word));
    match kind {
        Kind::Galera { .. } => refused.statement.contains("GLOBAL STATUS"),
        Kind::Group { .. } => refused.statement.contains("replication_group_members"),
        Kind::Replication | Kind::Single => is_of_replication && refused.statement != "SHOW GRANTS",
    }
}

/// The same said of several servers is said once.
pub(super) fn gathered(remarks: Vec<Remark>) -> Vec<Remark> {
    let mut order: Vec<String> = Vec::new();
    let mut of_text: BTreeMap<String, BTreeSet<Endpoint>> = BTreeMap::new();
    for Remark { servers, text } in remarks {
        if !of_text.contains_key(&text) {
            order.push(text.clone());
        }
        of_text.entry(text).or_default().extend(servers);
    }
    let gathered = order.into_iter().map(|text| {
        let servers = of_text.remove(&text).unwrap_or_default().into_iter().collect();
        Remark { servers, text }
    });
    gathered.collect()
}
