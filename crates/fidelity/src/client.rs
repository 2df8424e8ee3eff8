//! Asks and never gives up: whatever comes back, also an error or the end of the connection, is an answer.

use std::net::SocketAddrV4;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, Command, StmtExecute, StmtPrepareOk};
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER, OK_HEADER};
use weir_protocol::resultset::ColumnType;
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::{Reader, put_lenenc_bytes, put_u64};
use weir_testkit::wire::{Login, Packet, RawClient, Reply};
use weir_testkit::{Account, TestkitError};

/// An account of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) user: String,
    pub(crate) password: String,
}

/// One result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    /// OK.
    Done,
    /// Rows as text, NULL as "NULL"; those of a prepared statement are counted only.
    Rows(Vec<Vec<String>>),
    /// ERR.
    Error {
        /// Its number.
        code: u16,
        /// For people.
        message: String,
    },
    /// No answer any more, with the reason.
    Closed(String),
}

/// A parameter of a prepared statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Param {
    Int(i64),
    Text(String),
}

/// One thing that a session does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// COM_QUERY.
    Text(String),
    /// COM_STMT_PREPARE and COM_STMT_EXECUTE.
    Prepared(String, Vec<Param>),
    /// COM_STMT_PREPARE alone.
    PrepareOnly(String),
    /// COM_INIT_DB.
    InitDb(String),
    /// COM_RESET_CONNECTION.
    Reset,
}

/// A logged-in session.
#[derive(Debug)]
pub(crate) struct Client {
    raw: RawClient,
    is_closed: bool,
}

impl Client {
    /// Logs in, with several statements in one text allowed.
    pub(crate) fn open(server: SocketAddrV4, who: &Who, schema: &str) -> Result<Client, TestkitError> {
        let mut login = Login::new(Account::APP).schema(schema).with(Capabilities::MULTI_STATEMENTS);
        login.user.clone_from(&who.user);
        login.password.clone_from(&who.password);
        Ok(Client { raw: RawClient::login(server, &login)?, is_closed: false })
    }

    /// The id that the greeting named: at a server, the connection's.
    pub(crate) fn id(&self) -> u32 {
        self.raw.greeting().thread_id
    }

    /// Does one thing; every result of it.
    pub(crate) fn step(&mut self, step: &Step) -> Vec<Heard> {
        if self.is_closed {
            return vec![Heard::Closed("closed before".to_owned())];
        }
        let heard = match step {
            Step::Text(sql) => self.try_text(sql),
            Step::Prepared(sql, params) => self.try_prepared(sql, params),
            Step::PrepareOnly(sql) => self.prepare(sql).map(|outcome| match outcome {
                Ok(_) => vec![Heard::Done],
                Err(heard) => vec![heard],
            }),
            Step::InitDb(schema) => self.simple(Command::InitDb, schema.as_bytes()),
            Step::Reset => self.simple(Command::ResetConnection, b""),
        };
        heard.unwrap_or_else(|error| {
            self.is_closed = true;
            vec![Heard::Closed(error.to_string())]
        })
    }

    /// COM_QUERY.
    pub(crate) fn text(&mut self, sql: &str) -> Vec<Heard> {
        self.step(&Step::Text(sql.to_owned()))
    }

    /// Says good-bye, and waits until the other side has closed.
    pub(crate) fn quit(mut self) {
        let mut packet = Vec::new();
        command::put_quit(&mut packet);
        let said = self.raw.packets().write_bytes(&packet);
        if said.is_ok() {
            while self.raw.packets().read_packet().is_ok() {}
        }
    }

    fn try_text(&mut self, sql: &str) -> Result<Vec<Heard>, TestkitError> {
        let reply = self.raw.query(sql)?;
        heard_in(&reply)
    }

    fn simple(&mut self, command: Command, content: &[u8]) -> Result<Vec<Heard>, TestkitError> {
        let mut payload = vec![command.code()];
        payload.extend_from_slice(content);
        self.raw.send_command(&payload)?;
        let reply = self.raw.read_reply()?;
        heard_in(&reply)
    }

