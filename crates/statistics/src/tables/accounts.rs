//! Fills `stats_weir_accounts`: who may log in without a row in `mysql_users`.

use std::sync::atomic::Ordering;

use weir_protocol::auth::StoredPassword;
use weir_proxy::snapshot::{Account, Users};
use weir_session::accounts::{AccountState, HostPattern, TlsRequirement};

use super::{Rows, integer, text};

/// The accounts of the servers, by name and host.
pub(super) fn accounts(users: &Users) -> Rows {
    let followed = users.iter().filter_map(|account| Some((account.host.as_ref()?, &**account)));
    let mut accounts: Vec<(&HostPattern, &Account)> = followed.collect();
    accounts.sort_by(|(host, account), (other_host, other)| {
        (&account.user.username, account.user.default_hostgroup, host).cmp(&(
            &other.user.username,
            other.user.default_hostgroup,
            other_host,
        ))
    });
    accounts.into_iter().map(|(host, account)| row(users, host, account)).collect()
}

fn row(users: &Users, host: &HostPattern, account: &Account) -> Vec<weir_store::Value> {
    let terms = account.terms();
    let name = account.user.username.as_bytes();
    let form = match *terms.stored {
        StoredPassword::ClearText(_) => "none",
        StoredPassword::Native(_) => "mysql_native_password",
        StoredPassword::Sha2(_) => "caching_sha2_password",
        StoredPassword::Ed25519(_) => "ed25519",
        StoredPassword::Unknown => "unknown",
    };
    let obstacle = if users.configured.contains_key(name) || users.inactive.contains(name) {
        "mysql_users has a row of this name"
    } else if host.is_name() {
        "names of hosts are not looked up"
    } else if terms.state == AccountState::Locked {
        "locked"
    } else if terms.state == AccountState::Expired {
        "the password has expired"
    } else if *terms.stored == StoredPassword::Unknown {
        "the authentication plugin is not supported"
    } else if terms.tls == TlsRequirement::Cipher {
        "a cipher is required, which is not supported"
    } else {
        ""
    };
    vec![
        text(&account.user.username),
        text(host.as_str()),
        integer(account.user.default_hostgroup),
        text(form),
        integer(u8::from(terms.tls != TlsRequirement::None)),
        integer(account.clients.load(Ordering::Relaxed)),
        integer(account.clients_max()),
        integer(u8::from(account.credential().is_some())),
        text(obstacle),
    ]
}
