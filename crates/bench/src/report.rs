//! Makes the report: tables for the terminal and for the documentation, everything for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use weir_lab::measure::{self, Comparison};
use weir_lab::report::{Machine, aligned, capitalised, markdown};

use crate::args::Args;
use crate::peer::Kind;
use crate::row::Row;

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 3;
/// Case and peer.
const LEFT_COLUMNS: usize = 2;
/// Weir's goals are in terms of what stands in front of most clusters.
const COMPARISON: Comparison = Comparison { subject: "weir", baseline: "haproxy", title: "HAProxy" };

/// One case of a row: every peer's visits.
pub(crate) type Case = measure::Case<Row>;
/// The figures of one case.
pub(crate) type CaseFigures = measure::CaseFigures<Row>;

/// A whole run, as it is written to the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    format: u32,
    /// What it was measured on.
    machine: Machine,
    /// What was asked for.
    plan: Args,
    /// Worker threads of each proxy.
    workers: u16,
    /// How long a sysbench run took, seconds.
    seconds: u32,
    /// How often each peer was visited.
    rounds: u32,
    /// All cases of all rows.
    cases: Vec<CaseFigures>,
    /// Rows that could not be measured, and why.
    pub(crate) left_out: BTreeMap<Row, String>,
}

impl Results {
    /// Works out medians, ratios and goals.
    pub(crate) fn new(
        machine: Machine,
        args: &Args,
        cases: Vec<Case>,
        left_out: BTreeMap<Row, String>,
    ) -> Results {
        let scale = args.scale();
        Results {
            format: FORMAT,
            machine,
            plan: args.clone(),
            workers: args.workers(),
            seconds: scale.seconds,
            rounds: scale.rounds,
            cases: cases.into_iter().map(|case| CaseFigures::new(case, COMPARISON)).collect(),
            left_out,
        }
    }

    /// For the terminal: one block per row of the report, then the goals, which a smoke run can't judge.
    pub(crate) fn tables(&self) -> String {
        let mut text = format!("\n{}\n", self.how());
        for (row, block) in self.blocks() {
            // Writing to a String can't fail.
            let _ = write!(text, "\n{row}: {}\n{}", row.title(), aligned(&block, LEFT_COLUMNS));
        }
        for (row, why) in &self.left_out {
            let _ = write!(text, "\n{row} could not be measured: {why}\n");
        }
        if !self.plan.smoke {
            let _ = write!(text, "\n{}", measure::checked_goals(&self.cases, COMPARISON));
        }
        text
    }

    /// For the documentation: a summary of the goals, then every figure.
    pub(crate) fn document(&self) -> String {
        let peers = [(Kind::Weir, "Weir"), (Kind::HaProxy, "HAProxy"), (Kind::ProxySql, "ProxySQL")];
        let peers = peers.map(|(kind, title)| (kind.name(), title));
        let has_proxysql = self.cases.iter().any(|case| case.peer(Kind::ProxySql.name()).is_some());
        let shown = if has_proxysql { &peers[..] } else { &peers[..2] };
        let goals = markdown(&measure::goals(&self.cases, COMPARISON, shown));
        let mut text = format!("{}.\n\n{}.\n\n{goals}", self.machine, self.how());
        for (row, block) in self.blocks() {
            let _ = write!(text, "\n### {}\n\n{}", capitalised(row.title()), markdown(&block));
        }
        for (row, why) in &self.left_out {
            let _ = write!(text, "\n`{row}` could not be measured: {why}\n");
        }
        text
    }

    /// How it was measured, one sentence for all tables.
    fn how(&self) -> String {
        format!(
            "{} rounds of {} s, {} worker threads in each proxy; median (least..greatest), ratios within a round",
            self.rounds, self.seconds, self.workers
        )
    }

