//! Copies a session's conditions, where its connection goes to another one or the error is Weir's own.

use weir_protocol::charset::Encoding;
use weir_protocol::error::ServerError;
use weir_protocol::frame::{self, HEADER_LEN, Header};
use weir_protocol::ok::OK_AS_EOF_HEADER;
use weir_protocol::sqlstate;
use weir_sql::Uses;

use crate::diagnostics::conditions::{Condition, put_row};
use crate::pool::pools::Pools;
use crate::session::retained::Retained;
use crate::session::{Diagnostics, SavedWarnings, Session};

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

impl Diagnostics {
    /// The state of a saved condition, where it is sure.
    pub(crate) fn sqlstate_of(&self, condition: &Condition<'_>, is_mariadb: bool) -> Option<[u8; 5]> {
        match self.last_error {
            Some(error) if condition.is_error() && error.code == condition.code => Some(error.sqlstate),
            _ => sqlstate::of(condition.code, is_mariadb),
        }
    }

    /// There were warnings, and nobody knows them any more.
    pub(crate) fn has_lost_warnings(&self) -> bool {
        self.saved_warnings.as_ref().is_some_and(|saved| saved.packets.is_empty())
    }
}
