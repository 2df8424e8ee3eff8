//! Runs LOAD and SAVE: rows between memory, runtime, disk and the file.

use weir_config::ConfigError;
use weir_store::{Layer, Loaded, Module, Store, StoreError};

use super::done;
use crate::command::{Move, Place};
use crate::error::SqlError;
use crate::reply::Reply;
use crate::session::{Session, Warning};

impl Session {
    /// Moves the rows of a module.
    pub(super) fn go(&mut self, way: Move) -> Result<Reply, SqlError> {
        match (way.from, way.to) {
            (Place::Memory, Place::Runtime) => return self.load_to_runtime(way.module),
            (Place::Memory, Place::Disk) => self.copy(way.module, Layer::Memory, Layer::Disk)?,
            (Place::Disk, Place::Memory) => self.copy(way.module, Layer::Disk, Layer::Memory)?,
            (Place::Runtime, Place::Memory) => {
                self.shared.store().save_runtime_to_memory(&[way.module]).map_err(refused)?;
            }
            (Place::File, Place::Memory) => self.load_from_file(way.module)?,
            (from, to) => {
                let (module, from, to) = (way.module.name(), from.name(), to.name());
                return Err(SqlError::syntax(format!("{module} can't be copied from {from} to {to}")));
            }
        }
        tracing::info!(user = self.user, module = way.module.name(), from = ?way.from, to = ?way.to, "admin");
        done("")
    }

    fn copy(&mut self, module: Module, from: Layer, to: Layer) -> Result<(), SqlError> {
        let mut store = self.shared.store();
        store.copy(module, from, to).map_err(refused)?;
        let is_kept = store.is_persistent();
        drop(store);
        if to == Layer::Disk && !is_kept {
            self.warn("this Weir has no database: what is saved is lost when it exits");
        }
        Ok(())
    }

    fn load_from_file(&mut self, module: Module) -> Result<(), SqlError> {
        let rows = self.shared.engine.file_rows().map_err(|faults| self.faults(faults))?;
        self.shared.store().merge(&[module], &rows).map_err(refused)
    }

    fn load_to_runtime(&mut self, module: Module) -> Result<Reply, SqlError> {
        self.refuse_unfiltered(module)?;
        self.put_in_force(module, |store| store.prepare_runtime(&[module]).map(Some))
    }

    /// Who switches a filter of statements on must not believe that it filters. One that is off, or has no rows that would
    /// do something, is loaded as it is.
    fn refuse_unfiltered(&mut self, module: Module) -> Result<(), SqlError> {
        let (sql, what, next) = match module {
            Module::MysqlFirewall => (
                "SELECT 'for ' || username || '@' || client_address FROM main.mysql_firewall_whitelist_users \
                 WHERE active = 1 AND mode <> 'OFF'",
                "mysql_firewall_whitelist_users has active rows",
                "give them mode 'OFF' or active = 0",
            ),
            Module::MysqlVariables => (
                "SELECT variable_name FROM main.global_variables WHERE variable_name IN \
                 ('mysql-firewall_whitelist_enabled', 'mysql-automatic_detect_sqli') \
                 AND LOWER(variable_value) IN ('true', '1')",
                "a filter of statements is enabled",
                "set it to false",
            ),
            _ => return Ok(()),
        };
        let store = self.shared.store();
        let found = store
            .connection()
            .prepare_cached(sql)
            .and_then(|mut rows| rows.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>());
        let found = found.map_err(|error| SqlError::other(error.to_string()))?;
        drop(store);
        match found.as_slice() {
            [] => Ok(()),
            [first, more @ ..] => {
                let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
                Err(self.faults(vec![format!(
                    "{what} ({first}{more}), and Weir has no firewall: no statement would be filtered. Nothing is loaded: \
                     {next}"
                )]))
            }
        }
    }

    /// One user as it is in memory; all others stay as they are in force.
    pub(super) fn load_user(&mut self, name: &str) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        self.put_in_force(Module::MysqlUsers, |store| store.prepare_user(name)).map_err(|error| {
            let message = error.message;
            SqlError { message: format!("LOAD MYSQL USER {name}: {message}"), ..error }
        })
    }

    /// Whole or not at all: what is in memory is checked together with what is in force of the other modules, taken by
    /// the running Weir, and only then it is what is in force.
    fn put_in_force(
        &mut self,
        module: Module,
        prepare: impl FnOnce(&Store) -> Result<Option<Loaded>, Vec<ConfigError>>,
    ) -> Result<Reply, SqlError> {
        let shared = self.shared.clone();
        let _one_at_a_time = shared.loading();
        let prepared = prepare(&shared.store());
        let loaded =
            prepared.map_err(|faults| self.faults(faults.iter().map(ToString::to_string).collect()))?;
        let Some(loaded) = loaded else {
            return Err(SqlError::other("there is no such user in mysql_users; nothing has changed"));
        };
        let warnings = shared.put_in_force(loaded, None).map_err(|faults| self.faults(faults))?;
        for warning in warnings {
            tracing::warn!(module = module.name(), warning, "admin: loaded to runtime, with a warning");
            self.warn(warning);
        }
        tracing::info!(user = self.user, module = module.name(), "admin: loaded to runtime");
        done("")
    }

    /// One error for all that is wrong; SHOW WARNINGS and the log have each.
    fn faults(&mut self, faults: Vec<String>) -> SqlError {
        let message = match faults.as_slice() {
            [fault] => fault.clone(),
            _ => format!("{} errors (SHOW WARNINGS lists all): {}", faults.len(), faults.join("; ")),
        };
        let error = SqlError::other(message);
        for fault in faults {
            tracing::warn!(user = self.user, fault, "admin: LOAD refused, nothing has changed");
            if self.warnings.len() < crate::limits::WARNINGS_MAX {
                self.warnings.push(Warning { level: "Error", code: error.error.code, message: fault });
            }
        }
        error
    }
}

fn refused(error: StoreError) -> SqlError {
    SqlError::other(error.to_string())
}
