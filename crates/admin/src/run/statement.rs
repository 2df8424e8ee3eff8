//! Runs SQL: what it reads is brought up to date, then SQLite runs it.

use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;
use std::time::Instant;

use rusqlite::Connection;
use weir_config::nearest;
use weir_protocol::error;
use weir_store::{GLOBAL_VARIABLES, MAIN, MONITOR, STATS, STATS_HISTORY, Store, TableDef, Value, table};

use super::config::known;
use crate::command::Sql;
use crate::digest_db::{self, Read};
use crate::error::SqlError;
use crate::reply::{Reply, RowFormat};
use crate::response_cache::Question;
use crate::session::Session;
use crate::sqlite::{self, Outline, SharedFacts};
use crate::variables::{all, bare, system};

/// A query of the engine's tables.
struct Asked<'a> {
    text: &'a str,
    parameters: &'a [Value],
    format: RowFormat,
    arrived: Instant,
    /// Whether it is asked by one of many.
    is_crowded: bool,
}

impl Session {
    /// Columns and parameters of a statement.
    pub(super) fn outline_sql(&mut self, sql: &Sql) -> Result<(Vec<String>, usize), SqlError> {
        let outline = self.look(&sql.text)?;
        Ok((outline.columns, outline.parameters))
    }

    /// The same for a query of Weir's own.
    pub(super) fn outline_query(&mut self, query: &str) -> Result<(Vec<String>, usize), SqlError> {
        let outline = self.look(query)?;
        Ok((outline.columns, 0))
    }

    /// Runs a statement of the user's.
    pub(super) fn sql(
        &mut self,
        sql: &Sql,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let asked = self.asked(&sql.text, parameters, format);
        if let Some(rows) = self.shelved(&asked) {
            return Ok(rows);
        }
        let outline = self.look(&sql.text)?;
        let writes_variables = outline.noted.writes.iter().any(|(_, name)| name == GLOBAL_VARIABLES);
        if writes_variables {
            sql.variables.iter().try_for_each(|name| known(name))?;
        }
        if self.changes_rows {
            self.shared.shutdown.check_change()?;
        }
        self.has_written |= self.changes_rows;
        let variables = self.system_variables(&sql.system)?;
        if writes_variables {
            return self.write_variables(sql, parameters, format);
        }
        self.query_fresh(&asked, &outline, variables)
    }

    /// Runs a query of Weir's own, with this account's rights.
    pub(super) fn query(
        &mut self,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let asked = self.asked(text, parameters, format);
        if let Some(rows) = self.shelved(&asked) {
            return Ok(rows);
        }
        let outline = self.look(text)?;
        self.query_fresh(&asked, &outline, HashMap::new())
    }

    fn look(&mut self, text: &str) -> Result<Outline, SqlError> {
        let store = self.shared.store();
        let (outline, changes) = sqlite::outline(store.connection(), text, self.policy(&store));
        drop(store);
        self.changes_rows |= changes;
        outline
    }

    /// What is read of the engine's tables is as of the statement's arrival at least, or nearly so in a crowd. Who comes
    /// while another one has them filled shares that.
    fn query_fresh(
        &self,
        asked: &Asked<'_>,
        outline: &Outline,
        variables: HashMap<String, String>,
    ) -> Result<Reply, SqlError> {
        let Asked { text, parameters, format, .. } = *asked;
        let live: Vec<_> =
            outline.noted.reads.iter().filter_map(|(schema, name)| live(schema, name)).collect();
        if live.is_empty() {
            return self.in_sqlite(&self.shared.store(), text, parameters, format, variables);
        }
        let is_about_digests = outline.noted.writes.is_empty()
            && outline.noted.reads.iter().all(|(schema, name)| digest_db::has(schema, name));
        if is_about_digests {
            return self.query_digests(asked, &live, variables);
        }
        let shared = self.shared.clone();
        let mut refreshed = shared.refreshed();
        if let Some(rows) = self.shelved(asked) {
            return Ok(rows);
        }
        let oldest = shared.response_cache().oldest(asked.arrived, asked.is_crowded);
        let read = digest_db::refresh(&*shared.engine, &live, &mut refreshed, oldest, |table, rows| {
            shared.store().put(table.schema, &table.name, rows)
        })?;
        if outline.noted.reads.iter().any(|(schema, name)| sqlite::is_processlist(schema, name)) {
            let filled = sqlite::fill_processlist(shared.store().connection());
            filled.map_err(|error| SqlError::other(error.to_string()))?;
        }
        // Still under the lock: what a reset has given is read by who asked for it.
        let reply = self.in_sqlite(&shared.store(), text, parameters, format, variables);
        // For others, too, where it is of nothing but the engine's tables.
        let is_shared = outline.noted.reads.len() == live.len();
        self.shelve(asked, &reply, &read, is_shared);
        reply
    }

