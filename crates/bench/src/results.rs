//! From visits to figures.

use serde::Serialize;

use crate::args::Args;
use crate::machine::Machine;
use crate::measure::{Case, PeerSamples, Sample};
use crate::peer::Kind;
use crate::stats::Spread;

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 1;

/// A whole run, as it is written to the JSON file.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Results {
    format: u32,
    /// What it was measured on.
    pub(crate) machine: Machine,
    /// What was asked for.
    pub(crate) plan: Args,
    /// Worker threads of either proxy.
    pub(crate) workers: u16,
    /// Each workload with each number of threads.
    pub(crate) cases: Vec<CaseFigures>,
}

/// The figures of one workload with one number of threads.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CaseFigures {
    /// sysbench's name.
    pub(crate) workload: String,
    /// Connections.
    pub(crate) threads: u32,
    /// One entry per peer.
    pub(crate) peers: Vec<PeerFigures>,
}

/// A peer's figures over all rounds of a case.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PeerFigures {
    /// Which peer.
    pub(crate) peer: Kind,
    /// Statements per second.
    pub(crate) statements_per_s: Option<Spread>,
    /// The proxy's CPU time per statement, µs.
    pub(crate) cpu_us_per_statement: Option<Spread>,
    /// 99th percentile of an event's latency, ms.
    pub(crate) p99_ms: Option<Spread>,
    /// The same three divided by HAProxy's of the same round; `None` if HAProxy was not measured, or for itself.
    pub(crate) to_haproxy: Option<Ratios>,
    /// Errors that sysbench repeated the transaction for, all rounds.
    pub(crate) errors_ignored: u64,
    /// The visits themselves.
    pub(crate) rounds: Vec<Sample>,
}

/// How a peer compares with HAProxy.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Ratios {
    /// More is better.
    pub(crate) statements_per_s: Option<Spread>,
    /// Less is better.
    pub(crate) cpu_us_per_statement: Option<Spread>,
    /// Less is better.
    pub(crate) p99_ms: Option<Spread>,
}

impl Results {
    /// Works out medians and ratios.
    pub(crate) fn new(machine: Machine, args: &Args, cases: Vec<Case>) -> Results {
        let cases = cases.into_iter().map(CaseFigures::new).collect();
        Results { format: FORMAT, machine, plan: args.clone(), workers: args.workers(), cases }
    }
}

impl CaseFigures {
    fn new(case: Case) -> CaseFigures {
        let haproxy = case.peers.iter().find(|samples| samples.peer == Kind::HaProxy);
        let peers = case.peers.iter().map(|samples| PeerFigures::new(samples, haproxy)).collect();
        CaseFigures { workload: case.workload, threads: case.threads, peers }
    }
}

impl PeerFigures {
    fn new(samples: &PeerSamples, haproxy: Option<&PeerSamples>) -> PeerFigures {
        let rounds = &samples.rounds;
        PeerFigures {
            peer: samples.peer,
            statements_per_s: Spread::of(rounds.iter().map(|s| s.statements_per_s)),
            cpu_us_per_statement: Spread::of(rounds.iter().filter_map(|s| s.cpu_us_per_statement)),
            p99_ms: Spread::of(rounds.iter().map(|s| s.p99_ms)),
            to_haproxy: haproxy
                .filter(|_| samples.peer != Kind::HaProxy)
                .map(|haproxy| Ratios::new(rounds, &haproxy.rounds)),
            errors_ignored: rounds.iter().map(|s| s.errors_ignored).sum(),
            rounds: rounds.clone(),
        }
    }
}

impl Ratios {
    fn new(rounds: &[Sample], haproxy: &[Sample]) -> Ratios {
        let ratio = |figure: fn(&Sample) -> f64| {
            Spread::of_ratios(rounds.iter().map(figure), haproxy.iter().map(figure))
        };
        // A proxy has a CPU figure in every round, the direct peer in none: dropping gaps can't shift the pairs.
        let cpu = |samples: &[Sample]| -> Vec<f64> {
            samples.iter().filter_map(|sample| sample.cpu_us_per_statement).collect()
        };
        Ratios {
            statements_per_s: ratio(|sample| sample.statements_per_s),
            cpu_us_per_statement: Spread::of_ratios(cpu(rounds), cpu(haproxy)),
            p99_ms: ratio(|sample| sample.p99_ms),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use clap::Parser;

    use super::*;

    fn sample(statements_per_s: f64, cpu: Option<f64>, p99_ms: f64) -> Sample {
        Sample { statements: 1000, statements_per_s, cpu_us_per_statement: cpu, p99_ms, errors_ignored: 0 }
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
        let case = Case { workload: "oltp_point_select".to_owned(), threads: 16, peers };
        let machine = Machine {
            cpus: 2,
            cpu: "cpu".to_owned(),
            kernel: "6.1".to_owned(),
            mariadb: "10.11".to_owned(),
            haproxy: "2.6".to_owned(),
            sysbench: "1.0".to_owned(),
        };
        Results::new(machine, &Args::try_parse_from(["weir-bench", "--workers", "2"]).unwrap(), vec![case])
    }

    #[test]
    fn ratios_pair_the_rounds() {
        let results = example();
        let [direct, haproxy, weir] = &results.cases[0].peers[..] else { panic!() };
        assert!(haproxy.to_haproxy.is_none());
        let ratios = weir.to_haproxy.unwrap();
        let spread = ratios.statements_per_s.unwrap();
        assert!((spread.min - 1.1).abs() < 1e-9 && (spread.max - 1.1).abs() < 1e-9);
        assert!((ratios.cpu_us_per_statement.unwrap().median - 0.775).abs() < 1e-9);
        assert!(direct.to_haproxy.unwrap().cpu_us_per_statement.is_none());
        assert_eq!(direct.cpu_us_per_statement, None);
    }

    #[test]
    fn the_file_has_the_medians_and_every_round() {
        let json = serde_json::to_value(example()).unwrap();
        let weir = &json["cases"][0]["peers"][2];
        assert_eq!(weir["peer"], "weir");
        assert_eq!(weir["statements_per_s"]["median"], 8250.0);
        assert_eq!(weir["rounds"][1]["cpu_us_per_statement"], 24.0);
        assert_eq!(json["plan"]["weir_route"], "one-node");
        assert_eq!((&json["format"], &json["workers"]), (&1.into(), &2.into()));
    }
}
