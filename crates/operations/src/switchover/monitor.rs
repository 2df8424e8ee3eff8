//! Moves the role where the monitor decides who writes: each server can, as in Galera and in a group with several
//! primaries.

use std::time::{Duration, Instant};

use weir_monitor::monotonic_ns;
use weir_topology::Group;

use super::standing::Standing;
use super::{Plan, why_not};
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;

/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);
/// How long statements are held on after a move was given up, if the row does not tell what has become of it: an epoch
/// writer tries some servers, for a second each.
const UNDECIDED_WAIT: Duration = Duration::from_secs(3);

/// What has become of a move that was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was made all the same.
    Moved,
    /// It will not be made any more.
    Stays,
    Undecided,
}

impl OperationRunner {
    /// Has the target be the writer as soon as it has applied everything.
    pub(super) fn move_with_monitor(&self, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        let Plan { order, from, to, .. } = plan;
        plan.progress.tell(format!("waiting until {to} has applied everything"));
        self.wait_caught_up(plan)?;
        self.context.planner.switch(order.writer_hostgroup, from, to);
        if self.has_epoch(order.writer_hostgroup) {
            // Nobody moves it any more if the target has left, or another Weir has taken the announcement away.
            let moved = self.wait_writer_while(plan, to, |group| {
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
            return moved.or_else(|cause| self.give_up(plan, cause));
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

    /// A move is given up. The change of the row may be under way all the same, and be made after its time is over here: who
    /// may write is known when the row has changed, by that or by its being taken back. Until then, and not for ever,
    /// statements are held.
    fn give_up(&self, plan: &Plan<'_>, cause: SwitchoverError) -> Result<(), SwitchoverError> {
        let hostgroup = plan.order.writer_hostgroup;
        self.context.planner.switch_ends(hostgroup);
        let until = Instant::now() + UNDECIDED_WAIT;
        loop {
            let roles = self.context.roles.latest();
            match roles
                .group(hostgroup)
                .map_or(Fate::Stays, |group| fate(group, plan, &self.context.instance))
            {
                Fate::Moved => return Ok(()),
                Fate::Stays => return Err(cause),
                Fate::Undecided => {}
            }
            if Instant::now() >= until || self.look_again().is_err() {
                let (cause, to) = (Box::new(cause), plan.to.clone());
                return Err(SwitchoverError::Undecided { cause, to });
            }
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

/// What the row tells of a move that was given up. The change was to be made to the row as it announces the switchover: to a
/// later one it is not.
fn fate(group: &Group, plan: &Plan<'_>, instance: &str) -> Fate {
    let Some(row) = group.leadership.as_ref().and_then(|known| known.row.as_ref()) else {
        return Fate::Stays;
    };
    let is_announced = row.switching.as_ref().is_some_and(|switching| *switching.by == *instance);
    match row.writer == plan.to {
        true if group.writers == [plan.to.clone()] => Fate::Moved,
        true => Fate::Undecided,
        false if is_announced => Fate::Undecided,
        false => Fate::Stays,
    }
}

#[cfg(test)]
mod tests {
    use weir_topology::{Endpoint, EpochRow, Flavour, Leadership, Switching};

    use super::*;
    use crate::progress::Progress;
    use crate::switchover::SwitchoverOrder;

    #[test]
    fn a_move_that_was_given_up_is_undecided_until_the_row_has_changed() {
        let server = |host: &str| Endpoint::new(host, 3306);
        let (order, progress) = (SwitchoverOrder::of(10), Progress::unheard());
        let plan = Plan {
            order: &order,
            progress: &progress,
            flavour: Flavour::Galera,
            from: server("from"),
            to: server("to"),
            is_agreed: true,
            moved_by_monitor: true,
            grace: Duration::ZERO,
        };
        let look = |writer: &str, by: Option<&str>, published: &str| {
            let row = EpochRow {
                epoch: 3,
                version: 7,
                writer: server(writer),
                writer_address: None,
                claimed_by: "own".into(),
                is_open: true,
                switching: by.map(|by| Switching { to: server("to"), by: by.into() }),
            };
            let leadership = Some(Leadership { row: Some(row), ..Leadership::default() });
            let group = Group { writers: vec![server(published)], leadership, ..Group::default() };
            fate(&group, &plan, "own")
        };
        assert_eq!(look("from", Some("own"), "from"), Fate::Undecided, "the claim may come yet");
        assert_eq!(look("from", None, "from"), Fate::Stays, "it was taken back first");
        assert_eq!(look("from", Some("other"), "from"), Fate::Stays);
        assert_eq!(look("to", None, "to"), Fate::Moved, "the claim came first");
        assert_eq!(look("to", None, "from"), Fate::Undecided, "statements would go to the old one");
        assert_eq!(look("third", None, "third"), Fate::Stays);
        assert_eq!(fate(&Group::default(), &plan, "own"), Fate::Stays, "there is no row any more");
    }
}
