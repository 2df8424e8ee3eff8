//! Peers that do not keep to the protocol: each harms itself only.

mod clients;
mod servers;

use weir_tests::Case;

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    let mut cases = clients::trials();
    cases.extend(servers::trials());
    cases
}
