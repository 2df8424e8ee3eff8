//! Scenarios about statements and their results.

use std::fmt::Write as _;
use std::fs;

use mysql_async::prelude::*;
use mysql_async::{Conn, Params, Row, Value};

use crate::Result;
use crate::scenarios::{
    DUPLICATE_KEY, Failure, NO_SUCH_TABLE, equal, error_is, open, open_for_file, options, refused, seen,
    shown, table, value,
};

/// 4-byte, combining and right-to-left characters, and what SQL quotes.
const WORDS: [&str; 7] = ["é", "e\u{301}", "日本語", "👩‍👩‍👧", "שלום", "it's \"quoted\" \\ `this` %_", ""];

/// 100,000 rows: a number and a word.
const NUMBERS: &str = "WITH RECURSIVE d (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM d WHERE n < 9) \
    SELECT a.n + 10 * b.n + 100 * c.n + 1000 * e.n + 10000 * f.n AS n, REPEAT('y', a.n * 5) \
    FROM d a, d b, d c, d e, d f";
const NUMBERS_SUM: u64 = 100_000 * 99_999 / 2;

pub(crate) async fn characters() -> Result {
    let mut conn = open().await?;
    let columns = "id INT PRIMARY KEY, word VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
    table(&mut conn, "words", columns).await?;
    for (at, word) in WORDS.iter().enumerate() {
        conn.exec_drop("INSERT INTO words VALUES (?, ?)", (at, word)).await?;
    }
    let read: Vec<String> = conn.query("SELECT word FROM words ORDER BY id").await?;
    equal!(read, WORDS);
    let read: Option<usize> = conn.exec_first("SELECT id FROM words WHERE word = ?", ("日本語",)).await?;
    equal!(read, Some(2));
    Ok(())
}

/// Column, type, value as parameter, and as text.
fn kinds() -> Vec<(&'static str, Value, &'static str)> {
    let date = |y, m, d, h, min, s, us| Value::Date(y, m, d, h, min, s, us);
    vec![
        ("TINYINT", Value::Int(-128), "-128"),
        ("SMALLINT UNSIGNED", Value::UInt(65_535), "65535"),
        ("INT", Value::Int(-2_147_483_648), "-2147483648"),
        ("BIGINT", Value::Int(i64::MIN), "-9223372036854775808"),
        ("BIGINT UNSIGNED", Value::UInt(u64::MAX), "18446744073709551615"),
        (
            "DECIMAL(30,10)",
            Value::from("-12345678901234567890.0123456789"),
            "-12345678901234567890.0123456789",
        ),
        ("DOUBLE", Value::Double(-1.5e30), "-1.5e30"),
        ("FLOAT", Value::Float(0.25), "0.25"),
        ("DATE", date(2026, 2, 28, 0, 0, 0, 0), "2026-02-28"),
        ("DATETIME(6)", date(2026, 12, 31, 23, 59, 59, 999_999), "2026-12-31 23:59:59.999999"),
        ("TIMESTAMP", date(2001, 2, 3, 4, 5, 6, 0), "2001-02-03 04:05:06"),
        ("TIME(6)", Value::Time(true, 5, 4, 3, 2, 1), "-124:03:02.000001"),
        ("YEAR", Value::Int(2026), "2026"),
        ("VARCHAR(50) CHARACTER SET utf8mb4", Value::from("naïve 👍"), "naïve 👍"),
        ("VARBINARY(50)", Value::from(&b"ab\0c'\\"[..]), "ab\0c'\\"),
        ("BLOB", Value::from(vec![b'x'; 3000]), ""),
        ("ENUM('a','b')", Value::from("b"), "b"),
        ("INT", Value::NULL, "NULL"),
    ]
}

async fn make_kinds(conn: &mut Conn) -> std::result::Result<String, Failure> {
    let kinds = kinds();
    let columns: Vec<String> =
        kinds.iter().enumerate().map(|(at, (kind, ..))| format!("c{at} {kind} NULL")).collect();
    table(conn, "kinds", &format!("id INT PRIMARY KEY, {}", columns.join(", "))).await?;
    let places = vec!["?"; kinds.len() + 1].join(", ");
    let insert = format!("INSERT INTO kinds VALUES ({places})");
    let params = |id: i64, null: bool| {
        let values = kinds.iter().map(|(_, value, _)| if null { Value::NULL } else { value.clone() });
        Params::Positional(std::iter::once(Value::Int(id)).chain(values).collect())
    };
    conn.exec_drop(&insert, params(1, false)).await?;
    conn.exec_drop(&insert, params(2, true)).await?;
    let names: Vec<String> = (0..kinds.len()).map(|at| format!("c{at}")).collect();
    Ok(names.join(", "))
}

