//! Proposes hostgroups, weights, policies and accounts for what was found.

mod accounts;
mod weights;

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir_config::Secret;
use weir_eviction::Obstacle;
use weir_topology::Endpoint;

pub use self::accounts::{AccountPlan, Grant, Purpose, Statement};
use crate::address::SslMode;
use crate::cluster::{Cluster, Kind, Remark};
use crate::findings::{Findings, NamedBy, Server, Unreached};

/// The hostgroups, as the guide numbers them.
pub mod hostgroup {
    /// Servers that take writes, and the users' default.
    pub const WRITER: u32 = 100;
    /// Nodes that could.
    pub const BACKUP_WRITER: u32 = 101;
    /// Servers that take reads.
    pub const READER: u32 = 102;
    /// Nodes that are out of service.
    pub const OFFLINE: u32 = 9101;
}

/// A replica that is further behind takes no reads, in seconds.
const REPLICATION_LAG_S_MAX: u32 = 30;
/// Fewer nodes have no majority without one of them, so none is evicted.
const ASSISTED_NODES_MIN: usize = 3;

/// What the user wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Wishes {
    /// The account of the monitor.
    pub monitor: Trust,
    /// How the names of new accounts begin.
    pub prefix: String,
    /// An account that evicts dead Galera nodes.
    pub assist: bool,
    /// An account that moves the writer role of a group or of replicas.
    pub switchover: bool,
    /// The privileges with which several Weirs agree on a writer.
    pub several_weirs: bool,
    /// The host parts of new accounts; none: this host as the servers see it.
    pub account_hosts: Vec<String>,
    /// Passwords of accounts that were made before.
    pub known_passwords: BTreeMap<String, Secret>,
    /// The applications' accounts.
    pub users: Vec<AppUser>,
    /// The servers' own accounts may log in at Weir.
    pub follows_accounts: bool,
    /// Who may log in at the admin port.
    pub admin: AdminWish,
    /// Whether connections to servers are encrypted.
    pub ssl_mode: SslMode,
    /// By whose certificates.
    pub ssl_ca: Option<PathBuf>,
}

/// Whether accounts are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// New ones.
    Make,
    /// This one exists and is used as it is; its privileges are its owner's affair.
    Use {
        /// Its name.
        user: String,
        /// Its password.
        password: Secret,
        /// It is a trial: nothing is changed on the servers.
        is_trial: bool,
    },
}

/// Who may log in at the admin port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminWish {
    /// There is one, at which nobody is to have a password that everybody knows.
    pub has_port: bool,
    /// Accounts of before, which are kept.
    pub known: AdminCredentials,
}

/// The accounts of the admin port, as `NAME:PASSWORD` with `;` between them; none: ProxySQL's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminCredentials {
    /// Who may change everything, and sees the passwords of the configuration.
    pub admin: Option<Secret>,
    /// Who may look at statistics.
    pub stats: Option<Secret>,
}

impl AdminWish {
    fn credentials(&self, secret: &mut dyn FnMut() -> Secret) -> AdminCredentials {
        let mut of = |name: &str, known: &Option<Secret>| {
            let known = known.clone();
            known.or_else(|| self.has_port.then(|| Secret::new(format!("{name}:{}", secret().expose()))))
        };
        AdminCredentials { admin: of("admin", &self.known.admin), stats: of("stats", &self.known.stats) }
    }
}

/// An application's account, which exists on the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppUser {
    /// Its name.
    pub name: String,
    /// Its password.
    pub password: Secret,
}

/// What is proposed.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// What it is for: [`Cluster::title`].
    pub title: String,
    /// Which table the cluster has.
    pub kind: Kind,
    /// The rows of `mysql_servers`.
    pub servers: Vec<Row>,
    /// Accounts to be made.
    pub accounts: Vec<AccountPlan>,
    /// The account of the monitor.
    pub monitor: AppUser,
    /// Whether the servers' own accounts may log in at Weir.
    pub follows_accounts: bool,
    /// The applications' accounts that are named.
    pub users: Vec<AppUser>,
    /// Who may log in at the admin port.
    pub admin: AdminCredentials,
    /// `weir_topology.prefer_segment`
    pub prefer_segment: Option<u8>,
    /// `weir_topology.assist` is off.
    pub is_assist_off: bool,
    /// Connections to servers are encrypted.
    pub use_ssl: bool,
    /// `ssl_p2s_ca`
    pub ssl_ca: Option<PathBuf>,
    /// `ssl_p2s_verify_identity`
    pub verifies_identity: bool,
    /// Nodes whose provider options don't allow for assisted eviction.
    pub lacks_options: Vec<Endpoint>,
    /// What a user should know.
    pub remarks: Vec<Remark>,
}

