//! Makes a server that has no part in the writer's line the writer's replica, if the writer has all that it has.

use super::{ProcedureError, Server, Surroundings, lock_name, shown, steps};
use crate::Endpoint;

/// A server that comes back, and the writer that it is to replicate from.
#[derive(Clone, Debug)]
pub struct Rejoin {
    /// Names the cluster.
    pub writer_hostgroup: u32,
    /// The server.
    pub server: Endpoint,
    /// The writer.
    pub writer: Endpoint,
}

impl Rejoin {
    /// Makes the server read_only, and a replica. Returns what was done.
    ///
    /// # Errors
    /// Why it is left as it is.
    pub fn make<S: Surroundings>(&self, around: &mut S) -> Result<String, ProcedureError> {
        let Self { writer_hostgroup, server, writer } = self;
        let lock = lock_name(*writer_hostgroup);
        let mut back = around.connect(server)?;
        let mut source = around.connect(writer)?;
        // In the order that all Weirs have; a switchover has both.
        let mut both = [&mut back, &mut source];
        both.sort_by(|one, two| one.endpoint().cmp(two.endpoint()));
        both.into_iter().try_for_each(|server| steps::lock(server, &lock))?;
        back.check_privileges()?;
        if back.id() == source.id() || source.is_read_only()? {
            return Err(ProcedureError::NotTheWriter { server: writer.clone() });
        }
        if !back.is_read_only()? {
            steps::set_and_ask(&mut back)?;
            around.tell(format!("{server} was writable beside {writer}, and has been made read_only"));
        }
        if let Some(errant) = source.lacks(&back.history()?)? {
            let errant = shown(&errant);
            return Err(ProcedureError::Errant { server: server.clone(), writer: writer.clone(), errant });
        }
        match back.sources()?.as_slice() {
            [] => {}
            [own] if own.link.names(writer, source.id()) => {
                return Ok(format!("{server} replicates from {writer} already"));
            }
            _ => return Err(ProcedureError::LeftAlone { server: server.clone() }),
        }
        let login = around.login(writer);
        back.become_replica(writer, &login)?;
        steps::wait_connected(around, &mut back)?;
        Ok(format!("{server} has nothing that {writer} lacks, and replicates from it"))
    }
}
