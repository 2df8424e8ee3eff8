//! Takes the command line apart.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};
use serde::Serialize;
use weir_lab::servers::ServerArgs;

use crate::guard::Guard;
use crate::nemesis::Fault;
use crate::place::{Isolation, Level, PeerKind, Place};
use crate::workload::Workload;

const EXAMPLES: &str = "Examples:
  weir-jepsen                                                 a minute at session and one at global, in front of Galera
  weir-jepsen --time 10m --weirs 2                            two Weirs, ten minutes for each level
  weir-jepsen --places galera,galera5,group --time 60m
  weir-jepsen --workloads list-append,bank --nemesis kill,pause --levels global --seed 7
  weir-jepsen --peers direct,haproxy,weir --nemesis none      Galera alone, behind HAProxy, behind Weir
  weir-jepsen --peers direct --nemesis none --server-settings innodb_snapshot_isolation=OFF
  weir-jepsen --guards all                                    each guard off: the fault must be found
  weir-jepsen --nemesis kill --interval 20s --time 30m        memory and connections under kills

Exit status: 0 no anomaly beyond what the servers' isolation allows, 1 an anomaly or an error, 2 wrong arguments.";

/// Transactions of many clients while servers fail, and a search of their histories for anomalies: real clusters, checkers
/// as the field has them (Elle, Knossos), a report with the history of each anomaly.
#[derive(Debug, Clone, Parser, Serialize)]
#[command(name = "weir-jepsen", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What the sessions do [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    workloads: Vec<Workload>,
    /// The servers [default: galera]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    places: Vec<Place>,
    /// Who stands in front of them [default: weir]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    peers: Vec<PeerKind>,
    /// Weirs that the sessions are spread over
    #[arg(long, value_parser = value_parser!(u8).range(1..=2), default_value_t = 1, value_name = "N")]
    pub(crate) weirs: u8,
    /// What happens to servers and Weirs, in an order that the seed decides; none: nothing [default: all but `all`]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    nemesis: Vec<Fault>,
    /// How long each run takes, as in 60s, 10m, 1h
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    pub(crate) time: Duration,
    /// Quiet time between two faults
    #[arg(long, value_parser = duration, default_value = "4s", value_name = "TIME")]
    pub(crate) interval: Duration,
    /// Repeats the schedule: which faults, where, for how long, and what sessions ask for
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Sessions, spread over the workloads
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), default_value_t = 24, value_name = "N")]
    pub(crate) sessions: u32,
    /// Transactions per second, all sessions together; 0: as many as they can
    #[arg(long, value_parser = value_parser!(u32).range(0..=100_000), default_value_t = 400, value_name = "N")]
    pub(crate) rate: u32,
    /// Consistency levels, a run for each [default: session,global]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    levels: Vec<Level>,
    /// Isolation of the transactions [default: repeatable-read on Galera, serializable on a group]
    #[arg(long, value_name = "LEVEL")]
    isolation: Option<Isolation>,
    /// Weir's transaction_replay: off, safe or on
    #[arg(long, default_value = "safe", value_parser = ["off", "safe", "on"], value_name = "WHEN")]
    pub(crate) replay: String,
    /// Leave COMMITs unmarked whose answer is lost (commit_outcome = off): their clients are told that nobody knows
    #[arg(long)]
    pub(crate) no_marker: bool,
    /// Further lines of the Galera nodes' my.cnf, separated by semicolons; they win over those that keep anomalies away
    #[arg(long, default_value = "", value_name = "LINES")]
    pub(crate) server_settings: String,
    /// Instead of all that: runs in which one guard is off, and whether its fault is found
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    guards: Vec<Guard>,
    /// A few seconds of everything: shows that it works
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Where the report goes: report.html, report.json and the histories of runs with anomalies
    #[arg(long, value_name = "DIR", default_value = "target/jepsen")]
    #[serde(skip)]
    pub(crate) out: PathBuf,
    /// Write the figures to this file, too
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) json: Option<PathBuf>,
    /// The first server's address; the others have the addresses after it, Weirs and HAProxy ports of their own on .1
    #[arg(long, value_name = "ADDRESS", default_value = "127.3.0.11")]
    #[serde(skip)]
    pub(crate) address: Ipv4Addr,
    /// Where the servers keep their data: a directory that the user mysql can reach
    #[arg(long, value_name = "DIR", default_value = weir_testkit::ROOT)]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) servers: ServerArgs,
}

