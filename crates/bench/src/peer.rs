//! Starts the peers that are measured: the server itself, and HAProxy, ProxySQL and Weir in front of it.

use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::{Error, Usage, servers};
use weir_testkit::{
    Account, Galera, HaProxy, HaProxyOptions, OUTCOMES_TABLE, Process, ProxySql, ProxySqlOptions,
    TestkitError, Weir, WeirConfig, hostgroup, preflight,
};

use crate::certificates::Certificates;
use crate::relay;
use crate::row::Layout;
use crate::rules::{self, Column};

/// Clients that a proxy takes beyond those that a row needs: for looking whether it is there.
const SPARE_CLIENTS: u32 = 100;

/// A way for statements to reach the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lower")]
pub(crate) enum Kind {
    /// No proxy: what the servers and the load generator can do.
    Direct,
    /// HAProxy in TCP mode, which does not look at what it forwards.
    HaProxy,
    /// A bare TCP relay with io_uring: the least that such a proxy can cost.
    Relay,
    /// ProxySQL.
    ProxySql,
    /// Weir.
    Weir,
    /// Weir with `io_driver = "epoll"`, to see what io_uring gains in the same run.
    #[serde(rename = "weir-epoll")]
    #[value(name = "weir-epoll")]
    WeirEpoll,
    /// Weir with `transaction_replay = "off"`: with `--split`, what it costs that transactions can run again.
    #[serde(rename = "weir-no-replay")]
    #[value(name = "weir-no-replay")]
    WeirNoReplay,
    /// Weir with `commit_outcome = "marker"`: with `--split`, what it costs to know of COMMITs.
    #[serde(rename = "weir-marker")]
    #[value(name = "weir-marker")]
    WeirMarker,
}

impl Kind {
    /// As on the command line and in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Direct => "direct",
            Kind::HaProxy => "haproxy",
            Kind::Relay => "relay",
            Kind::ProxySql => "proxysql",
            Kind::Weir => "weir",
            Kind::WeirEpoll => "weir-epoll",
            Kind::WeirNoReplay => "weir-no-replay",
            Kind::WeirMarker => "weir-marker",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A peer to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing to start.
    Direct,
    /// The installed HAProxy.
    HaProxy,
    /// The relay that is part of this program.
    Relay,
    /// This proxysql binary.
    ProxySql(PathBuf),
    /// This weir binary, with what this kind says.
    Weir(PathBuf, Kind),
}

impl Wanted {
    /// Which one.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Wanted::Direct => Kind::Direct,
            Wanted::HaProxy => Kind::HaProxy,
            Wanted::Relay => Kind::Relay,
            Wanted::ProxySql(_) => Kind::ProxySql,
            Wanted::Weir(_, kind) => *kind,
        }
    }
}

/// A running peer; its proxy ends with it.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Which one.
    pub(crate) kind: Kind,
    /// Where clients connect.
    pub(crate) addr: SocketAddrV4,
    proxy: Proxy,
    config_text: String,
}

#[derive(Debug)]
enum Proxy {
    None,
    HaProxy(HaProxy),
    Relay(Process),
    ProxySql(ProxySql),
    Weir(Box<Weir>),
}

impl Peer {
    /// The proxy's process; `None` without a proxy.
    fn process(&self) -> Option<&Process> {
        match &self.proxy {
            Proxy::None => None,
            Proxy::HaProxy(haproxy) => Some(haproxy.process()),
            Proxy::Relay(process) => Some(process),
            Proxy::ProxySql(proxysql) => Some(proxysql.process()),
            Proxy::Weir(weir) => Some(weir.process()),
        }
    }

    /// CPU time that the proxy has used so far, all its threads, user and system; `None` without a proxy.
    pub(crate) fn cpu_time(&self) -> Result<Option<Duration>, Error> {
        self.usage().map(Usage::cpu_time).transpose()
    }

    /// What the proxy takes; `None` without a proxy.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.process().map(servers::usage)
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

/// What all proxies are started with.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    /// The servers.
    pub(crate) cluster: &'a Galera,
    /// For TLS with clients.
    pub(crate) certificates: &'a Certificates,
    /// Threads of each proxy.
    pub(crate) workers: u16,
    /// Clients that will come.
    pub(crate) clients: u32,
    /// Which servers they stand in front of.
    pub(crate) layout: Layout,
}

