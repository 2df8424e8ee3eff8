//! Finds the end of the body of a routine, trigger or event, so that its semicolons are not taken for the end of the
//! statement, and the statement after it is not taken for a part of the body.
//!
//! Only blocks that surely are blocks count. A body that is not followed with certainty ends at its first
//! semicolon, and the rest is scanned like further statements: too many effects rather than too few. Which names a
//! server allows where is not known wholly, so a text that goes on behind a body is not trusted either (`Scanner::has_body`).

use super::Tokens;
use crate::lex::{Token, TokenKind};
use crate::words::Word;

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// At the end of the statement.
    Complete,
    /// The text ended inside a block.
    Open,
}

/// Goes from the token after PROCEDURE, FUNCTION, TRIGGER or EVENT (`object`) to the end of the statement.
pub(crate) fn skip_body<T: Tokens>(tokens: &mut T, object: Word) -> BodyEnd {
    let block = match object {
        Word::TRIGGER => {
            let row = |now: Token, previous: Token| now.word == Word::ROW && previous.word == Word::EACH;
            skip_until(tokens, row) && header(tokens)
        }
        Word::EVENT => skip_schedule(tokens) && skip_until(tokens, |_, _| true) && header(tokens),
        // Its routines are declared between semicolons.
        Word::PACKAGE => false,
        _ => header(tokens),
    };
    let end = if block { blocks(tokens) } else { BodyEnd::Complete };
    while !tokens.at_end() {
        tokens.advance();
    }
    end
}

/// Goes from the token after EVENT to the DO of the event's body. False if there is none. What stands before it is evaluated
/// when the event is created or altered.
pub(crate) fn skip_schedule<T: Tokens>(tokens: &mut T) -> bool {
    while !tokens.at_end() {
        let previous = tokens.previous();
        let is_name =
            matches!(previous.word, Word::EVENT | Word::EXISTS | Word::TO) || previous.kind == TokenKind::Dot;
        if tokens.now().word == Word::DO && tokens.depth() == 0 && !is_name {
            return true;
        }
        tokens.advance();
    }
    false
}

/// Goes behind the token that `found` accepts, outside of parentheses. False at the end of the statement.
fn skip_until<T: Tokens>(tokens: &mut T, found: fn(Token, Token) -> bool) -> bool {
    while !tokens.at_end() {
        let hit = tokens.depth() == 0 && found(tokens.now(), tokens.previous());
        tokens.advance();
        if hit {
            return true;
        }
    }
    false
}

/// Goes behind the BEGIN of the body, over names, parameters, types and characteristics. False if another verb
/// comes first: then the body is one statement without a block.
fn header<T: Tokens>(tokens: &mut T) -> bool {
    while !tokens.at_end() {
        let (now, previous) = (tokens.now(), tokens.previous());
        let inside_parentheses = tokens.depth() > 0;
        tokens.advance();
        if inside_parentheses || now.kind != TokenKind::Word {
            continue;
        }
        match now.word {
            _ if is_name_behind(previous) => {}
            // A label.
            Word::BEGIN if tokens.now().kind == TokenKind::Colon => {}
            Word::BEGIN => return true,
            Word::SET if previous.word == Word::CHARACTER => {}
            // IF NOT EXISTS before the name.
            Word::IF if tokens.now().word == Word::NOT => {}
            word if in_header(word) => {}
            _ => return false,
        }
    }
    false
}

/// Whether a name stands behind this token of a header, even one like a keyword.
fn is_name_behind(previous: Token) -> bool {
    let word = matches!(
        previous.word,
        Word::PROCEDURE | Word::FUNCTION | Word::EXISTS | Word::FOLLOWS | Word::PRECEDES | Word::LANGUAGE
    );
    word || previous.kind == TokenKind::Dot
}

/// Words before a body. Every verb is a known word, so an unknown one is a name or a type.
fn in_header(word: Word) -> bool {
    matches!(
        word,
        Word::NONE
            | Word::NOT
            | Word::EXISTS
            | Word::RETURNS
            | Word::CHARACTER
            | Word::CHARSET
            | Word::LANGUAGE
            | Word::SQL
            | Word::DETERMINISTIC
            | Word::CONTAINS
            | Word::NO
            | Word::READS
            | Word::MODIFIES
            | Word::DATA
            | Word::SECURITY
            | Word::DEFINER
            | Word::INVOKER
            | Word::FOLLOWS
            | Word::PRECEDES
            | Word::AS
            | Word::IS
    )
}

/// Goes from the token after BEGIN behind its END.
fn blocks<T: Tokens>(tokens: &mut T) -> BodyEnd {
    let mut open = 1_usize;
    let mut begins = true;
    // After DECLARE ... HANDLER FOR, as long as only conditions follow.
    let mut conditions = false;
    while tokens.now().kind != TokenKind::End {
        let (now, previous) = (tokens.now(), tokens.previous());
        tokens.advance();
        let was_beginning = std::mem::replace(&mut begins, false);
        match now.word {
            Word::END if was_beginning && !ends_a_loop(tokens.now().word) => {
                open -= 1;
                if open == 0 {
                    return BodyEnd::Complete;
                }
            }
            Word::BEGIN if was_beginning => match tokens.now().kind {
                // With ORACLE in sql_mode a call of a procedure with this name, or a block.
                TokenKind::LeftParen => return BodyEnd::Open,
                // A label, a variable, or such a call.
                TokenKind::Colon | TokenKind::Assign | TokenKind::Dot | TokenKind::Semicolon => {}
                _ => begins = true,
            },
            Word::BEGIN if previous.kind == TokenKind::Colon => begins = true,
            // Behind a condition, not in the place of one.
            Word::BEGIN if conditions && previous.word != Word::FOR && previous.kind != TokenKind::Comma => {
                begins = true;
            }
            _ => {}
        }
        conditions = (conditions && !begins && is_of_conditions(now))
            || (now.word == Word::FOR && previous.word == Word::HANDLER);
        open += usize::from(begins);
        begins |= now.kind == TokenKind::Semicolon;
    }
    BodyEnd::Open
}

/// Whether a token may be of the list of a handler's conditions.
fn is_of_conditions(token: Token) -> bool {
    let kind = matches!(
        token.kind,
        TokenKind::Word | TokenKind::Quoted | TokenKind::Text | TokenKind::Number | TokenKind::Comma
    );
    let word = matches!(
        token.word,
        Word::NONE
            | Word::BEGIN
            | Word::NOT
            | Word::FOUND
            | Word::SQLSTATE
            | Word::VALUE
            | Word::SQLEXCEPTION
            | Word::SQLWARNING
    );
    kind && word
}

/// Whether END before `word` ends IF, CASE or a loop, not a block.
fn ends_a_loop(word: Word) -> bool {
    matches!(word, Word::IF | Word::CASE | Word::LOOP | Word::WHILE | Word::REPEAT | Word::FOR)
}
