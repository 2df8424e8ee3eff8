//! Puts what is edited in force, and tells which configuration that is.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension, params};
use weir_config::{Config, ConfigError, PartialRead, Strictness, TableRows, read_rows_for, variables};

use crate::changed_rows::KeptRows;
use crate::open::{DATABASE_FILE, of_file};
use crate::rows::{copy_sql, is_of, is_shared, tables_of};
use crate::tables::{GLOBAL_VARIABLES, INTENT, MAIN};
use crate::{Layer, Module, Store, StoreError};

/// A configuration that was made of the rows and checked, to be put in force.
#[derive(Debug)]
pub struct Loaded {
    /// The whole of it: the modules that are loaded, and what is in force of the others.
    pub config: Config,
    /// What has no effect, or refers to what is not there: of the modules that are loaded, and where another one and
    /// one of these do not fit.
    pub warnings: Vec<ConfigError>,
    modules: Vec<Module>,
    /// Of the modules that are loaded, and of others.
    rows: TableRows,
    /// Of these rows: which are in force.
    kept: KeptRows,
    /// [`Store::changes`] when all of them were read in `main`, if they were.
    of_main: Option<u64>,
}

impl Loaded {
    /// What is loaded.
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Whether something to tell is of what is loaded, by the table or variable with whose name it begins. What begins
    /// with neither concerns everybody.
    pub fn concerns(&self, about: &str) -> bool {
        concerns(&self.modules, about)
    }
}

/// The version of a module's configuration in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The module.
    pub module: Module,
    /// How many different ones there were since the start, from 1.
    pub version: u64,
    /// When it was loaded, in seconds since 1970; each is later than the one before, whatever the clock says. It
    /// survives restarts where it was saved, and goes from proxy to proxy with the configuration. 0 for what was only
    /// read at the start.
    pub epoch: u64,
    /// [`Store::checksum`] of it.
    pub checksum: u64,
}

impl Version {
    /// The checksum as it is shown.
    pub fn checksum_text(&self) -> String {
        format!("0x{:016X}", self.checksum)
    }
}

impl Store {
    /// Makes a configuration of the rows of some modules in `main` and of what is in force of the others, and checks it
    /// whole. Nothing is changed: [`Store::commit_runtime`] does that when the configuration has been taken.
    ///
    /// # Errors
    /// All faults of the rows; or one that SQLite has.
    pub fn prepare_runtime(&self, modules: &[Module]) -> Result<Loaded, Vec<ConfigError>> {
        let (rows, kept) = self.rows_to_load(modules).map_err(as_fault)?;
        let of_main = Some(self.changes());
        Ok(Loaded { kept, of_main, ..self.prepare_rows(modules, rows)? })
    }

    /// [`Store::prepare_runtime`] of all modules for the first time, with `rows` that were just read in `main`. Patterns
    /// that `read_before` has need not be compiled again.
    ///
    /// # Errors
    /// As [`Store::prepare_runtime`].
    pub fn prepare_first(&self, rows: TableRows, read_before: &Config) -> Result<Loaded, Vec<ConfigError>> {
        let kept = Some(PartialRead { config: read_before, reads: &|_| true });
        let of_main = Some(self.changes());
        Ok(Loaded { of_main, ..self.prepare_with(&Module::ALL, rows, kept)? })
    }

    /// [`Store::prepare_runtime`] of one user alone: the rows with its name in `main.mysql_users`, and of all other users
    /// what is in force. None if there are no such rows.
    ///
    /// # Errors
    /// As [`Store::prepare_runtime`].
    pub fn prepare_user(&self, username: &str) -> Result<Option<Loaded>, Vec<ConfigError>> {
        let Some((rows, kept)) = self.rows_with_user(username).map_err(as_fault)? else { return Ok(None) };
        Ok(Some(Loaded { kept, ..self.prepare_rows(&[Module::MysqlUsers], rows)? }))
    }

    /// [`Store::prepare_runtime`] with the rows of some modules that are not in `main`, such as another proxy's.
    ///
    /// # Errors
    /// As [`Store::prepare_runtime`].
    pub fn prepare_rows(&self, modules: &[Module], rows: TableRows) -> Result<Loaded, Vec<ConfigError>> {
        let reads = |name: &str| concerns(modules, name);
        let kept = self.in_force.as_ref().map(|config| PartialRead { config, reads: &reads });
        self.prepare_with(modules, rows, kept)
    }

