//! Writes to the audit log who has come in, who was turned away, and what was changed.

use weir_protocol::error;
use weir_query_log::{AuditEvent, AuditKind, monotonic_ns};
use weir_session::login::Channel;

use crate::command::{Command, Fixed, Scope};
use crate::engine::Engine;
use crate::error::SqlError;
use crate::reply::Reply;
use crate::wire::Wire;

/// A connection, as the log shows it.
#[derive(Clone, Debug)]
pub(crate) struct AuditClient {
    thread_id: u32,
    connected_ns: u64,
    client: String,
    proxy: String,
}

impl AuditClient {
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

/// Whether a command is to change something that others see. Of SQL, SQLite knows it.
pub(crate) fn is_change(command: &Command) -> bool {
    match command {
        Command::Fixed(Fixed::Move(_) | Fixed::Proxy(_)) => true,
        Command::Set(assignments) => assignments.iter().any(|one| one.scope == Scope::Configuration),
        Command::LoadUser(_) => true,
        Command::Kill { .. } | Command::Truncate { .. } | Command::SaveConfig(_) | Command::Weir(_) => true,
        Command::Fixed(_)
        | Command::Sql(_)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::parse;

    #[test]
    fn commands_that_change_something() {
        for (text, expected) in [
            ("LOAD MYSQL USERS TO RUNTIME", true),
            ("LOAD MYSQL USER app TO RUNTIME", true),
            ("PROXYSQL PAUSE", true),
            ("SET mysql-threads = 2", true),
            ("SET NAMES utf8mb4", false),
            ("USE disk", false),
            ("SHOW TABLES", false),
            ("CHECKSUM MYSQL USERS", false),
            // SQLite knows.
            ("DELETE FROM mysql_users", false),
        ] {
            assert_eq!(is_change(&parse(text).unwrap()), expected, "{text}");
        }
    }
}
