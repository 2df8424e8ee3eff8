//! A session's state is its own, whatever failed, was dropped or was forbidden in between.

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use weir_protocol::capability::Capabilities;
use weir_protocol::status::StatusFlags;
use weir_testkit::wire::Login;
use weir_testkit::{Account, TestkitError, Weir};
use weir_tests::session::Answer;
use weir_tests::{Case, CaseResult, Env, Session, ensure};

const UNKNOWN_DATABASE: u16 = 1049;
const ACCESS_DENIED_TO_SCHEMA: u16 = 1044;
const NO_SUCH_TABLE: u16 = 1146;
const DUPLICATE_KEY: u16 = 1062;
const SIGNALLED: u16 = 1644;
const PARSE_ERROR: u16 = 1064;
const DEADLOCK: u16 = 1213;
const LOCK_WAIT_TIMEOUT: u16 = 1205;
const LOCK_NOT_AVAILABLE: [u16; 2] = [1205, 3572];

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("session_state::a_dropped_schema_never_sends_an_insert_elsewhere", schema_dropped),
        Case::parallel("session_state::revoked_rights_never_send_an_insert_elsewhere", rights_revoked),
        Case::parallel("session_state::a_refused_use_changes_nothing", use_refused),
        Case::parallel(
            "session_state::a_setting_that_one_node_refuses_is_read_from_the_writer",
            refused_by_reader,
        ),
        Case::parallel(
            "session_state::what_a_call_changed_before_it_failed_stays_with_its_session",
            failing_call,
        ),
        Case::parallel(
            "session_state::a_duplicate_key_without_autocommit_leaves_a_transaction",
            open_after_error,
        ),
        Case::parallel(
            "session_state::statements_before_a_failing_one_have_changed_the_session",
            half_a_text,
        ),
        Case::parallel("session_state::a_deadlock_ends_the_transaction", deadlock),
        Case::parallel("session_state::a_lock_wait_timeout_keeps_the_transaction", lock_wait),
        Case::parallel("session_state::another_nodes_write_ends_the_transaction", conflict_between_nodes),
        Case::parallel("session_state::found_rows_clients_count_otherwise_than_others", found_rows_clients),
        Case::parallel(
            "session_state::several_statements_only_for_clients_that_asked",
            multi_statement_clients,
        ),
        Case::parallel("session_state::an_unknown_setting_travels_with_its_session", settings_travel),
        Case::parallel("session_state::a_setting_written_with_two_at_signs_is_noticed", at_signs),
    ]
}

/// Two schemas with a table `t` each, and two sessions of one connection: one in each schema.
struct TwoSchemas {
    weir: Weir,
    mine: String,
    other: String,
}

impl TwoSchemas {
    fn new(env: &Env) -> Result<TwoSchemas, Box<dyn Error>> {
        let (mine, other) = (env.schema()?, env.schema()?);
        for schema in [&mine, &other] {
            make_table(env, schema)?;
        }
        Ok(TwoSchemas { weir: env.narrow_weir(&[1], 1)?, mine, other })
    }
}

fn make_table(env: &Env, schema: &str) -> Result<(), Box<dyn Error>> {
    let sql = format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)");
    env.cluster()?.node(1).root_query(&sql)?;
    Ok(())
}

