//! Takes in every token, in whatever statement it stands.

use super::{Calls, Pending, Scanner, Tokens as _, Watched};
use crate::lex::TokenKind;
use crate::statement::{Counts, Effects, Uses};
use crate::words::Word;

impl Scanner<'_> {
    /// Looks at the current token.
    #[inline]
    pub(super) fn observe(&mut self) {
        if self.pending != Pending::Nothing {
            self.decide_pending();
        }
        match self.now().kind {
            TokenKind::Word => {
                if self.in_system_variable {
                    self.system_variable();
                }
                if self.now().word != Word::NONE && !self.in_system_variable {
                    self.word();
                }
                self.member();
            }
            TokenKind::Quoted => {
                if self.in_system_variable {
                    self.system_variable();
                }
                self.member();
            }
            TokenKind::LeftParen => {
                if self.previous().is_name() {
                    self.call();
                } else {
                    self.common_tables_end();
                }
                self.depth += 1;
                self.in_system_variable = false;
            }
            TokenKind::RightParen => self.right_paren(),
            TokenKind::Comma => {
                if self.is_limited {
                    // LIMIT 1, 2; or something else, which costs a question at most.
                    self.counts |= Counts::OFFSET;
                }
                if let Some((Watched::Point(commas), depth)) = &mut self.watched
                    && *depth == self.depth
                {
                    *commas += 1;
                }
                self.in_system_variable = false;
            }
            TokenKind::UserVariable => {
                if !self.no_variables_read {
                    self.uses |= Uses::USER_VARIABLE;
                }
                if self.assigns_variables {
                    self.effects |= Effects::USER_VARIABLE;
                }
                self.in_system_variable = false;
            }
            TokenKind::SystemVariable => {
                self.inspects = true;
                if !self.no_variables_read {
                    self.uses |= Uses::SYSTEM_VARIABLE;
                    self.in_system_variable = true;
                }
            }
            TokenKind::Assign => {
                self.sure = false;
                if self.previous().kind == TokenKind::UserVariable {
                    self.effects |= Effects::USER_VARIABLE;
                }
            }
            TokenKind::Dot => {}
            _ => self.in_system_variable = false,
        }
    }

    fn right_paren(&mut self) {
        if let Some((watched, depth)) = self.watched
            && depth == self.depth
        {
            if watched != Watched::Point(1) {
                self.unknown_call();
            }
            self.watched = None;
        }
        self.common_tables_end();
        self.depth = self.depth.saturating_sub(1);
        self.in_system_variable = false;
    }

    /// A word that the scanner knows. Columns may be named like those that are not reserved.
    fn word(&mut self) {
        match self.now().word {
            Word::SELECT => {
                if matches!(self.calls, Calls::AfterSelect | Calls::AfterValues) {
                    self.calls = Calls::Anywhere;
                }
                self.common_tables_end();
                self.counts |= Counts::QUERY;
            }
            Word::FROM if self.counts.contains(Counts::QUERY) => self.reads_tables = true,
            Word::LIMIT => self.is_limited = true,
            Word::OFFSET if self.is_limited => self.counts |= Counts::OFFSET,
            Word::UNION | Word::EXCEPT | Word::INTERSECT => self.counts |= Counts::QUERY,
            Word::VALUES | Word::VALUE | Word::SET | Word::TABLE => {
                if self.calls == Calls::AfterValues {
                    self.calls = Calls::Anywhere;
                }
                self.common_tables_end();
                if self.now().word == Word::TABLE {
                    // TABLE t, MySQL's short form of a query.
                    self.reads_tables |=
                        self.previous().kind == TokenKind::LeftParen || self.previous().word == Word::AS;
                    self.counts |= Counts::QUERY;
                }
            }
            Word::UPDATE | Word::DELETE => {
                self.sure = false;
                self.common_tables_end();
            }
            Word::INSERT | Word::REPLACE => {
                self.pending = Pending::Insert;
                self.common_tables_end();
            }
            Word::WITH => self.with(),
            Word::INTO => {
                self.sure = false;
                if !names_a_table_after(self.previous().word) {
                    self.pending = Pending::Into;
                }
            }
            Word::LOCK | Word::PROCEDURE => self.sure = false,
            Word::SHARE if self.previous().word == Word::FOR => self.sure = false,
            Word::FOR if self.previous().word == Word::VALUE => self.impure(Effects::SEQUENCE),
            Word::SQL_CALC_FOUND_ROWS => self.effects |= Effects::FOUND_ROWS_CALC,
            Word::COLUMNS => {
                if let Some((Watched::JsonTable, depth)) = self.watched
                    && depth == self.depth
                    && self.previous().kind == TokenKind::Text
                {
                    self.watched = None;
                }
            }
            _ => {}
        }
    }

    /// WITH begins a list of common table expressions where a query may begin. Elsewhere it is WITH ROLLUP and
    /// the like.
    fn with(&mut self) {
        let begins = match self.previous().kind {
            TokenKind::End | TokenKind::LeftParen => true,
            TokenKind::Word => matches!(self.previous().word, Word::AS | Word::EXPLAIN | Word::FOR),
            _ => false,
        };
        if (begins || self.calls == Calls::AfterValues)
            && let Some(bit) = self.depth_bit()
        {
            self.common_tables |= bit;
        }
    }

    /// A name after a dot. With `ORACLE` in `sql_mode`, `s.NEXTVAL` and `s.CURRVAL` read a sequence (MariaDB),
    /// even in backquotes; elsewhere they are columns that hardly anybody has.
    #[inline]
    fn member(&mut self) {
        if self.previous().kind != TokenKind::Dot {
            return;
        }
        let name = self.bare_name();
        if name.eq_ignore_ascii_case(b"nextval") || name.eq_ignore_ascii_case(b"currval") {
            self.impure(Effects::SEQUENCE);
        }
    }

    /// The query behind the common table expressions begins, if there are any.
    pub(super) fn common_tables_end(&mut self) {
        if let Some(bit) = self.depth_bit() {
            self.common_tables &= !bit;
        }
    }

    /// The bit of the current depth in `common_tables`; deeper ones are not told apart.
    pub(super) fn depth_bit(&self) -> Option<u64> {
        1_u64.checked_shl(self.depth)
    }

    pub(super) fn impure(&mut self, effects: Effects) {
        self.sure = false;
        self.effects |= effects;
    }

    pub(super) fn unknown_call(&mut self) {
        self.impure(Effects::ROUTINE);
    }

    fn decide_pending(&mut self) {
        let pending = std::mem::replace(&mut self.pending, Pending::Nothing);
        match pending {
            Pending::Nothing => {}
            Pending::Into => {
                let elsewhere =
                    matches!(self.now().word, Word::OUTFILE | Word::DUMPFILE | Word::TABLE | Word::CACHE);
                if !elsewhere {
                    self.effects |= Effects::USER_VARIABLE;
                }
            }
            Pending::Insert => {
                if self.now().kind != TokenKind::LeftParen {
                    self.sure = false;
                }
            }
            Pending::LastInsertId => {
                if self.now().kind == TokenKind::RightParen {
                    self.uses |= Uses::LAST_INSERT_ID;
                } else {
                    self.sure = false;
                    self.effects |= Effects::LAST_INSERT_ID_SET;
                    self.assigns_insert_id = true;
                }
            }
            Pending::Geometries => {
                if self.now().kind == TokenKind::RightParen {
                    self.unknown_call();
                }
            }
        }
    }

    /// The current name without its quotes; doubled quotes in it stay.
    fn bare_name(&self) -> &[u8] {
        let name = self.text_of(self.now());
        match self.now().kind {
            TokenKind::Quoted => name.get(1..name.len().saturating_sub(1)).unwrap_or_default(),
            _ => name,
        }
    }

    /// A part of the name after `@@`: a scope or the variable itself. Or already the word behind it.
    fn system_variable(&mut self) {
        self.in_system_variable = matches!(self.previous().kind, TokenKind::SystemVariable | TokenKind::Dot);
        if !self.in_system_variable {
            return;
        }
        let name = self.bare_name();
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        if is(b"last_insert_id") || is(b"identity") {
            self.uses |= Uses::LAST_INSERT_ID;
        } else if is(b"warning_count") || is(b"error_count") {
            self.uses |= Uses::DIAGNOSTICS;
        } else if is(b"pseudo_thread_id") {
            self.uses |= Uses::CONNECTION_ID;
        } else if is(b"last_gtid") {
            self.uses |= Uses::LAST_GTID;
        } else if is_session_track(name) || is_weirs(name) {
            self.uses |= Uses::VIRTUAL_VARIABLE;
        }
    }
}

