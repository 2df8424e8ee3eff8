//! Runs `weir config import`.

use std::path::Path;
use std::process::ExitCode;

use weir_config::TableRows;
use weir_store::{DATABASE_FILE, Layer, Module, Store};

use super::{ConfigCommandError, Finding, ImportArgs, read};

/// What was done, for scripts.
#[derive(serde::Serialize)]
struct Imported<'i> {
    /// None with --dry-run.
    database: Option<String>,
    summary: String,
    /// Rows of each table.
    rows: std::collections::BTreeMap<&'i str, usize>,
    /// What has no effect.
    warnings: Vec<Finding<'i>>,
}

pub(super) fn import(args: &ImportArgs) -> Result<ExitCode, ConfigCommandError> {
    let source = read(&args.source)?;
    // Also with --dry-run: a row may break a constraint of its table.
    let complete = source.complete_rows()?;
    let database = match args.dry_run {
        true => None,
        false => {
            let datadir = args.datadir.clone().or(source.datadir.clone());
            let datadir = datadir.unwrap_or_else(super::default_datadir);
            save(&complete, &datadir, args.force)?;
            Some(datadir.join(DATABASE_FILE).display().to_string())
        }
    };
    let warnings = Finding::of(&source.warnings);
    if args.json {
        let rows = source.rows.tables().map(|(table, rows)| (table, rows.len())).collect();
        let imported = Imported { database, summary: source.summary(), rows, warnings };
        println!("{}", serde_json::to_string_pretty(&imported)?);
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &source.warnings {
        eprintln!("{warning}");
    }
    let (file, summary) = (args.source.display(), source.summary());
    let count = match source.warnings.len() {
        0 => "every setting takes effect".to_owned(),
        1 => "1 warning".to_owned(),
        count => format!("{count} warnings"),
    };
    match database {
        Some(database) => println!("{database}: imported from {file} ({summary}); {count}"),
        None => println!("{file}: can be imported ({summary}); {count}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts rows in place of what was saved.
fn save(rows: &TableRows, datadir: &Path, force: bool) -> Result<(), ConfigCommandError> {
    if datadir.join(DATABASE_FILE).exists() && !force {
        return Err(ConfigCommandError::Exists(datadir.join(DATABASE_FILE)));
    }
    let mut store = Store::open(datadir)?.store;
    store.replace(&Module::ALL, rows)?;
    store.copy_all(&Module::ALL, Layer::Memory, Layer::Disk)?;
    Ok(())
}
