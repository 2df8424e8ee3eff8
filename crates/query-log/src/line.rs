//! Formats lines of the logs: one JSON object each, with the names of ProxySQL's.

use std::borrow::Cow;
use std::time::SystemTime;

use serde::Serialize;
use time::OffsetDateTime;
use weir_sql::{mask_literals, mask_secrets, speaks_of_secrets};

use crate::record::{AuditEvent, AuditKind, Command, Statement};

/// What it is by the two clocks: records have monotonic times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) monotonic_ns: u64,
    pub(crate) unix_us: i64,
}

impl Clocks {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let unix_us = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
        Self { monotonic_ns: crate::monotonic_ns(), unix_us }
    }

    fn unix_us(self, monotonic_ns: u64) -> i64 {
        let ago_us = i64::try_from(self.monotonic_ns.saturating_sub(monotonic_ns) / 1000).unwrap_or(i64::MAX);
        self.unix_us.saturating_sub(ago_us)
    }
}

/// A line of the events log and of the slow log. Fields as in ProxySQL's, in the order of the alphabet as there.
#[derive(Serialize)]
struct StatementLine<'a> {
    client: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_stmt_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    duration_us: u64,
    endtime: String,
    endtime_timestamp_us: i64,
    errno: u16,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: Cow<'a, str>,
    event: &'static str,
    hostgroup_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_insert_id: Option<u64>,
    query: Cow<'a, str>,
    /// Bytes of the whole text, where only its beginning is logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    query_length: Option<u64>,
    rows_affected: u64,
    rows_sent: u64,
    schemaname: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    server: Cow<'a, str>,
    starttime: String,
    starttime_timestamp_us: i64,
    thread_id: u32,
    username: Cow<'a, str>,
}

/// A line of the audit log, likewise.
#[derive(Serialize)]
struct AuditLine<'a> {
    client_addr: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<String>,
    event: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    extra_info: Cow<'a, str>,
    proxy_addr: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    query: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    schemaname: Cow<'a, str>,
    ssl: bool,
    thread_id: u32,
    time: String,
    /// Milliseconds since 1970.
    timestamp: i64,
    username: Cow<'a, str>,
}

/// A line that tells that others are missing before it.
#[derive(Serialize)]
struct GapLine {
    event: &'static str,
    lines: u64,
    time: String,
}

/// Appends a statement's line.
pub(crate) fn put_statement(out: &mut Vec<u8>, statement: &Statement<'_>, clocks: Clocks) {
    let begun_us = clocks.unix_us(statement.begun_ns);
    let took_us = statement.ended_ns.saturating_sub(statement.begun_ns) / 1000;
    let ended_us = begun_us.saturating_add(i64::try_from(took_us).unwrap_or(i64::MAX));
    let has_id = statement.statement_id != 0;
    let is_cut = statement.query_bytes > statement.query.len() as u64;
    put(
        out,
        &StatementLine {
            client: text(statement.client),
            client_stmt_id: has_id.then_some(statement.statement_id),
            digest: statement.digest.map(|digest| format!("0x{digest:016X}")),
            duration_us: took_us,
            endtime: date(ended_us, 6),
            endtime_timestamp_us: ended_us,
            errno: statement.errno,
            error: text(statement.error),
            event: match statement.command {
                Command::Query => "COM_QUERY",
                Command::Prepare => "COM_STMT_PREPARE",
                Command::Execute => "COM_STMT_EXECUTE",
            },
            hostgroup_id: statement.hostgroup.map_or(-1, i64::from),
            last_insert_id: (statement.last_insert_id != 0).then_some(statement.last_insert_id),
            query: match mask_secrets(statement.query) {
                Some(masked) => String::from_utf8_lossy(&masked).into_owned().into(),
                None => text(statement.query),
            },
            query_length: is_cut.then_some(statement.query_bytes),
            rows_affected: statement.rows_affected,
            rows_sent: statement.rows_sent,
            schemaname: text(statement.schemaname),
            server: text(statement.server),
            starttime: date(begun_us, 6),
            starttime_timestamp_us: begun_us,
            thread_id: statement.thread_id,
            username: text(statement.username),
        },
    );
}

