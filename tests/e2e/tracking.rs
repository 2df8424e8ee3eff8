//! Session tracking as clients see it. Weir has it switched on for itself, which no client may notice.

use weir_protocol::capability::Capabilities;
use weir_protocol::status::StatusFlags;
use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::session::Track;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

const UNKNOWN_VARIABLE: u16 = 1193;
const WRONG_VALUE: u16 = 1231;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("tracking::clients_that_did_not_ask_see_none", none_unasked),
        Case::parallel("tracking::clients_that_asked_see_what_a_server_shows", default_set),
        Case::parallel("tracking::a_client_switches_its_own_tracking", own_switch),
        Case::parallel("tracking::switching_it_off_breaks_nothing", switched_off),
    ]
}

const STATEMENTS: [&str; 24] = [
    "SET time_zone = '+01:00'",
    "SET sql_mode = 'ANSI'",
    "SET NAMES latin1",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET character_set_results = NULL",
    "SET sql_mode = '', time_zone = '+02:00'",
    "USE sbtest",
    "USE test",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "SET wait_timeout = 100",
    "SET @x = 1",
    "BEGIN",
    "SELECT 1",
    "COMMIT",
    "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SELECT 2",
    "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'test'",
    "CREATE TEMPORARY TABLE tracked (a INT)",
    "INSERT INTO tracked VALUES (1), (2)",
    "DROP TEMPORARY TABLE tracked",
    "SHOW WARNINGS",
    "DO 0",
    "SET STATEMENT time_zone = '+05:00' FOR SELECT 3",
];

fn none_unasked(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    for login in logins() {
        let mut client = Session::with(weir.addr(), &login)?;
        for sql in STATEMENTS {
            let answer = client.query(sql)?;
            let done = answer.done().map_err(|error| format!("{sql}: {error}"))?;
            let is_plain =
                done.tracks.is_empty() && !done.status.contains(StatusFlags::SESSION_STATE_CHANGED);
            ensure!(is_plain, "{sql}: {done:?}");
        }
    }
    Ok(())
}

/// With both forms of the packet behind the rows.
fn logins() -> [Login; 2] {
    let login = Login::new(Account::APP).schema("test");
    [login.clone(), login.without(Capabilities::DEPRECATE_EOF)]
}

fn default_set(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let direct = env.cluster()?.node(1).addr();
    for login in logins().map(|login| login.with(Capabilities::SESSION_TRACK)) {
        let (mut client, mut reference) =
            (Session::with(weir.addr(), &login)?, Session::with(direct, &login)?);
        for sql in STATEMENTS {
            let (through, expected) = (client.run(sql)?, reference.run(sql)?);
            ensure!(
                through.tracks == expected.tracks,
                "{sql}: through Weir {:?}, from a server {:?}",
                through.tracks,
                expected.tracks
            );
        }
        let (through, expected) = (client.use_schema("sbtest")?, reference.use_schema("sbtest")?);
        ensure!(through.done()?.tracks == expected.done()?.tracks, "COM_INIT_DB: {through:?}, {expected:?}");
        let (through, expected) = (client.reset()?, reference.reset()?);
        ensure!(through.done()?.tracks == expected.done()?.tracks, "reset: {through:?}, {expected:?}");
    }
    Ok(())
}

fn own_switch(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let login = Login::new(Account::APP).schema("test").with(Capabilities::SESSION_TRACK);
    let mut client = Session::with(weir.addr(), &login)?;
    let mut neighbour = Session::with(weir.addr(), &login)?;
    ensure!(client.value("SELECT @@session_track_schema")? == "1", "the default");

    client.run("SET session_track_schema = 0")?;
    ensure!(client.value("SELECT @@session_track_schema")? == "0", "what the client has set");
    ensure!(neighbour.value("SELECT @@session_track_schema")? == "1", "what the neighbour has not set");
    let (mine, theirs) = (client.run("USE sbtest")?.tracks, neighbour.run("USE sbtest")?.tracks);
    let schema = Track::Schema("sbtest".to_owned());
    ensure!(mine.is_empty() && theirs == [schema.clone()], "USE shows {mine:?} and {theirs:?}");

    client.run(
        "SET session_track_system_variables = 'sql_mode,wait_timeout', SESSION session_track_schema = ON",
    )?;
    let shown = client.value("SELECT @@session.session_track_system_variables")?;
    ensure!(shown == "sql_mode,wait_timeout", "the list is {shown}");
    let variable = |name: &str, value: &str| Track::Variable(name.to_owned(), value.to_owned());
    let (mine, theirs) =
        (client.run("SET wait_timeout = 99")?.tracks, neighbour.run("SET wait_timeout = 98")?.tracks);
    ensure!(mine == [variable("wait_timeout", "99")] && theirs.is_empty(), "{mine:?} and {theirs:?}");
    let tracks = client.run("SET time_zone = '+04:00'")?.tracks;
    ensure!(tracks.is_empty(), "time_zone is not in the client's list: {tracks:?}");
    let tracks = client.run("USE sbtest")?.tracks;
    ensure!(tracks == [schema], "schemas are shown again: {tracks:?}");

    client.refused("SET session_track_schema = 'perhaps'", WRONG_VALUE)?;
    client.refused("SET session_track_nothing = 1", UNKNOWN_VARIABLE)?;
    client.reset()?.done()?;
    ensure!(client.value("SELECT @@session_track_schema")? == "1", "the default after a reset");
    let shown = client.value("SELECT @@session_track_system_variables")?;
    ensure!(shown.starts_with("autocommit,"), "the list after a reset is {shown}");
    Ok(())
}

/// Whatever a client says about tracking, its state still goes where it goes.
fn switched_off(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1, 2], 1)?;
    let login = Login::new(Account::APP).schema("test");
    let mut client = Session::with(weir.addr(), &login)?;
    let mut neighbour = Session::with(weir.addr(), &login)?;
    client.run("SET session_track_schema = 0, sql_mode = 'ANSI'")?;
    client.run("SET session_track_system_variables = ''")?;
    client.run(
        "SET @@session.session_track_state_change = 1, SESSION session_track_transaction_info = 'STATE'",
    )?;
    client.run("USE sbtest")?;
    client.run("SET session_track_schema = 0, sql_mode = '', time_zone = '+06:00'")?;
    let look = "SELECT DATABASE(), @@sql_mode, @@time_zone";
    for round in 0..5 {
        let (ours, theirs) = (client.rows(look)?, neighbour.rows(look)?);
        ensure!(ours == [["sbtest", "", "+06:00"]], "round {round}: the client has {ours:?}");
        let is_default =
            theirs[0][0] == "test" && theirs[0][1].contains("STRICT") && theirs[0][2] == "SYSTEM";
        ensure!(is_default, "round {round}: the neighbour has {theirs:?}");
        let reads = [client.value("SELECT 5")?, neighbour.value("SELECT 6")?];
        ensure!(reads == ["5", "6"], "round {round}: {reads:?}");
    }
    let info = client.value("SELECT @@session_track_transaction_info")?;
    ensure!(info == "STATE", "session_track_transaction_info is {info}");
    Ok(())
}
