//! Decides what becomes of a statement whose server is lost or rejects it.

pub(crate) mod connection_lost;
pub(crate) mod rejected;
pub(crate) mod replay;
pub(crate) mod retry;
