//! Checks how kinds of clusters are told apart, and what is remarked.

use super::*;
use crate::facts::{Answers, NamedRow, Refused};
use crate::findings::Reached;
use crate::findings::tests::{findings, reached};

fn row(columns: &[(&str, &str)]) -> NamedRow {
    let column = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
    NamedRow(columns.iter().map(column).collect())
}

/// A Galera node with an index among these members.
pub(crate) fn node(index: usize, members: &str, change: impl FnOnce(&mut Answers)) -> Reached {
    let size = members.split(',').count().to_string();
    let (index, name) = (index.to_string(), format!("n{}", index + 1));
    let status = [
        ("wsrep_cluster_status", "Primary"),
        ("wsrep_cluster_state_uuid", "c1"),
        ("wsrep_cluster_size", &size),
        ("wsrep_incoming_addresses", members),
        ("wsrep_local_index", &index),
        ("wsrep_local_state", "4"),
        ("wsrep_gcomm_uuid", &name),
    ];
    let variables = [
        ("version", "10.11.6-MariaDB"),
        ("port", "3306"),
        ("read_only", "OFF"),
        ("wsrep_on", "ON"),
        ("wsrep_provider", "galera.so"),
        ("wsrep_cluster_name", "shop"),
        ("wsrep_node_name", &name),
        ("wsrep_reject_queries", "NONE"),
    ];
    let status = status.map(|(name, value)| (name.to_owned(), value.to_owned()));
    reached(&variables, |answers| {
        answers.status = status.to_vec();
        change(answers);
    })
}

/// A server that replicates from another, or from none.
pub(crate) fn server(id: &str, is_read_only: bool, source: Option<&str>) -> Reached {
    let read_only = if is_read_only { "ON" } else { "OFF" };
    let variables = [
        ("version", "9.1.0"),
        ("hostname", "h"),
        ("port", "3306"),
        ("server_id", id),
        ("read_only", read_only),
        ("log_bin", "ON"),
        ("log_replica_updates", "ON"),
        ("gtid_mode", "ON"),
    ];
    reached(&variables, |answers| {
        answers.sources = source
            .map(|host| {
                row(&[
                    ("Source_Host", host),
                    ("Source_Port", "3306"),
                    ("Replica_IO_Running", "Yes"),
                    ("Replica_SQL_Running", "Yes"),
                    ("Seconds_Behind_Source", "0"),
                    ("Auto_Position", "1"),
                ])
            })
            .into_iter()
            .collect();
    })
}

fn remarks(cluster: &Cluster) -> String {
    cluster.remarks.iter().map(|remark| format!("{remark}\n")).collect()
}

fn roles(cluster: &Cluster) -> Vec<(&str, &str)> {
    cluster.members.iter().map(|member| (member.role.as_str(), member.state.as_str())).collect()
}

const THREE: &str = "10.0.0.1:3306,10.0.0.2:3306,10.0.0.3:3306";

#[test]
fn a_galera_cluster_of_three() {
    let nodes = ["10.0.0.1:3306", "10.0.0.2:3306", "10.0.0.3:3306"];
    let nodes = nodes.into_iter().enumerate().map(|(index, name)| (name, node(index, THREE, |_| {})));
    let found = findings("10.0.0.2:3306", nodes.collect());
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(
        (cluster.kind, cluster.title().as_str()),
        (Kind::Galera { arbitrators: 0 }, "Galera cluster \"shop\", 3 nodes")
    );
    assert_eq!(roles(&cluster), [("node", "Synced"); 3]);
    assert_eq!(remarks(&cluster), "");
    assert_eq!(cluster.origin(&found).unwrap().endpoint.to_string(), "10.0.0.2:3306");
}

#[test]
fn an_arbitrator_and_an_even_number_are_told() {
    let members = "10.0.0.1:3306,,10.0.0.2:3306,10.0.0.3:3306";
    let nodes = [(0, "10.0.0.1:3306"), (2, "10.0.0.2:3306"), (3, "10.0.0.3:3306")];
    let found =
        findings("10.0.0.1:3306", nodes.map(|(index, name)| (name, node(index, members, |_| {}))).to_vec());
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(cluster.kind, Kind::Galera { arbitrators: 1 });
    let told = remarks(&cluster);
    assert!(
        told.contains("the cluster has 4 members: if half") && told.contains("an arbitrator (garbd)"),
        "{told}"
    );
}