    /// The same in a database where nothing but digests is: nobody else waits meanwhile.
    fn query_digests(
        &self,
        asked: &Asked<'_>,
        live: &[&TableDef],
        variables: HashMap<String, String>,
    ) -> Result<Reply, SqlError> {
        let shared = &self.shared;
        let policy = self.policy(&shared.store());
        shared.digest_db.with(|db| {
            if let Some(rows) = self.shelved(asked) {
                return Ok(rows);
            }
            let oldest = shared.response_cache().oldest(asked.arrived, asked.is_crowded);
            let read = db.refresh(&*shared.engine, live, oldest)?;
            self.tell_facts(&db.facts, variables);
            let connection = db.store.connection();
            let reply =
                sqlite::run(connection, asked.text, asked.parameters, policy, asked.format, &shared.memory);
            self.shelve(asked, &reply, &read, true);
            reply
        })
    }

    fn asked<'a>(&self, text: &'a str, parameters: &'a [Value], format: RowFormat) -> Asked<'a> {
        let is_crowded = self.shared.is_crowded();
        Asked { text, parameters, format, arrived: Instant::now(), is_crowded }
    }

    /// What another session of a crowd was answered a moment ago.
    fn shelved(&self, asked: &Asked<'_>) -> Option<Reply> {
        let question = self.question(asked)?;
        self.shared.response_cache().find(&question, asked.arrived).map(Reply::Rows)
    }

    /// Keeps an answer for others of the crowd. After a reset nothing that was seen before counts.
    fn shelve(&self, asked: &Asked<'_>, reply: &Result<Reply, SqlError>, read: &Read, is_shared: bool) {
        if read.has_reset {
            self.shared.response_cache().clear();
        } else if let (Ok(Reply::Rows(rows)), true) = (reply, is_shared)
            && let Some(question) = self.question(asked)
        {
            self.shared.response_cache().insert(question, read.at, rows);
        }
    }

    /// What a crowd may share the answer of.
    fn question(&self, asked: &Asked<'_>) -> Option<Question> {
        let may_be_shared = asked.is_crowded && asked.parameters.is_empty();
        may_be_shared.then(|| Question::of(asked.text, self.rights, asked.format)).flatten()
    }

    fn in_sqlite(
        &self,
        store: &Store,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
        variables: HashMap<String, String>,
    ) -> Result<Reply, SqlError> {
        self.tell_facts(&self.shared.facts, variables);
        let policy = self.policy(store);
        sqlite::run(store.connection(), text, parameters, policy, format, &self.shared.memory)
    }

    /// What functions know, under the lock of the database whose they are.
    fn tell_facts(&self, facts: &SharedFacts, variables: HashMap<String, String>) {
        let mut facts = facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.user.clone_from(&self.user);
        facts.schema.clone_from(&self.schema);
        facts.thread_id = self.thread_id;
        facts.variables = variables;
    }

