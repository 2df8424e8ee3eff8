//! Prepared statements (the binary protocol): the client's handles hold, whichever connections run them.

mod types;

use std::collections::BTreeSet;
use std::time::Duration;

use weir_protocol::command::Command;
use weir_testkit::{Account, Family, Weir, WeirConfig, hostgroup};
use weir_tests::session::{Outcome, Param, Prepared};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

/// Weir's number for a statement whose server went away.
const CONNECTION_LOST: u16 = 1053;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = vec![
        Case::parallel("prepared::many_sessions_share_one_connection", many_sessions_share_one),
        Case::serial("prepared::closed_statements_make_room_for_others", make_room),
        Case::parallel(
            "prepared::types_sent_once_are_remembered_on_another_connection",
            types_are_remembered,
        ),
        Case::parallel("prepared::the_same_text_in_another_sql_mode_is_another_statement", other_sql_mode),
        Case::parallel("prepared::the_same_text_in_another_schema_is_another_statement", other_schema),
        Case::parallel(
            "prepared::the_same_text_in_another_character_set_is_another_statement",
            other_charset,
        ),
        Case::parallel("prepared::the_servers_hold_a_bounded_number_of_statements", bounded_number),
        Case::parallel("prepared::a_table_is_altered_between_executions", altered_between),
        Case::parallel("prepared::unknown_ids", unknown_ids),
        Case::parallel("prepared::a_statement_that_can_not_be_prepared", not_preparable),
        Case::parallel("prepared::settings_behind_a_preparation_that_failed_are_the_sessions", half_prepared),
        Case::parallel("prepared::reads_go_to_readers_and_writes_to_the_writer", split),
        Case::parallel("prepared::inserts_tell_their_ids", insert_ids),
        Case::parallel("prepared::preparing_commit_release_ends_nothing", released),
        Case::parallel("prepared::a_text_too_long_to_prepare_is_refused_and_the_session_goes_on", too_long),
    ];
    cases.extend(types::trials());
    cases
}

/// A Weir in front of node 1 alone, with at most `connections` connections to it.
pub(crate) fn weir_with_connections(env: &Env, connections: i64, threads: i64) -> Result<Weir, String> {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(env.cluster()?.node(1).addr(), 1, &[("max_connections", connections.into())]);
    config.user(Account::APP, 1, &[]).user(Account::APP2, 1, &[]);
    config.variable("threads", threads);
    config.monitor(Account::MONITOR);
    env.weir_with(&config)
}

fn many_sessions_share_one(env: &Env) -> CaseResult {
    let (weir, schema) = (weir_with_connections(env, 1, 2)?, env.schema()?);
    let mut sessions = Vec::new();
    for number in 0..8_i64 {
        let mut session = Session::open(weir.addr(), &schema)?;
        // Half of them have a text of their own.
        let own = session.prepare(&format!("SELECT {}, ?, 'x'", number / 2))?;
        let common = session.prepare("SELECT CONCAT('<', ?, '|', ?, '>')")?;
        sessions.push((session, own, common));
    }
    for round in 0..20_i64 {
        for (number, (session, own, common)) in (0_i64..).zip(&mut sessions) {
            let rows = session.execute(own, &[Param::Int(round * 100 + number)])?.binary_rows()?;
            let wanted = [[(number / 2).to_string(), (round * 100 + number).to_string(), "x".to_owned()]];
            ensure!(rows == wanted, "session {number}, round {round}: {rows:?}");
            let word = format!("of {number}");
            let rows = session.execute(common, &[Param::Int(round), word.as_str().into()])?.binary_rows()?;
            ensure!(rows == [[format!("<{round}|{word}>")]], "session {number}, round {round}: {rows:?}");
        }
    }
    // A closed handle is closed for its session alone.
    let (session, own, common) = sessions.first_mut().ok_or("no session")?;
    session.close(common)?;
    let closed = session.execute(common, &[Param::Int(1), Param::Int(2)])?;
    ensure!(closed.error() == Some(1243), "a closed statement: {closed:?}");
    session.execute(own, &[Param::Int(1)])?.done()?;
    let (session, _, common) = sessions.last_mut().ok_or("no session")?;
    let rows = session.execute(common, &[Param::Int(1), Param::Int(2)])?.binary_rows()?;
    ensure!(rows == [["<1|2>"]], "after another session closed its own: {rows:?}");
    Ok(())
}

