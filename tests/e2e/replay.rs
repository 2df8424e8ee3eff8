//! Open transactions whose server is lost run again on another one, and nothing is there twice; those that must not are
//! told so.

use std::error::Error;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_testkit::wire::Login;
use weir_testkit::{Account, TestkitError, Weir, WeirConfig, hostgroup};
use weir_tests::session::{Answer, Outcome};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::admin::Admin;
use crate::commands::long_data;
use crate::switchover;

use self::killed_writers::Numbers;

mod elsewhere;
mod killed_writers;

/// The number, the SQLSTATE and the text of an error.
pub(crate) fn error_of(answer: &Answer) -> Option<(u16, String, String)> {
    match answer.results.last() {
        Some(Outcome::Err { code, sqlstate, message }) => Some((*code, sqlstate.clone(), message.clone())),
        _ => None,
    }
}

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("replay::a_transaction_goes_on_without_its_connection", goes_on),
        Case::parallel("replay::one_that_would_give_other_answers_is_told", differs),
        Case::parallel("replay::what_must_not_run_twice_is_not_run_again", never),
        Case::parallel("replay::numbers_of_rows_are_what_they_were", numbers),
        Case::parallel("replay::what_only_looks_like_the_same_is_told", looks_the_same),
        Case::parallel("replay::a_deadlock_leaves_numbers_from_before", deadlock_keeps_id),
        Case::parallel("replay::without_a_log_the_session_is_told_and_ends", switched_off),
        Case::parallel("replay::a_rollback_needs_no_server", rolls_back),
        Case::parallel("replay::a_transaction_that_meets_another_runs_again", meets),
        Case::serial("replay::a_switchover_takes_transactions_along", moved),
        Case::serial("replay::transactions_outlive_a_killed_writer", |env| killed_writer(env, false)),
    ];
    cases.extend(elsewhere::trials());
    cases
}

const PATIENCE: Duration = Duration::from_secs(30);
const DEADLOCK: u16 = 1213;
const REPLAYED: &str = "Weir_transactions_replayed";
const LOST: &str = "Weir_transactions_lost";

/// Weir in front of all nodes, and a schema.
pub(crate) struct Place<'e> {
    env: &'e Env,
    pub(crate) weir: Weir,
    admin: Admin,
    pub(crate) schema: String,
}

impl<'e> Place<'e> {
    fn new(env: &'e Env, replay: &str) -> Result<Self, Box<dyn Error>> {
        Self::with(env, replay, "off")
    }

    /// The same with a way to know how a COMMIT has ended.
    pub(crate) fn with(env: &'e Env, replay: &str, outcome: &str) -> Result<Self, Box<dyn Error>> {
        Self::configured(env, replay, outcome, |_| ())
    }

