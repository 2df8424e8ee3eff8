//! Runs the fuzz targets' functions over `fuzz/corpus/`, every beginning of its files and seeded mutations of them.

use weir_seeds::Corpus;
use weir_sql::fuzzing::{fuzz_digest, fuzz_scan};

/// Mutations for each target.
const MUTATIONS: usize = 20_000;
/// Bytes that begin or end something.
const TELLING: &[u8] = b"'\"`\\/*!+-# \n\0;:=@.,()$x0eM?N\x95\x5c\x81\x60\xa0\xff";

#[test]
fn every_beginning_of_the_corpus() {
    for (target, check) in [("sql_scan", fuzz_scan as fn(&[u8])), ("sql_digest", fuzz_digest)] {
        Corpus::of(target, TELLING).beginnings(check);
    }
}

#[test]
fn mutations_for_scan() {
    Corpus::of("sql_scan", TELLING).mutations(MUTATIONS, fuzz_scan);
}

#[test]
fn mutations_for_digest() {
    Corpus::of("sql_digest", TELLING).mutations(MUTATIONS, fuzz_digest);
}
