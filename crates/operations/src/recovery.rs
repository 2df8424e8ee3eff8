//! Finishes or undoes switchovers of asynchronous replication whose Weir has died: see
//! [`weir_topology::procedure::Recovery`].
//!
//! Whether one is written down is looked for at the start, when a cluster's writer has changed, and again and again while
//! it has none. A look is on a thread of its own and keeps nobody from anything; what it finds is an operation.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use weir_topology::procedure::{Entry, Recovered, Recovery, Settled};
use weir_topology::{Endpoint, Flavour, Group};

use crate::error::SwitchoverError;
use crate::operation_runner::OperationRunner;
use crate::operations::{self, News, Notice, Operations};

/// Whoever has just moved the role is about to finish that.
const FINISH_WAIT: Duration = Duration::from_secs(3);
/// The pause between two looks while there is no writer.
const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// When what could not be done at all is tried again, and what could not be done wholly.
const RETRY_PAUSE: Duration = Duration::from_secs(2);
const LEFT_PAUSE: Duration = Duration::from_secs(30);

/// The result of a recovery.
pub(crate) type Outcome = Result<Recovered, SwitchoverError>;

/// What is known of switchovers of one cluster that others have begun.
#[derive(Debug, Default)]
pub(crate) struct RecoveryWatch {
    writers: Option<Vec<Endpoint>>,
    due: Option<Instant>,
    is_looking: bool,
    told: Option<String>,
    /// One that a server still has, and about which there is nothing to do.
    over: Option<Entry>,
}

impl RecoveryWatch {
    /// When the next look is due; none if none is.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.filter(|_| !self.is_looking)
    }

    pub(crate) fn forget_what_is_over(&mut self, group: Option<&Group>) {
        if group.is_none_or(|group| group.flavour != Flavour::Replication) {
            self.due = None;
        }
    }

    /// No look is due; then there is one at once.
    pub(crate) fn suspend(&mut self) {
        (self.due, self.writers) = (None, None);
    }

    /// There is nothing to do about it as long as the writer is the same; a look now and then is enough.
    fn is_over(&mut self, entry: Entry) {
        (self.told, self.over) = (None, Some(entry));
        self.look_after(LEFT_PAUSE);
    }

    /// Whether one that was found is to be told of.
    fn is_news(&self, entry: &Entry) -> bool {
        self.told.is_none() && self.over.as_ref() != Some(entry)
    }

    /// Whether a look is to begin now.
    pub(crate) fn is_look_due(&mut self, group: &Group) -> bool {
        if group.flavour != Flavour::Replication {
            return false;
        }
        match self.writers.replace(group.writers.clone()) {
            None => self.look_after(Duration::ZERO),
            Some(before) if before != group.writers => self.look_after(FINISH_WAIT),
            Some(_) => {}
        }
        let is_due = !self.is_looking && self.due.is_some_and(|at| at <= Instant::now());
        if is_due {
            self.due = group.writers.is_empty().then(|| Instant::now() + LOOK_PAUSE);
        }
        is_due
    }

    /// An operation has ended, and may have left something: the writer may be who it was, and nobody would look.
    pub(crate) fn look_soon(&mut self) {
        let soon = Instant::now() + FINISH_WAIT;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    fn look_after(&mut self, pause: Duration) {
        self.due = Some(Instant::now() + pause);
    }
}

impl Operations {
    /// Begins a look whether a switchover is written down.
    pub(crate) fn look_for_entry(&mut self, hostgroup: u32) {
        let runner = self.runner();
        let look = move || {
            let recovery = runner.recovery(hostgroup);
            let entry = recovery.written(&mut runner.surroundings(hostgroup, None));
            runner.context.proxy.notify(Notice(News::Looked { hostgroup, entry }));
        };
        match thread::Builder::new().name("recovery look".to_owned()).spawn(look) {
            Ok(_) => self.automation(hostgroup).recovery.is_looking = true,
            Err(cause) => tracing::error!(hostgroup, %cause, "can't start a thread"),
        }
    }

