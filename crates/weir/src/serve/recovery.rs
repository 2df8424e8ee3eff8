//! Switchovers of asynchronous replication whose Weir has died are finished or undone: see
//! [`weir_topology::procedure::Recovery`].
//!
//! Whether one is written down is looked for at the start, when a cluster's writer has changed, and again and again while
//! it has none. A look is on a thread of its own and keeps nobody from anything; what it finds is an operation.

use std::collections::{BTreeSet, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use weir_topology::procedure::{Entry, Recovery, Settled};
use weir_topology::{Endpoint, Flavour};

use super::Server;
use super::handover::Handover;
use super::operations::{Operator, Outcome, Request};

/// Whoever has just moved the role is about to finish that.
const FINISH_WAIT: Duration = Duration::from_secs(3);
/// The pause between two looks while there is no writer.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// When what could not be done at all is tried again, and what could not be done wholly.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const LEFT_PAUSE: Duration = Duration::from_secs(30);

/// What has come of a recovery.
pub(super) type Recovered = Result<Option<Settled>, String>;

/// What is known of switchovers that others have begun, by writer hostgroup.
#[derive(Debug, Default)]
pub(super) struct Recoveries {
    writers: HashMap<u32, Vec<Endpoint>>,
    due: HashMap<u32, Instant>,
    looking: BTreeSet<u32>,
    told: HashMap<u32, String>,
}

impl Recoveries {
    /// When the next look is due; none if none is.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = self.due.iter().filter(|(hostgroup, _)| !self.looking.contains(hostgroup));
        waiting.map(|(_, at)| *at).min()
    }

    fn look_after(&mut self, hostgroup: u32, pause: Duration) {
        self.due.insert(hostgroup, Instant::now() + pause);
    }
}

impl Server {
    /// Begins the looks that are due.
    pub(super) fn see_to_recoveries(&mut self) {
        if self.handover != Handover::None {
            self.recoveries.due.clear();
            return;
        }
        let roles = self.roles.latest();
        let groups = roles.groups.iter().filter(|group| group.flavour == Flavour::Replication);
        let known: Vec<u32> = groups.clone().map(|group| group.writer_hostgroup).collect();
        self.recoveries.due.retain(|hostgroup, _| known.contains(hostgroup));
        for group in groups {
            let hostgroup = group.writer_hostgroup;
            match self.recoveries.writers.insert(hostgroup, group.writers.clone()) {
                None => self.recoveries.look_after(hostgroup, Duration::ZERO),
                Some(before) if before != group.writers => {
                    self.recoveries.look_after(hostgroup, FINISH_WAIT);
                }
                Some(_) => {}
            }
            let is_due = self.recoveries.due.get(&hostgroup).is_some_and(|at| *at <= Instant::now());
            if is_due && !self.recoveries.looking.contains(&hostgroup) {
                self.look_for_entry(hostgroup);
                match group.writers.is_empty() {
                    true => self.recoveries.look_after(hostgroup, LOOK_PAUSE),
                    false => drop(self.recoveries.due.remove(&hostgroup)),
                }
            }
        }
    }

    fn look_for_entry(&mut self, hostgroup: u32) {
        let operator = self.operator();
        let look = move || {
            let recovery = operator.recovery(hostgroup);
            let is_found = recovery.is_written(&mut operator.around(hostgroup, None));
            operator.tell_main(Request::Looked { hostgroup, is_found });
        };
        match thread::Builder::new().name("recovery look".to_owned()).spawn(look) {
            Ok(_) => drop(self.recoveries.looking.insert(hostgroup)),
            Err(cause) => tracing::error!(hostgroup, %cause, "can't start a thread"),
        }
    }

    /// A look has ended.
    pub(super) fn looked_for_entry(&mut self, hostgroup: u32, is_found: bool) {
        self.recoveries.looking.remove(&hostgroup);
        if !is_found {
            self.recoveries.told.remove(&hostgroup);
            return;
        }
        // Mostly it is the switchover itself that is under way.
        if self.handover != Handover::None || self.operations.is_busy(hostgroup) {
            return self.recoveries.look_after(hostgroup, RETRY_PAUSE);
        }
        let work = move |operator: &Operator| {
            let done = operator.recovery(hostgroup).make(&mut operator.around(hostgroup, None));
            Outcome::Recovered { hostgroup, done }
        };
        if let Err(cause) = self.operate("recovery", BTreeSet::from([hostgroup]), work) {
            tracing::error!(hostgroup, %cause, "can't start a thread");
        }
    }

    /// Logs what was done, or why it was not, unless that is known.
    pub(super) fn recovered(&mut self, hostgroup: u32, done: Recovered) {
        let (name, said, left) = match done {
            // Another Weir does it, or has.
            Ok(None) => return self.recoveries.look_after(hostgroup, LOOK_PAUSE),
            Ok(Some(Settled::Finished { entry, left })) => ("switchover finished", told(&entry), left),
            Ok(Some(Settled::Undone { entry, left })) => ("switchover undone", told(&entry), left),
            Err(cause) => ("switchover not recovered", cause, Vec::new()),
        };
        let is_failed = name == "switchover not recovered";
        let left_words: String = left.iter().map(|left| format!("; left to do: {left}")).collect();
        let said = format!("{said}{left_words}");
        if is_failed || !left.is_empty() {
            self.recoveries.look_after(hostgroup, if is_failed { RETRY_PAUSE } else { LEFT_PAUSE });
            let known = self.recoveries.told.insert(hostgroup, said.clone());
            if known.as_ref() == Some(&said) {
                return;
            }
        }
        tracing::warn!(hostgroup, "{name}: {said}");
        self.log.event(Some(hostgroup), name, said);
    }
}

/// "db1:3306 -> db2:3306, begun by weir-1".
fn told(entry: &Entry) -> String {
    format!("{} -> {}, begun by {}", entry.from, entry.to, entry.by_instance)
}

impl Operator {
    fn recovery(&self, writer_hostgroup: u32) -> Recovery {
        Recovery { writer_hostgroup, members: self.counted(writer_hostgroup), known: None }
    }
}
