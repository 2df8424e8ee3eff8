//! Oracle MySQL behind Weir: what is other than with MariaDB. That sessions see what they would see straight at the
//! server is in `property.rs`, real drivers are in `drivers.rs`.

use std::error::Error;
use std::thread;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Weir, WeirConfig, hostgroup};
use weir_tests::dialogue::{Caller, Dialogue, Plugin, Said, TlsVersion};
use weir_tests::{Case, CaseResult, Env, Session, ensure, mysql_hostgroup};

const DUPLICATE_KEY: u16 = 1062;
const SIGNALLED: u16 = 1644;
const UNKNOWN_DATABASE: u16 = 1049;
const RESULT_CONSISTS_OF_MORE_ROWS: u16 = 1172;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("mysql::a_client_reaches_the_server_and_sees_its_version", reaches),
        Case::parallel("mysql::an_account_that_the_server_has_never_seen_logs_in", full_authentication),
        Case::parallel("mysql::every_plugin_and_tls_lead_in", plugins),
        Case::parallel("mysql::the_collation_of_the_login_is_the_servers_own", login_collation),
        Case::parallel("mysql::checks_are_on_again_for_the_next_session", checks_are_on),
        Case::parallel("mysql::a_reset_leads_to_the_servers_character_sets", reset_charsets),
        Case::parallel("mysql::a_reset_is_each_servers_own_beside_a_mariadb", reset_beside_mariadb),
        Case::parallel("mysql::warnings_and_found_rows_stay_with_their_session", diagnostics),
        Case::parallel("mysql::a_reset_in_a_transaction_behind_an_update_is_answered", reset_behind_update),
        Case::parallel("mysql::a_deadlock_of_a_read_only_transaction_is_over", read_only_deadlock),
        Case::parallel("mysql::what_a_call_changed_before_it_failed_stays_with_its_session", failing_call),
        Case::parallel("mysql::user_variables_set_out_of_sight_pin", hidden_user_variable),
        Case::parallel("mysql::an_xa_transaction_keeps_its_connection", xa),
        Case::parallel("mysql::a_prepared_call_gives_its_out_parameters", prepared_call),
        Case::parallel("mysql::prepared_statements_survive_a_change_of_their_table", altered_table),
        Case::parallel("mysql::a_client_is_shown_the_tracking_that_it_asked_for", tracking),
        Case::parallel("mysql::errors_pass_as_they_are", errors),
        Case::parallel("mysql::a_query_rule_sends_reads_to_the_replica", reads_at_the_replica),
        Case::parallel("mysql::a_server_is_told_who_its_clients_proxy_is", connect_attributes),
    ]
}

/// An UPDATE may have left a number for FOUND_ROWS() that only the connection knows, and nobody asks for.
fn reset_behind_update(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
    shared.mine.run("INSERT INTO t VALUES (1, 1)")?;
    for behind in ["SET session_track_schema = (SELECT 1)", "SELECT 1"] {
        shared.mine.run("BEGIN")?;
        shared.mine.run("UPDATE t SET v = v + 1")?;
        shared.mine.query(behind)?;
        shared.mine.run("UPDATE t SET v = v + 1")?;
        shared.mine.reset()?.done()?;
        shared.turn()?;
    }
    ensure!(shared.mine.value("SELECT v FROM t")? == "1", "a reset rolls back");
    Ok(())
}

/// A connection whose READ ONLY transaction has met another's locks refuses writes until a ROLLBACK comes.
fn read_only_deadlock(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
    shared.mine.run("INSERT INTO t VALUES (1, 1), (2, 1), (3, 1)")?;
    let schema = shared.mine.value("SELECT DATABASE()")?;
    let mut direct = Session::open(env.mysql()?.source().addr(), &schema)?;
    // A login or a SET between them would cure it.
    shared._weir.wait_log("session variables have been read", Duration::from_secs(20))?;
    for session in [&mut shared.other, &mut shared.mine] {
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")?;
    }
    shared.mine.run("START TRANSACTION READ ONLY")?;
    shared.mine.value("SELECT v FROM t WHERE id = 1")?;
    direct.run("BEGIN")?;
    direct.run("UPDATE t SET v = v + 1 WHERE id IN (2, 3)")?;
    direct.send_query("UPDATE t SET v = v + 1 WHERE id = 1")?;
    thread::sleep(Duration::from_millis(200));
    let told = shared.mine.query("SELECT v FROM t WHERE id = 2")?.error();
    ensure!(told == Some(1213), "{told:?}");
    direct.results()?.done()?;
    direct.run("COMMIT")?;
    shared.other.run("UPDATE t SET v = v + 1 WHERE id = 3")?;
    shared.mine.run("ROLLBACK")?;
    shared.mine.run("UPDATE t SET v = v + 1 WHERE id = 3")?;
    ensure!(shared.other.value("SELECT v FROM t WHERE id = 3")? == "4", "an update is missing");
    Ok(())
}

