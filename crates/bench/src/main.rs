//! `weir-bench`: what a statement costs directly, through HAProxy and through Weir.
//!
//! One run starts a Galera cluster of its own, HAProxy (TCP mode) and Weir, and lets sysbench measure them in turn:
//! every round visits every peer for every workload and number of threads, so that a change of the machine's mood
//! falls on all of them. Ratios are taken within a round. See [`measure`] for what is counted.

mod args;
mod error;
mod machine;
mod measure;
mod peer;
mod report;
mod results;
mod stats;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use weir_testkit::{Galera, GaleraOptions, Sysbench};

use args::Args;
use error::BenchError;
use machine::Machine;
use results::Results;

/// What a shell reports for a program that ended by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
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
fn run(args: &Args) -> Result<(), BenchError> {
    let cancel = cancel_on_signals()?;
    let json = args.json.as_deref().map(JsonFile::create).transpose()?;
    let wanted = args.wanted()?;
    let cluster = Galera::start(GaleraOptions {
        keep: args.keep,
        progress,
        cancel: Arc::clone(&cancel),
        ..GaleraOptions::bench()
    })?;
    fill_tables(args, &cluster)?;
    let peers = peer::start_all(args, &wanted, &cluster)?;
    for peer in &peers {
        print!("{}", peer.describe());
    }
    let machine = Machine::observe(&cluster)?;
    println!("{machine}");
    progress(&format!("measuring for about {} min", args.duration_min().ceil()));
    let cases = measure::measure(args, &peers, cluster.dir(), &cancel, progress)?;
    let results = Results::new(machine, args, cases);
    print!("{}", report::table(&results));
    json.map_or(Ok(()), |file| file.write(&results))
}

fn progress(line: &str) {
    eprintln!("weir-bench: {line}");
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

fn fill_tables(args: &Args, cluster: &Galera) -> Result<(), BenchError> {
    progress(&format!("filling {} tables of {} rows", args.tables, args.table_rows));
    let mut sysbench = Sysbench::new("oltp_read_write", cluster.node(1).addr());
    sysbench.tables = args.tables;
    sysbench.table_rows = args.table_rows;
    sysbench.threads = args.tables;
    Ok(sysbench.prepare()?)
}

/// The file for the figures, opened before anything is measured: a wrong path shall not cost a whole run.
struct JsonFile<'a> {
    path: &'a Path,
}

impl<'a> JsonFile<'a> {
    fn create(path: &'a Path) -> Result<Self, BenchError> {
        fs::write(path, "").map_err(BenchError::io(format!("write {}", path.display())))?;
        Ok(JsonFile { path })
    }

    fn write(self, results: &Results) -> Result<(), BenchError> {
        let text = serde_json::to_string_pretty(results).map_err(std::io::Error::from);
        text.and_then(|text| fs::write(self.path, text + "\n"))
            .map_err(BenchError::io(format!("write {}", self.path.display())))
    }
}
