//! Moves bytes between sockets and a [`crate::worker::Worker`], and carries out its orders.

pub mod epoll;
mod lobby;
mod streak;
mod stream;
mod tls;
pub mod uring;

pub use lobby::{Lobby, now};
pub use stream::Stream;
pub use tls::Transport;
