//! Makes what the workers know of users: of the rows of `mysql_users`, and of the servers' accounts. Who has not changed
//! keeps what logins have taught.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use weir_accounts::KnownAccounts;
use weir_config::{MysqlUser, Password, Secret};
use weir_protocol::auth::{Credential, StoredPassword};
use weir_proxy::snapshot::{Account, FollowedAccounts, Users};
use weir_session::accounts::{AccountList, HostPattern, LoginTerms, ServerAccount, TlsRequirement};

/// The users as the workers know them, and what they were made of.
#[derive(Debug, Default)]
pub(crate) struct UserDirectory {
    rows: Arc<Vec<Arc<MysqlUser>>>,
    /// By hostgroup: the accounts as they were read, and what was made of them.
    followed: BTreeMap<u32, (Arc<AccountList>, Arc<FollowedAccounts>)>,
    users: Arc<Users>,
}

impl UserDirectory {
    /// The users of these rows, and of the servers' accounts. The same allocation as before if nothing has changed: roles
    /// change without users.
    pub(crate) fn take(
        &mut self,
        rows: &Arc<Vec<Arc<MysqlUser>>>,
        known: &BTreeMap<u32, KnownAccounts>,
    ) -> Arc<Users> {
        let unknown = unknown(known);
        let has_same_rows = Arc::ptr_eq(&self.rows, rows);
        if has_same_rows && self.users.unknown == unknown && self.has_same_accounts(known) {
            return self.users.clone();
        }
        let (configured, inactive) = if has_same_rows {
            (self.users.configured.clone(), self.users.inactive.clone())
        } else {
            (configured(rows, &self.users.configured), inactive(rows))
        };
        let is_listed = |hostgroup: &u32| known.get(hostgroup).is_some_and(|known| known.list.is_some());
        let lists = known.iter().filter_map(|(hostgroup, known)| Some((*hostgroup, known.list.clone()?)));
        let followed = lists.map(|(hostgroup, list)| {
            let before = self.followed.get(&hostgroup);
            let accounts = match before {
                Some((same, accounts)) if Arc::ptr_eq(same, &list) => accounts.clone(),
                _ => Arc::new(followed(hostgroup, &list, before.map(|(_, accounts)| &**accounts))),
            };
            (hostgroup, (list, accounts))
        });
        let read: BTreeMap<u32, _> = followed.collect();
        // Those of which nothing is known for a moment are the same afterwards.
        self.followed.retain(|hostgroup, _| known.contains_key(hostgroup));
        self.followed.extend(read);
        self.rows = rows.clone();
        let of = |hostgroup| self.followed.get(hostgroup).map(|(_, accounts)| accounts.clone());
        let followed = known.keys().map(|hostgroup| of(hostgroup).filter(|_| is_listed(hostgroup))).collect();
        self.users = Arc::new(Users { configured, inactive, followed, unknown });
        self.users.clone()
    }

    fn has_same_accounts(&self, known: &BTreeMap<u32, KnownAccounts>) -> bool {
        let lists = || known.iter().filter_map(|(hostgroup, known)| Some((hostgroup, known.list.as_ref()?)));
        let shown = self.users.followed.iter().flatten().count();
        (lists().count(), known.len()) == (shown, self.users.followed.len())
            && lists().all(|(hostgroup, list)| {
                self.followed.get(hostgroup).is_some_and(|(same, _)| Arc::ptr_eq(same, list))
            })
    }
}

/// Why accounts are not known at all that are to be followed.
fn unknown(known: &BTreeMap<u32, KnownAccounts>) -> Option<Arc<str>> {
    let first = known.values().find(|known| known.list.is_none())?;
    Some(first.trouble.clone().unwrap_or_else(|| "they have not been read yet".into()))
}

fn configured(
    rows: &[Arc<MysqlUser>],
    before: &HashMap<Vec<u8>, Arc<Account>>,
) -> HashMap<Vec<u8>, Arc<Account>> {
    let active = rows.iter().filter(|user| user.active);
    let account = |user: &Arc<MysqlUser>| {
        let name = user.username.as_bytes();
        let same = before.get(name).filter(|known| known.user == *user).cloned();
        (name.to_vec(), same.unwrap_or_else(|| Arc::new(configured_account(user))))
    };
    active.map(account).collect()
}

fn inactive(rows: &[Arc<MysqlUser>]) -> Arc<HashSet<Vec<u8>>> {
    let inactive = rows.iter().filter(|user| !user.active);
    Arc::new(inactive.map(|user| user.username.as_bytes().to_owned()).collect())
}

fn configured_account(user: &Arc<MysqlUser>) -> Account {
    let stored = match &user.password {
        Password::Clear(password) => StoredPassword::ClearText(password.expose().as_bytes().into()),
        Password::NativeHash(hash) => {
            let hex: String = hash.iter().map(|byte| format!("{byte:02X}")).collect();
            StoredPassword::parse(format!("*{hex}").as_bytes())
        }
        Password::Sha2Hash(text) => StoredPassword::parse(text.expose().as_bytes()),
    };
    let in_clear = |password: &Secret| StoredPassword::ClearText(password.expose().as_bytes().into());
    let mut terms = LoginTerms::with_password(stored);
    terms.additional = user.additional_password.as_ref().map(in_clear).map(Arc::new);
    if user.use_ssl {
        terms.tls = TlsRequirement::Tls;
    }
    let credential = match &user.password {
        Password::Clear(password) => Some(Credential::clear_text(password.expose().as_bytes())),
        Password::NativeHash(_) | Password::Sha2Hash(_) => None,
    };
    Account::configured(user.clone(), terms, credential)
}

/// The accounts of a hostgroup's servers; those that were there before are the same, under their terms of now.
fn followed(hostgroup: u32, list: &AccountList, before: Option<&FollowedAccounts>) -> FollowedAccounts {
    let mut by_name: HashMap<Vec<u8>, Vec<(HostPattern, Arc<Account>)>> = HashMap::new();
    for account in list.iter() {
        let known = before.and_then(|before| before.by_name.get(&*account.user));
        let same = known.and_then(|known| known.iter().find(|(host, _)| *host == account.host));
        let (host, account) = match same {
            Some((host, same)) => {
                same.renew(&account.terms);
                (host.clone(), same.clone())
            }
            None => (account.host.clone(), Arc::new(followed_account(hostgroup, account))),
        };
        by_name.entry(account.user.username.as_bytes().to_vec()).or_default().push((host, account));
    }
    FollowedAccounts { by_name }
}

fn followed_account(hostgroup: u32, account: &ServerAccount) -> Account {
    let username = String::from_utf8_lossy(&account.user).into_owned();
    let user = MysqlUser { default_hostgroup: hostgroup, ..MysqlUser::named(&username) };
    Account::followed(Arc::new(user), account.host.clone(), account.terms.clone())
}
