//! Finishes or undoes a switchover whose Weir has died, or could not go on.
//!
//! ```text
//! the target alone is writable        ─► finished: old writer read_only, all replicate from the target, row removed
//! the old writer alone is writable    ─► undone already: all replicate from it, row removed
//! nobody is, the target has as much   ─► undone: target read_only, all replicate from the old writer, that is made
//!     as the old writer                    writable, row removed
//! nobody is, the target has more      ─► it has been writable: it is made writable again, and finished
//! anything else                       ─► nothing is done, and it is said why
//! ```
//!
//! The row counts where its own server has it: the target's for what is finished, the old writer's for what is undone. A
//! replica that is behind may have one that is over. Each step can be done twice, and the row goes last: whoever dies here
//! leaves what the next one finds.

use std::time::Duration;

use super::steps::{self, Opened};
use super::{Entry, Login, ProcedureError, Server, ServerError, Surroundings, lock_name, majority};
use crate::Endpoint;

/// How long locks of connections that are over, and servers that do not answer, are waited for.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);

/// The recovery of a cluster's unfinished switchover.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// All its servers.
    pub members: Vec<Endpoint>,
    /// A switchover that this Weir has begun itself: then no row is needed.
    pub known: Option<Entry>,
}

/// The outcome of a switchover that was recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// The target is the writer.
    Finished {
        /// The switchover.
        entry: Entry,
        /// What could not be done.
        left: Vec<String>,
    },
    /// The old writer is.
    Undone {
        /// The switchover.
        entry: Entry,
        /// What could not be done.
        left: Vec<String>,
    },
}

/// What has become of a switchover that is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// It is finished or undone now.
    Settled(Settled),
    /// None is written down where that counts: what a replica, or a server that was replaced meanwhile, still has is over.
    NothingToDo,
    /// Another connection has a lock: somebody is at work on these servers.
    Locked,
}

/// Why nothing is done.
enum Obstacle {
    /// Another connection has a lock.
    Locked(ProcedureError),
    Other(ProcedureError),
}

impl From<ProcedureError> for Obstacle {
    fn from(cause: ProcedureError) -> Self {
        Self::Other(cause)
    }
}

/// A server whose lock is held.
struct Found<C> {
    server: C,
    is_read_only: bool,
    row: Option<Entry>,
}

impl Recovery {
    /// The switchover that is written down at one of the servers that answer. Nothing is locked for that.
    pub fn written<S: Surroundings>(&self, around: &mut S) -> Option<Entry> {
        steps::sorted(&self.members).iter().find_map(|member| {
            let row = around.connect(member).and_then(|mut server| server.entry(self.writer_hostgroup));
            row.ok().flatten()
        })
    }

    /// Finishes or undoes a switchover, if one is written down.
    ///
    /// # Errors
    /// Why neither can be done now. Nobody was made writable then, unless that is said.
    pub fn make<S: Surroundings>(&self, around: &mut S) -> Result<Recovered, ProcedureError> {
        match self.try_to(around) {
            Err(Obstacle::Locked(_)) => Ok(Recovered::Locked),
            Err(Obstacle::Other(cause)) => Err(cause),
            Ok(settled) => Ok(settled.map_or(Recovered::NothingToDo, Recovered::Settled)),
        }
    }

    /// The same, tried again for a moment: a connection that is over may still have its lock.
    pub(super) fn make_patiently<S: Surroundings>(
        &self,
        around: &mut S,
    ) -> Result<Option<Settled>, ProcedureError> {
        let until = around.now().0 + steps::millis(PATIENCE);
        loop {
            match self.try_to(around) {
                Err(_) if around.now().0 < until => around.sleep(PAUSE)?,
                Err(Obstacle::Locked(cause) | Obstacle::Other(cause)) => return Err(cause),
                Ok(settled) => return Ok(settled),
            }
        }
    }

