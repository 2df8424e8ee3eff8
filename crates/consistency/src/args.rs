//! Takes the command line apart, and says how much of everything it means.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum, value_parser};
use serde::Serialize;
use weir_lab::servers::ServerArgs;

use crate::disturbance::Disturbance;
use crate::place::{Level, Place};

const EXAMPLES: &str = "Examples:
  weir-consistency                                          everything, in front of Galera
  weir-consistency --only staleness --checks 1000000        a million checks per level and number of sessions
  weir-consistency --places group,mariadb-replication       other servers
  weir-consistency --only staleness --weirs 2 --levels global --sessions 32 --with switchover,failover
  weir-consistency --only split,price --seconds 30 --rounds 9
  weir-consistency --only article --delay-ms 5              nodes 5 ms away from each other
  weir-consistency --json figures.json --markdown tables.md";

/// Shows how stale reads through Weir are at each consistency level, how many go to readers, and what a level costs: real
/// clusters, real load, goals.
#[derive(Debug, Clone, Parser, Serialize)]
#[command(name = "weir-consistency", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// What to measure [default: all]
    #[arg(long, value_delimiter = ',', value_name = "PARTS")]
    only: Vec<Part>,
    /// The servers [default: galera]
    #[arg(long, value_delimiter = ',', value_name = "PLACES")]
    places: Vec<Place>,
    /// Levels of the part staleness [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LEVELS")]
    levels: Vec<Level>,
    /// Sessions of the part staleness, a run for each number [default: 1,32,128]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    sessions: Vec<u32>,
    /// Reads that are checked in each run of the part staleness [default: 20000]
    #[arg(long, value_parser = value_parser!(u64).range(1..=100_000_000), value_name = "N")]
    checks: Option<u64>,
    /// Weirs that the sessions of the part staleness are spread over
    #[arg(long, value_parser = value_parser!(u8).range(1..=2), default_value_t = 1, value_name = "N")]
    pub(crate) weirs: u8,
    /// What is done to the servers in the part staleness, in turn; none: nothing [default: all that the servers have]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    with: Vec<Disturbance>,
    /// Sessions of the part split, a run for each number [default: 8,64]
    #[arg(long, value_delimiter = ',', value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    load_sessions: Vec<u32>,
    /// Sessions of the part price, and of the load beside the part article [default: 32]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    price_sessions: Option<u32>,
    /// How long each visit of the parts split and price takes, seconds [default: 10]
    #[arg(long, value_parser = value_parser!(u64).range(1..=3600), value_name = "N")]
    seconds: Option<u64>,
    /// Rounds of the part price; ratios are medians over them [default: 5]
    #[arg(long, value_parser = value_parser!(u32).range(1..=1000), value_name = "N")]
    rounds: Option<u32>,
    /// Updates of the part article, for each way to read [default: 2000]
    #[arg(long, value_parser = value_parser!(u32).range(1..=10_000_000), value_name = "N")]
    updates: Option<u32>,
    /// Galera nodes hear each other so much later, milliseconds (needs root and ip netns)
    #[arg(long, value_name = "MS")]
    pub(crate) delay_ms: Option<f64>,
    /// The part staleness for a moment: shows that it works
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Write everything to this file, for programs
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) json: Option<PathBuf>,
    /// Write the tables to this file, for people
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(crate) markdown: Option<PathBuf>,
    /// The first server's address; the others have the addresses after it
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.151")]
    #[serde(skip)]
    pub(crate) address: Ipv4Addr,
    /// Where the servers keep their data: a directory that the user mysql can reach
    #[arg(long, value_name = "DIR", default_value = weir_testkit::ROOT)]
    pub(crate) data_dir: PathBuf,
    #[command(flatten)]
    #[serde(skip)]
    pub(crate) servers: ServerArgs,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Reads that see less than they have to.
    Staleness,
    /// Where reads go.
    Split,
    /// What a level costs.
    Price,
    /// Update a row, and look for it elsewhere.
    Article,
}

impl Part {
    /// In a line.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Part::Staleness => "stale reads",
            Part::Split => "where reads go: 10 reads and 2 writes in turn",
            Part::Price => {
                "the price: 10 reads and 2 writes in turn, compared with eventual within each round"
            }
            Part::Article => "update a row by id, look for it on another connection",
        }
    }
}

