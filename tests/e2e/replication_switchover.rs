//! `weir switchover` with asynchronous replication: Weir makes one server read_only and the other writable, has the
//! others replicate from it, and no application notices.

use std::error::Error;
use std::process::Output;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use weir_testkit::{Account, Family, Mysql, Weir, WeirConfig, hostgroup};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::{
    PATIENCE, REPLICATION, WHO, Written, id, let_move, readers, under_load, under_load_of, weir_with, writer,
};
use crate::switchover::{run, text};

/// The cases of this module. Each has servers of its own.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("replication_switchover::under_load_without_an_error", |env| {
            without_an_error(env, Family::Mysql)
        }),
        Case::serial("replication_switchover::under_load_on_mariadb_without_an_error", |env| {
            without_an_error(env, Family::Mariadb)
        }),
        Case::serial("replication_switchover::by_either_of_two_weirs_without_an_error", |env| {
            of_two(env, Family::Mysql)
        }),
        Case::serial("replication_switchover::by_either_of_two_weirs_on_mariadb_without_an_error", |env| {
            of_two(env, Family::Mariadb)
        }),
        Case::serial("replication_switchover::one_by_another_weir_is_not_cut_across", |env| {
            second_of_two(env, Family::Mysql)
        }),
        Case::serial("replication_switchover::one_by_another_weir_on_mariadb_is_not_cut_across", |env| {
            second_of_two(env, Family::Mariadb)
        }),
        Case::serial("replication_switchover::without_a_way_to_ask_another_weir_is_refused", unasked),
        Case::serial(
            "replication_switchover::another_weir_that_lacks_the_target_does_not_agree",
            unknown_target,
        ),
        Case::serial("replication_switchover::a_read_only_server_gets_no_row_of_weirs_own", own_rows),
        Case::serial("replication_switchover::an_offline_hard_server_stays_where_it_is", offline_hard),
        Case::serial("replication_switchover::what_can_not_be_is_refused_or_undone", |env| {
            refused(env, Family::Mysql)
        }),
        Case::serial("replication_switchover::what_can_not_be_on_mariadb_is_refused_or_undone", |env| {
            refused(env, Family::Mariadb)
        }),
    ]
}

const SWITCHOVERS: usize = 4;
/// Moves the role; may do nothing else.
const MOVER: Account = Account { user: "mover", password: "it's \\ secret" };

fn switchover(weir: &Weir, more: &[&str]) -> Result<Output, Box<dyn Error>> {
    let hostgroup = hostgroup::WRITER.to_string();
    run(weir, &[&["switchover", &hostgroup], more].concat())
}

/// A Weir with accounts of its own for the switchover, in front of three servers.
fn start(env: &Env, family: Family) -> Result<(Mysql, Weir), Box<dyn Error>> {
    let mysql = env.own_servers(family, 3, false)?;
    let Account { user, password } = MOVER;
    let password = password.replace('\\', r"\\").replace('\'', "''");
    mysql.source().root_query(&format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}'"))?;
    mysql.wait_replicated()?;
    if family == Family::Mysql {
        mysql.remember_password(MOVER)?;
    }
    let weir = another(env, &mysql)?;
    Ok((mysql, weir))
}

fn another(env: &Env, mysql: &Mysql) -> Result<Weir, Box<dyn Error>> {
    another_with(env, mysql, |_| {})
}

fn another_with(
    env: &Env,
    mysql: &Mysql,
    change: impl FnOnce(&mut WeirConfig),
) -> Result<Weir, Box<dyn Error>> {
    weir_with(env, mysql, false, |config| {
        change(config);
        config.push(
            "weir_topology",
            &[
                ("writer_hostgroup", hostgroup::WRITER.into()),
                ("switchover_username", MOVER.user.into()),
                ("switchover_password", MOVER.password.into()),
                ("replication_username", REPLICATION.user.into()),
                ("replication_password", REPLICATION.password.into()),
            ],
        );
    })
}

