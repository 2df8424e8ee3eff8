//! Assignments, substitutions, named effects, KILL and USE.

use weir_sql::{
    Dialect, Effects, Kill, KillKind, KillTarget, Kind, NamedEffect, Scope, SessionFunction, TableName, What,
    assignments, diagnostics_request, kill_target, may_use_tables, named_effects, names_local_file,
    scoped_assignments, stays_in_session, substitutions, use_schema,
};

fn dialect() -> Dialect {
    Dialect::default()
}

/// `scope name = value`, with `@` before user variables.
fn assigned(text: &str) -> Option<Vec<String>> {
    let show = |assignment: weir_sql::Assignment| {
        let scope = match assignment.scope {
            Scope::Session => "session ",
            Scope::Global => "global ",
            Scope::Persist => "persist ",
            Scope::Unscoped => "",
        };
        let at = if assignment.user_variable { "@" } else { "" };
        format!("{scope}{at}{} = {}", assignment.name, &text[assignment.value_range])
    };
    Some(assignments(text.as_bytes(), dialect())?.into_iter().map(show).collect())
}

#[test]
fn assignments_are_taken_apart() {
    let cases: &[(&str, &[&str])] = &[
        ("SET a = 1", &["a = 1"]),
        ("set Autocommit:=0 ;", &["autocommit = 0"]),
        ("SET a = 1, @@session.b = 'x,y', @C := 2", &["a = 1", "session b = 'x,y'", "@c = 2"]),
        (
            "SET SESSION a = (SELECT 1, 2), LOCAL b = f(1, 2)",
            &["session a = (SELECT 1, 2)", "session b = f(1, 2)"],
        ),
        ("SET GLOBAL a = 1, b = 2, @@c = 3", &["global a = 1", "global b = 2", "c = 3"]),
        ("SET @@global.a = 1, b = 2", &["global a = 1", "b = 2"]),
        ("SET @@persist.a = 1, PERSIST_ONLY b = 2", &["persist a = 1", "persist b = 2"]),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_bin, a = 1", &["names = utf8mb4 COLLATE utf8mb4_bin", "a = 1"]),
        ("SET NAMES 'latin1'", &["names = 'latin1'"]),
        ("SET CHARACTER SET DEFAULT", &["character set = DEFAULT"]),
        ("SET CHARSET utf8", &["character set = utf8"]),
        (
            "SET `a` = `b`, @@session.`C` = 1, @`x``Y` = 2, @'z' = 3",
            &["a = `b`", "session c = 1", "@x`y = 2", "@z = 3"],
        ),
        ("SET /* x */ a /* y */ = /* z */ 1 -- end", &["a = 1"]),
        ("SET GLOBAL hot.key_buffer_size = 1", &["global hot.key_buffer_size = 1"]),
        ("/*!40101 SET a = 1 */", &["a = 1"]),
    ];
    for (text, expected) in cases {
        assert_eq!(
            assigned(text).as_deref(),
            Some(&expected.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()[..]),
            "{text}"
        );
    }
}

#[test]
fn ranges_of_assignments_are_theirs() {
    let text = "SET  @@session.a = 'x' , SESSION b := 2 ;";
    let found = assignments(text.as_bytes(), dialect()).unwrap();
    let ranges: Vec<&str> = found.iter().map(|assignment| &text[assignment.range.clone()]).collect();
    assert_eq!(ranges, ["@@session.a = 'x'", "SESSION b := 2"]);
}

#[test]
fn other_statements_have_no_assignments() {
    for text in [
        "SELECT 1",
        "SET",
        "SET a",
        "SET a =",
        "SET a = 1,",
        "SET TRANSACTION READ ONLY",
        "SET SESSION TRANSACTION READ ONLY",
        "SET ROLE r",
        "SET PASSWORD = 'x'",
        "SET DEFAULT ROLE r",
        "SET STATEMENT a = 1 FOR SELECT 1",
        "SET a = 1; SET b = 2",
        "SET a = 'x",
    ] {
        assert_eq!(assigned(text), None, "{text}");
    }
}

fn table(name: &str) -> TableName {
    let (schema, name) = name.split_once('.').map_or((None, name), |(schema, name)| (Some(schema), name));
    TableName { schema: schema.map(|schema| schema.as_bytes().to_vec()), name: name.as_bytes().to_vec() }
}

