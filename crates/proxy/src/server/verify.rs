//! Proves that a connection is as a login leaves it after a session that may have done anything, and that its server
//! still reports what happens there.

use weir_protocol::ok::OkPacket;
use weir_protocol::response::BrokenReply;
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::{Kind, Scope};

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::server::connection::{Expected, ServerConnection, Traces};
use crate::server::fetch::last_packet;
use crate::session::Session;

/// The schema that a COM_RESET_CONNECTION has left, and whether the role is the one of the login: it survives a reset
/// (MariaDB 10.11). As binary strings, in whatever character set results are.
const VERIFY: &[u8] = b"SELECT CAST(CONVERT(DATABASE() USING utf8mb4) AS BINARY), \
    CAST(CONVERT(IF(CURRENT_ROLE() <=> (SELECT ROLE_NAME FROM information_schema.APPLICABLE_ROLES \
    WHERE IS_DEFAULT = 'YES' LIMIT 1), 'login', 'other') USING latin1) AS BINARY)";

/// Whether a MySQL tracks as a connection's set-up has asked it to.
pub(crate) const TRACKS: &str = "SELECT @@session.session_track_system_variables = '*' AND @@session.session_track_schema \
    AND @@session.session_track_state_change AND @@session.session_track_transaction_info = 'CHARACTERISTICS'";

/// What a connection to a MariaDB has said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verified {
    pub schema: Vec<u8>,
    pub has_role_of_login: bool,
}

/// Whether a name in a list of SET is that of a variable that is reported.
fn may_be_variable(name: &str) -> bool {
    !matches!(
        name,
        "password"
            | "role"
            | "default"
            | "transaction"
            | "transaction_isolation"
            | "transaction_read_only"
            | "tx_isolation"
            | "tx_read_only"
    )
}

/// A connection that tracks must report what Weir has just set on it; else nobody knows what is set there.
pub(crate) fn must_report(ok: &OkPacket<'_>) -> Result<(), BrokenReply> {
    if ok.session_state.is_empty() {
        tracing::warn!(
            "a server does not report what was set on a connection: session tracking is off there"
        );
        return Err(BrokenReply::Malformed);
    }
    Ok(())
}

/// The last row among these packets.
pub(crate) fn last_row(bytes: &[u8]) -> Option<Verified> {
    let row = last_packet(bytes)?;
    let mut reader = Reader::new(row);
    const NULL: u8 = 0xFB;
    let schema = match row.first() {
        Some(&NULL) => {
            reader.u8().ok()?;
            Vec::new()
        }
        _ => reader.lenenc_bytes().ok()?.to_vec(),
    };
    Some(Verified { schema, has_role_of_login: reader.lenenc_bytes().ok()? == b"login" })
}

impl Session {
    fn sets_session_variable(&self) -> bool {
        let text = match &self.execution.text.rewritten {
            Some(rewritten) => rewritten,
            None => self.statement_text(),
        };
        let assignments = weir_sql::assignments(text, self.tracked.dialect).unwrap_or_default();
        assignments.iter().any(|assignment| {
            let is_sessions = matches!(assignment.scope, Scope::Session | Scope::Unscoped);
            // Unscoped ones behind `@@` are not reported in a prepared statement or a long text.
            let is_reported =
                assignment.scope == Scope::Session || text.get(assignment.range.start) != Some(&b'@');
            !assignment.user_variable && is_sessions && is_reported && may_be_variable(&assignment.name)
        })
    }
}

impl ServerConnection {
    /// Asks a connection that was reset and set up whether it is as it should be.
    pub(crate) fn verify(&mut self, ctx: &mut Context) {
        self.send_query(ctx, VERIFY);
        self.expect(ctx, Expected::Verify);
    }
}

impl ServerConnection {
    /// Whether a statement of another session has failed here, so that it has to tell whether it still tracks.
    pub(crate) fn has_to_tell_if_it_tracks(&self, session: &Session) -> bool {
        self.traces.unproven.is_some_and(|by| by != session.socket)
    }
}

impl Traces {
    /// A statement that changes what servers report, and of which nothing was reported: somebody has switched session
    /// tracking off on this connection. The session stays here, and leaves the connection to be wiped.
    pub(crate) fn check_tracking(&mut self, session: &mut Session) {
        let execution = &session.execution;
        if !self.is_tracked || execution.plan.statement().multi {
            return;
        }
        let is_untold = match (execution.plan.kind(), execution.plan.statement().kind) {
            (CommandKind::InitDb, _) | (CommandKind::Query | CommandKind::Execute, Kind::Use) => {
                !execution.reply.reported.schema
            }
            (CommandKind::Query | CommandKind::Execute, Kind::Set) => {
                !execution.reply.reported.is_change() && session.sets_session_variable()
            }
            _ => false,
        };
        if is_untold {
            tracing::warn!(
                session = session.id,
                "session tracking is off on a connection: it stays with its session"
            );
            self.is_tracked = false;
            session.pins.insert(Pins::STATE_CHANGE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let row = |schema: &[u8], role: &[u8]| {
            let mut packet = vec![(schema.len() + role.len()) as u8, 0, 0, 3];
            packet.extend_from_slice(schema);
            packet.extend_from_slice(role);
            packet
        };
        let verified =
            |schema: &[u8], is_login| Some(Verified { schema: schema.to_vec(), has_role_of_login: is_login });
        assert_eq!(last_row(&row(b"\x04shop", b"\x05login")), verified(b"shop", true));
        assert_eq!(last_row(&row(b"\xfb", b"\x05other")), verified(b"", false));
        assert_eq!(last_row(&row(b"\x04shop", b"")), None);
        assert_eq!(last_row(b""), None);
        assert_eq!(last_row(&row(b"\x04shop", b"\x05login")[..8]), None);
    }
}
