//! Results whose server is taken out, or dies, while they are read: one whole result, or an error in
//! place of what is missing.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER};
use weir_protocol::wire::Reader;
use weir_testkit::{Node, Weir, WeirConfig, hostgroup};
use weir_tests::session::{Outcome, Param};
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use crate::switchover::{run, wait_writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("results::a_large_one_ends_within_the_grace_of_a_drain", within_the_grace),
        Case::parallel(
            "results::beyond_the_grace_reads_end_with_an_error_or_run_elsewhere",
            beyond_the_grace,
        ),
        Case::parallel("results::a_small_one_is_whole_though_its_server_is_lost_in_the_middle", small),
        Case::parallel("results::a_large_one_whose_server_is_lost_ends_with_an_error", large),
        Case::parallel("results::what_may_have_had_an_effect_is_never_run_twice", effects),
    ]
}

const PATIENCE: Duration = Duration::from_secs(60);
/// More than all buffers on the way hold: a client that does not read keeps the server busy.
const ROWS: usize = 40_000;
/// A statement with this in it has its connection cut in the middle of its result.
const MARK: &[u8] = b"cut me";

/// Rows of about 1 kB that name their node.
fn large_sql() -> String {
    format!(
        "SELECT VARIABLE_VALUE, seq, REPEAT('x', 1000) FROM information_schema.GLOBAL_VARIABLES, seq_1_to_{ROWS} \
         WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'"
    )
}

/// What a result came to behind the rows that were read.
#[derive(Debug)]
struct End {
    rows: Vec<String>,
    /// Number, SQLSTATE and text; none if the result is complete.
    error: Option<(u16, String, String)>,
}

/// Sends a statement and reads the column count and so many definitions.
fn begin(session: &mut Session, sql: &str, columns: usize) -> CaseResult {
    session.send_query(sql)?;
    for _ in 0..=columns {
        let packet = session.raw().packets().read_packet()?;
        ensure!(packet.first() != Some(ErrPacket::HEADER), "{sql}: {packet}");
    }
    Ok(())
}

/// The first value of the next row.
fn row(session: &mut Session) -> Result<String, Box<dyn Error>> {
    let packet = session.raw().packets().read_packet()?;
    Ok(String::from_utf8_lossy(Reader::new(&packet.payload).lenenc_bytes()?).into_owned())
}

/// Reads a result to its end.
fn rest(session: &mut Session) -> Result<End, Box<dyn Error>> {
    let mut rows = Vec::new();
    loop {
        let packet = session.raw().packets().read_packet()?;
        match packet.first() {
            Some(OK_AS_EOF_HEADER) => return Ok(End { rows, error: None }),
            Some(ErrPacket::HEADER) => {
                let err = packet.err()?;
                let state = String::from_utf8_lossy(&err.sqlstate.unwrap_or_default()).into_owned();
                let message = String::from_utf8_lossy(err.message).into_owned();
                return Ok(End { rows, error: Some((err.code, state, message)) });
            }
            _ => {
                let value = Reader::new(&packet.payload).lenenc_bytes()?;
                rows.push(String::from_utf8_lossy(value).into_owned());
            }
        }
    }
}

/// A Weir with this grace, a session that has read one row of a large result, and the node that sends it.
fn reading(env: &Env, grace_ms: i64) -> Result<(Weir, Session, &Node), Box<dyn Error>> {
    let weir = env.weir(|config| {
        let row = [("writer_hostgroup", hostgroup::WRITER.into()), ("drain_grace_ms", grace_ms.into())];
        config.push("weir_topology", &row);
    })?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    begin(&mut session, &large_sql(), 3)?;
    let name = row(&mut session)?;
    let node = env.cluster()?.nodes().iter().find(|node| node.name() == name).ok_or("no such node")?;
    Ok((weir, session, node))
}

