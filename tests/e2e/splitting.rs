//! Statements are split: plain reads go to the readers by weight, everything else to the writer, and nobody ever
//! reads something older than what he wrote.

mod freshness;
mod levels;
mod placement;

use weir_tests::Case;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    placement::trials().into_iter().chain(freshness::trials()).chain(levels::trials()).collect()
}

/// A plain read that tells which node runs it.
const WHERE: &str =
    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'WSREP_NODE_NAME'";
