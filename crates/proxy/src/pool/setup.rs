//! Makes a connection that is new, or was reset, fit for sessions: tracking, init_connect, and what is learned by it.

use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_session::defaults::Defaults;
use weir_session::state::State;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::server::connection::{DiscardReason, Expected, Stage};
use crate::server::variables::RELEASE;
use crate::server::variables::{Meaning, meaning_of};
use crate::session::tracked::apply_sql_mode;

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

impl Pools {
    /// What init_connect has set is how connections to this server are when they are fresh.
    pub(crate) fn take_init(&mut self, ctx: &mut Context, key: ConnectionKey, ok: &OkPacket<'_>) {
        let mut set = self.connections[key].defaults.variables().clone();
        for entry in ok.session_tracks().flatten() {
            match entry {
                SessionTrack::SystemVariable { name, value } => {
                    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
                    let name = name.to_ascii_lowercase();
                    if name == "sql_mode" {
                        apply_sql_mode(&mut ctx.learnt.default_dialect, &value);
                        ctx.learnt.knows_sql_mode = true;
                    }
                    if name == "completion_type" {
                        self.connections[key].releases_by_default = value == RELEASE;
                    }
                    if meaning_of(&name) == Meaning::State {
                        set.assign(&name, &value);
                    }
                }
                SessionTrack::Schema(_) => {
                    return self.set_up_failed(ctx, key, None, "init_connect must not change the schema");
                }
                _ => {}
            }
        }
        self.connections[key].take_init_variables(ctx, &set);
    }

    /// A connection can't be made fit for use: `code` is the server's error, where that is about the user. It counts
    /// as any failed login, with a pause before the next. A session that has it must not go on there unseen.
    pub(crate) fn set_up_failed(
        &mut self,
        ctx: &mut Context,
        key: ConnectionKey,
        code: Option<u16>,
        message: &str,
    ) {
        let connection = &mut self.connections[key];
        let server = &self.servers[connection.server].server.endpoint;
        tracing::warn!(server, error = message, "connection can't be set up: not using it");
        connection.discard_reason = Some(DiscardReason::BrokenReply);
        if connection.stage != Stage::Ready {
            connection.replies.expected.clear();
            self.dial_failed(ctx, key, code, message);
        }
    }
}

impl Pools {
    /// The sql_mode of a new connection: how statements are read until a session sets its own. Of MySQL also the
    /// character sets that sessions begin anew with.
    pub(crate) fn take_defaults(&mut self, ctx: &mut Context, key: ConnectionKey, ok: &OkPacket<'_>) {
        let mut charsets = State::fresh();
        self.connections[key].traces.is_tracked = !ok.session_state.is_empty();
        for entry in ok.session_tracks().flatten() {
            let SessionTrack::SystemVariable { name, value } = entry else { continue };
            let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
            match &*name {
                "sql_mode" => {
                    apply_sql_mode(&mut ctx.learnt.default_dialect, &value);
                    ctx.learnt.knows_sql_mode = true;
                }
                "completion_type" => self.connections[key].releases_by_default = value == RELEASE,
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
        let connection = &self.connections[key];
        self.servers[connection.server].charsets_after_reset =
            (is_complete && !connection.access.greeted.is_mariadb).then_some(charsets);
    }
}

impl Pools {
    /// Switches tracking on and runs init_connect, on a connection that is new or was reset.
    pub(crate) fn set_up(&mut self, ctx: &mut Context, key: ConnectionKey) {
        let text =
            if self.connections[key].access.greeted.is_mariadb { SET_UP_MARIADB } else { SET_UP_MYSQL };
        self.connections[key].send_query(ctx, text);
        self.connections[key].expect(ctx, Expected::Setup);
        let server = self.servers[self.connections[key].server].server.clone();
        self.connections[key].defaults = ctx.defaults.intern(Defaults::default());
        // Behind it, so that what they set is reported.
        for statement in &server.care.init_connect {
            self.connections[key].send_query(ctx, statement.as_bytes());
            self.connections[key].expect(ctx, Expected::Init);
            self.connections[key].known.found_rows = None;
            (self.connections[key].known.row_count, self.connections[key].known.has_conditions) =
                (None, true);
        }
        self.ask_for_defaults(ctx, key);
    }
}
