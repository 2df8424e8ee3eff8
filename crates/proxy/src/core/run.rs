//! Making a lease ready for a statement, and sending it.

use std::rc::Rc;

use foldhash::HashMap;
use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, StmtExecute};
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header, PAYLOAD_MAX};
use weir_protocol::response::{ReplyKind, ReplyReader};
use weir_session::pin::Pins;
use weir_session::prepared::{ClientStatement, LongData};
use weir_session::state::{Difference, State, difference_above};
use weir_sql::{Access, Kind};

use super::Core;
use super::model::{BackendKey, Expected, Phase, SessionKey, WorkKind};

impl Core {
    /// Takes note of a reply that is to come, behind those that are owed already.
    pub(super) fn expect(&mut self, key: BackendKey, expected: Expected) {
        let backend = &mut self.backends[key];
        self.servers[backend.server].running += u32::from(expected.is_statement());
        backend.expected.push_back(expected);
        if backend.expected.len() == 1 {
            self.restart_reply(key);
        }
    }

    /// Sends a statement of Weir's own.
    pub(super) fn send_query(&mut self, key: BackendKey, text: &[u8]) {
        self.put_own_query(key, text);
        if text.starts_with(b"SELECT") || text.starts_with(b"DO") {
            // All of Weir's own have one row.
            self.backends[key].found_rows = Some(1);
        }
    }

    /// Brings a lease one step nearer to running its session's work: what the step needs is sent, and its reply
    /// leads here again. At the end the work itself is sent.
    pub(super) fn converge(&mut self, key: BackendKey) {
        let backend = &self.backends[key];
        let Some(holder) = backend.holder else { return };
        // The replies that are owed lead here again. What is fetched for another session may go ahead: it changes
        // nothing.
        let is_owed = backend.expected.iter().any(|expected| !matches!(expected, Expected::Fetch(_)));
        let session = &self.sessions[holder];
        let is_aside = session.lease != Some(key);
        if is_owed || is_aside || backend.kills_pending > 0 || !matches!(session.phase, Phase::Running) {
            return;
        }
        self.sessions[holder].work.is_being_prepared = false;
        if self.is_struck_before(key, holder) || self.keep_back(key, holder) {
            return;
        }
        if self.waits_for_kept(key, holder) || self.refuses_lost(key, holder) {
            return;
        }
        if self.saves_first(key, holder) {
            return;
        }
        self.lose_warnings_behind_code(key, holder);
        if self.asks_if_it_tracks(key, holder)
            || self.put_announced(key, holder)
            || self.end_conditions(key, holder)
        {
            return;
        }
        if self.prepares_first(key, holder) {
            return;
        }
        let state = self.state_to_run_in(key, holder);
        let (backend, session) = (&self.backends[key], &self.sessions[holder]);
        if Rc::ptr_eq(&backend.state, &state) {
            if self.before_insert_id(key, holder)
                || self.before_found_rows(key, holder)
                || self.before_row_count(key, holder)
            {
                return;
            }
            return self.run(key, holder);
        }
        let work = &session.work;
        let is_safe = work.is_read
            && session.upload.is_none()
            && work.kind == WorkKind::Query
            && !self.needs_insert_id(holder)
            && !self.needs_found_rows(holder)
            && !self.needs_row_count(key, holder);
        if self.sync(key, &state) && is_safe {
            // Without effect, so it may go in the same write: should the prefix fail, its reply is thrown away.
            self.run(key, holder);
        }
    }

    /// Has the statement prepared here that is to be executed. False if it is, or the work is another one.
    fn prepares_first(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let (backend, session) = (&self.backends[key], &self.sessions[holder]);
        let work = &session.work;
        let has_own = || session.statements.get(&work.statement_id).is_some_and(|found| found.own.is_some());
        if !matches!(work.kind, WorkKind::Execute | WorkKind::LongData) || has_own() {
            return false;
        }
        let Some(prepared) =
            work.prepared.as_ref().filter(|prepared| !backend.statements.contains(prepared)).cloned()
        else {
            return false;
        };
        if prepared.can_be_prepared_in(&backend.state) {
            let work = &mut self.sessions[holder].work;
            work.is_being_prepared = true;
            work.started_at = self.now;
            self.watch(holder);
            self.prepare_here(key, prepared);
        } else if session.state.schema().is_empty() && !prepared.schema().is_empty() {
            // It can't be prepared here and run without a schema in one go; where it was, it is gone.
            self.reply_error(holder, error::NO_DB, "No database selected");
            self.answered_here(holder);
            self.release_if_free(holder);
        } else {
            let state = prepared.state_to_prepare_in(&backend.state);
            let state = self.interner.intern(state);
            self.sync(key, &state);
        }
        true
    }