/// How much of everything.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scale {
    /// Levels of the part staleness.
    pub(crate) levels: Vec<Level>,
    /// Sessions of the part staleness.
    pub(crate) sessions: Vec<u32>,
    /// Reads to check.
    pub(crate) checks: u64,
    /// A run of the part staleness ends then, whatever it has checked.
    pub(crate) time_max: Duration,
    /// Sessions of the part split.
    pub(crate) load_sessions: Vec<u32>,
    /// Sessions of the part price.
    pub(crate) price_sessions: u32,
    /// Of each visit.
    pub(crate) time: Duration,
    /// Of the part price.
    pub(crate) rounds: u32,
    /// Of the part article.
    pub(crate) updates: u32,
}

fn full() -> Scale {
    Scale {
        levels: Level::ALL.to_vec(),
        sessions: vec![1, 32, 128],
        checks: 20_000,
        time_max: Duration::from_secs(4 * 3600),
        load_sessions: vec![8, 64],
        price_sessions: 32,
        time: Duration::from_secs(10),
        rounds: 5,
        updates: 2000,
    }
}

fn smoke() -> Scale {
    Scale {
        levels: vec![Level::Eventual, Level::Session, Level::Global],
        sessions: vec![8],
        checks: 2000,
        time_max: Duration::from_secs(5),
        load_sessions: vec![8],
        price_sessions: 8,
        time: Duration::from_secs(1),
        rounds: 1,
        updates: 100,
    }
}

impl Args {
    /// What to measure, in the report's order.
    pub(crate) fn parts(&self) -> Vec<Part> {
        let is_wanted = |part: &Part| match self.only.is_empty() {
            true => !self.smoke || *part == Part::Staleness,
            false => self.only.contains(part),
        };
        Part::value_variants().iter().copied().filter(is_wanted).collect()
    }

    /// In front of which servers.
    pub(crate) fn places(&self) -> Vec<Place> {
        match self.places.is_empty() {
            true => vec![Place::Galera],
            false => Place::value_variants().iter().copied().filter(|p| self.places.contains(p)).collect(),
        }
    }

    /// What is done to such servers.
    pub(crate) fn disturbances(&self, place: Place) -> Vec<Disturbance> {
        let all = || Disturbance::value_variants().to_vec();
        let wanted = match (self.with.is_empty(), self.smoke) {
            (true, true) => Vec::new(),
            (true, false) => all(),
            (false, _) => self.with.clone(),
        };
        wanted.into_iter().filter(|disturbance| disturbance.suits(place)).collect()
    }

    /// How much of everything.
    pub(crate) fn scale(&self) -> Scale {
        let scale = if self.smoke { smoke() } else { full() };
        let or = |list: &Vec<u32>, default: Vec<u32>| if list.is_empty() { default } else { list.clone() };
        Scale {
            levels: if self.levels.is_empty() { scale.levels } else { self.levels.clone() },
            sessions: or(&self.sessions, scale.sessions),
            checks: self.checks.unwrap_or(scale.checks),
            time_max: scale.time_max,
            load_sessions: or(&self.load_sessions, scale.load_sessions),
            price_sessions: self.price_sessions.unwrap_or(scale.price_sessions),
            time: self.seconds.map_or(scale.time, Duration::from_secs),
            rounds: self.rounds.unwrap_or(scale.rounds),
            updates: self.updates.unwrap_or(scale.updates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["weir-consistency"].iter().chain(words))
    }

    #[test]
    fn the_defaults_are_all_parts_in_front_of_galera() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.parts(), Part::value_variants());
        assert_eq!((args.places(), args.scale()), (vec![Place::Galera], full()));
        assert!(args.disturbances(Place::Galera).contains(&Disturbance::Desync));
        assert!(!args.disturbances(Place::Group).contains(&Disturbance::Desync));
    }

    #[test]
    fn a_smoke_run_is_short_undisturbed_and_can_be_changed() {
        let args = parse(&["--smoke", "--checks", "5", "--sessions", "2,3"]).unwrap();
        assert_eq!(args.scale(), Scale { checks: 5, sessions: vec![2, 3], ..smoke() });
        assert_eq!((args.parts(), args.disturbances(Place::Galera)), (vec![Part::Staleness], Vec::new()));
    }

    #[test]
    fn lists_are_taken_apart_and_nonsense_is_refused() {
        let args = parse(&["--only", "price,split", "--places", "group", "--with", "none"]).unwrap();
        assert_eq!((args.parts(), args.places()), (vec![Part::Split, Part::Price], vec![Place::Group]));
        assert!(args.disturbances(Place::Group).is_empty());
        for words in [["--only", "rm"], ["--weirs", "3"], ["--levels", "causal"], ["--sessions", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
