//! Session tracking as clients see it. Weir has it switched on for itself, which no client may notice.

use std::net::SocketAddrV4;

use weir_protocol::capability::Capabilities;
use weir_protocol::status::StatusFlags;
use weir_testkit::Account;
use weir_testkit::wire::Login;
use weir_tests::session::{Param, Track};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

const UNKNOWN_VARIABLE: u16 = 1193;
const WRONG_VALUE: u16 = 1231;
const REFUSED_BY_WEIR: u16 = 1105;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("tracking::clients_that_did_not_ask_see_none", none_unasked),
        Case::parallel("tracking::clients_that_asked_see_what_a_server_shows", default_set),
        Case::parallel("tracking::a_client_switches_its_own_tracking", own_switch),
        Case::parallel("tracking::switching_it_off_breaks_nothing", switched_off),
        Case::parallel("tracking::values_are_taken_and_refused_as_by_a_server", values),
        Case::parallel("tracking::values_are_taken_and_refused_as_by_mysql", values_mysql),
        Case::parallel("tracking::a_prepared_set_is_the_clients_own", prepared),
        Case::parallel("tracking::what_a_list_refuses_changes_nothing", lists),
        Case::parallel("tracking::a_list_is_no_way_into_statements", injection),
        Case::parallel("tracking::what_routines_set_is_the_sessions_own", set_in_routines),
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

const LIST: &str = "session_track_system_variables";

/// What is assigned to the list.
const LISTS: [&str; 31] = [
    "NULL",
    "DEFAULT",
    "'time_zone,sql_mode'",
    "'*'",
    "'time_zone,*'",
    "'*,time_zone'",
    "' * '",
    "'sql_mode , time_zone'",
    "''",
    "','",
    "'time_zone,,sql_mode'",
    "'time_zone,time_zone'",
    "'wait_timeout,sql_mode,wait_timeout'",
    "'nosuch'",
    "'nosuch,nosuch'",
    "'time_zone,nosuch'",
    "'`time_zone`'",
    r"'time_zone\';drop table x; -- '",
    "1",
    "1.5",
    "ON",
    "time_zone",
    "'max_connections'",
    "CONCAT(@@global.session_track_system_variables, ',sql_mode')",
    "CONCAT(@@session_track_system_variables, ',sql_mode')",
    "@@session.session_track_system_variables",
    "@undefined",
    "(SELECT 'sql_mode')",
    "x'74696d655f7a6f6e65'",
    "CONCAT('no', 'such', @@nosuch)",
    "REPEAT('x', -1)",
];

const OTHERS: [&str; 23] = [
    "session_track_schema = NULL",
    "session_track_schema = 'off'",
    "session_track_schema = 2",
    "session_track_schema = 0.0",
    "session_track_schema = 'true'",
    "session_track_schema = TRUE",
    "session_track_schema = 1 = 1",
    "session_track_schema = yes",
    "session_track_schema = @@global.session_track_schema",
    "session_track_state_change = '1'",
    "session_track_state_change = 1 + 0",
    "session_track_transaction_info = 1",
    "session_track_transaction_info = 'characteristics'",
    "session_track_transaction_info = 3",
    "session_track_transaction_info = 1e0",
    "session_track_transaction_info = CONCAT('ST', 'ATE')",
    "session_track_transaction_info = DEFAULT",
    "session_track_gtids = 2",
    "session_track_gtids = OWN_GTID",
    "session_track_gtids = 'ON'",
    "session_track_gtids = NULL",
    "session_track_nonsense = 1",
    "session_track_schema = 1, session_track_state_change = 7",
];

fn values(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let direct = env.cluster()?.node(1).addr();
    compare_values(weir.addr(), direct, Login::new(Account::APP))?;
    // As MariaDB's own clients do, to whom column definitions say more.
    let theirs = Login::new(Account::APP)
        .with(Capabilities::MARIADB_EXTENDED_METADATA)
        .without(Capabilities::LONG_PASSWORD);
    compare_values(weir.addr(), direct, theirs)
}

fn values_mysql(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(1)?;
    compare_values(weir.addr(), env.mysql()?.source().addr(), Login::new(Account::APP))?;
    let mut client = Session::open(weir.addr(), "test")?;
    client.run("BEGIN")?;
    client.refused("SET session_track_gtids = OWN_GTID", 1766)?;
    client.run("SET session_track_schema = 0")?;
    client.run("COMMIT")?;
    client.run("SET session_track_gtids = OWN_GTID")?;
    Ok(())
}

