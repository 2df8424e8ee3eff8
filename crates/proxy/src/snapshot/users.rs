//! Holds who may log in: the rows of `mysql_users`, and the accounts of the servers where those are followed.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_config::MysqlUser;
use weir_protocol::auth::rsa::RsaKey;
use weir_session::accounts::{Chosen, ClientHost, HostPattern, LoginTerms};
use weir_session::login::{Credential, LoginUser, Passwords, Refusal};

/// Everybody who may log in.
#[derive(Debug, Default)]
pub struct Users {
    /// Active rows of `mysql_users`, by name. They come before the servers' accounts.
    pub configured: HashMap<Vec<u8>, Arc<Account>>,
    /// The names of those that are not active: who logs in as one of them is refused, and the log says why.
    pub inactive: Arc<HashSet<Vec<u8>>>,
    /// The accounts of the servers, of one hostgroup after the other: the first that knows a client counts.
    pub followed: Vec<Arc<FollowedAccounts>>,
    /// Why accounts are not known that are to be followed.
    pub unknown: Option<Arc<str>>,
}

/// The accounts of a hostgroup's servers.
#[derive(Debug, Default)]
pub struct FollowedAccounts {
    /// By name, each time the most specific host first. Those without a name only say who is not let in.
    pub by_name: HashMap<Vec<u8>, Vec<Arc<Account>>>,
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
            match accounts.chosen(name, client) {
                Chosen::Account(account) => return Ok(account),
                Chosen::Anonymous => return Err(Refusal::AnonymousAccount),
                Chosen::Nobody => {}
            }
        }
        Err(if self.unknown.is_some() { Refusal::AccountsUnknown } else { Refusal::NoSuchUser })
    }

    /// What an account has become; none if it is gone.
    pub(crate) fn current(&self, account: &Account) -> Option<&Arc<Account>> {
        let name = account.user.username.as_bytes();
        if let Some(current) = self.configured.get(name) {
            return Some(current);
        }
        let is_same = |other: &&Arc<Account>| {
            other.host == account.host && other.user.default_hostgroup == account.user.default_hostgroup
        };
        account.host.as_ref()?;
        self.followed.iter().filter_map(|accounts| accounts.by_name.get(name)).flatten().find(is_same)
    }

    /// All that a client may log in with.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Account>> {
        let followed = self.followed.iter().flat_map(|accounts| accounts.by_name.values().flatten());
        self.configured.values().chain(followed.filter(|account| !account.user.username.is_empty()))
    }
}

impl FollowedAccounts {
    fn chosen(&self, name: &[u8], client: ClientHost) -> Chosen<'_, Arc<Account>> {
        const ANYWHERE: &HostPattern = &HostPattern::ANY;
        let of = |name: &[u8]| self.by_name.get(name).map_or(&[][..], Vec::as_slice);
        Chosen::of(of(name), of(b""), client, |account| account.host.as_ref().unwrap_or(ANYWHERE))
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
    pub(crate) fn login_user(&self, rsa_key: Option<Arc<RsaKey>>) -> LoginUser {
        let login = self.login();
        let known = login.credential.clone().filter(|_| !login.is_outdated);
        LoginUser { terms: login.terms.clone(), known, rsa_key }
    }

    /// Whether these are its passwords.
    pub(crate) fn has_passwords(&self, passwords: &Passwords) -> bool {
        let login = self.login();
        login.terms.stored == passwords.stored && login.terms.additional == passwords.additional
    }

    /// Takes note of what a login has shown of the password, unless more is known: a password answers every server, a hash
    /// only some.
    pub(crate) fn learn(&self, shown: Credential) {
        let mut login = self.login();
        let knows_password = login.credential.as_ref().is_some_and(|known| known.password().is_some());
        if !knows_password || login.is_outdated || shown.password().is_some() {
            login.credential = Some(shown);
            login.is_outdated = false;
        }
    }

    /// The most clients at a time.
    pub fn clients_max(&self) -> u32 {
        self.login().terms.clients_max.unwrap_or(self.user.max_connections)
    }

    fn login(&self) -> MutexGuard<'_, Login> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