fn types_are_remembered(env: &Env) -> CaseResult {
    let (weir, schema) = (weir_with_connections(env, 2, 1)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut blocker = Session::open(weir.addr(), &schema)?;
    // The server's own id of the connection: Weir puts its own in the place of CONNECTION_ID() and the like.
    let statement = session.prepare(&format!(
        "SELECT ?, ?, (SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE '%/* of {schema} */%' LIMIT 1) \
         /* of {schema} */"
    ))?;
    let params = [Param::Int(-5), "text".into()];
    let first = session.execute(&statement, &params)?.binary_rows()?;
    // Whichever connection the first execution ran on, the other session now holds one, and lets it go for the
    // other one: so both connections serve, and one of them has not seen the types.
    let mut threads = BTreeSet::new();
    for round in 0..6 {
        if round % 2 == 1 {
            blocker.run("BEGIN")?;
        }
        let rows = session.execute_with(&statement, &params, false)?.binary_rows()?;
        let row = rows.first().ok_or("no row")?;
        ensure!(row[..2] == ["-5", "text"], "round {round}: {row:?}, at first {first:?}");
        threads.insert(row.last().cloned());
        if round % 2 == 1 {
            blocker.run("COMMIT")?;
        }
    }
    ensure!(threads.len() == 2, "the executions ran on connections {threads:?}: this test shows nothing");
    // Other types, without being told, would be read as the old ones: so they are told.
    let params = [Param::Text("a".to_owned()), Param::Int(7)];
    session.execute(&statement, &params)?.done()?;
    blocker.run("BEGIN")?;
    let rows = session.execute_with(&statement, &params, false)?.binary_rows()?;
    ensure!(rows.first().is_some_and(|row| row[..2] == ["a", "7"]), "after other types: {rows:?}");
    blocker.run("COMMIT")?;
    Ok(())
}

/// Two sessions over one connection prepare the same text in different states; each must get its own meaning,
/// however often they take turns.
fn take_turns(env: &Env, prepare: [&[&str]; 2], sql: &str, wanted: [&str; 2]) -> CaseResult {
    let weir = weir_with_connections(env, 1, 1)?;
    let mut sessions: Vec<(Session, Prepared)> = Vec::new();
    for statements in prepare {
        let mut session = Session::open(weir.addr(), "test")?;
        for statement in statements {
            session.run(statement)?;
        }
        let prepared = session.prepare(sql)?;
        sessions.push((session, prepared));
    }
    for round in 0..6 {
        for (number, (session, statement)) in sessions.iter_mut().enumerate() {
            let rows = session.execute(statement, &[])?.binary_rows()?;
            ensure!(rows == [[wanted[number]]], "round {round}, session {number}: {rows:?}");
        }
    }
    Ok(())
}

fn other_sql_mode(env: &Env) -> CaseResult {
    take_turns(
        env,
        [&["SET sql_mode = ''"], &["SET sql_mode = 'PIPES_AS_CONCAT'"]],
        "SELECT 1||0",
        ["1", "10"],
    )?;
    take_turns(
        env,
        [&["SET sql_mode = ''"], &["SET sql_mode = 'ANSI_QUOTES'"]],
        "SELECT \"SCHEMA_NAME\" FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'test'",
        ["SCHEMA_NAME", "test"],
    )
}

fn other_schema(env: &Env) -> CaseResult {
    let (one, two) = (env.schema()?, env.schema()?);
    let node = env.cluster()?.node(1);
    for (schema, word) in [(&one, "one"), (&two, "two")] {
        node.root_query(&format!("CREATE TABLE {schema}.t (id INT PRIMARY KEY, word VARCHAR(9))"))?;
        node.root_query(&format!("INSERT INTO {schema}.t VALUES (1, '{word}')"))?;
    }
    let (use_one, use_two) = (format!("USE {one}"), format!("USE {two}"));
    take_turns(env, [&[&use_one], &[&use_two]], "SELECT word FROM t", ["one", "two"])?;

    // A statement keeps the schema it was prepared in, through a USE and on another connection.
    let weir = weir_with_connections(env, 2, 1)?;
    let mut session = Session::open(weir.addr(), &one)?;
    let statement = session.prepare("SELECT word FROM t")?;
    session.run(&use_two)?;
    let mut blocker = Session::open(weir.addr(), &two)?;
    for round in 0..4 {
        if round % 2 == 1 {
            blocker.run("BEGIN")?;
        }
        let rows = session.execute(&statement, &[])?.binary_rows()?;
        ensure!(rows == [["one"]], "round {round}, after USE: {rows:?}");
        let now = session.rows("SELECT DATABASE(), word FROM t")?;
        ensure!(now == [[two.as_str(), "two"]], "round {round}, as text: {now:?}");
        blocker.run("COMMIT")?;
    }
    Ok(())
}

fn other_charset(env: &Env) -> CaseResult {
    // Two characters in latin1, one in utf8mb4.
    take_turns(
        env,
        [&["SET NAMES latin1"], &["SET NAMES utf8mb4"]],
        "SELECT CHAR_LENGTH('\u{e4}')",
        ["2", "1"],
    )?;
    take_turns(
        env,
        [&["SET NAMES utf8mb4 COLLATE utf8mb4_bin"], &["SET NAMES utf8mb4 COLLATE utf8mb4_general_ci"]],
        "SELECT 'a' = 'A'",
        ["0", "1"],
    )
}

fn bounded_number(env: &Env) -> CaseResult {
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(env.cluster()?.node(1).addr(), 1, &[("max_connections", 1.into())]);
    config.user(Account::APP, 1, &[]);
    config.variable("max_stmts_per_connection", 20).variable("threads", 1);
    let weir = env.weir_with(&config)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    let mut statements = Vec::new();
    for number in 0..300_i64 {
        let statement = session.prepare(&format!("SELECT {number}, ?"))?;
        let rows = session.execute(&statement, &[Param::Int(number)])?.binary_rows()?;
        ensure!(rows == [[number.to_string(), number.to_string()]], "statement {number}: {rows:?}");
        statements.push(statement);
    }
    let mut prepared = 0;
    // A connection that is logged in anew counts from 0.
    for _ in 0..5 {
        // All handles are still good, also those that the server has long forgotten; types were sent before.
        for (number, statement) in (0_i64..).zip(&statements) {
            let rows = session.execute_with(statement, &[Param::Int(-number)], false)?.binary_rows()?;
            let expected = [number.to_string(), (-number).to_string()];
            ensure!(rows == [expected], "statement {number} again: {rows:?}");
        }
        let (now, closed) = prepared_and_closed(&mut other)?;
        ensure!(now - closed <= 21, "{now} prepared, {closed} closed: {} are held", now - closed);
        prepared = now;
        if prepared >= 300 {
            break;
        }
    }
    ensure!(prepared >= 300, "only {prepared} statements were prepared: not one connection?");
    Ok(())
}

/// How many statements were prepared and closed on the connection that the session gets.
fn prepared_and_closed(session: &mut Session) -> Result<(i64, i64), Box<dyn std::error::Error>> {
    let counts =
        session.rows("SHOW SESSION STATUS WHERE Variable_name IN ('Com_stmt_prepare', 'Com_stmt_close')")?;
    let count = |name: &str| -> Option<i64> {
        counts.iter().find(|row| row[0] == name).and_then(|row| row[1].parse().ok())
    };
    let found = count("Com_stmt_prepare").zip(count("Com_stmt_close"));
    Ok(found.ok_or_else(|| format!("{counts:?}"))?)
}

fn altered_between(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut answers = Vec::new();
    for (server, table) in [(weir.addr(), "through"), (env.cluster()?.node(1).addr(), "direct_")] {
        let mut session = Session::open(server, &schema)?;
        let mut other = Session::open(server, &schema)?;
        session.run(&format!("CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(10))"))?;
        let insert = session.prepare(&format!("INSERT INTO {table} (id, word) VALUES (?, ?)"))?;
        let select = session.prepare(&format!("SELECT * FROM {table} WHERE id < ? ORDER BY id"))?;
        // A session's reads may go to a node that has yet to apply what another session has defined.
        let mut define = |sql: &str| -> CaseResult {
            other.run(sql)?;
            Ok(env.wait_applied()?)
        };
        let mut seen = Vec::new();
        for (at, ddl) in [
            "ADD COLUMN n BIGINT NOT NULL DEFAULT 5",
            "MODIFY COLUMN word BLOB",
            "DROP COLUMN n",
            "ADD COLUMN d DATETIME NOT NULL DEFAULT '2026-01-02 03:04:05'",
        ]
        .iter()
        .enumerate()
        {
            let at = i64::try_from(at)?;
            seen.push(session.execute(&insert, &[Param::Int(at), "word".into()])?);
            seen.push(session.execute(&select, &[Param::Int(100)])?);
            define(&format!("ALTER TABLE {table} {ddl}"))?;
            seen.push(session.execute(&select, &[Param::Int(100)])?);
        }
        define(&format!("DROP TABLE {table}"))?;
        let gone = session.execute(&select, &[Param::Int(100)])?;
        ensure!(gone.error() == Some(1146), "{table} was dropped: {gone:?}");
        define(&format!("CREATE TABLE {table} (id INT PRIMARY KEY)"))?;
        let anew = session.execute(&select, &[Param::Int(100)])?;
        ensure!(anew.error().is_none() && anew.column_names() == ["id"], "{table} was made anew: {anew:?}");
        answers.push(seen.iter().map(|answer| rows_only(answer, table)).collect::<Vec<_>>());
    }
    ensure!(answers[0] == answers[1], "{:#?}\ninstead of\n{:#?}", answers[0], answers[1]);
    Ok(())
}

/// Everything but the table's name in the column definitions, and but what the flags say of metadata: whether a
/// statement had to be prepared again is the server's own business.
fn rows_only(answer: &weir_tests::session::Answer, table: &str) -> String {
    let mut shown = String::new();
    for result in &answer.results {
        match result {
            Outcome::Rows(rows) => {
                for column in &rows.columns {
                    shown += &column.escape_ascii().to_string().replace(table, "TABLE");
                }
                for row in &rows.rows {
                    shown += &format!(" / {}", row.escape_ascii());
                }
            }
            other => shown += &format!("{other:?}").replace(table, "TABLE"),
        }
    }
    shown
}

fn unknown_ids(env: &Env) -> CaseResult {
    let weir = env.weir(|_| {})?;
    let mut session = Session::open(weir.addr(), "test")?;
    let unknown = Prepared { id: 4711, params: 0, columns: Vec::new() };
    let known = session.prepare("SELECT 1")?;
    let answer = session.execute(&unknown, &[])?;
    ensure!(answer.error() == Some(1243), "EXECUTE: {answer:?}");
    let mut reset = vec![Command::StmtReset.code()];
    reset.extend_from_slice(&unknown.id.to_le_bytes());
    session.raw().send_command(&reset)?;
    let answer = session.results()?;
    ensure!(answer.error() == Some(1243), "RESET: {answer:?}");
    session.close(&unknown)?;
    session.close(&unknown)?;
    let rows = session.execute(&known, &[])?.binary_rows()?;
    ensure!(rows == [["1"]], "the known one: {rows:?}");
    session.raw().send_command(&[&[Command::StmtReset.code()], &known.id.to_le_bytes()[..]].concat())?;
    session.results()?.done()?;
    // Handles are the session's own: another session's are unknown to it.
    let mut other = Session::open(weir.addr(), "test")?;
    let answer = other.execute(&known, &[])?;
    ensure!(answer.error() == Some(1243), "another session's statement: {answer:?}");
    Ok(())
}

fn not_preparable(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut through = Session::open(weir.addr(), &schema)?;
    let mut direct = Session::open(env.cluster()?.node(1).addr(), &schema)?;
    for sql in [
        "nonsense",
        "SELECT * FROM not_there",
        "SELECT ? FROM",
        "",
        "SELECT 1; SELECT 2",
        "LOCK TABLES t READ",
    ] {
        let (got, wanted) = (through.try_prepare(sql)?, direct.try_prepare(sql)?);
        // All but the handle.
        let (got, wanted) = (got.map(|p| (p.params, p.columns)), wanted.map(|p| (p.params, p.columns)));
        ensure!(got == wanted, "{sql}: {got:?} instead of {wanted:?}");
    }
    let value = through.value("SELECT 'still here'")?;
    ensure!(value == "still here", "{value}");
    Ok(())
}

fn split(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    // The name of the serving node, from a table: a system variable would go to the writer.
    let sql = "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
    // Statement by statement: at other levels a session stays with its reader for a while.
    session.run("SET weir_consistency = eventual")?;
    let read = session.prepare(sql)?;
    // Of another session: behind what may have written, a session's reads stay on the writer for a moment.
    let mut other = Session::open(weir.addr(), &schema)?;
    let locking = other.prepare(&format!("{sql} FOR UPDATE"))?;
    // Until the monitor has seen all nodes, reads may go to the writer.
    let mut readers = BTreeSet::new();
    eventually("two nodes serve reads", Duration::from_secs(30), || {
        readers.extend(session.execute(&read, &[])?.binary_rows()?.concat());
        for writer in other.execute(&locking, &[])?.binary_rows()?.concat() {
            readers.remove(&writer);
        }
        Ok(readers.len() == 2)
    })?;
    let (mut readers, mut writers) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..12 {
        readers.extend(session.execute(&read, &[])?.binary_rows()?.concat());
        writers.extend(other.execute(&locking, &[])?.binary_rows()?.concat());
    }
    ensure!(writers.len() == 1, "locking reads ran on {writers:?}");
    ensure!(readers.len() == 2 && readers.is_disjoint(&writers), "reads on {readers:?}, writer {writers:?}");
    session.run("BEGIN")?;
    let inside = session.execute(&read, &[])?.binary_rows()?.concat();
    ensure!(writers.contains(&inside[0]), "a read in a transaction ran on {inside:?}");
    session.run("COMMIT")?;
    Ok(())
}

fn insert_ids(env: &Env) -> CaseResult {
    let (weir, schema) = (weir_with_connections(env, 1, 1)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut other = Session::open(weir.addr(), &schema)?;
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20))")?;
    let insert = session.prepare("INSERT INTO t (word) VALUES (?)")?;
    let last = session.prepare("SELECT LAST_INSERT_ID()")?;
    for round in 0..5 {
        let id = session.execute(&insert, &["mine".into()])?.done()?.insert_id;
        let others = other.run("INSERT INTO t (word) VALUES ('other')")?.insert_id;
        let rows = session.execute(&last, &[])?.binary_rows()?;
        ensure!(rows == [[id.to_string()]], "round {round}: {rows:?}, inserted {id}, the other {others}");
        let told = other.value("SELECT LAST_INSERT_ID()")?;
        ensure!(told == others.to_string(), "round {round}: the other is told {told} instead of {others}");
    }
    Ok(())
}

