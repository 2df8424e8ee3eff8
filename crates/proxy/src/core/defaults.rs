//! Defaults: what a fresh connection begins with, and a session for as long as it lives.

use std::rc::Rc;
use std::sync::Arc;

use weir_protocol::capability::Capabilities;
use weir_protocol::wire::Reader;
use weir_session::defaults::{Defaults, carried};
use weir_session::state::State;
use weir_sql::Dialect;
use weir_topology::SessionVariables;
use weir_topology::session_variables::{NULL, SEPARATOR};

use super::finish::last_packet;
use super::local::apply_sql_mode;
use super::model::{BackendKey, Expected, Poison, Session, SessionKey, Stage, WorkKind};
use super::{Core, Pool};

/// The defaults of connections that were logged in as one identity.
pub(super) struct KnownDefaults {
    identity: usize,
    /// [`ServerShared::renewal`](weir_topology::ServerShared::renewal) from before the login.
    renewal: u64,
    defaults: Rc<Defaults>,
}

impl Session {
    /// How its statements are read where it has not set sql_mode itself.
    pub(super) fn default_dialect(&self, fallback: Dialect) -> Dialect {
        let mut dialect = fallback;
        if let Some(mode) = self.default_sql_mode() {
            apply_sql_mode(&mut dialect, mode);
        }
        dialect
    }

    pub(super) fn default_sql_mode(&self) -> Option<&str> {
        self.defaults.as_ref()?.variables().variable("sql_mode")
    }
}

impl Core {
    /// Asks a connection that has just been set up what it begins with. Behind the set-up, in the same write.
    pub(super) fn ask_for_defaults(&mut self, key: BackendKey) {
        let Some(variables) = self.servers[self.backends[key].server].server.shared.session_variables()
        else {
            // The monitor has not learnt them yet, or can't.
            return;
        };
        self.backends[key].settle_bytes.clear();
        self.send_query(key, variables.session_question().as_bytes());
        self.expect(key, Expected::Defaults(variables));
    }

    /// The answer is complete. False if the connection is gone.
    pub(super) fn defaults_answered(&mut self, key: BackendKey, variables: &Arc<SessionVariables>) -> bool {
        let bytes = std::mem::take(&mut self.backends[key].settle_bytes);
        let backend = &mut self.backends[key];
        if backend.poison.is_some() {
            // The reset in front was refused: these are the last session's settings.
            return true;
        }
        let row = last_packet(&bytes).unwrap_or_default();
        let answer = Reader::new(row).lenenc_bytes().unwrap_or_default();
        let Some(defaults) = Defaults::parse(variables.names(), answer, SEPARATOR, NULL) else {
            // Refused, or with another number of values: as if nothing were known.
            tracing::debug!(thread_id = backend.greeted.thread_id, "a connection's defaults can't be read");
            return true;
        };
        let defaults = defaults.with(backend.defaults.variables());
        let (stage, runs_init_connect) = (backend.stage, defaults.runs_init_connect());
        let is_fresh = stage == Stage::Dialing || !(runs_init_connect || self.forgets_its_sql_mode(key));
        let defaults = self.defaults.intern(defaults);
        let backend = &mut self.backends[key];
        backend.defaults = defaults.clone();
        if !is_fresh {
            return self.close_unlike_fresh(key);
        }
        let known = KnownDefaults { identity: backend.identity, renewal: backend.renewal, defaults };
        let holder = backend.holder;
        self.servers[backend.server].note_defaults(known);
        if let Some(holder) = holder {
            // COM_RESET_CONNECTION on a lease that the session keeps: it begins with what the connection begins with.
            self.sessions[holder].defaults = None;
            self.adopt_defaults(key, holder);
        }
        true
    }

