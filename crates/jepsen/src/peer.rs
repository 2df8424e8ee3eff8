//! Starts who stands between clients and servers.

use std::net::{Ipv4Addr, SocketAddrV4};

use weir_lab::Error;
use weir_lab::servers::{HaProxyPair, RunningWeir, Servers};
use weir_testkit::{WeirConfig, hostgroup, preflight};

use crate::client::Target;
use crate::guard::Guard;
use crate::place::PeerKind;
use crate::run::Setup;
use crate::stage::{CHECK_USER, Stage};

/// The longest that Weir may take to know a writer and its readers.
const READY_TIMEOUT_S: u64 = 90;
/// Times that a transaction which a server has undone runs again.
const DEADLOCK_RETRIES: i64 = 3;
/// Long enough for each transaction of the workloads.
const LOG_BYTES_MAX: i64 = 256 << 10;

/// Running proxies, or none; ended with it.
#[derive(Debug)]
pub(crate) enum Peer {
    /// One Weir, or two.
    Weir(Vec<Slot>),
    /// None.
    Direct,
    /// HAProxy for writes and for reads.
    HaProxy(HaProxyPair),
}

/// The place of a Weir, which is empty while it is restarted.
#[derive(Debug)]
pub(crate) struct Slot {
    weir: Option<RunningWeir>,
    address: SocketAddrV4,
    config: WeirConfig,
}

impl Slot {
    /// The Weir, if it runs.
    pub(crate) fn weir(&self) -> Result<&RunningWeir, Error> {
        self.weir
            .as_ref()
            .ok_or_else(|| Error::Failed("Weir does not run: its restart has failed".to_owned()))
    }

    /// Kills it and starts it again.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        let weir = self.weir.take().ok_or_else(|| Error::Failed("Weir does not run".to_owned()))?;
        self.weir = Some(weir.restart()?);
        Ok(())
    }

    /// Has it read a configuration that differs from the one before.
    pub(crate) fn reload(&mut self, number: i64) -> Result<(), Error> {
        // A limit that nobody reaches, for every server.
        let servers = self.config.document_mut().get_mut("mysql_servers");
        if let Some(servers) = servers.and_then(|servers| servers.as_array_of_tables_mut()) {
            for server in servers.iter_mut() {
                server.insert("max_connections", number_item(1000 + number));
            }
        }
        self.weir()?.reload(&self.config)
    }
}

impl Peer {
    /// Starts them in front of healthy servers.
    pub(crate) fn start(setup: &Setup, stage: &Stage<'_>) -> Result<Peer, Error> {
        match setup.peer {
            PeerKind::Direct => Ok(Peer::Direct),
            PeerKind::HaProxy => haproxy(stage),
            PeerKind::Weir => {
                let slots = (0..stage.args.weirs).map(|_| weir(setup, stage)).collect::<Result<_, _>>()?;
                let peer = Peer::Weir(slots);
                peer.wait_ready(stage)?;
                Ok(peer)
            }
        }
    }

    /// Waits until every Weir knows a writer, and all other servers as readers.
    pub(crate) fn wait_ready(&self, stage: &Stage<'_>) -> Result<(), Error> {
        let Peer::Weir(slots) = self else { return Ok(()) };
        let readers = stage.servers.all().len() - 1;
        slots.iter().try_for_each(|slot| {
            let weir = slot.weir()?;
            stage.stop.wait("a writer and all readers in Weir's roles", READY_TIMEOUT_S, || {
                Ok(weir.writer()?.is_some() && weir.readers()?.len() >= readers.min(1))
            })
        })
    }

    /// Where a session connects.
    pub(crate) fn target(&self, session: usize, setup: &Setup, stage: &Stage<'_>) -> Result<Target, Error> {
        let pick = |addresses: &[SocketAddrV4]| addresses.get(session % addresses.len().max(1)).copied();
        let greeting = vec![setup.isolation.sql().to_owned()];
        let nowhere = || Error::Impossible("there is nothing to connect to".to_owned());
        match self {
            Peer::Weir(slots) => {
                let addresses: Vec<SocketAddrV4> = slots.iter().map(|slot| slot.address).collect();
                let address = pick(&addresses).ok_or_else(nowhere)?;
                let level = format!("SET weir_consistency = '{}'", setup.level);
                Ok(Target {
                    writes: address,
                    reads: address,
                    greeting: vec![level, setup.isolation.sql().to_owned()],
                })
            }
            Peer::Direct => {
                let addresses: Vec<SocketAddrV4> =
                    stage.servers.all().iter().map(|server| server.address).collect();
                let address = pick(&addresses).ok_or_else(nowhere)?;
                Ok(Target { writes: address, reads: address, greeting })
            }
            Peer::HaProxy(pair) => {
                let target = pair.target();
                Ok(Target { writes: target.writes, reads: target.reads, greeting })
            }
        }
    }

    /// The Weirs.
    pub(crate) fn slots(&self) -> &[Slot] {
        match self {
            Peer::Weir(slots) => slots,
            _ => &[],
        }
    }

    /// The same, to restart them.
    pub(crate) fn slots_mut(&mut self) -> &mut [Slot] {
        match self {
            Peer::Weir(slots) => slots,
            _ => &mut [],
        }
    }
}

/// The first address of the servers' network.
fn proxies_ip(stage: &Stage<'_>) -> Ipv4Addr {
    let [a, b, c, _] = stage.args.address.octets();
    Ipv4Addr::new(a, b, c, 1)
}

fn weir(setup: &Setup, stage: &Stage<'_>) -> Result<Slot, Error> {
    let address = preflight::free_address(proxies_ip(stage))?;
    let mut config = stage.servers.weir_config(address);
    config.push(
        "weir_hostgroups",
        &[
            ("hostgroup_id", hostgroup::WRITER.into()),
            ("transaction_replay", stage.args.replay.as_str().into()),
            ("transaction_replay_max_bytes", LOG_BYTES_MAX.into()),
            ("commit_outcome", if stage.args.no_marker { "off" } else { "marker" }.into()),
            ("deadlock_retries", DEADLOCK_RETRIES.into()),
        ],
    );
    if setup.guard == Some(Guard::OneWriter) {
        let writers = i64::try_from(stage.servers.all().len()).unwrap_or(1);
        let rows = config.document_mut().get_mut("mysql_galera_hostgroups");
        let row = rows.and_then(|rows| rows.as_array_of_tables_mut()?.get_mut(0));
        if let (Some(row), Servers::Galera(_)) = (row, &stage.servers) {
            row.insert("max_writers", number_item(writers));
            row.insert("writer_is_also_reader", number_item(1));
        }
    }
    let (binary, name) = (stage.args.servers.weir_binary()?, format!("weir-{}", stage.number()));
    let weir = RunningWeir::start(binary, &config, stage.servers.dir(), &name)?;
    Ok(Slot { weir: Some(weir), address, config })
}

/// A number in a configuration's document.
fn number_item(number: i64) -> toml_edit::Item {
    toml_edit::value(number)
}

/// As its users have it in front of Galera: one active node and two backups for writes, all nodes for reads.
fn haproxy(stage: &Stage<'_>) -> Result<Peer, Error> {
    let servers: Vec<SocketAddrV4> = stage.servers.all().iter().map(|server| server.address).collect();
    let (ip, dir) = (proxies_ip(stage), stage.servers.dir());
    Ok(Peer::HaProxy(HaProxyPair::start(&servers, ip, dir, stage.number(), CHECK_USER)?))
}
