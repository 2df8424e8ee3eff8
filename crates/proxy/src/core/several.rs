//! Several statements in one text: what the later ones ask for is what the earlier ones have left, and only the
//! connection knows that.

use weir_sql::{Kind, SessionFunction, Substitution, Uses, What};

use super::Core;
use super::local::Outcome;
use super::model::{Keeps, SessionKey};

/// Statements with one of these may give rows, and so set FOUND_ROWS().
const GIVING_ROWS: [&[u8]; 15] = [
    b"SELECT",
    b"SHOW",
    b"CALL",
    b"EXECUTE",
    b"WITH",
    b"DESC",
    b"DESCRIBE",
    b"EXPLAIN",
    b"ANALYZE",
    b"CHECK",
    b"OPTIMIZE",
    b"REPAIR",
    b"HANDLER",
    b"DO",
    b"UPDATE",
];

impl Core {
    /// Several statements, of which one asks for warnings or errors. Those that the session has from before are shown
    /// by their own statement only; without any the connection is to have none either.
    pub(super) fn several_ask(&mut self, key: SessionKey) -> Option<Outcome> {
        let session = &self.sessions[key];
        let statement = session.work.statement;
        if !session.runs_several()
            || !statement.uses.contains(Uses::DIAGNOSTICS)
            || session.keeps.contains(Keeps::WARNINGS)
        {
            return None;
        }
        let begins_with_them = matches!(
            statement.kind,
            Kind::ShowWarnings
                | Kind::ShowErrors
                | Kind::ShowCountWarnings
                | Kind::ShowCountErrors
                | Kind::GetDiagnostics
        ) || self.counts_diagnostics_first(key);
        let leaves_them = self.speaks_mariadb(key) && self.kind_leaves_warnings(key);
        if !begins_with_them && !leaves_them {
            return None;
        }
        if session.saved_rows(false).next().is_some() || session.has_lost_warnings() {
            self.refuse(
                key,
                "another session has used the connection: ask for warnings in a statement of its own, or after one that \
                 uses a table",
            );
            return Some(Outcome::Answered);
        }
        self.sessions[key].work.needs_no_conditions = true;
        None
    }

    /// Whether the first statement has `@@warning_count` or the like.
    fn counts_diagnostics_first(&self, key: SessionKey) -> bool {
        let places = weir_sql::substitutions(self.text(key), self.sessions[key].dialect);
        places.iter().any(|place| place.statement == 0 && matches!(place.what, What::DiagnosticsCount { .. }))
    }
}

/// Whether what stands here is known before the text runs, also behind other statements of it.
pub(super) fn is_known_before(place: &Substitution) -> bool {
    match &place.what {
        _ if place.statement == 0 => true,
        What::Function(SessionFunction::RowCount | SessionFunction::FoundRows)
        | What::DiagnosticsCount { .. } => false,
        What::Function(SessionFunction::ConnectionId)
        | What::ThreadIdVariable
        | What::LastGtid
        | What::SessionTrackVariable(_) => true,
    }
}

/// Whether a part of a text may set FOUND_ROWS().
pub(super) fn may_count_rows(text: &[u8]) -> bool {
    text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .any(|word| GIVING_ROWS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}
