//! Checks access to more than health: HTTP's Basic authentication (RFC 7617) with the admin interface's accounts, or a
//! bearer token (RFC 6750).

use std::net::IpAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The rules of access.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Who may log in.
    pub accounts: Vec<Account>,
    /// A token that does as well.
    pub token: Option<String>,
    /// Anybody may see `/metrics`.
    pub metrics_are_public: bool,
}

/// An account.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Its name, without a colon.
    pub username: String,
    /// Its password in clear.
    pub password: String,
    /// Everybody knows its password, so that it counts on this machine only.
    pub is_well_known: bool,
}

// Passwords are never shown.
impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.accounts.iter().map(|account| &account.username);
        f.debug_list().entries(names).finish()
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.username)
    }
}

/// Why somebody may not see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denial {
    #[error("a user and password of the admin interface are needed, or the token of admin-web_token")]
    NoCredentials,
    #[error("wrong user, password or token")]
    WrongCredentials,
    #[error(
        "the default password works on this machine only: change admin-admin_credentials or admin-stats_credentials"
    )]
    WellKnown,
}

impl Access {
    /// Lets those in who have shown a password or the token: the value of the `Authorization` header. All that is wrong
    /// takes the same time, however much of it is right.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>, peer: IpAddr) -> Result<(), Denial> {
        let shown = authorization.and_then(Shown::parse).ok_or(Denial::NoCredentials)?;
        let mut result = Err(Denial::WrongCredentials);
        match shown {
            Shown::Token(shown) => {
                if self.token.as_ref().is_some_and(|token| is_same(&shown, &hash(token.as_bytes()))) {
                    result = Ok(());
                }
            }
            Shown::Pair(shown) => {
                for account in &self.accounts {
                    let pair = format!("{}:{}", account.username, account.password);
                    if is_same(&shown, &hash(pair.as_bytes())) {
                        let is_known = account.is_well_known && !peer.to_canonical().is_loopback();
                        result = if is_known { Err(Denial::WellKnown) } else { Ok(()) };
                    }
                }
            }
        }
        result
    }
}

/// Hashes of what a client has shown: their comparison tells neither bytes nor lengths.
enum Shown {
    Token(Digest),
    /// Of `user:password`.
    Pair(Digest),
}

impl Shown {
    fn parse(header: &[u8]) -> Option<Self> {
        let at = header.iter().position(|&byte| byte == b' ')?;
        let (scheme, rest) = header.split_at(at);
        let rest = rest.trim_ascii();
        if scheme.eq_ignore_ascii_case(b"bearer") {
            return Some(Self::Token(hash(rest)));
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            return Some(Self::Pair(hash(&BASE64_STANDARD.decode(rest).ok()?)));
        }
        None
    }
}

fn hash(bytes: &[u8]) -> Digest {
    digest(&SHA256, bytes)
}

fn is_same(one: &Digest, other: &Digest) -> bool {
    verify_slices_are_equal(one.as_ref(), other.as_ref()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        let account = |username: &str, password: &str, is_well_known| Account {
            username: username.to_owned(),
            password: password.to_owned(),
            is_well_known,
        };
        Access {
            accounts: vec![account("admin", "admin", true), account("stats", "a:b", false)],
            token: Some("t0ken".to_owned()),
            metrics_are_public: false,
        }
    }

    fn basic(pair: &str) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(pair)).into_bytes()
    }

    #[test]
    fn who_is_let_in() {
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
        let mapped = "::ffff:127.0.0.1".parse().unwrap();
        let admit = |header: &[u8], peer| access().admit(Some(header), peer);
        assert_eq!(admit(&basic("stats:a:b"), there), Ok(()));
        assert_eq!(admit(b"bearer t0ken", there), Ok(()));
        assert_eq!(admit(&basic("admin:admin"), here), Ok(()));
        assert_eq!(admit(&basic("admin:admin"), mapped), Ok(()));
        assert_eq!(admit(&basic("admin:admin"), there), Err(Denial::WellKnown));
        assert_eq!(admit(&basic("admin:other"), here), Err(Denial::WrongCredentials));
        assert_eq!(admit(&basic(""), here), Err(Denial::WrongCredentials));
        assert_eq!(admit(b"Bearer ", here), Err(Denial::WrongCredentials));
        assert_eq!(admit(b"Basic !", here), Err(Denial::NoCredentials));
        assert_eq!(admit(b"Digest x", here), Err(Denial::NoCredentials));
        assert_eq!(access().admit(None, here), Err(Denial::NoCredentials));
    }

    proptest::proptest! {
        /// Whatever stands in the header: nobody comes in by it, and nothing breaks.
        #[test]
        fn no_bytes_are_a_key(
            scheme in "(?i)(basic|bearer|digest|) ?",
            rest in proptest::collection::vec(proptest::num::u8::ANY, 0..64),
        ) {
            let header = [scheme.as_bytes(), &rest].concat();
            proptest::prop_assert!(access().admit(Some(&header), IpAddr::from([127, 0, 0, 1])).is_err());
        }
    }

    #[test]
    fn without_a_token_no_token_fits() {
        let nobody = Access::default();
        let here = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(nobody.admit(Some(b"Bearer "), here), Err(Denial::WrongCredentials));
        assert_eq!(nobody.admit(Some(&basic(":")), here), Err(Denial::WrongCredentials));
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = format!("{:?} {:?}", access(), access().accounts);
        assert_eq!(shown, "[\"admin\", \"stats\"] [admin, stats]");
    }
}
