//! Reads by weight on the readers, the rest on the writer.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::{WHERE, wait_readers};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel(
            "splitting::plain_reads_go_to_the_readers_in_the_proportion_of_their_weights",
            weights,
        ),
        Case::parallel("splitting::plain_reads_of_any_form_go_to_readers", plain_reads),
        Case::parallel("splitting::what_is_no_plain_read_goes_to_the_writer", writer_statements),
        Case::parallel("splitting::transactions_stay_on_the_writer", transactions),
        Case::parallel("splitting::sessions_with_state_on_the_writer_read_there", tied_sessions),
        Case::parallel("splitting::prepared_statements_are_split_like_texts", prepared),
        Case::parallel("splitting::writes_run_on_the_writer_whatever_was_read_before", writes),
    ]
}

/// Weir in front of all nodes: n1 is the writer, n2 has three times the weight of n3.
fn weighted_weir(env: &Env) -> Result<Weir, Box<dyn Error>> {
    let cluster = env.cluster()?;
    Ok(env.narrow_weir_with(&[], 10, |config| {
        for (node, weight) in [(1, 100), (2, 3), (3, 1)] {
            let columns = [("max_connections", 10.into()), ("weight", weight.into())];
            config.server(cluster.node(node).addr(), hostgroup::WRITER, &columns);
        }
    })?)
}

