//! Tests against a server of canned bytes, which can do what no real server does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_protocol::auth::rsa;
use weir_protocol::frame;
use weir_protocol::handshake::{AuthSwitchRequest, CACHING_SHA2_PASSWORD, Greeting, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket};
use weir_protocol::resultset::{ColumnDefinition, TextResult};

use crate::*;

/// What the server does next.
enum Act {
    /// Sends packets, the first with this sequence number.
    Say(u8, Vec<Vec<u8>>),
    /// Sends bytes as they are.
    Raw(Vec<u8>),
    /// Waits for one packet.
    Hear,
    /// Says nothing until the client goes.
    Silence,
}

/// A server for one connection. The thread ends with the acts, or when the client goes.
fn server(acts: Vec<Act>) -> (Options, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        for act in acts {
            match act {
                Act::Say(mut seq, payloads) => {
                    let mut out = Vec::new();
                    payloads.iter().for_each(|payload| frame::write_packet(&mut out, &mut seq, payload));
                    let _ = socket.write_all(&out);
                }
                Act::Raw(bytes) => {
                    let _ = socket.write_all(&bytes);
                }
                Act::Hear => {
                    let mut header = [0; 4];
                    if socket.read_exact(&mut header).is_err() {
                        return;
                    }
                    let mut payload = vec![0; frame::Header::parse(&header).unwrap().len];
                    let _ = socket.read_exact(&mut payload);
                }
                Act::Silence => {
                    let _ = socket.read_to_end(&mut Vec::new());
                }
            }
        }
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    });
    let timeouts = (Duration::from_millis(2000), Duration::from_millis(300));
    (Options::new("127.0.0.1", port, "app", "app").timeouts(timeouts.0, timeouts.1), thread)
}

fn payload(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn greeting(capabilities: Capabilities) -> Vec<u8> {
    let greeting = Greeting {
        version: b"10.11.19-MariaDB",
        thread_id: 42,
        scramble: *b"abcdefghijklmnopqrst",
        capabilities: capabilities
            | Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH,
        collation: 45,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: MYSQL_NATIVE_PASSWORD,
    };
    payload(|out| greeting.write(out))
}

fn ok() -> Vec<u8> {
    payload(|out| OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT).write(Capabilities::PROTOCOL_41, out))
}

fn err(code: u16, message: &[u8]) -> Vec<u8> {
    payload(|out| ErrPacket { code, sqlstate: Some(*b"42000"), message }.write(out))
}

/// A server that lets the client in and hears its first command.
fn logged_in(capabilities: Capabilities, mut then: Vec<Act>) -> (Options, JoinHandle<()>) {
    let mut acts =
        vec![Act::Say(0, vec![greeting(capabilities)]), Act::Hear, Act::Say(2, vec![ok()]), Act::Hear];
    acts.append(&mut then);
    server(acts)
}

fn rows_reply(capabilities: Capabilities) -> Vec<u8> {
    let (mut out, mut seq) = (Vec::new(), 1);
    let columns = [ColumnDefinition::text(b"name", 9), ColumnDefinition::text(b"value", 9)];
    let mut result = TextResult::begin(&mut out, &mut seq, capabilities, StatusFlags::AUTOCOMMIT, &columns);
    result.row([Some(&b"a"[..]), None]);
    result.row([Some(&b"b"[..]), Some(&b"2"[..])]);
    result.finish(StatusFlags::AUTOCOMMIT, 3);
    out
}

fn failure(options: &Options, sql: &str) -> Error {
    let mut connection = Connection::connect(options).unwrap();
    let error = connection.query(sql).unwrap_err();
    assert_eq!(connection.is_broken(), error.is_fatal());
    error
}

