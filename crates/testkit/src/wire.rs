//! Sends and reads packets over a blocking socket, and drives a client that does what it is told and nothing else.
//!
//! For tests of what ordinary clients never send: odd capabilities, wrong sequence numbers, half a packet. Whoever
//! only wants results takes weir-client.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType};
use weir_protocol::auth::{native, sha2};
use weir_protocol::capability::Capabilities;
use weir_protocol::command;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::handshake::{
    AuthPacket, CACHING_SHA2_PASSWORD, ConnectAttributes, Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD,
    SCRAMBLE_LEN, Scramble,
};
use weir_protocol::ok::{EofPacket, ErrPacket, OK_AS_EOF_HEADER, OK_HEADER, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::{Malformed, Reader};

use crate::{Account, TestkitError};

/// How long a packet is waited for unless a test says otherwise.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// More packets than this are no answer but a runaway peer.
const REPLY_PACKETS_MAX: usize = 1_000_000;

/// One packet as it was on the wire: at most 16 MB - 1 of payload, continuation packets are packets of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its sequence number.
    pub seq: u8,
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Packet {
    /// Its first byte, if it has one.
    pub fn first(&self) -> Option<u8> {
        self.payload.first().copied()
    }

    /// Reads it as an OK packet, also one with the header of an EOF.
    pub fn ok(&self, capabilities: Capabilities) -> Result<OkPacket<'_>, TestkitError> {
        OkPacket::parse(&self.payload, capabilities).map_err(|error| self.unexpected("OK", error))
    }

    /// Reads it as an ERR packet.
    pub fn err(&self) -> Result<ErrPacket<'_>, TestkitError> {
        ErrPacket::parse(&self.payload).map_err(|error| self.unexpected("ERR", error))
    }

    /// Reads it as an EOF packet of the old form.
    pub fn eof(&self) -> Result<EofPacket, TestkitError> {
        EofPacket::parse(&self.payload).map_err(|error| self.unexpected("EOF", error))
    }

    fn unexpected(&self, wanted: &str, error: Malformed) -> TestkitError {
        TestkitError::Protocol(format!("expected {wanted}, got {self} ({error})"))
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, more) = match self.payload.get(..60) {
            Some(start) => (start, "..."),
            None => (self.payload.as_slice(), ""),
        };
        write!(f, "packet {} of {} bytes ", self.seq, self.payload.len())?;
        write!(f, "\"{}{more}\"", shown.escape_ascii())?;
        if let Ok(err) = ErrPacket::parse(&self.payload) {
            write!(f, " = ERR {}: {}", err.code, String::from_utf8_lossy(err.message))?;
        }
        Ok(())
    }
}

/// A socket that packets are read from and written to, one by one.
#[derive(Debug)]
pub struct PacketStream {
    stream: TcpStream,
}

