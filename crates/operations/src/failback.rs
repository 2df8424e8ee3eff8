//! Begins the switchovers that Weir makes by itself: failback `drained`, and of a writer that is about to be a donor.

use std::time::{Duration, Instant};

use weir_topology::{Endpoint, Group};

use crate::cluster_automation::Pause;
use crate::operation_runner::OperationRunner;
use crate::operations::{Outcome, Work};
use crate::progress::Progress;
use crate::switchover::SwitchoverOrder;

/// One that failed is tried again after this time: statements of the cluster wait during each try.
const PAUSE: Duration = Duration::from_secs(60);

/// The tries of one cluster.
#[derive(Debug, Default)]
pub(crate) struct Failback {
    pause: Pause,
}

impl Failback {
    /// When a try is due that is wanted already; none if nothing is.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.pause.until()
    }

    pub(crate) fn forget_what_is_over(&mut self, group: Option<&Group>) {
        if group.and_then(proposal).is_none() {
            self.pause.end();
        }
    }

    /// The move of a writer role that is to go back and whose time has come.
    pub(crate) fn due(&mut self, group: &Group, is_busy: bool) -> Option<Work> {
        let hostgroup = group.writer_hostgroup;
        let (to, why) = proposal(group).filter(|_| self.pause.is_over() && !is_busy)?;
        self.pause.end();
        tracing::info!(hostgroup, %to, "{why}");
        let (from, to) = (group.writers.first().cloned(), Some(to.clone()));
        let order = SwitchoverOrder { from, to, ..SwitchoverOrder::of(hostgroup) };
        let run = move |runner: &OperationRunner| {
            // A cause has been logged where it was found.
            let is_done = runner.switchover(&order, &Progress::unheard()).is_ok();
            Outcome::FailedBack { hostgroup, is_done }
        };
        let not_begun = move |cause| {
            tracing::error!(hostgroup, %cause, "can't start a thread");
            Outcome::FailedBack { hostgroup, is_done: false }
        };
        Some(Work { name: "failback", run: Box::new(run), not_begun: Box::new(not_begun) })
    }

    /// A switchover that was begun has ended.
    pub(crate) fn ended(&mut self, is_done: bool) {
        if is_done {
            self.pause.end();
        } else {
            self.pause.begin(PAUSE);
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
