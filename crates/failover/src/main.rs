//! Shows what clients see when servers fail, change roles, or come back.
//!
//! One run starts a Galera cluster of its own and, for each scenario, a proxy in front of it, sysbench, and probes that
//! write and read numbered rows every 5 ms. Something happens to the servers; then the rows are looked for on every
//! node. `weir_lab` says what is seen, [`trial`] what is made of it, [`scenarios`] what happens and what the goals are.

mod args;
mod load;
mod peer;
mod report;
mod run;
mod scenario;
mod scenarios;
mod stage;
mod trial;

use std::process::ExitCode;
use std::thread;

use clap::Parser;
use weir_lab::{Error, Stop, exit_status};

use args::Args;
use report::{Output, Report};
use scenario::Place;
use stage::{Stage, progress};

fn main() -> ExitCode {
    exit_status("weir-failover", run(&Args::parse()))
}

/// Whether all goals were reached. Everything started in here ends when it returns, on whatever way.
fn run(args: &Args) -> Result<bool, Error> {
    args.check().map_err(Error::Impossible)?;
    let stop = Stop::on_signals()?;
    args.servers.weir_binary()?;
    let output = Output::create(&args.out)?;
    let mut report = Report::new(args);
    for place in Place::ALL {
        // In a thread of its own, which may move into a network namespace.
        let trials =
            thread::scope(|scope| scope.spawn(|| run_at(args, place, &stop, &output, &mut report)).join());
        trials.unwrap_or_else(|_| Err(Error::panicked("a thread")))?;
    }
    print!("{}", report.summary());
    progress(&format!("report and time-lines: {}", output.dir().display()));
    Ok(report.is_good())
}

/// The scenarios that need the same servers, in turn.
fn run_at(
    args: &Args,
    place: Place,
    stop: &Stop,
    output: &Output,
    report: &mut Report<'_>,
) -> Result<(), Error> {
    let stage = Stage::new(args, place, stop.clone());
    for scenario in args.scenarios().into_iter().filter(|scenario| scenario.place() == place) {
        report.trials.extend(scenarios::run(&stage, scenario, output)?);
        report.machine = report.machine.take().or_else(|| stage.machine().cloned());
        report.group_priority = report.group_priority.or(stage.group_priority());
        report.trials.sort_by_key(|trial| trial.scenario);
        report.write(output)?;
    }
    Ok(())
}
