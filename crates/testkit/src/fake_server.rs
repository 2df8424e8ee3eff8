//! Plays a MySQL server that follows a script: for everything that a real one can't be made to do on command.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use weir_protocol::capability::Capabilities;
use weir_protocol::error::ServerError;
use weir_protocol::handshake::{Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};
use weir_protocol::status::StatusFlags;

use crate::process::POLL_INTERVAL;
use crate::wire::{Packet, PacketStream};
use crate::{TestkitError, preflight};

/// Commands that the client expects no answer to: COM_QUIT and COM_STMT_CLOSE.
const UNANSWERED: [u8; 2] = [0x01, 0x19];

/// What the server claims to be.
#[derive(Debug, Clone)]
pub struct FakeGreeting {
    /// Its version.
    pub version: String,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Its authentication plugin; any answer to it is accepted.
    pub auth_plugin: Vec<u8>,
}

impl Default for FakeGreeting {
    /// A MariaDB 10.11 without TLS, with everything that Weir asks of a server.
    fn default() -> FakeGreeting {
        FakeGreeting {
            version: "5.5.5-10.11.99-MariaDB-fake".to_owned(),
            capabilities: Capabilities::FOUND_ROWS
                | Capabilities::LONG_FLAG
                | Capabilities::CONNECT_WITH_DB
                | Capabilities::LOCAL_FILES
                | Capabilities::IGNORE_SPACE
                | Capabilities::PROTOCOL_41
                | Capabilities::INTERACTIVE
                | Capabilities::TRANSACTIONS
                | Capabilities::SECURE_CONNECTION
                | Capabilities::MULTI_STATEMENTS
                | Capabilities::MULTI_RESULTS
                | Capabilities::PS_MULTI_RESULTS
                | Capabilities::PLUGIN_AUTH
                | Capabilities::CONNECT_ATTRS
                | Capabilities::PLUGIN_AUTH_LENENC_CLIENT_DATA
                | Capabilities::SESSION_TRACK
                | Capabilities::DEPRECATE_EOF,
            auth_plugin: MYSQL_NATIVE_PASSWORD.to_vec(),
        }
    }
}

/// Who has logged in at the fake server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeLogin {
    /// The number of the connection, from 0.
    pub connection: u32,
    /// The user's name.
    pub user: String,
    /// The schema asked for.
    pub schema: Option<String>,
    /// The capabilities that both sides have.
    pub capabilities: Capabilities,
}

/// One step of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read a packet, whatever it is.
    ExpectAny,
    /// Read a packet that starts with these bytes.
    Expect(Vec<u8>),
    /// Send a packet with the sequence number after that of the last packet, in either direction.
    Send(Vec<u8>),
    /// Send bytes as they are.
    Bytes(Vec<u8>),
    /// Send bytes in pieces, with a pause after each.
    Chunks {
        /// All of the bytes.
        bytes: Vec<u8>,
        /// Bytes per piece.
        size: usize,
        /// After each piece.
        pause: Duration,
    },
    /// Do nothing for a while.
    Wait(Duration),
    /// Answer every further command with this payload, until the client closes.
    AnswerAll(Vec<u8>),
    /// Answer every command with OK until one contains these bytes: that one is left to the next step.
    OkUntil(Vec<u8>),
    /// Read and answer nothing, until the client closes.
    Ignore,
    /// Close in good order (FIN). The end of the script does the same.
    Close,
    /// Close with a reset (RST).
    Reset,
}

/// Steps for one connection, written as a chain: `Script::new().query("SELECT 1").ok()`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
}

impl Script {
    /// No steps: closes at once.
    pub fn new() -> Script {
        Script::default()
    }

    /// Adds a step.
    pub fn step(mut self, step: Step) -> Script {
        self.steps.push(step);
        self
    }

    /// Expects a COM_QUERY that starts with `sql`.
    pub fn query(self, sql: &str) -> Script {
        self.step(Step::Expect([b"\x03", sql.as_bytes()].concat()))
    }

    /// Sends a packet.
    pub fn send(self, payload: impl Into<Vec<u8>>) -> Script {
        self.step(Step::Send(payload.into()))
    }

