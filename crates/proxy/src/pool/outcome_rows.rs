//! Hands out the rows of `weir.outcomes` in which transactions say that they were committed: see
//! [`crate::statement::commit_outcome`].

use crate::context::Context;
use crate::keys::Nanos;
use crate::pool::pools::Pools;
use crate::session::Session;

/// A server that refuses is named in the log so often at most.
const WARN_EVERY_NS: Nanos = 60_000_000_000;

/// A worker's rows of `weir.outcomes`: as many as it has had transactions open at once.
#[derive(Default)]
pub(crate) struct OutcomeRows {
    /// Tells them from those of other workers, and of other Weirs; drawn with the first one.
    owner: Option<u64>,
    next: u32,
    /// Those of transactions that are over.
    pub(crate) free: Vec<u32>,
    warned_at: Option<Nanos>,
}

impl OutcomeRows {
    pub(crate) fn owner(&mut self, ctx: &mut Context) -> u64 {
        *self.owner.get_or_insert_with(|| ctx.random.next())
    }

    /// One for a transaction.
    pub(crate) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next
        })
    }

    /// Whether a refusal is worth a line in the log.
    pub(crate) fn is_to_warn(&mut self, now: Nanos) -> bool {
        let is_due = self.warned_at.is_none_or(|at| at + WARN_EVERY_NS < now);
        if is_due {
            self.warned_at = Some(now);
        }
        is_due
    }
}

/// Logs that are kept for the next transactions of a worker.
const SPARE_LOGS_MAX: usize = 64;

impl Pools {
    /// A session's transaction is over, or lost. Its row goes to the next one, unless a server may still have the transaction that
    /// has written it.
    pub(crate) fn end_log(&mut self, session: &mut Session) {
        session.transaction.is_unlogged = false;
        if let Some(mut log) = session.transaction.log.take() {
            self.outcomes.free.extend(log.outcome_slot.filter(|_| log.marker.is_none()));
            log.clear();
            if self.spare_logs.len() < SPARE_LOGS_MAX {
                self.spare_logs.push(log);
            }
        }
    }
}

impl Session {
    /// The server has answered the end of its transaction: the row is free.
    pub(crate) fn free_outcome_row(&mut self) {
        if let Some(log) = &mut self.transaction.log {
            log.marker = None;
        }
    }
}

/// A number for a transaction, which is even: the odd one behind it bars the transaction.
pub(crate) fn draw_marker(ctx: &mut Context) -> u64 {
    ctx.random.next() & !1
}

/// What a row holds whose transaction must not be committed any more.
pub(crate) fn bar_of(marker: u64) -> u64 {
    marker | 1
}

/// Writes a row, whose number is an expression of what it holds. `written_at` follows by itself.
pub(crate) fn put_row(owner: u64, slot: u32, number: u64, update: &str) -> String {
    format!(
        "INSERT INTO weir.outcomes (owner, slot, number) VALUES ({owner}, {slot}, {number}) ON DUPLICATE KEY UPDATE \
         number = {update}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_no_marker() {
        for marker in [0, 2, u64::MAX - 1] {
            assert_eq!(bar_of(marker), marker + 1);
        }
        assert_eq!(
            put_row(7, 3, 9, "IF(number = 8, number, 9)"),
            "INSERT INTO weir.outcomes (owner, slot, number) VALUES (7, 3, 9) ON DUPLICATE KEY UPDATE number = \
             IF(number = 8, number, 9)"
        );
    }

    #[test]
    fn rows_are_used_again_and_refusals_told_once_in_a_while() {
        let mut rows = OutcomeRows::default();
        assert_eq!((rows.take(), rows.take()), (1, 2));
        rows.free.push(1);
        assert_eq!((rows.take(), rows.take()), (1, 3));
        assert!(rows.is_to_warn(5));
        assert!(!rows.is_to_warn(5 + WARN_EVERY_NS));
        assert!(rows.is_to_warn(6 + WARN_EVERY_NS));
    }
}
