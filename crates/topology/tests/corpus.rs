//! Runs the fuzz target's function over its corpus, every beginning of the files and seeded mutations of them, so that
//! an ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use weir_topology::fuzzing::fuzz_states;

/// Bytes that begin or end something.
const TELLING: &[u8] = b"\t\n:,;=019-aZ \xFF";

fn corpus() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/server_states");
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
    for seed in corpus() {
        (0..=seed.len()).for_each(|end| fuzz_states(&seed[..end]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn mutations_of_the_corpus(
        first in any::<prop::sample::Index>(),
        second in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(TELLING)), 0..6),
    ) {
        let seeds = corpus();
        let (first, second) = (first.get(&seeds), second.get(&seeds));
        // The beginning of one and the end of another.
        let mut data = first[..cut.index(first.len())].to_vec();
        data.extend_from_slice(&second[cut.index(second.len())..]);
        for (at, byte) in changes {
            let at = at.index(data.len());
            data[at] = byte;
        }
        fuzz_states(&data);
    }
}
