//! Sessions with something on their connection that go on at another server when theirs is left, and those that can't.

use std::error::Error;
use std::thread;

use weir_protocol::command;
use weir_testkit::wire::Login;
use weir_testkit::{Account, Family, Mysql, Weir, hostgroup};
use weir_tests::session::Outcome;
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

use crate::replication::{PATIENCE, REPLICATION, WHO, let_move, weir_with};
use crate::switchover::{run, text, wait_writer, writer};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("moving::user_variables_go_along_with_a_switchover", switchover),
        Case::parallel("moving::user_variables_go_along_with_a_drain", drain),
        Case::parallel("moving::a_transaction_ends_first", transaction),
        Case::parallel("moving::what_can_not_be_carried_stays", stays),
        Case::parallel("moving::what_a_routine_has_left_has_to_be_known", unprovable),
        Case::serial("moving::user_variables_go_along_on_replicas_of_mysql", |env| {
            replicas(env, Family::Mysql)
        }),
        Case::serial("moving::user_variables_go_along_on_replicas_of_mariadb", |env| {
            replicas(env, Family::Mariadb)
        }),
        Case::serial("moving::user_variables_go_along_in_a_group", group),
    ]
}

const NODE: &str = "SELECT @@wsrep_node_name";
const HOSTGROUP: &str = "100";

/// A variable of every type, of every kind of NULL, and names and values that must not break anything.
const VARIABLES: [(&str, &str); 34] = [
    ("@i", "5"),
    ("@least", "-9223372036854775808"),
    ("@unsigned", "CAST(18446744073709551615 AS UNSIGNED)"),
    ("@small_unsigned", "CAST(3 AS UNSIGNED)"),
    ("@yes", "true"),
    ("@decimal", "1.50"),
    ("@whole_decimal", "CAST(5 AS DECIMAL(10,0))"),
    ("@long_decimal", "-12345678901234567890123456789012345.123456789012345678901234567890"),
    ("@double", "1e0/3"),
    ("@tiny", "-1.2345678901234567e-308"),
    ("@huge", "1.7976931348623157e308"),
    ("@minus_zero", "0e0*-1"),
    ("@text", "'grün \\\\ '' \" ` ; -- x'"),
    ("@latin", "_latin1 X'E4F6FC' COLLATE latin1_german2_ci"),
    ("@wide", "_utf16 X'00410042' COLLATE utf16_bin"),
    ("@bytes", "X'00FF270A5C'"),
    ("@bits", "b'101'"),
    ("@empty", "''"),
    ("@no_bytes", "_binary''"),
    ("@date", "DATE'2020-01-02'"),
    ("@time", "CAST('2020-01-02 03:04:05.678901' AS DATETIME(6))"),
    ("@json", "JSON_OBJECT('a', 1)"),
    ("@long", "REPEAT('x', 3000)"),
    ("@null", "NULL"),
    ("@no_int", "CAST(NULL AS SIGNED)"),
    ("@no_decimal", "CAST(NULL AS DECIMAL)"),
    ("@no_double", "0e0+NULL"),
    ("@no_text", "CAST(NULL AS CHAR)"),
    ("@`odd ``name'\" \\`", "7"),
    ("@'single'", "8"),
    ("@`grüße`", "9"),
    ("@dotted.name", "10"),
    ("@CamelCase", "11"),
    ("@`select`", "12"),
];

/// Sets all of them, also by other means than a SET.
fn set_variables(session: &mut Session) -> CaseResult {
    let all: Vec<String> = VARIABLES.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    session.run(&format!("SET {}", all.join(", ")))?;
    session.run("SET @no_unsigned = CAST(1 AS UNSIGNED)")?;
    session.run("SET @no_unsigned = NULL")?;
    session.run("SELECT @chosen := 3")?;
    session.run("SELECT 'a', 2.5 INTO @into, @more")?;
    Ok(())
}

/// The values with their types, character sets and collations.
fn variables(session: &mut Session) -> Result<Vec<Outcome>, Box<dyn Error>> {
    let mut seen = Vec::new();
    let names = VARIABLES.iter().map(|(name, _)| *name);
    for name in names.chain(["@no_unsigned", "@chosen", "@into", "@more", "@never"]) {
        let question = format!(
            "SELECT {name} AS v, CAST({name} AS BINARY) AS b, CHARSET({name}) AS s, COLLATION({name}) AS c, \
             COERCIBILITY({name}) AS d, {name} + 0e0 AS e, -{name} AS f"
        );
        // Some can't be negated. That is so everywhere.
        seen.extend(session.query(&question)?.results);
    }
    Ok(seen)
}

