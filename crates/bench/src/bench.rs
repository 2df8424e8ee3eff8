//! Holds what all rows share: the cluster, the certificates, the options.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_lab::client::Login;
use weir_lab::measure::{Goal, Sample};
use weir_lab::{Error, Stop, allow_open_files, servers};
use weir_testkit::{Account, Galera, GaleraOptions, Sysbench, WeirConfig};

use crate::args::{Args, Scale};
use crate::certificates::Certificates;
use crate::peer::{Kind, Peer, Start, Wanted};
use crate::report::Case;
use crate::row::{Layout, Row};

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
    pub(crate) stop: Stop,
    wanted: Vec<Wanted>,
}

impl<'a> Bench<'a> {
    /// Starts the cluster and fills the tables.
    pub(crate) fn start(args: &'a Args, stop: Stop) -> Result<Bench<'a>, Error> {
        let wanted = args.wanted()?;
        let certificates = Certificates::make(&ADDRESSES)?;
        let cluster = Galera::start(GaleraOptions {
            keep: args.servers.keep,
            progress,
            cancel: stop.flag(),
            extra_cnf: certificates.server_cnf(),
            ..GaleraOptions::bench()
        })?;
        let bench = Bench { args, scale: args.scale(), cluster, certificates, stop, wanted };
        bench.fill_tables()?;
        Ok(bench)
    }

    fn fill_tables(&self) -> Result<(), Error> {
        let (tables, table_rows) = (self.scale.tables, self.scale.table_rows);
        progress(&format!("filling {tables} tables of {table_rows} rows"));
        let server = self.cluster.node(1).addr();
        let threads = tables;
        let load = Sysbench { tables, table_rows, threads, ..Sysbench::new("oltp_read_write", server) };
        Ok(load.prepare()?)
    }

    /// Starts the peers among `kinds` that were asked for, ready for so many clients, and prints their configurations.
    pub(crate) fn peers(&self, layout: Layout, clients: u32, kinds: &[Kind]) -> Result<Vec<Peer>, Error> {
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
    ) -> Result<(Peer, Duration), Error> {
        let start = self.start_of(Layout::OneNode, SPARE_FILES as u32);
        start.weir_with(&self.args.servers.weir_binary()?, name, change)
    }

    /// Visits every peer once in a round.
    pub(crate) fn rounds(
        &self,
        case: &mut Case,
        peers: &[Peer],
        round: u32,
        mut visit: impl FnMut(&Peer) -> Result<Sample, Error>,
    ) -> Result<(), Error> {
        let (row, name) = (case.row, case.name.clone());
        case.visit_all(round, |at, kind| {
            self.stop.check()?;
            let peer = peers.get(at).ok_or_else(|| Error::Failed(format!("{kind} is not there")))?;
            let sample = visit(peer)?;
            progress(&format!("round {} {row} {name} {kind:<8} {}", round + 1, sample.line()));
            Ok(sample)
        })
    }

    /// Does something and gives the number of connections that the first node took meanwhile, too.
    pub(crate) fn counting_connections<T>(
        &self,
        work: impl FnOnce() -> Result<T, Error>,
    ) -> Result<(u64, T), Error> {
        let count = || -> Result<u64, Error> {
            Ok(self.cluster.node(1).status("Connections")?.parse().unwrap_or_default())
        };
        let before = count()?;
        let result = work()?;
        // The second question takes one, too.
        Ok((count()?.saturating_sub(before + 1), result))
    }

    /// CPU time that the servers have used so far.
    pub(crate) fn servers_cpu_time(&self) -> Result<Duration, Error> {
        let processes = self.cluster.nodes().iter().filter_map(|node| node.process());
        let mut sum = Duration::ZERO;
        for process in processes {
            sum += servers::usage(&process).cpu_time()?;
        }
        Ok(sum)
    }
}

/// A case without figures.
pub(crate) fn empty_case(row: Row, name: &str, goals: Vec<Goal>, peers: &[Peer]) -> Case {
    Case::new(row, name, goals, peers.iter().map(|peer| peer.kind.name()))
}

/// As app, in the schema sbtest, in clear, without files.
pub(crate) fn login(address: SocketAddrV4) -> Login {
    Login::new(address, &Account::APP.into()).schema("sbtest")
}

/// At Weir's admin port, with its default account.
pub(crate) fn admin_login(address: SocketAddrV4) -> Login {
    Login::new(address, &weir_lab::Account::new("admin", "admin"))
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("{}: {line}", crate::NAME);
}
