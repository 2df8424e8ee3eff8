//! A session and its parts, and what they tell of themselves: nothing here knows a server, nor sends anything.

pub(crate) mod bonds;
pub(crate) mod execution;
pub(crate) mod phase;
pub(crate) mod session;
pub(crate) mod status_flags;
pub(crate) mod text;
pub(crate) mod tracked;
