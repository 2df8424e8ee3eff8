//! Scenarios about sessions: logins, transactions, state, KILL.

use std::time::Duration;

use mysql_async::prelude::*;
use mysql_async::{ChangeUserOpts, Conn, Error, IsolationLevel, TxOpts};

use crate::Result;
use crate::scenarios::{
    DUPLICATE_KEY, Failure, NO_SUCH_TABLE, equal, error_is, open, options, refused, seen, setting, table,
    tls, value,
};

const ACCESS_DENIED: u16 = 1045;
const NO_SUCH_SCHEMA: u16 = 1049;
const READ_ONLY_TRANSACTION: u16 = 1792;
const INTERRUPTED: u16 = 1317;
const NO_SUCH_THREAD: u16 = 1094;

pub(crate) async fn connect() -> Result {
    let mut conn = open().await?;
    equal!(value(&mut conn, "SELECT DATABASE()").await?, setting("WEIR_SCHEMA")?);
    equal!(value(&mut conn, "SELECT CURRENT_USER()").await?, "app@%");
    equal!(value(&mut conn, "SELECT CONNECTION_ID()").await?, conn.id().to_string());
    conn.disconnect().await?;
    Ok(())
}

pub(crate) async fn connect_tls() -> Result {
    let mut conn = Conn::new(options()?.ssl_opts(tls()?)).await?;
    equal!(value(&mut conn, "SELECT REPEAT('x', 100000)").await?, "x".repeat(100_000));
    conn.disconnect().await?;
    Ok(())
}

pub(crate) async fn wrong_password() -> Result {
    error_is(ACCESS_DENIED, Conn::new(options()?.pass(Some("wrong"))).await, "a login")
}

pub(crate) async fn unknown_schema() -> Result {
    // Some servers and proxies tell at the login, others at the first statement.
    match Conn::new(options()?.db_name(Some("nowhere_at_all"))).await {
        Ok(mut conn) => refused(&mut conn, NO_SUCH_SCHEMA, "SELECT 1").await,
        refusal => error_is(NO_SUCH_SCHEMA, refusal, "a login"),
    }
}

pub(crate) async fn transactions() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    table(&mut conn, "accounts", "id INT PRIMARY KEY, amount INT").await?;
    conn.query_drop("INSERT INTO accounts VALUES (1, 10), (2, 20)").await?;
    const AMOUNT: &str = "SELECT amount FROM accounts WHERE id = 1";
    let isolation = TxOpts::default().with_isolation_level(Some(IsolationLevel::ReadCommitted)).to_owned();
    let mut transaction = conn.start_transaction(isolation).await?;
    transaction.query_drop("UPDATE accounts SET amount = amount - 5 WHERE id = 1").await?;
    equal!(transaction.query_first::<i64, _>(AMOUNT).await?, Some(5));
    seen(&mut other, AMOUNT, "10").await?;
    error_is(
        DUPLICATE_KEY,
        transaction.query_drop("INSERT INTO accounts VALUES (2, 0)").await,
        "a key twice",
    )?;
    transaction.commit().await?;
    seen(&mut other, AMOUNT, "5").await?;
    let mut transaction = conn.start_transaction(TxOpts::default()).await?;
    transaction.query_drop("DELETE FROM accounts").await?;
    transaction.rollback().await?;
    equal!(value(&mut conn, "SELECT COUNT(*) FROM accounts").await?, "2");
    Ok(())
}

pub(crate) async fn read_only_transaction() -> Result {
    let mut conn = open().await?;
    table(&mut conn, "looked_at", "id INT PRIMARY KEY").await?;
    conn.query_drop("INSERT INTO looked_at VALUES (1)").await?;
    let read_only = TxOpts::default().with_readonly(Some(true)).to_owned();
    let mut transaction = conn.start_transaction(read_only).await?;
    equal!(transaction.query_first::<i64, _>("SELECT COUNT(*) FROM looked_at").await?, Some(1));
    let written = transaction.query_drop("INSERT INTO looked_at VALUES (2)").await;
    error_is(READ_ONLY_TRANSACTION, written, "a write")?;
    transaction.commit().await?;
    conn.query_drop("INSERT INTO looked_at VALUES (2)").await?;
    equal!(value(&mut conn, "SELECT COUNT(*) FROM looked_at").await?, "2");
    Ok(())
}

pub(crate) async fn session_variables() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    let before = value(&mut other, "SELECT @@time_zone").await?;
    conn.query_drop("SET time_zone = '+05:00', sql_mode = 'ANSI_QUOTES'").await?;
    for _ in 0..5 {
        equal!(value(&mut conn, "SELECT CONCAT(@@time_zone, @@sql_mode)").await?, "+05:00ANSI_QUOTES");
        equal!(value(&mut other, "SELECT @@time_zone").await?, before.clone());
        equal!(value(&mut other, "SELECT \"text\"").await?, "text");
    }
    conn.query_drop("SET foreign_key_checks = 0").await?;
    conn.disconnect().await?;
    equal!(value(&mut other, "SELECT @@foreign_key_checks").await?, "1");
    Ok(())
}

pub(crate) async fn user_variables() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    conn.query_drop("SET @mine = 'kept'").await?;
    for _ in 0..3 {
        equal!(value(&mut conn, "SELECT @mine").await?, "kept");
        equal!(value(&mut other, "SELECT @mine").await?, "NULL");
    }
    Ok(())
}

