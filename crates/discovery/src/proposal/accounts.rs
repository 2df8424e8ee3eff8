//! Plans accounts: the least that each needs, and why.

use std::collections::BTreeSet;

use weir_config::Secret;

use super::{ProposalError, Trust, Wishes};
use crate::cluster::{Cluster, Kind};
use crate::facts::{Facts, Product};
use crate::findings::Findings;

/// What an account is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Purpose {
    /// It looks at the servers.
    Monitor,
    /// It evicts dead Galera nodes.
    Assist,
    /// It moves the writer role.
    Switchover,
    /// The former writer replicates as this account from the new one.
    Replication,
}

/// An account to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountPlan {
    /// What it is for.
    pub purpose: Purpose,
    /// Its name.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// Its host parts: an account for each.
    pub hosts: Vec<String>,
    /// What it gets.
    pub grants: Vec<Grant>,
}

/// A privilege, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// As GRANT has it.
    pub privileges: &'static str,
    /// `*.*`, `weir.*` ...
    pub on: &'static str,
    /// What does not work without.
    pub reason: &'static str,
}

/// A statement that makes an account, or gives it something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The statement.
    pub sql: Secret,
    /// The same without the password.
    pub shown: String,
    /// Why.
    pub reason: &'static str,
}

impl Purpose {
    /// The word in names of accounts, and for scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Monitor => "monitor",
            Self::Assist => "assist",
            Self::Switchover => "switchover",
            Self::Replication => "replication",
        }
    }

    /// Why there is such an account.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Monitor => {
                "Weir's monitor looks at every server with it, and decides who writes and who reads"
            }
            Self::Assist => {
                "the cluster goes on at once when a node is killed: Weir evicts the dead one (--no-assist: without)"
            }
            Self::Switchover => {
                "`weir switchover` and `weir drain` move the writer role with it (--no-switchover: without)"
            }
            Self::Replication => {
                "after a switchover the former writer replicates with it from the new one; servers call each other by \
                 addresses that Weir does not know (--no-switchover: without)"
            }
        }
    }
}

impl AccountPlan {
    /// What makes the account at these of its hosts, where it is not yet.
    pub fn statements(&self, existing: &BTreeSet<(String, String)>) -> Vec<Statement> {
        let mut statements = Vec::new();
        for host in &self.hosts {
            let name = format!("'{}'@'{host}'", self.user);
            if !existing.contains(&(self.user.clone(), host.clone())) {
                let create = |password: &str| {
                    format!("CREATE USER {name} IDENTIFIED BY {} PASSWORD EXPIRE NEVER", quoted(password))
                };
                let sql = Secret::new(create(self.password.expose()));
                statements.push(Statement { sql, shown: create("..."), reason: self.purpose.reason() });
            }
            for Grant { privileges, on, reason } in &self.grants {
                let shown = format!("GRANT {privileges} ON {on} TO {name}");
                statements.push(Statement { sql: Secret::new(shown.clone()), shown, reason });
            }
        }
        statements
    }

    /// Whether it is the servers that log in with it, and not Weir.
    pub fn is_for_servers(&self) -> bool {
        self.purpose == Purpose::Replication
    }

    /// What removes it again.
    pub fn removal(&self, host: &str) -> String {
        format!("DROP USER '{}'@'{host}';", self.user)
    }
}

/// A text in SQL, with the default `sql_mode`.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Behind it comes `replication` at most, and MySQL's names have 32 characters (MariaDB's 128).
const PREFIX_CHARS_MAX: usize = 32 - "replication".len();

/// The accounts that are to be made.
pub(super) fn plans(
    findings: &Findings,
    cluster: &Cluster,
    wishes: &Wishes,
    assist: bool,
    secret: &mut dyn FnMut() -> Secret,
) -> Result<Vec<AccountPlan>, ProposalError> {
    if matches!(wishes.monitor, Trust::Use { is_trial: true, .. }) {
        return Ok(Vec::new());
    }
    let origin =
        cluster.origin(findings).or_else(|| cluster.servers(findings).next().map(|(_, server)| server));
    let Some(facts) = origin.map(|server| &server.facts) else { return Err(ProposalError::NoWriter) };
    let makes_monitor = wishes.monitor == Trust::Make;
    let moves = wishes.switchover && matches!(cluster.kind, Kind::Group { .. } | Kind::Replication);
    // A single source has nobody to hand over to.
    let moves = moves && cluster.members.len() > 1;
    let wanted = [
        (makes_monitor, Purpose::Monitor, monitor_grants(cluster.kind, facts, wishes)),
        (assist, Purpose::Assist, vec![ASSIST]),
        (moves, Purpose::Switchover, switchover_grants(cluster.kind, facts)),
        (moves && cluster.kind == Kind::Replication, Purpose::Replication, vec![REPLICATE]),
    ];
    if !wanted.iter().any(|(is_wanted, ..)| *is_wanted) {
        return Ok(Vec::new());
    }
    if cluster.origin(findings).is_none() {
        return Err(ProposalError::NoWriter);
    }
    check(&wishes.prefix, "the beginning of accounts' names", "_ -", &['_', '-'])?;
    if wishes.prefix.len() > PREFIX_CHARS_MAX {
        return Err(ProposalError::LongPrefix(wishes.prefix.clone()));
    }
    let hosts = hosts(findings, cluster, wishes)?;
    let plan = |(_, purpose, grants): (bool, Purpose, Vec<Grant>)| {
        let user = format!("{}{}", wishes.prefix, purpose.name());
        let password = wishes.known_passwords.get(&user).cloned().unwrap_or_else(&mut *secret);
        let hosts = if purpose == Purpose::Replication { vec!["%".to_owned()] } else { hosts.clone() };
        AccountPlan { purpose, user, password, hosts, grants }
    };
    Ok(wanted.into_iter().filter(|(is_wanted, ..)| *is_wanted).map(plan).collect())
}

