//! Who is measured: the server itself, HAProxy in front of it, Weir in front of it.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use weir_testkit::{
    Account, Galera, HaProxy, HaProxyOptions, TestkitError, Weir, WeirConfig, hostgroup, preflight,
};

use crate::args::Args;
use crate::error::BenchError;

/// A way for statements to reach the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub(crate) enum Kind {
    /// No proxy: what the servers and the load generator can do.
    Direct,
    /// HAProxy in TCP mode, which does not look at what it forwards.
    HaProxy,
    /// Weir.
    Weir,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Direct => "direct",
            Kind::HaProxy => "haproxy",
            Kind::Weir => "weir",
        })
    }
}

/// Which servers Weir may use. HAProxy and the direct runs use the writer only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Route {
    /// The writer only, as HAProxy: a comparison of like with like
    OneNode,
    /// All nodes, with the read/write split: what a user of Weir gets
    Split,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Route::OneNode => "one-node",
            Route::Split => "split",
        })
    }
}

/// A running peer; its proxy ends with it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Which one.
    pub(crate) kind: Kind,
    /// Where sysbench connects.
    pub(crate) addr: SocketAddrV4,
    proxy: Proxy,
    config_text: String,
}

#[derive(Debug)]
enum Proxy {
    None,
    HaProxy(HaProxy),
    Weir(Box<Weir>),
}

impl Peer {
    /// CPU time that the proxy has used so far, all its threads, user and system; `None` without a proxy.
    pub(crate) fn cpu_time(&self) -> Result<Option<Duration>, TestkitError> {
        match &self.proxy {
            Proxy::None => Ok(None),
            Proxy::HaProxy(haproxy) => haproxy.process().cpu_time().map(Some),
            Proxy::Weir(weir) => weir.cpu_time().map(Some),
        }
    }

    /// Address and configuration, for the reader who wants to know what was compared.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("--- {} at {}\n", self.kind, self.addr);
        for line in self.config_text.lines() {
            text.push_str(&format!("    {line}\n"));
        }
        text
    }
}

/// A peer to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing to start.
    Direct,
    /// The installed HAProxy.
    HaProxy,
    /// This weir binary.
    Weir(PathBuf),
}

/// Starts the wanted proxies in front of the cluster's first node.
pub(crate) fn start_all(args: &Args, wanted: &[Wanted], cluster: &Galera) -> Result<Vec<Peer>, BenchError> {
    let start = |wanted: &Wanted| match wanted {
        Wanted::Direct => Ok(direct(cluster)),
        Wanted::HaProxy => start_haproxy(args, cluster),
        Wanted::Weir(binary) => start_weir(args, cluster, binary),
    };
    wanted.iter().map(start).collect()
}

fn direct(cluster: &Galera) -> Peer {
    Peer { kind: Kind::Direct, addr: cluster.node(1).addr(), proxy: Proxy::None, config_text: String::new() }
}

fn start_haproxy(args: &Args, cluster: &Galera) -> Result<Peer, BenchError> {
    let options = HaProxyOptions {
        name: "haproxy".to_owned(),
        listen: free_address()?,
        servers: vec![cluster.node(1).addr()],
        threads: usize::from(args.workers()),
        connections_max: args.connections_max() as usize + 100,
        balance: "first",
    };
    let haproxy = HaProxy::start(&options, cluster.dir())?;
    Ok(Peer {
        kind: Kind::HaProxy,
        addr: haproxy.addr(),
        config_text: options.render(),
        proxy: Proxy::HaProxy(haproxy),
    })
}

fn start_weir(args: &Args, cluster: &Galera, binary: &Path) -> Result<Peer, BenchError> {
    let listen = free_address()?;
    let mut config = match args.weir_route {
        Route::OneNode => one_node_config(cluster.node(1).addr(), listen),
        Route::Split => WeirConfig::for_cluster(cluster, listen),
    };
    config.variable("threads", i64::from(args.workers()));
    let weir = Weir::start(binary, &config, cluster.dir(), "weir")?;
    Ok(Peer {
        kind: Kind::Weir,
        addr: listen,
        config_text: config.render(&cluster.dir().join("weir-data")),
        proxy: Proxy::Weir(Box::new(weir)),
    })
}

/// Weir's shipped defaults in front of one server in a plain hostgroup.
fn one_node_config(server: SocketAddrV4, listen: SocketAddrV4) -> WeirConfig {
    let mut config = WeirConfig::new(listen);
    config.server(server, hostgroup::WRITER, &[]);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.variable("monitor_username", Account::MONITOR.user);
    config.variable("monitor_password", Account::MONITOR.password);
    config
}

fn free_address() -> Result<SocketAddrV4, TestkitError> {
    let ip = Ipv4Addr::LOCALHOST;
    Ok(SocketAddrV4::new(ip, preflight::free_port(ip)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_understands_the_configuration_made_for_it() {
        let server = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 41), 3306);
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6033);
        let mut config = one_node_config(server, listen);
        config.variable("threads", 2);
        let parsed = weir_config::parse(&config.render(Path::new("/var/tmp/x")), "bench.toml").unwrap();
        assert_eq!(parsed.servers.len(), 1);
        assert!(parsed.galera_hostgroups.is_empty());
        assert_eq!(parsed.variables.threads, 2);
    }
}
