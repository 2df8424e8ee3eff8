//! Lends connections to servers: which server, which connection, who waits.

pub(crate) mod acquire;
pub(crate) mod balance;
pub(crate) mod detour;
pub(crate) mod identity;
pub(crate) mod lease;
pub(crate) mod leaving;
pub(crate) mod moving;
pub(crate) mod pools;
pub(crate) mod relogin;
pub(crate) mod session_affinity;
pub(crate) mod supply;
pub(crate) mod turns;
pub(crate) mod waiting;
pub(crate) mod write_lease;
