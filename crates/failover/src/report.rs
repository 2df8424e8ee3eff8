//! Makes the report: a table for people, everything for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use weir_lab::Error;
use weir_lab::figures::Figures;
use weir_lab::goals::{Check, GoalOutcome};
use weir_lab::report::{self as lab, Machine, aligned, capitalised, markdown};

use crate::args::{Args, Scale};
use crate::trial::{Measured, Outcome, Trial};

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 2;
/// Scenario and proxy.
const LEFT_COLUMNS: usize = 2;

/// The directory of a report; made before anything is measured: a wrong path shall not cost a whole run.
#[derive(Debug)]
pub(crate) struct Output {
    dir: PathBuf,
}

impl Output {
    /// Makes it.
    pub(crate) fn create(dir: &Path) -> Result<Output, Error> {
        fs::create_dir_all(dir).map_err(Error::io(format!("make {}", dir.display())))?;
        lab::claim(&dir.join("report.md"))?;
        Ok(Output { dir: dir.to_owned() })
    }

    /// Writes a file of it.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        lab::write(&self.dir.join(name), text)
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    format: u32,
    args: &'a Args,
    scale: Scale,
    /// What it was measured on.
    pub(crate) machine: Option<Machine>,
    /// Whether the threads of the Galera nodes' group messages had a real-time priority.
    pub(crate) group_priority: Option<bool>,
    /// In the order of the scenarios.
    pub(crate) trials: Vec<Trial>,
}

impl<'a> Report<'a> {
    /// Without anything yet.
    pub(crate) fn new(args: &'a Args) -> Report<'a> {
        Report {
            format: FORMAT,
            args,
            scale: args.scale(),
            machine: None,
            group_priority: None,
            trials: Vec::new(),
        }
    }

    /// Whether everything that was run reached its goals.
    pub(crate) fn is_good(&self) -> bool {
        !self.trials.iter().any(Trial::is_bad)
    }

    /// Writes both forms; called after every scenario, so that an interrupted run leaves what it has.
    pub(crate) fn write(&self, output: &Output) -> Result<(), Error> {
        lab::write_json(&output.dir.join("report.json"), self)?;
        output.write("report.md", &self.document())
    }

    /// For the terminal.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("\n{}\n", aligned(&self.table(), LEFT_COLUMNS));
        for trial in &self.trials {
            let name = name(trial);
            match &trial.outcome {
                Outcome::Measured(measured) => {
                    for check in measured.checks.iter().filter(|check| check.outcome == GoalOutcome::Missed) {
                        let _ = writeln!(text, "{name}: {}", check_line(check));
                    }
                }
                Outcome::NotRun(why) => drop(writeln!(text, "{name}: not run: {why}")),
                Outcome::Failed(why) => drop(writeln!(text, "{name}: failed: {why}")),
            }
        }
        text
    }

    /// For the documentation and the curious.
    fn document(&self) -> String {
        let mut text = String::from("# What clients see when servers fail\n\n");
        if let Some(machine) = &self.machine {
            let _ = writeln!(text, "{machine}.\n");
        }
        let priority = match self.group_priority {
            Some(true) => " The threads of the Galera nodes' group messages have a real-time priority.",
            _ => "",
        };
        let _ = writeln!(text, "The servers' data is in {}.{priority}\n", self.args.data_dir.display());
        let _ = writeln!(
            text,
            "{} threads of sysbench's oltp_read_write, and probes that write and read every 5 ms on kept and on new \
             connections. Pauses are the longest times without an answer on any of them.\n",
            self.scale.load.threads
        );
        text.push_str(&markdown(&self.table()));
        for trial in &self.trials {
            let _ = write!(text, "\n## {}\n\n", name(trial));
            let _ = writeln!(text, "{}.\n", capitalised(trial.scenario.title()));
            match &trial.outcome {
                Outcome::Measured(measured) => section(&mut text, measured),
                Outcome::NotRun(why) => drop(writeln!(text, "Not run: {why}.")),
                Outcome::Failed(why) => drop(writeln!(text, "Failed: {why}.")),
            }
        }
        text
    }

    /// One line per trial.
    fn table(&self) -> Vec<Vec<String>> {
        let headings = [
            "scenario",
            "through",
            "errors outside",
            "in transactions",
            "1213",
            "unknown",
            "lost",
            "twice",
            "write pause ms",
            "group's ms",
            "own ms",
            "read pause ms",
            "undisturbed ms",
            "writers",
            "goals",
        ];
        let line = |trial: &Trial| {
            let mut cells = vec![scenario_name(trial), trial.peer.to_string()];
            match &trial.outcome {
                Outcome::Measured(measured) => cells.extend(cells_of(measured)),
                Outcome::NotRun(_) => cells.push("not run".to_owned()),
                Outcome::Failed(_) => cells.push("failed".to_owned()),
            }
            cells.resize(headings.len(), String::new());
            cells
        };
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows.extend(self.trials.iter().map(line));
        rows
    }
}

