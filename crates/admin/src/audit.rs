//! What the audit log is told: who has come in, who was turned away, and what was changed.

use weir_journal::{AuditEvent, AuditKind, monotonic_ns};
use weir_protocol::error;
use weir_session::login::Channel;

use crate::command::{Command, Fixed, Scope, Sql};
use crate::engine::Engine;
use crate::error::SqlError;
use crate::reply::Reply;
use crate::tokens::{Kind, Token, tokens};
use crate::wire::Wire;

/// A connection, as the log shows it.
#[derive(Clone, Debug)]
pub(crate) struct Visitor {
    thread_id: u32,
    connected_ns: u64,
    client: String,
    proxy: String,
}

impl Visitor {
    /// The client at the other end, just now.
    pub(crate) fn at(wire: &Wire, thread_id: u32) -> Self {
        let name = |address: Option<std::net::SocketAddr>| {
            address.map_or_else(|| "localhost".to_owned(), |address| address.to_string())
        };
        let socket = wire.socket();
        Self {
            thread_id,
            connected_ns: monotonic_ns(),
            client: name(socket.and_then(|socket| socket.peer())),
            proxy: name(socket.and_then(|socket| socket.local())),
        }
    }

    /// The id that its client knows.
    pub(crate) fn thread_id(&self) -> u32 {
        self.thread_id
    }

    /// Something has become of it.
    pub(crate) fn tell(
        &self,
        engine: &dyn Engine,
        kind: AuditKind,
        user: &[u8],
        channel: Channel,
        extra: &str,
    ) {
        engine.audit(&AuditEvent { extra: extra.as_bytes(), ..self.event(kind, user, channel) });
    }

    /// It has changed something, or tried to.
    pub(crate) fn tell_change(
        &self,
        engine: &dyn Engine,
        user: &str,
        channel: Channel,
        statement: &str,
        reply: &Result<Reply, SqlError>,
    ) {
        let extra = match reply {
            Ok(Reply::Done(done)) => format!("OK, {} rows", done.affected_rows),
            Ok(_) => "OK".to_owned(),
            Err(error) if weir_sql::speaks_of_secrets(statement.as_bytes()) => {
                format!("error {}", error.error.code)
            }
            Err(error) => format!("error {}: {}", error.error.code, error.message),
        };
        let event = self.event(AuditKind::AdminChange, user.as_bytes(), channel);
        engine.audit(&AuditEvent { statement: statement.as_bytes(), extra: extra.as_bytes(), ..event });
    }

    fn event<'a>(&'a self, kind: AuditKind, user: &'a [u8], channel: Channel) -> AuditEvent<'a> {
        AuditEvent {
            kind,
            thread_id: self.thread_id,
            at_ns: monotonic_ns(),
            connected_ns: self.connected_ns,
            is_tls: channel == Channel::Tls,
            client: self.client.as_bytes(),
            proxy: self.proxy.as_bytes(),
            username: user,
            ..AuditEvent::default()
        }
    }
}

/// Whether a command is to change something that others see.
pub(crate) fn is_change(command: &Command) -> bool {
    match command {
        Command::Sql(sql) => writes(sql),
        Command::Fixed(Fixed::Move(_) | Fixed::Proxy(_)) => true,
        Command::Set(assignments) => assignments.iter().any(|one| one.scope == Scope::Configuration),
        Command::Kill { .. } | Command::Truncate { .. } | Command::SaveConfig(_) | Command::Weir(_) => true,
        Command::Fixed(_)
        | Command::Show(_)
        | Command::Use(_)
        | Command::Transaction { .. }
        | Command::Nothing => false,
    }
}

/// Whether what was refused before it was a command was understood all the same, such as ATTACH or CREATE TABLE.
pub(crate) fn is_attempt(refusal: &SqlError) -> bool {
    refusal.error == error::SPECIFIC_ACCESS_DENIED
}

/// Whether SQL is to change something. Behind WITH the verb comes after the common table expressions, each in
/// parentheses: it is the first verb outside of all of them.
fn writes(sql: &Sql) -> bool {
    const WRITES: [&str; 4] = ["INSERT", "REPLACE", "UPDATE", "DELETE"];
    let is_any = |token: &Token<'_>, words: &[&str]| words.iter().any(|word| token.is(word));
    // What can't be taken apart is told rather than not.
    let Ok(tokens) = tokens(&sql.text) else { return true };
    let Some(first) = tokens.first() else { return false };
    if !first.is("WITH") {
        return is_any(first, &WRITES);
    }
    let mut depth = 0_u32;
    for token in &tokens {
        if token.is_symbol('(') {
            depth += 1;
        } else if token.is_symbol(')') {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && token.kind == Kind::Word {
            if is_any(token, &WRITES) {
                return true;
            }
            if is_any(token, &["SELECT", "VALUES"]) {
                return false;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    #[test]
    fn only_what_writes_is_a_change() {
        for (text, expected) in [
            ("SELECT 1", false),
            ("(SELECT 1)", false),
            ("VALUES (1)", false),
            ("EXPLAIN SELECT 1", false),
            ("PRAGMA table_info(mysql_users)", false),
            ("WITH x AS (SELECT 1) SELECT * FROM x", false),
            ("with x(a) as (select ')delete' ), y as (values (2)) select a from x", false),
            (
                "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c LIMIT 3",
                false,
            ),
            ("WITH x AS (SELECT 'app') DELETE FROM mysql_users WHERE username IN x", true),
            ("WITH x AS (SELECT 'a' AS a) INSERT INTO mysql_users (username) SELECT a FROM x", true),
            ("with x as (select 1) update mysql_users set active = 0", true),
            ("insert INTO mysql_users (username) VALUES ('a')", true),
            ("REPLACE INTO mysql_users (username) VALUES ('a')", true),
            ("UPDATE mysql_users SET active = 0", true),
            ("DELETE FROM mysql_users", true),
            ("LOAD MYSQL USERS TO RUNTIME", true),
            ("SHOW TABLES", false),
        ] {
            assert_eq!(is_change(&parse(text).unwrap()), expected, "{text}");
        }
    }
}
