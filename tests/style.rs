//! Checks what CONTRIBUTING.md says of the sizes of files and functions of the product.

use std::fs;
use std::path::{Path, PathBuf};

/// The most lines of a file.
const FILE_LINES_MAX: usize = 600;
/// The most lines of a function: "about 70".
const FUNCTION_LINES_MAX: usize = 80;
/// Lists that nobody reads from the top down.
const LISTS: [&str; 1] = ["crates/protocol/src/charset/table.rs"];

/// The product's sources, as paths from the root.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned();
    let mut open: Vec<PathBuf> = fs::read_dir(root.join("crates"))
        .expect("the crates")
        .filter_map(|entry| Some(entry.ok()?.path().join("src")))
        .collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).expect("a folder").filter_map(|entry| Some(entry.ok()?.path())));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let name = path.strip_prefix(&root).expect("a path below the root").display().to_string();
            if !LISTS.contains(&name.as_str()) && !is_test(&name) {
                found.push((name, fs::read_to_string(&path).expect("a source")));
            }
        }
    }
    found.sort();
    assert!(found.len() > 500, "only {} sources were found", found.len());
    found
}

fn is_test(name: &str) -> bool {
    name.ends_with("/tests.rs") || name.contains("/tests/")
}

/// Each function of a source as `cargo fmt` writes it, with its lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words = line.trim_start();
        let indent = &line[..line.len() - words.len()];
        let Some(name) = name_of_function(words) else { continue };
        let Some(head) = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';'])) else {
            continue;
        };
        if !lines[at + head].ends_with('{') {
            continue;
        }
        let is_end = |line: &&str| line.strip_prefix(indent) == Some("}");
        if let Some(length) = lines[at..].iter().position(is_end) {
            found.push((name, length + 1));
        }
    }
    found
}

/// The name in `pub(crate) fn name(...`; nothing in a comment or an expression.
fn name_of_function(words: &str) -> Option<&str> {
    let (before, rest) = words.split_once("fn ")?;
    let is_qualifier = |word: &str| word.starts_with("pub") || ["const", "async", "unsafe"].contains(&word);
    let name = rest.split(['(', '<']).next()?;
    before.split_whitespace().all(is_qualifier).then_some(name)
}

#[test]
fn files_are_short() {
    let lines = sources().into_iter().map(|(name, text)| (text.lines().count(), name));
    let long: Vec<String> = lines
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .map(|(lines, name)| {
            format!("{name}: {lines} lines, more than {FILE_LINES_MAX}: split it by meaning")
        })
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn functions_are_short() {
    let mut long = Vec::new();
    for (name, text) in sources() {
        for (function, lines) in functions(&text).into_iter().filter(|(_, lines)| *lines > FUNCTION_LINES_MAX)
        {
            long.push(format!("{name}: {function} has {lines} lines, more than {FUNCTION_LINES_MAX}"));
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn functions_are_found_with_their_lines() {
    let text = "trait T {\n    fn a(\n        &self,\n    );\n    pub(crate) const fn b<'a>(x: &'a u8) -> u8 {\n        *x\n    }\n}\nfn c() {}\n// a fn d() {\nlet e = fn f() {\n";
    assert_eq!(functions(text), [("b", 3)]);
}
