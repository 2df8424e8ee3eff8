//! Keeps `stats_history`: counters as they were, in the datadir (`weir_stats.db`) with a row for each interval, each hour and
//! each day. A process that is killed loses at most the row that it was writing.
//!
//! The writer has a connection of its own: with the write-ahead log of that file nobody who reads waits for it.

mod series;

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, params};
use series::{CONNECTIONS, CPU, Fold, MEMORY, POOL, STATUS, Series};
use weir_store::Value;

use crate::tables::Rows;

/// How long a statement waits for another that writes.
const BUSY: Duration = Duration::from_secs(5);
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
/// How long rows stay (ProxySQL keeps them as long): those of an interval, of an hour, of a day.
const KEPT_S: [u64; 3] = [7 * DAY_S, 365 * DAY_S, 2 * 365 * DAY_S];

/// Something of which rows are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Subject {
    /// `mysql_connections`, `myhgm_connections` and `history_mysql_status_variables`
    Connections,
    /// `history_stats_mysql_connection_pool`
    ConnectionPool,
    /// `system_cpu`
    Cpu,
    /// `system_memory`
    Memory,
    /// `history_mysql_query_digest`; the digests begin again.
    Digests,
}

impl Subject {
    pub(crate) const ALL: [Self; 5] =
        [Self::Connections, Self::ConnectionPool, Self::Cpu, Self::Memory, Self::Digests];
}

/// The source of the present numbers.
pub(crate) trait Figures {
    /// The values of `stats_mysql_global`, by name.
    fn global(&self) -> Vec<(&'static str, u64)>;
    /// The rows of `stats_mysql_connection_pool`.
    fn connection_pool(&self) -> Rows;
    /// User and system time, in clock ticks.
    fn cpu_ticks(&self) -> (u64, u64);
    /// Memory taken, in RAM, and mapped, in bytes.
    fn memory_bytes(&self) -> (u64, u64, u64);
}

/// Writes rows.
pub(crate) struct History {
    connection: Connection,
    /// The last hour for which hours, days and old rows have been seen to.
    tidied: Option<u64>,
}

impl History {
    /// Opens the file, whose tables are there.
    ///
    /// # Errors
    /// If it can't be opened.
    pub(crate) fn open(path: &Path) -> Result<Self, rusqlite::Error> {
        // Not made where it is missing: its tables would be missing too.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        Ok(Self { connection, tidied: None })
    }

    /// Adds the rows of now (seconds since 1970): all of them or none.
    ///
    /// # Errors
    /// If the file can't be written, such as with a full disk.
    pub(crate) fn record(
        &mut self,
        subject: Subject,
        now_s: u64,
        figures: &impl Figures,
    ) -> Result<(), rusqlite::Error> {
        match subject {
            Subject::Connections => self.record_global(now_s, &figures.global()),
            Subject::Cpu => {
                let (user, system) = figures.cpu_ticks();
                insert(
                    &self.connection,
                    &CPU,
                    now_s,
                    |column| if column == "tms_utime" { user } else { system },
                )
            }
            Subject::Memory => {
                let (taken, resident, mapped) = figures.memory_bytes();
                insert(&self.connection, &MEMORY, now_s, |column| match column {
                    "allocated" | "active" => taken,
                    "resident" => resident,
                    "mapped" => mapped,
                    _ => 0,
                })
            }
            Subject::ConnectionPool => {
                self.insert_rows("history_stats_mysql_connection_pool", now_s, &figures.connection_pool())
            }
            // See History::record_digests.
            Subject::Digests => Ok(()),
        }
    }

    /// Adds digests as they were at that time: all of them or none.
    ///
    /// # Errors
    /// As [`History::record`].
    pub(crate) fn record_digests(&mut self, at_s: u64, rows: &Rows) -> Result<(), rusqlite::Error> {
        self.insert_rows("history_mysql_query_digest", at_s, rows)
    }

