//! Scans the first words of a statement: what kind it is, and what this alone does to the session.

use super::{Calls, Scanner, Tokens, skip_body, skip_schedule};
use crate::lex::TokenKind;
use crate::scan::routine::BodyEnd;
use crate::statement::{Effects, Kind, Uses};
use crate::words::Word;

/// Goes from the token after CREATE or ALTER to the word that says what is created, and behind it. The word,
/// if it is one that matters, and whether TEMPORARY was said.
pub(crate) fn created_object<T: Tokens>(tokens: &mut T) -> (Word, bool) {
    let mut temporary = false;
    while !tokens.at_end() {
        let (now, previous) = (tokens.now(), tokens.previous());
        tokens.advance();
        // DEFINER = name, ALGORITHM = MERGE.
        if previous.kind == TokenKind::Equals {
            continue;
        }
        match now.word {
            Word::TEMPORARY => temporary = true,
            Word::TABLE
            | Word::SEQUENCE
            | Word::VIEW
            | Word::PROCEDURE
            | Word::FUNCTION
            | Word::PACKAGE
            | Word::TRIGGER
            | Word::EVENT
            | Word::INDEX
            | Word::DATABASE
            | Word::USER
            | Word::ROLE => return (now.word, temporary),
            _ => {}
        }
    }
    (Word::NONE, temporary)
}

