//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them.

use weir_seeds::Corpus;
use weir_topology::fuzzing::{fuzz_gtids, fuzz_positions, fuzz_states};

/// Mutations for each target.
const MUTATIONS: usize = 4_000;
/// Bytes that begin or end something.
const TELLING: &[u8] = b"\t\n:,;=019-aZ \xFF";

#[test]
fn every_beginning_of_server_states() {
    Corpus::of("server_states", TELLING).beginnings(fuzz_states);
}

#[test]
fn every_beginning_of_positions() {
    Corpus::of("positions", TELLING).beginnings(fuzz_positions);
}

#[test]
fn every_beginning_of_gtids() {
    Corpus::of("gtids", TELLING).beginnings(fuzz_gtids);
}

#[test]
fn mutations_of_server_states() {
    Corpus::of("server_states", TELLING).mutations(MUTATIONS, fuzz_states);
}

#[test]
fn mutations_of_positions() {
    Corpus::of("positions", TELLING).mutations(MUTATIONS, fuzz_positions);
}

#[test]
fn mutations_of_gtids() {
    Corpus::of("gtids", TELLING).mutations(MUTATIONS, fuzz_gtids);
}
