//! Declares the `admin_variables` of a cluster of proxies.

use std::path::PathBuf;
use std::time::Duration;

use crate::field::fields::Fields;
use crate::field::kind::{
    BOOLEAN, Declared, Group, Hidden, Kind, Nested, PathName, Text, integer, millis, variables,
    word_of_any_case,
};
use crate::table::variable::{ADMIN, LOCAL, Marks, Variable};
use crate::value::limits::{PASSWORD_BYTES_MAX, USERNAME_CHARS_MAX};
use crate::value::password::Secret;

/// ProxySQL's ranges.
const CHECK_INTERVAL_MS: std::ops::RangeInclusive<u64> = 10..=300_000;
const CHECK_STATUS_FREQUENCY_MAX: u32 = 10_000;
const DIFFS_MAX: u32 = 1000;

macro_rules! module {
    ($name:literal, $checksum:expr) => {
        (
            $name,
            concat!("cluster_", $name, "_diffs_before_sync"),
            concat!("cluster_", $name, "_save_to_disk"),
            $checksum,
        )
    };
}

variables! {
/// `cluster_` and `checksum_` variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterVariables of ADMIN {
    /// Account with which this Weir logs in to the admin ports of the other proxies; empty: it does not contact them. See
    /// [several proxies](proxies.md).
    username as "cluster_username": String = String::new(), Text(USERNAME_CHARS_MAX, true);
    /// Password of `cluster_username`.
    password as "cluster_password": Secret = Secret::new(""), Hidden(PASSWORD_BYTES_MAX);
    /// TLS mode of connections between proxies. Unless it is `DISABLED`, `cluster_username` can't log in to this Weir over
    /// TCP without TLS.
    ssl_mode as "cluster_ssl_mode": ClusterSslMode = ClusterSslMode::default(), word_of_any_case(&[
        ("DISABLED", ClusterSslMode::Disabled),
        ("REQUIRED", ClusterSslMode::Required),
        ("VERIFY_CA", ClusterSslMode::VerifyCa),
        ("VERIFY_IDENTITY", ClusterSslMode::VerifyIdentity),
    ]);
    /// PEM file of the authorities that may sign the other proxies' certificates, for the modes that verify them.
    ssl_ca as "cluster_ssl_ca": Option<PathBuf> = None, PathName, LOCAL => verified_by_an_authority;
    /// Interval at which this Weir checks the other proxies' checksums.
    check_interval as "cluster_check_interval_ms": Duration = Duration::from_secs(1), millis(CHECK_INTERVAL_MS);
    /// Fetches the other proxies' status at every so many checks (10: every tenth); 0: never.
    check_status_frequency as "cluster_check_status_frequency": u32 = 10, integer(0..=CHECK_STATUS_FREQUENCY_MAX);
    /// By module.
    modules: [ClusterModule; 6] = MODULES.map(ClusterModule::of), Nested;
}
}

fn verified_by_an_authority(f: &mut Fields<'_, '_>, v: &ClusterVariables) {
    if v.ssl_mode.verifies() && v.ssl_ca.is_none() {
        f.refuse("cluster_ssl_mode", "needs cluster_ssl_ca too, which each proxy has for itself");
    }
}

/// The encryption between proxies, in the words of the clients' `--ssl-mode`.
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
    fn verifies(self) -> bool {
        matches!(self, Self::VerifyCa | Self::VerifyIdentity)
    }
}

/// The settings by which a module follows the other proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterModule {
    /// Its name in `runtime_checksums_values`.
    pub name: &'static str,
    /// Number of checks in a row that must find a difference before it is fetched, default 3; 0: never.
    pub diffs_before_sync: u32,
    /// Whether what was fetched is saved, default true.
    pub save_to_disk: bool,
    /// Whether its checksum is computed, default true.
    pub has_checksum: bool,
}

/// The variables of each module: its name, its `diffs_before_sync`, `save_to_disk` and `checksum`.
const MODULES: [(&str, &str, &str, Option<&str>); 6] = [
    module!("admin_variables", Some("checksum_admin_variables")),
    module!("mysql_query_rules", Some("checksum_mysql_query_rules")),
    module!("mysql_servers", Some("checksum_mysql_servers")),
    module!("mysql_users", Some("checksum_mysql_users")),
    module!("mysql_variables", Some("checksum_mysql_variables")),
    module!("proxysql_servers", None),
];

impl ClusterModule {
    fn of((name, ..): (&'static str, &str, &str, Option<&str>)) -> Self {
        Self { name, diffs_before_sync: 3, save_to_disk: true, has_checksum: true }
    }
}

impl Group for [ClusterModule; 6] {
    fn declare(list: &mut Vec<Variable>) {
        let of = |name, field, doc| Declared { module: ADMIN, name, field, doc, marks: Marks::default() };
        for (_, diffs, save, checksum) in MODULES {
            let doc = "Number of checks in a row that must find a difference before this Weir fetches the module; 0: never.";
            integer(0..=DIFFS_MAX).declare(of(diffs, "diffs_before_sync", doc), &3, list);
            BOOLEAN.declare(of(save, "save_to_disk", "Saves a fetched module to disk."), &true, list);
            if let Some(name) = checksum {
                BOOLEAN.declare(
                    of(
                        name,
                        "has_checksum",
                        "Computes the module's checksum; without it the module is never fetched.",
                    ),
                    &true,
                    list,
                );
            }
        }
    }

    fn read(f: &mut Fields<'_, '_>) -> Self {
        MODULES.map(|module @ (_, diffs, save, checksum)| {
            let defaults = ClusterModule::of(module);
            ClusterModule {
                diffs_before_sync: f.integer(diffs, defaults.diffs_before_sync, 0..=DIFFS_MAX),
                save_to_disk: f.boolean(save, defaults.save_to_disk),
                has_checksum: checksum.is_none_or(|name| f.boolean(name, defaults.has_checksum)),
                ..defaults
            }
        })
    }
}