impl Start<'_> {
    /// Starts the wanted proxies.
    pub(crate) fn all(&self, wanted: &[Wanted]) -> Result<Vec<Peer>, Error> {
        wanted.iter().map(|wanted| self.one(wanted)).collect()
    }

    fn one(&self, wanted: &Wanted) -> Result<Peer, Error> {
        match wanted {
            Wanted::Direct => Ok(self.direct()),
            Wanted::HaProxy => self.haproxy(),
            Wanted::Relay => self.relay(),
            Wanted::ProxySql(program) => self.proxysql(program),
            Wanted::Weir(binary, kind) => self.weir(binary, *kind),
        }
    }

    fn node(&self, index: usize) -> SocketAddrV4 {
        self.cluster.node(index).addr()
    }

    fn all_nodes(&self) -> Vec<SocketAddrV4> {
        self.cluster.nodes().iter().map(|node| node.addr()).collect()
    }

    /// All but the first, which is Weir's writer.
    fn readers(&self) -> Vec<SocketAddrV4> {
        self.all_nodes().split_off(1)
    }

    fn direct(&self) -> Peer {
        let addr = match self.layout {
            Layout::Replicas => self.node(2),
            _ => self.node(1),
        };
        Peer { kind: Kind::Direct, addr, proxy: Proxy::None, config_text: String::new() }
    }

    fn haproxy(&self) -> Result<Peer, Error> {
        let (servers, balance) = match self.layout {
            Layout::Replicas => (self.readers(), "roundrobin"),
            Layout::Primary => (self.all_nodes(), "first"),
            _ => (vec![self.node(1)], "first"),
        };
        let options = HaProxyOptions {
            name: "haproxy".to_owned(),
            listen: free_address()?,
            servers,
            threads: usize::from(self.workers),
            connections_max: (self.clients + SPARE_CLIENTS) as usize,
            balance,
            proxy_header: None,
            check: None,
        };
        let haproxy = HaProxy::start(&options, self.cluster.dir())?;
        let config_text = options.render();
        Ok(Peer { kind: Kind::HaProxy, addr: haproxy.addr(), config_text, proxy: Proxy::HaProxy(haproxy) })
    }

    fn relay(&self) -> Result<Peer, Error> {
        let to = match self.layout {
            Layout::Replicas => self.readers(),
            _ => vec![self.node(1)],
        };
        let options = relay::Options { listen: free_address()?, to, threads: self.workers };
        let process = options.start(self.cluster.dir())?;
        let config_text = options.words().join(" ");
        Ok(Peer { kind: Kind::Relay, addr: options.listen, config_text, proxy: Proxy::Relay(process) })
    }

    fn proxysql(&self, program: &Path) -> Result<Peer, Error> {
        let group = hostgroup::WRITER;
        let servers = match self.layout {
            Layout::Replicas => self.readers().into_iter().map(|server| (group, server, None)).collect(),
            Layout::Narrow(connections) => vec![(group, self.node(1), Some(connections))],
            _ => vec![(group, self.node(1), None)],
        };
        let options = ProxySqlOptions {
            name: "proxysql".to_owned(),
            listen: free_address()?,
            admin: free_address()?,
            threads: self.workers,
            clients_max: self.clients + SPARE_CLIENTS,
            variables: vec![("have_ssl", "true".into())],
            servers,
            account: Account::APP,
            default_hostgroup: group,
            rules: rules::rules(group, group)
                .iter()
                .map(|rule| rule.iter().map(proxysql_column).collect())
                .collect(),
        };
        self.proxysql_certificates(&self.cluster.dir().join("proxysql-data"))?;
        let proxysql = ProxySql::start(program, &options, self.cluster.dir())?;
        let config_text = options.render();
        Ok(Peer {
            kind: Kind::ProxySql,
            addr: proxysql.addr(),
            config_text,
            proxy: Proxy::ProxySql(proxysql),
        })
    }

    /// ProxySQL makes its own, which sysbench would not trust, unless it finds some
    /// (<https://proxysql.com/documentation/ssl-support/>).
    fn proxysql_certificates(&self, datadir: &Path) -> Result<(), Error> {
        let doing = || Error::io(format!("write to {}", datadir.display()));
        fs::create_dir_all(datadir).map_err(doing())?;
        let files = [
            ("proxysql-ca.pem", self.certificates.authority()),
            ("proxysql-cert.pem", self.certificates.server_cert()),
            ("proxysql-key.pem", self.certificates.server_key()),
        ];
        for (name, from) in files {
            fs::copy(from, datadir.join(name)).map_err(doing())?;
        }
        Ok(())
    }

    fn weir(&self, binary: &Path, kind: Kind) -> Result<Peer, Error> {
        let listen = free_address()?;
        let (mut config, addr) = self.weir_config(listen)?;
        match kind {
            Kind::WeirEpoll => {
                config.variable("io_driver", "epoll");
            }
            Kind::WeirNoReplay => {
                let row = [("hostgroup_id", hostgroup::WRITER.into()), ("transaction_replay", "off".into())];
                config.push("weir_hostgroups", &row);
            }
            Kind::WeirMarker => {
                config.marks_commits(hostgroup::WRITER);
                self.cluster.node(1).root_query(OUTCOMES_TABLE)?;
            }
            _ => {}
        }
        let name = kind.to_string();
        let weir = Weir::start(binary, &config, self.cluster.dir(), &name)?;
        let config_text = config.render(&self.cluster.dir().join(format!("{name}-data")));
        Ok(Peer { kind, addr, config_text, proxy: Proxy::Weir(Box::new(weir)) })
    }

    /// A Weir without query rules in front of the first node, of whose configuration `change` makes something else. Its
    /// time is that of the process, not of making the file.
    pub(crate) fn weir_with(
        &self,
        binary: &Path,
        name: &str,
        change: impl FnOnce(&mut WeirConfig),
    ) -> Result<(Peer, Duration), Error> {
        let listen = free_address()?;
        let mut config = one_node_config(self.node(1), listen, None);
        self.set_up(&mut config);
        change(&mut config);
        let name = format!("{name}-{}", listen.port());
        let weir = Weir::start(binary, &config, self.cluster.dir(), &name)?;
        let took = weir.process().age();
        let proxy = Proxy::Weir(Box::new(weir));
        Ok((Peer { kind: Kind::Weir, addr: listen, proxy, config_text: String::new() }, took))
    }

    fn set_up(&self, config: &mut WeirConfig) {
        config.variable("threads", i64::from(self.workers));
        config.variable("tls_cert_file", self.certificates.server_cert().display().to_string());
        config.variable("tls_key_file", self.certificates.server_key().display().to_string());
    }

    /// Weir's shipped defaults with twenty query rules, and the address that is measured.
    fn weir_config(&self, listen: SocketAddrV4) -> Result<(WeirConfig, SocketAddrV4), TestkitError> {
        let mut addr = listen;
        let mut config = match self.layout {
            Layout::OneNode => one_node_config(self.node(1), listen, None),
            Layout::Narrow(connections) => one_node_config(self.node(1), listen, Some(connections)),
            Layout::Split => WeirConfig::for_servers(&self.all_nodes(), listen),
            Layout::Primary | Layout::Replicas => {
                let mut config = WeirConfig::for_servers(&self.all_nodes(), listen);
                addr = free_address()?;
                let mode = if self.layout == Layout::Primary { "primary" } else { "replicas" };
                let row = [("address", addr.to_string().into()), ("mode", mode.into())];
                config.push("weir_listeners", &row);
                config
            }
        };
        let reader = if self.layout == Layout::Split { hostgroup::READER } else { hostgroup::WRITER };
        add_rules(&mut config, reader);
        self.set_up(&mut config);
        Ok((config, addr))
    }
}

