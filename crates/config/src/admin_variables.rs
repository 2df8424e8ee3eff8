//! `[admin_variables]`: the admin interface, HTTP, and the cluster of proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::fields::{Fields, quotable};
use crate::listeners::{self, ListenAddress};
use crate::names;
use crate::password::Secret;
use crate::suggest::unknown_word;
use crate::tables::{PASSWORD_BYTES_MAX, USERNAME_CHARS_MAX};

/// The most accounts of one kind.
const CREDENTIALS_MAX: usize = 100;
const CREDENTIALS_BYTES_MAX: usize = 64 << 10;
const IP_CHARS_MAX: usize = 64;
/// ProxySQL's ranges.
const CHECK_INTERVAL_MS: std::ops::RangeInclusive<u64> = 10..=300_000;
const CHECK_STATUS_FREQUENCY_MAX: u32 = 10_000;
const DIFFS_MAX: u32 = 1000;
/// What takes longer than a day is no check.
const SCHEDULER_TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;
const HISTORY_INTERVAL_SEC_MAX: u64 = 300;

/// The variables. A field has the variable's name; a time is a [`Duration`] whatever unit the file uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminVariables {
    /// Accounts that may do everything, default admin:admin.
    pub admin_credentials: Vec<AdminAccount>,
    /// Accounts that may read statistics, default stats:stats.
    pub stats_credentials: Vec<AdminAccount>,
    /// Where the admin interface listens, default 127.0.0.1:6032 (ProxySQL: 0.0.0.0:6032); none: nowhere.
    pub mysql_ifaces: Vec<ListenAddress>,
    /// Weir's own: whether the default passwords are good from everywhere, default false: from this machine only.
    pub allow_default_credentials: bool,
    /// Whether admins may change nothing, default false.
    pub read_only: bool,
    /// Weir's own: how long a program of `scheduler` may run, default 60 s.
    pub scheduler_timeout_ms: Duration,
    /// Whether HTTP is answered on `web_port`, default false.
    pub web_enabled: bool,
    /// Default 6080.
    pub web_port: u16,
    /// Weir's own: the address of both, default 0.0.0.0.
    pub web_ip: IpAddr,
    /// Weir's own: whether anybody may read the metrics, default false.
    pub web_metrics_public: bool,
    /// Weir's own: who shows it may read what is more than health over HTTP; none (default): only accounts may.
    pub web_token: Option<Secret>,
    /// Whether HTTP is answered on `restapi_port`, too, default false.
    pub restapi_enabled: bool,
    /// Default 6070.
    pub restapi_port: u16,
    /// The cluster of proxies.
    pub cluster: ClusterVariables,
    /// How often connections are written to `stats_history`, default every 60 s; 0: never.
    pub stats_mysql_connections: Duration,
    /// How often the connection pool is, default every 60 s; 0: never.
    pub stats_mysql_connection_pool: Duration,
    /// How often digests are moved there, default 0: never.
    pub stats_mysql_query_digest_to_disk: Duration,
    /// How often the use of the CPU is, default every 60 s; 0: never.
    pub stats_system_cpu: Duration,
    /// How often the use of memory is, default every 60 s; 0: never.
    pub stats_system_memory: Duration,
}

/// An account of the admin interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminAccount {
    /// Never empty.
    pub username: String,
    /// In clear.
    pub password: Secret,
}

impl AdminAccount {
    fn new(username: &str, password: &str) -> Self {
        Self { username: username.to_owned(), password: Secret::new(password) }
    }

    /// Whether everybody knows its password.
    pub fn is_default(&self) -> bool {
        [("admin", "admin"), ("stats", "stats")].contains(&(self.username.as_str(), self.password.expose()))
    }
}

/// `cluster_` and `checksum_` variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterVariables {
    /// The account with which the others' admin interfaces are asked; empty (default): they are not.
    pub username: String,
    /// Its password.
    pub password: Secret,
    /// How the connections to them are encrypted, and whether the account may log in here without, default REQUIRED.
    pub ssl_mode: ClusterSslMode,
    /// Of this machine: the authorities (PEM) of which one must have signed the others' certificates, where these are
    /// verified.
    pub ssl_ca: Option<PathBuf>,
    /// How often their checksums are looked at, default every second.
    pub check_interval: Duration,
    /// At every how manieth look their status is, too, default 10; 0: never.
    pub check_status_frequency: u32,
    /// By module.
    pub modules: [ClusterModule; 6],
}

/// How proxies speak with each other, in the words of the clients' `--ssl-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClusterSslMode {
    /// In clear: whoever can listen in reads the passwords.
    Disabled,
    /// Encrypted, with whatever certificate: nobody can listen in, but somebody could pretend to be a proxy.
    #[default]
    Required,
    /// With a certificate of an authority.
    VerifyCa,
    /// One that also names the proxy as `proxysql_servers` does.
    VerifyIdentity,
}

