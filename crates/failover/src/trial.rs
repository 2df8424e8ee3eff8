//! The result of a scenario through one proxy.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::clock::Moment;
use crate::peer::PeerKind;
use crate::record::{Kind, Pause, Recording, Source};
use crate::rows::Audit;
use crate::scenario::Scenario;
use crate::stage::Finished;
use crate::watch::VIEW;

/// Different texts of errors that are shown; the others are summed up.
const TEXTS_MAX: usize = 12;
/// Before the first event, this last moment is not taken for undisturbed.
const GUARD_MS: u64 = 20;

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
                measured.checks.iter().any(|check| check.verdict == Verdict::Missed)
            }
            Outcome::NotRun(_) => false,
            Outcome::Failed(_) => true,
        }
    }
}

/// What clients saw in one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Errors outside of transactions whose statements had no effect.
    pub(crate) outside: usize,
    /// Transactions that were lost without an effect.
    pub(crate) inside: usize,
    /// Transactions that an application repeats by itself (1213).
    pub(crate) deadlocks: usize,
    /// Writes and COMMITs that were sent and not answered.
    pub(crate) unknown: usize,
    /// Reads that did not see what their session had written.
    pub(crate) stale: usize,
    /// Clients, each with one statement on its way at most.
    pub(crate) clients: usize,
    /// Acknowledged rows.
    pub(crate) acknowledged: usize,
    /// Acknowledged rows that are not there.
    pub(crate) lost: usize,
    /// Rows that are there twice.
    pub(crate) doubled: usize,
    /// Rows that are there although an error said no.
    pub(crate) refused_and_there: usize,
    /// Longest time without an acknowledged write after the event, milliseconds.
    pub(crate) write_pause_ms: f64,
    /// Longest time without an answered read, milliseconds.
    pub(crate) read_pause_ms: f64,
    /// The longest times before the event, when nothing was wrong: what this machine makes of it by itself.
    pub(crate) undisturbed_ms: f64,
    /// From the event to the survivors' new view, milliseconds.
    pub(crate) group_ms: Option<f64>,
    /// From the first delivery of the new view to the first acknowledged write, milliseconds.
    pub(crate) own_share_ms: Option<f64>,
    /// How often Weir gave the writer's role.
    pub(crate) writers: Option<usize>,
    /// sysbench's transactions per second before the event.
    pub(crate) load_tps: f64,
    /// Errors by their text, with their numbers.
    pub(crate) texts: BTreeMap<String, usize>,
}

impl Figures {
    /// Counts and measures.
    pub(crate) fn of(finished: &Finished) -> Figures {
        Figures::from_parts(&finished.recording, &finished.audit, finished.threads)
    }

    fn from_parts(recording: &Recording, audit: &Audit, threads: u32) -> Figures {
        let count = |kind| recording.failures.iter().filter(|failure| failure.kind == kind).count();
        let (begun, event, ended) = (recording.begun, recording.event(), recording.ended);
        let ms = |pause: Option<Pause>| pause.map_or(0.0, |pause| pause.ms());
        let before = event.minus_ms(GUARD_MS);
        // The first answers of new probes are no measure.
        let calm = begun.plus_ms(500).min(before);
        let longest = |writes, from, to| Pause::longest(&recording.pauses(writes, from, to));
        let undisturbed = |writes| recording.longest_within(writes, calm, before);
        let writes = recording.pauses(true, event, ended);
        let view = new_view(recording, event, &writes);
        let seconds_before = (event.ms_since(begun) / 1000.0) as usize;
        let tps: Vec<f64> = recording.load_tps.iter().copied().take(seconds_before).collect();
        Figures {
            outside: count(Kind::Outside),
            inside: count(Kind::Inside),
            deadlocks: count(Kind::Deadlock),
            unknown: count(Kind::Unknown),
            stale: count(Kind::Stale),
            clients: threads as usize + crate::record::Stream::ALL.len(),
            acknowledged: audit.acknowledged,
            lost: audit.lost,
            doubled: audit.doubled,
            refused_and_there: audit.refused_and_there,
            write_pause_ms: ms(Pause::longest(&writes)),
            read_pause_ms: ms(longest(false, event, ended)),
            undisturbed_ms: undisturbed(true).max(undisturbed(false)),
            group_ms: view.map(|view| view.ms_since(event)),
            own_share_ms: view.map(|view| own_share_ms(view, &writes)),
            writers: recording.marks.iter().any(|m| matches!(m.source, Source::Proxy(_))).then(|| {
                recording.marks.iter().filter(|mark| mark.at >= event && is_new_writer(&mark.text)).count()
            }),
            load_tps: tps.iter().sum::<f64>() / tps.len().max(1) as f64,
            texts: texts(recording),
        }
    }
}

impl Figures {
    /// Sums up what can be summed up, and takes the longer pauses.
    pub(crate) fn add(&mut self, other: &Figures) {
        self.outside += other.outside;
        self.inside += other.inside;
        self.deadlocks += other.deadlocks;
        self.unknown += other.unknown;
        self.stale += other.stale;
        self.clients = self.clients.max(other.clients);
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.refused_and_there += other.refused_and_there;
        self.write_pause_ms = self.write_pause_ms.max(other.write_pause_ms);
        self.read_pause_ms = self.read_pause_ms.max(other.read_pause_ms);
        self.undisturbed_ms = self.undisturbed_ms.max(other.undisturbed_ms);
        self.writers = Some(self.writers.unwrap_or(0) + other.writers.unwrap_or(0));
        self.load_tps = other.load_tps;
        for (text, count) in &other.texts {
            *self.texts.entry(text.clone()).or_default() += count;
        }
    }
}

