//! Runs the fuzz targets' functions over `fuzz/corpus`, every beginning of its files and seeded mutations of them.

use weir_protocol::fuzzing;
use weir_seeds::Corpus;

/// Mutations for each target.
const MUTATIONS: usize = 20_000;
/// Bytes that start or end something in the protocol.
const TELLING: &[u8] = &[0x00, 0x01, 0x7F, 0xFA, 0xFB, 0xFC, 0xFE, 0xFF];

#[test]
fn handshake_response() {
    run("handshake_response", fuzzing::fuzz_handshake_response);
}

#[test]
fn greeting() {
    run("greeting", fuzzing::fuzz_greeting);
}

#[test]
fn ok_packet() {
    run("ok_packet", fuzzing::fuzz_ok_packet);
}

#[test]
fn command() {
    run("command", fuzzing::fuzz_command);
}

#[test]
fn proxy_header() {
    run("proxy_header", fuzzing::fuzz_proxy_header);
}

#[test]
fn reply_reader() {
    run("reply_reader", fuzzing::fuzz_reply_reader);
}

fn run(target: &str, check: fn(&[u8])) {
    let corpus = Corpus::of(target, TELLING);
    corpus.beginnings(check);
    corpus.mutations(MUTATIONS, check);
}
