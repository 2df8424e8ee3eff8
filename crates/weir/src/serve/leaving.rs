//! `weir drain` and `weir undrain`: a server leaves, and if it is the writer, its role leaves first.

use std::time::{Duration, Instant};

use weir_topology::{DrainRow, Endpoint, Flavour};

use super::operations::{Operator, Request};
use crate::control::{Steps, Switchover};

/// How long it may take until the other Weirs can read that a server leaves.
const TOLD_WAIT: Duration = Duration::from_secs(5);

impl Operator {
    /// Takes a server out. When this returns, all workers go by it. The role of a writer moves first, while statements
    /// wait.
    ///
    /// # Errors
    /// Why it was not, in words; then everything is as before.
    pub(super) fn drain_server(&self, endpoint: &Endpoint, steps: &Steps) -> Result<String, String> {
        self.is_configured(endpoint)?;
        if !self.drained.all().contains(endpoint) {
            self.hand_over(endpoint, steps)?;
        }
        let done = self.set_drained(endpoint, true, "drained: it gets no new work")?;
        self.tell_others(endpoint, steps);
        Ok(done)
    }

    /// Takes a server in again. When this returns, all workers go by it.
    ///
    /// # Errors
    /// Why it was not, in words.
    pub(super) fn undrain_server(&self, endpoint: &Endpoint) -> Result<String, String> {
        self.is_configured(endpoint)?;
        let done = self.set_drained(endpoint, false, "not drained: it gets work again")?;
        let others = self.drains_of(endpoint).into_iter().filter(|row| row.wants_out);
        let others: Vec<String> =
            others.filter(|row| row.instance != self.instance).map(|row| row.instance.to_string()).collect();
        match others.as_slice() {
            [] => Ok(done),
            others => Err(format!(
                "this Weir lets {endpoint} in, but {} wants it out: run `weir undrain` there (or, for a Weir that is no \
                 more, DELETE its row from weir.drains)",
                others.join(", ")
            )),
        }
    }

    /// Waits until the other Weirs in front of the server's clusters can know that it leaves, and says where they can't.
    fn tell_others(&self, endpoint: &Endpoint, steps: &Steps) {
        let clusters = self.config.clusters().map(|cluster| cluster.writer_hostgroup);
        let clusters: Vec<u32> = clusters.filter(|hostgroup| self.is_member(*hostgroup, endpoint)).collect();
        for hostgroup in &clusters {
            if !self.shares_drains(*hostgroup) {
                steps.tell(format!(
                    "other Weirs in front of hostgroup {hostgroup}, if there are any, are not told: run `weir drain` there, \
                     too (docs: several Weirs)"
                ));
            }
        }
        let until = Instant::now() + TOLD_WAIT;
        let is_told = |hostgroup: u32| {
            let is_own = |row: &DrainRow| row.instance == self.instance && row.wants_out;
            !self.shares_drains(hostgroup) || self.drains_of(endpoint).iter().any(is_own)
        };
        while !clusters.iter().all(|hostgroup| is_told(*hostgroup)) {
            if Instant::now() >= until || self.look_again().is_err() {
                return steps.tell("the other Weirs could not be told yet: see `weir status`".to_owned());
            }
        }
    }

    fn is_member(&self, hostgroup: u32, endpoint: &Endpoint) -> bool {
        let ids = self.config.hostgroups_of(endpoint);
        let mut clusters = self.config.clusters().filter(|cluster| cluster.writer_hostgroup == hostgroup);
        clusters.any(|cluster| cluster.hostgroups().any(|id| ids.contains(&id)))
    }

    fn shares_drains(&self, hostgroup: u32) -> bool {
        let roles = self.roles.latest();
        let tenure = roles.group(hostgroup).and_then(|group| group.tenure.as_ref());
        tenure.is_some_and(|tenure| tenure.drains.is_some())
    }

    /// What the Weirs have said of a server that leaves.
    fn drains_of(&self, endpoint: &Endpoint) -> Vec<DrainRow> {
        let roles = self.roles.latest();
        let tenures = roles.groups.iter().filter_map(|group| group.tenure.as_ref());
        let rows = tenures.filter_map(|tenure| tenure.drains.as_ref()).flatten();
        rows.filter(|row| row.server == *endpoint).cloned().collect()
    }

    fn is_configured(&self, endpoint: &Endpoint) -> Result<(), String> {
        let is_known = self.config.servers.iter().any(|row| row.endpoint() == *endpoint);
        if is_known { Ok(()) } else { Err(format!("{endpoint} is not in mysql_servers")) }
    }

    /// Moves the writer role away from a server wherever it has it alone. Where Galera's sessions keep the server for
    /// longer than a switchover waits, the next writer takes over beside them: nothing is lost, but a transaction that
    /// ends on the old one may meet with a conflict (error 1213).
    fn hand_over(&self, endpoint: &Endpoint, steps: &Steps) -> Result<(), String> {
        let roles = self.roles.latest();
        for group in roles.groups.iter().filter(|group| group.writers == [endpoint.clone()]) {
            let hostgroup = group.writer_hostgroup;
            let wanted = Switchover::of(hostgroup);
            let has_next = group.flavour == Flavour::Galera && !group.successors.is_empty();
            match self.switchover(&wanted, steps) {
                Ok(done) => steps.tell(done),
                Err(cause) if has_next => {
                    tracing::warn!(hostgroup, %endpoint, cause, "drained writer: the next one takes over beside it");
                    steps.tell(format!(
                        "{cause}; the next writer takes over beside the sessions that are left"
                    ));
                }
                Err(cause) => {
                    return Err(format!(
                        "{endpoint} is the writer of hostgroup {hostgroup} and stays in: {cause}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn set_drained(&self, endpoint: &Endpoint, is_drained: bool, words: &str) -> Result<String, String> {
        let changes = self.drained.set(endpoint, is_drained).map_err(|error| {
            format!(
                "{}: the list of drained servers can't be written: {error}",
                self.config.datadir.display()
            )
        })?;
        if changes {
            tracing::info!(server = %endpoint, is_drained, "a user has a server drained, or not");
            let change = if is_drained { "drain" } else { "undrain" };
            self.log.event(None, change, format!("{endpoint} is {words}"));
            self.ask(|done| Request::Drained { done })?;
            self.publisher.settle();
        }
        Ok(format!("{endpoint} is {words}{}", if changes { "" } else { " (as before)" }))
    }
}
