//! Holds the crate's modules to one direction: each uses only those of its own layer and of the layers below, and no two
//! modules of a layer use each other, directly or by way of others.

use std::collections::BTreeMap;
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

/// `model::config` for `src/model/config.rs`.
fn module_of(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).expect("a path below it").with_extension("");
    let parts: Vec<&str> = inside.iter().map(|part| part.to_str().expect("a name in ASCII")).collect();
    parts.join("::")
}

/// What stands behind each `crate::` of a text, up to the two names that a module has here.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let mut names = rest.splitn(3, "::");
        let (Some(layer), Some(next)) = (names.next(), names.next()) else { continue };
        match next.strip_prefix('{').and_then(|list| list.split_once('}')) {
            Some((list, _)) => found.extend(list.split(',').map(|name| format!("{layer}::{}", name.trim()))),
            None => {
                let end = next.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(next.len());
                found.push(format!("{layer}::{}", &next[..end]));
            }
        }
    }
    found
}

/// The modules from `module` back to itself, if one leads there.
fn circle<'u>(
    uses: &'u BTreeMap<String, Vec<String>>,
    module: &'u str,
    way: &mut Vec<&'u str>,
    done: &mut Vec<&'u str>,
) -> Option<String> {
    if let Some(at) = way.iter().position(|known| *known == module) {
        return Some(format!("{} -> {module}", way[at..].join(" -> ")));
    }
    if done.contains(&module) {
        return None;
    }
    way.push(module);
    let found = uses[module].iter().find_map(|used| circle(uses, used, way, done));
    way.pop();
    done.push(module);
    found
}

#[test]
fn no_modules_use_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let sources: BTreeMap<String, String> = LAYERS
        .iter()
        .flat_map(|layer| files(&root.join(layer)))
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| (module_of(&root, &path), fs::read_to_string(&path).expect("a source")))
        .collect();
    let uses: BTreeMap<String, Vec<String>> = sources
        .iter()
        .map(|(module, text)| {
            let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let used = paths(&code).into_iter().filter(|used| used != module && sources.contains_key(used));
            (module.clone(), used.collect())
        })
        .collect();
    let arrows: usize = uses.values().map(Vec::len).sum();
    assert!(arrows > 100, "only {arrows} uses were found");
    let mut done = Vec::new();
    let found: Vec<String> =
        uses.keys().filter_map(|module| circle(&uses, module, &mut Vec::new(), &mut done)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn circles_are_found() {
    let text = "use crate::model::{config, users};\nlet x = crate::check::clusters::distinct(1);";
    assert_eq!(paths(text), ["model::config", "model::users", "check::clusters"]);
    let uses: [(&str, &[&str]); 4] = [("a", &["b"]), ("b", &["c"]), ("c", &["b"]), ("d", &[])];
    let uses =
        uses.map(|(module, used)| (module.to_owned(), used.iter().map(|used| (*used).to_owned()).collect()));
    let uses = BTreeMap::from(uses);
    let of = |module| circle(&uses, module, &mut Vec::new(), &mut Vec::new());
    assert_eq!(of("a").as_deref(), Some("b -> c -> b"));
    assert_eq!(of("d"), None);
}
