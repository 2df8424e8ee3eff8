//! Finds places where a proxy knows the answer and the server does not.

use std::ops::Range;

use super::Cursor;
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::scan::{
    COMMIT_OUTCOME, CONSISTENCY, REPLAY, TOKEN, Tokens as _, created_object, is_session_track, scan,
    skip_body, skip_schedule,
};
use crate::words::Word;

/// A function without arguments about the session or its last statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionFunction {
    /// CONNECTION_ID()
    ConnectionId,
    /// ROW_COUNT()
    RowCount,
    /// FOUND_ROWS()
    FoundRows,
}

/// The expression that a literal may replace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A call.
    Function(SessionFunction),
    /// `@@pseudo_thread_id`, which is the connection's id unless it was set.
    ThreadIdVariable,
    /// `@@warning_count`, or `@@error_count`.
    DiagnosticsCount {
        /// The latter.
        errors_only: bool,
    },
    /// `@@last_gtid`.
    LastGtid,
    /// The session's value of a `session_track_*` variable; its name in lower case.
    SessionTrackVariable(String),
    /// `@@weir_consistency`: how fresh the session's reads have to be.
    Consistency,
    /// `@@weir_token`: what the session has written.
    CausalToken,
    /// `@@weir_replay`: whether the session's transactions run again.
    Replay,
    /// `@@weir_commit_outcome`: how the end of its COMMITs is found out.
    CommitOutcome,
}

/// A part of a statement that a literal can take the place of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// Its bytes.
    pub range: Range<usize>,
    /// What it is.
    pub what: What,
    /// In which statement of the text, from 0 on.
    pub statement: usize,
    /// It is a whole item of the outermost select list and has no alias.
    pub select_item: bool,
    /// The bytes of the item of the outermost select list around it, where that surely has no alias: with an
    /// alias of its own text behind it, the result's column keeps its name. The same as `range` for a
    /// `select_item`.
    pub item: Option<Range<usize>>,
}

/// The places of `CONNECTION_ID()`, `ROW_COUNT()`, `FOUND_ROWS()` and of `@@session_track_*`, Weir's own variables,
/// `@@pseudo_thread_id`, `@@last_gtid`, `@@warning_count` and `@@error_count`, in their order. Not in definitions of views,
/// routines and the like, which would keep the literal, and not where a variable is assigned. Nothing if the text cannot be read with certainty.
pub fn substitutions(text: &[u8], dialect: Dialect) -> Vec<Substitution> {
    let mut found = Vec::new();
    let mut cursor = Cursor::new(text, dialect);
    if cursor.flaws.malformed || scan(text, dialect).uses.is_empty() {
        return found;
    }
    let mut more = !cursor.at_end() || cursor.next_statement();
    let mut number = 0;
    while more {
        if let Some(end) = evaluated(&mut cursor) {
            statement(&mut cursor, end, number, &mut found);
            if end != usize::MAX {
                skip_body(&mut cursor, Word::EVENT);
            }
        }
        more = cursor.next_statement();
        number += 1;
    }
    found
}

/// Goes to where expressions of the statement are evaluated, and says up to which token they are. `None` if they never are.
fn evaluated(cursor: &mut Cursor<'_>) -> Option<usize> {
    match cursor.now().word {
        Word::CREATE => {
            cursor.advance();
            let (object, _) = created_object(cursor);
            match object {
                Word::TABLE => {
                    while !cursor.at_end() && cursor.now().word != Word::SELECT {
                        cursor.advance();
                    }
                    Some(usize::MAX)
                }
                Word::EVENT => Some(schedule_end(cursor)),
                Word::PROCEDURE | Word::FUNCTION | Word::PACKAGE | Word::TRIGGER => {
                    skip_body(cursor, object);
                    None
                }
                _ => None,
            }
        }
        Word::ALTER => {
            cursor.advance();
            (created_object(cursor).0 == Word::EVENT).then(|| schedule_end(cursor))
        }
        _ => Some(usize::MAX),
    }
}

/// The DO of an event, behind its schedule that begins here.
fn schedule_end(cursor: &mut Cursor<'_>) -> usize {
    let start = cursor.at;
    skip_schedule(cursor);
    let end = cursor.at;
    (cursor.at, cursor.depth) = (start, 0);
    end
}

fn statement(cursor: &mut Cursor<'_>, end: usize, number: usize, found: &mut Vec<Substitution>) {
    let assigns = cursor.now().word == Word::SET;
    let mut in_select_list = false;
    let mut item: Option<Item> = None;
    while !cursor.at_end() && cursor.at < end {
        let now = cursor.now();
        if cursor.depth == 0 {
            if item.is_some() && ends_item(now) {
                item = end_item(cursor, item, found);
            }
            if now.word == Word::SELECT {
                in_select_list = true;
            } else if ends_select_list(now.word) {
                in_select_list = false;
            }
            if in_select_list && begins_item(cursor.previous()) {
                item = Some(Item { start: now.start(), first: found.len() });
            }
        }
        let length_and_what = call(cursor).or_else(|| variable(cursor, assigns));
        let Some((length, what)) = length_and_what else {
            cursor.advance();
            continue;
        };
        let mut end = now.end();
        for _ in 0..length {
            end = cursor.now().end();
            cursor.advance();
        }
        let range = now.start()..end;
        found.push(Substitution { range, what, statement: number, select_item: false, item: None });
    }
    end_item(cursor, item, found);
}

