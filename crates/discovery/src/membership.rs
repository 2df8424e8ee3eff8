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
    /// In which way.
    pub about: About,
    /// What is so, in words.
    pub text: String,
    /// It is a member that the configuration lacks, and nothing speaks against adding it.
    pub may_be_added: bool,
}

/// What cluster and configuration disagree about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// A member that is not configured.
    Lacking,
    /// A member that is not configured, and was not reached.
    Unreached,
    /// A configured server that is no member.
    Strange,
}

/// Servers as they are configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// Those of the cluster.
    pub members: BTreeSet<Endpoint>,
    /// All others, which somebody wants where they are.
    pub elsewhere: BTreeSet<Endpoint>,
    /// The kind of the cluster ([`Kind::name`]).
    pub kind: &'static str,
}

/// Why a cluster can't be compared with its configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incomparable {
    /// It is nothing that Weir can stand in front of.
    #[error(transparent)]
    Refusal(#[from] Refusal),
    /// Its servers belong to something else.
    #[error("its servers are {found}, not what they are configured as ({configured})")]
    Kind {
        /// What was found.
        found: String,
        /// What it should be.
        configured: &'static str,
    },
}

/// The members that the configuration lacks, and its servers that are no members.
///
/// # Errors
/// When what was found is no such cluster.
pub fn differences(findings: &Findings, configured: &Configured) -> Result<Vec<Difference>, Incomparable> {
    let cluster = Cluster::of(findings)?;
    if cluster.kind.name() != configured.kind {
        return Err(Incomparable::Kind { found: cluster.title(), configured: configured.kind });
    }
    let is_in =
        |names: &BTreeSet<Endpoint>, server: &Server| server.names.iter().any(|name| names.contains(name));
    let is_known =
        |server: &Server| is_in(&configured.members, server) || is_in(&configured.elsewhere, server);
    let is_member = |index: usize| cluster.members.iter().any(|member| member.server == index);
    let strange: Vec<&Server> = findings
        .servers
        .iter()
        .enumerate()
        .filter(|(index, server)| is_in(&configured.members, server) && !is_member(*index))
        .map(|(_, server)| server)
        .collect();
    let doubt = doubt(findings, configured, &strange);
    let lacking = cluster.servers(findings).filter(|(_, server)| !is_known(server));
    let lacking = lacking.map(|(member, server)| lacking_member(member, server, doubt.as_deref()));
    let unreached = findings.unreached.iter().filter(|unreached| {
        is_member_by_name(cluster.kind, unreached)
            && !configured.members.contains(&unreached.endpoint)
            && !configured.elsewhere.contains(&unreached.endpoint)
    });
    let unreached = unreached.map(|unreached| Difference {
        server: unreached.endpoint.clone(),
        about: About::Unreached,
        text: format!("{}, not in mysql_servers, and not reached: {}", unreached.named_by, unreached.reason),
        may_be_added: false,
    });
    let strange = strange.iter().filter_map(|server| {
        let name = server.names.iter().find(|name| configured.members.contains(name))?;
        let text = "in mysql_servers, and no member of the cluster".to_owned();
        Some(Difference { server: name.clone(), about: About::Strange, text, may_be_added: false })
    });
    let mut all: Vec<Difference> = lacking.chain(unreached).chain(strange).collect();
    all.sort();
    Ok(all)
}

/// What speaks against adding servers: all that are configured must be reached, and members of this cluster.
fn doubt(findings: &Findings, configured: &Configured, strange: &[&Server]) -> Option<String> {
    if let Some(missing) = configured.members.iter().find(|name| findings.server(name).is_none()) {
        return Some(format!("it may be {missing} under another name, which was not reached"));
    }
    if let Some(server) = strange.first() {
        return Some(format!("{}, which is configured, is in another cluster", server.endpoint));
    }
    findings.cut_off.clone()
}

fn lacking_member(member: &Member, server: &Server, doubt: Option<&str>) -> Difference {
    let Member { role, state, .. } = member;
    let mut text = format!("a member of the cluster ({role}, {state}), and not in mysql_servers");
    if let Some(doubt) = doubt {
        text.push_str("; ");
        text.push_str(doubt);
    }
    Difference { server: server.endpoint.clone(), about: About::Lacking, text, may_be_added: doubt.is_none() }
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
        let members = configured.iter().map(|name| name.parse().unwrap()).collect();
        let elsewhere = BTreeSet::from(["10.9.9.9:3306".parse().unwrap()]);
        let configured = Configured { members, elsewhere, kind: "galera" };
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
    fn servers_that_somebody_wants_elsewhere_and_other_kinds_are_left_alone() {
        let all = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")];
        let findings =
            findings("10.0.0.1:3306", all.map(|(index, name)| (name, node(index, MEMBERS, |_| {}))).into());
        let of =
            |names: &[usize]| names.iter().map(|at| all[*at].1.parse().unwrap()).collect::<BTreeSet<_>>();
        let configured = Configured { members: of(&[0, 1]), elsewhere: of(&[2]), kind: "galera" };
        assert_eq!(differences(&findings, &configured), Ok(Vec::new()));
        let configured = Configured { kind: "replication", ..configured };
        assert!(matches!(differences(&findings, &configured), Err(Incomparable::Kind { .. })));
    }

    #[test]
    fn a_server_of_another_cluster_keeps_all_others_out() {
        const OTHERS: &str = "10.9.0.1:3306,10.9.0.2:3306";
        let mut visits: Vec<_> = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")]
            .map(|(index, name)| (name, node(index, MEMBERS, |_| {})))
            .into();
        visits.push((
            "10.9.0.1:3306",
            node(0, OTHERS, |answers| {
                for (name, value) in &mut answers.status {
                    if name == "wsrep_cluster_state_uuid" || name == "wsrep_gcomm_uuid" {
                        value.push('x');
                    }
                }
            }),
        ));
        let findings = findings("10.0.0.1:3306", visits);
        let names = ["10.0.0.1:3306", "10.0.0.2:3306", "10.9.0.1:3306"];
        let members = names.iter().map(|name| name.parse().unwrap()).collect();
        let configured = Configured { members, elsewhere: BTreeSet::new(), kind: "galera" };
        let found = differences(&findings, &configured).unwrap();
        assert!(found.iter().all(|found| !found.may_be_added), "{found:?}");
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
