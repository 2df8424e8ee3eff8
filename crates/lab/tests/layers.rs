//! Holds what measures to addresses and accounts: only `servers` knows the servers that tests start.

use std::fs;
use std::path::{Path, PathBuf};

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn only_one_module_knows_the_testkit() {
    let files = files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(files.len() > 20, "only {} files were found", files.len());
    let is_of_servers = |path: &&PathBuf| {
        path.ends_with("servers.rs") || path.parent().is_some_and(|dir| dir.ends_with("servers"))
    };
    for path in files.iter().filter(|path| !is_of_servers(path)) {
        let text = fs::read_to_string(path).unwrap();
        let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        assert!(!code.any(|line| line.contains("testkit")), "{}", path.display());
    }
}
