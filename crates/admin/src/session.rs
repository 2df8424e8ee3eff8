//! Runs an admin's session: its commands, one after the other.

use std::sync::Arc;
use std::time::Instant;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{Command, StmtPrepareOk};
use weir_protocol::error;
use weir_protocol::frame;
use weir_protocol::status::StatusFlags;
use weir_query_log::AuditKind;
use weir_session::login::Channel;
use weir_store::{MAIN, SCHEMAS, table};

use crate::audit::AuditClient;
use crate::error::SqlError;
use crate::limits::{IDLE_TIMEOUT, PACKET_BYTES_MAX, PACKET_TIMEOUT, WARNINGS_MAX};
use crate::login::{Accounts, LoggedIn, LoginExchange, Rights};
use crate::prepared::Prepared;
use crate::reply::{Answer, Reply, RowFormat};
use crate::server::AdminShared;
use crate::wire::{Wire, WireError};

/// A row of SHOW WARNINGS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warning {
    /// `Warning`, `Error`, `Note`
    pub level: &'static str,
    pub code: u16,
    pub message: String,
}

/// A session.
pub(crate) struct Session {
    pub shared: Arc<AdminShared>,
    pub user: String,
    pub rights: Rights,
    pub schema: String,
    pub thread_id: u32,
    pub client: AuditClient,
    pub channel: Channel,
    pub warnings: Vec<Warning>,
    /// A statement since the last COMMIT has changed something.
    pub has_written: bool,
    /// SQLite says of the statement at hand that it changes something, or would if it were allowed to.
    pub changes_rows: bool,
    capabilities: Capabilities,
    prepared: Prepared,
}

/// Serves a client until it leaves, or nothing can be said to it any more. `is_in` is called once it has logged in.
pub(crate) fn serve(
    shared: &Arc<AdminShared>,
    wire: &mut Wire,
    thread_id: u32,
    host: Option<std::net::IpAddr>,
    is_in: impl FnOnce(),
) -> Result<(), WireError> {
    let (accounts, tls) = (shared.accounts(), shared.tls());
    let client = AuditClient::at(wire, thread_id);
    let engine = &*shared.engine;
    let turned_away = |user: &[u8], channel: Channel, message: &str| {
        client.tell(engine, AuditKind::AdminConnectErr, user, channel, message);
    };
    let exchange =
        LoginExchange { wire, accounts: &accounts, tls: tls.as_ref(), host, turned_away: &turned_away };
    let Some(logged_in) = exchange.open(thread_id, crate::variables::GREETING.as_bytes())? else {
        return Ok(());
    };
    is_in();
    let sequence = logged_in.sequence;
    client.tell(engine, AuditKind::AdminConnectOk, logged_in.user.as_bytes(), wire.channel(), "");
    let Some(mut session) = Session::begin(shared, logged_in, client.clone(), wire)? else { return Ok(()) };
    let mut out = Vec::new();
    session.answer(sequence).ok(0, "", &mut out);
    wire.write(&out, PACKET_TIMEOUT)?;
    let ended = session.run(wire, host);
    client.tell(engine, AuditKind::AdminClose, session.user.as_bytes(), session.channel, "");
    ended
}

impl Session {
    /// None: the schema is unknown, and the client has been told.
    fn begin(
        shared: &Arc<AdminShared>,
        logged_in: LoggedIn,
        client: AuditClient,
        wire: &mut Wire,
    ) -> Result<Option<Self>, WireError> {
        let mut session = Self {
            shared: shared.clone(),
            thread_id: client.thread_id(),
            client,
            channel: wire.channel(),
            user: logged_in.user,
            rights: logged_in.rights,
            schema: MAIN.to_owned(),
            warnings: Vec::new(),
            has_written: false,
            changes_rows: false,
            capabilities: logged_in.capabilities,
            prepared: Prepared::default(),
        };
        if logged_in.schema.is_empty() {
            return Ok(Some(session));
        }
        match session.use_schema(&logged_in.schema) {
            Ok(()) => Ok(Some(session)),
            Err(error) => {
                let mut out = Vec::new();
                session.answer(logged_in.sequence).error(&error, &mut out);
                wire.write(&out, PACKET_TIMEOUT)?;
                Ok(None)
            }
        }
    }

    fn answer(&self, sequence: u8) -> Answer {
        Answer {
            capabilities: self.capabilities,
            sequence,
            status: StatusFlags::AUTOCOMMIT | StatusFlags::NO_BACKSLASH_ESCAPES,
            warnings: u16::try_from(self.warnings.len()).unwrap_or(u16::MAX),
        }
    }

