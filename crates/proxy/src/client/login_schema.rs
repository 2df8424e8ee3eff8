//! A login into a schema that does not exist fails, as at a server (1049, 1044 without the right to it).
//!
//! Only a server knows. So that a login does not take a round trip more, a worker remembers for a while into which
//! schemas each user has come.


use weir_protocol::error::{self, ServerError};

use crate::context::Context;
use crate::keys::Nanos;
use crate::plan::execution_plan::{CommandKind, ExecutionPlan};
use crate::pool::pools::Pools;
use crate::pool::relogin::is_about_user;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::statement::work::Work;

/// How long a schema is taken to exist. One that is dropped meanwhile fails at the first statement.
const KNOWN_NS: Nanos = 60_000_000_000;
/// What servers say of a schema that there can't be or that is not there: without the right to it, unknown, too long
/// (MySQL), a wrong name, or no characters (MariaDB).
const NO_SUCH_SCHEMA: [u16; 5] = [error::DB_ACCESS_DENIED.code, error::BAD_DB.code, 1059, 1102, 1300];
/// No database selected.
const NO_SCHEMA: u16 = 1046;
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

impl Session {
    /// An error in place of the server's word on the schema, or that word itself. A login that can't be checked is
    /// good: if no server can be had, its first statement will say why.
    pub(crate) fn schema_unchecked(&mut self, ctx: &mut Context, error: ServerError, message: &str) {
        if error.code == NO_SCHEMA && self.execution.tries.is_sent {
            // MySQL (9.7) reads nothing but characters that it can't, and leaves the client without a schema.
            let state = self.tracked.state.with_schema(b"");
            let state = ctx.interner.intern(state);
            self.set_state(ctx, state);
            return self.login_done(ctx);
        }
        if !NO_SUCH_SCHEMA.contains(&error.code) && !is_about_user(error.code) {
            return self.login_done(ctx);
        }
        self.input.close_when_done = true;
        self.put_login_error(ctx, error, message);
    }
}

impl Pools {
    /// A session with schema_locked stays in the schema of its login: the error is that of a user without the right to
    /// any other.
    pub(crate) fn refuse_schema(&mut self, ctx: &mut Context, session: &mut Session) {
        let message = format!(
            "The schema of user '{}' is locked (schema_locked): the session stays in '{}'",
            session.account.as_ref().map_or("", |account| &account.user.username),
            String::from_utf8_lossy(session.tracked.state.schema())
        );
        self.reply_error(ctx, session, error::DB_ACCESS_DENIED, &message);
    }
}