    fn record_global(&mut self, now_s: u64, values: &[(&'static str, u64)]) -> Result<(), rusqlite::Error> {
        let value =
            |name: &str| values.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value);
        let transaction = self.connection.transaction()?;
        insert(&transaction, &CONNECTIONS, now_s, value)?;
        insert(&transaction, &POOL, now_s, value)?;
        for (name, value) in values {
            transaction
                .prepare_cached(
                    "INSERT OR IGNORE INTO history_mysql_status_variables_lookup (variable_name) VALUES (?1)",
                )?
                .execute([name])?;
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO history_mysql_status_variables \
                     SELECT variable_id, ?2, ?3 FROM history_mysql_status_variables_lookup \
                     WHERE variable_name = ?1",
                )?
                .execute(params![name, stored(now_s), value.to_string()])?;
        }
        transaction.commit()
    }

    fn insert_rows(&mut self, table: &str, now_s: u64, rows: &Rows) -> Result<(), rusqlite::Error> {
        let transaction = self.connection.transaction()?;
        for row in rows {
            let places: Vec<String> = (2..row.len() + 2).map(|at| format!("?{at}")).collect();
            let statement = format!("INSERT OR REPLACE INTO {table} VALUES (?1, {})", places.join(", "));
            let values = std::iter::once(Value::Integer(stored(now_s))).chain(row.iter().cloned());
            transaction.prepare_cached(&statement)?.execute(rusqlite::params_from_iter(values))?;
        }
        transaction.commit()
    }

    /// Makes the rows of hours and days that are complete, and removes those that are too old. Does nothing but once an
    /// hour.
    ///
    /// # Errors
    /// If the file can't be written; what is left to do is done the next time.
    pub(crate) fn tidy(&mut self, now_s: u64) -> Result<(), rusqlite::Error> {
        let hour = now_s / HOUR_S;
        if self.tidied == Some(hour) {
            return Ok(());
        }
        let transaction = self.connection.transaction()?;
        for series in [&CONNECTIONS, &POOL, &CPU, &MEMORY, &STATUS] {
            let (table, hours) = (series.table, format!("{}_hour", series.table));
            series.fold(&transaction, table, &hours, HOUR_S, now_s)?;
            prune(&transaction, table, "timestamp", now_s, KEPT_S[0])?;
            if series.has_days {
                let days = format!("{}_day", series.table);
                series.fold(&transaction, &hours, &days, DAY_S, now_s)?;
                prune(&transaction, &days, "timestamp", now_s, KEPT_S[2])?;
            }
            prune(&transaction, &hours, "timestamp", now_s, KEPT_S[1])?;
        }
        prune(&transaction, "history_stats_mysql_connection_pool", "timestamp", now_s, KEPT_S[0])?;
        prune(&transaction, "history_mysql_query_digest", "dump_time", now_s, KEPT_S[0])?;
        transaction.commit()?;
        self.tidied = Some(hour);
        Ok(())
    }
}

fn insert(
    connection: &Connection,
    series: &Series,
    now_s: u64,
    value: impl Fn(&str) -> u64,
) -> Result<(), rusqlite::Error> {
    let places: Vec<String> = (2..series.columns.len() + 2).map(|at| format!("?{at}")).collect();
    let statement = format!("INSERT OR REPLACE INTO {} VALUES (?1, {})", series.table, places.join(", "));
    let values = series.columns.iter().map(|(column, _): &(&str, Fold)| stored(value(column)));
    let values = std::iter::once(stored(now_s)).chain(values);
    connection.prepare_cached(&statement)?.execute(rusqlite::params_from_iter(values)).map(drop)
}

fn prune(
    connection: &Connection,
    table: &str,
    column: &str,
    now_s: u64,
    kept_s: u64,
) -> Result<(), rusqlite::Error> {
    let oldest = stored(now_s.saturating_sub(kept_s));
    connection.execute(&format!("DELETE FROM {table} WHERE {column} < ?1"), [oldest]).map(drop)
}

/// SQLite's numbers have a sign.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