    /// The same; `configure` says more of Weir's configuration.
    pub(crate) fn configured(
        env: &'e Env,
        replay: &str,
        outcome: &str,
        configure: impl FnOnce(&mut WeirConfig),
    ) -> Result<Self, Box<dyn Error>> {
        let admin = env.free_address()?;
        let row = [
            ("hostgroup_id", hostgroup::WRITER.into()),
            ("transaction_replay", replay.into()),
            ("deadlock_retries", 5.into()),
            ("commit_outcome", outcome.into()),
        ];
        let weir = env.weir(|config| {
            config.admin(admin).variable("threads", 1).variable("connect_timeout_server_max", 30_000);
            config.push("weir_hostgroups", &row);
            configure(config);
        })?;
        // A transaction of before can't run again: what its session started with is not known.
        for node in env.cluster()?.nodes() {
            weir.wait_log(&format!("session variables have been read server={}", node.addr()), PATIENCE)?;
        }
        let place = Self { env, weir, admin: Admin::at(admin), schema: env.schema()? };
        let mut session = place.session()?;
        session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL)")?;
        session.run("CREATE TABLE child (t_id INT PRIMARY KEY, word VARCHAR(20))")?;
        session.run("INSERT INTO t (v) VALUES (0), (0)")?;
        env.wait_applied()?;
        Ok(place)
    }

    pub(crate) fn session(&self) -> Result<Session, Box<dyn Error>> {
        Ok(Session::open(self.weir.addr(), &self.schema)?)
    }

    /// Ends the connections that sessions have to servers with the schema, by KILL at every node.
    pub(crate) fn kill(&self) -> CaseResult {
        let mut killed = 0;
        for node in self.env.cluster()?.nodes() {
            let sql = format!(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND USER IN ('{}', '{}')",
                self.schema,
                Account::APP.user,
                Account::APP2.user
            );
            for id in node.root_query(&sql)?.concat() {
                killed += 1;
                // It may have ended by itself.
                let _ = node.root_query(&format!("KILL {id}"));
            }
        }
        ensure!(killed > 0, "no connection to kill");
        Ok(())
    }

    pub(crate) fn count(&self, name: &str) -> Result<u64, Box<dyn Error>> {
        let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = '{name}'");
        Ok(self.admin.run(&sql)?.concat().parse()?)
    }

    /// What is at the writer.
    fn rows(&self, sql: &str) -> Result<Vec<String>, Box<dyn Error>> {
        Ok(self.session()?.rows(&format!("{sql} FOR UPDATE"))?.concat())
    }
}

/// Statements of all kinds before and behind the loss; the client sees what it would have seen. Clients without DEPRECATE_EOF
/// have seen other packets than the server sent.
fn goes_on(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let eof = Capabilities::DEPRECATE_EOF;
    let begins = [
        ("BEGIN", Capabilities::empty()),
        ("START TRANSACTION", eof),
        ("SET autocommit = 0", eof | Capabilities::SESSION_TRACK),
    ];
    for (begin, missing) in begins {
        let before: Vec<String> = place.rows("SELECT COUNT(*) FROM t")?;
        let replayed = place.count(REPLAYED)?;
        let login = Login::new(Account::APP).schema(&place.schema).without(missing);
        let mut client = Session::with(place.weir.addr(), &login)?;
        let select = client.prepare("SELECT word FROM child WHERE t_id = ?")?;
        let insert = client.prepare("INSERT INTO child VALUES (?, ?)")?;
        client.run(begin)?;
        let id = client.query("INSERT INTO t (v) VALUES (7)")?.done()?.insert_id;
        client.execute(&insert, &[i64::try_from(id)?.into(), "first".into()])?.done()?;
        let words = client.execute(&select, &[i64::try_from(id)?.into()])?.binary_rows()?;
        ensure!(words.len() == 1, "{words:?}");
        client.run("SET SESSION sql_mode = 'ANSI_QUOTES'")?;
        ensure!(client.value(&format!("SELECT v FROM t WHERE id = {id} FOR UPDATE"))? == "7", "not there");
        client.run("SAVEPOINT s")?;
        client.run("DELETE FROM child")?;
        client.run("ROLLBACK TO s")?;
        ensure!(client.query("INSERT INTO child VALUES (NULL, NULL)")?.error().is_some(), "no key");
        place.kill()?;
        client.run(&format!("UPDATE t SET v = v + 1 WHERE id = {id}"))?;
        place.kill()?;
        place.kill().ok();
        ensure!(client.value("SELECT \"v\" FROM \"t\" WHERE \"id\" = LAST_INSERT_ID()")? == "8", "{begin}");
        place.kill()?;
        client.run("COMMIT")?;
        let row = place.rows(&format!("SELECT v, word FROM t JOIN child ON t_id = id WHERE id = {id}"))?;
        ensure!(row == ["8", "first"], "{begin}: {row:?}");
        let after: Vec<String> = place.rows("SELECT COUNT(*) FROM t")?;
        ensure!(
            before.concat().parse::<u64>()? + 1 == after.concat().parse::<u64>()?,
            "{before:?} {after:?}"
        );
        ensure!(
            place.count(REPLAYED)? == replayed + 3 && place.count(LOST)? == 0,
            "{begin}: counted otherwise"
        );
    }
    let status = switchover::text(&switchover::run(&place.weir, &["status"])?.stdout);
    ensure!(status.contains("interrupted transactions: 9 ran again (mean "), "{status}");
    Ok(())
}

