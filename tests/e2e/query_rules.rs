//! Query rules and hints as a user of ProxySQL knows them: which node serves, what is sent, what is answered.

mod answers;
mod connections;
mod routes;
mod transactions;

use weir_testkit::{Weir, WeirConfig, hostgroup};
use weir_tests::{Case, Env};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    [routes::trials(), answers::trials(), connections::trials(), transactions::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// A plain read that tells which node runs it.
const WHERE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

/// Adds active rules, each a TOML inline table's inside, with the ids 1, 2, ...
pub(crate) fn add_rules(config: &mut WeirConfig, rules: &[&str]) {
    for (at, rule) in rules.iter().enumerate() {
        let text = format!("rule = {{ rule_id = {}, active = 1, {rule} }}", at + 1);
        let document: toml_edit::DocumentMut = text.parse().unwrap_or_else(|fault| panic!("{text}: {fault}"));
        let columns = document["rule"].as_inline_table().expect("an inline table");
        let row: Vec<_> = columns.iter().map(|(name, value)| (name, value.clone())).collect();
        config.push("mysql_query_rules", &row);
    }
}

/// Weir in front of all nodes with these rules: n1 writes, n2 and n3 read.
pub(crate) fn weir(env: &Env, rules: &[&str]) -> Result<Weir, String> {
    weir_with(env, rules, |_| {})
}

fn weir_with(env: &Env, rules: &[&str], change: impl FnOnce(&mut WeirConfig)) -> Result<Weir, String> {
    let cluster = env.cluster()?;
    env.narrow_weir_with(&[], 10, |config| {
        for (node, weight) in [(1, 100), (2, 1), (3, 1)] {
            let columns = [("max_connections", 10.into()), ("weight", weight.into())];
            config.server(cluster.node(node).addr(), hostgroup::WRITER, &columns);
        }
        add_rules(config, rules);
        change(config);
    })
}
