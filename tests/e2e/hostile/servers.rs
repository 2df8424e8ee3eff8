//! Servers. Whatever they send, the client gets an error or loses its connection, and Weir lives on.

use std::time::{Duration, Instant};

use weir_protocol::error::{LOCK_DEADLOCK, PARSE_ERROR};
use weir_protocol::frame::{self, Header};
use weir_protocol::resultset::ColumnType;
use weir_testkit::fake_server::{err_payload, ok_payload};
use weir_testkit::wire::Login;
use weir_testkit::{Account, FakeGreeting, FakeLogin, FakeServer, Script, Step, WeirConfig};
use weir_tests::session::Outcome;
use weir_tests::{Bystanders, Case, CaseResult, Env, Session, ensure};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("hostile::servers_with_broken_replies", broken_replies),
        Case::parallel("hostile::replies_in_pieces_of_one_byte", one_byte_pieces),
        Case::parallel("hostile::servers_with_broken_logins", broken_logins),
        Case::parallel("hostile::a_server_that_hangs_up_in_the_middle_of_rows", hangs_up),
        Case::parallel("hostile::a_server_that_speaks_unasked", speaks_unasked),
        Case::parallel("hostile::errors_in_odd_places", errors_in_odd_places),
    ]
}

/// A packet as bytes.
fn packet(seq: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write_packet(&mut bytes, &mut { seq }, payload);
    bytes
}

/// The definition of a column of strings, called `a`.
fn column() -> Vec<u8> {
    let mut payload = b"\x03def\0\0\0\x01a\0\x0C\x2D\0\0\x01\0\0".to_vec();
    payload.push(ColumnType::VAR_STRING.0);
    payload.extend_from_slice(&[0, 0, 0, 0, 0]);
    payload
}

/// The OK behind rows, with DEPRECATE_EOF.
fn rows_end() -> Vec<u8> {
    vec![0xFE, 0, 0, 2, 0, 0, 0]
}

/// A result of one column and these rows.
fn rows(values: &[&str]) -> Vec<u8> {
    let mut bytes = [packet(1, &[1]), packet(2, &column())].concat();
    let mut seq = 3;
    for value in values {
        bytes.extend(packet(seq, &[&[value.len() as u8], value.as_bytes()].concat()));
        seq += 1;
    }
    bytes.extend(packet(seq, &rows_end()));
    bytes
}

/// Accepts the user app, says OK to what Weir asks for itself, and follows `reply` from the first command with "bad"
/// in it on.
fn server(reply: Vec<Step>) -> Result<FakeServer, weir_testkit::TestkitError> {
    FakeServer::with_login(FakeGreeting::default(), move |login: &FakeLogin| {
        if login.user != "app" {
            return Script::new().ok_to_all();
        }
        let script = Script::new().step(Step::OkUntil(b"bad".to_vec()));
        reply.iter().fold(script, |script, step| script.step(step.clone()))
    })
}

/// The fake server for app, a real one for app2.
fn config(env: &Env, fake: &FakeServer) -> Result<WeirConfig, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(fake.addr(), 1, &[]);
    config.server(env.cluster()?.node(1).addr(), 2, &[]);
    config.user(Account::APP, 1, &[("default_schema", "".into())]);
    config.user(Account::APP2, 2, &[]);
    config.variable("threads", 1).variable("connect_timeout_server_max", 10_000);
    config.variable("default_schema", "");
    Ok(config)
}

/// Everything a broken reply may be; each is sent in place of a reply to a query.
fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let tracked = |entries: &[u8]| {
        // OK with the status "session state changed", an empty info, and the entries.
        let mut payload = vec![0, 0, 0, 2, 0x40, 0, 0, 0];
        payload.push(entries.len() as u8);
        payload.extend_from_slice(entries);
        packet(1, &payload)
    };
    let header = |len: usize, seq: u8| Header { len, seq }.encode().to_vec();
    vec![
        ("an empty packet", packet(1, b"")),
        ("a wrong sequence id", packet(9, &ok_payload())),
        ("the sequence id of the command", packet(0, &ok_payload())),
        ("a truncated OK", packet(1, &[0])),
        ("a truncated OK without its status", packet(1, &[0, 0, 0])),
        ("an OK with an oversized number", packet(1, &[0, 0xFE, 1])),
        ("a truncated ERR", packet(1, &[0xFF])),
        ("an ERR of one byte", packet(1, &[0xFF, 1])),
        ("a column count that is none", packet(1, &[0xFE, 0xFF])),
        ("a NULL for a column count", packet(1, &[0xFB])),
        ("4 billion columns", packet(1, &[0xFE, 0, 0, 0, 0, 1, 0, 0, 0])),
        ("16 million columns", packet(1, &[0xFD, 0xFF, 0xFF, 0xFF])),
        (
            "rows where columns belong",
            [packet(1, &[2]), packet(2, &column()), packet(3, &rows_end())].concat(),
        ),
        ("a gap in the sequence of rows", {
            let mut bytes = [packet(1, &[1]), packet(2, &column())].concat();
            bytes.extend(packet(4, b"\x01x"));
            bytes
        }),
        ("two replies", [packet(1, &ok_payload()), packet(1, &ok_payload())].concat()),
        ("session state beyond its end", tracked(&[0, 0x7F, 1, b'a'])),
        ("session state of an unknown kind", tracked(&[0x63, 2, 1, b'a'])),
        ("session state with a cut name", tracked(&[0, 3, 9, b'a', b'b'])),
        ("an empty schema", tracked(&[1, 0])),
        ("a request for a local file", packet(1, b"\xFB/etc/passwd")),
        ("a request for an auth switch", packet(1, b"\xFEmysql_native_password\0abcdefghijabcdefghij\0")),
        ("a prepared statement's OK", packet(1, &[0, 1, 0, 0, 0, 3, 0, 3, 0, 0, 0, 0])),
        ("a header of 16 MB and the end", [header(0xFF_FFFF, 1), vec![b'x'; 1000]].concat()),
        ("half a header", vec![7, 0]),
        ("nothing at all", Vec::new()),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ]
}

