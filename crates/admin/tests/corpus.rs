//! Runs the fuzz targets' functions over `fuzz/corpus/`, beginnings of its files and seeded mutations of them, so that an
//! ordinary `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use weir_admin::fuzzing::{fuzz_command, fuzz_prepared, fuzz_session, fuzz_sql};

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|reason| panic!("{}: {reason}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a folder that can be listed").path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "{} is empty", folder.display());
    paths.into_iter().map(|path| fs::read(path).expect("a file that can be read")).collect()
}

#[test]
fn every_beginning_of_commands_and_prepared_statements() {
    for (target, run) in [("admin_command", fuzz_command as fn(&[u8])), ("admin_prepared", fuzz_prepared)] {
        for seed in corpus(target) {
            for end in 0..=seed.len() {
                run(&seed[..end]);
            }
        }
    }
}

#[test]
fn beginnings_of_sql() {
    for seed in corpus("admin_sql") {
        for end in (0..seed.len()).step_by(7) {
            fuzz_sql(&seed[..end]);
        }
        fuzz_sql(&seed);
    }
}

/// Each has a whole admin interface, so that not every beginning is tried.
#[test]
fn sessions_that_end_anywhere() {
    for seed in corpus("admin_session") {
        for end in (0..seed.len()).step_by(seed.len() / 8 + 1) {
            fuzz_session(&seed[..end]);
        }
        fuzz_session(&seed);
    }
}

/// Two files of a corpus, where the first is cut and the second begins, and bytes that are replaced.
type Mutation = ((Index, Index), (Index, Index), Vec<(Index, u8)>);

fn any_mutation() -> impl Strategy<Value = Mutation> {
    let byte =
        prop_oneof![any::<u8>(), proptest::sample::select(b"'\"`\\/*-# \n\0;@.,()$=09AZaz".as_slice())];
    (
        any::<(Index, Index)>(),
        any::<(Index, Index)>(),
        proptest::collection::vec((any::<Index>(), byte), 0..4),
    )
}

fn mutated(corpus: &[Vec<u8>], ((first, second), (end, start), changes): Mutation) -> Vec<u8> {
    let (first, second) = (first.get(corpus), second.get(corpus));
    let mut bytes = first[..end.index(first.len() + 1)].to_vec();
    bytes.extend_from_slice(&second[start.index(second.len() + 1)..]);
    if !bytes.is_empty() {
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn mutations_of_commands(mutation in any_mutation()) {
        fuzz_command(&mutated(&corpus("admin_command"), mutation));
    }

    #[test]
    fn mutations_of_prepared_statements(mutation in any_mutation()) {
        fuzz_prepared(&mutated(&corpus("admin_prepared"), mutation));
    }

    #[test]
    fn mutations_of_sql(mutation in any_mutation()) {
        fuzz_sql(&mutated(&corpus("admin_sql"), mutation));
    }
}