    fn try_to<S: Surroundings>(&self, around: &mut S) -> Result<Option<Settled>, Obstacle> {
        let mut found = self.lock_all(around)?;
        let rows = self.rows(&found);
        let writable: Vec<Endpoint> = found
            .iter()
            .filter(|found| !found.is_read_only)
            .map(|found| found.server.endpoint().clone())
            .collect();
        match writable.as_slice() {
            [] => {
                let Some(entry) = begun(&rows)? else { return Ok(None) };
                Ok(self.decide(around, &mut found, entry).map(Some)?)
            }
            [writer] => {
                let is_own = |(on, entry): &&(Endpoint, Entry)| {
                    on == writer && (entry.to == *writer || entry.from == *writer)
                };
                let Some((_, entry)) = rows.iter().find(is_own).cloned() else { return Ok(None) };
                match entry.to == *writer {
                    true => Ok(self.finish(around, &mut found, entry).map(Some)?),
                    false => Ok(Some(self.stay(&mut found, entry))),
                }
            }
            several => {
                let servers = several.iter().map(ToString::to_string).collect();
                Err(ProcedureError::SeveralWritable { servers }.into())
            }
        }
    }

    fn lock_all<S: Surroundings>(&self, around: &mut S) -> Result<Vec<Found<S::Server>>, Obstacle> {
        let (name, mut found, mut causes) = (lock_name(self.writer_hostgroup), Vec::new(), Vec::new());
        let members = steps::sorted(&self.members);
        for member in &members {
            let mut look = || {
                let mut server = around.connect(member)?;
                let is_free = server.lock(&name)?;
                let (is_read_only, row) = (server.is_read_only()?, server.entry(self.writer_hostgroup)?);
                Ok::<_, ServerError>((is_free, Found { server, is_read_only, row }))
            };
            match look() {
                Ok((true, one)) => found.push(one),
                Ok((false, _)) => {
                    let held = ProcedureError::LockHeld { server: member.clone() };
                    return Err(Obstacle::Locked(held));
                }
                Err(cause) => causes.push(cause),
            }
        }
        let majority = majority(members.len());
        if found.len() < majority {
            let locked = found.len();
            return Err(ProcedureError::TooFewLocks { locked, needed: majority, causes }.into());
        }
        Ok(found)
    }

    /// The rows, and who has each.
    fn rows<C: Server>(&self, found: &[Found<C>]) -> Vec<(Endpoint, Entry)> {
        let own =
            found.iter().filter_map(|found| Some((found.server.endpoint().clone(), found.row.clone()?)));
        let mut rows: Vec<(Endpoint, Entry)> = own.collect();
        if let Some(known) = &self.known {
            rows.retain(|(on, _)| *on != known.from && *on != known.to);
            rows.extend([&known.from, &known.to].map(|on| (on.clone(), known.clone())));
        }
        rows
    }

    /// Nobody is writable: who is to be?
    fn decide<S: Surroundings>(
        &self,
        around: &mut S,
        found: &mut [Found<S::Server>],
        entry: Entry,
    ) -> Result<Settled, ProcedureError> {
        let name = lock_name(self.writer_hostgroup);
        let Entry { from, to, .. } = &entry;
        let source_id = at(found, from)?.server.id().to_owned();
        if !at(found, from)?.server.sources()?.is_empty() {
            return Err(ProcedureError::ReplicatesByNow { server: from.clone() });
        }
        let silent = |cause| ProcedureError::TargetSilent { cause: Box::new(cause), from: from.clone() };
        let target = at(found, to).map_err(silent)?;
        match steps::only_source(&mut target.server)? {
            Some(source) if source.link.names(from, &source_id) => {}
            _ => {
                let (server, source_server) = (to.clone(), from.clone());
                return Err(ProcedureError::NotItsReplica { server, source_server });
            }
        }
        self.check_sources(found, &entry)?;
        let target = at(found, to)?;
        // Also where it is: what was sent there before has been done by now.
        steps::set_and_ask(&mut target.server)?;
        let next = target.server.position()?;
        let old = at(found, from)?;
        steps::set_and_ask(&mut old.server)?;
        let last = old.server.position()?;
        let (has_all, has_as_much) = (old.server.covers(&last, &next)?, old.server.covers(&next, &last)?);
        match (has_all, has_as_much) {
            (true, _) => {
                around.tell(format!("the switchover from {from} to {to} is undone"));
                let left = self.follow(found, to, from);
                let start = at(found, to)?;
                start.server.start_replication()?;
                self.open(around, found, from, &name)?;
                Ok(self.undone(found, entry, left))
            }
            (false, true) => {
                around.tell(format!("the switchover from {from} to {to} is finished"));
                let stop = at(found, to)?;
                stop.server.stop_replication()?;
                self.open(around, found, to, &name)?;
                self.finish(around, found, entry)
            }
            (false, false) => {
                let (from, to) = (from.clone(), to.clone());
                let (last, next) = (super::shown(&last), super::shown(&next));
                Err(ProcedureError::Diverged { from, to, last, next })
            }
        }
    }

