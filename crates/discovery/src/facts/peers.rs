//! Lists the servers that a server names.

use weir_topology::{Endpoint, GaleraState};

use super::{Facts, GaleraFacts, GroupFacts, Identity, host_of};
use crate::findings::NamedBy;

/// A server that another one names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Where it is said to be.
    pub endpoint: Endpoint,
    /// How it was named.
    pub by: NamedBy,
    /// Who it is, if that was said too.
    pub identity: Option<Identity>,
}

/// Whom a server names, itself included: that is how its cluster calls it.
pub fn peers(facts: &Facts) -> Vec<Peer> {
    let mut peers = Vec::new();
    if let Some(galera) = &facts.galera {
        of_galera(facts, galera, &mut peers);
    }
    if let Some(group) = &facts.group {
        of_group(group, &mut peers);
    }
    for source in &facts.sources {
        let identity = uuid(&source.link.id);
        peers.extend(
            source
                .link
                .endpoint
                .clone()
                .filter(|endpoint| host_of(&endpoint.host).is_some())
                .map(|endpoint| Peer { endpoint, by: NamedBy::Source, identity }),
        );
    }
    of_replicas(facts, &mut peers);
    peers.sort();
    peers.dedup();
    peers
}

/// MySQL's ids are UUIDs; MariaDB's numbers tell nobody apart.
fn uuid(id: &str) -> Option<Identity> {
    id.contains('-').then(|| Identity::Uuid(id.to_ascii_lowercase()))
}

fn of_galera(facts: &Facts, galera: &GaleraFacts, peers: &mut Vec<Peer>) {
    let own = galera.state.local_index.and_then(|index| usize::try_from(index).ok());
    for (index, member) in galera.state.members.iter().enumerate() {
        let Some(endpoint) = incoming(member) else { continue };
        let is_own = own == Some(index) && is_once(&galera.state, member);
        let identity = is_own.then(|| facts.identity());
        peers.push(Peer { endpoint, by: NamedBy::Member, identity });
    }
    // The port of the group is there; that for clients is most probably the same everywhere.
    let seeds = galera.seeds.iter().filter(|_| facts.port > 0);
    peers.extend(seeds.map(|host| Peer {
        endpoint: Endpoint::new(host, facts.port),
        by: NamedBy::Seed,
        identity: None,
    }));
}

/// Nodes that all call themselves 127.0.0.1 are not told apart by that.
fn is_once(state: &GaleraState, member: &str) -> bool {
    state.members.iter().filter(|other| *other == member).count() == 1
}

/// A member of `wsrep_incoming_addresses` that clients can be sent to: an arbitrator has none, others say AUTO or port 0.
fn incoming(member: &str) -> Option<Endpoint> {
    let endpoint: Endpoint = member.trim().parse().ok()?;
    host_of(&endpoint.host).is_some().then_some(endpoint)
}

fn of_group(group: &GroupFacts, peers: &mut Vec<Peer>) {
    peers.extend(group.addresses.iter().map(|(id, host, port)| Peer {
        endpoint: Endpoint::new(host, *port),
        by: NamedBy::Member,
        identity: uuid(id),
    }));
}

/// Those that have told where they are, and where the others come from: those have one of the ports that were told, or the
/// server's own.
fn of_replicas(facts: &Facts, peers: &mut Vec<Peer>) {
    for replica in facts.replicas.iter().filter(|replica| !replica.host.is_empty() && replica.port > 0) {
        let endpoint = Endpoint::new(&replica.host, replica.port);
        peers.push(Peer { endpoint, by: NamedBy::Registered, identity: uuid(&replica.uuid) });
    }
    let told = facts.replicas.iter().filter(|replica| replica.host.is_empty()).map(|replica| replica.port);
    let ports: Vec<u16> = told.chain([facts.port]).filter(|port| *port > 0).collect();
    for host in &facts.dump_hosts {
        for port in &ports {
            let endpoint = Endpoint::new(host, *port);
            peers.push(Peer { endpoint, by: NamedBy::BinlogReader, identity: None });
        }
    }
}
