//! `weir switchover`: the writer role moves to another server, and no application notices.
//!
//! ```text
//! pick the target ─► get ready ─► hold ─► nobody writes to the old one ─► the role moves ─► new roles ─► release
//!                                   └── anything fails: undo, release, everything is as before ──┘
//! ```
//!
//! While statements are held nobody begins anything on the old writer; who is in a transaction goes on there. So before
//! the new roles are published nobody may write to the old writer any more, and nothing is lost: at worst some statements
//! have waited.
//!
//! How the role moves depends on who decides it: see [`chosen`] where Weir does, [`group`] where a Group Replication
//! group does, [`replication`] where servers have to be told. Getting ready finds out what is missing, before anything is
//! held.

mod account;
mod chosen;
mod failover;
mod group;
mod replication;

pub(super) use failover::Successions;

use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_admin::SwitchoverPlan;
use weir_proxy::stats::{ReportPart, WritingRow};
use weir_topology::{Endpoint, Flavour, Group, Reason};

use super::operations::{LOOK_EVERY, Operator, Request};
use super::peers::{another_switch, silent_peers};
use crate::control::{Steps, Switchover};

/// How long sessions take to go that are closed.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// How long it may take until the monitor sees that the role has moved: some looks at each server.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// A worker that has not answered may still let sessions write.
const BUSY: &str = "a worker has been too busy to answer for seconds";

/// From whom the role moves to whom.
pub(super) struct Plan<'a> {
    pub(super) wanted: &'a Switchover,
    pub(super) steps: &'a Steps,
    flavour: Flavour,
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
    /// How long transactions and pins on the old writer are waited for.
    pub(super) grace: Duration,
}

/// Whoever moves the role, ready for it.
enum Mover {
    /// Weir itself: every server can write.
    Weir,
    Group(Box<group::Mover>),
    Replication(Box<replication::Mover>),
}

impl Operator {
    /// Moves the writer role. Returns what was done.
    ///
    /// # Errors
    /// Why it was not, in words; then everything is as before.
    pub(super) fn switchover(&self, wanted: &Switchover, steps: &Steps) -> Result<String, String> {
        let plan = self.plan(wanted, steps)?;
        let mut mover = self.get_ready(&plan)?;
        let (hostgroup, Plan { from, to, .. }) = (wanted.writer_hostgroup, &plan);
        if wanted.dry_run {
            let sessions = in_words(&self.writing(from)?);
            if let Some(tell) = &wanted.tell {
                let (writer, next_writer, sessions) = (from.clone(), to.clone(), sessions.clone());
                let _ = tell.send(SwitchoverPlan { writer, next_writer, sessions });
            }
            return Ok(format!(
                "the writer of hostgroup {hostgroup} would move from {from} to {to}; now there: {sessions}"
            ));
        }
        tracing::info!(hostgroup, %from, %to, force = wanted.force, "switchover begins");
        steps.tell(format!("{from} -> {to}: new statements are held"));
        let begun = Instant::now();
        let is_held = self.hold(Some(format!("held for a switchover from {from} to {to}")), hostgroup);
        let moved = if is_held { self.move_writer(&plan, &mut mover) } else { Err(BUSY.to_owned()) };
        self.hold(None, hostgroup);
        let held_ms = begun.elapsed().as_millis();
        match moved {
            Ok(()) => {
                tracing::info!(hostgroup, %from, %to, held_ms, "switchover is done");
                let left = self.finish(&plan, mover);
                left.iter()
                    .for_each(|left| tracing::warn!(hostgroup, left, "left to do after the switchover"));
                let left: String = left.iter().map(|left| format!("\n{left}")).collect();
                let reason = format!("{from} -> {to}, statements were held for {held_ms} ms");
                self.log.event(Some(hostgroup), "switchover", reason);
                Ok(format!(
                    "the writer of hostgroup {hostgroup} is {to} (was {from}); statements were held for {held_ms} ms{left}"
                ))
            }
            Err(cause) => {
                tracing::warn!(hostgroup, %from, %to, held_ms, cause, "switchover undone");
                let reason = format!("{from} -> {to}: {cause}");
                self.log.event(Some(hostgroup), "switchover undone", reason);
                let stays = self.writers(&plan) == [from.clone()];
                let now = if stays {
                    format!("{from} is the writer as before")
                } else {
                    "see `weir status`".to_owned()
                };
                Err(format!("{cause}: undone after {held_ms} ms, {now}"))
            }
        }
    }

