//! Tests a relay on real sockets. Where the kernel does not allow io_uring there is nothing to test.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown};

use super::*;

const MANY_BYTES: usize = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A relay with two workers, in threads that end with the tests.
fn relay(servers: &[&TcpListener]) -> Option<SocketAddrV4> {
    if let Err(error) = check() {
        eprintln!("io_uring is not available here: {error}");
        return None;
    }
    let servers: Vec<SocketAddrV4> = servers.iter().map(|server| address(server)).collect();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let listen = address(&listener);
    let workers = start_workers(2).unwrap();
    thread::spawn(move || serve(&listener, &servers, &workers));
    Some(listen)
}

fn address(listener: &TcpListener) -> SocketAddrV4 {
    match listener.local_addr().unwrap() {
        std::net::SocketAddr::V4(address) => address,
        other => panic!("{other}"),
    }
}

fn server() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

/// A client's socket and its server's.
fn pair(relay: SocketAddrV4, server: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(relay).unwrap();
    let (server, _) = server.accept().unwrap();
    for stream in [&client, &server] {
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    }
    (client, server)
}

/// Bytes that show where one is missing or in the wrong place.
fn pattern(seed: u32, length: usize) -> Vec<u8> {
    let byte = |at: usize| ((at as u32 ^ seed).wrapping_mul(0x9E37_79B1) >> 24) as u8;
    (0..length).map(byte).collect()
}

/// Not `assert_eq`, which would print megabytes.
fn assert_same(got: &[u8], expected: &[u8]) {
    let first = got.iter().zip(expected).position(|(got, expected)| got != expected);
    assert_eq!((got.len(), first), (expected.len(), None));
}

fn read_exactly(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn small_pieces_go_back_and_forth() {
    let server = server();
    let Some(relay) = relay(&[&server]) else { return };
    let mut pairs: Vec<_> = (0..5).map(|_| pair(relay, &server)).collect();
    for round in 0..100 {
        for (client, server) in &mut pairs {
            let piece = pattern(round, 1 + round as usize * 7);
            client.write_all(&piece).unwrap();
            assert_same(&read_exactly(server, piece.len()), &piece);
            server.write_all(&piece).unwrap();
            assert_same(&read_exactly(client, piece.len()), &piece);
        }
    }
}

#[test]
fn much_arrives_whole_in_both_directions_where_nobody_reads_for_a_while() {
    let server = server();
    let Some(relay) = relay(&[&server]) else { return };
    let (client, server) = pair(relay, &server);
    let (up, down) = (pattern(1, MANY_BYTES), pattern(2, MANY_BYTES));
    thread::scope(|scope| {
        for (stream, bytes) in [(&client, &up), (&server, &down)] {
            scope.spawn(move || {
                let mut stream = stream;
                stream.write_all(bytes).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            });
        }
        // Sockets and the relay's queues are full by then, and sends have been short.
        thread::sleep(Duration::from_millis(200));
        for (stream, bytes) in [(&server, &up), (&client, &down)] {
            scope.spawn(move || {
                let mut stream = stream;
                let mut got = Vec::new();
                let mut piece = [0; 50_000];
                loop {
                    match stream.read(&mut piece).unwrap() {
                        0 => break,
                        length => got.extend_from_slice(&piece[..length]),
                    }
                    thread::sleep(Duration::from_micros(200));
                }
                assert_same(&got, bytes);
            });
        }
    });
}

#[test]
fn a_client_that_does_not_read_keeps_nobody_else_waiting_and_its_server_stops_sending() {
    let server = server();
    let Some(relay) = relay(&[&server]) else { return };
    // Both workers have one.
    let mut stuck: Vec<_> = (0..2).map(|_| pair(relay, &server)).collect();
    for (_, server) in &mut stuck {
        server.set_nonblocking(true).unwrap();
        let mut sent = 0;
        let mut quiet_rounds = 0;
        while quiet_rounds < 20 {
            match server.write(&[7; 1 << 16]) {
                Ok(length) => (sent, quiet_rounds) = (sent + length, 0),
                Err(_) => {
                    quiet_rounds += 1;
                    thread::sleep(Duration::from_millis(10));
                }
            }
            assert!(sent < 256 << 20, "the relay takes without end");
        }
    }
    for _ in 0..4 {
        let (mut client, mut server) = pair(relay, &server);
        client.write_all(b"question").unwrap();
        assert_eq!(read_exactly(&mut server, 8), b"question");
        server.write_all(b"answer").unwrap();
        assert_eq!(read_exactly(&mut client, 6), b"answer");
    }
}

#[test]
fn who_has_said_all_may_go_on_listening() {
    let server = server();
    let Some(relay) = relay(&[&server]) else { return };
    for server_first in [false, true] {
        let (client, server) = pair(relay, &server);
        let (mut first, mut second) = if server_first { (server, client) } else { (client, server) };
        first.write_all(b"that is all").unwrap();
        first.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        second.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"that is all");
        second.write_all(b"noted").unwrap();
        drop(second);
        got.clear();
        first.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"noted");
    }
}

#[test]
fn when_one_side_is_gone_the_other_one_ends() {
    let server = server();
    let Some(relay) = relay(&[&server]) else { return };
    let (client, server) = pair(relay, &server);
    // Unread bytes make the end of this socket a reset.
    let mut client_writes = &client;
    client_writes.write_all(b"never read").unwrap();
    server.peek(&mut [0; 10]).unwrap();
    drop(server);
    let ended = (&client).read(&mut [0; 10]);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
}

#[test]
fn a_client_of_a_server_that_refuses_sees_its_connection_end_and_the_next_one_is_served() {
    let nobody = server();
    let somebody = server();
    let Some(relay) = relay(&[&nobody, &somebody]) else { return };
    drop(nobody);
    let mut refused = TcpStream::connect(relay).unwrap();
    refused.set_read_timeout(Some(TIMEOUT)).unwrap();
    let ended = refused.read(&mut [0; 10]);
    assert!(!matches!(ended, Ok(1..)), "{ended:?}");
    let (mut client, mut server) = pair(relay, &somebody);
    client.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(&mut server, 5), b"hello");
}

#[test]
fn every_worker_gets_as_many_clients_of_every_server() {
    for (servers, workers) in [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2)] {
        let mut clients = std::collections::BTreeMap::new();
        for turn in 0..servers * workers * 5 {
            *clients.entry(places(turn, servers, workers)).or_insert(0) += 1;
        }
        assert_eq!(clients.len(), servers * workers, "{servers} servers, {workers} workers");
        assert!(clients.values().all(|count| *count == 5), "{clients:?}");
    }
}

#[test]
fn servers_take_turns() {
    let servers = [server(), server()];
    let Some(relay) = relay(&[&servers[0], &servers[1]]) else { return };
    for turn in 0..8 {
        let (mut client, mut server) = pair(relay, &servers[turn % 2]);
        client.write_all(b"hello").unwrap();
        assert_eq!(read_exactly(&mut server, 5), b"hello");
    }
}

#[test]
fn its_command_line_is_understood() {
    let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 3306);
    let options =
        Options { listen: SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1), to: vec![server; 2], threads: 3 };
    assert_eq!(Options::try_parse_from(options.words()).unwrap(), options);
}
