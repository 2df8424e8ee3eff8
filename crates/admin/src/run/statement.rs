//! SQL: what it reads is brought up to date, then SQLite runs it.

use std::collections::{BTreeSet, HashMap};
use std::sync::PoisonError;
use std::time::Instant;

use rusqlite::Connection;
use weir_protocol::error;
use weir_store::{GLOBAL_VARIABLES, MAIN, MONITOR, STATS, STATS_HISTORY, Store, TableDef, Value, table};

use super::config::known;
use crate::command::Sql;
use crate::engine::Rows;
use crate::error::SqlError;
use crate::reply::{Reply, RowFormat};
use crate::session::Session;
use crate::shelf::Question;
use crate::sqlite::{self, Outline};
use crate::suggest::nearest;
use crate::variables::{all, bare, system};

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
        let arrived = Instant::now();
        if let Some(rows) = self.shelved(&sql.text, parameters, format, arrived) {
            return Ok(rows);
        }
        let outline = self.look(&sql.text)?;
        let writes_variables = outline.noted.writes.iter().any(|(_, name)| name == GLOBAL_VARIABLES);
        if writes_variables {
            sql.variables.iter().try_for_each(|name| known(name))?;
        }
        if self.changes_rows {
            self.office.leaving.check_change()?;
        }
        self.has_written |= self.changes_rows;
        let variables = self.system_variables(&sql.system)?;
        if writes_variables {
            return self.write_variables(sql, parameters, format);
        }
        self.query_fresh(&sql.text, parameters, format, &outline, arrived, variables)
    }

    /// Runs a query of Weir's own, with this account's rights.
    pub(super) fn query(
        &mut self,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let arrived = Instant::now();
        if let Some(rows) = self.shelved(text, parameters, format, arrived) {
            return Ok(rows);
        }
        let outline = self.look(text)?;
        self.query_fresh(text, parameters, format, &outline, arrived, HashMap::new())
    }

    fn look(&mut self, text: &str) -> Result<Outline, SqlError> {
        let store = self.office.store();
        let (outline, changes) = sqlite::outline(store.connection(), text, self.policy(&store));
        drop(store);
        self.changes_rows |= changes;
        outline
    }

    /// What another session of a crowd was answered a moment ago.
    fn shelved(
        &self,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
        arrived: Instant,
    ) -> Option<Reply> {
        let question = Question::of(text, self.rights, format).filter(|_| parameters.is_empty())?;
        let is_crowded = self.office.is_crowded();
        is_crowded.then(|| self.office.shelf().find(&question, arrived)).flatten().map(Reply::Rows)
    }

    /// What is read of the engine's tables is as of the statement's arrival at least, or nearly so in a crowd. Who comes
    /// while another one has them filled shares that.
    fn query_fresh(
        &mut self,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
        outline: &Outline,
        arrived: Instant,
        variables: HashMap<String, String>,
    ) -> Result<Reply, SqlError> {
        let live: Vec<_> =
            outline.noted.reads.iter().filter_map(|(schema, name)| live(schema, name)).collect();
        if live.is_empty() {
            return self.in_sqlite(&self.office.store(), text, parameters, format, variables);
        }
        let is_shared = outline.noted.reads.len() == live.len();
        let office = self.office.clone();
        let mut refreshed = office.refreshed();
        if let Some(rows) = self.shelved(text, parameters, format, arrived) {
            return Ok(rows);
        }
        let is_crowded = office.is_crowded();
        let oldest = office.shelf().oldest(arrived, is_crowded);
        let (mut read_at, mut has_reset) = (Instant::now(), false);
        for table in live {
            let name = format!("{}.{}", table.schema, table.name);
            let is_reset = table.name.ends_with("_reset");
            if let Some(at) = refreshed.get(&name).filter(|at| !is_reset && **at >= oldest) {
                read_at = read_at.min(*at);
                continue;
            }
            has_reset |= is_reset;
            let now = Instant::now();
            let mut put = None;
            let mut take = |rows: Rows<'_>| put = Some(office.store().put(table.schema, &table.name, rows));
            match is_reset {
                true => office.engine.rows_and_reset(&table.name, &mut take),
                false => office.engine.rows(&table.name, &mut take),
            }
            let Some(put) = put else { continue };
            put.map_err(|error| SqlError::other(error.to_string()))?;
            refreshed.insert(name, now);
        }
        if outline.noted.reads.iter().any(|(schema, name)| sqlite::is_processlist(schema, name)) {
            let filled = sqlite::fill_processlist(office.store().connection());
            filled.map_err(|error| SqlError::other(error.to_string()))?;
        }
        // Still under the lock: what a reset has given is read by who asked for it.
        let reply = self.in_sqlite(&office.store(), text, parameters, format, variables);
        if has_reset {
            office.shelf().clear();
        } else if let (Ok(Reply::Rows(rows)), true) =
            (&reply, is_shared && is_crowded && parameters.is_empty())
            && let Some(question) = Question::of(text, self.rights, format)
        {
            office.shelf().keep(question, read_at, rows);
        }
        reply
    }

    fn in_sqlite(
        &self,
        store: &Store,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
        variables: HashMap<String, String>,
    ) -> Result<Reply, SqlError> {
        let mut facts = self.office.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.user.clone_from(&self.user);
        facts.schema.clone_from(&self.schema);
        facts.thread_id = self.thread_id;
        facts.variables = variables;
        drop(facts);
        let policy = self.policy(store);
        sqlite::run(store.connection(), text, parameters, policy, format, &self.office.memory)
    }

    /// A change of `global_variables`: no unknown name gets in, and what is without effect is told.
    fn write_variables(
        &mut self,
        sql: &Sql,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let office = self.office.clone();
        let store = office.store();
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
                    let store = self.office.store();
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
            let _one_at_a_time = self.office.refreshed();
            self.office.engine.rows_and_reset(&twin, &mut |_| ());
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
