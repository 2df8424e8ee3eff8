//! Shows `weir top`: servers, hottest statements and sessions of a running Weir, live in a terminal.
//!
//! Whoever starts it says how a [`TopData`] at that Weir is had; two of them make rates. What keys do is in [`App`], what
//! is seen in `draw`; both know no terminal, so that tests see what a user sees.

mod app;
mod draw;
mod lines;
mod number_format;
mod rates;
mod terminal;
mod top_data;

pub use app::App;
pub use terminal::{Fetch, TopError, once, watch};
pub use top_data::{Cluster, Digest, Reads, Server, Session, TopData};
