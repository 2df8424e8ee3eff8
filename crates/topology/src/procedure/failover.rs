//! Makes a replica the writer in the place of one that is lost (`auto_failover`).
//!
//! ```text
//! more than half of the servers are locked ─► who has received most? ─► it applies that ─► the others replicate
//!     from it ─► together they are more than half ─► it receives no more, and is made writable
//! ```
//!
//! Whoever dies on the way leaves servers that are read_only, and more than half of them still say, or get their data from
//! one that says, that the writer is lost; the next one begins again. Only who dies within the last step leaves a replica
//! that is stopped: as after a STOP by hand, nothing is done until somebody starts it.
//!
//! Acknowledged writes that no replica has received are lost. What came after the position that is told stays on the old
//! writer: if it has such transactions it is never made a replica by force.

use std::cmp::Reverse;
use std::time::Duration;

use super::steps::{self, Opened};
use super::{ProcedureError, Server, ServerError, Source, Surroundings, lock_name, shown};
use crate::{Endpoint, Link, SourceLink};

/// How long the next writer may take to apply what it has received.
const APPLY_WAIT: Duration = Duration::from_secs(45);
/// It is asked so often meanwhile whether it has, in less time than an answer may take.
const APPLY_SLICE: Duration = Duration::from_secs(2);

/// Another server than the lost one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which one.
    pub server: Endpoint,
    /// Of equal ones the greatest is preferred. None: it has a vote, and is not to be the writer.
    pub weight: Option<u32>,
}

/// A failover that is to be made.
#[derive(Clone, Debug)]
pub struct Failover {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// How many servers must have lost the writer.
    pub majority: usize,
    /// The writer.
    pub lost: Endpoint,
    /// How replicas name it.
    pub id: String,
    /// The other servers.
    pub others: Vec<Candidate>,
}

/// A replica of the lost writer, locked.
struct Replica<C> {
    server: C,
    source: Source,
    /// None: it is not to be the writer.
    weight: Option<u32>,
    received: String,
}

/// The replicas that are locked, and what is left to do.
type Gathered<C> = (Vec<Replica<C>>, Vec<String>);

/// The end of a move that was not made.
enum Stuck {
    /// It can be undone.
    Before(ProcedureError),
    /// The next writer may be writable.
    May(ProcedureError),
}

impl From<ServerError> for Stuck {
    fn from(cause: ServerError) -> Self {
        Self::Before(cause.into())
    }
}

impl From<ProcedureError> for Stuck {
    fn from(cause: ProcedureError) -> Self {
        Self::Before(cause)
    }
}

impl Failover {
    /// Returns what was done and what is left to do.
    ///
    /// # Errors
    /// Why it was not done, and what could not be undone.
    pub fn make<S: Surroundings>(&self, around: &mut S) -> Result<String, ProcedureError> {
        if around.is_there(&self.lost) {
            return Err(ProcedureError::WriterAnswers { server: self.lost.clone() });
        }
        let (mut replicas, mut left) = self.gather(around)?;
        let best = best(&mut replicas)?;
        let mut to = replicas.swap_remove(best);
        self.apply(around, &mut to)?;
        let (mut undo, endpoint) = (Vec::new(), to.server.endpoint().clone());
        match self.move_to(around, &mut to, &mut replicas, &mut undo) {
            Ok(()) => {}
            Err(Stuck::May(cause)) => {
                return Err(ProcedureError::MaybeWritableSource { server: endpoint, cause: Box::new(cause) });
            }
            Err(Stuck::Before(cause)) => {
                for at in undo {
                    let Some(Replica { server, source, .. }) = replicas.get_mut(at) else { continue };
                    let back = source.link.endpoint.as_ref().unwrap_or(&self.lost);
                    left.extend(steps::not_done(server.follow(back)));
                }
                left.extend(steps::not_done(to.server.start_replication()));
                return Err(cause.with(left));
            }
        }
        left.extend(steps::not_done(to.server.forget_source()));
        // A switchover that the lost one was in is over.
        if to.server.entry(self.writer_hostgroup).is_ok_and(|row| row.is_some()) {
            left.extend(steps::not_done(to.server.strike_out(self.writer_hostgroup)));
        }
        let left: String = left.iter().map(|left| format!("; {left}")).collect();
        Ok(format!(
            "{endpoint} is the new writer in place of {}, which is lost; acknowledged writes beyond {} are lost{left}",
            self.lost,
            shown(&to.received)
        ))
    }

