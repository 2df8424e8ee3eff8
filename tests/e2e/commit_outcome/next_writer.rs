//! A writer is killed with COMMITs and a write in flight, where the servers are no Galera cluster: the next one tells what
//! has become of them.

use std::thread;

use weir_testkit::Mysql;
use weir_tests::session::Answer;
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use super::elsewhere::{Kind, cutting, insert};
use super::{DEADLOCK, count, words};
use crate::replay::error_of;
use crate::replication::PATIENCE;

/// The cases of this module. Each has servers of its own.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("commit_outcome::the_next_primary_knows_what_was_carried_out", |env| {
            lost(env, Kind::Group, Reached::All)
        }),
        Case::serial("commit_outcome::what_no_member_has_runs_again_at_the_next_primary", |env| {
            lost(env, Kind::Group, Reached::None)
        }),
        Case::serial("commit_outcome::the_next_source_knows_what_was_replicated", |env| {
            lost(env, Kind::Mysql, Reached::All)
        }),
        Case::serial("commit_outcome::what_the_next_source_does_not_have_runs_again", |env| {
            lost(env, Kind::Mysql, Reached::WriterOnly)?;
            lost(env, Kind::Mysql, Reached::None)
        }),
        Case::serial("commit_outcome::the_next_mariadb_source_knows_what_was_replicated", |env| {
            lost(env, Kind::Mariadb, Reached::All)
        }),
        Case::serial("commit_outcome::what_the_next_mariadb_source_does_not_have_runs_again", |env| {
            lost(env, Kind::Mariadb, Reached::WriterOnly)?;
            lost(env, Kind::Mariadb, Reached::None)
        }),
    ]
}

/// How far the COMMITs have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    None,
    /// Nothing is replicated.
    WriterOnly,
    All,
}

/// Both a client's COMMIT and Weir's own.
const COMMITS: Cut = Cut { mark: b"COMMIT", after_bytes: Some(0), cuts_max: u32::MAX };
/// A transaction that may run again, one that may not, and a write alone.
const CLIENTS: u32 = 3;

fn lost(env: &Env, kind: Kind, reached: Reached) -> CaseResult {
    let servers = kind.start(env, "")?;
    let (weir, way, admin, schema) = cutting(env, (kind, &servers), COMMITS, ("marker", "on"), |_| ())?;
    let open = || Session::open(weir.addr(), &schema);
    let (mut replayed, mut told, mut alone) = (open()?, open()?, open()?);
    told.run("SET weir_replay = OFF")?;
    for (session, id) in [(&mut replayed, 1), (&mut told, 2)] {
        session.run("BEGIN")?;
        session.run(&insert(id, if id == 1 { "replayed" } else { "told" }))?;
    }
    if reached == Reached::WriterOnly {
        servers.server(2).root_query("STOP REPLICA IO_THREAD")?;
    }
    way.swallow();
    way.hold(reached == Reached::None);
    let write = insert(3, "alone");
    let mut answers: Vec<Answer> = Vec::new();
    thread::scope(|scope| -> CaseResult {
        let clients: [(&mut Session, &str); CLIENTS as usize] =
            [(&mut replayed, "COMMIT"), (&mut told, "COMMIT"), (&mut alone, &write)];
        let asked = clients.map(|(session, sql)| {
            scope.spawn(move || session.query(sql).map_err(|error| format!("{sql}: {error}")))
        });
        lose_writer(kind, &servers, &way, reached)?;
        for client in asked {
            answers.push(client.join().map_err(|_| "a client has panicked")??);
        }
        Ok(())
    })?;
    let errors: Vec<_> = answers.iter().map(error_of).collect();
    let is_there = reached == Reached::All;
    let is_told = errors[1].as_ref().is_some_and(|told| told.0 == DEADLOCK);
    ensure!(errors[0].is_none() && errors[2].is_none(), "{errors:?}");
    ensure!(is_told != is_there && (is_told || errors[1].is_none()), "{errors:?}");
    let mut there = words(&weir, &schema)?;
    there.sort();
    let expected: &[&str] = if is_there { &["alone", "replayed", "told"] } else { &["alone", "replayed"] };
    ensure!(there == expected, "{there:?}");
    let counts = ["Weir_outcomes_asked", "Weir_outcomes_committed", "Weir_transactions_replayed"];
    let counts = counts.into_iter().map(|name| count(&admin, name)).collect::<Result<Vec<_>, _>>()?;
    ensure!(counts == if is_there { [3, 3, 0] } else { [3, 0, 1] }, "counted {counts:?}");
    // They all go on.
    for session in [&mut replayed, &mut told, &mut alone] {
        session.run("UPDATE t SET word = CONCAT(word, '+')")?;
    }
    let there = words(&weir, &schema)?;
    ensure!(there.iter().all(|word| word.ends_with("+++")), "{there:?}");
    Ok(())
}

/// The COMMITs have come as far as wanted, then the writer is killed, and another server writes.
fn lose_writer(kind: Kind, servers: &Mysql, way: &Forwarder, reached: Reached) -> CaseResult {
    eventually("the COMMITs are on their way", PATIENCE, || {
        Ok(if reached == Reached::None { way.held() } else { way.cuts() } == CLIENTS)
    })?;
    if reached == Reached::All && !kind.is_group() {
        servers.wait_replicated()?;
    }
    servers.source().kill()?;
    way.hold(false);
    kind.promote(servers)
}