fn schema_dropped(env: &Env) -> CaseResult {
    let TwoSchemas { weir, mine, other } = TwoSchemas::new(env)?;
    let node = env.cluster()?.node(1);
    let mut client = Session::open(weir.addr(), &mine)?;
    let mut neighbour = Session::open(weir.addr(), &other)?;
    client.run("INSERT INTO t VALUES (1, 1)")?;
    neighbour.run("INSERT INTO t VALUES (1, 1)")?;
    node.root_query(&format!("DROP DATABASE {mine}"))?;
    for sql in ["INSERT INTO t VALUES (2, 2)", "DELETE FROM t", "DROP TABLE t", "SELECT v FROM t"] {
        let answer = client.query(sql)?;
        let refused = matches!(answer.error(), Some(UNKNOWN_DATABASE | NO_SUCH_TABLE));
        ensure!(refused, "{sql} in a dropped schema: {answer:?}");
        let rows = neighbour.rows("SELECT id FROM t")?;
        ensure!(rows == [["1"]], "{sql} ran in the neighbour's schema, which has {rows:?} now");
    }
    node.root_query(&format!("CREATE DATABASE {mine}"))?;
    make_table(env, &mine)?;
    client.run("INSERT INTO t VALUES (3, 3)")?;
    let rows = node.root_query(&format!("SELECT id FROM {mine}.t"))?;
    ensure!(rows == [["3"]], "the schema made again has {rows:?}");
    Ok(())
}

fn rights_revoked(env: &Env) -> CaseResult {
    let mine = env.schema()?;
    make_table(env, &mine)?;
    let node = env.cluster()?.node(1);
    let limited = Account::LIMITED;
    let (grant, revoke) =
        (format!("GRANT ALL ON {mine}.* TO limited"), format!("REVOKE ALL ON {mine}.* FROM limited"));
    node.root_query(&grant)?;
    node.root_query("CREATE TABLE IF NOT EXISTS limited.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")?;
    let weir = env.narrow_weir(&[1], 1)?;
    let mut client = Session::with(weir.addr(), &Login::new(limited).schema(&mine))?;
    let mut neighbour = Session::with(weir.addr(), &Login::new(limited).schema("limited"))?;
    client.run("INSERT INTO t VALUES (1, 1)")?;
    neighbour.run("DELETE FROM t")?;
    node.root_query(&revoke)?;
    client.refused("INSERT INTO t VALUES (2, 2)", ACCESS_DENIED_TO_SCHEMA)?;
    client.refused("SELECT v FROM t", ACCESS_DENIED_TO_SCHEMA)?;
    let rows = neighbour.rows("SELECT id FROM t")?;
    ensure!(rows.is_empty(), "the INSERT ran in the neighbour's schema: {rows:?}");
    node.root_query(&grant)?;
    client.run("INSERT INTO t VALUES (3, 3)")?;
    let rows = client.rows("SELECT id FROM t ORDER BY id")?;
    ensure!(rows == [["1"], ["3"]], "with its rights back the client sees {rows:?}");
    node.root_query(&revoke)?;
    node.root_query("DROP TABLE limited.t")?;
    Ok(())
}

fn use_refused(env: &Env) -> CaseResult {
    let TwoSchemas { weir, mine, other } = TwoSchemas::new(env)?;
    let mut client = Session::open(weir.addr(), &mine)?;
    let mut neighbour = Session::open(weir.addr(), &other)?;
    client.refused("USE no_such_schema", UNKNOWN_DATABASE)?;
    let answer = client.use_schema("no_such_schema")?;
    ensure!(answer.error() == Some(UNKNOWN_DATABASE), "COM_INIT_DB: {answer:?}");
    neighbour.run("INSERT INTO t VALUES (1, 1)")?;
    client.run("INSERT INTO t VALUES (2, 2)")?;
    ensure!(client.value("SELECT DATABASE()")? == mine, "the refused USE has moved the client");

    // Both at once, as a client that does not wait for answers sends them.
    let mut both = Vec::new();
    weir_protocol::command::put_init_db(&mut both, b"no_such_schema");
    weir_protocol::command::put_query(&mut both, b"INSERT INTO t VALUES (4, 4)");
    neighbour.run("DO 0")?;
    client.raw().packets().write_bytes(&both)?;
    let refused = client.results()?;
    ensure!(refused.error() == Some(UNKNOWN_DATABASE), "{refused:?}");
    client.results()?.done()?;
    let (mine, other) = (client.rows("SELECT id FROM t ORDER BY id")?, neighbour.rows("SELECT id FROM t")?);
    ensure!(mine == [["2"], ["4"]] && other == [["1"]], "the client has {mine:?}, the neighbour {other:?}");
    Ok(())
}

