//! Works out what clients saw in a recording.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Moment;
use crate::log_watch::{VIEW, is_new_writer};
use crate::record::{Kind, Pause, Recording, Source, Stream};
use crate::rows::Audit;

/// Different texts of errors that are shown; the others are summed up.
const TEXTS_MAX: usize = 12;
/// Before the first event, this last moment is not taken for undisturbed.
const GUARD_MS: u64 = 20;

/// What clients saw in one trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Errors outside of transactions whose statements had no effect.
    pub outside: usize,
    /// Transactions that were lost without an effect.
    pub inside: usize,
    /// Transactions that the server chose as victims of a deadlock (1213).
    pub deadlocks: usize,
    /// Writes and COMMITs that were sent and not answered.
    pub unknown: usize,
    /// Reads that did not see what their session had written.
    pub stale: usize,
    /// Clients, each with one statement on its way at most.
    pub clients: usize,
    /// Acknowledged rows.
    pub acknowledged: usize,
    /// Acknowledged rows that are not there.
    pub lost: usize,
    /// Rows that are there twice.
    pub doubled: usize,
    /// Rows that are there although an error said no.
    pub refused_and_there: usize,
    /// Longest time without an acknowledged write after the event, milliseconds.
    pub write_pause_ms: f64,
    /// Longest time without an answered read, milliseconds.
    pub read_pause_ms: f64,
    /// The longest times before the event, when nothing was wrong: what this machine makes of it by itself.
    pub undisturbed_ms: f64,
    /// From the event to the survivors' new view, milliseconds.
    pub group_ms: Option<f64>,
    /// From the first delivery of the new view to the first acknowledged write, milliseconds.
    pub own_share_ms: Option<f64>,
    /// How often Weir gave the writer's role.
    pub writers: Option<usize>,
    /// sysbench's transactions per second before the event.
    pub load_tps: f64,
    /// Errors by their text, with their numbers.
    pub texts: BTreeMap<String, usize>,
}

impl Figures {
    /// Counts and measures; the load beside the probes has so many threads.
    pub fn new(recording: &Recording, audit: &Audit, threads: u32) -> Figures {
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
            clients: threads as usize + Stream::ALL.len(),
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
    pub fn add(&mut self, other: &Figures) {
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
pub fn own_share_ms(view: Moment, writes: &[Pause]) -> f64 {
    let after = writes.iter().filter(|pause| pause.from <= view && pause.to >= view);
    after.map(|pause| pause.to.ms_since(view)).fold(0.0, f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::example;

    #[test]
    fn the_groups_time_and_the_proxys_share_are_told_apart() {
        let figures = Figures::new(&example(), &Audit::default(), 32);
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
}
