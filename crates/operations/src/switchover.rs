//! Moves the writer role to another server, and no application notices (`weir switchover`).
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
//! How the role moves depends on who decides it: see [`monitor`] where Weir does, [`group`] where a Group Replication
//! group does, [`replication`] where servers have to be told. Getting ready finds out what is missing, before anything is
//! held.

mod group;
mod monitor;
mod replication;
mod standing;

use std::sync::mpsc::Sender;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_topology::{Endpoint, Flavour, Group, Reason};

pub(crate) use self::standing::Standing;

use crate::error::SwitchoverError;
use crate::operation_runner::{LOOK_EVERY, OperationRunner};
use crate::peer_agreement::{another_switchover, silent_weirs};
use crate::progress::Progress;
use crate::proxy::WritingSessions;

/// How long sessions take to go that are closed.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// How long sessions take to leave that can take their transactions along.
const MOVE_WAIT: Duration = Duration::from_millis(100);
/// How long it may take until the monitor sees that the role has moved: some looks at each server.
const FOLLOW_WAIT: Duration = Duration::from_secs(10);

/// A planned change of the writer.
#[derive(Debug)]
pub struct SwitchoverOrder {
    /// The cluster's.
    pub writer_hostgroup: u32,
    /// The writer that is to be left: with another one by then the order is void. None: whoever it is.
    pub from: Option<Endpoint>,
    /// None: the best of those who can.
    pub to: Option<Endpoint>,
    /// Close the sessions that would write to the old writer after the grace.
    pub force: bool,
    /// Only show what would be done.
    pub dry_run: bool,
    /// How long transactions and pins on the old writer are waited for; none: as the configuration says.
    pub grace_ms: Option<u64>,
    /// Who gets what `dry_run` finds in parts, besides the sentence.
    pub tell: Option<Sender<SwitchoverPlan>>,
}

impl SwitchoverOrder {
    /// To the best of those who can, gently.
    pub fn of(writer_hostgroup: u32) -> Self {
        Self {
            writer_hostgroup,
            from: None,
            to: None,
            force: false,
            dry_run: false,
            grace_ms: None,
            tell: None,
        }
    }
}

/// The steps that a switchover would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchoverPlan {
    /// Who writes now.
    pub writer: Endpoint,
    /// Who would write.
    pub next_writer: Endpoint,
    /// The sessions that would be waited for, in words.
    pub sessions: String,
}

/// From whom the role moves to whom.
pub(crate) struct Plan<'a> {
    pub(crate) order: &'a SwitchoverOrder,
    pub(crate) progress: &'a Progress,
    flavour: Flavour,
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    /// Other Weirs can be asked.
    pub(crate) is_agreed: bool,
    /// The monitor moves the role: every server can write.
    moved_by_monitor: bool,
    /// How long transactions and pins on the old writer are waited for.
    pub(crate) grace: Duration,
}

/// Whoever moves the role, ready for it.
enum Mover {
    /// The monitor: every server can write.
    Monitor,
    Group(Box<group::Mover>),
    Replication(Box<replication::Mover>),
}