    fn prepare_with(
        &self,
        modules: &[Module],
        rows: TableRows,
        kept: Option<PartialRead<'_>>,
    ) -> Result<Loaded, Vec<ConfigError>> {
        let mut all = TableRows::new();
        if kept.is_none() {
            let others = Module::ALL.into_iter().filter(|module| !modules.contains(module));
            all = self.rows_of(&others.collect::<Vec<_>>(), Layer::Runtime).map_err(as_fault)?;
        }
        all.append(rows);
        let loaded = modules.to_vec();
        let (mut config, warnings) =
            read_rows_for(&all, Strictness::Lenient, kept, move |key, refers_to| {
                concerns(&loaded, key) || (!refers_to.is_empty() && concerns(&loaded, refers_to))
            })?;
        config.datadir.clone_from(&self.datadir);
        let kept = KeptRows::new();
        Ok(Loaded { config, warnings, modules: modules.to_vec(), rows: all, kept, of_main: None })
    }

    /// [`Store::prepare_runtime`] with the rows of another proxy: what is of one machine stays as it is here.
    ///
    /// # Errors
    /// As [`Store::prepare_runtime`].
    pub fn prepare_foreign(&self, module: Module, rows: &TableRows) -> Result<Loaded, Vec<ConfigError>> {
        let here = self.rows_of(&[module], Layer::Runtime).map_err(as_fault)?;
        let mut all = TableRows::new();
        for table in module.tables() {
            let name = table.name.as_str();
            let foreign =
                rows.of(name).iter().filter(|row| is_of(module, table, row) && is_shared(name, row));
            let own = here.of(name).iter().filter(|row| !is_shared(name, row));
            all.set(name, foreign.chain(own).cloned().collect());
        }
        self.prepare_rows(&[module], all)
    }

    /// The same configuration as is in force is known elsewhere with a later epoch: it is that old here, too.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn raise_epoch(&mut self, module: Module, epoch: u64) -> Result<(), StoreError> {
        self.connection.execute(
            "UPDATE main.runtime_checksums_values SET epoch = max(epoch, ?) WHERE name = ?",
            params![as_sql(epoch), module.name()],
        )?;
        Ok(())
    }

    /// Notes that a configuration is in force: shown by `runtime_` tables and `runtime_checksums_values`, and what the
    /// next one is made with. None other may have been noted since it was prepared.
    ///
    /// # Errors
    /// As SQLite says; nothing is noted then.
    pub fn commit_runtime(&mut self, loaded: Loaded) -> Result<(), StoreError> {
        self.commit(loaded, None)
    }

    /// [`Store::commit_runtime`] of a configuration that was made elsewhere, at `epoch`.
    ///
    /// # Errors
    /// As [`Store::commit_runtime`].
    pub fn commit_runtime_of(&mut self, loaded: Loaded, epoch: u64) -> Result<(), StoreError> {
        self.commit(loaded, Some(epoch))
    }

    fn commit(&mut self, loaded: Loaded, epoch: Option<u64>) -> Result<(), StoreError> {
        // Whatever fails: the next one reads all rows.
        self.in_force = None;
        self.put_in_force(&loaded)?;
        for module in &loaded.modules {
            self.note_version(*module, epoch)?;
        }
        self.in_force = Some(loaded.config);
        Ok(())
    }

    /// The rows, where they are kept and where they are shown.
    fn put_in_force(&mut self, loaded: &Loaded) -> Result<(), StoreError> {
        // Whatever fails: nothing is known of them then.
        let mut hashes = std::mem::take(&mut self.hashes);
        let is_main = loaded.of_main == Some(self.changes());
        if !is_main {
            // Somebody edits already what is loaded next.
            let rows = self.whole(&loaded.modules, &loaded.rows, &loaded.kept)?;
            self.write(&loaded.modules, &rows, Layer::Runtime, true)?;
        }
        let transaction = self.connection.unchecked_transaction()?;
        for (module, table) in tables_of(&loaded.modules) {
            let of = |schema: &str, prefix: &str| format!("{schema}.{prefix}{}", table.name);
            let (edited, wanted, shown) = (of(MAIN, ""), of(INTENT, ""), of(MAIN, "runtime_"));
            let patch = if is_main { self.patch_of(table, &loaded.kept)? } else { None };
            if let Some(patch) = &patch {
                patch.apply(&transaction, table, &wanted)?;
                patch.apply(&transaction, table, &shown)?;
            } else {
                if is_main {
                    transaction.execute_batch(&copy_sql(module, table, &edited, &wanted))?;
                }
                transaction.execute_batch(&copy_sql(module, table, &wanted, &shown))?;
            }
            if table.name == "mysql_servers" {
                let loaded = format!("{MAIN}.runtime_weir_loaded_servers");
                transaction.execute_batch(&copy_sql(module, table, &wanted, &loaded))?;
            }
            self.note_hashes(&mut hashes, module, table, patch.as_ref())?;
        }
        transaction.commit()?;
        self.hashes = hashes;
        tables_of(&loaded.modules).for_each(|(_, table)| self.edits.set(&table.name, is_main));
        Ok(())
    }

    /// How many rows of what may be edited were changed so far, or more.
    fn changes(&self) -> u64 {
        self.connection.total_changes() - self.filled
    }

    /// Which configuration of each module is in force; modules that were never loaded are left out.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn versions(&self) -> Result<Vec<Version>, StoreError> {
        let mut versions = Vec::new();
        for module in Module::ALL {
            versions.extend(version_of(&self.connection, module)?);
        }
        Ok(versions)
    }

    /// Copies what was loaded to runtime last to `main`. What is observed never gets there.
    ///
    /// # Errors
    /// As SQLite says.
    pub fn save_runtime_to_memory(&mut self, modules: &[Module]) -> Result<(), StoreError> {
        self.copy_all(modules, Layer::Runtime, Layer::Memory)
    }

    /// A new version, if the rows differ from before.
    fn note_version(&self, module: Module, epoch: Option<u64>) -> Result<(), StoreError> {
        let checksum = self.checksum(module, Layer::Runtime)?;
        let before = version_of(&self.connection, module)?;
        let (version, epoch) = match (before, epoch) {
            (Some(before), None) if before.checksum == checksum => return Ok(()),
            (Some(before), Some(epoch)) if before.checksum == checksum => (before.version, epoch),
            (Some(before), epoch) => {
                let next = || now_s().max(before.epoch.saturating_add(1));
                (before.version.saturating_add(1), epoch.unwrap_or_else(next))
            }
            (None, Some(epoch)) => (1, epoch),
            // What was only read at the start is older than all that somebody has loaded.
            (None, None) => (1, self.saved_epoch(module, checksum)?.unwrap_or(0)),
        };
        self.connection.execute(
            "INSERT OR REPLACE INTO main.runtime_checksums_values (name, version, epoch, checksum) VALUES (?, ?, ?, ?)",
            params![module.name(), as_sql(version), as_sql(epoch), format!("0x{checksum:016X}")],
        )?;
        Ok(())
    }

    /// When the configuration with this checksum was made, if it was saved.
    fn saved_epoch(&self, module: Module, checksum: u64) -> Result<Option<u64>, StoreError> {
        let path = self.datadir.join(DATABASE_FILE);
        let found = self.connection.query_row(
            "SELECT epoch FROM disk.weir_saved_epochs WHERE name = ? AND checksum = ?",
            params![module.name(), format!("0x{checksum:016X}")],
            |row| row.get::<_, i64>(0),
        );
        let found = found.optional().map_err(|cause| of_file(&path, cause))?;
        Ok(found.and_then(|epoch| u64::try_from(epoch).ok()))
    }
}