pub(crate) async fn types() -> Result {
    let mut conn = open().await?;
    let names = make_kinds(&mut conn).await?;
    let row: Option<Row> = conn.query_first(format!("SELECT {names} FROM kinds WHERE id = 1")).await?;
    let row = row.ok_or_else(|| Failure::Wrong("no row".to_owned()))?.unwrap();
    for ((kind, _, wanted), got) in kinds().into_iter().zip(row) {
        if kind == "BLOB" {
            equal!(got, Value::from(vec![b'x'; 3000]));
        } else {
            // Servers write an exponent in different ways.
            equal!((kind, shown(got).replace("e+30", "e30")), (kind, wanted.to_owned()));
        }
    }
    Ok(())
}

pub(crate) async fn prepared_types() -> Result {
    let mut conn = open().await?;
    let names = make_kinds(&mut conn).await?;
    let select = format!("SELECT {names} FROM kinds WHERE id = ?");
    let row: Option<Row> = conn.exec_first(&select, (1,)).await?;
    let row = row.ok_or_else(|| Failure::Wrong("no row".to_owned()))?.unwrap();
    for ((kind, wanted, _), got) in kinds().into_iter().zip(row) {
        // Integers that fit are signed, whatever the column.
        let wanted = match wanted {
            Value::Int(n @ 0..) if kind == "YEAR" => Value::UInt(n.unsigned_abs()),
            other => other,
        };
        if shown(got.clone()) != shown(wanted.clone()) {
            equal!((kind, got), (kind, wanted));
        }
    }
    let row: Option<Row> = conn.exec_first(&select, (2,)).await?;
    let row = row.ok_or_else(|| Failure::Wrong("no row".to_owned()))?.unwrap();
    equal!(row.iter().all(|value| *value == Value::NULL), true);
    equal!(conn.exec::<Row, _, _>(&select, (3,)).await?.len(), 0);
    Ok(())
}

/// Many statements, many times, in sessions that share connections.
pub(crate) async fn prepared_again() -> Result {
    let mut sessions = [open().await?, open().await?, open().await?];
    table(&mut sessions[0], "numbers", "id INT PRIMARY KEY, word VARCHAR(20)").await?;
    for turn in 0..5 {
        for (at, conn) in sessions.iter_mut().enumerate() {
            for n in 0..5 {
                let id = turn * 100 + at * 10 + n;
                conn.exec_drop("INSERT INTO numbers VALUES (?, ?)", (id, format!("w{n}"))).await?;
                let word: Option<String> =
                    conn.exec_first("SELECT word FROM numbers WHERE id = ?", (id,)).await?;
                equal!(word, Some(format!("w{n}")));
            }
            let statement = conn.prep(format!("SELECT {turn} + ?")).await?;
            equal!(conn.exec_first::<usize, _, _>(&statement, (at,)).await?, Some(turn + at));
            conn.close(statement).await?;
        }
    }
    let missing = sessions[1].prep("SELECT * FROM nowhere WHERE id = ?").await;
    error_is(NO_SUCH_TABLE, missing, "a PREPARE")?;
    seen(&mut sessions[2], "SELECT COUNT(*) FROM numbers", "75").await
}

/// What does not fit into one packet of the protocol the driver sends before the EXECUTE, in pieces.
pub(crate) async fn long_data() -> Result {
    let mut conn = open().await?;
    table(&mut conn, "long_ones", "id INT PRIMARY KEY, content LONGBLOB").await?;
    let piece: Vec<u8> = (0..=250).collect();
    let content = piece.repeat(70_000);
    conn.exec_drop("INSERT INTO long_ones VALUES (?, ?)", (1, &content)).await?;
    conn.exec_drop("INSERT INTO long_ones VALUES (?, ?)", (2, "short")).await?;
    equal!(
        value(&mut conn, "SELECT LENGTH(content) FROM long_ones WHERE id = 1").await?,
        content.len().to_string()
    );
    let mut other = open().await?;
    seen(&mut other, "SELECT COUNT(*) FROM long_ones", "2").await?;
    let read: Option<Vec<u8>> = other.query_first("SELECT content FROM long_ones WHERE id = 1").await?;
    equal!(read == Some(content), true);
    equal!(value(&mut other, "SELECT content FROM long_ones WHERE id = 2").await?, "short");
    Ok(())
}

