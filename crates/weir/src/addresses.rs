//! Finds the addresses of servers: one for each, which the monitor and the workers use alike.
//!
//! The system's resolver may take half a minute for a name, and can't be interrupted. So threads of their own ask it
//! ([`names`]), nobody waits for them longer than [`LIMIT`], and the main thread, which publishes roles, never does. A
//! name that nobody can resolve is the fault of its server alone, and is asked for again.

mod name_resolution;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use weir_config::Config;
use weir_monitor::{ServerAddress, ServerAddresses};
use weir_topology::Endpoint;

use crate::topology_log::TopologyLog;

pub(crate) use name_resolution::Names;

/// How long a start, and a configuration that is loaded, wait for names. Those that take longer come by themselves.
pub(crate) const LIMIT: Duration = Duration::from_secs(2);
/// How long an address may take to answer, where a name means several.
const DIAL_LIMIT: Duration = Duration::from_secs(1);

/// Asks for all addresses of a name, the best first.
pub(crate) type Resolver = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;
/// Tells whether somebody listens at an address.
pub(crate) type Dialer = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// As the system resolves names: `/etc/hosts`, DNS.
pub(crate) fn system() -> Resolver {
    Arc::new(|host| Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect()))
}

/// Connects, and closes the connection.
pub(crate) fn dialer() -> Dialer {
    Arc::new(|address| TcpStream::connect_timeout(&address, DIAL_LIMIT).is_ok())
}

/// Tells, in the logs, which servers are somewhere else than before, or can't be found.
pub(crate) fn announce(log: &TopologyLog, before: &ServerAddresses, now: &ServerAddresses) {
    for (endpoint, now) in now {
        let Some(news) = news(endpoint, before.get(endpoint), now) else { continue };
        if now.fault.is_some() {
            tracing::warn!(server = %endpoint, "{news}");
        } else {
            tracing::info!(server = %endpoint, "{news}");
        }
        log.server_event(endpoint, "address", news);
    }
}

/// What is different for a server, in words; none where nobody need know.
fn news(endpoint: &Endpoint, before: Option<&ServerAddress>, now: &ServerAddress) -> Option<String> {
    let was = before.and_then(|before| before.at);
    let had = before.and_then(|before| before.fault.as_ref());
    match (was, now.at) {
        (Some(was), Some(at)) if was != at => Some(format!("{at}, was {was}")),
        (_, Some(at)) if now.fault.is_none() && had.is_some() => {
            Some(format!("{at}: the name resolves again"))
        }
        _ if now.fault.is_some() && now.fault.as_ref() != had => trouble(endpoint, now),
        _ => None,
    }
}

/// Why a server's name can't be resolved, and what that means; none if it can.
pub(crate) fn trouble(endpoint: &Endpoint, known: &ServerAddress) -> Option<String> {
    let (host, fault) = (&endpoint.host, known.fault.as_ref()?);
    Some(match known.at {
        Some(at) => {
            format!("mysql_servers: {endpoint}: name {host} does not resolve: {fault}; it stays at {at}")
        }
        None => {
            format!("mysql_servers: {endpoint}: name {host} does not resolve: {fault}; it is tried again")
        }
    })
}

/// The servers of a configuration.
fn endpoints(config: &Config) -> impl Iterator<Item = Endpoint> {
    config.servers.iter().map(|row| row.endpoint())
}

/// The address that a server's hostname is, if it is one.
fn literal(endpoint: &Endpoint) -> Option<SocketAddr> {
    endpoint.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, endpoint.port))
}

/// Which of a name's addresses a server is spoken to at: where it is, as long as its name says so and it answers; else
/// the first that answers. If none does, where it is or the first.
fn choose(
    all: &[SocketAddr],
    current: Option<SocketAddr>,
    is_silent: bool,
    answers: &Dialer,
) -> Option<SocketAddr> {
    let stays = current.filter(|current| all.contains(current));
    if let [only] = all {
        return Some(*only);
    }
    if let Some(current) = stays.filter(|_| !is_silent) {
        return Some(current);
    }
    let others = all.iter().copied().filter(|address| Some(*address) != stays);
    let answering = stays.into_iter().chain(others).find(|address| answers(*address));
    answering.or(stays).or(all.first().copied())
}

#[cfg(test)]
pub(crate) mod tests;
