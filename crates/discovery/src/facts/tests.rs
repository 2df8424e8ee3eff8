//! Checks what is read from the answers of servers.

use super::*;
use crate::findings::NamedBy;
use weir_topology::{Endpoint, Link, MemberState};

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn row(columns: &[(&str, &str)]) -> NamedRow {
    let column = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
    NamedRow(columns.iter().map(column).collect())
}

/// Each peer as `how it was named, where`.
fn named(facts: &Facts) -> Vec<(NamedBy, String)> {
    peers(facts).into_iter().map(|peer| (peer.by, peer.endpoint.to_string())).collect()
}

/// A node of a cluster whose members have these addresses.
fn node(incoming: &str) -> Answers {
    Answers {
        variables: pairs(&[
            ("version", "10.11.6-MariaDB-log"),
            ("hostname", "db1"),
            ("port", "3306"),
            ("server_id", "1"),
            ("read_only", "OFF"),
            ("wsrep_on", "ON"),
            ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"),
            ("wsrep_cluster_name", "shop"),
            ("wsrep_cluster_address", "gcomm://10.0.0.11:4567,10.0.0.12,[fd00::3]:4567?pc.wait_prim=no"),
            ("wsrep_provider_options", "gmcast.segment = 2; evs.keepalive_period = PT1S"),
        ]),
        status: pairs(&[
            ("wsrep_cluster_status", "Primary"),
            ("wsrep_cluster_size", "3"),
            ("wsrep_incoming_addresses", incoming),
            ("wsrep_local_index", "0"),
            ("wsrep_local_state", "4"),
            ("wsrep_gcomm_uuid", "a1"),
        ]),
        ..Answers::default()
    }
}

#[test]
fn a_galera_node_names_its_cluster_and_itself() {
    let facts = Facts::from_answers(&node("10.0.0.11:3306,10.0.0.12:3307,[fd00::3]:3306"));
    let galera = facts.galera.as_ref().unwrap();
    assert_eq!((galera.cluster_name.as_str(), galera.state.segment), ("shop", 2));
    assert_eq!((facts.product, facts.version_number), (Product::MariaDb, (10, 11, 6)));
    assert_eq!(facts.identity(), Identity::Uuid("a1".to_owned()));
    use NamedBy::{Member, Seed};
    let wanted = [
        (Member, "10.0.0.11:3306"),
        (Seed, "10.0.0.11:3306"),
        (Seed, "10.0.0.12:3306"),
        (Member, "10.0.0.12:3307"),
        (Member, "[fd00::3]:3306"),
        (Seed, "[fd00::3]:3306"),
    ];
    assert_eq!(named(&facts), wanted.map(|(by, name)| (by, name.to_owned())));
    let own: Vec<_> = peers(&facts).into_iter().filter(|peer| peer.identity.is_some()).collect();
    assert_eq!(own.len(), 1);
    assert_eq!(own[0].endpoint, Endpoint::new("10.0.0.11", 3306));
}

#[test]
fn members_without_an_address_are_nowhere() {
    for incoming in
        ["", ",,", "AUTO,AUTO,AUTO", "10.0.0.11:0,unspecified,0.0.0.0:3306", "NULL:3306, ,[::]:3306"]
    {
        let facts = Facts::from_answers(&node(incoming));
        assert!(named(&facts).iter().all(|(by, _)| *by == NamedBy::Seed), "{incoming}: {:?}", named(&facts));
    }
    // All call themselves the same, which tells nobody apart.
    let facts = Facts::from_answers(&node("127.0.0.1:3306,127.0.0.1:3306,127.0.0.1:3306"));
    assert!(peers(&facts).iter().all(|peer| peer.identity.is_none()));
}

#[test]
fn a_server_without_a_provider_is_no_node() {
    for (variable, value) in [("wsrep_provider", "none"), ("wsrep_on", "OFF"), ("wsrep_provider", "")] {
        let mut answers = node("10.0.0.11:3306");
        answers
            .variables
            .iter_mut()
            .filter(|(name, _)| name == variable)
            .for_each(|row| row.1 = value.to_owned());
        assert!(Facts::from_answers(&answers).galera.is_none(), "{variable} = {value}");
    }
}

