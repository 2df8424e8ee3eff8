//! Logins at both ends, and against each other.

mod attributes;

use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use weir_protocol::auth::StoredPassword;
use weir_protocol::auth::crypt::Sha2Crypt;
use weir_protocol::auth::ed25519::PublicKey;
use weir_protocol::auth::rsa::{self, RsaKey};
use weir_protocol::capability::Capabilities;
use weir_protocol::error;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::handshake::{
    AuthMoreData, AuthSwitchRequest, CACHING_SHA2_PASSWORD, ConnectAttributes, Greeting, HandshakeResponse,
    MYSQL_NATIVE_PASSWORD, Scramble, SslRequest,
};
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};
use weir_protocol::status::StatusFlags;
use weir_session::accounts::{CertificateNames, ClientCertificate, LoginTerms, TlsRequirement};
use weir_session::login::{
    BACKEND_CAPABILITIES, BackendLogin, BackendStep, Channel, ClientLogin, Credential, Greeted, LoginStep,
    LoginUser, PasswordResult, Plugin, Refusal,
};

const SCRAMBLE: Scramble = *b"0123456789abcdefghij";
const OTHER_SCRAMBLE: Scramble = *b"jihgfedcba9876543210";
const HOST: Option<IpAddr> = Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));
const OFFERED: Capabilities =
    BACKEND_CAPABILITIES.union(Capabilities::SSL).union(Capabilities::CONNECT_WITH_DB);

fn user(stored: StoredPassword) -> LoginUser {
    LoginUser { terms: LoginTerms::with_password(stored), certificate: None, known: None, rsa_key: None }
}

fn clear(password: &[u8]) -> LoginUser {
    user(StoredPassword::ClearText(password.into()))
}

/// A client's side of the login of `app`.
struct Client {
    login: ClientLogin,
    user: LoginUser,
    channel: Channel,
    /// Packets that the client got.
    got: Vec<u8>,
}

impl Client {
    fn new(user: LoginUser, plugin: Plugin) -> Self {
        let mut login = ClientLogin::new(OFFERED, plugin, SCRAMBLE, HOST);
        let mut got = Vec::new();
        login.greet(7, b"5.5.5-10.11.19-MariaDB", &mut got);
        Self { login, user, channel: Channel::Plain, got }
    }

    fn packet(&mut self, sequence: u8, payload: &[u8]) -> LoginStep {
        let user = self.user.clone();
        self.got.clear();
        let find = |name: &[u8]| (name == b"app").then(|| user.clone());
        self.login.packet(sequence, payload, self.channel, &find, &mut self.got)
    }

    fn responds(&mut self, name: &[u8], plugin: &[u8], proof: &[u8]) -> LoginStep {
        let response = HandshakeResponse {
            capabilities: OFFERED - Capabilities::SSL,
            max_packet_size: 1 << 24,
            collation: 45,
            user: name,
            auth_data: proof,
            database: Some(b"shop"),
            auth_plugin: Some(plugin),
            attributes: Default::default(),
            zstd_level: None,
        };
        let mut payload = Vec::new();
        response.write(&mut payload);
        let sequence = self.login.next_sequence();
        self.packet(sequence, &payload)
    }

    fn sends(&mut self, payload: &[u8]) -> LoginStep {
        self.packet(self.login.next_sequence(), payload)
    }

    fn payload(&self) -> &[u8] {
        self.got.get(HEADER_LEN..).unwrap_or_default()
    }
}

fn proof(password: &[u8], plugin: &[u8]) -> Vec<u8> {
    Credential::clear_text(password).response(plugin, &SCRAMBLE).expect("a proof")
}

fn code(step: &LoginStep) -> Option<u16> {
    match step {
        LoginStep::Refused(error, ..) => Some(error.code),
        _ => None,
    }
}

#[test]
fn a_native_proof_logs_in_and_tells_schema_collation_and_capabilities() {
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    let LoginStep::Verified(verified) =
        client.responds(b"app", MYSQL_NATIVE_PASSWORD, &proof(b"secret", MYSQL_NATIVE_PASSWORD))
    else {
        panic!("not verified");
    };
    assert_eq!((&*verified.user, &*verified.schema, verified.collation), (&b"app"[..], &b"shop"[..], 45));
    assert_eq!((verified.sequence, verified.credential), (2, Credential::clear_text(b"secret")));
    assert!(!verified.capabilities.contains(Capabilities::SSL));
}

