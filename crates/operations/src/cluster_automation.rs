//! Acts on one cluster: what its roles call for is begun when its time has come.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weir_topology::Group;

use crate::auto_failover::AutoFailover;
use crate::failback::Failback;
use crate::operations::{Operations, Work};
use crate::recovery::RecoveryWatch;

/// Until when something that was tried rests; none: it may be tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pause(Option<Instant>);

impl Pause {
    /// The next try is after this time.
    pub(crate) fn begin(&mut self, pause: Duration) {
        self.0 = Some(Instant::now() + pause);
    }

    pub(crate) fn end(&mut self) {
        self.0 = None;
    }

    pub(crate) fn is_over(self) -> bool {
        self.0.is_none_or(|at| at <= Instant::now())
    }

    /// When it is over; none if there is none.
    pub(crate) fn until(self) -> Option<Instant> {
        self.0
    }
}

/// What is known of a cluster's operations. One is under way at a time: [`Operations`] knows which.
#[derive(Debug, Default)]
pub(crate) struct ClusterAutomation {
    pub(crate) failback: Failback,
    pub(crate) auto_failover: AutoFailover,
    pub(crate) recovery: RecoveryWatch,
}

impl ClusterAutomation {
    /// When something is due that has been put off; none if nothing has. Nothing but a look for an unfinished switchover
    /// is begun while an operation is under way (`is_busy`).
    pub(crate) fn next(&self, is_busy: bool) -> Option<Instant> {
        let operations = [self.failback.next(), self.auto_failover.next()].into_iter().flatten();
        operations.filter(|_| !is_busy).chain(self.recovery.next()).min()
    }

    /// Forgets what the roles of now do not call for any more; none: the cluster is not configured any more.
    fn forget_what_is_over(&mut self, group: Option<&Group>) {
        self.failback.forget_what_is_over(group);
        self.auto_failover.forget_what_is_over(group);
        self.recovery.forget_what_is_over(group);
    }
}

impl Operations {
    /// Begins what roles call for. Nothing is begun while another process takes over.
    pub fn see_to_clusters(&mut self) {
        if self.is_suspended {
            return self.clusters.values_mut().for_each(|automation| automation.recovery.suspend());
        }
        let roles = self.context.roles.latest();
        for (hostgroup, automation) in &mut self.clusters {
            automation.forget_what_is_over(roles.group(*hostgroup));
        }
        for group in &roles.groups {
            let hostgroup = group.writer_hostgroup;
            let is_busy = self.is_busy(hostgroup);
            if let Some(work) = self.automation(hostgroup).failback.due(group, is_busy) {
                self.begin_by_itself(hostgroup, work);
            }
            let is_busy = self.is_busy(hostgroup);
            if let Some(work) = self.automation(hostgroup).auto_failover.due(group, is_busy) {
                self.begin_by_itself(hostgroup, work);
            }
            if self.automation(hostgroup).recovery.is_look_due(group) {
                self.look_for_entry(hostgroup);
            }
        }
    }

    pub(crate) fn automation(&mut self, hostgroup: u32) -> &mut ClusterAutomation {
        self.clusters.entry(hostgroup).or_default()
    }

    fn begin_by_itself(&mut self, hostgroup: u32, work: Work) {
        let Work { name, run, not_begun } = work;
        if let Err(cause) = self.begin(name, BTreeSet::from([hostgroup]), run) {
            self.take_outcome(not_begun(cause));
        }
    }
}