    /// The rows that were measured, in the report's order, each with its table.
    fn blocks(&self) -> impl Iterator<Item = (Row, Vec<Vec<String>>)> {
        Row::all().iter().filter_map(|&row| {
            let cases: Vec<&CaseFigures> = self.cases.iter().filter(|case| case.row == row).collect();
            (!cases.is_empty()).then(|| (row, measure::block(&cases, COMPARISON)))
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use weir_lab::measure::{Metric, PeerSamples, Sample};

    use super::*;

    fn sample(statements_per_s: f64, cpu: Option<f64>, p99_ms: f64) -> Sample {
        Sample::default()
            .with(Metric::StatementsPerS, statements_per_s)
            .with_some(Metric::CpuUsPerStatement, cpu)
            .with(Metric::P99Ms, p99_ms)
    }

    /// Two rounds; the machine was slower in the second.
    fn example() -> Results {
        let peers = vec![
            PeerSamples {
                peer: "direct".to_owned(),
                rounds: vec![sample(20_000.0, None, 1.0), sample(10_000.0, None, 2.0)],
            },
            PeerSamples {
                peer: "haproxy".to_owned(),
                rounds: vec![sample(10_000.0, Some(20.0), 2.0), sample(5_000.0, Some(30.0), 4.0)],
            },
            PeerSamples {
                peer: "weir".to_owned(),
                rounds: vec![sample(11_000.0, Some(15.0), 1.8), sample(5_500.0, Some(24.0), 3.0)],
            },
        ];
        let row = Row::PointSelect;
        let case = Case { row, name: "64 threads".to_owned(), goals: row.goals(64), peers };
        let machine = Machine {
            cpus: 2,
            cpu: "cpu".to_owned(),
            kernel: "6.1".to_owned(),
            mariadb: "10.11".to_owned(),
            versions: vec!["HAProxy 2.6".to_owned(), "sysbench 1.0".to_owned()],
        };
        let args = Args::try_parse_from(["weir-bench", "--workers", "2"]).unwrap();
        let left_out = BTreeMap::from([(Row::LocalInfile, "not today".to_owned())]);
        Results::new(machine, &args, vec![case], left_out)
    }

    #[test]
    fn ratios_pair_the_rounds_and_goals_follow() {
        let results = example();
        let case = &results.cases[0];
        let [direct, haproxy, weir] = &case.peers[..] else { panic!() };
        assert!(haproxy.ratios.is_empty());
        let spread = weir.ratios[&Metric::StatementsPerS];
        assert!((spread.min - 1.1).abs() < 1e-9 && (spread.max - 1.1).abs() < 1e-9);
        assert!((weir.ratios[&Metric::CpuUsPerStatement].median - 0.775).abs() < 1e-9);
        assert!(!direct.ratios.contains_key(&Metric::CpuUsPerStatement));
        let met: Vec<bool> = case.goals.iter().map(|check| check.is_met).collect();
        assert_eq!(met, [true, true]);
    }

    #[test]
    fn the_file_has_the_medians_and_every_round() {
        let json = serde_json::to_value(example()).unwrap();
        let weir = &json["cases"][0]["peers"][2];
        assert_eq!(weir["peer"], "weir");
        assert_eq!(weir["figures"]["statements_per_s"]["median"], 8250.0);
        assert_eq!(weir["rounds"][1]["cpu_us_per_statement"], 24.0);
        assert_eq!(json["cases"][0]["goals"][0]["is_met"], true);
        assert_eq!(json["left_out"]["local-infile"], "not today");
        assert_eq!((&json["format"], &json["workers"]), (&3.into(), &2.into()));
    }

    #[test]
    fn the_table_is_aligned_and_complete() {
        let text = example().tables();
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
        let text = example().tables();
        let goal = "met    point-select 64 threads: 0.78, goal CPU us/statement <= 0.85 x HAProxy's";
        assert!(text.lines().any(|line| line == goal), "{text}");
        assert!(text.contains("local-infile could not be measured: not today"));
    }

    #[test]
    fn goals_come_first_and_every_table_has_as_many_cells_as_headings() {
        let text = example().document();
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
