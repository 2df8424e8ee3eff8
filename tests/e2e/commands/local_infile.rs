//! LOAD DATA LOCAL: the server asks, the client sends, and Weir passes on what comes.

use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, FakeGreeting, FakeServer, Script, Step, TestkitError, WeirConfig};
use weir_tests::session::{Answer, Outcome};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("commands::a_local_file_is_loaded", loaded),
        Case::parallel("commands::local_files_among_several_statements", several),
        Case::parallel("commands::a_local_file_with_rows_that_are_refused", duplicate),
        Case::parallel("commands::a_client_that_has_no_local_files", not_offered),
        Case::parallel("commands::a_client_that_leaves_in_the_middle_of_its_file", leaves),
        Case::parallel("commands::a_server_that_asks_for_a_file_unasked", asks_unasked),
        Case::parallel("commands::a_server_that_asks_for_another_file", asks_for_another),
    ]
}

const LOAD: &str = "LOAD DATA LOCAL INFILE 'data.csv' INTO TABLE t FIELDS TERMINATED BY ','";

fn login(schema: &str) -> Login {
    Login::new(Account::APP)
        .schema(schema)
        .with(Capabilities::LOCAL_FILES)
        .without(Capabilities::LONG_PASSWORD)
}

/// Sends the packets of a file, and the empty one, in answer to the server's question.
fn send_file(session: &mut Session, packets: &[Vec<u8>]) -> Result<(), TestkitError> {
    let asked = session.raw().packets().read_packet()?;
    if asked.first() != Some(0xFB) {
        return Err(TestkitError::Protocol(format!("expected a question for a file, got {asked}")));
    }
    let mut sequence = asked.seq.wrapping_add(1);
    for packet in packets.iter().map(Vec::as_slice).chain([&b""[..]]) {
        sequence = session.raw().packets().write_packet(sequence, packet)?;
    }
    Ok(())
}

fn load(session: &mut Session, sql: &str, packets: &[Vec<u8>]) -> Result<Answer, TestkitError> {
    session.send_query(sql)?;
    send_file(session, packets)?;
    session.results()
}

fn loaded(env: &Env) -> CaseResult {
    let (weir, node) = (env.weir(|_| {})?, env.cluster()?.node(1));
    let line = |number: usize| format!("{number},{}\n", "x".repeat(number % 50)).into_bytes();
    let files: Vec<Vec<Vec<u8>>> = vec![
        vec![b"1,one\n2,two\n".to_vec()],
        vec![],
        (0..3000).map(line).collect(),
        // Packets end anywhere, also in the middle of a row, and a long one is split.
        vec![b"1,o".to_vec(), b"ne".to_vec(), b"\n2,two".to_vec()],
    ];
    // Packets of the greatest length and more; the rows of that one are only counted off.
    let large = vec![vec![b'\n'; 40_000_000], vec![b'\n'; 0xFF_FFFF], b"7,seven\n".to_vec()];
    let skipping = format!("{LOAD} IGNORE {} LINES", 40_000_000 + 0xFF_FFFF);
    let loads = files.into_iter().map(|file| (LOAD, file)).chain([(&*skipping, large)]);
    let loads: Vec<(&str, Vec<Vec<u8>>)> = loads.collect();
    for login in [login(""), login("").without(Capabilities::DEPRECATE_EOF)] {
        let mut outcomes = Vec::new();
        for server in [weir.addr(), node.addr()] {
            let schema = env.schema()?;
            let mut session = Session::with(server, &login.clone().schema(&schema))?;
            session.run("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(60)) ENGINE = InnoDB")?;
            for (sql, file) in &loads {
                let answer = load(&mut session, sql, file)?;
                let rows = session.rows("SELECT COUNT(*), SUM(id), SUM(LENGTH(word)) FROM t FOR UPDATE")?;
                session.run("DELETE FROM t")?;
                outcomes.push((answer, rows));
            }
        }
        let (through, direct) = outcomes.split_at(loads.len());
        ensure!(through == direct, "{through:?} through Weir, {direct:?} directly");
    }
    Ok(())
}

fn several(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    for eof in [Capabilities::empty(), Capabilities::DEPRECATE_EOF] {
        let login = login(&schema).with(Capabilities::MULTI_STATEMENTS).without(eof);
        let mut session = Session::with(weir.addr(), &login)?;
        session.run("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, word VARCHAR(60))")?;
        // Without DEPRECATE_EOF the packets before the question are more than the server has sent.
        session.send_query(&format!("SELECT 1; {LOAD}; SELECT 2; {LOAD}; SELECT COUNT(*) FROM t"))?;
        let mut results = Vec::new();
        for file in [[b"1,a\n2,b\n".to_vec()], [b"3,c\n".to_vec()]] {
            results.push(session.next_result()?);
            send_file(&mut session, &file)?;
            results.push(session.next_result()?);
        }
        results.extend(session.results()?.results);
        let counted = Answer { results: results.split_off(results.len() - 1) };
        ensure!(counted.value()? == "3", "{counted:?} after {results:?}");
        ensure!(session.value("SELECT 'in step'")? == "in step", "out of step");
    }
    Ok(())
}

