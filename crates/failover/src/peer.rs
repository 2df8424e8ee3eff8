//! Starts the proxies that are compared.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::Command;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::Error;
use weir_lab::probe::Target;
use weir_testkit::{
    HaProxy, HaProxyCheck, HaProxyOptions, MysqlRouter, MysqlRouterOptions, Process, TestkitError, Weir,
    WeirConfig, hostgroup, preflight,
};

use crate::stage::{CHECK_USER, Stage};
use weir_lab::servers::Servers;
use weir_lab::servers::network::{Member, client_address};

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
    Weir(Box<WeirPeer>),
    /// HAProxy for writes and for reads.
    HaProxy {
        /// Its port for writes.
        writes: HaProxy,
        /// Its port for reads.
        reads: HaProxy,
    },
    /// MySQL Router.
    MysqlRouter(MysqlRouter),
}

impl Peer {
    /// Starts one in front of the stage's cluster.
    pub(crate) fn start(kind: PeerKind, stage: &Stage<'_>) -> Result<Peer, Error> {
        match kind {
            PeerKind::Weir => Ok(Peer::Weir(Box::new(WeirPeer::start(stage, |_| {})?))),
            PeerKind::HaProxy => haproxy(stage),
            PeerKind::MysqlRouter => mysql_router(stage),
        }
    }

    /// Where its clients connect.
    pub(crate) fn target(&self) -> Target {
        match self {
            Peer::Weir(weir) => weir.target(),
            Peer::HaProxy { writes, reads } => Target { writes: writes.addr(), reads: reads.addr() },
            Peer::MysqlRouter(router) => Target { writes: router.writes(), reads: router.reads() },
        }
    }

    /// A log whose lines are worth reading.
    pub(crate) fn log_path(&self) -> Option<PathBuf> {
        match self {
            Peer::Weir(weir) => Some(weir.log_path.clone()),
            Peer::HaProxy { .. } | Peer::MysqlRouter(_) => None,
        }
    }

    /// The Weir, if it is one.
    pub(crate) fn weir(&self) -> Option<&WeirPeer> {
        match self {
            Peer::Weir(weir) => Some(weir.as_ref()),
            Peer::HaProxy { .. } | Peer::MysqlRouter(_) => None,
        }
    }
}

/// A running Weir and the binary that gives it orders.
#[derive(Debug)]
pub(crate) struct WeirPeer {
    weir: Weir,
    binary: PathBuf,
    log_path: PathBuf,
}

/// What an order of Weir's command line has come to.
#[derive(Debug)]
pub(crate) struct Told {
    /// Whether it exited with 0.
    pub(crate) succeeded: bool,
    /// What it printed, errors last.
    pub(crate) text: String,
}

impl WeirPeer {
    /// Starts one in front of the stage's servers; `change` may change its configuration.
    pub(crate) fn start(stage: &Stage<'_>, change: impl FnOnce(&mut WeirConfig)) -> Result<WeirPeer, Error> {
        let listen = preflight::free_address(Ipv4Addr::LOCALHOST)?;
        let servers: Vec<SocketAddrV4> = stage.servers()?.all().iter().map(|server| server.address).collect();
        let mut config = match stage.servers()? {
            Servers::Galera(_) => WeirConfig::for_servers(&servers, listen),
            Servers::Group(_) => WeirConfig::for_group(&servers, listen),
            Servers::Replication(_) => WeirConfig::for_replication(&servers, listen),
        };
        change(&mut config);
        let name = format!("weir-{}", stage.number());
        let binary = stage.args.servers.weir_binary()?;
        let weir = Weir::start(&binary, &config, stage.dir()?, &name)?;
        WeirPeer { weir, binary, log_path: stage.dir()?.join(format!("{name}.log")) }.ready(stage)
    }

    /// Starts proxy `k` of the stage's network.
    pub(crate) fn start_in_network(stage: &Stage<'_>, k: u8) -> Result<WeirPeer, Error> {
        let servers: Vec<SocketAddrV4> = stage.servers()?.all().iter().map(|server| server.address).collect();
        let config = WeirConfig::for_servers(&servers, SocketAddrV4::new(client_address(k), PORT));
        let namespace = stage.network()?.namespace(Member::Proxy(k));
        let name = format!("weir-{}", stage.number());
        let binary = stage.args.servers.weir_binary()?;
        let weir = Weir::start_in(&namespace, &binary, &config, stage.dir()?, &name)?;
        WeirPeer { weir, binary, log_path: stage.dir()?.join(format!("{name}.log")) }.ready(stage)
    }

