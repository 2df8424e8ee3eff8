//! Takes the steps that several procedures have.

use std::time::Duration;

use super::{LOOK_EVERY, ProcedureError, Server, ServerError, Source, Surroundings};
use crate::{Endpoint, Link};

/// How long a connection that is over may take to go, and its lock with it.
const RELOCK_WAIT: Duration = Duration::from_secs(3);
/// How long a new replica may take to connect to its source.
const CONNECT_WAIT: Duration = Duration::from_secs(5);
const RELOCK_PAUSE: Duration = Duration::from_millis(50);

/// The outcome of an order to take writes.
pub(super) enum Opened {
    Yes,
    /// It is read_only, and stays so: with the cause.
    No(ProcedureError),
    /// Nobody knows.
    Unknown(ProcedureError),
}

/// Takes the lock of a server.
pub(super) fn lock(server: &mut impl Server, name: &str) -> Result<(), ProcedureError> {
    match server.lock(name)? {
        true => Ok(()),
        false => Err(ProcedureError::LockHeld { server: server.endpoint().clone() }),
    }
}

/// A new connection in place of one that may be broken, with the lock: then the old one is over, and all that was sent
/// there.
pub(super) fn renew<S: Surroundings>(
    around: &mut S,
    server: &mut S::Server,
    name: &str,
) -> Result<(), ProcedureError> {
    let until = around.now().0 + millis(RELOCK_WAIT);
    *server = around.connect(&server.endpoint().clone())?;
    loop {
        match lock(server, name) {
            Err(cause) if around.now().0 >= until => return Err(cause),
            Err(_) => around.sleep(RELOCK_PAUSE)?,
            Ok(()) => return Ok(()),
        }
    }
}

/// Makes a server read_only, and asks it whether it is.
pub(super) fn set_and_ask(server: &mut impl Server) -> Result<(), ProcedureError> {
    server.set_read_only(true)?;
    match server.is_read_only()? {
        true => Ok(()),
        false => Err(ProcedureError::NotReadOnly { server: server.endpoint().clone() }),
    }
}

/// Makes a server writable. The others have said by now that they are not.
pub(super) fn open<S: Surroundings>(around: &mut S, server: &mut S::Server, name: &str) -> Opened {
    let Err(cause) = server.set_read_only(false) else { return Opened::Yes };
    match renew(around, server, name).and_then(|()| Ok(server.is_read_only()?)) {
        Ok(false) => Opened::Yes,
        Ok(true) => Opened::No(cause.into()),
        Err(again) => Opened::Unknown(ProcedureError::Unanswered { cause, again: Box::new(again) }),
    }
}

/// What could not be done, for whoever sees to what is left.
pub(super) fn not_done(order: Result<(), ServerError>) -> Option<String> {
    order.err().map(|cause| cause.to_string())
}

/// Where a server replicates from, if that is one server.
pub(super) fn only_source(server: &mut impl Server) -> Result<Option<Source>, ProcedureError> {
    match <[Source; 1]>::try_from(server.sources()?) {
        Ok([source]) => Ok(Some(source)),
        Err(sources) if sources.is_empty() => Ok(None),
        Err(sources) => {
            let server = server.endpoint().clone();
            Err(ProcedureError::SeveralSources { server, sources: sources.len() })
        }
    }
}

/// Waits until a new replica gets something from its source.
pub(super) fn wait_connected<S: Surroundings>(
    around: &mut S,
    replica: &mut S::Server,
) -> Result<(), ProcedureError> {
    let until = around.now().0 + millis(CONNECT_WAIT);
    loop {
        let sources = replica.sources()?;
        match sources.first() {
            Some(source) if source.is_fit => return Ok(()),
            Some(source) if around.now().0 >= until => {
                let error = source.error.clone();
                return Err(ProcedureError::NotReplicating { server: replica.endpoint().clone(), error });
            }
            None => return Err(ProcedureError::NoSource { server: replica.endpoint().clone() }),
            Some(_) => around.sleep(LOOK_EVERY)?,
        }
    }
}

/// Whether a source is a server, and was stopped.
pub(super) fn is_stopped(source: &Source) -> bool {
    !source.applies || source.link.link == Link::Idle
}

/// A server of a cluster.
pub(super) fn sorted(members: &[Endpoint]) -> Vec<Endpoint> {
    let mut sorted = members.to_vec();
    sorted.sort();
    sorted.dedup();
    sorted
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
