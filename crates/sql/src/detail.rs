//! Finds the details behind the bits of [`Effects`](crate::Effects) and [`Uses`](crate::Uses): names, values and
//! places. Slower than [`scan`](crate::scan), and allocating.

mod assignments;
mod diagnostics;
mod explained;
mod harmless;
mod local_file;
mod named;
mod substitutions;
mod tables;
mod use_kill;

pub use assignments::{Assignment, Scope, assignments, scoped_assignments};
pub use diagnostics::{DiagnosticsField, DiagnosticsItem, DiagnosticsRequest, diagnostics_request};
pub use explained::explained_connection;
pub use harmless::stays_in_session;
pub use local_file::names_local_file;
pub use named::{NamedEffect, TableName, named_effects};
pub use substitutions::{SessionFunction, Substitution, What, substitutions};
pub use tables::{may_use_tables, opens_no_table};
pub use use_kill::{Kill, KillKind, KillTarget, kill_target, use_schema};

use crate::dialect::Dialect;
use crate::lex::{Flaws, Lexer, Token, TokenKind};
use crate::scan::Tokens;

/// More tokens than this are not collected: the text is then taken for one that cannot be read with certainty.
const TOKENS_MAX: usize = 1 << 20;

/// The tokens of a text, with a position.
struct Cursor<'a> {
    text: &'a [u8],
    dialect: Dialect,
    /// Ends with [`TokenKind::End`].
    tokens: Vec<Token>,
    flaws: Flaws,
    at: usize,
    /// The first token of the statement.
    first: usize,
    depth: u32,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a [u8], dialect: Dialect) -> Self {
        let mut lexer = Lexer::new(text, dialect);
        let mut tokens = Vec::new();
        while tokens.len() < TOKENS_MAX {
            let token = lexer.token();
            if token.kind == TokenKind::End {
                break;
            }
            tokens.push(token);
        }
        let mut flaws = lexer.flaws();
        flaws.malformed |= flaws.uncertain_comment || lexer.token().kind != TokenKind::End;
        tokens.push(Token::NONE);
        let mut cursor = Self { text, dialect, tokens, flaws, at: 0, first: 0, depth: 0 };
        cursor.count_parenthesis();
        cursor
    }

    /// The tokens of the only statement, without a `;` behind it. `None` if there are more statements or none,
    /// or if the text cannot be read with certainty.
    fn only_statement(&self) -> Option<&[Token]> {
        if self.flaws.malformed {
            return None;
        }
        let end = self.tokens.iter().position(|token| token.kind == TokenKind::Semicolon);
        let (statement, rest) = self.tokens.split_at(end.unwrap_or(self.tokens.len().saturating_sub(1)));
        let ended = rest.iter().all(|token| matches!(token.kind, TokenKind::Semicolon | TokenKind::End));
        (ended && !statement.is_empty()).then_some(statement)
    }

    /// The tokens from the current one to the end of the statement, which is not among them.
    fn rest(&self) -> &[Token] {
        let rest = self.ahead();
        let end = rest.iter().position(|token| matches!(token.kind, TokenKind::Semicolon | TokenKind::End));
        rest.get(..end.unwrap_or(0)).unwrap_or_default()
    }

    /// The tokens from the current one on, of this statement and of those after it.
    fn ahead(&self) -> &[Token] {
        self.tokens.get(self.at..).unwrap_or_default()
    }

    /// Goes to the first token of the next statement. False at the end of the text.
    fn next_statement(&mut self) -> bool {
        while !self.at_end() {
            self.advance();
        }
        while self.now().kind == TokenKind::Semicolon {
            self.at += 1;
        }
        self.first = self.at;
        self.depth = 0;
        self.count_parenthesis();
        self.now().kind != TokenKind::End
    }

    fn count_parenthesis(&mut self) {
        match self.now().kind {
            TokenKind::LeftParen => self.depth += 1,
            TokenKind::RightParen => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn text_of(&self, token: Token) -> &'a [u8] {
        self.text.get(token.range()).unwrap_or_default()
    }

    fn is(&self, token: Token, name: &str) -> bool {
        token.kind == TokenKind::Word && self.text_of(token).eq_ignore_ascii_case(name.as_bytes())
    }

    /// The name of an identifier, without its quotes; letter case is kept.
    fn name(&self, token: Token) -> Vec<u8> {
        match token.kind {
            TokenKind::Quoted => unquote(self.text_of(token)),
            _ => self.text_of(token).to_vec(),
        }
    }
}

impl Tokens for Cursor<'_> {
    fn now(&self) -> Token {
        self.tokens.get(self.at).copied().unwrap_or(Token::NONE)
    }

    fn previous(&self) -> Token {
        let previous = if self.at > self.first { self.tokens.get(self.at - 1) } else { None };
        previous.copied().unwrap_or(Token::NONE)
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn advance(&mut self) {
        if self.at + 1 >= self.tokens.len() {
            return;
        }
        self.at += 1;
        self.count_parenthesis();
    }
}

/// The inside of a token in quotes, with doubled quotes made one.
fn unquote(text: &[u8]) -> Vec<u8> {
    let Some((&opening, inside)) = text.split_first() else {
        return Vec::new();
    };
    let quote = if opening == b'[' { b']' } else { opening };
    let inside = inside.strip_suffix(&[quote]).unwrap_or(inside);
    let mut name = Vec::with_capacity(inside.len());
    let mut bytes = inside.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte == quote && bytes.peek() == Some(&quote) {
            bytes.next();
        }
        name.push(byte);
    }
    name
}