    fn ready(self, stage: &Stage<'_>) -> Result<WeirPeer, Error> {
        stage.stop.wait("a writer in Weir's roles", READY_TIMEOUT_S, || Ok(self.writer()?.is_some()))?;
        Ok(self)
    }

    /// Kills it and starts it again with the same configuration, at once.
    pub(crate) fn restart(self, stage: &Stage<'_>) -> Result<WeirPeer, Error> {
        let WeirPeer { weir, binary, log_path } = self;
        WeirPeer { weir: weir.restart(&binary)?, binary, log_path }.ready(stage)
    }

    /// Whether its log has this text.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.weir.log().contains(text)
    }

    /// How often its log has this text.
    pub(crate) fn times_logged(&self, text: &str) -> usize {
        self.weir.log().matches(text).count()
    }

    /// Its process.
    pub(crate) fn process(&self) -> &Process {
        self.weir.process()
    }

    /// Where clients connect.
    pub(crate) fn target(&self) -> Target {
        Target { writes: self.weir.addr(), reads: self.weir.addr() }
    }

    /// Runs `weir ARGUMENTS` with its configuration.
    pub(crate) fn tell(&self, arguments: &[&str]) -> Result<Told, Error> {
        let mut command = Command::new(&self.binary);
        command.args(arguments).arg("-c").arg(self.weir.config_path());
        let output = command.output().map_err(Error::io("run weir"))?;
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        Ok(Told { succeeded: output.status.success(), text: text.trim().to_owned() })
    }

    /// `weir status --json`.
    pub(crate) fn status(&self) -> Result<serde_json::Value, Error> {
        let told = self.tell(&["status", "--json"])?;
        serde_json::from_str(&told.text)
            .map_err(|_| Error::Answer { what: "weir status --json".to_owned(), answer: told.text })
    }

    /// The writer of the first cluster, if there is one now.
    pub(crate) fn writer(&self) -> Result<Option<SocketAddrV4>, Error> {
        let status = self.status()?;
        let writer = status["clusters"][0]["writers"][0].as_str();
        Ok(writer.and_then(|text| text.parse().ok()))
    }

    /// `weir donor`: what a node that joins has as its `wsrep_sst_donor`.
    pub(crate) fn donors(&self) -> Result<String, Error> {
        let told = self.tell(&["donor", &WeirPeer::hostgroup()])?;
        match told.succeeded {
            true => Ok(told.text),
            false => Err(Error::Answer { what: "weir donor".to_owned(), answer: told.text }),
        }
    }

    /// Servers that read now.
    pub(crate) fn readers(&self) -> Result<Vec<SocketAddrV4>, Error> {
        let status = self.status()?;
        let servers = status["servers"].as_array().cloned().unwrap_or_default();
        let reads = |server: &&serde_json::Value| {
            server["hostgroup"].as_i64() == Some(hostgroup::READER)
                && server["status"].as_str().is_some_and(|status| status.eq_ignore_ascii_case("online"))
        };
        let address = |server: &serde_json::Value| server["server"].as_str()?.parse().ok();
        Ok(servers.iter().filter(reads).filter_map(address).collect())
    }

    /// The hostgroup that orders name.
    pub(crate) fn hostgroup() -> String {
        hostgroup::WRITER.to_string()
    }
}

/// As its users have it in front of Galera: one active node and two backups for writes, all nodes for reads.
fn haproxy(stage: &Stage<'_>) -> Result<Peer, Error> {
    let cluster = stage.cluster()?;
    let servers: Vec<SocketAddrV4> = cluster.nodes().iter().map(|node| node.addr()).collect();
    let start = |name: &str, balance, backups| -> Result<HaProxy, Error> {
        let options = HaProxyOptions {
            name: format!("{name}-{}", stage.number()),
            listen: preflight::free_address(Ipv4Addr::LOCALHOST)?,
            servers: servers.clone(),
            threads: 2,
            connections_max: 1000,
            balance,
            check: Some(HaProxyCheck { user: CHECK_USER, backups }),
        };
        Ok(HaProxy::start(&options, cluster.dir())?)
    };
    Ok(Peer::HaProxy {
        writes: start("haproxy-writes", "first", true)?,
        reads: start("haproxy-reads", "roundrobin", false)?,
    })
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
