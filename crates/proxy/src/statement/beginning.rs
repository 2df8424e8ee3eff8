//! Begins a session, at its login or anew.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use weir_protocol::charset::{self, Collation};
use weir_routing::TransactionSettings;
use weir_session::pin::Pins;
use weir_session::state::State;

use crate::context::Context;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::tracked::LOGIN_COLLATION;
use crate::snapshot::Account;

impl Pools {
    /// The session after COM_RESET_CONNECTION: variables as at the login, the schema stays. The character sets are those
    /// of the handshake (MariaDB 10.11) or the server's (MySQL 9.7).
    pub(crate) fn finish_reset(&mut self, ctx: &mut Context, session: &mut Session) {
        self.connections.forget_retained(session);
        let role = session.pins.pins() & Pins::OUTLIVE_RESET;
        let collation = session.client.login_collation;
        let schema = session.tracked.state.schema();
        let state = match self.charsets_after_reset(session) {
            Some(charsets) => charsets.with_schema(schema),
            None => State::at_login(schema, collation),
        };
        let state = match &session.account {
            Some(account) => self.with_user_defaults(ctx, account, state),
            None => state,
        };
        let state = ctx.interner.intern(state);
        self.begin_session(ctx, session, state);
        session.pins.insert(role);
    }

    /// The character sets to which the session's server, or the first of its hostgroup that has told, goes back.
    pub(crate) fn charsets_after_reset(&self, session: &Session) -> Option<&State> {
        if let Some(lease) = session.lease() {
            return self.servers[self.connections[lease].server].charsets_after_reset.as_ref();
        }
        let members = &self.groups.get(&session.home_hostgroup())?.members;
        members.iter().find_map(|member| self.servers[member.server].charsets_after_reset.as_ref())
    }
}

impl Pools {
    /// The collation of a login; ids that servers do not know mean their default.
    pub(crate) fn collation_for_login(&self, ctx: &Context, id: u16, hostgroup: u32) -> &'static Collation {
        let is_mariadb = self.speaks_mariadb_in(ctx, hostgroup);
        let known = charset::by_id(id).filter(|known| {
            // MySQL's own collations mean nothing to a MariaDB, and the other way round.
            let is_mysql_only = known.name.contains("_0900_") || known.charset == "gb18030";
            let is_mariadb_only = known.name.contains("_nopad_") || known.name.contains("uca1400");
            if is_mariadb { !is_mysql_only } else { !is_mariadb_only }
        });
        known
            .or_else(|| charset::by_name(ctx.snapshot.default_collation.as_bytes()))
            .unwrap_or(&LOGIN_COLLATION)
    }

    /// What the attributes of a user set when a session begins.
    pub(crate) fn with_user_defaults(&self, ctx: &Context, account: &Account, state: State) -> State {
        let Some(level) = account.user.default_isolation else { return state };
        // MariaDB has MySQL's name for it since 11.1.
        let hostgroup = account.user.default_hostgroup;
        let release = self.release_in(hostgroup).unwrap_or(ctx.snapshot.dialect.server.release);
        let has_old_name = self.speaks_mariadb_in(ctx, hostgroup) && release < 1101;
        state.with_variable(
            if has_old_name { "tx_isolation" } else { "transaction_isolation" },
            level.as_str(),
        )
    }
}

impl Pools {
    /// Everything that a session has gathered goes back to what a login gives. But FOUND_ROWS() stays over
    /// COM_RESET_CONNECTION and COM_CHANGE_USER (seen on MariaDB 10.11 and MySQL 9.7).
    pub(crate) fn begin_session(&mut self, ctx: &mut Context, session: &mut Session, state: Rc<State>) {
        self.begin_with_defaults(session);
        session.set_state(ctx, state);
        session.pins.clear();
        self.end_log(session);
        session.moving = None;
        session.place.caller = None;
        session.prepared.all = HashMap::new();
        session.prepared.bytes = 0;
        session.prepared.long_data_bytes = 0;
        session.track = None;
        session.freshness.begin();
        session.transaction.own = TransactionSettings::default();
        session.diagnostics.last_insert_id = 0;
        session.diagnostics.last_gtid = String::new();
        session.diagnostics.is_insert_id_lost = false;
        session.diagnostics.row_count = 0;
        session.diagnostics.saved_warnings = None;
        session.farewell.owed_error = None;
        session.transaction.is_read_only = false;
        session.transaction.is_next_read_only = false;
        session.times.last_active_at = ctx.now;
    }
}
