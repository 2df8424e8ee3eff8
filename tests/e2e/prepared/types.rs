//! Parameters and columns of every type, and many of them: the same through Weir as without.

use weir_protocol::command::StmtExecute;
use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::put_lenenc_bytes;
use weir_tests::session::{Answer, Outcome, Param, Prepared};
use weir_tests::{Case, CaseResult, Env, Session, ensure};

use super::weir_with_connections;

pub(super) fn trials() -> Vec<Case> {
    vec![
        Case::parallel("prepared::null_bitmaps_of_every_shape", null_bitmaps),
        Case::parallel("prepared::many_parameters", many_parameters),
        Case::parallel("prepared::every_type_there_and_back", every_type),
        Case::parallel("prepared::every_type_without_sending_types_again", every_type_on_two_connections),
    ]
}

fn null_bitmaps(env: &Env) -> CaseResult {
    let weir = weir_with_connections(env, 1, 1)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut other = Session::open(weir.addr(), "test")?;
    for count in (1..=18_usize).chain([63, 64, 65]) {
        let marks = vec!["?"; count].join(", ");
        let statement = session.prepare(&format!("SELECT CONCAT_WS('|', 'a', {marks})"))?;
        for pattern in
            [0_u64, u64::MAX, 0x5555_5555_5555_5555, 0x8181_8181_8181_8181, 1, 1 << (count - 1).min(63)]
        {
            let is_null = |at: usize| pattern & (1 << (at % 64)) != 0;
            let params: Vec<Param> = (0..count)
                .map(|at| if is_null(at) { Param::Null } else { Param::Int(i64::try_from(at).unwrap_or(0)) })
                .collect();
            let mut wanted = vec!["a".to_owned()];
            wanted.extend((0..count).filter(|at| !is_null(*at)).map(|at| at.to_string()));
            let rows = session.execute(&statement, &params)?.binary_rows()?;
            ensure!(rows == [[wanted.join("|")]], "{count} parameters, {pattern:#x}: {rows:?}");
        }
        other.run("SET @a_pin = 1")?;
        other.reset()?.done()?;
    }
    Ok(())
}

fn many_parameters(env: &Env) -> CaseResult {
    let weir = weir_with_connections(env, 2, 1)?;
    let mut session = Session::open(weir.addr(), "test")?;
    let mut blocker = Session::open(weir.addr(), "test")?;
    for count in [1000_usize, 20_000, 65_535] {
        let sql = format!("SELECT 7 IN (?{})", ",?".repeat(count - 1));
        let statement = session.prepare(&sql)?;
        ensure!(usize::from(statement.params) == count, "{} parameters", statement.params);
        let mut params = vec![Param::Int(1); count];
        // Only the last one matters.
        params[count - 1] = Param::Int(7);
        let rows = session.execute(&statement, &params)?.binary_rows()?;
        ensure!(rows == [["1"]], "{count} parameters: {rows:?}");
        for _ in 0..2 {
            blocker.run("BEGIN")?;
            let rows = session.execute_with(&statement, &params, false)?.binary_rows()?;
            ensure!(rows == [["1"]], "{count} parameters elsewhere: {rows:?}");
            blocker.run("COMMIT")?;
        }
        session.close(&statement)?;
    }
    let sql = format!("SELECT 7 IN (?{})", ",?".repeat(65_535));
    match session.try_prepare(&sql)? {
        Err(Outcome::Err { code: 1390, .. }) => Ok(()),
        other => Err(format!("65536 parameters: {other:?}").into()),
    }
}