/// To prepare a statement anew its settings and its schema are put back. If that schema is gone, the settings are not to
/// stay.
fn half_prepared(env: &Env) -> CaseResult {
    let (schema, gone) = (env.schema()?, env.schema()?);
    let weir = env.narrow_weir_with(&[1], 1, |config| {
        config.variable("max_stmts_per_connection", 1);
    })?;
    let mut session = Session::open(weir.addr(), &gone)?;
    session.run("CREATE TABLE t (id INT)")?;
    session.run("SET @held = 1")?;
    session.run("SET sql_mode = 'ANSI_QUOTES'")?;
    let select = session.prepare("SELECT id FROM t")?;
    session.use_schema(&schema)?.done()?;
    session.run("SET sql_mode = 'NO_BACKSLASH_ESCAPES'")?;
    for number in 0..3 {
        session.prepare(&format!("SELECT {number}"))?;
    }
    session.run(&format!("DROP DATABASE {gone}"))?;
    let answer = session.execute(&select, &[])?;
    ensure!(answer.error() == Some(1049), "the schema is gone: {answer:?}");
    let seen = session.rows("SELECT @@sql_mode, DATABASE(), @held")?.concat();
    ensure!(seen == ["NO_BACKSLASH_ESCAPES", &*schema, "1"], "the session has {seen:?}");
    Ok(())
}

