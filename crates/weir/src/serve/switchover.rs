//! `weir switchover`: the writer role moves to another server, and no application notices.
//!
//! ```text
//! pick the target ─► hold ─► nobody writes to the old one ─► the target has everything ─► new roles ─► release
//!                      └── anything fails: release, everything is as before ──┘
//! ```
//!
//! While statements are held nobody begins anything on the old writer; who is in a transaction goes on there. So before
//! the new roles are published nobody may write to the old writer any more, and nothing is lost: at worst some statements
//! have waited.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use weir_proxy::statistics::{ReportPart, WritingRow};
use weir_topology::{Endpoint, Group};

use super::Server;
use crate::control::{Steps, Switchover};

/// How often it is looked whether somebody still writes.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// How long sessions take to go that are closed.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);

/// A worker that has not answered may still let sessions write.
const BUSY: &str = "a worker has been too busy to answer for seconds";

impl Server<'_> {
    /// Moves the writer role. Returns what was done.
    ///
    /// # Errors
    /// Why it was not, in words; then everything is as before.
    pub(super) fn switchover(&mut self, wanted: &Switchover, steps: &Steps) -> Result<String, String> {
        let hostgroup = wanted.writer_hostgroup;
        let (from, to) = self.plan(wanted)?;
        if wanted.dry_run {
            let writing = self.writing(&from)?;
            return Ok(format!(
                "the writer of hostgroup {hostgroup} would move from {from} to {to}; now there: {}",
                in_words(&writing)
            ));
        }
        tracing::info!(hostgroup, %from, %to, force = wanted.force, "switchover begins");
        steps.tell(format!("{from} -> {to}: new statements are held"));
        let begun = Instant::now();
        let is_held = self.hold(Some(format!("held for a switchover from {from} to {to}")), hostgroup);
        let moved = if is_held { self.move_writer(wanted, &from, &to, steps) } else { Err(BUSY.to_owned()) };
        self.hold(None, hostgroup);
        let held_ms = begun.elapsed().as_millis();
        match moved {
            Ok(()) => {
                tracing::info!(hostgroup, %from, %to, held_ms, "switchover is done");
                Ok(format!(
                    "the writer of hostgroup {hostgroup} is {to} (was {from}); statements were held for {held_ms} ms"
                ))
            }
            Err(cause) => {
                tracing::warn!(hostgroup, %from, %to, held_ms, cause, "switchover undone");
                let roles = self.roles.latest();
                let stays = roles.group(hostgroup).is_some_and(|group| group.writers == [from.clone()]);
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
    fn plan(&self, wanted: &Switchover) -> Result<(Endpoint, Endpoint), String> {
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
            _ => return Err("there are several writers (max_writers): nothing to switch".to_owned()),
        };
        let to = match &wanted.to {
            Some(to) if *to == from => return Err(format!("{to} is the writer already")),
            Some(to) if group.successors.contains(to) => to.clone(),
            Some(to) => return Err(format!("{to} can't be the writer: {}", why_not(group, to))),
            None => group.successors.first().cloned().ok_or_else(|| {
                let because = |(server, why): &(Endpoint, weir_topology::Reason)| format!("{server}: {why}");
                let reasons: Vec<String> = group.cannot_write.iter().map(because).collect();
                format!("no other server can be the writer: {}", reasons.join(", "))
            })?,
        };
        Ok((from, to))
    }

    /// Statements of the writers' hostgroup wait, or no longer. When this returns, all workers go by it; false if one
    /// has not answered.
    fn hold(&mut self, because: Option<String>, hostgroup: u32) -> bool {
        self.snapshots.held = because.map(|because| (hostgroup, because));
        self.publish();
        self.publisher.settle()
    }

    /// What happens while statements are held.
    fn move_writer(
        &mut self,
        wanted: &Switchover,
        from: &Endpoint,
        to: &Endpoint,
        steps: &Steps,
    ) -> Result<(), String> {
        let own = self.config.topology_of(wanted.writer_hostgroup).switchover_pin_grace;
        let grace = wanted.grace_ms.map_or(own, Duration::from_millis);
        let mut writing = self.wait_writers(from, grace, steps)?;
        if !writing.is_empty() && wanted.force {
            steps.tell(format!("closing {}", in_words(&writing)));
            self.publisher.cut_writers(&from.to_string());
            writing = self.wait_writers(from, CUT_WAIT, steps)?;
        }
        if !writing.is_empty() {
            let hint = if wanted.force { "" } else { " (--force closes them)" };
            return Err(format!("sessions may still write to {from}: {}{hint}", in_words(&writing)));
        }
        steps.tell(format!("waiting until {to} has applied everything"));
        self.wait_caught_up(to)?;
        self.monitor.switch(wanted.writer_hostgroup, to);
        let roles = self.roles.latest();
        let group = roles.group(wanted.writer_hostgroup);
        match group {
            Some(group) if group.writers == [to.clone()] => Ok(()),
            Some(group) => Err(format!("{to} can't be the writer any more: {}", why_not(group, to))),
            None => Err("the cluster is not configured any more".to_owned()),
        }
    }

    /// Waits until nobody may write to a server, for so long; returns who may then.
    fn wait_writers(
        &mut self,
        from: &Endpoint,
        grace: Duration,
        steps: &Steps,
    ) -> Result<Vec<WritingRow>, String> {
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
            self.follow_roles();
            sleep(LOOK_EVERY);
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

    /// Waits until everything that was acknowledged before now is visible on a server.
    fn wait_caught_up(&mut self, to: &Endpoint) -> Result<(), String> {
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns =
            u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0);
        let shared = self.snapshots.registry.server(to);
        let until = Instant::now() + CATCH_UP_WAIT;
        while !shared.covers(now_ns) {
            if Instant::now() >= until {
                return Err(format!("{to} has not applied everything within {} s", CATCH_UP_WAIT.as_secs()));
            }
            self.follow_roles();
            sleep(LOOK_EVERY);
        }
        Ok(())
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
