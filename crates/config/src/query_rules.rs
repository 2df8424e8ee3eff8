//! `[[mysql_query_rules]]` and `[[mysql_query_rules_fast_routing]]`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use weir_routing::{FastRoute, FlagWeight, Multiplex, PATTERN_BYTES_MAX, QueryRule, Rules};

use crate::error::Report;
use crate::fields::{Fields, quotable};
use crate::kept::Kept;
use crate::place::Keyed;
use crate::rows::TableRow;
use crate::suggest::unknown_word;
use crate::tables::{COMMENT_CHARS_MAX, INT_MAX, Lines, Row, SCHEMA_CHARS_MAX, USERNAME_CHARS_MAX};
use crate::types::Config;

/// The longest error_msg and OK_msg: what fits into a packet that every client can show.
const MESSAGE_CHARS_MAX: usize = 512;
/// An address with a zone fits.
const ADDRESS_CHARS_MAX: usize = 108;
/// ProxySQL's limit.
const RETRIES_MAX: u32 = 1000;
const ATTRIBUTES_CHARS_MAX: usize = 64 << 10;
const FLAG_OUTS_MAX: usize = 1000;

/// A row of `mysql_query_rules`. `next_id` is the id of a row that gives none, as AUTOINCREMENT has it.
pub(crate) fn query_rule(row: &Row<'_>, next_id: &mut u32, report: &mut Report) -> Option<QueryRule> {
    let mut f = Fields::of(row, report);
    let faults_before = f.report.len();
    let rule_id = f.integer("rule_id", *next_id, 1..=INT_MAX);
    *next_id = (*next_id).max(rule_id.saturating_add(1));
    let mut rule = QueryRule { rule_id, active: f.boolean("active", false), ..QueryRule::default() };
    predicates(&mut f, &mut rule);
    actions(&mut f, &mut rule);
    rule.comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["reconnect", "sticky_conn", "cache_empty_result"] {
        f.only(name, 0);
    }
    for name in ["cache_ttl", "cache_timeout", "mirror_flagOUT", "mirror_hostgroup", "gtid_from_hostgroup"] {
        if f.item(name).is_some() {
            f.tolerate(name, "not built yet");
        }
    }
    f.finish_row();
    (report.len() == faults_before).then_some(rule)
}

fn predicates(f: &mut Fields<'_, '_>, rule: &mut QueryRule) {
    rule.username = f.optional_text("username", USERNAME_CHARS_MAX);
    rule.schemaname = f.optional_text("schemaname", SCHEMA_CHARS_MAX);
    rule.flag_in = f.integer("flagIN", 0, 0..=INT_MAX);
    rule.client_addr = f.optional_text("client_addr", ADDRESS_CHARS_MAX);
    let beginning = rule.client_addr.as_deref().map(|addr| addr.strip_suffix('%').unwrap_or(addr));
    if beginning.is_some_and(|beginning| beginning.contains('%')) {
        f.refuse("client_addr", "% may only be at the end");
    }
    rule.proxy_addr = f.optional_text("proxy_addr", ADDRESS_CHARS_MAX);
    rule.proxy_port =
        optional(f, "proxy_port", 1, u32::from(u16::MAX)).and_then(|port| u16::try_from(port).ok());
    if let Some(text) = f.optional_text("digest", 64) {
        rule.digest = hash(&text);
        if rule.digest.is_none() {
            f.refuse("digest", format!("\"{}\" is not 0x and up to 16 hex digits", quotable(&text)));
        }
    }
    rule.match_digest = f.optional_text("match_digest", PATTERN_BYTES_MAX);
    rule.match_pattern = f.optional_text("match_pattern", PATTERN_BYTES_MAX);
    rule.negate_match_pattern = f.boolean("negate_match_pattern", false);
    if let Some(text) = f.optional_text("re_modifiers", 64) {
        rule.caseless = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.to_ascii_uppercase().as_str() {
                "CASELESS" => rule.caseless = true,
                "GLOBAL" => rule.global = true,
                _ => f.refuse("re_modifiers", unknown_word(word, &["CASELESS", "GLOBAL"])),
            }
        }
    }
}

fn actions(f: &mut Fields<'_, '_>, rule: &mut QueryRule) {
    rule.flag_out = optional(f, "flagOUT", 0, INT_MAX);
    rule.replace_pattern = f.optional_text("replace_pattern", PATTERN_BYTES_MAX);
    rule.destination_hostgroup = optional(f, "destination_hostgroup", 0, INT_MAX);
    rule.timeout_ms = optional(f, "timeout", 0, INT_MAX);
    rule.retries = optional(f, "retries", 0, RETRIES_MAX);
    rule.delay_ms = optional(f, "delay", 0, INT_MAX);
    rule.next_query_flag_in = optional(f, "next_query_flagIN", 0, INT_MAX);
    rule.error_msg = f.optional_text("error_msg", MESSAGE_CHARS_MAX);
    rule.ok_msg = f.optional_text("OK_msg", MESSAGE_CHARS_MAX);
    rule.multiplex = match f.item("multiplex").map(|item| (item, item.as_integer())) {
        None => None,
        Some((_, Some(0))) => Some(Multiplex::Off),
        Some((_, Some(1))) => Some(Multiplex::On),
        Some((_, Some(2))) => Some(Multiplex::NotForVariables),
        Some((item, _)) => {
            f.refuse("multiplex", format!("{} is none of 0, 1 and 2", item.describe()));
            None
        }
    };
    rule.log = f.has("log").then(|| f.boolean("log", false));
    rule.apply = f.boolean("apply", false);
    if let Some(text) =
        f.optional_text("attributes", ATTRIBUTES_CHARS_MAX).filter(|text| !text.trim().is_empty())
    {
        match flag_outs(&text) {
            Ok(flag_outs) => rule.flag_outs = flag_outs,
            Err(fault) => f.refuse("attributes", fault),
        }
    }
}