fn weights(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    // The proportion counts from the moment when both have their roles.
    wait_readers(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut served: BTreeMap<String, u32> = BTreeMap::new();
    // At other levels a session stays with its reader for a while, which has what it has seen.
    let anywhere = format!("/* weir_consistency=eventual */ {WHERE}");
    for _ in 0..400 {
        *served.entry(session.value(&anywhere)?).or_default() += 1;
    }
    let expected = BTreeMap::from([("n2".to_owned(), 300), ("n3".to_owned(), 100)]);
    ensure!(served == expected, "400 reads with the weights 3 and 1 were served by {served:?}");
    // In small numbers too, not in runs: of four reads in a row one goes to n3.
    for round in 0..20 {
        let nodes: Result<Vec<String>, _> = (0..4).map(|_| session.value(&anywhere)).collect();
        let nodes = nodes?;
        let on_n3 = nodes.iter().filter(|node| *node == "n3").count();
        ensure!(on_n3 == 1, "round {round}: four reads were served by {nodes:?}");
    }
    Ok(())
}

/// `{}` stands for [`WHERE`]; the first value of the result must be a reader's name.
const READS: [&str; 14] = [
    "{}",
    "{};",
    "/* a comment */ {}",
    "-- a comment\n{}",
    "({})",
    "WITH c AS ({}) SELECT * FROM c",
    "SELECT * FROM ({}) AS sub",
    "SELECT ({}) AS node, 'FOR UPDATE', \"LOCK IN SHARE MODE\" FROM DUAL",
    "{} -- FOR UPDATE",
    "{} /* FOR UPDATE */",
    "{} UNION ALL {} LIMIT 1",
    "SELECT ({}), RAND() < 2, NOW() > 0, SLEEP(0), CONCAT('GET_LOCK(', 'x)')",
    "SELECT ({}) AS node, `a`.`update` FROM (SELECT 1 AS `update`) AS a",
    "{} ORDER BY 1 LIMIT 1 OFFSET 0",
];

fn plain_reads(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut faults = Vec::new();
    for text in READS {
        let sql = text.replace("{}", WHERE);
        let rows = session.rows(&sql)?;
        let node = rows.first().and_then(|row| row.first()).map(String::as_str);
        if !matches!(node, Some("n2" | "n3")) {
            faults.push(format!("{text}: {rows:?}"));
        }
    }
    ensure!(faults.is_empty(), "read elsewhere than on a reader:\n{}", faults.join("\n"));
    Ok(())
}

/// The first value must be the writer's name. `#` stands for the case's schema.
const WRITER_STATEMENTS: [&str; 22] = [
    "{} FOR UPDATE",
    "{} for  update",
    "{} /* x */ FOR/**/UPDATE",
    "{} FOR UPDATE NOWAIT",
    "{} FOR UPDATE WAIT 1",
    "{} FOR UPDATE SKIP LOCKED",
    "{} LOCK IN SHARE MODE",
    "{} LOCK IN SHARE MODE NOWAIT",
    "{} LOCK IN SHARE MODE SKIP LOCKED",
    "({} FOR UPDATE)",
    "SELECT * FROM ({} FOR UPDATE) AS sub",
    "WITH c AS ({} LOCK IN SHARE MODE) SELECT * FROM c",
    "SELECT ({}), GET_LOCK('#', 0)",
    "SELECT ({}), RELEASE_LOCK('#')",
    "SELECT ({}), #.f()",
    "SELECT ({}), `#`.`f`()",
    "SELECT ({}), NEXTVAL(#.q)",
    "SELECT ({}), @x := 1",
    "SELECT @@wsrep_node_name",
    "SELECT @@global.wsrep_node_name, 1",
    "/*!100000 {} FOR UPDATE */",
    "SELECT ({}), LAST_INSERT_ID(5)",
];

fn writer_statements(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    let schema = env.schema()?;
    let mut root = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    root.run("CREATE FUNCTION f() RETURNS INT NO SQL RETURN 1")?;
    root.run("CREATE SEQUENCE q NOCACHE")?;
    let mut faults = Vec::new();
    for text in WRITER_STATEMENTS {
        // A session without a past: nothing else ties it to the writer.
        let mut session = Session::open(weir.addr(), "test")?;
        let rows = session.rows(&text.replace("{}", WHERE).replace('#', &schema))?;
        let node = rows.first().and_then(|row| row.first()).map(String::as_str);
        if node != Some("n1") {
            faults.push(format!("{text}: {rows:?}"));
        }
    }
    ensure!(faults.is_empty(), "not on the writer:\n{}", faults.join("\n"));
    into(&weir, &schema)?;
    several_at_once(&weir)
}

/// Forms of SELECT whose result goes elsewhere than to the client.
fn into(weir: &Weir, schema: &str) -> CaseResult {
    let mut session = Session::open(weir.addr(), "test")?;
    session.run(&format!("{} INTO @node", WHERE))?;
    let node = session.value("SELECT @node")?;
    ensure!(node == "n1", "SELECT ... INTO @node ran on {node}");
    for kind in ["OUTFILE", "DUMPFILE"] {
        let mut session = Session::open(weir.addr(), "test")?;
        let file = format!("/var/tmp/weir-{kind}-{schema}-{}", std::process::id());
        session.run(&format!("{WHERE} INTO {kind} '{file}'"))?;
        let node = fs::read_to_string(&file)?;
        fs::remove_file(&file)?;
        ensure!(node.trim() == "n1", "INTO {kind} ran on {node}");
    }
    Ok(())
}

/// Several statements in one text stay together.
fn several_at_once(weir: &Weir) -> CaseResult {
    let login = Login::new(Account::APP).schema("test").with(Capabilities::MULTI_STATEMENTS);
    let mut session = Session::with(weir.addr(), &login)?;
    let rows = session.rows(&format!("{WHERE}; DO 0"))?;
    ensure!(rows == [["n1"]], "a SELECT with DO behind it ran on {rows:?}");
    let mut session = Session::with(weir.addr(), &login)?;
    let rows = session.rows(&format!("{WHERE};"))?;
    ensure!(rows != [["n1"]], "a SELECT with a semicolon ran on {rows:?}");
    Ok(())
}

fn transactions(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    let begins: [&[&str]; 6] = [
        &["BEGIN"],
        &["START TRANSACTION"],
        &["START TRANSACTION READ WRITE"],
        &["START TRANSACTION WITH CONSISTENT SNAPSHOT"],
        &["SET autocommit = 0"],
        &["SET @@session.autocommit = OFF"],
    ];
    for begin in begins {
        let mut session = Session::open(weir.addr(), "test")?;
        ensure!(session.value(WHERE)? != "n1", "before {begin:?} reads are on the writer");
        for sql in begin {
            session.run(sql)?;
        }
        for _ in 0..4 {
            let node = session.value(WHERE)?;
            ensure!(node == "n1", "after {begin:?} a read is on {node}");
        }
        session.run("COMMIT")?;
        let is_autocommit = !begin[0].contains("autocommit");
        if !is_autocommit {
            let node = session.value(WHERE)?;
            ensure!(node == "n1", "with autocommit off a read after COMMIT is on {node}");
            session.run("SET autocommit = 1")?;
        }
        let node = served_by_reader_soon(&mut session)?;
        ensure!(node != "n1", "after the end of {begin:?} reads stay on {node}");
    }
    Ok(())
}

fn tied_sessions(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    let ties: [(&str, Option<&str>); 4] = [
        ("SET @x = 1", None),
        ("CREATE TEMPORARY TABLE tied (a INT)", Some("DROP TEMPORARY TABLE tied")),
        ("DO GET_LOCK('tied_sessions', 0)", Some("DO RELEASE_LOCK('tied_sessions')")),
        ("PREPARE p FROM 'SELECT 1'", Some("DEALLOCATE PREPARE p")),
    ];
    for (begin, end) in ties {
        let mut session = Session::open(weir.addr(), "test")?;
        session.run(begin)?;
        let node = session.value(WHERE)?;
        ensure!(node == "n1", "after {begin} a read is on {node}");
        match end {
            Some(sql) => drop(session.run(sql)?),
            None => drop(session.reset()?.done()?),
        }
        let node = served_by_reader_soon(&mut session)?;
        ensure!(node != "n1", "after the end of {begin} reads stay on {node}");
    }
    Ok(())
}

/// Reads until a reader answers: after a write it must be known to have it first.
fn served_by_reader_soon(session: &mut Session) -> Result<String, Box<dyn Error>> {
    let started = Instant::now();
    loop {
        let node = session.value(WHERE)?;
        if node != "n1" || started.elapsed() > Duration::from_secs(30) {
            return Ok(node);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn prepared(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    wait_readers(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET weir_consistency = eventual")?;
    let plain = session.prepare(WHERE)?;
    let locking = session.prepare(&format!("{WHERE} FOR UPDATE"))?;
    let mut readers = Vec::new();
    for _ in 0..8 {
        let rows = session.execute(&plain, &[])?.binary_rows()?;
        readers.push(rows.concat().concat());
    }
    for _ in 0..8 {
        let rows = session.execute(&locking, &[])?.binary_rows()?;
        ensure!(rows == [["n1"]], "a prepared FOR UPDATE ran on {rows:?}");
    }
    readers.sort();
    ensure!(readers == ["n2", "n2", "n2", "n2", "n2", "n2", "n3", "n3"], "prepared reads ran on {readers:?}");
    session.run("BEGIN")?;
    let rows = session.execute(&plain, &[])?.binary_rows()?;
    ensure!(rows == [["n1"]], "a prepared read in a transaction ran on {rows:?}");
    Ok(())
}

fn writes(env: &Env) -> CaseResult {
    let weir = weighted_weir(env)?;
    let schema = env.schema()?;
    let mut root = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    root.run("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, node VARCHAR(10), k BIGINT)")?;
    root.run("CREATE PROCEDURE p() INSERT INTO t (node) VALUES (@@wsrep_node_name)")?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let node = format!("({WHERE})");
    for round in 0..3 {
        // Leaves something on a reader's connection that the session may ask for: warnings, counts.
        session.run(&format!("SELECT CAST('x' AS INT), {node} FROM information_schema.SCHEMATA LIMIT 1"))?;
        session.run(&format!("INSERT INTO t (node, k) VALUES ({node}, LAST_INSERT_ID())"))?;
        session.run(&format!("INSERT INTO t (node) {WHERE}"))?;
        session.run(&format!("INSERT INTO t (node) WITH c AS ({WHERE}) SELECT * FROM c"))?;
        session.run(&format!("REPLACE INTO t (id, node) VALUES ({}, {node})", 1000 + round))?;
        session.run(&format!("UPDATE t SET node = {node} WHERE id = {}", 1000 + round))?;
        session
            .run(&format!("SET STATEMENT max_statement_time = 5 FOR INSERT INTO t (node) VALUES ({node})"))?;
        let statement = session.prepare(&format!("INSERT INTO t (node, k) VALUES ({node}, ROW_COUNT())"))?;
        session.execute(&statement, &[])?.done()?;
        session.close(&statement)?;
        session.run("CALL p()")?;
        session.run(&format!("CREATE OR REPLACE TABLE made AS SELECT {node} AS node"))?;
        session.run("INSERT INTO t (node) SELECT node FROM made")?;
        session.reset()?.done()?;
    }
    let nodes = root.rows("SELECT DISTINCT node FROM t")?;
    ensure!(nodes == [["n1"]], "writes ran on {nodes:?}");
    Ok(())
}
