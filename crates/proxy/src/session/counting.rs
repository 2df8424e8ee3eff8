//! Counts a session's statements: their digests, and what Weir itself has answered.

use std::rc::Rc;

use weir_protocol::command::Command;
use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::Prepared;
use weir_sql::Digest;

use crate::context::Context;
use crate::session::Session;
use crate::stats::statements::KnownCaller;
use crate::stats::{Caller, CallerId, DigestKey, Execution};

impl Session {
    /// The digest of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox, as the client has sent it.
    pub(crate) fn digest_command(&mut self, ctx: &mut Context) {
        if !self.makes_digest(ctx) {
            return;
        }
        let end = self.input.command_bytes.min(self.input.inbox.len());
        let text = self.input.inbox.get(HEADER_LEN + 1..end).unwrap_or_default();
        let digest = ctx.digester.digest(text);
        ctx.statistics.note_text(&digest);
        self.execution.digest = Some(digest.hash);
    }

    /// The digest of a statement that was prepared earlier.
    pub(crate) fn digest_prepared(&mut self, ctx: &mut Context, prepared: &Prepared) {
        if !self.makes_digest(ctx) {
            return;
        }
        let known = prepared.digest.get();
        let hash = known.unwrap_or_else(|| {
            let digest = ctx.digester.digest(prepared.text());
            prepared.digest.set(Some(digest.hash));
            *prepared.digest_text.borrow_mut() = digest.text.into();
            digest.hash
        });
        // The table that has its text may have been handed over since.
        ctx.statistics.note_text(&Digest { text: &prepared.digest_text.borrow(), hash });
        self.execution.digest = Some(hash);
    }

    /// Users of bound sessions want the least overhead.
    fn makes_digest(&self, ctx: &Context) -> bool {
        ctx.snapshot.variables.query_digests && !self.is_bound()
    }

    /// A session's command is over: a statement to which Weir itself has given the answer counts where it was sent, or
    /// would have gone.
    pub(crate) fn count_own_answer(&mut self, ctx: &mut Context) {
        let execution = &mut self.execution;
        if execution.record.is_counted
            || !matches!(Command::parse(execution.text.code), Some(Command::Query | Command::StmtExecute))
        {
            return;
        }
        execution.record.is_counted = true;
        let took_ns = ctx.now.saturating_sub(execution.record.begun_at);
        ctx.statistics.commands.count(execution.plan.statement().kind, took_ns);
        ctx.statistics.totals.slow_queries += u64::from(ctx.query_log.is_long(took_ns));
        let Some(digest) = execution.digest else { return };
        let sent_to = (execution.tries.times_sent > 0).then_some(execution.served_by);
        let wanted = sent_to.or(execution.plan.decision().hostgroup);
        let hostgroup = wanted.unwrap_or_else(|| self.home_hostgroup());
        let row = DigestKey { hostgroup, caller: self.caller(ctx), digest };
        ctx.statistics.count(row, &Execution { took_ns, ..Execution::default() }, ctx.now);
    }

    pub(crate) fn caller(&mut self, ctx: &mut Context) -> CallerId {
        if let Some(known) = &mut self.place.caller {
            if Rc::ptr_eq(&known.state, &self.tracked.state) {
                return known.id;
            }
            if known.state.schema() == self.tracked.state.schema() {
                known.state = self.tracked.state.clone();
                return known.id;
            }
        }
        let username = self.account.as_ref().map_or("", |account| &account.user.username);
        let address = ctx.snapshot.variables.query_digests_track_hostname.then(|| self.client.peer.ip());
        let caller = Caller {
            username: username.as_bytes().into(),
            schemaname: self.tracked.state.schema().into(),
            client_address: match address {
                None => "".into(),
                Some(Some(ip)) => ip.to_string().into(),
                Some(None) => "localhost".into(),
            },
        };
        let id = ctx.statistics.caller(caller);
        self.place.caller = Some(KnownCaller { state: self.tracked.state.clone(), id });
        id
    }
}
