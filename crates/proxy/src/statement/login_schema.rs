//! Refuses a login into a schema that does not exist, as a server does (1049, 1044 without the right to it).
//!
//! Only a server knows. So that a login does not take a round trip more, a worker remembers for a while into which
//! schemas each user has come.

use crate::keys::Nanos;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::session::execution::Ending;
use crate::work::Work;

/// How long a schema is taken to exist. One that is dropped meanwhile fails at the first statement.
const KNOWN_NS: Nanos = 60_000_000_000;
/// It exists everywhere.
const ALWAYS_THERE: &[u8] = b"information_schema";

impl Work<'_> {
    /// Has a server asked whether the session, which has just logged in, may be in its schema. False if there is
    /// nothing to ask.
    pub(crate) fn checks_schema(&mut self, login_sequence: u8) -> bool {
        self.ctx
            .learnt
            .known_schemas
            .drop_outdated(self.pools.servers.iter().map(|pool| pool.server.shared.renewal()).sum());
        let session = &*self.session;
        let schema = session.tracked.state.schema();
        let Some(account) = &session.account else { return false };
        if schema.is_empty()
            || schema.eq_ignore_ascii_case(ALWAYS_THERE)
            || self.ctx.learnt.known_schemas.contains(&account.user.username, schema, self.ctx.now)
        {
            return false;
        }
        let schema = schema.to_vec();
        let session = &mut *self.session;
        session.execution.reset(self.ctx.now);
        session.execution.plan = ExecutionPlan::of_command(CommandKind::LoginSchema);
        session.execution.text.rewritten = Some(schema);
        session.execution.text.login_sequence = login_sequence;
        self.start();
        true
    }

    /// The server has answered.
    pub(crate) fn schema_checked(&mut self) {
        let session = &mut *self.session;
        match (session.execution.ending, session.farewell.owed_error.take()) {
            (Ending::Err(_), Some(owed)) => self.session.schema_unchecked(self.ctx, owed.0, &owed.1),
            _ => {
                if let (Some(account), Some(schema)) = (&session.account, &session.execution.text.rewritten) {
                    self.ctx.learnt.known_schemas.insert(
                        &account.user.username,
                        schema,
                        self.ctx.now + KNOWN_NS,
                    );
                }
                self.session.login_done(self.ctx);
            }
        }
        self.settle_down();
    }
}