#[test]
fn a_double_hash_is_enough_and_yields_a_credential_for_servers() {
    let hash = b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7"; // of 'secret'
    let stored = StoredPassword::parse(hash);
    assert!(matches!(stored, StoredPassword::Native(_)));
    let mut client = Client::new(user(stored), Plugin::Native);
    let step = client.responds(b"app", MYSQL_NATIVE_PASSWORD, &proof(b"secret", MYSQL_NATIVE_PASSWORD));
    let LoginStep::Verified(verified) = step else { panic!("{step:?}") };
    let credential = verified.credential;
    let expected = Credential::clear_text(b"secret").response(MYSQL_NATIVE_PASSWORD, &OTHER_SCRAMBLE);
    assert_eq!(credential.response(MYSQL_NATIVE_PASSWORD, &OTHER_SCRAMBLE), expected);
}

#[test]
fn the_fast_path_of_caching_sha2_password_says_so_first() {
    let mut client = Client::new(clear(b"secret"), Plugin::CachingSha2);
    let step = client.responds(b"app", CACHING_SHA2_PASSWORD, &proof(b"secret", CACHING_SHA2_PASSWORD));
    let LoginStep::Verified(verified) = step else { panic!("{step:?}") };
    assert_eq!(client.payload(), [1, 3]);
    assert_eq!(verified.sequence, 3);
}

#[test]
fn another_plugin_leads_to_a_switch() {
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    assert!(matches!(client.responds(b"app", b"mysql_clear_password", b"secret"), LoginStep::Wait));
    let switch = AuthSwitchRequest::parse(client.payload()).expect("a switch");
    assert_eq!((switch.plugin, switch.data), (MYSQL_NATIVE_PASSWORD, &SCRAMBLE[..]));
    let step = client.packet(3, &proof(b"secret", MYSQL_NATIVE_PASSWORD));
    assert!(matches!(step, LoginStep::Verified(verified) if verified.sequence == 4));
}

#[test]
fn wrong_passwords_and_wrong_users_look_the_same() {
    let wrong = proof(b"wrong", MYSQL_NATIVE_PASSWORD);
    let (mut words, mut reasons) = (Vec::new(), Vec::new());
    for name in [&b"app"[..], b"ghost"] {
        let mut client = Client::new(clear(b"secret"), Plugin::Native);
        let LoginStep::Refused(error, message, reason) = client.responds(name, MYSQL_NATIVE_PASSWORD, &wrong)
        else {
            panic!("not refused");
        };
        assert_eq!(error, error::ACCESS_DENIED);
        words.push(message.replace("ghost", "app"));
        reasons.push(reason);
    }
    assert_eq!(words[0], words[1]);
    assert_eq!(reasons, [Refusal::WrongPassword, Refusal::NoSuchUser], "for those who run Weir");
    assert!(words[0].contains("using password: YES"), "{}", words[0]);
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    let step = client.responds(b"app", MYSQL_NATIVE_PASSWORD, b"");
    assert!(
        matches!(&step, LoginStep::Refused(_, text, Refusal::NoPassword) if text.contains("using password: NO")),
        "{step:?}"
    );
}

#[test]
fn an_empty_password_takes_an_empty_proof_only() {
    for (sent, is_fine) in [(&b""[..], true), (b"12345678901234567890", false)] {
        let mut client = Client::new(clear(b""), Plugin::Native);
        let step = client.responds(b"app", MYSQL_NATIVE_PASSWORD, sent);
        assert_eq!(matches!(step, LoginStep::Verified(_)), is_fine, "{step:?}");
    }
}

fn salted(password: &[u8]) -> StoredPassword {
    StoredPassword::Sha2(Sha2Crypt::of(password, [b'x'; 20], 5).expect("a hash"))
}

/// Lets the check of a password take place.
fn check(client: &mut Client, step: LoginStep) -> LoginStep {
    let LoginStep::Check(check) = step else { panic!("no check: {step:?}") };
    assert!(client.login.is_checking());
    let result = check.run();
    client.login.checked(result)
}