/// This host as the servers see it, or what the user wants.
fn hosts(findings: &Findings, cluster: &Cluster, wishes: &Wishes) -> Result<Vec<String>, ProposalError> {
    let seen = || cluster.servers(findings).map(|(_, server)| server.facts.account.host_here.clone());
    let mut hosts: BTreeSet<String> = wishes.account_hosts.iter().cloned().collect();
    if hosts.is_empty() {
        hosts = seen().filter(|host| !host.is_empty()).collect();
    }
    if hosts.is_empty() {
        return Err(ProposalError::NoHost);
    }
    // Patterns are the user's to choose: a server that says % would have accounts made for everybody.
    let is_plain =
        |host: &str| host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':'));
    if let Some(host) = hosts.iter().find(|host| wishes.account_hosts.is_empty() && !is_plain(host)) {
        return Err(ProposalError::HostHere(host.clone()));
    }
    for host in &hosts {
        check(host, "the host part", "% _ - . : /", &['%', '_', '-', '.', ':', '/'])?;
    }
    Ok(hosts.into_iter().collect())
}

fn check(
    text: &str,
    what: &'static str,
    others: &'static str,
    allowed: &[char],
) -> Result<(), ProposalError> {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || allowed.contains(&c)) {
        return Ok(());
    }
    Err(ProposalError::Characters { what, text: text.to_owned(), others })
}

const ASSIST: Grant = Grant {
    privileges: "SUPER",
    on: "*.*",
    reason: "to set evs.evict in wsrep_provider_options; no lesser privilege allows that",
};
const REPLICATE: Grant =
    Grant { privileges: "REPLICATION SLAVE", on: "*.*", reason: "to read the new writer's binary log" };

fn monitor_grants(kind: Kind, facts: &Facts, wishes: &Wishes) -> Vec<Grant> {
    let is_mariadb = facts.product == Product::MariaDb;
    let mut grants = Vec::new();
    match kind {
        Kind::Galera { .. } | Kind::Single => {}
        Kind::Group { .. } => {
            for on in [
                "performance_schema.replication_group_members",
                "performance_schema.replication_group_member_stats",
            ] {
                grants.push(Grant {
                    privileges: "SELECT",
                    on,
                    reason: "to see the group's members: without, no member has a role",
                });
            }
        }
        Kind::Replication => grants.push(Grant {
            privileges: if is_mariadb { "REPLICA MONITOR" } else { "REPLICATION CLIENT" },
            on: "*.*",
            reason: "to see how far replicas are behind (max_replication_lag)",
        }),
    }
    if wishes.several_weirs && matches!(kind, Kind::Galera { .. } | Kind::Replication) {
        grants.push(Grant {
            privileges: "SELECT, INSERT, UPDATE, DELETE, CREATE",
            on: "weir.*",
            reason: "several Weirs agree there on who writes (--no-several-weirs: without)",
        });
    }
    if wishes.follows_accounts {
        grants.push(Grant {
            privileges: "SELECT",
            on: if is_mariadb { "mysql.global_priv" } else { "mysql.user" },
            reason: "the servers' own accounts may log in at Weir (--no-follow-accounts: without)",
        });
    }
    grants
}

fn switchover_grants(kind: Kind, facts: &Facts) -> Vec<Grant> {
    let all = |privileges, reason| Grant { privileges, on: "*.*", reason };
    if matches!(kind, Kind::Group { .. }) {
        return vec![
            all("GROUP_REPLICATION_ADMIN", "to have the group move its primary"),
            all("PROCESS", "to see which transactions are left on the old primary"),
        ];
    }
    let mut grants = match facts.product {
        Product::MariaDb => vec![
            all("READ ONLY ADMIN", "to set read_only"),
            all("REPLICATION SLAVE ADMIN", "to stop, change and start replication"),
            all("REPLICA MONITOR", "to see how far replicas are"),
            all("RELOAD", "to make a replica forget its source (RESET REPLICA ALL)"),
        ],
        Product::MySql | Product::Percona => vec![
            all("SYSTEM_VARIABLES_ADMIN", "to set super_read_only"),
            all("REPLICATION_SLAVE_ADMIN", "to stop, change and start replication"),
            all("REPLICATION CLIENT", "to see how far replicas are"),
            all("RELOAD", "to make a replica forget its source (RESET REPLICA ALL)"),
        ],
    };
    grants.push(Grant {
        privileges: "SELECT, INSERT, DELETE, CREATE",
        on: "weir.*",
        reason: "a switchover whose Weir dies is finished or undone by another one",
    });
    grants
}