    /// CLIENT_IGNORE_SPACE sets sql_mode at a login, and neither COM_CHANGE_USER nor COM_RESET_CONNECTION does it again
    /// (MariaDB 10.11).
    pub(super) fn forgets_its_sql_mode(&self, key: BackendKey) -> bool {
        self.identities.0[self.backends[key].identity].capabilities.contains(Capabilities::IGNORE_SPACE)
    }

    /// The server's init_connect has not run, as the connection was not opened but reset: another one takes its place.
    /// False if it is gone.
    fn close_unlike_fresh(&mut self, key: BackendKey) -> bool {
        let backend = &mut self.backends[key];
        if backend.stage == Stage::HandingOver {
            self.dial_instead(key);
            return false;
        }
        if backend.holder.is_none() {
            backend.poison = Some(Poison::Stale);
        }
        true
    }

    /// What a session that begins now begins with, if a connection to its hostgroup has shown it since the server's
    /// globals have changed.
    pub(super) fn begin_with_defaults(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let members = self.groups.get(&session.home_hostgroup()).map(|group| group.members.as_slice());
        let mut servers = members.unwrap_or_default().iter().map(|member| &self.servers[member.server]);
        let first = servers.clone().next();
        let known = servers.find_map(|pool| pool.defaults_of(session.identity));
        let of_server = first.is_none_or(|pool| pool.server.shared.is_autocommit());
        let session = &mut self.sessions[key];
        session.is_autocommit = known.as_ref().and_then(|known| known.is_autocommit()).unwrap_or(of_server);
        session.defaults = known;
        session.suits = None;
    }

    /// Brings a session and the defaults of a connection together that it is about to get: its first one's are its own,
    /// from others it is told apart. False if its command has to be looked at anew because of that.
    pub(super) fn suits_defaults(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let there = &self.backends[key].defaults;
        let session = &self.sessions[holder];
        match &session.defaults {
            Some(own) if Rc::ptr_eq(own, there) => true,
            _ if session.suits.as_ref().is_some_and(|suited| Rc::ptr_eq(suited, there)) => true,
            Some(own) if own.is_known() || !there.is_known() => {
                let (there, own) = (there.clone(), own.clone());
                let state = carried(&session.state, &own, &there);
                let state = self.interner.intern(state);
                let session = &mut self.sessions[holder];
                session.suits = Some(there);
                session.state = state;
                true
            }
            None if there.says_nothing() => true,
            _ => {
                let before = (session.dialect, session.is_autocommit);
                self.adopt_defaults(key, holder);
                let session = &self.sessions[holder];
                // Without its text there is nothing to be looked at, and it means the same in every mode.
                let is_looked_at = session.work.kind != WorkKind::LoginSchema && session.upload.is_none();
                let is_as_before = !is_looked_at || before == (session.dialect, session.is_autocommit);
                // What init_connect had set before the servers were asked may differ.
                is_as_before && self.suits_defaults(key, holder)
            }
        }
    }

    /// The session's defaults are this connection's, but for those that it knows already.
    fn adopt_defaults(&mut self, key: BackendKey, holder: SessionKey) {
        let defaults = self.backends[key].defaults.clone();
        let own = self.sessions[holder].defaults.take();
        let defaults = match own {
            Some(own) if !Rc::ptr_eq(&own, &defaults) => {
                self.defaults.intern(defaults.as_ref().clone().with(own.variables()))
            }
            _ => defaults,
        };
        let session = &mut self.sessions[holder];
        if let Some(is_autocommit) = defaults.is_autocommit()
            && session.state.variable("autocommit").is_none()
        {
            session.is_autocommit = is_autocommit;
        }
        session.defaults = Some(defaults);
        session.suits = None;
        let state = session.state.clone();
        self.set_state(holder, state);
    }

    /// What init_connect has set, where the server has not been asked for all: others call it a default.
    pub(super) fn take_init_variables(&mut self, key: BackendKey, set: &State) {
        let defaults = Defaults::default().with(set);
        self.backends[key].defaults = self.defaults.intern(defaults);
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
