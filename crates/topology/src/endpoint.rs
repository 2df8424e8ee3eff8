//! Defines addresses of servers, and points in time.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A server's address: what `mysql_servers` calls hostname and port. Cheap to clone.
///
/// Ordered by host, then port, which is the "name" that decides between otherwise equal servers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Name or address; an IPv6 address without brackets.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

impl Endpoint {
    /// The endpoint of a host and a port.
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

/// A text that is no [`Endpoint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not HOST:PORT (an IPv6 address in brackets: [::1]:3306)")]
pub struct NoEndpoint(String);

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    /// The inverse of its `Display`: `HOST:PORT`, an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        let fault = || NoEndpoint(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(fault)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_plain = !host.is_empty() && !host.contains([':', '[', ']']);
        let host = bare.or(is_plain.then_some(host)).ok_or_else(fault)?;
        Ok(Self::new(host, port.parse().ok().filter(|port| *port > 0).ok_or_else(fault)?))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A moment in milliseconds of a monotonic clock; only differences mean something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// Milliseconds from `earlier` to `self`, 0 if `earlier` is later.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_endpoint_and_back() {
        for text in ["db1:3306", "127.0.0.1:1", "[::1]:65535"] {
            assert_eq!(text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).as_deref(), Ok(text));
        }
        for text in
            ["", "db1", "db1:", ":3306", "db1:0", "db1:65536", "::1:3306", "[::1:3306", "a]:1", "db1:-1"]
        {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }
}
