//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them.

use weir_routing::fuzzing::{fuzz_hints, fuzz_pattern};
use weir_seeds::Corpus;

/// Bytes that begin or end something.
const TELLING: &[u8] = b"/*;=#-'\n\0\\()[]{}?+*|^$.,:!<i1x ";
const TARGETS: [(&str, fn(&[u8])); 2] = [("rule_hints", fuzz_hints), ("rule_pattern", fuzz_pattern)];

#[test]
fn every_beginning_of_the_corpus() {
    TARGETS.iter().for_each(|(target, check)| Corpus::of(target, TELLING).beginnings(*check));
}

#[test]
fn mutations_of_the_corpus() {
    TARGETS.iter().for_each(|(target, check)| Corpus::of(target, TELLING).mutations(2_000, *check));
}
