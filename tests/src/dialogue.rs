//! Logins step by step, plain and over TLS, with a record of what the server asked for.

use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ProtocolVersion, SignatureScheme, StreamOwned,
};
use weir_protocol::auth::sha2::{FAST_AUTH_OK, PERFORM_FULL_AUTHENTICATION, REQUEST_PUBLIC_KEY};
use weir_protocol::auth::{native, rsa, sha2};
use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{self, HEADER_LEN};
use weir_protocol::handshake::{
    AuthPacket, CACHING_SHA2_PASSWORD, ConnectAttributes, Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD,
    Scramble, SslRequest,
};
use weir_protocol::ok::{ErrPacket, OK_AS_EOF_HEADER};
use weir_protocol::resultset::TextRow;
use weir_testkit::TestkitError;
use weir_testkit::wire::{Packet, READ_TIMEOUT};

/// Who logs in, and how.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The user.
    pub user: &'a str,
    /// The password, in clear.
    pub password: &'a str,
    /// The plugin that the client starts with.
    pub plugin: Plugin,
    /// Over TLS, with this version only.
    pub tls: Option<TlsVersion>,
}

/// A plugin that the client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// mysql_native_password
    Native,
    /// caching_sha2_password
    Sha2,
    /// One that the server can't know: it has to ask for another.
    Unheard,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    /// 1.2
    V12,
    /// 1.3
    V13,
}

/// What the server said during a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// Use this plugin instead.
    Switch(Plugin),
    /// caching_sha2_password: the proof is enough.
    Fast,
    /// caching_sha2_password: send the password.
    Full,
    /// caching_sha2_password: the key to seal it with.
    Key,
    /// Logged in.
    Ok,
    /// Refused.
    Err {
        /// The error's number.
        code: u16,
        /// For people.
        message: String,
    },
}

impl Plugin {
    fn name(self) -> &'static [u8] {
        match self {
            Plugin::Native => MYSQL_NATIVE_PASSWORD,
            Plugin::Sha2 => CACHING_SHA2_PASSWORD,
            Plugin::Unheard => b"unheard_of_password",
        }
    }

    fn proof(self, password: &str, scramble: &Scramble) -> Vec<u8> {
        let password = password.as_bytes();
        match self {
            Plugin::Native => native::response(password, scramble).map(|proof| proof.to_vec()),
            Plugin::Sha2 => sha2::response(password, scramble).map(|proof| proof.to_vec()),
            Plugin::Unheard => None,
        }
        .unwrap_or_default()
    }
}

