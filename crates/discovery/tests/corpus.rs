//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them.

use weir_discovery::fuzzing::{fuzz_address, fuzz_facts};
use weir_seeds::Corpus;

/// Mutations for each target.
const MUTATIONS: usize = 4_000;
/// Bytes that begin or end something.
const TELLING: &[u8] = b"\t\n:/@%?&=[],'\"#-019aZ \xFF";

#[test]
fn every_beginning_of_server_addresses() {
    Corpus::of("server_address", TELLING).beginnings(fuzz_address);
}

#[test]
fn every_beginning_of_server_facts() {
    Corpus::of("server_facts", TELLING).beginnings(fuzz_facts);
}

#[test]
fn mutations_of_server_addresses() {
    Corpus::of("server_address", TELLING).mutations(MUTATIONS, fuzz_address);
}

#[test]
fn mutations_of_server_facts() {
    Corpus::of("server_facts", TELLING).mutations(MUTATIONS, fuzz_facts);
}
