//! Puts a configuration in force: whole or not at all, one at a time.

use std::sync::Arc;

use weir_config::TableRows;
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
    /// What adds rows to a table of a module that is in force, and to what is being edited of it. Comes back with warnings, or
    /// with why nothing has changed.
    pub fn adder(&self) -> impl Fn(Module, TableRows) -> Result<Vec<String>, Vec<String>> + Send + use<> {
        let shared = self.shared.clone();
        move |module, added| {
            let as_text = |error: weir_store::StoreError| vec![error.to_string()];
            let _one_at_a_time = shared.loading();
            let mut rows = shared.store().rows_of(&[module], Layer::Runtime).map_err(as_text)?;
            rows.append(added.clone());
            let prepared = shared.store().prepare_rows(&[module], rows);
            let loaded =
                prepared.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>())?;
            let warnings = shared.put_in_force(loaded, None)?;
            shared.store().merge(&[module], &added).map_err(as_text)?;
            Ok(warnings)
        }
    }
}

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
