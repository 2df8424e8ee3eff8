//! Measures what a statement, a client and a gigabyte cost through Weir, HAProxy and ProxySQL.
//!
//! One run starts a Galera cluster of its own and, for each row of the report, the proxies; then it visits them in
//! turn: every round visits every peer, so that a change of the machine's mood falls on all of them. Ratios are taken
//! within a round. `weir_lab` does the counting; [`row`] says what is set up and what is hoped for.

mod args;
mod bench;
mod certificates;
mod dashboards;
mod peer;
mod relay;
mod report;
mod row;
mod rows;
mod rules;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use weir_lab::{Error, Stop, exit_status, report as lab, servers};

use args::Args;
use bench::{Bench, progress};
use report::Results;

/// As errors and lines of progress begin.
const NAME: &str = "weir-bench";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(name = "weir-bench", version, about, args_conflicts_with_subcommands = true)]
struct CommandLine {
    #[command(flatten)]
    args: Args,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What the benchmark runs as a process of its own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Forwards TCP and looks at nothing: the peer of that name
    #[command(hide = true)]
    Relay(relay::Options),
}

fn main() -> ExitCode {
    let CommandLine { args, part } = CommandLine::parse();
    let result = match part {
        Some(Part::Relay(options)) => relay::run(&options).map(|()| true),
        // A row that can't be measured is a failure for whoever only looks at the exit status.
        None => run(&args).map(|results| results.left_out.is_empty()),
    };
    exit_status(NAME, result)
}

/// Everything started in here ends when it returns, on whatever way.
fn run(args: &Args) -> Result<Results, Error> {
    let stop = Stop::on_signals()?;
    [&args.json, &args.markdown].into_iter().flatten().try_for_each(|path| lab::claim(path))?;
    let bench = Bench::start(args, stop)?;
    let machine = servers::machine(&bench.cluster)?;
    println!("--- {machine}");
    let results = measure(args, &bench, machine)?;
    print!("{}", results.tables());
    if let Some(path) = &args.json {
        lab::write_json(path, &results)?;
    }
    if let Some(path) = &args.markdown {
        lab::write(path, &results.document())?;
    }
    Ok(results)
}

/// A row that can't be measured does not take the others with it.
fn measure(args: &Args, bench: &Bench<'_>, machine: lab::Machine) -> Result<Results, Error> {
    let mut cases = Vec::new();
    let mut left_out = BTreeMap::new();
    for row in args.rows() {
        match rows::measure(bench, row) {
            Ok(measured) => cases.extend(measured),
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                progress(&format!("{row} could not be measured: {error}"));
                left_out.insert(row, error.to_string());
            }
        }
    }
    Ok(Results::new(machine, args, cases, left_out))
}
