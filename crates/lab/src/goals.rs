//! Judges what was measured by goals.

use serde::Serialize;

use crate::figures::Figures;

/// Whether a goal was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GoalOutcome {
    /// It was.
    Met,
    /// It was not.
    Missed,
    /// A smoke run says nothing about times.
    NotJudged,
}

/// A goal and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    /// As in "write pause <= 1000 ms".
    pub goal: String,
    /// As in "213 ms".
    pub measured: String,
    /// What to conclude.
    pub outcome: GoalOutcome,
}

/// Makes checks.
#[derive(Debug, Default)]
pub struct GoalChecks {
    /// Times are not judged.
    pub is_smoke: bool,
    /// So far.
    pub checks: Vec<Check>,
}

impl GoalChecks {
    /// For a full run or a smoke run.
    pub fn new(is_smoke: bool) -> GoalChecks {
        GoalChecks { is_smoke, checks: Vec::new() }
    }

    /// Something has to be.
    pub fn must(&mut self, goal: impl Into<String>, measured: impl Into<String>, holds: bool) {
        let outcome = if holds { GoalOutcome::Met } else { GoalOutcome::Missed };
        self.checks.push(Check { goal: goal.into(), measured: measured.into(), outcome });
    }

    /// There shall be none.
    pub fn none(&mut self, what: &str, count: usize) {
        self.must(format!("0 {what}"), count.to_string(), count == 0);
    }

    /// A time.
    pub fn within(&mut self, what: &str, ms: f64, limit_ms: f64) {
        self.must(format!("{what} <= {limit_ms:.0} ms"), format!("{ms:.0} ms"), ms <= limit_ms);
        self.excuse_in_smoke();
    }

    fn excuse_in_smoke(&mut self) {
        if let Some(check) = self.checks.last_mut().filter(|_| self.is_smoke) {
            check.outcome = GoalOutcome::NotJudged;
        }
    }

    /// Weir's own part of a failover: from the servers' new view on.
    pub fn own_share(&mut self, figures: &Figures, limit_ms: f64) {
        match figures.own_share_ms {
            Some(ms) => self.within("write pause after the new view", ms, limit_ms),
            // No pause waited for the view.
            None => self.within("write pause", figures.write_pause_ms, limit_ms),
        }
    }

    /// No client may have noticed anything but time.
    pub fn undisturbed(&mut self, figures: &Figures) {
        self.none("errors outside transactions", figures.outside);
        self.none("errors in transactions", figures.inside);
        self.none("unknown", figures.unknown);
        self.data(figures);
    }

    /// No row may be lost, twice, or there against an error's word; nothing stale; unknown ones at most one per client.
    pub fn data(&mut self, figures: &Figures) {
        self.none("acknowledged rows lost", figures.lost);
        self.none("rows written twice", figures.doubled);
        self.none("refused rows that are there", figures.refused_and_there);
        self.none("reads without their session's own writes", figures.stale);
        self.must(
            format!("unknown <= {} in flight", figures.clients),
            figures.unknown.to_string(),
            figures.unknown <= figures.clients,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_or_missed_and_times_not_judged_in_a_smoke_run() {
        let outcomes = |is_smoke| {
            let mut goals = GoalChecks::new(is_smoke);
            goals.none("errors", 1);
            goals.within("write pause", 120.0, 100.0);
            goals.checks.iter().map(|check| check.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(false), [GoalOutcome::Missed, GoalOutcome::Missed]);
        assert_eq!(outcomes(true), [GoalOutcome::Missed, GoalOutcome::NotJudged]);
    }
}
