//! Takes a statement apart into tokens: enough to know Weir's own commands, and where literals and names stand in SQL that SQLite
//! will run.
//!
//! Quoting is SQLite's, not MySQL's: a backslash is a character like any other (so that patterns of query rules can be
//! typed as they are), a quote inside quotes is doubled. Clients are told so by NO_BACKSLASH_ESCAPES.

use std::borrow::Cow;
use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Letters, digits, `_`, `$`, and bytes beyond ASCII; also numbers.
    Word,
    /// In `'` or `"`.
    Text,
    /// In backticks.
    Name,
    /// Any other single character.
    Symbol,
}

/// A piece of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub kind: Kind,
    /// As it was written, with its quotes.
    pub source: &'a str,
    /// Where in the statement.
    pub span: Range<usize>,
}

impl<'a> Token<'a> {
    /// Whether it is this keyword.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.source.eq_ignore_ascii_case(word)
    }

    pub(crate) fn is_symbol(&self, symbol: char) -> bool {
        self.kind == Kind::Symbol && self.source.starts_with(symbol)
    }

    /// What it stands for, without quotes.
    pub(crate) fn value(&self) -> Cow<'a, str> {
        let Some(quote) = self.source.chars().next().filter(|_| matches!(self.kind, Kind::Text | Kind::Name))
        else {
            return Cow::Borrowed(self.source);
        };
        let inner = self.source.strip_prefix(quote).unwrap_or_default();
        let inner = inner.strip_suffix(quote).unwrap_or(inner);
        if !inner.contains(quote) {
            return Cow::Borrowed(inner);
        }
        let one = quote.to_string();
        Cow::Owned(inner.replace(&one.repeat(2), &one))
    }
}

/// Why a text is no statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("unterminated quote {0}")]
    Unclosed(char),
    #[error("unterminated comment")]
    UnclosedComment,
    #[error("one statement at a time: something follows the ;")]
    Several,
}

/// The tokens of one statement, without comments, and without `;` or `\G` at its end.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, TokenError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let mut has_ended = false;
    while let Some(next) = text.get(at..).and_then(|rest| rest.chars().next()) {
        let end = match next {
            c if c.is_whitespace() || c == '\0' => {
                at += c.len_utf8();
                continue;
            }
            _ => match comment_end(text, at)? {
                Some(end) => {
                    at = end;
                    continue;
                }
                None => token_end(text, at, next)?,
            },
        };
        let source = text.get(at..end).unwrap_or_default();
        if is_end(source, text.get(end..).unwrap_or_default()) {
            has_ended = true;
            at = if source == "\\" { end + 1 } else { end };
            continue;
        }
        if has_ended {
            return Err(TokenError::Several);
        }
        let kind = match next {
            '\'' | '"' => Kind::Text,
            '`' => Kind::Name,
            c if is_word(c) => Kind::Word,
            _ => Kind::Symbol,
        };
        tokens.push(Token { kind, source, span: at..end });
        at = end;
    }
    Ok(tokens)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// `;`, or the `\G` and `\g` that a client would have taken away.
fn is_end(source: &str, rest: &str) -> bool {
    source == ";" || (source == "\\" && (rest.starts_with('G') || rest.starts_with('g')))
}

fn comment_end(text: &str, at: usize) -> Result<Option<usize>, TokenError> {
    let rest = text.get(at..).unwrap_or_default();
    let line_end = || rest.find('\n').map_or(text.len(), |length| at + length + 1);
    if let Some(inner) = rest.strip_prefix("/*") {
        let length = inner.find("*/").ok_or(TokenError::UnclosedComment)?;
        return Ok(Some(at + length + 4));
    }
    let behind_dashes = rest.strip_prefix("--").map(|rest| rest.chars().next());
    let is_dashes = behind_dashes.is_some_and(|next| next.is_none_or(char::is_whitespace));
    Ok((is_dashes || rest.starts_with('#')).then(line_end))
}

