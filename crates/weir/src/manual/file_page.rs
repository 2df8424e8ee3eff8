//! Makes weir.toml(5) from the tables and variables that the configuration declares.

use std::io;

use clap_mangen::roff::{Inline, Roff, bold, roman};
use weir_config::{Column, Effect, Table, Variable, tables, variables};

use super::markdown::inlines;
use super::{MANUAL, Page};

const TITLE: &str = "weir.toml";

const DESCRIPTION: &[&str] = &[
    "The configuration of Weir in TOML. Tables, columns and variables have ProxySQL's names and, unless the guide says otherwise, \
     its meanings. Write a table's rows as `[[table]]`, and the variables of `[mysql_variables]` and `[admin_variables]` without \
     `mysql-` and `admin-`.",
    "An unknown key is refused, with the nearest known name. `weir check -c FILE` reports all errors of a file at once. \
     A change takes effect with SIGHUP, unless the setting is marked *Restart*. *Local* settings are never synchronised \
     between proxies. At the top level `datadir` names the directory for Weir's own files: `/var/lib/weir` if it is not given.",
    "The file contains passwords: only root and Weir's group should be able to read it.",
];

const EXAMPLE: &str = "\
[mysql_variables]
monitor_username = \"monitor\"
monitor_password = \"a long password\"

[[mysql_galera_hostgroups]]
writer_hostgroup = 100
backup_writer_hostgroup = 101
reader_hostgroup = 102
offline_hostgroup = 9101

[[mysql_servers]]
hostgroup_id = 100
hostname = \"10.0.0.11\"

[[mysql_users]]
username = \"app\"
password = \"another password\"
default_hostgroup = 100";

pub(super) fn page() -> io::Result<Page> {
    let mut page = Roff::new();
    let source = concat!("weir ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [TITLE, "5", "", source, MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman("weir.toml - configuration of weir(1)")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in DESCRIPTION {
        page.control("PP", []);
        page.text(inlines(paragraph));
    }
    page.control("SH", ["TABLES"]);
    for table in tables().iter().filter(|table| has_effect(table)) {
        add_table(table, &mut page);
    }
    page.control("SH", ["VARIABLES"]);
    for module in ["mysql", "admin"] {
        page.control("SS", [format!("[{module}_variables]").as_str()]);
        let built = |effect| matches!(effect, Effect::Built | Effect::OneValue);
        for variable in variables().iter().filter(|one| one.module == module && built(one.effect)) {
            add_variable(variable, &mut page);
        }
    }
    page.control("SH", ["EXAMPLES"]);
    page.text([roman("A Galera cluster of which one node is named:")]);
    page.control("PP", []);
    page.control("nf", []);
    for line in EXAMPLE.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["FILES"]);
    page.text([bold("/etc/weir/weir.toml"), roman(" where the packages' service looks for it")]);
    page.control("SH", ["SEE ALSO"]);
    page.text([roman("weir(1), weir-serve(1), weir-check(1)")]);
    let mut roff = Vec::new();
    page.to_writer(&mut roff)?;
    Ok(Page { name: format!("{TITLE}.5"), roff })
}

fn has_effect(table: &Table) -> bool {
    table.columns.iter().any(|column| column.effect != Effect::None)
}

fn add_table(table: &Table, page: &mut Roff) {
    page.control("SS", [format!("[[{}]]", table.name).as_str()]);
    for column in table.columns.iter().filter(|column| column.effect != Effect::None) {
        let facts = facts(&column.shown_default(), &column.values());
        add_setting(column.name, &facts, &described(column), page);
    }
}

fn described(column: &Column) -> String {
    let is_bare = column.effect == Effect::OneValue && column.doc.is_empty();
    if is_bare { "Only the default is built.".to_owned() } else { column.doc.to_owned() }
}

fn add_variable(variable: &Variable, page: &mut Roff) {
    let restart = if variable.needs_restart() { " *Restart*" } else { "" };
    let local = if variable.is_local() { " *Local*" } else { "" };
    let facts = facts(&variable.shown_default(), &variable.shown_values());
    add_setting(variable.name, &facts, &format!("{}{restart}{local}", variable.doc), page);
}

/// What is in force without the setting, and the values that it takes.
fn facts(default: &str, values: &str) -> String {
    let default = if default == "required" { default.to_owned() } else { format!("default: {default}") };
    if values.is_empty() { default } else { format!("{default}; {values}") }
}

fn add_setting(name: &str, facts: &str, doc: &str, page: &mut Roff) {
    page.control("TP", []);
    let mut head = vec![bold(name), roman(" (")];
    head.extend(inlines(facts));
    head.push(roman(")"));
    page.text(head);
    let text = inlines(doc);
    page.text(if text.is_empty() { vec![Inline::LineBreak] } else { text });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        String::from_utf8(page().unwrap().roff).unwrap()
    }

    #[test]
    fn every_setting_with_an_effect_is_in_the_page() {
        let text = text();
        // As it stands in the page, where hyphens are escaped.
        let is_there = |name: &str| text.contains(&format!("\n.TP\n\\fB{}\\fR (", name.replace('-', "\\-")));
        let columns = tables().iter().flat_map(|table| table.columns);
        for column in columns.filter(|column| column.effect != Effect::None) {
            assert!(is_there(column.name), "{}", column.name);
        }
        for variable in variables() {
            let built = matches!(variable.effect, Effect::Built | Effect::OneValue);
            assert!(!built || is_there(variable.name), "{}", variable.name);
        }
        assert!(!is_there("nonsense"));
    }

    #[test]
    fn the_example_is_a_configuration() {
        let config = weir_config::parse(EXAMPLE, "example").unwrap();
        assert_eq!((config.servers.len(), config.users.len(), config.clusters().count()), (1, 1, 1));
    }

    #[test]
    fn defaults_have_their_units() {
        assert_eq!(facts("required", ""), "required");
        assert_eq!(facts("`10`", "1..20"), "default: `10`; 1..20");
        let variable = weir_config::variable("mysql-threads").unwrap();
        assert_eq!(variable.shown_default(), "number of CPU cores");
    }
}