/// Appends a line about a session.
pub(crate) fn put_audit(out: &mut Vec<u8>, event: &AuditEvent<'_>, clocks: Clocks) {
    let at_us = clocks.unix_us(event.at_ns);
    let tells_duration =
        event.connected_ns != 0 && matches!(event.kind, AuditKind::Close | AuditKind::AdminClose);
    let took_us = event.at_ns.saturating_sub(event.connected_ns) / 1000;
    put(
        out,
        &AuditLine {
            client_addr: text(event.client),
            creation_time: tells_duration.then(|| date(clocks.unix_us(event.connected_ns), 3)),
            duration: tells_duration.then(|| format!("{}.{:03}ms", took_us / 1000, took_us % 1000)),
            event: event.kind.word(),
            extra_info: text(event.extra),
            proxy_addr: text(event.proxy),
            query: text(&admin_statement(event.statement)).into_owned().into(),
            schemaname: text(event.schemaname),
            ssl: event.is_tls,
            thread_id: event.thread_id,
            time: date(at_us, 3),
            timestamp: at_us / 1000,
            username: text(event.username),
        },
    );
}

/// Appends a line that tells how many are missing here.
pub(crate) fn put_gap(out: &mut Vec<u8>, lines: u64) {
    put(out, &GapLine { event: "weir_gap", lines, time: date(Clocks::now().unix_us, 3) });
}

fn put(out: &mut Vec<u8>, line: &impl Serialize) {
    let at = out.len();
    // Numbers and texts can always be written as JSON.
    match serde_json::to_writer(&mut *out, line) {
        Ok(()) => out.push(b'\n'),
        Err(_) => out.truncate(at),
    }
}

/// Passwords are in columns and variables there, with and without quotes.
fn admin_statement(statement: &[u8]) -> Vec<u8> {
    let lower = statement.to_ascii_lowercase();
    let names = |word: &[u8]| lower.windows(word.len()).any(|window| window == word);
    if !speaks_of_secrets(&lower)
        && ![&b"credentials"[..], b"token", b"mysql_users", b"weir_topology"].iter().any(|word| names(word))
    {
        return statement.to_vec();
    }
    let is_set = lower.trim_ascii_start().starts_with(b"set");
    match statement.iter().position(|byte| *byte == b'=').filter(|_| is_set) {
        Some(at) => [statement.get(..=at).unwrap_or_default(), b"'***'"].concat(),
        None => mask_literals(statement, is_variable),
    }
}

