//! Clients without DEPRECATE_EOF: the EOF behind column definitions says how to go on.

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_protocol::ok::EofPacket;
use weir_protocol::status::StatusFlags;
use weir_testkit::Account;
use weir_testkit::wire::{Login, Packet};
use weir_tests::{Case, CaseResult, Env, ensure};

use super::{Place, Twins, as_it_is, blur_eof, mariadb, mysql};

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("wire::the_eof_behind_columns_says_how_to_go_on_with_mariadb", |env| {
            flags(&mariadb(env)?)
        }),
        Case::parallel("wire::the_eof_behind_columns_says_how_to_go_on_with_mysql", |env| {
            flags(&mysql(env)?)
        }),
        Case::parallel("wire::the_eof_behind_the_columns_of_large_results", large),
        Case::parallel("wire::warnings_are_counted_before_the_rows_with_mariadb", |env| {
            warnings(&mariadb(env)?)
        }),
        Case::parallel("wire::warnings_are_counted_before_the_rows_with_mysql", |env| warnings(&mysql(env)?)),
    ]
}

const ROUTINES: [&str; 4] = [
    "CREATE TABLE t (id INT PRIMARY KEY, word VARCHAR(20)); \
     INSERT INTO t VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "CREATE PROCEDURE two() BEGIN SELECT 1; SELECT id FROM t; END",
    "CREATE PROCEDURE gives(IN a INT, OUT b INT, INOUT c INT) BEGIN SET b = a + 1, c = c + 1; SELECT a; END",
    "CREATE PROCEDURE warns() BEGIN SELECT 1/0; SELECT 'x' + 1; END",
];

/// Each gets its MORE_RESULTS_EXISTS, IN_TRANS, no-index flags and counts of warnings.
const TEXTS: [&str; 32] = [
    "SELECT 1",
    "SELECT 1; SELECT 2; DO 1",
    "SELECT 1; SELECT 2",
    "SELECT 1; SELECT 2;",
    "SELECT 1; /* nothing */",
    "SELECT 1; SELEC",
    "DO 1; SELECT 1; CALL two(); SELECT 4",
    "SELECT 1/0",
    "CALL two()",
    "CALL warns()",
    "CALL gives(1, @a, @b)",
    "SHOW WARNINGS",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "BEGIN",
    "SELECT * FROM t",
    "SELECT id FROM t WHERE word = 'one'",
    "CALL two()",
    "COMMIT",
    "SET autocommit = 0",
    "SELECT 1",
    "SELECT * FROM t",
    "ROLLBACK",
    "SET autocommit = 1",
    "PREPARE one FROM 'SELECT id FROM t'",
    "EXECUTE one",
    "DEALLOCATE PREPARE one",
    "PREPARE several FROM 'CALL two()'",
    "EXECUTE several",
    "DEALLOCATE PREPARE several",
    "EXPLAIN SELECT 1",
    "SHOW TABLES LIKE 'nothing'",
];

const PREPARED: [(&str, &[i32]); 7] = [
    ("SELECT ?", &[7]),
    ("SELECT 1/0", &[]),
    ("SELECT * FROM t WHERE word = ?", &[1]),
    ("CALL two()", &[]),
    ("CALL gives(?, ?, ?)", &[7, 7, 7]),
    ("CALL warns()", &[]),
    ("UPDATE t SET word = ? WHERE id = 77", &[1]),
];

fn flags((weir, server, schema): &Place) -> CaseResult {
    let login = Login::new(Account::APP)
        .schema(schema)
        .with(Capabilities::MULTI_STATEMENTS)
        .without(Capabilities::LONG_PASSWORD);
    let mut first = Twins::open(*server, *server, &login)?;
    for sql in ROUTINES {
        let answer = super::answer(&mut first.direct, &[&[Command::Query.code()], sql.as_bytes()].concat())?;
        ensure!(answer.iter().all(|packet| packet.first() == Some(0)), "{sql}: {answer:?}");
    }
    for login in [login.clone().without(Capabilities::DEPRECATE_EOF), login] {
        let mut twins = Twins::open(weir.addr(), *server, &login)?;
        for sql in TEXTS {
            twins.query(sql, blur_eof)?;
        }
        for (sql, params) in PREPARED {
            twins.ask(&[&[Command::StmtPrepare.code()], sql.as_bytes()].concat(), as_it_is)?;
            twins.execute(sql, params, 0, blur_eof)?;
        }
        for sql in ["SELECT id FROM t", "SELECT 1/0", "UPDATE t SET word = 'nine' WHERE id = 77"] {
            twins.execute(sql, &[], 1, as_it_is)?;
        }
    }
    Ok(())
}

/// Servers warn while they plan the first of these; the EOF behind its columns tells so.
fn warnings((weir, server, schema): &Place) -> CaseResult {
    let login = Login::new(Account::APP)
        .schema(schema)
        .without(Capabilities::LONG_PASSWORD | Capabilities::DEPRECATE_EOF);
    let mut twins = Twins::open(weir.addr(), *server, &login)?;
    for sql in ["SELECT 1 FROM DUAL WHERE 1/0", "SELECT 1"] {
        twins.query(sql, as_it_is)?;
        twins.ask(&[&[Command::StmtPrepare.code()], sql.as_bytes()].concat(), as_it_is)?;
        twins.execute(sql, &[], 0, as_it_is)?;
    }
    Ok(())
}

/// Too large to be kept back until their end.
fn large(env: &Env) -> CaseResult {
    let (weir, server, schema) = mariadb(env)?;
    let login = Login::new(Account::APP)
        .schema(&schema)
        .with(Capabilities::MULTI_STATEMENTS)
        .without(Capabilities::LONG_PASSWORD | Capabilities::DEPRECATE_EOF);
    let mut twins = Twins::open(weir.addr(), server, &login)?;
    let create = "CREATE PROCEDURE large() BEGIN SELECT REPEAT('x', 1000) FROM seq_1_to_3000; SELECT 2; END";
    super::answer(&mut twins.direct, &[&[Command::Query.code()], create.as_bytes()].concat())?;
    for sql in [
        "SELECT REPEAT('x', 1000) FROM seq_1_to_3000",
        "SELECT REPEAT('x', 1000000)",
        "SELECT REPEAT('x', 1000) FROM seq_1_to_3000; SELECT 2",
        "DO 1; SELECT REPEAT('x', 1000) FROM seq_1_to_3000",
        "CALL large()",
        "CALL large(); SELECT REPEAT('x', 1000) FROM seq_1_to_100",
    ] {
        twins.query(sql, blur_index)?;
    }
    twins.execute("CALL large()", &[], 0, blur_index)
}

/// That no index is used is said too late, as well.
fn blur_index(packets: &mut Vec<Packet>) {
    blur_eof(packets);
    for packet in packets {
        let Ok(mut eof) = EofPacket::parse(&packet.payload) else { continue };
        eof.status.remove(StatusFlags::NO_INDEX_USED);
        packet.payload.clear();
        eof.write(&mut packet.payload);
    }
}
