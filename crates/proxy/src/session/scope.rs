//! Finds a session's place in the query rules.

use std::rc::Rc;

use weir_routing::{Scope, Who};
use weir_session::state::State;

use crate::context::Context;
use crate::session::Session;

/// A session's place in the router, with the schema for which it holds.
pub(crate) struct KnownScope {
    state: Rc<State>,
    scope: Scope,
}

impl Session {
    /// The facts of a session as the router knows them.
    pub(crate) fn scope_of(&mut self, ctx: &mut Context) -> Scope {
        if let Some(known) = &mut self.place.scope
            && ctx.router.is_current(known.scope)
        {
            if Rc::ptr_eq(&known.state, &self.tracked.state) {
                return known.scope;
            }
            if known.state.schema() == self.tracked.state.schema() {
                known.state = self.tracked.state.clone();
                return known.scope;
            }
        }
        let client_addr = self.client.peer.ip().map_or_else(|| "localhost".to_owned(), |ip| ip.to_string());
        let who = Who {
            username: self.account.as_ref().map_or(b"", |account| account.user.username.as_bytes()),
            schemaname: self.tracked.state.schema(),
            client_addr: &client_addr,
            proxy_addr: &self.listener.address.host(),
            proxy_port: self.listener.address.port(),
        };
        let scope = ctx.router.scope(&who);
        self.place.scope = Some(KnownScope { state: self.tracked.state.clone(), scope });
        scope
    }
}
