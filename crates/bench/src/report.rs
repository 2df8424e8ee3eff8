//! The table for the terminal.

use std::fmt::Write as _;

use crate::peer::Route;
use crate::results::{CaseFigures, PeerFigures, Results};
use crate::stats::Spread;

const HEADINGS: [&str; 8] = [
    "threads",
    "peer",
    "statements/s",
    "CPU us/statement",
    "p99 ms",
    "statements/s : HAProxy",
    "CPU : HAProxy",
    "p99 : HAProxy",
];
/// Between two columns.
const GAP: &str = "  ";

/// One block per workload, one row per peer and number of threads: medians with least and greatest.
pub(crate) fn table(results: &Results) -> String {
    let plan = &results.plan;
    let mut text = format!(
        "\n{} rounds of {} s, {} tables of {} rows, {} worker threads in each proxy; median (least..greatest), ratios \
         within a round\n",
        plan.rounds, plan.seconds, plan.tables, plan.table_rows, results.workers
    );
    if plan.weir_route == Route::Split {
        text.push_str("Weir splits reads over all nodes; HAProxy and direct use the writer only\n");
    }
    for workload in &plan.workloads {
        let cases: Vec<&CaseFigures> = results.cases.iter().filter(|c| c.workload == *workload).collect();
        // Writing to a String can't fail.
        let _ = write!(text, "\n{workload}\n{}", aligned(&rows(&cases)));
    }
    text
}

fn rows(cases: &[&CaseFigures]) -> Vec<Vec<String>> {
    let mut rows = vec![HEADINGS.map(str::to_owned).to_vec()];
    for case in cases {
        for peer in &case.peers {
            rows.push(row(case.threads, peer));
        }
    }
    rows
}

fn row(threads: u32, figures: &PeerFigures) -> Vec<String> {
    let ratios = figures.to_haproxy;
    let errors = match figures.errors_ignored {
        0 => String::new(),
        count => format!(" ({count} repeated)"),
    };
    vec![
        threads.to_string(),
        format!("{}{errors}", figures.peer),
        cell(figures.statements_per_s, 0),
        cell(figures.cpu_us_per_statement, 1),
        cell(figures.p99_ms, 2),
        cell(ratios.and_then(|r| r.statements_per_s), 2),
        cell(ratios.and_then(|r| r.cpu_us_per_statement), 2),
        cell(ratios.and_then(|r| r.p99_ms), 2),
    ]
}

fn cell(spread: Option<Spread>, decimals: usize) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |Spread { median, min, max }| format!("{median:.decimals$} ({min:.decimals$}..{max:.decimals$})"),
    )
}

/// The peer's name to the left, everything else to the right of its column.
fn aligned(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEADINGS.len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column {
                1 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::example;

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = table(&example());
        let block: Vec<&str> = text.lines().skip_while(|line| *line != "oltp_point_select").collect();
        let expected = [
            "oltp_point_select",
            "threads  peer             statements/s   CPU us/statement            p99 ms  statements/s : HAProxy     CPU : HAProxy     p99 : HAProxy",
            "     16  direct   15000 (10000..20000)                  -  1.50 (1.00..2.00)       2.00 (2.00..2.00)                 -  0.50 (0.50..0.50)",
            "     16  haproxy    7500 (5000..10000)  25.0 (20.0..30.0)  3.00 (2.00..4.00)                       -                 -                 -",
            "     16  weir       8250 (5500..11000)  19.5 (15.0..24.0)  2.40 (1.80..3.00)       1.10 (1.10..1.10)  0.78 (0.75..0.80)  0.82 (0.75..0.90)",
        ];
        for (line, expected) in block.iter().zip(expected) {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(line), words(expected));
        }
        // All rows end where the headings end.
        let ends: Vec<usize> = block.iter().skip(1).take(4).map(|line| line.chars().count()).collect();
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }
}