/// An item of the outermost select list.
struct Item {
    start: usize,
    /// The first substitution that may be in it.
    first: usize,
}

/// The item before the current token is complete.
fn end_item(cursor: &Cursor<'_>, item: Option<Item>, found: &mut [Substitution]) -> Option<Item> {
    let item = item?;
    let before_last = cursor.at.checked_sub(2).and_then(|at| cursor.tokens.get(at)).copied();
    let last = cursor.previous();
    if is_surely_no_alias(before_last.unwrap_or(Token::NONE), last) {
        let range = item.start..last.end();
        for substitution in found.iter_mut().skip(item.first) {
            substitution.select_item = substitution.range == range;
            substitution.item = Some(range.clone());
        }
    }
    None
}

/// Whether an expression that ends with these two tokens can have no alias at its end.
fn is_surely_no_alias(before_last: Token, last: Token) -> bool {
    match last.kind {
        TokenKind::RightParen | TokenKind::Number => true,
        TokenKind::Word | TokenKind::Quoted | TokenKind::Text => {
            matches!(
                before_last.kind,
                TokenKind::Operator | TokenKind::Equals | TokenKind::Dot | TokenKind::SystemVariable
            )
        }
        _ => false,
    }
}

/// A call of one of the functions: name and two parentheses.
fn call(cursor: &Cursor<'_>) -> Option<(usize, What)> {
    let &[name, open, close, ..] = cursor.ahead() else { return None };
    let parentheses = open.kind == TokenKind::LeftParen && close.kind == TokenKind::RightParen;
    if !parentheses || name.kind != TokenKind::Word || cursor.previous().kind == TokenKind::Dot {
        return None;
    }
    let function = if cursor.is(name, "connection_id") {
        SessionFunction::ConnectionId
    } else if cursor.is(name, "row_count") {
        SessionFunction::RowCount
    } else if cursor.is(name, "found_rows") {
        SessionFunction::FoundRows
    } else {
        return None;
    };
    Some((3, What::Function(function)))
}

/// `@@name`, `@@session.name` or `@@local.name` with a name of session tracking, a count or one of Weir's own, where it is read.
fn variable(cursor: &Cursor<'_>, assigns: bool) -> Option<(usize, What)> {
    let ahead = cursor.ahead();
    let (name, length) = match *ahead {
        [at, scope, dot, name, ..]
            if at.kind == TokenKind::SystemVariable
                && matches!(scope.word, Word::SESSION | Word::LOCAL)
                && dot.kind == TokenKind::Dot =>
        {
            (name, 4)
        }
        [at, name, ..] if at.kind == TokenKind::SystemVariable => (name, 2),
        _ => return None,
    };
    let after = ahead.get(length).map_or(TokenKind::End, |token| token.kind);
    let previous = cursor.previous();
    let target = assigns
        && (matches!(previous.word, Word::SET | Word::STATEMENT) || previous.kind == TokenKind::Comma)
        && matches!(after, TokenKind::Equals | TokenKind::Assign);
    let text = cursor.name(name);
    if target || !name.is_name() || after == TokenKind::Dot {
        return None;
    }
    if text.eq_ignore_ascii_case(b"pseudo_thread_id") {
        return Some((length, What::ThreadIdVariable));
    }
    if text.eq_ignore_ascii_case(b"last_gtid") {
        return Some((length, What::LastGtid));
    }
    let errors_only = text.eq_ignore_ascii_case(b"error_count");
    if errors_only || text.eq_ignore_ascii_case(b"warning_count") {
        return Some((length, What::DiagnosticsCount { errors_only }));
    }
    for (own, what) in [
        (CONSISTENCY, What::Consistency),
        (TOKEN, What::CausalToken),
        (REPLAY, What::Replay),
        (COMMIT_OUTCOME, What::CommitOutcome),
    ] {
        if text.eq_ignore_ascii_case(own.as_bytes()) {
            return Some((length, what));
        }
    }
    if !is_session_track(&text) {
        return None;
    }
    Some((length, What::SessionTrackVariable(String::from_utf8_lossy(&text).to_ascii_lowercase())))
}

fn begins_item(previous: Token) -> bool {
    previous.kind == TokenKind::Comma
        || matches!(
            previous.word,
            Word::SELECT
                | Word::ALL
                | Word::DISTINCT
                | Word::DISTINCTROW
                | Word::HIGH_PRIORITY
                | Word::STRAIGHT_JOIN
                | Word::SQL_BIG_RESULT
                | Word::SQL_BUFFER_RESULT
                | Word::SQL_CACHE
                | Word::SQL_CALC_FOUND_ROWS
                | Word::SQL_NO_CACHE
                | Word::SQL_SMALL_RESULT
        )
}

fn ends_item(next: Token) -> bool {
    matches!(next.kind, TokenKind::Comma | TokenKind::Semicolon | TokenKind::End)
        || ends_select_list(next.word)
}

/// Reserved words that follow a select list, so that they are not an alias.
fn ends_select_list(word: Word) -> bool {
    matches!(
        word,
        Word::FROM
            | Word::INTO
            | Word::WHERE
            | Word::GROUP
            | Word::HAVING
            | Word::ORDER
            | Word::LIMIT
            | Word::FETCH
            | Word::UNION
            | Word::EXCEPT
            | Word::INTERSECT
            | Word::FOR
            | Word::LOCK
            | Word::PROCEDURE
            | Word::ON
    )
}
