//! Runs many clients through Weir while servers fail, and searches what they were told for anomalies.
//!
//! One run starts servers of each kind that is asked for, Weir in front of them, and sessions that do what [`workload`]
//! makes up; [`nemesis`] troubles the servers meanwhile. `weir_jepsen::checker` judges the histories; [`judge`] says what
//! the servers' isolation allows, [`guard`] what must be found when something is switched off.

mod args;
mod client;
mod final_reads;
mod guard;
mod html;
mod judge;
mod nemesis;
mod peer;
mod place;
mod report;
mod run;
mod stage;
mod timeline;
mod workload;

use std::process::ExitCode;
use std::thread;

use clap::Parser;
use weir_lab::{Error, Stop, exit_status};

use args::Args;
use judge::Verdict;
use place::{PeerKind, Place};
use report::{Report, anomalies, title};
use run::Setup;
use stage::{Stage, progress};

fn main() -> ExitCode {
    exit_status("weir-jepsen", run(&Args::parse()))
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
    progress(&format!("report: {}", args.out.join("report.html").display()));
    Ok(report.is_good())
}

fn run_at(args: &Args, place: Place, stop: &Stop, report: &mut Report<'_>) -> Result<(), Error> {
    let stage = Stage::start(args, place, stop.clone())?;
    report.machine = Some(stage.machine()?);
    if let Some(why) = &stage.no_network {
        report.not_run.push((place, format!("partitions: {why}")));
    }
    for setup in setups(&stage) {
        stop.check()?;
        if setup.guard == Some(guard::Guard::FlushLog) && stage.has_mapped_log() {
            let why = "flush-log: InnoDB takes /dev/shm for persistent memory, of which a crash loses nothing: \
                       choose another --data-dir";
            report.not_run.push((place, why.to_owned()));
            continue;
        }
        let seen = run::run(&stage, &setup)?;
        let verdict = Verdict::of(&setup, seen);
        for judged in &verdict.workloads {
            progress(&format!("{}: {}: {}", title(&verdict), judged.workload, anomalies(judged)));
        }
        report.write_histories(report.verdicts.len() + 1, &verdict)?;
        report.verdicts.push(verdict);
        report.write()?;
    }
    Ok(())
}

/// The runs in front of these servers.
fn setups(stage: &Stage<'_>) -> Vec<Setup> {
    let (args, place) = (stage.args, stage.place);
    let usual = |peer, level| Setup {
        place,
        peer,
        level,
        isolation: args.isolation(place),
        guard: None,
        workloads: args.workloads(),
        faults: stage.faults(),
        time: args.time(),
    };
    let guards = args.guards();
    if !guards.is_empty() {
        let of_guard = |guard: guard::Guard| Setup {
            guard: Some(guard),
            workloads: guard.workloads().to_vec(),
            faults: guard.faults().to_vec(),
            time: args.time().max(guard.time_min()),
            ..usual(PeerKind::Weir, guard.level())
        };
        return guards.into_iter().map(of_guard).collect();
    }
    let levels = args.levels();
    let runs_of = |peer: PeerKind| match peer {
        // Levels are Weir's.
        PeerKind::Weir => levels.iter().map(|level| usual(peer, *level)).collect::<Vec<_>>(),
        PeerKind::Direct | PeerKind::HaProxy => vec![usual(peer, place::Level::Eventual)],
    };
    args.peers().into_iter().flat_map(runs_of).collect()
}
