use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use clap::value_parser;
use serde::Serialize;

use crate::error::BenchError;
use crate::peer::{Kind, Route, Wanted};

/// sysbench's workloads that end by time and use the tables of `oltp_read_write`.
const WORKLOADS: [&str; 6] = [
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_update_index",
    "oltp_update_non_index",
];

/// Connecting, ending and the pauses between two runs, seconds per run; only for the announced duration.
const OVERHEAD_S: f64 = 0.4;

/// Measures statements directly, through HAProxy and through Weir, in turn, on a Galera cluster of its own.
#[derive(Debug, Clone, Parser, Serialize)]
#[command(name = "weir-bench", version)]
pub(crate) struct Args {
    /// Length of one sysbench run
    #[arg(long, default_value_t = 3, value_parser = value_parser!(u32).range(1..=3600), value_name = "S")]
    pub(crate) seconds: u32,
    /// How often each peer is visited; medians of fewer than 5 say little
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    pub(crate) rounds: u32,
    /// sysbench's connections, one thread each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256], value_name = "LIST",
          value_parser = value_parser!(u32).range(1..=2000))]
    pub(crate) threads: Vec<u32>,
    /// sysbench's workloads, in the text protocol
    #[arg(long, value_delimiter = ',', default_values = ["oltp_point_select", "oltp_read_write"],
          value_parser = PossibleValuesParser::new(WORKLOADS), value_name = "LIST")]
    pub(crate) workloads: Vec<String>,
    /// Who is measured
    #[arg(long, value_delimiter = ',', default_values_t = [Kind::Direct, Kind::HaProxy, Kind::Weir],
          value_name = "LIST")]
    pub(crate) peers: Vec<Kind>,
    /// Weir's worker threads, and HAProxy's [default: one per CPU]
    #[arg(long, value_parser = value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) workers: Option<u16>,
    /// Where Weir's statements may go
    #[arg(long, default_value_t = Route::OneNode, value_name = "ROUTE")]
    pub(crate) weir_route: Route,
    /// Tables of sysbench
    #[arg(long, default_value_t = 4, value_parser = value_parser!(u32).range(1..=64), value_name = "N")]
    pub(crate) tables: u32,
    /// Rows in each of them
    #[arg(long, default_value_t = 20_000, value_parser = value_parser!(u32).range(100..=10_000_000), value_name = "N")]
    pub(crate) table_rows: u32,
    /// Write all figures, each round's too, to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) json: Option<PathBuf>,
    /// The weir binary [default: WEIR_BIN, or the one beside weir-bench]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) weir: Option<PathBuf>,
    /// Keep the directory with the servers' data, configurations and logs
    #[arg(long)]
    #[serde(skip)]
    pub(crate) keep: bool,
}

impl Args {
    /// Worker threads of either proxy.
    pub(crate) fn workers(&self) -> u16 {
        let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.workers.unwrap_or_else(|| u16::try_from(cpus()).unwrap_or(u16::MAX))
    }

    /// The most connections that a peer has to bear.
    pub(crate) fn connections_max(&self) -> u32 {
        self.threads.iter().copied().max().unwrap_or(1)
    }

    /// The peers, each with what it needs: what is missing is said before anything is started.
    pub(crate) fn wanted(&self) -> Result<Vec<Wanted>, BenchError> {
        let wanted = |&kind: &Kind| {
            Ok(match kind {
                Kind::Direct => Wanted::Direct,
                Kind::HaProxy => Wanted::HaProxy,
                Kind::Weir => Wanted::Weir(match &self.weir {
                    Some(binary) => binary.clone(),
                    None => weir_testkit::weir_binary()?,
                }),
            })
        };
        self.peers.iter().map(wanted).collect()
    }

    /// How long measuring will take, minutes.
    pub(crate) fn duration_min(&self) -> f64 {
        let visits = self.peers.len() * self.workloads.len() * self.threads.len();
        visits as f64 * f64::from(self.rounds) * (f64::from(self.seconds) + OVERHEAD_S) / 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_the_full_comparison() {
        let args = Args::try_parse_from(["weir-bench"]).unwrap();
        assert_eq!(args.threads, [1, 16, 64, 256]);
        assert_eq!(args.workloads, ["oltp_point_select", "oltp_read_write"]);
        assert_eq!(args.peers, [Kind::Direct, Kind::HaProxy, Kind::Weir]);
        assert_eq!((args.rounds, args.weir_route), (5, Route::OneNode));
        // 3 peers, 2 workloads, 4 thread counts, 5 rounds of 3.4 s
        assert!((args.duration_min() - 6.8).abs() < 1e-9);
    }

    #[test]
    fn lists_are_taken_apart_and_nonsense_is_refused() {
        let parse = |words: &[&str]| Args::try_parse_from(["weir-bench"].iter().chain(words));
        let args = parse(&["--threads", "8,32", "--peers", "direct,haproxy", "--workers", "3"]).unwrap();
        assert_eq!((args.threads.clone(), args.workers(), args.connections_max()), (vec![8, 32], 3, 32));
        assert_eq!(args.wanted().unwrap(), [Wanted::Direct, Wanted::HaProxy]);
        let args = parse(&["--peers", "weir", "--weir", "/x/weir"]).unwrap();
        assert_eq!(args.wanted().unwrap(), [Wanted::Weir("/x/weir".into())]);
        for words in [["--threads", "0"], ["--workloads", "rm"], ["--peers", "maxscale"], ["--rounds", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