fn same(before: &[Outcome], after: &[Outcome]) -> CaseResult {
    for (before, after) in before.iter().zip(after) {
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        ensure!(before == after, "a variable is another one\n{before}\n{after}");
    }
    ensure!(before.len() == after.len(), "answers are missing");
    Ok(())
}

fn switchover(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET time_zone = '+03:00'")?;
    set_variables(&mut session)?;
    let (node, before) = (session.value(NODE)?, variables(&mut session)?);
    for round in 0..3 {
        let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
        ensure!(done.status.success(), "round {round}: {}{}", text(&done.stdout), text(&done.stderr));
        same(&before, &variables(&mut session)?)?;
        ensure!(session.value("SELECT @@time_zone")? == "+03:00", "round {round}: a variable is lost");
    }
    ensure!(session.value(NODE)? != node, "it has not moved");

    // What has changed since goes along, too, and what was set before is not seen by others.
    session.run("SET @i = 6")?;
    let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
    ensure!(done.status.success(), "{done:?}");
    ensure!(session.value("SELECT @i")? == "6", "an old value");
    let mut other = Session::open(weir.addr(), "test")?;
    ensure!(other.value("SELECT @i")? == "NULL", "another session's variable");

    // A reset while they are on no connection ends them.
    let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
    ensure!(done.status.success(), "{done:?}");
    session.reset()?.done()?;
    ensure!(session.value("SELECT @i")? == "NULL", "it has outlived a reset");
    Ok(())
}

fn drain(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    set_variables(&mut session)?;
    let (node, before) = (session.value(NODE)?, variables(&mut session)?);
    let server = writer(&weir)?;
    let done = run(&weir, &["drain", &server])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    same(&before, &variables(&mut session)?)?;
    ensure!(session.value(NODE)? != node, "it has stayed at a drained server");
    let back = run(&weir, &["undrain", &server])?;
    ensure!(back.status.success(), "{back:?}");
    Ok(())
}

fn transaction(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let schema = env.schema()?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    set_variables(&mut session)?;
    let (node, before) = (session.value(NODE)?, variables(&mut session)?);
    session.run("BEGIN")?;
    session.run("INSERT INTO t VALUES (1)")?;
    thread::scope(|scope| -> CaseResult {
        let switch = scope.spawn(|| {
            run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "9000"]).map_err(|error| error.to_string())
        });
        eventually("the switchover waits", PATIENCE, || Ok(weir.log().contains("switchover begins")))?;
        ensure!(session.value(NODE)? == node, "the transaction has moved");
        session.run("INSERT INTO t VALUES (@i)")?;
        session.run("COMMIT")?;
        let done = switch.join().map_err(|_| "the switchover has panicked")??;
        ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
        Ok(())
    })?;
    same(&before, &variables(&mut session)?)?;
    ensure!(session.value(NODE)? != node, "it has not moved");
    ensure!(session.value("SELECT GROUP_CONCAT(id) FROM t")? == "1,5", "rows are missing");
    Ok(())
}

/// Without the plugin nobody can tell which locks a routine has left.
fn unprovable(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("BEGIN NOT ATOMIC DO 1; END")?;
    let said = refused(&weir)?;
    ensure!(said.contains("1 session (routine: error 1109") && said.contains("METADATA_LOCK_INFO"), "{said}");
    session.run("DO 1")?;
    Ok(())
}

/// A switchover that is refused, and what it says.
fn refused(weir: &Weir) -> Result<String, Box<dyn Error>> {
    let undone = run(weir, &["switchover", HOSTGROUP, "--grace-ms", "500"])?;
    ensure!(undone.status.code() == Some(1), "{undone:?}");
    Ok(text(&undone.stderr))
}

