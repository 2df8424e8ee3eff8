//! A small blocking client, for what sysbench can't do: being idle by the thousand, with TLS or without, taking or
//! sending a gigabyte without looking at it. It expects well-behaved servers.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use weir_protocol::auth::Credential;
use weir_protocol::capability::Capabilities;
use weir_protocol::charset::UTF8MB4_GENERAL_CI;
use weir_protocol::command::Command;
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::handshake::{
    AuthPacket, ConnectAttributes, Greeting, HandshakeResponse, LOGIN_PAYLOAD_MAX, MYSQL_NATIVE_PASSWORD,
    Scramble, SslRequest,
};
use weir_protocol::ok::ErrPacket;
use weir_protocol::response::{Control, ReplyKind, ReplyReader, Step};
use weir_testkit::Account;

use crate::error::ClientError;

/// A server that is silent for so long is not well.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What the client announces as the largest packet that it takes, bytes.
const PACKET_BYTES_MAX: u32 = 1 << 30;
/// More steps than a login takes.
const LOGIN_STEPS_MAX: usize = 8;

/// Where and as whom to log in.
#[derive(Debug, Clone)]
pub(crate) struct Login {
    /// A server or a proxy.
    pub(crate) address: SocketAddrV4,
    /// User and password.
    pub(crate) account: (&'static str, &'static str),
    /// The schema to begin in.
    pub(crate) schema: Option<&'static str>,
    /// With TLS, trusting these.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// Whether the server may ask for files.
    pub(crate) local_files: bool,
}

/// A logged-in connection.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// A reply, read to its end or to where the server asks for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    /// All bytes, headers included.
    pub(crate) bytes: u64,
    /// Set if the server waits for a file, whose first packet has to have this number.
    pub(crate) file_sequence: Option<u8>,
}

impl Login {
    /// As app, in the schema sbtest, in clear, without files.
    pub(crate) fn new(address: SocketAddrV4) -> Login {
        let account = (Account::APP.user, Account::APP.password);
        Login { address, account, schema: Some("sbtest"), tls: None, local_files: false }
    }

    /// At Weir's admin port, with its default account.
    pub(crate) fn admin(address: SocketAddrV4) -> Login {
        Login { account: ("admin", "admin"), schema: None, ..Login::new(address) }
    }

    /// Connects and logs in.
    pub(crate) fn connect(&self) -> Result<Client, ClientError> {
        let socket = TcpStream::connect(self.address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let mut stream = Stream::Plain(socket);
        let (_, payload) = stream.packet()?;
        check_error(&payload)?;
        let greeting = Greeting::parse(&payload).map_err(protocol)?;
        let mut sequence = 1;
        let mut capabilities = self.capabilities() & greeting.capabilities;
        capabilities |= Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
        if self.tls.is_some() {
            capabilities |= Capabilities::SSL;
            let request =
                SslRequest { capabilities, max_packet_size: PACKET_BYTES_MAX, collation: collation() };
            let mut payload = Vec::new();
            request.write(&mut payload);
            stream.send(&mut sequence, &payload)?;
            stream = self.start_tls(stream)?;
        }
        let credential = Credential::clear_text(self.account.1.as_bytes());
        let proof = credential.response(MYSQL_NATIVE_PASSWORD, &greeting.scramble).unwrap_or_default();
        let response = HandshakeResponse {
            capabilities,
            max_packet_size: PACKET_BYTES_MAX,
            collation: collation(),
            user: self.account.0.as_bytes(),
            auth_data: &proof,
            database: self.schema.map(str::as_bytes),
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: ConnectAttributes::default(),
            zstd_level: None,
        };
        let mut payload = Vec::new();
        response.write(&mut payload);
        stream.send(&mut sequence, &payload)?;
        authenticate(&mut stream, &credential, greeting.scramble, capabilities)?;
        Ok(Client { stream })
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::PLUGIN_AUTH
            | Capabilities::LONG_PASSWORD
            | Capabilities::LONG_FLAG
            | Capabilities::TRANSACTIONS
            | Capabilities::MULTI_RESULTS
            | Capabilities::DEPRECATE_EOF;
        capabilities.set(Capabilities::CONNECT_WITH_DB, self.schema.is_some());
        capabilities.set(Capabilities::LOCAL_FILES, self.local_files);
        capabilities
    }

    fn start_tls(&self, stream: Stream) -> Result<Stream, ClientError> {
        let (Stream::Plain(socket), Some(config)) = (stream, &self.tls) else {
            return Err(ClientError::Protocol("TLS within TLS".to_owned()));
        };
        let name = ServerName::from(std::net::IpAddr::from(*self.address.ip()));
        let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }
}

/// Answers the server until it is content.
fn authenticate(
    stream: &mut Stream,
    credential: &Credential,
    scramble: Scramble,
    capabilities: Capabilities,
) -> Result<(), ClientError> {
    for _ in 0..LOGIN_STEPS_MAX {
        let (sequence, payload) = stream.packet()?;
        match AuthPacket::parse(&payload, capabilities).map_err(protocol)? {
            AuthPacket::Ok(_) => return Ok(()),
            AuthPacket::Err(error) => return Err(server_error(&error)),
            AuthPacket::Switch(request) => {
                let scramble = Scramble::try_from(request.data).unwrap_or(scramble);
                let Some(answer) = credential.response(request.plugin, &scramble) else {
                    let plugin = String::from_utf8_lossy(request.plugin);
                    return Err(ClientError::Protocol(format!("the account uses {plugin}")));
                };
                stream.send(&mut sequence.wrapping_add(1), &answer)?;
            }
            _ => {}
        }
    }
    Err(ClientError::Protocol("a login that does not end".to_owned()))
}

impl Client {
    /// Runs a statement and forgets its reply.
    ///
    /// # Errors
    /// The server's too.
    pub(crate) fn query(&mut self, sql: &str) -> Result<(), ClientError> {
        self.send_query(sql)?;
        self.reply(&mut vec![0; 16 * 1024], 1).map(drop)
    }