/// What a client has closed is kept for others, but not where the server has no room for more.
fn make_room(env: &Env) -> CaseResult {
    let servers = env.own_servers(Family::Mariadb, 1, false)?;
    servers.source().root_query("SET GLOBAL max_prepared_stmt_count = 10")?;
    let mut config = WeirConfig::new(env.free_address()?);
    config.server(servers.source().addr(), hostgroup::WRITER, &[("max_connections", 1.into())]);
    config.user(Account::APP, hostgroup::WRITER, &[]).variable("threads", 1);
    let weir = env.weir_with(&config)?;
    eventually("a statement runs", Duration::from_secs(20), || {
        Ok(Session::open(weir.addr(), "test").and_then(|mut session| session.run("DO 0")).is_ok())
    })?;
    let mut session = Session::open(weir.addr(), "test")?;
    let first = session.prepare("SELECT 'first'")?;
    for number in 0..30 {
        let statement = session.prepare(&format!("SELECT {number}"))?;
        let rows = session.execute(&statement, &[])?.binary_rows()?;
        ensure!(rows == [[number.to_string()]], "{number}: {rows:?}");
        session.close(&statement)?;
    }
    let rows = session.execute(&first, &[])?.binary_rows()?;
    ensure!(rows == [["first"]], "prepared once more: {rows:?}");
    Ok(())
}

fn released(env: &Env) -> CaseResult {
    let schema = env.schema()?;
    let weir = env.narrow_weir_with(&[1], 1, |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    let prepared = session.prepare("COMMIT AND NO CHAIN RELEASE")?;
    ensure!(session.value("SELECT 1")? == "1", "the session has ended with the PREPARE");
    // The server (MariaDB 10.11) just closes the connection.
    let told = session.execute(&prepared, &[])?.error();
    ensure!(told == Some(CONNECTION_LOST), "{told:?}");
    Ok(())
}

fn too_long(env: &Env) -> CaseResult {
    const MIB: usize = 1 << 20;
    let schema = env.schema()?;
    let weir = env.narrow_weir_with(&[1], 1, |_| ())?;
    let mut session = Session::open(weir.addr(), &schema)?;
    for bytes in [MIB, 3 * MIB, 15 * MIB] {
        let refused = session.try_prepare(&format!("SELECT 1{}", " ".repeat(bytes)))?;
        let Err(Outcome::Err { code: 1153, .. }) = refused else {
            return Err(format!("{bytes} bytes: {refused:?}").into());
        };
        ensure!(session.value("SELECT 1")? == "1", "the session does not go on");
    }
    Ok(())
}
