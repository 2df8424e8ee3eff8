//! Proves the consistency levels on real servers, and says what they cost.
//!
//! One run starts servers of each kind that is asked for, Weir in front of them, and sessions that know what they have
//! to see. [`history`] judges reads, [`session`] makes them, [`disturbance`] is what happens to the servers meanwhile;
//! [`staleness`], [`split`], [`price`] and [`article`] are the parts of the report.

mod args;
mod article;
mod client;
mod distance;
mod disturbance;
mod history;
mod load;
mod place;
mod price;
mod report;
mod session;
mod split;
mod stage;
mod staleness;
mod weirs;
mod writers;

use std::process::ExitCode;
use std::thread;

use clap::Parser;
use weir_lab::{Error, Stop, exit_status};

use args::{Args, Part};
use place::Place;
use report::Report;
use stage::Stage;

fn main() -> ExitCode {
    exit_status("weir-consistency", run(&Args::parse()))
}

/// Whether all goals were reached. Everything started in here ends when it returns, on whatever way.
fn run(args: &Args) -> Result<bool, Error> {
    let stop = Stop::on_signals()?;
    args.servers.weir_binary()?;
    let mut report = Report::new(args)?;
    for place in args.places() {
        // In a thread of its own, which may move into a network namespace.
        let done = thread::scope(|scope| scope.spawn(|| run_at(args, place, &stop, &mut report)).join());
        match done.unwrap_or_else(|_| Err(Error::panicked("a thread"))) {
            Err(Error::Impossible(why)) => report.not_run.push((place, why)),
            outcome => outcome?,
        }
    }
    report.write()?;
    print!("{}", report.summary());
    Ok(report.is_good())
}

fn run_at(args: &Args, place: Place, stop: &Stop, report: &mut Report<'_>) -> Result<(), Error> {
    let stage = Stage::start(args, place, stop.clone())?;
    report.machine = Some(stage.machine()?);
    for part in args.parts() {
        report.findings.push(match part {
            Part::Staleness => staleness::measure(&stage)?,
            Part::Split => split::measure(&stage)?,
            Part::Price => price::measure(&stage)?,
            Part::Article => article::measure(&stage)?,
        });
        report.write()?;
    }
    Ok(())
}
