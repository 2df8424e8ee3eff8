//! The guide's tables of variables say what holds.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::names::{Effect, variables};

fn page(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The variables of a table's row, and the words on their defaults. `..._x` goes on with the name before.
fn row(line: &str) -> Option<(Vec<String>, Vec<String>)> {
    let mut cells = line.strip_prefix("| `")?.split(" | ");
    let names: Vec<&str> = cells.next()?.split(", ").map(|name| name.trim_matches('`')).collect();
    let first = names.first()?.rsplit_once('_').map_or("", |(stem, _)| stem);
    let names = names.iter().map(|name| name.replacen("...", first, 1)).collect();
    let defaults = cells.next()?.split(", ").map(|text| text.trim_matches('`').to_owned()).collect();
    Some((names, defaults))
}

/// A default as a page writes it: `none`, `28800000 (8 h)`, `1,000,000`, `120 s`.
fn is_said(said: &str, default: &str) -> bool {
    let plain = said.split(" (").next().unwrap_or(said).replace(',', "");
    let said = plain.strip_suffix(" s").unwrap_or(&plain);
    let is_off = matches!(default, "" | "false" | "0") && matches!(said, "none" | "empty" | "false" | "0");
    said == default || is_off
}

#[test]
fn defaults_of_variables_are_those_of_the_guide() {
    // A machine's own, and the servers'.
    const NO_VALUE: [&str; 2] = ["threads", "server_version"];
    let configuration = page("configuration.md");
    let (_, of_variables) = configuration.split_once("## [mysql_variables]").expect("a section of variables");
    let digests = page("statistics.md");
    let (of_digests, _) = digests.split_once("What is counted:").expect("a section of digests");
    let mut seen = 0;
    for line in of_variables.lines().chain(of_digests.lines()) {
        let Some((names, defaults)) = row(line) else { continue };
        let known = |name: &String| {
            let is_it = |variable: &&crate::names::Variable| {
                variable.module == "mysql" && variable.name == name && !NO_VALUE.contains(&variable.name)
            };
            variables().iter().find(is_it)
        };
        for (at, variable) in names.iter().map(known).enumerate() {
            let Some(variable) = variable else { continue };
            let said = defaults.get(at).or(defaults.first()).expect("a default");
            assert!(is_said(said, variable.default_value()), "{}: {said} in {line}", variable.name);
            seen += 1;
        }
    }
    assert!(seen > 70, "only {seen} variables were found");
}

/// Whether its beginning or its end stands for several: `admin-cluster_mysql_users_...`, `..._timeout`, `_save_to_disk`.
fn is_of_family(text: &str, name: &str) -> bool {
    let mut cuts = name.match_indices('_').map(|(at, _)| name.split_at(at + 1));
    cuts.any(|(begin, end)| {
        let written = [format!("{begin}...`"), format!("`..._{end}`"), format!("`_{end}`")];
        written.iter().any(|form| text.contains(form))
    })
}

#[test]
fn every_variable_that_counts_is_in_the_guide() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let pages = fs::read_dir(folder).expect("the guide").filter_map(Result::ok);
    let text: String = pages.filter_map(|page| fs::read_to_string(page.path()).ok()).collect();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let missing: Vec<String> = variables()
        .iter()
        .filter(|variable| variable.effect == Effect::Built && !words.contains(variable.name))
        .filter(|variable| !is_of_family(&text, variable.name))
        .map(crate::names::Variable::full_name)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
