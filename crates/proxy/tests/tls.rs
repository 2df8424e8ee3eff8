//! Checks where TLS begins: not a byte of it is taken for one in clear.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use support::bench::Bench;
use weir_config::{MysqlVariables, ProxyNetworks};
use weir_protocol::frame;
use weir_protocol::handshake::SslRequest;
use weir_protocol::proxy_header;
use weir_proxy::outbox::Order;
use weir_proxy::peer::Peer;
use weir_proxy::shared::Message;

const HELLO: &[u8] = b"\x16\x03\x01\x00\x05hello";

/// A client's request for TLS, as it is on the wire.
fn request() -> Vec<u8> {
    let request = SslRequest { capabilities: support::MODERN, max_packet_size: 1 << 24, collation: 45 };
    let mut out = Vec::new();
    frame::packet(&mut out, &mut 1, |out| request.write(out));
    out
}

/// The bytes in these pieces, all in one batch of the driver's: what is given to TLS, and whether nothing is sent.
fn upgrade(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let proxy_protocol_networks = ProxyNetworks::parse("localhost").unwrap();
    let variables = MysqlVariables { proxy_protocol_networks, ..MysqlVariables::default() };
    let mut bench = Bench::new(1, &[10], support::hostgroup([0]), variables);
    let hostgroups = [(0, support::hostgroup([0]))];
    let mut snapshot = support::snapshot(&bench.users, &bench.servers, hostgroups, bench.variables.clone());
    Arc::get_mut(&mut snapshot).unwrap().tls = true;
    let core = &mut bench.cores[0];
    core.message(Message::Snapshot(snapshot), 1);
    let id = core.accept(Peer::Unix, &support::listener(), 1).unwrap();
    let greeting = core.out().take_unsent(id).unwrap();
    core.out().all_sent(id, greeting);
    for piece in pieces {
        core.data(id, &mut piece.to_vec(), 2);
    }
    let mut orders = Vec::new();
    core.out().take_orders(&mut orders);
    let [Order::StartTls(of, leftover)] = &orders[..] else { panic!("{} orders", orders.len()) };
    assert_eq!(*of, id);
    (leftover.clone(), core.out().unsent(id).is_empty())
}

#[test]
fn what_follows_a_request_for_tls_in_the_same_batch_belongs_to_tls() {
    let request = request();
    let together = [&request[..], HELLO].concat();
    assert_eq!(upgrade(&[&together]), (HELLO.to_vec(), true));
    assert_eq!(upgrade(&[&request, HELLO]), (HELLO.to_vec(), true));
    let (first, second) = HELLO.split_at(3);
    assert_eq!(upgrade(&[&request, first, second]), (HELLO.to_vec(), true));
    let (cut, rest) = together.split_at(request.len() + 3);
    assert_eq!(upgrade(&[cut, rest]), (HELLO.to_vec(), true));
}

#[test]
fn tls_begins_behind_the_header_of_a_proxy() {
    let mut header = Vec::new();
    proxy_header::write_v2(([192, 0, 2, 7], 50_000).into(), ([10, 0, 0, 1], 6033).into(), &mut header);
    let together = [&header[..], &request(), HELLO].concat();
    for end in [together.len(), 3, header.len(), header.len() + 5, together.len() - 1] {
        let (first, second) = together.split_at(end);
        assert_eq!(upgrade(&[first, second]), (HELLO.to_vec(), true), "cut after {end} bytes");
    }
}