fn cells_of(measured: &Measured) -> Vec<String> {
    let figures = &measured.figures;
    let count = |count: usize| count.to_string();
    let ms = |ms: f64| format!("{ms:.0}");
    let maybe = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0}"));
    vec![
        count(figures.outside),
        count(figures.inside),
        count(figures.deadlocks),
        count(figures.unknown),
        count(figures.lost),
        count(figures.doubled),
        ms(figures.write_pause_ms),
        maybe(figures.group_ms),
        maybe(figures.own_share_ms),
        ms(figures.read_pause_ms),
        ms(figures.undisturbed_ms),
        figures.writers.map_or_else(|| "-".to_owned(), count),
        goals(&measured.checks),
    ]
}

/// "all met", or how many of them were missed.
fn goals(checks: &[Check]) -> String {
    let missed = checks.iter().filter(|check| check.outcome == GoalOutcome::Missed).count();
    match (checks.len(), missed) {
        (0, _) => "-".to_owned(),
        (_, 0) => "met".to_owned(),
        (all, missed) => format!("{missed} of {all} MISSED"),
    }
}

fn section(text: &mut String, measured: &Measured) {
    let Figures { acknowledged, load_tps, texts, .. } = &measured.figures;
    if let Some(plot) = &measured.plot {
        let _ = writeln!(text, "![Time-line]({plot})\n");
    }
    if !measured.checks.is_empty() {
        let mut rows = vec![["goal", "measured", ""].map(str::to_owned).to_vec()];
        let row = |check: &Check| {
            vec![check.goal.clone(), check.measured.clone(), outcome_word(check.outcome).to_owned()]
        };
        rows.extend(measured.checks.iter().map(row));
        let _ = writeln!(text, "{}", markdown(&rows));
    }
    let _ = writeln!(
        text,
        "{acknowledged} acknowledged rows of the probes; sysbench had {load_tps:.0} transactions/s before."
    );
    for note in &measured.notes {
        let _ = writeln!(text, "{note}");
    }
    if !texts.is_empty() {
        let mut rows = vec![["error", "times"].map(str::to_owned).to_vec()];
        rows.extend(texts.iter().map(|(error, count)| vec![error.clone(), count.to_string()]));
        let _ = write!(text, "\n{}", markdown(&rows));
    }
}

fn name(trial: &Trial) -> String {
    format!("{} through {}", scenario_name(trial), trial.peer)
}

fn scenario_name(trial: &Trial) -> String {
    match trial.variant.is_empty() {
        true => trial.scenario.to_string(),
        false => format!("{} ({})", trial.scenario, trial.variant),
    }
}

fn outcome_word(outcome: GoalOutcome) -> &'static str {
    match outcome {
        GoalOutcome::Met => "met",
        GoalOutcome::Missed => "**missed**",
        GoalOutcome::NotJudged => "not judged",
    }
}

/// A goal as a line of the terminal.
pub(crate) fn check_line(check: &Check) -> String {
    let mark = match check.outcome {
        GoalOutcome::Met => "met   ",
        GoalOutcome::Missed => "MISSED",
        GoalOutcome::NotJudged => "-     ",
    };
    format!("{mark} {}: {}", check.goal, check.measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerKind;
    use crate::scenario::Scenario;
    use clap::Parser;
    use weir_lab::goals::GoalChecks;

    #[test]
    fn the_report_says_what_was_missed_and_what_was_not_run() {
        let args = Args::parse_from(["weir-failover"]);
        let mut report = Report::new(&args);
        let mut goals = GoalChecks::new(false);
        goals.none("acknowledged rows lost", 2);
        let figures = Figures { lost: 2, write_pause_ms: 2100.4, ..Figures::default() };
        let measured = Measured { figures, checks: goals.checks, notes: Vec::new(), plot: None };
        let trial =
            |scenario, outcome| Trial { scenario, peer: PeerKind::Weir, variant: String::new(), outcome };
        report.trials = vec![
            trial(Scenario::WriterKilled, Outcome::Measured(Box::new(measured))),
            trial(Scenario::Reader, Outcome::NotRun("no reader".to_owned())),
        ];
        assert!(!report.is_good());
        let summary = report.summary();
        assert!(
            summary.contains("writer-killed through weir: MISSED 0 acknowledged rows lost: 2"),
            "{summary}"
        );
        assert!(summary.contains("reader through weir: not run: no reader"), "{summary}");
        let document = report.document();
        assert!(document.contains("| 0 acknowledged rows lost | 2 | **missed** |"), "{document}");
        assert!(document.contains("| writer-killed | weir | 0 |"), "{document}");
    }
}
