//! Holds the rooms of the crate to one direction: each imports from, and calls, only those below it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom up; a module that is one file is a room of its own. The crate's root and the fuzz targets are above all of
/// them. ARCHITECTURE.md says what each is for.
const ROOMS: [&str; 27] = [
    "peer",
    "session_id",
    "keys",
    "random",
    "stream",
    "snapshot",
    "outbox",
    "listener",
    "plan",
    "stats",
    "shared",
    "context",
    "session",
    "server",
    "pool",
    "diagnostics",
    "recovery",
    "reply",
    "work",
    "answers",
    "statement",
    "client",
    "worker",
    "verifier",
    "io",
    "service",
    "fuzzing",
];

/// The crates that this one calls.
const CRATES: [&str; 8] =
    ["protocol", "sql", "session", "routing", "topology", "config", "query-log", "uring"];

/// Names of functions here that the standard library has as well: a call of one of them may be anybody's.
const SHARED_NAMES: &str = "as_fd channel clear close contains drain drop extend fetch filter find first flush from get insert \
    is_empty iter join last len map message new next open put query read remove send skip take write";

/// A file: its room, and its text without comments, strings and unit tests.
struct Source {
    path: PathBuf,
    room: usize,
    text: String,
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn texts_of_crate(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    files(&root).iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect()
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    for path in files(&root) {
        let place = path.strip_prefix(&root).unwrap_or(&path).to_path_buf();
        let first = place.iter().next().unwrap_or_default().to_string_lossy();
        let name = first.trim_end_matches(".rs");
        if name == "lib" || place.ends_with("tests.rs") {
            continue;
        }
        let room = ROOMS.iter().position(|known| *known == name);
        let room = room.unwrap_or_else(|| panic!("{} is in no room", place.display()));
        let text = fs::read_to_string(&path).unwrap_or_default();
        let text = bare(text.split("#[cfg(test)]\nmod ").next().unwrap_or_default());
        sources.push(Source { path: place, room, text });
    }
    sources
}

/// The text without comments and strings.
fn bare(text: &str) -> String {
    let mut bare = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        bare.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("'\"'") || rest.starts_with("'/'") {
            3
        } else if let Some(string) = rest.strip_prefix('"') {
            let mut is_escaped = false;
            let is_end = |c: char| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            };
            string.find(is_end).map_or(rest.len(), |at| at + 2)
        } else {
            bare.push_str(&rest[..1]);
            1
        };
        rest = &rest[end..];
    }
    bare + rest
}

/// The identifiers of a text, each with what stands before and behind it.
fn identifiers(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let begin = at + text[at..].find(is_part)?;
        let end = text[begin..].find(|c| !is_part(c)).map_or(text.len(), |len| begin + len);
        at = end;
        Some((&text[..begin], &text[begin..end], &text[end..]))
    })
}

#[test]
fn rooms_import_from_those_below_them() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for Source { path, room, text } in sources() {
        for used in text.split("crate::").skip(1) {
            let (_, used, _) = identifiers(used).next().unwrap();
            let found = ROOMS.iter().position(|known| *known == used);
            if found.is_none_or(|found| found > room) {
                wrong.push(format!("{} uses crate::{used}", path.display()));
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "of a room above: {wrong:#?}");
    assert!(seen > 600, "only {seen} imports were found");
}

/// Methods need no import, and so an arrow may hide in a call: each function whose name is the only one of its kind is looked
/// for.
#[test]
fn rooms_call_those_below_them() {
    let sources = sources();
    let others: String = CRATES.map(texts_of_crate).concat();
    let of_others =
        identifiers(&others).filter(|(before, ..)| before.ends_with("fn ")).map(|(_, name, _)| name);
    let shared: HashSet<&str> = SHARED_NAMES.split_whitespace().chain(of_others).collect();
    let mut functions: HashMap<&str, Vec<&Source>> = HashMap::new();
    for source in &sources {
        for (before, name, _) in identifiers(&source.text) {
            if before.ends_with("fn ") && !shared.contains(name) {
                functions.entry(name).or_default().push(source);
            }
        }
    }
    functions.retain(|_, places| places.len() == 1);
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for source in &sources {
        for (before, name, behind) in identifiers(&source.text) {
            let is_call = behind.starts_with('(') && !before.ends_with("fn ");
            let Some(place) = functions.get(name).filter(|_| is_call).and_then(|places| places.first())
            else {
                continue;
            };
            if place.room > source.room {
                wrong.push(format!("{} calls {name}() of {}", source.path.display(), place.path.display()));
            }
            seen += usize::from(place.room != source.room);
        }
    }
    assert!(
        wrong.is_empty(),
        "of a room above (one of std's functions belongs into SHARED_NAMES): {wrong:#?}"
    );
    assert!(seen > 500, "only {seen} calls were found");
}