/// The first view with quorum that a survivor has told of, if the longest pause waited for it.
fn new_view(recording: &Recording, event: Moment, writes: &[Pause]) -> Option<Moment> {
    let longest = Pause::longest(writes)?;
    let mut views = recording.marks.iter().filter(|mark| {
        matches!(mark.source, Source::Server(_)) && mark.at >= event && mark.text.starts_with(VIEW)
    });
    views.next().map(|mark| mark.at).filter(|&view| view <= longest.to)
}

/// The longest of the pauses that a view ended, from the view on, milliseconds.
pub(crate) fn own_share_ms(view: Moment, writes: &[Pause]) -> f64 {
    let after = writes.iter().filter(|pause| pause.from <= view && pause.to >= view);
    after.map(|pause| pause.to.ms_since(view)).fold(0.0, f64::max)
}

/// "hostgroup 100 127.0.0.52:3306: writer: ...", as Weir logs it.
pub(crate) fn is_new_writer(text: &str) -> bool {
    text.starts_with("hostgroup ") && text.contains(": writer: ")
}

fn texts(recording: &Recording) -> BTreeMap<String, usize> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for failure in &recording.failures {
        let who = if failure.is_load { "sysbench" } else { "probe" };
        let text = format!("{}, {who}: {}", failure.kind, without_numbers(&failure.text));
        *counts.entry(text).or_default() += 1;
    }
    let mut sorted: Vec<(String, usize)> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let others: usize = sorted.iter().skip(TEXTS_MAX).map(|(_, count)| count).sum();
    sorted.truncate(TEXTS_MAX);
    if others > 0 {
        sorted.push(("other errors".to_owned(), others));
    }
    sorted.into_iter().collect()
}

/// Errors that differ only in long numbers, such as times and ids, are the same.
fn without_numbers(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        let is_number = digits > 0 && word.chars().all(|c| c.is_ascii_digit() || ".,;:ms()".contains(c));
        // Codes of errors and states stay: "1053", "(08007):".
        if is_number && !word.contains('(') && digits != 4 { "N" } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a goal was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// It was.
    Met,
    /// It was not.
    Missed,
    /// A smoke run says nothing about times.
    NotJudged,
}

/// A goal and what was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Check {
    /// As in "write pause <= 1000 ms".
    pub(crate) goal: String,
    /// As in "213 ms".
    pub(crate) measured: String,
    /// What to conclude.
    pub(crate) verdict: Verdict,
}

/// Makes checks.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    /// Times are not judged.
    pub(crate) is_smoke: bool,
    /// So far.
    pub(crate) checks: Vec<Check>,
}

impl Judge {
    /// For a full run or a smoke run.
    pub(crate) fn new(is_smoke: bool) -> Judge {
        Judge { is_smoke, checks: Vec::new() }
    }

    /// Something has to be.
    pub(crate) fn must(&mut self, goal: impl Into<String>, measured: impl Into<String>, holds: bool) {
        let verdict = if holds { Verdict::Met } else { Verdict::Missed };
        self.checks.push(Check { goal: goal.into(), measured: measured.into(), verdict });
    }

    /// There shall be none.
    pub(crate) fn none(&mut self, what: &str, count: usize) {
        self.must(format!("0 {what}"), count.to_string(), count == 0);
    }

    /// A time.
    pub(crate) fn within(&mut self, what: &str, ms: f64, limit_ms: f64) {
        self.must(format!("{what} <= {limit_ms:.0} ms"), format!("{ms:.0} ms"), ms <= limit_ms);
        self.excuse_in_smoke();
    }

    fn excuse_in_smoke(&mut self) {
        if let Some(check) = self.checks.last_mut().filter(|_| self.is_smoke) {
            check.verdict = Verdict::NotJudged;
        }
    }

    /// Weir's own part of a failover: from the servers' new view on.
    pub(crate) fn own_share(&mut self, figures: &Figures, limit_ms: f64) {
        match figures.own_share_ms {
            Some(ms) => self.within("write pause after the new view", ms, limit_ms),
            // No pause waited for the view.
            None => self.within("write pause", figures.write_pause_ms, limit_ms),
        }
    }

    /// No row may be lost, twice, or there against an error's word; nothing stale; unknown ones at most one per client.
    pub(crate) fn data(&mut self, figures: &Figures) {
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
    use crate::record::tests::example;

    #[test]
    fn the_groups_time_and_the_proxys_share_are_told_apart() {
        let figures = Figures::from_parts(&example(), &Audit::default(), 32);
        assert!((figures.write_pause_ms - 305.0).abs() < 1e-6, "{figures:?}");
        assert!((figures.read_pause_ms - 5.0).abs() < 1e-6);
        assert_eq!(figures.group_ms.map(f64::round), Some(280.0));
        assert_eq!(figures.own_share_ms.map(f64::round), Some(21.0));
        assert_eq!((figures.unknown, figures.outside, figures.clients), (1, 0, 37));
        assert!(figures.undisturbed_ms < 6.0);
        assert_eq!(figures.writers, None);
    }

    #[test]
    fn texts_of_errors_are_counted_without_their_times() {
        assert_eq!(
            without_numbers("error 1053 (08007): lost after 1234567 ms"),
            "error 1053 (08007): lost after N ms"
        );
        assert_eq!(without_numbers("no answer within 40s"), "no answer within N");
    }

    #[test]
    fn goals_are_met_or_missed_and_times_not_judged_in_a_smoke_run() {
        let verdicts = |is_smoke| {
            let mut judge = Judge::new(is_smoke);
            judge.none("errors", 1);
            judge.within("write pause", 120.0, 100.0);
            judge.checks.iter().map(|check| check.verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(false), [Verdict::Missed, Verdict::Missed]);
        assert_eq!(verdicts(true), [Verdict::Missed, Verdict::NotJudged]);
    }
}
