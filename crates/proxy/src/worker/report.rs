//! Reports on a worker: copies of what it has counted, and of what it has now.

use std::collections::HashMap;

use weir_protocol::frame::HEADER_LEN;
use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::{Pool, Pools};
use crate::server::connection::{ServerConnection, Stage};
use crate::session::Session;
use crate::session::phase::Phase;
use crate::stats::{
    FreeConnectionRow, ReportPart, SESSIONS_PER_REPORT, ServerRow, SessionRow, StatementRow, Totals,
    WorkerReport,
};
use crate::worker::Worker;
use crate::worker::sessions::Sessions;

/// So much of a running statement is told.
const TEXT_BYTES_MAX: usize = 1024;
/// Different prepared statements of one report.
const STATEMENTS_MAX: usize = 10_000;

impl Worker {
    /// This worker's part of a report. What is counted begins again if that is wanted.
    pub(crate) fn report(&mut self, part: ReportPart, begins_again: bool) -> WorkerReport {
        let mut report =
            WorkerReport { worker: self.ctx.worker, now: self.ctx.now, ..WorkerReport::default() };
        match part {
            ReportPart::Digests => {
                report.digests = self.ctx.statistics.take_digests();
                if begins_again {
                    report.running = self.sessions.running_digests();
                }
            }
            ReportPart::Commands => {
                report.commands = self.ctx.statistics.commands.rows();
            }
            ReportPart::Errors => {
                let endpoint = |server: usize| {
                    self.pools
                        .servers
                        .get(server)
                        .map_or_else(String::new, |pool| pool.server.endpoint.clone())
                };
                report.errors = self.ctx.statistics.error_rows(endpoint);
                report.dropped = self.ctx.statistics.errors.dropped;
                if begins_again {
                    self.ctx.statistics.errors.begin_again();
                }
            }
            ReportPart::Servers => {
                report.servers = self.pools.server_rows();
                (report.reads, report.coverage) = self.pools.freshness_rows(self.ctx.now);
                if begins_again {
                    self.pools.servers.iter_mut().for_each(|pool| pool.counts.begin_again());
                }
            }
            ReportPart::Rules => {
                report.rules = self.ctx.router.hits().collect();
                report.rule_times = self.ctx.statistics.rules.rows();
            }
            ReportPart::Writing => report.writing = self.sessions.writing(&self.pools),
            ReportPart::Totals => report.totals = self.totals(),
            ReportPart::Sessions(from) => {
                (report.sessions, report.next_session) = self.sessions.rows(&self.ctx, &self.pools, from);
            }
            ReportPart::Statements => report.statements = self.sessions.statement_rows(&self.pools),
            ReportPart::FreeConnections => {
                report.free_connections = self.pools.free_connection_rows(&self.ctx)
            }
        }
        report
    }

    fn totals(&self) -> Totals {
        let sent = self.ctx.out.sent_bytes();
        let mut totals = Totals {
            client_bytes_sent: sent.clients,
            server_bytes_sent: sent.servers,
            clients_now: self.sessions.len() as u64,
            server_connections_now: self
                .pools
                .servers
                .iter()
                .map(|pool| u64::from(pool.open - pool.dialing))
                .sum(),
            session_bytes_now: (self.sessions.capacity() * size_of::<Session>()
                + self.pools.connections.capacity() * size_of::<ServerConnection>())
                as u64,
            ..self.ctx.statistics.totals
        };
        for (_, session) in self.sessions.iter() {
            let is_busy = !matches!(session.phase, Phase::Idle | Phase::Login(_));
            totals.busy_now += u64::from(is_busy);
            totals.transactions_now += u64::from(session.all_pins().contains(Pins::TRANSACTION));
            totals.client_statements_now += session.prepared.all.len() as u64;
            totals.client_buffer_bytes_now += session.input.inbox.capacity() as u64;
        }
        for (_, connection) in self.pools.connections.iter() {
            totals.server_statements_now += connection.statements.len() as u64;
            totals.server_buffer_bytes_now += connection.replies.inbox.capacity() as u64;
        }
        totals.statements_now = self.ctx.registry.used() as u64;
        totals
    }
}