/// A Weir with one connection, and two sessions that share it.
struct Shared {
    // The sessions need it.
    _weir: Weir,
    mine: Session,
    other: Session,
}

impl Shared {
    fn new(env: &Env) -> Result<Shared, Box<dyn Error>> {
        let schema = env.mysql_schema()?;
        let weir = env.mysql_weir(1)?;
        let (mine, other) = (Session::open(weir.addr(), &schema)?, Session::open(weir.addr(), &schema)?);
        Ok(Shared { _weir: weir, mine, other })
    }

    /// The other session's turn: it takes the connection.
    fn turn(&mut self) -> CaseResult {
        ensure!(self.other.value("SELECT 'other'")? == "other", "the other session gets another answer");
        Ok(())
    }
}

fn reaches(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(4)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let version = session.value("SELECT VERSION()")?;
    ensure!(session.raw().greeting().version == version, "the greeting names another version than {version}");
    ensure!(session.value("SELECT CURRENT_USER()")? == "app@%", "another user");
    Ok(())
}

/// The server knows no hash yet that a proof could be checked with: it wants the password itself.
fn full_authentication(env: &Env) -> CaseResult {
    let account = Account { user: "newcomer", password: "never seen before" };
    let Account { user, password } = account;
    env.mysql()?.source().root_query(&format!(
        "CREATE USER {user}@'%' IDENTIFIED BY '{password}'; GRANT ALL ON test.* TO {user}@'%'"
    ))?;
    let weir = env.mysql_weir_with(2, |config| {
        config.user(account, mysql_hostgroup::WRITER, &[]);
    })?;
    let mut session = Session::with(weir.addr(), &Login::new(account).schema("test"))?;
    ensure!(session.value("SELECT CURRENT_USER()")? == "newcomer@%", "another user");
    Ok(())
}

fn plugins(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(2)?;
    for plugin in [Plugin::Native, Plugin::Sha2, Plugin::Unheard] {
        for tls in [None, Some(TlsVersion::V12), Some(TlsVersion::V13)] {
            let caller = Caller { user: "app", password: "app", plugin, tls };
            let mut client = Dialogue::start(weir.addr(), &caller)?;
            ensure!(client.said.last() == Some(&Said::Ok), "{caller:?}: {:?}", client.said);
            ensure!(client.value("SELECT 6 * 7")? == "42", "{caller:?}: no answer");
        }
    }
    Ok(())
}

fn login_collation(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(1)?;
    let server = env.mysql()?.source().addr();
    const SQL: &str = "SELECT CONCAT_WS(' ', @@character_set_client, @@character_set_connection, \
        @@character_set_results, @@collation_connection)";
    // utf8mb4_0900_ai_ci, utf8mb4_general_ci, utf8mb4_bin, latin1_swedish_ci, gbk_chinese_ci, one that nobody has.
    for collation in [255, 45, 46, 8, 28, 250] {
        let login = Login { collation, ..Login::new(Account::APP) };
        let through = Session::with(weir.addr(), &login)?.value(SQL)?;
        let straight = Session::with(server, &login)?.value(SQL)?;
        ensure!(through == straight, "{collation}: {through} instead of {straight}");
    }
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET NAMES utf8mb4 COLLATE utf8mb4_0900_as_cs")?;
    let collation = session.value("SELECT @@collation_connection")?;
    ensure!(collation == "utf8mb4_0900_as_cs", "{collation}");
    ensure!(session.value("SELECT 'a' = 'A'")? == "0", "another collation compares");
    Ok(())
}

