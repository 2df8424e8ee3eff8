//! Checks what logins teach Weir of passwords, while the configuration changes.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use support::bench::{Bench, Client};
use weir_config::MysqlVariables;
use weir_protocol::auth::crypt::Sha2Crypt;
use weir_protocol::auth::{Credential, StoredPassword, native};
use weir_protocol::capability::Capabilities;
use weir_protocol::frame;
use weir_protocol::handshake::{CACHING_SHA2_PASSWORD, Greeting, HandshakeResponse, MYSQL_NATIVE_PASSWORD};
use weir_protocol::ok::{ErrPacket, OK_HEADER};
use weir_proxy::peer::Peer;
use weir_proxy::snapshot::Account;
use weir_session::accounts::LoginTerms;

fn stored_as(stored: StoredPassword) -> Vec<Arc<Account>> {
    let user = support::account("app", 0).user.clone();
    vec![Arc::new(Account::configured(user, LoginTerms::with_password(stored), None))]
}

fn salted(password: &[u8]) -> StoredPassword {
    StoredPassword::Sha2(Sha2Crypt::of(password, [b'x'; 20], 5).unwrap())
}

fn bench(users: Vec<Arc<Account>>) -> Bench {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    load(&mut bench, users);
    bench
}

fn load(bench: &mut Bench, users: Vec<Arc<Account>>) {
    bench.users = users;
    bench.publish(bench.servers.clone(), support::hostgroup([0]));
}

fn connect(bench: &mut Bench, plugin: &[u8], password: &[u8]) -> usize {
    let id = bench.cores[0].accept(Peer::Unix, &support::listener(), bench.now).unwrap();
    bench.clients.push(Client { core: 0, id, got: Vec::new(), connection_id: 0 });
    let client = bench.clients.len() - 1;
    bench.run();
    let greeting = bench.reply(client).unwrap();
    let greeting = Greeting::parse(&greeting).unwrap();
    let proof = Credential::clear_text(password).response(plugin, &greeting.scramble).unwrap();
    let response = HandshakeResponse {
        capabilities: support::MODERN,
        max_packet_size: 1 << 24,
        collation: 45,
        user: b"app",
        auth_data: &proof,
        database: Some(b"information_schema"),
        auth_plugin: Some(plugin),
        attributes: Default::default(),
        zstd_level: None,
    };
    let mut out = Vec::new();
    frame::packet(&mut out, &mut 1, |out| response.write(out));
    bench.send(client, &out);
    client
}

/// Shows the password itself, so that it has to be checked against a salted hash.
fn show(bench: &mut Bench, client: usize, password: &[u8]) {
    let more = bench.reply(client).unwrap();
    assert_eq!(more, [1, 4], "full authentication");
    let mut out = Vec::new();
    frame::write_packet(&mut out, &mut 3, &[password, b"\0"].concat());
    bench.send(client, &out);
}

#[test]
fn a_password_that_is_changed_while_it_is_checked_does_not_pass_and_is_not_kept() {
    let mut bench = bench(stored_as(salted(b"old")));
    let late = connect(&mut bench, CACHING_SHA2_PASSWORD, b"old");
    show(&mut bench, late, b"old");
    assert_eq!(bench.checks.len(), 1);
    load(&mut bench, stored_as(salted(b"new")));
    bench.check();
    let reply = bench.reply(late).unwrap();
    assert_eq!(ErrPacket::parse(&reply).map(|err| err.code), Ok(1045));
    assert!(bench.users[0].credential().is_none(), "what was shown is another password");
    for (password, passes) in [(&b"old"[..], false), (b"new", true), (b"old", false)] {
        let client = connect(&mut bench, CACHING_SHA2_PASSWORD, password);
        if bench.clients[client].got.len() == 6 {
            show(&mut bench, client, password);
            bench.check();
        }
        let mut last = None;
        while let Some(reply) = bench.reply(client) {
            last = Some(reply);
        }
        assert_eq!(last.is_some_and(|last| last[0] == OK_HEADER), passes, "{password:?}");
    }
}

/// The same row may come with another comment.
#[test]
fn a_password_that_is_the_same_after_a_load_passes() {
    let mut bench = bench(stored_as(salted(b"old")));
    let client = connect(&mut bench, CACHING_SHA2_PASSWORD, b"old");
    show(&mut bench, client, b"old");
    load(&mut bench, stored_as(salted(b"old")));
    bench.check();
    assert!(bench.is_answered(client));
    assert_eq!(bench.users[0].credential(), Some(Credential::clear_text(b"old")));
}

#[test]
fn a_login_that_shows_a_hash_does_not_take_the_place_of_the_password() {
    let mut bench = bench(stored_as(StoredPassword::Native(native::HashStage2::of(b"old"))));
    let by_hash = connect(&mut bench, MYSQL_NATIVE_PASSWORD, b"old");
    assert!(bench.is_answered(by_hash));
    let known = |bench: &Bench| bench.users[0].credential().unwrap();
    assert!(matches!(known(&bench), Credential::Sha1(_)));
    let in_full = connect(&mut bench, CACHING_SHA2_PASSWORD, b"old");
    show(&mut bench, in_full, b"old");
    assert!(bench.is_answered(in_full));
    let password = Credential::clear_text(b"old");
    assert_eq!(known(&bench), password);
    let by_hash = connect(&mut bench, MYSQL_NATIVE_PASSWORD, b"old");
    assert!(bench.is_answered(by_hash));
    assert_eq!(known(&bench), password, "it answers every plugin of a server");
}

/// A server comes with a LOAD that can't do what the servers before it could.
#[test]
fn who_was_promised_what_a_server_cannot_do_ends_and_nobody_else_suffers() {
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), MysqlVariables::default());
    bench.servers[0].shared.note_query_attributes(true);
    let with_attributes = support::MODERN | Capabilities::QUERY_ATTRIBUTES;
    let promised: Vec<usize> = (0..10).map(|_| bench.client_with(0, "app", with_attributes)).collect();
    let plain = bench.client(0, "app");
    for client in promised {
        let mut query = Vec::new();
        frame::write_packet(&mut query, &mut 0, b"\x03\x00\x01DO 1");
        bench.send(client, &query);
        let (code, message) = bench.error(client).unwrap();
        assert!(code == 1053 && message.contains("QUERY_ATTRIBUTES"), "{message}");
    }
    bench.query(plain, "INSERT INTO t VALUES (1)");
    assert!(bench.is_answered(plain), "the server is shunned");
}