fn broken_replies(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    for (what, bytes) in broken() {
        let fake = server(vec![Step::Bytes(bytes), Step::Wait(Duration::from_millis(300)), Step::Close])?;
        let weir = env.weir_with(&config(env, &fake)?)?;
        let bystanders = Bystanders::start(weir.addr(), &Login::new(Account::APP2).schema(&schema), 2)?;
        let mut session = Session::with(weir.addr(), &Login::new(Account::APP))?;
        session.raw().packets().set_read_timeout(Duration::from_secs(20))?;
        let started = Instant::now();
        // SELECT is a read and would be run again: this one can't be.
        let answer = session.query("UPDATE bad SET a = 1");
        match answer {
            Err(error) => {
                let error = error.to_string();
                ensure!(
                    !error.contains("in time"),
                    "{what}: neither answer nor end after {:?}",
                    started.elapsed()
                );
            }
            // What is well-formed may pass, whatever it means.
            Ok(answer) => match answer.results.last() {
                Some(Outcome::Err { code, .. }) => ensure!(*code != 0, "{what}: {answer:?}"),
                other => ensure!(passes(what), "{what}: passed as {other:?}"),
            },
        }
        bystanders.finish().map_err(|error| format!("{what}: {error}"))?;
        ensure!(weir.process().exit_status().is_none(), "{what}: Weir has ended");
        ensure!(!weir.log().contains("panicked"), "{what}: {}", weir.log());
        // A new session reaches the server anew.
        Session::with(weir.addr(), &Login::new(Account::APP2).schema(&schema))?.value("SELECT 1")?;
    }
    Ok(())
}

/// Replies that a client may well see as they are, for there is nothing wrong in the part that concerns it.
fn passes(what: &str) -> bool {
    [
        "two replies",
        "an empty schema",
        "session state of an unknown kind",
        "session state with a cut name",
        "a prepared statement's OK",
    ]
    .contains(&what)
}

fn one_byte_pieces(env: &Env) -> CaseResult {
    let bytes = rows(&["one", "two", "three"]);
    let chunks = Step::Chunks { bytes, size: 1, pause: Duration::from_millis(2) };
    let fake = server(vec![chunks, Step::AnswerAll(ok_payload())])?;
    let weir = env.weir_with(&config(env, &fake)?)?;
    let mut session = Session::with(weir.addr(), &Login::new(Account::APP))?;
    let got = session.rows("SELECT bad FROM t FOR UPDATE")?;
    ensure!(got == [["one"], ["two"], ["three"]], "{got:?}");
    session.run("UPDATE t SET a = 1")?;
    ensure!(fake.failures().is_empty(), "{:?}", fake.failures());
    Ok(())
}