/// What SHOW PROCESSLIST calls it.
fn command_word(session: &Session) -> &'static str {
    match (&session.phase, session.execution.plan.kind()) {
        (Phase::Login(_), _) => "Connect",
        (Phase::Idle, _) => "Sleep",
        (Phase::Closing, _) => "Quit",
        (_, CommandKind::Query) if session.execution.plan.statement().kind == Kind::Use => "Init DB",
        (_, CommandKind::Query | CommandKind::Track) => "Query",
        (_, CommandKind::InitDb | CommandKind::LoginSchema) => "Init DB",
        (_, CommandKind::Prepare) => "Prepare",
        (_, CommandKind::Execute) => "Execute",
        (_, CommandKind::Fetch) => "Fetch",
        (_, CommandKind::Reset) => "Reset connection",
        (_, CommandKind::FieldList) => "Field List",
        (_, CommandKind::SetOption) => "Set option",
        (_, CommandKind::LongData) => "Long Data",
        (_, CommandKind::StmtReset) => "Reset stmt",
        (_, CommandKind::Replay) => "Replay",
    }
}

fn phase_word(phase: &Phase) -> &'static str {
    match phase {
        Phase::Login(_) => "login",
        Phase::Idle => "idle",
        Phase::Held => "delayed by a rule",
        Phase::Waiting(_) => "waiting for a connection",
        Phase::Running => "running",
        Phase::Settling => "settling",
        Phase::Asking(_) => "killing",
        Phase::Closing => "closing",
    }
}

impl Sessions {
    fn running_digests(&self) -> Vec<u64> {
        let is_busy = |session: &Session| !matches!(session.phase, Phase::Idle | Phase::Login(_));
        let busy = self.iter().filter(|(_, session)| is_busy(session));
        busy.filter_map(|(_, session)| session.execution.digest).collect()
    }

    /// Some sessions from this place on, and where the next ones begin.
    fn rows(&self, ctx: &Context, pools: &Pools, from: usize) -> (Vec<SessionRow>, Option<usize>) {
        let end = self.capacity();
        let mut rows = Vec::new();
        for key in from..end {
            if rows.len() == SESSIONS_PER_REPORT {
                return (rows, Some(key));
            }
            rows.extend(self.get(key).map(|session| session.row(ctx, pools)));
        }
        (rows, None)
    }

    /// The prepared statements that clients have.
    fn statement_rows(&self, pools: &Pools) -> Vec<StatementRow> {
        let mut rows: HashMap<*const weir_session::prepared::Prepared, StatementRow> = HashMap::new();
        for (_, session) in self.iter() {
            for statement in session.prepared.all.values() {
                let prepared = &statement.prepared;
                let place = std::rc::Rc::as_ptr(prepared);
                if let Some(row) = rows.get_mut(&place) {
                    row.clients += 1;
                    continue;
                }
                if rows.len() == STATEMENTS_MAX {
                    continue;
                }
                let having = pools
                    .connections
                    .iter()
                    .filter(|(_, connection)| connection.statements.contains(prepared));
                let user = session.account.as_ref().map(|account| account.user.username.clone());
                let row = StatementRow {
                    schema: prepared.schema().to_vec(),
                    username: user.unwrap_or_default(),
                    digest: prepared.digest.get(),
                    text: prepared.text().to_vec(),
                    clients: 1,
                    servers: having.count() as u64,
                    params: statement.params,
                };
                rows.insert(place, row);
            }
        }
        rows.into_values().collect()
    }
}

impl Session {
    fn row(&self, ctx: &Context, pools: &Pools) -> SessionRow {
        let lease = self.lease().and_then(|lease| pools.connections.get(lease));
        let is_idle = matches!(self.phase, Phase::Idle);
        let pins = self.all_pins();
        let since = if is_idle { self.times.last_active_at } else { self.execution.record.begun_at };
        let has_worked = self.account.is_some() && (lease.is_some() || !is_idle);
        SessionRow {
            id: self.id,
            username: self.account.as_ref().map(|account| account.user.username.clone()),
            schema: self.tracked.state.schema().to_vec(),
            peer: self.client.peer,
            program: self.program().to_owned(),
            is_tls: self.client.is_tls,
            listener: self.listener.address.to_string(),
            hostgroup: has_worked.then(|| lease.map_or(self.execution.hostgroup, |lease| lease.hostgroup)),
            server: lease.map(|connection| pools.servers[connection.server].server.endpoint.clone()),
            server_thread_id: lease.map(|connection| connection.access.greeted.thread_id),
            command: command_word(self),
            phase: phase_word(&self.phase),
            since_ns: ctx.now.saturating_sub(since),
            text: if is_idle { Vec::new() } else { self.running_text() },
            digest: self.execution.digest.filter(|_| !is_idle),
            pins: if pins.is_empty() { String::new() } else { pins.words() },
            transaction_ns: pins
                .contains(Pins::TRANSACTION)
                .then(|| ctx.now.saturating_sub(self.transaction.since)),
            status: self.status().bits(),
            statements: self.prepared.all.len(),
        }
    }