fn grant(mysql: &Mysql) -> CaseResult {
    let_move(mysql, MOVER)?;
    mysql.wait_replicated()?;
    Ok(())
}

fn wait_ready(weir: &Weir) -> CaseResult {
    eventually("another server can be the writer", PATIENCE, || {
        Ok(switchover(weir, &["--dry-run"])?.status.success())
    })
}

fn without_an_error(env: &Env, family: Family) -> CaseResult {
    let (mysql, weir) = start(env, family)?;
    grant(&mysql)?;
    wait_ready(&weir)?;
    let mut writers = vec![writer(&weir)?];
    let written = under_load(&weir, || {
        for _ in 0..SWITCHOVERS {
            wait_ready(&weir)?;
            let done = switchover(&weir, &["--grace-ms", "8000"])?;
            ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
            ensure!(
                text(&done.stdout).lines().count() == 1,
                "something is left to do: {}",
                text(&done.stdout)
            );
            writers.push(writer(&weir)?);
            thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    })?;
    ensure!(writers.windows(2).all(|pair| pair[0] != pair[1]), "{writers:?}");
    ensure!(written.iter().all(|written| written.error.is_none()), "{written:?}");
    let mut session = Session::open(weir.addr(), "test")?;
    for (at, Written { rows, .. }) in written.iter().enumerate() {
        let found = session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {at} FOR UPDATE"))?;
        ensure!(found == rows.to_string(), "writer {at}: {rows} acknowledged, {found} found");
    }
    // Every other server has all of it, also the one that was the first writer.
    let all = "SELECT COUNT(*) FROM test.numbers";
    let count = session.value(&format!("{all} FOR UPDATE"))?;
    eventually("all servers have everything", PATIENCE, || {
        let counts = mysql.servers().iter().map(|server| server.root_query(all));
        Ok(counts.collect::<Result<Vec<_>, _>>()?.iter().all(|rows| *rows == [[count.clone()]]))
    })?;
    eventually("the two others read", PATIENCE, || Ok(readers(&weir, &mysql)?.len() == 2))
}

/// Two Weirs that know each other.
fn start_two(env: &Env, family: Family) -> Result<(Mysql, Weir, Weir), Box<dyn Error>> {
    let (mysql, one) = start(env, family)?;
    grant(&mysql)?;
    let monitor = Account::MONITOR.user;
    let privileges = "SELECT, INSERT, UPDATE, DELETE, CREATE";
    mysql.source().root_query(&format!("GRANT {privileges} ON weir.* TO {monitor}@'%'"))?;
    mysql.wait_replicated()?;
    let two = another(env, &mysql)?;
    let weirs = [&one, &two];
    eventually("the Weirs know each other", PATIENCE, || {
        let knows = |weir: &&Weir| -> Result<bool, Box<dyn Error>> {
            let status: Value = serde_json::from_slice(&run(weir, &["status", "--json"])?.stdout)?;
            Ok(status["clusters"][0]["other_weirs"].as_array().is_some_and(|others| others.len() == 1))
        };
        Ok(knows(&weirs[0])? && knows(&weirs[1])?)
    })?;
    Ok((mysql, one, two))
}

/// A session of the first Weir keeps its switchover waiting; the second one is not to make the old writer read_only
/// under that session.
fn second_of_two(env: &Env, family: Family) -> CaseResult {
    let (mysql, one, two) = start_two(env, family)?;
    for weir in [&one, &two] {
        wait_ready(weir)?;
    }
    let before = writer(&one)?;
    let mut kept = Session::open(one.addr(), "test")?;
    kept.run("CREATE TEMPORARY TABLE kept (id INT PRIMARY KEY)")?;
    let first = thread::scope(|scope| -> Result<Output, Box<dyn Error>> {
        let first =
            scope.spawn(|| switchover(&one, &["--grace-ms", "9000"]).map_err(|error| error.to_string()));
        two.wait_log("statements are held for another Weir's switchover", PATIENCE)?;
        let second = switchover(&two, &[])?;
        let said = text(&second.stderr);
        ensure!(!second.status.success(), "a second switchover: {}", text(&second.stdout));
        ensure!(said.contains("another Weir, is under way") && !said.contains("are held"), "{said}");
        // Nor is the next writer to leave under its hands.
        let target = said.split_once("a switchover to ").and_then(|(_, rest)| rest.split_once(" by "));
        let (target, _) = target.ok_or_else(|| format!("names no target: {said}"))?;
        let drained = run(&two, &["drain", target])?;
        let said = text(&drained.stderr);
        ensure!(!drained.status.success() && said.contains("it is to be the writer of hostgroup"), "{said}");
        // It still writes where it did.
        kept.run("INSERT INTO kept VALUES (1)")?;
        kept.run("INSERT INTO numbers VALUES (1000, 1)")?;
        ensure!(kept.value(WHO)? == before, "the session has moved");
        drop(kept);
        Ok(first.join().map_err(|_| "the switchover's thread has panicked")??)
    })?;
    ensure!(first.status.success(), "{}{}", text(&first.stdout), text(&first.stderr));
    for weir in [&one, &two] {
        eventually("both have another writer", PATIENCE, || Ok(writer(weir)? != before))?;
    }
    drop(mysql);
    Ok(())
}

/// Two Weirs, each with open transactions: switchovers and drains by either of them are nobody's error.
fn of_two(env: &Env, family: Family) -> CaseResult {
    let (_mysql, one, two) = start_two(env, family)?;
    let weirs = [&one, &two];
    let written = under_load_of(&weirs, || {
        for round in 0..SWITCHOVERS {
            let by = weirs[round % 2];
            wait_ready(by)?;
            let before = writer(by)?;
            let done = switchover(by, &["--grace-ms", "8000"])?;
            ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
            for weir in weirs {
                eventually("both have another writer", PATIENCE, || Ok(writer(weir)? != before))?;
            }
        }
        Ok(())
    })?;
    ensure!(written.iter().all(|written| written.error.is_none()), "{written:?}");
    let mut session = Session::open(one.addr(), "test")?;
    for (at, Written { rows, .. }) in written.iter().enumerate() {
        let found = session.value(&format!("SELECT COUNT(*) FROM numbers WHERE writer = {at} FOR UPDATE"))?;
        ensure!(found == rows.to_string(), "writer {at}: {rows} acknowledged, {found} found");
    }
    Ok(())
}

/// The account could use the shared tables, and both have heard of each other.
fn unasked(env: &Env) -> CaseResult {
    let (mysql, one, two) = start_two(env, Family::Mariadb)?;
    for weir in [&one, &two] {
        wait_ready(weir)?;
    }
    let before = writer(&one)?;
    let monitor = Account::MONITOR.user;
    let mut session = Session::open(one.addr(), "test")?;
    let third = mysql.server(3).addr().to_string();
    // It must not be given by a role, or for all schemas.
    let rights = format!("REVOKE ALL ON weir.* FROM {monitor}@'%'; GRANT SELECT ON weir.* TO {monitor}@'%'");
    mysql.source().root_query(&rights)?;
    for weir in [&one, &two] {
        eventually("the trouble is shown", PATIENCE, || {
            Ok(text(&run(weir, &["status"])?.stdout).contains("not told of switchovers and drains"))
        })?;
        let refused = switchover(weir, &[])?;
        let said = text(&refused.stderr);
        ensure!(refused.status.code() == Some(1) && said.contains("can't be asked to hold"), "{refused:?}");
        ensure!(!said.contains("new statements are held"), "{said}");
    }
    ensure!(writer(&one)? == before, "it has moved");
    session.run("INSERT INTO numbers VALUES (1, 1)")?;
    let drained = run(&two, &["drain", &third, "--timeout-s", "1"])?;
    let said = text(&drained.stderr);
    ensure!(drained.status.code() == Some(3) && said.contains("has not answered"), "{drained:?}");
    mysql.source().root_query(&format!("GRANT INSERT, UPDATE, DELETE, CREATE ON weir.* TO {monitor}@'%'"))?;
    eventually("the other one is told", Duration::from_secs(60), || {
        Ok(run(&two, &["drain", &third, "--timeout-s", "5"])?.status.success())
    })
}

/// Its clients could write nowhere afterwards.
fn unknown_target(env: &Env) -> CaseResult {
    let (mysql, one, two) = start_two(env, Family::Mariadb)?;
    wait_ready(&one)?;
    let before = writer(&one)?;
    drop(two);
    let to = mysql.server(2).addr();
    let two = another_with(env, &mysql, |config| {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        if let Some(rows) = rows {
            rows.retain(|row| row["hostname"].as_str() != Some(&to.ip().to_string()));
        }
    })?;
    wait_ready(&two)?;
    wait_ready(&one)?;
    let undone = switchover(&one, &["--to", &to.to_string()])?;
    let said = text(&undone.stderr);
    ensure!(undone.status.code() == Some(1) && said.contains("do not know the next writer"), "{undone:?}");
    ensure!(writer(&one)? == before && writer(&two)? == before, "it has moved");
    Ok(two.wait_log("this Weir does not agree", PATIENCE)?)
}

/// With MariaDB the monitor's account may be one that read_only does not bind: it is the one that moves the role. A row
/// that it wrote on the old writer would keep that from ever following the new one.
fn own_rows(env: &Env) -> CaseResult {
    let mysql = env.own_servers(Family::Mariadb, 2, false)?;
    let monitor = Account::MONITOR.user;
    let root = |sql: &str| Ok::<_, Box<dyn Error>>(mysql.source().root_query(sql)?.concat().concat());
    root(&format!(
        "GRANT READ_ONLY ADMIN ON *.* TO {monitor}@'%'; \
         GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.* TO {monitor}@'%'"
    ))?;
    mysql.wait_replicated()?;
    // It does not notice in time that the writer is none any more.
    let weir = weir_with(env, &mysql, false, |config| {
        config.variable("monitor_read_only_interval", 600_000);
    })?;
    let beat = || root("SELECT SUM(beat) FROM weir.instances");
    let next_beat = |what: &str| {
        let mut first = String::new();
        eventually("Weir's tables are there", PATIENCE, || Ok(beat().map(|seen| first = seen).is_ok()))?;
        eventually(what, PATIENCE, || Ok(beat()? != first))
    };
    next_beat("Weir says that it is there")?;
    let position = || root("SELECT @@GLOBAL.gtid_binlog_pos");
    root("SET GLOBAL read_only = ON")?;
    let before = position()?;
    // Three times as long as from one row to the next.
    thread::sleep(Duration::from_secs(9));
    ensure!(position()? == before, "{before} was the last transaction, now it is {}", position()?);
    let writer = crate::switchover::writer(&weir)?;
    ensure!(writer == mysql.source().addr().to_string(), "Weir has noticed: '{writer}' writes");
    root("SET GLOBAL read_only = OFF")?;
    next_beat("Weir says again that it is there")
}

/// ProxySQL's word for a server that is not used, as if it were none of the hostgroup's.
fn offline_hard(env: &Env) -> CaseResult {
    let (mysql, weir) = start(env, Family::Mariadb)?;
    grant(&mysql)?;
    drop(weir);
    let weir = another_with(env, &mysql, |config| {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        if let Some(third) = rows.and_then(|rows| rows.get_mut(2)) {
            third["status"] = toml_edit::value("OFFLINE_HARD");
        }
    })?;
    wait_ready(&weir)?;
    let source = |server: usize| -> Result<String, Box<dyn Error>> {
        Ok(mysql.server(server).root_query("SHOW SLAVE STATUS")?.concat().join(" "))
    };
    let [first, second] = [1, 2].map(|server| mysql.server(server).addr().ip().to_string());
    ensure!(source(3)?.contains(&first), "{}", source(3)?);
    let done = switchover(&weir, &["--grace-ms", "8000"])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    ensure!(text(&done.stdout).lines().count() == 1, "something is left to do: {}", text(&done.stdout));
    ensure!(writer(&weir)? == id(&mysql, 2)?, "the third one has been chosen");
    ensure!(source(1)?.contains(&second), "the old writer follows: {}", source(1)?);
    let third = source(3)?;
    ensure!(third.contains(&first) && !third.contains(&second), "the third one has been told: {third}");
    Ok(())
}

fn refused(env: &Env, family: Family) -> CaseResult {
    let (mysql, weir) = start(env, family)?;
    let source = id(&mysql, 1)?;
    ensure!(writer(&weir)? == source, "the source does not write");
    eventually("a missing privilege is named", PATIENCE, || {
        let refused = switchover(&weir, &[])?;
        let said = text(&refused.stderr);
        Ok(!refused.status.success() && said.contains("mover lacks a privilege") && said.contains("ADMIN"))
    })?;
    ensure!(!weir.log().contains("switchover begins"), "it has begun without the privilege");
    grant(&mysql)?;
    wait_ready(&weir)?;

    // The target stands still when everybody holds already: it will never have everything.
    let delay = match family {
        Family::Mysql => {
            "STOP REPLICA SQL_THREAD; CHANGE REPLICATION SOURCE TO SOURCE_DELAY = 3600; START REPLICA"
        }
        Family::Mariadb => "STOP SLAVE; CHANGE MASTER TO MASTER_DELAY = 3600; START SLAVE",
    };
    let to = mysql.server(2).addr().to_string();
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("BEGIN")?;
    session.run("INSERT INTO numbers VALUES (7, 1)")?;
    let undone = thread::scope(|scope| {
        let undone = scope
            .spawn(|| switchover(&weir, &["--to", &to, "--grace-ms", "20000"]).map_err(|e| e.to_string()));
        eventually("statements are held", PATIENCE, || Ok(weir.log().contains("switchover begins")))?;
        mysql.server(2).root_query(delay)?;
        eventually("the target replicates again", PATIENCE, || {
            let status = match family {
                Family::Mysql => "SHOW REPLICA STATUS",
                Family::Mariadb => "SHOW ALL SLAVES STATUS",
            };
            let row = mysql.server(2).root_query(status)?.concat();
            Ok(row.iter().filter(|value| *value == "Yes").count() >= 2)
        })?;
        // Weir has seen that, too, some probes later.
        thread::sleep(Duration::from_secs(1));
        session.run("COMMIT")?;
        Ok::<_, Box<dyn Error>>(undone.join().map_err(|_| "the switchover panicked")??)
    })?;
    let said = text(&undone.stderr);
    ensure!(
        undone.status.code() == Some(1)
            && said.contains("has not applied everything")
            && said.contains("is the writer as before"),
        "{undone:?}"
    );
    session.run("INSERT INTO numbers VALUES (7, 2)")?;
    ensure!(writer(&weir)? == source, "it has moved");
    // Now it is behind before anybody holds.
    session.run("INSERT INTO numbers VALUES (7, 3)")?;
    let held_before = weir.log().matches("switchover begins").count();
    let refused = switchover(&weir, &["--to", &to])?;
    let said = text(&refused.stderr);
    ensure!(refused.status.code() == Some(1) && said.contains("has not applied everything"), "{refused:?}");
    ensure!(weir.log().matches("switchover begins").count() == held_before, "statements were held in vain");
    ensure!(writer(&weir)? == source, "it has moved");

    // A server that replicates from nobody can't follow.
    mysql.server(2).root_query(match family {
        Family::Mysql => "STOP REPLICA; RESET REPLICA ALL",
        Family::Mariadb => "STOP SLAVE; RESET SLAVE ALL",
    })?;
    let refused = switchover(&weir, &["--to", &to])?;
    ensure!(!refused.status.success(), "{refused:?}");
    ensure!(writer(&weir)? == source, "it has moved");
    // Whoever does not insist on it gets one that can.
    let done = switchover(&weir, &[])?;
    ensure!(done.status.success() && writer(&weir)? == id(&mysql, 3)?, "{done:?}");
    Ok(())
}
