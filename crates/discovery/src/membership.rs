//! Compares a cluster with the servers that a configuration has of it.

use std::collections::BTreeSet;

use weir_topology::Endpoint;

use crate::cluster::{Cluster, Kind, Member, Refusal};
use crate::findings::{Findings, NamedBy, Server, Unreached};

/// A server of which cluster and configuration do not say the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// Which.
    pub server: Endpoint,
    /// What is so.
    pub text: String,
    /// It is a member that the configuration lacks, and none of the others under another name.
    pub may_be_added: bool,
}

/// The members that the configuration lacks, and its servers that are no members. `configured` has those of the cluster.
///
/// # Errors
/// When what was found is nothing that Weir can stand in front of.
pub fn differences(findings: &Findings, configured: &BTreeSet<Endpoint>) -> Result<Vec<Difference>, Refusal> {
    let cluster = Cluster::of(findings)?;
    let is_configured = |server: &Server| server.names.iter().any(|name| configured.contains(name));
    let missing = configured.iter().find(|name| findings.server(name).is_none());
    let lacking = cluster
        .servers(findings)
        .filter(|(_, server)| !is_configured(server))
        .map(|(member, server)| lacking(member, server, missing));
    let unreached = findings.unreached.iter().filter(|unreached| {
        is_member_by_name(cluster.kind, unreached) && !configured.contains(&unreached.endpoint)
    });
    let unreached = unreached.map(|unreached| Difference {
        server: unreached.endpoint.clone(),
        text: format!("{}, not in mysql_servers, and not reached: {}", unreached.named_by, unreached.reason),
        may_be_added: false,
    });
    let is_member = |index: usize| cluster.members.iter().any(|member| member.server == index);
    let strange = findings
        .servers
        .iter()
        .enumerate()
        .filter(|(index, server)| is_configured(server) && !is_member(*index));
    let strange = strange.filter_map(|(_, server)| {
        let server = server.names.iter().find(|name| configured.contains(name))?.clone();
        let text = "in mysql_servers, and no member of the cluster".to_owned();
        Some(Difference { server, text, may_be_added: false })
    });
    let mut all: Vec<Difference> = lacking.chain(unreached).chain(strange).collect();
    all.sort();
    Ok(all)
}

fn lacking(member: &Member, server: &Server, missing: Option<&Endpoint>) -> Difference {
    let Member { role, state, .. } = member;
    let mut text = format!("a member of the cluster ({role}, {state}), and not in mysql_servers");
    if let Some(missing) = missing {
        text.push_str(&format!("; it may be {missing} under another name, which was not reached"));
    }
    Difference { server: server.endpoint.clone(), text, may_be_added: missing.is_none() }
}

/// Whether members that were reached say that it is one, now.
fn is_member_by_name(kind: Kind, unreached: &Unreached) -> bool {
    match kind {
        Kind::Galera { .. } | Kind::Group { .. } => unreached.named_by == NamedBy::Member,
        Kind::Replication | Kind::Single => {
            matches!(unreached.named_by, NamedBy::Source | NamedBy::Registered)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::node;
    use crate::findings::tests::findings;

    const MEMBERS: &str = "10.0.0.1:3306,10.0.0.2:3306,10.0.0.3:3306";

    fn told(names: &[(usize, &str)], configured: &[&str]) -> Vec<(String, bool, String)> {
        let visits = names.iter().map(|(index, name)| (*name, node(*index, MEMBERS, |_| {})));
        let findings = findings(names[0].1, visits.collect());
        let configured = configured.iter().map(|name| name.parse().unwrap()).collect();
        let found = differences(&findings, &configured).unwrap();
        found.into_iter().map(|found| (found.server.to_string(), found.may_be_added, found.text)).collect()
    }

    #[test]
    fn a_member_that_is_not_configured_may_be_added() {
        let all = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")];
        assert_eq!(told(&all, &["10.0.0.1:3306", "10.0.0.2:3306", "10.0.0.3:3306"]), []);
        let [(server, may_be_added, text)] = &told(&all, &["10.0.0.1:3306", "10.0.0.2:3306"])[..] else {
            panic!("one server")
        };
        assert_eq!((server.as_str(), *may_be_added), ("10.0.0.3:3306", true));
        assert!(text.ends_with("and not in mysql_servers"), "{text}");
    }

    #[test]
    fn a_server_has_one_row_whatever_its_name() {
        let named = [(0, "db1:3306"), (0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")];
        assert_eq!(told(&named, &["db1:3306", "10.0.0.2:3306", "10.0.0.3:3306"]), []);
    }

    #[test]
    fn while_one_is_not_reached_it_may_be_the_other() {
        let all = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")];
        let told = told(&all, &["10.0.0.1:3306", "10.0.0.2:3306", "db3:3306"]);
        let [(server, false, text)] = &told[..] else { panic!("{told:?}") };
        assert_eq!(server, "10.0.0.3:3306");
        assert!(text.contains("it may be db3:3306 under another name"), "{text}");
    }
}
