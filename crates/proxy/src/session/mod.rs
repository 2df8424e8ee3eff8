//! A session and its parts, and what they tell of themselves: nothing here knows a server, nor sends anything.

pub(crate) mod session;
pub(crate) mod status_flags;
