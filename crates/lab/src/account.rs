//! Says who logs in.

use std::net::SocketAddrV4;

use weir_client::Options;

/// Who logs in. Never prints the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Name.
    pub user: String,
    /// In clear; empty for none.
    pub password: String,
}

impl Account {
    /// From its parts.
    pub fn new(user: &str, password: &str) -> Account {
        Account { user: user.to_owned(), password: password.to_owned() }
    }

    /// How it connects to a server or a proxy.
    pub fn at(&self, address: SocketAddrV4) -> Options {
        Options::new(&address.ip().to_string(), address.port(), &self.user, &self.password)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({})", self.user)
    }
}
