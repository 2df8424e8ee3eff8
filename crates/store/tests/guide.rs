//! Holds the guide's lists of what goes from proxy to proxy against the tables and variables.

use std::collections::BTreeSet;
use std::path::Path;

use weir_config::{AdminVariables, Variable, is_secret_name, variables};
use weir_store::Module;

/// Never synchronised, though a table of a module that is.
const OF_ONE_MACHINE: &str = "weir_listeners";
const VARIABLES: &str = "global_variables";

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/proxies.md");
    std::fs::read_to_string(path).expect("the page")
}

/// The text between two others.
fn between<'p>(page: &'p str, begin: &str, end: &str) -> &'p str {
    let (_, rest) = page.split_once(begin).unwrap_or_else(|| panic!("{begin} is not there"));
    rest.split_once(end).unwrap_or_else(|| panic!("{end} is not there")).0
}

/// The names in backticks.
fn names(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The variables that have an effect.
fn built() -> impl Iterator<Item = &'static Variable> {
    variables().iter().filter(|variable| !variable.field.is_empty())
}

fn synchronised() -> Vec<Module> {
    let known = AdminVariables::default().cluster.modules.map(|module| module.name);
    Module::ALL.into_iter().filter(|module| known.contains(&module.name())).collect()
}

#[test]
fn every_synchronised_module_is_listed() {
    let page = page();
    let list = between(&page, "| module | variables |", "\n\n");
    for module in synchronised() {
        assert!(list.contains(&format!("`admin-cluster_{}_", module.name())), "{}", module.name());
    }
    assert_eq!(list.matches("`admin-cluster_").count(), synchronised().len());
}

#[test]
fn settings_of_one_machine_are_listed() {
    let page = page();
    let listed = names(between(&page, "- settings of one machine:", ".\n"));
    let local = built().filter(|variable| variable.is_local()).map(Variable::full_name);
    assert_eq!(listed, local.chain([OF_ONE_MACHINE.to_owned()]).collect());
}

#[test]
fn every_table_and_secret_that_is_sent_is_listed() {
    let page = page();
    let rows = between(&page, "| tables | secrets |\n| --- | --- |\n", "\n\n");
    let cells = |at: usize| rows.lines().filter_map(move |row| row.split('|').nth(at)).collect::<String>();
    let tables: Vec<_> = synchronised().into_iter().flat_map(Module::tables).collect();
    let sent = tables.iter().map(|table| table.name.clone());
    let sent = sent.filter(|name| name != OF_ONE_MACHINE && name != VARIABLES);
    let listed: BTreeSet<String> =
        names(&cells(1)).into_iter().filter(|name| !name.ends_with("...")).collect();
    assert_eq!(listed, sent.collect());
    let columns = tables.iter().flat_map(|table| &table.columns).map(|column| column.name.to_owned());
    let is_text = |variable: &&Variable| !["true", "false"].contains(&variable.default_value());
    let settings = built().filter(|variable| !variable.is_local()).filter(is_text).map(Variable::full_name);
    let secrets = names(&cells(2));
    for name in columns.chain(settings).filter(|name| is_secret_name(name)) {
        assert!(secrets.contains(&name), "{name} is sent, and not listed among the secrets");
    }
}
