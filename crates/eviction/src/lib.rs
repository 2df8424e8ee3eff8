//! Evicts dead nodes: helps a Galera cluster to get over a node that was killed (assisted eviction).
//!
//! The stall that a killed node causes is Galera's own: the others ignore that its connections broke, and wait for
//! `evs.suspect_timeout` before they form a view without it. Whoever may set `evs.evict` can tell them at once. That
//! pays only if the death is certain and the survivors have a majority, and does harm where evict lists are left
//! behind; so everything is decided from facts, by functions without I/O, and [`Evictor`] does what they say:
//!
//! - [`Membership`]: what a node says of its group and its provider options.
//! - [`Obstacle`]: why a cluster can't be helped at all, known long before anything dies.
//! - [`decide`]: whom to evict where, or why not ([`Doubt`]). In any doubt nothing is done: `evs.suspect_timeout` acts.
//! - [`Sequence`]: the order of things, from the eviction to the last empty list.
//!
//! Quorum knows nothing of eviction: a wrong one costs time and no data.

mod decision;
mod evictor;
pub mod fuzzing;
mod membership;
mod node_watch;
mod obstacle;
mod ports;
mod sequence;
#[cfg(test)]
mod tests;

pub use decision::{Decision, Doubt, Eviction, Liveness, Node, Victim, decide};
pub use evictor::{Evictor, EvictorSettings, Suspect, obstacles};
pub use membership::{Membership, Provider};
pub use obstacle::{MEASURED_OPTIONS, Obstacle};
pub use sequence::{Act, Note, Sequence, Step};
