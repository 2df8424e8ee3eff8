//! Runs the fuzz target's function over `fuzz/corpus/sql_scan`, every beginning of its files and seeded
//! mutations of them, so that an ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use weir_sql::fuzzing::fuzz_scan;

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/sql_scan");
    let mut paths: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|reason| panic!("{}: {reason}", folder.display()))
        .map(|entry| entry.expect("a folder that can be listed").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| fs::read(path).expect("a file that can be read")).collect()
}

#[test]
fn every_beginning_of_the_corpus() {
    for seed in CORPUS.iter() {
        for end in 0..=seed.len() {
            fuzz_scan(&seed[..end]);
        }
    }
}

static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(corpus);

/// Bytes that begin or end something.
const TELLING: &[u8] = b"'\"`\\/*!+-# \n\0;:=@.,()$x0eM\x95\x5c\x81\x60\xa0\xff";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn mutations_of_the_corpus(
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
        cuts in any::<(prop::sample::Index, prop::sample::Index)>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(TELLING.to_vec())), 0..4),
    ) {
        let (first, second) = (first.get(&CORPUS), second.get(&CORPUS));
        // The beginning of one and the end of another.
        let mut data = first[..cuts.0.index(first.len())].to_vec();
        data.extend_from_slice(&second[cuts.1.index(second.len())..]);
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        fuzz_scan(&data);
    }
}