fn optional(f: &mut Fields<'_, '_>, name: &'static str, least: u32, most: u32) -> Option<u32> {
    f.has(name).then(|| f.integer(name, least, least..=most))
}

/// `0x1A2B...`, as ProxySQL shows digests.
fn hash(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let is_hex = (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// `{"flagOUTs":[{"id":1,"weight":9},{"id":2}]}`
fn flag_outs(text: &str) -> Result<Vec<FlagWeight>, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Attributes {
        #[serde(rename = "flagOUTs", default)]
        flag_outs: Vec<Branch>,
    }
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Branch {
        id: u32,
        #[serde(default = "one")]
        weight: u32,
    }
    fn one() -> u32 {
        1
    }
    let attributes: Attributes =
        serde_json::from_str(text).map_err(|fault| quotable_line(&format!("is not understood: {fault}")))?;
    if attributes.flag_outs.len() > FLAG_OUTS_MAX {
        return Err(format!("more than {FLAG_OUTS_MAX} flagOUTs"));
    }
    if attributes.flag_outs.iter().any(|branch| branch.id > INT_MAX || branch.weight > INT_MAX) {
        return Err(format!("an id or a weight is out of range (0..{INT_MAX})"));
    }
    Ok(attributes
        .flag_outs
        .iter()
        .map(|branch| FlagWeight { id: branch.id, weight: branch.weight })
        .collect())
}

/// What a parser says may quote the text.
fn quotable_line(fault: &str) -> String {
    fault.chars().take(200).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A row of `mysql_query_rules_fast_routing`.
pub(crate) fn fast_route(row: &Row<'_>, report: &mut Report) -> Option<FastRoute> {
    let mut f = Fields::of(row, report);
    let faults_before = f.report.len();
    let username = f.text("username", "", USERNAME_CHARS_MAX);
    let schemaname = f.text("schemaname", "", SCHEMA_CHARS_MAX);
    let flag_in = f.integer("flagIN", 0, 0..=INT_MAX);
    let destination = optional(&mut f, "destination_hostgroup", 0, INT_MAX);
    for name in ["username", "schemaname", "destination_hostgroup"] {
        if !f.has(name) {
            f.refuse(name, "is missing");
        }
    }
    let comment = f.text("comment", "", COMMENT_CHARS_MAX);
    f.finish_row();
    let destination_hostgroup = destination?;
    let route = FastRoute { username, schemaname, flag_in, destination_hostgroup, comment };
    (report.len() == faults_before).then_some(route)
}

/// Compiles the rules, which shows more faults. If they are the same as before, those stay; otherwise their patterns are
/// taken over.
pub(crate) fn compile(
    config: &Config,
    kept: Option<Kept<'_>>,
    lines: &Lines<'_>,
    report: &mut Report,
) -> Arc<Rules> {
    let (rows, fast, options) = (&config.query_rules, &config.fast_routing, config.rule_options());
    let is_same = |kept: &Kept<'_>| lines.are_kept() && kept.config.rule_options() == options;
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

impl Keyed for QueryRule {
    fn table(&self) -> &'static str {
        "mysql_query_rules"
    }

    fn key(&self) -> TableRow {
        [("rule_id".into(), i64::from(self.rule_id).into())].into()
    }
}

impl Keyed for FastRoute {
    fn table(&self) -> &'static str {
        "mysql_query_rules_fast_routing"
    }

    fn key(&self) -> TableRow {
        let Self { username, schemaname, flag_in, .. } = self;
        [
            ("username".into(), username.clone().into()),
            ("schemaname".into(), schemaname.clone().into()),
            ("flagIN".into(), i64::from(*flag_in).into()),
        ]
        .into()
    }
}

/// A destination without a server would keep every statement waiting for its time-out.
pub(crate) fn have_servers(config: &Config, known: &HashSet<u32>, lines: &Lines<'_>, report: &mut Report) {
    for (at, rule) in config.query_rules.iter().enumerate() {
        let Some(hostgroup) = rule.destination_hostgroup.filter(|id| rule.active && !known.contains(id))
        else {
            continue;
        };
        let reason = format!("rule {}: {}", rule.rule_id, crate::check::has_no_server(hostgroup));
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
            let reason = crate::check::has_no_server(route.destination_hostgroup);
            report.tolerate_reference(&place, "destination_hostgroup", "mysql_servers", reason);
        }
    }
}
