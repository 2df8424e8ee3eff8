//! Starts the proxies that are compared.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::Error;
use weir_lab::probe::Target;
use weir_lab::servers::network::{Member, client_address};
use weir_lab::servers::{HaProxyPair, RunningWeir, Servers};
use weir_testkit::{
    MysqlRouter, MysqlRouterOptions, OUTCOMES_TABLE, TestkitError, WeirConfig, hostgroup, preflight,
};

use crate::stage::{CHECK_USER, Stage};

/// Where a proxy in a namespace listens.
const PORT: u16 = 6033;
/// The longest that Weir may take to know a writer.
const READY_TIMEOUT_S: u64 = 30;

/// Who stands between clients and servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PeerKind {
    /// Weir.
    Weir,
    /// HAProxy with a mysql check: one port for writes with the other nodes as backups, one for reads.
    #[value(name = "haproxy")]
    HaProxy,
    /// MySQL Router in front of a Group Replication group.
    #[value(name = "mysqlrouter")]
    MysqlRouter,
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            PeerKind::Weir => "weir",
            PeerKind::HaProxy => "haproxy",
            PeerKind::MysqlRouter => "mysqlrouter",
        })
    }
}

/// A running proxy, or two of them for one peer; ended with it.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Weir.
    Weir(Box<RunningWeir>),
    /// HAProxy for writes and for reads.
    HaProxy(HaProxyPair),
    /// MySQL Router.
    MysqlRouter(MysqlRouter),
}

impl Peer {
    /// Starts one in front of the stage's cluster.
    pub(crate) fn start(kind: PeerKind, stage: &Stage<'_>) -> Result<Peer, Error> {
        match kind {
            PeerKind::Weir => Ok(Peer::Weir(Box::new(start_weir(stage, |_| {})?))),
            PeerKind::HaProxy => haproxy(stage),
            PeerKind::MysqlRouter => mysql_router(stage),
        }
    }

    /// Where its clients connect.
    pub(crate) fn target(&self) -> Target {
        match self {
            Peer::Weir(weir) => weir.target(),
            Peer::HaProxy(pair) => pair.target(),
            Peer::MysqlRouter(router) => Target { writes: router.writes(), reads: router.reads() },
        }
    }

    /// A log whose lines are worth reading.
    pub(crate) fn log_path(&self) -> Option<PathBuf> {
        match self {
            Peer::Weir(weir) => Some(weir.log_path().to_owned()),
            Peer::HaProxy(_) | Peer::MysqlRouter(_) => None,
        }
    }

    /// The Weir, if it is one.
    pub(crate) fn weir(&self) -> Option<&RunningWeir> {
        match self {
            Peer::Weir(weir) => Some(weir.as_ref()),
            Peer::HaProxy(_) | Peer::MysqlRouter(_) => None,
        }
    }
}

/// Starts a Weir in front of the stage's servers; `change` may change its configuration.
pub(crate) fn start_weir(
    stage: &Stage<'_>,
    change: impl FnOnce(&mut WeirConfig),
) -> Result<RunningWeir, Error> {
    let mut config = stage.servers()?.weir_config(preflight::free_address(Ipv4Addr::LOCALHOST)?);
    change(&mut config);
    if stage.args.replay {
        config.marks_commits(hostgroup::WRITER);
        let node = stage.cluster()?.nodes().iter().find(|node| node.is_running());
        node.map(|node| node.root_query(OUTCOMES_TABLE)).transpose()?;
    }
    let (binary, name) = (stage.args.servers.weir_binary()?, format!("weir-{}", stage.number()));
    ready(RunningWeir::start(binary, &config, stage.dir()?, &name)?, stage)
}

/// Starts a Weir as proxy `k` of the stage's network.
pub(crate) fn start_weir_in_network(stage: &Stage<'_>, k: u8) -> Result<RunningWeir, Error> {
    let config = stage.servers()?.weir_config(SocketAddrV4::new(client_address(k), PORT));
    let namespace = stage.network()?.namespace(Member::Proxy(k));
    let (binary, name) = (stage.args.servers.weir_binary()?, format!("weir-{}", stage.number()));
    ready(RunningWeir::start_in(&namespace, binary, &config, stage.dir()?, &name)?, stage)
}

/// Kills a Weir and starts it again with the same configuration, at once.
pub(crate) fn restart_weir(weir: RunningWeir, stage: &Stage<'_>) -> Result<RunningWeir, Error> {
    ready(weir.restart()?, stage)
}

fn ready(weir: RunningWeir, stage: &Stage<'_>) -> Result<RunningWeir, Error> {
    stage.stop.wait("a writer in Weir's roles", READY_TIMEOUT_S, || Ok(weir.writer()?.is_some()))?;
    Ok(weir)
}

/// As its users have it in front of Galera: one active node and two backups for writes, all nodes for reads.
fn haproxy(stage: &Stage<'_>) -> Result<Peer, Error> {
    let cluster = stage.cluster()?;
    let servers: Vec<SocketAddrV4> = cluster.nodes().iter().map(|node| node.addr()).collect();
    let pair = HaProxyPair::start(&servers, Ipv4Addr::LOCALHOST, cluster.dir(), stage.number(), CHECK_USER)?;
    Ok(Peer::HaProxy(pair))
}

/// A port for the primary, and one for the secondaries in turn.
fn mysql_router(stage: &Stage<'_>) -> Result<Peer, Error> {
    let Servers::Group(group) = stage.servers()? else {
        return Err(Error::Impossible("MySQL Router is for groups".to_owned()));
    };
    let options = MysqlRouterOptions {
        name: format!("mysqlrouter-{}", stage.number()),
        writes: preflight::free_address(Ipv4Addr::LOCALHOST)?,
        reads: preflight::free_address(Ipv4Addr::LOCALHOST)?,
    };
    match MysqlRouter::start(group, options) {
        Ok(router) => Ok(Peer::MysqlRouter(router)),
        Err(error @ TestkitError::NoMysql { .. }) => Err(Error::Impossible(error.to_string())),
        Err(error) => Err(error.into()),
    }
}
