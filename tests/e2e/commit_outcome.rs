//! A COMMIT whose answer is lost with its server: with `commit_outcome = 'marker'` its client is told what has become of it.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weir_testkit::wire::Login;
use weir_testkit::{Account, OUTCOMES_TABLE, Weir, WeirConfig, hostgroup};

use weir_tests::session::{Answer, Outcome};
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use crate::admin::Admin;
use crate::failover_basic::writer_name;
use crate::replay::{self, Place, error_of};

pub(crate) mod elsewhere;
mod next_writer;
mod refused;
mod steps_elsewhere;
mod sweep_elsewhere;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("commit_outcome::what_was_carried_out_is_told_as_such", carried_out),
        Case::parallel("commit_outcome::what_was_not_runs_again_or_is_told", not_carried_out),
        Case::parallel("commit_outcome::a_write_alone_is_known", alone),
        Case::parallel("commit_outcome::a_write_alone_leaves_what_it_leaves_at_a_server", as_at_server),
        Case::parallel("commit_outcome::a_write_in_flight_is_not_run_twice_by_one_server", in_flight),
        Case::parallel("commit_outcome::without_rights_nothing_is_marked", without_rights),
        Case::serial("commit_outcome::old_rows_are_removed", swept),
        Case::serial("commit_outcome::every_commit_is_known_when_writers_die", |env| {
            replay::killed_writer(env, true)
        }),
    ];
    cases.extend(steps_elsewhere::trials());
    cases.extend(next_writer::trials());
    cases.extend(refused::trials());
    cases.extend(sweep_elsewhere::trials());
    cases
}

const PATIENCE: Duration = Duration::from_secs(30);
const DEADLOCK: u16 = 1213;
const MARK: &[u8] = b"/* cut */";
pub(crate) const COMMIT: &str = "COMMIT /* cut */";

/// How the way breaks when a COMMIT has passed it, and before its answer does.
pub(crate) const ANSWER_LOST: Cut = Cut { mark: MARK, after_bytes: Some(0), cuts_max: u32::MAX };
/// Or before that.
const COMMIT_LOST: Cut = Cut { after_bytes: None, ..ANSWER_LOST };

/// A Weir whose way to its writer breaks, that way, Weir's admin port and a schema.
type Broken = (Weir, Forwarder, Admin, String);

/// A Weir whose way to the writer, n2, breaks.
pub(crate) fn cutting(
    env: &Env,
    cut: Cut,
    outcome: &str,
    replay: &str,
    configure: impl FnOnce(&mut WeirConfig),
) -> Result<Broken, Box<dyn Error>> {
    let cluster = env.cluster()?;
    let schema = env.schema()?;
    make_outcomes(env)?;
    env.wait_applied()?;
    let way = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
    let forwarder = Forwarder::start_with_cut(way, cluster.node(2).addr(), cut)?;
    let mut config = WeirConfig::for_servers(&[], env.free_address()?);
    for (address, weight) in [(way, 1000), (cluster.node(1).addr(), 1), (cluster.node(3).addr(), 1)] {
        config.server(address, hostgroup::WRITER, &[("weight", weight.into())]);
    }
    let admin = env.free_address()?;
    config.admin(admin).variable("threads", 1);
    let row = [
        ("hostgroup_id", hostgroup::WRITER.into()),
        ("transaction_replay", replay.into()),
        ("commit_outcome", outcome.into()),
    ];
    config.push("weir_hostgroups", &row);
    configure(&mut config);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    eventually("n2 writes", PATIENCE, || Ok(writer_name(&mut session)? == "n2"))?;
    // A transaction of before can't run again: what its session started with is not known.
    weir.wait_log(&format!("session variables have been read server={way}"), PATIENCE)?;
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20))")?;
    Ok((weir, forwarder, Admin::at(admin), schema))
}

/// weir.outcomes is there. A CREATE TABLE, also of one that is there, would end transactions of other cases that have
/// written to it.
pub(crate) fn make_outcomes(env: &Env) -> CaseResult {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let node = env.cluster()?.node(1);
    let sql = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'weir' AND TABLE_NAME = 'outcomes'";
    if node.root_query(sql)?.is_empty() {
        node.root_query(OUTCOMES_TABLE)?;
    }
    Ok(())
}

