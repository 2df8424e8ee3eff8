//! Reads client commands: the command byte at the start of a payload, and the commands whose content a proxy must
//! understand.
//!
//! Every command starts a new exchange: its first packet has sequence number 0.

mod attributes;
mod change_user;
mod prepared;
mod send;

pub use attributes::{NO_QUERY_ATTRIBUTES, query_attributes_len};
pub use change_user::ChangeUser;
pub use prepared::{StmtExecute, StmtFetch, StmtLongData, StmtParameters, StmtPrepareOk};
pub use send::{
    put_change_user, put_init_db, put_ping, put_query, put_query_with_attributes, put_quit,
    put_reset_connection, put_stmt_close, put_stmt_prepare,
};

macro_rules! commands {
    ($($(#[doc = $doc:literal])* $variant:ident = $code:literal, $name:literal;)*) => {
        /// The commands of MySQL and MariaDB, by the first byte of the payload.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Command {
            $($(#[doc = $doc])* $variant = $code,)*
        }

        impl Command {
            /// Every command, by code.
            pub const ALL: &[Command] = &[$(Command::$variant),*];

            /// The command of a first byte, or `None` if there is none with this code.
            #[inline]
            pub const fn parse(code: u8) -> Option<Command> {
                match code {
                    $($code => Some(Command::$variant),)*
                    _ => None,
                }
            }

            /// The name in the servers' manuals: `COM_QUERY`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Command::$variant => $name,)*
                }
            }
        }
    };
}

commands! {
    /// Never sent by clients.
    Sleep = 0x00, "COM_SLEEP";
    /// Ends the connection; not answered.
    Quit = 0x01, "COM_QUIT";
    /// Changes the current database.
    InitDb = 0x02, "COM_INIT_DB";
    /// A statement as text.
    Query = 0x03, "COM_QUERY";
    /// Columns of a table; withdrawn by MySQL 9, answered by MariaDB.
    FieldList = 0x04, "COM_FIELD_LIST";
    /// Withdrawn.
    CreateDb = 0x05, "COM_CREATE_DB";
    /// Withdrawn.
    DropDb = 0x06, "COM_DROP_DB";
    /// FLUSH and RESET by flag byte.
    Refresh = 0x07, "COM_REFRESH";
    /// Stops the server.
    Shutdown = 0x08, "COM_SHUTDOWN";
    /// A line of text about the server; answered by a bare string.
    Statistics = 0x09, "COM_STATISTICS";
    /// SHOW PROCESSLIST.
    ProcessInfo = 0x0A, "COM_PROCESS_INFO";
    /// Never sent by clients.
    Connect = 0x0B, "COM_CONNECT";
    /// KILL.
    ProcessKill = 0x0C, "COM_PROCESS_KILL";
    /// Has the server write debug information to its log.
    Debug = 0x0D, "COM_DEBUG";
    /// Asks whether the server is there.
    Ping = 0x0E, "COM_PING";
    /// Never sent by clients.
    Time = 0x0F, "COM_TIME";
    /// Never sent by clients.
    DelayedInsert = 0x10, "COM_DELAYED_INSERT";
    /// Logs in as another user on the same connection and resets the session.
    ChangeUser = 0x11, "COM_CHANGE_USER";
    /// Asks for the binary log from a file position.
    BinlogDump = 0x12, "COM_BINLOG_DUMP";
    /// Withdrawn.
    TableDump = 0x13, "COM_TABLE_DUMP";
    /// Never sent by clients.
    ConnectOut = 0x14, "COM_CONNECT_OUT";
    /// A replica introduces itself.
    RegisterSlave = 0x15, "COM_REGISTER_SLAVE";
    /// Prepares a statement.
    StmtPrepare = 0x16, "COM_STMT_PREPARE";
    /// Executes a prepared statement.
    StmtExecute = 0x17, "COM_STMT_EXECUTE";
    /// A part of a parameter's value ahead of COM_STMT_EXECUTE; not answered.
    StmtSendLongData = 0x18, "COM_STMT_SEND_LONG_DATA";
    /// Forgets a prepared statement; not answered.
    StmtClose = 0x19, "COM_STMT_CLOSE";
    /// Drops long data and the cursor of a prepared statement.
    StmtReset = 0x1A, "COM_STMT_RESET";
    /// Switches multi-statements on or off.
    SetOption = 0x1B, "COM_SET_OPTION";
    /// Rows of a cursor.
    StmtFetch = 0x1C, "COM_STMT_FETCH";
    /// Never sent by clients.
    Daemon = 0x1D, "COM_DAEMON";
    /// Asks for the binary log from a GTID set (MySQL).
    BinlogDumpGtid = 0x1E, "COM_BINLOG_DUMP_GTID";
    /// Resets the session without logging in again.
    ResetConnection = 0x1F, "COM_RESET_CONNECTION";
    /// The clone plugin's protocol (MySQL).
    Clone = 0x20, "COM_CLONE";
    /// Group replication over the MySQL protocol (MySQL).
    SubscribeGroupReplicationStream = 0x21, "COM_SUBSCRIBE_GROUP_REPLICATION_STREAM";
    /// Executes a prepared statement for many rows of parameters (MariaDB).
    StmtBulkExecute = 0xFA, "COM_STMT_BULK_EXECUTE";
    /// Several commands in one packet (MariaDB 10.2 only).
    Multi = 0xFE, "COM_MULTI";
}

impl Command {
    /// The first byte of the payload.
    #[inline]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_commands_map_one_to_one() {
        let known = (0..=u8::MAX).filter(|&code| Command::parse(code).is_some()).count();
        assert_eq!(known, Command::ALL.len());
        for &command in Command::ALL {
            assert_eq!(Command::parse(command.code()), Some(command));
        }
        assert_eq!(Command::parse(0x22), None);
        assert_eq!(Command::StmtExecute.name(), "COM_STMT_EXECUTE");
    }
}
