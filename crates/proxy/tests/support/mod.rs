//! Shares what the tests of the data plane need: configurations, and the packets of both sides of a login.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

pub mod bench;
pub mod interrupted;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_config::{ListenAddress, Listener, MysqlUser, MysqlVariables, Password, Secret};
use weir_protocol::auth::{Credential, StoredPassword};
use weir_protocol::capability::Capabilities;
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::handshake::{Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER, OkPacket, SessionTrack};
use weir_protocol::status::StatusFlags;
use weir_proxy::snapshot::{Account, Care, Hostgroup, Member, Server, Snapshot, Users};
use weir_session::accounts::LoginTerms;
use weir_sql::Dialect;
use weir_topology::{Endpoint, ServerShared};

/// Everybody's password.
pub const PASSWORD: &[u8] = b"secret";

/// What a MariaDB 10.11 offers, and thus also agrees on with Weir.
pub const SERVER_CAPABILITIES: Capabilities = Capabilities::from_parts(0x81FF_F7FE, 0);

/// A client with everything that changes how Weir answers.
pub const MODERN: Capabilities = Capabilities::LONG_PASSWORD
    .union(Capabilities::PROTOCOL_41)
    .union(Capabilities::SECURE_CONNECTION)
    .union(Capabilities::PLUGIN_AUTH)
    .union(Capabilities::TRANSACTIONS)
    .union(Capabilities::MULTI_RESULTS)
    .union(Capabilities::SESSION_TRACK)
    .union(Capabilities::DEPRECATE_EOF)
    .union(Capabilities::CONNECT_WITH_DB);

/// A client of the days before DEPRECATE_EOF and SESSION_TRACK.
pub const OLD: Capabilities =
    MODERN.difference(Capabilities::SESSION_TRACK.union(Capabilities::DEPRECATE_EOF));

/// A user whose statements go to `hostgroup`.
pub fn account(name: &str, hostgroup: u32) -> Arc<Account> {
    let password = String::from_utf8_lossy(PASSWORD).into_owned();
    let password = Password::Clear(Secret::new(&password));
    let user = MysqlUser { password, default_hostgroup: hostgroup, ..MysqlUser::named(name) };
    let terms = LoginTerms::with_password(StoredPassword::ClearText(PASSWORD.into()));
    Arc::new(Account::configured(Arc::new(user), terms, Some(Credential::clear_text(PASSWORD))))
}

/// A listener that nobody need listen on; the system chooses its port if somebody does.
pub fn listener() -> Arc<Listener> {
    Arc::new(Listener::split(ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))))
}

/// A server on 127.0.0.1.
pub fn server(port: u16, max_connections: u32) -> Arc<Server> {
    let endpoint = Endpoint::new("127.0.0.1", port);
    Arc::new(Server {
        endpoint: endpoint.to_string(),
        addr: SocketAddr::from(([127, 0, 0, 1], port)),
        max_connections,
        is_gone: false,
        is_silent: false,
        tls: None,
        proxy_header: Default::default(),
        is_leaving: false,
        leave_by: None,
        care: Care { free_connections_pct: 10, ..Care::default() },
        shared: Arc::new(ServerShared::new(endpoint)),
    })
}

/// A hostgroup of these servers, with equal weights.
pub fn hostgroup(servers: impl IntoIterator<Item = usize>) -> Hostgroup {
    let members =
        servers.into_iter().map(|server| Member { server, weight: 1, health: Default::default() }).collect();
    Hostgroup {
        members,
        slow_start: std::time::Duration::from_secs(5),
        retry_buffer_bytes: 16 << 10,
        ..Hostgroup::default()
    }
}

/// Everything together.
pub fn snapshot(
    users: &[Arc<Account>],
    servers: &[Arc<Server>],
    hostgroups: impl IntoIterator<Item = (u32, Hostgroup)>,
    variables: MysqlVariables,
) -> Arc<Snapshot> {
    Arc::new(Snapshot {
        users: Arc::new(Users {
            configured: users
                .iter()
                .map(|user| (user.user.username.clone().into_bytes(), user.clone()))
                .collect(),
            ..Users::default()
        }),
        servers: servers.to_vec(),
        hostgroups: hostgroups.into_iter().collect::<HashMap<_, _>>(),
        rules: Arc::default(),
        variables,
        server_version: "5.5.5-10.11.19-MariaDB".into(),
        is_mariadb: true,
        default_collation: "latin1_swedish_ci".into(),
        dialect: Dialect::default(),
        tls: false,
        decoy: None,
        rsa_key: None,
    })
}

/// The first whole packet's sequence id and payload, taken off the front of `bytes`.
pub fn take_packet(bytes: &mut Vec<u8>) -> Option<(u8, Vec<u8>)> {
    let header = Header::parse(bytes)?;
    let payload = bytes.get(HEADER_LEN..header.packet_len())?.to_vec();
    bytes.drain(..header.packet_len());
    Some((header.seq, payload))
}

