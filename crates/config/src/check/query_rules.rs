//! Compiles the query rules, and checks where they send statements.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use weir_routing::Rules;

use crate::check::hostgroups::has_no_server;
use crate::model::config::Config;
use crate::model::partial_read::PartialRead;
use crate::report::error::Report;
use crate::report::place::Lines;

/// Compiles the rules, which shows more faults. If they are the same as before, those stay; otherwise their patterns are
/// taken over.
pub(crate) fn compile(
    config: &Config,
    kept: Option<PartialRead<'_>>,
    lines: &Lines<'_>,
    report: &mut Report,
) -> Arc<Rules> {
    let (rows, fast, options) = (&config.query_rules, &config.fast_routing, config.rule_options());
    let is_same = |kept: &PartialRead<'_>| lines.are_kept() && kept.config.rule_options() == options;
    if let Some(kept) = kept.filter(is_same) {
        return kept.config.rules.clone();
    }
    let before = kept.map(|kept| kept.config.rules.clone()).unwrap_or_default();
    match Rules::compile_after(&before, rows, fast, options) {
        Ok(rules) if rules == before => before,
        Ok(rules) => rules,
        Err(faults) => {
            for fault in faults {
                let rule_id = rows.get(fault.row).map_or(0, |rule| rule.rule_id);
                report.refuse(lines.at(fault.row), fault.column, format!("rule {rule_id}: {}", fault.reason));
            }
            Arc::default()
        }
    }
}

/// A destination without a server would keep every statement waiting for its time-out.
pub(crate) fn have_servers(config: &Config, known: &HashSet<u32>, lines: &Lines<'_>, report: &mut Report) {
    for (at, rule) in config.query_rules.iter().enumerate() {
        let Some(hostgroup) = rule.destination_hostgroup.filter(|id| rule.active && !known.contains(id))
        else {
            continue;
        };
        let reason = format!("rule {}: {}", rule.rule_id, has_no_server(hostgroup));
        report.tolerate_reference(&lines.of(at, &**rule), "destination_hostgroup", "mysql_servers", reason);
    }
}

/// Keys and destinations of fast routes.
pub(crate) fn check_fast(
    config: &Config,
    known: Option<&HashSet<u32>>,
    lines: &Lines<'_>,
    report: &mut Report,
) {
    let mut seen = HashMap::new();
    for (at, route) in config.fast_routing.iter().enumerate() {
        let place = lines.of(at, route);
        if let Some(first) = seen.insert((&route.username, &route.schemaname, route.flag_in), place) {
            let (user, schema, flag) = (&route.username, &route.schemaname, route.flag_in);
            let reason = format!(
                "user \"{user}\", schema \"{schema}\", flagIN {flag} are already there ({})",
                first.pointer()
            );
            report.refuse(&place, "", reason);
        }
        if known.is_some_and(|known| !known.contains(&route.destination_hostgroup)) {
            let reason = has_no_server(route.destination_hostgroup);
            report.tolerate_reference(&place, "destination_hostgroup", "mysql_servers", reason);
        }
    }
}
