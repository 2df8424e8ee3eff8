//! Takes the command line apart, and says how much of everything it means.

use std::path::PathBuf;

use clap::{Parser, value_parser};
use serde::Serialize;
use weir_lab::Error;
use weir_lab::servers::ServerArgs;
use weir_testkit::preflight;

use crate::bench::progress;
use crate::peer::{Kind, Wanted};
use crate::relay;
use crate::row::{Layout, Row};

/// Measures Weir, HAProxy, ProxySQL (if it is installed) and no proxy at all in turn, on a Galera cluster of its own.
#[derive(Debug, Clone, Parser, Serialize)]
#[command(name = "weir-bench")]
pub(crate) struct Args {
    /// Rows of the report to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "ROWS")]
    pub(crate) only: Vec<Row>,
    /// How often each peer is visited; medians of fewer than 5 say little [default: 5]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    rounds: Option<u32>,
    /// Length of one sysbench run [default: 3]
    #[arg(long, value_parser = value_parser!(u32).range(1..=3600), value_name = "S")]
    seconds: Option<u32>,
    /// sysbench's connections, one thread each [default: by row, most 16,64,256]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = value_parser!(u32).range(1..=2000))]
    threads: Vec<u32>,
    /// Who is measured [default: all that are installed]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    peers: Vec<Kind>,
    /// Worker threads of each proxy [default: one per CPU]
    #[arg(long, value_parser = value_parser!(u16).range(1..=256), value_name = "N")]
    workers: Option<u16>,
    /// Let Weir split reads over all nodes, as its users do; the others still use one
    #[arg(long)]
    split: bool,
    /// Three rounds, shorter runs, fewer clients: rough figures in a quarter of the time
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// Every row once for a moment: shows that all of them work, the figures say nothing
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Write all figures, each round's too, to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables as Markdown to this file
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) markdown: Option<PathBuf>,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) servers: ServerArgs,
}

/// How much of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scale {
    /// How often each peer is visited.
    pub(crate) rounds: u32,
    /// Length of one run, seconds.
    pub(crate) seconds: u32,
    /// Length of a run before the first round, so that no peer pays for cold caches and empty pools, seconds.
    pub(crate) warm_up_s: u32,
    /// Clients that are logged in for the memory of idle clients, and for the crowd.
    pub(crate) clients: u32,
    /// Clients that are idle while CPU time is measured.
    pub(crate) idle_clients: u32,
    /// For how long, seconds.
    pub(crate) idle_seconds: u32,
    /// Size of the large result and of the large file, MiB.
    pub(crate) bulk_mib: u32,
    /// How often the large ones are sent through each peer.
    pub(crate) bulk_rounds: u32,
    /// Different digests that are run beside a large configuration.
    pub(crate) digests: u32,
    /// Tables of sysbench.
    pub(crate) tables: u32,
    /// Rows in each of them.
    pub(crate) table_rows: u32,
}

const FULL: Scale = Scale {
    rounds: 5,
    seconds: 3,
    warm_up_s: 2,
    clients: 10_000,
    idle_clients: 8_000,
    idle_seconds: 10,
    bulk_mib: 1024,
    bulk_rounds: 3,
    digests: 1_000_000,
    tables: 4,
    table_rows: 20_000,
};
const QUICK: Scale = Scale {
    rounds: 3,
    seconds: 2,
    clients: 3_000,
    idle_seconds: 5,
    bulk_mib: 256,
    bulk_rounds: 2,
    digests: 100_000,
    ..FULL
};
const SMOKE: Scale = Scale {
    rounds: 1,
    seconds: 1,
    warm_up_s: 0,
    clients: 200,
    idle_clients: 100,
    idle_seconds: 1,
    bulk_mib: 8,
    bulk_rounds: 1,
    digests: 1_000,
    tables: 1,
    table_rows: 1_000,
};
/// sysbench's connections in a smoke run.
const SMOKE_THREADS: &[u32] = &[4];

impl Args {
    /// The rows to measure, in the report's order.
    pub(crate) fn rows(&self) -> Vec<Row> {
        // `make test` runs the counting test itself.
        let is_wanted = |row: &Row| match self.only.is_empty() {
            true => !(self.smoke && *row == Row::Allocations),
            false => self.only.contains(row),
        };
        Row::all().iter().copied().filter(is_wanted).collect()
    }

    /// How much of everything.
    pub(crate) fn scale(&self) -> Scale {
        let scale = match (self.quick, self.smoke) {
            (true, _) => QUICK,
            (_, true) => SMOKE,
            _ => FULL,
        };
        Scale {
            rounds: self.rounds.unwrap_or(scale.rounds),
            seconds: self.seconds.unwrap_or(scale.seconds),
            bulk_rounds: self.rounds.unwrap_or(scale.bulk_rounds),
            ..scale
        }
    }

