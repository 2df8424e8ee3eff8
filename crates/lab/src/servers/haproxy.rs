//! Runs HAProxy as its users have it in front of a cluster: a port for writes and one for reads.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use weir_testkit::{HaProxy, HaProxyCheck, HaProxyOptions, preflight};

use crate::Error;
use crate::probe::Target;

/// Two HAProxies with a mysql check; ended with it.
#[derive(Debug)]
pub struct HaProxyPair {
    writes: HaProxy,
    reads: HaProxy,
}

impl HaProxyPair {
    /// Starts them on ports of `ip`, their files in `dir`, named after `number`: one active server and the others as
    /// backups for writes, all servers in turn for reads. `check_user` is an account without a password.
    ///
    /// # Errors
    /// If HAProxy is missing, or does not listen.
    pub fn start(
        servers: &[SocketAddrV4],
        ip: Ipv4Addr,
        dir: &Path,
        number: u32,
        check_user: &'static str,
    ) -> Result<HaProxyPair, Error> {
        let start = |name: &str, balance, backups| -> Result<HaProxy, Error> {
            let options = HaProxyOptions {
                name: format!("{name}-{number}"),
                listen: preflight::free_address(ip)?,
                servers: servers.to_vec(),
                threads: 2,
                connections_max: 1000,
                balance,
                proxy_header: None,
                check: Some(HaProxyCheck { user: check_user, backups }),
            };
            Ok(HaProxy::start(&options, dir)?)
        };
        Ok(HaProxyPair {
            writes: start("haproxy-writes", "first", true)?,
            reads: start("haproxy-reads", "roundrobin", false)?,
        })
    }

    /// Where clients connect.
    pub fn target(&self) -> Target {
        Target { writes: self.writes.addr(), reads: self.reads.addr() }
    }
}
