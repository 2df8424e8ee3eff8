//! Runs nodes that say anything of themselves, for the fuzz targets and the corpus test. A broken rule panics, and so
//! does nothing else.

use weir_topology::Millis;

use crate::Membership;

/// More is not kept of any node.
const EVICTED_MAX: usize = 128;

/// Lines of names and values (a tab between them) up to an empty line, as `weir_topology::fuzzing::fuzz_states` has them.
pub fn fuzz_membership(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let variables = text.split("\n\n").next().unwrap_or_default();
    let variables = variables.lines().map(|line| line.split_once('\t').unwrap_or((line, "")));
    let membership = Membership::from_rows(Millis(0), variables);
    assert!(membership.evicted.len() <= EVICTED_MAX);
    assert!(membership.evicted.iter().all(|uuid| uuid.len() == 36));
    assert!(membership.obstacles().iter().all(|obstacle| !obstacle.to_string().is_empty()));
    membership.provider.group_address();
}