    fn run(&mut self, wire: &mut Wire, host: Option<std::net::IpAddr>) -> Result<(), WireError> {
        loop {
            let packet = match wire.read(IDLE_TIMEOUT, PACKET_TIMEOUT, PACKET_BYTES_MAX) {
                Err(WireError::TooLarge { sequence }) => {
                    let mut out = Vec::new();
                    let message = format!("Got a packet bigger than {PACKET_BYTES_MAX} bytes");
                    let error = SqlError::new(error::NET_PACKET_TOO_LARGE, message);
                    self.answer(sequence.wrapping_add(1)).error(&error, &mut out);
                    wire.write(&out, PACKET_TIMEOUT)?;
                    return Err(WireError::TooLarge { sequence });
                }
                packet => packet?,
            };
            let Some((code, body)) = packet.payload.split_first() else { return Ok(()) };
            let command = Command::parse(*code);
            if command == Some(Command::Quit) {
                return Ok(());
            }
            let shared = self.shared.clone();
            let _work = shared.shutdown.work();
            if let Some(error) = shared.shutdown.refusal_after_grace() {
                let mut out = Vec::new();
                self.answer(packet.sequence.wrapping_add(1)).error(&error, &mut out);
                return wire.write(&out, PACKET_TIMEOUT).map_err(WireError::from);
            }
            if command == Some(Command::ChangeUser) {
                if !self.change_user(wire, &packet.payload, host)? {
                    return Ok(());
                }
                continue;
            }
            let mut out = Vec::new();
            let next = packet.sequence.wrapping_add(1);
            let until = Instant::now() + PACKET_TIMEOUT;
            let mut send = |out: &mut Vec<u8>| {
                wire.write(out, until.saturating_duration_since(Instant::now()))?;
                out.clear();
                std::io::Result::Ok(())
            };
            match self.obey(command, body, &packet.payload, next, &mut out) {
                Ok(None) => {}
                Ok(Some(reply)) => self.answer(next).reply(&reply, &mut out, &mut send)?,
                Err(error) => {
                    out.clear();
                    self.answer(next).error(&error, &mut out);
                }
            }
            send(&mut out)?;
        }
    }

    /// One command. What is to be sent goes to `out`, or is the reply that is given back.
    fn obey(
        &mut self,
        command: Option<Command>,
        body: &[u8],
        payload: &[u8],
        next: u8,
        out: &mut Vec<u8>,
    ) -> Result<Option<Reply>, SqlError> {
        match command {
            Some(Command::Query) => return self.statement(&text(body)?, &[], RowFormat::Text).map(Some),
            Some(Command::InitDb) => {
                self.init_db(&text(body)?)?;
                self.answer(next).ok(0, "", out);
            }
            // Answered by EOF, or by OK in its place.
            Some(Command::SetOption) => self.answer(next).end_of_rows(out),
            Some(Command::Ping | Command::Debug) => self.answer(next).ok(0, "", out),
            Some(Command::ResetConnection) => {
                self.prepared = Prepared::default();
                self.warnings.clear();
                self.schema = MAIN.to_owned();
                self.answer(next).ok(0, "", out);
            }
            Some(Command::FieldList) => self.field_list(body, next, out)?,
            Some(Command::Statistics) => {
                let mut sequence = next;
                frame::packet(out, &mut sequence, |out| out.extend_from_slice(b"Weir admin interface"));
            }
            Some(Command::StmtPrepare) => self.prepare(&text(body)?, next, out)?,
            Some(Command::StmtExecute) => {
                let (text, values) = self.prepared.execute(payload)?;
                return self.statement(&text, &values, RowFormat::Binary).map(Some);
            }
            Some(Command::StmtSendLongData) => self.prepared.long_data(payload),
            Some(Command::StmtClose) => {
                if let Some(id) = body.first_chunk::<4>() {
                    self.prepared.close(u32::from_le_bytes(*id));
                }
            }
            Some(Command::StmtReset) => {
                let id = body.first_chunk::<4>().map(|id| u32::from_le_bytes(*id));
                if !id.is_some_and(|id| self.prepared.reset(id)) {
                    return Err(SqlError::new(error::UNKNOWN_STMT_HANDLER, "Unknown prepared statement"));
                }
                self.answer(next).ok(0, "", out);
            }
            _ => return Err(SqlError::new(error::UNKNOWN_COM_ERROR, "Unknown command of the protocol")),
        }
        Ok(None)
    }