    /// Sends a statement.
    pub(crate) fn send_query(&mut self, sql: &str) -> Result<(), ClientError> {
        self.stream.write_all(&query(sql))?;
        Ok(())
    }

    /// Sends a packet of a file; an empty one ends it.
    pub(crate) fn send_packet(&mut self, sequence: &mut u8, payload: &[u8]) -> Result<(), ClientError> {
        self.stream.send(sequence, payload)
    }

    /// Reads a reply, whose first packet has number `sequence`, through `buffer` and forgets it.
    ///
    /// # Errors
    /// The server's too.
    pub(crate) fn reply(&mut self, buffer: &mut [u8], sequence: u8) -> Result<Reply, ClientError> {
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
    pub(crate) fn into_socket(self) -> Option<TcpStream> {
        match self.stream {
            Stream::Plain(socket) => Some(socket),
            Stream::Tls(_) => None,
        }
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
                check_error(rest.get(HEADER_LEN..n).unwrap_or_default())?;
                return Err(ClientError::Protocol("an error without a number".to_owned()));
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

impl Stream {
    fn send(&mut self, sequence: &mut u8, payload: &[u8]) -> Result<(), ClientError> {
        let mut packet = Vec::with_capacity(HEADER_LEN + payload.len());
        frame::write_packet(&mut packet, sequence, payload);
        self.write_all(&packet)?;
        Ok(())
    }

    /// One packet of a login: its number and its payload.
    fn packet(&mut self) -> Result<(u8, Vec<u8>), ClientError> {
        let mut bytes = [0; HEADER_LEN];
        self.read_exact(&mut bytes)?;
        let header = Header::parse(&bytes).filter(|header| header.len <= LOGIN_PAYLOAD_MAX);
        let header = header.ok_or_else(|| ClientError::Protocol("no packet of a login".to_owned()))?;
        let mut payload = vec![0; header.len];
        self.read_exact(&mut payload)?;
        Ok((header.seq, payload))
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// The low byte of utf8mb4_general_ci, which every server has.
fn collation() -> u8 {
    u8::try_from(UTF8MB4_GENERAL_CI).unwrap_or(45)
}

fn protocol(error: impl std::fmt::Display) -> ClientError {
    ClientError::Protocol(error.to_string())
}

fn check_error(payload: &[u8]) -> Result<(), ClientError> {
    match payload.first() {
        Some(&ErrPacket::HEADER) => Err(server_error(&ErrPacket::parse(payload).map_err(protocol)?)),
        _ => Ok(()),
    }
}

fn server_error(error: &ErrPacket<'_>) -> ClientError {
    ClientError::Server(error.code, String::from_utf8_lossy(error.message).into_owned())
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
