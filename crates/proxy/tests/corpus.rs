//! Runs the fuzz targets' functions over `fuzz/corpus`, every beginning of its files and seeded mutations of them, so that an
//! ordinary `cargo test` covers what fuzzing found.

use weir_proxy::fuzzing;
use weir_seeds::Corpus;

/// Mutations for each target.
const MUTATIONS: usize = 4_000;
/// Bytes that start or end something in the protocol.
const TELLING: &[u8] = &[0x00, 0x01, 0x02, 0x03, 0x16, 0x17, 0x7F, 0xFA, 0xFB, 0xFC, 0xFE, 0xFF];

#[test]
fn worker_client() {
    run("worker_client", fuzzing::fuzz_core_client);
}

#[test]
fn worker_server() {
    run("worker_server", fuzzing::fuzz_core_server);
}

#[test]
fn detour() {
    run("detour", fuzzing::fuzz_core_aside);
}

#[test]
fn causal_token() {
    run("causal_token", fuzzing::fuzz_causal_token);
}

fn run(target: &str, check: fn(&[u8])) {
    let corpus = Corpus::of(target, TELLING);
    corpus.beginnings(check);
    corpus.mutations(MUTATIONS, check);
}