/// A client that has tried to log in.
pub struct Dialogue {
    transport: Transport,
    capabilities: Capabilities,
    /// Everything the server said, in order; the last is OK or ERR.
    pub said: Vec<Said>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Dialogue {
    /// Connects and logs in, or tries to.
    pub fn start(server: SocketAddrV4, caller: &Caller<'_>) -> Result<Dialogue, TestkitError> {
        let stream = TcpStream::connect(server).map_err(io("connect"))?;
        stream.set_read_timeout(Some(READ_TIMEOUT)).map_err(io("set a timeout"))?;
        stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
        let mut dialogue = Dialogue {
            transport: Transport::Plain(stream),
            capabilities: Capabilities::empty(),
            said: Vec::new(),
        };
        let first = dialogue.read()?;
        let greeting = Greeting::parse(&first.payload).map_err(|error| odd(&first, &error.to_string()))?;
        let wanted = Capabilities::LONG_PASSWORD
            | Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::TRANSACTIONS
            | Capabilities::DEPRECATE_EOF;
        dialogue.capabilities = wanted & greeting.capabilities;
        let mut seq = 1;
        if let Some(version) = caller.tls {
            if !greeting.capabilities.contains(Capabilities::SSL) {
                return Err(TestkitError::Protocol("the server offers no TLS".to_owned()));
            }
            dialogue.capabilities |= Capabilities::SSL;
            dialogue = dialogue.encrypted(version)?;
            seq = 2;
        }
        dialogue.answer_greeting(caller, &greeting.scramble, seq)?;
        dialogue.talk(caller, greeting.scramble)?;
        Ok(dialogue)
    }

    /// The refusal, if it is one.
    pub fn refusal(&self) -> Option<(u16, &str)> {
        match self.said.last() {
            Some(Said::Err { code, message }) => Some((*code, message)),
            _ => None,
        }
    }

    /// The certificate (DER) that the server showed.
    pub fn certificate(&self) -> Option<Vec<u8>> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => Some(stream.conn.peer_certificates()?.first()?.to_vec()),
        }
    }

    /// The version of TLS in use.
    pub fn tls_version(&self) -> Option<TlsVersion> {
        match &self.transport {
            Transport::Plain(_) => None,
            Transport::Tls(stream) => match stream.conn.protocol_version()? {
                ProtocolVersion::TLSv1_2 => Some(TlsVersion::V12),
                ProtocolVersion::TLSv1_3 => Some(TlsVersion::V13),
                _ => None,
            },
        }
    }

    /// Runs a SELECT of one column and row.
    pub fn value(&mut self, sql: &str) -> Result<String, TestkitError> {
        self.write(0, &[b"\x03", sql.as_bytes()].concat())?;
        let first = self.read()?;
        if first.first() == Some(ErrPacket::HEADER) {
            return Err(odd(&first, sql));
        }
        self.read()?;
        let row = self.read()?;
        let value = match TextRow::new(&row.payload).next() {
            Some(Ok(Some(value))) => String::from_utf8_lossy(value).into_owned(),
            _ => return Err(odd(&row, sql)),
        };
        let end = self.read()?;
        if end.first() != Some(OK_AS_EOF_HEADER) {
            return Err(odd(&end, sql));
        }
        Ok(value)
    }

    fn encrypted(mut self, version: TlsVersion) -> Result<Dialogue, TestkitError> {
        let mut request = Vec::new();
        SslRequest { capabilities: self.capabilities, max_packet_size: 1 << 24, collation: 45 }
            .write(&mut request);
        self.write(1, &request)?;
        let Transport::Plain(stream) = self.transport else { return Ok(self) };
        let name = ServerName::try_from("weir.test").map_err(|error| protocol(error.to_string()))?;
        let connection = ClientConnection::new(Arc::new(tls_config(version)?), name)
            .map_err(|error| protocol(error.to_string()))?;
        let transport = Transport::Tls(Box::new(StreamOwned::new(connection, stream)));
        Ok(Dialogue { transport, ..self })
    }

    fn answer_greeting(
        &mut self,
        caller: &Caller<'_>,
        scramble: &Scramble,
        seq: u8,
    ) -> Result<(), TestkitError> {
        let mut payload = Vec::new();
        HandshakeResponse {
            capabilities: self.capabilities,
            max_packet_size: 1 << 24,
            collation: 45,
            user: caller.user.as_bytes(),
            auth_data: &caller.plugin.proof(caller.password, scramble),
            database: None,
            auth_plugin: Some(caller.plugin.name()),
            attributes: ConnectAttributes::default(),
            zstd_level: None,
        }
        .write(&mut payload);
        self.write(seq, &payload)
    }

    fn talk(&mut self, caller: &Caller<'_>, mut scramble: Scramble) -> Result<(), TestkitError> {
        loop {
            let packet = self.read()?;
            let seq = packet.seq.wrapping_add(1);
            match AuthPacket::parse(&packet.payload, self.capabilities) {
                Ok(AuthPacket::Ok(_)) => {
                    self.said.push(Said::Ok);
                    return Ok(());
                }
                Ok(AuthPacket::Err(err)) => {
                    let message = String::from_utf8_lossy(err.message).into_owned();
                    self.said.push(Said::Err { code: err.code, message });
                    return Ok(());
                }
                Ok(AuthPacket::Switch(switch)) => {
                    let known =
                        [Plugin::Native, Plugin::Sha2].into_iter().find(|p| p.name() == switch.plugin);
                    let plugin = known.ok_or_else(|| odd(&packet, "a switch to a plugin that nobody has"))?;
                    scramble = switch.data.try_into().map_err(|_| odd(&packet, "a scramble of 20 bytes"))?;
                    self.said.push(Said::Switch(plugin));
                    self.write(seq, &plugin.proof(caller.password, &scramble))?;
                }
                Ok(AuthPacket::More(more)) => match more.data {
                    [FAST_AUTH_OK] => self.said.push(Said::Fast),
                    [PERFORM_FULL_AUTHENTICATION] => {
                        self.said.push(Said::Full);
                        let clear = [caller.password.as_bytes(), b"\0"].concat();
                        let answer = if caller.tls.is_some() { &clear[..] } else { &[REQUEST_PUBLIC_KEY] };
                        self.write(seq, answer)?;
                    }
                    pem if pem.starts_with(b"-----BEGIN") => {
                        self.said.push(Said::Key);
                        let sealed = rsa::seal(pem, caller.password.as_bytes(), &scramble)
                            .ok_or_else(|| odd(&packet, "a key that can be used"))?;
                        self.write(seq, &sealed)?;
                    }
                    _ => return Err(odd(&packet, "unknown data of the plugin")),
                },
                other => return Err(odd(&packet, &format!("{other:?}"))),
            }
        }
    }

    fn write(&mut self, seq: u8, payload: &[u8]) -> Result<(), TestkitError> {
        let (mut bytes, mut next) = (Vec::new(), seq);
        frame::write_packet(&mut bytes, &mut next, payload);
        let written = match &mut self.transport {
            Transport::Plain(stream) => stream.write_all(&bytes),
            Transport::Tls(stream) => stream.write_all(&bytes).and_then(|()| stream.flush()),
        };
        written.map_err(io("write a packet"))
    }

    fn read(&mut self) -> Result<Packet, TestkitError> {
        let mut header = [0; HEADER_LEN];
        self.read_exact(&mut header)?;
        let [a, b, c, seq] = header;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.read_exact(&mut payload)?;
        Ok(Packet { seq, payload })
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), TestkitError> {
        let read = match &mut self.transport {
            Transport::Plain(stream) => stream.read_exact(buffer),
            Transport::Tls(stream) => stream.read_exact(buffer),
        };
        read.map_err(io("read a packet"))
    }
}

fn tls_config(version: TlsVersion) -> Result<ClientConfig, TestkitError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let version = match version {
        TlsVersion::V12 => &rustls::version::TLS12,
        TlsVersion::V13 => &rustls::version::TLS13,
    };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[version])
        .map_err(|error| protocol(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(config)
}

/// Takes self-signed certificates, as clients do that encrypt but do not verify. Signatures are verified.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn protocol(message: String) -> TestkitError {
    TestkitError::Protocol(message)
}

fn odd(packet: &Packet, why: &str) -> TestkitError {
    protocol(format!("unexpected: {packet} ({why})"))
}

fn io(doing: &str) -> impl FnOnce(std::io::Error) -> TestkitError {
    let doing = doing.to_owned();
    |source| TestkitError::Io { doing, source }
}
