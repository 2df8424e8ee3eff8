//! Moves bytes between sockets and a [`crate::worker::Worker`], and carries out its orders.

pub mod epoll;
mod lobby;
mod streak;
mod tls;
pub mod uring;

pub use crate::stream::Stream;
pub use lobby::{Lobby, now};
pub use tls::Transport;
