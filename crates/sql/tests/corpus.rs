//! Runs the fuzz targets' functions over `fuzz/corpus/`, every beginning of its files and seeded mutations of
//! them, so that an ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_sql::fuzzing::{fuzz_digest, fuzz_scan};

static SCAN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| corpus("sql_scan"));
static DIGEST: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| corpus("sql_digest"));

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
    for (corpus, run) in [(&SCAN, fuzz_scan as fn(&[u8])), (&DIGEST, fuzz_digest)] {
        for seed in corpus.iter() {
            for end in 0..=seed.len() {
                run(&seed[..end]);
            }
        }
    }
}

/// Bytes that begin or end something.
const TELLING: &[u8] = b"'\"`\\/*!+-# \n\0;:=@.,()$x0eM?N\x95\x5c\x81\x60\xa0\xff";

/// Two files of a corpus, where the first is cut and the second begins, and bytes that are replaced.
type Mutation = ((Index, Index), (Index, Index), Vec<(Index, u8)>);

fn mutation() -> impl Strategy<Value = Mutation> {
    let change = (any::<Index>(), prop::sample::select(TELLING.to_vec()));
    (any::<(Index, Index)>(), any::<(Index, Index)>(), prop::collection::vec(change, 0..4))
}

/// The beginning of one file and the end of another.
fn mutated(corpus: &[Vec<u8>], ((first, second), (end, start), changes): Mutation) -> Vec<u8> {
    let (first, second) = (first.get(corpus), second.get(corpus));
    let mut data = first[..end.index(first.len())].to_vec();
    data.extend_from_slice(&second[start.index(second.len())..]);
    for (at, byte) in changes {
        let at = at.index(data.len());
        data[at] = byte;
    }
    data
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn mutations_for_scan(mutation in mutation()) {
        fuzz_scan(&mutated(&SCAN, mutation));
    }

    #[test]
    fn mutations_for_digest(mutation in mutation()) {
        fuzz_digest(&mutated(&DIGEST, mutation));
    }
}
