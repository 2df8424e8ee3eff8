//! Plays all ways to change a session x everything that a session can change: each cell is played at the server and through a
//! Weir that has one connection to it, by the same sessions in the same order, and everything that they see is
//! compared.
//!
//! [`state`] and [`variables`] say what can be changed, [`way`] how, [`stage`] who looks when, [`look`] at what,
//! [`comparison`] what is made of it, [`limits`] which differences have a reason.

mod client;
mod comparison;
mod limits;
mod marks;
mod names;
mod pattern;
mod report;
mod run;
mod server_setup;
mod session_view;
mod stage;
mod state;
mod variables;
mod way;

use std::net::Ipv4Addr;
use std::path::PathBuf;

use weir_lab::{Error, Stop};

pub use comparison::Outcome;
pub use pattern::Pattern;
pub use report::{Cell, Report};
pub use run::run;

/// How Weir reads and writes sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum IoDriver {
    /// With epoll.
    #[value(help = "epoll")]
    Epoll,
    /// With io_uring.
    #[value(help = "io_uring")]
    IoUring,
}

impl IoDriver {
    /// As the configuration has it.
    pub fn name(self) -> &'static str {
        match self {
            IoDriver::Epoll => "epoll",
            IoDriver::IoUring => "io_uring",
        }
    }
}

/// What to play.
#[derive(Debug, Clone)]
pub struct Options {
    /// The cells; none: all.
    pub only: Vec<Pattern>,
    /// How many stages play at a time, each with a Weir of its own.
    pub stages: usize,
    /// The Weir to play with.
    pub binary: PathBuf,
    /// For its configurations and logs.
    pub dir: PathBuf,
    /// Where it listens.
    pub address: Ipv4Addr,
    /// What it reads and writes with.
    pub io: IoDriver,
    /// Whether it resets connections after statements that may have run hidden code.
    pub reset_after_hidden_code: bool,
    /// Called with a line now and then.
    pub progress: fn(&str),
    /// Holds what is wrong so far, while it runs and afterwards.
    pub list: Option<PathBuf>,
    /// Raised to give up.
    pub stop: Stop,
}

impl Options {
    fn found(&self, cells: &[Cell]) -> Result<(), Error> {
        let Some(path) = &self.list else { return Ok(()) };
        weir_lab::report::write(path, &report::wrong(cells))
    }
}

/// Lines for the server's my.cnf: nothing is written through to the disk, as thousands of routines are made;
/// and no thread serves two connections in turn: MariaDB's FOUND_ROWS() of a new one is then that of the one before.
pub fn server_cnf(family: weir_testkit::Family) -> &'static str {
    match family {
        weir_testkit::Family::Mariadb => {
            "sync-frm=OFF\nthread-cache-size=0\nlog-bin-trust-function-creators=ON"
        }
        weir_testkit::Family::Mysql => {
            "log-bin-trust-function-creators=ON\ngtid-mode=OFF\nenforce-gtid-consistency=OFF"
        }
    }
}
