//! Holds the crate's modules to one direction: each uses only those of its own layer and of the layers below.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up. The crate's root is above all of them.
const LAYERS: [&str; 7] = ["value", "table", "report", "field", "model", "check", "read"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn modules_use_those_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for (height, layer) in LAYERS.iter().enumerate() {
        for path in files(&root.join(layer)).iter().filter(|path| !path.ends_with("tests.rs")) {
            for line in
                fs::read_to_string(path).unwrap().lines().filter(|line| !line.trim_start().starts_with("//"))
            {
                for used in line.split("crate::").skip(1) {
                    let used = used.split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
                    let found = LAYERS.iter().position(|known| *known == used);
                    assert!(found.is_some_and(|found| found <= height), "{}: {line}", path.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} imports were found");
}
