//! Passes on what the supply of connections means for sessions. [`crate::pool::pools::Pools`] knows who waits and for
//! what, but no session: it leaves word here, and the worker, who has them, carries it out.
//!
//! - [`News`] are about diagnostics that only a connection knew. A session hears them before it does anything further.
//! - [`Turn`]s are taken when the event is dealt with that has brought them about, one after the other, so that a
//!   connection that goes from hand to hand is no chain of calls.

use std::rc::Rc;

use weir_protocol::error::ServerError;

use crate::keys::{ConnectionKey, SessionKey};
use crate::outbox::SocketId;
use crate::pool::waiting::Waiter;
use crate::server::connection::Asked;
use crate::session::retained::Retained;
use crate::shared::{Asker, Victims};

/// News of a session's diagnostics.
pub(crate) enum News {
    /// The connection that knew them has been asked.
    Asked(Asked),
    /// The question is lost with the connection.
    AnswerLost { session: SessionKey, socket: SocketId, what: Retained },
    /// The connection that knew them is gone.
    Lost { session: SessionKey, socket: SocketId, what: Retained },
}

/// What is next for somebody who has waited. They have left the line for it.
pub(crate) enum Turn {
    /// They get this connection, which is nobody's.
    Lend { waiter: Waiter, connection: ConnectionKey, socket: SocketId },
    /// They look for another server.
    Reroute(Waiter),
    /// Their statement gets this error.
    Refuse(Waiter, Rc<(ServerError, String)>),
    /// Their session ends, for this reason.
    End(Waiter, Rc<str>),
    /// Nothing keeps the connection any more from what its holder wants of it.
    GoOn { connection: ConnectionKey, socket: SocketId },
    /// The connection does not answer any more: it is taken for lost.
    Lost { connection: ConnectionKey, socket: SocketId },
    /// A session kills others, or itself.
    Kill { victims: Victims, query_only: bool, user: String, by: Asker },
}

impl News {
    /// Whom they are for.
    pub(crate) fn socket(&self) -> SocketId {
        match self {
            Self::Asked(asked) => asked.socket,
            Self::AnswerLost { socket, .. } | Self::Lost { socket, .. } => *socket,
        }
    }
}
