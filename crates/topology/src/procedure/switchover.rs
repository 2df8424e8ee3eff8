//! Moves the writer role to a replica while Weir holds statements.
//!
//! ```text
//! held:      locks ─► look again ─► journal ─► old writer read_only ─► target has its position ─► target stops
//!            ─► the others replicate from the target ─► look again ─► target writes
//! released:  the target forgets its source ─► the old writer replicates from it ─► journal
//! ```
//!
//! Before anything is held the target has applied what the writer had when the switchover began. Replicas that have not, as
//! one whose tables are locked, are told of the new source when statements go on: nobody waits for them.
//!
//! Until the target may be writable each step has its reverse, and after that there is no way back: the target may have
//! taken writes of other Weirs. What can't be undone over the connections that hold the locks is left to
//! [`super::Recovery`], at once and later.

use std::time::Duration;

use super::recovery::{Recovery, Settled};
use super::steps::{self, Opened};
use super::{Entry, Login, ProcedureError, Server, ServerError, Source, Surroundings, lock_name, majority};
use crate::Endpoint;

/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);

/// How long another replica may take for that before it counts as late.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// From whom the role moves to whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The writer.
    pub from: Endpoint,
    /// The next one.
    pub to: Endpoint,
    /// All servers of the cluster.
    pub members: Vec<Endpoint>,
    /// This Weir.
    pub instance: String,
}

/// A switchover that is ready: it has connections to all servers that are told something.
pub struct Switchover<C> {
    plan: Plan,
    lock: String,
    from: C,
    to: C,
    /// How the target replicated.
    source: Source,
    /// The other servers that can be asked.
    others: Vec<Other<C>>,
    /// The old writer's, when it is read_only.
    position: String,
    is_journaled: bool,
    reached: Reached,
    /// What the user has to see to.
    left: Vec<String>,
}

struct Other<C> {
    server: C,
    /// It replicates from the old writer.
    is_replica: bool,
    /// It is told when statements go on.
    is_late: bool,
    /// It has been told to replicate from the target.
    is_moved: bool,
}

/// The progress of a switchover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Nothing,
    /// The old writer may be read_only.
    Closed,
    /// The target may have stopped to replicate.
    Stopped,
    /// The target may be writable.
    Opened,
}

/// A switchover whose target writes.
pub struct Moved<C>(Last<C>);

enum Last<C> {
    /// The rest is to be done.
    Here(Box<Switchover<C>>),
    /// It was done over new connections; what is left.
    Elsewhere(Vec<String>),
}

/// A switchover that was not made.
#[derive(Clone, Debug)]
pub struct Undone {
    /// Why, and what is left.
    pub cause: ProcedureError,
    /// The old writer writes.
    pub is_as_before: bool,
}

impl<C: Server> Switchover<C> {
    /// Logs in everywhere, and sees whether the target can follow and the account may do everything.
    ///
    /// # Errors
    /// What is missing.
    pub fn prepare<S: Surroundings<Server = C>>(around: &mut S, plan: Plan) -> Result<Self, ProcedureError> {
        let mut from = around.connect(&plan.from)?;
        let mut to = around.connect(&plan.to)?;
        from.check_privileges()?;
        to.check_privileges()?;
        let source = check_pair(&mut from, &mut to)?;
        let position = from.position()?;
        to.wait_for(&position, CATCH_UP_WAIT)?;
        let (mut others, mut left) = (Vec::new(), Vec::new());
        for other in steps::sorted(&plan.members) {
            if other == plan.from || other == plan.to {
                continue;
            }
            match around.connect(&other) {
                Ok(mut server) => {
                    let sources = server.sources()?;
                    let is_replica = matches!(&*sources, [source] if source.id == from.id());
                    if is_replica {
                        server.check_privileges()?;
                    } else {
                        left.push(format!("{other} replicates from elsewhere and is left alone"));
                    }
                    let is_late = is_replica && server.wait_for(&position, LATE_AFTER).is_err();
                    others.push(Other { server, is_replica, is_late, is_moved: false });
                }
                Err(cause) => {
                    left.push(format!("{other} could not be made a replica of the new writer ({cause})"))
                }
            }
        }
        let lock = lock_name(plan.writer_hostgroup);
        Ok(Self {
            plan,
            lock,
            from,
            to,
            source,
            others,
            position: String::new(),
            is_journaled: false,
            reached: Reached::Nothing,
            left,
        })
    }

