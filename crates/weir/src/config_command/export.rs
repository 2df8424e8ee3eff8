//! Runs `weir config export`.

use std::path::Path;
use std::process::ExitCode;

use weir_config::private_file;

use super::{ConfigCommandError, ExportArgs, read, read_database, text};

/// Exit status: something that has an effect is left as a comment.
const NOT_WHOLE: u8 = 3;

pub(super) fn export(args: &ExportArgs) -> Result<ExitCode, ConfigCommandError> {
    let (source, datadir) = match (&args.config, &args.datadir) {
        (Some(path), _) => {
            let source = read(path)?;
            let datadir = source.datadir.clone();
            (source, datadir)
        }
        (None, Some(datadir)) => (read_database(datadir)?, Some(datadir.clone())),
        (None, None) => return Ok(ExitCode::from(2)),
    };
    for warning in &source.warnings {
        eprintln!("{warning}");
    }
    let form = if args.cnf { text::Form::Cnf } else { text::Form::Toml };
    let written = text::write(&source.rows, datadir.as_deref(), form)?;
    match &args.output {
        Some(path) => write_file(path, &written.text)?,
        None => print!("{}", written.text),
    }
    for left_out in &written.left_out {
        eprintln!("{left_out} (now a comment)");
    }
    if written.is_whole {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "weir: the file does less than its source: correct the settings that became comments at the source, or remove them there"
    );
    Ok(ExitCode::from(NOT_WHOLE))
}

/// Writes a file that only its owner can read, since it holds passwords.
fn write_file(path: &Path, text: &str) -> Result<(), ConfigCommandError> {
    private_file::replace(path, text)
        .map_err(|cause| ConfigCommandError::File { path: path.to_owned(), cause })
}
