//! Servers that refuse a COMMIT, or the question for it: they have become read_only, have left their group, have lost their
//! transaction to another one's, or have a lock in the way.

use std::error::Error;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use weir_testkit::{Mysql, Signal};
use weir_tests::session::Answer;
use weir_tests::{Case, CaseResult, Cut, Env, Forwarder, Session, ensure, eventually};

use super::elsewhere::{Kind, cutting, insert};
use super::{ANSWER_LOST, AT_MARKER, COMMIT, DEADLOCK, count, words};
use crate::replay::error_of;
use crate::replication::{PATIENCE, id, writer};

/// The cases of this module. Each has servers of its own.
pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::serial("commit_outcome::a_primary_that_becomes_read_only_commits_nothing", |env| {
            read_only(env, Kind::Group)
        }),
        Case::serial("commit_outcome::a_source_that_becomes_read_only_commits_nothing", |env| {
            read_only(env, Kind::Mysql)
        }),
        Case::serial("commit_outcome::a_mariadb_source_that_becomes_read_only_commits_nothing", |env| {
            read_only(env, Kind::Mariadb)
        }),
        Case::serial("commit_outcome::what_an_expelled_primary_has_is_known", expelled),
        Case::serial("commit_outcome::what_a_primary_without_quorum_has_is_known", no_quorum),
        Case::serial("commit_outcome::what_a_group_refuses_is_told_and_a_write_alone_begins_anew", conflicts),
        Case::serial("commit_outcome::a_lock_in_the_way_of_the_question_is_waited_for", |env| {
            locked(env, Kind::Mysql)
        }),
        Case::serial("commit_outcome::a_lock_in_the_way_of_the_question_is_waited_for_on_mariadb", |env| {
            locked(env, Kind::Mariadb)
        }),
        Case::serial("commit_outcome::a_lock_in_the_way_of_the_question_is_waited_for_in_a_group", |env| {
            locked(env, Kind::Group)
        }),
        Case::serial("commit_outcome::a_row_that_changes_under_the_question_is_asked_for_again", changed),
    ]
}

/// What is only held, and never cut.
const fn holding(mark: &'static [u8]) -> Cut {
    Cut { mark, after_bytes: None, cuts_max: 0 }
}

/// Runs a statement, and does something once it is held on its way; then it goes on, and `behind` is done.
fn while_held(
    (session, sql): (&mut Session, &str),
    way: &Forwarder,
    happen: impl FnOnce() -> CaseResult,
    behind: impl FnOnce() -> CaseResult,
) -> Result<Answer, Box<dyn Error>> {
    let held = way.held();
    way.hold(true);
    thread::scope(|scope| {
        let asked = scope.spawn(|| session.query(sql).map_err(|error| format!("{sql}: {error}")));
        let happened =
            eventually("it is on its way", PATIENCE, || Ok(way.held() > held)).and_then(|()| happen());
        way.hold(false);
        let happened = happened.and_then(|()| behind());
        let answer = asked.join().map_err(|_| "a client has panicked")??;
        happened.map(|()| answer)
    })
}

fn read_only(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "")?;
    let source = servers.source();
    for (mark, outcome) in [(&b"COMMIT"[..], "marker"), (b"COMMIT", "off"), (AT_MARKER, "marker")] {
        let (weir, way, admin, schema) =
            cutting(env, (kind, &servers), holding(mark), (outcome, "on"), |_| ())?;
        let at = format!("{}, {outcome}", mark.escape_ascii());
        let refuse = || kind.set_read_only(source, true);
        let allow = || {
            // It has refused, and the statement waits for a writer.
            thread::sleep(Duration::from_millis(700));
            kind.set_read_only(source, false)
        };
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("BEGIN")?;
        session.run(&insert(1, "replayed"))?;
        let told = while_held((&mut session, "COMMIT"), &way, refuse, allow)?;
        ensure!(error_of(&told).is_none(), "{at}: {told:?}");
        ensure!(words(&weir, &schema)? == ["replayed"], "{at}: {:?}", words(&weir, &schema)?);
        ensure!(count(&admin, "Weir_transactions_replayed")? == 1, "{at}: it has not run again");

        session.run("SET weir_replay = OFF")?;
        session.run("BEGIN")?;
        session.run(&insert(2, "told"))?;
        let told = while_held((&mut session, "COMMIT"), &way, refuse, allow)?;
        let error = error_of(&told);
        ensure!(error.as_ref().is_some_and(|told| told.0 == DEADLOCK), "{at}, without replay: {told:?}");
        session.run("UPDATE t SET word = CONCAT(word, '!')")?;
        ensure!(words(&weir, &schema)? == ["replayed!"], "{at}: {:?}", words(&weir, &schema)?);
        if outcome == "off" {
            continue;
        }
        let told = while_held((&mut session, &insert(3, "alone")), &way, refuse, allow)?;
        ensure!(error_of(&told).is_none(), "{at}, a write alone: {told:?}");
        let there = words(&weir, &schema)?;
        ensure!(there == ["replayed!", "alone"], "{at}: {there:?}");
        ensure!(count(&admin, "Weir_outcomes_asked")? == 0, "{at}: asked for what was refused");
    }
    Ok(())
}

