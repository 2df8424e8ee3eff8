//! Chooses the configuration of a start: the database of an earlier run, or the file.
//!
//! ```text
//! weir.db is there ────────► the database wins; the log names what differs from the file
//!   --initial ─────────────► it is set aside (weir.db.bak) and made anew from the file
//!   --reload ──────────────► the file's rows are put over those of the database, and saved
//! weir.db is not there ────► the file goes to memory and runtime, and to disk
//! --config-mode=file ──────► the file only; nothing that is changed later outlives the process
//! ```
//!
//! Nothing is saved before clients are served: who mends the file after a start that has failed has it read again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_config::{Config, ConfigError, TableRows};
use weir_store::{DATABASE_FILE, Layer, Module, Store, StoreError};

use crate::config_file::{Form, Source};
use crate::difference::{Sides, differences};

/// Differences that the log names; `weir config diff` names all.
const DIFFERENCES_LOGGED: usize = 20;
/// Warnings that the log names; `weir config check` names all.
const WARNINGS_LOGGED: usize = 50;

/// Where the configuration is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ConfigMode {
    /// In datadir/weir.db, as ProxySQL does; the file is for the first start
    #[default]
    Database,
    /// In the file; what an admin changes is gone with the process
    File,
}

/// The relation between the file and the database of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Beginning {
    /// A database wins.
    AsSaved,
    /// A database is set aside.
    Initial,
    /// The file's rows come over those of the database.
    Reload,
}

/// The command line's instructions for a start.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    /// The file, or what the text is called.
    pub path: PathBuf,
    /// In place of the file.
    pub text: Option<Arc<str>>,
    /// In place of the file's.
    pub datadir: Option<PathBuf>,
    /// In place of the datadir's.
    pub pidfile: Option<PathBuf>,
    pub mode: ConfigMode,
    pub beginning: Beginning,
}

impl Origin {
    /// Reads the configuration.
    ///
    /// # Errors
    /// All its faults.
    pub(crate) fn read(&self) -> Result<Source, Vec<ConfigError>> {
        match &self.text {
            Some(text) => Source::of_text(&self.path, text),
            None => Source::read(&self.path),
        }
    }

    /// Where a Weir with this file keeps its data.
    pub(crate) fn datadir(&self, source: &Source) -> PathBuf {
        self.datadir.clone().unwrap_or_else(|| source.datadir())
    }
}

/// Why there is nothing to start with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartupError {
    #[error("the configuration has errors:\n{}", lines(.0))]
    Config(Vec<ConfigError>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The configuration and the database of a start.
#[derive(Debug)]
pub(crate) struct Start {
    pub config: Config,
    pub store: Store,
    pub unsaved: Unsaved,
}

/// Changes to be saved once the start has succeeded: one that fails leaves everything as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsaved {
    Nothing,
    /// All, to a new database; one that is there is set aside.
    NewDatabase,
    /// What the file has changed in the database.
    Changes,
}

impl Unsaved {
    /// # Errors
    /// If the database can't be written.
    pub(crate) fn save(self, store: &mut Store) -> Result<(), StoreError> {
        let path = store.datadir().join(DATABASE_FILE);
        match self {
            Self::Nothing => Ok(()),
            Self::Changes => store.copy_all(&Module::ALL, Layer::Memory, Layer::Disk),
            Self::NewDatabase => {
                let is_replaced = path.exists();
                for note in store.settle()? {
                    tracing::warn!("{note}");
                }
                if is_replaced {
                    let aside = path.with_extension("db.bak");
                    tracing::warn!(aside = %aside.display(), "the database was set aside (--initial)");
                }
                tracing::info!(database = %path.display(), "configuration: saved to a new database");
                Ok(())
            }
        }
    }
}

