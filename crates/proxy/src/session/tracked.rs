//! Tracks the state in which a session's statements run, and how their texts are read in it.

use std::borrow::Cow;
use std::rc::Rc;

use weir_protocol::charset::{self, Collation, Encoding};
use weir_session::state::State;
use weir_sql::{Dialect, LeadBytes};

use crate::context::Context;
use crate::keys::Nanos;
use crate::session::{Session, Times, Tracked};

/// A session with a shorter `wait_timeout` of its own has a timer; longer ones are found when all are looked over.
pub(crate) const WATCHED_UP_TO_S: u64 = 60;
pub(crate) const SECOND_NS: Nanos = 1_000_000_000;

/// Stands in a session until its login has said better, and in one whose login and configuration name none.
pub(crate) static LOGIN_COLLATION: Collation = Collation {
    id: charset::UTF8MB4_GENERAL_CI,
    charset: "utf8mb4",
    name: "utf8mb4_general_ci",
    is_default: true,
};

impl Session {
    /// Replaces a session's state, and what is derived from it.
    pub(crate) fn set_state(&mut self, ctx: &mut Context, state: std::rc::Rc<weir_session::state::State>) {
        let fallback = Dialect { server: self.tracked.dialect.server, ..ctx.learnt.default_dialect };
        let fallback = self.default_dialect(fallback);
        (self.tracked.dialect, self.tracked.is_text_certain) =
            crate::session::tracked::dialect_of(&state, fallback);
        // Until a server has told its own sql_mode, quotes and backslashes may mean one thing or another.
        self.tracked.knows_sql_mode =
            state.variable("sql_mode").is_some() || self.tracked.default_sql_mode().is_some();
        let has = |name: &str| state.variable(name).is_some_and(waits);
        self.tracked.has_servers_wait = has("wsrep_sync_wait") || has("group_replication_consistency");
        self.tracked.state = state;
        self.note_wait_timeout(ctx);
    }
}

/// Whether a server waits before reads with this value of `wsrep_sync_wait` or `group_replication_consistency`.
fn waits(value: &str) -> bool {
    value.contains("BEFORE") || value.parse::<u32>().is_ok_and(|bits| bits & 1 != 0)
}

/// How a statement is to be read in this state, and whether it can be read with certainty at all. `fallback`
/// holds where the session has not set sql_mode.
pub(crate) fn dialect_of(state: &Rc<State>, fallback: Dialect) -> (Dialect, bool) {
    let mut dialect = fallback;
    if let Some(mode) = state.variable("sql_mode") {
        apply_sql_mode(&mut dialect, mode);
    }
    let lead_bytes = state.variable("character_set_client").map(LeadBytes::of_charset);
    // In a few character sets (swe7) the bytes of SQL's own signs are letters.
    let is_certain = lead_bytes != Some(None);
    dialect.lead_bytes = lead_bytes.flatten().unwrap_or_default();
    (dialect, is_certain)
}

/// What sql_mode changes in how statements are read.
pub(crate) fn apply_sql_mode(dialect: &mut Dialect, mode: &str) {
    let has = |word: &str| mode.split(',').any(|part| part.eq_ignore_ascii_case(word));
    dialect.ansi_quotes = has("ANSI_QUOTES") || has("ANSI");
    dialect.brackets = has("MSSQL");
    dialect.no_backslash_escapes = has("NO_BACKSLASH_ESCAPES");
    dialect.ignore_space = has("IGNORE_SPACE") || has("ANSI");
}

impl Session {
    /// How its statements are read where it has not set sql_mode itself.
    pub(crate) fn default_dialect(&self, fallback: Dialect) -> Dialect {
        let mut dialect = fallback;
        if let Some(mode) = self.tracked.default_sql_mode() {
            apply_sql_mode(&mut dialect, mode);
        }
        dialect
    }
}

impl Tracked {
    pub(crate) fn default_sql_mode(&self) -> Option<&str> {
        self.defaults.as_ref()?.variables().variable("sql_mode")
    }
}

impl Session {
    /// The session's state has changed: it may have a `wait_timeout` of its own now.
    pub(crate) fn note_wait_timeout(&mut self, ctx: &mut Context) {
        let own_s =
            self.tracked.state.variable("wait_timeout").and_then(|text| text.parse().ok()).unwrap_or(0);
        if own_s == std::mem::replace(&mut self.times.own_wait_s, own_s)
            || !(1..=WATCHED_UP_TO_S).contains(&own_s)
        {
            return;
        }
        let (socket, at) = (self.socket, ctx.now + own_s * SECOND_NS);
        ctx.timers.wait(self.key, socket, at);
    }
}

impl Times {
    /// How long it may be silent by its own word; none if it has not set `wait_timeout`.
    pub(crate) fn own_wait(&self) -> Option<Nanos> {
        (self.own_wait_s > 0).then(|| self.own_wait_s.saturating_mul(SECOND_NS))
    }
}

impl Tracked {
    /// The message of an error, in its character set. Where that writes ASCII in several bytes servers (MariaDB 10.11,
    /// MySQL 9.7) send no message, or its first letter: there it stays readable.
    pub(crate) fn message_to<'m>(&self, message: &'m str) -> Cow<'m, [u8]> {
        let encoding = self.state.variable("character_set_results").and_then(Encoding::of);
        match encoding.filter(|encoding| !encoding.is_wide() && *encoding != Encoding::Utf8) {
            Some(encoding) => encoding.encode_all(message).into(),
            None => message.as_bytes().into(),
        }
    }
}

impl Tracked {
    /// Transactions of this session are read-only unless they say otherwise: SET SESSION TRANSACTION READ ONLY.
    pub(crate) fn begins_read_only(&self) -> bool {
        ["tx_read_only", "transaction_read_only"]
            .iter()
            .any(|name| self.state.variable(name).is_some_and(|value| matches!(value, "ON" | "1")))
    }
}
