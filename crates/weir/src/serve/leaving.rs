//! `weir drain` and `weir undrain`: a server leaves, and if it is the writer, its role leaves first.

use weir_topology::{Endpoint, Flavour};

use super::operations::{Operator, Request};
use crate::control::{Steps, Switchover};

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
        self.set_drained(endpoint, true, "drained: it gets no new work")
    }

    /// Takes a server in again. When this returns, all workers go by it.
    ///
    /// # Errors
    /// Why it was not, in words.
    pub(super) fn undrain_server(&self, endpoint: &Endpoint) -> Result<String, String> {
        self.is_configured(endpoint)?;
        self.set_drained(endpoint, false, "not drained: it gets work again")
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
            let wanted = Switchover {
                writer_hostgroup: hostgroup,
                to: None,
                force: false,
                dry_run: false,
                grace_ms: None,
            };
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