/// The primary hangs with a COMMIT and a write, is expelled, and goes on with them afterwards.
fn expelled(env: &Env) -> CaseResult {
    let kind = Kind::Group;
    let servers = kind.start(env, "")?;
    let (weir, way, admin, schema) =
        cutting(env, (kind, &servers), holding(b"COMMIT"), ("marker", "on"), |_| ())?;
    let signal = |signal| -> CaseResult {
        let process = servers.source().process().ok_or("it does not run")?;
        Ok(process.signal(signal)?)
    };
    let first = id(&servers, 1)?;
    let open = || Session::open(weir.addr(), &schema);
    let (mut replayed, mut told, mut alone) = (open()?, open()?, open()?);
    told.run("SET weir_replay = OFF")?;
    for (session, id) in [(&mut replayed, 1), (&mut told, 2)] {
        session.run("BEGIN")?;
        session.run(&insert(id, if id == 1 { "replayed" } else { "told" }))?;
    }
    way.hold(true);
    let write = insert(3, "alone");
    let answers = thread::scope(|scope| -> Result<Vec<Answer>, Box<dyn Error>> {
        let clients = [(&mut replayed, "COMMIT"), (&mut told, "COMMIT"), (&mut alone, write.as_str())];
        let asked = clients.map(|(session, sql)| {
            scope.spawn(move || session.query(sql).map_err(|error| format!("{sql}: {error}")))
        });
        eventually("they are on their way", PATIENCE, || Ok(way.held() == 3))?;
        signal(Signal::STOP)?;
        way.hold(false);
        eventually("another primary writes", PATIENCE, || Ok(writer(&weir).is_ok_and(|id| id != first)))?;
        let answers = asked.map(|client| client.join().map_err(|_| "a client has panicked"));
        answers.into_iter().map(|answer| Ok(answer??)).collect()
    });
    signal(Signal::CONT)?;
    let answers = answers?;
    let errors: Vec<_> = answers.iter().map(error_of).collect();
    ensure!(errors[0].is_none() && errors[2].is_none(), "{errors:?}");
    ensure!(errors[1].as_ref().is_some_and(|told| told.0 == DEADLOCK), "{errors:?}");
    let counts = ["Weir_outcomes_asked", "Weir_outcomes_committed", "Weir_transactions_replayed"];
    let counts = counts.into_iter().map(|name| count(&admin, name)).collect::<Result<Vec<_>, _>>()?;
    ensure!(counts == [3, 0, 1], "counted {counts:?}");
    // The one that was expelled hears of that, and what it has is not the group's.
    let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                 WHERE MEMBER_ID = @@GLOBAL.server_uuid";
    eventually("the first one knows that it was expelled", PATIENCE, || {
        Ok(servers.source().root_query(state)?.concat() != ["ONLINE"])
    })?;
    let mut there = words(&weir, &schema)?;
    there.sort();
    ensure!(there == ["alone", "replayed"], "{there:?}");
    Ok(())
}