fn duplicate(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::with(weir.addr(), &login(&schema))?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(60))")?;
    // LOCAL makes of a duplicate a warning.
    let done = load(&mut session, LOAD, &[b"1,a\n1,b\n".to_vec()])?.done()?.clone();
    ensure!((done.affected_rows, done.warnings) == (1, 1), "{done:?}");
    let warnings = session.rows("SHOW WARNINGS")?;
    ensure!(warnings.iter().any(|row| row[1] == "1062"), "{warnings:?}");
    // An error in the middle comes when all of the file has been sent.
    session.run(
        "CREATE TRIGGER r BEFORE INSERT ON t FOR EACH ROW IF NEW.id = 3 THEN SIGNAL SQLSTATE '45000'; END IF",
    )?;
    let file: Vec<Vec<u8>> = (2..1000).map(|id| format!("{id},{}\n", "x".repeat(50)).into_bytes()).collect();
    let answer = load(&mut session, LOAD, &file)?;
    ensure!(answer.error() == Some(1644), "{answer:?}");
    let rows = session.rows("SELECT id FROM t FOR UPDATE")?;
    ensure!(rows == [["1"]], "{rows:?}");
    ensure!(session.value("SELECT 'in step'")? == "in step", "out of step");
    Ok(())
}

fn not_offered(env: &Env) -> CaseResult {
    let (weir, node, schema) = (env.weir(|_| {})?, env.cluster()?.node(1), env.schema()?);
    let login = login(&schema).without(Capabilities::LOCAL_FILES);
    let mut through = Session::with(weir.addr(), &login)?;
    let mut direct = Session::with(node.addr(), &login)?;
    through.run("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(60))")?;
    let (here, there) = (through.query(LOAD)?, direct.query(LOAD)?);
    ensure!(here == there && here.error().is_some(), "{here:?} through Weir, {there:?} directly");
    Ok(())
}

fn leaves(env: &Env) -> CaseResult {
    let (weir, schema) = (crate::prepared::weir_with_connections(env, 1, 1)?, env.schema()?);
    let mut other = Session::open(weir.addr(), &schema)?;
    other.run("CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(60))")?;
    for in_transaction in [false, true] {
        let mut session = Session::with(weir.addr(), &login(&schema))?;
        if in_transaction {
            session.run("BEGIN")?;
        }
        session.send_query(LOAD)?;
        let asked = session.raw().packets().read_packet()?;
        ensure!(asked.first() == Some(0xFB), "{asked}");
        let sequence = asked.seq.wrapping_add(1);
        session.raw().packets().write_packet(sequence, b"1,one\n2,two\n")?;
        session.vanish();
        // The only connection has to come free, and nothing of the half file is there.
        eventually("the table is empty", Duration::from_secs(20), || {
            Ok(other.value("SELECT COUNT(*) FROM t")? == "0")
        })?;
        other.run("INSERT INTO t VALUES (1, 'mine')")?;
        other.run("DELETE FROM t")?;
    }
    Ok(())
}

/// A server that answers the client's statement with a question for `file`.
fn asking(env: &Env, file: &[u8]) -> Result<(FakeServer, WeirConfig), Box<dyn std::error::Error>> {
    let question = [b"\xFB", file].concat();
    let fake = FakeServer::with_login(FakeGreeting::default(), move |login| {
        if login.user != "app" {
            return Script::new().ok_to_all();
        }
        Script::new().step(Step::OkUntil(b"FROM secrets".to_vec())).send(question.clone()).ok_to_all()
    })?;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(fake.addr(), 1, &[]);
    config.user(Account::APP, 1, &[]).variable("threads", 1);
    Ok((fake, config))
}

fn asks_unasked(env: &Env) -> CaseResult {
    let (_fake, config) = asking(env, b"/etc/passwd")?;
    let weir = env.weir_with(&config)?;
    let mut session = Session::with(weir.addr(), &login("information_schema"))?;
    let answer =
        session.query("UPDATE t SET c = 'LOAD DATA LOCAL INFILE' WHERE id IN (SELECT id FROM secrets)")?;
    let is_refused = matches!(answer.results.as_slice(), [Outcome::Err { code: 1053, .. }]);
    ensure!(is_refused, "{answer:?}");
    Ok(())
}

fn asks_for_another(env: &Env) -> CaseResult {
    let (_fake, config) = asking(env, b"/etc/passwd")?;
    let weir = env.weir_with(&config)?;
    let mut session = Session::with(weir.addr(), &login("information_schema"))?;
    let answer = session.query("LOAD DATA LOCAL INFILE 'data.csv' INTO TABLE t /* FROM secrets */")?;
    let is_refused = matches!(answer.results.as_slice(), [Outcome::Err { code: 1053, .. }]);
    ensure!(is_refused, "{answer:?}");
    Ok(())
}