/// Time zone tables are not replicated by Galera, so one node may know a zone that another does not.
fn refused_by_reader(env: &Env) -> CaseResult {
    let cluster = env.cluster()?;
    let schema = env.schema()?;
    make_table(env, &schema)?;
    let weir = env.narrow_weir(&[1, 2], 1)?;
    let mut client = Session::open(weir.addr(), &schema)?;
    let mut neighbour = Session::open(weir.addr(), &schema)?;
    let writer = client.value("SELECT @@wsrep_node_name")?;
    let Some(writer) = cluster.nodes().iter().find(|node| node.name() == writer) else {
        return Err(format!("no node is called {writer}").into());
    };
    writer.root_query(
        "SET SESSION wsrep_on = 0, sql_log_bin = 0; \
         REPLACE INTO mysql.time_zone VALUES (4711, 'N'); \
         REPLACE INTO mysql.time_zone_name VALUES ('Weir/Laboratory', 4711); \
         REPLACE INTO mysql.time_zone_transition_type VALUES (4711, 0, 25200, 0, 'LAB')",
    )?;
    client.run("INSERT INTO t VALUES (1, 1)")?;
    for node in cluster.nodes() {
        node.root_query(&format!("SET SESSION wsrep_sync_wait = 1; SELECT v FROM {schema}.t"))?;
    }
    client.run("SET time_zone = 'Weir/Laboratory'")?;
    // 0 gives NULL since MariaDB 11.5.
    let plain_read = "SELECT v, FROM_UNIXTIME(1) FROM t";
    for round in 0..40 {
        let rows = client.rows(plain_read)?;
        ensure!(rows == [["1", "1970-01-01 07:00:01"]], "round {round}: the client's zone gives {rows:?}");
        let rows = neighbour.rows(plain_read)?;
        ensure!(rows == [["1", "1970-01-01 00:00:01"]], "round {round}: the neighbour's zone gives {rows:?}");
        let zone = client.value("SELECT @@time_zone")?;
        ensure!(zone == "Weir/Laboratory", "round {round}: the client's zone is {zone}");
        // By then readers are known to have the row, and are tried again.
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn failing_call(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    Session::open(env.cluster()?.node(1).addr(), &schema)?.run(
        "CREATE PROCEDURE p() BEGIN SET time_zone = '+07:00'; SET @x = 7; \
         SET SESSION group_concat_max_len = 77; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'enough'; END",
    )?;
    let weir = env.narrow_weir(&[1], 2)?;
    let look = "SELECT @@time_zone, @x, @@group_concat_max_len = @@global.group_concat_max_len";
    let mut client = Session::open(weir.addr(), &schema)?;
    client.refused("CALL p()", SIGNALLED)?;
    for _ in 0..4 {
        let mut neighbour = Session::open(weir.addr(), &schema)?;
        let (theirs, ours) = (neighbour.rows(look)?, client.rows(look)?);
        ensure!(theirs == [["SYSTEM", "NULL", "1"]], "the neighbour finds {theirs:?}");
        ensure!(ours == [["+07:00", "7", "0"]], "the caller finds {ours:?}");
    }
    client.refused("CALL p()", SIGNALLED)?;
    drop(client);
    for _ in 0..4 {
        let mut neighbour = Session::open(weir.addr(), &schema)?;
        let theirs = neighbour.rows(look)?;
        ensure!(theirs == [["SYSTEM", "NULL", "1"]], "who comes after the caller finds {theirs:?}");
    }
    Ok(())
}

fn open_after_error(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    make_table(env, &schema)?;
    let weir = env.narrow_weir(&[1], 2)?;
    let mut client = Session::open(weir.addr(), &schema)?;
    let mut neighbour = Session::open(weir.addr(), &schema)?;
    client.run("INSERT INTO t VALUES (1, 1)")?;
    client.run("SET autocommit = 0")?;
    client.refused("INSERT INTO t VALUES (1, 2)", DUPLICATE_KEY)?;
    // The row that it ran into is locked, so the transaction is there.
    let answer = neighbour.query("SELECT v FROM t WHERE id = 1 FOR UPDATE NOWAIT")?;
    let is_locked = answer.error().is_some_and(|code| LOCK_NOT_AVAILABLE.contains(&code));
    ensure!(is_locked, "the neighbour gets the locked row: {answer:?}");
    let status = client.ping()?.done()?.status;
    ensure!(status.contains(StatusFlags::IN_TRANS), "after the duplicate key: {status:?}");
    client.run("INSERT INTO t VALUES (2, 2)")?;
    ensure!(neighbour.value("SELECT COUNT(*) FROM t")? == "1", "the neighbour sees what is not committed");
    client.run("ROLLBACK")?;
    neighbour.run("UPDATE t SET v = 9 WHERE id = 1")?;
    let count = client.value("SELECT COUNT(*) FROM t")?;
    ensure!(count == "1", "after the ROLLBACK there are {count} rows");
    Ok(())
}

fn half_a_text(env: &Env) -> CaseResult {
    let TwoSchemas { weir, mine, other } = TwoSchemas::new(env)?;
    let login = Login::new(Account::APP).schema(&mine).with(Capabilities::MULTI_STATEMENTS);
    let mut client = Session::with(weir.addr(), &login)?;
    let mut neighbour = Session::with(weir.addr(), &login)?;
    let text = format!(
        "SET time_zone = '+03:00'; USE {other}; INSERT INTO t VALUES (1, 1); SELECT * FROM nowhere; USE {mine}"
    );
    let answer = client.query(&text)?;
    ensure!(answer.results.len() == 4 && answer.error() == Some(NO_SUCH_TABLE), "{answer:?}");
    let look = "SELECT @@time_zone, DATABASE(), (SELECT COUNT(*) FROM t)";
    for round in 0..3 {
        let (theirs, ours) = (neighbour.rows(look)?, client.rows(look)?);
        ensure!(theirs == [["SYSTEM", &*mine, "0"]], "round {round}: the neighbour finds {theirs:?}");
        ensure!(ours == [["+03:00", &*other, "1"]], "round {round}: the client finds {ours:?}");
    }
    // Dies in the middle of a transaction of its own.
    let answer = client.query("BEGIN; UPDATE t SET v = 5; SELECT * FROM nowhere; COMMIT")?;
    ensure!(answer.error() == Some(NO_SUCH_TABLE), "{answer:?}");
    let status = client.ping()?.done()?.status;
    ensure!(status.contains(StatusFlags::IN_TRANS), "the transaction is open, but the status is {status:?}");
    client.run("ROLLBACK")?;
    let value = neighbour.value(&format!("SELECT v FROM {other}.t"))?;
    ensure!(value == "1", "the update was rolled back, but v is {value}");
    Ok(())
}

/// Two sessions that have each locked a row in a transaction: the first has row 1, the second row 2.
fn two_lockers(env: &Env) -> Result<(Weir, String, Session, Session), Box<dyn Error>> {
    let schema = env.schema()?;
    make_table(env, &schema)?;
    let weir = env.narrow_weir(&[1], 3)?;
    let mut first = Session::open(weir.addr(), &schema)?;
    let mut second = Session::open(weir.addr(), &schema)?;
    first.run("INSERT INTO t VALUES (1, 0), (2, 0)")?;
    for (session, id) in [(&mut first, 1), (&mut second, 2)] {
        session.run("SET innodb_lock_wait_timeout = 1")?;
        session.run("BEGIN")?;
        session.run(&format!("UPDATE t SET v = {id} WHERE id = {id}"))?;
    }
    Ok((weir, schema, first, second))
}

fn deadlock(env: &Env) -> CaseResult {
    let (weir, schema, mut first, mut second) = two_lockers(env)?;
    first.send_query("UPDATE t SET v = 3 WHERE id = 2")?;
    thread::sleep(Duration::from_millis(100));
    second.send_query("UPDATE t SET v = 4 WHERE id = 1")?;
    let (one, two) = (first.results()?, second.results()?);
    let (mut winner, mut victim) = match (one.error(), two.error()) {
        (Some(DEADLOCK), None) => (second, first),
        (None, Some(DEADLOCK)) => (first, second),
        _ => return Err(format!("no deadlock: {one:?}, {two:?}").into()),
    };
    let status = victim.ping()?.done()?.status;
    ensure!(!status.contains(StatusFlags::IN_TRANS), "the victim's transaction is gone, but: {status:?}");
    victim.run("INSERT INTO t VALUES (10, 10)")?;
    winner.run("COMMIT")?;
    let mut third = Session::open(weir.addr(), &schema)?;
    let rows = third.rows("SELECT id, v = 0 FROM t ORDER BY id")?;
    ensure!(rows == [["1", "0"], ["2", "0"], ["10", "0"]], "winner's and victim's later rows: {rows:?}");
    Ok(())
}

fn lock_wait(env: &Env) -> CaseResult {
    let (weir, schema, mut first, mut second) = two_lockers(env)?;
    second.refused("UPDATE t SET v = 4 WHERE id = 1", LOCK_WAIT_TIMEOUT)?;
    let status = second.ping()?.done()?.status;
    ensure!(status.contains(StatusFlags::IN_TRANS), "the transaction is open, but the status is {status:?}");
    second.run("COMMIT")?;

    // Without autocommit the very first statement of a transaction may be the one that waits in vain.
    second.run("SET autocommit = 0")?;
    second.refused("UPDATE t SET v = 5 WHERE id = 1", LOCK_WAIT_TIMEOUT)?;
    let status = second.ping()?.done()?.status;
    ensure!(status.contains(StatusFlags::IN_TRANS), "the transaction is open, but the status is {status:?}");
    second.run("UPDATE t SET v = 6 WHERE id = 2")?;
    second.run("ROLLBACK")?;
    first.run("COMMIT")?;
    let mut third = Session::open(weir.addr(), &schema)?;
    let rows = third.rows("SELECT id, v FROM t ORDER BY id")?;
    ensure!(rows == [["1", "1"], ["2", "2"]], "after both COMMITs and a ROLLBACK: {rows:?}");
    Ok(())
}

/// A command, whichever.
type AnyCommand = fn(&mut Session) -> Result<Answer, TestkitError>;

/// Galera's first committer wins: the loser hears of it with its next command, whatever that is.
fn conflict_between_nodes(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    make_table(env, &schema)?;
    let weir = env.narrow_weir(&[1], 1)?;
    let elsewhere = env.cluster()?.node(2);
    let mut client = Session::open(weir.addr(), &schema)?;
    client.run("INSERT INTO t VALUES (1, 0)")?;
    let next: [AnyCommand; 4] = [
        |client| client.query("COMMIT"),
        |client| client.query("SELECT v FROM t"),
        |client| client.query("SET time_zone = '+01:00'"),
        |client| client.use_schema("test"),
    ];
    client.run("SET weir_replay = OFF")?;
    for (at, command) in next.into_iter().enumerate() {
        let value = at + 10;
        client.run("BEGIN")?;
        client.run("UPDATE t SET v = 1")?;
        elsewhere.root_query(&format!("SET wsrep_sync_wait = 7; UPDATE {schema}.t SET v = {value}"))?;
        wait_for_value(env, &schema, &value.to_string())?;
        let answer = command(&mut client)?;
        ensure!(answer.error() == Some(DEADLOCK), "command {at} after the conflict: {answer:?}");
        // The only connection serves others, and the client goes on where it was.
        let mut other = Session::open(weir.addr(), "test")?;
        let zone = other.value("SELECT @@time_zone")?;
        ensure!(zone == "SYSTEM", "command {at}: the other's zone is {zone}");
        let rows = client.rows("SELECT v, DATABASE() FROM t")?;
        ensure!(rows == [[&*value.to_string(), &*schema]], "command {at}: the client sees {rows:?}");
        let status = client.ping()?.done()?.status;
        ensure!(!status.contains(StatusFlags::IN_TRANS), "command {at}: {status:?}");
    }
    // Where it may run again it does, and the client hears of nothing.
    client.run("SET weir_replay = DEFAULT")?;
    for (value, sql) in [(20, "COMMIT"), (30, "SELECT v FROM t")] {
        client.run("BEGIN")?;
        client.run("UPDATE t SET v = v + 1")?;
        elsewhere.root_query(&format!("SET wsrep_sync_wait = 7; UPDATE {schema}.t SET v = {value}"))?;
        wait_for_value(env, &schema, &value.to_string())?;
        let told = client.query(sql)?.error();
        ensure!(told.is_none(), "{sql}: {told:?}");
        client.run("COMMIT")?;
        let rows = client.rows("SELECT v FROM t")?;
        ensure!(rows == [[(value + 1).to_string()]], "{sql}: the client sees {rows:?}");
    }
    Ok(())
}

/// Waits until n1 has applied what another node wrote.
fn wait_for_value(env: &Env, schema: &str, value: &str) -> CaseResult {
    let deadline = Instant::now() + Duration::from_secs(60);
    let node = env.cluster()?.node(1);
    while node.root_query(&format!("SELECT v FROM {schema}.t"))? != [[value]] {
        ensure!(Instant::now() < deadline, "n1 does not get the value {value}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn found_rows_clients(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    make_table(env, &schema)?;
    let weir = env.narrow_weir(&[1], 1)?;
    let login = Login::new(Account::APP).schema(&schema);
    let mut changed = Session::with(weir.addr(), &login)?;
    let mut found = Session::with(weir.addr(), &login.clone().with(Capabilities::FOUND_ROWS))?;
    changed.run("INSERT INTO t VALUES (1, 5), (2, 6)")?;
    for round in 0..3 {
        for (client, expected) in [(&mut changed, 0), (&mut found, 2)] {
            let rows = client.run("UPDATE t SET v = v")?.affected_rows;
            ensure!(rows == expected, "round {round}: {rows} affected rows, expected {expected}");
            let rows = client.value("SELECT ROW_COUNT()")?;
            ensure!(
                rows == expected.to_string(),
                "round {round}: ROW_COUNT() is {rows}, expected {expected}"
            );
        }
    }
    Ok(())
}

fn multi_statement_clients(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 1)?;
    let login = Login::new(Account::APP).schema("test");
    let mut single = Session::with(weir.addr(), &login)?;
    let mut several = Session::with(weir.addr(), &login.clone().with(Capabilities::MULTI_STATEMENTS))?;
    for round in 0..3 {
        let answer = several.query("SELECT 1; SELECT 2; DO 0")?;
        ensure!(answer.results.len() == 3, "round {round}: {answer:?}");
        single.refused("SELECT 1; SELECT 2", PARSE_ERROR)?;
        single.refused("DO 0; DO 0", PARSE_ERROR)?;
        ensure!(single.value("SELECT 1;")? == "1", "round {round}: a semicolon at the end");
    }
    Ok(())
}

fn settings_travel(env: &Env) -> CaseResult {
    const SETTINGS: [(&str, &str, &str); 13] = [
        ("sql_mode", "'ANSI_QUOTES,PIPES_AS_CONCAT'", "PIPES_AS_CONCAT,ANSI_QUOTES"),
        ("div_precision_increment", "9", "9"),
        ("group_concat_max_len", "7", "7"),
        ("lc_time_names", "'de_DE'", "de_DE"),
        ("default_week_format", "3", "3"),
        ("long_query_time", "0.25", "0.250000"),
        ("optimizer_switch", "'mrr=on'", "mrr=on"),
        ("max_sort_length", "77", "77"),
        ("character_set_results", "NULL", "NULL"),
        ("collation_connection", "'utf8mb4_bin'", "utf8mb4_bin"),
        ("tx_isolation", "'READ-COMMITTED'", "READ-COMMITTED"),
        ("completion_type", "'CHAIN'", "CHAIN"),
        ("default_regex_flags", "'DOTALL'", "DOTALL"),
    ];
    let weir = env.narrow_weir(&[1, 2], 1)?;
    let mut sessions = Vec::new();
    for (name, value, shown) in SETTINGS {
        let mut session = Session::open(weir.addr(), "test")?;
        let before = session.value(&format!("SELECT @@session.{name}"))?;
        session.run(&format!("SET SESSION {name} = {value}"))?;
        sessions.push((session, name, before, shown));
    }
    for round in 0..3 {
        for at in 0..sessions.len() {
            let (name, shown) = (sessions[at].1, sessions[at].3);
            for (other, (session, _, _, _)) in sessions.iter_mut().enumerate() {
                let value = session.value(&format!("SELECT @@session.{name}"))?;
                let is_set = if name == "optimizer_switch" { value.contains(shown) } else { value == shown };
                ensure!(is_set == (other == at), "round {round}: {name} of session {other} is {value}");
            }
        }
    }
    for (mut session, name, before, _) in sessions {
        session.reset()?.done()?;
        let value = session.value(&format!("SELECT @@session.{name}"))?;
        ensure!(
            value == before,
            "{name} is {value} after COM_RESET_CONNECTION, it was {before} after the login"
        );
    }
    Ok(())
}

/// Servers do not report these (MariaDB 10.11), so Weir has to see to it.
fn at_signs(env: &Env) -> CaseResult {
    let weir = env.narrow_weir(&[1], 2)?;
    let look = "SELECT @@time_zone, @@div_precision_increment, @@autocommit";
    let texts = [
        "SET @@time_zone = '+03:00', @@div_precision_increment = 7",
        "SET @@`time_zone` := '+03:00', div_precision_increment = 7",
        "/*!40103 SET @@TIME_ZONE='+03:00', @@div_precision_increment=7 */",
        "SET @@time_zone = '+03:00'; SET @@div_precision_increment = 7",
        "EXECUTE IMMEDIATE 'SET @@time_zone = \"+03:00\", @@div_precision_increment = 7'",
    ];
    let login = Login::new(Account::APP).schema("test").with(Capabilities::MULTI_STATEMENTS);
    for (at, text) in texts.into_iter().chain(["prepared"]).enumerate() {
        let mut client = Session::with(weir.addr(), &login)?;
        let mut neighbour = Session::with(weir.addr(), &login)?;
        if text == "prepared" {
            let statement = client.prepare("SET @@time_zone = ?, @@div_precision_increment = 7")?;
            client.execute(&statement, &["+03:00".into()])?.done()?;
        } else {
            client.run(text)?;
        }
        for _ in 0..3 {
            let (ours, theirs) = (client.rows(look)?, neighbour.rows(look)?);
            ensure!(ours == [["+03:00", "7", "1"]], "text {at}, {text}: the client has {ours:?}");
            ensure!(theirs == [["SYSTEM", "4", "1"]], "text {at}, {text}: the neighbour has {theirs:?}");
        }
    }
    let mut client = Session::with(weir.addr(), &login)?;
    client.run("SET @@autocommit = 0")?;
    let status = client.run("SELECT COUNT(*) FROM information_schema.SCHEMATA")?.status;
    ensure!(!status.contains(StatusFlags::AUTOCOMMIT), "after SET @@autocommit = 0: {status:?}");
    let status = Session::with(weir.addr(), &login)?.run("DO 0")?.status;
    ensure!(status.contains(StatusFlags::AUTOCOMMIT), "a new session: {status:?}");
    // This one means the next transaction only.
    client.run("SET @@tx_isolation = 'READ-COMMITTED'")?;
    let isolation = client.value("SELECT @@session.tx_isolation")?;
    ensure!(isolation == "REPEATABLE-READ", "the session's isolation is {isolation}");
    Ok(())
}