/// The name of a variable tells what was changed.
fn is_variable(literal: &[u8]) -> bool {
    literal.get(1..).is_some_and(|name| name.starts_with(b"mysql-") || name.starts_with(b"admin-"))
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// `2026-11-21 20:15:01.123456`, UTC, with so many digits behind the second.
fn date(unix_us: i64, digits: usize) -> String {
    let at = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_us) * 1000);
    let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let mut date =
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:06}", at.microsecond());
    date.truncate(date.len() - 6 + digits.min(6));
    date
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLOCKS: Clocks = Clocks { monotonic_ns: 5_000_000_000, unix_us: 1_563_091_468_595_961 };

    fn line(out: Vec<u8>) -> String {
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_statement_as_proxysql_shows_it() {
        let statement = Statement {
            thread_id: 2,
            hostgroup: Some(10),
            begun_ns: 4_000_000_000,
            ended_ns: 4_000_456_000,
            digest: Some(0x226C_D90D_52A2_BA0B),
            rows_sent: 1,
            client: b"127.0.0.1:39840",
            server: b"127.0.0.1:3306",
            username: b"root",
            schemaname: b"test",
            query: b"select \"x\" \xFF",
            query_bytes: 12,
            ..Statement::default()
        };
        let mut out = Vec::new();
        put_statement(&mut out, &statement, CLOCKS);
        let expected = concat!(
            r#"{"client":"127.0.0.1:39840","digest":"0x226CD90D52A2BA0B","duration_us":456,"#,
            r#""endtime":"2019-07-14 08:04:27.596417","endtime_timestamp_us":1563091467596417,"errno":0,"#,
            r#""event":"COM_QUERY","hostgroup_id":10,"query":"select \"x\" �","rows_affected":0,"rows_sent":1,"#,
            r#""schemaname":"test","server":"127.0.0.1:3306","starttime":"2019-07-14 08:04:27.595961","#,
            r#""starttime_timestamp_us":1563091467595961,"thread_id":2,"username":"root"}"#,
            "\n"
        );
        assert_eq!(line(out), expected);
    }

    #[test]
    fn an_error_of_weirs_own_has_no_server() {
        let statement = Statement {
            command: Command::Execute,
            errno: 9001,
            error: b"no server",
            statement_id: 3,
            query: b"CREATE USER a IDENTIFIED BY 'sesame'",
            query_bytes: 99,
            ..Statement::default()
        };
        let mut out = Vec::new();
        put_statement(&mut out, &statement, CLOCKS);
        let text = line(out);
        for part in [
            r#""client_stmt_id":3"#,
            r#""errno":9001,"error":"no server","event":"COM_STMT_EXECUTE","hostgroup_id":-1"#,
            r#""query":"CREATE USER a IDENTIFIED BY '***'","query_length":99"#,
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("\"server\"") && !text.contains("digest"), "{text}");
    }

    #[test]
    fn an_end_tells_how_long_it_was() {
        let event = AuditEvent {
            kind: AuditKind::Close,
            thread_id: 2,
            at_ns: 5_000_000_000,
            connected_ns: 3_765_000_000,
            client: b"127.0.0.1:1",
            proxy: b"0.0.0.0:6033",
            username: b"app",
            ..AuditEvent::default()
        };
        let mut out = Vec::new();
        put_audit(&mut out, &event, CLOCKS);
        let expected = concat!(
            r#"{"client_addr":"127.0.0.1:1","creation_time":"2019-07-14 08:04:27.360","duration":"1235.000ms","#,
            r#""event":"MySQL_Client_Close","proxy_addr":"0.0.0.0:6033","ssl":false,"thread_id":2,"#,
            r#""time":"2019-07-14 08:04:28.595","timestamp":1563091468595,"username":"app"}"#,
            "\n"
        );
        assert_eq!(line(out), expected);
    }

    #[test]
    fn the_admin_interface_shows_no_password() {
        for (statement, shown) in [
            ("LOAD MYSQL USERS TO RUNTIME", "LOAD MYSQL USERS TO RUNTIME"),
            ("SET mysql-monitor_password=sesame", "SET mysql-monitor_password='***'"),
            ("SET admin-admin_credentials='a:b'", "SET admin-admin_credentials='***'"),
            ("SET admin-web_token='abc'", "SET admin-web_token='***'"),
            ("INSERT INTO mysql_users VALUES ('app','b')", "INSERT INTO mysql_users VALUES ('***','***')"),
            (
                "REPLACE INTO weir_topology VALUES (10,'a','b')",
                "REPLACE INTO weir_topology VALUES (10,'***','***')",
            ),
            (
                "UPDATE global_variables SET variable_value='b' WHERE variable_name='mysql-monitor_password'",
                "UPDATE global_variables SET variable_value='***' WHERE variable_name='mysql-monitor_password'",
            ),
            ("DELETE FROM mysql_servers WHERE hostname='a'", "DELETE FROM mysql_servers WHERE hostname='a'"),
        ] {
            assert_eq!(String::from_utf8(admin_statement(statement.as_bytes())).unwrap(), shown);
        }
    }
}
