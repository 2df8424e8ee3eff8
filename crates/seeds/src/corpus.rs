//! Reads the corpora of the fuzz targets, and mutates them.

use std::fs;
use std::path::Path;

use crate::SplitMix;

/// Where the mutations of every run begin, so that a failure comes again.
const SEED: u64 = 0x5EED_0001;
/// The most changes of a mutation.
const CHANGES_MAX: usize = 5;

/// The seeds of a fuzz target, and what was found with it.
#[derive(Debug)]
pub struct Corpus {
    seeds: Vec<(String, Vec<u8>)>,
    telling: &'static [u8],
}

impl Corpus {
    /// The files of `fuzz/corpus/TARGET`. `telling` are bytes that begin or end something in what the target reads.
    ///
    /// # Panics
    /// If there are no files, or they can't be read.
    pub fn of(target: &str, telling: &'static [u8]) -> Corpus {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        let mut seeds: Vec<(String, Vec<u8>)> = entries
            .map(|entry| entry.expect("a folder that can be listed").path())
            .map(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (name, fs::read(&path).expect("a file that can be read"))
            })
            .collect();
        assert!(!seeds.is_empty(), "{} is empty", folder.display());
        seeds.sort();
        Corpus { seeds, telling }
    }

    /// How many seeds there are.
    pub fn files(&self) -> usize {
        self.seeds.len()
    }

    /// Shows the target every seed, and every beginning of it.
    pub fn beginnings(&self, check: fn(&[u8])) {
        self.beginnings_by(|_| 1, check);
    }

    /// Shows the target every seed, and every so many bytes' beginning of it: `step` says how many, by the seed's length.
    pub fn beginnings_by(&self, step: fn(usize) -> usize, check: fn(&[u8])) {
        for (name, seed) in &self.seeds {
            let _shown = ShownOnPanic(name, seed);
            (0..seed.len()).step_by(step(seed.len()).max(1)).for_each(|len| check(&seed[..len]));
            check(seed);
        }
    }

    /// Shows the target so many mutations: of one seed, or of the beginning of one and the end of another, with some bytes
    /// changed, put in or taken out. They are the same in every run.
    pub fn mutations(&self, count: usize, check: fn(&[u8])) {
        let mut random = SplitMix::new(SEED);
        for _ in 0..count {
            let mut data = self.any(&mut random).to_vec();
            if random.percent(50) {
                self.splice(&mut data, &mut random);
            }
            for _ in 0..random.below(CHANGES_MAX + 1) {
                self.change(&mut data, &mut random);
            }
            let _shown = ShownOnPanic("a mutation", &data);
            check(&data);
        }
    }

    fn any(&self, random: &mut SplitMix) -> &[u8] {
        &self.seeds[random.below(self.seeds.len())].1
    }

    /// The start of this one and the end of another.
    fn splice(&self, data: &mut Vec<u8>, random: &mut SplitMix) {
        data.truncate(random.below(data.len() + 1));
        let other = self.any(random);
        data.extend_from_slice(&other[random.below(other.len() + 1)..]);
    }

    fn change(&self, data: &mut Vec<u8>, random: &mut SplitMix) {
        let at = random.below(data.len() + 1);
        match random.below(7) {
            0 => data.truncate(at),
            1 => data.insert(at, random.pick(self.telling)),
            _ if at == data.len() => {}
            2 => data[at] ^= 1 << random.below(8),
            3 => drop(data.remove(at)),
            4 => data[at] = random.bytes(1)[0],
            _ => data[at] = random.pick(self.telling),
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn mutations_differ_and_come_again() {
        static SEEN: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
        let take = || std::mem::take(&mut *SEEN.lock().unwrap());
        let corpus = Corpus {
            seeds: vec![("one".into(), b"first".to_vec()), ("two".into(), b"".to_vec())],
            telling: b"'",
        };
        let note: fn(&[u8]) = |data| SEEN.lock().unwrap().push(data.to_vec());
        corpus.mutations(500, note);
        let seen = take();
        corpus.mutations(500, note);
        assert_eq!(seen, take());
        let different: std::collections::BTreeSet<_> = seen.into_iter().collect();
        assert!(different.len() > 100, "{}", different.len());
        corpus.beginnings_by(|_| 2, note);
        assert_eq!(take(), [&b""[..], b"fi", b"firs", b"first", b""]);
    }
}