/// A column of each type, the type of a parameter for it, and its value in the binary protocol.
fn values() -> Vec<(&'static str, ColumnType, bool, Vec<u8>)> {
    let text = |text: &[u8]| {
        let mut bytes = Vec::new();
        put_lenenc_bytes(&mut bytes, text);
        bytes
    };
    let date = [&2026_u16.to_le_bytes()[..], &[11, 21]].concat();
    let date_time = [&[11], &date[..], &[23, 59, 58], &123_456_u32.to_le_bytes()[..]].concat();
    let time = [&[12, 1], &3_u32.to_le_bytes()[..], &[4, 5, 6], &7_u32.to_le_bytes()[..]].concat();
    vec![
        ("TINYINT", ColumnType::TINY, false, vec![0x80]),
        ("TINYINT UNSIGNED", ColumnType::TINY, true, vec![0xFF]),
        ("SMALLINT", ColumnType::SHORT, false, (-32768_i16).to_le_bytes().to_vec()),
        ("SMALLINT UNSIGNED", ColumnType::SHORT, true, u16::MAX.to_le_bytes().to_vec()),
        ("MEDIUMINT", ColumnType::LONG, false, (-8_388_608_i32).to_le_bytes().to_vec()),
        ("INT", ColumnType::LONG, false, i32::MIN.to_le_bytes().to_vec()),
        ("INT UNSIGNED", ColumnType::LONG, true, u32::MAX.to_le_bytes().to_vec()),
        ("BIGINT", ColumnType::LONGLONG, false, i64::MIN.to_le_bytes().to_vec()),
        ("BIGINT UNSIGNED", ColumnType::LONGLONG, true, u64::MAX.to_le_bytes().to_vec()),
        ("FLOAT", ColumnType::FLOAT, false, 1.5_f32.to_le_bytes().to_vec()),
        ("DOUBLE", ColumnType::DOUBLE, false, (-2.25e300_f64).to_le_bytes().to_vec()),
        ("DECIMAL(30,10)", ColumnType::NEWDECIMAL, false, text(b"-12345678901234567890.0123456789")),
        ("BIT(64)", ColumnType::LONGLONG, true, u64::MAX.to_le_bytes().to_vec()),
        ("YEAR", ColumnType::SHORT, false, 2026_u16.to_le_bytes().to_vec()),
        ("DATE", ColumnType::DATE, false, [&[4], &date[..]].concat()),
        ("DATETIME(6)", ColumnType::DATETIME, false, date_time.clone()),
        ("DATETIME", ColumnType::DATETIME, false, [&[7], &date_time[1..8]].concat()),
        ("TIMESTAMP(6) NULL", ColumnType::TIMESTAMP, false, date_time),
        ("TIME(6)", ColumnType::TIME, false, time.clone()),
        ("TIME", ColumnType::TIME, false, [&[8], &time[1..9]].concat()),
        ("CHAR(20)", ColumnType::STRING, false, text("gr\u{fc}\u{df}e".as_bytes())),
        ("VARCHAR(300)", ColumnType::VAR_STRING, false, text(&[b'v'; 300])),
        ("TEXT", ColumnType::BLOB, false, text(&[b't'; 60_000])),
        ("BINARY(8)", ColumnType::STRING, false, text(b"\0\x01\xFE\xFF\xFB\xFC\xFD\0")),
        ("VARBINARY(8)", ColumnType::VAR_STRING, false, text(b"\xFE\0\xFF")),
        ("BLOB", ColumnType::BLOB, false, text(b"")),
        ("LONGBLOB", ColumnType::LONG_BLOB, false, text(&[0xFE; 70_000])),
        ("ENUM('a','b')", ColumnType::STRING, false, text(b"b")),
        ("SET('a','b','c')", ColumnType::STRING, false, text(b"a,c")),
        ("JSON", ColumnType::VAR_STRING, false, text(br#"{"a": [1, 2, null]}"#)),
        ("UUID", ColumnType::STRING, false, text(b"123e4567-e89b-12d3-a456-426655440000")),
        ("INET6", ColumnType::STRING, false, text(b"2001:db8::ff00:42:8329")),
        (
            "GEOMETRY",
            ColumnType::BLOB,
            false,
            text(b"\0\0\0\0\x01\x01\0\0\0\0\0\0\0\0\0\xF0\x3F\0\0\0\0\0\0\0\x40"),
        ),
    ]
}

/// An INSERT of all the values, the odd or the even ones as NULL if asked for.
fn put_values(statement: &Prepared, id: u8, null: Option<usize>, with_types: bool) -> Vec<u8> {
    let values = values();
    let mut payload = Vec::new();
    StmtExecute { stmt_id: statement.id, flags: 0, iteration_count: 1 }.write(&mut payload);
    let is_null = |at: usize| null.is_some_and(|rest| at % 2 == rest);
    let mut bitmap = vec![0_u8; (values.len() + 1).div_ceil(8)];
    for at in (0..values.len()).filter(|at| is_null(*at)) {
        bitmap[(at + 1) / 8] |= 1 << ((at + 1) % 8);
    }
    payload.extend_from_slice(&bitmap);
    payload.push(u8::from(with_types));
    if with_types {
        payload.extend_from_slice(&[ColumnType::TINY.0, 0]);
        for (_, column_type, is_unsigned, _) in &values {
            payload.extend_from_slice(&[column_type.0, if *is_unsigned { 0x80 } else { 0 }]);
        }
    }
    payload.push(id);
    for (at, (_, _, _, value)) in values.iter().enumerate() {
        if !is_null(at) {
            payload.extend_from_slice(value);
        }
    }
    payload
}

fn create_table(session: &mut Session, name: &str) -> CaseResult {
    let columns: Vec<String> =
        values().iter().enumerate().map(|(at, (sql, ..))| format!("c{at} {sql}")).collect();
    session.run(&format!("CREATE TABLE {name} (id INT PRIMARY KEY, {})", columns.join(", ")))?;
    Ok(())
}

fn insert_text(name: &str) -> String {
    format!("INSERT INTO {name} VALUES (?{})", ", ?".repeat(values().len()))
}

fn every_type(env: &Env) -> CaseResult {
    let (weir, schema) = (env.weir(|_| {})?, env.schema()?);
    let mut answers: Vec<Vec<Answer>> = Vec::new();
    for (server, table) in [(weir.addr(), "t1"), (env.cluster()?.node(1).addr(), "t2")] {
        let mut session = Session::open(server, &schema)?;
        create_table(&mut session, table)?;
        let insert = session.prepare(&insert_text(table))?;
        let mut seen = Vec::new();
        for (id, null) in [(1, None), (2, Some(0)), (3, Some(1))] {
            session.raw().send_command(&put_values(&insert, id, null, true))?;
            let answer = session.results()?;
            answer.done().map_err(|error| format!("{table}, row {id}: {error}"))?;
            seen.push(answer);
        }
        let select = session.prepare(&format!("SELECT * FROM {table} AS t ORDER BY id"))?;
        seen.push(session.execute(&select, &[])?);
        seen.push(session.query(&format!("SELECT * FROM {table} AS t ORDER BY id"))?);
        answers.push(seen);
    }
    for (at, (through, direct)) in answers[0].iter().zip(&answers[1]).enumerate() {
        ensure!(masked(through) == masked(direct), "answer {at}:\n{through:?}\ninstead of\n{direct:?}");
    }
    Ok(())
}

/// An answer with the tables' names, which stand in the column definitions, made the same.
fn masked(answer: &Answer) -> Answer {
    let mut answer = answer.clone();
    for result in &mut answer.results {
        if let Outcome::Rows(rows) = result {
            rows.capabilities = Default::default();
            for column in &mut rows.columns {
                while let Some(at) =
                    column.windows(3).position(|window| window == b"\x02t1" || window == b"\x02t2")
                {
                    column[at + 1..at + 3].copy_from_slice(b"xx");
                }
            }
        }
    }
    answer
}

fn every_type_on_two_connections(env: &Env) -> CaseResult {
    let (weir, schema) = (weir_with_connections(env, 2, 1)?, env.schema()?);
    let mut session = Session::open(weir.addr(), &schema)?;
    let mut blocker = Session::open(weir.addr(), &schema)?;
    create_table(&mut session, "t")?;
    let insert = session.prepare(&insert_text("t"))?;
    for id in 1..=8 {
        if id % 2 == 0 {
            blocker.run("BEGIN")?;
        }
        session.raw().send_command(&put_values(&insert, id, None, id == 1))?;
        session.results()?.done().map_err(|error| format!("row {id}: {error}"))?;
        blocker.run("COMMIT")?;
    }
    let columns: Vec<String> = (0..values().len()).map(|at| format!("c{at}")).collect();
    let differing = session.rows(&format!(
        "SELECT COUNT(*), COUNT(DISTINCT MD5(CONCAT_WS('/', {}))) FROM t",
        columns.join(", ")
    ))?;
    ensure!(differing == [["8", "1"]], "rows and different rows: {differing:?}");
    Ok(())
}
