//! Reads and writes the packets of a login: the server's greeting, the client's response, and the authentication
//! exchange that follows.
//!
//! ```text
//! server                        client
//! Greeting (or ERR)      ->
//!                        <-     SslRequest, then TLS        (if both have SSL)
//!                        <-     HandshakeResponse
//! AuthSwitchRequest      ->                                  (if the plugin is not the user's)
//!                        <-     the plugin's answer
//! AuthMoreData           ->                                  (as often as the plugin wants)
//!                        <-     the plugin's answer
//! OK or ERR              ->
//! ```

mod attributes;
mod exchange;
mod greeting;
mod reply;

pub use attributes::ConnectAttributes;
pub use exchange::{AuthMoreData, AuthPacket, AuthSwitchRequest};
pub use greeting::Greeting;
pub use reply::{ClientReply, HandshakeResponse, SslRequest};

/// Random bytes of the server that a password is proven against.
pub type Scramble = [u8; SCRAMBLE_LEN];

/// Bytes of a [`Scramble`].
pub const SCRAMBLE_LEN: usize = 20;

/// Largest payload to accept from a peer that has not logged in, in bytes: connection attributes
/// take up to 64 KiB, all else less than another.
pub const LOGIN_PAYLOAD_MAX: usize = 128 * 1024;

/// SHA-1 challenge and response; the default of MariaDB.
pub const MYSQL_NATIVE_PASSWORD: &[u8] = b"mysql_native_password";
/// SHA-256 challenge and response with a cache; the default of MySQL 8 and later.
pub const CACHING_SHA2_PASSWORD: &[u8] = b"caching_sha2_password";
/// The password as it is, for encrypted connections only.
pub const MYSQL_CLEAR_PASSWORD: &[u8] = b"mysql_clear_password";
/// Ed25519 signatures (MariaDB).
pub const CLIENT_ED25519: &[u8] = b"client_ed25519";