    fn prepare(&mut self, text: &str, next: u8, out: &mut Vec<u8>) -> Result<(), SqlError> {
        self.warnings.clear();
        let (columns, parameters) = self.outline(text)?;
        let too_many = |_| SqlError::new(error::WRONG_ARGUMENTS, "too many parameters or columns");
        let (column_count, count) =
            (u16::try_from(columns.len()).map_err(too_many)?, u16::try_from(parameters).map_err(too_many)?);
        let stmt_id = self.prepared.insert(text.to_owned(), count)?;
        let head = StmtPrepareOk { stmt_id, columns: column_count, params: count, warnings: 0 };
        let mut answer = self.answer(next);
        frame::packet(out, &mut answer.sequence, |out| head.write(out));
        if count > 0 {
            answer.definitions(std::iter::repeat_n("?", count.into()), out);
        }
        if column_count > 0 {
            answer.definitions(columns.iter().map(String::as_str), out);
        }
        Ok(())
    }

    /// COM_FIELD_LIST, with which the mariadb client learns names to complete: table and NUL, then a pattern.
    fn field_list(&mut self, body: &[u8], next: u8, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let name = text(body.split(|byte| *byte == 0).next().unwrap_or_default())?;
        let found = self.find_table(None, &name);
        let found =
            found.ok_or_else(|| SqlError::new(error::NO_SUCH_TABLE, format!("no such table: {name}")))?;
        let mut answer = self.answer(next);
        for column in &found.columns {
            answer.field(column.name, out);
        }
        answer.end_of_rows(out);
        Ok(())
    }

    /// False: the client was not let in and goes.
    fn change_user(
        &mut self,
        wire: &mut Wire,
        payload: &[u8],
        host: Option<std::net::IpAddr>,
    ) -> Result<bool, WireError> {
        let (accounts, tls): (Accounts, _) = (self.shared.accounts(), self.shared.tls());
        let (shared, client) = (self.shared.clone(), self.client.clone());
        let turned_away = |user: &[u8], channel: Channel, message: &str| {
            client.tell(&*shared.engine, AuditKind::AdminConnectErr, user, channel, message);
        };
        let exchange =
            LoginExchange { wire, accounts: &accounts, tls: tls.as_ref(), host, turned_away: &turned_away };
        let Some(logged_in) = exchange.change(payload, self.capabilities)? else { return Ok(false) };
        let sequence = logged_in.sequence;
        client.tell(&*shared.engine, AuditKind::AdminConnectOk, logged_in.user.as_bytes(), self.channel, "");
        let Some(session) = Self::begin(&shared, logged_in, client.clone(), wire)? else { return Ok(false) };
        *self = session;
        let mut out = Vec::new();
        self.answer(sequence).ok(0, "", &mut out);
        wire.write(&out, PACKET_TIMEOUT)?;
        Ok(true)
    }

    /// From now on the schema of what is named without one, as far as SHOW goes: SQLite finds tables by their names.
    pub(crate) fn use_schema(&mut self, name: &str) -> Result<(), SqlError> {
        let known = SCHEMAS.into_iter().chain(["information_schema"]);
        match known.into_iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(schema) => {
                self.schema = schema.to_owned();
                Ok(())
            }
            None => Err(SqlError::new(
                error::BAD_DB,
                format!("Unknown database '{name}': there are {}", SCHEMAS.join(", ")),
            )),
        }
    }

    /// The table of this name: in the schema given, the session's, or any.
    pub(crate) fn find_table(
        &self,
        schema: Option<&str>,
        name: &str,
    ) -> Option<&'static weir_store::TableDef> {
        match schema {
            Some(schema) => table(schema, name),
            None => {
                table(&self.schema, name).or_else(|| SCHEMAS.iter().find_map(|schema| table(schema, name)))
            }
        }
    }

    /// Adds to what SHOW WARNINGS shows.
    pub(crate) fn warn(&mut self, message: impl Into<String>) {
        if self.warnings.len() < WARNINGS_MAX {
            let message = message.into();
            self.warnings.push(Warning { level: "Warning", code: error::UNKNOWN_ERROR.code, message });
        }
    }
}

fn text(bytes: &[u8]) -> Result<String, SqlError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| SqlError::syntax("the statement is not in UTF-8"))
}