    /// Nobody has made a third server the source of others since, which may be the writer and not be seen.
    fn check_sources<C: Server>(&self, found: &mut [Found<C>], entry: &Entry) -> Result<(), ProcedureError> {
        let Entry { from, to, .. } = entry;
        let ids: Vec<String> = [from, to]
            .map(|one| at(found, one).map(|one| one.server.id().to_owned()))
            .into_iter()
            .flatten()
            .collect();
        for one in found.iter_mut() {
            let Some(source) = steps::only_source(&mut one.server)? else { continue };
            let of = |(server, id): (&Endpoint, &String)| source.link.names(server, id);
            if !self.members.iter().any(|member| source.link.names(member, ""))
                || [from, to].into_iter().zip(&ids).any(of)
            {
                continue;
            }
            let server = one.server.endpoint().clone();
            return Err(ProcedureError::AnotherSource { server, from: from.clone(), to: to.clone() });
        }
        Ok(())
    }

    /// Makes one writable, where all others say that they are not.
    fn open<S: Surroundings>(
        &self,
        around: &mut S,
        found: &mut [Found<S::Server>],
        writer: &Endpoint,
        name: &str,
    ) -> Result<(), ProcedureError> {
        for one in found.iter_mut() {
            if !one.server.is_read_only()? {
                return Err(ProcedureError::OpenedByAnother { server: one.server.endpoint().clone() });
            }
        }
        match steps::open(around, &mut at(found, writer)?.server, name) {
            Opened::Yes => Ok(()),
            Opened::No(cause) => Err(cause),
            Opened::Unknown(cause) => {
                Err(ProcedureError::MaybeWritable { server: writer.clone(), cause: Box::new(cause) })
            }
        }
    }

    /// The target writes.
    fn finish<S: Surroundings>(
        &self,
        around: &mut S,
        found: &mut [Found<S::Server>],
        entry: Entry,
    ) -> Result<Settled, ProcedureError> {
        let Entry { from, to, .. } = &entry;
        let mut left = self.follow(found, from, to);
        let source = steps::only_source(&mut at(found, to)?.server)?;
        if source.is_some() {
            at(found, to)?.server.forget_source()?;
        }
        let is_tls = source.is_some_and(|source| source.is_tls);
        let login = around.login(to);
        let login = Login { is_tls: login.is_tls || is_tls, ..login };
        left.extend(self.demote(around, found, &entry, &login).err().map(|cause| cause.to_string()));
        if left.is_empty() {
            left.extend(steps::not_done(at(found, to)?.server.strike_out(self.writer_hostgroup)));
        }
        Ok(Settled::Finished { entry, left })
    }

