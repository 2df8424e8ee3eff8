//! The owner's part in the agreement of several Weirs: see [`crate::accord`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tracing::error;
use weir_client::Options;
use weir_topology::{Endpoint, EpochRead, EpochUse, Intent, Millis, ReplicationPolicy, SwitchStep};

use super::Owner;
use crate::accord::Accord;
use crate::tables::Fault;

impl Owner {
    /// One accord for each cluster with an epoch.
    pub(super) fn configure_accords(&mut self) {
        let clusters = self.settings.policy.galera.iter().filter(|cluster| cluster.has_epoch());
        let hostgroups: Vec<u32> = clusters.map(|cluster| cluster.writer_hostgroup).collect();
        let options = self.options();
        let gone: Vec<u32> =
            self.accords.keys().filter(|known| !hostgroups.contains(known)).copied().collect();
        for hostgroup in gone {
            if let Some(accord) = self.accords.remove(&hostgroup) {
                accord.end(&self.roles, &options);
            }
        }
        for hostgroup in hostgroups {
            if self.accords.contains_key(&hostgroup) {
                continue;
            }
            match Accord::start(hostgroup, &self.epoch.instance, &self.events) {
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
        policy.switches.clone_from(&self.switches);
        policy.cleared = self.cleared.clone();
    }

    /// Which epochs have been in force here; from then on they have to be, where the configuration leaves that open.
    pub(super) fn note_epochs(&mut self) {
        for group in &self.roles.groups {
            if group.tenure.as_ref().is_some_and(|tenure| tenure.row.is_some()) {
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

    /// The writer hostgroup of the Galera cluster that a server belongs to.
    fn cluster_of(&self, endpoint: &Endpoint) -> Option<u32> {
        let rows = || self.settings.intents.iter().filter(|row| row.endpoint == *endpoint);
        let mut clusters = self.settings.policy.galera.iter();
        let own = clusters.find(|cluster| rows().any(|row| cluster.owns(row.hostgroup)));
        own.map(|cluster| cluster.writer_hostgroup)
    }

    /// Whether a causal probe should read the epoch's tables, and of which cluster.
    pub(super) fn epoch_to_read(&self, endpoint: &Endpoint) -> Option<u32> {
        let hostgroup = self.cluster_of(endpoint)?;
        self.accords.get(&hostgroup)?.wants_reads().then_some(hostgroup)
    }

    /// Whether other Weirs have been heard of lately in this cluster.
    pub(super) fn has_peers(&self, hostgroup: u32, now: Millis) -> bool {
        let tenure = self.roles.group(hostgroup).and_then(|group| group.tenure.as_ref());
        let is_live = |policy| tenure.is_some_and(|tenure| tenure.has_live_peers(policy, now));
        self.settings.policy.epoch.as_ref().is_some_and(is_live)
    }

    /// Before the roles are published: what is sent by the new ones must be within their lease.
    pub(super) fn limit_writes(&self) {
        for (hostgroup, accord) in &self.accords {
            let is_member = |endpoint: &&Endpoint| self.cluster_of(endpoint) == Some(*hostgroup);
            let members: Vec<Endpoint> = self.settings.probes.keys().filter(is_member).cloned().collect();
            accord.limit_writes(&self.roles, &members, &self.registry);
        }
        let until_ns = (self.now().0 + ReplicationPolicy::LEASE_MS).saturating_mul(1_000_000);
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
        if self.accords.is_empty() {
            return;
        }
        let options = self.options();
        for accord in self.accords.values_mut() {
            accord.act(&self.epoch, &self.roles, &options, now);
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
