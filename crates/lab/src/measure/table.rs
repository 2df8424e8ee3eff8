//! Lays out figures as rows of cells and as lines.

use std::collections::BTreeSet;
use std::fmt::{Display, Write as _};

use super::{CaseFigures, Comparison, GoalCheck, Metric, PeerFigures};
use crate::report::Spread;

/// Headings, and a line for every case and peer: medians with least and greatest, then ratios.
pub fn block<Row>(cases: &[&CaseFigures<Row>], comparison: Comparison) -> Vec<Vec<String>> {
    let figures = || cases.iter().flat_map(|case| &case.peers);
    let metrics: BTreeSet<Metric> = figures().flat_map(|peer| peer.figures.keys().copied()).collect();
    let ratios: BTreeSet<Metric> =
        figures().flat_map(|peer| peer.ratios.keys().copied()).filter(|metric| metric.has_ratio()).collect();
    let mut headings = vec![String::new(), "peer".to_owned()];
    headings.extend(metrics.iter().map(|metric| metric.heading().to_owned()));
    headings.extend(ratios.iter().map(|metric| format!("{} : {}", metric.heading(), comparison.title)));
    let line = |case: &CaseFigures<Row>, peer: &PeerFigures| {
        let mut line = vec![case.case.clone(), peer.peer.clone()];
        line.extend(metrics.iter().map(|metric| cell(peer.figures.get(metric), metric.decimals())));
        line.extend(ratios.iter().map(|metric| cell(peer.ratios.get(metric), 2)));
        line
    };
    let lines = cases.iter().flat_map(|case| case.peers.iter().map(move |peer| line(case, peer)));
    std::iter::once(headings).chain(lines).collect()
}

/// "0.84 (0.80..0.91)", or only the one figure if there is but one.
fn cell(spread: Option<&Spread>, decimals: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |&Spread { median, min, max }| match min < max {
            true => format!("{median:.decimals$} ({min:.decimals$}..{max:.decimals$})"),
            false => format!("{median:.decimals$}"),
        },
    )
}

/// One line per goal, for a terminal.
pub fn checked_goals<Row: Display>(cases: &[CaseFigures<Row>], comparison: Comparison) -> String {
    let mut text = String::new();
    for (case, check) in each_goal(cases) {
        let GoalCheck { goal, value, is_met } = check;
        let (mark, goal) = (if *is_met { "met   " } else { "MISSED" }, goal.text(comparison.title));
        // Writing to a String can't fail.
        let _ = writeln!(text, "{mark} {} {}: {value:.2}, goal {goal}", case.row, case.case);
    }
    text
}

/// Headings, and a line for every goal: what is measured of the subject, and the medians of these peers, by name and title.
pub fn goals<Row: Display>(
    cases: &[CaseFigures<Row>],
    comparison: Comparison,
    peers: &[(&str, &str)],
) -> Vec<Vec<String>> {
    let mut headings = ["what", "case", "goal", "measured"].map(str::to_owned).to_vec();
    headings.extend(peers.iter().map(|(_, title)| (*title).to_owned()));
    let line = |(case, check): (&CaseFigures<Row>, &GoalCheck)| {
        let metric = check.goal.metric;
        let median = |name: &str| {
            let spread = case.peer(name).and_then(|peer| peer.figures.get(&metric));
            spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.*}", metric.decimals(), spread.median))
        };
        let missed = if check.is_met { "" } else { " (missed)" };
        let mut line = vec![
            case.row.to_string(),
            case.case.clone(),
            check.goal.text(comparison.title),
            format!("**{:.2}**{missed}", check.value),
        ];
        line.extend(peers.iter().map(|(name, _)| median(name)));
        line
    };
    std::iter::once(headings).chain(each_goal(cases).map(line)).collect()
}

fn each_goal<Row>(cases: &[CaseFigures<Row>]) -> impl Iterator<Item = (&CaseFigures<Row>, &GoalCheck)> {
    cases.iter().flat_map(|case| case.goals.iter().map(move |check| (case, check)))
}
