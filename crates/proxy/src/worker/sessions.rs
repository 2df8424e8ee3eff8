//! Holds a worker's sessions.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slab::Slab;

use crate::context::Context;
use crate::keys::{ServerIndex, SessionKey};
use crate::outbox::SocketId;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session_id;

/// A worker's sessions, by their keys.
#[derive(Default)]
pub(crate) struct Sessions {
    slab: Slab<Session>,
    /// The number of the connection id that was given out last.
    last_number: u32,
}

impl Deref for Sessions {
    type Target = Slab<Session>;

    fn deref(&self) -> &Slab<Session> {
        &self.slab
    }
}

impl DerefMut for Sessions {
    fn deref_mut(&mut self) -> &mut Slab<Session> {
        &mut self.slab
    }
}

impl Sessions {
    /// Whether a key still means the session with this socket.
    pub(crate) fn is(&self, key: SessionKey, socket: SocketId) -> bool {
        self.get(key).is_some_and(|session| session.socket == socket)
    }

    /// Whether it does, and that session waits for a connection.
    pub(crate) fn is_waiting(&self, key: SessionKey, socket: SocketId) -> bool {
        self.is(key, socket) && matches!(self[key].phase, Phase::Waiting(_))
    }

    /// Those of which something holds.
    pub(crate) fn keys_of(&self, holds: impl Fn(&Session) -> bool) -> Vec<SessionKey> {
        self.iter().filter(|(_, session)| holds(session)).map(|(key, _)| key).collect()
    }

    /// A connection id that nobody has: numbers count up, and then from the beginning, leaving out those in use.
    pub(crate) fn new_id(&mut self, ctx: &Context) -> u32 {
        let workers = ctx.shared.mailboxes.len().max(1);
        loop {
            self.last_number = self.last_number % session_id::numbers_max(workers) + 1;
            let id = session_id::of(self.last_number, ctx.worker, workers);
            if !ctx.ids.contains_key(&id) {
                return id;
            }
        }
    }

    /// There are other rules: nobody knows their place in them any more.
    pub(crate) fn forget_scopes(&mut self) {
        self.iter_mut().for_each(|(_, session)| session.place.scope = None);
    }

    /// Another server is in this place now: it has taken no writes of sessions, nor shown them anything.
    pub(crate) fn forget_server(&mut self, place: ServerIndex) {
        for (_, session) in self.iter_mut() {
            let freshness = &mut session.freshness;
            for server in [&mut freshness.last_server, &mut freshness.seen_on] {
                if *server == place {
                    *server = ServerIndex::MAX;
                }
            }
            let log = session.transaction.log.as_mut().and_then(|log| log.lost_on.as_mut());
            if let Some(lost_on) = log.filter(|lost_on| **lost_on == place) {
                *lost_on = ServerIndex::MAX;
            }
        }
    }

    /// Digests are made otherwise: those that are known do not count any more.
    pub(crate) fn forget_digests(&mut self) {
        for (_, session) in self.iter_mut() {
            session.place.caller = None;
            for statement in session.prepared.all.values() {
                statement.prepared.digest.set(None);
            }
        }
    }

    /// Sessions go on under their users' new rows. Those whose user is gone have no account any more: they end
    /// with their next statement. Gives those that have one already, and wait with it.
    pub(crate) fn renew_accounts(&mut self, ctx: &Context, pools: &mut Pools) -> Vec<SessionKey> {
        let mut gone = Vec::new();
        for (key, session) in self.iter_mut() {
            let Some(account) = &session.account else { continue };
            let current = ctx.snapshot.users.current(account);
            if current.is_some_and(|current| Arc::ptr_eq(current, account)) {
                continue;
            }
            account.clients.fetch_sub(1, Ordering::Relaxed);
            let is_waiting = matches!(session.phase, Phase::Waiting(_));
            match current {
                Some(current) => {
                    current.clients.fetch_add(1, Ordering::Relaxed);
                    session.identity = pools.identities.of(current, session.capabilities);
                    session.account = Some(current.clone());
                    if is_waiting {
                        pools.renew_waiter(session);
                    }
                }
                None => {
                    session.account = None;
                    if is_waiting {
                        gone.push(key);
                    }
                }
            }
        }
        gone
    }
}
