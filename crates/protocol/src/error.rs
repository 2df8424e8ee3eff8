//! Lists the error numbers that Weir sends or acts upon, and the errors of this crate.

use thiserror::Error;

use crate::wire::Malformed;

/// A peer that does not keep to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A packet's content is broken.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A packet has another sequence number than the exchange is at.
    #[error("packet number {found} where {expected} was expected")]
    PacketsOutOfOrder {
        /// The number that was due.
        expected: u8,
        /// The number in the header.
        found: u8,
    },
    /// A packet is larger than it may be.
    #[error("a packet of {size_bytes} bytes is larger than the {size_bytes_max} allowed")]
    PacketTooLarge {
        /// Its payload.
        size_bytes: usize,
        /// The limit.
        size_bytes_max: usize,
    },
    /// A command byte without meaning.
    #[error("unknown command 0x{0:02X}")]
    UnknownCommand(u8),
}

impl ProtocolError {
    /// The error number and SQLSTATE to answer with.
    pub fn server_error(&self) -> ServerError {
        match self {
            Self::Malformed(_) => MALFORMED_PACKET,
            Self::PacketsOutOfOrder { .. } => NET_PACKETS_OUT_OF_ORDER,
            Self::PacketTooLarge { .. } => NET_PACKET_TOO_LARGE,
            Self::UnknownCommand(_) => UNKNOWN_COM_ERROR,
        }
    }
}

/// An error number and the SQLSTATE that belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServerError {
    /// The number, as in the servers' manuals.
    pub code: u16,
    /// Five characters.
    pub sqlstate: [u8; 5],
}

macro_rules! server_errors {
    ($($(#[doc = $doc:literal])* $name:ident = $code:literal, $sqlstate:literal;)*) => {
        $(
            $(#[doc = $doc])*
            pub const $name: ServerError = ServerError { code: $code, sqlstate: *$sqlstate };
        )*

        #[cfg(test)]
        const ALL: &[ServerError] = &[$($name),*];
    };
}

server_errors! {
    /// Too many connections.
    CON_COUNT_ERROR = 1040, b"08004";
    /// The handshake is broken.
    HANDSHAKE_ERROR = 1043, b"08S01";
    /// The user may not use the database.
    DB_ACCESS_DENIED = 1044, b"42000";
    /// Wrong user or password.
    ACCESS_DENIED = 1045, b"28000";
    /// No database selected.
    NO_DB = 1046, b"3D000";
    /// Unknown command; also "WSREP has not yet prepared node for application use" from a Galera
    /// node outside its primary component.
    UNKNOWN_COM_ERROR = 1047, b"08S01";
    /// Unknown database.
    BAD_DB = 1049, b"42000";
    /// The server is shutting down.
    SERVER_SHUTDOWN = 1053, b"08S01";
    /// A syntax error.
    PARSE_ERROR = 1064, b"42000";
    /// KILL of a connection that does not exist.
    NO_SUCH_THREAD = 1094, b"HY000";
    /// Anything without a number of its own, most of Weir's refusals among it.
    UNKNOWN_ERROR = 1105, b"HY000";
    /// The host is blocked after too many connection errors.
    HOST_IS_BLOCKED = 1129, b"HY000";
    /// The host may not connect.
    HOST_NOT_PRIVILEGED = 1130, b"HY000";
    /// No such table.
    NO_SUCH_TABLE = 1146, b"42S02";
    /// A packet exceeds max_allowed_packet.
    NET_PACKET_TOO_LARGE = 1153, b"08S01";
    /// Sequence numbers do not follow one another.
    NET_PACKETS_OUT_OF_ORDER = 1156, b"08S01";
    /// A compressed packet is broken.
    NET_UNCOMPRESS_ERROR = 1157, b"08S01";
    /// Reading from the peer failed.
    NET_READ_ERROR = 1158, b"08S01";
    /// Reading from the peer timed out.
    NET_READ_INTERRUPTED = 1159, b"08S01";
    /// Writing to the peer failed.
    NET_ERROR_ON_WRITE = 1160, b"08S01";
    /// Writing to the peer timed out.
    NET_WRITE_INTERRUPTED = 1161, b"08S01";
    /// SET of a variable that does not exist.
    UNKNOWN_SYSTEM_VARIABLE = 1193, b"HY000";
    /// The user has too many connections.
    TOO_MANY_USER_CONNECTIONS = 1203, b"42000";
    /// A row lock was not had in time; the transaction may or may not be gone.
    LOCK_WAIT_TIMEOUT = 1205, b"HY000";
    /// Arguments that do not fit.
    WRONG_ARGUMENTS = 1210, b"HY000";
    /// A deadlock, or a certification conflict in Galera.
    LOCK_DEADLOCK = 1213, b"40001";
    /// A privilege is missing.
    SPECIFIC_ACCESS_DENIED = 1227, b"42000";
    /// A variable can't have this value.
    WRONG_VALUE_FOR_VAR = 1231, b"42000";
    /// A variable gets a value of another type.
    WRONG_TYPE_FOR_VAR = 1232, b"42000";
    /// Not supported yet.
    NOT_SUPPORTED_YET = 1235, b"42000";
    /// Unknown prepared statement.
    UNKNOWN_STMT_HANDLER = 1243, b"HY000";
    /// The client does not support the authentication the server asks for.
    NOT_SUPPORTED_AUTH_MODE = 1251, b"08004";
    /// An option such as --read-only forbids the statement.
    OPTION_PREVENTS_STATEMENT = 1290, b"HY000";
    /// The statement can't be prepared.
    UNSUPPORTED_PS = 1295, b"HY000";
    /// The statement was killed or timed out.
    QUERY_INTERRUPTED = 1317, b"70100";
    /// COM_STMT_FETCH without a cursor.
    STMT_HAS_NO_OPEN_CURSOR = 1421, b"HY000";
    /// Too many prepared statements.
    MAX_PREPARED_STMT_COUNT_REACHED = 1461, b"42000";
    /// A write in a read-only transaction.
    CANT_EXECUTE_IN_READ_ONLY_TRANSACTION = 1792, b"25006";
    /// A packet is broken.
    MALFORMED_PACKET = 1835, b"HY000";
    /// The server is read-only.
    READ_ONLY_MODE = 1836, b"HY000";
    /// The password has expired, and the client can't change it.
    MUST_CHANGE_PASSWORD_LOGIN = 1862, b"HY000";
    /// The session has killed its own connection (MariaDB).
    CONNECTION_KILLED = 1927, b"70100";
    /// The statement exceeded max_statement_time (MariaDB).
    STATEMENT_TIMEOUT = 1969, b"70100";
    /// The account is locked (MySQL).
    ACCOUNT_LOCKED_MYSQL = 3118, b"HY000";
    /// The account is locked (MariaDB).
    ACCOUNT_LOCKED_MARIADB = 4151, b"HY000";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_without_doubles() {
        assert!(ALL.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert!(ALL.iter().all(|error| error.sqlstate.iter().all(u8::is_ascii_alphanumeric)));
    }

    #[test]
    fn every_protocol_error_has_a_number() {
        assert_eq!(ProtocolError::from(Malformed::Truncated).server_error(), MALFORMED_PACKET);
        assert_eq!(ProtocolError::UnknownCommand(0x22).server_error().code, 1047);
    }
}
