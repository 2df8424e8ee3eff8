//! Making a connection that is new, or was reset, fit for sessions: tracking, init_connect, and what is learned by it.

use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_session::defaults::Defaults;
use weir_session::state::State;

use super::Core;
use super::completion::RELEASE;
use super::local::apply_sql_mode;
use super::model::{BackendKey, Expected, Poison, Stage};
use super::relay::{Meaning, meaning_of};

/// Switches full tracking on; everything Weir knows of a session's state comes from it. That sql_mode is set to
/// what it is makes the server report it, and so with completion_type.
const SET_UP_MARIADB: &[u8] = b"SET SESSION session_track_system_variables='*', session_track_schema=ON, \
    session_track_state_change=ON, session_track_transaction_info='CHARACTERISTICS', sql_mode=@@session.sql_mode, \
    completion_type=@@session.completion_type";
/// The same for MySQL, where a write's position is asked for by name, and where COM_RESET_CONNECTION leads to the global
/// character sets, which are learnt in the same way (MySQL's manual: mysql_reset_connection(); seen on 9.7).
const SET_UP_MYSQL: &[u8] = b"SET SESSION session_track_system_variables='*', session_track_schema=ON, \
    session_track_state_change=ON, session_track_transaction_info='CHARACTERISTICS', sql_mode=@@session.sql_mode, \
    completion_type=@@session.completion_type, session_track_gtids=OWN_GTID, character_set_client=@@global.character_set_client, \
    character_set_results=@@global.character_set_results, collation_connection=@@global.collation_connection";

impl Core {
    /// Switches tracking on and runs init_connect, on a connection that is new or was reset.
    pub(super) fn set_up(&mut self, key: BackendKey) {
        let text = if self.backends[key].greeted.is_mariadb { SET_UP_MARIADB } else { SET_UP_MYSQL };
        self.send_query(key, text);
        self.expect(key, Expected::Setup);
        let server = self.servers[self.backends[key].server].server.clone();
        self.backends[key].defaults = self.defaults.intern(Defaults::default());
        // Behind it, so that what they set is reported.
        for statement in &server.care.init_connect {
            self.send_query(key, statement.as_bytes());
            self.expect(key, Expected::Init);
            self.backends[key].found_rows = None;
            (self.backends[key].row_count, self.backends[key].has_conditions) = (None, true);
        }
        self.ask_for_defaults(key);
    }

    /// What init_connect has set is how connections to this server are when they are fresh.
    pub(super) fn take_init(&mut self, key: BackendKey, ok: &OkPacket<'_>) {
        let mut set = self.backends[key].defaults.variables().clone();
        for entry in ok.session_tracks().flatten() {
            match entry {
                SessionTrack::SystemVariable { name, value } => {
                    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                    let name = name.to_ascii_lowercase();
                    if name == "sql_mode" {
                        apply_sql_mode(&mut self.default_dialect, &value);
                        self.knows_sql_mode = true;
                    }
                    if name == "completion_type" {
                        self.backends[key].releases_by_default = value == RELEASE;
                    }
                    if meaning_of(&name) == Meaning::State {
                        set.assign(&name, &value);
                    }
                }
                SessionTrack::Schema(_) => {
                    return self.set_up_failed(
                        key,
                        None,
                        "init_connect changes the schema, which is the session's",
                    );
                }
                _ => {}
            }
        }
        self.take_init_variables(key, &set);
    }

    /// A connection can't be made fit for use: `code` is the server's error, where that is about the user. It counts as any failed login, with a pause before the next.
    pub(super) fn set_up_failed(&mut self, key: BackendKey, code: Option<u16>, message: &str) {
        let backend = &mut self.backends[key];
        let server = &self.servers[backend.server].server.endpoint;
        tracing::warn!(server, error = message, "connection can't be set up: not using it");
        backend.poison = Some(Poison::BrokenReply);
        if backend.stage != Stage::Ready {
            backend.expected.clear();
            self.dial_failed(key, code, message);
        } else if backend.holder.is_some() {
            // A session that is held here must not go on unseen.
            self.backend_gone(key);
        }
    }

    /// The sql_mode of a new connection: how statements are read until a session sets its own. Of MySQL also the
    /// character sets that sessions begin anew with.
    pub(super) fn take_defaults(&mut self, key: BackendKey, ok: &OkPacket<'_>) {
        let mut charsets = State::fresh();
        self.backends[key].is_tracked = !ok.session_state.is_empty();
        for entry in ok.session_tracks().flatten() {
            let SessionTrack::SystemVariable { name, value } = entry else { continue };
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            match &*name {
                "sql_mode" => {
                    apply_sql_mode(&mut self.default_dialect, &value);
                    self.knows_sql_mode = true;
                }
                "completion_type" => self.backends[key].releases_by_default = value == RELEASE,
                "character_set_client" | "character_set_results" => charsets.assign(&name, &value),
                "collation_connection" => {
                    let charset = value.split('_').next().unwrap_or_default();
                    charsets.assign("character_set_connection", charset);
                    charsets.assign(&name, &value);
                }
                _ => {}
            }
        }
        let is_complete = charsets.variable("collation_connection").is_some();
        let backend = &self.backends[key];
        self.servers[backend.server].charsets_after_reset =
            (is_complete && !backend.greeted.is_mariadb).then_some(charsets);
    }
}
