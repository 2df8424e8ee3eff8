//! Logs in without I/O, at both ends: [`ClientLogin`] for those who connect to Weir, [`BackendLogin`] for Weir at a
//! server.

mod backend;
mod check;
mod client;
mod refusal;

pub use backend::{BACKEND_CAPABILITIES, BackendLogin, BackendStep, Greeted};
pub use check::{Check, PasswordResult};
pub use client::{ClientLogin, LoginStep, LoginUser, Passwords, Plugin, Verified};
pub use refusal::Refusal;
pub use weir_protocol::auth::Credential;

/// The channel between the two ends of a login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Channel {
    /// TCP as it is.
    #[default]
    Plain,
    /// A Unix socket.
    Local,
    /// TLS.
    Tls,
}

impl Channel {
    /// Whether a password may travel in clear: nobody else can listen.
    pub fn is_secure(self) -> bool {
        self != Self::Plain
    }
}
