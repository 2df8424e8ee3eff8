//! Holds what all rows share: the cluster, the certificates, the options.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{Galera, GaleraOptions, Sysbench, WeirConfig, weir_binary};

use crate::args::{Args, Scale};
use crate::certificates::Certificates;
use crate::error::BenchError;
use crate::limits::allow_open_files;
use crate::metric::{Goal, Sample};
use crate::peer::{Kind, Peer, Start, Wanted};
use crate::results::{Case, PeerSamples};
use crate::row::{Layout, Row};

/// How quickly a Ctrl-C is noticed.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Open files beside the sockets of clients: connections to servers, and all else.
const SPARE_FILES: u64 = 1000;
/// Where the nodes of the cluster listen, and the proxies.
const ADDRESSES: [Ipv4Addr; 4] = [
    Ipv4Addr::LOCALHOST,
    Ipv4Addr::new(127, 0, 0, 41),
    Ipv4Addr::new(127, 0, 0, 42),
    Ipv4Addr::new(127, 0, 0, 43),
];

/// A running cluster, and what is to be measured on it. Everything ends with it.
#[derive(Debug)]
pub(crate) struct Bench<'a> {
    /// What was asked for.
    pub(crate) args: &'a Args,
    /// How much of everything.
    pub(crate) scale: Scale,
    /// The servers.
    pub(crate) cluster: Galera,
    /// For TLS.
    pub(crate) certificates: Certificates,
    /// Raised by Ctrl-C.
    pub(crate) cancel: Arc<AtomicBool>,
    wanted: Vec<Wanted>,
}

impl<'a> Bench<'a> {
    /// Starts the cluster and fills the tables.
    pub(crate) fn start(args: &'a Args, cancel: Arc<AtomicBool>) -> Result<Bench<'a>, BenchError> {
        let wanted = args.wanted()?;
        let certificates = Certificates::make(&ADDRESSES)?;
        let cluster = Galera::start(GaleraOptions {
            keep: args.keep,
            progress,
            cancel: Arc::clone(&cancel),
            extra_cnf: certificates.server_cnf(),
            ..GaleraOptions::bench()
        })?;
        let bench = Bench { args, scale: args.scale(), cluster, certificates, cancel, wanted };
        bench.fill_tables()?;
        Ok(bench)
    }

    fn fill_tables(&self) -> Result<(), BenchError> {
        let (tables, table_rows) = (self.scale.tables, self.scale.table_rows);
        progress(&format!("filling {tables} tables of {table_rows} rows"));
        let server = self.cluster.node(1).addr();
        let threads = tables;
        let load = Sysbench { tables, table_rows, threads, ..Sysbench::new("oltp_read_write", server) };
        Ok(load.prepare()?)
    }

    /// Starts the peers among `kinds` that were asked for, ready for so many clients, and prints their configurations.
    pub(crate) fn peers(
        &self,
        layout: Layout,
        clients: u32,
        kinds: &[Kind],
    ) -> Result<Vec<Peer>, BenchError> {
        allow_open_files(u64::from(clients) + SPARE_FILES)?;
        let wanted: Vec<Wanted> =
            self.wanted.iter().filter(|wanted| kinds.contains(&wanted.kind())).cloned().collect();
        let peers = self.start_of(layout, clients).all(&wanted)?;
        if !self.args.smoke {
            peers.iter().for_each(|peer| print!("{}", peer.describe()));
        }
        Ok(peers)
    }

    fn start_of(&self, layout: Layout, clients: u32) -> Start<'_> {
        let (cluster, certificates) = (&self.cluster, &self.certificates);
        Start { cluster, certificates, workers: self.args.workers(), clients, layout }
    }

    /// A Weir in front of the first node, of whose configuration `change` makes something else; with how long it took
    /// from its start until it took clients.
    pub(crate) fn weir_with(
        &self,
        name: &str,
        change: impl FnOnce(&mut WeirConfig),
    ) -> Result<(Peer, Duration), BenchError> {
        let start = self.start_of(Layout::OneNode, SPARE_FILES as u32);
        start.weir_with(&weir_binary()?, name, change)
    }

    /// Visits every peer in every round; another one comes first each time, so that a change of the machine's mood
    /// falls on all and who comes after whom does not matter.
    pub(crate) fn rounds(
        &self,
        case: &mut Case,
        peers: &[Peer],
        round: u32,
        mut visit: impl FnMut(&Peer) -> Result<Sample, BenchError>,
    ) -> Result<(), BenchError> {
        for i in visiting_order(peers.len(), round as usize) {
            let (Some(peer), Some(samples)) = (peers.get(i), case.peers.get_mut(i)) else { continue };
            self.check_cancel()?;
            let sample = visit(peer)?;
            let (row, name, kind) = (case.row, &case.name, peer.kind);
            progress(&format!("round {} {row} {name} {kind:<8} {}", round + 1, sample.line()));
            samples.rounds.push(sample);
        }
        Ok(())
    }

    /// Does something and gives the number of connections that the first node took meanwhile, too.
    pub(crate) fn counting_connections<T>(
        &self,
        work: impl FnOnce() -> Result<T, BenchError>,
    ) -> Result<(u64, T), BenchError> {
        let count = || -> Result<u64, BenchError> {
            Ok(self.cluster.node(1).status("Connections")?.parse().unwrap_or_default())
        };
        let before = count()?;
        let result = work()?;
        // The second question takes one, too.
        Ok((count()?.saturating_sub(before + 1), result))
    }

    /// CPU time that the servers have used so far.
    pub(crate) fn servers_cpu_time(&self) -> Result<Duration, BenchError> {
        let processes = self.cluster.nodes().iter().filter_map(|node| node.process());
        let mut sum = Duration::ZERO;
        for process in processes {
            sum += process.cpu_time()?;
        }
        Ok(sum)
    }

    /// Sleeps, unless somebody presses Ctrl-C.
    pub(crate) fn sleep(&self, time: Duration) -> Result<(), BenchError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.check_cancel()?;
            thread::sleep(CANCEL_POLL_INTERVAL.min(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Fails if somebody has pressed Ctrl-C.
    pub(crate) fn check_cancel(&self) -> Result<(), BenchError> {
        if self.cancel.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }
}

/// A case without figures.
pub(crate) fn empty_case(row: Row, name: &str, goals: Vec<Goal>, peers: &[Peer]) -> Case {
    let samples = |peer: &Peer| PeerSamples { peer: peer.kind, rounds: Vec::new() };
    Case { row, name: name.to_owned(), goals, peers: peers.iter().map(samples).collect() }
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("weir-bench: {line}");
}

fn visiting_order(peers: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..peers).map(move |i| (i + round) % peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_comes_first_in_turn_and_none_is_left_out() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| visiting_order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }
}