impl PacketStream {
    /// Takes over a connected socket.
    pub fn new(stream: TcpStream) -> Result<PacketStream, TestkitError> {
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(READ_TIMEOUT))?;
            stream.set_write_timeout(Some(READ_TIMEOUT))
        };
        prepare().map_err(TestkitError::io("prepare a socket".to_owned()))?;
        Ok(PacketStream { stream })
    }

    /// The socket itself.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// How long to wait for a packet.
    pub fn set_read_timeout(&self, timeout: Duration) -> Result<(), TestkitError> {
        // A zero would mean "for ever" to the system.
        let timeout = timeout.max(Duration::from_millis(1));
        self.stream.set_read_timeout(Some(timeout)).map_err(TestkitError::io("set a read timeout".to_owned()))
    }

    /// Reads one packet.
    ///
    /// # Errors
    /// [`TestkitError::Protocol`] with "closed" if the peer has closed, with "no packet" if none came in time.
    pub fn read_packet(&mut self) -> Result<Packet, TestkitError> {
        let mut header = [0; HEADER_LEN];
        self.read_exact(&mut header)?;
        let [a, b, c, seq] = header;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.read_exact(&mut payload)?;
        Ok(Packet { seq, payload })
    }

    /// Writes a payload as one packet, or as several if it is too long for one. Returns the next sequence number.
    pub fn write_packet(&mut self, seq: u8, payload: &[u8]) -> Result<u8, TestkitError> {
        let mut bytes = Vec::with_capacity(payload.len() + HEADER_LEN);
        let mut next = seq;
        frame::write_packet(&mut bytes, &mut next, payload);
        self.write_bytes(&bytes)?;
        Ok(next)
    }

    /// Writes bytes as they are.
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), TestkitError> {
        self.stream.write_all(bytes).map_err(|error| broken("write", &error))
    }

    /// Whether the peer has closed the connection: waits for its end, and takes a packet for a "no".
    pub fn is_closed(&self) -> bool {
        let mut byte = [0];
        match self.stream.peek(&mut byte) {
            Ok(0) => true,
            Ok(_) => false,
            Err(error) => !is_timeout(&error),
        }
    }

    /// Whether bytes can be read at once or within the read timeout.
    pub fn has_input(&self) -> bool {
        matches!(self.stream.peek(&mut [0]), Ok(1..))
    }

    /// Says that nothing more will be written (FIN), and goes on reading.
    pub fn finish_writing(&self) -> Result<(), TestkitError> {
        self.stream.shutdown(Shutdown::Write).map_err(TestkitError::io("shut a socket down".to_owned()))
    }

    /// Closes so that the peer sees a reset (RST) instead of an orderly end.
    pub fn reset(self) -> Result<(), TestkitError> {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO))
            .map_err(|error| TestkitError::Io { doing: "set SO_LINGER".to_owned(), source: error.into() })
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), TestkitError> {
        self.stream.read_exact(buffer).map_err(|error| broken("read", &error))
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn broken(doing: &str, error: &std::io::Error) -> TestkitError {
    TestkitError::Protocol(match error.kind() {
        _ if is_timeout(error) => format!("no packet in time ({doing})"),
        ErrorKind::UnexpectedEof => "the peer has closed the connection".to_owned(),
        _ => format!("the connection broke ({doing}): {error}"),
    })
}

/// A server's greeting, as far as tests look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerGreeting {
    /// The server's version, as it calls itself.
    pub version: String,
    /// The connection's id.
    pub thread_id: u32,
    /// What passwords are proven against.
    pub scramble: Scramble,
    /// What the server can.
    pub capabilities: Capabilities,
    /// Its default collation id.
    pub collation: u8,
    /// Its default authentication plugin.
    pub auth_plugin: String,
}

/// What to log in with. Start from [`Login::new`] and change what the test is about.
#[derive(Debug, Clone)]
pub struct Login {
    /// The capabilities to ask for; those for the schema, plugin and attributes follow from their fields.
    pub capabilities: Capabilities,
    /// Collation id; 45 is utf8mb4_general_ci.
    pub collation: u8,
    /// The largest packet that the client claims to take, bytes.
    pub max_packet_size: u32,
    /// The user.
    pub user: String,
    /// The password, in clear.
    pub password: String,
    /// The schema to start in.
    pub schema: Option<String>,
    /// The plugin that the client claims to use; its first answer is that of mysql_native_password all the same.
    pub plugin: Option<Vec<u8>>,
    /// Connection attributes, name and value.
    pub attributes: Vec<(String, String)>,
}

impl Login {
    /// What common drivers ask for, as `account`, in no schema.
    pub fn new(account: Account) -> Login {
        Login {
            capabilities: Capabilities::LONG_PASSWORD
                | Capabilities::LONG_FLAG
                | Capabilities::PROTOCOL_41
                | Capabilities::TRANSACTIONS
                | Capabilities::SECURE_CONNECTION
                | Capabilities::MULTI_RESULTS
                | Capabilities::PS_MULTI_RESULTS
                | Capabilities::DEPRECATE_EOF,
            collation: 45,
            max_packet_size: 1 << 24,
            user: account.user.to_owned(),
            password: account.password.to_owned(),
            schema: None,
            plugin: Some(MYSQL_NATIVE_PASSWORD.to_vec()),
            attributes: Vec::new(),
        }
    }