/// Opens the store, and loads the configuration that wins to runtime. What is [`Unsaved`] is the caller's to save. `datadir` serves this Weir only.
///
/// # Errors
/// As [`StartupError`] says.
pub(crate) fn start(origin: &Origin, source: &Source, datadir: &Path) -> Result<Start, StartupError> {
    let Origin { path, mode, beginning, .. } = origin;
    let file = path.display();
    log_warnings(&source.warnings);
    note_proxysql(datadir, source);
    let mut store = match mode {
        ConfigMode::File => {
            match origin.text {
                Some(_) => tracing::info!("configuration: {file}, in memory"),
                None => tracing::info!(%file, "configuration: the file (--config-mode=file)"),
            }
            let mut store = Store::in_memory()?;
            store.set_datadir(datadir);
            if let Some(note) = store.keep_history(datadir)? {
                tracing::warn!("{note}");
            }
            store.replace(&Module::ALL, &source.rows)?;
            let rows = store.rows(Layer::Memory)?;
            return load(store, rows, source, Unsaved::Nothing);
        }
        ConfigMode::Database if *beginning == Beginning::Initial || !has_database(datadir) => {
            tracing::info!(%file, "configuration: the file, for a new database");
            let mut store = Store::unsettled(datadir)?;
            store.replace(&Module::ALL, &source.rows)?;
            let rows = store.rows(Layer::Memory)?;
            return load(store, rows, source, Unsaved::NewDatabase);
        }
        ConfigMode::Database => open(datadir)?,
    };
    let database = datadir.join(DATABASE_FILE).display().to_string();
    store.copy_all(&Module::ALL, Layer::Disk, Layer::Memory)?;
    if *beginning == Beginning::Reload {
        tracing::info!(%file, database, "configuration: the file over the database (--reload)");
        store.merge(&Module::ALL, &source.rows)?;
        let rows = store.rows(Layer::Memory)?;
        return load(store, rows, source, Unsaved::Changes);
    }
    let rows = store.rows(Layer::Memory)?;
    log_differences(&rows, source, path, &database)?;
    load(store, rows, source, Unsaved::Nothing)
}

/// Whether there is a database. An empty file is none: making it was interrupted.
fn has_database(datadir: &Path) -> bool {
    std::fs::metadata(datadir.join(DATABASE_FILE)).is_ok_and(|file| file.len() > 0)
}

/// Loads memory, which has these rows, to runtime.
fn load(mut store: Store, rows: TableRows, source: &Source, unsaved: Unsaved) -> Result<Start, StartupError> {
    let loaded = store.prepare_first(rows, &source.config).map_err(StartupError::Config)?;
    log_warnings(&loaded.warnings);
    let mut config = loaded.config.clone();
    config.datadir = store.datadir().to_owned();
    store.commit_runtime(loaded)?;
    Ok(Start { config, store, unsaved })
}

/// Opens the database of an earlier run.
fn open(datadir: &Path) -> Result<Store, StartupError> {
    let opened = Store::open(datadir)?;
    for note in &opened.notes {
        tracing::warn!("{note}");
    }
    Ok(opened.store)
}

/// Who edits the file and starts again must see that it was not read.
fn log_differences(
    saved: &TableRows,
    source: &Source,
    path: &Path,
    database: &str,
) -> Result<(), StoreError> {
    let found = differences(&source.rows, saved)?;
    let file = path.display();
    if found.is_empty() {
        tracing::info!(database, "configuration: the database; the file {file} is equal");
        return Ok(());
    }
    tracing::warn!(
        database,
        differences = found.len(),
        "configuration: the database, not the file {file}, which differs (--reload or --initial use the file)"
    );
    let sides = Sides { left: "file", right: "database" };
    for difference in found.iter().take(DIFFERENCES_LOGGED) {
        tracing::warn!("differs: {}", difference.between(sides));
    }
    if found.len() > DIFFERENCES_LOGGED {
        tracing::warn!("{} more: see weir config diff -c {file}", found.len() - DIFFERENCES_LOGGED);
    }
    Ok(())
}

/// ProxySQL would have read its database, not its file.
fn note_proxysql(datadir: &Path, source: &Source) {
    let database = datadir.join("proxysql.db");
    if source.form == Form::Cnf && !datadir.join(DATABASE_FILE).exists() && database.exists() {
        let database = database.display();
        tracing::warn!(
            "{database}: ProxySQL would start with this and not with its file; to use it: weir config import {database}"
        );
    }
}

pub(crate) fn log_warnings(warnings: &[ConfigError]) {
    for warning in warnings.iter().take(WARNINGS_LOGGED) {
        tracing::warn!("{warning}");
    }
    if warnings.len() > WARNINGS_LOGGED {
        tracing::warn!("{} more warnings: see weir config check", warnings.len() - WARNINGS_LOGGED);
    }
}

fn lines(faults: &[ConfigError]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
