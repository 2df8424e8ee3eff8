//! Supplies connections to servers, without knowing any session: which there are, which is next, who waits.

pub(crate) mod balance;
pub(crate) mod choice;
pub(crate) mod defaults;
pub(crate) mod dialect;
pub(crate) mod freshness;
pub(crate) mod gtids;
pub(crate) mod identity;
pub(crate) mod kill;
pub(crate) mod login;
pub(crate) mod outcome_rows;
pub(crate) mod own_statements;
pub(crate) mod pools;
pub(crate) mod recycle;
pub(crate) mod relogin;
pub(crate) mod retained;
pub(crate) mod set_option;
pub(crate) mod setup;
pub(crate) mod supply;
pub(crate) mod turns;
pub(crate) mod verify;
pub(crate) mod waiting;
