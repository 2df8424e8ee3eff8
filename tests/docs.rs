//! Checks the documentation: every link leads to a file and a heading that exist, the guide's index has every page, and
//! the paths and names that the pages for developers give are in the repository; and that the modules' descriptions
//! begin with what a module does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()
}

/// The files below these folders, by the ends of their names, as paths from the root.
fn files(folders: &[&str], ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = folders.iter().map(PathBuf::from).collect();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder").filter_map(Result::ok) {
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|end| ends.iter().any(|wanted| end == *wanted)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a page outside of its blocks of code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_border = line.trim_start().starts_with("```");
        is_code ^= is_border;
        (!is_code && !is_border).then_some((at + 1, line))
    })
}

/// The name by which a link finds a heading: its letters and digits in lower case, with hyphens for blanks.
fn slug(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings =
        prose(text).filter_map(|(_, line)| line.trim_start_matches('#').strip_prefix(' ').zip(Some(line)));
    headings.filter(|(_, line)| line.starts_with('#')).map(|(heading, _)| slug(heading)).collect()
}

/// What stands in the brackets of `[text](target)` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// `docs/guide/x.md` and `docs/guide/x.md#y` in a line of code.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("docs/").filter_map(|(at, _)| {
        let rest = &line[at..];
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/.-_#".contains(c)).unwrap_or(rest.len());
        let mention = rest[..end].trim_end_matches('.');
        mention.contains(".md").then_some(mention)
    })
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Pages with their anchors, read once.
#[derive(Default)]
struct Pages(BTreeMap<PathBuf, BTreeSet<String>>);

impl Pages {
    /// Why a target can't be found from `folder`.
    fn fault(&mut self, folder: &Path, page: &Path, target: &str) -> Option<String> {
        let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
        let path = if path.is_empty() { page.to_owned() } else { plain(&folder.join(path)) };
        if !root().join(&path).exists() {
            return Some(format!("{target}: there is no {}", path.display()));
        }
        if anchor.is_empty() {
            return None;
        }
        let anchors = self.0.entry(path.clone()).or_insert_with(|| anchors(&read(&path)));
        (!anchors.contains(anchor)).then(|| format!("{target}: {} has no such heading", path.display()))
    }
}

