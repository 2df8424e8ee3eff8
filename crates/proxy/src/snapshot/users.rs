//! Holds who may log in: the rows of `mysql_users`, and the accounts of the servers where those are followed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_config::MysqlUser;
use weir_protocol::auth::rsa::RsaKey;
use weir_session::accounts::{Chosen, ClientCertificate, ClientHost, HostPattern, LoginTerms};
use weir_session::login::{Credential, LoginUser, Passwords, Refusal};

/// Everybody who may log in.
#[derive(Debug, Default)]
pub struct Users {
    /// Active rows of `mysql_users`, by name. They come before the servers' accounts.
    pub configured: HashMap<Vec<u8>, Arc<Account>>,
    /// The names of those that are not active: who logs in as one of them is refused, and the log says why.
    pub inactive: Arc<HashSet<Vec<u8>>>,
    /// The accounts of the servers, of one hostgroup after the other: the first that knows a client counts.
    /// None: they are not known yet, so that nobody knows who comes behind them.
    pub followed: Vec<Option<Arc<FollowedAccounts>>>,
    /// Why accounts are not known that are to be followed.
    pub unknown: Option<Arc<str>>,
}

/// The accounts of a hostgroup's servers.
#[derive(Debug, Default)]
pub struct FollowedAccounts {
    /// By name, each time the most specific host first. Those without a name only say who is not let in.
    pub by_name: HashMap<Vec<u8>, Vec<(HostPattern, Arc<Account>)>>,
}

impl Users {
    /// The account of a client that calls itself `name`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(&self, name: &[u8], client: ClientHost) -> Result<&Arc<Account>, Refusal> {
        if let Some(account) = self.configured.get(name) {
            return Ok(account);
        }
        if self.inactive.contains(name) {
            return Err(Refusal::UserNotActive);
        }
        for accounts in &self.followed {
            let Some(accounts) = accounts else { return Err(Refusal::AccountsUnknown) };
            match accounts.chosen(name, client) {
                Chosen::Account((_, account)) => return Ok(account),
                Chosen::Anonymous => return Err(Refusal::AnonymousAccount),
                Chosen::Nobody => {}
            }
        }
        Err(Refusal::NoSuchUser)
    }

    /// What an account has become; none if it is gone. As long as the servers' are not known it is what it was.
    pub(crate) fn current<'u>(&'u self, account: &'u Arc<Account>) -> Option<&'u Arc<Account>> {
        let name = account.user.username.as_bytes();
        if let Some(current) = self.configured.get(name) {
            return Some(current);
        }
        if self.inactive.contains(name) {
            return None;
        }
        let is_same = |(_, other): &&(HostPattern, Arc<Account>)| {
            other.host == account.host && other.user.default_hostgroup == account.user.default_hostgroup
        };
        account.host.as_ref()?;
        if self.followed.iter().any(Option::is_none) {
            return Some(account);
        }
        let of_name = self.followed.iter().flatten().filter_map(|accounts| accounts.by_name.get(name));
        of_name.flatten().find(is_same).map(|(_, account)| account)
    }

    /// All that a client may log in with.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        let followed = self.followed.iter().flatten();
        let followed =
            followed.flat_map(|accounts| accounts.by_name.values().flatten().map(|(_, account)| account));
        self.configured.values().chain(followed.filter(|account| !account.user.username.is_empty()))
    }
}

impl FollowedAccounts {
    fn chosen(&self, name: &[u8], client: ClientHost) -> Chosen<'_, (HostPattern, Arc<Account>)> {
        let of = |name: &[u8]| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        // Whoever has no name is nobody.
        let named = if name.is_empty() { &[] } else { of(name) };
        Chosen::of(named, of(b""), client, |(host, _)| host)
    }
}

