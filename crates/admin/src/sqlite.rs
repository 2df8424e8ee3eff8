//! SQL in SQLite, with nothing allowed that the admin interface is not for.

mod functions;
mod guard;
mod information_schema;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ErrorCode, params_from_iter};
use weir_protocol::error;

pub(crate) use self::functions::{SharedFacts, register};
pub(crate) use self::guard::{Noted, Policy, guarded};
pub(crate) use self::information_schema::{
    attach as attach_information_schema, fill_processlist, is_processlist,
};
use crate::command::VARIABLE;
use crate::error::SqlError;
use crate::limits::Memory;
use crate::reply::{Done, Reply, RowFormat, Rows};

/// What a statement is, before it is run.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Empty for a statement without rows.
    pub columns: Vec<String>,
    pub parameters: usize,
    pub noted: Noted,
}

/// Looks at a statement without running it.
pub(crate) fn outline(connection: &Connection, text: &str, policy: Policy) -> Result<Outline, SqlError> {
    let (outline, noted) = guarded(connection, policy, || {
        let statement = connection.prepare(text)?;
        Ok((headings(&statement), statement.parameter_count()))
    })?;
    Ok(Outline { columns: outline.0, parameters: outline.1, noted })
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
    let (reply, _) = guarded(connection, policy, || {
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
        Ok(Reply::Rows(result))
    })?;
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
