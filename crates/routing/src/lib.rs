//! Applies query rules with ProxySQL's semantics: from rows of `mysql_query_rules` and the facts of a statement to a
//! [`Decision`]. Pure: no clock, no socket, and chance is handed in.
//!
//! [`Rules`] is what a configuration means, shared by all workers; each worker makes a [`Router`] of its own from it,
//! which remembers decisions and counts hits.
//!
//! ```
//! use weir_routing::{Facts, Hints, Options, QueryRule, Router, Rules, Who};
//!
//! let rule = QueryRule {
//!     rule_id: 1,
//!     active: true,
//!     match_digest: Some("^SELECT".into()),
//!     destination_hostgroup: Some(20),
//!     apply: true,
//!     ..QueryRule::default()
//! };
//! let rules = Rules::compile(&[rule], &[], Options::default()).unwrap();
//! let mut router = Router::new(&rules);
//! let scope = router.scope(&Who { username: b"app", ..Who::default() });
//! let facts = Facts { statement: b"select 1", digest_text: b"select ?", digest: 7, flag_in: 0 };
//! let result = router.decide(scope, &facts, Hints::default(), &mut || 0);
//! assert_eq!(result.decision.hostgroup, Some(20));
//! ```
//!
//! Source of the rules: ProxySQL's manual, "Main (runtime)", tables `mysql_query_rules` and
//! `mysql_query_rules_fast_routing`, and what its users rely on.

mod cache;
mod consistency;
mod decision;
#[doc(hidden)]
pub mod fuzzing;
mod hints;
mod pattern;
mod patterns;
mod portable;
mod prefilter;
mod replacement;
mod router;
mod row;
mod rules;
mod transactions;

pub use consistency::Consistency;
pub use decision::{Decision, Multiplex};
pub use hints::{HintOrder, Hints};
pub use pattern::PATTERN_BYTES_MAX;
pub use router::{Facts, Router, RoutingResult, Scope, Who};
pub use row::{FastRoute, FlagWeight, QueryRule};
pub use rules::{ACTIVE_RULES_MAX, Options, PatternNote, RuleFault, Rules};
pub use transactions::{CommitOutcome, ReplayMode, TransactionSettings};
