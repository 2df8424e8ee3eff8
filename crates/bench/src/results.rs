//! From visits to figures.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use weir_testkit::report::{Machine, Spread};

use crate::args::Args;
use crate::metric::{Goal, Metric, Sample};
use crate::peer::Kind;
use crate::row::Row;

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 2;

/// One case of a row, as in "64 threads": every peer's visits.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    /// Of which row.
    pub(crate) row: Row,
    /// What distinguishes it within the row.
    pub(crate) name: String,
    /// What is hoped for.
    pub(crate) goals: Vec<Goal>,
    /// In the order of the command line.
    pub(crate) peers: Vec<PeerSamples>,
}

/// What one peer did in a case.
#[derive(Debug, Clone)]
pub(crate) struct PeerSamples {
    /// Which peer.
    pub(crate) peer: Kind,
    /// One entry per round, in order.
    pub(crate) rounds: Vec<Sample>,
}

/// A whole run, as it is written to the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    format: u32,
    /// What it was measured on.
    pub(crate) machine: Machine,
    /// What was asked for.
    pub(crate) plan: Args,
    /// Worker threads of each proxy.
    pub(crate) workers: u16,
    /// How long a sysbench run took, seconds.
    pub(crate) seconds: u32,
    /// How often each peer was visited.
    pub(crate) rounds: u32,
    /// All cases of all rows.
    pub(crate) cases: Vec<CaseFigures>,
    /// Rows that could not be measured, and why.
    pub(crate) left_out: BTreeMap<Row, String>,
}

/// The figures of one case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CaseFigures {
    /// Of which row.
    pub(crate) row: Row,
    /// What distinguishes it within the row.
    pub(crate) case: String,
    /// One entry per peer.
    pub(crate) peers: Vec<PeerFigures>,
    /// What was hoped for, and what came of it.
    pub(crate) verdicts: Vec<Verdict>,
}

/// A peer's figures over all rounds of a case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PeerFigures {
    /// Which peer.
    pub(crate) peer: Kind,
    /// Middle and ends of every metric.
    pub(crate) figures: BTreeMap<Metric, Spread>,
    /// The same divided by HAProxy's of the same round; empty if HAProxy was not measured, and for itself.
    pub(crate) to_haproxy: BTreeMap<Metric, Spread>,
    /// The visits themselves.
    pub(crate) rounds: Vec<Sample>,
}

/// A goal and Weir's figure for it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// What was hoped for.
    pub(crate) goal: Goal,
    /// The median of Weir's figures or ratios.
    pub(crate) value: f64,
    /// Whether it is reached.
    pub(crate) is_met: bool,
}

impl Results {
    /// Works out medians, ratios and verdicts.
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
            cases: cases.into_iter().map(CaseFigures::new).collect(),
            left_out,
        }
    }

    /// The cases of a row.
    pub(crate) fn of(&self, row: Row) -> impl Iterator<Item = &CaseFigures> {
        self.cases.iter().filter(move |case| case.row == row)
    }
}

impl CaseFigures {
    fn new(case: Case) -> CaseFigures {
        let haproxy = case.peers.iter().find(|samples| samples.peer == Kind::HaProxy);
        let peers: Vec<PeerFigures> =
            case.peers.iter().map(|samples| PeerFigures::new(samples, haproxy)).collect();
        let weir = peers.iter().find(|figures| figures.peer == Kind::Weir);
        let verdicts = weir
            .map(|weir| case.goals.iter().filter_map(|goal| Verdict::new(*goal, weir)).collect())
            .unwrap_or_default();
        CaseFigures { row: case.row, case: case.name, peers, verdicts }
    }

    /// A peer's figures.
    pub(crate) fn peer(&self, kind: Kind) -> Option<&PeerFigures> {
        self.peers.iter().find(|figures| figures.peer == kind)
    }
}

impl Verdict {
    /// `None` if the metric was not measured.
    fn new(goal: Goal, weir: &PeerFigures) -> Option<Verdict> {
        let spreads = if goal.is_ratio { &weir.to_haproxy } else { &weir.figures };
        let value = spreads.get(&goal.metric)?.median;
        Some(Verdict { goal, value, is_met: goal.is_met_by(value) })
    }
}