/// The others hang while the primary wants to commit: it gives up, and nobody knows whether they have got its transaction.
fn no_quorum(env: &Env) -> CaseResult {
    let kind = Kind::Group;
    let cnf = "loose-group-replication-unreachable-majority-timeout=2\n\
               loose-group-replication-member-expel-timeout=60";
    let servers = kind.start(env, cnf)?;
    let (weir, _way, admin, schema) =
        cutting(env, (kind, &servers), holding(b"never"), ("marker", "on"), |_| ())?;
    let signal = |signal| -> CaseResult {
        for server in [2, 3] {
            servers.server(server).process().ok_or("it does not run")?.signal(signal)?;
        }
        Ok(())
    };
    let open = || Session::open(weir.addr(), &schema);
    let (mut replayed, mut alone) = (open()?, open()?);
    replayed.run("BEGIN")?;
    replayed.run(&insert(1, "replayed"))?;
    let write = insert(3, "alone");
    signal(Signal::STOP)?;
    let answers = thread::scope(|scope| -> Result<Vec<Answer>, Box<dyn Error>> {
        let clients = [(&mut replayed, "COMMIT"), (&mut alone, write.as_str())];
        let asked = clients.map(|(session, sql)| {
            scope.spawn(move || session.query(sql).map_err(|error| format!("{sql}: {error}")))
        });
        let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@GLOBAL.server_uuid";
        let left = eventually("the primary has given up", PATIENCE, || {
            Ok(servers.source().root_query(state)?.concat() == ["ERROR"])
        });
        signal(Signal::CONT)?;
        left?;
        let answers = asked.map(|client| client.join().map_err(|_| "a client has panicked"));
        answers.into_iter().map(|answer| Ok(answer??)).collect()
    })?;
    let errors: Vec<_> = answers.iter().map(error_of).collect();
    ensure!(errors.iter().all(Option::is_none), "{errors:?}");
    let mut there = words(&weir, &schema)?;
    there.sort();
    ensure!(there == ["alone", "replayed"], "{there:?}");
    ensure!(count(&admin, "Weir_outcomes_asked")? >= 1, "the primary has not left amid a COMMIT");
    Ok(())
}

/// Another member, beside Weir, changes the same row.
fn conflicts(env: &Env) -> CaseResult {
    let kind = Kind::Group;
    // What the members apply waits for what is before it.
    let servers = kind.start(env, "replica-parallel-workers=1")?;
    let uuid = servers.source().root_query("SELECT @@server_uuid")?.concat().concat();
    for is_applied in [false, true] {
        let (weir, way, admin, schema) =
            cutting(env, (kind, &servers), holding(b"COMMIT"), ("marker", "on"), |_| ())?;
        // The first server stays the writer.
        servers.source().root_query("SELECT group_replication_switch_to_multi_primary_mode()")?;
        eventually("the second server takes writes", PATIENCE, || {
            Ok(servers.server(2).root_query("SELECT @@GLOBAL.super_read_only")?.concat() == ["0"])
        })?;
        let mut session = Session::open(weir.addr(), &schema)?;
        session.run("CREATE TABLE blocker (id INT PRIMARY KEY)")?;
        session.run("INSERT INTO t (id, word) VALUES (1, 'first'), (2, 'first')")?;
        servers.wait_replicated()?;
        let blocker = Mutex::new(Session::open(servers.source().addr(), &schema)?);
        let other = |id: u32| -> CaseResult {
            if !is_applied {
                locked_by(&blocker).run("LOCK TABLES blocker READ")?;
                servers.server(2).root_query(&format!("INSERT INTO {schema}.blocker VALUES ({id})"))?;
            }
            let sql = format!("UPDATE {schema}.t SET word = 'theirs' WHERE id = {id}");
            servers.server(2).root_query(&sql)?;
            if is_applied {
                servers.wait_replicated_from(2)?;
            }
            Ok(())
        };
        session.run("BEGIN")?;
        session.run("UPDATE t SET word = 'mine' WHERE id = 1")?;
        let told = while_held((&mut session, "COMMIT"), &way, || other(1), || Ok(()))?;
        // It is rolled back on every member; 1180 says that of a transaction that was in the way of the other one.
        let expected = if is_applied { 1180 } else { 3101 };
        ensure!(told.error() == Some(expected), "{told:?}");
        locked_by(&blocker).run("UNLOCK TABLES")?;
        let rows_become = |first: &str, second: &str| {
            let what = format!("the rows are {first} and {second}");
            eventually(&what, PATIENCE, || Ok(words(&weir, &schema)? == [first, second]))
        };
        // The first server is about to apply what it has let in.
        rows_become("theirs", "first")?;
        // The session is in no transaction any more.
        session.run("UPDATE t SET word = 'next' WHERE id = 1")?;
        ensure!(words(&weir, &schema)? == ["next", "first"], "{:?}", words(&weir, &schema)?);
        let update = "UPDATE t SET word = 'mine' WHERE id = 2";
        // It begins anew, and may meet the other change a second time when that comes.
        let behind = || -> CaseResult {
            if !is_applied {
                let retried = || Ok(count(&admin, "Weir_deadlocks_retried")? > 0);
                eventually("it has begun anew", PATIENCE, retried)?;
            }
            locked_by(&blocker).run("UNLOCK TABLES")?;
            Ok(())
        };
        let told = while_held((&mut session, update), &way, || other(2), behind)?;
        let is_done = told.error().is_none();
        let is_refused = told.error() == Some(1180) || (!is_applied && told.error() == Some(3101));
        ensure!(is_refused || (is_done && !is_applied), "a write alone: {told:?}");
        let word = if is_done { "mine" } else { "theirs" };
        rows_become("next", word).map_err(|error| format!("{told:?}: {error}"))?;
        ensure!(count(&admin, "Weir_outcomes_asked")? == 0, "asked for what was refused");
        let one = format!("SELECT group_replication_switch_to_single_primary_mode('{uuid}')");
        servers.source().root_query(&one)?;
    }
    Ok(())
}