/// A row of `mysql_servers`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The server.
    pub endpoint: Endpoint,
    /// 1 is the default.
    pub weight: u32,
    /// 0 is the default.
    pub max_replication_lag_s: u32,
    /// What a reader of the file should know.
    pub comment: String,
    /// The server was named and not reached: its row becomes a comment.
    pub is_left_out: bool,
}

/// Why nothing can be proposed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposalError {
    /// No server says from where it is asked.
    #[error(
        "no server tells how it sees this host (SELECT USER()): give the host part of new accounts (--account-host)"
    )]
    NoHost,
    /// A server says that this host is called something that would stand for others too, or that is no name.
    #[error(
        "a server sees this host as {0:?} (SELECT USER()), which is no plain name or address; as the host part of accounts it \
         could stand for other hosts: give the host part yourself (--account-host)"
    )]
    HostHere(String),
    /// Nobody takes writes.
    #[error(
        "no server takes writes now, so no accounts can be made: see what was found with --dry-run --monitor NAME, \
         bring the cluster up, or use an account that exists (--monitor, --no-assist, --no-switchover)"
    )]
    NoWriter,
    /// MySQL would refuse the names.
    #[error(
        "the beginning of accounts' names {0:?} (--prefix) is longer than 21 characters: MySQL's names have 32 at most"
    )]
    LongPrefix(String),
    /// A name or a host that would need quoting.
    #[error("{what} {text:?} may only have letters, digits and {others}")]
    Characters {
        /// What it is.
        what: &'static str,
        /// The text.
        text: String,
        /// Which other characters.
        others: &'static str,
    },
}

impl Proposal {
    /// `secret` makes a password.
    ///
    /// # Errors
    /// When accounts can't be made as wished.
    pub fn new(
        findings: &Findings,
        cluster: &Cluster,
        wishes: &Wishes,
        secret: &mut dyn FnMut() -> Secret,
    ) -> Result<Self, ProposalError> {
        let is_trial = matches!(wishes.monitor, Trust::Use { is_trial: true, .. });
        let wants_assist = wishes.assist && !is_trial && may_assist(cluster);
        let accounts = accounts::plans(findings, cluster, wishes, wants_assist, secret)?;
        let monitor = match &wishes.monitor {
            Trust::Use { user, password, .. } => AppUser { name: user.clone(), password: password.clone() },
            Trust::Make => accounts
                .iter()
                .find(|plan| plan.purpose == Purpose::Monitor)
                .map(|plan| AppUser { name: plan.user.clone(), password: plan.password.clone() })
                .unwrap_or_else(|| AppUser { name: String::new(), password: Secret::new("") }),
        };
        let members = || cluster.servers(findings).map(|(_, server)| server);
        let requires_tls = members().any(|server| server.facts.settings.requires_tls);
        let (lacks_options, obstacles) =
            if wants_assist { obstacles(members()) } else { (Vec::new(), Vec::new()) };
        let misses =
            (wishes.assist && !is_trial && !wants_assist).then(|| missed_by_assist(findings, cluster));
        let remarks = cluster.remarks.iter().cloned().chain(obstacles).chain(misses.flatten()).collect();
        let admin = wishes.admin.credentials(secret);
        Ok(Self {
            title: cluster.title(),
            kind: cluster.kind,
            servers: rows(findings, cluster, wishes),
            accounts,
            monitor,
            follows_accounts: wishes.follows_accounts,
            users: wishes.users.clone(),
            admin,
            prefer_segment: weights::preferred_segment(findings, cluster),
            is_assist_off: matches!(cluster.kind, Kind::Galera { .. }) && (is_trial || !wishes.assist),
            use_ssl: wishes.ssl_mode.is_required() || requires_tls,
            ssl_ca: wishes.ssl_ca.clone(),
            verifies_identity: wishes.ssl_mode == SslMode::VerifyIdentity,
            lacks_options,
            remarks,
        })
    }

    /// The same with dots in place of passwords, to be shown.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut masked = self.clone();
        let dots = || Secret::new("...");
        masked.accounts.iter_mut().for_each(|plan| plan.password = dots());
        masked.users.iter_mut().for_each(|user| user.password = dots());
        masked.monitor.password = dots();
        let AdminCredentials { admin, stats } = &mut masked.admin;
        [admin, stats].into_iter().flatten().for_each(|known| *known = dots_of_all(known));
        masked
    }

    /// The account for a purpose, if one is made.
    pub fn account(&self, purpose: Purpose) -> Option<&AccountPlan> {
        self.accounts.iter().find(|plan| plan.purpose == purpose)
    }
}

