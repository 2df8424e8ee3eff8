//! Checks what must hold for any bytes. The fuzz targets and the tests of their corpora call it.

mod session;

use std::cell::OnceCell;
use std::time::Duration;

use rusqlite::types::Value;
use weir_store::Store;

pub use self::session::fuzz_session;
use crate::audit;
use crate::command::{Command, parse};
use crate::error::SqlError;
use crate::limits::Memory;
use crate::login::Rights;
use crate::prepared::Prepared;
use crate::reply::{Reply, RowFormat};
use crate::sqlite::{self, Policy, SharedFacts};
use crate::tokens::tokens;

/// Longer texts only take longer.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// SQLite may work so long on a statement.
const PATIENCE: Duration = Duration::from_millis(50);
/// In a table that only admins may read.
const SECRET: &str = "a-password-that-nobody-sees";

/// Reads `data` as a statement. Panics if a promise does not hold.
pub fn fuzz_command(data: &[u8]) {
    let data = data.get(..TEXT_BYTES_MAX).unwrap_or(data);
    let text = String::from_utf8_lossy(data);
    if let Ok(tokens) = tokens(&text) {
        let mut end = 0;
        for token in &tokens {
            assert!(token.span.start >= end && !token.source.is_empty(), "{token:?}");
            assert_eq!(text.get(token.span.clone()), Some(token.source));
            assert!(token.value().len() <= token.source.len());
            end = token.span.end;
        }
    }
    match parse(&text) {
        Ok(Command::Sql(sql)) => {
            let again = tokens(&sql.text).map(|tokens| tokens.len());
            assert!(again.is_ok_and(|count| count > 0), "{:?} has become {:?}", text, sql.text);
        }
        Ok(command) => {
            audit::is_change(&command);
        }
        Err(error) => {
            assert!(!error.message.is_empty() && error.message.len() <= text.len() + 400, "{error:?}");
            audit::is_attempt(&error);
        }
    }
}

/// Reads `data` as packets about prepared statements: a byte says which, one how long its rest is. Panics if a promise
/// does not hold.
pub fn fuzz_prepared(data: &[u8]) {
    let (mut prepared, mut rest) = (Prepared::default(), data);
    while let Some((&[kind, length], after)) = rest.split_first_chunk() {
        let payload = after.get(..usize::from(length)).unwrap_or(after);
        rest = after.get(payload.len()..).unwrap_or_default();
        let id = payload.first_chunk::<4>().map_or(0, |id| u32::from_le_bytes(*id));
        match kind % 5 {
            0 => {
                let count = u16::from(length) * if kind & 0x80 == 0 { 1 } else { 257 };
                let _ = prepared.insert(String::from_utf8_lossy(payload).into_owned(), count);
            }
            1 => {
                if let Ok((_, values)) = prepared.execute(payload) {
                    let texts = values.iter().map(|value| match value {
                        Value::Text(text) => text.len(),
                        _ => 0,
                    });
                    // Long data, and a replacement character in place of each byte.
                    assert!(texts.sum::<usize>() <= 3 * (data.len() + 20 * values.len()));
                }
            }
            2 => prepared.long_data(payload),
            3 => prepared.close(id),
            _ => {
                prepared.reset(id);
            }
        }
    }
}

thread_local! {
    static STORE: OnceCell<Store> = const { OnceCell::new() };
}

/// Runs `data`, a byte that says who asks and how, and a statement, in a store in memory. Panics if it reaches what it
/// should not.
pub fn fuzz_sql(data: &[u8]) {
    let Some((&mode, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text.get(..TEXT_BYTES_MAX).unwrap_or(text));
    // What the admin interface passes to SQLite, or anything at all.
    let text = match (mode & 1, parse(&text)) {
        (0, Ok(Command::Sql(sql))) => sql.text,
        (0, _) => return,
        _ => text.into_owned(),
    };
    let rights = if mode & 2 == 0 { Rights::Admin } else { Rights::Stats };
    let policy = Policy { rights, is_read_only: mode & 4 != 0, seal: None, patience: PATIENCE };
    let format = if mode & 8 == 0 { RowFormat::Text } else { RowFormat::Binary };
    STORE.with(|store| run_as(store.get_or_init(store_with_secret), &text, policy, format));
}

fn run_as(store: &Store, text: &str, policy: Policy, format: RowFormat) {
    let connection = store.connection();
    let before = (Surroundings::of(store), connection.total_changes());
    connection.execute_batch("SAVEPOINT fuzz").unwrap_or_else(|error| panic!("{error}"));
    let (_, is_told) = sqlite::outline(connection, text, policy.clone());
    let reply = sqlite::run(connection, text, &[], policy.clone(), format, &Memory::default());
    let is_changed = connection.total_changes() != before.1;
    let is_as_before = before.0 == Surroundings::of(store);
    let undone = connection.execute_batch("ROLLBACK TO fuzz; RELEASE fuzz");
    undone.unwrap_or_else(|error| panic!("{text}: it has ended what was around it: {error}"));
    assert!(is_as_before, "{text}: schemas or tables are others");
    let may_write = policy.rights == Rights::Admin && !policy.is_read_only;
    assert!(may_write || !is_changed, "{text}: has changed something");
    assert!(is_told || !is_changed, "{text}: has changed something unnoticed");
    if policy.rights == Rights::Stats {
        assert!(!shows(&reply, SECRET), "{text}: has shown a secret");
    }
}

fn shows(reply: &Result<Reply, SqlError>, secret: &str) -> bool {
    match reply {
        Ok(Reply::Rows(rows)) => {
            let mut windows = rows.bytes().windows(secret.len());
            windows.any(|window| window == secret.as_bytes())
        }
        Ok(Reply::Done(done)) => done.info.contains(secret),
        Err(error) => error.message.contains(secret),
    }
}

/// What no statement may change.
#[derive(PartialEq)]
struct Surroundings {
    schemas: Vec<String>,
    /// Of all schemas.
    schema_versions: Vec<i64>,
}

impl Surroundings {
    fn of(store: &Store) -> Self {
        let connection = store.connection();
        let read = || -> rusqlite::Result<Self> {
            let mut statement =
                connection.prepare_cached("SELECT name || ' ' || file FROM pragma_database_list")?;
            let schemas = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
            let names = schemas.iter().map(|schema| schema.split(' ').next().unwrap_or_default());
            let version =
                |name| connection.query_row(&format!("PRAGMA {name}.schema_version"), [], |row| row.get(0));
            let schema_versions = names.map(version).collect::<Result<_, _>>()?;
            Ok(Self { schemas, schema_versions })
        };
        read().unwrap_or_else(|error| panic!("{error}"))
    }
}

/// As the admin interface has it, with a user whose password is [`SECRET`].
fn store_with_secret() -> Store {
    let open = || -> Result<Store, Box<dyn std::error::Error>> {
        let store = Store::in_memory()?;
        let connection = store.connection();
        sqlite::attach_information_schema(connection)?;
        sqlite::register(connection, &SharedFacts::default())?;
        for schema in ["main", "disk"] {
            let insert = format!("INSERT INTO {schema}.mysql_users (username, password) VALUES ('app', ?1)");
            connection.execute(&insert, [SECRET])?;
        }
        Ok(store)
    };
    open().unwrap_or_else(|error| panic!("{error}"))
}