    /// Locks all that can be reached, and looks again whether the writer is lost for more than half.
    fn gather<S: Surroundings>(&self, around: &mut S) -> Result<Gathered<S::Server>, ProcedureError> {
        let (lock, mut replicas, mut left) = (lock_name(self.writer_hostgroup), Vec::new(), Vec::new());
        let mut others = self.others.clone();
        others.sort_by(|one, two| one.server.cmp(&two.server));
        for other in others {
            let mut server = match around.connect(&other.server) {
                Ok(server) => server,
                Err(cause) => {
                    left.push(format!(
                        "{} could not be made a replica of the new writer ({cause})",
                        other.server
                    ));
                    continue;
                }
            };
            steps::lock(&mut server, &lock)?;
            server.check_privileges()?;
            if !server.is_read_only()? {
                return Err(ProcedureError::MaybeNextWriter { server: other.server });
            }
            match <[Source; 1]>::try_from(server.sources()?) {
                Ok([source]) if other.weight.is_none() && source.link.link == Link::Idle => {
                    left.push(format!(
                        "{} is drained and its replication stopped: it is left alone",
                        other.server
                    ));
                }
                Ok([source]) if source.has_positions && self.is_of_cluster(&source) => {
                    let received = server.received(&source)?;
                    replicas.push(Replica { server, source, weight: other.weight, received });
                }
                _ => left.push(format!(
                    "{} replicates from elsewhere, or not by GTID, and is left alone",
                    other.server
                )),
            }
        }
        if let Some(replica) = replicas.iter().find(|replica| self.is_source(replica, Link::Up)) {
            let (server, lost) = (replica.server.endpoint().clone(), self.lost.clone());
            return Err(ProcedureError::StillReceives { server, lost });
        }
        // A source that can't be looked at may have been made the writer already.
        let is_gathered =
            |link: &SourceLink| replicas.iter().any(|other| link.names(other.server.endpoint(), ""));
        let is_cut_off = |replica: &&Replica<S::Server>| {
            self.is_source(replica, Link::Down) || is_gathered(&replica.source.link)
        };
        let votes = replicas.iter().filter(is_cut_off).count();
        if votes < self.majority {
            let (lost, needed) = (self.lost.clone(), self.majority);
            return Err(ProcedureError::TooFewVotes { votes, lost, needed, left });
        }
        Ok((replicas, left))
    }

    /// Of the lost one, or of another server of the cluster, as somebody who died on the way may have left it; that one
    /// counts only if it is locked, too, and read_only.
    fn is_of_cluster(&self, source: &Source) -> bool {
        source.link.names(&self.lost, &self.id)
            || self.others.iter().any(|other| source.link.names(&other.server, ""))
    }

    fn is_source<C>(&self, replica: &Replica<C>, link: Link) -> bool {
        replica.source.link.names(&self.lost, &self.id) && replica.source.link.link == link
    }

    /// Applying takes a while, in which the lost one may have come back. By a replica that receives from it again other
    /// Weirs know it for the writer, and go by that for some time although the replica is stopped.
    fn is_still_lost_to<C: Server>(&self, replica: &mut Replica<C>) -> Result<(), ProcedureError> {
        let receives =
            |source: &Source| source.link.link == Link::Up && source.link.names(&self.lost, &self.id);
        match replica.server.sources()?.iter().any(receives) {
            true => Err(self.receives_again(&replica.server)),
            false => Ok(()),
        }
    }

    fn receives_again(&self, server: &impl Server) -> ProcedureError {
        ProcedureError::ReceivesAgain { server: server.endpoint().clone(), lost: self.lost.clone() }
    }

