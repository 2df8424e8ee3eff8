//! The harness of the end-to-end tests: what a case is, what it finds, and how cases are run.
//! The cases themselves are in `e2e/`, one module per subject.

mod env;
mod harness;

pub use env::Env;
pub use harness::{Case, CaseResult, Phase, clean_up_when_interrupted, run};