    /// The present writer and the next one.
    fn plan<'p>(&self, wanted: &'p Switchover, steps: &'p Steps) -> Result<Plan<'p>, String> {
        let hostgroup = wanted.writer_hostgroup;
        let roles = self.roles.latest();
        let group = roles.group(hostgroup).ok_or_else(|| {
            let known: Vec<String> =
                roles.groups.iter().map(|group| group.writer_hostgroup.to_string()).collect();
            format!("{hostgroup} is not the writer hostgroup of a cluster; those are: {}", known.join(", "))
        })?;
        let from = match group.writers.as_slice() {
            [writer] => writer.clone(),
            [] => return Err("there is no writer: a failover is under way, or nobody can write".to_owned()),
            _ => return Err("there are several writers: nothing to switch".to_owned()),
        };
        let to = match &wanted.to {
            Some(to) if *to == from => return Err(format!("{to} is the writer already")),
            Some(to) if group.successors.contains(to) => to.clone(),
            Some(to) => return Err(format!("{to} can't be the writer: {}", why_not(group, to))),
            None => group.successors.first().cloned().ok_or_else(|| {
                let because = |(server, why): &(Endpoint, Reason)| format!("{server}: {why}");
                let reasons: Vec<String> = group.cannot_write.iter().map(because).collect();
                format!("no other server can be the writer: {}", reasons.join(", "))
            })?,
        };
        if let Some(cause) = another_switch(group, &self.instance) {
            return Err(cause);
        }
        if let Some(cause) = silent_peers(group) {
            return Err(format!("{cause} may still write to {from}: try again in some seconds"));
        }
        let own = self.config.topology_of(hostgroup).switchover_pin_grace;
        let grace = wanted.grace_ms.map_or(own, Duration::from_millis);
        Ok(Plan { wanted, steps, flavour: group.flavour, from, to, grace })
    }

    /// Everything that can be missing is looked for here.
    fn get_ready(&self, plan: &Plan<'_>) -> Result<Mover, String> {
        match plan.flavour {
            Flavour::Galera => Ok(Mover::Weir),
            Flavour::GroupReplication if self.has_several_primaries(plan) => Ok(Mover::Weir),
            Flavour::GroupReplication => self.group_mover(plan).map(Box::new).map(Mover::Group),
            Flavour::Replication => self.replication_mover(plan).map(Box::new).map(Mover::Replication),
        }
    }

    /// Statements of the writers' hostgroup wait, or no longer. When this returns, all workers go by it; false if one
    /// has not answered.
    fn hold(&self, because: Option<String>, hostgroup: u32) -> bool {
        self.ask(|done| Request::Hold { hostgroup, because, done }).is_ok() && self.publisher.settle()
    }

    /// What happens while statements are held.
    fn move_writer(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), String> {
        self.ask_others(plan);
        let moved = self.move_when_clear(plan, mover);
        self.planner.switch_ends(plan.wanted.writer_hostgroup);
        moved
    }

    fn move_when_clear(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), String> {
        self.wait_until_nobody_writes(plan)?;
        self.wait_others(plan)?;
        match mover {
            Mover::Weir => self.choose(plan),
            Mover::Group(mover) => self.move_with_group(plan, mover),
            Mover::Replication(mover) => self.move_replication(plan, mover),
        }
    }

    /// What happens after statements have been released. Returns what could not be done.
    fn finish(&self, plan: &Plan<'_>, mover: Mover) -> Vec<String> {
        match mover {
            Mover::Weir | Mover::Group(_) => Vec::new(),
            Mover::Replication(mover) => self.follow_new_source(plan, *mover),
        }
    }

