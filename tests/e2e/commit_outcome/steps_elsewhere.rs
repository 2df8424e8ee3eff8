//! The way to the writer breaks at each step of a write and of a COMMIT, where the servers are no Galera cluster.

use weir_testkit::Mysql;
use weir_tests::{Case, CaseResult, Cut, Env, Session, ensure};

use super::elsewhere::{Kind, cutting, insert};
use super::{
    AT_COMMIT, COMMIT, COMMIT_LOST, MARK, count, known_alone, told_if_carried_out, told_if_not_carried_out,
    words,
};
use crate::replay::error_of;

/// The cases of this module. Each has servers of its own.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("commit_outcome::in_a_group_a_write_alone_is_known", |env| alone(env, Kind::Group)),
        Case::serial("commit_outcome::with_replicas_a_write_alone_is_known_once_it_is_answered", |env| {
            alone(env, Kind::Mysql)
        }),
        Case::serial(
            "commit_outcome::with_mariadb_replicas_a_write_alone_is_known_once_it_is_answered",
            |env| alone(env, Kind::Mariadb),
        ),
        Case::serial("commit_outcome::in_a_group_a_commit_is_known", |env| commits(env, Kind::Group)),
        Case::serial("commit_outcome::with_replicas_a_commit_is_known", |env| commits(env, Kind::Mysql)),
        Case::serial("commit_outcome::with_mariadb_replicas_a_commit_is_known", |env| {
            commits(env, Kind::Mariadb)
        }),
    ]
}

fn alone(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "")?;
    // With replicas the way may break while a table without transactions is written to.
    let unknown_at: &[&[u8]] = if kind.is_group() { &[] } else { &[MARK] };
    known_alone(unknown_at, &|cut, outcome, replay| {
        cutting(env, (kind, &servers), cut, (outcome, replay), |_| ())
    })?;
    // What fails is told as at a server, and leaves nothing.
    let cut = Cut { mark: AT_COMMIT, after_bytes: Some(0), cuts_max: 1 };
    let (weir, forwarder, admin, schema) = cutting(env, (kind, &servers), cut, ("marker", "off"), |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("INSERT INTO t (id, word) VALUES (1, 'x')")?;
    let told = session.query("INSERT INTO t (id, word) VALUES (2, 'y'), (1, 'x')")?;
    ensure!(told.error() == Some(1062), "{told:?}");
    let shown = session.rows("SHOW WARNINGS")?;
    ensure!(shown.len() == 1 && shown[0].contains(&"1062".to_owned()), "{shown:?}");
    ensure!(words(&weir, &schema)? == ["x"], "{:?}", words(&weir, &schema)?);
    ensure!(forwarder.cuts() == 1, "the way was not cut");
    ensure!(count(&admin, "Weir_outcome_markers_refused")? == 0, "markers were refused");
    if kind == Kind::Mariadb {
        without_transactions(env, kind, &servers)?;
    }
    Ok(())
}

/// The server has answered it, and told that no rollback undoes it: it is there once, and has no marker. (MySQL with global transaction ids
/// does not let such a write be a part of a transaction.)
fn without_transactions(env: &Env, kind: Kind, servers: &Mysql) -> CaseResult {
    let cut = Cut { mark: AT_COMMIT, after_bytes: Some(0), cuts_max: 1 };
    let (weir, forwarder, _, schema) = cutting(env, (kind, servers), cut, ("marker", "off"), |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE plain (word VARCHAR(20)) ENGINE = MyISAM")?;
    let told = error_of(&session.query("INSERT INTO plain VALUES ('once')")?);
    ensure!(forwarder.cuts() == 1, "the way was not cut");
    ensure!(told.as_ref().is_some_and(|told| told.1 == "08007"), "{told:?}");
    let there = servers.source().root_query(&format!("SELECT COUNT(*) FROM {schema}.plain"))?;
    ensure!(there.concat() == ["1"], "{there:?} rows");
    Ok(())
}

fn commits(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "")?;
    told_if_carried_out(&|cut, outcome, replay| {
        cutting(env, (kind, &servers), cut, (outcome, replay), |_| ())
    })?;
    // What MySQL numbers does not run again on a server that gives another number; MariaDB is told the first one.
    let numbered = "INSERT INTO t (word) VALUES ('first')".to_owned();
    let first = if kind == Kind::Mariadb { numbered } else { insert(1, "first") };
    told_if_not_carried_out(&first, &|cut, outcome, replay| {
        cutting(env, (kind, &servers), cut, (outcome, replay), |_| ())
    })?;
    // Where the way is whole again, it is committed, and once.
    let cut = Cut { cuts_max: 1, ..COMMIT_LOST };
    let (weir, forwarder, admin, schema) = cutting(env, (kind, &servers), cut, ("marker", "on"), |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("BEGIN")?;
    session.run(&first)?;
    session.run("UPDATE t SET word = CONCAT(word, '!')")?;
    session.run(COMMIT)?;
    ensure!(forwarder.cuts() == 1, "the way was not cut");
    let counted = ["asked", "committed"].map(|what| count(&admin, &format!("Weir_outcomes_{what}")));
    let counted = counted.into_iter().collect::<Result<Vec<_>, _>>()?;
    ensure!(counted == [1, 0], "asked, and of these committed: {counted:?}");
    ensure!(count(&admin, "Weir_transactions_replayed")? == 1, "it has not run again");
    ensure!(words(&weir, &schema)? == ["first!"], "{:?}", words(&weir, &schema)?);
    ensure!(session.value("SELECT word FROM t")? == "first!", "the session does not see it");
    if kind != Kind::Mariadb {
        other_number(env, kind, &servers)?;
    }
    Ok(())
}

/// MySQL gives a row another number when it is inserted again, which its client has seen otherwise.
fn other_number(env: &Env, kind: Kind, servers: &Mysql) -> CaseResult {
    let cut = Cut { cuts_max: 1, ..COMMIT_LOST };
    let (weir, forwarder, _, schema) = cutting(env, (kind, servers), cut, ("marker", "on"), |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("BEGIN")?;
    session.run("INSERT INTO t (word) VALUES ('first')")?;
    let answer = session.query(COMMIT)?;
    ensure!(forwarder.cuts() == 1, "the way was not cut");
    let told = error_of(&answer);
    ensure!(told.as_ref().is_some_and(|told| told.0 == 1213), "{told:?}");
    ensure!(words(&weir, &schema)?.is_empty(), "a part of it is there");
    Ok(())
}
