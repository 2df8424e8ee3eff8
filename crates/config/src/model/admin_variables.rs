//! Declares `[admin_variables]`: the admin interface, HTTP, and the cluster of proxies.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::field::fields::Fields;
use crate::field::kind::{BOOLEAN, By, Hidden, Nested, OneValue, Only, integer, millis, seconds, variables};
use crate::model::cluster_variables::ClusterVariables;
use crate::model::listeners;
use crate::model::listeners::{ListenAddress, addresses};
use crate::table::variable::{ADMIN, LOCAL};
use crate::value::limits::{PASSWORD_BYTES_MAX, USERNAME_CHARS_MAX};
use crate::value::password::Secret;
use crate::value::suggest::quotable;

/// The most accounts of one kind.
const CREDENTIALS_MAX: usize = 100;
const CREDENTIALS_BYTES_MAX: usize = 64 << 10;
/// What takes longer than a day is no check.
const SCHEDULER_TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;
const HISTORY_INTERVAL_SEC: std::ops::RangeInclusive<u64> = 0..=300;
const MINUTE: Duration = Duration::from_secs(60);

variables! {
/// The variables. A field has the variable's name; a time is a [`Duration`] whatever unit the file uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminVariables of ADMIN {
    /// Accounts of the [admin port](admin.md) with all rights, `user:password`, separated by `;`.
    admin_credentials: Vec<AdminAccount> = vec![AdminAccount::new("admin", "admin")], CREDENTIALS;
    /// Accounts that may only read: `stats`, `monitor`, `stats_history` and `runtime_` tables without passwords.
    stats_credentials: Vec<AdminAccount> = vec![AdminAccount::new("stats", "stats")], CREDENTIALS => distinct_accounts;
    /// Addresses of the admin port, `ip:port` or paths of Unix sockets, separated by `;`; empty: no admin port. ProxySQL's
    /// default is `0.0.0.0:6032`.
    mysql_ifaces: Vec<ListenAddress> = vec![ListenAddress::Tcp(SocketAddr::from(([127, 0, 0, 1], 6032)))], ADDRESSES, LOCAL;
    /// Weir's own: accepts the default passwords at addresses that other machines can reach.
    allow_default_credentials: bool = false, BOOLEAN;
    /// Forbids changes at the admin port, as PROXYSQL READONLY does.
    read_only: bool = false, BOOLEAN;
    /// Weir's own: time limit for a program of the [scheduler](scheduler.md).
    scheduler_timeout_ms: Duration = MINUTE, millis(SCHEDULER_TIMEOUT_MS);
    /// Serves [HTTP](metrics.md) on `web_port`.
    web_enabled: bool = false, BOOLEAN, LOCAL;
    /// Port of HTTP.
    web_port: u16 = 6080, integer(1..=u16::MAX), LOCAL;
    /// Weir's own: address of both HTTP ports.
    web_ip: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED), IP;
    /// Weir's own: serves `/metrics` without a password, as ProxySQL does.
    web_metrics_public: bool = false, BOOLEAN;
    /// Weir's own: bearer token that is accepted in place of a user and password. Empty: accounts only.
    web_token: Option<Secret> = None, Hidden(PASSWORD_BYTES_MAX);
    /// Serves HTTP on `restapi_port`, too, where ProxySQL has `/metrics`.
    restapi_enabled: bool = false, BOOLEAN, LOCAL;
    /// Second port of HTTP.
    restapi_port: u16 = 6070, integer(1..=u16::MAX), LOCAL => distinct_ports;
    /// The [cluster of proxies](proxies.md).
    cluster: ClusterVariables = ClusterVariables::default(), Nested;
    /// Interval for recording connections in [`stats_history`](statistics.md); 0: never.
    stats_mysql_connections: Duration = MINUTE, seconds(HISTORY_INTERVAL_SEC);
    /// Interval for recording the connection pool in `stats_history`; 0: never.
    stats_mysql_connection_pool: Duration = MINUTE, seconds(HISTORY_INTERVAL_SEC);
    /// Interval for moving digests to `stats_history`; 0: never.
    stats_mysql_query_digest_to_disk: Duration = Duration::ZERO, seconds(HISTORY_INTERVAL_SEC);
    /// Interval for recording CPU usage in `stats_history`; 0: never.
    stats_system_cpu: Duration = MINUTE, seconds(HISTORY_INTERVAL_SEC);
    /// Interval for recording memory usage in `stats_history`; 0: never.
    stats_system_memory: Duration = MINUTE, seconds(HISTORY_INTERVAL_SEC);
    /// Weir's version; a configured value is ignored.
    version: OneValue = OneValue::default(), Only(env!("CARGO_PKG_VERSION"), accept), LOCAL;
}
}

const ADDRESSES: By<Vec<ListenAddress>> =
    By { read: addresses, text: |addresses| listeners::written(addresses), values: "" };
const IP: By<IpAddr> = By {
    read: |f, name| {
        let text = f.optional_text(name, 64)?;
        let address = text.parse().ok();
        if address.is_none() {
            f.refuse(name, format!("\"{}\" is not an IP address", quotable(&text)));
        }
        address
    },
    text: IpAddr::to_string,
    values: "",
};
const CREDENTIALS: By<Vec<AdminAccount>> =
    By { read: credentials, text: |accounts| written(accounts), values: "" };

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

fn accept(f: &mut Fields<'_, '_>, name: &'static str) {
    f.item(name);
}

pub(crate) fn written(accounts: &[AdminAccount]) -> String {
    let pair = |account: &AdminAccount| format!("{}:{}", account.username, account.password.expose());
    accounts.iter().map(pair).collect::<Vec<_>>().join(";")
}

fn distinct_accounts(f: &mut Fields<'_, '_>, v: &AdminVariables) {
    let is_stats_account =
        |admin: &&AdminAccount| v.stats_credentials.iter().any(|account| account.username == admin.username);
    if let Some(account) = v.admin_credentials.iter().find(is_stats_account) {
        let name = quotable(&account.username);
        f.refuse("stats_credentials", format!("\"{name}\" is in admin_credentials, too"));
    }
}

fn distinct_ports(f: &mut Fields<'_, '_>, v: &AdminVariables) {
    if v.web_enabled && v.restapi_enabled && v.web_port == v.restapi_port {
        f.refuse("restapi_port", format!("{} is web_port, too", v.restapi_port));
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
