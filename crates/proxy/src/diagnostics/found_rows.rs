//! Keeps FOUND_ROWS() the session's own: what a statement makes of it, and that a statement which may leave it as it is
//! finds the session's number on its connection.
//!
//! Seen on MariaDB 10.11 and MySQL 9.7: every query sets it, also one inside another statement or a routine; other
//! statements leave it alone, results or not. Only for plain queries it follows from the rows that were sent.

use std::fmt::Write;

use weir_protocol::error::LOCK_DEADLOCK;
use weir_sql::{Access, Counts, Effects, Kind, Uses};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connections::Connections;
use crate::server::errors::REFUSED;
use crate::session::Session;
use crate::session::execution::Ending;
use crate::session::retained::Retained;
use crate::session::text;

/// The greatest number that is put on a connection: the query that does so makes as many rows.
const ROWS_MAX: u64 = 10_000;
/// So much of an UPDATE or DELETE is searched for what tells how many tables it changes, bytes.
const TABLES_BYTES_MAX: usize = 512;
/// A table of ten rows.
const DIGITS: &str = "SELECT 0 n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL \
    SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9";
/// What makes one query of several.
const COMBINING: [&[u8]; 3] = [b"UNION", b"EXCEPT", b"INTERSECT"];

/// What has become of FOUND_ROWS().
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// It is what it was.
    Not,
    /// This number.
    Rows(u64),
    /// A number that the connection knows.
    Hidden,
    /// The same, or it is what it was.
    Unsure,
    /// The same as [`Counted::Unsure`], by a statement after which hardly anybody asks: not worth a question.
    Incidental,
}

/// Kinds of statements that run no query unless one stands in them.
fn runs_no_query(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::Call
            | Kind::Execute
            | Kind::ExecuteImmediate
            | Kind::Compound
            | Kind::SetStatement
            | Kind::Show
            | Kind::Explain
            | Kind::Analyze
            | Kind::Help
            | Kind::XaRecover
            | Kind::Maintenance
            | Kind::Other
    )
}

/// A query after which FOUND_ROWS() is this. With one row or none it uses no table, and so leaves older warnings alone.
pub(crate) fn query_of(rows: u64) -> String {
    match rows {
        0 => "SELECT 1 LIMIT 0".to_owned(),
        1 => "SELECT 1".to_owned(),
        2..=10 => vec!["SELECT 1"; rows as usize].join(" UNION ALL "),
        // Without words in quotes: in swe7 brackets are letters, and in utf16 nothing of it would be JSON. And without a
        // condition on one table, which MySQL (9.7) writes anew in a text that it can't read in swe7.
        _ => {
            let (mut tables, mut number) = (String::new(), String::new());
            let mut place = 1;
            while place < rows {
                let mark = if place == 1 { "" } else { ", " };
                let _ = write!(tables, "{mark}({DIGITS}) weir{place}");
                let _ = write!(number, "+{place}*weir{place}.n");
                place *= 10;
            }
            format!("SELECT SQL_CALC_FOUND_ROWS 1 FROM {tables} WHERE {number} < {rows} LIMIT 0")
        }
    }
}

/// The words of a text, and what of it stands before each.
fn words(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    text::words(text)
        .map(move |word| {
            let before = text.get(..at).unwrap_or_default();
            at += word.len() + 1;
            (before, word)
        })
        .filter(|(_, word)| !word.is_empty())
}