impl OperationRunner {
    /// Moves the writer role. Returns what was done.
    ///
    /// # Errors
    /// Why it was not; then everything is as before.
    pub(crate) fn switchover(
        &self,
        order: &SwitchoverOrder,
        progress: &Progress,
    ) -> Result<String, SwitchoverError> {
        self.wait_until_others_known(order.writer_hostgroup)?;
        let mut plan = self.plan(order, progress)?;
        let mut mover = self.get_ready(&mut plan)?;
        let (hostgroup, Plan { from, to, .. }) = (order.writer_hostgroup, &plan);
        if order.dry_run {
            let sessions = in_words(&self.writing(from)?);
            if let Some(tell) = &order.tell {
                let (writer, next_writer, sessions) = (from.clone(), to.clone(), sessions.clone());
                let _ = tell.send(SwitchoverPlan { writer, next_writer, sessions });
            }
            let others = self.others_in_words(hostgroup);
            return Ok(format!(
                "the writer of hostgroup {hostgroup} would move from {from} to {to}; now there: {sessions}{others}"
            ));
        }
        tracing::info!(hostgroup, %from, %to, force = order.force, "switchover begins");
        progress.tell(format!("{from} -> {to}: new statements are held"));
        let begun = Instant::now();
        let is_held = self.hold(Some(format!("held for a switchover from {from} to {to}")), hostgroup);
        let moved =
            if is_held { self.move_writer(&plan, &mut mover) } else { Err(SwitchoverError::BusyWorker) };
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
                self.context.proxy.log_change(Some(hostgroup), "switchover", reason);
                Ok(format!(
                    "the writer of hostgroup {hostgroup} is {to} (was {from}); statements were held for {held_ms} ms{left}"
                ))
            }
            Err(cause) => {
                tracing::warn!(hostgroup, %from, %to, held_ms, cause = cause.to_string(), "switchover undone");
                let reason = format!("{from} -> {to}: {cause}");
                self.context.proxy.log_change(Some(hostgroup), "switchover undone", reason);
                let is_known = !matches!(cause, SwitchoverError::Undecided { .. });
                let stays = is_known && self.writers(&plan) == [from.clone()];
                let now = if stays {
                    format!("{from} is the writer as before")
                } else {
                    "see `weir status`".to_owned()
                };
                Err(SwitchoverError::Undone { cause: Box::new(cause), held_ms, now })
            }
        }
    }

    /// The other Weirs, of whose sessions nothing is known before they are asked.
    fn others_in_words(&self, hostgroup: u32) -> String {
        let roles = self.context.roles.latest();
        let leadership = roles.group(hostgroup).and_then(|group| group.leadership.as_ref());
        match leadership.map(|leadership| leadership.live.as_slice()).unwrap_or_default() {
            [] => String::new(),
            live => format!("; not counted are sessions of other Weirs ({})", live.join(", ")),
        }
    }

    /// The present writer and the next one.
    fn plan<'p>(
        &self,
        order: &'p SwitchoverOrder,
        progress: &'p Progress,
    ) -> Result<Plan<'p>, SwitchoverError> {
        let hostgroup = order.writer_hostgroup;
        let roles = self.context.roles.latest();
        let group = roles.group(hostgroup).ok_or_else(|| {
            let known = roles.groups.iter().map(|group| group.writer_hostgroup).collect();
            SwitchoverError::NoCluster { hostgroup, known }
        })?;
        let (from, to) = ends(order, group)?;
        if let Some(cause) = another_switchover(group, &self.context.instance) {
            return Err(cause);
        }
        if let (Some(_), Some(trouble)) = (&group.leadership, &group.epoch_trouble) {
            return Err(SwitchoverError::OthersUntold { trouble: trouble.to_string() });
        }
        if let Some((names, seconds)) = silent_weirs(group) {
            return Err(SwitchoverError::SilentWeirs { names, seconds, from });
        }
        let own = self.context.config.topology_of(hostgroup).switchover_pin_grace;
        let grace = order.grace_ms.map_or(own, Duration::from_millis);
        let is_agreed = group.leadership.is_some();
        let (flavour, moved_by_monitor) = (group.flavour, false);
        Ok(Plan { order, progress, flavour, from, to, is_agreed, moved_by_monitor, grace })
    }

    /// Everything that can be missing is looked for here.
    fn get_ready(&self, plan: &mut Plan<'_>) -> Result<Mover, SwitchoverError> {
        let mover = match plan.flavour {
            Flavour::Galera => Mover::Monitor,
            Flavour::GroupReplication if self.has_several_primaries(plan) => Mover::Monitor,
            Flavour::GroupReplication => self.group_mover(plan).map(Box::new).map(Mover::Group)?,
            Flavour::Replication => self.first_fit(plan).map(Box::new).map(Mover::Replication)?,
        };
        plan.moved_by_monitor = matches!(mover, Mover::Monitor);
        Ok(mover)
    }

    /// Statements of the writers' hostgroup wait, or no longer. When this returns, all workers go by it; false if one
    /// has not answered.
    fn hold(&self, because: Option<String>, hostgroup: u32) -> bool {
        let proxy = &self.context.proxy;
        proxy.hold(hostgroup, because).is_ok() && proxy.settle()
    }

    /// What happens while statements are held.
    fn move_writer(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), SwitchoverError> {
        self.ask_others(plan);
        let moved = self.move_when_clear(plan, mover);
        self.context.planner.switch_ends(plan.order.writer_hostgroup);
        moved
    }

    fn move_when_clear(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), SwitchoverError> {
        self.wait_until_nobody_writes(plan)?;
        self.wait_others(plan)?;
        match mover {
            Mover::Monitor => self.move_with_monitor(plan),
            Mover::Group(mover) => self.move_with_group(plan, mover),
            Mover::Replication(mover) => self.move_replication(plan, mover),
        }
    }

    /// What happens after statements have been released. Returns what could not be done.
    fn finish(&self, plan: &Plan<'_>, mover: Mover) -> Vec<String> {
        match mover {
            Mover::Monitor | Mover::Group(_) => Vec::new(),
            Mover::Replication(mover) => self.follow_new_source(plan, *mover),
        }
    }

    /// Before this has returned, sessions may write to the old writer.
    fn wait_until_nobody_writes(&self, plan: &Plan<'_>) -> Result<(), SwitchoverError> {
        let Plan { order, from, progress, .. } = plan;
        let mut writing = self.wait_writers(plan, plan.grace)?;
        // Transactions that can run again at the next writer leave. Where none does, nobody is held any longer.
        let mut before = u64::MAX;
        while !writing.is_empty() && sessions_of(&writing) < before {
            before = sessions_of(&writing);
            self.context.proxy.move_writers(from);
            writing = self.wait_writers(plan, MOVE_WAIT)?;
        }
        if !writing.is_empty() && order.force {
            progress.tell(format!("closing {}", in_words(&writing)));
            self.context.proxy.close_writers(from);
            writing = self.wait_writers(plan, CUT_WAIT)?;
        }
        if writing.is_empty() {
            return Ok(());
        }
        let sessions = in_words(&writing);
        Err(SwitchoverError::SessionsWrite { from: from.clone(), sessions, is_forced: order.force })
    }

    /// The writers of now.
    fn writers(&self, plan: &Plan<'_>) -> Vec<Endpoint> {
        let roles = self.context.roles.latest();
        roles.group(plan.order.writer_hostgroup).map(|group| group.writers.clone()).unwrap_or_default()
    }

    /// Waits until the monitor has seen that another server writes now.
    fn wait_writer(&self, plan: &Plan<'_>, server: &Endpoint) -> Result<(), SwitchoverError> {
        self.wait_writer_while(plan, server, |_| Ok(()))
    }

    /// The same, as long as that is still possible.
    fn wait_writer_while(
        &self,
        plan: &Plan<'_>,
        server: &Endpoint,
        is_possible: impl Fn(&Group) -> Result<(), SwitchoverError>,
    ) -> Result<(), SwitchoverError> {
        let until = Instant::now() + FOLLOW_WAIT;
        loop {
            let roles = self.context.roles.latest();
            let group = roles.group(plan.order.writer_hostgroup).ok_or(SwitchoverError::NotConfigured)?;
            if group.writers == [server.clone()] {
                return Ok(());
            }
            is_possible(group)?;
            if Instant::now() >= until {
                let why = why_not(group, server);
                let (server, seconds) = (server.clone(), FOLLOW_WAIT.as_secs());
                return Err(SwitchoverError::NotSeen { server, seconds, why });
            }
            self.context.reporter.suspect(&plan.from);
            self.context.reporter.suspect(&plan.to);
            sleep(LOOK_EVERY);
        }
    }

    /// Waits until nobody may write to the old writer, for so long; returns who may then. Nobody need leave where the role has
    /// moved to the target already.
    fn wait_writers(
        &self,
        plan: &Plan<'_>,
        grace: Duration,
    ) -> Result<Vec<WritingSessions>, SwitchoverError> {
        let Plan { from, progress, .. } = plan;
        let until = Instant::now() + grace;
        let mut told = Vec::new();
        loop {
            // First: whoever is closed for it must be so for an order that stands.
            if self.standing(plan)? == Standing::Made {
                return Ok(Vec::new());
            }
            let writing = self.writing(from)?;
            if writing.is_empty() || Instant::now() >= until {
                return Ok(writing);
            }
            if writing != told {
                progress.tell(format!("waiting for {}", in_words(&writing)));
                told = writing;
            }
            self.look_again()?;
        }
    }

    /// Sessions that may write to a server.
    ///
    /// # Errors
    /// When a worker does not answer: then nobody knows.
    fn writing(&self, server: &Endpoint) -> Result<Vec<WritingSessions>, SwitchoverError> {
        let rows = self.context.proxy.writing(server).ok_or(SwitchoverError::BusyWorker)?;
        let mut sums: Vec<WritingSessions> = Vec::new();
        for row in rows {
            match sums.iter_mut().find(|sum| sum.because == row.because) {
                Some(sum) => sum.sessions += row.sessions,
                None => sums.push(row),
            }
        }
        sums.sort();
        Ok(sums)
    }
}