fn broken_logins(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    Bystanders::make_table(env, &schema)?;
    let openings: Vec<(&str, Vec<Step>)> = vec![
        ("closes at once", vec![]),
        ("resets at once", vec![Step::Reset]),
        ("sends garbage", vec![Step::Bytes(b"HTTP/1.1 200 OK\r\n\r\n".to_vec())]),
        ("sends an empty packet", vec![Step::Bytes(packet(0, b"")), Step::Wait(Duration::from_millis(200))]),
        ("speaks protocol 9", vec![Step::Bytes(packet(0, b"\x093.23\0\0\0\0\0abcdefgh\0"))]),
        (
            "announces 16 MB",
            vec![Step::Bytes(vec![0xFF, 0xFF, 0xFF, 0]), Step::Wait(Duration::from_millis(200))],
        ),
        ("refuses in the greeting", vec![Step::Bytes(packet(0, &[0xFF, 0x10, 0x04, b'T', b'o', b'o']))]),
        ("a greeting without an end", vec![Step::Bytes(packet(0, b"\x0A5.5.5-10.11.9-MariaDB"))]),
        ("never speaks", vec![Step::Ignore]),
    ];
    for (what, steps) in openings {
        let script = steps.iter().fold(Script::new(), |script, step| script.step(step.clone()));
        let fake = FakeServer::raw(move |_| script.clone())?;
        let mut config = config(env, &fake)?;
        // The server of the bystanders is meant, too.
        config.variable("connect_timeout_server", 2000).variable("connect_timeout_server_max", 6000);
        let weir = env.weir_with(&config)?;
        let bystanders = Bystanders::start(weir.addr(), &Login::new(Account::APP2).schema(&schema), 2)?;
        let answer = Session::with(weir.addr(), &Login::new(Account::APP))?.query("SELECT 1")?;
        ensure!(answer.error() == Some(9001), "{what}: {answer:?}");
        bystanders.finish().map_err(|error| format!("{what}: {error}"))?;
        ensure!(!weir.log().contains("panicked"), "{what}: {}", weir.log());
    }
    Ok(())
}

fn hangs_up(env: &Env) -> CaseResult {
    let whole = rows(&["one", "two", "three"]);
    for (at, end) in
        [(1, Step::Close), (5, Step::Close), (whole.len() - 12, Step::Reset), (whole.len() - 1, Step::Close)]
    {
        let fake =
            server(vec![Step::Bytes(whole[..at].to_vec()), Step::Wait(Duration::from_millis(50)), end])?;
        let weir = env.weir_with(&config(env, &fake)?)?;
        let mut session = Session::with(weir.addr(), &Login::new(Account::APP))?;
        match session.query("SELECT bad FROM t FOR UPDATE") {
            Err(error) => ensure!(!error.to_string().contains("in time"), "{at} bytes: {error}"),
            Ok(answer) => ensure!(answer.error() == Some(1053), "{at} bytes: {answer:?}"),
        }
    }
    Ok(())
}

fn speaks_unasked(env: &Env) -> CaseResult {
    // As MySQL 8 does when it closes a connection that was idle too long.
    let farewell =
        packet(0, b"\xFF\xBF\x0F#HY000The client was disconnected by the server because of inactivity.");
    let ok = packet(1, &ok_payload());
    let fake = server(vec![
        Step::Bytes(ok),
        Step::Wait(Duration::from_millis(100)),
        Step::Bytes(farewell),
        Step::Close,
    ])?;
    let weir = env.weir_with(&config(env, &fake)?)?;
    let mut session = Session::with(weir.addr(), &Login::new(Account::APP))?;
    for round in 0..4 {
        // Each finds the last connection gone, and gets a new one.
        session.run("UPDATE bad SET a = 1").map_err(|error| format!("round {round}: {error}"))?;
        std::thread::sleep(Duration::from_millis(250));
    }
    ensure!(fake.failures().is_empty(), "{:?}", fake.failures());
    Ok(())
}

fn errors_in_odd_places(env: &Env) -> CaseResult {
    let err = |seq| packet(seq, &err_payload(LOCK_DEADLOCK, "Deadlock found"));
    let places = [
        ("in place of the column count", err(1)),
        ("in place of a column", [packet(1, &[2]), packet(2, &column()), err(3)].concat()),
        ("in place of the first row", [packet(1, &[1]), packet(2, &column()), err(3)].concat()),
        ("behind a row", [packet(1, &[1]), packet(2, &column()), packet(3, b"\x01x"), err(4)].concat()),
    ];
    for (what, bytes) in places {
        let more = packet(1, &err_payload(PARSE_ERROR, "the next"));
        let fake = server(vec![
            Step::Bytes(bytes),
            // Whatever Weir asks after an error to know the state of the session.
            Step::AnswerAll(ok_payload()),
            Step::Bytes(more),
        ])?;
        let weir = env.weir_with(&config(env, &fake)?)?;
        let mut session = Session::with(weir.addr(), &Login::new(Account::APP))?;
        // A client that waits for a column takes an error for one: what counts is that it gets to see it.
        session.send_query("SELECT bad FROM t FOR UPDATE")?;
        let packets = session.raw().packets();
        let mut code = None;
        while code.is_none() {
            match packets.read_packet() {
                Ok(packet) if packet.first() == Some(0xFF) => code = Some(packet.err()?.code),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        let is_told = matches!(code, Some(1213 | 1053));
        ensure!(is_told || packets.is_closed(), "{what}: told {code:?}, and still open");
    }
    Ok(())
}
