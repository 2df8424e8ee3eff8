//! Runs a statement again that its server has undone: a transaction of its own, or the last one of a transaction that can run
//! again with it (see [`crate::statement::replay`]), that met another one's locks, or the write set of another Galera node
//! (error 1213).
//!
//! "Undone" does not hold for tables without transactions (MyISAM, Aria), which a trigger may have changed too. The server
//! says that with a warning (1196) behind the error, so it is asked first, and how many conditions there are, of which it
//! shows `max_error_count`. The statement then runs on the same connection: its OK reports whatever code may have left in
//! the session.
//!
//! | the server shows | so |
//! | --- | --- |
//! | 1213, and nothing of 1196, and all that there is | the statement runs again after a moment, up to `deadlock_retries` times |
//! | anything else, or no answer | the client gets the error |

use weir_protocol::error::LOCK_DEADLOCK;
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::ErrPacket;
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::{Effects, Uses};

use crate::diagnostics::conditions::{Condition, word};
use crate::keys::{ConnectionKey, Nanos};
use crate::plan::execution_plan::CommandKind;
use crate::server::fetch::last_packet;
use crate::session::execution::Settle;
use crate::session::phase::Phase;
use crate::work::Work;

/// ER_WARNING_NOT_COMPLETE_ROLLBACK: "Some non-transactional changed tables couldn't be rolled back".
const NOT_COMPLETE_ROLLBACK: u16 = 1196;
/// So long a statement waits, more or less, before it runs for the second time; twice as long before each further one, so
/// that those which meet again and again part.
const PAUSE_NS: Nanos = 2_000_000;
/// So often the server may refuse to answer (a Galera abort makes it refuse once).
const REFUSALS_MAX: u8 = 3;

impl Work<'_> {
    /// The server says that it has undone the session's statement. Has it undone all of it?
    pub(crate) fn ask_what_is_left(&mut self, key: ConnectionKey) {
        let connection = &mut self.pools.connections[key];
        (connection.known.row_count, connection.known.has_conditions) = (None, true);
        connection.settling.refusals = 0;
        self.session.phase = Phase::Settling;
        connection.ask(self.ctx, Settle::Conditions);
    }

    /// The server has answered.
    pub(crate) fn left_told(&mut self, key: ConnectionKey, settle: Settle) {
        let settling = &mut self.pools.connections[key].settling;
        let bytes = std::mem::take(&mut settling.bytes);
        let is_rejected = std::mem::take(&mut settling.is_rejected);
        if std::mem::take(&mut settling.again) {
            settling.refusals += 1;
            if settling.refusals < REFUSALS_MAX && !is_rejected {
                return self.pools.connections[key].ask(self.ctx, settle);
            }
            return self.tell_of_deadlock(key);
        }
        let Some(deadlock) = &mut self.session.execution.reply.deadlock else { return self.settle_down() };
        if deadlock.is_open {
            return self.tell_of_deadlock(key);
        }
        match (settle, deadlock.conditions) {
            (Settle::Conditions, _) => {
                deadlock.conditions = conditions_of_whole_rollback(&bytes);
                match deadlock.conditions {
                    Some(_) => self.pools.connections[key].ask(self.ctx, Settle::ConditionCount),
                    None => self.tell_of_deadlock(key),
                }
            }
            (_, Some(shown)) if number(&bytes) == Some(shown) => self.repeat(key),
            _ => self.tell_of_deadlock(key),
        }
    }

    /// Nothing of the statement is left: it runs again after a moment.
    fn repeat(&mut self, key: ConnectionKey) {
        if self.session.is_wrapped() {
            self.unwrap_write();
        }
        let is_in_transaction = self.session.pins.pins().contains(Pins::TRANSACTION);
        // What it has read of LAST_INSERT_ID() may be of its own first try.
        let asks_for_id = self.session.execution.plan.statement().uses.contains(Uses::LAST_INSERT_ID)
            && self.session.transaction.log.as_ref().is_some_and(|log| log.begun_with_id.is_none());
        if is_in_transaction && (asks_for_id || !self.session.can_replay(self.ctx)) {
            return self.tell_of_deadlock(key);
        }
        let execution = &mut self.session.execution;
        execution.reply.deadlock = None;
        if let (CommandKind::Execute, Some(prepared)) = (execution.plan.kind(), &execution.text.prepared) {
            self.pools.connections[key].statements.forget_types(prepared);
        }
        if execution.plan.statement().effects.contains(Effects::LAST_INSERT_ID_SET) {
            // A row before the one that failed has set it, as at a server whose client runs the statement again.
            self.pools.connections.retain_insert_id(self.session);
        }
        self.repeat_after_pause();
    }

    /// The same, with its transaction.
    pub(crate) fn repeat_after_pause(&mut self) {
        let execution = &mut self.session.execution;
        execution.tries.is_sent = false;
        execution.tries.repeats += 1;
        let pause = PAUSE_NS << (execution.tries.repeats - 1).min(8);
        execution.record.held_for_ns = self.ctx.random.jitter(pause);
        self.ctx.statistics.totals.deadlocks_retried += 1;
        // It is undone, also its row.
        self.session.free_outcome_row();
        self.session.begin_replay(self.ctx.now);
        self.start();
    }

    /// Whether a transaction that its server has undone may run again.
    pub(crate) fn may_repeat_transaction(&self) -> bool {
        let group = self.pools.groups.get(&self.session.execution.hostgroup);
        let repeats_max = group.map_or(0, |group| group.deadlock_retries);
        self.session.can_replay(self.ctx) && u32::from(self.session.execution.tries.repeats) < repeats_max
    }

    /// The client gets the error.
    fn tell_of_deadlock(&mut self, key: ConnectionKey) {
        let Some(deadlock) = self.session.execution.reply.deadlock.take() else { return self.settle_down() };
        self.ctx.statistics.totals.deadlocks_told += 1;
        self.session.execution.reply.is_answering = true;
        self.session.phase = Phase::Running;
        match self.relay_error(key, &deadlock.packet) {
            Ok(()) => self.finish(key),
            Err(_) => self.close_session(),
        }
    }

    /// The same where the connection is gone: the server has undone the statement before that, and a part of it may be left.
    pub(crate) fn tell_of_lost_deadlock(&mut self) {
        let Some(deadlock) = self.session.execution.reply.deadlock.take() else {
            return self.close_session();
        };
        self.ctx.statistics.totals.deadlocks_told += 1;
        self.forget_transaction();
        let text = ErrPacket::parse(deadlock.packet.get(HEADER_LEN..).unwrap_or_default())
            .map(|err| String::from_utf8_lossy(err.message).into_owned());
        self.answer_error(LOCK_DEADLOCK, &text.unwrap_or_default());
    }
}