/// MySQL 9.7 switches both off when told to put back their default.
fn checks_are_on(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("SET foreign_key_checks = 0, unique_checks = 0")?;
    for _ in 0..3 {
        let seen = shared.mine.rows("SELECT @@foreign_key_checks, @@unique_checks")?;
        ensure!(seen == [["0", "0"]], "my own setting is lost: {seen:?}");
        let seen = shared.other.rows("SELECT @@foreign_key_checks, @@unique_checks")?;
        ensure!(seen == [["1", "1"]], "the other session has {seen:?}");
    }
    Ok(())
}

fn reset_charsets(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(1)?;
    let login = Login { collation: 8, ..Login::new(Account::APP) };
    let mut session = Session::with(weir.addr(), &login)?;
    let mut other = Session::open(weir.addr(), "test")?;
    let sql = "SELECT @@character_set_client, @@character_set_results, @@collation_connection";
    ensure!(session.rows(sql)? == [["latin1", "latin1", "latin1_swedish_ci"]], "not those of the login");
    session.reset()?.done()?;
    other.run("SET NAMES gbk")?;
    let seen = session.rows(sql)?;
    ensure!(seen == [["utf8mb4", "utf8mb4", "utf8mb4_0900_ai_ci"]], "{seen:?}");
    Ok(())
}

/// MySQL and MariaDB behind one Weir: the last connection that was opened is of no meaning for the other family.
fn reset_beside_mariadb(env: &Env) -> CaseResult {
    let elsewhere = hostgroup::READER;
    let mut config = WeirConfig::new(env.free_address()?);
    let columns = [("max_connections", 1.into())];
    config.server(env.mysql()?.source().addr(), hostgroup::WRITER, &columns);
    config.server(env.cluster()?.node(1).addr(), elsewhere, &columns);
    config.user(Account::APP, hostgroup::WRITER, &[]).user(Account::APP2, elsewhere, &[]);
    config.variable("threads", 1);
    config.variable("free_connections_pct", 100);
    let weir = env.weir_with(&config)?;
    let sql = "SELECT @@character_set_client, @@character_set_results, @@collation_connection";
    let latin = |account| Session::with(weir.addr(), &Login { collation: 8, ..Login::new(account) });
    let of_login = [["latin1", "latin1", "latin1_swedish_ci"]];
    let of_server = [["utf8mb4", "utf8mb4", "utf8mb4_0900_ai_ci"]];
    // The family whose connection is opened last is another one each time.
    for order in [[Account::APP, Account::APP2], [Account::APP2, Account::APP]] {
        let mut opened = order.map(latin).into_iter().collect::<Result<Vec<_>, _>>()?;
        for session in &mut opened {
            // The reset of a session that is held sets its connection up anew.
            session.run("SET @held = 1")?;
            session.reset()?.done()?;
        }
        for account in [Account::APP, Account::APP2] {
            let mut session = latin(account)?;
            ensure!(session.rows(sql)? == of_login, "not those of the login");
            session.reset()?.done()?;
            latin(account)?.run("SET NAMES gbk")?;
            let seen = session.rows(sql)?;
            let expected = if account.user == Account::APP.user { of_server } else { of_login };
            ensure!(seen == expected, "{}: {seen:?} instead of {expected:?}", account.user);
        }
    }
    Ok(())
}

fn diagnostics(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    let warned = shared.mine.run("SELECT CAST('1x' AS SIGNED), CAST('2y' AS SIGNED)")?;
    ensure!(warned.warnings == 2, "{} warnings", warned.warnings);
    shared.turn()?;
    let schema = shared.other.value("SELECT DATABASE()")?;
    shared.other.use_schema(&schema)?.done()?;
    ensure!(shared.other.rows("SHOW WARNINGS")?.is_empty(), "the other session has warnings");
    ensure!(shared.mine.rows("SHOW WARNINGS")?.len() == 2, "warnings are lost");
    shared.turn()?;
    ensure!(shared.mine.rows("SHOW WARNINGS")?.len() == 2, "warnings are lost the second time");
    // Every other statement clears them, unlike on MariaDB.
    shared.mine.run("DO 0")?;
    shared.turn()?;
    ensure!(shared.mine.rows("SHOW WARNINGS")?.is_empty(), "old warnings");

    shared.mine.run("SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT 2 UNION SELECT 3 LIMIT 1")?;
    shared.turn()?;
    let found = shared.mine.value("SELECT FOUND_ROWS()")?;
    ensure!(found == "3", "{found} rows found");
    Ok(())
}

