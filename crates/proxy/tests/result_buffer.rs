//! Reads whose server dies in the middle of the result.

#![allow(clippy::unwrap_used)]

mod support;

use support::bench::Bench;
use weir_config::MysqlVariables;
use weir_protocol::frame;
use weir_protocol::ok::{ErrPacket, OkPacket};
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

/// What a client has got behind these bytes: nothing, or one error.
fn error_behind(bench: &Bench, client: usize, sent: &[u8]) -> Option<(u8, String)> {
    let behind = bench.clients[client].got.strip_prefix(sent).unwrap();
    let header = frame::Header::parse(behind)?;
    let payload = &behind[frame::HEADER_LEN..];
    assert_eq!(payload.len(), header.len, "more than one packet");
    let err = ErrPacket::parse(payload).unwrap();
    Some((header.seq, format!("{} {}", err.code, String::from_utf8_lossy(err.message))))
}

#[test]
fn a_large_one_goes_and_an_error_takes_the_place_of_the_rest() {
    let (mut bench, client) = bench(1000);
    bench.query(client, READ);
    answer(&mut bench, &half(1001));
    assert_eq!(bench.clients[client].got, half(1001));
    // The begin of the next row, which the client never sees.
    answer(&mut bench, &[200, 0, 0, 4, b'x', b'y']);
    die(&mut bench);
    assert_eq!(bench.log.len(), 1, "not run again");
    let (sequence, text) = error_behind(&bench, client, &half(1001)).unwrap();
    assert_eq!(sequence, 4);
    assert!(text.starts_with("1053 ") && text.ends_with(": the rest of its result is missing"), "{text}");
}

#[test]
fn in_the_middle_of_a_large_row_there_is_no_place_for_an_error() {
    let (mut bench, client) = bench(1000);
    bench.query(client, READ);
    let whole = half(20_000);
    let part = &whole[..whole.len() - 1];
    answer(&mut bench, part);
    assert_eq!(bench.clients[client].got, part);
    die(&mut bench);
    assert_eq!((bench.log.len(), error_behind(&bench, client, part)), (1, None), "the session is closed");
}

#[test]
fn what_may_have_had_an_effect_is_not_run_again_and_its_outcome_is_unknown() {
    let (mut bench, client) = bench(1000);
    bench.query(client, "CALL p()");
    answer(&mut bench, &half(10));
    die(&mut bench);
    assert_eq!(bench.log.len(), 1);
    let (_, text) = error_behind(&bench, client, &half(10)).unwrap();
    assert!(text.ends_with("it may or may not have taken effect"), "{text}");
}

#[test]
fn a_row_in_many_pieces_comes_whole() {
    for size in [1, 3, 4, 5, 100, 16_384, 16_385, 40_000] {
        for piece in [1, 4, 7, 5000] {
            let (mut bench, client) = bench(0);
            bench.query(client, READ);
            let mut whole = half(size);
            whole.extend(end());
            for part in whole.chunks(piece) {
                answer(&mut bench, part);
            }
            assert!(bench.clients[client].got == whole, "{size} bytes in pieces of {piece}");
        }
    }
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
