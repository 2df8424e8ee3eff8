//! Declares a row of `mysql_users`. Every value in it has been checked.

use weir_routing::{Consistency, TransactionSettings};

use crate::report::place::Keyed;
use crate::value::password::{Password, Secret};
use crate::value::rows::TableRow;

/// A row of `mysql_users`: an account for clients and for Weir's connections to servers. Key: username.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MysqlUser {
    /// Required.
    pub username: String,
    /// Default: empty.
    pub password: Password,
    /// Whether the account may log in, default true.
    pub active: bool,
    /// Whether its clients must use TLS, default false.
    pub use_ssl: bool,
    /// Where its statements go without a rule, default 0.
    pub default_hostgroup: u32,
    /// The schema of a client that names none; none: `MysqlVariables::default_schema`.
    pub default_schema: Option<String>,
    /// Whether its sessions stay in the schema that their login has given them, default false.
    pub schema_locked: bool,
    /// Whether each of its sessions keeps one connection to a server of its hostgroup, as at a listener with mode
    /// primary, default false.
    pub fast_forward: bool,
    /// Whether a transaction keeps all of its statements where it began, whatever the rules say, default true.
    pub transaction_persistent: bool,
    /// `default-transaction_isolation` of its attributes: the isolation level with which its sessions begin.
    pub default_isolation: Option<IsolationLevel>,
    /// `weir_consistency` of its attributes: how fresh the reads of its sessions have to be.
    pub consistency: Option<Consistency>,
    /// `weir_replay` and `weir_commit_outcome` of its attributes: what becomes of its sessions' transactions.
    pub transactions: TransactionSettings,
    /// `additional_password` of its attributes: clients may log in with this one, too.
    pub additional_password: Option<Secret>,
    /// The most clients of this account at a time, default 10000.
    pub max_connections: u32,
    /// For humans.
    pub comment: String,
}

impl MysqlUser {
    /// A row with nothing but a name: everything else is as the columns' defaults say.
    pub fn named(username: &str) -> Self {
        Self {
            username: username.to_owned(),
            password: Password::Clear(Secret::new("")),
            active: true,
            use_ssl: false,
            default_hostgroup: 0,
            default_schema: None,
            schema_locked: false,
            fast_forward: false,
            transaction_persistent: true,
            default_isolation: None,
            consistency: None,
            transactions: TransactionSettings::default(),
            additional_password: None,
            max_connections: 10_000,
            comment: String::new(),
        }
    }
}

/// The isolation of transactions from each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IsolationLevel {
    /// Sees what others have not committed.
    ReadUncommitted,
    /// Each statement sees what was committed when it began.
    ReadCommitted,
    /// All statements see what was committed when the first began; the servers' own default.
    RepeatableRead,
    /// Plain reads lock, too.
    Serializable,
}

impl IsolationLevel {
    /// As servers show it in `@@transaction_isolation`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "READ-UNCOMMITTED",
            Self::ReadCommitted => "READ-COMMITTED",
            Self::RepeatableRead => "REPEATABLE-READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

impl Keyed for MysqlUser {
    fn table(&self) -> &'static str {
        "mysql_users"
    }

    fn key(&self) -> TableRow {
        [("username".into(), self.username.clone().into())].into()
    }
}
