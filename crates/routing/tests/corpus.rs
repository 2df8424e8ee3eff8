//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them, so
//! that an ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use weir_routing::fuzzing::{fuzz_hints, fuzz_pattern};

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
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
    for (target, run) in [("rule_hints", fuzz_hints as fn(&[u8])), ("rule_pattern", fuzz_pattern)] {
        for seed in corpus(target) {
            for end in 0..=seed.len() {
                run(&seed[..end]);
            }
        }
    }
}

/// Bytes that begin or end something.
const TELLING: &[u8] = b"/*;=#-'\n\0\\()[]{}?+*|^$.,:!<i1x ";

fn mutated(seeds: &[Vec<u8>], pick: prop::sample::Index, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut data = pick.get(seeds).clone();
    for (at, byte) in changes {
        let at = at.index(data.len());
        data[at] = *byte;
    }
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn mutations_of_the_corpus(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(TELLING.to_vec())), 0..5),
    ) {
        fuzz_hints(&mutated(&corpus("rule_hints"), pick, &changes));
        fuzz_pattern(&mutated(&corpus("rule_pattern"), pick, &changes));
    }
}
