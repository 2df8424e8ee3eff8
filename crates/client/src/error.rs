//! Describes why a connection or a statement failed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use weir_protocol::ok::ErrPacket;
use weir_protocol::wire::Malformed;

/// Why a call failed. After anything but [`Error::Server`] the connection is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with ERR.
    #[error("error {code} ({sqlstate}): {message}")]
    Server {
        /// The server's error number.
        code: u16,
        /// Five characters; `HY000` if the server sent none.
        sqlstate: String,
        /// The server's text.
        message: String,
    },
    /// The server was silent for too long.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The system could not connect, or the connection broke.
    #[error("{action}: {cause}")]
    Io {
        /// What was being done.
        action: &'static str,
        /// The system's error.
        cause: io::Error,
    },
    /// Nobody knows where the server is.
    #[error("name does not resolve: {0}")]
    Unresolved(Arc<str>),
    /// The server does not keep to the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(String),
    /// The account's plugin needs what this client has not.
    #[error("can't log in: {0}")]
    Unsupported(String),
    /// The server offers no TLS, and [`crate::Options::tls`] wants it. Nothing has been sent to it.
    #[error("can't log in: the server offers no TLS")]
    NoTls,
    /// The server wants the password, and [`crate::Options::proofs_only`] forbids that.
    #[error("it asks for the password itself, and nobody has verified it")]
    PasswordWithheld,
    /// A limit of [`crate::Options`] was reached.
    #[error("a reply of more than {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: usize,
        /// Of what.
        unit: &'static str,
    },
    /// The connection failed earlier.
    #[error("the connection was closed after an earlier error")]
    Closed,
}

impl Error {
    /// The server's error number, if it is the server's error.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the server was silent, which proves nothing about it.
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout(_))
    }

    /// Whether the connection is of no further use.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Self::Server { .. })
    }

    pub(crate) fn of_packet(packet: &ErrPacket<'_>) -> Self {
        let sqlstate = packet.sqlstate.unwrap_or(*b"HY000");
        Self::Server {
            code: packet.code,
            sqlstate: String::from_utf8_lossy(&sqlstate).into_owned(),
            message: String::from_utf8_lossy(packet.message).into_owned(),
        }
    }
}

impl From<Malformed> for Error {
    fn from(cause: Malformed) -> Self {
        Self::Protocol(cause.to_string())
    }
}
