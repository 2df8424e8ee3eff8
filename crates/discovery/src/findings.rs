//! Makes one list of servers of what was found under many names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use weir_topology::Endpoint;

use crate::facts::{Facts, Identity, peers};

/// How a server came to be known, from the best name to the worst: the first is what its cluster calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamedBy {
    /// A member of a Galera cluster or a group, by the address that it gives the others.
    Member,
    /// The source of a replica, by the replica's setting.
    Source,
    /// A replica that has registered itself (`report_host`).
    Registered,
    /// The user.
    User,
    /// `wsrep_cluster_address`, with the port of the node that says so.
    Seed,
    /// Where a reader of the binary log comes from, with a port that is likely.
    BinlogReader,
}

impl NamedBy {
    /// Whether somebody has said that there is a server, and not only a host.
    pub fn is_certain(self) -> bool {
        self <= Self::User
    }
}

impl fmt::Display for NamedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Member => "a member of the cluster",
            Self::Source => "the source of a replica",
            Self::Registered => "a registered replica",
            Self::User => "named by you",
            Self::Seed => "in wsrep_cluster_address",
            Self::BinlogReader => "where the binary log is read from",
        })
    }
}

/// A visit of one address.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// How the address came to be known, and who it is said to be.
    pub named: BTreeSet<(NamedBy, Option<Identity>)>,
    /// What was found there, or why nothing.
    pub outcome: Result<Reached, String>,
}

/// A server that has answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// What it says.
    pub facts: Facts,
    /// How long an answer takes: the shortest time of several.
    pub rtt: Duration,
    /// Whether the connection was encrypted.
    pub is_encrypted: bool,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The name to use: the best under which it was reached.
    pub endpoint: Endpoint,
    /// All names under which it was reached.
    pub names: BTreeSet<Endpoint>,
    /// How that name came to be known.
    pub named_by: NamedBy,
    /// What it says.
    pub facts: Facts,
    /// How long an answer takes.
    pub rtt: Duration,
    /// Whether the connection was encrypted.
    pub is_encrypted: bool,
}

/// A server that was named and not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// Its name.
    pub endpoint: Endpoint,
    /// How it came to be known.
    pub named_by: NamedBy,
    /// Why nothing is known of it.
    pub reason: String,
}

/// All that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Each server once, in the order of the names.
    pub servers: Vec<Server>,
    /// Which of them the user has named.
    pub start: usize,
    /// Those that did not answer.
    pub unreached: Vec<Unreached>,
    /// Why there may be more than that, if a limit was met.
    pub cut_off: Option<String>,
}

impl Findings {
    /// Puts visits together; none if the one at `start` has failed.
    pub fn merge(start: &Endpoint, visits: &BTreeMap<Endpoint, Visit>) -> Option<Self> {
        let mut servers: Vec<Server> = Vec::new();
        let own = own_names(start, visits)?;
        // Anybody can claim to be the server that the user has named, and others can name him so.
        let rank = |server: &Server| {
            let is_strange = server.facts.identity() == own.0 && !own.1.contains(&server.endpoint);
            (is_strange, server.named_by)
        };
        for (endpoint, visit) in visits {
            let Ok(reached) = &visit.outcome else { continue };
            let named_by = visit.named.iter().map(|(by, _)| *by).min().unwrap_or(NamedBy::User);
            let identity = reached.facts.identity();
            let known = servers.iter_mut().find(|server| server.facts.identity() == identity);
            let Reached { facts, rtt, is_encrypted } = reached.clone();
            let names = BTreeSet::from([endpoint.clone()]);
            let new = Server { endpoint: endpoint.clone(), names, named_by, facts, rtt, is_encrypted };
            match known {
                None => servers.push(new),
                Some(known) => {
                    let names = known.names.iter().cloned().chain(new.names.iter().cloned()).collect();
                    if rank(&new) < rank(known) {
                        *known = new;
                    }
                    known.names = names;
                }
            }
        }
        servers.sort_by_cached_key(|server| order(&server.endpoint));
        let start = servers.iter().position(|server| server.names.contains(start))?;
        let unreached = unreached(visits, &servers);
        Some(Self { servers, start, unreached, cut_off: None })
    }

    /// The server that the user has named.
    pub fn start(&self) -> Option<&Server> {
        self.servers.get(self.start)
    }

    /// A server by any of its names.
    pub fn server(&self, name: &Endpoint) -> Option<(usize, &Server)> {
        self.servers.iter().enumerate().find(|(_, server)| server.names.contains(name))
    }
}

/// Who the server at `start` is, and the names that the user and itself have for it; none if it was not reached.
fn own_names(start: &Endpoint, visits: &BTreeMap<Endpoint, Visit>) -> Option<(Identity, BTreeSet<Endpoint>)> {
    let facts = &visits.get(start)?.outcome.as_ref().ok()?.facts;
    let identity = facts.identity();
    let own = peers(facts).into_iter().filter(|peer| peer.identity.as_ref() == Some(&identity));
    let names = own.map(|peer| peer.endpoint).chain([start.clone()]).collect();
    Some((identity, names))
}

/// 10.0.0.9 before 10.0.0.10, addresses before names.
fn order(endpoint: &Endpoint) -> (bool, Option<IpAddr>, Endpoint) {
    let address = endpoint.host.parse().ok();
    (address.is_none(), address, endpoint.clone())
}

/// Those that did not answer, but for other names of servers that did.
fn unreached(visits: &BTreeMap<Endpoint, Visit>, servers: &[Server]) -> Vec<Unreached> {
    let identities: BTreeSet<Identity> = servers.iter().map(|server| server.facts.identity()).collect();
    // Replicas that were reached where their source has not been asked for their names.
    let readers: usize = servers.iter().map(|server| server.facts.dump_hosts.len()).sum();
    let replicas: usize = servers.iter().map(|server| server.facts.sources.len()).sum();
    let mut unreached = Vec::new();
    for (endpoint, visit) in visits {
        let Err(reason) = &visit.outcome else { continue };
        let is_known = visit
            .named
            .iter()
            .any(|(_, identity)| identity.as_ref().is_some_and(|id| identities.contains(id)));
        let named_by = visit.named.iter().map(|(by, _)| *by).min().unwrap_or(NamedBy::User);
        // Every reader is one of the replicas: the guess where it might be was wrong.
        let is_needless = named_by == NamedBy::BinlogReader && readers <= replicas;
        if !is_known && !is_needless {
            unreached.push(Unreached { endpoint: endpoint.clone(), named_by, reason: reason.clone() });
        }
    }
    unreached.sort_by_cached_key(|server| order(&server.endpoint));
    unreached
}

/// The addresses that visits have brought to light, with how and by whom they were named.
pub(crate) fn named_by_visits(
    visits: &BTreeMap<Endpoint, Visit>,
) -> BTreeMap<Endpoint, BTreeSet<(NamedBy, Option<Identity>)>> {
    let mut named: BTreeMap<Endpoint, BTreeSet<(NamedBy, Option<Identity>)>> = BTreeMap::new();
    for reached in visits.values().filter_map(|visit| visit.outcome.as_ref().ok()) {
        for peer in peers(&reached.facts) {
            named.entry(peer.endpoint).or_default().insert((peer.by, peer.identity));
        }
    }
    named
}

#[cfg(test)]
pub(crate) mod tests;
