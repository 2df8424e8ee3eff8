//! Takes the command line apart, and says how much of everything it means.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, value_parser};
use serde::Serialize;
use weir_lab::servers::ServerArgs;

use crate::load::{Amount, Keys};
use crate::peer::PeerKind;
use crate::scenario::Scenario;

/// Shows what clients of Weir see when servers fail or change roles: real clusters, real load, goals, time-lines.
#[derive(Debug, Clone, Parser, Serialize)]
#[command(name = "weir-failover", version)]
pub(crate) struct Args {
    /// Scenarios to run [default: all]
    #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
    only: Vec<Scenario>,
    /// Who stands between clients and servers [default: all that can]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    peers: Vec<PeerKind>,
    /// Planned switchovers [default: 50]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    switchovers: Option<u32>,
    /// Kills and returns of writers with assisted eviction; without it as many, but 10 at most [default: 6]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000), value_name = "N")]
    cycles: Option<u32>,
    /// Rounds of maintenance: a switchover, drains and OFFLINE_SOFT of the writer and of a reader [default: 20]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    rounds: Option<u32>,
    /// sysbench's threads; 0 for probes alone [default: 32]
    #[arg(long, value_parser = value_parser!(u32).range(0..=1000), value_name = "N")]
    threads: Option<u32>,
    /// sysbench's transactions per second, all threads together; 0 for as many as possible [default: 0]
    #[arg(long, value_parser = value_parser!(u32).range(0..=100_000), value_name = "N")]
    rate: Option<u32>,
    /// Rows in each of sysbench's tables [default: 20000]
    #[arg(long, value_parser = value_parser!(u32).range(1_000..=100_000_000), value_name = "N")]
    table_rows: Option<u32>,
    /// Which rows sysbench's threads read and change
    #[arg(long, value_name = "WHICH", default_value = "shared")]
    keys: Keys,
    /// Have Weir run open transactions again, and find out what has become of COMMITs (docs/guide/replay.md)
    #[arg(long)]
    pub(crate) replay: bool,
    /// Fewer switchovers and cycles, shorter waits: rough figures in less time
    #[arg(long, conflicts_with = "smoke")]
    quick: bool,
    /// The quickest scenarios for a moment: shows that they work; times say nothing
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Where the report goes: report.md, report.json, and a time-line for each scenario
    #[arg(long, value_name = "DIR", default_value = "target/failover")]
    #[serde(skip)]
    pub(crate) out: PathBuf,
    /// The first server's address; the others have the addresses after it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.51")]
    #[serde(skip)]
    pub(crate) address: Ipv4Addr,
    /// Where the servers keep their data: a directory that the user mysql can reach. In memory (/dev/shm), pauses of the
    /// disk are none of the report's
    #[arg(long, value_name = "DIR", default_value = weir_testkit::ROOT)]
    pub(crate) data_dir: PathBuf,
    /// Leave the threads of the Galera nodes' group messages at the usual priority
    #[arg(long)]
    pub(crate) no_group_priority: bool,
    /// Further wsrep_provider_options of the Galera nodes, separated by semicolons
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    pub(crate) provider_options: String,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) servers: ServerArgs,
}

/// How much of everything.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Scale {
    /// Planned switchovers.
    pub(crate) switchovers: u32,
    /// Kills and returns.
    pub(crate) cycles: u32,
    /// Rounds of maintenance.
    pub(crate) rounds: u32,
    /// Load beside the probes.
    pub(crate) load: Amount,
    /// Undisturbed time before the event.
    pub(crate) warm_up: Duration,
    /// Time after everything is well again.
    pub(crate) settle: Duration,
}

/// sysbench reads 100 rows at once.
const ROWS_OF_THREAD_MIN: u32 = 200;