/// What the client has read is not true any more: it begins again, with the same session.
fn differs(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut client = place.session()?;
    client.run("BEGIN")?;
    client.run("INSERT INTO child VALUES (1, 'mine')")?;
    ensure!(client.value("SELECT v FROM t WHERE id = (SELECT MIN(id) FROM t)")? == "0", "another value");
    place.kill()?;
    place.session()?.run("UPDATE t SET v = 5")?;
    let told = client.query("UPDATE t SET v = v + 1")?.error();
    ensure!(told == Some(DEADLOCK), "{told:?}");
    ensure!(client.value("SELECT COUNT(*) FROM child")? == "0", "a part of it is there");
    ensure!(place.count(LOST)? == 1 && place.count(REPLAYED)? == 0, "counted otherwise");
    client.run("BEGIN")?;
    client.run("INSERT INTO child VALUES (1, 'mine')")?;
    client.run("COMMIT")?;
    ensure!(place.rows("SELECT COUNT(*) FROM child")? == ["1"], "the next one is not there");
    Ok(())
}

fn never(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut setup = place.session()?;
    setup.run("CREATE TABLE plain (id INT) ENGINE = MyISAM")?;
    setup.run("CREATE TABLE triggers (id INT)")?;
    setup.run(
        "CREATE TRIGGER log_it AFTER INSERT ON triggers FOR EACH ROW INSERT INTO plain VALUES (NEW.id)",
    )?;
    setup.run("CREATE PROCEDURE p() INSERT INTO t (v) VALUES (1)")?;
    for (statement, why) in [
        ("INSERT INTO plain VALUES (1)", "a table without transactions"),
        ("INSERT INTO triggers VALUES (1)", "a table without transactions"),
        ("INSERT INTO t (v) VALUES (1), (2)", "several AUTO_INCREMENT values"),
    ] {
        let mut client = place.session()?;
        client.run("BEGIN")?;
        client.run("UPDATE t SET v = v + 1")?;
        client.run(statement)?;
        place.kill()?;
        let told = error_of(&client.query("UPDATE t SET v = v + 1")?);
        let is_told = told.as_ref().is_some_and(|told| told.0 == DEADLOCK && told.2.contains(why));
        ensure!(is_told, "{statement}: {told:?}");
        client.run("DO 1")?;
    }
    ensure!(place.count(REPLAYED)? == 0, "one was run again");
    ensure!(place.rows("SELECT COUNT(*) FROM plain")? == ["2"], "a row of it is there twice");
    ensure!(place.rows("SELECT SUM(v) FROM t")? == ["0"], "a part of one is there");
    // Nor are the data sent again that went in front of an execution.
    let mut client = place.session()?;
    let insert = client.prepare("INSERT INTO child VALUES (?, ?)")?;
    client.run("BEGIN")?;
    long_data::send(&mut client, &insert, 0, b"7")?;
    long_data::send(&mut client, &insert, 1, b"long")?;
    long_data::execute(&mut client, &insert)?.done()?;
    place.kill()?;
    let told = error_of(&client.query("UPDATE t SET v = v + 1")?);
    ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "long data: {told:?}");
    ensure!(place.rows("SELECT COUNT(*) FROM child")? == ["0"], "a row of it is there");
    // What would commit it is none of those that were meant to.
    for next in ["BEGIN", "CREATE TABLE other (id INT)", "SET TRANSACTION READ ONLY", "CALL p()"] {
        let mut client = place.session()?;
        client.run("BEGIN")?;
        client.run("UPDATE t SET v = v + 1")?;
        place.kill()?;
        let told = error_of(&client.query(next)?);
        ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{next}: {told:?}");
    }
    ensure!(place.rows("SELECT SUM(v) FROM t")? == ["0"], "one was committed");
    // Who starts afresh has given it up.
    for afresh in ["COM_RESET_CONNECTION", "COM_CHANGE_USER"] {
        let mut client = place.session()?;
        client.run("BEGIN")?;
        client.run("UPDATE t SET v = v + 1")?;
        place.kill()?;
        let answer = match afresh {
            "COM_CHANGE_USER" => client.change_user(Account::APP, &place.schema)?,
            _ => client.reset()?,
        };
        answer.done().map_err(|error| format!("{afresh}: {error}"))?;
        client.run("BEGIN")?;
        client.run("COMMIT")?;
    }
    ensure!(place.rows("SELECT SUM(v) FROM t")? == ["0"], "what was given up was committed");
    // What it had besides the transaction is gone: it ends.
    let mut client = place.session()?;
    client.run("BEGIN")?;
    client.run("CALL p()")?;
    place.kill()?;
    let told = client.query("UPDATE t SET v = v + 1");
    ensure!(told.is_err() || told.is_ok_and(|answer| answer.error() == Some(1053)), "it went on");
    Ok(())
}

