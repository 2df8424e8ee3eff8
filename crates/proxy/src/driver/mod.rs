//! I/O drivers: they move bytes between sockets and a [`crate::core::Core`] and carry out its orders. One today.

pub mod epoll;
mod stream;
mod tls;

pub use stream::Stream;
pub use tls::Transport;