fn count(admin: &Admin, name: &str) -> Result<u64, Box<dyn Error>> {
    let sql = format!("SELECT Variable_Value FROM stats_mysql_global WHERE Variable_Name = '{name}'");
    Ok(admin.run(&sql)?.concat().parse()?)
}

fn words(weir: &Weir, schema: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let mut session = Session::open(weir.addr(), schema)?;
    Ok(session.rows("SELECT word FROM t ORDER BY id FOR UPDATE")?.concat())
}

/// Makes one for a cut, a `commit_outcome` and a `transaction_replay`.
type MakeBroken<'m> = &'m dyn Fn(Cut, &str, &str) -> Result<Broken, Box<dyn Error>>;

fn carried_out(env: &Env) -> CaseResult {
    told_if_carried_out(&|cut, outcome, replay| cutting(env, cut, outcome, replay, |_| ()))
}

/// The answers to COMMITs are lost on their way.
fn told_if_carried_out(make: MakeBroken<'_>) -> CaseResult {
    for replay in ["off", "safe"] {
        let (weir, forwarder, admin, schema) = make(ANSWER_LOST, "marker", replay)?;
        let mut session = Session::open(weir.addr(), &schema)?;
        for (round, begin) in ["BEGIN", "SET autocommit = 0", "DO 0"].into_iter().enumerate() {
            session.run(begin)?;
            session.run(&format!("INSERT INTO t (word) VALUES ('{begin}')"))?;
            session.run(COMMIT)?;
            ensure!(
                forwarder.cuts() as usize == round + 1,
                "{begin}: the way was cut {} times",
                forwarder.cuts()
            );
            ensure!(count(&admin, "Weir_outcomes_committed")? as usize == round + 1, "another answer");
        }
        ensure!(session.value("SELECT @@autocommit")? == "0", "the session is another one");
        session.run("COMMIT")?;
        let there = words(&weir, &schema)?;
        ensure!(there == ["BEGIN", "SET autocommit = 0", "DO 0"], "{there:?}");
        ensure!(count(&admin, "Weir_transactions_replayed")? == 0, "one has run again");
        // What has written nothing needs no row, and is not asked for: it is done either way.
        let asked = count(&admin, "Weir_outcomes_asked")?;
        session.value("SELECT COUNT(*) FROM t")?;
        let told = session.query(COMMIT);
        ensure!(count(&admin, "Weir_outcomes_asked")? == asked, "asked for a read: {told:?}");
    }
    let (weir, _forwarder, _, schema) = make(ANSWER_LOST, "off", "on")?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("BEGIN")?;
    session.run("INSERT INTO t (word) VALUES ('x')")?;
    let told = error_of(&session.query(COMMIT)?);
    ensure!(told.as_ref().is_some_and(|told| told.1 == "08007"), "{told:?}");
    Ok(())
}

fn not_carried_out(env: &Env) -> CaseResult {
    told_if_not_carried_out("INSERT INTO t (word) VALUES ('first')", &|cut, outcome, replay| {
        cutting(env, cut, outcome, replay, |_| ())
    })
}

