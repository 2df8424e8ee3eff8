//! What each scenario does to the servers, and its goals.

mod lost;
mod reader;
mod switchover;

use crate::error::FailoverError;
use crate::peer::PeerKind;
use crate::record::Recording;
use crate::report::Output;
use crate::scenario::Scenario;
use crate::stage::{Stage, progress};
use crate::svg;
use crate::trial::{Check, Figures, Measured, Outcome, Trial};

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

/// Runs a scenario through every proxy that it is for and that takes part.
pub(crate) fn run(
    stage: &Stage<'_>,
    scenario: Scenario,
    output: &Output,
) -> Result<Vec<Trial>, FailoverError> {
    let mut trials = Vec::new();
    for &peer in peers(scenario) {
        if !stage.args.has(peer) {
            continue;
        }
        progress(&format!("{scenario} through {peer}: {}", scenario.title()));
        let outcome = match one(stage, scenario, peer) {
            Ok(seen) => {
                trials.push(measured(scenario, peer, seen, output)?);
                continue;
            }
            Err(FailoverError::Interrupted) => return Err(FailoverError::Interrupted),
            Err(FailoverError::Impossible(why)) => Outcome::NotRun(why),
            Err(error) => Outcome::Failed(error.to_string()),
        };
        if let Outcome::NotRun(why) | Outcome::Failed(why) = &outcome {
            progress(&format!("{scenario} through {peer}: {why}"));
        }
        trials.push(Trial { scenario, peer, variant: String::new(), outcome });
    }
    Ok(trials)
}

/// The proxies that a scenario is for.
fn peers(scenario: Scenario) -> &'static [PeerKind] {
    match scenario {
        Scenario::WriterTerminated | Scenario::WriterKilled => &[PeerKind::Weir, PeerKind::HaProxy],
        // Nobody else has an equivalent.
        Scenario::Switchover | Scenario::Reader => &[PeerKind::Weir],
    }
}

fn one(stage: &Stage<'_>, scenario: Scenario, peer: PeerKind) -> Result<Seen, FailoverError> {
    match scenario {
        Scenario::Switchover => switchover::run(stage),
        Scenario::Reader => reader::run(stage),
        Scenario::WriterTerminated => lost::terminated(stage, peer),
        Scenario::WriterKilled => lost::killed(stage, peer),
    }
}

fn measured(scenario: Scenario, peer: PeerKind, seen: Seen, output: &Output) -> Result<Trial, FailoverError> {
    let Seen { variant, recording, figures, checks, notes } = seen;
    let dash = if variant.is_empty() { "" } else { "-" };
    let name = format!("{scenario}-{peer}{dash}{}.svg", variant.replace(' ', "-"));
    let title = format!("{}, through {peer}", scenario.title());
    output.write(&name, &svg::plot(&recording, &title))?;
    for check in &checks {
        progress(&format!("  {}", crate::report::check_line(check)));
    }
    let measured = Measured { figures, checks, notes, plot: Some(name) };
    Ok(Trial { scenario, peer, variant, outcome: Outcome::Measured(Box::new(measured)) })
}