#[test]
fn rows_with_and_without_eof_packets() {
    for capabilities in [Capabilities::empty(), Capabilities::DEPRECATE_EOF] {
        let (options, thread) = logged_in(capabilities, vec![Act::Raw(rows_reply(capabilities))]);
        let mut connection = Connection::connect(&options).unwrap();
        assert_eq!((connection.thread_id(), connection.server_version()), (42, "10.11.19-MariaDB"));
        let result = connection.query("SHOW VARIABLES").unwrap();
        assert_eq!(result.columns, ["name", "value"]);
        assert_eq!(result.rows, [[Some(b"a".to_vec()), None], [Some(b"b".to_vec()), Some(b"2".to_vec())]]);
        assert_eq!(result.ok.warnings, 3);
        assert_eq!((result.first(), result.pairs().collect::<Vec<_>>()), (Some("a"), vec![("b", "2")]));
        drop(connection);
        thread.join().unwrap();
    }
}

#[test]
fn the_servers_error_leaves_the_connection_usable() {
    let (options, _thread) = logged_in(
        Capabilities::empty(),
        vec![Act::Say(1, vec![err(1146, b"no table")]), Act::Hear, Act::Say(1, vec![ok()])],
    );
    let mut connection = Connection::connect(&options).unwrap();
    let error = connection.query("SELECT * FROM t").unwrap_err();
    assert_eq!(error.to_string(), "error 1146 (42000): no table");
    assert!(!connection.is_broken());
    connection.ping().unwrap();
}