fn stays(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    wait_writer(&weir)?;
    let mut session = Session::open(weir.addr(), "test")?;
    session.run("SET @i = 1")?;
    session.run("CREATE TEMPORARY TABLE mine (id INT)")?;
    let said = refused(&weir)?;
    ensure!(said.contains("1 session (user_variable, temporary_table)"), "{said}");
    session.run("INSERT INTO mine VALUES (@i)")?;
    session.run("DROP TEMPORARY TABLE mine")?;

    session.run("SET @large = REPEAT('x', 65536)")?;
    let said = refused(&weir)?;
    ensure!(said.contains("its user variables take more than 65536 bytes"), "{said}");
    ensure!(session.value("SELECT LENGTH(@large) + @i")? == "65537", "it is lost");

    // As a server may have it, but takes it from nobody.
    session.run("SET @large = CAST(X'FF' AS CHAR CHARACTER SET utf8mb4)")?;
    session.run("SET @large = NULL, @i = 2")?;
    let done = run(&weir, &["switchover", HOSTGROUP, "--grace-ms", "8000"])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    ensure!(session.value("SELECT @i")? == "2", "it is lost");

    session.run("SET NAMES latin1")?;
    let mut packet = Vec::new();
    command::put_query(&mut packet, b"SET @`\xE4` = 1");
    session.raw().packets().write_bytes(&packet)?;
    session.results()?.done()?;
    let said = refused(&weir)?;
    ensure!(said.contains("the name of a user variable can't be written"), "{said}");
    Ok(())
}

/// A writer and two replicas, and a Weir that may move the role.
fn start(env: &Env, mysql: &Mysql, is_group: bool) -> Result<Weir, Box<dyn Error>> {
    if is_group {
        let monitor = Account::MONITOR.user;
        mysql
            .source()
            .root_query(&format!("GRANT GROUP_REPLICATION_ADMIN, PROCESS ON *.* TO {monitor}@'%'"))?;
    } else {
        let_move(mysql, Account::MONITOR)?;
    }
    mysql.wait_replicated()?;
    let weir = weir_with(env, mysql, is_group, |config| {
        config.user(Account::LIMITED, hostgroup::WRITER, &[]);
        if !is_group {
            config.push(
                "weir_topology",
                &[
                    ("writer_hostgroup", hostgroup::WRITER.into()),
                    ("replication_username", REPLICATION.user.into()),
                    ("replication_password", REPLICATION.password.into()),
                ],
            );
        }
    })?;
    wait_writer(&weir)?;
    Ok(weir)
}

fn replicas(env: &Env, family: Family) -> CaseResult {
    let cnf = match family {
        Family::Mysql => "performance-schema=ON",
        Family::Mariadb => "plugin-load-add=metadata_lock_info",
    };
    let mysql = env.own_servers_with(family, 3, false, cnf)?;
    let weir = start(env, &mysql, false)?;
    moves(&weir)?;
    routines(&weir, family)?;
    if family == Family::Mysql { known_by_texts(&weir) } else { Ok(()) }
}

/// Sessions that have called routines: what has left nothing but user variables goes along, anything else stays.
fn routines(weir: &Weir, family: Family) -> CaseResult {
    let mut admin = Session::open(weir.addr(), "test")?;
    let sets_unreported = match family {
        Family::Mariadb => "SET @@lock_wait_timeout = 77",
        Family::Mysql => "SET ROLE NONE",
    };
    for (name, body) in [
        ("nothing", "INSERT INTO numbers VALUES (70, 1)"),
        ("variable", "SET @from_routine = CAST(7 AS UNSIGNED)"),
        ("reported", "SET SESSION lock_wait_timeout = 78"),
        ("lock_name", "DO GET_LOCK('moving', 5)"),
        ("makes_table", "CREATE TEMPORARY TABLE made SELECT 1 AS a"),
        ("prepares", "PREPARE s FROM 'SELECT 1'"),
        ("hides", sets_unreported),
    ] {
        admin.run(&format!("CREATE PROCEDURE {name}() {body}"))?;
    }
    wait_writer(weir)?;
    let open = || Session::open(weir.addr(), "test");
    let (mut nothing, mut variable, mut both, mut reported) = (open()?, open()?, open()?, open()?);
    nothing.run("CALL nothing()")?;
    variable.run("CALL variable()")?;
    both.run("SET @own = 1.50")?;
    both.run("CALL variable()")?;
    reported.run("CALL reported()")?;
    let server = nothing.value(WHO)?;
    let done = run(weir, &["switchover", HOSTGROUP, "--grace-ms", "9000"])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    for session in [&mut nothing, &mut variable, &mut both, &mut reported] {
        ensure!(session.value(WHO)? != server, "a session has not moved");
    }
    // Out of range: it is unsigned.
    variable.refused("SELECT @from_routine - 8", 1690)?;
    ensure!(both.rows("SELECT @own, @from_routine")? == [["1.50", "7"]], "a variable is lost");
    ensure!(reported.value("SELECT @@lock_wait_timeout")? == "78", "what was reported is lost");

    for (name, why) in [
        ("lock_name", "a routine has left a lock"),
        ("makes_table", "were made on its connection"),
        ("prepares", "were made on its connection"),
        (
            "hides",
            if family == Family::Mariadb { "has set lock_wait_timeout unreported" } else { "were made" },
        ),
    ] {
        let mut session = open()?;
        session.run(&format!("CALL {name}()"))?;
        wait_writer(weir)?;
        let said = refused(weir)?;
        ensure!(said.contains("1 session (routine: ") && said.contains(why), "{name}: {said}");
        let left = match name {
            "lock_name" => session.value("SELECT IS_USED_LOCK('moving') IS NOT NULL")?,
            "makes_table" => session.value("SELECT a FROM made")?,
            "prepares" => session.value("EXECUTE s")?,
            _ if family == Family::Mariadb => session.value("SELECT @@lock_wait_timeout = 77")?,
            _ => "1".to_owned(),
        };
        ensure!(left == "1", "{name}: it is lost");
    }
    Ok(())
}

