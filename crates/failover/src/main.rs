//! `weir-failover`: what clients see when servers fail, change roles, or come back.
//!
//! One run starts a Galera cluster of its own and, for each scenario, a proxy in front of it, sysbench, and probes that
//! write and read numbered rows every 5 ms. Something happens to the servers; then the rows are looked for on every
//! node. [`record`] says what is seen, [`trial`] what is made of it, [`scenarios`] what happens and what the goals are.

mod args;
mod clock;
mod error;
mod load;
mod network;
mod peer;
mod probe;
mod record;
mod report;
mod rows;
mod run;
mod scenario;
mod scenarios;
mod servers;
mod stage;
mod svg;
mod trial;
mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};

use args::Args;
use error::FailoverError;
use report::{Output, Report};
use scenario::Place;
use stage::{Stage, progress};

/// What a shell reports for a program that ended by Ctrl-C.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(FailoverError::Interrupted) => {
            eprintln!("weir-failover: interrupted; all servers are stopped");
            ExitCode::from(EXIT_INTERRUPTED)
        }
        Err(error) => {
            eprintln!("weir-failover: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all goals were reached. Everything started in here ends when it returns, on whatever way.
fn run(args: &Args) -> Result<bool, FailoverError> {
    let cancel = cancel_on_signals()?;
    args.weir_binary()?;
    let output = Output::create(&args.out)?;
    let mut report = Report::new(args);
    for place in Place::ALL {
        // In a thread of its own, which may move into a network namespace.
        let trials =
            thread::scope(|scope| scope.spawn(|| run_at(args, place, &cancel, &output, &mut report)).join());
        trials.unwrap_or_else(|_| Err(FailoverError::Impossible("a thread has panicked".to_owned())))?;
    }
    print!("{}", report.summary());
    progress(&format!("report and time-lines: {}", output.dir().display()));
    Ok(report.is_good())
}

/// The scenarios that need the same servers, in turn.
fn run_at(
    args: &Args,
    place: Place,
    cancel: &Arc<AtomicBool>,
    output: &Output,
    report: &mut Report<'_>,
) -> Result<(), FailoverError> {
    let stage = Stage::new(args, place, Arc::clone(cancel));
    for scenario in args.scenarios().into_iter().filter(|scenario| scenario.place() == place) {
        report.trials.extend(scenarios::run(&stage, scenario, output)?);
        report.machine = report.machine.take().or_else(|| stage.machine().cloned());
        report.group_priority = report.group_priority.or(stage.group_priority());
        report.trials.sort_by_key(|trial| trial.scenario);
        report.write(output)?;
    }
    Ok(())
}

/// The first Ctrl-C (or SIGTERM) asks for an orderly end, the second one ends at once: the next run then removes what
/// is left.
fn cancel_on_signals() -> Result<Arc<AtomicBool>, FailoverError> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            i32::from(EXIT_INTERRUPTED),
            Arc::clone(&cancel),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&cancel)))
        .map_err(FailoverError::io("handle signals"))?;
    }
    Ok(cancel)
}
