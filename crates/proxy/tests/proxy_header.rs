//! Checks what a header of the PROXY protocol in front of a login does to the session, byte by byte and for whom it is allowed.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::SocketAddr;

use support::bench::{Bench, Client};
use weir_config::{MysqlVariables, ProxyNetworks};
use weir_protocol::proxy_header::{write_unknown_v1, write_unknown_v2, write_v1, write_v2};
use weir_proxy::peer::Peer;

const PROXY: &str = "10.0.0.5:4711";
const CLIENT: &str = "192.0.2.7:50000";
const NOWHERE: &str = "10.0.0.1:6033";

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn bench(networks: &str) -> Bench {
    let proxy_protocol_networks = ProxyNetworks::parse(networks).unwrap();
    let variables = MysqlVariables { proxy_protocol_networks, ..MysqlVariables::default() };
    Bench::new(1, &[10], support::hostgroup([0]), variables)
}

/// A client that has been greeted, and the packet with which it would log in as this user.
fn connect(bench: &mut Bench, peer: Peer, user: &[u8]) -> (usize, Vec<u8>) {
    let id = bench.cores[0].accept(peer, &support::listener(), bench.now).unwrap();
    bench.clients.push(Client { core: 0, id, got: Vec::new(), connection_id: 0 });
    let client = bench.clients.len() - 1;
    bench.run();
    let greeting = bench.reply(client).expect("nobody waits for a header before the greeting");
    (client, support::login(&greeting, support::MODERN, user, b"information_schema", 45))
}

/// The host that a refused login is told that it comes from.
fn host_of(bench: &mut Bench, peer: Peer, header: &[u8]) -> String {
    let (client, login) = connect(bench, peer, b"nobody");
    bench.send(client, &[header, &login].concat());
    let (code, message) = bench.error(client).unwrap();
    assert_eq!(code, 1045, "{message}");
    message.split('\'').nth(3).unwrap().to_owned()
}

fn written(write: fn(SocketAddr, SocketAddr, &mut Vec<u8>)) -> Vec<u8> {
    let mut header = Vec::new();
    write(address(CLIENT), address(NOWHERE), &mut header);
    header
}

fn unknown(write: fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut header = Vec::new();
    write(&mut header);
    header
}

#[test]
fn a_client_is_where_the_header_says() {
    let mut bench = bench("10.0.0.0/8,localhost");
    for header in [written(write_v1), written(write_v2)] {
        assert_eq!(host_of(&mut bench, address(PROXY).into(), &header), "192.0.2.7");
        assert_eq!(host_of(&mut bench, Peer::Unix, &header), "192.0.2.7");
    }
    // A proxy that speaks for itself, or sends no header at all, is where it is.
    for header in [unknown(write_unknown_v1), unknown(write_unknown_v2), Vec::new()] {
        assert_eq!(host_of(&mut bench, address(PROXY).into(), &header), "10.0.0.5");
        assert_eq!(host_of(&mut bench, Peer::Unix, &header), "localhost");
    }
}

#[test]
fn a_header_may_come_in_any_pieces() {
    let mut bench = bench("*");
    for header in [written(write_v1), written(write_v2), Vec::new()] {
        let (client, login) = connect(&mut bench, address(PROXY).into(), b"app");
        let bytes = [&header[..], &login].concat();
        for (at, byte) in bytes.iter().enumerate() {
            assert!(bench.clients[client].got.is_empty(), "answered after {at} bytes");
            bench.send(client, &[*byte]);
        }
        assert!(bench.is_answered(client));
        bench.query(client, "INSERT INTO t VALUES (1)");
        assert!(bench.is_answered(client));
    }
}

#[test]
fn a_header_from_elsewhere_is_refused() {
    for networks in ["", "10.0.0.4", "localhost", "::/0"] {
        for header in
            [written(write_v1), written(write_v2), unknown(write_unknown_v1), unknown(write_unknown_v2)]
        {
            let mut bench = bench(networks);
            let (client, login) = connect(&mut bench, address(PROXY).into(), b"app");
            bench.send(client, &[header, login].concat());
            let (code, message) = bench.error(client).unwrap();
            assert!(
                code == 1130 && message.contains("not accepted from '10.0.0.5'"),
                "{networks}: {code} {message}"
            );
            assert_eq!(bench.cores[0].sessions(), 0);
        }
    }
}

#[test]
fn a_broken_header_ends_the_connection() {
    for header in [&b"PROXY TCP4 1.2.3.4\r\n"[..], b"PROXY \n", b"\r\n\r\nGET", b"\r\n\r\n\0\r\nQUIT\n\x11"] {
        let mut bench = bench("*");
        let (client, _) = connect(&mut bench, address(PROXY).into(), b"app");
        bench.send(client, header);
        let (code, message) = bench.error(client).unwrap();
        assert!(code == 1043 && message.contains("header of the PROXY protocol"), "{code} {message}");
        assert_eq!(bench.cores[0].sessions(), 0);
    }
}

/// It is the first thing on a connection or nothing.
#[test]
fn a_second_header_is_none() {
    let mut bench = bench("*");
    let header = written(write_v2);
    let (client, login) = connect(&mut bench, address(PROXY).into(), b"app");
    bench.send(client, &[&header[..], &header, &login].concat());
    let (code, message) = bench.error(client).unwrap();
    assert!(code == 1130 && message.contains("not accepted"), "{code} {message}");
}