    /// Waits until all is applied that was received.
    fn apply<S: Surroundings>(
        &self,
        around: &mut S,
        to: &mut Replica<S::Server>,
    ) -> Result<(), ProcedureError> {
        if !to.source.applies {
            let (server, error) = (to.server.endpoint().clone(), to.source.error.clone());
            return Err(ProcedureError::AppliesNothing { server, error });
        }
        let until = around.now().0 + steps::millis(APPLY_WAIT);
        while let Err(cause) = to.server.wait_for(&to.received, APPLY_SLICE) {
            if around.now().0 >= until {
                return Err(ProcedureError::AppliesTooSlowly { cause, seconds: APPLY_WAIT.as_secs() });
            }
            let sources = to.server.sources()?;
            if sources.iter().any(|source| source.link.link == Link::Up) {
                return Err(self.receives_again(&to.server));
            }
            around.sleep(super::LOOK_EVERY)?;
        }
        Ok(())
    }

    /// The order matters: until the last moment the next writer itself says that its source is lost, and when it is made
    /// writable, more than half replicate from it already, itself included, and nothing comes from the lost one any more.
    /// `undo` gets those that replicate from it.
    fn move_to<S: Surroundings>(
        &self,
        around: &mut S,
        to: &mut Replica<S::Server>,
        replicas: &mut [Replica<S::Server>],
        undo: &mut Vec<usize>,
    ) -> Result<(), Stuck> {
        for (at, replica) in replicas.iter_mut().enumerate() {
            self.is_still_lost_to(replica)?;
            replica.server.stop_receiving()?;
            undo.push(at);
            replica.look_again()?;
            replica.server.follow(to.server.endpoint())?;
        }
        if undo.len() + 1 < self.majority {
            let (replicas, target) = (undo.len(), to.server.endpoint().clone());
            return Err(ProcedureError::TooFewReplicas { replicas, target, needed: self.majority - 1 }.into());
        }
        // Over the connections that have the locks.
        for replica in replicas.iter_mut() {
            if !replica.server.is_read_only()? {
                return Err(ProcedureError::Writable { server: replica.server.endpoint().clone() }.into());
            }
        }
        self.is_still_lost_to(to)?;
        to.server.stop_replication()?;
        to.look_again()?;
        match steps::open(around, &mut to.server, &lock_name(self.writer_hostgroup)) {
            Opened::Yes => Ok(()),
            Opened::No(cause) => Err(Stuck::Before(cause)),
            Opened::Unknown(cause) => Err(Stuck::May(cause)),
        }
    }
}

/// The one that has received most: all that any has. Of equal ones one that can stop at once, then that with the greatest
/// weight, then by name; none that the user keeps from work.
fn best<C: Server>(replicas: &mut [Replica<C>]) -> Result<usize, ProcedureError> {
    let mut order = Vec::new();
    for (at, replica) in replicas.iter_mut().enumerate().filter(|(_, replica)| replica.weight.is_some()) {
        let has_part = replica.server.has_part_beyond(&replica.received)?;
        order.push((has_part, Reverse(replica.weight), replica.server.endpoint().clone(), at));
    }
    order.sort();
    let received: Vec<String> = replicas.iter().map(|replica| replica.received.clone()).collect();
    for (.., at) in order {
        let Some(Replica { server, received: own, .. }) = replicas.get_mut(at) else { continue };
        let mut has_all = true;
        for other in &received {
            has_all = has_all && server.covers(own, other)?;
        }
        if has_all {
            return Ok(at);
        }
    }
    let told = |replica: &Replica<C>| {
        let drained = if replica.weight.is_none() { " (drained)" } else { "" };
        format!("{}{drained} {}", replica.server.endpoint(), replica.received)
    };
    Err(ProcedureError::NoneHasAll { positions: replicas.iter().map(told).collect() })
}

impl<C: Server> Replica<C> {
    /// It receives nothing any more: nothing may have come since it was compared with the others.
    fn look_again(&mut self) -> Result<(), ProcedureError> {
        let sources = self.server.sources()?;
        let own = || self.server.endpoint().clone();
        let source = sources.first().ok_or_else(|| ProcedureError::NoSource { server: own() })?;
        let received = self.server.received(source)?;
        match self.server.covers(&self.received, &received)? {
            true => Ok(()),
            false => Err(ProcedureError::ReceivedMore { server: self.server.endpoint().clone() }),
        }
    }
}
