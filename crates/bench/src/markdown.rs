//! The tables for the documentation.

use std::fmt::Write as _;

use weir_testkit::report::markdown;

use crate::peer::Kind;
use crate::report;
use crate::results::{CaseFigures, Results, Verdict};
use crate::row::Row;

/// A summary of the goals, then every figure.
pub(crate) fn document(results: &Results) -> String {
    let mut text = format!("{}.\n\n{}.\n\n", results.machine, report::how(results));
    text.push_str(&summary(results));
    for row in Row::all() {
        let cases: Vec<&CaseFigures> = results.of(*row).collect();
        if !cases.is_empty() {
            // Writing to a String can't fail.
            let _ =
                write!(text, "\n### {}\n\n{}", capitalised(row.title()), markdown(&report::block(&cases)));
        }
    }
    for (row, why) in &results.left_out {
        let _ = write!(text, "\n`{row}` could not be measured: {why}\n");
    }
    text
}

/// One line per goal: the goal, Weir's figure, HAProxy's and ProxySQL's where there are any.
fn summary(results: &Results) -> String {
    let has_proxysql = results.cases.iter().any(|case| case.peer(Kind::ProxySql).is_some());
    let mut headings = vec!["what", "case", "goal", "measured", "Weir", "HAProxy"];
    headings.extend(has_proxysql.then_some("ProxySQL"));
    let mut rows = vec![headings.into_iter().map(str::to_owned).collect()];
    for case in &results.cases {
        for verdict in &case.verdicts {
            rows.push(summary_row(case, verdict, has_proxysql));
        }
    }
    markdown(&rows)
}

fn summary_row(case: &CaseFigures, verdict: &Verdict, has_proxysql: bool) -> Vec<String> {
    let metric = verdict.goal.metric;
    let median = |kind: Kind| {
        let spread = case.peer(kind).and_then(|peer| peer.figures.get(&metric));
        spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.*}", metric.decimals(), spread.median))
    };
    let missed = if verdict.is_met { "" } else { " (missed)" };
    let measured = format!("**{:.2}**{missed}", verdict.value);
    let mut row = vec![
        case.row.to_string(),
        case.case.clone(),
        verdict.goal.text(),
        measured,
        median(Kind::Weir),
        median(Kind::HaProxy),
    ];
    row.extend(has_proxysql.then(|| median(Kind::ProxySql)));
    row
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), text.starts_with("oltp_")) {
        (Some(first), false) => first.to_uppercase().chain(chars).collect(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn goals_come_first_and_every_table_has_as_many_cells_as_headings() {
        let text = document(&example());
        let goal =
            "| point-select | 64 threads | CPU us/statement <= 0.85 x HAProxy's | **0.78** | 19.5 | 25.0 |";
        assert!(text.lines().any(|line| line == goal), "{text}");
        let cells = |line: &str| line.matches('|').count();
        for block in text.split("\n\n").filter(|block| block.starts_with('|')) {
            let widths: Vec<usize> = block.lines().map(cells).collect();
            assert!(widths.len() > 2 && widths.windows(2).all(|pair| pair[0] == pair[1]), "{block}");
        }
        assert!(text.contains("`local-infile` could not be measured: not today"));
    }
}
