//! Writes the manual pages: those of the commands are made from the definition of the command line, that of weir.toml
//! from the tables that declare it.

mod command_page;
mod file_page;
mod markdown;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use clap::Args;

pub(crate) const EXAMPLES: &str = "Examples:
  weir manual ./man && man -l ./man/weir-serve.1
  weir manual ./man && man -l ./man/weir.toml.5

The packages install these pages.
Exit status: 0 if written, 1 if not, 2 for wrong use.";

/// The manual that all pages belong to, in their head lines.
const MANUAL: &str = "Weir";

#[derive(Args)]
pub(crate) struct ManualArgs {
    /// Where to write them; created if it is missing
    directory: PathBuf,
}

/// Why a page was not written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause}", path.display())]
struct ManualError {
    path: PathBuf,
    cause: io::Error,
}

/// A page, as the file `name`.
struct Page {
    name: String,
    roff: Vec<u8>,
}

/// Writes the pages of `command`, of all commands below it, and of weir.toml.
pub(crate) fn write(args: &ManualArgs, command: clap::Command) -> ExitCode {
    match write_all(&args.directory, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_all(directory: &Path, command: clap::Command) -> Result<(), ManualError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |cause| ManualError { path, cause }
    };
    fs::create_dir_all(directory).map_err(at(directory))?;
    for page in pages(command).map_err(at(directory))? {
        let path = directory.join(page.name);
        fs::write(&path, page.roff).map_err(at(&path))?;
    }
    Ok(())
}

fn pages(command: clap::Command) -> io::Result<Vec<Page>> {
    let mut pages = command_page::pages(command)?;
    pages.push(file_page::page()?);
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn there_is_a_page_for_each_command_and_one_for_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("new/man");
        write_all(&to, crate::Cli::command()).unwrap();
        let mut names: Vec<_> = fs::read_dir(&to)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        for wanted in ["weir.1", "weir-serve.1", "weir-config.1", "weir-config-check.1", "weir.toml.5"] {
            assert!(names.iter().any(|name| name == wanted), "{wanted}: {names:?}");
        }
        assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
    }

    #[test]
    fn the_path_that_can_t_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = write_all(&file.path().join("man"), crate::Cli::command()).unwrap_err();
        assert!(error.to_string().starts_with(&format!("{}/man: ", file.path().display())), "{error}");
    }
}
