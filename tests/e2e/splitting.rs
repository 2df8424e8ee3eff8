//! Statements are split: plain reads go to the readers by weight, everything else to the writer, and nobody ever
//! reads something older than what he wrote.

mod freshness;
mod levels;
mod placement;

use std::time::Duration;

use weir_testkit::Weir;
use weir_tests::{Case, CaseResult, Session, eventually};

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    placement::trials().into_iter().chain(freshness::trials()).chain(levels::trials()).collect()
}

/// A plain read that tells which node runs it.
const WHERE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";

/// Waits until both readers have their roles.
fn wait_readers(weir: &Weir) -> CaseResult {
    // At other levels a session stays with its reader for a while, which has what it has seen.
    let anywhere = format!("/* weir_consistency=eventual */ {WHERE}");
    let mut session = Session::open(weir.addr(), "test")?;
    for reader in ["n2", "n3"] {
        eventually(&format!("{reader} serves reads"), Duration::from_secs(30), || {
            Ok(session.value(&anywhere)? == reader)
        })?;
    }
    Ok(())
}
