//! Decides which statements are run again when their connection to a server is lost, how often, and where.
//!
//! A server that dies loses its connections one after the other. A statement that is begun again on another one of
//! them, and loses that as well, has seen one server fail, not two: `query_retries_on_failure` counts servers. How often
//! it is sent in all is limited by `connect_retries_on_failure`. A connection that was opened after the last loss shows
//! that the server lived then; a statement that makes servers crash does not get past that.

use weir_sql::Kind;

use crate::context::Context;
use crate::plan::execution_plan::CommandKind;
use crate::session::Session;
use crate::session::execution::Lost;

impl Session {
    /// Whether the work of a session without pins that loses its connection may simply be started again: nothing of it
    /// can have had an effect, and the client has seen nothing.
    pub(crate) fn may_retry(&self, ctx: &Context, lost: Lost) -> bool {
        let execution = &self.execution;
        let variables = &ctx.snapshot.variables;
        let in_all = variables.connect_retries_on_failure;
        let has_seen_nothing = !execution.reply.is_answering || execution.reply.buffered_bytes_max > 0;
        if !execution.tries.is_sent {
            // It is not run again, but for the first time.
            return has_seen_nothing && execution.tries.attempts <= in_all;
        }
        let usual = match execution.plan.is_boundary() {
            // It does nothing by itself, so no server dies of it.
            true => in_all,
            false => variables.query_retries_on_failure,
        };
        let retries = execution.plan.decision().retries.unwrap_or(usual);
        has_seen_nothing
            && execution.tries.failures_with(lost, ctx.now) <= retries
            && execution.tries.times_sent <= retries.max(in_all)
            && self.input.upload.is_none()
            && (execution.plan.leaves_with_connection() || self.text_leaves_with_connection(ctx))
    }

    /// The same by the text of a statement.
    fn text_leaves_with_connection(&self, ctx: &Context) -> bool {
        let statement = self.execution.plan.statement();
        let is_certain = self.execution.plan.kind() == CommandKind::Query && self.is_surely_read(ctx);
        if !is_certain || statement.multi || !statement.effects.is_empty() {
            return false;
        }
        match statement.kind {
            Kind::Set | Kind::SetTransaction | Kind::Show => {
                weir_sql::stays_in_session(self.command_text(), self.tracked.dialect)
            }
            _ => self.execution.plan.asks_variables(),
        }
    }
}
