//! Plays the scenarios: what each does to the servers, and its goals.

mod cycles;
mod degraded_nodes;
mod maintenance;
mod partition;
mod quorum;
mod reader_maintenance;
mod rejoin;
mod silent_server;
mod switchover;
mod weir_killed;
mod writer_lost;

use weir_lab::figures::Figures;
use weir_lab::goals::{Check, GoalChecks};
use weir_lab::record::{Pause, Recording};
use weir_lab::{Error, Moment, timeline};

use crate::peer::PeerKind;
use crate::report::{Output, check_line};
use crate::scenario::Scenario;
use crate::stage::{Finished, Stage, progress};
use crate::trial::{Measured, Outcome, Trial};
use writer_lost::End;

/// From so long before an event on: the moments of marks and answers are not exact.
const BEFORE_MS: u64 = 20;

/// What a scenario has seen through one proxy.
pub(crate) struct Seen {
    /// Distinguishes it from others of the same scenario and proxy.
    pub(crate) variant: String,
    /// Everything, for the time-line.
    pub(crate) recording: Recording,
    /// What clients saw.
    pub(crate) figures: Figures,
    /// The goals.
    pub(crate) checks: Vec<Check>,
    /// For the reader of the report.
    pub(crate) notes: Vec<String>,
}

impl Seen {
    fn new(finished: Finished, figures: Figures, goals: GoalChecks) -> Seen {
        Seen {
            variant: String::new(),
            recording: finished.recording,
            figures,
            checks: goals.checks,
            notes: finished.audit.named,
        }
    }

    fn variant(mut self, variant: &str) -> Seen {
        self.variant = variant.to_owned();
        self
    }

    fn note(mut self, note: impl Into<String>) -> Seen {
        self.notes.push(note.into());
        self
    }
}

/// What was said from an event on until its longest pause was over; times are from the event on.
fn story(recording: &Recording, event: Moment, pause: Option<Pause>) -> String {
    let Some(pause) = pause else { return String::new() };
    let since = |at: Moment| at.ms_since(event);
    let during = event.minus_ms(BEFORE_MS)..=pause.to;
    let marks = recording.marks.iter().filter(|mark| during.contains(&mark.at));
    let said: Vec<String> =
        marks.map(|mark| format!("{:+.0} ms {}: {}", since(mark.at), mark.source, mark.text)).collect();
    format!(
        "A pause of {:.0} ms ({}, {:+.0} to {:+.0} ms): {}.",
        pause.ms(),
        pause.stream,
        since(pause.from),
        since(pause.to),
        said.join("; ")
    )
}

/// Runs a scenario through every proxy that it is for and that takes part.
pub(crate) fn run(stage: &Stage<'_>, scenario: Scenario, output: &Output) -> Result<Vec<Trial>, Error> {
    let mut trials = Vec::new();
    for &peer in peers(scenario) {
        if !stage.args.has(peer) {
            continue;
        }
        progress(&format!("{scenario} through {peer}: {}", scenario.title()));
        let outcome = match one(stage, scenario, peer) {
            Ok(seen) => {
                for seen in seen {
                    trials.push(measured(scenario, peer, seen, output)?);
                }
                continue;
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(Error::Impossible(why)) => {
                weir_testkit::not_run(&format!("weir-failover {scenario} through {peer}"), &why);
                Outcome::NotRun(why)
            }
            Err(error) => Outcome::Failed(error.to_string()),
        };
        if let Outcome::NotRun(why) | Outcome::Failed(why) = &outcome {
            progress(&format!("{scenario} through {peer}: {why}"));
        }
        trials.push(Trial { scenario, peer, variant: String::new(), outcome });
    }
    Ok(trials)
}

/// The proxies that a scenario is for: those that have an equivalent.
fn peers(scenario: Scenario) -> &'static [PeerKind] {
    match scenario {
        Scenario::WriterTerminated | Scenario::WriterKilled => &[PeerKind::Weir, PeerKind::HaProxy],
        Scenario::GroupTerminated | Scenario::GroupKilled => &[PeerKind::Weir, PeerKind::MysqlRouter],
        _ => &[PeerKind::Weir],
    }
}

fn one(stage: &Stage<'_>, scenario: Scenario, peer: PeerKind) -> Result<Vec<Seen>, Error> {
    let seen = match scenario {
        Scenario::Switchover | Scenario::GroupSwitchover => switchover::run(stage)?,
        Scenario::Reader => reader_maintenance::run(stage)?,
        Scenario::WriterTerminated | Scenario::GroupTerminated => {
            writer_lost::gone(stage, peer, End::Terminated)?
        }
        Scenario::WriterKilled | Scenario::GroupKilled => writer_lost::gone(stage, peer, End::Killed)?,
        Scenario::WriterHung => writer_lost::hung(stage)?,
        Scenario::Path => return partition::path(stage),
        Scenario::Partition => return partition::partition(stage),
        Scenario::SilentWriter => silent_server::writer(stage)?,
        Scenario::SilentReader => silent_server::reader(stage)?,
        Scenario::TwoKilled => quorum::run(stage)?,
        Scenario::DegradedNodes => degraded_nodes::run(stage)?,
        Scenario::WeirKilled => return weir_killed::run(stage),
        Scenario::Rejoin => rejoin::run(stage)?,
        Scenario::Cycles => return cycles::run(stage),
        Scenario::Maintenance | Scenario::ReplicationMaintenance => return maintenance::run(stage),
    };
    Ok(vec![seen])
}

fn measured(scenario: Scenario, peer: PeerKind, seen: Seen, output: &Output) -> Result<Trial, Error> {
    let Seen { variant, recording, figures, checks, notes } = seen;
    let dash = if variant.is_empty() { "" } else { "-" };
    let name = format!("{scenario}-{peer}{dash}{}.svg", variant.replace(' ', "-"));
    let through = if variant.is_empty() { peer.to_string() } else { format!("{peer} ({variant})") };
    output.write(&name, &timeline::plot(&recording, &format!("{}, through {through}", scenario.title())))?;
    for check in &checks {
        progress(&format!("  {}", check_line(check)));
    }
    let measured = Measured { figures, checks, notes, plot: Some(name) };
    Ok(Trial { scenario, peer, variant, outcome: Outcome::Measured(Box::new(measured)) })
}
