//! completion_type: with RELEASE a server closes its connection behind COMMIT and ROLLBACK, with CHAIN they begin another
//! transaction.

use weir_protocol::status::StatusFlags;
use weir_testkit::Weir;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("completion::nobody_gets_a_connection_that_the_server_is_closing", |env| {
            nobody_gets_a_dying_connection(&env.narrow_weir(&[1], 1)?, &env.schema()?)
        }),
        Case::parallel("completion::nobody_gets_a_connection_that_mysql_is_closing", |env| {
            nobody_gets_a_dying_connection(&env.mysql_weir(1)?, &env.mysql_schema()?)
        }),
        Case::parallel("completion::a_chained_transaction_holds_its_connection", |env: &Env| {
            a_chain_holds(&env.narrow_weir(&[1], 1)?, &env.schema()?)?;
            a_chain_holds(&env.mysql_weir(1)?, &env.mysql_schema()?)
        }),
    ]
}

fn nobody_gets_a_dying_connection(weir: &Weir, schema: &str) -> CaseResult {
    let mut other = Session::open(weir.addr(), schema)?;
    other.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")?;
    other.run("CREATE PROCEDURE p() COMMIT")?;
    for (sql, closes) in [
        ("COMMIT", true),
        ("ROLLBACK", true),
        ("COMMIT AND NO CHAIN", true),
        ("COMMIT NO RELEASE", false),
        ("COMMIT /* NO */ RELEASE", true),
        ("SELECT 1", false),
    ] {
        let mut session = Session::open(weir.addr(), schema)?;
        session.run("SET completion_type = 'RELEASE'")?;
        session.run("INSERT INTO t VALUES ()")?;
        session.query(sql)?;
        // On the one connection, if that is open: an INSERT is not run again where it is not.
        other.run("INSERT INTO t VALUES ()").map_err(|error| format!("behind {sql}: {error}"))?;
        ensure!(session.run("DO 1").is_err() == closes, "behind {sql} the session is open: {closes}");
    }
    // What a routine did is not in the text.
    let mut session = Session::open(weir.addr(), schema)?;
    session.run("SET completion_type = 'RELEASE'")?;
    session.query("CALL p()")?;
    drop(session);
    other.run("INSERT INTO t VALUES ()").map_err(|error| format!("behind CALL: {error}"))?;
    Ok(())
}

fn a_chain_holds(weir: &Weir, schema: &str) -> CaseResult {
    let mut session = Session::open(weir.addr(), schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT)")?;
    session.run("SET completion_type = 'CHAIN'")?;
    session.run("BEGIN")?;
    session.run("INSERT INTO t VALUES ()")?;
    let done = session.run("COMMIT")?;
    ensure!(done.status.contains(StatusFlags::IN_TRANS), "no transaction behind COMMIT: {:?}", done.status);
    session.run("INSERT INTO t VALUES ()")?;
    let done = session.run("ROLLBACK AND NO CHAIN")?;
    ensure!(!done.status.contains(StatusFlags::IN_TRANS), "a transaction behind NO CHAIN");
    let count = session.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "1", "{count} rows");
    Ok(())
}
