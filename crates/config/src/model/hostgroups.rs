//! Declares `mysql_hostgroup_attributes` and `weir_hostgroups`: what holds for all servers of a hostgroup.

use weir_routing::{CommitOutcome, Consistency, ReplayMode};

use crate::field::fields::Fields;
use crate::value::statements;

/// ProxySQL's limit of `throttle_connections_per_sec_to_hostgroup`.
pub(crate) const THROTTLE_MAX: u32 = 1_000_000;
/// `init_connect`, in characters and in statements.
const INIT_CONNECT_CHARS_MAX: usize = 4096;
const INIT_CONNECT_STATEMENTS_MAX: usize = 16;

/// A row of `mysql_hostgroup_attributes`. Key: hostgroup_id. As in ProxySQL a row with its defaults comes before the
/// variables of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostgroupAttributes {
    /// Required.
    pub hostgroup_id: u32,
    /// With more servers online the hostgroup serves nobody, default 1000000.
    pub max_num_online_servers: u32,
    /// Idle connections kept, in percent of a server's `max_connections`, default 10.
    pub free_connections_pct: u32,
    /// Statements for each new connection, one by one; empty (default): those of `MysqlVariables::init_connect`.
    pub init_connect: Vec<String>,
    /// Whether sessions share its connections, default true; else each keeps the one that it has got.
    pub multiplex: bool,
    /// Whether so many connections are opened in advance, default false.
    pub connection_warming: bool,
    /// Connections opened for the hostgroup in a second, default 1000000.
    pub throttle_connections_per_sec: u32,
    /// For humans.
    pub comment: String,
}

/// A row of `weir_hostgroups`, which ProxySQL does not have. Key: hostgroup_id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirHostgroup {
    /// Required.
    pub hostgroup_id: u32,
    /// How statements are shared between its servers.
    pub balancing: Balancing,
    /// How fresh the reads have to be that are split from it, where nobody else says so.
    pub consistency: Consistency,
    /// Where reads go that no reader is known to be fresh enough for.
    pub reads: ReadPreference,
    /// How long a read waits for a reader to be fresh enough, in milliseconds; after that the writer has it.
    pub consistency_timeout_ms: u32,
    /// How often a statement with autocommit is run again that its server has undone (error 1213), 0 to 10.
    pub deadlock_retries: u32,
    /// Whether transactions run again where their server is lost.
    pub transaction_replay: ReplayMode,
    /// How long the log of such a transaction may become, in bytes.
    pub transaction_replay_max_bytes: u32,
    /// Whether the accounts of its servers may log in, default false.
    pub follow_accounts: bool,
    /// How the end of a COMMIT is found out whose answer is lost with its server.
    pub commit_outcome: CommitOutcome,
    /// What its servers are told of the client's address.
    pub send_proxy_protocol: SendProxyProtocol,
    /// For humans.
    pub comment: String,
}

/// The way in which a hostgroup's statements are shared between its servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Balancing {
    /// By weight, one after the other.
    #[default]
    Weighted,
    /// Where the fewest statements are under way, per weight.
    LeastInFlight,
    /// By weight, less to those that take longer.
    Latency,
}

/// The version of the PROXY protocol's header that a server gets in front of everything else on a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SendProxyProtocol {
    /// None.
    #[default]
    Off,
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Where a read goes when no reader is known to be fresh enough for it: it can wait for one, or go to the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadPreference {
    /// It waits for a reader, unless the writer is idle.
    #[default]
    Spread,
    /// Wherever its answer is expected first.
    Fastest,
}

/// `init_connect`, of a hostgroup or for all.
pub(crate) fn init_connect(f: &mut Fields<'_, '_>, name: &'static str) -> Option<Vec<String>> {
    let text = f.optional_text(name, INIT_CONNECT_CHARS_MAX)?;
    let fault = match statements::split(&text) {
        Ok(statements) if statements.len() > INIT_CONNECT_STATEMENTS_MAX => {
            format!("more than {INIT_CONNECT_STATEMENTS_MAX} statements")
        }
        Ok(statements) => return Some(statements),
        Err(fault) => fault.to_string(),
    };
    f.refuse(name, fault);
    None
}