#[test]
fn nodes_that_can_not_write_are_told_and_are_no_origin() {
    let set = |answers: &mut Answers, name: &str, value: &str| {
        let rows = answers.status.iter_mut().chain(&mut answers.variables);
        rows.filter(|(found, _)| found == name).for_each(|row| row.1 = value.to_owned());
    };
    let found = findings(
        "10.0.0.1:3306",
        vec![
            ("10.0.0.1:3306", node(0, THREE, |answers| set(answers, "wsrep_local_state", "2"))),
            ("10.0.0.2:3306", node(1, THREE, |answers| set(answers, "wsrep_cluster_status", "non-Primary"))),
            ("10.0.0.3:3306", node(2, THREE, |_| {})),
        ],
    );
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(
        roles(&cluster),
        [("node", "Donor/Desynced"), ("node", "non-Primary, no quorum"), ("node", "Synced")]
    );
    assert!(remarks(&cluster).contains("10.0.0.1:3306: the node takes no writes now: it is Donor/Desynced"));
    assert_eq!(cluster.origin(&found).unwrap().endpoint.to_string(), "10.0.0.3:3306");
    let alone = findings(
        "10.0.0.2:3306",
        vec![(
            "10.0.0.2:3306",
            node(1, THREE, |answers| set(answers, "wsrep_cluster_status", "non-Primary")),
        )],
    );
    assert_eq!(Cluster::of(&alone), Err(Refusal::NoPrimaryComponent { name: "shop".to_owned() }));
}

#[test]
fn members_that_were_not_found_are_counted() {
    let found = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", node(0, "AUTO,AUTO,AUTO", |_| {}))]);
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(cluster.members.len(), 1);
    assert!(remarks(&cluster).contains("the cluster has 3 members, and 2 of them were not found"));
}

#[test]
fn a_source_its_replicas_and_theirs() {
    let found = findings(
        "10.0.0.3:3306",
        vec![
            ("10.0.0.1:3306", server("1", false, None)),
            ("10.0.0.2:3306", server("2", true, Some("10.0.0.1"))),
            ("10.0.0.3:3306", server("3", true, Some("10.0.0.2"))),
        ],
    );
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!((cluster.kind, cluster.title().as_str()), (Kind::Replication, "a source and 2 replicas"));
    assert_eq!(
        roles(&cluster),
        [
            ("source", "takes writes"),
            ("replica of 10.0.0.1:3306", "0 s behind"),
            ("replica of 10.0.0.2:3306", "0 s behind")
        ]
    );
    assert_eq!(cluster.origin(&found).unwrap().endpoint.to_string(), "10.0.0.1:3306");
    assert_eq!(
        remarks(&cluster),
        "10.0.0.3:3306: replicates from 10.0.0.2:3306, which replicates itself: it is behind by both\n"
    );
}

#[test]
fn two_that_would_get_writes_are_refused() {
    let two = vec![
        ("10.0.0.1:3306", server("1", false, None)),
        ("10.0.0.2:3306", server("2", false, Some("10.0.0.1"))),
    ];
    let refused = Cluster::of(&findings("10.0.0.1:3306", two)).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("10.0.0.1:3306, 10.0.0.2:3306 are not read_only"), "{text}");
}

#[test]
fn a_replica_that_takes_writes_is_no_source() {
    let alone = vec![("10.0.0.2:3306", server("2", false, Some("10.0.0.1")))];
    let refused = Cluster::of(&findings("10.0.0.2:3306", alone)).unwrap_err().to_string();
    assert!(
        refused.starts_with("10.0.0.2:3306 takes writes and replicates from 10.0.0.1:3306,"),
        "{refused}"
    );
    let source_is_read_only = vec![
        ("10.0.0.1:3306", server("1", true, None)),
        ("10.0.0.2:3306", server("2", false, Some("10.0.0.1"))),
    ];
    let refused = Cluster::of(&findings("10.0.0.1:3306", source_is_read_only)).unwrap_err();
    assert!(matches!(refused, Refusal::WriterReplicates(..)), "{refused}");
}

#[test]
fn a_replica_of_two_sources_is_refused() {
    let mut both = server("3", true, Some("10.0.0.1"));
    both.facts.sources.extend(server("3", true, Some("10.0.0.2")).facts.sources);
    let three = vec![
        ("10.0.0.1:3306", server("1", false, None)),
        ("10.0.0.2:3306", server("2", true, None)),
        ("10.0.0.3:3306", both),
    ];
    let refused = Cluster::of(&findings("10.0.0.1:3306", three)).unwrap_err();
    assert!(matches!(refused, Refusal::SeveralSources { .. }), "{refused}");
}

#[test]
fn where_nobody_takes_writes_that_is_told() {
    let found = findings("10.0.0.2:3306", vec![("10.0.0.2:3306", server("2", true, Some("10.0.0.1")))]);
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!((cluster.kind, cluster.writer), (Kind::Replication, None));
    let told = remarks(&cluster);
    assert!(
        told.contains("its source was not reached") && told.contains("is read_only: until one"),
        "{told}"
    );
    assert_eq!(cluster.origin(&found), None);
}

