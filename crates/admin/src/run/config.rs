//! Writes the configuration as text, and sets variables one by one.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rusqlite::params;
use weir_config::Effect;
use weir_protocol::error;
use weir_store::Layer;

use super::done;
use crate::error::SqlError;
use crate::reply::Reply;
use crate::session::Session;

impl Session {
    /// What is in memory, as a configuration file.
    pub(super) fn config_text(&mut self) -> Result<String, SqlError> {
        let rows =
            self.shared.store().rows(Layer::Memory).map_err(|error| SqlError::other(error.to_string()))?;
        self.shared.engine.config_text(&rows).map_err(SqlError::other)
    }

    /// SAVE CONFIG TO FILE: a new file that only its owner can read, as there are passwords in it.
    pub(super) fn save_config(&mut self, path: &str) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        if !Path::new(path).is_absolute() {
            return Err(SqlError::new(error::WRONG_ARGUMENTS, "give the absolute path of the file"));
        }
        let text = self.config_text()?;
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| {
            let hint = match error.kind() {
                std::io::ErrorKind::AlreadyExists => " (an existing file is never overwritten)",
                _ => "",
            };
            SqlError::other(format!("{path}: {error}{hint}"))
        })?;
        tracing::info!(user = self.user, path, "admin: configuration written");
        done(&format!("File {path} written"))
    }

    /// SET mysql-x = y. How many rows have changed.
    pub(super) fn set_variable(&mut self, name: &str, value: &str) -> Result<u64, SqlError> {
        self.needs_admin()?;
        known(name)?;
        if self.shared.is_read_only() {
            return Err(SqlError::denied(
                "the admin interface is read-only; PROXYSQL READWRITE allows changes again",
            ));
        }
        let store = self.shared.store();
        let changed = store.connection().execute(
            "INSERT INTO main.global_variables (variable_name, variable_value) VALUES (?1, ?2) \
             ON CONFLICT (variable_name) DO UPDATE SET variable_value = excluded.variable_value",
            params![name, value],
        );
        drop(store);
        let changed = changed.map_err(|error| SqlError::other(error.to_string()))?;
        self.has_written = true;
        self.warn_without_effect(name, value);
        Ok(changed as u64)
    }

    /// Never silence about what changes nothing.
    pub(super) fn warn_without_effect(&mut self, name: &str, value: &str) {
        let Some(variable) = weir_config::variable(&name.to_ascii_lowercase()) else { return };
        let is_default = value.eq_ignore_ascii_case(variable.default_value());
        match variable.effect {
            Effect::None => self.warn(format!("{name} has no effect in Weir")),
            Effect::OnlyOff if !is_default => {
                self.warn(format!("{name} has no effect in Weir: it stays off"))
            }
            Effect::Built | Effect::OneValue | Effect::OnlyOff => {}
        }
    }
}

/// Names of variables are known, and a typing error should not wait for LOAD.
pub(super) fn known(name: &str) -> Result<(), SqlError> {
    if weir_config::variable(&name.to_ascii_lowercase()).is_some() {
        return Ok(());
    }
    let hint = weir_config::nearest_variable(name).map(|near| format!(", did you mean '{near}'?"));
    let message = format!("Unknown global variable: '{name}'{}", hint.unwrap_or_default());
    Err(SqlError::new(error::UNKNOWN_SYSTEM_VARIABLE, message))
}