/// Numbers that statements take from the one before, on nodes that count differently.
fn numbers(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut setup = place.session()?;
    setup.run("CREATE TABLE branch (id INT AUTO_INCREMENT PRIMARY KEY, of INT)")?;
    setup.run("CREATE TABLE leaf (id INT AUTO_INCREMENT PRIMARY KEY, of INT)")?;
    env.wait_applied()?;
    for node in env.cluster()?.nodes() {
        // So that the same statement gives other numbers on each.
        let run = |table: &str, rows: usize| {
            let values = vec!["(0)"; rows].join(",");
            node.root_query(&format!("INSERT INTO {}.{table} (of) VALUES {values}", place.schema))
        };
        run("branch", node.index())?;
        run("leaf", 3 * node.index())?;
    }
    let mut client = place.session()?;
    for _ in 0..5 {
        client.run("BEGIN")?;
        let root = client.query("INSERT INTO t (v) VALUES (7)")?.done()?.insert_id;
        let branch = client.query("INSERT INTO branch (of) VALUES (LAST_INSERT_ID())")?.done()?.insert_id;
        let leaf = client.query("INSERT INTO leaf (of) SELECT LAST_INSERT_ID()")?.done()?.insert_id;
        place.kill()?;
        client.run("UPDATE t SET v = 8 WHERE v = 7")?;
        place.kill()?;
        client.run("COMMIT")?;
        let rows = format!(
            "SELECT branch.of, leaf.of FROM branch JOIN leaf WHERE branch.id = {branch} AND leaf.id = {leaf}"
        );
        let there = place.rows(&rows)?;
        ensure!(there == [root.to_string(), branch.to_string()], "{there:?}, not {root}, {branch}");
        // What was set for them hits none of the next ones.
        let next = [
            client.query("INSERT INTO leaf (of) VALUES (1)")?.done()?.insert_id,
            client.query("INSERT INTO leaf (of) VALUES (2)")?.done()?.insert_id,
        ];
        ensure!(next[0] != leaf && next[1] > next[0], "{next:?} behind {leaf}");
    }
    ensure!(place.count(REPLAYED)? >= 5, "it was not run again");
    numbers_of_one_row(&place)
}