    /// The state that a connection must be in for its holder's work.
    fn state_to_run_in(&mut self, key: BackendKey, holder: SessionKey) -> Rc<State> {
        let (backend, session) = (&self.backends[key], &self.sessions[holder]);
        let work = &session.work;
        let leaves_schema = matches!(work.kind, WorkKind::InitDb | WorkKind::LoginSchema)
            || (work.kind == WorkKind::Query && work.statement.kind == Kind::Use && !work.statement.multi);
        if leaves_schema && backend.state.schema() != session.state.schema() {
            // The schema that it leaves may be gone, and USE is the way out of that.
            let state = session.state.with_schema(backend.state.schema());
            return self.interner.intern(state);
        }
        session.state.clone()
    }

    /// Sends what brings a connection into this state. False if it has to be logged in anew for that.
    fn sync(&mut self, key: BackendKey, state: &Rc<State>) -> bool {
        let backend = &self.backends[key];
        let (schema, set) = match difference_above(backend.defaults.variables(), &backend.state, state) {
            Difference::None => (None, None),
            Difference::Commands { schema, set } => (schema, set),
            Difference::NeedsChangeUser => {
                self.wipe(key);
                return false;
            }
        };
        let socket = backend.socket;
        let both = schema.is_some() && set.is_some();
        if let Some(set) = &set {
            self.put_own_query(key, set.as_bytes());
            self.statistics.totals.server_set += 1;
        }
        let Some(buffer) = self.out.buffer(socket) else { return false };
        if let Some(schema) = &schema {
            command::put_init_db(buffer, schema);
            self.backends[key].row_count = None;
            self.statistics.totals.server_init_db += 1;
        }
        if both {
            self.expect(key, Expected::Sync(None));
        }
        if schema.is_some() || set.is_some() {
            self.expect(key, Expected::Sync(Some(state.clone())));
        } else {
            self.backends[key].state = state.clone();
        }
        true
    }

    /// COM_CHANGE_USER to the same user: the only way back to no default schema.
    fn wipe(&mut self, key: BackendKey) {
        let identity = self.backends[key].identity;
        let Some(holder) = self.backends[key].holder else { return };
        self.detach(holder);
        let session = &mut self.sessions[holder];
        session.phase = Phase::Waiting(self.now);
        let socket = session.socket;
        let server = self.backends[key].server;
        self.servers[server].waiters.push_front((holder, socket));
        self.change_identity(key, identity);
    }

    /// Sends the session's command on a connection whose state is (or is about to be) the session's.
    fn run(&mut self, key: BackendKey, holder: SessionKey) {
        if self.sessions[holder].work.kind == WorkKind::LongData {
            return self.send_long_data(key, holder);
        }
        let session = &mut self.sessions[holder];
        let backend = &mut self.backends[key];
        let Some(buffer) = self.out.buffer(backend.socket) else { return };
        let queued = buffer.len();
        if matches!(session.work.kind, WorkKind::Fetch | WorkKind::StmtReset) {
            let statement = session.statements.get(&session.work.statement_id);
            let Some(own) = statement.and_then(|statement| statement.own.as_ref()) else { return };
            super::long_data::put_packets(&session.inbox[..session.command_bytes], own.id, buffer);
        } else if session.work.kind == WorkKind::Execute {
            let packet = &session.inbox[..session.command_bytes.min(session.inbox.len())];
            let capabilities = session.capabilities;
            let statements = &mut session.statements;
            let added = Self::put_execute(packet, &session.work, statements, capabilities, backend, buffer);
            if let Some(upload) = &mut session.upload {
                upload.make_room(added);
            }
        } else if let Some(text) = &session.work.rewritten {
            match session.work.kind {
                WorkKind::Prepare => command::put_stmt_prepare(buffer, text),
                WorkKind::LoginSchema => command::put_init_db(buffer, text),
                _ => session.put_query(text, buffer),
            }
        } else {
            session.put_command(buffer);
        }
        let counts = self.servers[backend.server].counts.of(backend.hostgroup);
        counts.queries += 1;
        counts.bytes_sent += buffer.len().saturating_sub(queued) as u64;
        match session.work.kind {
            WorkKind::Prepare => self.statistics.totals.server_prepares += 1,
            WorkKind::Execute => self.statistics.totals.server_executes += 1,
            _ => {}
        }
        session.phase = Phase::Running;
        session.work.is_sent = true;
        session.work.times_sent += 1;
        // default_query_timeout counts from here: waiting for a connection has a limit of its own.
        session.work.started_at = self.now;
        let is_long = session.upload.is_some();
        // Whatever ends a transaction may commit it.
        let is_protected = session.is_read_only && session.is_pinned_to_reader;
        session.work.may_have_written = !session.work.kind.is_harmless()
            && !is_protected
            && !session.work.begins_read_only
            && (is_long
                || session.work.statement.access == Access::Write
                || session.pins.pins().contains(Pins::TRANSACTION));
        self.watch(holder);
        self.expect(key, Expected::Relay);
        if is_long {
            self.start_flow(holder);
        }
    }