fn failing_call(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run(
        "CREATE PROCEDURE fails() BEGIN SET time_zone = '+07:00'; SIGNAL SQLSTATE '45000' \
         SET MESSAGE_TEXT = 'enough'; END",
    )?;
    shared.mine.refused("CALL fails()", SIGNALLED)?;
    let warnings = shared.mine.rows("SHOW WARNINGS")?;
    ensure!(warnings.concat().contains(&"enough".to_owned()), "the error is not shown: {warnings:?}");
    let zone = shared.mine.value("SELECT @@time_zone")?;
    ensure!(zone == "+07:00", "time_zone is {zone}");
    Ok(())
}

/// The state entry is all that the server tells, beside its counter of statements.
fn hidden_user_variable(env: &Env) -> CaseResult {
    let schema = env.mysql_schema()?;
    let weir = env.mysql_weir(2)?;
    let mut mine = Session::open(weir.addr(), &schema)?;
    let mut others: Vec<Session> =
        (0..3).map(|_| Session::open(weir.addr(), &schema)).collect::<Result<_, _>>()?;
    mine.run("CREATE TABLE t (id INT)")?;
    mine.run("CREATE TRIGGER sets BEFORE INSERT ON t FOR EACH ROW SET @hidden = NEW.id")?;
    mine.run("INSERT INTO t VALUES (7)")?;
    for other in &mut others {
        let seen = other.value("SELECT @hidden")?;
        ensure!(seen == "NULL", "another session sees {seen}");
    }
    let seen = mine.value("SELECT @hidden")?;
    ensure!(seen == "7", "the trigger's variable is {seen}");
    Ok(())
}

fn xa(env: &Env) -> CaseResult {
    let schema = env.mysql_schema()?;
    let weir = env.mysql_weir(2)?;
    let mut mine = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    mine.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    for id in 1..4 {
        mine.run(&format!("XA START 'x{id}'"))?;
        mine.run(&format!("INSERT INTO t VALUES ({id})"))?;
        let seen = other.value("SELECT COUNT(*) FROM t")?;
        ensure!(seen == (id - 1).to_string(), "the other session sees {seen} rows before the commit of {id}");
        mine.run(&format!("XA END 'x{id}'"))?;
        mine.run(&format!("XA PREPARE 'x{id}'"))?;
        mine.run(&format!("XA COMMIT 'x{id}'"))?;
    }
    let seen = other.value("SELECT COUNT(*) FROM t")?;
    ensure!(seen == "3", "{seen} rows");
    Ok(())
}

fn prepared_call(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("CREATE PROCEDURE doubles(IN a INT, OUT b INT) BEGIN SELECT a; SET b = a * 2; END")?;
    let statement = shared.mine.prepare("CALL doubles(?, ?)")?;
    for a in [21, 4] {
        let answer = shared.mine.execute(&statement, &[a.into(), 0.into()])?;
        answer.done()?;
        // The rows, the OUT parameters as a row of their own, and the OK.
        ensure!(answer.results.len() == 3, "{} results", answer.results.len());
        ensure!(answer.binary_rows()? == [[a.to_string()]], "{:?}", answer.binary_rows()?);
    }
    Ok(())
}

fn altered_table(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)")?;
    shared.mine.run("INSERT INTO t VALUES (1, 10)")?;
    let mine = shared.mine.prepare("SELECT * FROM t WHERE id = ?")?;
    let theirs = shared.other.prepare("SELECT * FROM t WHERE id = ?")?;
    for wanted in [vec!["1", "10"], vec!["1", "10", "20"]] {
        for (session, statement) in [(&mut shared.mine, &mine), (&mut shared.other, &theirs)] {
            let rows = session.execute(statement, &[1.into()])?.binary_rows()?;
            ensure!(rows == [wanted.clone()], "{rows:?} instead of {wanted:?}");
        }
        if wanted.len() == 2 {
            shared.other.run("ALTER TABLE t ADD COLUMN w INT DEFAULT 20")?;
        }
    }
    Ok(())
}