#[test]
fn refusals_at_login() {
    let refusal = payload(|out| ErrPacket { code: 1040, sqlstate: None, message: b"Too many" }.write(out));
    let (options, _thread) = server(vec![Act::Say(0, vec![refusal])]);
    assert_eq!(Connection::connect(&options).unwrap_err().code(), Some(1040));

    let denied = vec![
        Act::Say(0, vec![greeting(Capabilities::empty())]),
        Act::Hear,
        Act::Say(2, vec![err(1045, b"no")]),
    ];
    let (options, _thread) = server(denied);
    assert_eq!(Connection::connect(&options).unwrap_err().code(), Some(1045));

    for (plugin, then, words) in [
        (
            CACHING_SHA2_PASSWORD,
            vec![1, 9],
            "the server broke the protocol: an unexpected authentication step",
        ),
        (
            &b"mysql_clear_password"[..],
            vec![],
            "can't log in: the account uses mysql_clear_password, which sends",
        ),
        (&b"dialog"[..], vec![], "can't log in: the account uses dialog"),
    ] {
        let switch = payload(|out| AuthSwitchRequest { plugin, data: &[9; 20] }.write(out));
        let acts = vec![
            Act::Say(0, vec![greeting(Capabilities::empty())]),
            Act::Hear,
            Act::Say(2, vec![switch]),
            Act::Hear,
            Act::Say(4, vec![then]),
        ];
        let (options, _thread) = server(acts);
        let error = Connection::connect(&options).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn full_authentication_of_caching_sha2() {
    let key = rsa::RsaKey::generate().unwrap().0;
    for (pem, words) in [(key.public_pem(), ""), ("no key", "the server broke the protocol: an RSA key")] {
        let switch =
            payload(|out| AuthSwitchRequest { plugin: CACHING_SHA2_PASSWORD, data: &[9; 20] }.write(out));
        let acts = vec![
            Act::Say(0, vec![greeting(Capabilities::empty())]),
            Act::Hear,
            Act::Say(2, vec![switch]),
            Act::Hear,
            Act::Say(4, vec![vec![1, 4]]),
            Act::Hear,
            Act::Say(6, vec![[b"\x01", pem.as_bytes()].concat()]),
            Act::Hear,
            Act::Say(8, vec![ok()]),
        ];
        let (options, _thread) = server(acts);
        let said = Connection::connect(&options).map_or_else(|error| error.to_string(), |_| String::new());
        assert!(said.starts_with(words) && said.is_empty() == words.is_empty(), "{said}");
    }
}

#[test]
fn the_password_stays_where_only_proofs_may_leave() {
    let switch =
        payload(|out| AuthSwitchRequest { plugin: CACHING_SHA2_PASSWORD, data: &[9; 20] }.write(out));
    let acts = vec![
        Act::Say(0, vec![greeting(Capabilities::empty())]),
        Act::Hear,
        Act::Say(2, vec![switch]),
        Act::Hear,
        Act::Say(4, vec![vec![1, 4]]),
        Act::Hear,
    ];
    let (options, _thread) = server(acts);
    let error = Connection::connect(&options.proofs_only(true)).unwrap_err();
    assert!(matches!(error, Error::PasswordWithheld), "{error}");
}

#[test]
fn the_fast_path_of_caching_sha2() {
    let switch =
        payload(|out| AuthSwitchRequest { plugin: CACHING_SHA2_PASSWORD, data: &[9; 20] }.write(out));
    let acts = vec![
        Act::Say(0, vec![greeting(Capabilities::empty())]),
        Act::Hear,
        Act::Say(2, vec![switch]),
        Act::Hear,
        Act::Say(4, vec![vec![1, 3], ok()]),
    ];
    let (options, _thread) = server(acts);
    Connection::connect(&options).unwrap();
}

#[test]
fn silence_ends_at_the_deadline() {
    let (options, _thread) = logged_in(Capabilities::empty(), vec![Act::Silence]);
    let mut connection = Connection::connect(&options).unwrap();
    let start = Instant::now();
    assert!(connection.query("SELECT 1").unwrap_err().is_timeout());
    assert!(start.elapsed() < Duration::from_millis(1500));
    assert!(matches!(connection.query("SELECT 1"), Err(Error::Closed)));

    let (mut options, _thread) = server(vec![Act::Silence]);
    options.connect_timeout = Duration::from_millis(100);
    assert!(Connection::connect(&options).unwrap_err().is_timeout());
}

/// A server that sends a byte now and then makes no progress, and the deadline is for the whole reply.
#[test]
fn trickling_does_not_move_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut bytes = Vec::new();
        frame::write_packet(&mut bytes, &mut 0, &greeting(Capabilities::empty()));
        for byte in bytes {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut options = Options::new("127.0.0.1", port, "app", "app");
    options.connect_timeout = Duration::from_millis(200);
    let start = Instant::now();
    assert!(Connection::connect(&options).unwrap_err().is_timeout());
    assert!(start.elapsed() < Duration::from_millis(1000));
    thread.join().unwrap();
}

#[test]
fn a_closed_port_and_a_closed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = Connection::connect(&Options::new("127.0.0.1", port, "app", "app")).unwrap_err();
    assert!(matches!(&error, Error::Io { action: "connecting", .. }), "{error}");

    let (options, _thread) = logged_in(Capabilities::empty(), vec![]);
    let error = failure(&options, "SELECT 1");
    assert_eq!(error.to_string(), "reading: the server closed the connection");
}

#[test]
fn hostile_replies() {
    let many_columns = vec![0xFD, 0xFF, 0xFF, 0xFF];
    for (reply, words) in [
        (Act::Say(7, vec![ok()]), "the server broke the protocol: packet number 7 instead of 1"),
        (Act::Say(1, vec![many_columns]), "the server broke the protocol: 16777215 columns"),
        (Act::Say(1, vec![vec![0xFB, b'/', b'x']]), "the server broke the protocol: asks for a local file"),
        (Act::Say(1, vec![vec![]]), "the server broke the protocol: "),
        (Act::Say(1, vec![vec![0]]), "the server broke the protocol: "),
        (Act::Raw(vec![0xFF, 0xFF, 0xFF, 1]), "a reply of more than 1000 bytes"),
    ] {
        let (mut options, _thread) = logged_in(Capabilities::empty(), vec![reply]);
        options.reply_bytes_max = 1000;
        let error = failure(&options, "SELECT 1").to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn limits_on_rows_and_bytes() {
    let reply = || vec![Act::Raw(rows_reply(Capabilities::empty()))];
    let (mut options, _thread) = logged_in(Capabilities::empty(), reply());
    options.rows_max = 1;
    assert_eq!(failure(&options, "SELECT 1").to_string(), "a reply of more than 1 rows");
    let (mut options, _thread) = logged_in(Capabilities::empty(), reply());
    options.reply_bytes_max = 60;
    assert_eq!(failure(&options, "SELECT 1").to_string(), "a reply of more than 60 bytes");
}

#[test]
fn options_never_print_the_password() {
    let options = Options::new("db1", 3306, "app", "geheim").schema("shop");
    assert!(!format!("{options:?}").contains("geheim"));
}
