//! Applies what the Weirs in front of one cluster have agreed on: switchovers of others, for which this one
//! holds, and writers that another epoch has deposed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use weir_monitor::{LatestRoles, Reporter, monotonic_ns};
use weir_topology::{Endpoint, Group, InstanceId, Millis, Peer, Roles};

use crate::context::Context;
use crate::error::SwitchoverError;
use crate::operation_runner::{LOOK_EVERY, OperationRunner};
use crate::operations::Operations;
use crate::proxy::Proxy;
use crate::switchover::{Plan, Standing, why_not};

/// How often sessions are counted on servers that leave.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// How long a Weir that has just started may take to read which others there are.
const FIRST_READ_WAIT: Duration = Duration::from_secs(3);
/// How long the other Weirs are waited for at least, until they have read that they are to hold and have said that they do:
/// a shorter grace counts from the same moment.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// A switchover of another Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ForeignSwitchover {
    hostgroup: u32,
    version: u64,
    writer: Endpoint,
    to: Endpoint,
}

/// The switchover of another Weir for which a cluster's statements are to be held: the next writer, and whose it is.
pub fn foreign_switchover<'a>(
    group: &'a Group,
    instance: &str,
) -> Option<(&'a Endpoint, &'a InstanceId, u64)> {
    let row = group.leadership.as_ref()?.row.as_ref()?;
    let switching = row.switching.as_ref().filter(|switching| *switching.by != *instance)?;
    Some((&switching.to, &switching.by, row.version))
}

/// Why this Weir may not move a cluster's writer now: another one is about to, and its sessions are waited for.
pub(crate) fn another_switchover(group: &Group, instance: &str) -> Option<SwitchoverError> {
    let (to, by, _) = foreign_switchover(group, instance)?;
    Some(SwitchoverError::AnotherSwitchover { to: to.clone(), by: by.clone() })
}

/// The other Weirs that are not heard of any more and may still write, and for how many seconds: statements would be held
/// until then.
pub(crate) fn silent_weirs(group: &Group) -> Option<(String, u64)> {
    let leadership = group.leadership.as_ref()?;
    let now = Millis(monotonic_ns() / 1_000_000);
    let silent = |peer: &&Peer| leadership.silent.contains(&peer.instance) && now < peer.may_write_until();
    let until = leadership.peers.iter().filter(silent).map(Peer::may_write_until).max()?;
    Some((leadership.silent.join(", "), until.since(now).div_ceil(1000)))
}

impl ForeignSwitchover {
    fn of(group: &Group, instance: &str) -> Option<Self> {
        let (to, _, version) = foreign_switchover(group, instance)?;
        let writer = group.leadership.as_ref()?.row.as_ref()?.writer.clone();
        Some(Self { hostgroup: group.writer_hostgroup, version, writer, to: to.clone() })
    }
}

impl Operations {
    /// Does what new roles, which the workers have been sent, call for.
    pub fn follow_epochs(&mut self, before: &Roles, now: &Roles) {
        for group in &now.groups {
            let known = before.group(group.writer_hostgroup);
            if let Some(foreign) = ForeignSwitchover::of(group, &self.context.instance)
                && known.and_then(|known| ForeignSwitchover::of(known, &self.context.instance)).as_ref()
                    != Some(&foreign)
            {
                self.clear(foreign);
            }
            self.cut_deposed(group, known);
        }
        self.count_leaving(now);
    }

    /// Has the sessions counted that have a connection to servers which leave a cluster, for the other Weirs, for as long
    /// as there are such servers.
    fn count_leaving(&mut self, now: &Roles) {
        let is_counting = self.counting.as_ref().is_some_and(|thread| !thread.is_finished());
        if is_counting || leaving(now).is_empty() {
            return;
        }
        let Context { proxy, reporter, roles, .. } = self.context.clone();
        let count = move || count(&*proxy, &reporter, &roles);
        match thread::Builder::new().name("drains".to_owned()).spawn(count) {
            Ok(thread) => self.counting = Some(thread),
            // Then the other Weirs are told that there may be some.
            Err(cause) => tracing::error!(%cause, "can't start a thread"),
        }
    }

    /// Sessions with a transaction on a writer that the epoch has left behind can't go on there.
    fn cut_deposed(&self, group: &Group, known: Option<&Group>) {
        let deposed = |group: &Group| {
            let leadership = group.leadership.as_ref()?;
            Some((leadership.deposed.clone()?, leadership.since))
        };
        let Some((writer, learned_at)) = deposed(group) else { return };
        if known.and_then(deposed).is_some_and(|known| known == (writer.clone(), learned_at)) {
            return;
        }
        self.context.proxy.close_writers(&writer);
        if self.context.proxy.settle() {
            self.context.reporter.cut(group.writer_hostgroup, learned_at);
        }
    }

    /// Tells the Weir that moves the role when no session here may write to the old writer any more.
    fn clear(&self, foreign: ForeignSwitchover) {
        let hostgroup = foreign.hostgroup;
        let ids = self.context.config.hostgroups_of(&foreign.to);
        let mut clusters = self.context.config.clusters().filter(|row| row.writer_hostgroup == hostgroup);
        if !clusters.any(|cluster| cluster.hostgroups().any(|id| ids.contains(&id))) {
            // Nobody could write here afterwards.
            let to = &foreign.to;
            tracing::error!(hostgroup, %to, "another Weir wants to move the writer role to a server that is not in mysql_servers here: this Weir does not agree");
            return;
        }
        tracing::info!(hostgroup, writer = %foreign.writer, "statements are held for another Weir's switchover");
        let Context { proxy, reporter, roles, instance, .. } = self.context.clone();
        let watch = move || watch(&foreign, &*proxy, &reporter, &roles, &instance);
        if let Err(cause) = thread::Builder::new().name("clear".to_owned()).spawn(watch) {
            // Then the other Weir waits in vain, and undoes its switchover.
            tracing::error!(hostgroup, %cause, "can't start a thread");
        }
    }
}

