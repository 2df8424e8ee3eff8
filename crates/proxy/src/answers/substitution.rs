//! Puts values in the place of what only Weir knows: the client's connection id, counts of its last statement, its session
//! tracking, Weir's own variables.

use std::ops::Range;

use weir_session::pin::Pins;
use weir_sql::{Access, Kind, LeadBytes, SessionFunction, Substitution, What, literal};

use crate::answers::literals;
use crate::answers::multi_statement::is_known_before;
use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::retained::Retained;
use crate::session::text::has_word;

/// Servers refuse longer aliases (MariaDB: 256 characters), while names made from the text may be longer.
const ALIAS_BYTES_MAX: usize = 256;

impl Pools {
    /// Puts values in the place of what only Weir knows. What changes from statement to statement can't be put
    /// into one that is prepared.
    pub(crate) fn substitute(&self, ctx: &Context, session: &mut Session) {
        let is_prepared = session.execution.plan.kind() == CommandKind::Prepare;
        if let Some(rewritten) = self.substituted(ctx, session, session.command_text(), is_prepared) {
            session.execution.text.rewritten = Some(rewritten);
        }
    }

    /// The same with a text that the session's stands for. None if nothing is to be put anywhere.
    pub(crate) fn substituted(
        &self,
        ctx: &Context,
        session: &Session,
        text: &[u8],
        is_prepared: bool,
    ) -> Option<Vec<u8>> {
        let places = weir_sql::substitutions(text, session.tracked.dialect);
        if places.is_empty() {
            return None;
        }
        let mut rewriting = Rewriting::of(text, session.tracked.dialect.lead_bytes);
        for place in places {
            rewriting.reach(&place);
            if is_known_before(&place)
                && let Some(literal) = self.literal_for(ctx, session, &place, is_prepared)
            {
                rewriting.put(place, &literal);
            }
        }
        rewriting.finish()
    }

    /// What a server is to read at this place. None if the server itself knows it, or nobody does.
    fn literal_for(
        &self,
        ctx: &Context,
        session: &Session,
        place: &Substitution,
        is_prepared: bool,
    ) -> Option<String> {
        let diagnostics = &session.diagnostics;
        let statement = session.execution.plan.statement();
        Some(match &place.what {
            // Read again by Weir itself.
            What::Function(SessionFunction::ConnectionId) if statement.kind == Kind::Kill => {
                session.id.to_string()
            }
            What::Function(SessionFunction::ConnectionId) => literals::connection_id(session.id),
            What::ThreadIdVariable => self.thread_id_literal(session)?,
            What::Function(SessionFunction::RowCount | SessionFunction::FoundRows)
            | What::DiagnosticsCount { .. }
                if is_prepared =>
            {
                return None;
            }
            What::Function(SessionFunction::RowCount) => literals::count(diagnostics.row_count),
            What::Function(SessionFunction::FoundRows)
                if diagnostics.retained.contains(Retained::FOUND_ROWS) =>
            {
                return None;
            }
            What::Function(SessionFunction::FoundRows) => literals::count(diagnostics.found_rows?),
            What::DiagnosticsCount { .. } if diagnostics.retained.contains(Retained::WARNINGS) => {
                return None;
            }
            What::DiagnosticsCount { errors_only } => {
                literals::variable(diagnostics.saved_rows(*errors_only).count())
            }
            What::LastGtid => {
                // A server that does not know it says so; and statements before may have written.
                let may_be_outdated = statement.access != Access::Read && place.statement > 0;
                if may_be_outdated || !self.speaks_mariadb(ctx, session) {
                    return None;
                }
                literals::gtid(&diagnostics.last_gtid)
            }
            What::Consistency => literals::own_variable(Some(session.default_consistency(ctx).as_str())),
            What::Replay => {
                literals::own_variable(Some(&session.default_replay(ctx).as_str().to_ascii_uppercase()))
            }
            What::CommitOutcome => literals::own_variable(Some(session.default_commit_outcome(ctx).as_str())),
            What::CausalToken => {
                // Executions, statements before it in the text and the statement itself may write, or show more than has
                // been seen.
                let shows_more =
                    statement.access == Access::Write || has_word(session.statement_text(), "FROM");
                let is_to_come = is_prepared || place.statement > 0 || shows_more;
                literals::own_variable(session.causal_token(ctx, is_to_come))
            }
            What::SessionTrackVariable(name) => {
                let defaults = self.track_defaults(ctx, session);
                let preferences = session.track.as_deref().unwrap_or(&defaults);
                match session.is_opaque() {
                    true => preferences.behind_code(name)?,
                    false => preferences.literal(name)?,
                }
            }
        })
    }

    /// `@@pseudo_thread_id`. None if the session has set it in a way that Weir could not read.
    fn thread_id_literal(&self, session: &Session) -> Option<String> {
        if session.pins.pins().contains(Pins::UNREADABLE_VARIABLE) {
            return None;
        }
        let opaque_lease = session.lease().filter(|_| session.is_opaque());
        Some(match opaque_lease {
            Some(lease) => literals::thread_id(session.id, self.connections[lease].access.greeted.thread_id),
            None => literals::variable(session.id),
        })
    }
}

/// A text on its way to the server: up to a place it is written, behind it the client's stands.
struct Rewriting<'t> {
    text: &'t [u8],
    lead_bytes: LeadBytes,
    out: Vec<u8>,
    /// So much of the client's text is written, or was replaced.
    at: usize,
    /// The item of a select list that gets its own text as an alias, behind what stands in the places of it.
    item: Option<Range<usize>>,
}

impl<'t> Rewriting<'t> {
    fn of(text: &'t [u8], lead_bytes: LeadBytes) -> Self {
        let out = Vec::with_capacity(text.len() + 64);
        Rewriting { text, lead_bytes, out, at: 0, item: None }
    }

    /// The next place is this one: an item of which it is no part is over.
    fn reach(&mut self, place: &Substitution) {
        if let Some(done) = self.item.take_if(|item| place.item.as_ref() != Some(item)) {
            self.end_item(&done);
        }
    }

    /// Writes a value in the place.
    fn put(&mut self, place: Substitution, literal: &str) {
        self.out.extend_from_slice(&self.text[self.at..place.range.start]);
        self.out.extend_from_slice(literal.as_bytes());
        self.at = place.range.end;
        self.item = place.item;
    }

    /// Writes the rest of an item, and an alias that keeps its column's name.
    fn end_item(&mut self, item: &Range<usize>) {
        self.out.extend_from_slice(&self.text[self.at..item.end]);
        let alias = self.text.get(item.clone()).filter(|item| item.len() <= ALIAS_BYTES_MAX);
        if let Some(alias) = alias.and_then(|item| literal::identifier(item, self.lead_bytes)) {
            self.out.extend_from_slice(b" AS ");
            self.out.extend_from_slice(&alias);
        }
        self.at = item.end;
    }

    /// The whole text. None if nothing was put anywhere.
    fn finish(mut self) -> Option<Vec<u8>> {
        if self.at == 0 {
            return None;
        }
        if let Some(done) = self.item.take() {
            self.end_item(&done);
        }
        self.out.extend_from_slice(&self.text[self.at..]);
        Some(self.out)
    }
}
