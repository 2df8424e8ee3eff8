//! Answers SHOW WARNINGS and its likes from the saved copy, for a session whose connection went to another one.

use weir_protocol::resultset::{ColumnDefinition, ColumnFlags, ColumnType, TextResult};
use weir_sql::{Dialect, Kind, Lexer, TokenKind};

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::diagnostics::conditions::number;
use crate::pool::pools::Pools;
use crate::session::Session;
use crate::session::retained::Retained;
use crate::work::Work;

/// Why there is no answer where there were warnings.
pub(crate) const LOST: &str =
    "the diagnostics of the last statement are gone with its connection, or were too long to be saved";
const UNSHOWN: &str =
    "the saved messages can't be shown in this character_set_results: set it to what it was, or to utf8mb4";

impl Work<'_> {
    /// SHOW WARNINGS and the like, where the connection does not know the answer: it was in use by others, or there
    /// are no warnings of this session, and those that it shows are somebody else's.
    pub(crate) fn saved_diagnostics(&mut self, kind: Kind) -> Option<Outcome> {
        if kind == Kind::GetDiagnostics {
            return self.get_diagnostics();
        }
        if self.session.diagnostics.retained.contains(Retained::WARNINGS) {
            return None;
        }
        if self.session.diagnostics.has_lost_warnings() {
            self.pools.refuse(self.ctx, self.session, LOST);
            return Some(Outcome::Answered);
        }
        let errors_only = matches!(kind, Kind::ShowErrors | Kind::ShowCountErrors);
        match kind {
            Kind::ShowWarnings | Kind::ShowErrors => {
                let (offset, count) = limit(self.session.command_text(), self.session.tracked.dialect);
                match self.pools.shown_rows(self.ctx, self.session, errors_only, offset, count) {
                    Some(rows) => self.pools.reply_saved(self.ctx, self.session, &rows),
                    None => self.pools.refuse(self.ctx, self.session, UNSHOWN),
                }
            }
            Kind::ShowCountWarnings | Kind::ShowCountErrors => {
                let count = self.session.diagnostics.saved_rows(errors_only).count().to_string();
                let name = if errors_only { "@@session.error_count" } else { "@@session.warning_count" };
                self.pools.reply_count(self.ctx, self.session, name, &count);
            }
            // @@warning_count and @@error_count get a literal in their place.
            _ => return None,
        }
        Some(Outcome::Answered)
    }
}

/// The offset and the number of rows of a `LIMIT` at the end of SHOW WARNINGS or SHOW ERRORS.
fn limit(text: &[u8], dialect: Dialect) -> (usize, usize) {
    let mut lexer = Lexer::new(text, dialect);
    let (mut numbers, mut count_first) = (Vec::new(), false);
    loop {
        let token = lexer.token();
        let part = &text[token.range()];
        match token.kind {
            TokenKind::End => break,
            TokenKind::Number => {
                numbers.push(str::from_utf8(part).ok().and_then(|n| n.parse().ok()).unwrap_or(usize::MAX));
            }
            TokenKind::Word => count_first |= part.eq_ignore_ascii_case(b"offset"),
            _ => {}
        }
    }
    match numbers[..] {
        [count, offset, ..] if count_first => (offset, count),
        [offset, count, ..] => (offset, count),
        [count] => (0, count),
        [] => (0, usize::MAX),
    }
}

impl Pools {
    fn reply_count(&mut self, ctx: &mut Context, session: &mut Session, name: &str, count: &str) {
        self.connections.drop_outdated(session, Retained::FOUND_ROWS);
        let is_mariadb = self.speaks_mariadb(ctx, session);
        let results = session.tracked.result_text(is_mariadb).encoding;
        let name = results.map_or_else(|| name.into(), |results| results.encode_all(name));
        session.diagnostics.row_count = -1;
        session.diagnostics.found_rows = Some(1);
        let status = session.status();
        let Some(buffer) = ctx.out.buffer(session.socket) else { return };
        let flags = ColumnFlags::UNSIGNED | ColumnFlags::BINARY;
        let columns = [ColumnDefinition { flags, ..ColumnDefinition::integer(&name) }];
        let mut sequence = 1;
        let mut result = TextResult::begin(buffer, &mut sequence, session.capabilities, status, &columns);
        result.row([Some(&*number(count, results, is_mariadb))]);
        result.finish(status, 0);
    }

    /// These rows under the columns that SHOW WARNINGS has.
    fn reply_saved(&self, ctx: &mut Context, session: &mut Session, rows: &[[Vec<u8>; 3]]) {
        let is_mariadb = self.speaks_mariadb(ctx, session);
        let text = session.tracked.result_text(is_mariadb);
        let names = ["Level", "Code", "Message"]
            .map(|name| text.encoding.map_or_else(|| name.into(), |encoding| encoding.encode_all(name)));
        session.diagnostics.row_count = -1;
        let status = session.status();
        // Seen on MariaDB 10.11 and MySQL 9.7.
        let (code_length, decimals) = if is_mariadb { (4, 39) } else { (5, 31) };
        let of_text = |name, characters| ColumnDefinition {
            flags: ColumnFlags::NOT_NULL,
            decimals,
            collation: text.collation,
            ..ColumnDefinition::text(name, characters * text.width)
        };
        let columns = [
            of_text(&names[0], 7),
            ColumnDefinition {
                column_type: ColumnType::LONG,
                flags: ColumnFlags::NOT_NULL | ColumnFlags::UNSIGNED | ColumnFlags::BINARY,
                length: code_length,
                ..ColumnDefinition::integer(&names[1])
            },
            of_text(&names[2], 512),
        ];
        let Some(buffer) = ctx.out.buffer(session.socket) else { return };
        let mut sequence = 1;
        let mut result = TextResult::begin(buffer, &mut sequence, session.capabilities, status, &columns);
        for row in rows {
            result.row(row.iter().map(|column| Some(&**column)));
        }
        result.finish(status, 0);
    }
}

#[cfg(test)]
mod tests {
    use weir_sql::Dialect;

    use super::limit;

    #[test]
    fn limits_are_read_in_all_their_forms() {
        let limit = |text: &str| limit(text.as_bytes(), Dialect::default());
        assert_eq!(limit("SHOW WARNINGS"), (0, usize::MAX));
        assert_eq!(limit("SHOW WARNINGS LIMIT 3"), (0, 3));
        assert_eq!(limit("show errors limit 2, 5"), (2, 5));
        assert_eq!(limit("SHOW WARNINGS LIMIT 5 OFFSET 2;"), (2, 5));
        assert_eq!(limit("SHOW WARNINGS LIMIT 99999999999999999999"), (0, usize::MAX));
    }

    #[test]
    fn what_comments_say_is_no_limit() {
        let limit = |text: &str| limit(text.as_bytes(), Dialect::default());
        assert_eq!(limit("SHOW WARNINGS /* LIMIT 1 */"), (0, usize::MAX));
        assert_eq!(limit("/* 7 */ SHOW WARNINGS LIMIT 5 -- limit 1, 2"), (0, 5));
        assert_eq!(limit("SHOW WARNINGS LIMIT /* OFFSET */ 5, /* 1 */ 2"), (5, 2));
        assert_eq!(limit("SHOW WARNINGS /*!50000 LIMIT 4 */"), (0, 4));
    }
}
