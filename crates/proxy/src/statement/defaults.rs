//! Remembers the defaults with which a session has begun, and whether a connection suits it.

use std::rc::Rc;

use weir_session::defaults::carried;

use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::work::Work;

impl Work<'_> {
    /// COM_RESET_CONNECTION on a lease that the session keeps: it begins with what the connection begins with.
    pub(crate) fn begin_with_defaults_of(&mut self, key: ConnectionKey) {
        self.session.tracked.defaults = None;
        self.pools.connections[key].adopt_defaults(self.ctx, self.session);
    }

    /// Brings a session and the defaults of a connection together that it is about to get: its first one's are its own,
    /// from others it is told apart. False if its command has to be looked at anew because of that.
    pub(crate) fn suits_defaults(&mut self, key: ConnectionKey) -> bool {
        let there = &self.pools.connections[key].defaults;
        let session = &*self.session;
        match &session.tracked.defaults {
            Some(own) if Rc::ptr_eq(own, there) => true,
            _ if session.tracked.suits.as_ref().is_some_and(|suited| Rc::ptr_eq(suited, there)) => true,
            Some(own) if own.is_known() || !there.is_known() => {
                let (there, own) = (there.clone(), own.clone());
                let state = carried(&session.tracked.state, &own, &there);
                let state = self.ctx.interner.intern(state);
                let session = &mut *self.session;
                session.tracked.suits = Some(there);
                session.tracked.state = state;
                true
            }
            None if there.says_nothing() => true,
            _ => {
                let before = (session.tracked.dialect, session.transaction.is_autocommit);
                self.pools.connections[key].adopt_defaults(self.ctx, self.session);
                let session = &*self.session;
                // Without its text there is nothing to be looked at, and it means the same in every mode.
                let is_looked_at = session.execution.plan.kind() != CommandKind::LoginSchema
                    && session.input.upload.is_none();
                let is_as_before =
                    !is_looked_at || before == (session.tracked.dialect, session.transaction.is_autocommit);
                // What init_connect had set before the servers were asked may differ.
                is_as_before && self.suits_defaults(key)
            }
        }
    }
}

impl Pools {
    /// What a session that begins now begins with, if a connection to its hostgroup has shown it since the server's
    /// globals have changed.
    pub(crate) fn begin_with_defaults(&self, session: &mut Session) {
        let members = self.groups.get(&session.home_hostgroup()).map(|group| group.members.as_slice());
        let mut servers = members.unwrap_or_default().iter().map(|member| &self.servers[member.server]);
        let first = servers.clone().next();
        let known = servers.find_map(|pool| pool.defaults_of(session.identity));
        let of_server = first.is_none_or(|pool| pool.server.shared.is_autocommit());
        session.transaction.is_autocommit =
            known.as_ref().and_then(|known| known.is_autocommit()).unwrap_or(of_server);
        session.tracked.defaults = known;
        session.tracked.suits = None;
    }
}
