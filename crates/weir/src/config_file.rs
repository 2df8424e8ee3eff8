//! Reads a configuration from a file of any form: Weir's TOML, ProxySQL's .cnf, or the database of either.

use std::io::Read;
use std::path::{Path, PathBuf};

use weir_config::{Config, ConfigError, FILE_SIZE_BYTES_MAX, Strictness, TableRows};
use weir_store::{Database, Layer, Module, Store, StoreError};

/// What a database of SQLite begins with (its file format, "The Database Header").
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// The form of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Weir's own file.
    Toml,
    /// ProxySQL's configuration file.
    Cnf,
    /// `weir.db` or `proxysql.db`.
    Database,
}

/// A file whose rows make a configuration.
#[derive(Debug)]
pub(crate) struct Source {
    pub form: Form,
    pub datadir: Option<PathBuf>,
    /// Only columns that the tables have.
    pub rows: TableRows,
    /// What has no effect.
    pub warnings: Vec<ConfigError>,
    /// What comes of it, taken for itself.
    pub config: Config,
}

impl Source {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// All its faults. In TOML what is unknown or not built is one, too; in the others a warning.
    pub(crate) fn read(path: &Path) -> Result<Self, Vec<ConfigError>> {
        let fault = |reason: String| {
            vec![ConfigError { file: path.display().to_string(), line: 0, key: String::new(), reason }]
        };
        let form = form_of(path).map_err(|cause| fault(format!("can't be read: {cause}")))?;
        match form {
            Form::Toml => Self::toml(path, &text_of(path).map_err(fault)?),
            Form::Cnf => Self::cnf(path, &text_of(path).map_err(fault)?),
            Form::Database => {
                let database = Database::read(path).map_err(|cause| fault(cause.to_string()))?;
                let notes = database.notes.into_iter().flat_map(fault).collect();
                Self::lenient(path, form, None, database.rows, notes)
            }
        }
    }

    /// Checks a text in Weir's own form that is in no file; `name` is for messages.
    ///
    /// # Errors
    /// All its faults.
    pub(crate) fn of_text(name: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        Self::toml(name, text)
    }

    fn toml(path: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        let file = path.display().to_string();
        let (config, rows) = weir_config::parse_with_rows(text, &file)?;
        let datadir = Some(config.datadir.clone());
        Ok(Self { form: Form::Toml, datadir, rows, warnings: Vec::new(), config })
    }

    fn cnf(path: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        let file = weir_config::read_cnf(text, &path.display().to_string())?;
        let mut read = Self::lenient(path, Form::Cnf, file.datadir, file.rows, file.warnings);
        let faults = match &mut read {
            Ok(source) => &mut source.warnings,
            Err(faults) => faults,
        };
        for fault in faults.iter_mut().filter(|fault| fault.line == 0) {
            fault.line = file.lines.of_fault(&fault.key);
        }
        faults.sort_by_key(|fault| fault.line);
        read
    }

    fn lenient(
        path: &Path,
        form: Form,
        datadir: Option<PathBuf>,
        mut rows: TableRows,
        mut warnings: Vec<ConfigError>,
    ) -> Result<Self, Vec<ConfigError>> {
        let file = path.display().to_string();
        let named = |faults: Vec<ConfigError>| {
            faults.into_iter().map(|fault| ConfigError { file: file.clone(), ..fault }).collect::<Vec<_>>()
        };
        let (config, more) = weir_config::read_rows(&rows, Strictness::Lenient).map_err(named)?;
        warnings.extend(named(more));
        keep_known(&mut rows);
        Ok(Self { form, datadir, rows, warnings, config })
    }

    /// Where a Weir with this file keeps its data.
    pub(crate) fn datadir(&self) -> PathBuf {
        self.datadir.clone().unwrap_or_else(|| Config::default().datadir)
    }

    /// How many of what, for people.
    pub(crate) fn summary(&self) -> String {
        let config = &self.config;
        let (servers, users, clusters) =
            (config.servers.len(), config.users.len(), config.clusters().count());
        format!("{servers} servers, {users} users, {clusters} clusters")
    }

    /// The rows with all their columns.
    ///
    /// # Errors
    /// If one breaks a constraint of its table.
    pub(crate) fn complete_rows(&self) -> Result<TableRows, StoreError> {
        let mut store = Store::in_memory()?;
        store.replace(&Module::ALL, &self.rows)?;
        store.rows(Layer::Memory)
    }
}

/// By the name, and where that says nothing by what is in it.
fn form_of(path: &Path) -> std::io::Result<Form> {
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(SQLITE_MAGIC.len() as u64).read_to_end(&mut head)?;
    if head == SQLITE_MAGIC {
        return Ok(Form::Database);
    }
    let extension = path.extension().map(|extension| extension.to_ascii_lowercase());
    Ok(match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("cnf" | "cfg" | "conf") => Form::Cnf,
        Some("db") => Form::Database,
        _ => Form::Toml,
    })
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    // One byte more than allowed, so that the reader sees that it is too long.
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(FILE_SIZE_BYTES_MAX as u64 + 1).read_to_string(&mut text));
    read.map(|_| text).map_err(|cause| format!("can't be read: {cause}"))
}

/// Leaves out what the tables have no place for; a warning has been given of it.
fn keep_known(rows: &mut TableRows) {
    let mut known = TableRows::new();
    for (name, of_table) in rows.tables() {
        let Some(table) = weir_store::table(weir_store::MAIN, name).filter(|table| table.module.is_some())
        else {
            continue;
        };
        let is_known = |name: &str| table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        let kept = of_table.iter().map(|row| {
            let mut row = row.clone();
            row.retain(is_known);
            row
        });
        known.set(name, kept.collect());
    }
    *rows = known;
}