/// `admin:...;radmin:...`
fn dots_of_all(credentials: &Secret) -> Secret {
    let names = credentials.expose().split(';').map(|one| one.split(':').next().unwrap_or_default());
    Secret::new(names.map(|name| format!("{}:...", name.trim())).collect::<Vec<_>>().join(";"))
}

/// Whether a dead node could be evicted at all: all members must be known and asked.
fn may_assist(cluster: &Cluster) -> bool {
    cluster.kind == Kind::Galera { arbitrators: 0 } && cluster.members.len() >= ASSISTED_NODES_MIN
}

/// Nodes that would make a majority without a dead one, if they were there.
fn missed_by_assist(findings: &Findings, cluster: &Cluster) -> Option<Remark> {
    let is_node = |unreached: &&Unreached| matches!(unreached.named_by, NamedBy::Member | NamedBy::Seed);
    let missing: Vec<Endpoint> =
        findings.unreached.iter().filter(is_node).map(|unreached| unreached.endpoint.clone()).collect();
    let would_do = cluster.kind == Kind::Galera { arbitrators: 0 }
        && cluster.members.len() + missing.len() >= ASSISTED_NODES_MIN;
    (would_do && !missing.is_empty()).then(|| Remark {
        servers: missing,
        text: format!(
            "not reached, so there is no account with which Weir evicts dead nodes, which takes {ASSISTED_NODES_MIN} nodes: \
             run this again with --force when it is back"
        ),
    })
}

/// The nodes that lack provider options, and what else speaks against evictions.
fn obstacles<'s>(nodes: impl Iterator<Item = &'s Server>) -> (Vec<Endpoint>, Vec<Remark>) {
    let (mut lacking, mut remarks) = (Vec::new(), Vec::new());
    for node in nodes {
        let Some(galera) = &node.facts.galera else { continue };
        if galera.obstacles.iter().any(|obstacle| matches!(obstacle, Obstacle::Option { .. })) {
            lacking.push(node.endpoint.clone());
        }
        for obstacle in
            galera.obstacles.iter().filter(|obstacle| !matches!(obstacle, Obstacle::Option { .. }))
        {
            let text = format!("dead nodes are not evicted: {obstacle}");
            remarks.push(Remark { servers: vec![node.endpoint.clone()], text });
        }
    }
    (lacking, remarks)
}

fn rows(findings: &Findings, cluster: &Cluster, wishes: &Wishes) -> Vec<Row> {
    let weights = weights::weights(findings, cluster);
    // The monitor needs a privilege for it, which is known of a new account only.
    let may_ask = match &wishes.monitor {
        Trust::Make => true,
        Trust::Use { is_trial, .. } => {
            *is_trial && cluster.servers(findings).all(|(_, server)| server.facts.refused.is_empty())
        }
    };
    let limits_lag = cluster.kind == Kind::Replication && may_ask;
    let mut rows: Vec<Row> = cluster
        .servers(findings)
        .zip(weights)
        .map(|((member, server), weight)| Row {
            endpoint: server.endpoint.clone(),
            weight,
            max_replication_lag_s: if limits_lag { REPLICATION_LAG_S_MAX } else { 0 },
            comment: comment(cluster, member.server, server, weight),
            is_left_out: false,
        })
        .collect();
    let is_one_of = |named_by: NamedBy| match cluster.kind {
        Kind::Galera { .. } => matches!(named_by, NamedBy::Member | NamedBy::Seed),
        Kind::Group { .. } => named_by == NamedBy::Member,
        Kind::Replication => named_by != NamedBy::User,
        Kind::Single => false,
    };
    for unreached in findings.unreached.iter().filter(|unreached| is_one_of(unreached.named_by)) {
        let comment = format!("{}, not reached: {}", unreached.named_by, unreached.reason.replace('\n', " "));
        rows.push(Row {
            endpoint: unreached.endpoint.clone(),
            weight: 1,
            max_replication_lag_s: if limits_lag { REPLICATION_LAG_S_MAX } else { 0 },
            comment,
            is_left_out: true,
        });
    }
    rows
}

fn comment(cluster: &Cluster, index: usize, server: &Server, weight: u32) -> String {
    let node = server.facts.galera.as_ref().map(|galera| galera.state.node_name.as_str()).unwrap_or_default();
    match cluster.kind {
        Kind::Galera { .. } if weights::is_preferred(weight) => format!("{node}: preferred as the writer"),
        Kind::Galera { .. } => node.to_owned(),
        Kind::Group { has_one_primary: true } if cluster.writer == Some(index) => {
            "now the primary".to_owned()
        }
        Kind::Replication if cluster.writer == Some(index) => "now the source".to_owned(),
        Kind::Replication | Kind::Group { .. } | Kind::Single => String::new(),
    }
}

#[cfg(test)]
mod tests;
