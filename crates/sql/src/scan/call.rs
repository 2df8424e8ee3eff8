//! Classifies names before a parenthesis.

use super::{Calls, Pending, Scanner, Tokens as _, Watched};
use crate::functions::{Call, Gap, call};
use crate::lex::{TokenKind, is_space};
use crate::statement::{Effects, Uses};
use crate::words::Word;

impl Scanner<'_> {
    /// The previous token is a name, the current one a `(`.
    pub(super) fn call(&mut self) {
        let common_table = self.names_a_common_table();
        if !common_table && self.previous().word != Word::AS {
            self.common_tables_end();
        }
        if common_table || self.not_an_expression() {
            return;
        }
        let qualified = self.behind(2).kind == TokenKind::Dot;
        let what = if qualified || self.previous().kind == TokenKind::Quoted {
            Call::Unknown
        } else {
            call(self.text_of(self.previous()), self.gap(), &self.dialect)
        };
        match what {
            Call::Syntax | Call::Pure | Call::PureTight => {}
            Call::Geometries => self.pending = Pending::Geometries,
            Call::Point => self.watch(Watched::Point(0)),
            Call::JsonTable => self.watch(Watched::JsonTable),
            Call::ConnectionId => self.uses |= Uses::CONNECTION_ID,
            Call::FoundRows => self.uses |= Uses::FOUND_ROWS,
            Call::RowCount => self.uses |= Uses::ROW_COUNT,
            Call::LastInsertId => self.pending = Pending::LastInsertId,
            Call::Lock => self.impure(Effects::LOCK_ACQUIRED),
            Call::Unlock => self.impure(Effects::LOCK_RELEASED),
            Call::Sequence => self.impure(Effects::SEQUENCE),
            Call::Local => self.sure = false,
            Call::Unknown => {
                // LATERAL is not reserved in MariaDB, but no function can be joined.
                let lateral = self.previous().word == Word::LATERAL && self.behind(2).word == Word::JOIN;
                if self.calls == Calls::Anywhere && !lateral {
                    self.unknown_call();
                }
            }
        }
    }

    /// What stands between the name and its parenthesis.
    fn gap(&self) -> Gap {
        let between = self.lexer.text().get(self.previous().end()..self.now().start()).unwrap_or_default();
        if between.is_empty() {
            Gap::None
        } else if between.iter().all(|&byte| is_space(byte)) {
            Gap::Spaces
        } else {
            Gap::Comments
        }
    }

    /// Only one call is watched at a time; one within another is not sure.
    fn watch(&mut self, watched: Watched) {
        if self.watched.is_some() {
            self.unknown_call();
        } else {
            self.watched = Some((watched, self.depth + 1));
        }
    }

    /// Whether the name stands where no expression can begin: then it is an alias, a table or a type, and what
    /// follows is a list of columns or a length.
    fn not_an_expression(&self) -> bool {
        match self.behind(2).kind {
            TokenKind::RightParen
            | TokenKind::Text
            | TokenKind::Number
            | TokenKind::Quoted
            | TokenKind::UserVariable
            | TokenKind::Placeholder => true,
            TokenKind::Word => {
                matches!(self.behind(2).word, Word::AS | Word::INTO | Word::TABLE | Word::PROCEDURE)
                    || (self.behind(2).word == Word::MEMBER && self.previous().word == Word::OF)
            }
            _ => false,
        }
    }

    /// Whether the name is one of WITH's, before its list of columns.
    fn names_a_common_table(&self) -> bool {
        let place = self.behind(2).kind == TokenKind::Comma
            || matches!(self.behind(2).word, Word::WITH | Word::RECURSIVE);
        place && self.depth_bit().is_some_and(|bit| self.common_tables & bit != 0)
    }
}