    /// Moves the role; this Weir has nobody write to the old writer meanwhile. Afterwards the target writes.
    ///
    /// # Errors
    /// Why it was undone, or what is left of it.
    pub fn make<S: Surroundings<Server = C>>(mut self, around: &mut S) -> Result<Moved<C>, Undone> {
        let Err(cause) = self.forward(around) else { return Ok(Moved(Last::Here(Box::new(self)))) };
        if self.reached == Reached::Nothing {
            let left = if self.is_journaled { steps::not_done(self.strike_out()) } else { None };
            let left = left.into_iter().collect();
            return Err(Undone { cause: cause.with(left), is_as_before: true });
        }
        match self.go_back() {
            Ok(left) => Err(Undone { cause: cause.with(left), is_as_before: true }),
            Err(obstacle) => self.settle(around, cause, obstacle).map(|left| Moved(Last::Elsewhere(left))),
        }
    }

    fn forward<S: Surroundings<Server = C>>(&mut self, around: &mut S) -> Result<(), ProcedureError> {
        self.lock_all()?;
        self.look_again()?;
        let entry = self.entry();
        let Plan { from, to, .. } = &self.plan;
        // Also if there is no answer.
        self.is_journaled = true;
        if let Some(lacking) = self.from.enter(&entry)? {
            self.is_journaled = false;
            around.tell(format!(
                "if this Weir dies, no other one can finish the switchover, because it can't be recorded: {lacking}"
            ));
        }
        around.tell(format!("{from} is made read_only"));
        self.reached = Reached::Closed;
        steps::set_and_ask(&mut self.from)?;
        around.tell(format!("waiting until {to} has applied everything"));
        self.position = self.from.position()?;
        self.to.wait_for(&self.position, CATCH_UP_WAIT)?;
        self.reached = Reached::Stopped;
        self.to.stop_replication()?;
        if self.from.position()? != self.position {
            return Err(ProcedureError::WrittenBesideWeir { server: from.clone() });
        }
        for other in self.others.iter_mut().filter(|other| other.is_replica && !other.is_late) {
            other.is_moved = true;
            self.left.extend(steps::not_done(other.server.follow(to)));
        }
        // The one that is to write first: its lock is the first to be lost by silence.
        self.check_closed()?;
        self.reached = Reached::Opened;
        match steps::open(around, &mut self.to, &self.lock) {
            Opened::Yes => Ok(()),
            Opened::No(cause) => {
                self.reached = Reached::Stopped;
                Err(cause)
            }
            Opened::Unknown(cause) => Err(cause),
        }
    }

    fn finish<S: Surroundings<Server = C>>(mut self, around: &mut S) -> Vec<String> {
        let mut left = std::mem::take(&mut self.left);
        left.extend(steps::not_done(self.to.forget_source()));
        for other in self.others.iter_mut().filter(|other| other.is_late) {
            left.extend(steps::not_done(other.server.follow(&self.plan.to)));
        }
        let login = Login { is_tls: self.source.is_tls, ..around.login(&self.plan.to) };
        let begun = self.from.become_replica(&self.plan.to, &login);
        let begun = begun.map_err(ProcedureError::from);
        match begun.and_then(|()| steps::wait_connected(around, &mut self.from)) {
            Err(error) => {
                left.push(format!("{} is read_only and does not replicate yet: {error}", self.plan.from));
            }
            // The row is there for as long as somebody else may have to finish this.
            Ok(()) if self.is_journaled && left.is_empty() => {
                left.extend(steps::not_done(self.to.strike_out(self.plan.writer_hostgroup)));
            }
            Ok(()) => {}
        }
        left
    }

