//! Checks that a server which is told of clients' addresses gets no statement on a connection of another client.

#![allow(clippy::unwrap_used)]

mod support;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use support::MODERN;
use support::bench::Bench;
use weir_config::{MysqlVariables, SendProxyProtocol};
use weir_protocol::proxy_header::ProxiedClient;
use weir_proxy::peer::Peer;
use weir_seeds::SplitMix;

fn bench(workers: usize, connections: u32, how: SendProxyProtocol) -> Bench {
    let mut bench = Bench::new(workers, &[connections], support::hostgroup([0]), MysqlVariables::default());
    tell(&mut bench, how);
    bench
}

/// The server is told in another way from now on.
fn tell(bench: &mut Bench, how: SendProxyProtocol) {
    let mut server = support::server(3306, bench.servers[0].max_connections);
    let parts = Arc::get_mut(&mut server).unwrap();
    (parts.proxy_header, parts.shared) = (how, bench.servers[0].shared.clone());
    bench.publish(vec![server], support::hostgroup([0]));
}

fn peer(last: u8, port: u16) -> Peer {
    Peer::Tcp(SocketAddr::new(IpAddr::from([192, 0, 2, last]), port))
}

/// What the server is told of that client.
fn told(last: u8) -> Option<ProxiedClient> {
    Some(ProxiedClient::Tcp(SocketAddr::new(IpAddr::from([192, 0, 2, last]), 0)))
}

/// Runs a statement until it is answered; whose connection it came on.
fn run(bench: &mut Bench, client: usize) -> Option<ProxiedClient> {
    bench.clients[client].got.clear();
    bench.query(client, "UPDATE t SET a = 1");
    for _ in 0..1000 {
        if !bench.clients[client].got.is_empty() {
            assert!(bench.is_answered(client), "{:?}", bench.error(client));
            return *bench.told.last().unwrap();
        }
        bench.pass_ms(1);
    }
    panic!("no answer within a second");
}

#[test]
fn sessions_of_one_address_share_a_connection() {
    for how in [SendProxyProtocol::V1, SendProxyProtocol::V2] {
        let mut bench = bench(1, 10, how);
        let clients: Vec<_> =
            (0..4).map(|port| bench.client_at(0, "app", MODERN, peer(7, 1000 + port))).collect();
        for client in clients {
            assert_eq!(run(&mut bench, client), told(7));
        }
        assert_eq!(bench.logins, 1);
        let other = bench.client_at(0, "app", MODERN, peer(8, 1000));
        assert_eq!(run(&mut bench, other), told(8));
        assert_eq!((bench.logins, bench.user_changes), (2, 0));
    }
}

#[test]
fn another_user_at_the_same_address_takes_a_connection_over() {
    let mut bench = bench(1, 1, SendProxyProtocol::V2);
    let (app, bob) =
        (bench.client_at(0, "app", MODERN, peer(7, 1)), bench.client_at(0, "bob", MODERN, peer(7, 2)));
    for _ in 0..3 {
        assert_eq!((run(&mut bench, app), run(&mut bench, bob)), (told(7), told(7)));
    }
    assert_eq!((bench.logins, bench.user_changes), (1, 5), "by COM_CHANGE_USER");
}

#[test]
fn clients_without_an_address_are_weirs_own() {
    let mut bench = bench(1, 10, SendProxyProtocol::V1);
    let local = bench.client(0, "app");
    assert_eq!(run(&mut bench, local), Some(ProxiedClient::Unknown));
    let other = bench.client_at(0, "app", MODERN, peer(7, 1));
    assert_eq!(run(&mut bench, other), told(7));
    assert_eq!(run(&mut bench, local), Some(ProxiedClient::Unknown));
}

#[test]
fn a_reload_changes_what_connections_begin_with() {
    let mut bench = bench(1, 10, SendProxyProtocol::Off);
    let client = bench.client_at(0, "app", MODERN, peer(7, 1));
    assert_eq!(run(&mut bench, client), None);
    for (how, expected) in
        [(SendProxyProtocol::V1, told(7)), (SendProxyProtocol::Off, None), (SendProxyProtocol::V2, told(7))]
    {
        tell(&mut bench, how);
        assert_eq!(run(&mut bench, client), expected, "{how:?}");
    }
}

/// However few connections there are, and whoever comes next.
#[test]
fn nobody_is_served_on_the_connection_of_another_client() {
    for seed in 0..40 {
        let mut random = SplitMix::new(seed);
        let connections = 1 + random.below(4) as u32;
        let mut bench = bench(1 + random.below(2), connections, SendProxyProtocol::V2);
        let mut clients = Vec::new();
        for port in 0..12 {
            let (core, last) = (random.below(bench.cores.len()), 1 + random.below(5) as u8);
            let user = if random.below(3) == 0 { "bob" } else { "app" };
            clients.push((bench.client_at(core, user, MODERN, peer(last, port)), last));
        }
        for _ in 0..200 {
            let (client, last) = clients[random.below(clients.len())];
            assert_eq!(run(&mut bench, client), told(last), "seed {seed}");
        }
    }
}
