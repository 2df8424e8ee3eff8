//! Connects to a server, and sends statements one after the other.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use weir_protocol::capability::Capabilities;
use weir_protocol::command::Command;
use weir_protocol::frame::PAYLOAD_MAX;
use weir_protocol::ok::{EofPacket, ErrPacket, OK_HEADER, OkPacket};
use weir_protocol::resultset::{ColumnDefinition, TextRow};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Reader;

use crate::login::{Welcome, log_in};
use crate::result::{OkInfo, QueryResult};
use crate::stream::{Deadline, PacketStream};
use crate::{Error, Options};

/// The most columns of a result: servers have at most 4096.
const COLUMNS_MAX: u64 = 4096;
/// The most results of one command.
const RESULTS_MAX: usize = 10_000;

/// A logged-in connection. Dropped, it says goodbye without waiting.
#[derive(Debug)]
pub struct Connection {
    stream: PacketStream,
    options: Options,
    capabilities: Capabilities,
    offers: Capabilities,
    thread_id: u32,
    version: String,
    /// An exchange was left in the middle: nothing that follows would be in step.
    broken: bool,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`Error::Server`] also if the server refuses, [`Error::Unsupported`] if the account needs another plugin or
    /// TLS, [`Error::Timeout`] after `connect_timeout`.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let deadline = Deadline::after(Some(options.connect_timeout));
        let stream = PacketStream::connect(options, deadline)?;
        let (stream, welcome) = log_in(stream, options, deadline)?;
        let Welcome { version, thread_id, capabilities, offers } = welcome;
        Ok(Self { stream, options: options.clone(), capabilities, offers, thread_id, version, broken: false })
    }

    /// The connection's id, as KILL takes it.
    pub fn thread_id(&self) -> u32 {
        self.thread_id
    }

    /// The version in the server's greeting.
    pub fn server_version(&self) -> &str {
        &self.version
    }

    /// What the server's greeting has offered.
    pub fn offers(&self) -> Capabilities {
        self.offers
    }

    /// Whether an earlier error made the connection useless.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Runs a statement and gives its first result; those that follow are read and forgotten.
    ///
    /// # Errors
    /// That of any of the results.
    pub fn query(&mut self, sql: &str) -> Result<QueryResult, Error> {
        Ok(self.query_all(sql)?.into_iter().next().unwrap_or_default())
    }

    /// Runs a statement, or several with MULTI_STATEMENTS, and gives all results; at least one.
    ///
    /// # Errors
    /// The first error; results before it are lost.
    pub fn query_all(&mut self, sql: &str) -> Result<Vec<QueryResult>, Error> {
        self.exchange(Command::Query, sql.as_bytes(), Self::results)
    }

    /// Sends a statement whose results [`Connection::finish`] reads, so that several servers can be asked at a time.
    /// Nothing else may be asked before.
    ///
    /// # Errors
    /// If it can't be sent; [`Connection::finish`] then fails too.
    pub fn begin(&mut self, sql: &str) -> Result<(), Error> {
        self.exchange(Command::Query, sql.as_bytes(), |_, _| Ok(()))
    }

    /// Waits for the results of the statement that was begun.
    ///
    /// # Errors
    /// As for [`Connection::query_all`]; `read_timeout` begins now.
    pub fn finish(&mut self) -> Result<Vec<QueryResult>, Error> {
        if self.broken {
            return Err(Error::Closed);
        }
        let outcome = self.results(Deadline::after(self.options.read_timeout));
        self.broken = outcome.as_ref().is_err_and(Error::is_fatal);
        outcome
    }

    /// The server's end.
    ///
    /// # Errors
    /// The system's, if the connection has ended.
    pub fn peer_addr(&self) -> Result<SocketAddr, Error> {
        self.stream.peer_addr()
    }

    /// Asks whether the server is there.
    ///
    /// # Errors
    /// As for [`Connection::query`].
    pub fn ping(&mut self) -> Result<OkInfo, Error> {
        self.exchange(Command::Ping, b"", Self::simple)
    }

    /// Changes the schema.
    ///
    /// # Errors
    /// As for [`Connection::query`].
    pub fn use_schema(&mut self, schema: &str) -> Result<OkInfo, Error> {
        self.exchange(Command::InitDb, schema.as_bytes(), Self::simple)
    }

    fn results(&mut self, deadline: Deadline) -> Result<Vec<QueryResult>, Error> {
        let mut results = Vec::new();
        let mut bytes_left = self.options.reply_bytes_max;
        loop {
            let result = self.result(&mut bytes_left, deadline)?;
            let more = result.ok.status.contains(StatusFlags::MORE_RESULTS_EXISTS);
            results.push(result);
            if !more {
                return Ok(results);
            }
            if results.len() >= RESULTS_MAX {
                return Err(Error::TooLarge { limit: RESULTS_MAX, unit: "results" });
            }
        }
    }

    /// Sends a command and reads its reply; an error other than the server's breaks the connection.
    fn exchange<T>(
        &mut self,
        command: Command,
        content: &[u8],
        read: impl FnOnce(&mut Self, Deadline) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if self.broken {
            return Err(Error::Closed);
        }
        let deadline = Deadline::after(self.options.read_timeout);
        let mut payload = Vec::with_capacity(content.len() + 1);
        payload.push(command.code());
        payload.extend_from_slice(content);
        let outcome = self.stream.send_command(&payload, deadline).and_then(|()| read(self, deadline));
        self.broken = outcome.as_ref().is_err_and(Error::is_fatal);
        outcome
    }

    fn simple(&mut self, deadline: Deadline) -> Result<OkInfo, Error> {
        let payload = self.stream.receive(self.options.reply_bytes_max, deadline)?;
        match payload.first() {
            Some(&OK_HEADER) => Ok(OkPacket::parse(&payload, self.capabilities)?.into()),
            Some(&ErrPacket::HEADER) => Err(Error::of_packet(&ErrPacket::parse(&payload)?)),
            _ => Err(Error::Protocol("neither OK nor ERR".to_owned())),
        }
    }

    fn packet(&mut self, bytes_left: &mut usize, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let too_large = || Error::TooLarge { limit: self.options.reply_bytes_max, unit: "bytes" };
        let received = self.stream.receive(*bytes_left, deadline);
        let payload = received.map_err(|error| match error {
            Error::TooLarge { .. } => too_large(),
            error => error,
        })?;
        // Empty packets count too, so that their number is limited.
        *bytes_left = bytes_left.checked_sub(payload.len().max(1)).ok_or_else(too_large)?;
        Ok(payload)
    }

    fn result(&mut self, bytes_left: &mut usize, deadline: Deadline) -> Result<QueryResult, Error> {
        let payload = self.packet(bytes_left, deadline)?;
        match payload.first() {
            Some(&OK_HEADER) => {
                let ok = OkPacket::parse(&payload, self.capabilities)?.into();
                return Ok(QueryResult { ok, ..QueryResult::default() });
            }
            Some(&ErrPacket::HEADER) => return Err(Error::of_packet(&ErrPacket::parse(&payload)?)),
            Some(0xFB) => return Err(Error::Protocol("asks for a local file".to_owned())),
            _ => {}
        }
        let count = Reader::new(&payload).lenenc_int()?;
        if count > COLUMNS_MAX {
            return Err(Error::Protocol(format!("{count} columns")));
        }
        let mut columns = Vec::new();
        for _ in 0..count {
            let payload = self.packet(bytes_left, deadline)?;
            let column = ColumnDefinition::parse(&payload, self.capabilities)?;
            columns.push(String::from_utf8_lossy(column.name).into_owned());
        }
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            EofPacket::parse(&self.packet(bytes_left, deadline)?)?;
        }
        let (rows, ok) = self.rows(columns.len(), bytes_left, deadline)?;
        Ok(QueryResult { ok, columns, rows })
    }

    #[expect(clippy::type_complexity, reason = "rows of optional fields, as QueryResult has them")]
    fn rows(
        &mut self,
        columns: usize,
        bytes_left: &mut usize,
        deadline: Deadline,
    ) -> Result<(Vec<Vec<Option<Vec<u8>>>>, OkInfo), Error> {
        let mut rows = Vec::new();
        loop {
            let payload = self.packet(bytes_left, deadline)?;
            // A row that starts with 0xFE has a field of 16 MiB or more.
            let ok_ends =
                self.capabilities.contains(Capabilities::DEPRECATE_EOF) && payload.len() < PAYLOAD_MAX;
            match payload.first() {
                Some(&ErrPacket::HEADER) => return Err(Error::of_packet(&ErrPacket::parse(&payload)?)),
                Some(&EofPacket::HEADER) if ok_ends => {
                    return Ok((rows, OkPacket::parse(&payload, self.capabilities)?.into()));
                }
                Some(&first) if EofPacket::is_eof(first, payload.len()) => {
                    return Ok((rows, EofPacket::parse(&payload)?.into()));
                }
                _ => {}
            }
            if rows.len() >= self.options.rows_max {
                return Err(Error::TooLarge { limit: self.options.rows_max, unit: "rows" });
            }
            let row: Vec<Option<Vec<u8>>> = TextRow::new(&payload)
                .map(|field| Ok(field?.map(<[u8]>::to_vec)))
                .collect::<Result<_, Error>>()?;
            if row.len() != columns {
                return Err(Error::Protocol(format!("{} fields in a row of {columns} columns", row.len())));
            }
            rows.push(row);
        }
    }
}

impl AsFd for Connection {
    /// To wait until the server has said something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.broken {
            // A farewell is a courtesy: it fails if the server is gone, which is as good.
            let deadline = Deadline::after(Some(std::time::Duration::from_millis(10)));
            let _ = self.stream.send_command(&[Command::Quit.code()], deadline);
        }
    }
}
