//! Tells what was found, what would be done and what was done: as text for people, as JSON for scripts.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use weir_discovery::Proposal;
use weir_topology::Endpoint;

use super::finder::Found;
use super::plan::Plan;

/// All that a run tells. Without passwords.
#[derive(Default, Serialize)]
pub(super) struct Report {
    /// `galera`, `group`, `replication` or `single`.
    kind: &'static str,
    /// In words.
    title: String,
    servers: Vec<FoundServer>,
    not_reached: Vec<NotReached>,
    /// What to know before going on.
    remarks: Vec<String>,
    /// Where accounts are made; none if none are.
    #[serde(skip_serializing_if = "Option::is_none")]
    accounts_on: Option<String>,
    statements: Vec<ShownStatement>,
    /// What assisted eviction lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider_options: Option<ProviderOptions>,
    files: Vec<ShownFile>,
    /// Whether all is as it is to be: false with --dry-run.
    pub(super) is_done: bool,
    /// Accounts and files that were made.
    pub(super) created: Vec<String>,
    /// What the configuration has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) summary: String,
    /// Which account has logged in where.
    pub(super) logins: Vec<Login>,
    /// What is missing on a server.
    pub(super) missing: Vec<String>,
    /// What keeps dead nodes from being evicted, beside provider options.
    pub(super) limits: Vec<String>,
    /// Commands to go on with.
    pub(super) next: Vec<String>,
}

#[derive(Serialize)]
struct FoundServer {
    server: String,
    version: String,
    role: String,
    state: String,
    /// How long an answer takes.
    rtt_us: u128,
    weight: u32,
    /// Other names under which it was reached.
    also: Vec<String>,
}

#[derive(Serialize)]
struct NotReached {
    server: String,
    named_by: String,
    reason: String,
}

#[derive(Serialize)]
struct ShownStatement {
    sql: String,
    reason: &'static str,
}

#[derive(Serialize)]
struct ProviderOptions {
    servers: Vec<String>,
    options: &'static str,
}

#[derive(Serialize)]
struct ShownFile {
    path: String,
    /// `configuration` or `unit`.
    what: &'static str,
    /// It is there, and as it is to be.
    is_written: bool,
    text: String,
}

/// An account that has logged in at a server.
#[derive(Serialize)]
pub(super) struct Login {
    pub(super) server: String,
    pub(super) user: String,
}

/// What was found, as text.
pub(super) fn of_found(found: &Found, proposal: &Proposal) -> String {
    Report::of_found(found, proposal).found_text()
}

impl Report {
    pub(super) fn new(found: &Found, plan: &Plan) -> Self {
        let accounts = plan.proposal.accounts.iter().filter(|_| plan.changes_something());
        let statements = accounts.flat_map(|account| account.statements(&plan.existing));
        let lacks = &plan.proposal.lacks_options;
        let (path, unit) = (plan.file.display().to_string(), plan.unit.iter());
        let config = ShownFile {
            path,
            what: "configuration",
            is_written: plan.is_written,
            text: plan.shown_text.clone(),
        };
        let unit = unit.map(|(path, text, is_written)| ShownFile {
            path: path.display().to_string(),
            what: "unit",
            is_written: *is_written,
            text: text.clone(),
        });
        Self {
            accounts_on: plan.origin.as_ref().map(|(server, _)| server.to_string()),
            statements: statements
                .map(|made| ShownStatement { sql: made.shown, reason: made.reason })
                .collect(),
            provider_options: (!lacks.is_empty()).then(|| ProviderOptions {
                servers: lacks.iter().map(ToString::to_string).collect(),
                options: weir_discovery::MEASURED_OPTIONS,
            }),
            files: [config].into_iter().chain(unit).collect(),
            ..Self::of_found(found, &plan.proposal)
        }
        .and_remark(plan.lacks.as_deref())
    }

    fn and_remark(mut self, remark: Option<&str>) -> Self {
        self.remarks.extend(remark.map(printable));
        self
    }

    fn of_found(found: &Found, proposal: &Proposal) -> Self {
        let (findings, cluster) = (&found.findings, &found.cluster);
        let weight = |endpoint: &Endpoint| {
            proposal.servers.iter().find(|row| row.endpoint == *endpoint).map_or(1, |row| row.weight)
        };
        let servers = cluster.servers(findings).map(|(member, server)| FoundServer {
            server: server.endpoint.to_string(),
            version: printable(&server.facts.server_name()),
            role: printable(&member.role),
            state: printable(&member.state),
            rtt_us: server.rtt.as_micros(),
            weight: weight(&server.endpoint),
            also: server
                .names
                .iter()
                .filter(|name| **name != server.endpoint)
                .map(ToString::to_string)
                .collect(),
        });
        let not_reached = findings.unreached.iter().map(|server| NotReached {
            server: server.endpoint.to_string(),
            named_by: server.named_by.to_string(),
            reason: printable(&server.reason),
        });
        Self {
            kind: cluster.kind.name(),
            title: printable(&cluster.title()),
            servers: servers.collect(),
            not_reached: not_reached.collect(),
            remarks: proposal.remarks.iter().map(|remark| printable(&remark.to_string())).collect(),
            ..Self::default()
        }
    }

