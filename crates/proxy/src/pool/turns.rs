//! What the supply of connections means for sessions. [`Pools`] knows who waits and for what, but no session: it leaves
//! word here, and the worker, who has them, carries it out.
//!
//! - [`News`] are about diagnostics that only a connection knew. A session hears them before it does anything further.
//! - [`Turn`]s are taken when the event is dealt with that has brought them about, one after the other, so that a
//!   connection that goes from hand to hand is no chain of calls.

use std::rc::Rc;

use weir_protocol::error::ServerError;

use crate::outbox::SocketId;
use crate::pool::waiting::Waiter;
use crate::server::connection::{Asked, Retained};
use crate::session::phase::Phase;
use crate::shared::{Asker, Victims};
use crate::statement::replies::LEASE_LOST;
use crate::worker::Worker;
use crate::worker::keys::{ConnectionKey, SessionKey};

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

impl Worker {
    /// Tells sessions what has become of their diagnostics.
    pub(crate) fn hear(&mut self) {
        while let Some(news) = self.pools.news.pop_front() {
            let (key, socket) = match &news {
                News::Asked(asked) => (asked.session, asked.socket),
                News::AnswerLost { session, socket, .. } | News::Lost { session, socket, .. } => {
                    (*session, *socket)
                }
            };
            if self.sessions.is(key, socket) {
                self.sessions[key].hear(&mut self.ctx, news);
            }
        }
    }

    /// The replies that kept a connection are in: its holder's work goes on, or it goes to the next.
    pub(crate) fn go_on(&mut self, key: ConnectionKey) {
        match self.pools.connections[key].holder {
            Some(holder) => self.work(holder).go_on(key),
            None => self.pools.go_on(&mut self.ctx, key),
        }
    }

    /// Carries out what is next for somebody. Meanwhile they may have gone, and so may the connection.
    pub(crate) fn take_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Lend { waiter, connection, socket } => {
                let is_there = self.pools.connection_is(connection, socket);
                match (is_there, self.sessions.is_waiting(waiter.session, waiter.socket)) {
                    (true, true) => self.work(waiter.session).lend(connection),
                    (true, false) => self.pools.offer(&mut self.ctx, connection),
                    (false, true) => self.work(waiter.session).acquire(),
                    (false, false) => {}
                }
            }
            Turn::Reroute(waiter) => {
                if self.sessions.is_waiting(waiter.session, waiter.socket) {
                    self.work(waiter.session).acquire();
                }
            }
            Turn::Refuse(waiter, refusal) => {
                if self.sessions.is_waiting(waiter.session, waiter.socket) {
                    let session = &mut self.sessions[waiter.session];
                    session.phase = Phase::Running;
                    self.pools.reply_error(&mut self.ctx, session, refusal.0, &refusal.1);
                    self.work(waiter.session).answered_here();
                }
            }
            Turn::End(waiter, reason) => {
                if self.sessions.is_waiting(waiter.session, waiter.socket) {
                    self.work(waiter.session).fail_session(LEASE_LOST, &reason);
                }
            }
            Turn::GoOn { connection, socket } => {
                if self.pools.connection_is(connection, socket) {
                    self.go_on(connection);
                }
            }
            Turn::Lost { connection, socket } => {
                if self.pools.connection_is(connection, socket) {
                    self.server_gone(connection);
                }
            }
            Turn::Kill { victims, query_only, user, by } => self.kill_asked(victims, query_only, &user, by),
        }
    }
}