impl ClusterSslMode {
    const ALL: [(&str, Self); 4] = [
        ("DISABLED", Self::Disabled),
        ("REQUIRED", Self::Required),
        ("VERIFY_CA", Self::VerifyCa),
        ("VERIFY_IDENTITY", Self::VerifyIdentity),
    ];

    fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

/// How a module follows the other proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterModule {
    /// Its name in `runtime_checksums_values`.
    pub name: &'static str,
    /// After how many looks that found a difference it is fetched, default 3; 0: never.
    pub diffs_before_sync: u32,
    /// Whether what was fetched is saved, default true.
    pub save_to_disk: bool,
    /// Whether its checksum is made at all, default true.
    pub has_checksum: bool,
}

/// The variables of each module: its name, its `diffs_before_sync`, `save_to_disk` and `checksum`.
const MODULES: [(&str, &str, &str, Option<&str>); 6] = [
    (
        "admin_variables",
        "cluster_admin_variables_diffs_before_sync",
        "cluster_admin_variables_save_to_disk",
        Some("checksum_admin_variables"),
    ),
    (
        "mysql_query_rules",
        "cluster_mysql_query_rules_diffs_before_sync",
        "cluster_mysql_query_rules_save_to_disk",
        Some("checksum_mysql_query_rules"),
    ),
    (
        "mysql_servers",
        "cluster_mysql_servers_diffs_before_sync",
        "cluster_mysql_servers_save_to_disk",
        Some("checksum_mysql_servers"),
    ),
    (
        "mysql_users",
        "cluster_mysql_users_diffs_before_sync",
        "cluster_mysql_users_save_to_disk",
        Some("checksum_mysql_users"),
    ),
    (
        "mysql_variables",
        "cluster_mysql_variables_diffs_before_sync",
        "cluster_mysql_variables_save_to_disk",
        Some("checksum_mysql_variables"),
    ),
    (
        "proxysql_servers",
        "cluster_proxysql_servers_diffs_before_sync",
        "cluster_proxysql_servers_save_to_disk",
        None,
    ),
];

impl Default for AdminVariables {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Self {
            admin_credentials: vec![AdminAccount::new("admin", "admin")],
            stats_credentials: vec![AdminAccount::new("stats", "stats")],
            mysql_ifaces: vec![ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 6032)))],
            allow_default_credentials: false,
            read_only: false,
            scheduler_timeout_ms: minute,
            web_enabled: false,
            web_port: 6080,
            web_ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            web_metrics_public: false,
            web_token: None,
            restapi_enabled: false,
            restapi_port: 6070,
            cluster: ClusterVariables::default(),
            stats_mysql_connections: minute,
            stats_mysql_connection_pool: minute,
            stats_mysql_query_digest_to_disk: Duration::ZERO,
            stats_system_cpu: minute,
            stats_system_memory: minute,
        }
    }
}

impl Default for ClusterVariables {
    fn default() -> Self {
        Self {
            username: String::new(),
            password: Secret::new(""),
            ssl_mode: ClusterSslMode::default(),
            ssl_ca: None,
            check_interval: Duration::from_secs(1),
            check_status_frequency: 10,
            modules: MODULES.map(|(name, ..)| ClusterModule {
                name,
                diffs_before_sync: 3,
                save_to_disk: true,
                has_checksum: true,
            }),
        }
    }
}

/// Reads the table.
pub(crate) fn read(mut f: Fields<'_, '_>) -> AdminVariables {
    let mut v = AdminVariables::default();
    if let Some(accounts) = credentials(&mut f, "admin_credentials") {
        v.admin_credentials = accounts;
    }
    if let Some(accounts) = credentials(&mut f, "stats_credentials") {
        v.stats_credentials = accounts;
    }
    if let Some(account) = v.admin_credentials.iter().find(|account| v.is_stats_account(&account.username)) {
        let name = quotable(&account.username);
        f.refuse("stats_credentials", format!("\"{name}\" is in admin_credentials, too"));
    }
    if let Some(addresses) = listeners::addresses(&mut f, "mysql_ifaces") {
        v.mysql_ifaces = addresses;
    }
    v.allow_default_credentials = f.boolean("allow_default_credentials", false);
    v.read_only = f.boolean("read_only", false);
    v.scheduler_timeout_ms = f.millis("scheduler_timeout_ms", v.scheduler_timeout_ms, SCHEDULER_TIMEOUT_MS);
    v.web_enabled = f.boolean("web_enabled", v.web_enabled);
    v.web_port = f.integer("web_port", v.web_port, 1..=u16::MAX);
    if let Some(ip) = f.optional_text("web_ip", IP_CHARS_MAX) {
        match ip.parse() {
            Ok(ip) => v.web_ip = ip,
            Err(_) => f.refuse("web_ip", format!("\"{}\" is not an IP address", quotable(&ip))),
        }
    }
    v.web_metrics_public = f.boolean("web_metrics_public", v.web_metrics_public);
    let token = f.secret_text("web_token", PASSWORD_BYTES_MAX);
    v.web_token = token.filter(|token| !token.is_empty()).map(Secret::new);
    v.restapi_enabled = f.boolean("restapi_enabled", v.restapi_enabled);
    v.restapi_port = f.integer("restapi_port", v.restapi_port, 1..=u16::MAX);
    if v.web_enabled && v.restapi_enabled && v.web_port == v.restapi_port {
        f.refuse("restapi_port", format!("{} is web_port, too", v.restapi_port));
    }
    cluster(&mut f, &mut v.cluster);
    history(&mut f, &mut v);
    // It says what runs.
    f.item("version");
    let is_strict = f.report.is_strict();
    let known: Vec<&'static str> = names::not_built(names::ADMIN).collect();
    f.finish(|name, value| names::leftover(names::ADMIN, name, value, is_strict), &known);
    v
}