    pub(super) fn json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The servers, and what to know of them.
    pub(super) fn found_text(&self) -> String {
        let mut text = format!("{}\n\n", self.title);
        let heading = ["server", "version", "role", "state", "answers in", "weight"].map(str::to_owned);
        let rows = self.servers.iter().map(|found| {
            let rtt = milliseconds(found.rtt_us);
            [
                found.server.clone(),
                found.version.clone(),
                found.role.clone(),
                found.state.clone(),
                rtt,
                found.weight.to_string(),
            ]
        });
        text.push_str(&table(&[heading].into_iter().chain(rows).collect::<Vec<_>>()));
        for NotReached { server, named_by, reason } in &self.not_reached {
            let _ = writeln!(text, "not reached: {server} ({named_by}): {reason}");
        }
        if !self.remarks.is_empty() {
            text.push_str("\nTo know:\n");
            for remark in &self.remarks {
                let _ = writeln!(text, "- {remark}");
            }
        }
        text
    }

    /// What would be done.
    pub(super) fn plan_text(&self) -> String {
        let mut text = String::new();
        if let (Some(server), false) = (&self.accounts_on, self.statements.is_empty()) {
            let _ = writeln!(text, "\nOn {server}, with random passwords:");
            let mut told = "";
            for ShownStatement { sql, reason } in &self.statements {
                let _ = writeln!(text, "  {sql};");
                if *reason != told {
                    let _ = writeln!(text, "      -- {reason}");
                }
                told = reason;
            }
        }
        for file in &self.files {
            let is = if file.is_written { " (is there already)" } else { "" };
            let _ = writeln!(text, "\n{}{is}:", file.path);
            if file.what == "configuration" {
                file.text.lines().for_each(|line| _ = writeln!(text, "  {line}"));
            } else {
                let _ = writeln!(text, "  the unit of the packages, for this program and that configuration");
            }
        }
        if let Some(ProviderOptions { servers, options }) = &self.provider_options {
            let _ = writeln!(
                text,
                "\nFor you to do: in my.cnf of {}, in addition to the present wsrep_provider_options, so that \
                 dead nodes can be evicted (each node needs a restart):\n  [mysqld]\n  wsrep_provider_options = \"{options}\"",
                servers.join(", ")
            );
        }
        text
    }

    /// What was done, what is missing, and how to go on.
    pub(super) fn done_text(&self) -> String {
        if !self.is_done {
            return "\nNothing was changed (--dry-run).\n".to_owned();
        }
        let mut text = String::from("\n");
        if self.created.is_empty() {
            text.push_str("everything is there already\n");
        }
        for created in &self.created {
            let _ = writeln!(text, "made: {created}");
        }
        let _ = writeln!(text, "the configuration is valid: {}", self.summary);
        let mut users: Vec<&str> = self.logins.iter().map(|login| login.user.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        for user in users {
            let servers =
                self.logins.iter().filter(|login| login.user == user).map(|login| login.server.as_str());
            let _ = writeln!(text, "{user} logs in at {}", servers.collect::<Vec<_>>().join(", "));
        }
        for missing in &self.missing {
            let _ = writeln!(text, "missing: {}", printable(missing));
        }
        for limit in &self.limits {
            let _ = writeln!(text, "to know: {}", printable(limit));
        }
        text.push_str("\nNext:\n");
        for next in &self.next {
            let _ = writeln!(text, "  {next}");
        }
        text
    }
}

/// A server's text without what a terminal would obey or what would reorder it: the user decides by what they see.
pub(super) fn printable(text: &str) -> String {
    let obeys = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if obeys(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Columns as wide as their widest field.
fn table(rows: &[[String; 6]]) -> String {
    let mut text = String::new();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|field| field.chars().count()).max()
    };
    let widths: Vec<usize> = (0..6).map(|column| width(column).unwrap_or(0)).collect();
    for row in rows {
        let fields: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(field, width)| format!("{field:<width$}", width = *width))
            .collect();
        let _ = writeln!(text, "{}", fields.join("  ").trim_end());
    }
    text
}

fn milliseconds(us: u128) -> String {
    let us = u64::try_from(us).unwrap_or(u64::MAX);
    format!("{:.2} ms", Duration::from_micros(us).as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_texts_do_not_steer_the_terminal() {
        assert_eq!(
            printable("\u{1b}[2Jno\nroute \u{9b}A\u{202e}é"),
            "\u{fffd}[2Jno\u{fffd}route \u{fffd}A\u{fffd}é"
        );
    }
}