/// The question is put again behind what a lock in its way answers, which is 1205, and not for ever.
fn locked(env: &Env, kind: Kind) -> CaseResult {
    let servers = kind.start(env, "innodb-lock-wait-timeout=1")?;
    for (tries, is_known) in [((10, 2), true), ((1, 1), false)] {
        // It waits for the row for longer than a server lets it.
        let meanwhile = Duration::from_millis(3500);
        let told = ask_behind_lock(env, (kind, &servers), tries, "DO 0", ("ROLLBACK", meanwhile))?;
        let error = error_of(&told);
        match is_known {
            true => ensure!(error.is_none(), "{error:?}"),
            false => ensure!(error.as_ref().is_some_and(|told| told.1 == "08007"), "{error:?}"),
        }
    }
    Ok(())
}

/// The same behind 1020: the row has changed while the question waited for it.
fn changed(env: &Env) -> CaseResult {
    let servers = Kind::Mariadb.start(env, "innodb-snapshot-isolation=ON")?;
    let level = "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE";
    let (unlock, meanwhile) = ("COMMIT", Duration::from_millis(500));
    let told = ask_behind_lock(env, (Kind::Mariadb, &servers), (10, 2), level, (unlock, meanwhile))?;
    ensure!(error_of(&told).is_none(), "{told:?}");
    Ok(())
}

/// Somebody else has locked the row that says whether a transaction was committed, and changed it in another respect. The
/// answer to its COMMIT is lost; returns what its client gets when the lock has gone.
fn ask_behind_lock(
    env: &Env,
    (kind, servers): (Kind, &Mysql),
    (retries, asked_min): (i64, u64),
    first: &str,
    (unlock, meanwhile): (&str, Duration),
) -> Result<Answer, Box<dyn Error>> {
    let cut = Cut { cuts_max: 1, ..ANSWER_LOST };
    let (weir, way, admin, schema) = cutting(env, (kind, servers), cut, ("marker", "off"), |config| {
        config.variable("connect_retries_on_failure", retries);
    })?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run(first)?;
    for (id, commit) in [(1, "COMMIT"), (2, "DO 0")] {
        // The second one uses the first one's row again.
        session.run("BEGIN")?;
        session.run(&insert(id, "x"))?;
        session.run(commit)?;
    }
    let locker = Mutex::new(Session::open(servers.source().addr(), "")?);
    locked_by(&locker).run("SET SESSION innodb_lock_wait_timeout = 50")?;
    locked_by(&locker).run("BEGIN")?;
    let root =
        |sql: &str| -> Result<Vec<String>, Box<dyn Error>> { Ok(servers.source().root_query(sql)?.concat()) };
    let begun = || -> Result<u64, Box<dyn Error>> {
        Ok(root("SHOW GLOBAL STATUS LIKE 'Com_begin'")?.last().ok_or("no such counter")?.parse()?)
    };
    let begun_before = begun()?;
    let lock = || -> CaseResult {
        locked_by(&locker).send_query("SELECT COUNT(*) FROM weir.outcomes FOR UPDATE")?;
        let waits = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
        eventually("it waits for the row", PATIENCE, || Ok(root(waits)? == ["1"]))
    };
    let behind = || -> CaseResult {
        eventually("the answer is lost", PATIENCE, || Ok(way.cuts() == 1))?;
        locked_by(&locker).results()?.value()?;
        locked_by(&locker).run("UPDATE weir.outcomes SET written_at = NOW() - INTERVAL 1 HOUR")?;
        thread::sleep(meanwhile);
        locked_by(&locker).run(unlock)?;
        Ok(())
    };
    let told = while_held((&mut session, COMMIT), &way, lock, behind)?;
    let asked = begun()? - begun_before;
    ensure!(asked >= asked_min, "asked {asked} times");
    ensure!(words(&weir, &schema)? == ["x", "x"], "{:?}", words(&weir, &schema)?);
    ensure!(count(&admin, "Weir_outcomes_asked")? == 1, "it was not asked for");
    Ok(told)
}

fn locked_by(locker: &Mutex<Session>) -> MutexGuard<'_, Session> {
    locker.lock().unwrap_or_else(PoisonError::into_inner)
}