    /// In the order that all Weirs have.
    fn lock_all(&mut self) -> Result<(), ProcedureError> {
        let mut all: Vec<&mut C> = vec![&mut self.from, &mut self.to];
        all.extend(self.others.iter_mut().map(|other| &mut other.server));
        all.sort_by(|one, two| one.endpoint().cmp(two.endpoint()));
        let pair = [&self.plan.from, &self.plan.to];
        let mut locked = 0;
        for server in all {
            match server.lock(&self.lock) {
                Ok(true) => locked += 1,
                Ok(false) => {
                    return Err(ProcedureError::LockHeld { server: server.endpoint().clone() });
                }
                Err(cause) if pair.contains(&server.endpoint()) => return Err(cause.into()),
                Err(_) => {}
            }
        }
        let majority = majority(steps::sorted(&self.plan.members).len());
        if locked < majority {
            return Err(ProcedureError::TooFewLocks { locked, needed: majority, causes: Vec::new() });
        }
        Ok(())
    }

    /// What was known may have changed since, before there was the lock.
    fn look_again(&mut self) -> Result<(), ProcedureError> {
        if self.from.is_read_only()? {
            return Err(ProcedureError::WritesNoMore { server: self.plan.from.clone() });
        }
        self.source = check_pair(&mut self.from, &mut self.to)?;
        self.check_others()?;
        match self.to.is_read_only()? {
            true => Ok(()),
            false => Err(ProcedureError::WritableAlready { server: self.plan.to.clone() }),
        }
    }

    /// Nobody else is writable; how many of the others are still locked.
    fn check_others(&mut self) -> Result<usize, ProcedureError> {
        let mut locked = 0;
        for other in &mut self.others {
            match other.server.is_read_only() {
                Ok(true) => locked += 1,
                Ok(false) => {
                    return Err(ProcedureError::WritableToo { server: other.server.endpoint().clone() });
                }
                Err(_) => {}
            }
        }
        Ok(locked)
    }

    /// All that were locked still are, and nobody is writable.
    fn check_closed(&mut self) -> Result<(), ProcedureError> {
        if !self.to.is_read_only()? {
            return Err(ProcedureError::OpenedByAnother { server: self.plan.to.clone() });
        }
        let locked = self.check_others()? + 2;
        let majority = majority(steps::sorted(&self.plan.members).len());
        if locked < majority {
            return Err(ProcedureError::LocksLost { locked, needed: majority });
        }
        match self.from.is_read_only()? {
            true => Ok(()),
            false => Err(ProcedureError::OpenedByAnother { server: self.plan.from.clone() }),
        }
    }

    /// Undoes what was done, over the connections by which it was. Returns what could not be undone beside the old
    /// writer.
    ///
    /// # Errors
    /// Why the old writer must not be made writable: it is not certain that nobody else is, or will be.
    fn go_back(&mut self) -> Result<Vec<String>, ProcedureError> {
        let Plan { from, to, members, .. } = &self.plan;
        if self.reached == Reached::Opened {
            return Err(ProcedureError::MaybeWritableTarget { server: to.clone() });
        }
        let mut left = Vec::new();
        for other in self.others.iter_mut().filter(|other| other.is_moved) {
            left.extend(steps::not_done(other.server.follow(from)));
        }
        if self.reached == Reached::Stopped {
            left.extend(steps::not_done(self.to.start_replication()));
        }
        let count = steps::sorted(members).len();
        let blocking = count - majority(count) + 1;
        // Whoever can't be asked has not been told to be writable by us, and by nobody else who needs these locks.
        let target = match self.to.is_read_only() {
            Ok(true) => 1,
            Ok(false) => return Err(ProcedureError::Writable { server: to.clone() }),
            Err(_) => 0,
        };
        let locked = 1 + target + self.check_others()?;
        if locked < blocking {
            return Err(ProcedureError::LocksLost { locked, needed: blocking });
        }
        self.from.set_read_only(false)?;
        if self.from.is_read_only()? {
            return Err(ProcedureError::StillReadOnly { server: self.plan.from.clone() });
        }
        // The row is there for as long as somebody else may have to see to the replicas.
        if self.is_journaled && left.is_empty() {
            left.extend(steps::not_done(self.strike_out()));
        }
        Ok(left)
    }