    /// The beginning of the statement that a session runs.
    fn running_text(&self) -> Vec<u8> {
        let text = match (&self.execution.text.prepared, self.execution.plan.kind()) {
            (Some(prepared), CommandKind::Execute) => prepared.text(),
            (_, CommandKind::Query | CommandKind::Prepare | CommandKind::Track) => {
                let end = self.input.command_bytes.min(self.input.inbox.len());
                self.input.inbox.get(HEADER_LEN + 1..end).unwrap_or_default()
            }
            _ => b"",
        };
        text[..text.len().min(TEXT_BYTES_MAX)].to_vec()
    }
}

impl Pools {
    /// Each server's connections and traffic, by the hostgroups for which it was used; one that was never used has a row
    /// without numbers.
    fn server_rows(&self) -> Vec<ServerRow> {
        // By server and hostgroup: connections, and how many of them nobody has.
        let mut connections: HashMap<(usize, u32), (u64, u64)> = HashMap::new();
        for (_, connection) in self.connections.iter() {
            if connection.has_credit && connection.stage != Stage::Dialing {
                connections.entry((connection.server, connection.hostgroup)).or_default().0 += 1;
            }
        }
        for key in self.servers.iter().flat_map(|pool| &pool.idle) {
            let connection = &self.connections[*key];
            connections.entry((connection.server, connection.hostgroup)).or_default().1 += 1;
        }
        let mut rows = Vec::new();
        for (server, pool) in self.servers.iter().enumerate() {
            let is_unused = pool.counts.iter().next().is_none();
            if is_unused {
                rows.push(ServerRow { endpoint: pool.server.endpoint.clone(), ..ServerRow::default() });
            }
            for counts in pool.counts.iter() {
                let (open, free) = connections.remove(&(server, counts.hostgroup)).unwrap_or_default();
                rows.push(ServerRow {
                    endpoint: pool.server.endpoint.clone(),
                    hostgroup: counts.hostgroup,
                    used: open.saturating_sub(free),
                    free,
                    opened: counts.opened,
                    failed: counts.failed,
                    open_max: u64::from(counts.open_max),
                    queries: counts.queries,
                    gtid_queries: counts.gtid_queries,
                    bytes_sent: counts.bytes_sent,
                    bytes_received: counts.bytes_received,
                    latency: counts.latency.clone(),
                    latency_sum_us: counts.latency_sum_us,
                });
            }
        }
        rows.extend(connections.into_iter().map(|((server, hostgroup), (open, free))| ServerRow {
            endpoint: self.servers[server].server.endpoint.clone(),
            hostgroup,
            used: open.saturating_sub(free),
            free,
            ..ServerRow::default()
        }));
        rows
    }

    fn free_connection_rows(&self, ctx: &Context) -> Vec<FreeConnectionRow> {
        let row = |pool: &Pool, key: ConnectionKey| {
            let connection = &self.connections[key];
            let account = &self.identities.0[connection.identity].account;
            FreeConnectionRow {
                endpoint: pool.server.endpoint.clone(),
                hostgroup: connection.hostgroup,
                socket: connection.socket.index,
                thread_id: connection.access.greeted.thread_id,
                username: account.user.username.clone(),
                schema: connection.state.schema().to_vec(),
                variables: connection
                    .state
                    .variables()
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .collect(),
                idle_ns: ctx.now.saturating_sub(connection.age.idle_since),
                age_ns: ctx.now.saturating_sub(connection.age.opened_at),
                statements: connection.statements.len(),
                is_tls: connection.tls.is_some(),
            }
        };
        let rows = |pool: &'_ Pool| pool.idle.iter().map(|key| row(pool, *key)).collect::<Vec<_>>();
        self.servers.iter().flat_map(rows).collect()
    }
}
