//! Speaks MySQL's protocol as a small blocking client, for probes, kills, tests and the demo.
//!
//! It is made for asking short questions of servers that may be ill: every call ends by its deadline whatever the
//! server does, every size is limited, and an error says whether the server spoke, was silent, or is gone. It speaks
//! the text protocol over TCP or TLS, with `mysql_native_password` and `caching_sha2_password`.
//!
//! ```no_run
//! use weir_client::{Connection, Options};
//!
//! let mut connection = Connection::connect(&Options::new("127.0.0.11", 3306, "monitor", "monitor"))?;
//! let result = connection.query("SELECT @@wsrep_node_name")?;
//! println!("{} rows from connection {}", result.rows.len(), connection.thread_id());
//! # Ok::<(), weir_client::Error>(())
//! ```

mod connection;
mod error;
mod login;
mod options;
mod raw;
mod result;
mod stream;
mod tls;

pub use connection::Connection;
pub use error::Error;
pub use options::{Address, Options};
pub use raw::RawStream;
pub use result::{OkInfo, QueryResult};
pub use tls::Tls;
pub use weir_protocol::capability::Capabilities;
pub use weir_protocol::status::StatusFlags;

#[cfg(test)]
mod tests;
