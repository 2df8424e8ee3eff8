//! The harness of the end-to-end tests: what a case is, what it finds, and how cases are run.
//! The cases themselves are in `e2e/`, one module per subject.

mod bystander;
pub mod dialogue;
mod env;
mod forwarder;
mod gate;
mod harness;
mod logs;
mod mysql;
mod narrow;
pub mod session;
mod wait;

pub use bystander::{Bystanders, Seen};
pub use env::Env;
pub use forwarder::{Cut, Forwarder};
pub use gate::Gate;
pub use harness::{Case, CaseResult, Phase, clean_up_when_interrupted, run};
pub use mysql::mysql_hostgroup;
pub use narrow::wait_free;
pub use session::Session;
pub use wait::eventually;
