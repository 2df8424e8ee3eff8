//! Reads whose server dies in the middle of the result.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::frame;
use weir_protocol::ok::OkPacket;
use weir_protocol::status::StatusFlags;
use weir_proxy::snapshot::Hostgroup;

const READ: &str = "SELECT a FROM t";

fn bench(retry_buffer_bytes: u32) -> (Bench, usize) {
    let hostgroup = Hostgroup { retry_buffer_bytes, ..support::hostgroup([0, 1]) };
    let mut bench = Bench::new(1, &[10, 10], hostgroup, MysqlVariables::default());
    let client = bench.client(0, "app");
    bench.holds = true;
    (bench, client)
}

/// The begin of a result: its definitions and one row of this size.
fn half(row_bytes: usize) -> Vec<u8> {
    let (mut bytes, mut sequence) = (Vec::new(), 1);
    for payload in [vec![1], b"a definition".to_vec(), vec![b'r'; row_bytes]] {
        frame::packet(&mut bytes, &mut sequence, |out| out.extend_from_slice(&payload));
    }
    bytes
}

fn end() -> Vec<u8> {
    support::ok(4, OkPacket::new(0xFE, StatusFlags::AUTOCOMMIT), &[])
}

/// The server that has the statement sends something.
fn answer(bench: &mut Bench, bytes: &[u8]) {
    let conn = bench.conns.iter().find(|conn| conn.held).unwrap();
    let (core, id) = (conn.core, conn.id);
    bench.cores[core].data(id, &mut bytes.to_vec(), bench.now);
    bench.run();
}

/// The server that has the statement is gone.
fn die(bench: &mut Bench) {
    let at = bench.conns.iter().position(|conn| conn.held).unwrap();
    let conn = bench.conns.remove(at);
    bench.cores[conn.core].closed(conn.id, bench.now);
    bench.run();
    bench.pass_ms(5);
}

#[test]
fn a_small_result_is_asked_for_again() {
    let (mut bench, client) = bench(1000);
    bench.query(client, READ);
    answer(&mut bench, &half(500));
    assert_eq!(bench.clients[client].got, b"", "nothing is out before all is there");
    die(&mut bench);
    answer(&mut bench, &half(400));
    answer(&mut bench, &end());
    let mut whole = half(400);
    whole.extend(end());
    assert_eq!(bench.clients[client].got, whole, "one result and nothing of the other");
    let servers: Vec<usize> = bench.log.iter().map(|(server, _)| *server).collect();
    assert!(servers.len() == 2 && servers[0] != servers[1], "{servers:?}");
}

#[test]
fn a_large_one_goes_and_can_not_be_taken_back() {
    let (mut bench, client) = bench(1000);
    bench.query(client, READ);
    answer(&mut bench, &half(1001));
    assert_eq!(bench.clients[client].got, half(1001));
    die(&mut bench);
    assert_eq!(
        (bench.log.len(), bench.clients[client].got.len()),
        (1, half(1001).len()),
        "the session is closed"
    );
}

#[test]
fn after_as_many_tries_as_there_may_be_the_client_is_told() {
    let (mut bench, client) = bench(1000);
    bench.query(client, READ);
    for _ in 0..2 {
        answer(&mut bench, &half(10));
        die(&mut bench);
    }
    assert_eq!(bench.log.len(), 2);
    let (_, text) = bench.error(client).unwrap();
    assert!(text.ends_with("while the statement ran: it had no effect"), "{text}");
}

#[test]
fn what_is_no_plain_read_is_not_held_back() {
    let (mut bench, client) = bench(1000);
    for sql in ["SELECT a FROM t FOR UPDATE", "SELECT GET_LOCK('a', 1)"] {
        bench.query(client, sql);
        answer(&mut bench, &half(10));
        assert_eq!(bench.clients[client].got, half(10), "{sql}");
        answer(&mut bench, &end());
        bench.conns.iter_mut().for_each(|conn| conn.held = false);
        bench.clients[client].got.clear();
    }
}

#[test]
fn without_a_buffer_results_flow() {
    let (mut bench, client) = bench(0);
    bench.query(client, READ);
    answer(&mut bench, &half(10));
    assert_eq!(bench.clients[client].got, half(10));
}