/// A user with what logins have taught about the password.
#[derive(Debug)]
pub struct Account {
    /// The row of `mysql_users`, or one that says the same of a server's account.
    pub user: Arc<MysqlUser>,
    /// From where clients of a server's account come; none: a row of `mysql_users`.
    pub host: Option<HostPattern>,
    /// Clients logged in as this user.
    pub clients: AtomicU32,
    /// Touched at logins only.
    login: Mutex<Login>,
}

#[derive(Debug)]
struct Login {
    terms: LoginTerms,
    /// What servers accept, once it is known: a hash alone does not tell it, a client's login does.
    credential: Option<Credential>,
    /// The credential is that of another password than the account has now.
    is_outdated: bool,
}

impl Account {
    /// A row of `mysql_users` with what logs in at servers, if that is known.
    pub fn configured(user: Arc<MysqlUser>, terms: LoginTerms, credential: Option<Credential>) -> Self {
        let login = Mutex::new(Login { terms, credential, is_outdated: false });
        Self { user, host: None, clients: AtomicU32::new(0), login }
    }

    /// An account of the servers.
    pub fn followed(user: Arc<MysqlUser>, host: HostPattern, terms: LoginTerms) -> Self {
        let login = Mutex::new(Login { terms, credential: None, is_outdated: false });
        Self { user, host: Some(host), clients: AtomicU32::new(0), login }
    }

    /// The servers have other terms now. Sessions and connections go on.
    pub fn renew(&self, terms: &LoginTerms) {
        let mut login = self.login();
        if login.terms != *terms {
            let is_same = login.terms.stored == terms.stored && login.terms.additional == terms.additional;
            login.is_outdated |= !is_same;
            login.terms = terms.clone();
        }
    }

    /// Under which terms clients may log in now.
    pub fn terms(&self) -> LoginTerms {
        self.login().terms.clone()
    }

    /// What logs in at servers, if it is known; after a change of the password that of before, until a client has shown
    /// the new one.
    pub fn credential(&self) -> Option<Credential> {
        self.login().credential.clone()
    }

    /// Whether what logs in at servers is that of another password than the account has now.
    pub(crate) fn is_outdated(&self) -> bool {
        self.login().is_outdated
    }

    /// What a login has to know.
    pub(crate) fn login_user(
        &self,
        certificate: Option<Arc<ClientCertificate>>,
        rsa_key: Option<Arc<RsaKey>>,
    ) -> LoginUser {
        let login = self.login();
        let known = login.credential.clone().filter(|_| !login.is_outdated);
        LoginUser { terms: login.terms.clone(), certificate, known, rsa_key }
    }

    /// Takes note of what a login has shown of these passwords, unless more is known: a password answers every server, a
    /// hash only some. False if the account has others by now: the proof is worth nothing then.
    pub(crate) fn learn(&self, passwords: &Passwords, shown: Credential) -> bool {
        let mut login = self.login();
        if login.terms.stored != passwords.stored || login.terms.additional != passwords.additional {
            return false;
        }
        let knows_password = login.credential.as_ref().is_some_and(|known| known.password().is_some());
        if !knows_password || login.is_outdated || shown.password().is_some() {
            login.credential = Some(shown);
            login.is_outdated = false;
        }
        true
    }

    /// The most clients at a time.
    pub fn clients_max(&self) -> u32 {
        let without = if self.host.is_some() { u32::MAX } else { self.user.max_connections };
        self.login().terms.clients_max.unwrap_or(without)
    }

    fn login(&self) -> MutexGuard<'_, Login> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::auth::StoredPassword;
    use weir_session::accounts::Rules;

    use super::*;

    fn terms(password: &[u8]) -> LoginTerms {
        LoginTerms::with_password(StoredPassword::ClearText(password.into()))
    }

    fn account(name: &str, host: &str, hostgroup: u32) -> (HostPattern, Arc<Account>) {
        let host = HostPattern::parse(host, Rules::Mariadb);
        let user = MysqlUser { default_hostgroup: hostgroup, ..MysqlUser::named(name) };
        (host.clone(), Arc::new(Account::followed(Arc::new(user), host, terms(b"secret"))))
    }

