//! Tells whether a switchover that is waited for is still wanted: another Weir, or a failover, may have moved the role
//! meanwhile.

use weir_topology::{Group, Reason, Roles};

use super::{Plan, why_not};
use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;
use crate::peer_agreement::another_switchover;

/// What is left of an order that has not lapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The role is to be moved.
    Ordered,
    /// Somebody else has moved it to the same server.
    Made,
}

impl OperationRunner {
    /// Whether an order still stands.
    ///
    /// # Errors
    /// Why it has lapsed.
    pub(crate) fn standing(&self, plan: &Plan<'_>) -> Result<Standing, SwitchoverError> {
        standing(&self.context.roles.latest(), plan, &self.context.instance)
    }
}

fn standing(roles: &Roles, plan: &Plan<'_>, instance: &str) -> Result<Standing, SwitchoverError> {
    let group = roles.group(plan.order.writer_hostgroup).ok_or(SwitchoverError::NotConfigured)?;
    if plan.moved_by_monitor && group.writers == [plan.to.clone()] {
        return Ok(Standing::Made);
    }
    if let Some(cause) = another_switchover(group, instance) {
        return Err(cause);
    }
    if let Some(to) = group.writers.first().filter(|_| !group.writers.contains(&plan.from)) {
        let (from, to) = (plan.from.clone(), to.clone());
        return Err(SwitchoverError::MovedMeanwhile { from, to });
    }
    if is_out(roles, group, plan) {
        return Err(SwitchoverError::CannotWriteAnyMore {
            to: plan.to.clone(),
            why: why_not(group, &plan.to),
        });
    }
    Ok(Standing::Ordered)
}

/// Whether the target is known to be unable to have the role. One probe without an answer is no reason to give up what
/// sessions have been waited for; whether it can is looked at again before the role moves.
fn is_out(roles: &Roles, group: &Group, plan: &Plan<'_>) -> bool {
    if group.successors.contains(&plan.to) {
        return false;
    }
    match group.cannot_write.iter().find(|(server, _)| *server == plan.to) {
        Some((_, Reason::ReadOnly | Reason::Secondary)) => plan.moved_by_monitor,
        Some(_) => true,
        None => !roles.places.iter().any(|place| place.endpoint == plan.to),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_topology::{Endpoint, EpochRow, Flavour, Leadership, Place, Role, Status, Switching};

    use super::*;
    use crate::progress::Progress;
    use crate::switchover::SwitchoverOrder;

    fn server(host: &str) -> Endpoint {
        Endpoint::new(host, 3306)
    }

    fn group(writers: &[&str], successors: &[&str]) -> Group {
        let servers = |hosts: &[&str]| hosts.iter().map(|host| server(host)).collect();
        Group {
            writer_hostgroup: 10,
            writers: servers(writers),
            successors: servers(successors),
            ..Group::default()
        }
    }

    /// In words, of an order to move the role from `from` to `to`.
    fn look(group: Group, moved_by_monitor: bool) -> String {
        let place = Place {
            hostgroup: 20,
            endpoint: server("to"),
            role: Role::Reader,
            status: Status::Online,
            weight: 1,
            max_connections: 1,
            reason: Reason::Healthy,
            trouble: None,
        };
        let roles = Roles { groups: vec![group], places: vec![place], ..Roles::default() };
        let (order, progress) = (SwitchoverOrder::of(10), Progress::unheard());
        let plan = Plan {
            order: &order,
            progress: &progress,
            flavour: Flavour::Galera,
            from: server("from"),
            to: server("to"),
            is_agreed: true,
            moved_by_monitor,
            grace: Duration::ZERO,
        };
        match standing(&roles, &plan, "own") {
            Ok(standing) => format!("{standing:?}"),
            Err(cause) => cause.to_string(),
        }
    }

    #[test]
    fn an_order_stands_while_its_writer_writes_and_its_target_could() {
        assert_eq!(look(group(&["from"], &["to"]), true), "Ordered");
        assert_eq!(look(group(&["from"], &["third"]), true), "Ordered", "one probe without an answer");
        // The writer is away: with replication statements wait for somebody who has another one write.
        assert_eq!(look(group(&[], &["to"]), false), "Ordered");
    }

    #[test]
    fn an_order_lapses_with_its_writer_or_its_target() {
        let moved = "the writer role has moved from from:3306 to third:3306 meanwhile";
        assert_eq!(look(group(&["third"], &["to", "from"]), true), moved);
        let with = |reason| Group { cannot_write: vec![(server("to"), reason)], ..group(&["from"], &[]) };
        assert!(look(with(Reason::Desynced), true).starts_with("to:3306 can't be the writer any more"));
        assert!(look(with(Reason::ReadOnly), true).starts_with("to:3306 can't be the writer any more"));
        assert_eq!(look(with(Reason::ReadOnly), false), "Ordered", "it is to be told");
    }

    #[test]
    fn an_order_that_somebody_else_has_carried_out_is_made() {
        assert_eq!(look(group(&["to"], &["from"]), true), "Made");
        let moved = "the writer role has moved from from:3306 to to:3306 meanwhile";
        assert_eq!(
            look(group(&["to"], &["from"]), false),
            moved,
            "its servers are to be told more than that"
        );
    }

    #[test]
    fn nobody_moves_the_role_beside_another_weir() {
        let row = EpochRow {
            epoch: 1,
            version: 2,
            writer: server("from"),
            writer_address: None,
            claimed_by: "own".into(),
            is_open: true,
            switching: Some(Switching { to: server("third"), by: "other".into() }),
        };
        let leadership = Some(Leadership { row: Some(row), ..Leadership::default() });
        let said = look(Group { leadership, ..group(&["from"], &["to"]) }, true);
        assert!(said.starts_with("a switchover to third:3306 by other"), "{said}");
    }
}