/// An account of MySQL's that may not read the list of its own variables: their names are known from its texts, unless
/// other code may have set some.
fn known_by_texts(weir: &Weir) -> CaseResult {
    let mut session = Session::with(weir.addr(), &Login::new(Account::LIMITED).schema("limited"))?;
    session.run("SET @A = CAST(1 AS UNSIGNED), @`b ``` = 'x'")?;
    session.run("SELECT 2.50, 3 INTO @c, @d")?;
    let seen = "SELECT @a, @`b ```, @c, @d, CHARSET(@`b ```)";
    let (before, server) = (session.query(seen)?.results, session.value(WHO)?);
    wait_writer(weir)?;
    let done = run(weir, &["switchover", HOSTGROUP, "--grace-ms", "9000"])?;
    ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    same(&before, &session.query(seen)?.results)?;
    ensure!(session.value(WHO)? != server, "it has not moved");

    session.run("CREATE TABLE t (id INT PRIMARY KEY)")?;
    session.run("INSERT INTO t VALUES (@a)")?;
    wait_writer(weir)?;
    let said = refused(weir)?;
    ensure!(
        said.contains("user_variable: error 1142") && said.contains("user_variables_by_thread"),
        "{said}"
    );
    ensure!(session.value("SELECT @a")? == "1", "it is lost");
    session.run("DROP TABLE t")?;
    Ok(())
}

fn group(env: &Env) -> CaseResult {
    let mysql = env.own_mysql(3, true)?;
    let weir = start(env, &mysql, true)?;
    moves(&weir)
}

/// An idle session, and one that is in a transaction, go on at the next writer.
fn moves(weir: &Weir) -> CaseResult {
    let mut session = Session::open(weir.addr(), "test")?;
    set_variables(&mut session)?;
    let before = variables(&mut session)?;
    let mut busy = Session::open(weir.addr(), "test")?;
    busy.run("SET @n = 1")?;
    let mut servers = vec![session.value(WHO)?];
    for round in 0..2 {
        busy.run("BEGIN")?;
        busy.run(&format!("INSERT INTO numbers VALUES (60, {round})"))?;
        thread::scope(|scope| -> CaseResult {
            let switch = scope.spawn(|| {
                run(weir, &["switchover", HOSTGROUP, "--grace-ms", "9000"]).map_err(|error| error.to_string())
            });
            let begins = || weir.log().matches("switchover begins").count() > round;
            eventually("the switchover waits", PATIENCE, || Ok(begins()))?;
            busy.run("SET @n = @n + 1")?;
            busy.run("COMMIT")?;
            let done = switch.join().map_err(|_| "the switchover has panicked")??;
            ensure!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
            Ok(())
        })?;
        same(&before, &variables(&mut session)?)?;
        servers.push(session.value(WHO)?);
        ensure!(busy.value("SELECT @n")? == (round + 2).to_string(), "round {round}: an old value");
        ensure!(Some(&busy.value(WHO)?) == servers.last(), "round {round}: two writers");
        wait_writer(weir)?;
    }
    ensure!(servers.windows(2).all(|pair| pair[0] != pair[1]), "{servers:?}");
    Ok(())
}