    fn strike_out(&mut self) -> Result<(), ServerError> {
        self.from.strike_out(self.plan.writer_hostgroup)
    }

    /// Finishes or undoes it over new connections: what a Weir does that finds it. Returns what is left if the target is
    /// the writer then.
    fn settle<S: Surroundings<Server = C>>(
        self,
        around: &mut S,
        cause: ProcedureError,
        obstacle: ProcedureError,
    ) -> Result<Vec<String>, Undone> {
        let entry = self.entry();
        let (is_journaled, members) = (self.is_journaled, self.plan.members.clone());
        // The locks are on the old connections.
        drop(self);
        let Entry { writer_hostgroup, from, to, .. } = entry.clone();
        let recovery = Recovery { writer_hostgroup, members, known: Some(entry) };
        match recovery.make_patiently(around) {
            Ok(Some(Settled::Undone { left, .. })) => {
                Err(Undone { cause: cause.with(left), is_as_before: true })
            }
            Ok(Some(Settled::Finished { left, .. })) => Ok(left),
            Ok(None) => {
                let (cause, obstacle) = (Box::new(cause), Box::new(obstacle));
                let cause = ProcedureError::LeftToAnother { cause, obstacle };
                Err(Undone { cause, is_as_before: false })
            }
            Err(why) => {
                let hint = match is_journaled {
                    true => "Weir finishes or undoes it as soon as both answer".to_owned(),
                    false => format!(
                        "if {to} is writable, have the others replicate from it; if it is read_only, start its \
                         replication and make {from} writable"
                    ),
                };
                let (cause, obstacle, why) = (Box::new(cause), Box::new(obstacle), Box::new(why));
                let cause = ProcedureError::HalfMade { cause, obstacle, from, why, hint };
                Err(Undone { cause, is_as_before: false })
            }
        }
    }

    fn entry(&self) -> Entry {
        let Plan { from, to, writer_hostgroup, instance, .. } = self.plan.clone();
        Entry { writer_hostgroup, from, to, by_instance: instance }
    }
}

impl<C: Server> Moved<C> {
    /// What is left to do when statements go on. Returns what could not be done.
    pub fn finish<S: Surroundings<Server = C>>(self, around: &mut S) -> Vec<String> {
        match self.0 {
            Last::Here(switchover) => switchover.finish(around),
            Last::Elsewhere(left) => left,
        }
    }
}

/// The target replicates from the writer, and from nobody else, and the writer from nobody.
fn check_pair<C: Server>(from: &mut C, to: &mut C) -> Result<Source, ProcedureError> {
    if !from.sources()?.is_empty() {
        return Err(ProcedureError::IsReplica { server: from.endpoint().clone() });
    }
    let sources = to.sources()?;
    let (from, to) = (&*from, &*to);
    match <[Source; 1]>::try_from(sources) {
        Ok([source]) if source.id == from.id() && source.is_fit => Ok(source),
        Ok([source]) if source.id == from.id() => {
            let error = if source.error.is_empty() { "it does not run".to_owned() } else { source.error };
            Err(ProcedureError::Unfit { server: to.endpoint().clone(), error })
        }
        Ok(_) => {
            let (server, source_server) = (to.endpoint().clone(), from.endpoint().clone());
            Err(ProcedureError::NotItsReplica { server, source_server })
        }
        Err(sources) => Err(ProcedureError::NotItsReplicaAlone {
            server: to.endpoint().clone(),
            sources: sources.len(),
            source_server: from.endpoint().clone(),
        }),
    }
}
