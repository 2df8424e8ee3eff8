//! Chooses the account of a client by its name and host, as a server does.

use std::collections::HashMap;

use super::{ClientHost, HostPattern, ServerAccount};

/// The accounts of the servers, by name, the most specific host first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountList {
    by_name: HashMap<Box<[u8]>, Vec<ServerAccount>>,
}

/// The account that counts for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<'l, T> {
    /// This one.
    Account(&'l T),
    /// The one without a name, whose host is more specific than that of all with the client's name.
    Anonymous,
    /// None.
    Nobody,
}

impl AccountList {
    /// Sorts the accounts.
    pub fn new(accounts: impl IntoIterator<Item = ServerAccount>) -> Self {
        let mut by_name: HashMap<Box<[u8]>, Vec<ServerAccount>> = HashMap::new();
        for account in accounts {
            by_name.entry(account.user.clone()).or_default().push(account);
        }
        for accounts in by_name.values_mut() {
            accounts.sort_by(|one, other| one.host.cmp(&other.host));
        }
        Self { by_name }
    }

    /// All of them: name after name, the most specific host first.
    pub fn iter(&self) -> impl Iterator<Item = &ServerAccount> {
        self.by_name.values().flatten()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.values().map(Vec::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

impl<'l, T> Chosen<'l, T> {
    /// Chooses among the accounts with a client's name and those without a name, each with the most specific host first.
    pub fn of(
        named: &'l [T],
        anonymous: &'l [T],
        client: ClientHost,
        host: impl Fn(&T) -> &HostPattern,
    ) -> Self {
        let find = |accounts: &'l [T]| accounts.iter().find(|account| host(account).matches(client));
        match (find(named), find(anonymous)) {
            // Of the same host the one with a name comes first.
            (Some(named), Some(anonymous)) if host(anonymous).is_more_specific_than(host(named)) => {
                Self::Anonymous
            }
            (Some(named), _) => Self::Account(named),
            (None, Some(_)) => Self::Anonymous,
            (None, None) => Self::Nobody,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::auth::StoredPassword;

    use super::super::{LoginTerms, Rules};
    use super::*;

    fn account(user: &str, host: &str) -> ServerAccount {
        let terms = LoginTerms::with_password(StoredPassword::parse(b""));
        ServerAccount { user: user.as_bytes().into(), host: HostPattern::parse(host, Rules::Mariadb), terms }
    }

    #[test]
    fn the_most_specific_host_counts_and_of_the_same_one_the_account_with_a_name() {
        let list = AccountList::new([
            account("app", "%"),
            account("app", "10.%"),
            account("app", "10.0.0.1"),
            account("", "127.%"),
            account("", "10.0.0.1"),
            account("other", "10.0.0.1"),
        ]);
        let chosen = |user: &str, client: &str| {
            let of = |name: &str| list.by_name.get(name.as_bytes()).map_or(&[][..], Vec::as_slice);
            let client = ClientHost::At(client.parse().unwrap());
            match Chosen::of(of(user), of(""), client, |account| &account.host) {
                Chosen::Account(account) => account.host.as_str(),
                Chosen::Anonymous => "anonymous",
                Chosen::Nobody => "nobody",
            }
        };
        assert_eq!(chosen("app", "10.0.0.1"), "10.0.0.1");
        assert_eq!(chosen("app", "10.0.0.2"), "10.%");
        assert_eq!(chosen("app", "192.168.0.1"), "%");
        assert_eq!(chosen("app", "127.0.0.1"), "anonymous");
        assert_eq!(chosen("other", "10.0.0.1"), "10.0.0.1");
        assert_eq!(chosen("other", "10.0.0.2"), "nobody");
        assert_eq!(chosen("third", "10.0.0.1"), "anonymous");
        assert_eq!(list.len(), 6);
    }
}
