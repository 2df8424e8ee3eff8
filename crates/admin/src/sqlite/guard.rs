//! Decides what SQLite may do for an admin: SQLite asks about each thing that a statement needs when it is prepared.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use weir_config::is_secret_name;
use weir_store::{DISK, MAIN, MONITOR, SCHEMAS, STATS, STATS_HISTORY, TableDef, table};

use super::refusal;
use crate::error::SqlError;
use crate::limits::{PATTERN_BYTES_MAX, VALUE_BYTES_MAX};
use crate::login::Rights;
use crate::tokens::tokens;

/// SQLite looks at the clock after so many of its steps.
const STEPS: i32 = 1000;

/// Has secrets in the values of some of its rows.
const RUNTIME_VARIABLES: &str = "runtime_global_variables";

/// The rights by which a statement is judged.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub rights: Rights,
    /// PROXYSQL READONLY is in force.
    pub is_read_only: bool,
    /// Why nothing may be saved.
    pub seal: Option<String>,
    /// SQLite may work so long on the statement.
    pub patience: Duration,
}

/// The tables that a statement touches: (schema, table).
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    pub reads: BTreeSet<(String, String)>,
    pub writes: BTreeSet<(String, String)>,
    /// It would change rows or tables, allowed or not.
    pub tries_to_change: bool,
    denied: Option<String>,
}

/// Runs what uses the connection under `policy` and limits. What was noted is told of what failed, too.
pub(crate) fn guarded<T>(
    connection: &Connection,
    policy: Policy,
    work: impl FnOnce() -> rusqlite::Result<T>,
) -> (Result<T, SqlError>, Noted) {
    let noted = Arc::new(Mutex::new(Noted::default()));
    let result = set_up(connection, policy, &noted).and_then(|()| work());
    let cleared = tear_down(connection);
    let noted = std::mem::take(&mut *noted.lock().unwrap_or_else(PoisonError::into_inner));
    let result = match (result, &noted.denied) {
        (Ok(done), _) => cleared.map(|()| done).map_err(|error| refusal(&error)),
        (Err(error), Some(denied)) if is_denial(&error) => Err(SqlError::denied(denied.clone())),
        (Err(error), _) => Err(refusal(&error)),
    };
    (result, noted)
}

fn is_denial(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied)
        || error.to_string().contains("prohibited")
        || error.to_string().contains("not authorized")
}

fn set_up(connection: &Connection, policy: Policy, noted: &Arc<Mutex<Noted>>) -> rusqlite::Result<()> {
    let until = Instant::now() + policy.patience;
    connection.progress_handler(STEPS, Some(move || Instant::now() > until))?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES_MAX)?;
    let noted = noted.clone();
    connection.authorizer(Some(move |context: AuthContext<'_>| {
        let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
        match judge(&context, &policy, &mut noted) {
            Ok(()) => Authorization::Allow,
            Err(why) => {
                noted.denied.get_or_insert(why);
                Authorization::Deny
            }
        }
    }))
}

fn tear_down(connection: &Connection) -> rusqlite::Result<()> {
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)?;
    connection.progress_handler(0, None::<fn() -> bool>)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, i32::MAX)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, i32::MAX).map(|_| ())
}

fn judge(context: &AuthContext<'_>, policy: &Policy, noted: &mut Noted) -> Result<(), String> {
    let schema = context.database_name.unwrap_or_default();
    match context.action {
        AuthAction::Select | AuthAction::Recursive => Ok(()),
        AuthAction::Read { table_name, .. } => {
            let schema = if schema.is_empty() { home(table_name) } else { schema };
            read(schema, table_name, policy.rights)?;
            noted.reads.insert((schema.to_ascii_lowercase(), table_name.to_ascii_lowercase()));
            Ok(())
        }
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => {
            noted.tries_to_change = true;
            write(schema, table_name, policy)?;
            noted.writes.insert((schema.to_ascii_lowercase(), table_name.to_ascii_lowercase()));
            Ok(())
        }
        AuthAction::Function { function_name } => function(function_name),
        AuthAction::Pragma { pragma_name, .. } => pragma(pragma_name, policy.rights),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => {
            noted.tries_to_change = true;
            Err("files can't be attached or detached here".to_owned())
        }
        AuthAction::Transaction { .. } | AuthAction::Savepoint { .. } => {
            Err("each statement takes effect at once: there are no transactions here".to_owned())
        }
        _ => {
            noted.tries_to_change = true;
            Err("the tables of the admin interface are fixed: none can be created, altered or dropped"
                .to_owned())
        }
    }
}

