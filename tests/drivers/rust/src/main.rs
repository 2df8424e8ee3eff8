//! Puts mysql_async through the scenarios of `tests/drivers/scenarios.txt`, all or those named on the command line.
//! The environment is that of `tests/drivers/python/main.py`.

mod scenarios;
mod sessions;
mod values;

use std::process::ExitCode;

use scenarios::{Failure, Outcome, run};

const SCENARIOS: &str = include_str!("../../scenarios.txt");

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        let lines = SCENARIOS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        names = lines.map(str::to_owned).collect();
    }
    let mut went_well = true;
    for name in names {
        match run(&name).await {
            Ok(()) => println!("ok {name}"),
            Err(Failure::Skip(reason)) => println!("skip {name}: {reason}"),
            Err(Failure::Wrong(what)) => {
                went_well = false;
                println!("not ok {name}: {}", what.replace('\n', " "));
            }
        }
    }
    if went_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A scenario's result, for the modules.
type Result = Outcome;
