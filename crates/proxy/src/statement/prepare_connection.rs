//! Prepares a leased connection for a statement, and sends it.

use std::rc::Rc;

use foldhash::HashMap;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, StmtExecute};
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header, PAYLOAD_MAX};
use weir_session::pin::Pins;
use weir_session::prepared::{BackendStatement, ClientStatement, LongData, Prepared};
use weir_session::state::{Difference, State, difference_above};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::server::connection::{Expected, Relayed, ServerConnection};
use crate::session::Session;
use crate::session::phase::Phase;
use crate::snapshot::StrictRead;
use crate::statement::prefix::Prefix;
use crate::work::Work;

/// What is to be prepared on a connection before a session's work can run there.
enum Preparation {
    /// Nothing, or it is.
    None,
    /// Its statement.
    Here(Rc<Prepared>),
    /// The same, once the connection is in this state.
    In(Rc<State>),
    /// It can't be prepared here and run without a schema in one go; where it was, it is gone.
    Impossible,
}

impl Work<'_> {
    /// Brings a lease one step nearer to running its session's work: what the step needs is sent, and its reply
    /// leads here again. At the end the work itself is sent.
    pub(crate) fn prepare_connection(&mut self, key: ConnectionKey) {
        self.hear();
        let connection = &self.pools.connections[key];
        if connection.holder != Some(self.session.key) {
            return;
        }
        // The replies that are owed lead here again. What is fetched for another session may go ahead: it changes
        // nothing.
        let is_owed =
            connection.replies.expected.iter().any(|expected| !matches!(expected, Expected::Fetch(_)));
        let session = &*self.session;
        let is_on_detour = session.lease() != Some(key);
        if is_owed || is_on_detour || connection.kills_pending > 0 || !matches!(session.phase, Phase::Running)
        {
            return;
        }
        self.session.execution.tries.is_being_prepared = false;
        if self.is_killed_before_sent(key) || self.keep_back(key) {
            return;
        }
        if self.ends_wrapped(key) || self.refuses_written(key) {
            return;
        }
        // What its transaction has left behind comes back with it.
        let replays = self.session.is_to_replay();
        if self.pools.waits_for_retained(self.ctx, self.session, key) || (!replays && self.refuses_lost(key))
        {
            return;
        }
        if self.pools.saves_first(self.ctx, self.session, key) {
            return;
        }
        self.pools.connections.lose_warnings_behind_code(self.session, key);
        if let Some(prefix) = self.pools.first_prefix(self.session, key) {
            return self.put_prefix(key, prefix);
        }
        if self.replay(key) || (replays && self.refuses_lost(key)) {
            return;
        }
        if self.ends_with_replay() || self.waits_for_replays_on_lease(key) || self.puts_marker(key) {
            return;
        }
        match self.preparation(key) {
            Preparation::None => {}
            Preparation::Here(prepared) => return self.prepare_here(key, prepared),
            Preparation::In(state) => {
                self.sync(key, &state);
                return;
            }
            Preparation::Impossible => return self.refuse_without_schema(),
        }
        let strict = self.pools.strict_read_of(self.session);
        let state = self.pools.connections[key].state_to_run_in(self.ctx, self.session, strict);
        let (connection, session) = (&self.pools.connections[key], &*self.session);
        if Rc::ptr_eq(&connection.state, &state) {
            if self.session.carried().is_some() {
                return self.put_prefix(key, Prefix::Carried);
            }
            if self.wraps(key) || self.puts_numbers_first(key) {
                return;
            }
            return self.run(key);
        }
        let execution = &session.execution;
        let is_safe = execution.plan.may_follow_prefix()
            && session.input.upload.is_none()
            && session.carried().is_none()
            && !self.session.needs_insert_id(self.ctx)
            && !self.pools.needs_found_rows(self.ctx, self.session)
            && !self.pools.connections[key].known.needs_row_count(self.session);
        if self.sync(key, &state) && is_safe {
            // Without effect, so it may go in the same write: should the prefix fail, its reply is thrown away.
            self.run(key);
        }
    }

    /// What the session's work needs to have prepared here.
    fn preparation(&mut self, key: ConnectionKey) -> Preparation {
        let (connection, session) = (&self.pools.connections[key], &*self.session);
        let execution = &session.execution;
        let has_own = || {
            session.prepared.all.get(&execution.text.statement_id).is_some_and(|found| found.own.is_some())
        };
        if !matches!(execution.plan.kind(), CommandKind::Execute | CommandKind::LongData) || has_own() {
            return Preparation::None;
        }
        let missing = execution.text.prepared.as_ref();
        match missing.filter(|prepared| !connection.statements.contains(prepared)) {
            None => Preparation::None,
            Some(prepared) if prepared.can_be_prepared_in(&connection.state) => {
                Preparation::Here(prepared.clone())
            }
            Some(prepared) if session.tracked.state.schema().is_empty() && !prepared.schema().is_empty() => {
                Preparation::Impossible
            }
            Some(prepared) => {
                Preparation::In(self.ctx.interner.intern(prepared.state_to_prepare_in(&connection.state)))
            }
        }
    }

    pub(crate) fn prepare_here(&mut self, key: ConnectionKey, prepared: Rc<Prepared>) {
        let execution = &mut self.session.execution;
        execution.tries.is_being_prepared = true;
        execution.tries.started_at = self.ctx.now;
        self.session.watch(self.ctx);
        self.pools.connections[key].prepare_here(self.ctx, prepared);
    }

    fn refuse_without_schema(&mut self) {
        self.answer_error(error::NO_DB, "No database selected");
        self.pools.release_if_free(self.ctx, self.session);
        self.hear();
    }

    /// Sends what brings a connection into this state. False if it has to be logged in anew for that.
    pub(crate) fn sync(&mut self, key: ConnectionKey, state: &Rc<State>) -> bool {
        let connection = &self.pools.connections[key];
        let (schema, set) = match difference_above(connection.defaults.variables(), &connection.state, state)
        {
            Difference::None => (None, None),
            Difference::Commands { schema, set } => (schema, set),
            Difference::NeedsChangeUser => {
                self.wipe(key);
                return false;
            }
        };
        let socket = connection.socket;
        let both = schema.is_some() && set.is_some();
        if let Some(set) = &set {
            self.pools.connections[key].put_own_query(self.ctx, set.as_bytes());
            self.ctx.statistics.totals.server_set += 1;
        }
        let Some(buffer) = self.ctx.out.buffer(socket) else { return false };
        if let Some(schema) = &schema {
            command::put_init_db(buffer, schema);
            self.pools.connections[key].known.row_count = None;
            self.ctx.statistics.totals.server_init_db += 1;
        }
        if both {
            self.pools.connections[key].expect(self.ctx, Expected::Sync(None));
        }
        if schema.is_some() || set.is_some() {
            self.pools.connections[key].expect(self.ctx, Expected::Sync(Some(state.clone())));
        } else {
            self.pools.connections[key].state = state.clone();
        }
        true
    }

    /// COM_CHANGE_USER to the same user: the only way back to no default schema.
    fn wipe(&mut self, key: ConnectionKey) {
        let connection = &self.pools.connections[key];
        let (principal, server) = (connection.principal(), connection.server);
        // What was set in front of it is undone with the login.
        self.session.begin_replay_anew(self.ctx.now);
        let session = &mut *self.session;
        self.pools.detach(self.ctx, session);
        session.phase = Phase::waiting(self.ctx.now);
        let Some(waiter) = session.waiter() else { return };
        self.pools.servers[server].waiters.push_front(waiter);
        self.pools.change_principal(self.ctx, key, principal);
    }

    /// Sends the session's command on a connection whose state is (or is about to be) the session's.
    fn run(&mut self, key: ConnectionKey) {
        if self.session.execution.plan.kind() == CommandKind::LongData {
            return self.send_long_data(key);
        }
        let session = &mut *self.session;
        let connection = &mut self.pools.connections[key];
        let Some(buffer) = self.ctx.out.buffer(connection.socket) else { return };
        let queued = buffer.len();
        if matches!(session.execution.plan.kind(), CommandKind::Fetch | CommandKind::StmtReset) {
            let statement = session.prepared.all.get(&session.execution.text.statement_id);
            let Some(own) = statement.and_then(|statement| statement.own.as_ref()) else { return };
            crate::statement::long_data::put_packets(
                &session.input.inbox[..session.input.command_bytes],
                own.id,
                buffer,
            );
        } else if session.execution.plan.kind() == CommandKind::Execute {
            let packet = &session.input.inbox[..session.input.command_bytes.min(session.input.inbox.len())];
            let capabilities = session.capabilities;
            let statements = &mut session.prepared.all;
            let added =
                Self::put_execute(packet, &session.execution, statements, capabilities, connection, buffer);
            if let Some(upload) = &mut session.input.upload {
                upload.make_room(added);
            }
        } else if let Some(text) = &session.execution.text.rewritten {
            match session.execution.plan.kind() {
                CommandKind::Prepare => command::put_stmt_prepare(buffer, text),
                CommandKind::LoginSchema => command::put_init_db(buffer, text),
                _ => session.put_query(text, buffer),
            }
        } else {
            session.put_command(buffer);
        }
        let counts = self.pools.servers[connection.server].counts.of(connection.hostgroup);
        counts.queries += 1;
        let goes_by_gtid = session.goes_by_gtid();
        counts.gtid_queries += u64::from(goes_by_gtid);
        self.ctx.statistics.totals.gtid_statements += u64::from(goes_by_gtid);
        counts.bytes_sent += buffer.len().saturating_sub(queued) as u64;
        match session.execution.plan.kind() {
            CommandKind::Prepare => self.ctx.statistics.totals.server_prepares += 1,
            CommandKind::Execute => self.ctx.statistics.totals.server_executes += 1,
            _ => {}
        }
        self.pools.begin_logging(session);
        session.phase = Phase::Running;
        session.execution.tries.is_sent = true;
        session.execution.tries.times_sent += 1;
        // default_query_timeout counts from here: waiting for a connection has a limit of its own.
        session.execution.tries.started_at = self.ctx.now;
        let is_long = session.input.upload.is_some();
        // Whatever ends a transaction may commit it.
        let is_protected = session.transaction.is_read_only && session.is_pinned_to_reader();
        let in_transaction = session.pins.pins().contains(Pins::TRANSACTION);
        session.execution.may_have_written =
            !is_protected && session.execution.plan.may_write(is_long, in_transaction);
        self.session.watch(self.ctx);
        let kind = self.session.execution.plan.kind().reply();
        self.pools.servers[self.pools.connections[key].server].statement_begins(self.ctx.now);
        self.pools.connections[key].expect(self.ctx, Expected::Relay(Relayed::new(kind)));
        if is_long {
            self.start_flow();
        }
    }

    /// Appends a COM_STMT_EXECUTE with the server's id of the statement and the types that it needs. Returns by how
    /// many bytes it has become longer.
    fn put_execute(
        packet: &[u8],
        execution: &crate::session::execution::Execution,
        statements: &mut HashMap<u32, ClientStatement>,
        capabilities: Capabilities,
        connection: &mut crate::server::connection::ServerConnection,
        out: &mut Vec<u8>,
    ) -> usize {
        let client = statements.get_mut(&execution.text.statement_id);
        let (Some(client), Some(prepared)) = (client, &execution.text.prepared) else { return 0 };
        let server = match &mut client.own {
            Some(own) => own,
            None => match connection.statements.touch(prepared) {
                Some(shared) => shared,
                None => return 0,
            },
        };
        if let LongData::Kept(packets) = &client.long_data {
            crate::statement::long_data::put_packets(packets, server.id, out);
        }
        put_execution(packet, (client.params, client.types.as_ref()), capabilities, server, out)
    }

    /// Refuses a statement that asks for what nobody knows any more: something older would pass for it.
    fn refuses_lost(&mut self, key: ConnectionKey) -> bool {
        let Some(message) = self.pools.connections.what_is_lost(self.session, key) else { return false };
        if self.session.input.upload.is_some() {
            self.fail_session(error::UNKNOWN_ERROR, message);
        } else {
            self.answer_error(error::UNKNOWN_ERROR, message);
            self.pools.release_if_free(self.ctx, self.session);
        }
        true
    }
}