    /// The same with a schema.
    pub fn schema(mut self, schema: &str) -> Login {
        self.schema = Some(schema.to_owned());
        self
    }

    /// The same with further capabilities.
    pub fn with(mut self, capabilities: Capabilities) -> Login {
        self.capabilities |= capabilities;
        self
    }

    /// The same without some capabilities.
    pub fn without(mut self, capabilities: Capabilities) -> Login {
        self.capabilities -= capabilities;
        self
    }

    /// The payload of the client's answer to a greeting with `scramble`.
    pub fn response(&self, scramble: &Scramble) -> Vec<u8> {
        let mut attributes = Vec::new();
        for (name, value) in &self.attributes {
            ConnectAttributes::put(&mut attributes, name.as_bytes(), value.as_bytes());
        }
        let mut payload = Vec::new();
        HandshakeResponse {
            capabilities: self.capabilities,
            max_packet_size: self.max_packet_size,
            collation: self.collation,
            user: self.user.as_bytes(),
            auth_data: &native_answer(&self.password, scramble),
            database: self.schema.as_deref().map(str::as_bytes),
            auth_plugin: self.plugin.as_deref(),
            attributes: ConnectAttributes::parse(&attributes).unwrap_or_default(),
            zstd_level: None,
        }
        .write(&mut payload);
        payload
    }
}

/// An empty password is answered with nothing.
fn native_answer(password: &str, scramble: &Scramble) -> Vec<u8> {
    native::response(password.as_bytes(), scramble).map(|answer| answer.to_vec()).unwrap_or_default()
}

fn sha2_answer(password: &str, scramble: &Scramble) -> Vec<u8> {
    sha2::response(password.as_bytes(), scramble).map(|answer| answer.to_vec()).unwrap_or_default()
}

/// A client connection under full control of the test.
#[derive(Debug)]
pub struct RawClient {
    packets: PacketStream,
    greeting: ServerGreeting,
    capabilities: Capabilities,
}

impl RawClient {
    /// Connects and reads the greeting, no more.
    pub fn connect(server: SocketAddrV4) -> Result<RawClient, TestkitError> {
        let stream = TcpStream::connect_timeout(&SocketAddr::V4(server), READ_TIMEOUT)
            .map_err(TestkitError::io(format!("connect to {server}")))?;
        RawClient::greeted(stream)
    }

    /// The same from this address of the machine, on a port that the system chooses.
    pub fn connect_from(source: Ipv4Addr, server: SocketAddrV4) -> Result<RawClient, TestkitError> {
        let connect = || {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
            rustix::net::bind(&socket, &SocketAddrV4::new(source, 0))?;
            rustix::net::connect(&socket, &server)?;
            Ok(TcpStream::from(socket))
        };
        let doing = TestkitError::io(format!("connect to {server} from {source}"));
        let stream = connect().map_err(|error: rustix::io::Errno| doing(error.into()))?;
        RawClient::greeted(stream)
    }

    fn greeted(stream: TcpStream) -> Result<RawClient, TestkitError> {
        let mut packets = PacketStream::new(stream)?;
        let first = packets.read_packet()?;
        let greeting = Greeting::parse(&first.payload)
            .map_err(|error| TestkitError::Protocol(format!("expected a greeting, got {first} ({error})")))?;
        let greeting = ServerGreeting {
            version: String::from_utf8_lossy(greeting.version).into_owned(),
            thread_id: greeting.thread_id,
            scramble: greeting.scramble,
            capabilities: greeting.capabilities,
            collation: greeting.collation,
            auth_plugin: String::from_utf8_lossy(greeting.auth_plugin).into_owned(),
        };
        Ok(RawClient { packets, greeting, capabilities: Capabilities::empty() })
    }

    /// Connects and logs in; an ERR of the server is an error.
    pub fn login(server: SocketAddrV4, login: &Login) -> Result<RawClient, TestkitError> {
        let mut client = RawClient::connect(server)?;
        let answer = client.authenticate(login)?;
        if answer.first() == Some(OK_HEADER) {
            Ok(client)
        } else {
            Err(TestkitError::Protocol(format!("the login as {} was refused: {answer}", login.user)))
        }
    }