/// From whom an order moves the role to whom, as things are now.
fn ends(order: &SwitchoverOrder, group: &Group) -> Result<(Endpoint, Endpoint), SwitchoverError> {
    let from = match group.writers.as_slice() {
        [writer] => writer.clone(),
        [] => return Err(SwitchoverError::NoWriter { reasons: all_reasons(group) }),
        _ => return Err(SwitchoverError::SeveralWriters),
    };
    if let Some(wanted) = order.from.as_ref().filter(|wanted| **wanted != from) {
        return Err(SwitchoverError::MovedMeanwhile { from: wanted.clone(), to: from });
    }
    let to = match &order.to {
        Some(to) if *to == from => return Err(SwitchoverError::IsWriter(from)),
        Some(to) if group.successors.contains(to) => to.clone(),
        Some(to) => return Err(SwitchoverError::CannotWrite { to: to.clone(), why: why_not(group, to) }),
        None => {
            let first = group.successors.first().cloned();
            first.ok_or_else(|| SwitchoverError::NoTarget { reasons: all_reasons(group) })?
        }
    };
    Ok((from, to))
}

/// Why a server can't have the role, in words.
pub(crate) fn why_not(group: &Group, server: &Endpoint) -> String {
    let known = group.cannot_write.iter().find(|(known, _)| known == server);
    known.map_or_else(|| "it is not in this cluster".to_owned(), |(_, why)| why.to_string())
}