    /// Sends an OK.
    pub fn ok(self) -> Script {
        self.send(ok_payload())
    }

    /// Sends an ERR.
    pub fn err(self, error: ServerError, message: &str) -> Script {
        self.send(err_payload(error, message))
    }

    /// Answers every further command with OK.
    pub fn ok_to_all(self) -> Script {
        self.step(Step::AnswerAll(ok_payload()))
    }
}

/// The payload of an OK packet: autocommit, nothing affected.
pub fn ok_payload() -> Vec<u8> {
    let mut payload = Vec::new();
    OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT).write(Capabilities::empty(), &mut payload);
    payload
}

/// The payload of an ERR packet.
pub fn err_payload(error: ServerError, message: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    ErrPacket::new(error, message.as_bytes()).write(&mut payload);
    payload
}

type Chooser = dyn Fn(&FakeLogin) -> Script + Send + Sync;

/// What happens on a new connection.
enum Opening {
    /// The script starts with the first byte: it sends the greeting, or something else.
    Raw(Box<dyn Fn(u32) -> Script + Send + Sync>),
    /// Greeting and login are done for the script.
    Login(FakeGreeting, Box<Chooser>),
}

#[derive(Default)]
struct Shared {
    stopping: AtomicBool,
    connections: AtomicU32,
    /// Second handles of the open connections, to cut them short at the end.
    streams: Mutex<HashMap<u32, TcpStream>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    received: Mutex<Vec<(u32, Packet)>>,
    failures: Mutex<Vec<String>>,
}

/// A server on 127.0.0.1 that follows its script on each connection; dropping it closes all of them.
pub struct FakeServer {
    address: SocketAddrV4,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl FakeServer {
    /// A server whose script for connection number N (from 0) starts with the first byte.
    pub fn raw(script: impl Fn(u32) -> Script + Send + Sync + 'static) -> Result<FakeServer, TestkitError> {
        FakeServer::start(Opening::Raw(Box::new(script)))
    }

    /// A server that greets, and answers every login with an error.
    pub fn refusing(error: ServerError, message: &'static str) -> Result<FakeServer, TestkitError> {
        FakeServer::raw(move |connection| {
            let fake = FakeGreeting::default();
            let mut greeting = Vec::new();
            Greeting {
                version: fake.version.as_bytes(),
                thread_id: connection + 1,
                scramble: *b"a scramble of 20 byt",
                capabilities: fake.capabilities,
                collation: 45,
                status: StatusFlags::AUTOCOMMIT,
                auth_plugin: &fake.auth_plugin,
            }
            .write(&mut greeting);
            Script::new().send(greeting).step(Step::ExpectAny).err(error, message)
        })
    }

    /// A server that greets and accepts every login, and then asks `script` what to do on that connection. So the
    /// connections of a monitor and those of users can be told apart.
    pub fn with_login(
        greeting: FakeGreeting,
        script: impl Fn(&FakeLogin) -> Script + Send + Sync + 'static,
    ) -> Result<FakeServer, TestkitError> {
        FakeServer::start(Opening::Login(greeting, Box::new(script)))
    }

    fn start(opening: Opening) -> Result<FakeServer, TestkitError> {
        let ip = Ipv4Addr::LOCALHOST;
        let address = preflight::free_address(ip)?;
        let doing = || TestkitError::io(format!("listen on {address}"));
        let listener = TcpListener::bind(address).map_err(doing())?;
        // So that the thread looks at the stop flag now and then.
        listener.set_nonblocking(true).map_err(doing())?;
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let (shared, opening) = (Arc::clone(&shared), Arc::new(opening));
            thread::spawn(move || accept_all(&listener, &shared, &opening))
        };
        Ok(FakeServer { address, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddrV4 {
        self.address
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Every packet received so far (logins too), with the number of its connection.
    pub fn received(&self) -> Vec<(u32, Packet)> {
        lock(&self.shared.received).clone()
    }

    /// Where clients left the script: a test that used a script should see that this is empty.
    pub fn failures(&self) -> Vec<String> {
        lock(&self.shared.failures).clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for (_, stream) in lock(&self.shared.streams).drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        let threads: Vec<_> = lock(&self.shared.threads).drain(..).collect();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>, opening: &Arc<Opening>) {
    while !shared.stopping.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(POLL_INTERVAL / 4);
            continue;
        };
        let connection = shared.connections.fetch_add(1, Ordering::Relaxed);
        if let Ok(copy) = stream.try_clone() {
            lock(&shared.streams).insert(connection, copy);
        }
        let (shared_there, opening) = (Arc::clone(shared), Arc::clone(opening));
        let thread = thread::spawn(move || {
            if let Err(error) = serve(stream, connection, &shared_there, &opening) {
                // A connection that we cut ourselves at the end did not leave the script.
                if !shared_there.stopping.load(Ordering::Relaxed) {
                    lock(&shared_there.failures).push(format!("connection {connection}: {error}"));
                }
            }
        });
        lock(&shared.threads).push(thread);
    }
}

fn serve(stream: TcpStream, connection: u32, shared: &Shared, opening: &Opening) -> Result<(), TestkitError> {
    stream.set_nonblocking(false).map_err(TestkitError::io("prepare a socket".to_owned()))?;
    let packets = PacketStream::new(stream)?;
    let mut actor = Actor { packets, connection, shared, seq: 0 };
    // Dropped before the actor: as long as there are two handles, the connection does not close.
    let second_handle = SecondHandle { connection, shared };
    let script = match opening {
        Opening::Raw(script) => script(connection),
        Opening::Login(greeting, script) => script(&actor.log_in(greeting)?),
    };
    for (number, step) in script.steps.into_iter().enumerate() {
        match step {
            Step::Reset => {
                drop(second_handle);
                return actor.packets.reset();
            }
            Step::Close => return Ok(()),
            step => actor.play(step).map_err(|error| {
                TestkitError::Protocol(format!("step {} of the script: {error}", number + 1))
            })?,
        }
    }
    Ok(())
}

struct SecondHandle<'a> {
    connection: u32,
    shared: &'a Shared,
}

impl Drop for SecondHandle<'_> {
    fn drop(&mut self) {
        lock(&self.shared.streams).remove(&self.connection);
    }
}

/// One connection on its way through its script.
struct Actor<'a> {
    packets: PacketStream,
    connection: u32,
    shared: &'a Shared,
    /// The number that the next packet sent gets.
    seq: u8,
}