fn compare_values(through: SocketAddrV4, direct: SocketAddrV4, login: Login) -> CaseResult {
    let login = login.schema("test").with(Capabilities::SESSION_TRACK);
    let (mut client, mut reference) = (Session::with(through, &login)?, Session::with(direct, &login)?);
    let mut neighbour = Session::open(through, "test")?;
    let all = LISTS.iter().map(|value| format!("{LIST} = {value}")).chain(OTHERS.map(str::to_owned));
    for assignment in all {
        let sql = format!("SET {assignment}");
        let (mine, expected) = (client.query(&sql)?, reference.query(&sql)?);
        ensure!(mine.error() == expected.error(), "{sql}: {mine:?} in place of {expected:?}");
        let name = assignment.split(' ').next().unwrap_or_default();
        let look = format!("SELECT @@{name}");
        ensure!(client.query(&look)?.error() == reference.query(&look)?.error(), "{look} after {sql}");
        if expected.error().is_none() {
            // MariaDB's default list has it since 11.3; in Weir's it is left out: clients that follow it would leave Weir.
            let [mine, expected] =
                [client.value(&look)?, reference.value(&look)?].map(|list| list.replace("redirect_url,", ""));
            ensure!(mine == expected, "{sql}: the value is {mine} in place of {expected}");
        }
        // What is listed is shown.
        for sql in ["SET sql_mode = 'ANSI'", "SET time_zone = '+03:00'", "SET wait_timeout = 9999"] {
            let (mine, expected) = (client.run(sql)?.tracks, reference.run(sql)?.tracks);
            let of_variables = |tracks: &[Track]| -> Vec<Track> {
                let is_variable =
                    |track: &&Track| matches!(track, Track::Variable(name, _) if name != "statement_id");
                tracks.iter().filter(is_variable).cloned().collect()
            };
            ensure!(
                of_variables(&mine) == of_variables(&expected),
                "{assignment}, {sql}: {mine:?}, {expected:?}"
            );
        }
        let theirs = neighbour
            .value("SELECT CONCAT(@@time_zone, @@sql_mode)")
            .map_err(|error| format!("{assignment}: {error}"))?;
        ensure!(
            theirs.starts_with("SYSTEM") && !theirs.contains("ANSI"),
            "after {sql} the neighbour has {theirs}"
        );
        for sql in [
            "SET session_track_system_variables = DEFAULT, session_track_schema = DEFAULT",
            "SET session_track_state_change = DEFAULT, session_track_transaction_info = DEFAULT",
            "SET sql_mode = DEFAULT, time_zone = DEFAULT",
        ] {
            client.run(sql)?;
            reference.run(sql)?;
        }
    }
    Ok(())
}

/// Prepared with and without parameters. If it reached the server, what the next session does would go unseen.
fn prepared(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let login = Login::new(Account::APP).schema("test").with(Capabilities::SESSION_TRACK);
    let mut client = Session::with(weir.addr(), &login)?;
    let mut neighbour = Session::open(weir.addr(), "test")?;
    let no_schema = client.prepare("SET session_track_schema = 0")?;
    let switch = client.prepare("SET session_track_schema = ?, time_zone = '+02:00'")?;
    let list =
        client.prepare("SET session_track_system_variables = CONCAT(@@session_track_system_variables, ?)")?;
    client.execute(&no_schema, &[])?.done()?;
    ensure!(client.value("SELECT @@session_track_schema")? == "0", "what the client has set");
    ensure!(client.run("USE sbtest")?.tracks.is_empty(), "USE is shown");
    ensure!(neighbour.value("SELECT DATABASE()")? == "test", "the neighbour is in another schema");
    client.execute(&list, &[Param::Text(",wait_timeout".into())])?.done()?;
    client.execute(&switch, &[Param::Int(1)])?.done()?;
    let shown = client.run("SET wait_timeout = 77")?.tracks;
    ensure!(shown == [Track::Variable("wait_timeout".to_owned(), "77".to_owned())], "{shown:?}");
    ensure!(client.value("SELECT @@time_zone")? == "+02:00", "the rest of the list");
    for round in 0..3 {
        client.run(if round % 2 == 0 { "USE test" } else { "USE sbtest" })?;
        let theirs = neighbour.rows("SELECT DATABASE(), @@time_zone, @@session_track_schema")?;
        ensure!(theirs == [["test", "SYSTEM", "1"]], "the neighbour has {theirs:?}");
        neighbour.run("USE test")?;
    }
    client
        .execute(&switch, &[Param::Null])?
        .error()
        .filter(|code| *code == WRONG_VALUE)
        .ok_or("NULL is taken")?;
    for sql in
        ["SET STATEMENT session_track_schema = 0 FOR SELECT 1", "SET session_track_schema = 0, ROLE NONE"]
    {
        let refused = client.try_prepare(sql)?;
        ensure!(refused.is_err(), "{sql} is prepared");
        client.refused(sql, REFUSED_BY_WEIR)?;
    }
    client.run("SET GLOBAL session_track_schema = 1")?;
    Ok(())
}

