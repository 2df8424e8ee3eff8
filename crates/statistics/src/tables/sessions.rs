//! Fills the tables of sessions and their prepared statements.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use weir_proxy::peer::Peer;
use weir_proxy::stats::{SessionRow, StatementRow, WorkerReport};
use weir_store::Value;

use super::{Rows, bytes, hash, host_and_port, integer, text};

/// `stats_mysql_processlist`. `extended_info` is a JSON object with what ProxySQL has no column for: why the session keeps
/// its connection (`pins`), which one that is (`lease`), its transaction, and more.
pub(super) fn processlist(workers: &[(usize, Vec<SessionRow>)]) -> Rows {
    let rows = |(worker, sessions): &(usize, Vec<SessionRow>)| {
        sessions.iter().map(|session| row(*worker, session)).collect::<Vec<_>>()
    };
    workers.iter().flat_map(rows).collect()
}

fn row(worker: usize, session: &SessionRow) -> Vec<Value> {
    let (client_host, client_port) = match session.peer {
        Peer::Tcp(addr) => (text(addr.ip().to_string()), integer(addr.port())),
        Peer::Unix => (text("localhost"), Value::Null),
    };
    let (server_host, server_port) =
        session.server.as_deref().map_or((Value::Null, Value::Null), host_and_port);
    vec![
        integer(worker as u64),
        integer(session.id),
        session.username.as_ref().map_or(Value::Null, text),
        bytes(&session.schema),
        client_host,
        client_port,
        session.hostgroup.map_or(Value::Null, integer),
        // Weir does not ask the system for its own end of a connection.
        Value::Null,
        Value::Null,
        server_host,
        server_port,
        text(session.command),
        integer(session.since_ns / 1_000_000),
        bytes(&session.text),
        integer(session.status),
        text(extended_info(session).to_string()),
    ]
}

/// What is empty or does not apply is left out.
fn extended_info(session: &SessionRow) -> Json {
    let mut info = Map::new();
    info.insert("phase".to_owned(), session.phase.into());
    info.insert("listener".to_owned(), session.listener.as_str().into());
    info.insert("tls".to_owned(), session.is_tls.into());
    if !session.program.is_empty() {
        info.insert("program".to_owned(), session.program.as_str().into());
    }
    if !session.pins.is_empty() {
        info.insert("pins".to_owned(), session.pins.as_str().into());
    }
    if let Some(server) = &session.server {
        let lease = json!({ "server": server, "thread_id": session.server_thread_id });
        info.insert("lease".to_owned(), lease);
    }
    if let Some(open_ns) = session.transaction_ns {
        info.insert("transaction_ms".to_owned(), (open_ns / 1_000_000).into());
    }
    if let Some(digest) = session.digest {
        info.insert("digest".to_owned(), format!("0x{digest:016X}").into());
    }
    if session.statements > 0 {
        info.insert("prepared_statements".to_owned(), session.statements.into());
    }
    Json::Object(info)
}

/// `stats_mysql_prepared_statements_info`: statements of one text, schema and user are one row, with a number of this
/// answer alone.
pub(super) fn statements(workers: &[WorkerReport]) -> Rows {
    let mut sums: BTreeMap<(&[u8], &[u8], &str), StatementRow> = BTreeMap::new();
    for row in workers.iter().flat_map(|worker| &worker.statements) {
        match sums.get_mut(&(&*row.text, &*row.schema, row.username.as_str())) {
            None => {
                sums.insert((&row.text, &row.schema, &row.username), row.clone());
            }
            Some(sum) => {
                sum.clients += row.clients;
                sum.servers += row.servers;
                sum.digest = sum.digest.or(row.digest);
            }
        }
    }
    let row = |(number, row): (usize, StatementRow)| {
        vec![
            integer(number as u64 + 1),
            bytes(&row.schema),
            text(&row.username),
            row.digest.map_or_else(|| text(""), hash),
            integer(row.clients),
            integer(row.servers),
            // Columns depend on the server's answer, of which Weir keeps nothing.
            Value::Null,
            integer(row.params),
            bytes(&row.text),
        ]
    };
    sums.into_values().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionRow {
        SessionRow {
            id: 7,
            username: Some("app".to_owned()),
            schema: b"shop".to_vec(),
            peer: Peer::Unix,
            program: String::new(),
            is_tls: false,
            listener: "/run/weir.sock".to_owned(),
            hostgroup: None,
            server: None,
            server_thread_id: None,
            command: "Sleep",
            phase: "idle",
            since_ns: 5_999_999,
            text: Vec::new(),
            digest: None,
            pins: String::new(),
            transaction_ns: None,
            status: 2,
            statements: 0,
        }
    }

    #[test]
    fn a_session_without_a_server_and_one_that_is_pinned() {
        let pinned = SessionRow {
            peer: Peer::Tcp(([10, 0, 0, 9], 4711).into()),
            hostgroup: Some(100),
            server: Some("db1:3307".to_owned()),
            server_thread_id: Some(99),
            pins: "transaction".to_owned(),
            transaction_ns: Some(1_500_000_000),
            ..session()
        };
        let rows = processlist(&[(1, vec![session()]), (3, vec![pinned])]);
        assert_eq!(
            rows[0][..6],
            [integer(1), integer(7), text("app"), text("shop"), text("localhost"), Value::Null]
        );
        assert_eq!((&rows[0][9], &rows[0][12]), (&Value::Null, &integer(5)));
        assert_eq!(rows[0][15], text(r#"{"listener":"/run/weir.sock","phase":"idle","tls":false}"#));
        assert_eq!(
            rows[1][4..11],
            [
                text("10.0.0.9"),
                integer(4711),
                integer(100),
                Value::Null,
                Value::Null,
                text("db1"),
                integer(3307)
            ]
        );
        let Value::Text(info) = &rows[1][15] else { panic!("{:?}", rows[1][15]) };
        let info: Json = serde_json::from_str(info).expect("JSON");
        assert_eq!(info["lease"], json!({"server": "db1:3307", "thread_id": 99}));
        assert_eq!((&info["pins"], &info["transaction_ms"]), (&json!("transaction"), &json!(1500)));
    }

    #[test]
    fn statements_of_one_meaning_are_one() {
        let row = |clients, digest| StatementRow {
            schema: b"shop".to_vec(),
            username: "app".to_owned(),
            digest,
            text: b"SELECT ?".to_vec(),
            clients,
            servers: 1,
            params: 1,
        };
        let worker = |row| WorkerReport { statements: vec![row], ..WorkerReport::default() };
        let rows = statements(&[worker(row(2, None)), worker(row(3, Some(255)))]);
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0][3..6], [text("0x00000000000000FF"), integer(5), integer(2)]);
    }
}