#[test]
fn a_member_of_a_group_names_all_with_their_uuids() {
    let (one, two) = ("3E11FA47-71CA-11E1-9E33-C80AA9429562", "3e11fa47-71ca-11e1-9e33-c80aa9429563");
    let member = |id, host, state, role| {
        row(&[
            ("MEMBER_ID", id),
            ("MEMBER_HOST", host),
            ("MEMBER_PORT", "3306"),
            ("MEMBER_STATE", state),
            ("MEMBER_ROLE", role),
        ])
    };
    let answers = Answers {
        variables: pairs(&[
            ("version", "8.4.3"),
            ("version_comment", "MySQL Community Server - GPL"),
            ("server_uuid", one),
            ("gtid_mode", "ON"),
            ("super_read_only", "ON"),
            ("read_only", "OFF"),
            ("group_replication_group_name", "aaaa"),
            ("group_replication_single_primary_mode", "ON"),
        ]),
        members: vec![
            member(one, "db1", "ONLINE", "SECONDARY"),
            member(two, "db2", "UNREACHABLE", "PRIMARY"),
        ],
        sources: vec![row(&[("Channel_Name", "group_replication_applier"), ("Source_Host", "<NULL>")])],
        ..Answers::default()
    };
    let facts = Facts::from_answers(&answers);
    let group = facts.group.as_ref().unwrap();
    assert_eq!(group.own().map(|own| own.state), Some(MemberState::Online));
    assert!(group.state.single_primary && facts.is_read_only && facts.sources.is_empty());
    assert_eq!(facts.product, Product::MySql);
    let identities: Vec<_> =
        peers(&facts).into_iter().map(|peer| (peer.endpoint.to_string(), peer.identity)).collect();
    let uuid = |id: &str| Some(Identity::Uuid(id.to_ascii_lowercase()));
    assert_eq!(identities, [("db1:3306".to_owned(), uuid(one)), ("db2:3306".to_owned(), uuid(two))]);
    assert_eq!(Some(facts.identity()), uuid(one));
}

#[test]
fn replicas_are_where_they_say_and_else_where_they_come_from() {
    let answers = Answers {
        variables: pairs(&[("version", "9.1.0"), ("port", "3306"), ("server_id", "1")]),
        replicas: vec![
            row(&[("Server_Id", "2"), ("Host", "db2"), ("Port", "3307"), ("Replica_UUID", "u-2")]),
            row(&[("Server_Id", "3"), ("Host", ""), ("Port", "3308"), ("Replica_UUID", "u-3")]),
        ],
        dump_hosts: vec!["10.0.0.2:51234".to_owned(), "10.0.0.3:51235".to_owned()],
        ..Answers::default()
    };
    let facts = Facts::from_answers(&answers);
    use NamedBy::{BinlogReader, Registered};
    let wanted = [
        (BinlogReader, "10.0.0.2:3306"),
        (BinlogReader, "10.0.0.2:3308"),
        (BinlogReader, "10.0.0.3:3306"),
        (BinlogReader, "10.0.0.3:3308"),
        (Registered, "db2:3307"),
    ];
    assert_eq!(named(&facts), wanted.map(|(by, name)| (by, name.to_owned())));
}

#[test]
fn a_replica_names_each_of_its_sources() {
    let mysql = row(&[
        ("Channel_Name", ""),
        ("Source_Host", "db1"),
        ("Source_Port", "3306"),
        ("Source_UUID", "u-1"),
        ("Replica_IO_Running", "Yes"),
        ("Replica_SQL_Running", "Yes"),
        ("Seconds_Behind_Source", "4"),
        ("Auto_Position", "1"),
    ]);
    let mariadb = row(&[
        ("Connection_name", "second"),
        ("Master_Host", "db9"),
        ("Master_Port", "3306"),
        ("Slave_IO_Running", "No"),
        ("Slave_SQL_Running", "Yes"),
        ("Using_Gtid", "No"),
    ]);
    let facts = Facts::from_answers(&Answers { sources: vec![mysql, mariadb], ..Answers::default() });
    let told: Vec<_> =
        facts.sources.iter().map(|source| (source.link.link, source.lag_s, source.uses_gtids)).collect();
    assert_eq!(told, [(Link::Up, Some(4), true), (Link::Idle, None, false)]);
    let places: Vec<_> = named(&facts).into_iter().map(|(_, name)| name).collect();
    assert_eq!(places, ["db1:3306", "db9:3306"]);
    // Nothing was said of it, so it takes no writes.
    assert!(facts.is_read_only);
}

#[test]
fn products_and_versions() {
    for (version, comment, wanted) in [
        ("10.11.6-MariaDB-0+deb12u1-log", "Debian 12", "MariaDB 10.11.6"),
        ("5.5.5-10.6.12-MariaDB", "", "MariaDB 10.6.12"),
        ("8.0.36-28.1", "Percona XtraDB Cluster (GPL), WSREP version 26.1.4.3", "Percona 8.0.36"),
        ("9.1.0", "MySQL Community Server - GPL", "MySQL 9.1.0"),
        ("", "", "MySQL 0.0.0"),
        ("99999.x", "", "MySQL 0.0.0"),
    ] {
        let answers = Answers {
            variables: pairs(&[("version", version), ("version_comment", comment)]),
            ..Answers::default()
        };
        assert_eq!(Facts::from_answers(&answers).server_name(), wanted, "{version}");
    }
}

#[test]
fn this_host_is_what_user_says_behind_the_last_at() {
    let facts = Facts::from_answers(&Answers { user: "a@b@10.0.0.50".to_owned(), ..Answers::default() });
    assert_eq!(facts.account.host_here, "10.0.0.50");
}