const FULL: Scale = Scale {
    switchovers: 50,
    cycles: 6,
    rounds: 20,
    load: Amount { threads: 32, rate: 0, tables: 4, table_rows: 20_000, keys: Keys::Shared },
    warm_up: Duration::from_secs(5),
    settle: Duration::from_secs(3),
};
const QUICK: Scale = Scale {
    switchovers: 10,
    cycles: 2,
    rounds: 3,
    warm_up: Duration::from_secs(3),
    settle: Duration::from_secs(2),
    ..FULL
};
const SMOKE: Scale = Scale {
    switchovers: 3,
    cycles: 1,
    rounds: 1,
    load: Amount { threads: 4, rate: 0, tables: 1, table_rows: 1_000, keys: Keys::Shared },
    warm_up: Duration::from_secs(1),
    settle: Duration::from_secs(1),
};

impl Args {
    /// The scenarios to run, in the report's order.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let is_wanted = |scenario: &Scenario| match self.only.is_empty() {
            true => !self.smoke || scenario.is_quick(),
            false => self.only.contains(scenario),
        };
        Scenario::all().iter().copied().filter(is_wanted).collect()
    }

    /// Whether a proxy takes part.
    pub(crate) fn has(&self, peer: PeerKind) -> bool {
        match self.peers.is_empty() {
            true => !self.smoke || peer == PeerKind::Weir,
            false => self.peers.contains(&peer),
        }
    }

    /// What can't be, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Amount { threads, table_rows, keys, .. } = self.scale().load;
        if keys == Keys::Own && table_rows / threads.max(1) < ROWS_OF_THREAD_MIN {
            let needed = threads * ROWS_OF_THREAD_MIN;
            return Err(format!(
                "--keys own: {table_rows} rows are too few for {threads} threads: set --table-rows to at least {needed}"
            ));
        }
        Ok(())
    }

    /// How much of everything.
    pub(crate) fn scale(&self) -> Scale {
        let scale = match (self.quick, self.smoke) {
            (true, _) => QUICK,
            (_, true) => SMOKE,
            _ => FULL,
        };
        Scale {
            switchovers: self.switchovers.unwrap_or(scale.switchovers),
            cycles: self.cycles.unwrap_or(scale.cycles),
            rounds: self.rounds.unwrap_or(scale.rounds),
            load: Amount {
                threads: self.threads.unwrap_or(scale.load.threads),
                rate: self.rate.unwrap_or(scale.load.rate),
                table_rows: self.table_rows.unwrap_or(scale.load.table_rows),
                keys: self.keys,
                ..scale.load
            },
            ..scale
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["weir-failover"].iter().chain(words))
    }

    #[test]
    fn the_defaults_are_the_full_report() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.scenarios(), Scenario::all());
        assert_eq!(args.scale(), FULL);
        assert!(args.has(PeerKind::Weir) && args.has(PeerKind::HaProxy));
    }

    #[test]
    fn a_smoke_run_is_short_and_can_be_changed() {
        let args = parse(&["--smoke", "--switchovers", "2", "--rounds", "4"]).unwrap();
        assert_eq!(args.scale(), Scale { switchovers: 2, rounds: 4, ..SMOKE });
        assert!(args.scenarios().len() < Scenario::all().len() && !args.has(PeerKind::HaProxy));
        assert!(parse(&["--smoke", "--quick"]).is_err());
    }

    #[test]
    fn threads_have_rows_of_their_own_where_there_are_enough() {
        let load = parse(&["--keys", "own", "--table-rows", "64000"]).unwrap().scale().load;
        assert_eq!((load.keys, load.table_rows), (Keys::Own, 64_000));
        assert!(parse(&["--keys", "own", "--table-rows", "6000"]).unwrap().check().is_err());
    }

    #[test]
    fn scenarios_are_named_and_nonsense_is_refused() {
        let args = parse(&["--only", "writer-killed,switchover", "--peers", "weir", "--rate", "50"]).unwrap();
        assert_eq!(args.scenarios(), [Scenario::Switchover, Scenario::WriterKilled]);
        assert!(!args.has(PeerKind::HaProxy));
        assert_eq!(args.scale().load.rate, 50);
        for words in [["--only", "rm"], ["--peers", "maxscale"], ["--switchovers", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
