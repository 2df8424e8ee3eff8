//! Compares peers: proxies, builds of one program, or a server without any. Every round visits every peer, so that a
//! change of the machine's mood falls on all of them, and ratios are taken within a round.

mod case;
mod metric;
mod table;

pub use case::{Case, CaseFigures, Comparison, GoalCheck, PeerFigures, PeerSamples};
pub use metric::{Bound, Goal, Metric, Sample};
pub use table::{block, checked_goals, goals};
