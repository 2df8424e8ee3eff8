//! Makes the report: tables for people, everything for programs.

use std::fmt::Write as _;

use serde::Serialize;
use weir_lab::Error;
use weir_lab::goals::{Check, GoalOutcome};
use weir_lab::report::{self as lab, Machine, aligned, capitalised, markdown};

use crate::args::{Args, Part, Scale};
use crate::place::Place;

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 1;

/// What one part has found in front of one kind of servers.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    /// Which part.
    pub(crate) part: Part,
    /// In front of which servers.
    pub(crate) place: Place,
    /// How to read the table.
    pub(crate) remark: String,
    /// Columns of the table that are words.
    #[serde(skip)]
    pub(crate) left_columns: usize,
    /// Headings and rows.
    #[serde(skip)]
    pub(crate) table: Vec<Vec<String>>,
    /// Everything.
    pub(crate) figures: serde_json::Value,
    /// The goals.
    pub(crate) checks: Vec<Check>,
    /// For whoever wonders, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    format: u32,
    args: &'a Args,
    scale: Scale,
    /// What it was measured on.
    pub(crate) machine: Option<Machine>,
    /// In the order of places and parts.
    pub(crate) findings: Vec<Finding>,
    /// Servers that could not be started here, and why.
    pub(crate) not_run: Vec<(Place, String)>,
}

impl<'a> Report<'a> {
    /// Without anything yet. The files are made at once: a wrong path shall not cost a whole run.
    pub(crate) fn new(args: &'a Args) -> Result<Report<'a>, Error> {
        args.json.iter().chain(&args.markdown).try_for_each(|path| lab::claim(path))?;
        let (findings, not_run) = (Vec::new(), Vec::new());
        Ok(Report { format: FORMAT, args, scale: args.scale(), machine: None, findings, not_run })
    }

    /// Whether no goal was missed.
    pub(crate) fn is_good(&self) -> bool {
        let mut checks = self.findings.iter().flat_map(|finding| &finding.checks);
        checks.all(|check| check.outcome != GoalOutcome::Missed)
    }

    /// Writes the files; called after every part, so that an interrupted run leaves what it has.
    pub(crate) fn write(&self) -> Result<(), Error> {
        if let Some(path) = &self.args.json {
            lab::write_json(path, self)?;
        }
        if let Some(path) = &self.args.markdown {
            lab::write(path, &self.document())?;
        }
        Ok(())
    }

    /// For the terminal.
    pub(crate) fn summary(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let _ = writeln!(text, "\n{}: {}", finding.place, finding.part.title());
            let _ = writeln!(text, "{}", aligned(&finding.table, finding.left_columns));
            for note in &finding.notes {
                let _ = writeln!(text, "{note}");
            }
            for check in finding.checks.iter().filter(|check| check.outcome == GoalOutcome::Missed) {
                let _ = writeln!(text, "MISSED {}: {}", check.goal, check.measured);
            }
        }
        for (place, why) in &self.not_run {
            let _ = writeln!(text, "{place}: not run: {why}");
        }
        text
    }

    /// For the documentation and the curious.
    fn document(&self) -> String {
        let mut text = String::from("# Consistency: figures\n\n");
        if let Some(machine) = &self.machine {
            let _ = writeln!(text, "{machine}.\n");
        }
        if let Some(delay_ms) = self.args.delay_ms {
            let _ = writeln!(text, "The nodes hear each other {delay_ms} ms later.\n");
        }
        for finding in &self.findings {
            let title = format!("{}: {}", finding.place, finding.part.title());
            let _ = writeln!(text, "## {}\n\n{}\n", capitalised(&title), finding.remark);
            let _ = writeln!(text, "{}", markdown(&finding.table));
            if !finding.checks.is_empty() {
                let mut rows = vec![["goal", "measured", ""].map(str::to_owned).to_vec()];
                rows.extend(finding.checks.iter().map(|check| {
                    let outcome = match check.outcome {
                        GoalOutcome::Met => "met",
                        GoalOutcome::Missed => "**missed**",
                        GoalOutcome::NotJudged => "not judged",
                    };
                    vec![check.goal.clone(), check.measured.clone(), outcome.to_owned()]
                }));
                let _ = writeln!(text, "{}", markdown(&rows));
            }
            for note in &finding.notes {
                let _ = writeln!(text, "- {note}");
            }
            text.push('\n');
        }
        for (place, why) in &self.not_run {
            let _ = writeln!(text, "{}: not run: {why}.\n", capitalised(&place.to_string()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_lab::goals::GoalChecks;

    use super::*;

    #[test]
    fn the_report_says_what_was_missed_and_what_was_not_run() {
        let args = Args::parse_from(["weir-consistency"]);
        let mut report = Report::new(&args).unwrap();
        let mut goals = GoalChecks::new(false);
        goals.none("reads that go back in time at session", 3);
        report.findings.push(Finding {
            part: Part::Staleness,
            place: Place::Galera,
            remark: "Read it.".to_owned(),
            left_columns: 1,
            table: vec![vec!["level".to_owned()], vec!["session".to_owned()]],
            figures: serde_json::Value::Null,
            checks: goals.checks,
            notes: vec!["So it was.".to_owned()],
        });
        report.not_run.push((Place::Group, "there is no MySQL".to_owned()));
        assert!(!report.is_good());
        let summary = report.summary();
        assert!(summary.contains("MISSED 0 reads that go back in time at session: 3"), "{summary}");
        assert!(summary.contains("group: not run: there is no MySQL"), "{summary}");
        let document = report.document();
        assert!(document.contains("## Galera: stale reads\n\nRead it.\n\n| level |"), "{document}");
        assert!(
            document.contains("| 0 reads that go back in time at session | 3 | **missed** |"),
            "{document}"
        );
        assert!(document.contains("- So it was."), "{document}");
    }
}
