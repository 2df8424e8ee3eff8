//! Answers statements itself, or changes them for the server: the client's session tracking, its connection id, counts
//! of its last statement, its saved warnings, KILL.

use std::ops::Range;

use weir_session::pin::Pins;
use weir_sql::{Access, Effects, KillKind, Kind, LeadBytes, SessionFunction, Uses, What, literal};

use crate::answers::literals;
use crate::answers::multi_statement::is_known_before;
use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::retained::Retained;
use crate::work::Work;

/// Servers refuse longer aliases (MariaDB: 256 characters), while names made from the text may be longer.
const ALIAS_BYTES_MAX: usize = 256;

/// A server would take Weir's connection ids for its own.
pub(crate) const KILL_ALONE: &str =
    "KILL must be sent alone and unprepared, because Weir translates connection ids";

/// Whether a command still needs a server.
pub(crate) enum Outcome {
    /// The reply is queued.
    Answered,
    /// It runs, perhaps with another text.
    Run,
    /// Other workers have to answer first.
    Asked,
}

impl Work<'_> {
    /// A statement that is about the session as the client knows it, which no server does.
    pub(crate) fn answer_or_rewrite(&mut self) -> Outcome {
        let statement = self.session.execution.plan.statement();
        if self.pools.fetches_from_elsewhere(self.ctx, self.session) {
            return Outcome::Asked;
        }
        if statement.effects.contains(Effects::KILL) && self.session.runs_several() {
            self.pools.refuse(self.ctx, self.session, KILL_ALONE);
            return Outcome::Answered;
        }
        if statement.kind == Kind::Kill {
            self.pools.outdate_warnings(self.ctx, self.session);
            return self.kill_statement();
        }
        if let Some(outcome) = self.explain_for() {
            return outcome;
        }
        if statement.effects.contains(Effects::VIRTUAL_VARIABLE) {
            self.pools.outdate_warnings(self.ctx, self.session);
            return self.pools.set_session_track(self.ctx, self.session);
        }
        if statement.multi {
            if let Some(outcome) = self.pools.several_ask(self.ctx, self.session) {
                return outcome;
            }
        } else if statement.uses.contains(Uses::DIAGNOSTICS)
            && let Some(outcome) = self.saved_diagnostics(statement.kind)
        {
            return outcome;
        }
        self.pools.substitute(self.ctx, self.session);
        Outcome::Run
    }

    /// KILL with a connection id of Weir's.
    fn kill_statement(&mut self) -> Outcome {
        self.pools.substitute(self.ctx, self.session); // KILL QUERY CONNECTION_ID()
        let rewritten = self.session.execution.text.rewritten.take();
        let text = rewritten.as_deref().unwrap_or_else(|| self.session.command_text());
        let Some(kill) = weir_sql::kill_target(text, self.session.tracked.dialect) else {
            self.pools.refuse(
                self.ctx,
                self.session,
                "Weir translates connection ids, so only these forms of KILL are possible: \
                 KILL [CONNECTION | QUERY] {<number> | USER <name>}",
            );
            return Outcome::Answered;
        };
        self.kill(&kill.target, kill.kind == KillKind::Query)
    }
}

/// Appends the rest of an item of a select list, and an alias that keeps its column's name. Returns where the text
/// goes on.
fn put_item_end(
    out: &mut Vec<u8>,
    text: &[u8],
    at: usize,
    item: &Range<usize>,
    lead_bytes: LeadBytes,
) -> usize {
    out.extend_from_slice(&text[at..item.end]);
    let alias = text.get(item.clone()).filter(|item| item.len() <= ALIAS_BYTES_MAX);
    if let Some(alias) = alias.and_then(|item| literal::identifier(item, lead_bytes)) {
        out.extend_from_slice(b" AS ");
        out.extend_from_slice(&alias);
    }
    item.end
}

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
        // Read again by Weir itself.
        let is_kill = session.execution.plan.statement().kind == Kind::Kill;
        let speaks_mariadb = self.speaks_mariadb(ctx, session);
        let writes = session.execution.plan.statement().access != Access::Read;
        let native_found_rows = session.diagnostics.retained.contains(Retained::FOUND_ROWS);
        let is_thread_id_set = session.pins.pins().contains(Pins::UNREADABLE_VARIABLE);
        let is_opaque = session.is_opaque();
        let opaque_thread_id =
            session.lease.filter(|_| is_opaque).map(|lease| self.connections[lease].access.greeted.thread_id);
        let mut rewritten = Vec::with_capacity(text.len() + 64);
        let mut at = 0;
        // The item that gets its own text as an alias behind what stands in the places of it.
        let mut item: Option<Range<usize>> = None;
        for place in places {
            if let Some(done) = item.take_if(|item| place.item.as_ref() != Some(item)) {
                at = put_item_end(&mut rewritten, text, at, &done, session.tracked.dialect.lead_bytes);
            }
            if !is_known_before(&place) {
                continue;
            }
            let literal = match &place.what {
                What::Function(SessionFunction::ConnectionId) if is_kill => session.id.to_string(),
                What::Function(SessionFunction::ConnectionId) => literals::connection_id(session.id),
                What::ThreadIdVariable if is_thread_id_set => continue,
                What::ThreadIdVariable => match opaque_thread_id {
                    Some(own) => literals::thread_id(session.id, own),
                    None => literals::variable(session.id),
                },
                What::Function(SessionFunction::RowCount | SessionFunction::FoundRows)
                | What::DiagnosticsCount { .. }
                    if is_prepared =>
                {
                    continue;
                }
                What::Function(SessionFunction::RowCount) => literals::count(session.diagnostics.row_count),
                What::Function(SessionFunction::FoundRows) if native_found_rows => continue,
                What::Function(SessionFunction::FoundRows) => match session.diagnostics.found_rows {
                    Some(rows) => literals::count(rows),
                    None => continue,
                },
                What::DiagnosticsCount { .. }
                    if session.diagnostics.retained.contains(Retained::WARNINGS) =>
                {
                    continue;
                }
                What::DiagnosticsCount { errors_only } => {
                    literals::variable(session.diagnostics.saved_rows(*errors_only).count())
                }
                // A server that does not know it says so; and statements before may have written.
                What::LastGtid if !speaks_mariadb || (writes && place.statement > 0) => continue,
                What::LastGtid => literals::gtid(&session.diagnostics.last_gtid),
                What::Consistency => literals::own_variable(Some(session.default_consistency(ctx).as_str())),
                What::CausalToken => {
                    // Executions, and statements before it in the text, may write.
                    let is_to_come = is_prepared || place.statement > 0;
                    literals::own_variable(session.causal_token(ctx, is_to_come))
                }
                What::SessionTrackVariable(name) => {
                    let defaults = self.track_defaults(ctx, session);
                    let preferences = session.track.as_deref().unwrap_or(&defaults);
                    let value = match is_opaque {
                        true => preferences.behind_code(name),
                        false => preferences.literal(name),
                    };
                    match value {
                        Some(literal) => literal,
                        None => continue,
                    }
                }
            };
            rewritten.extend_from_slice(&text[at..place.range.start]);
            rewritten.extend_from_slice(literal.as_bytes());
            at = place.range.end;
            item = place.item;
        }
        if at == 0 {
            return None;
        }
        if let Some(done) = item {
            at = put_item_end(&mut rewritten, text, at, &done, session.tracked.dialect.lead_bytes);
        }
        rewritten.extend_from_slice(&text[at..]);
        Some(rewritten)
    }
}