/// Seconds without a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{unit} is no unit: s, m or h")),
    };
    let number: u64 = number.parse().map_err(|_| "no number".to_owned())?;
    match number.checked_mul(seconds) {
        Some(seconds @ 1..=86_400) => Ok(Duration::from_secs(seconds)),
        _ => Err("1s to 24h".to_owned()),
    }
}

fn or<T: Clone>(list: &[T], default: &[T]) -> Vec<T> {
    if list.is_empty() { default.to_vec() } else { list.to_vec() }
}

impl Args {
    /// What sessions do.
    pub(crate) fn workloads(&self) -> Vec<Workload> {
        or(&self.workloads, Workload::value_variants())
    }

    /// In front of which servers.
    pub(crate) fn places(&self) -> Vec<Place> {
        or(&self.places, &[Place::Galera])
    }

    /// Who stands in front of them.
    pub(crate) fn peers(&self) -> Vec<PeerKind> {
        or(&self.peers, &[PeerKind::Weir])
    }

    /// A run for each.
    pub(crate) fn levels(&self) -> Vec<Level> {
        or(&self.levels, if self.smoke { &[Level::Global] } else { &[Level::Session, Level::Global] })
    }

    /// Of transactions in front of such servers.
    pub(crate) fn isolation(&self, place: Place) -> Isolation {
        self.isolation.unwrap_or(Isolation::usual(place))
    }

    /// What happens to such servers.
    pub(crate) fn faults(&self, place: Place) -> Vec<Fault> {
        let usual: Vec<Fault> = match self.smoke {
            true => vec![Fault::Switchover],
            false => Fault::value_variants().iter().copied().filter(|fault| *fault != Fault::All).collect(),
        };
        or(&self.nemesis, &usual).into_iter().filter(|fault| fault.suits(place)).collect()
    }

    /// Whether it was asked for by its name.
    pub(crate) fn names(&self, fault: Fault) -> bool {
        self.nemesis.contains(&fault)
    }

    /// Guards to switch off.
    pub(crate) fn guards(&self) -> Vec<Guard> {
        match self.guards.contains(&Guard::All) {
            true => Guard::value_variants().iter().copied().filter(|guard| *guard != Guard::All).collect(),
            false => self.guards.clone(),
        }
    }

    /// Of one run.
    pub(crate) fn time(&self) -> Duration {
        if self.smoke { self.time.min(Duration::from_secs(8)) } else { self.time }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["weir-jepsen"].iter().chain(words))
    }

    #[test]
    fn the_defaults_are_all_workloads_and_faults_at_two_levels() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.workloads(), Workload::value_variants());
        assert_eq!((args.places(), args.peers()), (vec![Place::Galera], vec![PeerKind::Weir]));
        assert_eq!(args.levels(), [Level::Session, Level::Global]);
        assert!(args.faults(Place::Galera).contains(&Fault::Partition));
        assert!(!args.faults(Place::Group).contains(&Fault::Partition));
        assert!(!args.faults(Place::Galera).contains(&Fault::All) && args.guards().is_empty());
        assert_eq!(args.isolation(Place::Group), Isolation::Serializable);
    }

    #[test]
    fn times_have_units_and_nonsense_is_refused() {
        assert_eq!(parse(&["--time", "10m"]).unwrap().time, Duration::from_secs(600));
        assert_eq!(parse(&["--time", "7"]).unwrap().time, Duration::from_secs(7));
        for words in [["--time", "0s"], ["--time", "5y"], ["--weirs", "3"], ["--peers", "maxscale"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
        assert!(parse(&["--nemesis", "none"]).unwrap().faults(Place::Galera).is_empty());
        assert!(parse(&["--guards", "all"]).unwrap().guards().len() > 3);
    }
}