    /// The old writer replicates from the target, if the target has all that it has.
    fn demote<S: Surroundings>(
        &self,
        around: &mut S,
        found: &mut [Found<S::Server>],
        entry: &Entry,
        login: &Login,
    ) -> Result<(), ProcedureError> {
        let Entry { from, to, .. } = entry;
        let old = at(found, from)?;
        steps::set_and_ask(&mut old.server)?;
        if !old.server.sources()?.is_empty() {
            return steps::wait_connected(around, &mut old.server);
        }
        let history = old.server.history()?;
        if let Some(errant) = at(found, to)?.server.lacks(&history)? {
            let errant = super::shown(&errant);
            let (server, writer) = (from.clone(), to.clone());
            return Err(ProcedureError::ErrantOldWriter { server, writer, errant });
        }
        let old = at(found, from)?;
        old.server.become_replica(to, login)?;
        steps::wait_connected(around, &mut old.server)
    }

    /// The old writer writes already.
    fn stay<C: Server>(&self, found: &mut [Found<C>], entry: Entry) -> Settled {
        let Entry { from, to, .. } = &entry;
        let mut left = self.follow(found, to, from);
        let mut start = || -> Result<(), ProcedureError> {
            let source_id = at(found, from)?.server.id().to_owned();
            let target = at(found, to)?;
            let source = steps::only_source(&mut target.server)?;
            let is_ours = |link: &crate::SourceLink| link.names(from, &source_id);
            if source.is_some_and(|source| is_ours(&source.link) && steps::is_stopped(&source)) {
                target.server.start_replication()?;
            }
            Ok(())
        };
        left.extend(start().err().map(|cause| cause.to_string()));
        self.undone(found, entry, left)
    }

    fn undone<C: Server>(&self, found: &mut [Found<C>], entry: Entry, mut left: Vec<String>) -> Settled {
        if left.is_empty() {
            let strike_out = |old: &mut Found<C>| Ok(old.server.strike_out(self.writer_hostgroup)?);
            let struck = at(found, &entry.from).and_then(strike_out);
            left.extend(struck.err().map(|cause: ProcedureError| cause.to_string()));
        }
        Settled::Undone { entry, left }
    }

    /// Those that replicate from one server do so from another one; what could not be done.
    fn follow<C: Server>(&self, found: &mut [Found<C>], before: &Endpoint, next: &Endpoint) -> Vec<String> {
        let id = at(found, before).map(|before| before.server.id().to_owned()).unwrap_or_default();
        let mut left: Vec<String> = self
            .members
            .iter()
            .filter(|member| *member != before && at(found, member).is_err())
            .map(|member| format!("{member} does not answer, and may replicate from {before}"))
            .collect();
        for one in found.iter_mut().filter(|one| one.server.endpoint() != next) {
            let follows = steps::only_source(&mut one.server).and_then(|source| match source {
                Some(source) if source.link.names(before, &id) => Ok(one.server.follow(next)?),
                Some(source) if source.link.names(next, "") && steps::is_stopped(&source) => {
                    Ok(one.server.start_replication()?)
                }
                _ => Ok(()),
            });
            left.extend(follows.err().map(|cause: ProcedureError| cause.to_string()));
        }
        left
    }
}

/// The switchover that was begun, where nobody is writable: as its old writer has it.
fn begun(rows: &[(Endpoint, Entry)]) -> Result<Option<Entry>, ProcedureError> {
    let mut own = rows.iter().filter(|(on, entry)| entry.from == *on).map(|(_, entry)| entry);
    match (own.next(), own.next()) {
        (Some(one), Some(two)) => {
            let (one, two) = (one.from.clone(), two.from.clone());
            Err(ProcedureError::TwoOldWriters { one, two })
        }
        (one, _) => Ok(one.cloned()),
    }
}

fn at<'f, C: Server>(
    found: &'f mut [Found<C>],
    server: &Endpoint,
) -> Result<&'f mut Found<C>, ProcedureError> {
    let one = found.iter_mut().find(|found| found.server.endpoint() == server);
    one.ok_or_else(|| ProcedureError::Silent { server: server.clone() })
}
