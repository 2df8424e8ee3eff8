//! Moves the role where the monitor decides who writes: each server can, as in Galera and in a group with several
//! primaries.

use std::time::{Duration, Instant};

use weir_monitor::monotonic_ns;

use super::standing::Standing;
use super::{Plan, why_not};
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;

/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);

impl OperationRunner {
    /// Has the target be the writer as soon as it has applied everything.
    pub(super) fn move_with_monitor(&self, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        let Plan { order, from, to, .. } = plan;
        plan.progress.tell(format!("waiting until {to} has applied everything"));
        self.wait_caught_up(plan)?;
        self.context.planner.switch(order.writer_hostgroup, from, to);
        if self.has_epoch(order.writer_hostgroup) {
            // Nobody moves it any more if the target has left, or another Weir has taken the announcement away.
            return self.wait_writer_while(plan, to, |group| {
                let row = group.leadership.as_ref().and_then(|known| Some((known, known.row.as_ref()?)));
                match row {
                    Some((_, row)) if row.writer == *to => Ok(()),
                    Some((_, row)) if row.writer != *from => {
                        Err(SwitchoverError::MovedMeanwhile { from: from.clone(), to: row.writer.clone() })
                    }
                    Some((known, _)) if !known.is_announced => {
                        Err(SwitchoverError::Unannounced { to: to.clone() })
                    }
                    _ => self.can_write(group, plan),
                }
            });
        }
        let roles = self.context.roles.latest();
        match roles.group(order.writer_hostgroup) {
            Some(group) if group.writers == [to.clone()] => Ok(()),
            Some(group) => {
                Err(SwitchoverError::CannotWriteAnyMore { to: to.clone(), why: why_not(group, to) })
            }
            None => Err(SwitchoverError::NotConfigured),
        }
    }

    /// Waits until everything that was acknowledged before now is visible on the target.
    fn wait_caught_up(&self, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        let (to, now_ns) = (&plan.to, monotonic_ns());
        let shared = self.context.registry.server(to);
        // Others may have written, too.
        shared.note_write(now_ns);
        let until = Instant::now() + CATCH_UP_WAIT;
        while !shared.covers(now_ns) && self.standing(plan)? == Standing::Ordered {
            if Instant::now() >= until {
                let (to, seconds) = (to.clone(), CATCH_UP_WAIT.as_secs());
                return Err(SwitchoverError::NotCaughtUp { to, seconds });
            }
            self.look_again()?;
        }
        Ok(())
    }
}