/// COMMITs do not reach the writer, which nobody but the writer knows.
fn told_if_not_carried_out(insert: &str, make: MakeBroken<'_>) -> CaseResult {
    for replay in ["safe", "off"] {
        let (weir, forwarder, admin, schema) = make(COMMIT_LOST, "marker", replay)?;
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("BEGIN")?;
        session.run(insert)?;
        // It is cut as often as it is sent.
        let told = error_of(&session.query(COMMIT)?);
        ensure!(forwarder.cuts() >= 1, "the way is whole");
        let asked = count(&admin, "Weir_outcomes_asked")?;
        ensure!(asked == u64::from(forwarder.cuts()), "asked {asked} times for {}", forwarder.cuts());
        ensure!(count(&admin, "Weir_outcomes_committed")? == 0, "it was carried out");
        ensure!(words(&weir, &schema)?.is_empty(), "it is there");
        ensure!(told.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{told:?}");
        let replayed = count(&admin, "Weir_transactions_replayed")?;
        ensure!(replayed == if replay == "off" { 0 } else { asked - 1 }, "{replayed} times for {asked}");
        session.run("BEGIN")?;
        session.run("INSERT INTO t (word) VALUES ('second')")?;
        session.run("COMMIT")?;
        ensure!(words(&weir, &schema)? == ["second"], "it is not there");
    }
    Ok(())
}

/// The COMMIT of Weir's own behind a write without a transaction.
const AT_COMMIT: &[u8] = b"COMMIT AND NO CHAIN NO RELEASE";
const AT_MARKER: &[u8] = b"INSERT INTO weir.outcomes";

/// A write without a transaction: the way breaks at each of its steps.
fn alone(env: &Env) -> CaseResult {
    known_alone(&[], &|cut, outcome, replay| cutting(env, cut, outcome, replay, |_| ()))
}

/// The same; at these steps nobody knows.
fn known_alone(unknown_at: &[&[u8]], make: MakeBroken<'_>) -> CaseResult {
    for (mark, after_bytes, runs) in [
        (AT_COMMIT, Some(0), 1),
        (AT_COMMIT, None, 2),
        (AT_MARKER, Some(0), 2),
        (AT_MARKER, None, 2),
        (MARK, Some(0), 2),
        (MARK, None, 1),
        (&b"START TRANSACTION"[..], Some(0), 1),
    ] {
        let cut = Cut { mark, after_bytes, cuts_max: 1 };
        let at = format!("{}, {after_bytes:?}", mark.escape_ascii());
        let (weir, forwarder, admin, schema) = make(cut, "marker", "on")?;
        // That was the CREATE TABLE's, which nobody marks.
        ensure!(forwarder.cuts() == 0, "{at}: the way was cut before");
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("SET sql_mode = ''")?;
        if unknown_at.contains(&mark) {
            let told = error_of(&session.query("INSERT /* cut */ INTO t (word) VALUES ('lost')")?);
            ensure!(forwarder.cuts() == 1, "{at}: the way was not cut");
            ensure!(told.as_ref().is_some_and(|told| told.1 == "08007"), "{at}: {told:?}");
            ensure!(words(&weir, &schema)?.is_empty(), "{at}: {:?}", words(&weir, &schema)?);
            continue;
        }
        let done = session.run("INSERT /* cut */ INTO t (word) VALUES ('longer than twenty letters')")?;
        ensure!(forwarder.cuts() == 1, "{at}: the way was not cut");
        ensure!((done.affected_rows, done.warnings) == (1, 1), "{at}: {done:?}");
        ensure!(words(&weir, &schema)? == ["longer than twenty l"], "{at}: {:?}", words(&weir, &schema)?);
        ensure!(
            session.value("SELECT id FROM t FOR UPDATE")? == done.insert_id.to_string(),
            "{at}: {done:?}"
        );
        let asked = count(&admin, "Weir_outcomes_asked")?;
        let committed = count(&admin, "Weir_outcomes_committed")?;
        let expected = if mark == AT_COMMIT { (1, u64::from(runs == 1)) } else { (0, 0) };
        ensure!((asked, committed) == expected, "{at}: asked {asked}, of which {committed} were committed");
        // The next one is whole.
        let done = session.run("UPDATE t SET word = 'x'")?;
        ensure!(done.affected_rows == 1 && done.info.starts_with("Rows matched: 1"), "{at}: {done:?}");
    }
    Ok(())
}

/// The way breaks behind a write whose trigger has written to a table without transactions, of which nobody has told: that
/// is still there, as is the server.
fn in_flight(env: &Env) -> CaseResult {
    const WRITE: &str = "INSERT /* cut */ INTO triggers VALUES (1)";
    let cut = Cut { cuts_max: 1, ..ANSWER_LOST };
    for (outcome, begin, replay) in
        [("off", "BEGIN", "safe"), ("marker", "DO 0", "safe"), ("off", "BEGIN", "on")]
    {
        let what = format!("{outcome}, {begin}, {replay}");
        let (weir, forwarder, admin, schema) = cutting(env, cut, outcome, replay, |_| ())?;
        let mut session = Session::open(weir.addr(), &schema)?;
        make_plain(&mut session)?;
        session.run(begin)?;
        session.run("INSERT INTO t (word) VALUES ('first')")?;
        let told = session.query(WRITE);
        ensure!(forwarder.cuts() == 1, "{what}: the way was not cut");
        let mut straight = Session::open(env.cluster()?.node(2).addr(), &schema)?;
        let written = straight.value("SELECT COUNT(*) FROM plain")?;
        if replay == "on" {
            // Somebody has said that there are no such tables.
            let told = error_of(&told?);
            ensure!(told.is_none() && written == "2", "{what}: {written} rows, {told:?}");
            continue;
        }
        let told = error_of(&told?);
        let is_unknown = told.as_ref().is_some_and(|told| told.1 == "08007" && told.2.contains("'safe'"));
        ensure!(is_unknown && written == "1", "{what}: {written} rows, {told:?}");
        ensure!(count(&admin, "Weir_transactions_replayed")? == 0, "{what}: it has run again");
        ensure!(straight.value("SELECT COUNT(*) FROM triggers")? == "0", "{what}: it was committed");
    }
    // The server has told of it, and the COMMIT of the rest does not reach it.
    let cut = Cut { mark: AT_COMMIT, after_bytes: None, cuts_max: 1 };
    for table in ["plain", "triggers"] {
        let (weir, forwarder, _, schema) = cutting(env, cut, "marker", "on", |_| ())?;
        let mut session = Session::open(weir.addr(), &schema)?;
        make_plain(&mut session)?;
        let told = error_of(&session.query(&format!("INSERT INTO {table} VALUES (1)"))?);
        ensure!(forwarder.cuts() == 1, "{table}: the way was not cut");
        ensure!(told.as_ref().is_some_and(|told| told.1 == "08007"), "{table}: {told:?}");
        let mut straight = Session::open(env.cluster()?.node(2).addr(), &schema)?;
        ensure!(straight.value("SELECT COUNT(*) FROM plain")? == "1", "{table}: not once");
    }
    Ok(())
}

/// A table without transactions, and one whose trigger writes to it.
fn make_plain(session: &mut Session) -> CaseResult {
    session.run("CREATE TABLE plain (id INT) ENGINE = MyISAM")?;
    session.run("CREATE TABLE triggers (id INT)")?;
    session
        .run("CREATE TRIGGER a AFTER INSERT ON triggers FOR EACH ROW INSERT INTO plain VALUES (NEW.id)")?;
    Ok(())
}

/// Definitions of columns name the schema.
fn without_schema(mut answer: Answer) -> Answer {
    for outcome in &mut answer.results {
        if let Outcome::Rows(rows) = outcome {
            rows.columns.clear();
        }
    }
    answer
}

fn as_at_server(env: &Env) -> CaseResult {
    let place = Place::with(env, "off", "marker")?;
    let cluster = env.cluster()?;
    make_outcomes(env)?;
    env.wait_applied()?;
    let mut through = place.session()?;
    let writer = writer_name(&mut through)?;
    let node = cluster.nodes().iter().find(|node| node.name() == writer).ok_or("no such node")?;
    let mut at_server = Session::open(node.addr(), &env.schema()?)?;
    at_server.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT NOT NULL)")?;
    at_server.run("CREATE TABLE child (t_id INT PRIMARY KEY, word VARCHAR(20))")?;
    at_server.run("INSERT INTO t (v) VALUES (0), (0)")?;
    let writes = [
        "INSERT INTO t (v) VALUES (1)",
        "INSERT INTO t (v) VALUES (2), (3), (4)",
        "INSERT INTO t (id, v) VALUES (1000, 5)",
        "INSERT INTO t (id, v) VALUES (1000, 5)",
        "INSERT IGNORE INTO t (id, v) VALUES (1000, 5), (1001, 6)",
        "INSERT INTO t (id, v) VALUES (1000, 5) ON DUPLICATE KEY UPDATE v = v + 1",
        "REPLACE INTO t (id, v) VALUES (1000, 7)",
        "UPDATE t SET v = v + 1 WHERE v < 3",
        "UPDATE t SET v = v WHERE v < 3",
        "DELETE FROM t WHERE v = 4",
        "INSERT INTO child VALUES (1, CONCAT('a', LAST_INSERT_ID()))",
        "INSERT INTO child SELECT id, v FROM t WHERE v > 4",
        "UPDATE child SET word = 'longer than twenty letters, by far'",
        "UPDATE child SET word = 'no' WHERE word = 'a' OR 'b'",
        "INSERT INTO t (missing) VALUES (1)",
        "INSERT INTO t (id, v) VALUES (DEFAULT, NULL), (DEFAULT, NULL)",
        "INSERT INTO child (t_id) VALUES (7), (8) RETURNING t_id",
        "UPDATE t SET v = LAST_INSERT_ID(v + 1) WHERE id = 1000",
    ];
    let behind = [
        "SELECT 1",
        "SHOW WARNINGS",
        "SHOW ERRORS",
        "SELECT @@warning_count, @@error_count",
        "SELECT ROW_COUNT(), 1",
        "SELECT LAST_INSERT_ID()",
        "SELECT FOUND_ROWS(), ROW_COUNT(), LAST_INSERT_ID()",
        "SELECT @@autocommit, @@in_transaction, @@insert_id",
        "GET DIAGNOSTICS @count = ROW_COUNT",
        "SELECT @count",
        "DO 1",
    ];
    for write in writes {
        for question in behind {
            for mode in ["SET sql_mode = ''", "SET sql_mode = 'STRICT_ALL_TABLES'"] {
                for sql in
                    [mode, "SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT 2 LIMIT 1", write, question, question]
                {
                    let (there, here) =
                        (without_schema(at_server.query(sql)?), without_schema(through.query(sql)?));
                    ensure!(there == here, "{write}; {question}: {sql}: {here:?} in place of {there:?}");
                }
            }
        }
        let mut answers = Vec::new();
        for session in [&mut at_server, &mut through] {
            let statement = session.try_prepare(write)?;
            let Ok(statement) = statement else { continue };
            let mut execute = || session.execute(&statement, &[]).map(without_schema);
            answers.push((execute()?, execute()?));
        }
        ensure!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{write}, prepared: {answers:?}");
    }
    ensure!(place.count("Weir_outcome_markers_refused")? == 0, "markers were refused");
    Ok(())
}

