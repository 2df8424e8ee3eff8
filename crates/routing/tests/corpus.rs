//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them.

use weir_routing::fuzzing::{fuzz_hints, fuzz_pattern};
use weir_seeds::Corpus;

/// Bytes that begin or end something.
const TELLING: &[u8] = b"/*;=#-'\n\0\\()[]{}?+*|^$.,:!<i1x ";
/// Mutations for each target.
const MUTATIONS: usize = 2_000;

#[test]
fn every_beginning_of_the_corpus() {
    Corpus::of("rule_hints", TELLING).beginnings(fuzz_hints);
    Corpus::of("rule_pattern", TELLING).beginnings(fuzz_pattern);
}

#[test]
fn mutations_of_the_corpus() {
    Corpus::of("rule_hints", TELLING).mutations(MUTATIONS, fuzz_hints);
    Corpus::of("rule_pattern", TELLING).mutations(MUTATIONS, fuzz_pattern);
}
