//! Checks that each server counts once.

use super::*;
use crate::facts::Answers;

/// A server that answers with these variables.
pub(crate) fn reached(variables: &[(&str, &str)], more: impl FnOnce(&mut Answers)) -> Reached {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut answers = Answers { variables, user: "root@10.0.0.50".to_owned(), ..Answers::default() };
    more(&mut answers);
    Reached { facts: Facts::from_answers(&answers), rtt: Duration::from_micros(200), is_encrypted: false }
}

/// Visits as the walk would make them: of these servers under these names, and in vain of all others that they name.
pub(crate) fn findings(start: &str, servers: Vec<(&str, Reached)>) -> Findings {
    let endpoint = |name: &str| -> Endpoint { name.parse().unwrap() };
    let start = endpoint(start);
    let mut visits: BTreeMap<Endpoint, Visit> = servers
        .into_iter()
        .map(|(name, reached)| (endpoint(name), Visit { named: BTreeSet::new(), outcome: Ok(reached) }))
        .collect();
    for (name, named) in named_by_visits(&visits) {
        let visit = visits
            .entry(name)
            .or_insert(Visit { named: BTreeSet::new(), outcome: Err("no route".to_owned()) });
        visit.named.extend(named);
    }
    visits.get_mut(&start).unwrap().named.insert((NamedBy::User, None));
    Findings::merge(&start, &visits).unwrap()
}

const UUID: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const OTHER: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429563";

fn member(uuid: &str, host: &str) -> crate::facts::NamedRow {
    let column = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
    crate::facts::NamedRow(vec![
        column("MEMBER_ID", uuid),
        column("MEMBER_HOST", host),
        column("MEMBER_PORT", "3306"),
        column("MEMBER_STATE", "ONLINE"),
    ])
}

#[test]
fn a_server_under_two_names_counts_once_and_has_that_of_its_cluster() {
    let group = [("server_uuid", UUID), ("group_replication_group_name", "g")];
    let one = || reached(&group, |answers| answers.members = vec![member(UUID, "db1"), member(OTHER, "db2")]);
    let findings = findings("127.0.0.1:3306", vec![("127.0.0.1:3306", one()), ("db1:3306", one())]);
    assert_eq!(findings.servers.len(), 1);
    let server = findings.start().unwrap();
    assert_eq!((server.endpoint.to_string().as_str(), server.named_by), ("db1:3306", NamedBy::Member));
    assert_eq!(server.names.len(), 2);
    let unreached: Vec<_> = findings.unreached.iter().map(|server| server.endpoint.to_string()).collect();
    assert_eq!(unreached, ["db2:3306"]);
}

#[test]
fn a_name_that_leads_nowhere_from_here_is_not_taken_nor_missed() {
    let group = [("server_uuid", UUID), ("group_replication_group_name", "g")];
    let one = reached(&group, |answers| answers.members = vec![member(UUID, "db1.internal")]);
    let findings = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", one)]);
    assert_eq!(findings.start().unwrap().endpoint.to_string(), "10.0.0.1:3306");
    assert_eq!(findings.unreached, [], "it is the server that was reached");
}

#[test]
fn servers_are_in_the_order_of_their_addresses() {
    let numbers =
        |id: &'static str| reached(&[("hostname", "h"), ("port", "3306"), ("server_id", id)], |_| {});
    let servers =
        vec![("10.0.0.10:3306", numbers("1")), ("db1:3306", numbers("3")), ("10.0.0.9:3306", numbers("2"))];
    let findings = findings("db1:3306", servers);
    let order: Vec<_> = findings.servers.iter().map(|server| server.endpoint.to_string()).collect();
    assert_eq!(order, ["10.0.0.9:3306", "10.0.0.10:3306", "db1:3306"]);
    assert_eq!(findings.start, 2);
}

#[test]
fn a_wrong_guess_is_missed_only_if_a_reader_of_the_binary_log_is() {
    let source = || {
        let variables = [("hostname", "a"), ("port", "3306"), ("server_id", "1")];
        reached(&variables, |answers| answers.dump_hosts = vec!["10.0.0.7:40000".to_owned()])
    };
    let alone = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", source())]);
    assert_eq!(alone.unreached.len(), 1);
    let replica = reached(&[("hostname", "b"), ("port", "3306"), ("server_id", "2")], |answers| {
        let column = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let row = vec![column("Master_Host", "10.0.0.1"), column("Master_Port", "3306")];
        answers.sources = vec![crate::facts::NamedRow(row)];
    });
    let both = findings("10.0.0.1:3306", vec![("10.0.0.1:3306", source()), ("10.0.0.2:3306", replica)]);
    assert_eq!(both.unreached, []);
}

#[test]
fn nobody_takes_the_place_of_the_server_that_the_user_has_named() {
    let one = || reached(&[("server_uuid", UUID)], |_| {});
    let named = |by, identity: Option<&str>| {
        BTreeSet::from([(by, identity.map(|uuid| Identity::Uuid(uuid.to_owned())))])
    };
    // In both orders of their names.
    for evil in ["10.0.0.0:3306", "10.0.0.9:3306"] {
        let start: Endpoint = "10.0.0.1:3306".parse().unwrap();
        let visits = BTreeMap::from([
            (start.clone(), Visit { named: named(NamedBy::User, None), outcome: Ok(one()) }),
            (
                evil.parse().unwrap(),
                Visit { named: named(NamedBy::Registered, Some(UUID)), outcome: Ok(one()) },
            ),
        ]);
        let found = Findings::merge(&start, &visits).unwrap();
        assert_eq!(found.start().unwrap().endpoint, start, "{evil}");
    }
}
