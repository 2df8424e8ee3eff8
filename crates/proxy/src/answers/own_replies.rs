//! Answers statements itself, or changes them for the server: the client's session tracking, its saved warnings, KILL, and
//! what stands for values that only Weir knows (`substitution`).

use weir_sql::{Effects, KillKind, Kind, Uses};

use crate::work::Work;

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
