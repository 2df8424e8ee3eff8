//! Runs SQL in SQLite, with nothing allowed that the admin interface is not for.

mod functions;
mod guard;
mod information_schema;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, params_from_iter};
use weir_protocol::error;

pub(crate) use self::functions::{SharedFacts, register};
use self::guard::note_joined;
pub(crate) use self::guard::{Noted, Policy, guarded};
pub(crate) use self::information_schema::{
    attach as attach_information_schema, fill_processlist, is_processlist,
};
use crate::command::VARIABLE;
use crate::error::SqlError;
use crate::limits::Memory;
use crate::reply::{Done, Reply, RowFormat, Rows};

/// The nature of a statement, before it is run.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Empty for a statement without rows.
    pub columns: Vec<String>,
    pub parameters: usize,
    pub noted: Noted,
}

/// Looks at a statement without running it; and whether it would change something, which SQLite knows of what is
/// refused, too.
pub(crate) fn outline(
    connection: &Connection,
    text: &str,
    policy: Policy,
) -> (Result<Outline, SqlError>, bool) {
    let rights = policy.rights;
    let (looked, mut noted) = guarded(connection, policy, || {
        let statement = connection.prepare(text)?;
        // Of EXPLAIN, SQLite says what it says of the statement behind it.
        let changes = !statement.readonly() && statement.is_explain() == 0;
        Ok((headings(&statement), statement.parameter_count(), changes))
    });
    let changes = match &looked {
        Ok((_, _, changes)) => *changes,
        Err(_) => noted.tries_to_change,
    };
    let looked = looked
        .and_then(|looked| note_joined(text, rights, &mut noted).map(|()| looked).map_err(SqlError::denied));
    (looked.map(|(columns, parameters, _)| Outline { columns, parameters, noted }), changes)
}

/// Runs a statement.
pub(crate) fn run(
    connection: &Connection,
    text: &str,
    parameters: &[Value],
    policy: Policy,
    format: RowFormat,
    memory: &Memory,
) -> Result<Reply, SqlError> {
    let mut too_large = None;
    let reply = guarded(connection, policy, || {
        let mut statement = connection.prepare(text)?;
        let columns = headings(&statement);
        let count = columns.len();
        if count == 0 {
            let affected_rows = statement.execute(params_from_iter(parameters))? as u64;
            return Ok(Reply::Done(Done { affected_rows, info: String::new() }));
        }
        let mut result = Rows::new(columns, format, memory.budget());
        let mut rows = statement.query(params_from_iter(parameters))?;
        let mut texts: Vec<Option<Vec<u8>>> = vec![None; count];
        while let Some(row) = rows.next()? {
            for (at, text) in texts.iter_mut().enumerate() {
                *text = text_of(row.get_ref(at)?);
            }
            if let Err(error) = result.push(texts.iter().map(Option::as_deref)) {
                too_large = Some(error);
                break;
            }
        }
        Ok(Reply::Rows(result.into()))
    });
    let reply = reply.0?;
    too_large.map_or(Ok(reply), Err)
}

/// The columns' headings: as they were typed, where a system variable stood too.
fn headings(statement: &rusqlite::Statement<'_>) -> Vec<String> {
    let typed = |name: &str| {
        let inner = name.strip_prefix(VARIABLE).and_then(|rest| rest.strip_prefix("('")?.strip_suffix("')"));
        inner.unwrap_or(name).to_owned()
    };
    statement.column_names().into_iter().map(typed).collect()
}

fn text_of(value: ValueRef<'_>) -> Option<Vec<u8>> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into_bytes()),
        ValueRef::Real(number) => Some(number.to_string().into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

/// SQLite's refusal in MySQL's numbers.
fn refusal(error: &rusqlite::Error) -> SqlError {
    let message = match error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        rusqlite::Error::MultipleStatement => return SqlError::syntax("one statement at a time"),
        rusqlite::Error::InvalidParameterCount(given, wanted) => {
            return SqlError::new(
                error::WRONG_ARGUMENTS,
                format!("{given} parameters were given and {wanted} are needed"),
            );
        }
        other => other.to_string(),
    };
    let number = match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => {
            return SqlError::new(
                error::STATEMENT_TIMEOUT,
                "the statement took too long and was stopped: narrow it",
            );
        }
        _ if message.starts_with("no such table") => error::NO_SUCH_TABLE,
        Some(ErrorCode::Unknown) | None => error::PARSE_ERROR,
        Some(_) => error::UNKNOWN_ERROR,
    };
    SqlError::new(number, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_store::Store;

    use super::*;
    use crate::login::Rights;

    #[test]
    fn sqlite_knows_what_changes_something() {
        let store = Store::in_memory().unwrap();
        let policy =
            |rights| Policy { rights, is_read_only: false, seal: None, patience: Duration::from_secs(10) };
        for (text, expected) in [
            ("SELECT 1", false),
            ("VALUES (1)", false),
            ("EXPLAIN DELETE FROM mysql_users", false),
            ("PRAGMA table_info(mysql_users)", false),
            ("WITH x AS (SELECT 1) SELECT * FROM x", false),
            ("WITH replace AS (SELECT 1 AS a) SELECT a FROM replace", false),
            ("WITH \"delete\" AS (SELECT 1), [update] (a) AS (VALUES (2)) SELECT * FROM \"delete\"", false),
            (
                "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c LIMIT 3",
                false,
            ),
            ("WITH \"select\" AS (SELECT 'app') DELETE FROM mysql_users WHERE username IN \"select\"", true),
            ("WITH x AS (SELECT 'a' AS a) INSERT INTO mysql_users (username) SELECT a FROM x", true),
            ("WITH x AS (SELECT 1) UPDATE mysql_users SET active = 0", true),
            ("INSERT INTO mysql_users (username) VALUES ('a')", true),
            ("REPLACE INTO disk.mysql_users (username) VALUES ('a')", true),
            ("DELETE FROM mysql_users RETURNING username", true),
            ("DELETE FROM no_such_table", false),
        ] {
            let (_, changes) = outline(store.connection(), text, policy(Rights::Admin));
            assert_eq!(changes, expected, "{text}");
        }
        for (text, expected) in [
            ("DELETE FROM mysql_users", true),
            ("UPDATE stats.stats_mysql_global SET Variable_Value = 1", true),
            ("ATTACH '/tmp/x' AS x", true),
            ("CREATE TABLE x (a)", true),
            ("SELECT * FROM mysql_users", false),
        ] {
            let (outline, changes) = outline(store.connection(), text, policy(Rights::Stats));
            assert_eq!(outline.unwrap_err().error, error::SPECIFIC_ACCESS_DENIED, "{text}");
            assert_eq!(changes, expected, "{text}");
        }
    }
}