fn without_rights(env: &Env) -> CaseResult {
    let place = Place::with(env, "safe", "marker")?;
    let cluster = env.cluster()?;
    make_outcomes(env)?;
    cluster
        .node(1)
        .root_query("GRANT ALL ON limited.* TO limited@'%'; CREATE DATABASE IF NOT EXISTS limited")?;
    env.wait_applied()?;
    let mut session = Session::with(place.weir.addr(), &Login::new(Account::LIMITED).schema("limited"))?;
    session.run("CREATE TABLE IF NOT EXISTS outcome_rights (id INT PRIMARY KEY)")?;
    session.run("BEGIN")?;
    session.run("REPLACE INTO outcome_rights VALUES (1)")?;
    session.run("COMMIT")?;
    ensure!(session.value("SELECT COUNT(*) FROM outcome_rights")? == "1", "not committed");
    ensure!(place.count("Weir_outcome_markers_refused")? == 1, "counted otherwise");
    place.weir.wait_log("can't write to weir.outcomes", PATIENCE)?;
    session.run("DROP TABLE outcome_rights")?;
    Ok(())
}

fn swept(env: &Env) -> CaseResult {
    // The other cases' account does not get these rights: their Weirs would agree with each other.
    const SWEEPER: Account = Account { user: "sweeper", password: "sweeper" };
    env.forget_epochs()?;
    make_outcomes(env)?;
    let node = env.cluster()?.node(1);
    let Account { user, password } = SWEEPER;
    node.root_query(&format!(
        "CREATE OR REPLACE USER {user}@'%' IDENTIFIED BY '{password}'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE \
         ON weir.* TO {user}@'%'"
    ))?;
    node.root_query(
        "REPLACE INTO weir.outcomes (owner, slot, number, written_at) VALUES (5, 1, 2, NOW() - INTERVAL 25 HOUR), \
         (5, 2, 2, NOW() - INTERVAL 23 HOUR)",
    )?;
    env.wait_applied()?;
    let weir = env.weir(|config| {
        config.monitor(SWEEPER);
    })?;
    let slots = || node.root_query("SELECT slot FROM weir.outcomes WHERE owner = 5");
    eventually("the old one is gone", PATIENCE, || Ok(slots()?.concat() == ["2"]))?;
    drop(weir);
    node.root_query(&format!("DELETE FROM weir.outcomes WHERE owner = 5; DROP USER {user}@'%'"))?;
    Ok(())
}
