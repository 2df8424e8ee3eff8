//! Holds the result of a scenario through one proxy.

use serde::Serialize;
use weir_lab::figures::Figures;
use weir_lab::goals::{Check, GoalOutcome};

use crate::peer::PeerKind;
use crate::scenario::Scenario;

/// A scenario through one proxy.
#[derive(Debug, Serialize)]
pub(crate) struct Trial {
    /// Which one.
    pub(crate) scenario: Scenario,
    /// Through whom.
    pub(crate) peer: PeerKind,
    /// What distinguishes it from others of the same two; empty if there are none.
    pub(crate) variant: String,
    /// What came of it.
    pub(crate) outcome: Outcome,
}

/// What came of a trial.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// It was done.
    Measured(Box<Measured>),
    /// It can't be done here, and why.
    NotRun(String),
    /// It has failed before it came to an end, and why.
    Failed(String),
}

/// Figures, goals, and what else is worth knowing.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    /// What clients saw.
    pub(crate) figures: Figures,
    /// The goals; none for other proxies.
    pub(crate) checks: Vec<Check>,
    /// For the reader of the report, a sentence each.
    pub(crate) notes: Vec<String>,
    /// The file with the time-line.
    pub(crate) plot: Option<String>,
}

impl Trial {
    /// Whether a goal was missed, or nothing could be seen.
    pub(crate) fn is_bad(&self) -> bool {
        match &self.outcome {
            Outcome::Measured(measured) => {
                measured.checks.iter().any(|check| check.outcome == GoalOutcome::Missed)
            }
            Outcome::NotRun(_) => false,
            Outcome::Failed(_) => true,
        }
    }
}
