//! Classifies a statement in one pass over its text, without copying or allocating: what it is, whether it is surely a
//! read, and what it does to its session that a server does not report.
//!
//! The rule is that *whatever is not surely a read without any effect is not a read*. An unknown function,
//! a system variable, an executable comment, a second statement or a string without its end are enough.
//! What no text shows stays unseen: a view or a trigger may call a function that takes a lock.
//!
//! ```
//! use weir_sql::{Access, Dialect, Effects, Kind, scan};
//!
//! let dialect = Dialect::default();
//! let statement = scan(b"SELECT c FROM t WHERE id = 7", dialect);
//! assert_eq!((statement.kind, statement.access), (Kind::Select, Access::Read));
//!
//! let statement = scan(b"SELECT GET_LOCK('batch', 10)", dialect);
//! assert_eq!((statement.access, statement.effects), (Access::Write, Effects::LOCK_ACQUIRED));
//! ```
//!
//! [`scan`] runs for every statement, and so may [`Digester::digest`], which names statements that differ in
//! their literals only. The other functions may allocate; they are for the statements of which
//! [`Effects`], [`Uses`] or [`Kind`] say that there is something to find.

mod detail;
mod dialect;
mod digest;
mod functions;
mod kind;
mod lex;
pub mod literal;
mod scan;
mod secrets;
mod statement;
mod table;
mod words;

#[doc(hidden)]
pub mod fuzzing;

pub use detail::{
    Assignment, DiagnosticsField, DiagnosticsItem, DiagnosticsRequest, Kill, KillKind, KillTarget,
    NamedEffect, Scope, SessionFunction, Substitution, TableName, What, assignments, diagnostics_request,
    explained_connection, kill_target, may_use_tables, named_effects, names_local_file, opens_no_table,
    scoped_assignments, stays_in_session, substitutions, use_schema,
};
pub use dialect::{Dialect, Family, LeadBytes, Server};
pub use digest::{Digest, DigestOptions, Digester};
pub use lex::{Flaws, Lexer, Token, TokenKind};
pub use scan::{COMMIT_OUTCOME, CONSISTENCY, OWN_VARIABLES, REPLAY, Several, TOKEN, kinds, scan};
pub use secrets::{mask_literals, mask_secrets, speaks_of_secrets};
pub use statement::{Access, Counts, Effects, Kind, Statement, Uses};
pub use words::Word;
