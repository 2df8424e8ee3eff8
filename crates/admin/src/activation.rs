//! Puts a configuration in force: whole or not at all, one at a time.

use std::sync::Arc;

use weir_config::{MysqlServer, TableRow, TableRows};
use weir_store::{Layer, Loaded, Module};

use crate::server::{Admin, AdminShared};
use crate::settings::Settings;

impl Admin {
    /// What puts the rows of another proxy in force here: a module, its rows, their epoch, and whether they are saved,
    /// too. Comes back with warnings, or with why nothing has changed. What was being edited of the module is lost.
    pub fn taker(
        &self,
    ) -> impl Fn(Module, TableRows, u64, bool) -> Result<Vec<String>, Vec<String>> + Send + use<> {
        let shared = self.shared.clone();
        move |module, rows, epoch, is_saved| {
            let _one_at_a_time = shared.loading();
            let prepared = shared.store().prepare_foreign(module, &rows);
            let loaded =
                prepared.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
            let mut warnings = shared.put_in_force(loaded, Some(epoch))?;
            let mut store = shared.store();
            let mut note = |done: Result<(), weir_store::StoreError>| {
                warnings.extend(done.err().map(|error| format!("activated, but not recorded: {error}")));
            };
            note(store.save_runtime_to_memory(&[module]));
            if is_saved {
                note(store.copy(module, Layer::Runtime, Layer::Disk));
            }
            drop(store);
            Ok(warnings)
        }
    }
}

impl Admin {
    /// What adds servers to those that are in force, if these are still `compared`, and to those that are edited, if they are
    /// not there. It never counts as later than what a person has loaded. Comes back with why nothing has changed.
    pub fn server_adder(
        &self,
    ) -> impl Fn(&[MysqlServer], TableRows) -> Result<(), Vec<String>> + Send + use<> {
        let shared = self.shared.clone();
        move |compared, added| {
            const MODULE: Module = Module::MysqlServers;
            let as_text = |error: weir_store::StoreError| vec![error.to_string()];
            let _one_at_a_time = shared.loading();
            let (loaded, epoch, edited) = {
                let store = shared.store();
                let mut rows = store.rows_of(&[MODULE], Layer::Runtime).map_err(as_text)?;
                rows.append(added.clone());
                let loaded = store
                    .prepare_rows(&[MODULE], rows)
                    .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
                let versions = store.versions().map_err(as_text)?;
                let epoch = versions.iter().find(|version| version.module == MODULE).map_or(0, |of| of.epoch);
                (loaded, epoch, store.rows_of(&[MODULE], Layer::Memory).map_err(as_text)?)
            };
            // In whatever order they are kept.
            let in_force = &loaded.config.servers;
            let is_as_compared = in_force.len() == compared.len() + added.of(SERVERS).len()
                && compared.iter().all(|row| in_force.contains(row));
            if !is_as_compared {
                return Err(vec!["other servers have been loaded meanwhile".to_owned()]);
            }
            let is_later = u64::from(epoch > 0);
            shared.put_in_force(loaded, Some(epoch + is_later))?;
            let is_edited = |row: &&TableRow| {
                let is_same = |one: &TableRow, other: &TableRow| {
                    KEY.iter().all(|column| one.get(column) == other.get(column))
                };
                edited.of(SERVERS).iter().any(|there| is_same(there, row))
            };
            let mut missing = TableRows::new();
            let rows = added.of(SERVERS).iter().filter(|row| !is_edited(row));
            rows.for_each(|row| missing.push(SERVERS, row.clone()));
            shared.store().merge(&[MODULE], &missing).map_err(as_text)
        }
    }
}

/// The table of servers, and where one is.
const SERVERS: &str = "mysql_servers";
const KEY: [&str; 2] = ["hostname", "port"];

impl AdminShared {
    /// Has the running Weir go by a configuration, and only then notes that it is in force; `epoch` is when it was
    /// made, if that was elsewhere. The caller holds `loading`. `Ok` has warnings.
    pub(crate) fn put_in_force(
        self: &Arc<Self>,
        loaded: Loaded,
        epoch: Option<u64>,
    ) -> Result<Vec<String>, Vec<String>> {
        let admin = if loaded.modules().contains(&Module::AdminVariables) {
            let settings = Settings::from(&loaded.config.admin);
            let bound = self.bind(&settings).map_err(|error| vec![error.to_string()])?;
            Some((settings, bound))
        } else {
            None
        };
        // Not under the store's lock: the thread that takes the configuration may want the store.
        let mut warnings = self.engine.apply(&loaded.config)?;
        // The engine compares the whole of it.
        warnings.retain(|warning| loaded.concerns(warning));
        warnings.extend(loaded.warnings.iter().map(ToString::to_string));
        let noted = match epoch {
            Some(epoch) => self.store().commit_runtime_of(loaded, epoch),
            None => self.store().commit_runtime(loaded),
        };
        noted.map_err(|error| vec![error.to_string()])?;
        if let Some((settings, bound)) = admin {
            self.go_by(&settings, bound).map_err(|error| vec![error.to_string()])?;
        }
        Ok(warnings)
    }
}
