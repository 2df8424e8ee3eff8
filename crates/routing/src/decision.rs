//! Holds the decision of the rules about a statement.

use crate::{Consistency, TransactionSettings};

/// The actions of all rules that matched, added up. `None`: nothing was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Where it goes.
    pub hostgroup: Option<u32>,
    /// Whether it is the statement itself that says so.
    pub is_hinted: bool,
    /// How long it may run; never 0.
    pub timeout_ms: Option<u32>,
    /// How often it may be sent again.
    pub retries: Option<u32>,
    /// How long it is held.
    pub delay_ms: Option<u32>,
    /// flagIN of the session's next statement.
    pub next_flag_in: Option<u32>,
    /// What becomes of the session's connection.
    pub multiplex: Option<Multiplex>,
    /// How fresh its read has to be, as a rule says.
    pub consistency: Option<Consistency>,
    /// The same, as the statement itself says; it has the last word.
    pub hinted_consistency: Option<Consistency>,
    /// What becomes of the transaction that it begins, as a rule says.
    pub transactions: TransactionSettings,
    /// The same, as the statement itself says; it has the last word.
    pub hinted_transactions: TransactionSettings,
    /// Its server must have what the session has written through some hostgroup, as a rule says (`gtid_from_hostgroup`).
    pub sees_own_writes: bool,
    /// Whether it is written to the events log.
    pub log: Option<bool>,
    /// Position of the rule whose error_msg answers it, see [`Router::error_message`](crate::Router::error_message).
    pub error: Option<u16>,
    /// Position of the rule whose OK_msg answers it.
    pub ok: Option<u16>,
    /// rule_id of the last rule that matched.
    pub rule_id: Option<u32>,
}

impl Decision {
    /// Each action of `self`, or where there is none, that of `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            hostgroup: self.hostgroup.or(other.hostgroup),
            is_hinted: if self.hostgroup.is_some() { self.is_hinted } else { other.is_hinted },
            timeout_ms: self.timeout_ms.or(other.timeout_ms),
            retries: self.retries.or(other.retries),
            delay_ms: self.delay_ms.or(other.delay_ms),
            next_flag_in: self.next_flag_in.or(other.next_flag_in),
            multiplex: self.multiplex.or(other.multiplex),
            consistency: self.consistency.or(other.consistency),
            hinted_consistency: self.hinted_consistency.or(other.hinted_consistency),
            transactions: self.transactions.or(other.transactions),
            hinted_transactions: self.hinted_transactions.or(other.hinted_transactions),
            sees_own_writes: self.sees_own_writes || other.sees_own_writes,
            log: self.log.or(other.log),
            error: self.error.or(other.error),
            ok: self.ok.or(other.ok),
            rule_id: self.rule_id.or(other.rule_id),
        }
    }
}

/// The column `multiplex`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiplex {
    /// 0: from this statement on, the session keeps its connection.
    Off,
    /// 1: the session need not keep it any longer for that reason.
    On,
    /// 2: that there is an `@` in the statement is no reason to keep it. Weir never takes it for one.
    NotForVariables,
}