#[test]
fn what_was_refused_is_told_where_members_may_be_missing() {
    let refused = |statement| Refused { statement, lost: "its replicas", cause: "denied".to_owned() };
    let mut alone = server("1", false, None);
    alone.facts.refused = vec![refused("SHOW REPLICAS"), refused("SHOW GRANTS")];
    let cluster = Cluster::of(&findings("10.0.0.1:3306", vec![("10.0.0.1:3306", alone)])).unwrap();
    assert_eq!(
        remarks(&cluster),
        "10.0.0.1:3306: the account is not told its replicas (denied): servers may be missing\n"
    );
    let mut one = node(0, "10.0.0.1:3306", |_| {});
    one.facts.refused = vec![refused("SHOW SLAVE HOSTS")];
    let cluster = Cluster::of(&findings("10.0.0.1:3306", vec![("10.0.0.1:3306", one)])).unwrap();
    assert_eq!(remarks(&cluster), "");
}

#[test]
fn a_server_of_its_own() {
    let found = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", server("1", false, None))]);
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!((cluster.kind, roles(&cluster)), (Kind::Single, vec![("server", "takes writes")]));
}

#[test]
fn risks_are_told_once_for_all_servers() {
    let risky = |index| {
        node(index, THREE, |answers| {
            answers.variables.push(("innodb_flush_log_at_trx_commit".to_owned(), "2".to_owned()));
        })
    };
    let nodes = [(0, "10.0.0.1:3306"), (1, "10.0.0.2:3306"), (2, "10.0.0.3:3306")];
    let found = findings("10.0.0.1:3306", nodes.map(|(index, name)| (name, risky(index))).to_vec());
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(cluster.remarks.len(), 1);
    assert!(remarks(&cluster).starts_with("10.0.0.1:3306, 10.0.0.2:3306, 10.0.0.3:3306: innodb_flush_log"));
}

#[test]
fn servers_of_others_are_left_out() {
    let stranger = node(0, "10.0.0.9:3306", |answers| {
        answers
            .variables
            .iter_mut()
            .filter(|(name, _)| name == "wsrep_cluster_name")
            .for_each(|row| row.1 = "x".to_owned());
        answers
            .status
            .iter_mut()
            .filter(|(name, _)| name == "wsrep_gcomm_uuid")
            .for_each(|row| row.1 = "x1".to_owned());
    });
    let found = findings(
        "10.0.0.1:3306",
        vec![("10.0.0.1:3306", node(0, "10.0.0.1:3306", |_| {})), ("10.0.0.9:3306", stranger)],
    );
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(cluster.members.len(), 1);
    assert!(remarks(&cluster).contains("10.0.0.9:3306: was found, but belongs to another cluster"));
}

#[test]
fn a_cluster_that_replicates_from_the_server_is_not_written_to() {
    let replicates = |answers: &mut Answers| {
        answers.sources = vec![row(&[("Master_Host", "10.0.0.9"), ("Master_Port", "3306")])];
    };
    let servers = || {
        vec![
            ("10.0.0.1:3306", node(0, "10.0.0.1:3306", replicates)),
            ("10.0.0.9:3306", server("9", false, None)),
        ]
    };
    let found = findings("10.0.0.9:3306", servers());
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!(cluster.kind, Kind::Single);
    assert_eq!(cluster.origin(&found).unwrap().endpoint.to_string(), "10.0.0.9:3306");
    assert!(remarks(&cluster).contains("10.0.0.1:3306: was found, but belongs to another cluster"));
    let refused = Cluster::of(&findings("10.0.0.1:3306", servers())).unwrap_err();
    assert!(matches!(refused, Refusal::ClusterReplicates(..)), "{refused}");
}

#[test]
fn a_replica_of_a_node_leads_to_its_cluster() {
    let servers = vec![
        ("10.0.0.1:3306", node(0, "10.0.0.1:3306", |_| {})),
        ("10.0.0.8:3306", server("8", true, Some("10.0.0.1"))),
        ("10.0.0.9:3306", server("9", true, Some("10.0.0.8"))),
    ];
    let cluster = Cluster::of(&findings("10.0.0.9:3306", servers)).unwrap();
    assert_eq!((cluster.kind, cluster.members.len()), (Kind::Galera { arbitrators: 0 }, 1));
}

#[test]
fn no_account_is_made_on_a_single_server_that_is_read_only() {
    let found = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", server("1", true, None))]);
    let cluster = Cluster::of(&found).unwrap();
    assert_eq!((cluster.kind, cluster.origin(&found)), (Kind::Single, None));
    assert!(remarks(&cluster).contains("the server is read_only"));
}
