//! Remembers the defaults with which a connection has begun.

use std::rc::Rc;

use weir_protocol::capability::Capabilities;
use weir_session::defaults::Defaults;
use weir_session::state::State;

use crate::context::Context;
use crate::server::connection::ServerConnection;
use crate::session::Session;

impl ServerConnection {
    /// What init_connect has set, where the server has not been asked for all: others call it a default.
    pub(crate) fn take_init_variables(&mut self, ctx: &mut Context, set: &State) {
        let defaults = Defaults::default().with(set);
        self.defaults = ctx.defaults.intern(defaults);
    }

    /// CLIENT_IGNORE_SPACE sets sql_mode at a login, and neither COM_CHANGE_USER nor COM_RESET_CONNECTION does it again
    /// (MariaDB 10.11).
    pub(crate) fn forgets_its_sql_mode(&self) -> bool {
        self.capabilities.contains(Capabilities::IGNORE_SPACE)
    }

    /// The session's defaults are this connection's, but for those that it knows already.
    pub(crate) fn adopt_defaults(&self, ctx: &mut Context, session: &mut Session) {
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
