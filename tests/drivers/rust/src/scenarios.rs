//! The scenarios by name, and what they share.

use std::env;
use std::time::{Duration, Instant};

use mysql_async::prelude::*;
use mysql_async::{Conn, Error, OptsBuilder, Row, SslOpts, Value, WhiteListFsHandler};

use crate::{sessions, values};

pub(crate) const DUPLICATE_KEY: u16 = 1062;
pub(crate) const NO_SUCH_TABLE: u16 = 1146;

/// Why a scenario did not go well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The driver can't do it.
    Skip(&'static str),
    /// What was wrong.
    Wrong(String),
}

pub(crate) type Outcome = std::result::Result<(), Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Wrong(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::Wrong(error.to_string())
    }
}

/// Fails a scenario unless both are equal.
macro_rules! equal {
    ($got:expr, $wanted:expr) => {{
        let (got, wanted) = ($got, $wanted);
        if got != wanted {
            let text = format!("line {}: expected {wanted:?}, got {got:?}", line!());
            return Err($crate::scenarios::Failure::Wrong(text.chars().take(400).collect()));
        }
    }};
}
pub(crate) use equal;

/// Runs one scenario.
pub(crate) async fn run(name: &str) -> Outcome {
    match name {
        "connect" => sessions::connect().await,
        "connect_tls" => sessions::connect_tls().await,
        "wrong_password" => sessions::wrong_password().await,
        "unknown_schema" => sessions::unknown_schema().await,
        "characters" => values::characters().await,
        "latin1" => Err(Failure::Skip("speaks utf8mb4 only")),
        "autocommit" => Err(Failure::Skip("has no setting of its own")),
        "transactions" => sessions::transactions().await,
        "read_only_transaction" => sessions::read_only_transaction().await,
        "types" => values::types().await,
        "prepared_types" => values::prepared_types().await,
        "prepared_again" => values::prepared_again().await,
        "long_data" => values::long_data().await,
        "large_result" => values::large_result().await,
        "streamed_result" => values::streamed_result().await,
        "large_row" => values::large_row().await,
        "several_statements" => values::several_statements().await,
        "procedure" => values::procedure().await,
        "local_infile" => values::local_infile().await,
        "warnings" => values::warnings().await,
        "error_codes" => values::error_codes().await,
        "insert_id" => values::insert_id().await,
        "affected_rows" => values::affected_rows().await,
        "found_rows" => values::found_rows().await,
        "session_variables" => sessions::session_variables().await,
        "user_variables" => sessions::user_variables().await,
        "temporary_table" => sessions::temporary_table().await,
        "named_lock" => sessions::named_lock().await,
        "change_user" => sessions::change_user().await,
        "reset" => sessions::reset().await,
        "ping" => sessions::ping().await,
        "kill_query" => sessions::kill_query().await,
        "kill_connection" => sessions::kill_connection().await,
        "reconnect" => sessions::reconnect().await,
        "interleaved" => sessions::interleaved().await,
        _ => Err(Failure::Wrong("there is no such scenario".to_owned())),
    }
}

/// A variable that the caller has to set.
pub(crate) fn setting(name: &str) -> std::result::Result<String, Failure> {
    env::var(name).map_err(|_| Failure::Wrong(format!("{name} is not set")))
}

/// As app, in the schema.
pub(crate) fn options() -> std::result::Result<OptsBuilder, Failure> {
    let port =
        setting("WEIR_PORT")?.parse().map_err(|_| Failure::Wrong("WEIR_PORT is no port".to_owned()))?;
    Ok(OptsBuilder::default()
        .ip_or_hostname(setting("WEIR_HOST")?)
        .tcp_port(port)
        .user(Some("app"))
        .pass(Some("app"))
        .db_name(Some(setting("WEIR_SCHEMA")?))
        // Otherwise the driver changes to the server's own socket when it can.
        .prefer_socket(false))
}

pub(crate) fn tls() -> std::result::Result<SslOpts, Failure> {
    let ca = std::path::PathBuf::from(setting("WEIR_CA")?);
    // The certificate is for other names than the address.
    Ok(SslOpts::default().with_root_certs(vec![ca.into()]).with_danger_accept_invalid_certs(true))
}

pub(crate) async fn open() -> std::result::Result<Conn, Failure> {
    Ok(Conn::new(options()?).await?)
}

/// With files of these names allowed to be sent.
pub(crate) async fn open_for_file(path: &str) -> std::result::Result<Conn, Failure> {
    let handler = WhiteListFsHandler::new([path]);
    Ok(Conn::new(options()?.local_infile_handler(Some(handler))).await?)
}

/// The only value of the only row, as text; NULL as "NULL".
pub(crate) async fn value(conn: &mut Conn, sql: &str) -> std::result::Result<String, Failure> {
    let row: Option<Row> = conn.query_first(sql).await?;
    let value = row.and_then(|mut row| row.take::<Value, usize>(0));
    Ok(value.map_or_else(|| "(no row)".to_owned(), shown))
}

pub(crate) fn shown(value: Value) -> String {
    match value {
        Value::NULL => "NULL".to_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Value::Int(n) => n.to_string(),
        Value::UInt(n) => n.to_string(),
        other => other.as_sql(true),
    }
}

/// The statement must fail with this error.
pub(crate) async fn refused(conn: &mut Conn, code: u16, sql: &str) -> Outcome {
    error_is(code, conn.query_drop(sql).await, sql)
}

pub(crate) fn error_is<T>(code: u16, result: mysql_async::Result<T>, sql: &str) -> Outcome {
    match result {
        Err(Error::Server(error)) if error.code == code => Ok(()),
        Err(other) => Err(Failure::Wrong(format!("{sql}: expected error {code}, got {other}"))),
        Ok(_) => Err(Failure::Wrong(format!("{sql}: expected error {code}, but it worked"))),
    }
}

pub(crate) async fn table(conn: &mut Conn, name: &str, columns: &str) -> Outcome {
    conn.query_drop(format!("DROP TABLE IF EXISTS {name}")).await?;
    conn.query_drop(format!("CREATE TABLE {name} ({columns})")).await?;
    Ok(())
}

/// Waits for what another session has written: Weir's readers show that some milliseconds later.
pub(crate) async fn seen(conn: &mut Conn, sql: &str, wanted: &str) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let got = value(conn, sql).await;
        if got.as_ref().is_ok_and(|got| got == wanted) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::Wrong(format!("{sql}: expected {wanted}, got {got:?}")));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
