//! Runs HAProxy in TCP mode, the yardstick of the benchmark.

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::TestkitError;
use crate::preflight;
use crate::process::Process;

const START_TIMEOUT: Duration = Duration::from_secs(5);

/// What HAProxy shall do.
#[derive(Debug, Clone)]
pub struct HaProxyOptions {
    /// Tells several HAProxies of one run apart; part of the file names.
    pub name: String,
    /// Where clients connect.
    pub listen: SocketAddrV4,
    /// The servers, in the order of preference.
    pub servers: Vec<SocketAddrV4>,
    /// Threads, as Weir's workers.
    pub threads: usize,
    /// The connections it takes at most.
    pub connections_max: usize,
    /// HAProxy's balance algorithm, as in "first", "leastconn" or "roundrobin".
    pub balance: &'static str,
    /// How it tells servers of its clients: `send-proxy` or `send-proxy-v2`.
    pub proxy_header: Option<&'static str>,
    /// Whether and how it looks at the servers.
    pub check: Option<HaProxyCheck>,
}

/// A health check as HAProxy's users configure it: a login every second, down after two that fail, up after two that
/// succeed, and sessions of a server that is down are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HaProxyCheck {
    /// An account of the servers without a password.
    pub user: &'static str,
    /// All servers but the first are used only while those before them are down.
    pub backups: bool,
}

impl HaProxyOptions {
    /// The text of the configuration file: TCP mode, no logging.
    pub fn render(&self) -> String {
        let mut text = format!(
            "\
global
    nbthread {threads}
    maxconn {connections}
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen mysql
    bind {listen}
    balance {balance}
",
            threads = self.threads,
            connections = self.connections_max,
            listen = self.listen,
            balance = self.balance,
        );
        if let Some(HaProxyCheck { user, .. }) = self.check {
            text.push_str(&format!(
                "    option mysql-check user {user}\n    \
                 default-server inter 1s fall 2 rise 2 on-marked-down shutdown-sessions\n"
            ));
        }
        for (i, server) in self.servers.iter().enumerate() {
            let options = match self.check {
                Some(check) if check.backups && i > 0 => " check backup",
                Some(_) => " check",
                None => "",
            };
            let header = self.proxy_header.map(|word| format!(" {word}")).unwrap_or_default();
            text.push_str(&format!("    server n{} {server}{options}{header}\n", i + 1));
        }
        text
    }
}

/// A running HAProxy; dropping it kills it.
#[derive(Debug)]
pub struct HaProxy {
    process: Process,
    listen: SocketAddrV4,
}

impl HaProxy {
    /// Writes the configuration into `dir`, starts HAProxy and waits until it accepts connections.
    pub fn start(options: &HaProxyOptions, dir: &Path) -> Result<HaProxy, TestkitError> {
        let program = preflight::program("haproxy", "haproxy")?;
        preflight::port_is_free(options.listen)?;
        let config_path = dir.join(format!("{}.cfg", options.name));
        let log_path = dir.join(format!("{}.log", options.name));
        let doing = TestkitError::io(format!("write {}", config_path.display()));
        fs::write(&config_path, options.render()).map_err(doing)?;
        let mut command = Command::new(program);
        // -db: stay in the foreground, so that the process started is the one that serves.
        command.arg("-db").arg("-f").arg(&config_path);
        let process = Process::serve(&options.name, &mut command, options.listen, &log_path, START_TIMEOUT)?;
        Ok(HaProxy { process, listen: options.listen })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddrV4 {
        self.listen
    }

    /// Its process, for memory and CPU time.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::RunDir;

    #[test]
    fn haproxy_starts_with_its_configuration_and_ends() {
        let dir = RunDir::create("testkit-haproxy", false).unwrap();
        let ip = Ipv4Addr::LOCALHOST;
        let options = HaProxyOptions {
            name: "haproxy".to_owned(),
            listen: preflight::free_address(ip).unwrap(),
            servers: vec![SocketAddrV4::new(ip, 1)],
            threads: 2,
            connections_max: 100,
            balance: "first",
            proxy_header: None,
            check: None,
        };
        let haproxy = HaProxy::start(&options, dir.path()).unwrap();
        assert!(haproxy.process().exit_status().is_none());
        let second = HaProxy::start(&options, dir.path()).unwrap_err();
        assert!(matches!(second, TestkitError::PortInUse { .. }), "{second}");
        drop(haproxy);
        preflight::port_is_free(options.listen).unwrap();
    }
}
