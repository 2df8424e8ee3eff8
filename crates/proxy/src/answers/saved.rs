//! Warnings and errors of a session whose connection went to another one: answered from the copy that was made.

use weir_protocol::charset::Encoding;
use weir_protocol::error::ServerError;
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::ok::OK_AS_EOF_HEADER;
use weir_protocol::resultset::{ColumnDefinition, ColumnFlags, ColumnType, TextResult};
use weir_sql::{Dialect, Kind, Lexer, TokenKind, Uses};

use crate::answers::conditions::{Condition, number, put_row};
use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::pool::pools::Pools;
use crate::session::retained::Retained;
use crate::session::{Diagnostics, SavedWarnings, Session};
use crate::statement::work::Work;

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

/// The payloads of packets that stand one behind the other.
fn packets(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let header = Header::parse(bytes)?;
        let end = HEADER_LEN + header.len;
        let payload = bytes.get(HEADER_LEN..end)?;
        bytes = bytes.get(end..)?;
        Some(payload)
    })
}

impl Pools {
    /// Weir's own error is what the session's SHOW WARNINGS shows from now on, unless it is that of a question for what
    /// there is.
    pub(crate) fn keep_own_error(&mut self, session: &mut Session, error: ServerError, message: &str) {
        if session.execution.plan.statement().uses.intersects(Uses::DIAGNOSTICS) {
            return;
        }
        self.connections.drop_outdated(session, Retained::WARNINGS);
        let (mut packets, mut sequence) = (Vec::new(), 0);
        // As a reply without definitions.
        frame::write_packet(&mut packets, &mut sequence, &[0]);
        put_row(&mut packets, ["Error", &error.code.to_string(), message], Encoding::Utf8, true);
        session.diagnostics.saved_warnings =
            Some(Box::new(SavedWarnings { packets, encoding: Some(Encoding::Utf8) }));
        session.diagnostics.last_error = Some(error);
    }

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

impl Diagnostics {
    /// In which bytes the text of the saved rows came, if that is known.
    pub(crate) fn saved_encoding(&self) -> Option<Encoding> {
        self.saved_warnings.as_ref().and_then(|saved| saved.encoding)
    }

    /// The saved rows of SHOW WARNINGS, or those of errors among them.
    pub(crate) fn saved_rows(&self, errors_only: bool) -> impl Iterator<Item = &[u8]> {
        let saved = self.saved_warnings.as_ref().map_or(&[][..], |saved| &saved.packets);
        let columns =
            packets(saved).next().and_then(|payload| payload.first().copied()).map_or(0, usize::from);
        packets(saved)
            .skip(1 + columns)
            .filter(|payload| payload.first() != Some(&OK_AS_EOF_HEADER))
            .filter(move |row| !errors_only || Condition::parse(row).is_some_and(|row| row.is_error()))
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