    /// The statement's id, or the refusal.
    fn prepare(&mut self, sql: &str) -> Result<Result<u32, Heard>, TestkitError> {
        let mut packet = Vec::new();
        command::put_stmt_prepare(&mut packet, sql.as_bytes());
        self.raw.packets().write_bytes(&packet)?;
        let first = self.read()?;
        if first.first() == Some(ErrPacket::HEADER) {
            return Ok(Err(heard_error(&first)?));
        }
        let odd = |error| TestkitError::Protocol(format!("no prepared statement but {first} ({error})"));
        let answer = StmtPrepareOk::parse(&first.payload).map_err(odd)?;
        for _ in 0..u32::from(answer.params) + u32::from(answer.columns) {
            self.read()?;
        }
        Ok(Ok(answer.stmt_id))
    }

    fn try_prepared(&mut self, sql: &str, params: &[Param]) -> Result<Vec<Heard>, TestkitError> {
        let stmt_id = match self.prepare(sql)? {
            Ok(id) => id,
            Err(refused) => return Ok(vec![refused]),
        };
        let mut payload = Vec::new();
        StmtExecute { stmt_id, flags: StmtExecute::CURSOR_TYPE_NO_CURSOR, iteration_count: 1 }
            .write(&mut payload);
        put_params(&mut payload, params);
        self.raw.send_command(&payload)?;
        let mut heard = Vec::new();
        while self.binary_result(&mut heard)? {}
        Ok(heard)
    }

    /// One result of an execution; whether another follows.
    fn binary_result(&mut self, heard: &mut Vec<Heard>) -> Result<bool, TestkitError> {
        let first = self.read()?;
        match first.first() {
            Some(OK_HEADER) => {
                heard.push(Heard::Done);
                return self.is_followed(&first);
            }
            Some(ErrPacket::HEADER) => {
                heard.push(heard_error(&first)?);
                return Ok(false);
            }
            _ => {}
        }
        let columns = Reader::new(&first.payload).lenenc_int().unwrap_or(0);
        for _ in 0..columns {
            self.read()?;
        }
        let mut rows = Vec::new();
        loop {
            let packet = self.read()?;
            match packet.first() {
                Some(ErrPacket::HEADER) => {
                    heard.push(heard_error(&packet)?);
                    return Ok(false);
                }
                Some(OK_AS_EOF_HEADER) if packet.payload.len() < frame::PAYLOAD_MAX => {
                    heard.push(Heard::Rows(rows));
                    return self.is_followed(&packet);
                }
                _ => rows.push(vec!["(binary)".to_owned()]),
            }
        }
    }

    fn is_followed(&self, end: &Packet) -> Result<bool, TestkitError> {
        Ok(end.ok(self.raw.capabilities())?.status.contains(StatusFlags::MORE_RESULTS_EXISTS))
    }

    fn read(&mut self) -> Result<Packet, TestkitError> {
        self.raw.packets().read_packet()
    }
}

fn heard_error(packet: &Packet) -> Result<Heard, TestkitError> {
    let error = packet.err()?;
    Ok(Heard::Error { code: error.code, message: String::from_utf8_lossy(error.message).into_owned() })
}

fn heard_in(reply: &Reply) -> Result<Vec<Heard>, TestkitError> {
    let last = reply.last()?;
    let failed = last.first() == Some(ErrPacket::HEADER);
    let text = |value: &Option<Vec<u8>>| match value {
        Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        None => "NULL".to_owned(),
    };
    let mut heard = Vec::new();
    for (at, result) in reply.results.iter().enumerate() {
        heard.push(match result.columns {
            _ if failed && at + 1 == reply.results.len() => heard_error(last)?,
            0 => Heard::Done,
            _ => Heard::Rows(result.rows.iter().map(|row| row.iter().map(text).collect()).collect()),
        });
    }
    Ok(heard)
}

fn put_params(out: &mut Vec<u8>, params: &[Param]) {
    if params.is_empty() {
        return;
    }
    out.extend(std::iter::repeat_n(0_u8, params.len().div_ceil(8)));
    out.push(1);
    for param in params {
        let code = match param {
            Param::Int(_) => ColumnType::LONGLONG,
            Param::Text(_) => ColumnType::VAR_STRING,
        };
        out.extend_from_slice(&[code.0, 0]);
    }
    for param in params {
        match param {
            Param::Int(value) => put_u64(out, value.cast_unsigned()),
            Param::Text(text) => put_lenenc_bytes(out, text.as_bytes()),
        }
    }
}