    /// A look has ended.
    pub(crate) fn looked_for_entry(&mut self, hostgroup: u32, entry: Option<&Entry>) {
        let has_others_work = self.is_suspended || self.is_busy(hostgroup);
        let unfinished = self.context.unfinished.clone();
        let watch = &mut self.automation(hostgroup).recovery;
        watch.is_looking = false;
        let Some(entry) = entry else {
            (watch.told, watch.over) = (None, None);
            return unfinished.set(hostgroup, None);
        };
        // Mostly it is the switchover itself that is under way.
        if has_others_work {
            return watch.look_after(RETRY_PAUSE);
        }
        if watch.is_news(entry) {
            unfinished.set(hostgroup, Some(told(entry)));
        }
        let entry = entry.clone();
        let run = move |runner: &OperationRunner| {
            let done = runner.recovery(hostgroup).make(&mut runner.surroundings(hostgroup, None));
            operations::Outcome::Recovered {
                hostgroup,
                entry,
                done: done.map_err(SwitchoverError::Procedure),
            }
        };
        if let Err(cause) = self.begin("recovery", BTreeSet::from([hostgroup]), run) {
            tracing::error!(hostgroup, %cause, "can't start a thread");
        }
    }

    /// Logs what was done, or why it was not, unless that is known.
    pub(crate) fn recovered(&mut self, hostgroup: u32, entry: Entry, done: Outcome) {
        let watch = &mut self.automation(hostgroup).recovery;
        let (name, said, left) = match done {
            // Another Weir does it.
            Ok(Recovered::Locked) => return watch.look_after(LOOK_PAUSE),
            Ok(Recovered::NothingToDo) => {
                watch.is_over(entry);
                return self.context.unfinished.set(hostgroup, None);
            }
            Ok(Recovered::Settled(Settled::Finished { entry, left })) => {
                ("switchover finished", told(&entry), left)
            }
            Ok(Recovered::Settled(Settled::Undone { entry, left })) => {
                ("switchover undone", told(&entry), left)
            }
            Err(cause) => ("switchover not recovered", format!("{}: {cause}", told(&entry)), Vec::new()),
        };
        let is_failed = name == "switchover not recovered";
        let left_words: String = left.iter().map(|left| format!("; left to do: {left}")).collect();
        let said = format!("{said}{left_words}");
        if is_failed || !left.is_empty() {
            watch.look_after(if is_failed { RETRY_PAUSE } else { LEFT_PAUSE });
            self.context.unfinished.set(hostgroup, Some(said.clone()));
            let watch = &mut self.automation(hostgroup).recovery;
            let known = watch.told.replace(said.clone());
            if known.as_ref() == Some(&said) {
                return;
            }
        } else {
            self.context.unfinished.set(hostgroup, None);
        }
        tracing::warn!(hostgroup, "{name}: {said}");
        self.context.proxy.log_change(Some(hostgroup), name, said);
    }
}

/// "db1:3306 -> db2:3306, begun by weir-1".
fn told(entry: &Entry) -> String {
    format!("{} -> {}, begun by {}", entry.from, entry.to, entry.by_instance)
}

impl OperationRunner {
    fn recovery(&self, writer_hostgroup: u32) -> Recovery {
        Recovery { writer_hostgroup, members: self.counted(writer_hostgroup), known: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(to: &str) -> Entry {
        let (from, to) = (Endpoint::new("db1", 3306), Endpoint::new(to, 3306));
        Entry { writer_hostgroup: 10, from, to, by_instance: "weir-1".to_owned() }
    }

    fn group() -> Group {
        let writers = vec![Endpoint::new("db3", 3306)];
        Group { writer_hostgroup: 10, flavour: Flavour::Replication, writers, ..Group::default() }
    }

    #[test]
    fn what_a_replaced_writer_still_has_is_told_once_and_looked_at_seldom() {
        let mut watch = RecoveryWatch::default();
        assert!(watch.is_look_due(&group()) && watch.is_news(&entry("db2")));
        watch.is_over(entry("db2"));
        assert!(!watch.is_news(&entry("db2")) && watch.is_news(&entry("db3")));
        let due = watch.next().expect("it is looked at again");
        assert!(due > Instant::now() + LEFT_PAUSE / 2);
    }

    #[test]
    fn behind_a_switchover_there_is_a_look_though_the_writer_is_who_it_was() {
        let mut watch = RecoveryWatch::default();
        assert!(watch.is_look_due(&group()) && watch.next().is_none());
        watch.look_soon();
        assert!(watch.next().is_some_and(|due| due <= Instant::now() + FINISH_WAIT));
    }

    #[test]
    fn after_a_takeover_that_failed_there_is_a_look() {
        let mut watch = RecoveryWatch::default();
        assert!(watch.is_look_due(&group()) && !watch.is_look_due(&group()));
        watch.suspend();
        assert!(watch.is_look_due(&group()));
    }
}
