//! Holds all connections of a worker.

use std::ops::{Deref, DerefMut};

use slab::Slab;

use crate::keys::ConnectionKey;
use crate::outbox::SocketId;
use crate::server::connection::ServerConnection;

/// A worker's connections, each under its key.
#[derive(Default)]
pub(crate) struct Connections(Slab<ServerConnection>);

impl Deref for Connections {
    type Target = Slab<ServerConnection>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Connections {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Connections {
    /// Whether a key still means the connection with this socket.
    pub(crate) fn is(&self, key: ConnectionKey, socket: SocketId) -> bool {
        self.get(key).is_some_and(|connection| connection.socket == socket)
    }
}
