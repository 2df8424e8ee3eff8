//! Lets the topology thread take part in the agreement of several Weirs: see [`crate::epoch_client`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{error, warn};
use weir_client::Options;
use weir_topology::{
    DrainRow, Endpoint, EpochRead, EpochUse, Flavour, Group, InstanceId, Intent, Millis, Policy, Reason,
    ReplicationPolicy, Roles, ServerState, Switch, SwitchStep, Wish,
};

use super::TopologyThread;
use crate::causal_probe::Tables;
use crate::epoch_client::{ClusterServers, EpochClient, EpochScope};
use crate::epoch_tables::Fault;

impl TopologyThread {
    /// One epoch client for each cluster with an epoch.
    pub(super) fn configure_epoch_clients(&mut self) {
        let policy = &self.settings.policy;
        let galera = policy.galera.iter().filter(|cluster| cluster.has_epoch());
        let replicas = policy.replication.iter().map(|row| (row.writer_hostgroup, EpochScope::Plans));
        let wanted: BTreeMap<u32, EpochScope> =
            galera.map(|row| (row.writer_hostgroup, EpochScope::Writer)).chain(replicas).collect();
        let is_gone = |(known, client): &(&u32, &EpochClient)| wanted.get(known) != Some(&client.scope);
        let gone: Vec<u32> = self.epoch_clients.iter().filter(is_gone).map(|(known, _)| *known).collect();
        for hostgroup in gone {
            if let Some(client) = self.epoch_clients.remove(&hostgroup) {
                self.end_of(hostgroup, client);
            }
        }
        for (hostgroup, scope) in wanted {
            if self.epoch_clients.contains_key(&hostgroup) {
                continue;
            }
            match EpochClient::start(hostgroup, scope, &self.epoch.instance, &self.events) {
                Ok(client) => {
                    self.epoch_clients.insert(hostgroup, client);
                }
                Err(cause) => error!(hostgroup, %cause, "can't start the threads for weir.topology"),
            }
        }
    }

    /// Another Weir has this one's name, as when a datadir was copied: neither sees the other. From now on this one has
    /// another name; by what it has agreed on under the old one it writes nothing any more.
    pub(super) fn take_another_name(&mut self) {
        let (was, name) = (self.epoch.instance.clone(), another_name(&self.epoch.instance));
        warn!(
            %was,
            now = %name,
            "another Weir in front of the same cluster has this Weir's name, for instance after a copy of the datadir: this one has taken a new name"
        );
        for group in &mut Arc::make_mut(&mut self.roles).groups {
            if let Some(leadership) = &mut group.leadership {
                leadership.confirmed = None;
            }
        }
        for (hostgroup, client) in std::mem::take(&mut self.epoch_clients) {
            let (options, kept_out) = (self.options_of(hostgroup), self.kept_out(hostgroup));
            // The row and all that was said with it; whoever still has the name writes it anew.
            client.end(&ClusterServers { roles: &self.roles, options: &options, kept_out: &kept_out }, true);
        }
        self.epoch.instance = name.clone();
        self.renamed = Some(name);
        self.configure_epoch_clients();
    }

    /// What the configuration does not tell.
    pub(super) fn prepare_policy(&mut self) {
        let policy = &mut self.settings.policy;
        policy.epoch = Some(self.epoch.clone());
        policy.by_facts.clear();
        for cluster in &policy.galera {
            let hostgroup = cluster.writer_hostgroup;
            let is_known = self.known_epochs.contains(&hostgroup);
            let is_required = match cluster.choices.epoch {
                EpochUse::Auto => is_known,
                EpochUse::Required => true,
                EpochUse::Optional => false,
            };
            let by_facts = match self.epoch_clients.get_mut(&hostgroup) {
                Some(client) => {
                    client.require(is_required);
                    client.goes_by_facts()
                }
                None => !is_required,
            };
            if by_facts {
                policy.by_facts.push(hostgroup);
            }
        }
        for row in &policy.replication {
            let client = self.epoch_clients.get(&row.writer_hostgroup);
            // Others that have been heard of are not forgotten because the account has lost a privilege.
            if client.is_none_or(EpochClient::goes_by_facts) && !has_others(&self.roles, row.writer_hostgroup)
            {
                policy.by_facts.push(row.writer_hostgroup);
            }
        }
        policy.switches.clone_from(&self.switches);
        policy.cleared = self.cleared.clone();
    }