/// How many conditions a server shows, if one of them is 1213 and none says that something could not be undone.
fn conditions_of_whole_rollback(answer: &[u8]) -> Option<usize> {
    let mut rest = answer;
    let (mut shown, mut is_told) = (0, false);
    while let Some(header) = Header::parse(rest) {
        let end = HEADER_LEN + header.len;
        let payload = rest.get(HEADER_LEN..end)?;
        rest = rest.get(end..)?;
        // Definitions of columns come first, and are none.
        let Some(condition) = Condition::parse(payload) else { continue };
        if condition.code == NOT_COMPLETE_ROLLBACK {
            return None;
        }
        shown += 1;
        is_told |= condition.code == LOCK_DEADLOCK.code;
    }
    (is_told && rest.is_empty()).then_some(shown)
}

/// The number in the only row of an answer.
fn number(answer: &[u8]) -> Option<usize> {
    let digits = Reader::new(last_packet(answer)?).lenenc_bytes().ok()?;
    std::str::from_utf8(&word(digits)).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use weir_protocol::frame;
    use weir_protocol::wire::put_lenenc_bytes;

    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<u8> {
        let (mut bytes, mut sequence) = (Vec::new(), 1);
        // What a definition of a column begins with.
        for columns in [&["def", "", "", "", "Code", ""][..]].iter().chain(rows) {
            let mut payload = Vec::new();
            columns.iter().for_each(|column| put_lenenc_bytes(&mut payload, column.as_bytes()));
            frame::write_packet(&mut bytes, &mut sequence, &payload);
        }
        bytes
    }

    #[test]
    fn what_shows_that_all_was_undone() {
        // As MariaDB 10.11 shows it.
        let deadlock: &[&str] =
            &["Error", "1213", "Deadlock found when trying to get lock; try restarting transaction"];
        let left: &[&str] =
            &["Warning", "1196", "Some non-transactional changed tables couldn't be rolled back"];
        let other: &[&str] = &["Warning", "1265", "Data truncated for column 'v' at row 1"];
        for (shown, whole) in [
            (&[deadlock, deadlock][..], Some(2)),
            (&[other, deadlock], Some(2)),
            (&[deadlock, deadlock, left, left], None),
            (&[left], None),
            (&[other], None),
            (&[], None),
        ] {
            assert_eq!(conditions_of_whole_rollback(&rows(shown)), whole, "{shown:?}");
        }
        let answer = rows(&[deadlock]);
        assert_eq!(conditions_of_whole_rollback(&answer[..answer.len() - 1]), None, "cut off");
        assert_eq!((number(&rows(&[&["2"]])), number(&rows(&[&["x"]])), number(b"")), (Some(2), None, None));
    }
}