fn within_the_grace(env: &Env) -> CaseResult {
    let (weir, mut session, node) = reading(env, 300_000)?;
    let server = node.addr().to_string();
    let waiting = run(&weir, &["drain", &server, "--timeout-s", "0"])?;
    ensure!(waiting.status.code() == Some(3), "{waiting:?}");
    let end = rest(&mut session)?;
    ensure!(end.error.is_none() && end.rows.len() == ROWS - 1, "{} rows, {:?}", end.rows.len(), end.error);
    ensure!(end.rows.iter().all(|name| *name == node.name()), "rows of two nodes");
    let done = run(&weir, &["drain", &server])?;
    ensure!(done.status.success(), "{done:?}");
    // The session goes on at another node.
    begin(&mut session, &large_sql(), 3)?;
    ensure!(row(&mut session)? != node.name(), "a drained server serves");
    Ok(())
}

fn beyond_the_grace(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let (weir, mut session, node) = reading(env, 300)?;
    Session::open(weir.addr(), &schema)?.run("CREATE TABLE t AS SELECT 7 AS v")?;
    env.wait_applied()?;
    // Reads there that have no byte of a result yet.
    let mut beside = Session::open(node.addr(), &schema)?;
    beside.run("LOCK TABLES t WRITE")?;
    let waiting_there = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE db = '{schema}' AND info LIKE 'SELECT v%'"
    );
    let mut readers = Vec::new();
    eventually("a read waits at the node", PATIENCE, || {
        let mut reader = Session::open(weir.addr(), &schema)?;
        reader.send_query("SELECT v FROM t")?;
        readers.push(reader);
        Ok(node.root_query(&waiting_there)? != [["0"]])
    })?;
    let drained = run(&weir, &["drain", &node.addr().to_string(), "--timeout-s", "0"])?;
    ensure!(drained.status.code() == Some(3), "{drained:?}");
    for mut reader in readers {
        let value = reader.results()?.value()?;
        ensure!(value == "7", "a read that had sent nothing: {value}");
    }
    eventually("none is left at the node", PATIENCE, || Ok(node.root_query(&waiting_there)? == [["0"]]))?;
    let end = rest(&mut session)?;
    let (code, state, message) = end.error.ok_or("the result was read to its end")?;
    ensure!(
        (code, state.as_str()) == (1053, "08S01")
            && message.starts_with(&format!("{} is drained, and drain_grace_ms is over", node.addr())),
        "{code} {state} {message}"
    );
    ensure!(end.rows.len() < ROWS - 1, "all {} rows have come", end.rows.len() + 1);
    ensure!(session.ping().is_err(), "the session goes on");
    Ok(())
}

/// A Weir whose way to n2 breaks in the middle of results; n2 writes or reads.
fn cutting(env: &Env, n2_writes: bool, after_bytes: usize) -> Result<(Weir, Forwarder), Box<dyn Error>> {
    let cluster = env.cluster()?;
    let way = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
    let forwarder = Forwarder::start_with_cut(
        way,
        cluster.node(2).addr(),
        Cut { mark: MARK, after_bytes: Some(after_bytes), cuts_max: u32::MAX },
    )?;
    let mut config = WeirConfig::for_servers(&[], env.free_address()?);
    for (address, writes) in
        [(cluster.node(1).addr(), !n2_writes), (way, n2_writes), (cluster.node(3).addr(), false)]
    {
        let weight = if writes { 1000 } else { 1 };
        config.server(address, hostgroup::WRITER, &[("weight", weight.into())]);
    }
    let weir = env.weir_with(&config)?;
    wait_writer(&weir)?;
    Ok((weir, forwarder))
}

fn small(env: &Env) -> CaseResult {
    let (weir, forwarder) = cutting(env, false, 1500)?;
    let expected: Vec<String> = (1..=200).map(|number| number.to_string()).collect();
    let mut session = Session::open(weir.addr(), "test")?;
    let statement = session.prepare("SELECT seq, ? FROM seq_1_to_200")?;
    // As text and with parameters, until each has been in it.
    for prepared in [false, true] {
        let before = forwarder.cuts();
        eventually("a connection is cut in the middle of a result", PATIENCE, || {
            let rows = match prepared {
                false => session.rows("SELECT seq, 'cut me' FROM seq_1_to_200")?,
                true => session.execute(&statement, &[Param::Text("cut me".to_owned())])?.binary_rows()?,
            };
            let numbers: Vec<&String> = rows.iter().map(|row| &row[0]).collect();
            ensure!(numbers == expected.iter().collect::<Vec<_>>(), "{numbers:?}");
            Ok(forwarder.cuts() >= before + 2)
        })?;
    }
    Ok(())
}