/// Why nobody but the writer can have the role.
fn all_reasons(group: &Group) -> String {
    let because = |(server, why): &(Endpoint, Reason)| format!("{server}: {why}");
    let reasons: Vec<String> = group.cannot_write.iter().map(because).collect();
    if reasons.is_empty() { "no server is known yet".to_owned() } else { reasons.join(", ") }
}

fn sessions_of(writing: &[WritingSessions]) -> u64 {
    writing.iter().map(|row| row.sessions).sum()
}

/// "2 sessions (transaction), 1 session (temporary_table)".
fn in_words(writing: &[WritingSessions]) -> String {
    let words = |row: &WritingSessions| {
        let noun = if row.sessions == 1 { "session" } else { "sessions" };
        format!("{} {noun} ({})", row.sessions, row.because)
    };
    let words: Vec<String> = writing.iter().map(words).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_void_that_was_to_leave_another_writer() {
        let server = |host: &str| Endpoint::new(host, 3306);
        let group = Group {
            writers: vec![server("a")],
            successors: vec![server("b"), server("c")],
            ..Group::default()
        };
        let look = |from: Option<&str>, to: Option<&str>| {
            let (from, to) = (from.map(server), to.map(server));
            let order = SwitchoverOrder { from, to, ..SwitchoverOrder::of(10) };
            match ends(&order, &group) {
                Ok((from, to)) => format!("{} -> {}", from.host, to.host),
                Err(cause) => cause.to_string(),
            }
        };
        assert_eq!(look(None, Some("c")), "a -> c");
        assert_eq!(look(Some("a"), None), "a -> b");
        let moved = "the writer role has moved from b:3306 to a:3306 meanwhile";
        assert_eq!(
            [look(Some("b"), Some("c")), look(Some("b"), None), look(Some("b"), Some("a"))],
            [moved; 3]
        );
    }
}
