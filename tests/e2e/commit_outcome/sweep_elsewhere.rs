//! Old rows of `weir.outcomes` are removed at a source, and its replicas follow.

use weir_testkit::Account;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use super::elsewhere::{Kind, cutting, insert};
use super::{ANSWER_LOST, COMMIT, count, words};
use crate::replication::PATIENCE;

/// The cases of this module. Each has servers of its own.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("commit_outcome::with_replicas_old_rows_are_removed", |env| swept(env, Kind::Mysql)),
        Case::serial("commit_outcome::with_mariadb_replicas_old_rows_are_removed", |env| {
            swept(env, Kind::Mariadb)
        }),
    ]
}

fn swept(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "")?;
    let user = Account::MONITOR.user;
    servers.source().root_query(&format!(
        "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* TO {user}@'%'; \
         INSERT INTO weir.outcomes (owner, slot, number, written_at) VALUES (5, 1, 2, NOW() - INTERVAL 25 HOUR), \
         (5, 2, 2, NOW() - INTERVAL 23 HOUR)"
    ))?;
    servers.wait_replicated()?;
    let (weir, way, admin, schema) = cutting(env, (kind, &servers), ANSWER_LOST, ("marker", "off"), |_| ())?;
    for server in servers.servers() {
        let slots = || server.root_query("SELECT slot FROM weir.outcomes WHERE owner = 5");
        eventually("the old one is gone", PATIENCE, || Ok(slots()?.concat() == ["2"]))?;
    }
    // Its own rows serve as before.
    let mut session = Session::open(weir.addr(), &schema)?;
    for id in 1..=2 {
        session.run("BEGIN")?;
        session.run(&insert(id, "x"))?;
        session.run(COMMIT)?;
        ensure!(way.cuts() == id, "the way was cut {} times", way.cuts());
    }
    ensure!(count(&admin, "Weir_outcomes_committed")? == 2, "another answer");
    ensure!(words(&weir, &schema)? == ["x", "x"], "{:?}", words(&weir, &schema)?);
    Ok(())
}
