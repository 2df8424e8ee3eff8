//! I/O drivers: they move bytes between sockets and a [`crate::core::Core`] and carry out its orders. One today.

pub mod epoll;
mod tls;

pub use tls::Transport;
