//! Connection attributes: what the client is called in the log, and what servers are told of Weir.

use std::sync::Arc;

use weir_protocol::capability::Capabilities;
use weir_protocol::command::ChangeUser;
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::handshake::{ConnectAttributes, HandshakeResponse, MYSQL_NATIVE_PASSWORD, SslRequest};
use weir_session::login::{BACKEND_CAPABILITIES, BackendLogin, Credential, Greeted, LoginStep, Plugin};

use super::{Client, OFFERED, clear, greeting, proof, weir_attributes};

#[test]
fn a_clients_name_of_itself_is_made_fit_for_a_log() {
    let long = "\u{e9}".repeat(200);
    for (name, wanted) in [
        (&b"nightly report"[..], Some("nightly report")),
        (b"a\x1b[31m\nb\xff", Some("a[31mb\u{fffd}")),
        (long.as_bytes(), Some(&*"\u{e9}".repeat(64))),
        (b"", None),
    ] {
        let mut attributes = Vec::new();
        ConnectAttributes::put(&mut attributes, b"_os", b"Linux");
        ConnectAttributes::put(&mut attributes, b"program_name", name);
        let response = HandshakeResponse {
            capabilities: OFFERED - Capabilities::SSL,
            max_packet_size: 1 << 24,
            collation: 45,
            user: b"app",
            auth_data: &proof(b"secret", MYSQL_NATIVE_PASSWORD),
            database: None,
            auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
            attributes: ConnectAttributes::parse(&attributes).expect("attributes"),
            zstd_level: None,
        };
        let mut payload = Vec::new();
        response.write(&mut payload);
        let mut client = Client::new(clear(b"secret"), Plugin::Native);
        let LoginStep::Verified(verified) = client.packet(1, &payload) else { panic!("not verified") };
        assert_eq!(verified.program.as_deref(), wanted);
    }
}

#[test]
fn a_server_that_takes_them_is_told_who_logs_in() {
    let offered = OFFERED | Capabilities::CONNECT_ATTRS;
    for uses_tls in [false, true] {
        let credential = Credential::clear_text(b"secret");
        let mut login =
            BackendLogin::new(b"app", credential, Capabilities::empty(), uses_tls, weir_attributes());
        let (mut known, mut out) = (Greeted::default(), Vec::new());
        login.packet(0, &greeting(MYSQL_NATIVE_PASSWORD, offered), &mut known, &mut out);
        assert!(known.takes_attributes);
        if uses_tls {
            let request = SslRequest::parse(&out[HEADER_LEN..]).expect("a request");
            assert!(request.capabilities.contains(Capabilities::CONNECT_ATTRS));
            out.clear();
            login.encrypted(&mut out);
        }
        let response = HandshakeResponse::parse(&out[HEADER_LEN..]).expect("a response");
        assert!(response.capabilities.contains(Capabilities::CONNECT_ATTRS));
        assert_eq!(response.attributes.value(b"program_name"), Some(&b"weir"[..]));
        assert_eq!(response.auth_plugin, Some(MYSQL_NATIVE_PASSWORD));
    }
    for (attributes, told) in [(weir_attributes(), Some(&b"weir"[..])), (Arc::default(), None)] {
        let (credential, none) = (Credential::clear_text(b"secret"), Capabilities::empty());
        let mut command = Vec::new();
        BackendLogin::change_user(b"app", credential, none, false, attributes, &mut command);
        let mut agreed = BACKEND_CAPABILITIES;
        agreed.set(Capabilities::CONNECT_ATTRS, told.is_some());
        let change = ChangeUser::parse(&command[HEADER_LEN..], agreed).expect("a command");
        assert_eq!(change.attributes.value(b"program_name"), told);
        assert_eq!(change.auth_plugin, Some(MYSQL_NATIVE_PASSWORD));
    }
}