    /// Answers the greeting, and a switch to mysql_native_password or caching_sha2_password; returns what the server
    /// decided, OK or ERR. A server that wants the password itself gets no answer: it is an error.
    pub fn authenticate(&mut self, login: &Login) -> Result<Packet, TestkitError> {
        let response = login.response(&self.greeting.scramble);
        let mut seq = self.packets.write_packet(1, &response)?;
        // What both sides have is in force.
        self.capabilities = login.capabilities & self.greeting.capabilities;
        loop {
            let packet = self.packets.read_packet()?;
            match AuthPacket::parse(&packet.payload, self.capabilities) {
                Ok(AuthPacket::Switch(switch)) if switch.plugin != b"mysql_clear_password" => {
                    let scramble: &[u8; SCRAMBLE_LEN] = switch.data.try_into().map_err(|_| {
                        TestkitError::Protocol(format!("a scramble of another length than 20: {packet}"))
                    })?;
                    let answer = match switch.plugin {
                        CACHING_SHA2_PASSWORD => sha2_answer(&login.password, scramble),
                        _ => native_answer(&login.password, scramble),
                    };
                    seq = self.packets.write_packet(packet.seq.wrapping_add(1), &answer)?;
                }
                Ok(AuthPacket::More(more)) if more.data == [sha2::FAST_AUTH_OK] => {}
                Ok(AuthPacket::Ok(_) | AuthPacket::Err(_)) => return Ok(packet),
                other => {
                    return Err(TestkitError::Protocol(format!(
                        "no way to answer {packet} ({other:?}) after packet {}",
                        seq.wrapping_sub(1)
                    )));
                }
            }
        }
    }

    /// The server's greeting.
    pub fn greeting(&self) -> &ServerGreeting {
        &self.greeting
    }

    /// The capabilities that both sides have.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// The connection, for single packets and bytes.
    pub fn packets(&mut self) -> &mut PacketStream {
        &mut self.packets
    }

    /// Sends a command: a payload with sequence number 0.
    pub fn send_command(&mut self, payload: &[u8]) -> Result<(), TestkitError> {
        self.packets.write_packet(0, payload).map(drop)
    }

    /// Sends COM_QUERY and reads everything that belongs to its reply.
    pub fn query(&mut self, sql: &str) -> Result<Reply, TestkitError> {
        let mut packet = Vec::new();
        command::put_query(&mut packet, sql.as_bytes());
        self.packets.write_bytes(&packet)?;
        self.read_reply()
    }

    /// Reads the reply to a COM_QUERY, or to another command that is answered by OK, ERR or text results.
    pub fn read_reply(&mut self) -> Result<Reply, TestkitError> {
        let mut reply = Reply { packets: Vec::new(), results: Vec::new(), capabilities: self.capabilities };
        while self.read_result(&mut reply)? {}
        Ok(reply)
    }

    /// Reads one result of a reply; returns whether another follows.
    fn read_result(&mut self, reply: &mut Reply) -> Result<bool, TestkitError> {
        let first = self.next(reply)?;
        let mut result = TextResult::default();
        let end = match first.first() {
            Some(OK_HEADER) => first,
            Some(ErrPacket::HEADER) => {
                reply.results.push(result);
                return Ok(false);
            }
            _ => {
                result.columns = column_count(&first)?;
                self.read_rows(reply, &mut result)?
            }
        };
        reply.results.push(result);
        Ok(end_status(&end, self.capabilities)?.contains(StatusFlags::MORE_RESULTS_EXISTS))
    }

