//! Runs `weir config diff`.

use std::process::ExitCode;

use super::{ConfigCommandError, DiffArgs, read, read_database};
use crate::difference::{Sides, differences};

/// Exit status: they are not the same.
const DIFFER: u8 = 3;

pub(super) fn diff(args: &DiffArgs) -> Result<ExitCode, ConfigCommandError> {
    let left = read(&args.config)?;
    let (right, sides) = match &args.with {
        Some(other) => (read(other)?, Sides { left: "first file", right: "second file" }),
        None => {
            let datadir =
                args.datadir.clone().or(left.datadir.clone()).unwrap_or_else(super::default_datadir);
            (read_database(&datadir)?, Sides { left: "file", right: "database" })
        }
    };
    let found = differences(&left.rows, &right.rows)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        for difference in &found {
            println!("{}", difference.between(sides));
        }
        if found.is_empty() {
            println!("both are equal");
        }
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(DIFFER) })
}
