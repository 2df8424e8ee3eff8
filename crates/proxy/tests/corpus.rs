//! Runs the fuzz targets' functions over `fuzz/corpus` and over seeded mutations of it, so that an ordinary
//! `cargo test` covers what fuzzing found.

use std::fs;
use std::path::Path;

use weir_proxy::fuzzing;

/// Mutations for each target.
const MUTATIONS: usize = 4_000;

#[test]
fn core_client() {
    run("core_client", fuzzing::fuzz_core_client);
}

#[test]
fn core_server() {
    run("core_server", fuzzing::fuzz_core_server);
}

#[test]
fn core_aside() {
    run("core_aside", fuzzing::fuzz_core_aside);
}

fn run(target: &str, check: fn(&[u8])) {
    let seeds = corpus(target);
    for (name, seed) in &seeds {
        let _shown = ShownOnPanic(name, seed);
        check(seed);
        // Broken off anywhere.
        (0..seed.len().min(100)).for_each(|len| check(&seed[..len]));
    }
    let mut random = XorShift(0x5EED_0002);
    for _ in 0..MUTATIONS {
        let mut data = seeds[random.below(seeds.len())].1.clone();
        for _ in 0..=random.below(4) {
            mutate(&mut data, &mut random, &seeds);
        }
        let _shown = ShownOnPanic("a mutation", &data);
        check(&data);
    }
}

/// Prints what broke a rule.
struct ShownOnPanic<'a>(&'a str, &'a [u8]);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} (or a part of it): {}", self.0, self.1.escape_ascii());
        }
    }
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|reason| panic!("{}: {reason}", folder.display()));
    let mut seeds = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder that can be listed").path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        seeds.push((name, fs::read(&path).expect("a file that can be read")));
    }
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    seeds.sort();
    seeds
}

fn mutate(data: &mut Vec<u8>, random: &mut XorShift, seeds: &[(String, Vec<u8>)]) {
    /// Bytes that start or end something in the protocol.
    const TELLING: [u8; 12] = [0x00, 0x01, 0x02, 0x03, 0x16, 0x17, 0x7F, 0xFA, 0xFB, 0xFC, 0xFE, 0xFF];
    let at = random.below(data.len() + 1);
    match random.below(6) {
        0 => data.truncate(at),
        1 => data.insert(at, TELLING[random.below(TELLING.len())]),
        2 if at < data.len() => data[at] ^= 1 << random.below(8),
        3 if at < data.len() => data[at] = TELLING[random.below(TELLING.len())],
        4 if at < data.len() => drop(data.remove(at)),
        _ => {
            // The start of this one and the end of another.
            let other = &seeds[random.below(seeds.len())].1;
            data.truncate(at);
            data.extend_from_slice(&other[random.below(other.len() + 1)..]);
        }
    }
}

/// A seeded generator, so that a failure comes again.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
