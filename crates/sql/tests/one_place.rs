//! Values are put into statements in `literal.rs` and nowhere else: looks through the sources of all that is shipped.

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: [&str; 15] = [
    "admin",
    "client",
    "config",
    "eviction",
    "monitor",
    "operations",
    "proxy",
    "proxy-sync",
    "routing",
    "session",
    "sql",
    "statistics",
    "store",
    "topology",
    "weir",
];

/// What a statement that is put together begins with, or has in the middle.
const VERBS: [&str; 12] = [
    "\"SELECT ",
    "\"SET ",
    "\"INSERT ",
    "\"UPDATE ",
    "\"DELETE ",
    "\"CHANGE ",
    "\"STOP ",
    "\"RESET ",
    "\"KILL ",
    " WHERE ",
    " LIKE ",
    " VALUES ",
];

#[test]
fn quotes_are_put_around_values_in_one_place() {
    let mut found = Vec::new();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src"), &mut files);
        assert!(!files.is_empty(), "{name}");
        for file in files.iter().filter(|file| !file.ends_with("sql/src/literal.rs")) {
            let text = fs::read_to_string(file).expect("sources are text");
            // Tests follow what they test.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            let lines = code.lines().enumerate().filter(|(_, line)| quotes_a_value(line));
            found.extend(lines.map(|(at, line)| format!("{}:{}: {}", file.display(), at + 1, line.trim())));
        }
    }
    assert!(found.is_empty(), "these belong into sql/src/literal.rs:\n{}", found.join("\n"));
}

#[test]
fn what_is_looked_for_is_found() {
    for line in [
        r#"format!("SELECT GET_LOCK('{name}', 0)")"#,
        r#"format!("... WHERE a = '{}'", a)"#,
        r#"text.replace('\'', "''")"#,
        r#"name.replace('`', "``")"#,
    ] {
        assert!(quotes_a_value(line), "{line}");
    }
    assert!(!quotes_a_value(r#"format!("Unknown system variable '{name}'")"#));
}

fn quotes_a_value(line: &str) -> bool {
    let line = line.trim();
    if line.starts_with("//") {
        return false;
    }
    let doubles = ["replace('\\'', \"''\"", "replace(\"'\"", "replace('`'", "replace('\"', \"\\\"\\\"\""];
    doubles.iter().any(|pattern| line.contains(pattern))
        || (["'{", "\\\"{", "`{"].iter().any(|quote| line.contains(quote))
            && VERBS.iter().any(|verb| line.contains(verb)))
        // In the middle of a statement of several lines.
        || ["= '{}'", "= '{}\"", "('{}'"].iter().any(|part| line.contains(part))
}

fn sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("a directory can be read").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, files);
        } else if path.is_file()
            && path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("tests.rs")
        {
            files.push(path);
        }
    }
}
