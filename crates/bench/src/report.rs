//! The tables for the terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use weir_testkit::report::{Spread, aligned};

use crate::metric::Metric;
use crate::results::{CaseFigures, PeerFigures, Results, Verdict};
use crate::row::Row;

/// Case and peer.
const LEFT_COLUMNS: usize = 2;

/// One block per row of the report: medians with least and greatest, one line per case and peer; then the goals, which
/// a smoke run can't judge.
pub(crate) fn tables(results: &Results) -> String {
    let mut text = format!("\n{}\n", how(results));
    for row in Row::all() {
        let cases: Vec<&CaseFigures> = results.of(*row).collect();
        if !cases.is_empty() {
            // Writing to a String can't fail.
            let _ = write!(text, "\n{row}: {}\n{}", row.title(), aligned(&block(&cases), LEFT_COLUMNS));
        }
    }
    for (row, why) in &results.left_out {
        let _ = write!(text, "\n{row} could not be measured: {why}\n");
    }
    if !results.plan.smoke {
        let _ = write!(text, "\n{}", verdicts(results));
    }
    text
}

/// How it was measured, one sentence for all tables.
pub(crate) fn how(results: &Results) -> String {
    format!(
        "{} rounds of {} s, {} worker threads in each proxy; median (least..greatest), ratios within a round",
        results.rounds, results.seconds, results.workers
    )
}

/// Headings, and a line for every case and peer.
pub(crate) fn block(cases: &[&CaseFigures]) -> Vec<Vec<String>> {
    let figures = || cases.iter().flat_map(|case| &case.peers);
    let metrics: BTreeSet<Metric> = figures().flat_map(|peer| peer.figures.keys().copied()).collect();
    let ratios: BTreeSet<Metric> = figures()
        .flat_map(|peer| peer.to_haproxy.keys().copied())
        .filter(|metric| metric.has_ratio())
        .collect();
    let mut headings = vec![String::new(), "peer".to_owned()];
    headings.extend(metrics.iter().map(|metric| metric.heading().to_owned()));
    headings.extend(ratios.iter().map(|metric| format!("{} : HAProxy", metric.heading())));
    let line = |case: &CaseFigures, peer: &PeerFigures| {
        let mut line = vec![case.case.clone(), peer.peer.to_string()];
        line.extend(metrics.iter().map(|metric| cell(peer.figures.get(metric), metric.decimals())));
        line.extend(ratios.iter().map(|metric| cell(peer.to_haproxy.get(metric), 2)));
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

/// One line per goal.
fn verdicts(results: &Results) -> String {
    let mut text = String::new();
    for case in &results.cases {
        for verdict in &case.verdicts {
            let _ = writeln!(text, "{}", verdict_line(case, verdict));
        }
    }
    text
}

fn verdict_line(case: &CaseFigures, verdict: &Verdict) -> String {
    let mark = if verdict.is_met { "met   " } else { "MISSED" };
    format!("{mark} {} {}: {:.2}, goal {}", case.row, case.case, verdict.value, verdict.goal.text())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = tables(&example());
        let block: Vec<&str> = text.lines().skip_while(|line| !line.starts_with("point-select: ")).collect();
        let expected = [
            "point-select: oltp_point_select, text protocol",
            "peer statements/s CPU us/statement p99 ms statements/s : HAProxy CPU us/statement : HAProxy p99 ms : HAProxy",
            "64 threads direct 15000 (10000..20000) - 1.50 (1.00..2.00) 2.00 - 0.50",
            "64 threads haproxy 7500 (5000..10000) 25.0 (20.0..30.0) 3.00 (2.00..4.00) - - -",
            "64 threads weir 8250 (5500..11000) 19.5 (15.0..24.0) 2.40 (1.80..3.00) 1.10 0.78 (0.75..0.80) 0.82 (0.75..0.90)",
        ];
        for (line, expected) in block.iter().zip(expected) {
            assert_eq!(line.split_whitespace().collect::<Vec<_>>().join(" "), expected);
        }
        // All lines end where the headings end.
        let ends: Vec<usize> = block.iter().skip(1).take(4).map(|line| line.chars().count()).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn goals_and_gaps_are_said() {
        let text = tables(&example());
        let goal = "met    point-select 64 threads: 0.78, goal CPU us/statement <= 0.85 x HAProxy's";
        assert!(text.lines().any(|line| line == goal), "{text}");
        assert!(text.contains("local-infile could not be measured: not today"));
    }
}