/// One row affects two where it takes the place of another one; and a sequence in a table gives numbers by LAST_INSERT_ID(n).
fn numbers_of_one_row(place: &Place<'_>) -> CaseResult {
    let mut client = place.session()?;
    client.run("CREATE TABLE once (id INT AUTO_INCREMENT PRIMARY KEY, k INT UNIQUE, n INT)")?;
    client.run("CREATE TABLE sequence (id INT)")?;
    client.run("INSERT INTO once (k, n) VALUES (1, 1), (2, 1)")?;
    client.run("INSERT INTO sequence VALUES (40)")?;
    place.env.wait_applied()?;
    let replayed = place.count(REPLAYED)?;
    for round in 1..=2 {
        client.run("BEGIN")?;
        let replaced = client.query("REPLACE INTO once (k, n) VALUES (1, 2)")?.done()?.insert_id;
        let same =
            "INSERT INTO once (k) VALUES (2) ON DUPLICATE KEY UPDATE n = n + 1, id = LAST_INSERT_ID(id)";
        let kept = client.query(same)?.done()?.insert_id;
        client.run("UPDATE sequence SET id = LAST_INSERT_ID(id + 1)")?;
        place.kill()?;
        let drawn = client.value("SELECT LAST_INSERT_ID()")?;
        ensure!(drawn == (40 + round).to_string(), "{drawn}");
        place.kill()?;
        client.run("COMMIT")?;
        let there = place.rows("SELECT id FROM once ORDER BY k")?;
        ensure!(there == [replaced.to_string(), kept.to_string()], "{there:?}, not {replaced}, {kept}");
        ensure!(
            place.rows("SELECT n FROM once ORDER BY k")? == ["2".to_owned(), (round + 1).to_string()],
            "twice"
        );
    }
    ensure!(place.count(REPLAYED)? == replayed + 4, "not all ran again");
    // A number that is that of another row.
    client
        .run("CREATE TABLE hits (id INT AUTO_INCREMENT PRIMARY KEY, url CHAR(1) UNIQUE, src INT, n INT)")?;
    client.run("INSERT INTO hits VALUES (1, 'a', 0, 41), (42, 'z', 0, 41)")?;
    client.run("BEGIN")?;
    client.run("INSERT INTO t (v) VALUES (1)")?;
    let hit = "INSERT INTO hits (url, src) VALUES ('a', LAST_INSERT_ID()) ON DUPLICATE KEY UPDATE n = LAST_INSERT_ID(n + 1)";
    let counted = client.query(hit)?.done()?.insert_id;
    ensure!(counted == 42, "{counted}");
    place.kill()?;
    client.run("COMMIT")?;
    let counts = place.rows("SELECT n FROM hits ORDER BY id")?;
    ensure!(counts == ["42", "41"], "{counts:?}");
    Ok(())
}

/// What can't be run again in the same way is told, and nothing of it is there.
fn looks_the_same(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    for (statements, last) in [
        (&["SET last_insert_id = 5", "INSERT INTO child VALUES (LAST_INSERT_ID(), 'x')"][..], "COMMIT"),
        // It is refused, and the transaction before it goes on.
        (
            &[
                "INSERT INTO child VALUES (1, 'a')",
                "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                "INSERT INTO child VALUES (2, 'b')",
            ],
            "COMMIT",
        ),
        (&["INSERT IGNORE INTO child VALUES (1, 'a'), (1, 'b')", "SHOW WARNINGS"], "COMMIT"),
        (&["UPDATE t SET v = 9"], "ROLLBACK AND CHAIN"),
    ] {
        let mut client = place.session()?;
        client.run("BEGIN")?;
        for statement in statements {
            client.query(statement)?;
        }
        place.kill()?;
        let told = error_of(&client.query(last)?);
        ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{statements:?}: {told:?}");
        ensure!(place.rows("SELECT COUNT(*) FROM child")? == ["0"], "{statements:?}: a part is there");
    }
    ensure!(place.rows("SELECT SUM(v) FROM t")? == ["0"], "a part of one is there");
    // It sees what a position tells that is asked for.
    let mut client = place.session()?;
    client.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
    client.value("SELECT COUNT(*) FROM t")?;
    place.kill().ok();
    let told = error_of(&client.query("SELECT COUNT(*) FROM t FOR UPDATE")?);
    ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{told:?}");
    Ok(())
}