    /// Before this has returned, sessions may write to the old writer.
    fn wait_until_nobody_writes(&self, plan: &Plan<'_>) -> Result<(), String> {
        let Plan { wanted, from, steps, .. } = plan;
        let mut writing = self.wait_writers(plan, plan.grace)?;
        if !writing.is_empty() && wanted.force {
            steps.tell(format!("closing {}", in_words(&writing)));
            self.publisher.cut_writers(&from.to_string());
            writing = self.wait_writers(plan, CUT_WAIT)?;
        }
        if writing.is_empty() {
            return Ok(());
        }
        let hint = if wanted.force { "" } else { " (--force closes them)" };
        Err(format!("sessions may still write to {from}: {}{hint}", in_words(&writing)))
    }

    /// The writers of now.
    fn writers(&self, plan: &Plan<'_>) -> Vec<Endpoint> {
        let roles = self.roles.latest();
        roles.group(plan.wanted.writer_hostgroup).map(|group| group.writers.clone()).unwrap_or_default()
    }

    /// Waits until the monitor has seen that another server writes now.
    fn wait_writer(&self, plan: &Plan<'_>, server: &Endpoint) -> Result<(), String> {
        let until = Instant::now() + FOLLOW_WAIT;
        while self.writers(plan) != [server.clone()] {
            if Instant::now() >= until {
                let roles = self.roles.latest();
                let why = roles.group(plan.wanted.writer_hostgroup).map(|group| why_not(group, server));
                let why = why.unwrap_or_else(|| "the cluster is not configured any more".to_owned());
                return Err(format!(
                    "{server} is not seen as the writer after {} s: {why}",
                    FOLLOW_WAIT.as_secs()
                ));
            }
            self.reporter.suspect(&plan.from);
            self.reporter.suspect(&plan.to);
            sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Waits until nobody may write to the old writer, for so long; returns who may then.
    fn wait_writers(&self, plan: &Plan<'_>, grace: Duration) -> Result<Vec<WritingRow>, String> {
        let Plan { from, steps, .. } = plan;
        let until = Instant::now() + grace;
        let mut told = Vec::new();
        loop {
            let writing = self.writing(from)?;
            if writing.is_empty() || Instant::now() >= until {
                return Ok(writing);
            }
            if writing != told {
                steps.tell(format!("waiting for {}", in_words(&writing)));
                told = writing;
            }
            let roles = self.roles.latest();
            let group = roles.group(plan.wanted.writer_hostgroup);
            if let Some(cause) = group.and_then(|group| another_switch(group, &self.instance)) {
                return Err(cause);
            }
            self.look_again()?;
        }
    }

    /// Sessions that may write to a server.
    ///
    /// # Errors
    /// When a worker does not answer: then nobody knows.
    fn writing(&self, server: &Endpoint) -> Result<Vec<WritingRow>, String> {
        let server = server.to_string();
        let reports = self.publisher.report(ReportPart::Writing);
        if reports.len() < self.publisher.workers() {
            return Err(BUSY.to_owned());
        }
        let mut sums: Vec<WritingRow> = Vec::new();
        for row in reports.into_iter().flat_map(|worker| worker.writing).filter(|row| row.endpoint == server)
        {
            match sums.iter_mut().find(|sum| sum.because == row.because) {
                Some(sum) => sum.sessions += row.sessions,
                None => sums.push(row),
            }
        }
        sums.sort();
        Ok(sums)
    }
}

fn why_not(group: &Group, server: &Endpoint) -> String {
    let known = group.cannot_write.iter().find(|(known, _)| known == server);
    known.map_or_else(|| "it is not in this cluster".to_owned(), |(_, why)| why.to_string())
}

/// "2 sessions (transaction), 1 session (temporary_table)".
fn in_words(writing: &[WritingRow]) -> String {
    let words = |row: &WritingRow| {
        let noun = if row.sessions == 1 { "session" } else { "sessions" };
        format!("{} {noun} ({})", row.sessions, row.because)
    };
    let words: Vec<String> = writing.iter().map(words).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}