    /// Reads column definitions and rows; returns the packet that ended them.
    fn read_rows(&mut self, reply: &mut Reply, result: &mut TextResult) -> Result<Packet, TestkitError> {
        for _ in 0..result.columns {
            self.next(reply)?;
        }
        if !self.capabilities.contains(Capabilities::DEPRECATE_EOF) {
            self.next(reply)?.eof()?;
        }
        loop {
            let packet = self.next(reply)?;
            let ends = match packet.first() {
                Some(ErrPacket::HEADER) => true,
                // A row may start with 0xFE too: the length of a value of 16 MB or more.
                Some(OK_AS_EOF_HEADER) => packet.payload.len() < frame::PAYLOAD_MAX,
                _ => false,
            };
            if ends {
                return Ok(packet);
            }
            result.rows.push(text_row(&packet, result.columns)?);
        }
    }

    fn next(&mut self, reply: &mut Reply) -> Result<Packet, TestkitError> {
        if reply.packets.len() >= REPLY_PACKETS_MAX {
            return Err(TestkitError::Protocol(format!("a reply of more than {REPLY_PACKETS_MAX} packets")));
        }
        let packet = self.packets.read_packet()?;
        reply.packets.push(packet.clone());
        Ok(packet)
    }
}

/// One row of text values, NULL is `None`.
pub type TextRow = Vec<Option<Vec<u8>>>;

/// One result of a reply; without columns it was an OK or ERR.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextResult {
    /// How many columns.
    pub columns: usize,
    /// The rows.
    pub rows: Vec<TextRow>,
}

/// Everything a server answered to one command.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Every packet, in order.
    pub packets: Vec<Packet>,
    /// The results that the packets make up.
    pub results: Vec<TextResult>,
    capabilities: Capabilities,
}

impl Reply {
    /// The last packet.
    pub fn last(&self) -> Result<&Packet, TestkitError> {
        self.packets.last().ok_or_else(|| TestkitError::Protocol("an empty reply".to_owned()))
    }

    /// The OK packet at the end (with DEPRECATE_EOF also that of a result with rows).
    pub fn ok(&self) -> Result<OkPacket<'_>, TestkitError> {
        self.last()?.ok(self.capabilities)
    }

    /// The ERR packet at the end.
    pub fn err(&self) -> Result<ErrPacket<'_>, TestkitError> {
        self.last()?.err()
    }

    /// The rows of the first result, as text, NULL as "NULL"; an ERR is an error.
    pub fn rows(&self) -> Result<Vec<Vec<String>>, TestkitError> {
        let last = self.last()?;
        if last.first() == Some(ErrPacket::HEADER) {
            return Err(TestkitError::Protocol(format!("the statement failed: {last}")));
        }
        let text = |value: &Option<Vec<u8>>| match value {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => "NULL".to_owned(),
        };
        let rows = self.results.first().map(|result| result.rows.as_slice()).unwrap_or_default();
        Ok(rows.iter().map(|row| row.iter().map(text).collect()).collect())
    }
}

fn column_count(packet: &Packet) -> Result<usize, TestkitError> {
    let odd =
        |what: String| TestkitError::Protocol(format!("expected a column count, got {packet} ({what})"));
    let count = Reader::new(&packet.payload).lenenc_int().map_err(|error| odd(error.to_string()))?;
    // The protocol's limit for columns of a result is 4096.
    usize::try_from(count).ok().filter(|n| *n <= 4096).ok_or_else(|| odd("too many".to_owned()))
}

fn text_row(packet: &Packet, columns: usize) -> Result<TextRow, TestkitError> {
    let mut reader = Reader::new(&packet.payload);
    let values: Result<TextRow, Malformed> =
        (0..columns).map(|_| Ok(reader.lenenc_bytes_or_null()?.map(<[u8]>::to_vec))).collect();
    values.map_err(|error| TestkitError::Protocol(format!("expected a row, got {packet} ({error})")))
}

/// The status flags of the OK, EOF or ERR (none) that ends a result.
fn end_status(packet: &Packet, capabilities: Capabilities) -> Result<StatusFlags, TestkitError> {
    let deprecate_eof = capabilities.contains(Capabilities::DEPRECATE_EOF);
    match packet.first() {
        Some(ErrPacket::HEADER) => Ok(StatusFlags::empty()),
        Some(OK_AS_EOF_HEADER) if !deprecate_eof => Ok(packet.eof()?.status),
        _ => Ok(packet.ok(capabilities)?.status),
    }
}