fn lists(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let mut client = Session::open(weir.addr(), "test")?;
    client.refused("SET session_track_schema = 0, time_zone = 'nowhere'", 1298)?;
    client.refused("SET time_zone = '+09:00', session_track_schema = 5", WRONG_VALUE)?;
    client.refused("SET time_zone = '+09:00', session_track_schema = (SELECT 0 FROM nowhere)", 1146)?;
    let shown = client.rows("SELECT @@session_track_schema, @@time_zone")?;
    ensure!(shown == [["1", "SYSTEM"]], "{shown:?}");
    client
        .run("SET session_track_schema = (SELECT 0 FROM DUAL), time_zone = '+09:00', @x = CONNECTION_ID()")?;
    let shown = client.rows("SELECT @@session_track_schema, @@time_zone, @x = CONNECTION_ID()")?;
    ensure!(shown == [["0", "+09:00", "1"]], "{shown:?}");
    // Diagnostics of the statement before stay.
    client.run("SELECT 1 UNION SELECT 2 UNION SELECT 3")?;
    client.run("SET session_track_schema = 1 + 0")?;
    let rows = client.value("SELECT FOUND_ROWS()")?;
    ensure!(rows == "3", "FOUND_ROWS() is {rows}");
    Ok(())
}

/// What code at the server sets is what the session reads, until it sets the variable itself, and is nobody else's.
fn set_in_routines(env: &Env) -> CaseResult {
    const READ: &str = "SELECT @@session_track_schema, @@session_track_state_change, \
                        @@session_track_system_variables, @@session_track_transaction_info";
    const DEFAULTS: [&str; 4] = [
        "1",
        "0",
        "autocommit,character_set_client,character_set_connection,character_set_results,time_zone",
        "OFF",
    ];
    let weir = env.narrow_weir(&[1], 1)?;
    let schema = env.schema()?;
    let mut client = Session::open(weir.addr(), &schema)?;
    let mut neighbour = Session::open(weir.addr(), &schema)?;
    client.run(
        "CREATE PROCEDURE p_switches() SET SESSION session_track_schema = 0, session_track_state_change = 1, \
         session_track_transaction_info = 'STATE'",
    )?;
    client.run("CREATE PROCEDURE p_list() SET SESSION session_track_system_variables = 'wait_timeout'")?;
    client.run(
        "CREATE PROCEDURE p_fails() BEGIN SET SESSION pseudo_thread_id = 4242; SIGNAL SQLSTATE '45000'; END",
    )?;
    client.run("CALL p_switches()")?;
    let shown = client.rows(READ)?;
    ensure!(shown == [["0", "1", DEFAULTS[2], "STATE"]], "{shown:?}");
    client.run("CALL p_list()")?;
    let shown = client.rows(READ)?;
    ensure!(shown == [["0", "1", "wait_timeout", "STATE"]], "{shown:?}");
    client.run("SET session_track_schema = 1, session_track_system_variables = 'sql_mode'")?;
    let shown = client.rows(READ)?;
    ensure!(shown == [["1", "1", "sql_mode", "STATE"]], "{shown:?}");
    client.reset()?.done()?;
    for session in [&mut client, &mut neighbour] {
        let shown = session.rows(READ)?;
        ensure!(shown == [DEFAULTS], "{shown:?}");
    }
    client.refused("CALL p_fails()", 1644)?;
    ensure!(
        client.value("SELECT @@pseudo_thread_id")? == "4242",
        "what the routine has set before it failed"
    );
    Ok(())
}

fn injection(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let schema = env.schema()?;
    let login = Login::new(Account::APP).schema(&schema).with(Capabilities::MULTI_STATEMENTS);
    let mut client = Session::with(weir.addr(), &login)?;
    client.run("CREATE TABLE kept (a INT)")?;
    for mode in ["", "NO_BACKSLASH_ESCAPES"] {
        client.run(&format!("SET sql_mode = '{mode}'"))?;
        for value in [
            r"'time_zone\';DROP TABLE kept; -- '",
            r"'time_zone\\\';DROP TABLE kept; -- '",
            r#""time_zone';DROP TABLE kept; -- ""#,
            "'time_zone'';DROP TABLE kept; -- '",
            "CONCAT('time_zone', CHAR(39), ';DROP TABLE kept; -- ')",
        ] {
            let _ = client.query(&format!("SET {LIST} = {value}"))?;
            let _ = client.query(&format!("SELECT @@{LIST}"))?;
            let _ = client.query(&format!("SET @x = @@{LIST}"))?;
        }
    }
    client.run("SELECT COUNT(*) FROM kept")?;
    Ok(())
}