impl Scanner<'_> {
    /// Reads the start of a statement, from its first token.
    pub(super) fn statement(&mut self) -> Kind {
        while self.now().kind == TokenKind::LeftParen {
            self.advance();
        }
        let in_parentheses = self.previous().kind == TokenKind::LeftParen;
        let verb = self.now().word;
        match verb {
            Word::SELECT => Kind::Select,
            Word::WITH => Kind::With,
            Word::VALUES => Kind::Values,
            Word::TABLE => Kind::Table,
            _ if in_parentheses => self.unknown(),
            Word::SET => {
                self.no_variables_read = true;
                self.advance();
                self.set()
            }
            Word::IF | Word::CASE | Word::LOOP | Word::WHILE | Word::REPEAT | Word::FOR => self.compound(),
            _ => {
                self.advance();
                self.changing(verb)
            }
        }
    }

    fn accept(&mut self, word: Word) -> bool {
        let accepted = self.now().word == word;
        if accepted {
            self.advance();
        }
        accepted
    }

    fn effect(&mut self, effects: Effects, kind: Kind) -> Kind {
        self.effects |= effects;
        kind
    }

    fn unknown(&mut self) -> Kind {
        self.effect(Effects::UNKNOWN, Kind::Other)
    }

    /// Verbs that change data or run code.
    fn changing(&mut self, verb: Word) -> Kind {
        match verb {
            Word::INSERT | Word::REPLACE => {
                self.calls = Calls::AfterValues;
                let kind = if verb == Word::INSERT { Kind::Insert } else { Kind::Replace };
                self.effect(Effects::LAST_INSERT_ID_SET, kind)
            }
            Word::UPDATE => Kind::Update,
            Word::DELETE => Kind::Delete,
            Word::DO => Kind::Do,
            Word::CALL => {
                self.assigns_variables = true;
                self.calls = Calls::AfterValues;
                self.effect(Effects::ROUTINE, Kind::Call)
            }
            Word::LOAD if self.accept(Word::INDEX) => self.maintenance(),
            Word::LOAD => {
                self.calls = Calls::AfterValues;
                self.assigns_variables = true;
                self.effect(Effects::LAST_INSERT_ID_SET, Kind::LoadData)
            }
            Word::PREPARE => self.effect(Effects::TEXT_PREPARE, Kind::Prepare),
            Word::EXECUTE => {
                let immediate = self.accept(Word::IMMEDIATE);
                let kind = if immediate { Kind::ExecuteImmediate } else { Kind::Execute };
                self.effect(Effects::ROUTINE, kind)
            }
            Word::DEALLOCATE => self.effect(Effects::TEXT_DEALLOCATE, Kind::Deallocate),
            _ => self.transaction(verb),
        }
    }

    /// Verbs of transactions and table locks.
    fn transaction(&mut self, verb: Word) -> Kind {
        match verb {
            Word::BEGIN if self.at_end() || self.now().word == Word::WORK => Kind::Begin,
            Word::BEGIN => self.compound(),
            Word::START if self.accept(Word::TRANSACTION) => {
                let mut kind = Kind::Begin;
                while !self.at_end() {
                    if self.now().word == Word::ONLY && self.previous().word == Word::READ {
                        kind = Kind::StartTransactionReadOnly;
                    }
                    self.advance();
                }
                kind
            }
            Word::COMMIT => {
                self.release();
                Kind::Commit
            }
            Word::ROLLBACK => {
                self.accept(Word::WORK);
                if self.now().word == Word::TO {
                    return Kind::RollbackTo;
                }
                self.release();
                Kind::Rollback
            }
            Word::SAVEPOINT => self.effect(Effects::SAVEPOINT, Kind::Savepoint),
            Word::RELEASE if self.now().word == Word::SAVEPOINT => Kind::ReleaseSavepoint,
            Word::XA => self.xa(),
            Word::LOCK if matches!(self.now().word, Word::TABLE | Word::TABLES) => {
                self.effect(Effects::TABLES_LOCKED, Kind::LockTables)
            }
            Word::LOCK if matches!(self.now().word, Word::INSTANCE | Word::BINLOG) => {
                self.effect(Effects::BACKUP_LOCKED, Kind::LockInstance)
            }
            Word::UNLOCK if matches!(self.now().word, Word::TABLE | Word::TABLES) => {
                self.effect(Effects::TABLES_UNLOCKED, Kind::UnlockTables)
            }
            Word::UNLOCK if matches!(self.now().word, Word::INSTANCE | Word::BINLOG) => {
                self.effect(Effects::BACKUP_UNLOCKED, Kind::UnlockInstance)
            }
            _ => self.reporting(verb),
        }
    }

    /// COMMIT and ROLLBACK: `[AND [NO] CHAIN] [[NO] RELEASE]`.
    fn release(&mut self) {
        while !self.at_end() {
            if self.now().word == Word::RELEASE && self.previous().word != Word::NO {
                self.effects |= Effects::DISCONNECT;
            }
            self.advance();
        }
    }

    fn xa(&mut self) -> Kind {
        let kind = match self.now().word {
            Word::START | Word::BEGIN => Kind::XaStart,
            Word::END => Kind::XaEnd,
            Word::PREPARE => Kind::XaPrepare,
            Word::COMMIT => Kind::XaCommit,
            Word::ROLLBACK => Kind::XaRollback,
            Word::RECOVER => return Kind::XaRecover,
            _ => return self.unknown(),
        };
        self.effect(Effects::XA, kind)
    }

    /// Statements with semicolons of their own, outside of routines. What they run, and whether, is not
    /// followed.
    fn compound(&mut self) -> Kind {
        let mut semicolon = false;
        while self.now().kind != TokenKind::End {
            let is_semicolon = self.now().kind == TokenKind::Semicolon;
            self.multi |= semicolon && !is_semicolon;
            semicolon |= is_semicolon;
            self.advance();
        }
        self.effect(Effects::ROUTINE, Kind::Compound)
    }

    /// Verbs that report.
    fn reporting(&mut self, verb: Word) -> Kind {
        match verb {
            Word::SHOW => self.show(),
            Word::GET => {
                self.assigns_variables = true;
                self.uses |= Uses::DIAGNOSTICS;
                Kind::GetDiagnostics
            }
            Word::EXPLAIN | Word::DESCRIBE | Word::DESC => {
                if self.accept(Word::ANALYZE) {
                    self.explained(true);
                    return Kind::Analyze;
                }
                self.explained(false);
                Kind::Explain
            }
            Word::ANALYZE
                if matches!(self.now().word, Word::TABLE | Word::LOCAL | Word::NO_WRITE_TO_BINLOG) =>
            {
                self.maintenance()
            }
            Word::ANALYZE => {
                self.explained(true);
                Kind::Analyze
            }
            Word::HELP => Kind::Help,
            Word::HANDLER => self.handler(),
            _ => self.definition(verb),
        }
    }

    fn show(&mut self) -> Kind {
        let counted = self.accept(Word::COUNT);
        if counted {
            while !self.at_end() && !matches!(self.now().word, Word::WARNINGS | Word::ERRORS) {
                self.advance();
            }
        }
        let kind = match (self.now().word, counted) {
            (Word::WARNINGS, false) => Kind::ShowWarnings,
            (Word::WARNINGS, true) => Kind::ShowCountWarnings,
            (Word::ERRORS, false) => Kind::ShowErrors,
            (Word::ERRORS, true) => Kind::ShowCountErrors,
            // SHOW CREATE TABLE, SHOW GRANTS and the like: no name before a `(` but in WHERE.
            _ => return Kind::Show,
        };
        self.uses |= Uses::DIAGNOSTICS;
        kind
    }

    /// The statement after EXPLAIN or ANALYZE and their options (`EXTENDED`, `FORMAT = JSON`).
    fn explained(&mut self, runs: bool) {
        while self.now().kind == TokenKind::Word && self.now().word == Word::NONE {
            self.advance();
            if self.now().kind == TokenKind::Equals {
                self.advance();
                self.advance();
            }
        }
        let explainable = matches!(
            self.now().word,
            Word::SELECT | Word::WITH | Word::INSERT | Word::REPLACE | Word::UPDATE | Word::DELETE
        );
        if explainable {
            let effects = self.effects;
            self.statement();
            if !runs {
                self.effects = effects;
            }
        }
    }

    fn handler(&mut self) -> Kind {
        self.advance();
        if self.now().kind == TokenKind::Dot {
            self.advance();
            self.advance();
        }
        match self.now().word {
            Word::OPEN => self.effect(Effects::HANDLER_OPENED, Kind::HandlerOpen),
            Word::CLOSE => self.effect(Effects::HANDLER_CLOSED, Kind::HandlerClose),
            Word::READ => Kind::HandlerRead,
            _ => self.unknown(),
        }
    }

    /// Verbs that define things and people.
    fn definition(&mut self, verb: Word) -> Kind {
        match verb {
            Word::CREATE | Word::ALTER | Word::DROP => {
                self.no_variables_read = true;
                match verb {
                    Word::CREATE => self.create(),
                    Word::ALTER => self.alter(),
                    _ => self.drop(),
                }
            }
            Word::TRUNCATE => Kind::Truncate,
            Word::RENAME if matches!(self.now().word, Word::TABLE | Word::TABLES) => {
                self.effect(Effects::TABLE_RENAMED, Kind::RenameTable)
            }
            Word::RENAME => Kind::RenameUser,
            Word::GRANT | Word::REVOKE => {
                self.calls = Calls::Nowhere;
                self.no_variables_read = true;
                if verb == Word::GRANT { Kind::Grant } else { Kind::Revoke }
            }
            _ => self.administration(verb),
        }
    }

    fn create(&mut self) -> Kind {
        self.calls = Calls::AfterSelect;
        let created = created_object(self);
        // CREATE TABLE ... SELECT reads; before, `@` belongs to a DEFINER.
        self.no_variables_read = created.0 != Word::TABLE;
        match created {
            (Word::TABLE | Word::SEQUENCE, true) => {
                self.effect(Effects::TEMPORARY_TABLE_CREATED, Kind::CreateTemporaryTable)
            }
            (Word::TABLE, false) => Kind::CreateTable,
            (Word::VIEW, _) => {
                self.not_run(|scanner| scanner.rest());
                Kind::CreateView
            }
            (
                object @ (Word::PROCEDURE | Word::FUNCTION | Word::PACKAGE | Word::TRIGGER | Word::EVENT),
                _,
            ) => self.body(object),
            _ => Kind::Create,
        }
    }

    fn body(&mut self, object: Word) -> Kind {
        self.has_body = true;
        if object == Word::EVENT {
            // The schedule is no definition: its expressions are evaluated now.
            self.calls = Calls::Anywhere;
            self.no_variables_read = false;
            skip_schedule(self);
        }
        let end = self.not_run(|scanner| skip_body(scanner, object));
        if end == BodyEnd::Open {
            self.effects |= Effects::UNKNOWN;
        }
        Kind::CreateRoutine
    }

    /// Reads tokens that define something but do nothing now.
    fn not_run<R>(&mut self, read: impl FnOnce(&mut Self) -> R) -> R {
        let (effects, uses) = (self.effects, self.uses);
        let result = read(self);
        (self.effects, self.uses) = (effects, uses);
        result
    }

    fn alter(&mut self) -> Kind {
        self.calls = Calls::Nowhere;
        match created_object(self) {
            (Word::TABLE, _) => {
                while !self.at_end() {
                    if self.now().word == Word::RENAME {
                        self.effects |= Effects::TABLE_RENAMED;
                    }
                    self.advance();
                }
                Kind::AlterTable
            }
            (Word::EVENT, _) => self.body(Word::EVENT),
            _ => {
                self.not_run(|scanner| scanner.rest());
                Kind::Alter
            }
        }
    }

    fn drop(&mut self) -> Kind {
        let temporary = self.accept(Word::TEMPORARY);
        match self.now().word {
            Word::TABLE | Word::TABLES | Word::SEQUENCE => {
                let kind = if temporary { Kind::DropTemporaryTable } else { Kind::DropTable };
                self.effect(Effects::TABLE_DROPPED, kind)
            }
            Word::PREPARE => self.effect(Effects::TEXT_DEALLOCATE, Kind::Deallocate),
            _ => Kind::Drop,
        }
    }

    fn maintenance(&mut self) -> Kind {
        self.calls = Calls::Nowhere;
        Kind::Maintenance
    }

    /// Verbs of the server's operators.
    fn administration(&mut self, verb: Word) -> Kind {
        match verb {
            Word::USE => Kind::Use,
            Word::KILL => Kind::Kill,
            Word::FLUSH => self.flush(),
            Word::BACKUP => self.backup(),
            Word::CHECK | Word::CHECKSUM | Word::OPTIMIZE | Word::REPAIR | Word::CACHE => self.maintenance(),
            Word::CHANGE | Word::START | Word::STOP | Word::RESET | Word::PURGE => {
                self.calls = Calls::Nowhere;
                Kind::Replication
            }
            Word::SHUTDOWN | Word::RESTART => Kind::Shutdown,
            Word::INSTALL | Word::UNINSTALL | Word::CLONE | Word::IMPORT => Kind::Install,
            Word::SIGNAL => Kind::Signal,
            Word::RESIGNAL => Kind::Resignal,
            // Applies events as a replica would, and leaves the session like one.
            Word::BINLOG => self.effect(Effects::UNKNOWN, Kind::Binlog),
            _ => self.unknown(),
        }
    }

    /// `FLUSH [LOCAL] TABLES [names] WITH READ LOCK` or `FOR EXPORT` among others.
    fn flush(&mut self) -> Kind {
        let mut kind = Kind::Flush;
        while !self.at_end() {
            let locks = match self.now().word {
                Word::LOCK => self.previous().word == Word::READ,
                Word::EXPORT => self.previous().word == Word::FOR,
                _ => false,
            };
            if locks {
                kind = self.effect(Effects::TABLES_LOCKED, Kind::FlushTablesWithReadLock);
            }
            self.advance();
        }
        kind
    }

    fn backup(&mut self) -> Kind {
        match self.now().word {
            Word::STAGE => {
                self.advance();
                let ends = self.now().word == Word::END;
                let effects = if ends { Effects::BACKUP_ENDED } else { Effects::BACKUP_STAGE };
                self.effect(effects, Kind::BackupStage)
            }
            Word::LOCK => self.effect(Effects::BACKUP_LOCKED, Kind::BackupLock),
            Word::UNLOCK => self.effect(Effects::BACKUP_UNLOCKED, Kind::BackupUnlock),
            _ => self.unknown(),
        }
    }
}
