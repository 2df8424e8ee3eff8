//! Handles several statements in one text: the later ones ask for what the earlier ones have left, and only the
//! connection knows that.

use weir_sql::{Kind, SessionFunction, Substitution, Uses, What};

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::retained::Retained;

/// Whether what stands here is known before the text runs, also behind other statements of it.
pub(crate) fn is_known_before(place: &Substitution) -> bool {
    match &place.what {
        _ if place.statement == 0 => true,
        What::Function(SessionFunction::RowCount | SessionFunction::FoundRows)
        | What::DiagnosticsCount { .. } => false,
        What::Function(SessionFunction::ConnectionId)
        | What::ThreadIdVariable
        | What::LastGtid
        | What::Consistency
        | What::CausalToken
        | What::Replay
        | What::CommitOutcome
        | What::SessionTrackVariable(_) => true,
    }
}

impl Session {
    /// Whether the first statement has `@@warning_count` or the like.
    fn counts_diagnostics_first(&self) -> bool {
        let places = weir_sql::substitutions(self.command_text(), self.tracked.dialect);
        places.iter().any(|place| place.statement == 0 && matches!(place.what, What::DiagnosticsCount { .. }))
    }
}

impl Pools {
    /// Several statements, of which one asks for warnings or errors. Those that the session has from before are shown
    /// by their own statement only; without any the connection is to have none either.
    pub(crate) fn several_ask(&mut self, ctx: &mut Context, session: &mut Session) -> Option<Outcome> {
        let statement = session.execution.plan.statement();
        if !session.runs_several()
            || !statement.uses.contains(Uses::DIAGNOSTICS)
            || session.diagnostics.retained.contains(Retained::WARNINGS)
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
        ) || session.counts_diagnostics_first();
        let leaves_them = self.speaks_mariadb(ctx, session) && session.kind_leaves_warnings();
        if !begins_with_them && !leaves_them {
            return None;
        }
        if session.diagnostics.saved_rows(false).next().is_some() || session.diagnostics.has_lost_warnings() {
            self.refuse(ctx, session, "another session has used the connection: ask for warnings in a statement of its own, or after one that \
                 uses a table");
            return Some(Outcome::Answered);
        }
        session.execution.needs_no_conditions = true;
        None
    }
}
