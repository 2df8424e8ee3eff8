//! Holds what the programs that measure have in common: the laboratory.
//!
//! - [`Stop`]: a run ends early, in order, by Ctrl-C.
//! - [`client`], [`crowd`]: clients of a load, one by one or by the thousand; [`Latencies`] counts what they wait.
//! - [`probe`]: clients that write and read numbered rows and remember every answer; [`watch`] reads logs meanwhile.
//!   [`record`] is what was seen, [`rows`] what is in the database afterwards, [`figures`] what is made of both, [`goals`]
//!   whether that is as it should be, [`timeline`] the picture of it.
//! - [`measure`]: visits of peers in turn, and the figures, ratios and goals that come of them.
//! - [`Relay`]: connections whose bytes take their time.
//! - [`Usage`]: memory and CPU time of a process.
//! - [`report`]: machine, tables and files.
//!
//! All of it takes addresses and accounts, whoever has started the servers. `servers`, behind the feature of that name,
//! is what the programs of this workspace share that start servers of their own, with `weir_testkit`.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use weir_lab::client::Login;
//! use weir_lab::{Account, Stop, crowd};
//!
//! let login = Login::new("127.0.0.1:6033".parse()?, &Account::new("app", "app")).schema("test");
//! let clients = (0..100).map(|_| login.connect()).collect::<Result<Vec<_>, _>>()?;
//! let time = Duration::from_secs(3);
//! let seen = crowd::run(clients, 10, time, &Stop::on_signals()?, |_| "SELECT 1".to_owned())?;
//! println!("{} statements, p99 {:?} ms", seen.latencies.count(), seen.latencies.percentile_ms(99.0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod account;
pub mod client;
mod clock;
pub mod crowd;
mod error;
pub mod figures;
pub mod goals;
mod latencies;
mod limits;
pub mod log_watch;
pub mod measure;
pub mod probe;
pub mod record;
mod relay;
pub mod report;
pub mod rows;
#[cfg(feature = "servers")]
pub mod servers;
mod stop;
pub mod timeline;
mod usage;

pub use account::Account;
pub use clock::Moment;
pub use error::{ClientError, Error};
pub use latencies::Latencies;
pub use limits::allow_open_files;
pub use relay::Relay;
pub use stop::{Stop, exit_status};
pub use usage::Usage;