fn combines(text: &[u8]) -> bool {
    words(text).any(|(_, word)| COMBINING.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

/// The rows that the LIMIT at the end of a query skips: `LIMIT 5 OFFSET 2` or `LIMIT 2, 5`. None if it can't be told
/// from the text, as with parameters.
fn skipped_rows(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let start = text.len().saturating_sub(64);
    // Only the text's end, so there may be half a character at its beginning.
    let end = String::from_utf8_lossy(text.get(start..)?).to_ascii_lowercase();
    let (before, limit) = end.rsplit_once("limit")?;
    if combines(text)
        || before.ends_with(|c: char| !c.is_whitespace())
        || limit.contains(['(', ')', '*', '#'])
    {
        return None;
    }
    if let Some((count, offset)) = limit.split_once("offset") {
        count.trim().parse::<u64>().ok()?;
        return offset.trim().parse().ok();
    }
    let (offset, count) = limit.split_once(',')?;
    count.trim().parse::<u64>().ok()?;
    offset.trim().parse().ok()
}

/// Whether an UPDATE or DELETE may be one of several tables, which is run as a query.
fn changes_several_tables(text: &[u8], kind: Kind) -> bool {
    let begin = text.get(..text.len().min(TABLES_BYTES_MAX)).unwrap_or_default();
    let is = |word: &[u8], known: &[&[u8]]| known.iter().any(|known| word.eq_ignore_ascii_case(known));
    let mut tables =
        words(begin).skip(1).skip_while(|(_, word)| is(word, &[b"LOW_PRIORITY", b"QUICK", b"IGNORE"]));
    if kind == Kind::Delete && tables.next().is_none_or(|(_, word)| !is(word, &[b"FROM"])) {
        return true;
    }
    match tables.find(|(_, word)| is(word, &[b"SET", b"WHERE", b"JOIN", b"STRAIGHT_JOIN", b"USING"])) {
        Some((before, end)) => before.contains(&b',') || !is(end, &[b"SET", b"WHERE"]),
        None => begin.len() < text.len() || begin.contains(&b','),
    }
}

impl Pools {
    /// What the session's statement, which has succeeded, has made of the number. `rows`: of the last result.
    pub(crate) fn counted(&self, ctx: &Context, session: &Session, rows: Option<u64>) -> Counted {
        let statement = session.execution.plan.statement();
        if session.execution.reply.has_cursor {
            // Rows that are not sent.
            return Counted::Hidden;
        }
        let is_query = matches!(statement.kind, Kind::Select | Kind::With | Kind::Table | Kind::Values);
        if !is_query || session.runs_several() {
            return self.counts_beside_queries(ctx, session);
        }
        let Some(rows) = rows else {
            // SELECT ... INTO has rows that are not sent; or WITH begins something else than a query.
            let is_into = statement.kind == Kind::Select;
            return if is_into { Counted::Hidden } else { Counted::Unsure };
        };
        if statement.effects.intersects(Effects::FOUND_ROWS_CALC | Effects::ROUTINE) {
            return Counted::Hidden;
        }
        if statement.kind == Kind::Values
            && self.speaks_mariadb(ctx, session)
            && !combines(session.statement_text())
        {
            // A list of rows is no query until it is combined with another one.
            return Counted::Not;
        }
        if statement.counts.contains(Counts::OFFSET) {
            let skipped = (rows > 0).then(|| skipped_rows(session.statement_text())).flatten();
            return skipped
                .and_then(|skipped| skipped.checked_add(rows))
                .map_or(Counted::Hidden, Counted::Rows);
        }
        Counted::Rows(rows)
    }

    /// The same after an error.
    pub(crate) fn counted_before_error(&self, ctx: &Context, session: &Session) -> Counted {
        let Ending::Err(code) = session.execution.ending else { return Counted::Not };
        let kind = session.execution.plan.statement().kind;
        if session.execution.plan.kind() == CommandKind::Prepare {
            return Counted::Not;
        }
        if matches!(kind, Kind::Select | Kind::With | Kind::Table | Kind::Values) && !session.runs_several() {
            // A query that fails on its way leaves a number of the server's own.
            let has_begun = code != LOCK_DEADLOCK.code && !REFUSED.contains(&code);
            return if has_begun { Counted::Hidden } else { Counted::Not };
        }
        self.counts_beside_queries(ctx, session)
    }

    /// What a statement that is no query, or several ones, may make of the number.
    fn counts_beside_queries(&self, ctx: &Context, session: &Session) -> Counted {
        let statement = session.execution.plan.statement();
        if !matches!(session.execution.plan.kind(), CommandKind::Query | CommandKind::Execute) {
            return Counted::Not;
        }
        let has_query = statement.counts.contains(Counts::QUERY);
        if statement.effects.intersects(Effects::ROUTINE | Effects::UNKNOWN) {
            return Counted::Unsure;
        }
        if session.runs_several() {
            let may_count = has_query || may_count_rows(session.command_text());
            return if may_count { Counted::Unsure } else { Counted::Not };
        }
        let is_mysql = !self.speaks_mariadb(ctx, session);
        match statement.kind {
            Kind::Update if is_mysql => Counted::Incidental,
            Kind::Update | Kind::Delete
                if has_query || changes_several_tables(session.statement_text(), statement.kind) =>
            {
                Counted::Incidental
            }
            Kind::Do if is_mysql => Counted::Rows(1),
            Kind::ShowCountWarnings | Kind::ShowCountErrors => Counted::Rows(1),
            kind if runs_no_query(kind) && !has_query => Counted::Not,
            _ => Counted::Unsure,
        }
    }

    /// Whether the session's statement must find the session's number on its connection.
    pub(crate) fn needs_found_rows(&self, ctx: &Context, session: &Session) -> bool {
        let execution = &session.execution;
        let statement = execution.plan.statement();
        // In any other statement a literal stands in its place.
        let asks = statement.uses.contains(Uses::FOUND_ROWS)
            && (execution.plan.kind() == CommandKind::Execute
                || (execution.plan.kind() == CommandKind::Query && session.runs_several()));
        // A query sets it in any case.
        let is_query = matches!(statement.kind, Kind::Select | Kind::Values | Kind::Table)
            || (statement.kind == Kind::With && statement.access == Access::Read);
        asks || ((!is_query || session.runs_several())
            && self.counts_beside_queries(ctx, session) == Counted::Unsure)
    }

    /// FOUND_ROWS() for a statement that may ask for it or leave it as it is, on a connection where it is another session's.
    pub(crate) fn found_rows_to_set(
        &self,
        ctx: &Context,
        session: &Session,
        key: ConnectionKey,
    ) -> Option<u64> {
        let rows = session.diagnostics.found_rows.filter(|rows| *rows <= ROWS_MAX)?;
        if self.connections.has_own_found_rows(session, key) || !self.needs_found_rows(ctx, session) {
            return None;
        }
        let knows_warnings = session.diagnostics.retained.contains(Retained::WARNINGS);
        let ends_warnings = rows > 1 || !self.connections[key].access.greeted.is_mariadb;
        (!knows_warnings || !ends_warnings).then_some(rows)
    }
}

impl Connections {
    /// Takes note of what a statement on this lease has made of the number.
    pub(crate) fn note_found_rows(&mut self, session: &mut Session, key: ConnectionKey, counted: Counted) {
        match counted {
            Counted::Not => return,
            Counted::Rows(rows) => {
                self.drop_outdated(session, Retained::FOUND_ROWS);
                session.diagnostics.found_rows = Some(rows);
                self[key].known.found_rows = Some(rows);
                return;
            }
            Counted::Hidden => self.retain_anew(session, Retained::FOUND_ROWS),
            Counted::Unsure | Counted::Incidental if !self.has_own_found_rows(session, key) => {
                self.drop_outdated(session, Retained::FOUND_ROWS);
                session.diagnostics.found_rows = None;
            }
            Counted::Unsure => self.retain_anew(session, Retained::FOUND_ROWS),
            Counted::Incidental => self.retain_anew(session, Retained::FOUND_ROWS | Retained::UNASKED),
        }
        self[key].known.found_rows = None;
    }

    /// Whether FOUND_ROWS() on this lease is the session's.
    pub(crate) fn has_own_found_rows(&self, session: &Session, key: ConnectionKey) -> bool {
        if session.diagnostics.retained.contains(Retained::FOUND_ROWS) {
            return !self.is_retained_elsewhere(session, key, Retained::FOUND_ROWS);
        }
        session.diagnostics.found_rows.is_some()
            && session.diagnostics.found_rows == self[key].known.found_rows
    }
}

/// Statements with one of these may give rows, and so set FOUND_ROWS().
const GIVING_ROWS: [&[u8]; 15] = [
    b"SELECT",
    b"SHOW",
    b"CALL",
    b"EXECUTE",
    b"WITH",
    b"DESC",
    b"DESCRIBE",
    b"EXPLAIN",
    b"ANALYZE",
    b"CHECK",
    b"OPTIMIZE",
    b"REPAIR",
    b"HANDLER",
    b"DO",
    b"UPDATE",
];

/// Whether a part of a text may set FOUND_ROWS().
fn may_count_rows(text: &[u8]) -> bool {
    text::words(text).any(|word| GIVING_ROWS.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_rows_are_read_where_they_are_sure() {
        assert_eq!(skipped_rows(b"SELECT a FROM t LIMIT 5 OFFSET 2"), Some(2));
        assert_eq!(skipped_rows(b"SELECT a FROM t\nlimit 20 ,\t5 ; "), Some(20));
        for unsure in [
            &b"SELECT a FROM t LIMIT ? OFFSET ?"[..],
            b"SELECT a FROM t LIMIT 5",
            b"SELECT a FROM (SELECT a FROM t LIMIT 1 OFFSET 2) d",
            b"(SELECT 1) UNION (SELECT 2) LIMIT 1 OFFSET 1",
            b"SELECT a FROM t LIMIT 5 OFFSET 2 FOR UPDATE",
            b"SELECT a FROM t LIMIT 5 /* LIMIT 1, 2 */",
            b"SELECT a FROM t LIMIT 5 OFFSET 99999999999999999999",
            b"SELECT 'LIMIT 1, 2",
        ] {
            assert_eq!(skipped_rows(unsure), None, "{}", String::from_utf8_lossy(unsure));
        }
    }

    #[test]
    fn statements_of_several_tables_are_told_from_those_of_one() {
        for one in ["UPDATE t SET a = 1, b = 2", "update ignore `t` set a = (b)"] {
            assert!(!changes_several_tables(one.as_bytes(), Kind::Update), "{one}");
        }
        for one in
            ["DELETE FROM t", "DELETE QUICK FROM t WHERE a IN (1, 2)", "delete from t order by a limit 1"]
        {
            assert!(!changes_several_tables(one.as_bytes(), Kind::Delete), "{one}");
        }
        for several in ["UPDATE t a, u b SET a.a = 1", "UPDATE t JOIN u USING (a) SET b = 1"] {
            assert!(changes_several_tables(several.as_bytes(), Kind::Update), "{several}");
        }
        for several in ["DELETE t FROM t JOIN u", "DELETE FROM t USING t, u", "DELETE FROM t, u USING t"] {
            assert!(changes_several_tables(several.as_bytes(), Kind::Delete), "{several}");
        }
    }
}
