//! Holds how to connect: address, account, TLS, time limits.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_protocol::capability::Capabilities;

use crate::Tls;

/// The address of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Address {
    /// Where its name says: the system is asked on every connect, and takes its time.
    #[default]
    ByName,
    /// Here, whatever its name says.
    At(SocketAddr),
    /// Nowhere: its name has been looked up in vain, for this reason.
    Unresolved(Arc<str>),
}

/// The address and the account to connect with. Never prints the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Options {
    /// Name or address.
    pub host: String,
    /// Where the host is. Default: where its name says.
    pub address: Address,
    /// TCP port.
    pub port: u16,
    /// Account.
    pub user: String,
    /// Its password in clear; empty for none.
    pub password: String,
    /// The schema to start in.
    pub schema: Option<String>,
    /// How long connecting and logging in may take together. Default 5 s.
    pub connect_timeout: Duration,
    /// How long a call may take until its whole reply is there; none: for ever. Default 30 s.
    pub read_timeout: Option<Duration>,
    /// How the connection is encrypted; none (default): not at all. A server without TLS is an error.
    pub tls: Option<Tls>,
    /// Only proves to know the password: a server that wants the password itself, encrypted or sealed for its key, does not
    /// get it. For servers that nobody has verified.
    pub proofs_only: bool,
    /// Capabilities to use beside the client's own, where the server has them. LOCAL_FILES is for a [`crate::RawStream`]:
    /// a [`crate::Connection`] that is asked for a file is broken.
    pub capabilities: Capabilities,
    /// Capabilities not to use although the client would.
    pub without: Capabilities,
    /// The most rows of one result. Default 1 million.
    pub rows_max: usize,
    /// The most bytes of one reply. Default 256 MiB.
    pub reply_bytes_max: usize,
}

impl Options {
    /// Options with the defaults.
    pub fn new(host: &str, port: u16, user: &str, password: &str) -> Self {
        Self {
            host: host.to_owned(),
            address: Address::ByName,
            port,
            user: user.to_owned(),
            password: password.to_owned(),
            schema: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Some(Duration::from_secs(30)),
            tls: None,
            proofs_only: false,
            capabilities: Capabilities::empty(),
            without: Capabilities::empty(),
            rows_max: 1_000_000,
            reply_bytes_max: 256 << 20,
        }
    }

    /// The same with a schema to start in.
    #[must_use]
    pub fn schema(mut self, schema: &str) -> Self {
        self.schema = Some(schema.to_owned());
        self
    }

    /// The same at this address.
    #[must_use]
    pub fn at(mut self, address: Address) -> Self {
        self.address = address;
        self
    }

    /// The same with TLS, or without.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// The same, and the password does not leave, or may.
    #[must_use]
    pub fn proofs_only(mut self, proofs_only: bool) -> Self {
        self.proofs_only = proofs_only;
        self
    }

    /// The same with both time-outs.
    #[must_use]
    pub fn timeouts(mut self, connect_timeout: Duration, read_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self.read_timeout = Some(read_timeout);
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
