//! A writer that Weir chooses among servers of which each can write: Galera, and a group with several primaries.

use std::time::{Duration, Instant};

use weir_monitor::monotonic_ns;
use weir_topology::Endpoint;

use super::{Operator, Plan, why_not};

/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);

impl Operator {
    /// Has the target be the writer as soon as it has applied everything.
    pub(super) fn choose(&self, plan: &Plan<'_>) -> Result<(), String> {
        let Plan { wanted, to, .. } = plan;
        plan.steps.tell(format!("waiting until {to} has applied everything"));
        self.wait_caught_up(to)?;
        self.planner.switch(wanted.writer_hostgroup, to);
        if self.has_epoch(wanted.writer_hostgroup) {
            return self.wait_writer(plan, to);
        }
        let roles = self.roles.latest();
        match roles.group(wanted.writer_hostgroup) {
            Some(group) if group.writers == [to.clone()] => Ok(()),
            Some(group) => Err(format!("{to} can't be the writer any more: {}", why_not(group, to))),
            None => Err("the cluster is not configured any more".to_owned()),
        }
    }

    /// Waits until everything that was acknowledged before now is visible on a server.
    fn wait_caught_up(&self, to: &Endpoint) -> Result<(), String> {
        let now_ns = monotonic_ns();
        let shared = self.registry.server(to);
        // Others may have written, too.
        shared.note_write(now_ns);
        let until = Instant::now() + CATCH_UP_WAIT;
        while !shared.covers(now_ns) {
            if Instant::now() >= until {
                return Err(format!("{to} has not applied everything within {} s", CATCH_UP_WAIT.as_secs()));
            }
            self.look_again()?;
        }
        Ok(())
    }
}