impl AdminVariables {
    fn is_stats_account(&self, username: &str) -> bool {
        self.stats_credentials.iter().any(|account| account.username == username)
    }
}

fn history(f: &mut Fields<'_, '_>, v: &mut AdminVariables) {
    let seconds = |f: &mut Fields<'_, '_>, name, default: Duration| {
        Duration::from_secs(f.integer(name, default.as_secs(), 0..=HISTORY_INTERVAL_SEC_MAX))
    };
    v.stats_mysql_connections = seconds(f, "stats_mysql_connections", v.stats_mysql_connections);
    v.stats_mysql_connection_pool = seconds(f, "stats_mysql_connection_pool", v.stats_mysql_connection_pool);
    v.stats_mysql_query_digest_to_disk =
        seconds(f, "stats_mysql_query_digest_to_disk", v.stats_mysql_query_digest_to_disk);
    v.stats_system_cpu = seconds(f, "stats_system_cpu", v.stats_system_cpu);
    v.stats_system_memory = seconds(f, "stats_system_memory", v.stats_system_memory);
}

fn cluster(f: &mut Fields<'_, '_>, v: &mut ClusterVariables) {
    v.username = f.text("cluster_username", "", USERNAME_CHARS_MAX);
    v.password = Secret::new(f.secret_text("cluster_password", PASSWORD_BYTES_MAX).unwrap_or_default());
    if let Some(word) = f.optional_text("cluster_ssl_mode", 64) {
        match ClusterSslMode::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(&word)) {
            Some((_, mode)) => v.ssl_mode = *mode,
            None => {
                let known = ClusterSslMode::ALL.map(|(known, _)| known);
                f.refuse("cluster_ssl_mode", unknown_word(&quotable(&word), &known));
            }
        }
    }
    let ca = f.optional_text("cluster_ssl_ca", 4096);
    v.ssl_ca = ca.filter(|path| !path.is_empty()).map(PathBuf::from);
    if v.ssl_mode.verifies() && v.ssl_ca.is_none() {
        f.refuse("cluster_ssl_mode", "needs cluster_ssl_ca too, which each proxy has for itself".to_owned());
    }
    v.check_interval = f.millis("cluster_check_interval_ms", v.check_interval, CHECK_INTERVAL_MS);
    v.check_status_frequency =
        f.integer("cluster_check_status_frequency", v.check_status_frequency, 0..=CHECK_STATUS_FREQUENCY_MAX);
    for (module, (_, diffs, save, checksum)) in v.modules.iter_mut().zip(MODULES) {
        module.diffs_before_sync = f.integer(diffs, module.diffs_before_sync, 0..=DIFFS_MAX);
        module.save_to_disk = f.boolean(save, module.save_to_disk);
        if let Some(checksum) = checksum {
            module.has_checksum = f.boolean(checksum, module.has_checksum);
        }
    }
}

/// `user:password;user:password`; none if there is a fault or nothing is given.
fn credentials(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Vec<AdminAccount>> {
    let text = f.secret_text(name, CREDENTIALS_BYTES_MAX)?;
    let mut accounts: Vec<AdminAccount> = Vec::new();
    for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
        // The part may be a password by mistake: it is not repeated.
        let Some((username, password)) = part.split_once(':').filter(|(username, _)| !username.is_empty())
        else {
            f.refuse(name, format!("account {} is not user:password", accounts.len() + 1));
            return None;
        };
        if username.chars().count() > USERNAME_CHARS_MAX || password.len() > PASSWORD_BYTES_MAX {
            f.refuse(name, format!("account {} is too long", accounts.len() + 1));
            return None;
        }
        if accounts.iter().any(|account| account.username == username) {
            f.refuse(name, format!("\"{}\" is there twice", quotable(username)));
            return None;
        }
        accounts.push(AdminAccount::new(username, password));
    }
    if accounts.len() > CREDENTIALS_MAX {
        f.refuse(name, format!("more than {CREDENTIALS_MAX} accounts"));
        return None;
    }
    Some(accounts)
}
