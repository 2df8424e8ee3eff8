//! Reads the rows of `[[mysql_query_rules]]` and `[[mysql_query_rules_fast_routing]]`.

use serde::Deserialize;
use serde_json::Value;
use weir_routing::{
    CommitOutcome, Consistency, FastRoute, FlagWeight, Multiplex, PATTERN_BYTES_MAX, QueryRule, ReplayMode,
    TransactionSettings,
};

use crate::field::fields::{Fields, Row};
use crate::report::error::Report;
use crate::table::column::INT_MAX;
use crate::value::limits::{COMMENT_CHARS_MAX, SCHEMA_CHARS_MAX, USERNAME_CHARS_MAX};
use crate::value::suggest::{quotable, unknown_word};

/// The longest error_msg and OK_msg: what fits into a packet that every client can show.
const MESSAGE_CHARS_MAX: usize = 512;
/// An address with a zone fits.
const ADDRESS_CHARS_MAX: usize = 108;
const ATTRIBUTES_CHARS_MAX: usize = 64 << 10;
const FLAG_OUTS_MAX: usize = 1000;

/// A row of `mysql_query_rules`. `next_id` is the id of a row that gives none, as AUTOINCREMENT has it.
pub(crate) fn query_rule(row: &Row<'_>, next_id: &mut u32, report: &mut Report) -> Option<QueryRule> {
    let mut f = Fields::of(row, report);
    let faults_before = f.report.len();
    let rule_id = f.number_or("rule_id", *next_id);
    *next_id = (*next_id).max(rule_id.saturating_add(1));
    let mut rule = QueryRule { rule_id, active: f.flag("active"), ..QueryRule::default() };
    predicates(&mut f, &mut rule);
    actions(&mut f, &mut rule);
    rule.comment = f.text("comment", "", COMMENT_CHARS_MAX);
    for name in ["reconnect", "sticky_conn", "cache_empty_result"] {
        f.only_default(name);
    }
    for name in ["cache_ttl", "cache_timeout", "mirror_flagOUT", "mirror_hostgroup"] {
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
    rule.flag_in = f.number("flagIN");
    rule.client_addr = f.optional_text("client_addr", ADDRESS_CHARS_MAX);
    let beginning = rule.client_addr.as_deref().map(|addr| addr.strip_suffix('%').unwrap_or(addr));
    if beginning.is_some_and(|beginning| beginning.contains('%')) {
        f.refuse("client_addr", "% may only be at the end");
    }
    rule.proxy_addr = f.optional_text("proxy_addr", ADDRESS_CHARS_MAX);
    rule.proxy_port = f.optional_number("proxy_port");
    if let Some(text) = f.optional_text("digest", 64) {
        rule.digest = hash(&text);
        if rule.digest.is_none() {
            f.refuse("digest", format!("\"{}\" is not 0x and up to 16 hex digits", quotable(&text)));
        }
    }
    rule.match_digest = f.optional_text("match_digest", PATTERN_BYTES_MAX);
    rule.match_pattern = f.optional_text("match_pattern", PATTERN_BYTES_MAX);
    rule.negate_match_pattern = f.flag("negate_match_pattern");
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
    rule.flag_out = f.optional_number("flagOUT");
    rule.replace_pattern = f.optional_text("replace_pattern", PATTERN_BYTES_MAX);
    rule.destination_hostgroup = f.optional_number("destination_hostgroup");
    rule.timeout_ms = f.optional_number("timeout");
    rule.retries = f.optional_number("retries");
    rule.delay_ms = f.optional_number("delay");
    rule.next_query_flag_in = f.optional_number("next_query_flagIN");
    rule.error_msg = f.optional_text("error_msg", MESSAGE_CHARS_MAX);
    rule.ok_msg = f.optional_text("OK_msg", MESSAGE_CHARS_MAX);
    rule.multiplex = match f.item("multiplex").map(|item| (item, item.as_integer())) {
        None => None,
        Some((_, Some(0))) => Some(Multiplex::Off),
        Some((_, Some(1))) => Some(Multiplex::On),
        Some((_, Some(2))) => Some(Multiplex::NotForVariables),
        Some((item, _)) => {
            f.refuse("multiplex", format!("{} is not 0, 1 or 2", item.describe()));
            None
        }
    };
    rule.gtid_from_hostgroup = f.optional_number("gtid_from_hostgroup");
    rule.log = f.has("log").then(|| f.flag("log"));
    rule.apply = f.flag("apply");
    if let Some(text) =
        f.optional_text("attributes", ATTRIBUTES_CHARS_MAX).filter(|text| !text.trim().is_empty())
        && let Err(fault) = attributes(rule, &text)
    {
        f.refuse("attributes", fault);
    }
}

/// `0x1A2B...`, as ProxySQL shows digests.
fn hash(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let is_hex = (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// `{"flagOUTs":[{"id":1,"weight":9},{"id":2}], "weir_consistency":"global"}`
fn attributes(rule: &mut QueryRule, text: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Attributes {
        #[serde(rename = "flagOUTs", default)]
        flag_outs: Vec<Branch>,
        weir_consistency: Option<String>,
        weir_replay: Option<Value>,
        weir_commit_outcome: Option<String>,
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
    rule.consistency = attributes.weir_consistency.map(|word| consistency(&word)).transpose()?;
    rule.transactions = TransactionSettings {
        replay: attributes.weir_replay.map(|value| replay_mode(&value)).transpose()?,
        commit_outcome: attributes.weir_commit_outcome.map(|word| commit_outcome(&word)).transpose()?,
    };
    let flag_outs =
        attributes.flag_outs.iter().map(|branch| FlagWeight { id: branch.id, weight: branch.weight });
    rule.flag_outs = flag_outs.collect();
    Ok(())
}

/// The attribute `weir_consistency`, of a rule or a user.
pub(crate) fn consistency(word: &str) -> Result<Consistency, String> {
    const WORDS: [&str; 4] = ["eventual", "session", "global", "strict"];
    Consistency::of_word(word.as_bytes())
        .ok_or_else(|| format!("{CONSISTENCY}: {}", unknown_word(&quotable(word), &WORDS)))
}

/// The attribute `weir_replay`: a word, or one of JSON's own values.
pub(crate) fn replay_mode(value: &Value) -> Result<ReplayMode, String> {
    let word = match value {
        Value::Bool(true) => return Ok(ReplayMode::On),
        Value::Bool(false) => return Ok(ReplayMode::Off),
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    ReplayMode::of_word(word.as_bytes()).ok_or_else(|| {
        let words = ReplayMode::ALL.map(ReplayMode::as_str);
        format!("{REPLAY}: {}", unknown_word(&quotable(&word), &words))
    })
}

/// The attribute `weir_commit_outcome`.
pub(crate) fn commit_outcome(word: &str) -> Result<CommitOutcome, String> {
    let words = CommitOutcome::ALL.map(CommitOutcome::as_str);
    CommitOutcome::of_word(word.as_bytes())
        .ok_or_else(|| format!("{COMMIT_OUTCOME}: {}", unknown_word(&quotable(word), &words)))
}

/// Their names.
pub(crate) const CONSISTENCY: &str = "weir_consistency";
pub(crate) const REPLAY: &str = "weir_replay";
pub(crate) const COMMIT_OUTCOME: &str = "weir_commit_outcome";

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
    let flag_in = f.number("flagIN");
    let destination = f.optional_number("destination_hostgroup");
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