    /// Which epochs have been in force here; from then on they have to be, where the configuration leaves that open.
    pub(super) fn note_epochs(&mut self) {
        for group in &self.roles.groups {
            let is_galera = group.flavour == Flavour::Galera;
            if is_galera && group.leadership.as_ref().is_some_and(|leadership| leadership.row.is_some()) {
                self.known_epochs.insert(group.writer_hostgroup);
            }
        }
    }

    /// A planned change is over when one decision has made it, or the row names its target, or anybody else. What others are
    /// asked for is over when whoever ordered it says so.
    pub(super) fn end_switches(&mut self) {
        self.switches.retain(|switch| is_under_way(switch, &self.roles));
    }

    /// What was said of switchovers and drains that are over must not be the answer to the next ones: versions of a row
    /// that was removed begin anew, and sessions come back to a server that was let in.
    pub(super) fn forget_answered(&mut self) {
        let roles = &self.roles;
        let policy = self.settings.policy.epoch.as_ref();
        self.cleared.retain(|cleared| {
            let group = roles.group(cleared.writer_hostgroup);
            let leadership = group.and_then(|group| group.leadership.as_ref()).zip(policy);
            let asked = leadership.and_then(|(leadership, policy)| leadership.foreign_switch(policy));
            asked.is_some_and(|(_, version)| version == cleared.version)
        });
        let drains = |group: &Group| group.leadership.as_ref().and_then(|known| known.drains.clone());
        let leaving: Vec<DrainRow> = roles.groups.iter().filter_map(drains).flatten().collect();
        self.used.retain(|server, _| leaving.iter().any(|row| row.server == *server));
    }

    /// A step of a planned change; the first one is ordered now.
    pub(super) fn begin_switch(&mut self, switch: Switch) {
        let hostgroup = switch.writer_hostgroup;
        let asked = self.switches.iter().find(|known| known.writer_hostgroup == hostgroup);
        let ordered_at = match asked.filter(|_| switch.step == SwitchStep::Move) {
            Some(asked) => asked.ordered_at,
            None => {
                let leadership = self.roles.group(hostgroup).and_then(|group| group.leadership.as_ref());
                leadership.and_then(|known| known.row.as_ref()).map_or(0, |row| row.version)
            }
        };
        self.forget_switch(hostgroup);
        self.switches.push(Switch { ordered_at, ..switch });
    }

    /// A planned change is given up.
    pub(super) fn forget_switch(&mut self, writer_hostgroup: u32) {
        self.switches.retain(|switch| switch.writer_hostgroup != writer_hostgroup);
    }

    pub(super) fn epoch_read(&mut self, endpoint: &Endpoint, result: Result<EpochRead, Fault>) {
        let now = self.now();
        match result {
            Ok(read) => {
                let hostgroup = self.cluster_of(endpoint);
                if let Some(client) = hostgroup.and_then(|hostgroup| self.epoch_clients.get_mut(&hostgroup)) {
                    client.has_read(&read, now);
                }
                self.take_read(Some((endpoint.clone(), read)));
            }
            Err(fault) => {
                let hostgroup = self.cluster_of(endpoint);
                if let Some(client) = hostgroup.and_then(|hostgroup| self.epoch_clients.get_mut(&hostgroup)) {
                    client.refused(&fault, now);
                }
            }
        }
    }

    pub(super) fn take_read(&mut self, read: Option<(Endpoint, EpochRead)>) {
        let Some((endpoint, read)) = read.filter(|(endpoint, _)| !self.is_taken_out(endpoint)) else {
            return;
        };
        let Some(seen) = self.seen.iter_mut().find(|seen| seen.endpoint == endpoint) else { return };
        if seen.epoch.as_ref().is_none_or(|known| known.asked_at <= read.asked_at) {
            seen.epoch = Some(read);
        }
    }

