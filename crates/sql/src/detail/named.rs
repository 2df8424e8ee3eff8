//! Finds effects together with the names they are about.

use super::{Cursor, unquote};
use crate::dialect::Dialect;
use crate::lex::{Token, TokenKind};
use crate::scan::{Tokens as _, created_object, items, scan, skip_body};
use crate::statement::Effects;
use crate::words::Word;

/// A table as a statement names it, in the letter case it is written in: whether letter case matters is the
/// server's setting.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The schema, if one is written.
    pub schema: Option<Vec<u8>>,
    /// The table.
    pub name: Vec<u8>,
}

/// An effect and its name. Names are without quotes, in the client's character set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedEffect {
    /// CREATE TEMPORARY TABLE or SEQUENCE.
    TemporaryTableCreated(TableName),
    /// One name of DROP TABLE or SEQUENCE: the temporary table of that name, if there is one.
    TableDropped(TableName),
    /// Tables got other names: the names of temporary tables are not known any more.
    TablesRenamed,
    /// PREPARE; ASCII letters in lower case.
    Prepared(Vec<u8>),
    /// DEALLOCATE or DROP PREPARE; ASCII letters in lower case.
    Deallocated(Vec<u8>),
    /// HANDLER ... OPEN: the name the handler is used by.
    HandlerOpened(Vec<u8>),
    /// HANDLER ... CLOSE
    HandlerClosed(Vec<u8>),
    /// A call of GET_LOCK. The name, ASCII letters in lower case, only if the statement is nothing but
    /// `SELECT` or `DO`, the call with a literal name and a literal time, and perhaps an alias: then the lock is
    /// taken at most once.
    LockAcquired(Option<Vec<u8>>),
    /// `SELECT` or `DO RELEASE_LOCK('name')`, perhaps with an alias, and nothing else.
    LockReleased(Vec<u8>),
    /// `SELECT` or `DO RELEASE_ALL_LOCKS()`, perhaps with an alias, and nothing else.
    AllLocksReleased,
}

/// The effects of all statements in `text`, in their order. Call it if [`scan`](crate::scan) found one of
/// [`Effects`](crate::Effects) that has a name here.
///
/// What ends something (dropped, closed, released) is left out where the text cannot be read with certainty or
/// has executable comments, so that nothing is taken for gone that may still be there.
pub fn named_effects(text: &[u8], dialect: Dialect) -> Vec<NamedEffect> {
    let effects = scan(text, dialect).effects;
    if effects.is_empty() {
        return Vec::new();
    }
    let mut cursor = Cursor::new(text, dialect);
    let certain = !cursor.flaws.malformed && !cursor.flaws.executable_comment;
    let mut found = Vec::new();
    let mut more = !cursor.at_end() || cursor.next_statement();
    while more {
        statement(&mut cursor, &mut found);
        more = cursor.next_statement();
    }
    let lock = |effect: &NamedEffect| matches!(effect, NamedEffect::LockAcquired(_));
    if effects.contains(Effects::LOCK_ACQUIRED) && !found.iter().any(lock) {
        found.push(NamedEffect::LockAcquired(None));
    }
    if !certain {
        found.retain(|effect| {
            !matches!(
                effect,
                NamedEffect::TableDropped(_)
                    | NamedEffect::Deallocated(_)
                    | NamedEffect::HandlerClosed(_)
                    | NamedEffect::LockReleased(_)
                    | NamedEffect::AllLocksReleased
            )
        });
    }
    found
}

/// From the first token of a statement, to its end or somewhere before.
fn statement(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    locks(cursor, found);
    verb(cursor, found);
}

fn verb(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    let verb = cursor.now().word;
    cursor.advance();
    let now = cursor.now();
    match verb {
        Word::SET if now.word == Word::STATEMENT => {
            cursor.advance();
            items(cursor, true, &mut |_| {});
            if cursor.now().word == Word::FOR {
                cursor.advance();
                self::verb(cursor, found);
            }
        }
        Word::CREATE => create(cursor, found),
        Word::ALTER => alter(cursor, found),
        Word::DROP => drop(cursor, found),
        Word::RENAME if matches!(now.word, Word::TABLE | Word::TABLES) => {
            found.push(NamedEffect::TablesRenamed)
        }
        Word::PREPARE if now.is_name() => found.push(NamedEffect::Prepared(lower(cursor.name(now)))),
        Word::DEALLOCATE => deallocate(cursor, found),
        Word::HANDLER => handler(cursor, found),
        Word::BEGIN if cursor.at_end() || now.word == Word::WORK => {}
        // A compound statement: what it runs, and whether, is not followed.
        Word::BEGIN | Word::IF | Word::CASE | Word::LOOP | Word::WHILE | Word::REPEAT | Word::FOR => {
            cursor.at = cursor.tokens.len().saturating_sub(1);
        }
        _ => {}
    }
}

fn create(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    match created_object(cursor) {
        (Word::TABLE | Word::SEQUENCE, true) => {
            skip_if_exists(cursor);
            if let Some(table) = table(cursor) {
                found.push(NamedEffect::TemporaryTableCreated(table));
            }
        }
        (object @ (Word::PROCEDURE | Word::FUNCTION | Word::PACKAGE | Word::TRIGGER | Word::EVENT), _) => {
            skip_body(cursor, object);
        }
        _ => {}
    }
}

