//! What is counted of statements: which digest they have, how long they took, and how they ended.

use std::rc::Rc;

use weir_protocol::command::Command;
use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::Prepared;
use weir_session::state::State;
use weir_sql::{Digest, DigestOptions};

use super::Core;
use super::client::USER_LIMIT_REACHED;
use super::model::{Backend, BackendKey, Ending, ServerIndex, SessionKey, WorkKind};
use crate::snapshot::Snapshot;
use crate::statistics::{Caller, CallerId, DigestKey, ErrorKey, Execution, Histogram};

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
pub(super) struct PoolCounts(Vec<ServerCounts>);

/// This worker's dealings with a server for one hostgroup.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerCounts {
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
    pub(super) fn of(&mut self, hostgroup: u32) -> &mut ServerCounts {
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
    pub(super) fn iter(&self) -> impl Iterator<Item = &ServerCounts> {
        self.0.iter()
    }

    /// Everything begins again.
    pub(super) fn begin_again(&mut self) {
        for counts in &mut self.0 {
            *counts = ServerCounts { hostgroup: counts.hostgroup, ..ServerCounts::default() };
        }
    }
}

impl Core {
    /// The digest of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox, as the client has sent it.
    pub(super) fn digest_command(&mut self, key: SessionKey) {
        if !self.makes_digest(key) {
            return;
        }
        let session = &mut self.sessions[key];
        let end = session.command_bytes.min(session.inbox.len());
        let text = session.inbox.get(HEADER_LEN + 1..end).unwrap_or_default();
        let digest = self.digester.digest(text);
        self.statistics.note_text(&digest);
        session.work.digest = Some(digest.hash);
    }

    /// The digest of a statement that was prepared earlier.
    pub(super) fn digest_prepared(&mut self, key: SessionKey, prepared: &Prepared) {
        if !self.makes_digest(key) {
            return;
        }
        let known = prepared.digest.get();
        let hash = known.unwrap_or_else(|| {
            let digest = self.digester.digest(prepared.text());
            prepared.digest.set(Some(digest.hash));
            *prepared.digest_text.borrow_mut() = digest.text.into();
            digest.hash
        });
        // The table that has its text may have been handed over since.
        self.statistics.note_text(&Digest { text: &prepared.digest_text.borrow(), hash });
        self.sessions[key].work.digest = Some(hash);
    }

    /// Users of bound sessions want the least overhead.
    fn makes_digest(&self, key: SessionKey) -> bool {
        self.snapshot.variables.query_digests && !self.sessions[key].is_bound()
    }

    /// A statement has been answered by a server.
    pub(super) fn count_statement(&mut self, key: BackendKey, holder: SessionKey) {
        self.note_answer(key, holder);
        let work = &mut self.sessions[holder].work;
        if !matches!(work.kind, WorkKind::Query | WorkKind::Execute) {
            return;
        }
        work.is_counted = true;
        let took_ns = self.now.saturating_sub(work.begun_at);
        self.statistics.commands.count(work.statement.kind, took_ns);
        self.statistics.totals.slow_queries += u64::from(self.scribe.is_long(took_ns));
        let server = self.backends[key].server;
        let on_server_ns = self.now.saturating_sub(work.started_at);
        self.statistics.totals.server_time_ns += on_server_ns;
        let counts = self.servers[server].counts.of(self.backends[key].hostgroup);
        counts.latency.record(on_server_ns / 1000);
        counts.latency_sum_us = counts.latency_sum_us.saturating_add(on_server_ns / 1000);
        if let Some(rule_id) = work.decision.rule_id {
            self.statistics.rules.count(rule_id, took_ns);
        }
        let Some(digest) = work.digest else { return };
        let hostgroup = self.backends[key].hostgroup;
        let (rows_affected, rows_sent) = match work.ending {
            Ending::Ok { affected_rows, has_rows: false, .. } => (affected_rows, 0),
            Ending::Ok { has_rows: true, .. } => (0, self.backends[key].reply_rows),
            Ending::Err(_) | Ending::None => (0, 0),
        };
        let caller = self.caller(holder);
        let row = DigestKey { hostgroup, caller, digest };
        self.statistics.count(row, &Execution { took_ns, rows_affected, rows_sent }, self.now);
    }

