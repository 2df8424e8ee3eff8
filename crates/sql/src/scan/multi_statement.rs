//! Scans the statements of a text one by one.

use super::{Scanner, Tokens as _};
use crate::dialect::Dialect;
use crate::lex::{Place, TokenKind};
use crate::statement::{Access, Statement};

/// Reads the statements of a text as their results come, each alone and each byte once: a text of 1 MB may have
/// 100,000 of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Several {
    /// In front of the statement that comes next, and its number.
    place: Place,
    next: usize,
}

impl Several {
    /// The statement number `index`, counted from 0; `None` if there are not so many. A server answers each of them with
    /// one result, but for those that run code ([`Effects::ROUTINE`](crate::Effects::ROUTINE)). `text` is the same each time.
    pub fn read(&mut self, text: &[u8], dialect: Dialect, index: usize) -> Option<Statement> {
        if index < self.next {
            *self = Self::default();
        }
        let mut scanner = Scanner::new(text, dialect);
        scanner.lexer.go_to(self.place);
        loop {
            scanner.start();
            match scanner.now().kind {
                TokenKind::End => return None,
                TokenKind::Semicolon => continue,
                _ => {}
            }
            // What the first token has said belongs to this statement, what came before it does not.
            scanner.forget_statements();
            let kind = scanner.statement();
            scanner.rest();
            let is_wanted = self.next == index;
            self.place = scanner.lexer.place();
            self.next += 1;
            if is_wanted {
                return Some(Statement {
                    kind,
                    access: Access::Write,
                    effects: scanner.effects,
                    uses: scanner.uses,
                    hidden_code: kind.may_run_hidden_code() || scanner.reads_tables,
                    assigns_insert_id: scanner.assigns_insert_id,
                    counts: scanner.counts,
                    multi: false,
                });
            }
        }
    }
}