impl Actor<'_> {
    fn log_in(&mut self, greeting: &FakeGreeting) -> Result<FakeLogin, TestkitError> {
        let mut payload = Vec::new();
        Greeting {
            version: greeting.version.as_bytes(),
            thread_id: self.connection + 1,
            scramble: *b"a scramble of 20 byt",
            capabilities: greeting.capabilities,
            collation: 45,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: &greeting.auth_plugin,
        }
        .write(&mut payload);
        self.play(Step::Send(payload))?;
        let packet = self.receive()?;
        let response = HandshakeResponse::parse(&packet.payload)
            .map_err(|error| TestkitError::Protocol(format!("expected a login, got {packet} ({error})")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let login = FakeLogin {
            connection: self.connection,
            user: text(response.user),
            schema: response.database.map(text),
            capabilities: response.capabilities & greeting.capabilities,
        };
        self.play(Step::Send(ok_payload()))?;
        Ok(login)
    }

    fn play(&mut self, step: Step) -> Result<(), TestkitError> {
        match step {
            Step::ExpectAny => self.receive().map(drop),
            Step::Expect(start) => {
                let packet = self.receive()?;
                if packet.payload.starts_with(&start) {
                    return Ok(());
                }
                let wanted = start.escape_ascii();
                Err(TestkitError::Protocol(format!("expected \"{wanted}\", got {packet}")))
            }
            Step::Send(payload) => {
                self.seq = self.packets.write_packet(self.seq, &payload)?;
                Ok(())
            }
            Step::Bytes(bytes) => self.packets.write_bytes(&bytes),
            Step::Chunks { bytes, size, pause } => bytes.chunks(size.max(1)).try_for_each(|chunk| {
                self.packets.write_bytes(chunk)?;
                thread::sleep(pause);
                Ok(())
            }),
            Step::Wait(time) => {
                thread::sleep(time);
                Ok(())
            }
            Step::AnswerAll(payload) => self.until_closed(Some(&payload)),
            Step::OkUntil(wanted) => self.until_command(&wanted),
            Step::Ignore => self.until_closed(None),
            // Both end the script before they get here.
            Step::Close | Step::Reset => Ok(()),
        }
    }

    /// The client decides when this ends, however long it takes.
    fn until_closed(&mut self, answer: Option<&[u8]>) -> Result<(), TestkitError> {
        while !self.shared.stopping.load(Ordering::Relaxed) {
            self.packets.set_read_timeout(Duration::from_millis(200))?;
            if self.packets.is_closed() {
                return Ok(());
            }
            if !self.packets.has_input() {
                continue;
            }
            self.packets.set_read_timeout(crate::wire::READ_TIMEOUT)?;
            let packet = self.receive()?;
            if let Some(answer) = answer.filter(|_| !packet.first().is_some_and(|c| UNANSWERED.contains(&c)))
            {
                self.seq = self.packets.write_packet(self.seq, answer)?;
            }
        }
        Ok(())
    }

    fn until_command(&mut self, wanted: &[u8]) -> Result<(), TestkitError> {
        loop {
            let packet = self.receive()?;
            if packet.payload.windows(wanted.len()).any(|window| window == wanted) {
                return Ok(());
            }
            if !packet.first().is_some_and(|command| UNANSWERED.contains(&command)) {
                self.seq = self.packets.write_packet(self.seq, &ok_payload())?;
            }
        }
    }

    fn receive(&mut self) -> Result<Packet, TestkitError> {
        let packet = self.packets.read_packet()?;
        self.seq = packet.seq.wrapping_add(1);
        lock(&self.shared.received).push((self.connection, packet.clone()));
        Ok(packet)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use weir_protocol::error;

    use super::*;
    use crate::Account;
    use crate::wire::{Login, RawClient};

    #[test]
    fn a_script_is_followed_and_a_client_that_leaves_it_is_reported() {
        let server = FakeServer::with_login(FakeGreeting::default(), |login| match login.user.as_str() {
            "app" => Script::new().query("SELECT 1").ok().query("x").err(error::PARSE_ERROR, "no"),
            _ => Script::new().ok_to_all(),
        })
        .unwrap();
        let mut client = RawClient::login(server.addr(), &Login::new(Account::APP).schema("test")).unwrap();
        assert_eq!(client.query("SELECT 1").unwrap().ok().unwrap().status, StatusFlags::AUTOCOMMIT);
        assert!(client.query("y").is_err());
        let mut other = RawClient::login(server.addr(), &Login::new(Account::APP2)).unwrap();
        other.query("anything").unwrap().ok().unwrap();
        other.query("at all").unwrap().ok().unwrap();

        assert_eq!(server.connections(), 2);
        let failures = server.failures();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].starts_with("connection 0: protocol: step 3"), "{failures:?}");
        assert_eq!(server.received().iter().filter(|(connection, _)| *connection == 1).count(), 3);
    }

    #[test]
    fn bytes_can_come_in_pieces_and_the_end_as_a_reset() {
        let mut greeting = Vec::new();
        Greeting {
            version: b"1",
            thread_id: 7,
            scramble: [b'x'; 20],
            capabilities: FakeGreeting::default().capabilities,
            collation: 8,
            status: StatusFlags::AUTOCOMMIT,
            auth_plugin: MYSQL_NATIVE_PASSWORD,
        }
        .write(&mut greeting);
        let mut bytes = vec![greeting.len() as u8, 0, 0, 0];
        bytes.extend(greeting);
        let server = FakeServer::raw(move |_| {
            let pause = Duration::from_millis(1);
            let chunks = Step::Chunks { bytes: bytes.clone(), size: 3, pause };
            Script::new().step(chunks).step(Step::ExpectAny).step(Step::Reset)
        })
        .unwrap();
        let mut client = RawClient::connect(server.addr()).unwrap();
        assert_eq!((client.greeting().thread_id, client.greeting().collation), (7, 8));
        let refused = client.authenticate(&Login::new(Account::APP)).unwrap_err().to_string();
        assert!(refused.contains("broke"), "{refused}");
        assert!(server.failures().is_empty());
    }
}
