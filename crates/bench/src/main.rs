//! `weir-bench`: what a statement, a client and a gigabyte cost through Weir, HAProxy and ProxySQL.
//!
//! One run starts a Galera cluster of its own and, for each row of the report, the proxies; then it visits them in
//! turn: every round visits every peer, so that a change of the machine's mood falls on all of them. Ratios are taken
//! within a round. [`metric`] says what is counted, [`row`] what is set up and what is hoped for.

mod args;
mod bench;
mod certificates;
mod client;
mod dashboards;
mod error;
mod limits;
mod markdown;
mod metric;
mod peer;
mod relay;
mod report;
mod results;
mod row;
mod rows;
mod rules;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{Parser, Subcommand};
use signal_hook::consts::{SIGINT, SIGTERM};

use args::Args;
use bench::{Bench, progress};
use error::BenchError;
use results::Results;
use weir_testkit::report::Machine;

/// What a shell reports for a program that ended by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

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
        Some(Part::Relay(options)) => return exit_status(relay::run(&options)),
        None => run(&args),
    };
    match result {
        // A row that can't be measured is a failure for whoever only looks at the exit status.
        Ok(results) if results.left_out.is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => exit_status(Err(error)),
    }
}

fn exit_status(result: Result<(), BenchError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(BenchError::Interrupted) => {
            eprintln!("weir-bench: interrupted; all servers are stopped");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Err(error) => {
            eprintln!("weir-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything started in here ends when it returns, on whatever way.
fn run(args: &Args) -> Result<Results, BenchError> {
    let cancel = cancel_on_signals()?;
    let json = args.json.as_deref().map(OutputFile::create).transpose()?;
    let markdown = args.markdown.as_deref().map(OutputFile::create).transpose()?;
    let bench = Bench::start(args, cancel)?;
    let machine = Machine::observe(&bench.cluster)?;
    println!("--- {machine}");
    let results = measure(args, &bench, machine)?;
    print!("{}", report::tables(&results));
    if let Some(file) = json {
        let text = serde_json::to_string_pretty(&results).map_err(std::io::Error::from);
        file.write(&text.map_err(BenchError::io("write the figures".to_owned()))?)?;
    }
    if let Some(file) = markdown {
        file.write(&markdown::document(&results))?;
    }
    Ok(results)
}

/// A row that can't be measured does not take the others with it.
fn measure(args: &Args, bench: &Bench<'_>, machine: Machine) -> Result<Results, BenchError> {
    let mut cases = Vec::new();
    let mut left_out = BTreeMap::new();
    for row in args.rows() {
        match rows::measure(bench, row) {
            Ok(measured) => cases.extend(measured),
            Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
            Err(error) => {
                progress(&format!("{row} could not be measured: {error}"));
                left_out.insert(row, error.to_string());
            }
        }
    }
    Ok(Results::new(machine, args, cases, left_out))
}

/// The first Ctrl-C (or SIGTERM) asks for an orderly end, the second one ends at once: the next run then removes what
/// is left.
fn cancel_on_signals() -> Result<Arc<AtomicBool>, BenchError> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(EXIT_INTERRUPTED),
            Arc::clone(&cancel),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&cancel)))
        .map_err(|source| BenchError::Io { doing: "handle signals".to_owned(), source })?;
    }
    Ok(cancel)
}

/// A file for figures, opened before anything is measured: a wrong path shall not cost a whole run.
struct OutputFile<'a> {
    path: &'a Path,
}

impl<'a> OutputFile<'a> {
    fn create(path: &'a Path) -> Result<Self, BenchError> {
        fs::write(path, "").map_err(BenchError::io(format!("write {}", path.display())))?;
        Ok(OutputFile { path })
    }

    fn write(self, text: &str) -> Result<(), BenchError> {
        fs::write(self.path, format!("{}\n", text.trim_end()))
            .map_err(BenchError::io(format!("write {}", self.path.display())))
    }
}