/// A client's answer to a greeting's payload: the packet, header included.
pub fn login(
    greeting: &[u8],
    capabilities: Capabilities,
    user: &[u8],
    schema: &[u8],
    collation: u8,
) -> Vec<u8> {
    let greeting = Greeting::parse(greeting).expect("a greeting");
    let credential = Credential::clear_text(PASSWORD);
    let proof = credential.response(MYSQL_NATIVE_PASSWORD, &greeting.scramble).expect("a native proof");
    let response = HandshakeResponse {
        capabilities,
        max_packet_size: 1 << 24,
        collation,
        user,
        auth_data: &proof,
        database: (!schema.is_empty()).then_some(schema),
        auth_plugin: Some(MYSQL_NATIVE_PASSWORD),
        attributes: Default::default(),
        zstd_level: None,
    };
    let mut out = Vec::new();
    frame::packet(&mut out, &mut 1, |out| response.write(out));
    out
}

/// A server's greeting: the packet, header included.
pub fn greeting(thread_id: u32) -> Vec<u8> {
    greeting_as(thread_id, b"5.5.5-10.11.19-MariaDB-log")
}

/// The same of a server with this version.
pub fn greeting_as(thread_id: u32, version: &[u8]) -> Vec<u8> {
    let greeting = Greeting {
        version,
        thread_id,
        scramble: *b"abcdefghijklmnopqrst",
        capabilities: SERVER_CAPABILITIES,
        collation: 8,
        status: StatusFlags::AUTOCOMMIT,
        auth_plugin: MYSQL_NATIVE_PASSWORD,
    };
    let mut out = Vec::new();
    frame::packet(&mut out, &mut 0, |out| greeting.write(out));
    out
}

/// A server's OK as a packet with this sequence id, with session-track entries.
pub fn ok(sequence: u8, ok: OkPacket<'_>, tracks: &[SessionTrack<'_>]) -> Vec<u8> {
    let mut session_state = Vec::new();
    tracks.iter().for_each(|track| track.write(&mut session_state));
    let mut out = Vec::new();
    let mut sequence = sequence;
    let ok = OkPacket { session_state: &session_state, ..ok };
    frame::packet(&mut out, &mut sequence, |out| ok.write(SERVER_CAPABILITIES, out));
    out
}

/// An OK without anything.
pub fn plain_ok(sequence: u8) -> Vec<u8> {
    ok(sequence, OkPacket::new(OK_HEADER, StatusFlags::AUTOCOMMIT), &[])
}

/// A server's answer of rows, whose columns have no names.
pub fn rows<'a>(columns: u8, rows: impl Iterator<Item = &'a [&'a str]>) -> Vec<u8> {
    rows_and(StatusFlags::AUTOCOMMIT, columns, rows)
}

/// The same, with these flags at the end.
pub fn rows_and<'a>(status: StatusFlags, columns: u8, rows: impl Iterator<Item = &'a [&'a str]>) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let names = ["def", "", "", "", "", ""].map(text).concat();
    let column = [names, vec![12, 45, 0, 9, 0, 0, 0, 0xFD, 0, 0, 0, 0, 0]].concat();
    let (mut bytes, mut sequence) = (Vec::new(), 1);
    frame::write_packet(&mut bytes, &mut sequence, &[columns]);
    (0..columns).for_each(|_| frame::write_packet(&mut bytes, &mut sequence, &column));
    for row in rows {
        let row: Vec<u8> = row.iter().flat_map(|value| text(value)).collect();
        frame::write_packet(&mut bytes, &mut sequence, &row);
    }
    bytes.extend(ok(sequence, OkPacket::new(0xFE, status), &[]));
    bytes
}

/// A server's ERR as a packet with this sequence id.
pub fn error(sequence: u8, code: u16, message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sequence = sequence;
    let err = ErrPacket { code, sqlstate: Some(*b"HY000"), message: message.as_bytes() };
    frame::packet(&mut out, &mut sequence, |out| err.write(out));
    out
}

/// The error, if the statement has one.
pub fn run(bench: &mut bench::Bench, client: usize, sql: &str) -> Option<(u16, String)> {
    bench.clients[client].got.clear();
    bench.query(client, sql);
    assert!(!bench.clients[client].got.is_empty(), "no answer to {sql}");
    bench.error(client)
}

/// What a server gets for a SELECT of a variable, between the quotes; the whole text if there are none.
pub fn value(bench: &mut bench::Bench, client: usize, variable: &str) -> String {
    assert_eq!(run(bench, client, &format!("SELECT {variable} AS v")), None);
    let (_, text) = bench.log.last().unwrap();
    text.split('\'').nth(1).unwrap_or(text).to_owned()
}