pub(crate) async fn large_result() -> Result {
    let mut conn = open().await?;
    let rows: Vec<(u64, String)> = conn.query(NUMBERS).await?;
    equal!(rows.len(), 100_000);
    equal!(rows.iter().map(|(n, _)| n).sum::<u64>(), NUMBERS_SUM);
    equal!(rows.iter().all(|(n, word)| word.len() as u64 == n % 10 * 5), true);
    Ok(())
}

pub(crate) async fn streamed_result() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    let mut result = conn.query_iter(NUMBERS).await?;
    let (mut count, mut sum) = (0, 0);
    while let Some(row) = result.next().await? {
        let (n, _): (u64, String) = mysql_async::from_row(row);
        (count, sum) = (count + 1, sum + n);
        if count == 50_000 {
            equal!(value(&mut other, "SELECT 5").await?, "5");
        }
    }
    drop(result);
    equal!((count, sum), (100_000, NUMBERS_SUM));
    equal!(value(&mut conn, "SELECT 6").await?, "6");
    Ok(())
}

/// More than one packet of the protocol, which end at 16 MB, in both directions.
pub(crate) async fn large_row() -> Result {
    const BYTES: usize = 17 << 20;
    let mut conn = open().await?;
    equal!(value(&mut conn, &format!("SELECT REPEAT('z', {BYTES})")).await?.len(), BYTES);
    let text = "a".repeat(BYTES);
    equal!(value(&mut conn, &format!("SELECT LENGTH('{text}')")).await?, BYTES.to_string());
    equal!(conn.exec_first::<usize, _, _>("SELECT LENGTH(?)", (text,)).await?, Some(BYTES));
    Ok(())
}

pub(crate) async fn several_statements() -> Result {
    let mut conn = open().await?;
    table(&mut conn, "several", "id INT PRIMARY KEY").await?;
    let sql = "INSERT INTO several VALUES (1), (2); SELECT id FROM several ORDER BY id; SELECT 3";
    let mut result = conn.query_iter(sql).await?;
    equal!(result.collect::<i32>().await?, Vec::<i32>::new());
    equal!(result.collect::<i32>().await?, [1, 2]);
    equal!(result.collect::<i32>().await?, [3]);
    drop(result);
    refused(&mut conn, NO_SUCH_TABLE, "INSERT INTO several VALUES (3); SELECT * FROM nowhere; SELECT 1")
        .await?;
    equal!(value(&mut conn, "SELECT COUNT(*) FROM several").await?, "3");
    Ok(())
}

pub(crate) async fn procedure() -> Result {
    let mut conn = open().await?;
    conn.query_drop("DROP PROCEDURE IF EXISTS two_results").await?;
    let body = "BEGIN SELECT a; SELECT a + 1; SET b = a * 2; END";
    conn.query_drop(format!("CREATE PROCEDURE two_results(IN a INT, OUT b INT) {body}")).await?;
    let mut result = conn.exec_iter("CALL two_results(?, @b)", (20,)).await?;
    equal!(result.collect::<i32>().await?, [20]);
    equal!(result.collect::<i32>().await?, [21]);
    result.drop_result().await?;
    equal!(value(&mut conn, "SELECT @b").await?, "40");
    Ok(())
}

pub(crate) async fn local_infile() -> Result {
    let path = std::env::temp_dir().join(format!("weir-mysql-async-{}.tsv", std::process::id()));
    let mut text = String::new();
    for n in 0..50_000 {
        let _ = writeln!(text, "{n}\tword {n}");
    }
    fs::write(&path, text)?;
    let loaded = load(&path.to_string_lossy()).await;
    fs::remove_file(&path)?;
    loaded
}

async fn load(path: &str) -> Result {
    let mut conn = open_for_file(path).await?;
    table(&mut conn, "loaded", "id INT PRIMARY KEY, word VARCHAR(50)").await?;
    conn.query_drop(format!("LOAD DATA LOCAL INFILE '{path}' INTO TABLE loaded")).await?;
    equal!(value(&mut conn, "SELECT COUNT(*) FROM loaded").await?, "50000");
    equal!(value(&mut conn, "SELECT word FROM loaded WHERE id = 777").await?, "word 777");
    Ok(())
}