fn markdown() -> Vec<PathBuf> {
    let mut pages = files(&["docs"], &["md"]);
    let top = fs::read_dir(root()).expect("the root").filter_map(Result::ok);
    pages.extend(
        top.map(|entry| PathBuf::from(entry.file_name()))
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    pages
}

#[test]
fn links_lead_somewhere() {
    let (mut pages, mut faults, mut links) = (Pages::default(), Vec::new(), 0);
    for page in markdown() {
        let folder = page.parent().unwrap_or(Path::new(""));
        for (at, line) in prose(&read(&page)) {
            for target in targets(line).filter(|target| !target.contains("://")) {
                links += 1;
                let fault = pages.fault(folder, &page, target);
                faults.extend(fault.map(|fault| format!("{}:{at}: {fault}", page.display())));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(links > 200, "only {links} links were found");
}

#[test]
fn pages_that_code_names_exist() {
    let (mut pages, mut faults, mut seen) = (Pages::default(), Vec::new(), 0);
    for file in files(&["crates", "tests", "scripts"], &["rs", "toml", "py", "txt"]) {
        // This one has examples.
        if file == Path::new("tests/docs.rs") {
            continue;
        }
        for (at, line) in read(&file).lines().enumerate() {
            for mention in mentions(line) {
                seen += 1;
                let fault = pages.fault(Path::new(""), Path::new(""), mention);
                faults.extend(fault.map(|fault| format!("{}:{}: {fault}", file.display(), at + 1)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 10, "only {seen} pages are named");
}

/// The pages that lead through the code.
const MAPS: [&str; 2] = ["ARCHITECTURE.md", "CONTRIBUTING.md"];
/// The folders of the repository whose paths these pages give.
const FOLDERS: [&str; 6] = ["crates", "tests", "docs", "scripts", "fuzz", "packaging"];

/// The paths in a line: of sources (from the root, or their ends), and of anything in the repository's folders.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
    let words = words.map(|word| word.trim_end_matches(['.', '/']));
    words.filter(|word| {
        let is_from_root = word.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder));
        word.ends_with(".rs") || is_from_root
    })
}

/// `path.rs: name` in a line: the path, and the last part of the first name.
fn names(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|code| {
        let (path, name) = code.split_once(": ")?;
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && !"_:".contains(c)).unwrap_or(name.len());
        let name = name[..end].rsplit("::").next()?;
        (path.ends_with(".rs") && !name.is_empty()).then_some((path, name))
    })
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(|found| found == word)
}

#[test]
fn paths_and_names_in_the_pages_for_developers_exist() {
    let sources = files(&["crates", "tests", "fuzz/fuzz_targets"], &["rs"]);
    let ending =
        |path: &str| -> Vec<&PathBuf> { sources.iter().filter(|known| known.ends_with(path)).collect() };
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in MAPS {
        for (at, line) in read(Path::new(page)).lines().enumerate() {
            let place = format!("{page}:{}", at + 1);
            for path in paths(line) {
                seen += 1;
                if !root().join(path).exists() && ending(path).is_empty() {
                    faults.push(format!("{place}: there is no {path}"));
                }
            }
            for (path, name) in names(line) {
                seen += 1;
                if !ending(path).iter().any(|source| has_word(&read(source), name)) {
                    faults.push(format!("{place}: {path} has no {name}"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 300, "only {seen} paths and names were found");
}

/// Words that end as verbs in the third person do, and are none.
const NO_VERBS: &str = "Addresses Always Asynchronous Bytes Clients Clusters Columns Commands Components Connections \
    Counters Cursors Defaults Diagnostics Errors Events Facts Listeners Logins Messages Nodes Options Parts \
    Programs Properties Queries Rights Roles Rows Scenarios Servers Sessions Statements Status Tables This \
    Threads Timers Types Users Values Variables Warnings Weirs Whereas Words Workers";

/// Whether a module's description begins with what the module does.
fn begins_with_verb(first_line: &str) -> bool {
    let word = first_line.split([' ', ',']).next().unwrap_or_default();
    let is_word =
        word.starts_with(|c: char| c.is_ascii_uppercase()) && word.chars().all(|c| c.is_ascii_alphabetic());
    is_word && word.ends_with('s') && NO_VERBS.split_whitespace().all(|noun| noun != word)
}

#[test]
fn every_module_begins_with_what_it_does() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for file in files(&["crates"], &["rs"]) {
        if file.components().nth(2).is_none_or(|folder| folder.as_os_str() != "src") {
            continue;
        }
        seen += 1;
        let text = read(&file);
        let first = text.lines().find_map(|line| line.strip_prefix("//!")).unwrap_or_default().trim();
        if !begins_with_verb(first) {
            faults.push(format!("{}: {first:?}", file.display()));
        }
    }
    assert!(faults.is_empty(), "no verb (\"Chooses the server for a statement.\"):\n{}", faults.join("\n"));
    assert!(seen > 500, "only {seen} modules were found");
}

#[test]
fn verbs_are_told_from_nouns() {
    let told = [
        "Chooses, when due, the server.",
        "Which server?",
        "Servers of a group.",
        "COM_QUERY",
        "A server",
        "",
    ]
    .map(begins_with_verb);
    assert_eq!(told, [true, false, false, false, false, false]);
}

/// `weir_x::y::z` in a line of a log: a module of the crate `x`, or of the binary.
fn modules(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let words = words.map(|word| word.trim_end_matches(':'));
    words.filter(|word| word.starts_with("weir") && word.contains("::"))
}

/// Whether the sources have this module.
fn is_module(module: &str) -> bool {
    let mut parts = module.split("::");
    let crate_name = parts.next().unwrap_or_default().replace('_', "-");
    let folder =
        root().join("crates").join(crate_name.strip_prefix("weir-").unwrap_or(&crate_name)).join("src");
    let path = parts.fold(folder, |path, part| path.join(part));
    path.with_extension("rs").is_file() || path.join("mod.rs").is_file()
}

#[test]
fn modules_in_samples_of_logs_exist() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for page in files(&["docs"], &["md"]) {
        for (at, line) in read(&page).lines().enumerate() {
            for module in modules(line) {
                seen += 1;
                if !is_module(module) {
                    faults.push(format!("{}:{}: there is no module {module}", page.display(), at + 1));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(seen > 10, "only {seen} modules are named");
}

#[test]
fn modules_are_found_in_lines() {
    let line = "INFO weir_monitor::topology_thread: writer; INFO weir::serve: listening";
    assert_eq!(modules(line).collect::<Vec<_>>(), ["weir_monitor::topology_thread", "weir::serve"]);
    assert!(is_module("weir_monitor::topology_thread") && is_module("weir::serve"));
    assert!(!is_module("weir_monitor::owner"));
}

#[test]
fn paths_and_names_are_found_in_lines() {
    let line = "| rule | `pool/lease.rs: Lease::release`, `recycle`; `tests/e2e/`. See docs/guide, and/or `relay.rs` |";
    assert_eq!(paths(line).collect::<Vec<_>>(), ["pool/lease.rs", "tests/e2e", "docs/guide", "relay.rs"]);
    assert_eq!(names(line).collect::<Vec<_>>(), [("pool/lease.rs", "release")]);
}

#[test]
fn the_index_has_every_page() {
    let index = read(Path::new("docs/guide/README.md"));
    let linked: BTreeSet<&str> = index.lines().flat_map(targets).collect();
    let pages = files(&["docs/guide"], &["md"]);
    let names = pages.iter().filter_map(|page| page.file_name()?.to_str());
    let missing: Vec<&str> = names.filter(|name| *name != "README.md" && !linked.contains(name)).collect();
    assert!(missing.is_empty(), "docs/guide/README.md does not link {missing:?}");
}

/// The most words of a page of the guide: what is read in five minutes.
const PAGE_WORDS_MAX: usize = 1_200;
/// Pages that are made from the code, to look things up.
const MADE_PAGES: [&str; 2] = ["docs/guide/reference.md", "docs/guide/metrics-reference.md"];

#[test]
fn pages_of_the_guide_are_short() {
    let pages = files(&["docs/guide"], &["md"]).into_iter();
    let counted = pages.map(|page| (read(&page).split_whitespace().count(), page));
    let long: Vec<String> = counted
        .filter(|(words, page)| {
            *words > PAGE_WORDS_MAX && !MADE_PAGES.iter().any(|made| page == Path::new(made))
        })
        .map(|(words, page)| {
            format!("{}: {words} words, more than {PAGE_WORDS_MAX}: split it", page.display())
        })
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

#[test]
fn headings_become_anchors_as_on_github() {
    let text = "# Weir's own errors\n```\n# no heading\n```\n## [[weir_topology]]\n### The two, and `one`\n#no-blank\n";
    let wanted = ["weirs-own-errors", "weir_topology", "the-two-and-one"].map(str::to_owned);
    assert_eq!(anchors(text), BTreeSet::from(wanted));
}
