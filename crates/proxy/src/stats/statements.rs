//! Counts statements: their digest, how long they took, and how they ended.

use std::rc::Rc;

use weir_protocol::command::Command;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::Prepared;
use weir_session::state::State;
use weir_sql::{Digest, DigestOptions};

use crate::client::login::USER_LIMIT_REACHED;
use crate::context::Context;
use crate::context::keys::{ConnectionKey, ServerIndex};
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::ServerConnection;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::snapshot::Snapshot;
use crate::stats::{Caller, CallerId, DigestKey, ErrorKey, Execution, Histogram};

/// A session's number in the statistics, with the schema for which it holds.
#[derive(Debug)]
pub(crate) struct KnownCaller {
    state: Rc<State>,
    id: CallerId,
}

/// Hostgroups of one server that are counted apart. Only many reloads can bring more: those count for the first.
const HOSTGROUPS_MAX: usize = 64;

/// This worker's dealings with a server, by the hostgroup for which it was used.
#[derive(Debug, Default)]
pub(crate) struct PoolCounts(Vec<ServerCounts>);

/// This worker's dealings with a server for one hostgroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounts {
    pub hostgroup: u32,
    pub opened: u64,
    pub failed: u64,
    pub open_max: u32,
    pub queries: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub latency: Histogram,
    pub latency_sum_us: u64,
}

impl PoolCounts {
    /// Those of a hostgroup, which begin with the first call.
    pub(crate) fn of(&mut self, hostgroup: u32) -> &mut ServerCounts {
        let known = self.0.iter().position(|counts| counts.hostgroup == hostgroup);
        let at = known.unwrap_or_else(|| {
            if self.0.len() >= HOSTGROUPS_MAX {
                return 0;
            }
            self.0.push(ServerCounts { hostgroup, ..ServerCounts::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServerCounts> {
        self.0.iter()
    }

    /// Everything begins again.
    pub(crate) fn begin_again(&mut self) {
        for counts in &mut self.0 {
            *counts = ServerCounts { hostgroup: counts.hostgroup, ..ServerCounts::default() };
        }
    }
}

impl Context {
    /// New options: digests that are made from now on follow them. False if they are the same.
    pub(crate) fn take_digest_options(&mut self, snapshot: &Snapshot) -> bool {
        let options = digest_options(snapshot);
        if *self.digester.options() == options {
            return false;
        }
        self.digester = weir_sql::Digester::new(options);
        true
    }
}

/// The `mysql-query_digests_*` variables.
pub(crate) fn digest_options(snapshot: &Snapshot) -> DigestOptions {
    let variables = &snapshot.variables;
    DigestOptions {
        lowercase: variables.query_digests_lowercase,
        replace_null: variables.query_digests_replace_null,
        no_digits: variables.query_digests_no_digits,
        keep_comment: variables.query_digests_keep_comment,
        max_digest_length: variables.query_digests_max_digest_length as usize,
        max_query_length: variables.query_digests_max_query_length as usize,
        grouping_limit: variables.query_digests_grouping_limit as usize,
        groups_grouping_limit: variables.query_digests_groups_grouping_limit as usize,
    }
}

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

    fn caller(&mut self, ctx: &mut Context) -> CallerId {
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

impl Context {
    /// A client has sent a command.
    pub(crate) fn count_command(&mut self, command: Option<Command>) {
        let totals = &mut self.statistics.totals;
        totals.questions += 1;
        match command {
            Some(Command::InitDb) => totals.client_init_db += 1,
            Some(Command::StmtPrepare) => totals.client_prepares += 1,
            Some(Command::StmtExecute) => totals.client_executes += 1,
            Some(Command::StmtClose) => totals.client_closes += 1,
            _ => {}
        }
    }

    /// A client is turned away.
    pub(crate) fn count_refused(&mut self, error: ServerError) {
        let totals = &mut self.statistics.totals;
        totals.clients_refused += 1;
        match error {
            error::ACCESS_DENIED => totals.refused_password += 1,
            error::CON_COUNT_ERROR => totals.refused_max_connections += 1,
            USER_LIMIT_REACHED => totals.refused_max_user_connections += 1,
            _ => {}
        }
    }
}

impl Pools {
    /// A connection is being opened.
    pub(crate) fn count_open(&mut self, server: ServerIndex, hostgroup: u32) {
        let pool = &mut self.servers[server];
        let counts = pool.counts.of(hostgroup);
        counts.open_max = counts.open_max.max(pool.open);
    }
}

impl ServerConnection {
    /// A server has answered a session's command with an error.
    pub(crate) fn count_error(&self, ctx: &mut Context, session: &mut Session, code: u16, message: &[u8]) {
        let caller = session.caller(ctx);
        let ServerConnection { server, hostgroup, .. } = *self;
        session.execution.note_error_text(ctx, message);
        let row = ErrorKey { hostgroup, server, caller, code };
        ctx.statistics.errors.count(row, message, ctx.now);
    }
}

impl Pools {
    /// A statement has been answered by a server.
    pub(crate) fn count_statement(&mut self, ctx: &mut Context, session: &mut Session, key: ConnectionKey) {
        self.connections[key].replies.note_answer(ctx, session);
        let execution = &mut session.execution;
        if !matches!(execution.plan.kind(), CommandKind::Query | CommandKind::Execute) {
            return;
        }
        execution.record.is_counted = true;
        let took_ns = ctx.now.saturating_sub(execution.record.begun_at);
        ctx.statistics.commands.count(execution.plan.statement().kind, took_ns);
        ctx.statistics.totals.slow_queries += u64::from(ctx.query_log.is_long(took_ns));
        let server = self.connections[key].server;
        let on_server_ns = ctx.now.saturating_sub(execution.tries.started_at);
        ctx.statistics.totals.server_time_ns += on_server_ns;
        let counts = self.servers[server].counts.of(self.connections[key].hostgroup);
        counts.latency.record(on_server_ns / 1000);
        counts.latency_sum_us = counts.latency_sum_us.saturating_add(on_server_ns / 1000);
        if let Some(rule_id) = execution.plan.decision().rule_id {
            ctx.statistics.rules.count(rule_id, took_ns);
        }
        let Some(digest) = execution.digest else { return };
        let hostgroup = self.connections[key].hostgroup;
        let (rows_affected, rows_sent) = match execution.ending {
            Ending::Ok { affected_rows, has_rows: false, .. } => (affected_rows, 0),
            Ending::Ok { has_rows: true, .. } => (0, self.connections[key].replies.rows),
            Ending::Err(_) | Ending::None => (0, 0),
        };
        let caller = session.caller(ctx);
        let row = DigestKey { hostgroup, caller, digest };
        ctx.statistics.count(row, &Execution { took_ns, rows_affected, rows_sent }, ctx.now);
    }
}