fn token_end(text: &str, at: usize, first: char) -> Result<usize, TokenError> {
    let rest = text.get(at..).unwrap_or_default();
    match first {
        '\'' | '"' | '`' => {
            let mut from = 1;
            loop {
                let found = rest.get(from..).and_then(|rest| rest.find(first));
                let close = from + found.ok_or(TokenError::Unclosed(first))?;
                if !rest.get(close + 1..).is_some_and(|rest| rest.starts_with(first)) {
                    return Ok(at + close + 1);
                }
                from = close + 2;
            }
        }
        c if is_word(c) => Ok(at + rest.find(|c| !is_word(c)).unwrap_or(rest.len())),
        c => Ok(at + c.len_utf8()),
    }
}

/// Reads tokens from the left.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'t, 'a> {
    rest: &'t [Token<'a>],
}

impl<'t, 'a> Cursor<'t, 'a> {
    pub(crate) fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { rest: tokens }
    }

    pub(crate) fn next(&mut self) -> Option<&'t Token<'a>> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn peek(&self) -> Option<&'t Token<'a>> {
        self.rest.first()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'t [Token<'a>] {
        self.rest
    }

    /// Takes this keyword if it is next.
    pub(crate) fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek().is_some_and(|token| token.is(word));
        if is_next {
            self.next();
        }
        is_next
    }

    /// Takes one of these keywords if it is next.
    pub(crate) fn takes_any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.takes(word))
    }

    pub(crate) fn takes_symbol(&mut self, symbol: char) -> bool {
        let is_next = self.peek().is_some_and(|token| token.is_symbol(symbol));
        if is_next {
            self.next();
        }
        is_next
    }

    /// A name, quoted or not.
    pub(crate) fn name(&mut self) -> Option<Cow<'a, str>> {
        self.peek().filter(|token| token.kind != Kind::Symbol)?;
        self.next().map(Token::value)
    }

    /// A literal: text in quotes, or a bare word or number.
    pub(crate) fn text(&mut self) -> Option<Cow<'a, str>> {
        self.peek().filter(|token| matches!(token.kind, Kind::Text | Kind::Word))?;
        self.next().map(Token::value)
    }

    /// `[schema.]table`
    pub(crate) fn table(&mut self) -> Option<(Option<String>, String)> {
        let first = self.name()?.into_owned();
        if !self.takes_symbol('.') {
            return Some((None, first));
        }
        Some((Some(first), self.name()?.into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sources(text: &str) -> Vec<&str> {
        tokens(text).unwrap().into_iter().map(|token| token.source).collect()
    }

    #[test]
    fn comments_space_and_the_end_go_away() {
        assert_eq!(sources("/* a */ LOAD -- b\n MYSQL # c\n USERS ; "), ["LOAD", "MYSQL", "USERS"]);
        assert_eq!(sources("SELECT 1\\G"), ["SELECT", "1"]);
        assert_eq!(sources("SELECT 1;;\n;"), ["SELECT", "1"]);
        assert_eq!(sources("SELECT 1--1"), ["SELECT", "1", "-", "-", "1"]);
        assert_eq!(sources(""), Vec::<&str>::new());
    }

    #[test]
    fn a_backslash_is_a_character_and_quotes_are_doubled() {
        let text = r"'a\' 'it''s' `x``y` \d";
        let values: Vec<_> = tokens(text).unwrap().iter().map(|token| token.value().into_owned()).collect();
        assert_eq!(values, [r"a\", "it's", "x`y", r"\", "d"]);
    }

    #[test]
    fn what_is_no_statement_is_said() {
        assert_eq!(tokens("SELECT 'x"), Err(TokenError::Unclosed('\'')));
        assert_eq!(tokens("SELECT /* x"), Err(TokenError::UnclosedComment));
        assert_eq!(tokens("SELECT 1; SELECT 2"), Err(TokenError::Several));
    }

    proptest! {
        #[test]
        fn tokens_are_pieces_of_the_text_in_order(text: String) {
            if let Ok(tokens) = tokens(&text) {
                let mut end = 0;
                for token in tokens {
                    prop_assert!(token.span.start >= end && !token.source.is_empty());
                    prop_assert_eq!(&text[token.span.clone()], token.source);
                    end = token.span.end;
                }
            }
        }
    }
}
