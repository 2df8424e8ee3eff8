//! Several results for one command.

use std::time::{Duration, Instant};

use weir_protocol::capability::Capabilities;
use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::session::Param;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("streaming::a_call_with_several_results", calls),
        Case::parallel("streaming::multi_statements", multi_statements),
        Case::parallel("streaming::very_many_statements_in_one_text", very_many),
        Case::parallel("streaming::a_prepared_call_with_out_parameters", prepared_call),
        Case::parallel("streaming::commands_sent_ahead_are_answered_in_order", pipelined),
    ]
}

/// A login whose capabilities come out the same at Weir and at a MariaDB.
fn same_everywhere(schema: &str) -> Login {
    Login::new(Account::APP).schema(schema).without(Capabilities::LONG_PASSWORD)
}

/// The same statements through Weir and straight, by clients with and without DEPRECATE_EOF.
fn compare(env: &Env, schema: &str, statements: &[&str]) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let all = same_everywhere(schema).with(Capabilities::MULTI_STATEMENTS);
    for login in [all.clone(), all.without(Capabilities::DEPRECATE_EOF)] {
        let mut through = Session::with(weir.addr(), &login)?;
        let mut direct = Session::with(env.cluster()?.node(1).addr(), &login)?;
        for sql in statements {
            let (got, wanted) = (through.query(sql)?, direct.query(sql)?);
            ensure!(got == wanted, "{sql}:\n{got:?}\ninstead of\n{wanted:?}");
            let value = through.value("SELECT 'in step'")?;
            ensure!(value == "in step", "after {sql}: {value}");
        }
    }
    Ok(())
}

fn calls(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let mut session = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    for sql in [
        "CREATE PROCEDURE none() DO 1",
        "CREATE PROCEDURE one() SELECT 1 AS a",
        "CREATE PROCEDURE three() BEGIN SELECT 1 AS a; SELECT 2 AS b, 'x' AS c UNION SELECT 3, NULL; \
         SELECT 4 AS d WHERE FALSE; END",
        "CREATE PROCEDURE fails() BEGIN SELECT 1 AS a; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no', \
         MYSQL_ERRNO = 5000; END",
        "CREATE PROCEDURE many() BEGIN DECLARE i INT DEFAULT 0; WHILE i < 50 DO SELECT i, REPEAT('x', 3000); \
         SET i = i + 1; END WHILE; END",
    ] {
        session.run(sql)?;
    }
    let statements = [
        "CALL none()",
        "CALL one()",
        "CALL three()",
        "CALL fails()",
        "CALL many()",
        "CALL three(); CALL one()",
        "CALL not_there()",
        "EXECUTE IMMEDIATE 'SELECT 1 AS a'",
    ];
    env.cluster()?
        .node(1)
        .root_query(&format!("SET wsrep_sync_wait = 15; SHOW CREATE PROCEDURE {schema}.many"))?;
    compare(env, &schema, &statements)
}

/// Each of them is looked at when its result comes: in the time of one look at the text, not of one for each.
fn very_many(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let login = same_everywhere(&env.schema()?).with(Capabilities::MULTI_STATEMENTS);
    for (login, statement) in
        [(login.clone(), "set @a=1;"), (login.without(Capabilities::DEPRECATE_EOF), "SELECT 1;")]
    {
        let mut session = Session::with(weir.addr(), &login)?;
        let begun = Instant::now();
        session.query(&statement.repeat(60_000))?;
        ensure!(begun.elapsed() < Duration::from_secs(45), "{statement}: {:?}", begun.elapsed());
        ensure!(session.value("SELECT 'in step'")? == "in step", "out of step after {statement}");
    }
    Ok(())
}

fn multi_statements(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    compare(
        env,
        &schema,
        &[
            "SELECT 1; SELECT 2",
            "SELECT 1; SELECT 'a', NULL UNION SELECT 'b', 'c'; DO 1; SELECT 3",
            "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY); REPLACE INTO t VALUES (1), (2); SELECT * FROM t",
            "SELECT 1; nonsense; SELECT 2",
            "SELECT 1; SELECT * FROM not_there; SELECT 2",
            "INSERT INTO t VALUES (1); SELECT 2",
            "SELECT 1;",
            "SELECT 1; ; ",
        ],
    )?;
    // Whoever has not asked for them does not get them.
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.refused("SELECT 1; SELECT 2", 1064)?;
    Ok(())
}

fn prepared_call(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let node = env.cluster()?.node(1).addr();
    let mut direct = Session::with(node, &same_everywhere(&schema))?;
    direct.run("CREATE PROCEDURE p(IN a INT, OUT b INT, INOUT c VARCHAR(20)) BEGIN SELECT a; SET b = a + 1, c = CONCAT(c, '!'); END")?;
    let mut through = Session::with(weir.addr(), &same_everywhere(&schema))?;
    let mut answers = Vec::new();
    for session in [&mut through, &mut direct] {
        let statement = session.prepare("CALL p(?, ?, ?)")?;
        let params = [Param::Int(41), Param::Null, "hello".into()];
        answers.push([session.execute(&statement, &params)?, session.execute(&statement, &params)?]);
    }
    ensure!(answers[0] == answers[1], "{:?}\ninstead of\n{:?}", answers[0], answers[1]);
    through.value("SELECT 'in step'")?;
    Ok(())
}

fn pipelined(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY, n INT)")?;
    for round in 0..5 {
        let statements: Vec<String> = (0..200)
            .map(|at| match at % 4 {
                0 => format!("INSERT INTO t VALUES ({}, {at})", round * 1000 + at),
                1 => format!("SELECT {at}"),
                2 => format!("SELECT n FROM t WHERE id = {}", round * 1000 + at - 2),
                _ => format!("UPDATE t SET n = {at} WHERE id = {}", round * 1000 + at - 3),
            })
            .collect();
        for sql in &statements {
            session.send_query(sql)?;
        }
        for (at, sql) in statements.iter().enumerate() {
            let answer = session.results()?;
            let done = answer.done().map_err(|error| format!("{sql}: {error}"))?;
            match at % 4 {
                0 | 3 => ensure!(done.affected_rows == 1, "{sql}: {done:?}"),
                1 => ensure!(answer.value()? == at.to_string(), "{sql}: {answer:?}"),
                _ => ensure!(answer.value()? == (at - 2).to_string(), "{sql}: {answer:?}"),
            }
        }
    }
    // An INSERT behind a failed USE must not run in the old schema's table... it does with a server, too: every
    // command stands for itself. What must not happen is that it runs in another schema than told.
    session.send_query("USE no_such_schema")?;
    session.send_query("INSERT INTO t VALUES (-1, 0)")?;
    ensure!(session.results()?.error() == Some(1049), "USE of a schema that is not there");
    session.results()?.done()?;
    let row = session.rows(&format!("SELECT DATABASE(), COUNT(*) FROM {schema}.t WHERE id = -1"))?;
    ensure!(row == [[schema.as_str(), "1"]], "{row:?}");
    Ok(())
}
