//! Answers statements that need no server, and puts what only Weir knows into others.

pub(crate) mod explain_for;
pub(crate) mod get_diagnostics;
pub(crate) mod kill;
pub(crate) mod literals;
pub(crate) mod multi_statement;
pub(crate) mod own_replies;
pub(crate) mod parameters;
pub(crate) mod saved;
pub(crate) mod session_track;
pub(crate) mod substitution;