    /// A statement that asks for LAST_INSERT_ID(), itself or by its triggers, or may change it, on a connection where it is
    /// not this session's gets it set in front. That can't fail, so it may go in the same write.
    ///
    /// True if the statement has to wait for its OK: inside a transaction Galera may answer any command with 1213,
    /// and then the statement behind it would run on its own.
    fn before_insert_id(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        if !self.needs_insert_id(holder) || session.has_own_insert_id {
            return false;
        }
        let waits = !session.pins.is_empty();
        let text = format!("SET SESSION last_insert_id={}", session.last_insert_id);
        self.send_query(key, text.as_bytes());
        self.expect(key, Expected::InsertId);
        let session = &mut self.sessions[holder];
        session.has_own_insert_id = true;
        self.backends[key].insert_id = Some(session.last_insert_id);
        waits
    }

    /// A reader for the reply at the front, when it has just become the front.
    pub(super) fn restart_reply(&mut self, key: BackendKey) {
        let backend = &mut self.backends[key];
        backend.asked_at = self.now;
        let kind = match backend.expected.front() {
            Some(Expected::Relay | Expected::Discard) => match backend.holder {
                Some(holder) => match self.sessions[holder].work.kind {
                    WorkKind::Prepare => ReplyKind::Prepare,
                    WorkKind::LoginSchema
                    | WorkKind::InitDb
                    | WorkKind::Reset
                    | WorkKind::SetOption
                    | WorkKind::StmtReset => ReplyKind::Simple,
                    WorkKind::FieldList | WorkKind::Fetch => ReplyKind::Data,
                    WorkKind::Query | WorkKind::Execute | WorkKind::LongData | WorkKind::Track => {
                        ReplyKind::Results
                    }
                },
                None => ReplyKind::Results,
            },
            Some(Expected::Prepare(_)) => ReplyKind::Prepare,
            Some(Expected::Ping | Expected::Reset) => ReplyKind::Simple,
            _ => ReplyKind::Results,
        };
        backend.reply = ReplyReader::new(kind, 1);
        // A command of several packets may have gone out while replies to others were still owed.
        let holder = backend.holder.filter(|_| matches!(backend.expected.front(), Some(Expected::Relay)));
        if let Some(upload) = holder.and_then(|holder| self.sessions[holder].upload.as_ref()) {
            backend.reply.command_continued(upload.sent_sequence, upload.sequence);
        }
    }

    /// Appends a COM_STMT_EXECUTE with the server's id of the statement and the types that it needs. Returns by how
    /// many bytes it has become longer.
    fn put_execute(
        packet: &[u8],
        work: &super::model::Work,
        statements: &mut HashMap<u32, ClientStatement>,
        capabilities: Capabilities,
        backend: &mut super::model::Backend,
        out: &mut Vec<u8>,
    ) -> usize {
        let client = statements.get_mut(&work.statement_id);
        let (Some(client), Some(prepared)) = (client, &work.prepared) else { return 0 };
        let server = match &mut client.own {
            Some(own) => own,
            None => match backend.statements.touch(prepared) {
                Some(shared) => shared,
                None => return 0,
            },
        };
        if let LongData::Kept(packets) = &client.long_data {
            super::long_data::put_packets(packets, server.id, out);
        }
        let start = out.len();
        out.extend_from_slice(packet);
        let id = start + HEADER_LEN + StmtExecute::STMT_ID.start;
        out[id..id + 4].copy_from_slice(&server.id.to_le_bytes());
        let is_named = capabilities.contains(Capabilities::QUERY_ATTRIBUTES);
        let known_flags = if is_named { StmtExecute::PARAMETER_COUNT_AVAILABLE } else { 0 };
        out[start + HEADER_LEN + StmtExecute::FLAGS] &= StmtExecute::CURSOR_TYPE_READ_ONLY | known_flags;
        let Ok(parameters) = StmtExecute::parameters(&packet[HEADER_LEN..], client.params, capabilities)
        else {
            return 0;
        };
        if parameters.new_params_bound {
            // With attributes the server has the types of more.
            let has_these = parameters.count == usize::from(client.params);
            let types = client.types.as_ref().filter(|_| has_these);
            if server.types.as_ref() != types {
                server.types = types.cloned();
            }
        } else if client.params > 0
            && server.types != client.types
            && let Some(types) = &client.types
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
            server.types = client.types.clone();
            return types.len();
        }
        0
    }
}
