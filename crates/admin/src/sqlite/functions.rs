//! Gives SQLite MySQL's functions that drivers and people use.

mod text;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::Connection;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::Value;

use crate::command::VARIABLE;

/// Facts about the session whose statement runs, for the functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub user: String,
    pub schema: String,
    pub thread_id: u32,
    /// Values of the `@@variables` of the statement.
    pub variables: HashMap<String, String>,
}

/// They are set before each statement, under the store's lock.
pub(crate) type SharedFacts = Arc<Mutex<Facts>>;

/// Makes the functions known.
pub(crate) fn register(connection: &Connection, facts: &SharedFacts) -> rusqlite::Result<()> {
    let session = FunctionFlags::SQLITE_UTF8;
    let of_facts = |names: &[&str], take: fn(&Facts) -> Value| -> rusqlite::Result<()> {
        for name in names {
            let facts = facts.clone();
            connection.create_scalar_function(*name, 0, session, move |_: &Context<'_>| {
                Ok(take(&facts.lock().unwrap_or_else(PoisonError::into_inner)))
            })?;
        }
        Ok(())
    };
    of_facts(&["database", "schema"], |facts| Value::Text(facts.schema.clone()))?;
    of_facts(&["user", "current_user", "session_user", "system_user"], |facts| {
        Value::Text(format!("{}@%", facts.user))
    })?;
    of_facts(&["connection_id"], |facts| Value::Integer(facts.thread_id.into()))?;
    of_facts(&["version"], |_| Value::Text(crate::variables::VERSION.to_owned()))?;
    of_facts(&["unix_timestamp"], |_| Value::Integer(now_s()))?;
    text::register(connection)?;
    let variables = facts.clone();
    connection.create_scalar_function(VARIABLE, 1, session, move |context: &Context<'_>| {
        let name: String = context.get(0)?;
        let facts = variables.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(facts.variables.get(&name).cloned())
    })
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}