    /// sysbench's connections for a row.
    pub(crate) fn threads(&self, row: Row) -> &[u32] {
        match (&self.threads[..], self.smoke) {
            ([], true) => SMOKE_THREADS,
            ([], false) => row.threads(),
            (threads, _) => threads,
        }
    }

    /// Worker threads of each proxy.
    pub(crate) fn workers(&self) -> u16 {
        let cpus = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.workers.unwrap_or_else(|| u16::try_from(cpus()).unwrap_or(u16::MAX))
    }

    /// Where a row's servers are to stand.
    pub(crate) fn layout(&self, layout: Layout) -> Layout {
        match layout {
            Layout::OneNode if self.split => Layout::Split,
            layout => layout,
        }
    }

    /// The peers, each with what it needs: what is missing is said before anything is started.
    pub(crate) fn wanted(&self) -> Result<Vec<Wanted>, Error> {
        let proxysql = || preflight::program("proxysql", "proxysql");
        let kinds = match (&self.peers[..], self.smoke) {
            ([], true) => vec![Kind::HaProxy, Kind::Relay, Kind::Weir],
            ([], false) => {
                let proxysql = proxysql().is_ok().then_some(Kind::ProxySql);
                let others = [Kind::Relay, Kind::Weir];
                [Kind::Direct, Kind::HaProxy].into_iter().chain(proxysql).chain(others).collect()
            }
            (peers, _) => peers.to_vec(),
        };
        let wanted = |kind: Kind| {
            Ok(match kind {
                Kind::Direct => Wanted::Direct,
                Kind::HaProxy => Wanted::HaProxy,
                Kind::Relay => Wanted::Relay,
                Kind::ProxySql => Wanted::ProxySql(proxysql()?),
                Kind::Weir | Kind::WeirEpoll | Kind::WeirNoReplay | Kind::WeirMarker => {
                    Wanted::Weir(self.servers.weir_binary()?, kind)
                }
            })
        };
        kinds.into_iter().filter(|&kind| can_be_had(kind)).map(wanted).collect()
    }
}

/// The relay needs io_uring; the others need programs, or they say themselves what they lack.
fn can_be_had(kind: Kind) -> bool {
    let Some(error) = (kind == Kind::Relay).then(relay::check).and_then(Result::err) else { return true };
    progress(&format!("relay is left out: io_uring is not available here: {error}"));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["weir-bench"].iter().chain(words))
    }

    #[test]
    fn the_defaults_are_the_full_comparison() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.rows(), Row::all());
        assert_eq!(args.scale(), FULL);
        assert_eq!(args.threads(Row::PointSelect), [16, 64, 256]);
        assert_eq!(args.layout(Layout::OneNode), Layout::OneNode);
    }

    #[test]
    fn a_row_alone_with_its_own_numbers() {
        let args = parse(&["--only", "reconnect", "--rounds", "3", "--threads", "8,32"]).unwrap();
        assert_eq!(args.rows(), [Row::Reconnect]);
        assert_eq!((args.scale().rounds, args.scale().seconds), (3, 3));
        assert_eq!(args.threads(Row::Reconnect), [8, 32]);
    }

    #[test]
    fn quick_and_smoke_are_smaller_and_can_be_changed() {
        let args = parse(&["--quick", "--seconds", "4"]).unwrap();
        assert_eq!(args.scale(), Scale { seconds: 4, ..QUICK });
        let args = parse(&["--smoke"]).unwrap();
        assert_eq!(args.threads(Row::PointSelect), SMOKE_THREADS);
        assert!(!args.rows().contains(&Row::Allocations));
        assert!(parse(&["--smoke", "--quick"]).is_err());
    }

    #[test]
    fn the_relay_takes_part_by_default_where_io_uring_is_to_be_had() {
        let has_io_uring = relay::check().is_ok();
        for words in
            [&["--weir", "/x/weir"][..], &["--weir", "/x/weir", "--smoke"], &["--peers", "direct,relay"]]
        {
            let wanted = parse(words).unwrap().wanted();
            assert_eq!(wanted.unwrap().contains(&Wanted::Relay), has_io_uring, "{words:?}");
        }
    }

    #[test]
    fn lists_are_taken_apart_and_nonsense_is_refused() {
        let args = parse(&["--peers", "direct,haproxy", "--workers", "3", "--split"]).unwrap();
        assert_eq!((args.workers(), args.layout(Layout::OneNode)), (3, Layout::Split));
        assert_eq!(args.wanted().unwrap(), [Wanted::Direct, Wanted::HaProxy]);
        let args = parse(&["--peers", "weir", "--weir", "/x/weir"]).unwrap();
        assert_eq!(args.wanted().unwrap(), [Wanted::Weir("/x/weir".into(), Kind::Weir)]);
        for words in [["--threads", "0"], ["--only", "rm"], ["--peers", "maxscale"], ["--rounds", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
