//! Sends statements as text or prepared, and reads numbers.

use std::fmt;
use std::net::SocketAddrV4;
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::{self, StmtExecute, StmtPrepareOk};
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER};
use weir_protocol::resultset::ColumnType;
use weir_protocol::wire::{Reader, put_u64};
use weir_testkit::wire::{Login, Packet, RawClient};
use weir_testkit::{Account, TestkitError};

/// Longer than any proxy here makes a client wait.
const TIMEOUT: Duration = Duration::from_secs(40);
/// A column or a table that a statement names is not there.
const MISSING: [u16; 2] = [1054, 1146];

/// A logged-in session that may send several statements in one text.
#[derive(Debug)]
pub(crate) struct Client {
    raw: RawClient,
}

/// What a read of a number has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    /// The number.
    pub(crate) value: u64,
    /// The server that was asked, as its own table `node` says.
    pub(crate) server: usize,
}

/// A statement, prepared on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prepared(u32);

/// Why there is no answer. The connection is of no further use.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The server's error number; 0 if the connection is lost.
    pub(crate) code: u16,
    /// In words.
    pub(crate) text: String,
}

impl Refused {
    /// Whether a column or a table is missing that the statement names.
    pub(crate) fn is_missing(&self) -> bool {
        MISSING.contains(&self.code)
    }

    fn of(packet: &Packet) -> Refused {
        match packet.err() {
            Ok(error) => {
                let text = String::from_utf8_lossy(error.message).into_owned();
                Refused { code: error.code, text }
            }
            Err(error) => error.into(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            0 => f.write_str(&self.text),
            code => write!(f, "error {code}: {}", self.text),
        }
    }
}

impl From<TestkitError> for Refused {
    fn from(error: TestkitError) -> Refused {
        Refused { code: 0, text: error.to_string() }
    }
}

impl Client {
    /// Logs in.
    pub(crate) fn open(address: SocketAddrV4, account: Account, schema: &str) -> Result<Client, Refused> {
        let login = Login::new(account).schema(schema).with(Capabilities::MULTI_STATEMENTS);
        let mut raw = RawClient::login(address, &login)?;
        raw.packets().set_read_timeout(TIMEOUT)?;
        Ok(Client { raw })
    }

    /// A statement, or several, whose rows don't matter.
    pub(crate) fn run(&mut self, sql: &str) -> Result<(), Refused> {
        self.rows(sql).map(drop)
    }

    /// A read of a number and of the server's.
    pub(crate) fn read(&mut self, sql: &str) -> Result<Found, Refused> {
        let rows = self.rows(sql)?;
        let number = |column: usize| rows.first()?.get(column)?.parse::<u64>().ok();
        found(number(0), number(1), sql)
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Refused> {
        let reply = self.raw.query(sql)?;
        let last = reply.last()?;
        match last.first() == Some(ErrPacket::HEADER) {
            true => Err(Refused::of(last)),
            false => Ok(reply.rows()?),
        }
    }

    /// Prepares a read with one parameter, whose two columns are BIGINT.
    pub(crate) fn prepare(&mut self, sql: &str) -> Result<Prepared, Refused> {
        let mut packet = Vec::new();
        command::put_stmt_prepare(&mut packet, sql.as_bytes());
        self.raw.packets().write_bytes(&packet)?;
        let first = self.packet()?;
        if first.first() == Some(ErrPacket::HEADER) {
            return Err(Refused::of(&first));
        }
        let answer = StmtPrepareOk::parse(&first.payload).map_err(|error| odd(&error.to_string()))?;
        for _ in 0..u32::from(answer.params) + u32::from(answer.columns) {
            self.packet()?;
        }
        Ok(Prepared(answer.stmt_id))
    }

    /// Executes it.
    pub(crate) fn execute(&mut self, Prepared(stmt_id): Prepared, param: u64) -> Result<Found, Refused> {
        let mut payload = Vec::new();
        StmtExecute { stmt_id, flags: StmtExecute::CURSOR_TYPE_NO_CURSOR, iteration_count: 1 }
            .write(&mut payload);
        // No NULL; types follow: one BIGINT.
        payload.extend_from_slice(&[0, 1, ColumnType::LONGLONG.0, 0]);
        put_u64(&mut payload, param);
        self.raw.send_command(&payload)?;
        let first = self.packet()?;
        if first.first() == Some(ErrPacket::HEADER) {
            return Err(Refused::of(&first));
        }
        let columns = Reader::new(&first.payload).lenenc_int().unwrap_or(0);
        for _ in 0..columns {
            self.packet()?;
        }
        let mut row = None;
        loop {
            let packet = self.packet()?;
            match packet.first() {
                Some(ErrPacket::HEADER) => return Err(Refused::of(&packet)),
                Some(OK_AS_EOF_HEADER) if packet.payload.len() < frame::PAYLOAD_MAX => break,
                _ => row = row.or(numbers(&packet.payload)),
            }
        }
        found(row.map(|[value, _]| value), row.map(|[_, server]| server), "a prepared read")
    }

    fn packet(&mut self) -> Result<Packet, Refused> {
        Ok(self.raw.packets().read_packet()?)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let mut packet = Vec::new();
        command::put_quit(&mut packet);
        // A farewell is a courtesy.
        let _ = self.raw.packets().write_bytes(&packet);
    }
}

fn found(value: Option<u64>, server: Option<u64>, sql: &str) -> Result<Found, Refused> {
    let server = server.and_then(|server| usize::try_from(server).ok());
    match (value, server) {
        (Some(value), Some(server)) => Ok(Found { value, server }),
        _ => Err(odd(&format!("no two numbers from {sql}"))),
    }
}

/// A binary row of two BIGINTs, neither of them NULL: a header and a byte of NULL bits come before them.
fn numbers(payload: &[u8]) -> Option<[u64; 2]> {
    let (head, rest) = payload.split_at_checked(2)?;
    let (first, second) = rest.split_at_checked(8)?;
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    (head == [0, 0]).then_some(())?;
    Some([number(first)?, number(second)?])
}

fn odd(text: &str) -> Refused {
    Refused { code: 0, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_rows_are_two_numbers_or_nothing() {
        let mut row = vec![0, 0];
        put_u64(&mut row, 7);
        put_u64(&mut row, 3);
        assert_eq!(numbers(&row), Some([7, 3]));
        assert_eq!(numbers(row.get(..17).unwrap_or_default()), None);
        // The first is NULL.
        row[1] = 4;
        assert_eq!(numbers(&row), None);
    }

    #[test]
    fn missing_columns_and_tables_are_told_from_other_errors() {
        let refused = |code| Refused { code, text: "no".to_owned() };
        assert!(refused(1054).is_missing() && refused(1146).is_missing() && !refused(1213).is_missing());
        assert_eq!(refused(1213).to_string(), "error 1213: no");
        assert_eq!(refused(0).to_string(), "no");
    }
}