    /// What was agreed on at servers that a person has taken out does not count, neither then nor when they are back: they may
    /// be a component that was given up.
    pub(super) fn forget_reads(&mut self) {
        let mut seen = std::mem::take(&mut self.seen);
        let out = seen.iter_mut().filter(|seen| self.is_taken_out(&seen.endpoint));
        out.for_each(|seen| seen.epoch = None);
        self.seen = seen;
    }

    fn is_taken_out(&self, endpoint: &Endpoint) -> bool {
        let mut rows = self.settings.intents.iter().filter(|row| row.endpoint == *endpoint).peekable();
        rows.peek().is_some() && rows.all(|row| row.wish == Wish::OfflineHard)
    }

    /// The writer hostgroup of the cluster of Galera nodes, or of servers with replication, that a server belongs to.
    fn cluster_of(&self, endpoint: &Endpoint) -> Option<u32> {
        let rows = || self.settings.intents.iter().filter(|row| row.endpoint == *endpoint);
        let Policy { galera, replication, .. } = &self.settings.policy;
        let own = galera.iter().find(|cluster| rows().any(|row| cluster.owns(row.hostgroup)));
        let replicas = || replication.iter().find(|cluster| rows().any(|row| cluster.owns(row.hostgroup)));
        own.map(|cluster| cluster.writer_hostgroup).or_else(|| replicas().map(|row| row.writer_hostgroup))
    }