/// Whether `name`, in any letter case, is one of the variables that steer session tracking.
pub(crate) fn is_session_track(name: &[u8]) -> bool {
    let prefix = b"session_track_";
    name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// Whether `name`, in any letter case, is a variable that only Weir has.
pub(crate) fn is_weirs(name: &[u8]) -> bool {
    OWN_VARIABLES.iter().any(|own| name.eq_ignore_ascii_case(own.as_bytes()))
}

/// The variable that says how fresh a session's reads have to be.
pub const CONSISTENCY: &str = "weir_consistency";
/// The variable that stands for what a session has written, for others to wait for.
pub const TOKEN: &str = "weir_token";
/// The variable that says whether a session's transactions run again where their server is lost.
pub const REPLAY: &str = "weir_replay";
/// The variable that says how the end of a session's COMMITs is found out.
pub const COMMIT_OUTCOME: &str = "weir_commit_outcome";
/// The variables that only Weir has.
pub const OWN_VARIABLES: [&str; 4] = [CONSISTENCY, TOKEN, REPLAY, COMMIT_OUTCOME];

/// Whether INTO after `word` names the table of an INSERT or REPLACE. All of these are reserved.
fn names_a_table_after(word: Word) -> bool {
    matches!(
        word,
        Word::INSERT
            | Word::REPLACE
            | Word::IGNORE
            | Word::LOW_PRIORITY
            | Word::HIGH_PRIORITY
            | Word::DELAYED
    )
}