impl PeerFigures {
    fn new(samples: &PeerSamples, haproxy: Option<&PeerSamples>) -> PeerFigures {
        let metrics: BTreeSet<Metric> = samples.rounds.iter().flat_map(Sample::metrics).collect();
        let figures = metrics.iter().filter_map(|&metric| {
            let spread = Spread::of(samples.rounds.iter().filter_map(|sample| sample.value(metric)));
            Some((metric, spread?))
        });
        let to_haproxy = haproxy.filter(|_| samples.peer != Kind::HaProxy);
        let ratios = metrics.iter().filter_map(|&metric| {
            let haproxy = &to_haproxy?.rounds;
            // Paired by round before gaps are dropped.
            let pairs = samples.rounds.iter().zip(haproxy);
            let pairs = pairs.filter_map(|(mine, its)| mine.value(metric).zip(its.value(metric)));
            Some((metric, Spread::of_ratios(pairs)?))
        });
        PeerFigures {
            peer: samples.peer,
            figures: figures.collect(),
            to_haproxy: ratios.collect(),
            rounds: samples.rounds.clone(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    fn sample(statements_per_s: f64, cpu: Option<f64>, p99_ms: f64) -> Sample {
        Sample::default()
            .with(Metric::StatementsPerS, statements_per_s)
            .with_some(Metric::CpuUsPerStatement, cpu)
            .with(Metric::P99Ms, p99_ms)
    }

    /// Two rounds; the machine was slower in the second.
    pub(crate) fn example() -> Results {
        let peers = vec![
            PeerSamples {
                peer: Kind::Direct,
                rounds: vec![sample(20_000.0, None, 1.0), sample(10_000.0, None, 2.0)],
            },
            PeerSamples {
                peer: Kind::HaProxy,
                rounds: vec![sample(10_000.0, Some(20.0), 2.0), sample(5_000.0, Some(30.0), 4.0)],
            },
            PeerSamples {
                peer: Kind::Weir,
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
    fn ratios_pair_the_rounds_and_verdicts_follow() {
        let results = example();
        let case = &results.cases[0];
        let [direct, haproxy, weir] = &case.peers[..] else { panic!() };
        assert!(haproxy.to_haproxy.is_empty());
        let spread = weir.to_haproxy[&Metric::StatementsPerS];
        assert!((spread.min - 1.1).abs() < 1e-9 && (spread.max - 1.1).abs() < 1e-9);
        assert!((weir.to_haproxy[&Metric::CpuUsPerStatement].median - 0.775).abs() < 1e-9);
        assert!(!direct.to_haproxy.contains_key(&Metric::CpuUsPerStatement));
        let met: Vec<bool> = case.verdicts.iter().map(|verdict| verdict.is_met).collect();
        assert_eq!(met, [true, true]);
    }

    #[test]
    fn a_gap_in_one_round_does_not_shift_the_pairs() {
        let rounds = |cpu: [Option<f64>; 2]| cpu.map(|cpu| sample(1.0, cpu, 1.0)).to_vec();
        let haproxy = PeerSamples { peer: Kind::HaProxy, rounds: rounds([Some(10.0), Some(20.0)]) };
        let weir = PeerSamples { peer: Kind::Weir, rounds: rounds([None, Some(10.0)]) };
        let figures = PeerFigures::new(&weir, Some(&haproxy));
        assert!((figures.to_haproxy[&Metric::CpuUsPerStatement].median - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_file_has_the_medians_and_every_round() {
        let json = serde_json::to_value(example()).unwrap();
        let weir = &json["cases"][0]["peers"][2];
        assert_eq!(weir["peer"], "weir");
        assert_eq!(weir["figures"]["statements_per_s"]["median"], 8250.0);
        assert_eq!(weir["rounds"][1]["cpu_us_per_statement"], 24.0);
        assert_eq!(json["cases"][0]["verdicts"][0]["is_met"], true);
        assert_eq!(json["left_out"]["local-infile"], "not today");
        assert_eq!((&json["format"], &json["workers"]), (&2.into(), &2.into()));
    }
}