    /// A change of `global_variables`: no unknown name gets in, and what is without effect is told.
    fn write_variables(
        &mut self,
        sql: &Sql,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let shared = self.shared.clone();
        let store = shared.store();
        let failed = |error: rusqlite::Error| SqlError::other(error.to_string());
        let before = variable_rows(store.connection()).map_err(failed)?;
        store.connection().execute_batch("SAVEPOINT weir_variables").map_err(failed)?;
        let reply = self.in_sqlite(&store, &sql.text, parameters, format, HashMap::new()).and_then(|reply| {
            let after = variable_rows(store.connection()).map_err(failed)?;
            let changed: Vec<_> = after.difference(&before).cloned().collect();
            changed.iter().try_for_each(|(name, _)| known(name))?;
            Ok((reply, changed))
        });
        let end = if reply.is_ok() { "" } else { "ROLLBACK TO weir_variables; " };
        store.connection().execute_batch(&format!("{end}RELEASE weir_variables")).map_err(failed)?;
        drop(store);
        let (reply, changed) = reply?;
        for (name, value) in changed {
            self.warn_without_effect(&name, &value);
        }
        Ok(reply)
    }

    /// The values of `@@variables`.
    fn system_variables(&self, names: &[String]) -> Result<HashMap<String, String>, SqlError> {
        let mut values = HashMap::new();
        for name in names {
            let bare = bare(name);
            let value = match system(bare) {
                _ if bare.eq_ignore_ascii_case("warning_count") => Some(self.warnings.len().to_string()),
                Some(value) => Some(value.to_owned()),
                None if bare.contains('-') => {
                    self.needs_admin()?;
                    let store = self.shared.store();
                    let query = "SELECT variable_value FROM main.global_variables WHERE variable_name = ?1 \
                                 COLLATE NOCASE";
                    store.connection().query_row(query, [bare], |row| row.get(0)).ok()
                }
                None => None,
            };
            let Some(value) = value else { return Err(unknown_variable(bare)) };
            values.insert(name.clone(), value);
        }
        Ok(values)
    }

    /// TRUNCATE: of a table of counters, that they begin again.
    pub(super) fn truncate(&mut self, schema: Option<&str>, name: &str) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        let unknown = || SqlError::new(error::NO_SUCH_TABLE, format!("no such table: {name}"));
        let found = self.find_table(schema, name).ok_or_else(unknown)?;
        let twin =
            if found.name.ends_with("_reset") { found.name.clone() } else { format!("{}_reset", found.name) };
        if found.schema == STATS && table(STATS, &twin).is_some() {
            let shared = self.shared.clone();
            let begin_again = || shared.engine.rows_and_reset(&twin, &mut |_| ());
            if digest_db::has(STATS, &twin) {
                shared.digest_db.with(|_| {
                    begin_again();
                    Ok(())
                })?;
            } else {
                let _one_at_a_time = shared.refreshed();
                begin_again();
            }
            return super::done("");
        }
        let text = format!("DELETE FROM {}.{}", found.schema, found.name);
        self.sql(&Sql { text, ..Sql::default() }, &[], RowFormat::Text)
    }
}

/// The table whose rows are the engine's, if one is read.
fn live(schema: &str, name: &str) -> Option<&'static TableDef> {
    if sqlite::is_processlist(schema, name) {
        return table(STATS, "stats_mysql_processlist");
    }
    let found = table(schema, name)?;
    let is_live = match found.schema {
        STATS | MONITOR | STATS_HISTORY => true,
        MAIN => found.is_runtime(),
        _ => false,
    };
    is_live.then_some(found)
}

/// Names and values, in memory and on disk.
fn variable_rows(connection: &Connection) -> rusqlite::Result<BTreeSet<(String, String)>> {
    let mut rows = BTreeSet::new();
    for schema in ["main", "disk"] {
        let query =
            format!("SELECT variable_name, CAST(variable_value AS TEXT) FROM {schema}.{GLOBAL_VARIABLES}");
        let mut statement = connection.prepare(&query)?;
        let found = statement.query_map([], |row| {
            let value: Option<String> = row.get(1)?;
            Ok((row.get(0)?, value.unwrap_or_default()))
        })?;
        for row in found {
            rows.insert(row?);
        }
    }
    Ok(rows)
}

fn unknown_variable(name: &str) -> SqlError {
    let near = nearest(name, all().map(|(name, _)| name)).or_else(|| weir_config::nearest_variable(name));
    let hint = near.map(|near| format!(", did you mean '{near}'?"));
    let message = format!("Unknown system variable '{name}'{}", hint.unwrap_or_default());
    SqlError::new(error::UNKNOWN_SYSTEM_VARIABLE, message)
}
