//! Checks passwords where that takes time, so that another thread can do it.

use std::fmt;
use std::sync::Arc;

use weir_protocol::auth::rsa::RsaKey;
use weir_protocol::auth::{Credential, Method, StoredPassword, constant_time_eq};
use weir_protocol::handshake::Scramble;

use super::client::Passwords;

/// A password to be checked: [`Check::run`] does it.
pub struct Check {
    proof: Proof,
    against: Passwords,
    known: Option<Credential>,
    scramble: Scramble,
}

/// The form in which the password has come.
pub(super) enum Proof {
    /// As it is, possibly with its NUL.
    Clear(Box<[u8]>),
    /// Under RSA.
    Sealed(Box<[u8]>, Arc<RsaKey>),
}

/// The result of a [`Check`].
#[derive(Debug)]
pub enum PasswordResult {
    /// The password is right; this logs in at servers.
    Right(Credential),
    /// It is wrong.
    Wrong,
    /// Too many checks wait already.
    Busy,
}

impl Check {
    pub(super) fn new(
        proof: Proof,
        against: Passwords,
        known: Option<Credential>,
        scramble: Scramble,
    ) -> Self {
        Self { proof, against, known, scramble }
    }

    /// Whether it takes microseconds. RSA takes a millisecond, a salted hash some more.
    pub(super) fn is_cheap(&self) -> bool {
        let is_salted = self.forms().any(|stored| matches!(stored, StoredPassword::Sha2(_)));
        let is_known = self.known_password().is_some() && self.against.additional.is_none();
        matches!(self.proof, Proof::Clear(_)) && (!is_salted || is_known)
    }

    /// The passwords that will do.
    fn forms(&self) -> impl Iterator<Item = &StoredPassword> {
        [Some(&self.against.stored), self.against.additional.as_ref()]
            .into_iter()
            .flatten()
            .map(|stored| &**stored)
    }

    /// What an earlier login has shown: there is only one password that fits a hash.
    fn known_password(&self) -> Option<&[u8]> {
        self.known.as_ref().and_then(Credential::password)
    }

    /// Checks the password.
    pub fn run(&self) -> PasswordResult {
        let opened;
        let sent: &[u8] = match &self.proof {
            Proof::Clear(sent) => sent,
            Proof::Sealed(sealed, key) => match key.open(sealed, &self.scramble) {
                Some(password) => {
                    opened = password;
                    &opened
                }
                None => return PasswordResult::Wrong,
            },
        };
        let password = sent.strip_suffix(&[0]).unwrap_or(sent);
        let is_known = self.known_password().is_some_and(|known| constant_time_eq(password, known));
        let credential = match (is_known, self.known_password(), &self.against.additional) {
            (true, ..) => Some(Credential::clear_text(password)),
            (false, Some(_), None) => None,
            _ => self.forms().find_map(|stored| stored.verify(Method::ClearText, sent, &self.scramble)),
        };
        credential.map_or(PasswordResult::Wrong, PasswordResult::Right)
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Check(..)")
    }
}