/// Appends a COM_STMT_EXECUTE with the server's id, and with the types of its parameters where the client left them out and
/// the server does not have them. Returns by how many bytes it has become longer.
pub(crate) fn put_execution(
    packet: &[u8],
    (params, client_types): (u16, Option<&Rc<[u8]>>),
    capabilities: Capabilities,
    server: &mut BackendStatement,
    out: &mut Vec<u8>,
) -> usize {
    let start = out.len();
    out.extend_from_slice(packet);
    let id = start + HEADER_LEN + StmtExecute::STMT_ID.start;
    out[id..id + 4].copy_from_slice(&server.id.to_le_bytes());
    let is_named = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
    let known_flags = if is_named { StmtExecute::PARAMETER_COUNT_AVAILABLE } else { 0 };
    out[start + HEADER_LEN + StmtExecute::FLAGS] &= StmtExecute::CURSOR_TYPE_READ_ONLY | known_flags;
    let Ok(parameters) = StmtExecute::parameters(&packet[HEADER_LEN..], params, capabilities) else {
        return 0;
    };
    if parameters.new_params_bound {
        // With attributes the server has the types of more.
        let has_these = parameters.count == usize::from(params);
        let types = client_types.filter(|_| has_these);
        if server.types.as_ref() != types {
            server.types = types.cloned();
        }
    } else if params > 0
        && server.types.as_ref() != client_types
        && let Some(types) = client_types
    {
        // The client sent the types earlier, to another connection: they go in where it left them out. The
        // packet may not be here whole, so its length is the one announced, and the types. What has no room
        // in it goes into another one, see `Upload`.
        let flag = start + HEADER_LEN + parameters.null_bitmap.end;
        out[flag] = 1;
        out.splice(flag + 1..flag + 1, types.iter().copied());
        let len = Header::parse(packet).map_or(0, |header| header.len) + types.len();
        let [a, b, c, _] = (len.min(PAYLOAD_MAX) as u32).to_le_bytes();
        out[start..start + 3].copy_from_slice(&[a, b, c]);
        server.types = Some(types.clone());
        return types.len();
    }
    0
}

impl ServerConnection {
    /// The state that a connection must be in for its holder's work.
    fn state_to_run_in(&self, ctx: &mut Context, session: &Session, strict: StrictRead) -> Rc<State> {
        if session.execution.plan.leaves_schema() && self.state.schema() != session.tracked.state.schema() {
            // The schema that it leaves may be gone, and USE is the way out of that.
            let state = session.tracked.state.with_schema(self.state.schema());
            return ctx.interner.intern(state);
        }
        if let Some(state) = session.strict_state(ctx, strict) {
            return state;
        }
        session.tracked.state.clone()
    }
}
