//! Holds the admin variables that this crate goes by.

use weir_config::{AdminAccount, AdminVariables, ClusterSslMode, ListenAddress};

use crate::login::Accounts;

/// Accounts that everybody knows, as ProxySQL's are.
const DEFAULTS: [(&str, &str); 2] = [("admin", "admin"), ("stats", "stats")];

/// The addresses to listen on, and the accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `admin-mysql_ifaces`; none: there is no admin port.
    pub interfaces: Vec<ListenAddress>,
    /// `admin-admin_credentials`: users and passwords.
    pub admins: Vec<(String, String)>,
    /// `admin-stats_credentials`: users and passwords of those who may only read.
    pub stats: Vec<(String, String)>,
    /// `admin-read_only`
    pub is_read_only: bool,
    /// The account of other proxies, to which configuration is told with its passwords, where it must not be told in
    /// clear.
    pub encrypted_only: Option<String>,
    /// Whether passwords that everybody knows may be used from other machines.
    pub allows_default_credentials: bool,
}

impl From<&AdminVariables> for Settings {
    fn from(variables: &AdminVariables) -> Self {
        let pairs = |accounts: &[AdminAccount]| {
            let pair =
                |account: &AdminAccount| (account.username.clone(), account.password.expose().to_owned());
            accounts.iter().map(pair).collect()
        };
        let cluster = &variables.cluster;
        Self {
            interfaces: variables.mysql_ifaces.clone(),
            admins: pairs(&variables.admin_credentials),
            stats: pairs(&variables.stats_credentials),
            is_read_only: variables.read_only,
            encrypted_only: (cluster.ssl_mode != ClusterSslMode::Disabled && !cluster.username.is_empty())
                .then(|| cluster.username.clone()),
            allows_default_credentials: variables.allow_default_credentials,
        }
    }
}

impl Settings {
    pub(crate) fn accounts(&self) -> Accounts {
        Accounts::new(&self.admins, &self.stats, self.encrypted_only.as_deref())
    }

    fn default_accounts(&self) -> impl Iterator<Item = &str> {
        let all = self.admins.iter().chain(&self.stats);
        all.filter(|(user, password)| {
            password.is_empty() || DEFAULTS.contains(&(user.as_str(), password.as_str()))
        })
        .map(|(user, _)| user.as_str())
    }

    /// Whether these can go together.
    pub(crate) fn check(&self) -> Result<(), String> {
        let open = self.interfaces.iter().find(|address| is_open(address));
        let (Some(address), Some(user)) = (open, self.default_accounts().next()) else { return Ok(()) };
        if self.allows_default_credentials {
            return Ok(());
        }
        Err(format!(
            "admin-mysql_ifaces: {address} can be reached from other machines, and the password of \"{user}\" is a well-known default: change admin-admin_credentials and admin-stats_credentials, or set \
             admin-allow_default_credentials to true"
        ))
    }

    /// Says loudly that passwords are the default ones.
    pub(crate) fn warn(&self) {
        let users: Vec<_> = self.default_accounts().collect();
        if !users.is_empty() && !self.interfaces.is_empty() {
            let users = users.join(", ");
            tracing::warn!(
                users,
                "the admin interface has accounts with default passwords: change admin-admin_credentials and \
                 admin-stats_credentials"
            );
        }
    }
}

/// Whether others than this machine can connect.
fn is_open(address: &ListenAddress) -> bool {
    match address {
        ListenAddress::Tcp(address) => !address.ip().is_loopback(),
        ListenAddress::Unix(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_of_other_proxies_does_not_come_in_clear_unless_told_so() {
        let settings = |username: &str, ssl_mode| {
            let mut variables = AdminVariables::default();
            (variables.cluster.username, variables.cluster.ssl_mode) = (username.to_owned(), ssl_mode);
            Settings::from(&variables).encrypted_only
        };
        assert_eq!(settings("peer", ClusterSslMode::default()).as_deref(), Some("peer"));
        assert_eq!(settings("peer", ClusterSslMode::VerifyCa).as_deref(), Some("peer"));
        assert_eq!(settings("peer", ClusterSslMode::Disabled), None);
        assert_eq!(settings("", ClusterSslMode::Required), None);
    }

    #[test]
    fn default_passwords_stay_at_home_unless_asked_for() {
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        let address = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        let mut settings = Settings {
            interfaces: vec![address("127.0.0.1:6032")],
            admins: vec![pair("admin", "admin")],
            ..Settings::default()
        };
        assert_eq!(settings.check(), Ok(()));
        settings.interfaces.push(address("0.0.0.0:6032"));
        assert!(settings.check().unwrap_err().contains("0.0.0.0:6032"));
        settings.allows_default_credentials = true;
        assert_eq!(settings.check(), Ok(()));
        settings.allows_default_credentials = false;
        settings.admins = vec![pair("admin", "better")];
        assert_eq!(settings.check(), Ok(()));
        settings.stats = vec![pair("monitor", "")];
        assert!(settings.check().is_err(), "no password");
    }
}
