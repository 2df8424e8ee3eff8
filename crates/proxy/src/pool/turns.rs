//! What the supply of connections means for sessions. [`Pools`] knows who waits and for what, but no session: it leaves
//! word here, and the worker, who has them, carries it out.
//!
//! - [`News`] are about diagnostics that only a connection knew. A session hears them before it does anything further.
//! - [`Turn`]s are taken when the event is dealt with that has brought them about, one after the other, so that a
//!   connection that goes from hand to hand is no chain of calls.

use std::rc::Rc;

use weir_protocol::error::ServerError;

use crate::client::session::Phase;
use crate::outbox::SocketId;
use crate::pool::waiting::Waiter;
use crate::server::connection::{Asked, Retained};
use crate::server::replies::LEASE_LOST;
use crate::worker::Worker;
use crate::worker::keys::ConnectionKey;
use crate::worker::keys::SessionKey;

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
            if self.session_is(key, socket) {
                self.sessions[key].hear(&mut self.ctx, news);
            }
        }
    }

    /// Carries out what is next for somebody. Meanwhile they may have gone, and so may the connection.
    pub(crate) fn take_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Lend { waiter, connection, socket } => {
                let is_there = self.pools.connection_is(connection, socket);
                match (is_there, self.is_waiting(waiter.session, waiter.socket)) {
                    (true, true) => self.lend(connection, waiter.session),
                    (true, false) => self.pools.offer(&mut self.ctx, connection),
                    (false, true) => self.acquire(waiter.session),
                    (false, false) => {}
                }
            }
            Turn::Reroute(waiter) => {
                if self.is_waiting(waiter.session, waiter.socket) {
                    self.acquire(waiter.session);
                }
            }
            Turn::Refuse(waiter, refusal) => {
                if self.is_waiting(waiter.session, waiter.socket) {
                    let session = &mut self.sessions[waiter.session];
                    session.phase = Phase::Running;
                    self.pools.reply_error(&mut self.ctx, session, refusal.0, &refusal.1);
                    self.answered_here(waiter.session);
                }
            }
            Turn::End(waiter, reason) => {
                if self.is_waiting(waiter.session, waiter.socket) {
                    self.fail_session(waiter.session, LEASE_LOST, &reason);
                }
            }
            Turn::GoOn { connection, socket } => {
                if self.pools.connection_is(connection, socket) {
                    self.go_on(connection);
                }
            }
        }
    }
}
