//! Supplies connections to servers, without knowing any session: which there are, which is next, who waits.

pub(crate) mod balance;
pub(crate) mod dialect;
pub(crate) mod identity;
pub(crate) mod pools;
pub(crate) mod relogin;
pub(crate) mod supply;
pub(crate) mod turns;
pub(crate) mod waiting;