/// Two sessions meet, and one of them runs again on the connection that alone knows its LAST_INSERT_ID().
fn deadlock_keeps_id(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut rows = place.session()?;
    rows.run("INSERT INTO child VALUES (1, '0'), (2, '0')")?;
    eventually("they have met", PATIENCE, || {
        cross(&place)?;
        Ok(place.count(REPLAYED)? > 0)
    })
}

/// Two clients change the same two rows, one after the other, each in its own order.
fn cross(place: &Place<'_>) -> CaseResult {
    thread::scope(|scope| -> CaseResult {
        let mut clients = Vec::new();
        for order in [[1, 2], [2, 1]] {
            let mut client = place.session()?;
            clients.push(scope.spawn(move || -> Result<(), String> {
                let fail = |error: &dyn std::fmt::Display| error.to_string();
                for _ in 0..40 {
                    let insert =
                        client.query("INSERT INTO t (v) VALUES (3)").map_err(|error| fail(&error))?;
                    let id = insert.done()?.insert_id.to_string();
                    let mut run = |sql: &str| client.query(sql).map(|answer| answer.error());
                    let mut all = || -> Result<Option<u16>, TestkitError> {
                        run("BEGIN")?;
                        for row in order {
                            let add = format!("UPDATE child SET word = word + 1 WHERE t_id = {row}");
                            if let Some(code) = run(&add)? {
                                return Ok(Some(code));
                            }
                        }
                        Ok(None)
                    };
                    let told = all().map_err(|error| fail(&error))?;
                    // What was given outside of it is still the last one, and an error is better than another one.
                    let answer = client.query("SELECT LAST_INSERT_ID()").map_err(|error| fail(&error))?;
                    match error_of(&answer) {
                        Some((1105, ..)) => {}
                        Some(error) => return Err(format!("{error:?}")),
                        None => {
                            let now = answer.value()?;
                            if now != id {
                                return Err(format!("{now} instead of {id}, behind {told:?}"));
                            }
                        }
                    }
                    client.query("COMMIT").map_err(|error| fail(&error))?;
                }
                Ok(())
            }));
        }
        for client in clients {
            client.join().map_err(|_| "a client has panicked")??;
        }
        Ok(())
    })
}

fn switched_off(env: &Env) -> CaseResult {
    let place = Place::new(env, "off")?;
    let mut client = place.session()?;
    client.run("BEGIN")?;
    client.run("INSERT INTO child VALUES (1, 'mine')")?;
    place.kill()?;
    let told = client.query("INSERT INTO child VALUES (2, 'mine')")?.error();
    ensure!(told == Some(1053), "{told:?}");
    ensure!(place.rows("SELECT COUNT(*) FROM child")? == ["0"], "a part of it is there");
    Ok(())
}

fn rolls_back(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut client = place.session()?;
    client.run("BEGIN")?;
    client.run("INSERT INTO child VALUES (1, 'mine')")?;
    place.kill()?;
    client.run("ROLLBACK")?;
    ensure!(client.value("SELECT COUNT(*) FROM child")? == "0", "it is there");
    ensure!(place.count(REPLAYED)? == 0, "it was run again");
    Ok(())
}