fn alter(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    match created_object(cursor).0 {
        Word::EVENT => {
            skip_body(cursor, Word::EVENT);
        }
        Word::TABLE if cursor.rest().iter().any(|token| token.word == Word::RENAME) => {
            found.push(NamedEffect::TablesRenamed);
        }
        _ => {}
    }
}

fn drop(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    if cursor.now().word == Word::TEMPORARY {
        cursor.advance();
    }
    match cursor.now().word {
        Word::TABLE | Word::TABLES | Word::SEQUENCE => {
            cursor.advance();
            skip_if_exists(cursor);
            while let Some(table) = table(cursor) {
                found.push(NamedEffect::TableDropped(table));
                if cursor.now().kind != TokenKind::Comma {
                    break;
                }
                cursor.advance();
            }
        }
        Word::PREPARE => deallocate(cursor, found),
        _ => {}
    }
}

/// From PREPARE of DEALLOCATE PREPARE or DROP PREPARE.
fn deallocate(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    cursor.advance();
    if cursor.now().is_name() {
        found.push(NamedEffect::Deallocated(lower(cursor.name(cursor.now()))));
    }
}

fn handler(cursor: &mut Cursor<'_>, found: &mut Vec<NamedEffect>) {
    let Some(table) = table(cursor) else { return };
    let verb = cursor.now().word;
    cursor.advance();
    match verb {
        Word::OPEN => {
            if cursor.now().word == Word::AS {
                cursor.advance();
            }
            let alias = cursor.now().is_name().then(|| cursor.name(cursor.now()));
            found.push(NamedEffect::HandlerOpened(alias.unwrap_or(table.name)));
        }
        Word::CLOSE => found.push(NamedEffect::HandlerClosed(table.name)),
        _ => {}
    }
}

/// Skips IF EXISTS and IF NOT EXISTS.
fn skip_if_exists(cursor: &mut Cursor<'_>) {
    if cursor.now().word == Word::IF {
        while matches!(cursor.now().word, Word::IF | Word::NOT | Word::EXISTS) {
            cursor.advance();
        }
    }
}

/// Reads `name` or `schema.name`.
fn table(cursor: &mut Cursor<'_>) -> Option<TableName> {
    let first = cursor.now();
    if !first.is_name() {
        return None;
    }
    cursor.advance();
    if cursor.now().kind != TokenKind::Dot {
        return Some(TableName { schema: None, name: cursor.name(first) });
    }
    cursor.advance();
    let second = cursor.now();
    if !second.is_name() {
        return None;
    }
    cursor.advance();
    Some(TableName { schema: Some(cursor.name(first)), name: cursor.name(second) })
}

fn locks(cursor: &Cursor<'_>, found: &mut Vec<NamedEffect>) {
    if let Some(effect) = only_lock(cursor) {
        found.push(effect);
        return;
    }
    let tokens = cursor.rest();
    for (name, paren) in tokens.iter().zip(tokens.iter().skip(1)) {
        if cursor.is(*name, "get_lock") && paren.kind == TokenKind::LeftParen {
            found.push(NamedEffect::LockAcquired(None));
        }
    }
}

/// The effect of a statement that is one call of a lock function with literal arguments, and nothing else.
fn only_lock(cursor: &Cursor<'_>) -> Option<NamedEffect> {
    let [verb, function, paren, arguments @ ..] = cursor.rest() else { return None };
    if !matches!(verb.word, Word::SELECT | Word::DO) || paren.kind != TokenKind::LeftParen {
        return None;
    }
    let close = arguments.iter().position(|token| token.kind == TokenKind::RightParen)?;
    let (arguments, [_, alias @ ..]) = arguments.split_at(close) else { return None };
    let alias_only = match alias {
        [] => true,
        [name] => name.is_name() && name.word == Word::NONE,
        [word, name] => word.word == Word::AS && (name.is_name() || name.kind == TokenKind::Text),
        _ => false,
    };
    if !alias_only {
        return None;
    }
    match arguments {
        [] if cursor.is(*function, "release_all_locks") => Some(NamedEffect::AllLocksReleased),
        [name] if cursor.is(*function, "release_lock") => {
            Some(NamedEffect::LockReleased(literal(cursor, *name)?))
        }
        [name, comma, time @ ..] if cursor.is(*function, "get_lock") && comma.kind == TokenKind::Comma => {
            let literal_time = match time {
                [number] => number.kind == TokenKind::Number,
                [sign, number] => sign.kind == TokenKind::Operator && number.kind == TokenKind::Number,
                _ => false,
            };
            literal_time
                .then(|| literal(cursor, *name))
                .flatten()
                .map(|name| NamedEffect::LockAcquired(Some(name)))
        }
        _ => None,
    }
}

/// The value of a plain string, ASCII letters in lower case. `None` if it has a prefix or escapes.
fn literal(cursor: &Cursor<'_>, token: Token) -> Option<Vec<u8>> {
    let text = cursor.text_of(token);
    let escapes = text.contains(&b'\\') && !cursor.dialect.no_backslash_escapes;
    let plain = token.kind == TokenKind::Text && matches!(text.first(), Some(b'\'' | b'"')) && !escapes;
    plain.then(|| lower(unquote(text)))
}

fn lower(mut name: Vec<u8>) -> Vec<u8> {
    name.make_ascii_lowercase();
    name
}