fn bytes(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

#[test]
fn tables_and_handles_have_names() {
    use NamedEffect::*;
    let cases: &[(&str, &[NamedEffect])] = &[
        ("CREATE TEMPORARY TABLE T (a INT)", &[TemporaryTableCreated(table("T"))]),
        (
            "create or replace temporary table if not exists `d`.`t` like u",
            &[TemporaryTableCreated(table("d.t"))],
        ),
        ("CREATE TEMPORARY SEQUENCE s", &[TemporaryTableCreated(table("s"))]),
        ("CREATE TABLE t (a INT)", &[]),
        (
            "DROP TABLE IF EXISTS a, `b` . c, d CASCADE",
            &[TableDropped(table("a")), TableDropped(table("b.c")), TableDropped(table("d"))],
        ),
        ("DROP TEMPORARY TABLE a", &[TableDropped(table("a"))]),
        ("ALTER TABLE a RENAME TO b", &[TablesRenamed]),
        ("RENAME TABLE a TO b", &[TablesRenamed]),
        ("PREPARE `S` FROM 'SELECT 1'", &[Prepared(bytes("s"))]),
        ("DEALLOCATE PREPARE S", &[Deallocated(bytes("s"))]),
        ("DROP PREPARE s", &[Deallocated(bytes("s"))]),
        ("HANDLER d.t OPEN", &[HandlerOpened(bytes("t"))]),
        ("HANDLER t OPEN AS h", &[HandlerOpened(bytes("h"))]),
        ("HANDLER t OPEN h", &[HandlerOpened(bytes("h"))]),
        ("HANDLER h CLOSE", &[HandlerClosed(bytes("h"))]),
        (
            "CREATE TEMPORARY TABLE a (b INT); DROP TABLE a; SELECT 1",
            &[TemporaryTableCreated(table("a")), TableDropped(table("a"))],
        ),
        ("SET STATEMENT a = 1 FOR DROP TABLE t", &[TableDropped(table("t"))]),
        // What may not run, or not now, ends nothing.
        ("CREATE PROCEDURE p() BEGIN DROP TABLE t; END", &[]),
        ("BEGIN NOT ATOMIC DROP TABLE t; END", &[]),
        ("IF 0 THEN DROP TABLE t; END IF", &[]),
        ("/*!99999 DROP TABLE t */", &[]),
        ("DROP TABLE t /*", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(named_effects(text.as_bytes(), dialect()), *expected, "{text}");
    }
}

#[test]
fn locks_have_names_where_the_statement_is_simple() {
    use NamedEffect::*;
    let cases: &[(&str, &[NamedEffect])] = &[
        ("SELECT GET_LOCK('A''b', 10)", &[LockAcquired(Some(bytes("a'b")))]),
        ("DO get_lock (\"x\", -1)", &[LockAcquired(Some(bytes("x")))]),
        ("SELECT GET_LOCK('a', 1) AS l;", &[LockAcquired(Some(bytes("a")))]),
        ("SELECT GET_LOCK('a', 1) FROM t", &[LockAcquired(None)]),
        ("SELECT GET_LOCK('a\\n', 1)", &[LockAcquired(None)]),
        ("SELECT GET_LOCK(_utf8'a', 1)", &[LockAcquired(None)]),
        ("SELECT GET_LOCK(?, ?)", &[LockAcquired(None)]),
        ("SELECT GET_LOCK('a', 1), GET_LOCK('b', 1)", &[LockAcquired(None), LockAcquired(None)]),
        ("SET STATEMENT a = 1 FOR SELECT GET_LOCK('a', 1)", &[LockAcquired(None)]),
        ("SELECT RELEASE_LOCK('A')", &[LockReleased(bytes("a"))]),
        ("do release_lock('a')", &[LockReleased(bytes("a"))]),
        ("SELECT RELEASE_LOCK('a') FROM t", &[]),
        ("SELECT RELEASE_LOCK('a') WHERE 0", &[]),
        ("SELECT RELEASE_LOCK(CONCAT('a'))", &[]),
        ("SELECT 1, RELEASE_LOCK('a')", &[]),
        ("SELECT RELEASE_ALL_LOCKS()", &[AllLocksReleased]),
        ("DO RELEASE_ALL_LOCKS() ;", &[AllLocksReleased]),
        ("SELECT RELEASE_ALL_LOCKS() LIMIT 0", &[]),
        ("SELECT RELEASE_LOCK('a') /*! FROM t */", &[]),
    ];
    for (text, expected) in cases {
        assert_eq!(named_effects(text.as_bytes(), dialect()), *expected, "{text}");
    }
}

#[test]
fn a_lock_is_never_overlooked() {
    // More tokens than are collected, and a call in a body that is not followed.
    let long = format!("SELECT {}GET_LOCK('a', 1)", "1, ".repeat(600_000));
    for text in [
        long.as_str(),
        "BEGIN NOT ATOMIC SELECT GET_LOCK('a', 1); END",
        "IF 1 THEN DO GET_LOCK('a', 1); END IF",
        "CREATE EVENT e ON SCHEDULE EVERY GET_LOCK('a', 1) DAY DO SELECT 1",
        "ALTER EVENT e ON SCHEDULE AT (SELECT GET_LOCK('a', 1))",
    ] {
        assert_eq!(named_effects(text.as_bytes(), dialect()), [NamedEffect::LockAcquired(None)]);
    }
}

/// The text with `<...>` around every place, `[...]` if it is a select item.
fn marked(text: &str) -> String {
    let mut marked = String::new();
    let mut at = 0;
    for found in substitutions(text.as_bytes(), dialect()) {
        let (open, close) = if found.select_item { ('[', ']') } else { ('<', '>') };
        marked += &text[at..found.range.start];
        marked.push(open);
        marked += &text[found.range.clone()];
        marked.push(close);
        at = found.range.end;
    }
    marked + &text[at..]
}

#[test]
fn items_of_the_select_list_around_substitutions() {
    let items = |text: &str| -> Vec<Option<String>> {
        let item = |range: std::ops::Range<usize>| text[range].to_owned();
        substitutions(text.as_bytes(), dialect()).into_iter().map(|found| found.item.map(item)).collect()
    };
    let some = |item: &str| Some(item.to_owned());
    assert_eq!(items("SELECT a, 1 + ROW_COUNT(), b"), [some("1 + ROW_COUNT()")]);
    assert_eq!(
        items("SELECT ROW_COUNT() + 1, -FOUND_ROWS()"),
        [some("ROW_COUNT() + 1"), some("-FOUND_ROWS()")]
    );
    assert_eq!(
        items("SELECT IF(ROW_COUNT() = -1, FOUND_ROWS(), 2) FROM t"),
        [some("IF(ROW_COUNT() = -1, FOUND_ROWS(), 2)"), some("IF(ROW_COUNT() = -1, FOUND_ROWS(), 2)")]
    );
    assert_eq!(items("SELECT ROW_COUNT() - @@warning_count"), vec![some("ROW_COUNT() - @@warning_count"); 2]);
    // With an alias, perhaps with one, and not in the list.
    for text in
        ["SELECT ROW_COUNT() + 1 AS n", "SELECT ROW_COUNT() n", "SELECT a FROM t WHERE a = ROW_COUNT()"]
    {
        assert_eq!(items(text), [None], "{text}");
    }
}

#[test]
fn places_of_substitutions() {
    for expected in [
        "SELECT [CONNECTION_ID()]",
        "select [connection_id ( )] , [row_count()] from t",
        "SELECT DISTINCT [FOUND_ROWS()] LIMIT 1;",
        "SELECT <CONNECTION_ID()> AS id, <ROW_COUNT()> n, <FOUND_ROWS()> + 1, 1 - <ROW_COUNT()>",
        "SELECT (<CONNECTION_ID()>), ABS(<ROW_COUNT()>)",
        "SELECT a FROM t WHERE id = <CONNECTION_ID()> ORDER BY a, <ROW_COUNT()>",
        "SELECT * FROM (SELECT <CONNECTION_ID()>) t",
        "SELECT [CONNECTION_ID()] UNION SELECT [ROW_COUNT()]",
        "SELECT [@@session_track_schema], <@@local.session_track_gtids> AS g, [@@session . Session_Track_Schema]",
        "SELECT @@global.session_track_schema, @@session_tracker",
        "SET @x = <CONNECTION_ID()>, session_track_schema = 1",
        "SET @@session.session_track_schema = <@@session_track_schema>, @@session_track_gtids := 1",
        "SELECT [@@weir_consistency], <@@session.Weir_Token> AS t, [@@local . `weir_token`], @@global.weir_consistency",
        "SET @x = <@@weir_token>, weir_token = 'w', @@weir_consistency = <@@weir_consistency>, @@session.weir_token := 'w'",
        "SELECT weir_token, @@weir_tokens, @weir_token",
        "SET weir_replay = <@@weir_replay>, @@weir_commit_outcome = 'off', @x = <@@local.weir_commit_outcome>",
        "SELECT [@@weir_replay], @@weir_replays, @@global.weir_commit_outcome",
        "KILL QUERY <CONNECTION_ID()>",
        "INSERT INTO t SELECT [CONNECTION_ID()] ON DUPLICATE KEY UPDATE a = 1, b = <ROW_COUNT()>",
        "CREATE TABLE t (a INT) AS SELECT [CONNECTION_ID()]",
        "CREATE TABLE t (a INT DEFAULT (CONNECTION_ID()))",
        "CREATE VIEW v AS SELECT CONNECTION_ID()",
        "CREATE EVENT e ON SCHEDULE EVERY <CONNECTION_ID()> DAY ENDS <@@pseudo_thread_id> DO SELECT CONNECTION_ID(); \
         DO <ROW_COUNT()>",
        "CREATE EVENT e ON SCHEDULE EVERY <CONNECTION_ID()> DAY DO BEGIN DO CONNECTION_ID(); END; SELECT [ROW_COUNT()]",
        "ALTER EVENT s . do ON SCHEDULE AT <CONNECTION_ID()> RENAME TO do DO SELECT CONNECTION_ID()",
        "ALTER EVENT e DO SELECT CONNECTION_ID()",
        "CREATE PROCEDURE p() BEGIN SELECT 1; SELECT CONNECTION_ID(); END; SELECT [CONNECTION_ID()]",
        "ALTER VIEW v AS SELECT CONNECTION_ID()",
        "SELECT 'CONNECTION_ID()', `CONNECTION_ID`(), db.CONNECTION_ID(), CONNECTION_ID -- CONNECTION_ID()",
        "SELECT CONNECTION_ID(), 'x",
    ] {
        let text: String = expected.chars().filter(|c| !"[]<>".contains(*c)).collect();
        assert_eq!(marked(&text), expected);
    }
}

#[test]
fn substitutions_know_what_they_are() {
    let text = b"SELECT CONNECTION_ID(), ROW_COUNT(), FOUND_ROWS(), @@session_track_SCHEMA, @@session.warning_count, \
                 @@Error_Count, @@pseudo_thread_id, @@Last_Gtid, @@weir_CONSISTENCY, @@weir_token, @@Weir_Replay, \
                 @@session.weir_commit_outcome";
    let found: Vec<What> = substitutions(text, dialect()).into_iter().map(|found| found.what).collect();
    let expected = [
        What::Function(SessionFunction::ConnectionId),
        What::Function(SessionFunction::RowCount),
        What::Function(SessionFunction::FoundRows),
        What::SessionTrackVariable("session_track_schema".to_owned()),
        What::DiagnosticsCount { errors_only: false },
        What::DiagnosticsCount { errors_only: true },
        What::ThreadIdVariable,
        What::LastGtid,
        What::Consistency,
        What::CausalToken,
        What::Replay,
        What::CommitOutcome,
    ];
    assert_eq!(found, expected);
}

#[test]
fn assignments_get_the_scope_that_they_mean() {
    let cases = [
        ("SET @@sql_mode = ''", "SET @@session.sql_mode = ''"),
        (
            "SET @@ a = 1 , @@`b`:=@@c, d = 2, @e = 3;",
            "SET @@session. a = 1 , @@session.`b`:=@@c, d = 2, @e = 3;",
        ),
        ("SET GLOBAL a = 1, @@b = 2, @@session.c = 3", "SET GLOBAL a = 1, @@session.b = 2, @@session.c = 3"),
        (
            "SET @@tx_isolation = 'SERIALIZABLE', @@Tx_Read_Only = 1",
            "SET @@tx_isolation = 'SERIALIZABLE', @@Tx_Read_Only = 1",
        ),
        ("/*!40101 SET @@a=1 */", "/*!40101 SET @@session.a=1 */"),
    ];
    for (text, expected) in cases {
        let scoped = scoped_assignments(text.as_bytes(), dialect());
        assert_eq!(scoped.as_deref(), Some(expected.as_bytes()), "{text}");
    }
    assert_eq!(scoped_assignments(b"SET @@a = 1; SET @@b = 2", dialect()), None);
}

#[test]
fn what_stays_in_its_session() {
    for text in [
        "SHOW TABLES FROM db LIKE 'a%'",
        "show global status;",
        "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        "SET autocommit=0, sql_mode='ANSI', @@wait_timeout = 5, @@session.a = DEFAULT",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY",
    ] {
        assert!(stays_in_session(text.as_bytes(), dialect()), "{text}");
    }
    for text in [
        "SET GLOBAL a = 1",
        "SET a = 1, @@global.b = 2",
        "SET GLOBAL a = 1, b = 2",
        "SET PERSIST a = 1",
        "SET @a = 1",
        "SET a = f()",
        "SET a = (SELECT 1)",
        "SET a = 1; SET b = 2",
        "SET GLOBAL TRANSACTION READ ONLY",
        "SET TRANSACTION READ ONLY",
        "SET PASSWORD = 'x'",
        "SET ROLE r",
        "SET STATEMENT a = 1 FOR SHOW TABLES",
        "SHOW TABLES WHERE f(Tables_in_db)",
        "SHOW /*!50000 TABLES */",
        "SHOW TABLES LIKE 'open",
        "DELETE FROM t",
        "",
    ] {
        assert!(!stays_in_session(text.as_bytes(), dialect()), "{text}");
    }
}

#[test]
fn queries_without_tables() {
    for text in
        ["SELECT 1", "SELECT 'FROM t', `from`", "DO SLEEP(0) -- FROM t", "SELECT LAST_INSERT_ID() WHERE 1"]
    {
        assert!(!may_use_tables(text.as_bytes(), dialect()), "{text}");
    }
    for text in ["SELECT a FROM t", "SELECT (SELECT 1 FROM t)", "SELECT 1 UNION TABLE t", "SELECT 'open"] {
        assert!(may_use_tables(text.as_bytes(), dialect()), "{text}");
    }
}

#[test]
fn kill_has_a_target() {
    let kill = |kind, soft, id| Some(Kill { kind, soft, target: KillTarget::Connection(id) });
    let user = |kind, name: &str| Some(Kill { kind, soft: false, target: KillTarget::User(name.into()) });
    let cases = [
        ("KILL 5", kill(KillKind::Connection, false, 5)),
        ("kill connection 18446744073709551615;", kill(KillKind::Connection, false, u64::MAX)),
        ("KILL /* x */ QUERY 7", kill(KillKind::Query, false, 7)),
        ("KILL HARD CONNECTION 1", kill(KillKind::Connection, false, 1)),
        ("KILL SOFT QUERY 1", kill(KillKind::Query, true, 1)),
        ("KILL SOFT 1", kill(KillKind::Connection, true, 1)),
        ("KILL QUERY -1294967291", kill(KillKind::Query, false, 3_000_000_005)),
        ("KILL - 1", kill(KillKind::Connection, false, u32::MAX.into())),
        ("KILL -5000000000", None),
        ("KILL", None),
        ("KILL QUERY ID 5", None),
        ("KILL USER u", user(KillKind::Connection, "u")),
        ("KILL HARD QUERY USER 'some one';", user(KillKind::Query, "some one")),
        ("KILL CONNECTION USER `a``b`", user(KillKind::Connection, "a`b")),
        ("KILL USER 'it''s'", None),
        ("KILL USER u@localhost", None),
        ("KILL USER", None),
        ("KILL 5 + 1", None),
        ("KILL 18446744073709551616", None),
        ("KILL 0x5", None),
        ("KILL CONNECTION_ID()", None),
        ("KILL 5; SELECT 1", None),
        ("KILL /*!50000 5 */ 6", None),
        ("KILL /*!99999 5 */ 6", kill(KillKind::Connection, false, 6)),
    ];
    for (text, expected) in cases {
        assert_eq!(kill_target(text.as_bytes(), dialect()), expected, "{text}");
    }
}

#[test]
fn a_local_file_is_named() {
    let names = |text: &str| names_local_file(text.as_bytes(), dialect(), b"/tmp/data.csv");
    for text in [
        "LOAD DATA LOCAL INFILE '/tmp/data.csv' INTO TABLE t",
        "load /* x */ xml low_priority local infile \"/tmp/data.csv\" into table t",
        "SELECT 1; LOAD DATA CONCURRENT LOCAL INFILE '/tmp/data.csv' REPLACE INTO TABLE t",
        "SET STATEMENT sql_mode='' FOR LOAD DATA LOCAL INFILE '/tmp/data.csv' INTO TABLE t",
        // Escapes: it may be.
        r"LOAD DATA LOCAL INFILE '/tmp/d\\ata.csv' INTO TABLE t",
        "LOAD DATA LOCAL INFILE 'it''s' INTO TABLE t",
    ] {
        assert!(names(text), "{text}");
    }
    for text in [
        "LOAD DATA INFILE '/tmp/data.csv' INTO TABLE t",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE t",
        "SELECT 'LOAD DATA LOCAL INFILE ''/tmp/data.csv'''",
        "LOAD DATA LOCAL INFILE ? INTO TABLE t",
        "LOAD DATA LOCAL INFILE",
        "CALL load_data()",
        "",
    ] {
        assert!(!names(text), "{text}");
    }
}

#[test]
fn use_has_a_schema() {
    let ansi = Dialect { ansi_quotes: true, ..dialect() };
    let cases = [
        ("USE db", dialect(), Some("db")),
        ("use `My``Db` ; -- x", dialect(), Some("My`Db")),
        ("USE \"db\"", ansi, Some("db")),
        ("USE \"db\"", dialect(), None),
        ("USE [My]]`Db]", Dialect { brackets: true, ..dialect() }, Some("My]`Db")),
        ("USE [db]", dialect(), None),
        ("USE 1db", dialect(), Some("1db")),
        ("USE a.b", dialect(), None),
        ("USE", dialect(), None),
        ("USE a; USE b", dialect(), None),
        ("USE `a", dialect(), None),
        ("USE /*!50000 a */ b", dialect(), None),
        ("USE /*!100699 a */ b", dialect(), None),
        ("USE /*!99999 a */ b", dialect(), Some("b")),
    ];
    for (text, dialect, expected) in cases {
        assert_eq!(use_schema(text.as_bytes(), dialect), expected.map(bytes), "{text}");
    }
}

#[test]
fn get_diagnostics_is_read_in_its_common_forms() {
    let shown = |text: &str| {
        let request = diagnostics_request(text.as_bytes(), dialect())?;
        let items =
            request.items.iter().map(|item| format!("{}={:?}", &text[item.target.clone()], item.field));
        Some((request.condition, items.collect::<Vec<String>>().join(" ")))
    };
    let cases = [
        ("GET DIAGNOSTICS @n = NUMBER, @r = ROW_COUNT", (None, "@n=Number @r=RowCount")),
        ("get current diagnostics @`a, b`=number;", (None, "@`a, b`=Number")),
        ("GET DIAGNOSTICS CONDITION 2 @'x' = MESSAGE_TEXT", (Some(2), "@'x'=MessageText")),
        (
            "GET DIAGNOSTICS /* first */ CONDITION 0 @a=RETURNED_SQLSTATE, @b=MYSQL_ERRNO",
            (Some(0), "@a=ReturnedSqlstate @b=MysqlErrno"),
        ),
    ];
    for (text, (condition, items)) in cases {
        assert_eq!(shown(text), Some((condition, items.to_owned())), "{text}");
    }
    for text in [
        "GET DIAGNOSTICS",
        "GET DIAGNOSTICS n = NUMBER",
        "GET DIAGNOSTICS @n := NUMBER",
        "GET DIAGNOSTICS @n = NUMBER,",
        "GET DIAGNOSTICS @n = NUMBER @r = ROW_COUNT",
        "GET DIAGNOSTICS @n = MYSQL_ERRNO",
        "GET DIAGNOSTICS CONDITION 1 @n = NUMBER",
        "GET DIAGNOSTICS CONDITION @i @n = MYSQL_ERRNO",
        "GET DIAGNOSTICS CONDITION '1' @n = MYSQL_ERRNO",
        "GET DIAGNOSTICS CONDITION 1.5 @n = MYSQL_ERRNO",
        "GET DIAGNOSTICS CONDITION 1 @n = CLASS_ORIGIN",
        "GET STACKED DIAGNOSTICS @n = NUMBER",
        "GET DIAGNOSTICS @ = NUMBER",
        "GET DIAGNOSTICS @n = NUMBER; SELECT 1",
        "GET /*! DIAGNOSTICS */ @n = NUMBER",
        "SELECT 1",
    ] {
        assert_eq!(shown(text), None, "{text}");
    }
}

#[test]
fn hidden_code_may_run_where_tables_are_used() {
    let scan = |text: &str| weir_sql::scan(text.as_bytes(), Dialect::default());
    for text in [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "SELECT a FROM v",
        "(SELECT 1) UNION SELECT a FROM v",
        "WITH c AS (SELECT a FROM v) SELECT * FROM c",
        "SET @a = (SELECT a FROM v)",
        "CREATE TABLE t AS SELECT a FROM v",
        "SET STATEMENT max_statement_time = 1 FOR SELECT 1",
        "COMMIT; DELETE FROM t",
        "CALL p()",
    ] {
        assert!(scan(text).hidden_code, "{text}");
    }
    for text in [
        "SELECT 1",
        "SELECT @a, @@time_zone",
        "SET time_zone = '+00:00', @a = 1",
        "SET NAMES utf8mb4",
        "USE shop",
        "COMMIT",
        "CREATE TABLE t (a INT)",
        "CREATE TEMPORARY TABLE t (a INT)",
        "DROP TABLE t",
        "SHOW COLUMNS FROM t",
        "PREPARE s FROM 'SELECT a FROM v'",
    ] {
        assert!(!scan(text).hidden_code, "{text}");
    }
    assert!(scan("UPDATE t SET id = LAST_INSERT_ID(id + 1)").assigns_insert_id);
    assert!(!scan("INSERT INTO t VALUES (LAST_INSERT_ID())").assigns_insert_id);
}

#[test]
fn one_of_several_statements_is_read_alone() {
    let text = b"SET @a = 1; INSERT INTO t VALUES (';'); ; USE shop";
    let mut several = weir_sql::Several::default();
    let mut one = |index| several.read(text, Dialect::default(), index);
    assert_eq!(
        one(0).map(|s| (s.kind, s.effects, s.hidden_code)),
        Some((Kind::Set, Effects::USER_VARIABLE, false))
    );
    assert_eq!(
        one(1).map(|s| (s.kind, s.effects, s.hidden_code)),
        Some((Kind::Insert, Effects::LAST_INSERT_ID_SET, true))
    );
    assert_eq!(
        one(2).map(|s| (s.kind, s.effects, s.hidden_code)),
        Some((Kind::Use, Effects::empty(), false))
    );
    assert_eq!(one(3), None);
    assert_eq!(one(0).map(|s| s.kind), Some(Kind::Set));
    assert_eq!(one(2).map(|s| s.kind), Some(Kind::Use));
}

#[test]
fn statements_in_an_executable_comment_are_read_one_by_one() {
    let text = b"SET @a = 1; /*! USE shop; SET @b = 2; */ INSERT INTO t VALUES (1); DO 1";
    let kinds: Vec<_> = {
        let mut several = weir_sql::Several::default();
        (0..6).map_while(|index| several.read(text, Dialect::default(), index)).map(|s| s.kind).collect()
    };
    assert_eq!(kinds, [Kind::Set, Kind::Use, Kind::Set, Kind::Insert, Kind::Do]);
}

#[test]
fn many_statements_are_read_in_the_time_of_one_scan() {
    let text = b"set @a=1;".repeat(100_000);
    let mut several = weir_sql::Several::default();
    let begun = std::time::Instant::now();
    let count = (0..).map_while(|index| several.read(&text, Dialect::default(), index)).count();
    assert_eq!(count, 100_000);
    // Each from the beginning it would be a quarter of an hour.
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}
