//! Limits the length of texts.

/// Of what is for humans.
pub(crate) const COMMENT_CHARS_MAX: usize = 1024;
/// A DNS name has at most 253 characters (RFC 1035, 2.3.4, without the root).
pub(crate) const HOSTNAME_CHARS_MAX: usize = 253;
/// MariaDB allows 128 characters, MySQL 32.
pub(crate) const USERNAME_CHARS_MAX: usize = 128;
/// Identifiers have at most 64 characters.
pub(crate) const SCHEMA_CHARS_MAX: usize = 64;
/// Longer than any password that a server accepts in its authentication packets.
pub(crate) const PASSWORD_BYTES_MAX: usize = 1024;