fn tracking(env: &Env) -> CaseResult {
    let weir = env.mysql_weir(1)?;
    let server = env.mysql()?.source().addr();
    let login = Login::new(Account::APP).schema("test").with(Capabilities::SESSION_TRACK);
    let (mut through, mut straight) = (Session::with(weir.addr(), &login)?, Session::with(server, &login)?);
    for sql in [
        "SELECT 1",
        "SET time_zone = '+01:00'",
        "SET sql_mode = ''",
        "USE sbtest",
        "SET SESSION session_track_system_variables = 'sql_mode', session_track_schema = OFF",
        "SET sql_mode = 'ANSI'",
        "SET time_zone = '+02:00'",
        "USE test",
        "SET SESSION session_track_state_change = ON",
        "SET lc_time_names = 'de_DE'",
        "SELECT @@session_track_system_variables",
    ] {
        let (through, straight) = (through.run(sql)?, straight.run(sql)?);
        // MySQL begins with the next statement, Weir, like MariaDB, with this one.
        ensure!(
            sql.ends_with("session_track_state_change = ON") || through.tracks == straight.tracks,
            "{sql}: {:?} instead of {:?}",
            through.tracks,
            straight.tracks
        );
    }
    Ok(())
}

fn errors(env: &Env) -> CaseResult {
    let mut shared = Shared::new(env)?;
    shared.mine.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    shared.mine.run("INSERT INTO t VALUES (1), (2)")?;
    for (sql, code, part) in [
        ("INSERT INTO t VALUES (1)", DUPLICATE_KEY, "for key 't.PRIMARY'"),
        ("SELECT id INTO @x FROM t", RESULT_CONSISTS_OF_MORE_ROWS, "more than one row"),
        ("USE nowhere_at_all", UNKNOWN_DATABASE, "nowhere_at_all"),
        ("CREATE SEQUENCE s", 1064, "SEQUENCE"),
    ] {
        let message = shared.mine.refused(sql, code)?;
        ensure!(message.contains(part), "{sql}: {message}");
    }
    ensure!(shared.mine.value("SELECT COUNT(*) FROM t")? == "2", "rows have changed");
    Ok(())
}

fn reads_at_the_replica(env: &Env) -> CaseResult {
    let schema = env.mysql_schema()?;
    let weir = env.mysql_weir_with(2, |config| {
        config.push(
            "mysql_query_rules",
            &[
                ("rule_id", 1.into()),
                ("active", 1.into()),
                ("match_digest", "^SELECT .* FROM t".into()),
                ("destination_hostgroup", mysql_hostgroup::READER.into()),
                ("apply", 1.into()),
            ],
        );
    })?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    session.run("INSERT INTO t VALUES (1)")?;
    env.mysql()?.wait_replicated()?;
    let reads_at = session.value("SELECT @@server_id + 0 * id FROM t")?;
    let writes_at = session.value("SELECT @@server_id")?;
    ensure!(reads_at != writes_at, "server {writes_at} answers everything");
    session.run("BEGIN")?;
    session.run("INSERT INTO t VALUES (2)")?;
    let in_transaction = session.value("SELECT MAX(id) FROM t")?;
    ensure!(in_transaction == "2", "a read left its transaction: {in_transaction}");
    session.run("COMMIT")?;
    Ok(())
}

/// On new connections and on those that are handed over to another user.
fn connect_attributes(env: &Env) -> CaseResult {
    let source = env.mysql()?.source();
    let accounts = ["dialler", "heir"].map(|user| Account { user, password: "secret" });
    for Account { user, password } in accounts {
        source.root_query(&format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}'"))?;
    }
    let weir = env.mysql_weir_with(1, |config| {
        for account in accounts {
            config.user(account, mysql_hostgroup::WRITER, &[]);
        }
    })?;
    for Account { user, .. } in accounts {
        let account = Account { user, password: "secret" };
        let mut session = Session::with(weir.addr(), &Login::new(account))?;
        ensure!(session.value("SELECT 1")? == "1", "no answer");
        let told = source.root_query(&format!(
            "SELECT ATTR_NAME, ATTR_VALUE FROM performance_schema.session_connect_attrs \
             JOIN performance_schema.threads USING (PROCESSLIST_ID) WHERE PROCESSLIST_USER = '{user}' ORDER BY 1"
        ))?;
        let names: Vec<&str> = told.iter().map(|row| row[0].as_str()).collect();
        let wanted = ["_client_name", "_client_version", "_os", "_pid", "_platform", "program_name"];
        ensure!(names == wanted, "{user}: {told:?}");
        ensure!(told[0][1] == "weir" && told[5][1] == "weir", "{user}: {told:?}");
    }
    Ok(())
}