impl OperationRunner {
    /// Waits until it is known which other Weirs there are: nobody would be asked before.
    pub(crate) fn wait_until_others_known(&self, hostgroup: u32) -> Result<(), SwitchoverError> {
        let until = Instant::now() + FIRST_READ_WAIT;
        loop {
            let roles = self.context.roles.latest();
            let leadership = roles.group(hostgroup).and_then(|group| group.leadership.as_ref());
            if leadership.is_none_or(|leadership| leadership.read_at.is_some()) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(SwitchoverError::OthersUnknown { seconds: FIRST_READ_WAIT.as_secs() });
            }
            self.look_again()?;
        }
    }

    /// Has the other Weirs hold; [`OperationRunner::wait_others`] waits until they do.
    pub(crate) fn ask_others(&self, plan: &Plan<'_>) {
        self.context.planner.ask_to_hold(plan.order.writer_hostgroup, &plan.from, &plan.to);
    }

    /// Waits until no other Weir's session may write to the old writer.
    pub(crate) fn wait_others(&self, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        let begun = Instant::now();
        let until = begun + plan.grace.max(ANSWER_WAIT);
        let mut told = false;
        loop {
            // Two that ask at the same moment: nobody is asked for the one that came later.
            if self.standing(plan)? == Standing::Made {
                return Ok(());
            }
            let roles = self.context.roles.latest();
            let group = roles.group(plan.order.writer_hostgroup).ok_or(SwitchoverError::NotConfigured)?;
            let leadership = group.leadership.as_ref();
            let awaited = leadership.map(|leadership| leadership.awaited.clone()).unwrap_or_default();
            // What was read with the announcement tells who is there: a lone Weir reads seldom. Where others could be
            // asked when it began and can't be any more, nobody knows.
            let is_announced = leadership.map_or(!plan.is_agreed, |known| known.is_announced);
            if awaited.is_empty() && is_announced {
                // Another Weir's user may have drained it before that one knew of this.
                return self.can_write(group, plan);
            }
            if !is_announced && begun.elapsed() >= ANSWER_WAIT {
                return Err(SwitchoverError::OthersUnknown { seconds: ANSWER_WAIT.as_secs() });
            }
            let names: Vec<&str> = awaited.iter().map(|name| &**name).collect();
            if Instant::now() >= until {
                let (from, names) = (plan.from.clone(), names.join(", "));
                return Err(SwitchoverError::OtherWeirsWrite { from, names });
            }
            if !told && !awaited.is_empty() {
                plan.progress.tell(format!("waiting for other Weirs: {}", names.join(", ")));
                told = true;
            }
            self.look_again()?;
        }
    }

    /// Whether the target could still have the role.
    pub(crate) fn can_write(&self, group: &Group, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        if group.successors.contains(&plan.to) || group.writers == [plan.to.clone()] {
            return Ok(());
        }
        Err(SwitchoverError::CannotWriteAnyMore { to: plan.to.clone(), why: why_not(group, &plan.to) })
    }

    /// Whether the role moves by the epoch row.
    pub(crate) fn has_epoch(&self, hostgroup: u32) -> bool {
        let roles = self.context.roles.latest();
        roles
            .group(hostgroup)
            .is_some_and(|group| group.leadership.as_ref().is_some_and(|leadership| leadership.row.is_some()))
    }
}

/// Servers that leave a cluster whose Weirs tell each other of that.
fn leaving(roles: &Roles) -> BTreeSet<Endpoint> {
    let leaderships = roles.groups.iter().filter_map(|group| group.leadership.as_ref());
    let rows = leaderships.filter_map(|leadership| leadership.drains.as_ref()).flatten();
    rows.map(|row| row.server.clone()).collect()
}

fn count(proxy: &dyn Proxy, reporter: &Reporter, roles: &LatestRoles) {
    loop {
        let leaving = leaving(&roles.latest());
        if leaving.is_empty() {
            return;
        }
        // First: all workers know that they leave.
        if proxy.settle()
            && let Some(counts) = proxy.connected(&leaving)
        {
            reporter.used(counts);
        }
        sleep(COUNT_EVERY);
    }
}

fn watch(
    foreign: &ForeignSwitchover,
    proxy: &dyn Proxy,
    reporter: &Reporter,
    roles: &LatestRoles,
    instance: &Arc<str>,
) {
    loop {
        let latest = roles.latest();
        let group = latest.group(foreign.hostgroup);
        if group.and_then(|group| ForeignSwitchover::of(group, instance)).as_ref() != Some(foreign) {
            return;
        }
        // First: all workers hold.
        if proxy.settle() && proxy.writing(&foreign.writer).is_some_and(|sessions| sessions.is_empty()) {
            return reporter.cleared(foreign.hostgroup, foreign.version);
        }
        sleep(LOOK_EVERY);
    }
}