/// One server in a plain hostgroup.
fn one_node_config(server: SocketAddrV4, listen: SocketAddrV4, connections_max: Option<u32>) -> WeirConfig {
    let mut config = WeirConfig::new(listen);
    let more: Vec<_> =
        connections_max.map(|max| ("max_connections", i64::from(max).into())).into_iter().collect();
    config.server(server, hostgroup::WRITER, &more);
    config.user(Account::APP, hostgroup::WRITER, &[]);
    config.monitor(Account::MONITOR);
    config
}

fn add_rules(config: &mut WeirConfig, reader: i64) {
    for rule in rules::rules(hostgroup::WRITER, reader) {
        let row: Vec<_> = rule
            .iter()
            .map(|column| match *column {
                Column::Number(name, number) => (name, number.into()),
                Column::Text(name, text) => (name, text.into()),
            })
            .collect();
        config.push("mysql_query_rules", &row);
    }
}

fn proxysql_column(column: &Column) -> (&'static str, weir_testkit::ProxySqlValue) {
    match *column {
        Column::Number(name, number) => (name, number.into()),
        Column::Text(name, text) => (name, text.into()),
    }
}

/// An address of this machine where nobody listens.
pub(crate) fn free_address() -> Result<SocketAddrV4, TestkitError> {
    preflight::free_address(Ipv4Addr::LOCALHOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weir_understands_the_configuration_made_for_it() {
        let server = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 41), 3306);
        let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6033);
        let mut config = one_node_config(server, listen, Some(50));
        config.variable("threads", 2);
        add_rules(&mut config, hostgroup::WRITER);
        let parsed = weir_config::parse(&config.render(Path::new("/var/tmp/x")), "bench.toml").unwrap();
        assert_eq!(parsed.servers.len(), 1);
        assert!(parsed.galera_hostgroups.is_empty());
        assert_eq!(parsed.variables.threads, 2);
        assert_eq!(parsed.query_rules.len(), 20);
    }
}
