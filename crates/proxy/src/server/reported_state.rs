//! Checks whether the text of a statement explains the state changes that its reply reports; if not, the connection is
//! not given to another session.
//!
//! A connection may go to another session only if every change since its state was last known is explained, or has been
//! asked for, or has been wiped. What a trigger or a function behind a view does is in no text, and a server reports it
//! only in part:
//!
//! | reported | text that shows all | text that may run hidden code |
//! | --- | --- | --- |
//! | nothing | explained | explained: see `Work::lend` for what no server reports |
//! | variables | explained, with their values | not at all |
//! | the schema | explained | in part: a change of the state may hide behind it |
//! | "the state has changed" | if the text says so, or with one of the above | in part if the text says so, else not at all |
//!
//! What is not explained at all holds the session on its connection ([`Pins::STATE_CHANGE`](weir_session::pin::Pins)). What
//! is explained in part does not: the connection is suspect, and is wiped before another session gets it.

use weir_sql::{Effects, Kind, Statement};

use crate::session::execution::Reported;

/// How far the text of a statement explains what was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Explanation {
    /// Nothing else has changed.
    Whole,
    /// Something else may have changed, too.
    Partial,
    /// Something has changed that the text does not say.
    None,
}

/// Statements with these change the state by their text.
const SAYS_SO: Effects = Effects::USER_VARIABLE
    .union(Effects::TEMPORARY_TABLE_CREATED)
    .union(Effects::TABLE_DROPPED)
    .union(Effects::TEXT_PREPARE)
    .union(Effects::TEXT_DEALLOCATE)
    .union(Effects::ROLE_CHANGED);

/// How far a statement's text explains what its OK has reported.
pub(crate) fn explain(statement: &Statement, reported: Reported) -> Explanation {
    // What runs code openly holds its session anyway.
    if !reported.is_change() || statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN) {
        return Explanation::Whole;
    }
    let says_so = statement.effects.intersects(SAYS_SO);
    if !statement.hidden_code {
        let is_explained = reported.variable || reported.schema || says_so;
        return if is_explained { Explanation::Whole } else { Explanation::None };
    }
    let sets_its_own = statement.kind == Kind::SetStatement;
    if (reported.variable && !sets_its_own) || !(reported.schema || says_so || sets_its_own) {
        Explanation::None
    } else {
        Explanation::Partial
    }
}

#[cfg(test)]
mod tests {
    use weir_sql::Dialect;

    use super::*;

    fn explained(text: &str, variable: bool, schema: bool, state: bool) -> Explanation {
        let statement = weir_sql::scan(text.as_bytes(), Dialect::default());
        explain(&statement, Reported { variable, schema, state })
    }

    #[test]
    fn what_the_text_says_is_explained() {
        for (text, variable, schema) in [
            ("SET time_zone = '+00:00'", true, false),
            ("SET @a = 1", false, false),
            ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE", true, false),
            ("USE shop", false, true),
            ("DROP DATABASE shop", false, true),
            ("CREATE TEMPORARY TABLE t (a INT)", false, false),
            ("DROP TABLE t", false, false),
            ("PREPARE s FROM 'SELECT 1'", false, false),
            ("SET ROLE r", false, false),
            ("SET NAMES utf8mb4; SET @a = 1; USE shop", true, true),
        ] {
            assert_eq!(explained(text, variable, schema, true), Explanation::Whole, "{text}");
        }
    }

    #[test]
    fn what_hidden_code_may_have_done_is_not() {
        for text in [
            "INSERT INTO t VALUES (1)",
            "UPDATE t SET a = 1",
            "SELECT a FROM v",
            "COMMIT",
            "SET time_zone = '+00:00'; INSERT INTO t VALUES (1)",
        ] {
            let state_alone = explained(text, false, false, true);
            assert_eq!(state_alone, Explanation::None, "{text}");
        }
        assert_eq!(explained("INSERT INTO t VALUES (1)", true, false, true), Explanation::None);
        assert_eq!(explained("SELECT a FROM other.v", false, true, true), Explanation::Partial);
        let created = "CREATE TEMPORARY TABLE t AS SELECT a FROM v";
        assert_eq!(explained(created, false, false, true), Explanation::Partial);
        assert_eq!(explained(created, true, false, true), Explanation::None);
        let limited = "SET STATEMENT max_statement_time = 1 FOR SELECT a FROM v";
        assert_eq!(explained(limited, true, false, true), Explanation::Partial);
        assert_eq!(explained("SET @a = (SELECT b FROM v)", true, false, true), Explanation::None);
    }

    #[test]
    fn nothing_reported_needs_no_explanation() {
        assert_eq!(explained("INSERT INTO t VALUES (1)", false, false, false), Explanation::Whole);
        assert_eq!(explained("CALL p()", true, true, true), Explanation::Whole);
    }
}
