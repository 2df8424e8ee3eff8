//! Keeps a session's status flags: those that servers report, and those of Weir's own replies.

use weir_protocol::status::StatusFlags;
use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::keys::Nanos;
use crate::session::Session;

impl Session {
    /// Takes in what a server reports.
    pub(crate) fn take_status(&mut self, status: StatusFlags, now: Nanos) {
        // COMMIT AND CHAIN begins the next one at once.
        let was_open = self.pins.pins().contains(Pins::TRANSACTION)
            && !matches!(self.execution.plan.statement().kind, Kind::Commit | Kind::Rollback);
        if !was_open {
            self.transaction.since = now;
        }
        self.transaction.is_autocommit = status.contains(StatusFlags::AUTOCOMMIT);
        self.transaction.is_read_only = status.contains(StatusFlags::IN_TRANS_READONLY);
        let had_transaction = self.pins.pins().contains(Pins::TRANSACTION);
        let has_transaction = status.contains(StatusFlags::IN_TRANS);
        self.pins.set(Pins::TRANSACTION, has_transaction);
        if !has_transaction && (had_transaction || self.transaction.is_autocommit) {
            self.pins.remove(Pins::SAVEPOINT);
        }
    }

    /// The flags of a reply of Weir's own, as a server would send them. Client libraries go by them: one that took
    /// NO_BACKSLASH_ESCAPES for gone would escape strings so that they end early.
    pub(crate) fn status(&self) -> StatusFlags {
        let flags = [
            (StatusFlags::AUTOCOMMIT, self.transaction.is_autocommit),
            (StatusFlags::IN_TRANS, self.all_pins().contains(Pins::TRANSACTION)),
            (
                StatusFlags::IN_TRANS_READONLY,
                self.transaction.is_read_only || self.flags_aside().contains(StatusFlags::IN_TRANS_READONLY),
            ),
            (StatusFlags::NO_BACKSLASH_ESCAPES, self.tracked.dialect.no_backslash_escapes),
            (StatusFlags::ANSI_QUOTES, self.tracked.dialect.ansi_quotes),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).collect()
    }
}
