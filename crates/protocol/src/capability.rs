//! Names the capabilities that client and server negotiate at the login.
//!
//! Bits 0 to 31 are MySQL's `CLIENT_*` flags. Bits 32 to 63 are MariaDB's extended ones: they
//! travel in bytes that MySQL leaves zero, and only while the sender leaves
//! [`Capabilities::LONG_PASSWORD`] (which MariaDB calls `CLIENT_MYSQL`) unset. (MariaDB
//! knowledge base, "Connecting"; MySQL internals manual, "Capabilities Flags".)

use bitflags::bitflags;

bitflags! {
    /// Capability flags; unknown bits are kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Capabilities: u64 {
        /// The sender is MySQL and not MariaDB (`CLIENT_MYSQL`); once, improved password hashing.
        const LONG_PASSWORD = 1;
        /// Affected rows of an UPDATE counts the rows found, not the rows changed.
        const FOUND_ROWS = 1 << 1;
        /// Column flags take two bytes.
        const LONG_FLAG = 1 << 2;
        /// The handshake response names a database.
        const CONNECT_WITH_DB = 1 << 3;
        /// `database.table.column` is not allowed.
        const NO_SCHEMA = 1 << 4;
        /// zlib compression after login.
        const COMPRESS = 1 << 5;
        /// Special behaviour for ODBC; none today.
        const ODBC = 1 << 6;
        /// LOAD DATA LOCAL INFILE may ask the client for a file.
        const LOCAL_FILES = 1 << 7;
        /// Spaces before the `(` of a function call are ignored.
        const IGNORE_SPACE = 1 << 8;
        /// The protocol of MySQL 4.1; always set here.
        const PROTOCOL_41 = 1 << 9;
        /// `interactive_timeout` applies in place of `wait_timeout`.
        const INTERACTIVE = 1 << 10;
        /// TLS follows this packet.
        const SSL = 1 << 11;
        /// The client library ignores SIGPIPE; of no meaning to a server.
        const IGNORE_SIGPIPE = 1 << 12;
        /// Status flags are sent with OK and EOF.
        const TRANSACTIONS = 1 << 13;
        /// Was PROTOCOL_41 once.
        const RESERVED = 1 << 14;
        /// Authentication as of 4.1; a 20-byte scramble.
        const SECURE_CONNECTION = 1 << 15;
        /// Several statements in one COM_QUERY.
        const MULTI_STATEMENTS = 1 << 16;
        /// Several results to one COM_QUERY.
        const MULTI_RESULTS = 1 << 17;
        /// Several results to one COM_STMT_EXECUTE.
        const PS_MULTI_RESULTS = 1 << 18;
        /// Authentication plugins are named.
        const PLUGIN_AUTH = 1 << 19;
        /// The handshake response carries connection attributes.
        const CONNECT_ATTRS = 1 << 20;
        /// The authentication data of the handshake response has a length-encoded length.
        const PLUGIN_AUTH_LENENC_CLIENT_DATA = 1 << 21;
        /// The client can be let in with an expired password, to change it.
        const CAN_HANDLE_EXPIRED_PASSWORDS = 1 << 22;
        /// OK packets report changes of the session's state.
        const SESSION_TRACK = 1 << 23;
        /// A result set ends with an OK packet of header 0xFE and has no EOF packets.
        const DEPRECATE_EOF = 1 << 24;
        /// Column definitions may be left out of a result set (MySQL).
        const OPTIONAL_RESULTSET_METADATA = 1 << 25;
        /// zstd compression after login (MySQL).
        const ZSTD_COMPRESSION_ALGORITHM = 1 << 26;
        /// COM_QUERY and COM_STMT_EXECUTE carry query attributes (MySQL).
        const QUERY_ATTRIBUTES = 1 << 27;
        /// More than one authentication factor (MySQL).
        const MULTI_FACTOR_AUTHENTICATION = 1 << 28;
        /// Reserved for more capabilities (MySQL).
        const CAPABILITY_EXTENSION = 1 << 29;
        /// The client library verifies the server's certificate; of no meaning on the wire.
        const SSL_VERIFY_SERVER_CERT = 1 << 30;
        /// The client library keeps its options after a failed connect; of no meaning on the wire.
        const REMEMBER_OPTIONS = 1 << 31;

        /// Progress reports while a statement runs, as ERR packets with code 0xFFFF (MariaDB).
        const MARIADB_PROGRESS = 1 << 32;
        /// COM_MULTI of MariaDB 10.2, withdrawn since.
        const MARIADB_COM_MULTI = 1 << 33;
        /// COM_STMT_BULK_EXECUTE (MariaDB).
        const MARIADB_STMT_BULK_OPERATIONS = 1 << 34;
        /// Column definitions carry an extended type (MariaDB).
        const MARIADB_EXTENDED_METADATA = 1 << 35;
        /// Column definitions of a prepared statement are left out when unchanged (MariaDB).
        const MARIADB_CACHE_METADATA = 1 << 36;
        /// A result set of ids and affected rows per row of a bulk execution (MariaDB).
        const MARIADB_BULK_UNIT_RESULTS = 1 << 37;

        const _ = !0;
    }
}

impl Capabilities {
    /// Joins MySQL's 32 bits with MariaDB's 32 extended ones.
    #[inline]
    pub const fn from_parts(mysql: u32, mariadb: u32) -> Self {
        Self::from_bits_retain(mysql as u64 | (mariadb as u64) << 32)
    }

    /// Bits 0 to 31.
    #[inline]
    pub const fn mysql_bits(self) -> u32 {
        self.bits() as u32
    }

    /// Bits 32 to 63, MariaDB's extended capabilities. To be sent only if
    /// [`Capabilities::LONG_PASSWORD`] is unset, see [`Capabilities::mariadb_bits_on_wire`].
    #[inline]
    pub const fn mariadb_bits(self) -> u32 {
        (self.bits() >> 32) as u32
    }

    /// What stands in the four bytes of the handshake that MySQL leaves zero.
    #[inline]
    pub const fn mariadb_bits_on_wire(self) -> u32 {
        if self.contains(Self::LONG_PASSWORD) { 0 } else { self.mariadb_bits() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_keep_every_bit() {
        let all = Capabilities::from_parts(u32::MAX, u32::MAX);
        assert_eq!((all.mysql_bits(), all.mariadb_bits()), (u32::MAX, u32::MAX));
        assert_eq!(Capabilities::MARIADB_PROGRESS.mariadb_bits(), 1);
        assert_eq!(Capabilities::REMEMBER_OPTIONS.mysql_bits(), 0x8000_0000);
    }

    #[test]
    fn a_sender_that_is_mysql_sends_no_extended_bits() {
        let caps = Capabilities::MARIADB_PROGRESS | Capabilities::PROTOCOL_41;
        assert_eq!(caps.mariadb_bits_on_wire(), 1);
        assert_eq!((caps | Capabilities::LONG_PASSWORD).mariadb_bits_on_wire(), 0);
    }
}
