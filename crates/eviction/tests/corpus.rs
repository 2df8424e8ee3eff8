//! Runs the fuzz targets' functions over their corpora, every beginning of the files and seeded mutations of them, so
//! that an ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::num::NonZero;
use std::path::Path;

use proptest::prelude::*;
use weir_eviction::fuzzing::fuzz_membership;

/// Bytes that begin or end something.
const TELLING: &[u8] = b"\t\n:,;=019-aZ \xFF";

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

fn every_beginning(target: &str, fuzz: fn(&[u8])) {
    for seed in corpus(target) {
        (0..=seed.len()).for_each(|end| fuzz(&seed[..end]));
    }
}

#[test]
fn every_beginning_of_server_states() {
    every_beginning("server_states", fuzz_membership);
}

/// The beginning of one seed and the end of another, with some bytes changed.
fn mutations(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let seeds = corpus(target);
    let index = any::<prop::sample::Index>;
    let changes = prop::collection::vec((index(), prop::sample::select(TELLING)), 0..6);
    ((index(), index()), (index(), index()), changes).prop_map(move |((first, second), cut, changes)| {
        let (first, second) = (first.get(&seeds), second.get(&seeds));
        let mut data = first[..cut.0.index(first.len())].to_vec();
        data.extend_from_slice(&second[cut.1.index(second.len())..]);
        for (at, byte) in changes {
            if let Some(len) = NonZero::new(data.len()) {
                data[at.index(len.get())] = byte;
            }
        }
        data
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn mutations_of_server_states(data in mutations("server_states")) {
        fuzz_membership(&data);
    }
}