pub(crate) async fn warnings() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    conn.query_drop("SELECT CAST('1x' AS SIGNED), 1/0").await?;
    equal!(conn.get_warnings(), 2);
    for n in 0..5 {
        equal!(value(&mut other, &format!("SELECT {n}")).await?, n.to_string());
    }
    let shown: Vec<(String, u16, String)> = conn.query("SHOW WARNINGS").await?;
    equal!(shown.iter().map(|(_, code, _)| *code).collect::<Vec<u16>>(), [1292, 1365]);
    equal!(other.query::<Row, _>("SHOW WARNINGS").await?.len(), 0);
    Ok(())
}

pub(crate) async fn error_codes() -> Result {
    let mut conn = open().await?;
    table(&mut conn, "faulty", "id INT PRIMARY KEY, n INT NOT NULL").await?;
    conn.query_drop("INSERT INTO faulty VALUES (1, 1)").await?;
    for (code, sql) in [
        (DUPLICATE_KEY, "INSERT INTO faulty VALUES (1, 2)"),
        (NO_SUCH_TABLE, "SELECT * FROM nowhere"),
        (1064, "SELEC 1"),
        (1048, "INSERT INTO faulty VALUES (2, NULL)"),
        (1054, "SELECT nothing FROM faulty"),
        (1644, "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'grün'"),
        (1305, "CALL no_such_procedure()"),
    ] {
        refused(&mut conn, code, sql).await?;
        equal!(value(&mut conn, "SELECT COUNT(*) FROM faulty").await?, "1");
    }
    let twice = conn.exec_drop("INSERT INTO faulty VALUES (?, ?)", (1, 2)).await;
    error_is(DUPLICATE_KEY, twice, "an EXECUTE")
}

pub(crate) async fn insert_id() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    table(&mut conn, "numbered", "id INT PRIMARY KEY AUTO_INCREMENT, n INT").await?;
    conn.query_drop("INSERT INTO numbered (n) VALUES (1)").await?;
    let first = conn.last_insert_id();
    conn.exec_drop("INSERT INTO numbered (n) VALUES (?), (?)", (2, 3)).await?;
    let second = conn.last_insert_id();
    equal!(first.is_some() && second > first, true);
    other.query_drop("INSERT INTO numbered (n) VALUES (4)").await?;
    equal!(conn.query_first::<u64, _>("SELECT LAST_INSERT_ID()").await?, second);
    equal!(value(&mut conn, "SELECT n FROM numbered WHERE id = LAST_INSERT_ID()").await?, "2");
    equal!(value(&mut other, "SELECT n FROM numbered WHERE id = LAST_INSERT_ID()").await?, "4");
    Ok(())
}

pub(crate) async fn affected_rows() -> Result {
    let mut conn = open().await?;
    table(&mut conn, "counted", "id INT PRIMARY KEY, n INT").await?;
    for (sql, count) in [
        ("INSERT INTO counted VALUES (1, 1), (2, 1), (3, 1)", 3),
        ("UPDATE counted SET n = 1", 0),
        ("UPDATE counted SET n = 2 WHERE id < 3", 2),
        ("REPLACE INTO counted VALUES (1, 5)", 2),
        ("DELETE FROM counted", 3),
    ] {
        conn.query_drop(sql).await?;
        equal!((sql, conn.affected_rows()), (sql, count));
    }
    equal!(value(&mut conn, "SELECT ROW_COUNT()").await?, "3");
    Ok(())
}

pub(crate) async fn found_rows() -> Result {
    let mut conn = Conn::new(options()?.client_found_rows(true)).await?;
    let mut other = open().await?;
    table(&mut conn, "matched", "id INT PRIMARY KEY, n INT").await?;
    conn.query_drop("INSERT INTO matched VALUES (1, 1), (2, 1)").await?;
    for _ in 0..3 {
        conn.query_drop("UPDATE matched SET n = 1").await?;
        equal!(conn.affected_rows(), 2);
        other.query_drop("UPDATE matched SET n = 1").await?;
        equal!(other.affected_rows(), 0);
    }
    Ok(())
}