pub(crate) async fn temporary_table() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    conn.query_drop("CREATE TEMPORARY TABLE passing (id INT)").await?;
    conn.query_drop("INSERT INTO passing VALUES (1)").await?;
    equal!(value(&mut conn, "SELECT COUNT(*) FROM passing").await?, "1");
    refused(&mut other, NO_SUCH_TABLE, "SELECT COUNT(*) FROM passing").await
}

pub(crate) async fn named_lock() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    let lock = format!("'{}_mysql_async'", setting("WEIR_SCHEMA")?);
    equal!(value(&mut conn, &format!("SELECT GET_LOCK({lock}, 5)")).await?, "1");
    equal!(value(&mut other, &format!("SELECT GET_LOCK({lock}, 0)")).await?, "0");
    equal!(value(&mut conn, &format!("SELECT RELEASE_LOCK({lock})")).await?, "1");
    equal!(value(&mut other, &format!("SELECT GET_LOCK({lock}, 5)")).await?, "1");
    Ok(())
}

pub(crate) async fn change_user() -> Result {
    let mut conn = open().await?;
    conn.query_drop("SET @mine = 1, time_zone = '+05:00'").await?;
    let app2 = || Some("app2".to_owned());
    let schema = setting("WEIR_SCHEMA")?;
    let options =
        ChangeUserOpts::new().with_user(app2()).with_pass(app2()).with_db_name(Some(schema.clone()));
    conn.change_user(options).await?;
    equal!(value(&mut conn, "SELECT CURRENT_USER()").await?, "app2@%");
    equal!(value(&mut conn, "SELECT DATABASE()").await?, schema);
    equal!(value(&mut conn, "SELECT @mine").await?, "NULL");
    equal!(value(&mut conn, "SELECT @@time_zone = @@GLOBAL.time_zone").await?, "1");
    Ok(())
}

pub(crate) async fn reset() -> Result {
    let mut conn = open().await?;
    conn.query_drop("SET @mine = 1, time_zone = '+05:00'").await?;
    conn.query_drop("CREATE TEMPORARY TABLE passing (id INT)").await?;
    equal!(conn.reset().await?, true);
    equal!(value(&mut conn, "SELECT @mine").await?, "NULL");
    equal!(value(&mut conn, "SELECT @@time_zone = @@GLOBAL.time_zone").await?, "1");
    refused(&mut conn, NO_SUCH_TABLE, "SELECT COUNT(*) FROM passing").await
}

pub(crate) async fn ping() -> Result {
    let mut conn = open().await?;
    for _ in 0..3 {
        conn.ping().await?;
    }
    equal!(value(&mut conn, "SELECT 1").await?, "1");
    Ok(())
}

pub(crate) async fn kill_query() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    let id = conn.id();
    table(&mut other, "slow", "id INT").await?;
    other.query_drop("INSERT INTO slow VALUES (1), (2)").await?;
    // A statement that fails when it is interrupted; a lone SLEEP() would answer 1.
    let running = tokio::spawn(async move {
        let result = conn.query_drop("UPDATE slow SET id = id + SLEEP(20)").await;
        (conn, result)
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    other.query_drop(format!("KILL QUERY {id}")).await?;
    let (mut conn, result) = running.await.map_err(|error| Failure::Wrong(error.to_string()))?;
    error_is(INTERRUPTED, result, "the killed statement")?;
    equal!(value(&mut conn, "SELECT 1").await?, "1");
    refused(&mut other, NO_SUCH_THREAD, "KILL QUERY 4000000000").await
}

pub(crate) async fn kill_connection() -> Result {
    let (mut conn, mut other) = (open().await?, open().await?);
    other.query_drop(format!("KILL {}", conn.id())).await?;
    match conn.query_drop("SELECT 1").await {
        Err(Error::Io(_) | Error::Driver(_)) => {}
        other => return Err(Failure::Wrong(format!("the killed session answers {other:?}"))),
    }
    equal!(value(&mut other, "SELECT 1").await?, "1");
    Ok(())
}

pub(crate) async fn reconnect() -> Result {
    for n in 0..30 {
        let mut conn = open().await?;
        equal!(value(&mut conn, &format!("SELECT {n}")).await?, n.to_string());
        conn.disconnect().await?;
    }
    Ok(())
}

/// Sessions of different minds that share few connections.
pub(crate) async fn interleaved() -> Result {
    let mut sessions = Vec::new();
    for at in 0..6 {
        let mut conn = open().await?;
        if at == 0 {
            table(&mut conn, "shared", "id INT PRIMARY KEY AUTO_INCREMENT, who INT, n INT").await?;
        }
        conn.query_drop(format!("SET time_zone = '+0{at}:00'")).await?;
        sessions.push(conn);
    }
    for n in 0..10 {
        for (at, conn) in sessions.iter_mut().enumerate() {
            conn.exec_drop("INSERT INTO shared (who, n) VALUES (?, ?)", (at, n)).await?;
            let own: Option<(usize, i32)> =
                conn.exec_first("SELECT who, n FROM shared WHERE id = LAST_INSERT_ID()", ()).await?;
            equal!(own, Some((at, n)));
            equal!(value(conn, "SELECT @@time_zone").await?, format!("+0{at}:00"));
            let count: Option<i32> =
                conn.exec_first("SELECT COUNT(*) FROM shared WHERE who = ?", (at,)).await?;
            equal!(count, Some(n + 1));
        }
    }
    Ok(())
}