    /// A session's command is over: a statement to which Weir itself has given the answer counts where it was sent, or
    /// would have gone.
    pub(super) fn count_own_answer(&mut self, key: SessionKey) {
        let work = &mut self.sessions[key].work;
        if work.is_counted
            || !matches!(Command::parse(work.code), Some(Command::Query | Command::StmtExecute))
        {
            return;
        }
        work.is_counted = true;
        let took_ns = self.now.saturating_sub(work.begun_at);
        self.statistics.commands.count(work.statement.kind, took_ns);
        self.statistics.totals.slow_queries += u64::from(self.scribe.is_long(took_ns));
        let Some(digest) = work.digest else { return };
        let sent_to = (work.times_sent > 0).then_some(work.served_by);
        let wanted = sent_to.or(work.decision.hostgroup);
        let hostgroup = wanted.unwrap_or_else(|| self.sessions[key].home_hostgroup());
        let row = DigestKey { hostgroup, caller: self.caller(key), digest };
        self.statistics.count(row, &Execution { took_ns, ..Execution::default() }, self.now);
    }

    /// A server has answered a session's command with an error.
    pub(super) fn count_error(&mut self, key: BackendKey, holder: SessionKey, code: u16, message: &[u8]) {
        let caller = self.caller(holder);
        let Backend { server, hostgroup, .. } = self.backends[key];
        self.note_error_text(holder, message);
        let row = ErrorKey { hostgroup, server, caller, code };
        self.statistics.errors.count(row, message, self.now);
    }

    /// A client has sent a command.
    pub(super) fn count_command(&mut self, command: Option<Command>) {
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
    pub(super) fn count_refused(&mut self, error: ServerError) {
        let totals = &mut self.statistics.totals;
        totals.clients_refused += 1;
        match error {
            error::ACCESS_DENIED => totals.refused_password += 1,
            error::CON_COUNT_ERROR => totals.refused_max_connections += 1,
            USER_LIMIT_REACHED => totals.refused_max_user_connections += 1,
            _ => {}
        }
    }

    /// A connection is being opened.
    pub(super) fn count_open(&mut self, server: ServerIndex, hostgroup: u32) {
        let pool = &mut self.servers[server];
        let counts = pool.counts.of(hostgroup);
        counts.open_max = counts.open_max.max(pool.open);
    }

    fn caller(&mut self, key: SessionKey) -> CallerId {
        let session = &mut self.sessions[key];
        if let Some(known) = &mut session.caller {
            if Rc::ptr_eq(&known.state, &session.state) {
                return known.id;
            }
            if known.state.schema() == session.state.schema() {
                known.state = session.state.clone();
                return known.id;
            }
        }
        let username = session.account.as_ref().map_or("", |account| &account.user.username);
        let address = self.snapshot.variables.query_digests_track_hostname.then(|| session.peer.ip());
        let caller = Caller {
            username: username.as_bytes().into(),
            schemaname: session.state.schema().into(),
            client_address: match address {
                None => "".into(),
                Some(Some(ip)) => ip.to_string().into(),
                Some(None) => "localhost".into(),
            },
        };
        let id = self.statistics.caller(caller);
        session.caller = Some(KnownCaller { state: session.state.clone(), id });
        id
    }

    /// New options: digests that are made from now on follow them.
    pub(super) fn take_digest_options(&mut self, snapshot: &Snapshot) {
        let options = digest_options(snapshot);
        if *self.digester.options() == options {
            return;
        }
        self.digester = weir_sql::Digester::new(options);
        for (_, session) in &mut self.sessions {
            session.caller = None;
            for statement in session.statements.values() {
                statement.prepared.digest.set(None);
            }
        }
    }
}

/// The `mysql-query_digests_*` variables.
pub(super) fn digest_options(snapshot: &Snapshot) -> DigestOptions {
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