fn is_verified(step: &LoginStep, password: &[u8]) -> bool {
    matches!(step, LoginStep::Verified(verified)
        if verified.credential == Credential::clear_text(password))
}

#[test]
fn full_authentication_in_clear_where_nobody_listens() {
    let sent = proof(b"secret", CACHING_SHA2_PASSWORD);
    let mut client = Client::new(user(salted(b"secret")), Plugin::CachingSha2);
    let step = client.responds(b"app", CACHING_SHA2_PASSWORD, &sent);
    assert_eq!(code(&step), Some(error::ACCESS_DENIED.code), "neither TLS nor a key: {step:?}");

    for channel in [Channel::Tls, Channel::Local] {
        for (password, is_right) in [(&b"secret\0"[..], true), (b"wrong\0", false)] {
            let mut client = Client { channel, ..Client::new(user(salted(b"secret")), Plugin::CachingSha2) };
            assert!(matches!(client.responds(b"app", CACHING_SHA2_PASSWORD, &sent), LoginStep::Wait));
            assert_eq!(client.payload(), [1, 4]);
            let step = client.packet(3, password);
            let step = check(&mut client, step);
            assert_eq!(is_verified(&step, b"secret"), is_right, "{step:?}");
            assert_eq!(code(&step), (!is_right).then_some(error::ACCESS_DENIED.code));
        }
    }
    // A check that takes no time is not sent away.
    let native = StoredPassword::parse(b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
    let mut client = Client { channel: Channel::Local, ..Client::new(user(native), Plugin::CachingSha2) };
    assert!(matches!(client.responds(b"app", CACHING_SHA2_PASSWORD, &sent), LoginStep::Wait));
    assert!(is_verified(&client.packet(3, b"secret\0"), b"secret"));
}

#[test]
fn full_authentication_under_rsa_where_others_may_listen() {
    let key = Arc::new(RsaKey::generate().expect("a key").0);
    let start = || {
        let user = LoginUser { rsa_key: Some(key.clone()), ..user(salted(b"secret")) };
        let mut client = Client::new(user, Plugin::CachingSha2);
        let sent = proof(b"secret", CACHING_SHA2_PASSWORD);
        assert!(matches!(client.responds(b"app", CACHING_SHA2_PASSWORD, &sent), LoginStep::Wait));
        assert_eq!(client.payload(), [1, 4]);
        client
    };
    let sealed = |password: &[u8]| {
        rsa::seal(key.public_pem().as_bytes(), password, &SCRAMBLE).expect("a sealed password")
    };
    // With the question for the key, and without: a client may have it in a file.
    let mut client = start();
    assert!(matches!(client.packet(3, &[2]), LoginStep::Wait));
    assert_eq!(client.payload(), [b"\x01", key.public_pem().as_bytes()].concat());
    let step = client.packet(5, &sealed(b"secret"));
    assert!(is_verified(&check(&mut client, step), b"secret"));
    let mut client = start();
    let step = client.packet(3, &sealed(b"secret"));
    assert!(is_verified(&check(&mut client, step), b"secret"));

    for wrong in [
        sealed(b"wrong"),
        vec![0; 256],
        rsa::seal(key.public_pem().as_bytes(), b"secret", &OTHER_SCRAMBLE).expect("sealed"),
    ] {
        let mut client = start();
        let step = client.packet(3, &wrong);
        assert_eq!(code(&check(&mut client, step)), Some(error::ACCESS_DENIED.code));
    }
    // What can't be a sealed password is not looked at, nor is a second question answered.
    for wrong in [&b"secret\0"[..], b"", &[0; 255]] {
        assert_eq!(code(&start().packet(3, wrong)), Some(error::ACCESS_DENIED.code));
    }
    let mut client = start();
    assert!(matches!(client.packet(3, &[2]), LoginStep::Wait));
    assert_eq!(code(&client.packet(5, &[2])), Some(error::ACCESS_DENIED.code));
    let mut client = start();
    assert!(matches!(client.packet(3, &sealed(b"secret")), LoginStep::Check(_)));
    assert_eq!(code(&client.login.checked(PasswordResult::Busy)), Some(error::CON_COUNT_ERROR.code));
}

#[test]
fn which_plugin_serves_a_hash() {
    let key = Arc::new(RsaKey::generate().expect("a key").0);
    let native = || StoredPassword::parse(b"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
    let asked = |stored: StoredPassword, channel: Channel, plugin: &[u8]| {
        let user = LoginUser { rsa_key: Some(key.clone()), ..user(stored) };
        let mut client = Client { channel, ..Client::new(user, Plugin::Native) };
        let step = client.responds(b"app", plugin, &proof(b"secret", plugin));
        match AuthSwitchRequest::parse(client.payload()) {
            Ok(switch) if matches!(step, LoginStep::Wait) => switch.plugin.to_vec(),
            _ if client.payload() == [1, 4] => b"the password".to_vec(),
            _ => format!("{step:?}").into_bytes().into_iter().take(8).collect(),
        }
    };
    let [native_name, sha2_name] = [MYSQL_NATIVE_PASSWORD, CACHING_SHA2_PASSWORD];
    for (stored, channel, plugin, wanted) in [
        (native(), Channel::Plain, native_name, &b"Verified"[..]),
        (native(), Channel::Plain, sha2_name, native_name),
        (native(), Channel::Tls, sha2_name, b"the password"),
        (salted(b"secret"), Channel::Plain, native_name, sha2_name),
        (salted(b"secret"), Channel::Plain, sha2_name, b"the password"),
        (salted(b"secret"), Channel::Local, sha2_name, b"the password"),
    ] {
        let label = format!("{stored:?} {channel:?} {}", String::from_utf8_lossy(plugin));
        assert_eq!(asked(stored, channel, plugin), wanted, "{label}");
    }
}

#[test]
fn what_an_earlier_login_has_shown_makes_the_fast_path() {
    let crypt = Sha2Crypt::of(b"secret", [b'x'; 20], 5).expect("a hash");
    let known = Some(Credential::clear_text(b"secret"));
    let user = LoginUser { known, ..user(StoredPassword::Sha2(crypt)) };
    let mut client = Client::new(user, Plugin::CachingSha2);
    let step = client.responds(b"app", CACHING_SHA2_PASSWORD, &proof(b"secret", CACHING_SHA2_PASSWORD));
    assert!(matches!(step, LoginStep::Verified(_)), "{step:?}");
}

#[test]
fn an_additional_password_logs_in_and_servers_are_shown_the_first() {
    for plugin in [Plugin::Native, Plugin::CachingSha2] {
        let additional = Some(Arc::new(StoredPassword::ClearText(b"old"[..].into())));
        for (password, is_right) in [(&b"secret"[..], true), (b"old", true), (b"older", false), (b"", false)]
        {
            let mut user = clear(b"secret");
            user.terms.additional.clone_from(&additional);
            let name = if plugin == Plugin::Native { MYSQL_NATIVE_PASSWORD } else { CACHING_SHA2_PASSWORD };
            let proof = if password.is_empty() { Vec::new() } else { proof(password, name) };
            let step = Client::new(user, plugin).responds(b"app", name, &proof);
            assert_eq!(is_verified(&step, b"secret"), is_right, "{}: {step:?}", password.escape_ascii());
        }
    }
}

#[test]
fn an_account_that_needs_a_certificate_or_an_unknown_plugin_is_not_let_in() {
    let sent = proof(b"secret", MYSQL_NATIVE_PASSWORD);
    let mut with_certificate = clear(b"secret");
    with_certificate.terms.tls = TlsRequirement::Certificate(Arc::default());
    let shown = ClientCertificate { subject: "/CN=app".into(), issuer: "/CN=ca".into() };
    let names = CertificateNames { subject: Some("/CN=other".into()), issuer: None };
    let mut with_another = clear(b"secret");
    with_another.terms.tls = TlsRequirement::Certificate(Arc::new(names));
    with_another.certificate = Some(Arc::new(shown.clone()));
    let mut with_cipher = clear(b"secret");
    with_cipher.terms.tls = TlsRequirement::Cipher;
    let cases = [
        (with_certificate.clone(), Refusal::CertificateRequired),
        (with_another, Refusal::OtherCertificate),
        (with_cipher, Refusal::CipherRequired),
        (user(StoredPassword::Unknown), Refusal::AuthenticationUnknown),
    ];
    for (user, expected) in cases {
        let mut client = Client { channel: Channel::Tls, ..Client::new(user, Plugin::Native) };
        let mut step = client.responds(b"app", MYSQL_NATIVE_PASSWORD, &sent);
        if matches!(step, LoginStep::Wait) {
            step = client.sends(&proof(b"secret", CACHING_SHA2_PASSWORD));
        }
        assert!(
            matches!(&step, LoginStep::Refused(error, _, reason)
            if error.code == error::ACCESS_DENIED.code && *reason == expected),
            "{step:?}"
        );
    }
    with_certificate.certificate = Some(Arc::new(shown));
    let mut client = Client { channel: Channel::Tls, ..Client::new(with_certificate, Plugin::Native) };
    let step = client.responds(b"app", MYSQL_NATIVE_PASSWORD, &sent);
    assert!(is_verified(&step, b"secret"), "{step:?}");
}

#[test]
fn a_public_key_of_ed25519_is_checked_against_the_password_itself_and_then_from_a_cache() {
    let stored = StoredPassword::Ed25519(PublicKey::of(b"secret").expect("a key"));
    let mut client =
        Client { channel: Channel::Tls, ..Client::new(user(stored.clone()), Plugin::CachingSha2) };
    let step = client.responds(b"app", CACHING_SHA2_PASSWORD, &proof(b"secret", CACHING_SHA2_PASSWORD));
    assert!(matches!(step, LoginStep::Wait), "{step:?}");
    assert!(is_verified(&client.sends(b"secret\0"), b"secret"));
    let known = Some(Credential::clear_text(b"secret"));
    let mut client = Client::new(LoginUser { known, ..user(stored) }, Plugin::CachingSha2);
    let step = client.responds(b"app", CACHING_SHA2_PASSWORD, &proof(b"secret", CACHING_SHA2_PASSWORD));
    assert!(is_verified(&step, b"secret"), "{step:?}");
}

/// libmysqlclient sends a NUL, and reads nothing but OK or an error after it.
#[test]
fn no_password_of_caching_sha2_is_a_nul_and_is_answered_at_once() {
    for (password, is_in) in [(&b"secret"[..], false), (b"", true)] {
        for stored in [StoredPassword::ClearText(password.into()), salted(b"secret")] {
            let is_in = is_in && matches!(stored, StoredPassword::ClearText(_));
            let mut client =
                Client { channel: Channel::Tls, ..Client::new(user(stored), Plugin::CachingSha2) };
            let step = client.responds(b"app", CACHING_SHA2_PASSWORD, b"\0");
            assert_eq!(is_verified(&step, b""), is_in, "{step:?}");
            assert_eq!(code(&step), (!is_in).then_some(error::ACCESS_DENIED.code));
            assert!(client.got.is_empty(), "nothing is asked");
        }
    }
}

#[test]
fn a_user_who_needs_tls_gets_nowhere_without() {
    let mut user = clear(b"secret");
    user.terms.tls = TlsRequirement::Tls;
    let sent = proof(b"secret", MYSQL_NATIVE_PASSWORD);
    let mut client = Client::new(user.clone(), Plugin::Native);
    assert_eq!(code(&client.responds(b"app", MYSQL_NATIVE_PASSWORD, &sent)), Some(error::ACCESS_DENIED.code));
    let mut client = Client { channel: Channel::Tls, ..Client::new(user, Plugin::Native) };
    assert!(matches!(client.responds(b"app", MYSQL_NATIVE_PASSWORD, &sent), LoginStep::Verified(_)));
}

#[test]
fn tls_begins_once() {
    let request = SslRequest { capabilities: OFFERED, max_packet_size: 1 << 24, collation: 45 };
    let mut payload = Vec::new();
    request.write(&mut payload);
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    assert!(matches!(client.packet(1, &payload), LoginStep::StartTls));
    client.channel = Channel::Tls;
    assert_eq!(code(&client.packet(2, &payload)), Some(error::HANDSHAKE_ERROR.code));
}

#[test]
fn packets_out_of_order_and_ancient_clients_are_refused() {
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    assert_eq!(code(&client.packet(5, b"")), Some(error::NET_PACKETS_OUT_OF_ORDER.code));
    let mut client = Client::new(clear(b"secret"), Plugin::Native);
    assert_eq!(code(&client.packet(1, b"\x05\x00")), Some(error::HANDSHAKE_ERROR.code));
}

/// A server's packets to Weir.
fn packet(fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut payload = Vec::new();
    fill(&mut payload);
    payload
}

fn greeting(plugin: &[u8], capabilities: Capabilities) -> Vec<u8> {
    let greeting = Greeting {
        version: b"5.5.5-10.11.19-MariaDB",
        thread_id: 42,
        scramble: SCRAMBLE,
        capabilities,
        collation: 8,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: plugin,
    };
    packet(|out| greeting.write(out))
}

fn ok() -> Vec<u8> {
    packet(|out| OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT).write(BACKEND_CAPABILITIES, out))
}

/// What Weir says of itself.
fn weir_attributes() -> Arc<[u8]> {
    let mut encoded = Vec::new();
    ConnectAttributes::put(&mut encoded, b"program_name", b"weir");
    encoded.into()
}

/// Feeds a server's packets; the last step, what Weir sent, and what it knows.
fn at_server(packets: &[Vec<u8>]) -> (BackendStep, Vec<u8>, Greeted) {
    let credential = Credential::clear_text(b"secret");
    let mut login = BackendLogin::new(b"app", credential, Capabilities::FOUND_ROWS, false, weir_attributes());
    let (mut known, mut sent, mut step) = (Greeted::default(), Vec::new(), BackendStep::Wait);
    for (at, payload) in packets.iter().enumerate() {
        step = login.packet(2 * at as u8, payload, &mut known, &mut sent);
    }
    (step, sent, known)
}

fn refusal(step: &BackendStep) -> Option<u16> {
    match step {
        BackendStep::Refused { code, .. } => *code,
        _ => None,
    }
}

#[test]
fn a_server_is_logged_in_at_with_its_own_plugin() {
    for plugin in [MYSQL_NATIVE_PASSWORD, CACHING_SHA2_PASSWORD] {
        let (step, sent, known) = at_server(&[greeting(plugin, OFFERED), ok()]);
        assert_eq!(step, BackendStep::Ready { thread_id: 42 });
        let reads_as = weir_sql::Server::mariadb(10, 11);
        assert_eq!(
            known,
            Greeted {
                thread_id: 42,
                is_mariadb: true,
                reads_as,
                takes_attributes: false,
                takes_query_attributes: false
            }
        );
        let response = HandshakeResponse::parse(&sent[HEADER_LEN..]).expect("a response");
        assert_eq!((response.user, response.auth_plugin), (&b"app"[..], Some(plugin)));
        assert_eq!(response.auth_data, proof(b"secret", plugin));
        assert!(response.capabilities.contains(BACKEND_CAPABILITIES | Capabilities::FOUND_ROWS));
        assert_eq!(Header::parse(&sent).map(|header| header.seq), Some(1));
    }
}

#[test]
fn a_server_may_switch_to_another_plugin() {
    let switch = AuthSwitchRequest { plugin: CACHING_SHA2_PASSWORD, data: &OTHER_SCRAMBLE };
    let switch = packet(|out| switch.write(out));
    let fast = packet(|out| AuthMoreData { data: &[3] }.write(out));
    let (step, sent, _) = at_server(&[greeting(MYSQL_NATIVE_PASSWORD, OFFERED), switch, fast, ok()]);
    assert_eq!(step, BackendStep::Ready { thread_id: 42 });
    let expected = Credential::clear_text(b"secret").response(CACHING_SHA2_PASSWORD, &OTHER_SCRAMBLE);
    assert!(sent.ends_with(&expected.expect("a proof")));
}

#[test]
fn refusals_of_servers_keep_their_codes() {
    let denied = packet(|out| ErrPacket::new(error::ACCESS_DENIED, b"Access denied").write(out));
    let (step, ..) = at_server(&[greeting(MYSQL_NATIVE_PASSWORD, OFFERED), denied.clone()]);
    assert_eq!(refusal(&step), Some(error::ACCESS_DENIED.code));
    let full = packet(|out| ErrPacket::new(error::CON_COUNT_ERROR, b"Too many connections").write(out));
    let (step, ..) = at_server(&[full]);
    assert_eq!(refusal(&step), Some(error::CON_COUNT_ERROR.code));
}

#[test]
fn servers_that_can_t_do_what_weir_needs_are_refused() {
    for missing in [Capabilities::SESSION_TRACK, Capabilities::DEPRECATE_EOF, Capabilities::PROTOCOL_41] {
        let (step, ..) = at_server(&[greeting(MYSQL_NATIVE_PASSWORD, OFFERED - missing)]);
        assert!(matches!(step, BackendStep::Refused { .. }), "without {missing:?}");
    }
}

#[test]
fn a_server_that_wants_the_password_gets_it_under_its_key() {
    let key = RsaKey::generate().expect("a key").0;
    let more = |data: &[u8]| packet(|out| AuthMoreData { data }.write(out));
    let packets =
        [greeting(CACHING_SHA2_PASSWORD, OFFERED), more(&[4]), more(key.public_pem().as_bytes()), ok()];
    let (step, sent, _) = at_server(&packets);
    assert_eq!(step, BackendStep::Ready { thread_id: 42 });
    let sealed = &sent[sent.len() - 256..];
    assert_eq!(key.open(sealed, &SCRAMBLE).as_deref(), Some(&b"secret\0"[..]));
    assert!(!sent.windows(6).any(|window| window == b"secret"));
    // No key, or one that was not asked for.
    let (step, ..) = at_server(&[greeting(CACHING_SHA2_PASSWORD, OFFERED), more(&[4]), more(b"no key")]);
    assert!(matches!(step, BackendStep::Refused { .. }));
    let (step, ..) =
        at_server(&[greeting(CACHING_SHA2_PASSWORD, OFFERED), more(key.public_pem().as_bytes())]);
    assert!(matches!(step, BackendStep::Refused { .. }));
    // A hash is not enough for it.
    let hash = Credential::Sha256(weir_protocol::auth::sha2::HashStage1::of(b"secret"));
    let mut login = BackendLogin::new(b"app", hash, Capabilities::empty(), false, weir_attributes());
    let (mut known, mut out) = (Greeted::default(), Vec::new());
    login.packet(0, &greeting(CACHING_SHA2_PASSWORD, OFFERED), &mut known, &mut out);
    let step = login.packet(2, &more(&[4]), &mut known, &mut out);
    assert_eq!(refusal(&step), Some(error::ACCESS_DENIED.code));
}

#[test]
fn at_a_server_with_tls_nothing_goes_before_it() {
    let login = || {
        BackendLogin::new(
            b"app",
            Credential::clear_text(b"secret"),
            Capabilities::empty(),
            true,
            weir_attributes(),
        )
    };
    let (mut known, mut out) = (Greeted::default(), Vec::new());
    let mut at = login();
    let step = at.packet(0, &greeting(CACHING_SHA2_PASSWORD, OFFERED), &mut known, &mut out);
    assert_eq!(step, BackendStep::StartTls);
    let request = SslRequest::parse(&out[HEADER_LEN..]).expect("a request");
    assert!(request.capabilities.contains(BACKEND_CAPABILITIES | Capabilities::SSL));
    out.clear();
    at.encrypted(&mut out);
    assert_eq!(Header::parse(&out).map(|header| header.seq), Some(2));
    let response = HandshakeResponse::parse(&out[HEADER_LEN..]).expect("a response");
    assert_eq!(
        (response.user, response.capabilities),
        (&b"app"[..], request.capabilities | Capabilities::PLUGIN_AUTH)
    );
    assert!(response.attributes.is_empty());
    // In TLS the password goes as it is.
    out.clear();
    let full = packet(|out| AuthMoreData { data: &[4] }.write(out));
    assert_eq!(at.packet(3, &full, &mut known, &mut out), BackendStep::Wait);
    assert_eq!(&out[HEADER_LEN..], b"secret\0");
    // A server that can't, and one that goes on without.
    let mut at = login();
    let step =
        at.packet(0, &greeting(MYSQL_NATIVE_PASSWORD, OFFERED - Capabilities::SSL), &mut known, &mut out);
    assert!(matches!(step, BackendStep::Refused { code: None, .. }));
    let mut at = login();
    at.packet(0, &greeting(MYSQL_NATIVE_PASSWORD, OFFERED), &mut known, &mut out);
    assert!(matches!(at.packet(2, &ok(), &mut known, &mut out), BackendStep::Refused { .. }));
}

/// Whole logins: [`BackendLogin`] as the client of [`ClientLogin`].
#[test]
fn both_ends_understand_each_other() {
    for stored in [&b"secret"[..], b""] {
        for plugin in [Plugin::Native, Plugin::CachingSha2] {
            let mut here = Client::new(clear(stored), plugin);
            let mut there = BackendLogin::new(
                b"app",
                Credential::clear_text(stored),
                Capabilities::empty(),
                false,
                weir_attributes(),
            );
            let mut known = Greeted::default();
            let mut from_server = here.got.clone();
            let verified = loop {
                let header = Header::parse(&from_server).expect("a packet");
                let mut out = Vec::new();
                let step = there.packet(header.seq, &from_server[HEADER_LEN..], &mut known, &mut out);
                assert_eq!(step, BackendStep::Wait);
                let header = Header::parse(&out).expect("an answer");
                match here.packet(header.seq, &out[HEADER_LEN..]) {
                    LoginStep::Wait => from_server = here.got.clone(),
                    LoginStep::Verified(verified) => break verified,
                    other => panic!("{other:?}"),
                }
            };
            assert_eq!(verified.credential, Credential::clear_text(stored));
        }
    }
}

proptest! {
    #[test]
    fn clients_may_say_anything(packets in proptest::collection::vec((any::<u8>(), any::<Vec<u8>>()), 0..5), tls: bool) {
        let mut client = Client::new(clear(b"secret"), Plugin::CachingSha2);
        client.channel = if tls { Channel::Tls } else { Channel::Plain };
        for (at, (_, payload)) in packets.iter().enumerate() {
            let step = client.packet(client.login.next_sequence(), payload);
            prop_assert!(!matches!(step, LoginStep::Verified(_)), "packet {at}");
        }
    }

    #[test]
    fn servers_may_say_anything(packets in proptest::collection::vec(any::<Vec<u8>>(), 0..5), is_greeted: bool) {
        let mut all = packets;
        if is_greeted {
            all.insert(0, greeting(MYSQL_NATIVE_PASSWORD, OFFERED));
        }
        let _ = at_server(&all);
    }
}

#[test]
fn a_change_of_user_begins_with_a_switch() {
    let mut command = Vec::new();
    let mut login = BackendLogin::change_user(
        b"app",
        Credential::clear_text(b"secret"),
        Capabilities::empty(),
        false,
        weir_attributes(),
        &mut command,
    );
    let mut server = ClientLogin::new(OFFERED, Plugin::Native, SCRAMBLE, HOST);
    let mut out = Vec::new();
    server
        .change_user(&command[HEADER_LEN..], BACKEND_CAPABILITIES, &mut out)
        .expect("a command that parses");
    let switch = AuthSwitchRequest::parse(&out[HEADER_LEN..]).expect("a switch");
    assert_eq!(switch.plugin, MYSQL_NATIVE_PASSWORD);
    let (mut known, mut answer) = (Greeted::default(), Vec::new());
    let step = login.packet(1, &out[HEADER_LEN..], &mut known, &mut answer);
    assert_eq!(step, BackendStep::Wait);
    let find = |_: &[u8]| Some(clear(b"secret"));
    let header = Header::parse(&answer).expect("an answer");
    let step = server.packet(header.seq, &answer[HEADER_LEN..], Channel::Plain, &find, &mut Vec::new());
    assert!(matches!(step, LoginStep::Verified(_)), "{step:?}");
    assert!(server.change_user(b"\x11app", BACKEND_CAPABILITIES, &mut Vec::new()).is_err());
}