fn large(env: &Env) -> CaseResult {
    let (weir, forwarder) = cutting(env, false, 300_000)?;
    let sql = format!("SELECT seq, REPEAT('x', 100), 'cut me' FROM seq_1_to_{ROWS}");
    let mut session = Session::open(weir.addr(), "test")?;
    let mut errors = 0;
    eventually("a connection is cut in the middle of a result", PATIENCE, || {
        begin(&mut session, &sql, 3)?;
        let End { rows, error } = rest(&mut session)?;
        let numbers = (1..).map(|number: usize| number.to_string());
        ensure!(rows.iter().zip(numbers).all(|(row, number)| *row == number), "a mixture of two results");
        if let Some((code, state, message)) = error {
            ensure!((code, state.as_str()) == (1053, "08S01"), "{code} {state} {message}");
            ensure!(message.ends_with("the rest of its result is missing"), "{message}");
            ensure!(!rows.is_empty() && rows.len() < ROWS, "{} rows, then {message}", rows.len());
            ensure!(session.ping().is_err(), "the session goes on");
            session = Session::open(weir.addr(), "test")?;
            errors += 1;
        } else {
            ensure!(rows.len() == ROWS, "{} rows and no error", rows.len());
        }
        ensure!(errors == forwarder.cuts(), "{errors} errors, {} cuts", forwarder.cuts());
        Ok(errors >= 2)
    })
}

fn effects(env: &Env) -> CaseResult {
    let (weir, forwarder) = cutting(env, true, 300)?;
    let schema = env.schema()?;
    let mut straight = Session::open(env.cluster()?.node(2).addr(), &schema)?;
    straight.run("CREATE TABLE done (id INT AUTO_INCREMENT PRIMARY KEY, what INT, text VARCHAR(100))")?;
    straight.run(
        "CREATE PROCEDURE p(what INT, mark TEXT) BEGIN INSERT INTO done (what) VALUES (what); \
         SELECT seq, mark FROM seq_1_to_200; END",
    )?;
    straight.run(
        "CREATE FUNCTION f(what INT) RETURNS INT DETERMINISTIC BEGIN INSERT INTO done (what) VALUES (what); RETURN 1; END",
    )?;
    let running =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE info LIKE CONCAT('%cut', ' me%')";
    let statements = [
        ("CALL p(0, 'cut me')", 1),
        ("SELECT f(1), REPEAT('x', 1000), 'cut me'", 1),
        ("INSERT INTO done (what, text) SELECT 2, REPEAT('cut me', 10) FROM seq_1_to_20 RETURNING text", 20),
    ];
    for (at, (sql, rows)) in statements.into_iter().enumerate() {
        let mut session = Session::open(weir.addr(), &schema)?;
        let answer = session.query(sql)?;
        let Some(Outcome::Err { code, sqlstate, message }) = answer.results.last() else {
            return Err(format!("{sql}: {answer:?}").into());
        };
        ensure!((*code, sqlstate.as_str()) == (1053, "08007"), "{sql}: {code} {sqlstate} {message}");
        ensure!(message.ends_with("it may or may not have taken effect"), "{sql}: {message}");
        ensure!(forwarder.cuts() as usize == at + 1, "{sql}: sent {} times", forwarder.cuts());
        let count = format!("SELECT COUNT(*) FROM done WHERE what = {at}");
        eventually("what ran has come to its end", PATIENCE, || Ok(straight.value(running)? == "0"))?;
        let found = straight.value(&count)?;
        ensure!(found == "0" || found == rows.to_string(), "{sql}: {found} rows");
    }
    ensure!(weir.log().contains("session closed in the middle of a result"), "{}", weir.log());
    Ok(())
}