    /// What the decision goes by: servers that another Weir wants out are out here, too. By the same reads as the epoch, so
    /// that a writer which leaves in order is not taken for one that was lost.
    pub(super) fn intents_of_all(&self) -> Cow<'_, [Intent]> {
        let mut out: BTreeSet<(u32, &Endpoint)> = BTreeSet::new();
        for (hostgroup, rows) in self.drains() {
            let wanted = rows.iter().filter(|row| row.wants_out && row.instance != self.epoch.instance);
            out.extend(wanted.map(|row| (hostgroup, &row.server)));
        }
        if out.is_empty() {
            return Cow::Borrowed(&self.settings.intents);
        }
        let mut intents = self.settings.intents.clone();
        for intent in intents.iter_mut().filter(|intent| intent.wish == Wish::Online) {
            let cluster = self.cluster_of(&intent.endpoint);
            if cluster.is_some_and(|hostgroup| out.contains(&(hostgroup, &intent.endpoint))) {
                intent.wish = Wish::OfflineSoft;
            }
        }
        Cow::Owned(intents)
    }

    /// The newest that was read of servers that leave, by writer hostgroup. Of replication the roles know what counts.
    fn drains(&self) -> Vec<(u32, &[DrainRow])> {
        let mut newest: BTreeMap<u32, &EpochRead> = BTreeMap::new();
        for seen in &self.seen {
            let Some(read) = seen.epoch.as_ref().filter(|read| read.drains.is_some()) else { continue };
            let Some(hostgroup) = self.cluster_of(&seen.endpoint) else { continue };
            let known = newest.entry(hostgroup).or_insert(read);
            if known.asked_at < read.asked_at {
                *known = read;
            }
        }
        newest
            .into_iter()
            .filter_map(|(hostgroup, read)| Some((hostgroup, read.drains.as_deref()?)))
            .collect()
    }

    /// What this Weir says of servers that leave a cluster: those that its user wants out, and those of others. Once another
    /// process has taken over, that one says what the user wants, and hears when it is over.
    fn own_drains(&self, hostgroup: u32) -> Vec<DrainRow> {
        let all = self.drains();
        let rows = all.iter().find(|(of, _)| *of == hostgroup).map(|(_, rows)| *rows).unwrap_or_default();
        let instance = &self.epoch.instance;
        let of_others = rows.iter().filter(|row| row.wants_out && row.instance != *instance);
        let mut own: BTreeMap<&Endpoint, bool> = of_others.map(|row| (&row.server, false)).collect();
        for row in self.settings.intents.iter().filter(|row| row.wish == Wish::OfflineSoft) {
            let mut rows = self.settings.intents.iter().filter(|other| other.endpoint == row.endpoint);
            let is_out = rows.all(|row| row.wish == Wish::OfflineSoft);
            if is_out && self.cluster_of(&row.endpoint) == Some(hostgroup) {
                own.insert(&row.endpoint, !self.is_followed);
            }
        }
        let row = |(server, wants_out): (&Endpoint, bool)| DrainRow {
            server: server.clone(),
            instance: instance.clone(),
            wants_out,
            // Until they have been counted there may be some.
            sessions: self.used.get(server).copied().unwrap_or(1),
        };
        own.into_iter().map(row).collect()
    }

    /// Whether a causal probe should read the epoch's tables, and of which cluster.
    pub(super) fn epoch_to_read(&self, endpoint: &Endpoint) -> Option<Tables> {
        let hostgroup = self.cluster_of(endpoint)?;
        let client = self.epoch_clients.get(&hostgroup).filter(|client| client.wants_reads())?;
        Some(Tables { hostgroup, with_drains: client.has_drains() })
    }

    /// Whether other Weirs have been heard of lately in this cluster.
    pub(super) fn has_peers(&self, hostgroup: u32, now: Millis) -> bool {
        let leadership = self.roles.group(hostgroup).and_then(|group| group.leadership.as_ref());
        let is_live = |policy| leadership.is_some_and(|leadership| leadership.has_live_peers(policy, now));
        self.settings.policy.epoch.as_ref().is_some_and(is_live)
    }

    /// Before the roles are published: what is sent by the new ones must be within their lease.
    /// What was decided `now` counts from then on, however long it takes until it is published.
    pub(super) fn limit_writes(&self, now: Millis) {
        for (hostgroup, client) in &self.epoch_clients {
            let is_member = |endpoint: &&Endpoint| self.cluster_of(endpoint) == Some(*hostgroup);
            let members: Vec<Endpoint> = self.settings.probes.keys().filter(is_member).cloned().collect();
            client.limit_writes(&self.roles, &members, &self.registry);
        }
        let until_ns = (now.0 + ReplicationPolicy::LEASE_MS).saturating_mul(1_000_000);
        for group in self.roles.groups.iter().filter(|group| group.succession.is_some()) {
            group.writers.iter().for_each(|writer| self.registry.server(writer).write_until(until_ns));
        }
    }

    /// Writers that no rule limits any more are not limited.
    pub(super) fn forget_leases(&self) {
        let policy = &self.settings.policy;
        let of_replicas =
            |row: &&Intent| policy.replication.iter().any(|cluster| cluster.owns(row.hostgroup));
        for row in self.settings.intents.iter().filter(of_replicas) {
            self.registry.server(&row.endpoint).write_until(u64::MAX);
        }
    }

    /// Has written what is to be written.
    pub(super) fn write_down(&mut self, now: Millis) {
        if self.epoch_clients.is_empty() || !self.serves {
            return;
        }
        let all: Vec<u32> = self.epoch_clients.keys().copied().collect();
        for hostgroup in all {
            let (drains, options) = (self.own_drains(hostgroup), self.options_of(hostgroup));
            let at =
                ClusterServers { roles: &self.roles, options: &options, kept_out: &self.kept_out(hostgroup) };
            if let Some(client) = self.epoch_clients.get_mut(&hostgroup) {
                client.act(&self.epoch, &at, drains, now);
            }
        }
    }

    /// The servers of a cluster that work and that users keep out, where it has no writer: what its Weirs agree on is there
    /// all the same. Of servers with replication only those that are not read_only: others may be behind.
    fn kept_out(&self, hostgroup: u32) -> Vec<Endpoint> {
        if self.roles.group(hostgroup).is_none_or(|group| !group.writers.is_empty()) {
            return Vec::new();
        }
        let rows = self.settings.policy.replication.iter();
        let check = rows.filter(|row| row.writer_hostgroup == hostgroup).map(|row| row.check).next();
        let may_tell = |endpoint: &Endpoint| {
            let seen = self.seen.iter().find(|seen| seen.endpoint == *endpoint && seen.fault.is_none());
            match (seen.and_then(|seen| seen.state.as_ref()), check) {
                (Some(ServerState::Replica(state)), Some(check)) => state.is_read_only(check) == Ok(false),
                (Some(state), None) => state.works(),
                _ => false,
            }
        };
        let places =
            self.roles.places.iter().filter(|place| place.reason == Reason::Wished(Wish::OfflineSoft));
        let endpoints = places.map(|place| &place.endpoint);
        let endpoints = endpoints.filter(|endpoint| self.cluster_of(endpoint) == Some(hostgroup));
        endpoints.filter(|endpoint| may_tell(endpoint)).cloned().collect()
    }

    fn end_of(&self, hostgroup: u32, client: EpochClient) -> Vec<JoinHandle<()>> {
        let (options, kept_out) = (self.options_of(hostgroup), self.kept_out(hostgroup));
        client.end(
            &ClusterServers { roles: &self.roles, options: &options, kept_out: &kept_out },
            self.is_followed,
        )
    }

    /// How to connect to the servers of a cluster, also of one that has just left the configuration. What its Weirs agree on
    /// is in no other cluster's tables.
    fn options_of(&self, hostgroup: u32) -> BTreeMap<Endpoint, Options> {
        let probes = self.settings.probes.iter();
        let probes =
            probes.filter(|(endpoint, _)| self.cluster_of(endpoint).is_none_or(|of| of == hostgroup));
        probes.map(|(endpoint, probe)| (endpoint.clone(), probe.options.clone())).collect()
    }

    /// The others need not wait for this Weir any more.
    pub(super) fn leave(&mut self, deadline: Instant) {
        let epoch_clients = std::mem::take(&mut self.epoch_clients);
        let end = |(hostgroup, client): (u32, EpochClient)| self.end_of(hostgroup, client);
        let threads: Vec<_> = epoch_clients.into_iter().flat_map(end).collect();
        for thread in threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

fn is_under_way(switch: &Switch, roles: &Roles) -> bool {
    let leadership = roles.group(switch.writer_hostgroup).and_then(|group| group.leadership.as_ref());
    let row = leadership.and_then(|leadership| leadership.row.as_ref());
    switch.step == SwitchStep::Ask || row.is_some_and(|row| row.writer == switch.from)
}

/// A name like this one, with another random number.
fn another_name(name: &str) -> InstanceId {
    let prefix = match name.rsplit_once('-') {
        Some((prefix, number)) if number.len() == 16 => prefix,
        _ => name,
    };
    // The standard library's own randomness.
    let number = RandomState::new().build_hasher().finish();
    format!("{prefix}-{number:016x}").into()
}

/// Whether other Weirs in front of a cluster are known.
pub(super) fn has_others(roles: &Roles, writer_hostgroup: u32) -> bool {
    let leadership = roles.group(writer_hostgroup).and_then(|group| group.leadership.as_ref());
    leadership.is_some_and(|leadership| !leadership.peers.is_empty())
}

#[cfg(test)]
mod tests {
    use weir_topology::{EpochRow, Leadership};

    use super::*;

    #[test]
    fn a_move_is_over_when_anybody_but_the_one_that_it_leaves_is_the_writer() {
        let server = |host: &str| Endpoint::new(host, 3306);
        let is_under_way = |step, writer: Option<&str>| {
            let row = writer.map(|writer| EpochRow {
                epoch: 2,
                version: 3,
                writer: server(writer),
                writer_address: None,
                claimed_by: "a".into(),
                is_open: true,
                switching: None,
            });
            let leadership = Some(Leadership { row, ..Leadership::default() });
            let group = Group { writer_hostgroup: 10, leadership, ..Group::default() };
            let roles = Roles { groups: vec![group], ..Roles::default() };
            let (from, to) = (server("from"), server("to"));
            is_under_way(&Switch { writer_hostgroup: 10, from, to, step, ordered_at: 0 }, &roles)
        };
        let of_move = [Some("from"), Some("to"), Some("third"), None];
        assert_eq!(of_move.map(|writer| is_under_way(SwitchStep::Move, writer)), [true, false, false, false]);
        assert!(of_move.iter().all(|writer| is_under_way(SwitchStep::Ask, *writer)));
    }

    #[test]
    fn another_name_has_the_same_host_and_another_number() {
        let name = another_name("gate-1-0123456789abcdef");
        assert!(name.starts_with("gate-1-") && name.len() == "gate-1-0123456789abcdef".len(), "{name}");
        assert!(another_name("gate").starts_with("gate-"));
        assert_ne!(another_name(&name), name);
    }
}
