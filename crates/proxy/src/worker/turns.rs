//! Gives sessions their turns: those who have waited, those of whom there is news, those whose connection goes on.

use crate::keys::{ConnectionKey, SessionKey};
use crate::outbox::SocketId;
use crate::pool::turns::{News, Turn};
use crate::pool::waiting::Waiter;
use crate::server::errors::LEASE_LOST;
use crate::work::Work;
use crate::worker::Worker;

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
                let is_there = self.pools.connections.is(connection, socket);
                match (is_there, self.sessions.is_waiting(waiter.session, waiter.socket)) {
                    (true, true) => self.work(waiter.session).lend(connection),
                    (true, false) => self.pools.offer(&mut self.ctx, connection),
                    (false, true) => self.work(waiter.session).acquire(),
                    (false, false) => {}
                }
            }
            Turn::Reroute(waiter) => {
                if self.sessions.is_waiting(waiter.session, waiter.socket) {
                    match self.sessions[waiter.session].lease() {
                        Some(_) => self.work(waiter.session).place(),
                        None => self.work(waiter.session).acquire(),
                    }
                }
            }
            Turn::Refuse(waiter, refusal) => {
                if self.sessions.is_waiting(waiter.session, waiter.socket) {
                    let session = &mut self.sessions[waiter.session];
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
                if self.pools.connections.is(connection, socket) {
                    self.go_on(connection);
                }
            }
            Turn::Lost { connection, socket } => {
                if self.pools.connections.is(connection, socket) {
                    self.server_gone(connection);
                }
            }
            Turn::Kill { victims, query_only, user, by } => self.kill_asked(victims, query_only, &user, by),
        }
    }
}

impl Worker {
    /// Looks again for servers for those who found none.
    pub(crate) fn unpark(&mut self) {
        for _ in 0..self.pools.parked.len() {
            let Some(Waiter { session: key, socket, .. }) = self.pools.parked.pop_front() else { break };
            self.hear();
            if !self.sessions.is_waiting(key, socket) {
                continue;
            }
            if self.sessions[key].lease().is_some() {
                self.work(key).place();
            } else {
                self.work(key).acquire();
            }
        }
    }
}

impl Worker {
    /// Ends the waits that have reached their limit.
    pub(crate) fn end_waits(&mut self) {
        for waiter in self.pools.overdue_waiters(self.ctx.now) {
            if self.sessions.is_waiting(waiter.session, waiter.socket) {
                self.work(waiter.session).wait_timed_out();
            }
        }
    }
}

impl Worker {
    /// This session at work.
    pub(crate) fn work(&mut self, key: SessionKey) -> Work<'_> {
        self.hear();
        Work { ctx: &mut self.ctx, pools: &mut self.pools, session: &mut self.sessions[key] }
    }

    /// The same, if the key still means the session with this socket.
    pub(crate) fn work_of(&mut self, key: SessionKey, socket: SocketId) -> Option<Work<'_>> {
        self.sessions.is(key, socket).then(|| self.work(key))
    }
}