/// Notes tables that SQLite does not ask about: those of which only the columns of USING or NATURAL JOIN are read. Every
/// word counts that is a table's name.
///
/// # Errors
/// Why one of them may not be read.
pub(super) fn note_joined(text: &str, rights: Rights, noted: &mut Noted) -> Result<(), String> {
    let Ok(tokens) = tokens(text) else { return Ok(()) };
    if !tokens.iter().any(|token| token.is("USING") || token.is("NATURAL")) {
        return Ok(());
    }
    for (at, token) in tokens.iter().enumerate() {
        let name = token.value().to_ascii_lowercase();
        let named = match at.checked_sub(2).and_then(|from| tokens.get(from..at)) {
            Some([schema, dot]) if dot.is_symbol('.') => schema.value().to_ascii_lowercase(),
            _ => String::new(),
        };
        let schema = if table(&named, &name).is_some() { &named } else { home(&name) };
        if !schema.is_empty() {
            read(schema, &name, rights)?;
            noted.reads.insert((schema.to_owned(), name));
        }
    }
    Ok(())
}

/// Where SQLite finds a table whose schema it does not tell, as in SELECT COUNT(*).
fn home(name: &str) -> &'static str {
    SCHEMAS.into_iter().find(|schema| table(schema, name).is_some()).unwrap_or_default()
}

fn read(schema: &str, name: &str, rights: Rights) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    // Not the tables' own rows, but SQLite's inside.
    if lower.starts_with("pragma_")
        || (lower.starts_with("sqlite_") && !is_catalogue(&lower))
        || lower == "dbstat"
    {
        return Err(format!("{lower} can't be read here"));
    }
    match schema.to_ascii_lowercase().as_str() {
        // A subquery or a common table expression.
        "" | "temp" | "information_schema" | "mysql" | STATS | MONITOR | STATS_HISTORY => Ok(()),
        MAIN | DISK if rights == Rights::Admin => Ok(()),
        MAIN if is_shown_to_all(&lower) => Ok(()),
        MAIN | DISK => Err(format!("{lower} is for admins (admin-admin_credentials)")),
        _ => Err(format!("there is no schema {schema}")),
    }
}

fn is_catalogue(name: &str) -> bool {
    matches!(name, "sqlite_master" | "sqlite_schema" | "sqlite_temp_master" | "sqlite_temp_schema")
}

/// What the users of admin-stats_credentials see of `main`: what is in force, except tables with secrets, which are
/// found by the names of their columns.
fn is_shown_to_all(name: &str) -> bool {
    let is_open = |table: &TableDef| !table.columns.iter().any(|column| is_secret_name(column.name));
    (name.starts_with("runtime_") && name != RUNTIME_VARIABLES && table(MAIN, name).is_some_and(is_open))
        || is_catalogue(name)
        || matches!(name, "json_each" | "json_tree")
}

fn write(schema: &str, name: &str, policy: &Policy) -> Result<(), String> {
    if policy.rights != Rights::Admin {
        return Err("this account may only read: log in as one of admin-admin_credentials".to_owned());
    }
    let is_configuration = table(schema, name).is_some_and(|table| table.module.is_some());
    if !is_configuration {
        let lower = name.to_ascii_lowercase();
        return Err(match lower.strip_prefix("runtime_") {
            Some(twin) => {
                format!("{lower} shows the active configuration: change {twin} and load it TO RUNTIME")
            }
            None => format!("{schema}.{lower} shows what Weir has observed: it can't be changed"),
        });
    }
    if policy.is_read_only {
        return Err("the admin interface is read-only; PROXYSQL READWRITE allows changes again".to_owned());
    }
    match &policy.seal {
        Some(why) if schema.eq_ignore_ascii_case(DISK) => Err(why.clone()),
        _ => Ok(()),
    }
}

/// What reaches out of the database.
fn function(name: &str) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    let reaches_out =
        ["load_extension", "readfile", "writefile", "edit", "fts3_tokenizer", "fsdir", "lsmode"];
    if reaches_out.contains(&lower.as_str()) {
        return Err(format!("the function {lower}() is not allowed at the admin port"));
    }
    Ok(())
}

/// What only looks.
fn pragma(name: &str, rights: Rights) -> Result<(), String> {
    let looks = [
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "integrity_check",
        "quick_check",
    ];
    if rights == Rights::Admin && looks.iter().any(|known| name.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    Err(format!("PRAGMA {} is not allowed at the admin port", name.to_ascii_lowercase()))
}
