//! Switchovers that Weir begins by itself: failback `drained`, and of a writer that is about to be a donor.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use weir_topology::{Endpoint, Group};

use super::Server;
use super::handover::Handover;
use super::operations::{Operator, Outcome};
use crate::control::{Steps, Switchover};

/// One that failed is tried again after this time: statements of the cluster wait during each try.
const PAUSE: Duration = Duration::from_secs(60);

/// Deeds that Weir begins by itself and that are to rest for a while, by writer hostgroup.
#[derive(Debug, Default)]
pub(super) struct Failbacks(HashMap<u32, Instant>);

impl Failbacks {
    /// A switchover that was begun has ended.
    pub(super) fn ended(&mut self, hostgroup: u32, is_done: bool) {
        if is_done {
            self.0.remove(&hostgroup);
        } else {
            self.rest(hostgroup, PAUSE);
        }
    }

    /// Whether nothing that has failed is to rest.
    pub(super) fn is_due(&self, hostgroup: u32) -> bool {
        self.0.get(&hostgroup).is_none_or(|at| *at <= Instant::now())
    }

    /// The next try is after this time.
    pub(super) fn rest(&mut self, hostgroup: u32, pause: Duration) {
        self.0.insert(hostgroup, Instant::now() + pause);
    }

    /// Forgets those of hostgroups in which nothing is to be done any more.
    pub(super) fn keep(&mut self, is_wanted: impl Fn(u32) -> bool) {
        self.0.retain(|hostgroup, _| is_wanted(*hostgroup));
    }

    /// When a try is due that is wanted already; none if nothing is.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.values().min().copied()
    }
}

impl Server {
    /// Moves the writer roles that are to go back and whose time has come.
    pub(super) fn fail_back(&mut self) {
        if self.handover != Handover::None {
            return;
        }
        let roles = self.roles.latest();
        self.failbacks
            .keep(|hostgroup| roles.group(hostgroup).is_some_and(|group| proposal(group).is_some()));
        for group in &roles.groups {
            let hostgroup = group.writer_hostgroup;
            let is_due = self.failbacks.is_due(hostgroup) && !self.operations.is_busy(hostgroup);
            let Some((to, why)) = proposal(group).filter(|_| is_due) else { continue };
            tracing::info!(hostgroup, %to, "{why}");
            let wanted = Switchover { to: Some(to.clone()), ..Switchover::of(hostgroup) };
            let work = move |operator: &Operator| {
                // A cause has been logged where it was found.
                let is_done = operator.switchover(&wanted, &Steps::unheard()).is_ok();
                Outcome::FailedBack { hostgroup, is_done }
            };
            if let Err(cause) = self.operate("failback", BTreeSet::from([hostgroup]), work) {
                tracing::error!(hostgroup, %cause, "can't start a thread");
                self.failbacks.rest(hostgroup, PAUSE);
            }
        }
    }
}

/// To whom the writer role is to go, and why.
fn proposal(group: &Group) -> Option<(&Endpoint, &'static str)> {
    let yields = "a node joins: the writer role leaves the server that will be its donor";
    let returns = "failback: moving the writer role to the server with the greatest weight";
    let yields_to = group.yields_to.as_ref().map(|to| (to, yields));
    yields_to.or(group.failback.as_ref().map(|to| (to, returns)))
}
