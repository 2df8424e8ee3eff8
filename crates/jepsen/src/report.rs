//! Makes the report: a table for the terminal, a page for people, everything for programs.

use std::fs;
use std::path::Path;

use serde::Serialize;
use weir_lab::Error;
use weir_lab::report::{self as lab, Machine, aligned};

use crate::args::Args;
use crate::guard::WITHOUT_SWITCH;
use crate::html;
use crate::judge::{Judged, Verdict};
use crate::place::{PeerKind, Place};

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 1;

/// Everything.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    format: u32,
    args: &'a Args,
    /// What it was measured on.
    pub(crate) machine: Option<Machine>,
    /// The runs, in their order.
    pub(crate) verdicts: Vec<Verdict>,
    /// What could not be done here, and why.
    pub(crate) not_run: Vec<(Place, String)>,
}

impl<'a> Report<'a> {
    /// Without anything yet. The directory and the files are made at once: a wrong path shall not cost a whole run.
    pub(crate) fn new(args: &'a Args) -> Result<Report<'a>, Error> {
        fs::create_dir_all(&args.out).map_err(Error::io(format!("make {}", args.out.display())))?;
        args.json.iter().try_for_each(|path| lab::claim(path))?;
        Ok(Report { format: FORMAT, args, machine: None, verdicts: Vec::new(), not_run: Vec::new() })
    }

    /// Whether nothing was missed.
    pub(crate) fn is_good(&self) -> bool {
        self.verdicts.iter().all(|verdict| verdict.missed().is_empty())
    }

    /// Writes the files; called after every run, so that an interrupted program leaves what it has.
    pub(crate) fn write(&self) -> Result<(), Error> {
        lab::write_json(&self.args.out.join("report.json"), self)?;
        lab::write(&self.args.out.join("report.html"), &html::page(self))?;
        self.args.json.iter().try_for_each(|path| lab::write_json(path, self))
    }

    /// Writes the histories of a run's workloads in which something was found, a transaction a line.
    pub(crate) fn write_histories(&self, number: usize, verdict: &Verdict) -> Result<(), Error> {
        for judged in verdict.workloads.iter().filter(|judged| !judged.transactions.is_empty()) {
            let lines: Result<Vec<String>, _> =
                judged.transactions.iter().map(serde_json::to_string).collect();
            let lines = lines.map_err(Error::io("write a history"))?;
            let path = self.args.out.join(history_name(number, judged));
            lab::write(Path::new(&path), &lines.join("\n"))?;
        }
        Ok(())
    }

    /// For the terminal.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("\n{}\n", aligned(&self.table(), 3));
        for (number, verdict) in (1..).zip(&self.verdicts) {
            for missed in verdict.missed() {
                text.push_str(&format!("MISSED run {number}: {missed}\n"));
            }
            for judged in &verdict.workloads {
                for undecided in &judged.findings.undecided {
                    text.push_str(&format!("run {number}: {}: undecided: {undecided}\n", judged.workload));
                }
            }
        }
        if self.verdicts.iter().any(|verdict| verdict.setup.guard.is_some()) {
            for (guard, anomalies) in WITHOUT_SWITCH {
                text.push_str(&format!("not tested, for no setting switches it off: {guard}: {anomalies}\n"));
            }
        }
        for (place, why) in &self.not_run {
            text.push_str(&format!("{place}: not run: {why}\n"));
        }
        text
    }

    /// A row for each workload of each run.
    pub(crate) fn table(&self) -> Vec<Vec<String>> {
        let headings = ["run", "", "workload", "ok", "failed", "unknown", "done", "anomalies", ""];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        for (number, verdict) in (1..).zip(&self.verdicts) {
            for judged in &verdict.workloads {
                rows.push(vec![
                    number.to_string(),
                    title(verdict),
                    judged.workload.to_string(),
                    judged.counts.ok.to_string(),
                    judged.counts.failed.to_string(),
                    judged.counts.unknown.to_string(),
                    judged.findings.unknown_done.to_string(),
                    anomalies(judged),
                    conclusion(verdict, judged).to_owned(),
                ]);
            }
        }
        rows
    }
}

/// The file of a workload's history.
pub(crate) fn history_name(number: usize, judged: &Judged) -> String {
    format!("history-{number}-{}.jsonl", judged.workload)
}

/// What a run was, in a line.
pub(crate) fn title(verdict: &Verdict) -> String {
    let setup = &verdict.setup;
    let mut text = match setup.peer {
        PeerKind::Weir => format!("{}, {} at {}", setup.place, setup.peer, setup.level),
        _ => format!("{}, {}", setup.place, setup.peer),
    };
    if let Some(guard) = setup.guard {
        text.push_str(&format!(", without {guard}"));
    }
    text
}

/// The classes, with their numbers.
pub(crate) fn anomalies(judged: &Judged) -> String {
    let counts = judged.findings.counts.iter();
    let words: Vec<String> = counts.map(|(class, count)| format!("{count} {class}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// What to conclude.
pub(crate) fn conclusion(verdict: &Verdict, judged: &Judged) -> &'static str {
    let setup = &verdict.setup;
    match setup.guard {
        Some(guard)
            if judged.findings.names().iter().any(|name| guard.anomalies().contains(&name.as_str())) =>
        {
            "found"
        }
        Some(_) => "",
        None if judged.findings.counts.is_empty() => "",
        None if setup.peer != PeerKind::Weir => "not promised",
        None if judged.unexpected.is_empty() => "allowed",
        None => "WRONG",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use clap::Parser;
    use weir_jepsen::checker::{History, Kind, Op};

    use super::*;
    use crate::place::{Isolation, Level};
    use crate::run::{Seen, Setup};
    use crate::workload::Workload;

    #[test]
    fn the_report_says_what_was_missed_and_shows_its_history() {
        let out = std::env::temp_dir().join(format!("weir-jepsen-report-{}", std::process::id()));
        let args = Args::parse_from(["weir-jepsen", "--out", &out.display().to_string()]);
        let mut report = Report::new(&args).unwrap();
        let mut history = History::default();
        history.push(1, 0, 10, Kind::Ok, vec![Op::Add { value: 7 }]);
        history.push_final(vec![Op::Members { found: Some(vec![]) }]);
        let seen = Seen {
            histories: [(Workload::Set, history)].into(),
            diverged: BTreeMap::new(),
            marks: Vec::new(),
            texts: [("error 1 <x>".to_owned(), 3)].into(),
            rss_kib: Vec::new(),
            left_over: None,
        };
        let setup = Setup {
            place: Place::Galera,
            peer: PeerKind::Weir,
            level: Level::Global,
            isolation: Isolation::RepeatableRead,
            guard: None,
            workloads: vec![Workload::Set],
            faults: Vec::new(),
            time: Duration::from_secs(1),
        };
        let verdict = Verdict::of(&setup, seen);
        report.write_histories(1, &verdict).unwrap();
        report.verdicts.push(verdict);
        report.not_run.push((Place::Group, "there is no MySQL".to_owned()));
        report.write().unwrap();
        assert!(!report.is_good());
        let summary = report.summary();
        assert!(
            summary.contains("MISSED run 1: set: 1 x lost") && summary.contains("there is no MySQL"),
            "{summary}"
        );
        let page = fs::read_to_string(out.join("report.html")).unwrap();
        for part in ["7 was added, acknowledged", "add 7", "error 1 &lt;x&gt;", "history-1-set.jsonl", "<svg"]
        {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        assert!(fs::read_to_string(out.join("history-1-set.jsonl")).unwrap().contains("\"add\""));
        fs::remove_dir_all(out).unwrap();
    }
}