/// Notes with what is saved when it was made, where that is what is in force.
pub(crate) fn save_epochs(connection: &Connection, modules: &[Module]) -> Result<(), rusqlite::Error> {
    for module in modules {
        connection.execute(
            "INSERT OR REPLACE INTO disk.weir_saved_epochs (name, epoch, checksum) \
             SELECT name, epoch, checksum FROM main.runtime_checksums_values WHERE name = ?",
            [module.name()],
        )?;
    }
    Ok(())
}

/// Adds the variables that are missing in `main`, with their defaults; those that only say what runs are set.
pub(crate) fn add_default_variables(
    connection: &Connection,
    modules: &[Module],
) -> Result<(), rusqlite::Error> {
    let sql = format!("INSERT OR IGNORE INTO {MAIN}.{GLOBAL_VARIABLES} VALUES (?, ?)");
    let mut statement = connection.prepare_cached(&sql)?;
    for module in modules.iter().filter_map(|module| module.variable_prefix()) {
        for variable in variables() {
            let name = variable.full_name();
            if name.starts_with(module) {
                statement.execute([name.as_str(), variable.default_value()])?;
            }
        }
    }
    let sql = format!(
        "UPDATE {MAIN}.{GLOBAL_VARIABLES} SET variable_value = ? WHERE variable_name = 'admin-version'"
    );
    connection.execute(&sql, [env!("CARGO_PKG_VERSION")])?;
    Ok(())
}

fn concerns(modules: &[Module], about: &str) -> bool {
    Module::of(about).is_none_or(|module| modules.contains(&module))
}

fn version_of(connection: &Connection, module: Module) -> Result<Option<Version>, rusqlite::Error> {
    let found = connection.query_row(
        "SELECT version, epoch, checksum FROM main.runtime_checksums_values WHERE name = ?",
        [module.name()],
        |row| {
            let checksum: String = row.get(2)?;
            let number = |at| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
            Ok(Version {
                module,
                version: number(0)?,
                epoch: number(1)?,
                checksum: u64::from_str_radix(checksum.trim_start_matches("0x"), 16).unwrap_or(0),
            })
        },
    );
    found.optional()
}

fn as_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn as_fault(fault: StoreError) -> Vec<ConfigError> {
    vec![ConfigError { file: String::new(), line: 0, key: String::new(), reason: fault.to_string() }]
}
