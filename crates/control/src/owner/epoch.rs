//! The owner's part in the agreement of several Weirs: see [`crate::accord`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tracing::error;
use weir_client::Options;
use weir_topology::{
    DrainRow, Endpoint, EpochRead, EpochUse, Flavour, Intent, Millis, Policy, ReplicationPolicy, SwitchStep,
    Wish,
};

use super::Owner;
use crate::accord::{Accord, Matter};
use crate::causal::Tables;
use crate::tables::Fault;

impl Owner {
    /// One accord for each cluster with an epoch.
    pub(super) fn configure_accords(&mut self) {
        let policy = &self.settings.policy;
        let galera = policy.galera.iter().filter(|cluster| cluster.has_epoch());
        let replicas = policy.replication.iter().map(|row| (row.writer_hostgroup, Matter::Plans));
        let wanted: BTreeMap<u32, Matter> =
            galera.map(|row| (row.writer_hostgroup, Matter::Writer)).chain(replicas).collect();
        let options = self.options();
        let is_gone = |(known, accord): &(&u32, &Accord)| wanted.get(known) != Some(&accord.matter);
        let gone: Vec<u32> = self.accords.iter().filter(is_gone).map(|(known, _)| *known).collect();
        for hostgroup in gone {
            if let Some(accord) = self.accords.remove(&hostgroup) {
                accord.end(&self.roles, &options);
            }
        }
        for (hostgroup, matter) in wanted {
            if self.accords.contains_key(&hostgroup) {
                continue;
            }
            match Accord::start(hostgroup, matter, &self.epoch.instance, &self.events) {
                Ok(accord) => {
                    self.accords.insert(hostgroup, accord);
                }
                Err(cause) => error!(hostgroup, %cause, "can't start the threads for weir.topology"),
            }
        }
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
            let by_facts = match self.accords.get_mut(&hostgroup) {
                Some(accord) => {
                    accord.require(is_required);
                    accord.goes_by_facts()
                }
                None => !is_required,
            };
            if by_facts {
                policy.by_facts.push(hostgroup);
            }
        }
        for row in &policy.replication {
            let accord = self.accords.get(&row.writer_hostgroup);
            if accord.is_none_or(Accord::goes_by_facts) {
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
            if is_galera && group.tenure.as_ref().is_some_and(|tenure| tenure.row.is_some()) {
                self.known_epochs.insert(group.writer_hostgroup);
            }
        }
    }

    /// A planned change is over when one decision has made it, or the row names its target.
    pub(super) fn end_switches(&mut self) {
        self.switches.retain(|switch| {
            let group = self.roles.group(switch.writer_hostgroup);
            let row = group.and_then(|group| group.tenure.as_ref()).and_then(|tenure| tenure.row.as_ref());
            row.is_some_and(|row| row.writer != switch.to || switch.step != SwitchStep::Move)
        });
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
                if let Some(accord) = hostgroup.and_then(|hostgroup| self.accords.get_mut(&hostgroup)) {
                    accord.has_read(&read, now);
                }
                self.take_read(Some((endpoint.clone(), read)));
            }
            Err(fault) => {
                let hostgroup = self.cluster_of(endpoint);
                if let Some(accord) = hostgroup.and_then(|hostgroup| self.accords.get_mut(&hostgroup)) {
                    accord.refused(&fault, now);
                }
            }
        }
    }

    pub(super) fn take_read(&mut self, read: Option<(Endpoint, EpochRead)>) {
        let Some((endpoint, read)) = read else { return };
        let Some(seen) = self.seen.iter_mut().find(|seen| seen.endpoint == endpoint) else { return };
        if seen.epoch.as_ref().is_none_or(|known| known.asked_at <= read.asked_at) {
            seen.epoch = Some(read);
        }
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

    /// What this Weir says of servers that leave a cluster: those that its user wants out, and those of others.
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
                own.insert(&row.endpoint, true);
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
        let accord = self.accords.get(&hostgroup).filter(|accord| accord.wants_reads())?;
        Some(Tables { hostgroup, with_drains: accord.has_drains() })
    }

    /// Whether other Weirs have been heard of lately in this cluster.
    pub(super) fn has_peers(&self, hostgroup: u32, now: Millis) -> bool {
        let tenure = self.roles.group(hostgroup).and_then(|group| group.tenure.as_ref());
        let is_live = |policy| tenure.is_some_and(|tenure| tenure.has_live_peers(policy, now));
        self.settings.policy.epoch.as_ref().is_some_and(is_live)
    }

    /// Before the roles are published: what is sent by the new ones must be within their lease.
    /// What was decided `now` counts from then on, however long it takes until it is published.
    pub(super) fn limit_writes(&self, now: Millis) {
        for (hostgroup, accord) in &self.accords {
            let is_member = |endpoint: &&Endpoint| self.cluster_of(endpoint) == Some(*hostgroup);
            let members: Vec<Endpoint> = self.settings.probes.keys().filter(is_member).cloned().collect();
            accord.limit_writes(&self.roles, &members, &self.registry);
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
        if self.accords.is_empty() || !self.serves {
            return;
        }
        let options = self.options();
        let drains: Vec<(u32, Vec<DrainRow>)> =
            self.accords.keys().map(|hostgroup| (*hostgroup, self.own_drains(*hostgroup))).collect();
        for (hostgroup, rows) in drains {
            if let Some(accord) = self.accords.get_mut(&hostgroup) {
                accord.act(&self.epoch, &self.roles, &options, rows, now);
            }
        }
    }

    fn options(&self) -> BTreeMap<Endpoint, Options> {
        let probes = self.settings.probes.iter();
        probes.map(|(endpoint, probe)| (endpoint.clone(), probe.options.clone())).collect()
    }

    /// The others need not wait for this Weir any more.
    pub(super) fn leave(&mut self, deadline: Instant) {
        let options = self.options();
        let accords = std::mem::take(&mut self.accords);
        let threads: Vec<_> =
            accords.into_values().flat_map(|accord| accord.end(&self.roles, &options)).collect();
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