    fn followed(accounts: &[(HostPattern, Arc<Account>)]) -> Option<Arc<FollowedAccounts>> {
        let mut by_name: HashMap<Vec<u8>, Vec<_>> = HashMap::new();
        for account in accounts {
            by_name.entry(account.1.user.username.clone().into_bytes()).or_default().push(account.clone());
        }
        Some(Arc::new(FollowedAccounts { by_name }))
    }

    fn at(text: &str) -> ClientHost {
        ClientHost::At(text.parse().unwrap())
    }

    #[test]
    fn rows_come_before_accounts_and_the_first_hostgroup_that_knows_a_client_counts() {
        let row = Arc::new(Account::configured(Arc::new(MysqlUser::named("row")), terms(b"row"), None));
        let mut users = Users {
            configured: HashMap::from([(b"row".to_vec(), row.clone())]),
            inactive: Arc::new(HashSet::from([b"closed".to_vec()])),
            followed: vec![
                followed(&[account("app", "10.%", 1), account("row", "%", 1), account("closed", "%", 1)]),
                followed(&[account("app", "%", 2), account("other", "%", 2), account("", "10.0.0.1", 2)]),
            ],
            unknown: None,
        };
        let found = |users: &Users, name: &str, client: &str| {
            users.find(name.as_bytes(), at(client)).map(|account| account.user.default_hostgroup)
        };
        assert!(Arc::ptr_eq(users.find(b"row", at("10.0.0.1")).unwrap(), &row));
        assert_eq!(found(&users, "closed", "10.0.0.1"), Err(Refusal::UserNotActive));
        assert_eq!(found(&users, "app", "10.0.0.1"), Ok(1));
        assert_eq!(found(&users, "app", "11.0.0.1"), Ok(2));
        assert_eq!(found(&users, "other", "10.0.0.1"), Err(Refusal::AnonymousAccount));
        assert_eq!(found(&users, "nobody", "11.0.0.1"), Err(Refusal::NoSuchUser));
        assert_eq!(found(&users, "", "10.0.0.1"), Err(Refusal::AnonymousAccount), "nobody has no name");
        // Somebody of the second hostgroup may be the first one's.
        let first = users.followed[0].take();
        assert_eq!(found(&users, "other", "11.0.0.1"), Err(Refusal::AccountsUnknown));
        assert_eq!(found(&users, "row", "11.0.0.1"), Ok(0));
        let (_, other) = account("other", "%", 1);
        assert!(Arc::ptr_eq(users.current(&other).unwrap(), &other), "its sessions go on meanwhile");
        users.followed[0] = first;
        let app = users.find(b"app", at("10.0.0.1")).unwrap().clone();
        assert!(Arc::ptr_eq(users.current(&app).unwrap(), &app));
        users.inactive = Arc::new(HashSet::from([b"app".to_vec()]));
        assert!(users.current(&app).is_none(), "its sessions end");
    }

    #[test]
    fn a_proof_of_a_password_that_was_changed_meanwhile_is_worth_nothing() {
        let (_, account) = account("app", "%", 1);
        let shown = |account: &Account| {
            let LoginTerms { stored, additional, .. } = account.terms();
            Passwords { stored, additional }
        };
        let before = shown(&account);
        assert!(account.learn(&before, Credential::clear_text(b"secret")));
        account.renew(&terms(b"changed"));
        assert!(account.is_outdated());
        assert!(account.login_user(None, None).known.is_none(), "nobody is checked against the old one");
        assert!(!account.learn(&before, Credential::clear_text(b"secret")));
        assert!(account.is_outdated());
        assert!(account.learn(&shown(&account), Credential::clear_text(b"changed")));
        assert!(!account.is_outdated());
        assert_eq!(account.credential(), Some(Credential::clear_text(b"changed")));
    }
}
