//! Drives connections that a [`Connection`](weir_client::Connection) is not made for: idle by the thousand, or taking and
//! sending a gigabyte without looking at it. It expects well-behaved servers.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use weir_client::{Capabilities, Options, RawStream, Tls};
use weir_protocol::command::Command;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::ok::ErrPacket;
use weir_protocol::response::{Control, ReplyKind, ReplyReader, Step};

use crate::{Account, ClientError};

/// A server that is silent for so long is not well.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where and as whom to log in.
#[derive(Debug, Clone)]
pub struct Login {
    /// A server or a proxy.
    pub address: SocketAddrV4,
    /// Account, schema and TLS.
    pub options: Options,
}

/// A logged-in connection.
#[derive(Debug)]
pub struct Client {
    stream: RawStream,
}

/// A reply, read to its end or to where the server asks for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// All bytes, headers included.
    pub bytes: u64,
    /// Set if the server waits for a file, whose first packet has to have this number.
    pub file_sequence: Option<u8>,
}

impl Login {
    /// In clear, without a schema, without files.
    pub fn new(address: SocketAddrV4, account: &Account) -> Login {
        Login { address, options: account.at(address).timeouts(TIMEOUT, TIMEOUT) }
    }

    /// The same with a schema to begin in.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Login {
        self.options = self.options.schema(schema);
        self
    }

    /// The same with TLS, or without.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Login {
        self.options = self.options.tls(tls);
        self
    }

    /// The same where the server may ask for files.
    #[must_use]
    pub fn local_files(mut self) -> Login {
        self.options.capabilities |= Capabilities::LOCAL_FILES;
        self
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// The server's too.
    pub fn connect(&self) -> Result<Client, ClientError> {
        Ok(Client { stream: RawStream::connect(&self.options)? })
    }
}

impl Client {
    /// Runs a statement and forgets its reply.
    ///
    /// # Errors
    /// The server's too.
    pub fn query(&mut self, sql: &str) -> Result<(), ClientError> {
        self.send_query(sql)?;
        self.reply(&mut vec![0; 16 * 1024], 1).map(drop)
    }

    /// Sends a statement.
    pub fn send_query(&mut self, sql: &str) -> Result<(), ClientError> {
        self.stream.write_all(&query(sql))?;
        Ok(())
    }

    /// Sends a packet of a file; an empty one ends it.
    pub fn send_packet(&mut self, sequence: &mut u8, payload: &[u8]) -> Result<(), ClientError> {
        let mut packet = Vec::with_capacity(HEADER_LEN + payload.len());
        frame::write_packet(&mut packet, sequence, payload);
        Ok(self.stream.write_all(&packet)?)
    }

    /// Reads a reply, whose first packet has number `sequence`, through `buffer` and forgets it.
    ///
    /// # Errors
    /// The server's too.
    pub fn reply(&mut self, buffer: &mut [u8], sequence: u8) -> Result<Reply, ClientError> {
        let mut reader = ReplyReader::new(ReplyKind::Results, sequence);
        let (mut filled, mut bytes) = (0, 0);
        loop {
            let read = self.stream.read(buffer.get_mut(filled..).unwrap_or_default())?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            filled += read;
            bytes += read as u64;
            match progress(&mut reader, buffer.get_mut(..filled).unwrap_or_default())? {
                Progress::Done => return Ok(Reply { bytes, file_sequence: None }),
                Progress::File(sequence) => return Ok(Reply { bytes, file_sequence: Some(sequence) }),
                Progress::Unread(from) => {
                    buffer.copy_within(from..filled, 0);
                    filled -= from;
                }
            }
        }
    }

    /// The socket of a connection in clear, for whoever wants to wait for many at once.
    pub fn into_socket(self) -> Option<TcpStream> {
        self.stream.into_socket()
    }
}

/// How far a reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Complete.
    Done,
    /// The server wants a file, whose first packet has to have this number.
    File(u8),
    /// More has to come; the bytes from here on have to be shown again.
    Unread(usize),
}

/// Goes through the bytes that have come.
///
/// # Errors
/// The server's own error, and what breaks the protocol.
pub(crate) fn progress(reader: &mut ReplyReader, bytes: &mut [u8]) -> Result<Progress, ClientError> {
    let mut at = 0;
    loop {
        let rest = bytes.get_mut(at..).unwrap_or_default();
        match reader.next(rest).map_err(protocol)? {
            Step::Pass(n) => at += n,
            Step::Control(Control::Err, n) => {
                let error =
                    ErrPacket::parse(rest.get(HEADER_LEN..n).unwrap_or_default()).map_err(protocol)?;
                let text = String::from_utf8_lossy(error.message).into_owned();
                return Err(ClientError::Server(error.code, text));
            }
            Step::Control(Control::LocalInfile, _) => return Ok(Progress::File(reader.next_sequence())),
            Step::Control(_, n) => at += n,
            Step::ColumnsEnd => {}
            Step::Done => return Ok(Progress::Done),
            Step::NeedMore => return Ok(Progress::Unread(at)),
        }
    }
}

/// COM_QUERY as a packet.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    let mut packet = Vec::with_capacity(HEADER_LEN + 1 + sql.len());
    frame::packet(&mut packet, &mut 0, |packet| {
        packet.push(Command::Query.code());
        packet.extend_from_slice(sql.as_bytes());
    });
    packet
}

fn protocol(error: impl std::fmt::Display) -> ClientError {
    ClientError::Protocol(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with a payload.
    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        frame::write_packet(&mut out, &mut { sequence }, payload);
        out
    }

    #[test]
    fn a_reply_may_come_in_any_pieces() {
        let mut reply = packet(1, &[1]);
        reply.extend(packet(2, b"\x03def\0\0\0\x01c\0\x0c\x2d\0\x04\0\0\0\xfd\0\0\0\0\0"));
        reply.extend(packet(3, b"\x01x"));
        reply.extend(packet(4, &[0xFE, 0, 0, 2, 0, 0, 0]));
        for cut in 1..reply.len() {
            let mut reader = ReplyReader::new(ReplyKind::Results, 1);
            let Progress::Unread(from) = progress(&mut reader, &mut reply[..cut].to_vec()).unwrap() else {
                panic!("done after {cut} bytes");
            };
            assert_eq!(progress(&mut reader, &mut reply[from..].to_vec()).unwrap(), Progress::Done, "{cut}");
        }
    }

    #[test]
    fn an_error_is_the_servers_own() {
        let mut reply = packet(1, b"\xff\x7a\x04#42S02no such table");
        let mut reader = ReplyReader::new(ReplyKind::Results, 1);
        let error = progress(&mut reader, &mut reply).unwrap_err();
        assert_eq!(error.to_string(), "error 1146: no such table");
    }

    #[test]
    fn a_server_may_ask_for_a_file() {
        let mut reply = packet(1, b"\xfbname");
        let mut reader = ReplyReader::new(ReplyKind::Results, 1);
        assert_eq!(progress(&mut reader, &mut reply).unwrap(), Progress::File(2));
    }
}
