//! Writes what a client is sent: OKs and errors of Weir's own, the EOFs that it wants, results that are held back.

pub(crate) mod eof_packets;
pub(crate) mod login_end;
pub(crate) mod refused_logins;
pub(crate) mod replies;
pub(crate) mod result_buffer;
