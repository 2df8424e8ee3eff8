//! Defaults: what a fresh connection begins with, and a session for as long as it lives.

use std::rc::Rc;
use std::sync::Arc;

use weir_protocol::capability::Capabilities;
use weir_protocol::wire::Reader;
use weir_session::defaults::{Defaults, carried};
use weir_session::state::State;
use weir_topology::SessionVariables;
use weir_topology::session_variables::{NULL, SEPARATOR};

use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::{Pool, Pools};
use crate::server::connection::{DiscardReason, Expected, ServerConnection, Stage};
use crate::session::session::Session;
use crate::statement::statement_end::last_packet;
use crate::statement::work::Work;
use crate::worker::context::Context;
use crate::worker::keys::ConnectionKey;

/// The defaults of connections that were logged in as one identity.
pub(crate) struct KnownDefaults {
    identity: usize,
    /// [`ServerShared::renewal`](weir_topology::ServerShared::renewal) from before the login.
    renewal: u64,
    defaults: Rc<Defaults>,
}

/// What has come of the question for a connection's defaults.
pub(crate) enum DefaultsAnswer {
    /// The connection's own are known now.
    Known,
    /// Nothing.
    Unknown,
    /// Another connection takes the place of this one.
    Gone,
}

impl Pools {
    /// The answer is complete.
    pub(crate) fn defaults_answered(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        variables: &Arc<SessionVariables>,
    ) -> DefaultsAnswer {
        let connection = &mut self.connections[key];
        let bytes = std::mem::take(&mut connection.settling.bytes);
        if connection.discard_reason.is_some() {
            // The reset in front was refused: these are the last session's settings.
            return DefaultsAnswer::Unknown;
        }
        let row = last_packet(&bytes).unwrap_or_default();
        let answer = Reader::new(row).lenenc_bytes().unwrap_or_default();
        let Some(defaults) = Defaults::parse(variables.names(), answer, SEPARATOR, NULL) else {
            // Refused, or with another number of values: as if nothing were known.
            tracing::debug!(
                thread_id = connection.access.greeted.thread_id,
                "a connection's defaults can't be read"
            );
            return DefaultsAnswer::Unknown;
        };
        let defaults = defaults.with(connection.defaults.variables());
        let is_fresh = connection.stage == Stage::Dialing
            || !(defaults.runs_init_connect() || connection.forgets_its_sql_mode());
        let defaults = ctx.defaults.intern(defaults);
        connection.defaults = defaults.clone();
        if !is_fresh {
            return self.close_unlike_fresh(ctx, key);
        }
        let known =
            KnownDefaults { identity: connection.identity, renewal: connection.access.renewal, defaults };
        self.servers[connection.server].note_defaults(known);
        DefaultsAnswer::Known
    }

    /// The server's init_connect has not run, as the connection was not opened but reset: another one takes its place.
    fn close_unlike_fresh(&mut self, ctx: &mut Context, key: ConnectionKey) -> DefaultsAnswer {
        let connection = &mut self.connections[key];
        if connection.stage == Stage::HandingOver {
            self.dial_instead(ctx, key);
            return DefaultsAnswer::Gone;
        }
        if connection.holder.is_none() {
            connection.discard_reason = Some(DiscardReason::Stale);
        }
        DefaultsAnswer::Unknown
    }
}

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

impl Pool {
    fn defaults_of(&self, identity: usize) -> Option<Rc<Defaults>> {
        let known = self.defaults.iter().find(|known| known.identity == identity)?;
        (known.renewal == self.server.shared.renewal()).then(|| known.defaults.clone())
    }

    fn note_defaults(&mut self, known: KnownDefaults) {
        match self.defaults.iter_mut().find(|before| before.identity == known.identity) {
            Some(before) if before.renewal > known.renewal => {}
            Some(before) => *before = known,
            None => self.defaults.push(known),
        }
    }
}

impl ServerConnection {
    /// What init_connect has set, where the server has not been asked for all: others call it a default.
    pub(crate) fn take_init_variables(&mut self, ctx: &mut Context, set: &State) {
        let defaults = Defaults::default().with(set);
        self.defaults = ctx.defaults.intern(defaults);
    }
}

impl Pools {
    /// Asks a connection that has just been set up what it begins with. Behind the set-up, in the same write.
    pub(crate) fn ask_for_defaults(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let Some(variables) = self.servers[self.connections[key].server].server.shared.session_variables()
        else {
            // The monitor has not learnt them yet, or can't.
            return;
        };
        self.connections[key].settling.bytes.clear();
        self.connections[key].send_query(ctx, variables.session_question().as_bytes());
        self.connections[key].expect(ctx, Expected::Defaults(variables));
    }
}

impl ServerConnection {
    /// CLIENT_IGNORE_SPACE sets sql_mode at a login, and neither COM_CHANGE_USER nor COM_RESET_CONNECTION does it again
    /// (MariaDB 10.11).
    pub(crate) fn forgets_its_sql_mode(&self) -> bool {
        self.capabilities.contains(Capabilities::IGNORE_SPACE)
    }
}

impl ServerConnection {
    /// The session's defaults are this connection's, but for those that it knows already.
    fn adopt_defaults(&self, ctx: &mut Context, session: &mut Session) {
        let defaults = self.defaults.clone();
        let own = session.tracked.defaults.take();
        let defaults = match own {
            Some(own) if !Rc::ptr_eq(&own, &defaults) => {
                ctx.defaults.intern(defaults.as_ref().clone().with(own.variables()))
            }
            _ => defaults,
        };
        if let Some(is_autocommit) = defaults.is_autocommit()
            && session.tracked.state.variable("autocommit").is_none()
        {
            session.transaction.is_autocommit = is_autocommit;
        }
        session.tracked.defaults = Some(defaults);
        session.tracked.suits = None;
        let state = session.tracked.state.clone();
        session.set_state(ctx, state);
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