/// Clients that add to the same row, and have read nothing that another changes: each addition counts once, and nobody is
/// told of the deadlocks between them.
fn meets(env: &Env) -> CaseResult {
    const EACH: usize = 40;
    let place = Place::new(env, "on")?;
    place.session()?.run("INSERT INTO child VALUES (1, '0'), (2, '0')")?;
    let told = AtomicUsize::new(0);
    thread::scope(|scope| -> CaseResult {
        let mut clients = Vec::new();
        for order in [[1, 2], [2, 1]] {
            let mut client = place.session()?;
            let told = &told;
            clients.push(scope.spawn(move || -> Result<usize, String> {
                let mut done = 0;
                for _ in 0..EACH {
                    let mut run = |sql: &str| client.query(sql).map_err(|error| error.to_string());
                    run("BEGIN")?;
                    let adds = order.map(|id| format!("UPDATE child SET word = word + 1 WHERE t_id = {id}"));
                    let failed =
                        [adds[0].as_str(), &adds[1], "COMMIT"].iter().try_fold(None, |failed, sql| {
                            Ok::<_, String>(if failed.is_some() { failed } else { run(sql)?.error() })
                        })?;
                    match failed {
                        None => done += 1,
                        Some(DEADLOCK) => {
                            told.fetch_add(1, Ordering::Relaxed);
                        }
                        Some(code) => return Err(format!("error {code}")),
                    }
                }
                Ok(done)
            }));
        }
        let mut done = 0;
        for client in clients {
            done += client.join().map_err(|_| "a client has panicked")??;
        }
        let words = place.rows("SELECT word FROM child ORDER BY t_id")?;
        ensure!(words == [done.to_string(), done.to_string()], "{words:?} of {done}");
        ensure!(
            place.count(REPLAYED)? > 0,
            "they have never met: {} were told",
            told.load(Ordering::Relaxed)
        );
        Ok(())
    })
}

/// A session that stays in its transaction is not closed: its transaction goes on at the next writer.
fn moved(env: &Env) -> CaseResult {
    let place = Place::new(env, "on")?;
    let mut client = place.session()?;
    let hostgroup = hostgroup::WRITER.to_string();
    for (at, force) in [&[][..], &["--force"]].into_iter().enumerate() {
        let before = switchover::writer(&place.weir)?;
        client.run("BEGIN")?;
        client.run(&format!("INSERT INTO child VALUES ({at}, 'mine')"))?;
        let order = [&["switchover", &hostgroup, "--grace-ms", "100"], force].concat();
        eventually("the role moves", PATIENCE, || {
            Ok(switchover::run(&place.weir, &order)?.status.success())
        })?;
        ensure!(switchover::writer(&place.weir)? != before, "the role is where it was");
        client.run(&format!("UPDATE child SET word = 'still mine' WHERE t_id = {at}"))?;
        client.run("COMMIT")?;
        let words = place.rows("SELECT word FROM child")?;
        ensure!(words == vec!["still mine"; at + 1], "not there, or twice: {words:?}");
        ensure!(place.count(REPLAYED)? == at as u64 + 1, "counted otherwise");
    }
    // What can't run again keeps its server, and the role, unless that is forced.
    client.run("BEGIN")?;
    client.run("CREATE TEMPORARY TABLE kept (id INT)")?;
    let refused = switchover::run(&place.weir, &["switchover", &hostgroup, "--grace-ms", "100"])?;
    ensure!(!refused.status.success(), "the role has moved under a temporary table");
    client.run("INSERT INTO kept VALUES (1)")?;
    Ok(())
}

/// Clients with transactions of several statements, while their writer dies and comes back.
pub(crate) fn killed_writer(env: &Env, is_marked: bool) -> CaseResult {
    if is_marked {
        crate::commit_outcome::make_outcomes(env)?;
        env.wait_applied()?;
    }
    let place = Place::with(env, "safe", if is_marked { "marker" } else { "off" })?;
    let node_of = |addr: &str| -> Result<usize, Box<dyn Error>> {
        let nodes = env.cluster()?.nodes();
        let at =
            nodes.iter().position(|node| node.addr() == addr.parse::<SocketAddrV4>().unwrap_or(node.addr()));
        Ok(at.ok_or("no such node")? + 1)
    };
    let kill = |writer: &str| Ok(env.cluster()?.node(node_of(writer)?).kill()?);
    let start = |writer: &str| Ok(env.cluster()?.start_node(node_of(writer)?)?);
    killed_writers::outlived(&place, is_marked, Numbers::Servers, (&kill, &start))
}
