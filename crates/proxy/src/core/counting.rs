//! What is counted of statements: which digest they have, how long they took, and how they ended.

use std::rc::Rc;

use weir_protocol::frame::HEADER_LEN;
use weir_session::prepared::Prepared;
use weir_session::state::State;
use weir_sql::DigestOptions;

use super::Core;
use super::model::{BackendKey, Ending, ServerIndex, SessionKey, WorkKind};
use crate::snapshot::Snapshot;
use crate::statistics::{
    Caller, CallerId, DigestKey, ErrorKey, Execution, Histogram, ReportPart, ServerRow, WorkerReport,
};

/// A session's number in the statistics, with the schema for which it holds.
#[derive(Debug)]
pub(crate) struct KnownCaller {
    state: Rc<State>,
    id: CallerId,
}

/// This worker's dealings with a server.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerCounts {
    pub opened: u64,
    pub failed: u64,
    pub open_max: u32,
    pub queries: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub latency: Histogram,
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
        let digest = known.unwrap_or_else(|| {
            let digest = self.digester.digest(prepared.text());
            self.statistics.note_text(&digest);
            prepared.digest.set(Some(digest.hash));
            *prepared.digest_text.borrow_mut() = digest.text.into();
            digest.hash
        });
        self.sessions[key].work.digest = Some(digest);
    }

    /// Users of bound sessions want the least overhead.
    fn makes_digest(&self, key: SessionKey) -> bool {
        self.snapshot.variables.query_digests && !self.sessions[key].is_bound()
    }

    /// A statement has been answered by a server.
    pub(super) fn count_statement(&mut self, key: BackendKey, holder: SessionKey) {
        let work = &self.sessions[holder].work;
        if !matches!(work.kind, WorkKind::Query | WorkKind::Execute) {
            return;
        }
        let took_ns = self.now.saturating_sub(work.begun_at);
        self.statistics.commands.count(work.statement.kind, took_ns);
        let server = self.backends[key].server;
        let on_server_us = self.now.saturating_sub(work.started_at) / 1000;
        self.servers[server].counts.latency.record(on_server_us);
        let Some(digest) = work.digest else { return };
        let hostgroup = work.hostgroup;
        let (rows_affected, rows_sent) = match work.ending {
            Ending::Ok { affected_rows, has_rows: false, .. } => (affected_rows, 0),
            Ending::Ok { has_rows: true, .. } => (0, self.backends[key].reply_rows),
            Ending::Err(_) | Ending::None => (0, 0),
        };
        let caller = self.caller(holder);
        let row = DigestKey { hostgroup, caller, digest };
        self.statistics.count(row, &Execution { took_ns, rows_affected, rows_sent }, self.now);
    }

    /// A server has answered a session's command with an error.
    pub(super) fn count_error(&mut self, key: BackendKey, holder: SessionKey, code: u16, message: &[u8]) {
        let caller = self.caller(holder);
        let hostgroup = self.sessions[holder].work.hostgroup;
        let row = ErrorKey { hostgroup, server: self.backends[key].server, caller, code };
        self.statistics.errors.count(row, message, self.now);
    }

    /// A connection is being opened.
    pub(super) fn count_open(&mut self, server: ServerIndex) {
        let pool = &mut self.servers[server];
        pool.counts.open_max = pool.counts.open_max.max(pool.open);
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

    /// This worker's part of a report.
    pub(super) fn report(&self, part: ReportPart) -> WorkerReport {
        let mut report = WorkerReport { now: self.now, ..WorkerReport::default() };
        match part {
            ReportPart::Digests => {
                report.digests = self.statistics.digest_rows();
                report.dropped = self.statistics.dropped();
            }
            ReportPart::Commands => report.commands = self.statistics.commands.rows(),
            ReportPart::Errors => {
                let endpoint = |server: usize| {
                    self.servers.get(server).map_or_else(String::new, |pool| pool.server.endpoint.clone())
                };
                report.errors = self.statistics.error_rows(endpoint);
                report.dropped = self.statistics.errors.dropped;
            }
            ReportPart::Rules => report.rules = self.router.hits().collect(),
            ReportPart::Writing => report.writing = self.writing(),
            ReportPart::Servers => report.servers = self.servers.iter().map(server_row).collect(),
        }
        report
    }
}

fn server_row(pool: &super::Pool) -> ServerRow {
    let free = pool.idle.len() as u64;
    let counts = &pool.counts;
    ServerRow {
        endpoint: pool.server.endpoint.clone(),
        used: u64::from(pool.open.saturating_sub(pool.dialing)).saturating_sub(free),
        free,
        opened: counts.opened,
        failed: counts.failed,
        open_max: u64::from(counts.open_max),
        queries: counts.queries,
        bytes_sent: counts.bytes_sent,
        bytes_received: counts.bytes_received,
        latency: counts.latency.clone(),
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
