//! Recognises statements that change nothing, or nothing but their session's variables.

use super::{Cursor, Scope, assignments};
use crate::dialect::Dialect;
use crate::lex::TokenKind;
use crate::words::Word;

/// Whether a text is a single SHOW, or a SET of the session's own variables, with nothing in it that could be a call: if
/// a connection is lost with it, it may be run on another one. For statements without
/// [`Effects`](crate::Effects).
pub fn stays_in_session(text: &[u8], dialect: Dialect) -> bool {
    let cursor = Cursor::new(text, dialect);
    let Some(tokens) = cursor.only_statement() else { return false };
    if cursor.flaws.executable_comment || tokens.iter().any(|token| token.kind == TokenKind::LeftParen) {
        return false;
    }
    match tokens {
        [first, ..] if first.word == Word::SHOW => true,
        [first, scope, what, ..] if first.word == Word::SET && what.word == Word::TRANSACTION => {
            matches!(scope.word, Word::SESSION | Word::LOCAL)
        }
        _ => assignments(text, dialect).is_some_and(|assignments| {
            assignments.iter().all(|assignment| {
                !assignment.user_variable && matches!(assignment.scope, Scope::Session | Scope::Unscoped)
            })
        }),
    }
}
