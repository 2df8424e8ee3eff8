//! Holds the guide's list of settings against the tables that declare them, and these against the code that reads them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use weir_config::{Column, Effect, Table, Variable, tables, variables};

const HEAD: &str = "# Reference: every table and variable\n\n\
    <!-- Made from the tables of crates/config by `WEIR_BLESS=1 cargo test -p weir-config --test reference`. -->\n\n\
    How to write them, and the rest of a configuration file: [the configuration](configuration.md). In a file, write a table's \
    rows as `[[table]]`,\nand the variables of `[mysql_variables]` and `[admin_variables]` without `mysql-` and `admin-`.\n\n\
    *Restart*: a change takes effect at the next start; all other changes with the reload or LOAD. *Local*: a setting of one \
    machine,\nnever [synchronised](proxies.md#what-is-synchronised).\n";

fn guide(page: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(page)
}

fn of_module(module: &str, effects: &[Effect]) -> impl Iterator<Item = &'static Variable> {
    variables().iter().filter(move |variable| variable.module == module && effects.contains(&variable.effect))
}

fn row(variable: &Variable) -> String {
    let (default, values) = (variable.shown_default(), variable.shown_values());
    let restart = if variable.needs_restart() { " *Restart*" } else { "" };
    let local = if variable.is_local() { " *Local*" } else { "" };
    let doc = variable.doc.replace('|', "\\|");
    format!("| `{}` | {default} | {values} | {doc}{restart}{local} |\n", variable.name)
}

fn is_built(table: &Table) -> bool {
    table.columns.iter().any(|column| column.effect != Effect::None)
}

fn column(column: &Column) -> String {
    let (doc, default, values) = (column.doc.replace('|', "\\|"), column.shown_default(), column.values());
    let not_built = match column.effect {
        Effect::OneValue if doc.is_empty() => "only the default is built",
        Effect::None => "not built",
        _ => "",
    };
    format!("| `{}` | {default} | {values} | {doc}{not_built} |\n", column.name)
}

fn reference() -> String {
    let mut page = HEAD.to_owned();
    for table in tables().iter().filter(|table| is_built(table)) {
        let head = "| column | default | values | meaning |\n| --- | --- | --- | --- |\n";
        let _ = write!(page, "\n## {}\n\n{head}", table.name);
        page.extend(table.columns.iter().map(column));
    }
    for module in ["mysql", "admin"] {
        let head = "| variable | default | values | meaning |\n| --- | --- | --- | --- |\n";
        let _ = write!(page, "\n## {module}_variables\n\n{head}");
        page.extend(of_module(module, &[Effect::Built, Effect::OneValue]).map(row));
    }
    let unbuilt = tables().iter().filter(|table| !is_built(table)).map(|table| format!("`{}`", table.name));
    let unbuilt = unbuilt.collect::<Vec<_>>().join(", ");
    let _ = write!(page, "\n## Known, and not built yet\n\nTables: {unbuilt}.\n");
    page += "\nVariables: Weir refuses a TOML file with one of these, unless the variable is in the first list and its value \
             means \"off\". In a `.cnf` and in a\ndatabase they have no effect; values other than ProxySQL's defaults cause \
             warnings.\n";
    for (effect, what) in [(Effect::OnlyOff, "Always off"), (Effect::None, "Without effect")] {
        for module in ["mysql", "admin"] {
            let names: Vec<String> =
                of_module(module, &[effect]).map(|variable| format!("`{}`", variable.full_name())).collect();
            let _ = write!(page, "\n{what}: {}.\n", names.join(", "));
        }
    }
    page
}

#[test]
fn the_reference_is_made_from_the_tables() {
    let (path, made) = (guide("reference.md"), reference());
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(made.lines()).find(|(there, made)| there != made);
    assert!(
        there == made,
        "docs/guide/reference.md: write it with WEIR_BLESS=1; first difference: {differs:?}"
    );
}

#[test]
fn every_variable_that_counts_is_described() {
    for variable in
        variables().iter().filter(|variable| !matches!(variable.effect, Effect::OnlyOff | Effect::None))
    {
        assert!(!variable.doc.is_empty(), "{}", variable.full_name());
        assert_eq!(
            variable.field.is_empty(),
            variable.effect == Effect::OneValue,
            "{}",
            variable.full_name()
        );
    }
}

/// The sources in which values are used: not where they are declared and read, and no tests.
fn sources(folder: &Path, text: &mut String) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, text)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            text.extend(fs::read_to_string(&path)?.split("#[cfg(test)]").next());
        }
    }
    Ok(())
}

#[test]
fn every_variable_that_counts_is_used() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for entry in fs::read_dir(&crates).unwrap() {
        let path = entry.unwrap().path();
        match path.file_name().and_then(|name| name.to_str()) {
            // What it makes of variables for others is one file.
            Some("config") => text += &fs::read_to_string(path.join("src/model/topology.rs")).unwrap(),
            _ => sources(&path.join("src"), &mut text).unwrap(),
        }
    }
    let is_used = |field: &str| {
        let with_dot = format!(".{field}");
        text.match_indices(&with_dot).any(|(at, _)| {
            let next = text[at + with_dot.len()..].chars().next();
            next.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        })
    };
    assert!(!is_used("no_such_variable"));
    for variable in variables().iter().filter(|variable| variable.effect == Effect::Built) {
        assert!(is_used(variable.field), "nobody reads {}: it is not built", variable.full_name());
    }
}
