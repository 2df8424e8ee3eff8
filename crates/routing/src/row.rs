//! Declares the rows of the two tables, with ProxySQL's columns and defaults. `None` is NULL.

use crate::{Consistency, Multiplex, TransactionSettings};

/// A row of `mysql_query_rules`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRule {
    /// Rules are looked at in this order.
    pub rule_id: u32,
    /// Whether it counts; ProxySQL's default is no.
    pub active: bool,
    /// The user must be this one. An empty text is as good as NULL, here and in the next three columns' cases.
    pub username: Option<String>,
    /// The session's schema must be this one.
    pub schemaname: Option<String>,
    /// The chain to which the rule belongs, default 0.
    pub flag_in: u32,
    /// The client's address, or the beginning of one before a final `%`.
    pub client_addr: Option<String>,
    /// The address of Weir's listener.
    pub proxy_addr: Option<String>,
    /// The port of Weir's listener.
    pub proxy_port: Option<u16>,
    /// The hash of the statement's digest.
    pub digest: Option<u64>,
    /// Tried on the digest's text.
    pub match_digest: Option<String>,
    /// Tried on the statement itself.
    pub match_pattern: Option<String>,
    /// Both patterns must not match instead.
    pub negate_match_pattern: bool,
    /// `CASELESS` in re_modifiers, which is the default.
    pub caseless: bool,
    /// `GLOBAL` in re_modifiers: replace_pattern replaces every match.
    pub global: bool,
    /// Go on in this chain.
    pub flag_out: Option<u32>,
    /// Takes the place of what match_pattern matches; `\0` to `\9` are the match and its groups.
    pub replace_pattern: Option<String>,
    /// Where the statement goes.
    pub destination_hostgroup: Option<u32>,
    /// How long it may run; 0 and NULL: default_query_timeout.
    pub timeout_ms: Option<u32>,
    /// How often it may be sent again, where that is safe.
    pub retries: Option<u32>,
    /// How long it is held before it is sent.
    pub delay_ms: Option<u32>,
    /// flagIN of the session's next statement.
    pub next_query_flag_in: Option<u32>,
    /// The statement is answered with this error.
    pub error_msg: Option<String>,
    /// The statement is answered with OK and this text.
    pub ok_msg: Option<String>,
    /// What becomes of the session's connection.
    pub multiplex: Option<Multiplex>,
    /// `weir_consistency` of attributes: how fresh its read has to be.
    pub consistency: Option<Consistency>,
    /// `weir_replay` and `weir_commit_outcome` of attributes: what becomes of the transaction that it begins.
    pub transactions: TransactionSettings,
    /// The statement's server must have what the session has written through that hostgroup.
    pub gtid_from_hostgroup: Option<u32>,
    /// Whether the statement is written to the events log; none: `eventslog_default_log` tells.
    pub log: Option<bool>,
    /// No further rule is looked at.
    pub apply: bool,
    /// `flagOUTs` of attributes: one of these chains, by chance. Takes the place of flagOUT.
    pub flag_outs: Vec<FlagWeight>,
    /// For humans.
    pub comment: String,
}

impl Default for QueryRule {
    fn default() -> Self {
        Self {
            rule_id: 0,
            active: false,
            username: None,
            schemaname: None,
            flag_in: 0,
            client_addr: None,
            proxy_addr: None,
            proxy_port: None,
            digest: None,
            match_digest: None,
            match_pattern: None,
            negate_match_pattern: false,
            caseless: true,
            global: false,
            flag_out: None,
            replace_pattern: None,
            destination_hostgroup: None,
            timeout_ms: None,
            retries: None,
            delay_ms: None,
            next_query_flag_in: None,
            error_msg: None,
            ok_msg: None,
            multiplex: None,
            consistency: None,
            transactions: TransactionSettings::default(),
            gtid_from_hostgroup: None,
            log: None,
            apply: false,
            flag_outs: Vec::new(),
            comment: String::new(),
        }
    }
}

/// A chain and its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagWeight {
    /// The chain's flagIN.
    pub id: u32,
    /// Share relative to the other chains.
    pub weight: u32,
}

/// A row of `mysql_query_rules_fast_routing`. Key: the first three columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FastRoute {
    /// The user; empty: any user for whom there is no row.
    pub username: String,
    /// The session's schema.
    pub schemaname: String,
    /// The flag that the rules have left.
    pub flag_in: u32,
    /// Where the statement goes.
    pub destination_hostgroup: u32,
    /// For humans.
    pub comment: String,
}
