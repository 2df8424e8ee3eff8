//! Classifies errors of servers that are not for the client as they are.
//!
//! | error | who | when | so |
//! | --- | --- | --- | --- |
//! | 1047 with WSREP in its text | a Galera node outside its component | before any statement, in a transaction too, which is lost then; any other 1047 means something else | another server takes it; a transaction is over (1213); of a statement that runs others (CALL, EXECUTE, compound ones) a part may have been committed: nobody knows (08007) |
//! | 1290 with `read-only` in its text | a writer that has been made read_only | before a statement that would write; or when such a statement, begun before, is about to commit, which undoes it as a whole | the same |
//! | 4094 with `group_replication_set_as_primary` in its text | the old primary of a group, from when it is asked to hand over with a time-out until it has (MySQL 9.7) | before any statement that begins a transaction, reads too | another server takes it |
//! | 3100 with `before_commit` in its text | a member of a Group Replication group that has left it while its group was to decide on a commit | it has undone the transaction; the others may have got it and commit it | nobody knows (08007) |
//! | 1213 | a server whose locks, or whose cluster's write sets, the statement has met | the transaction is undone, which was that of one statement alone | the statement is run again, if the server says that it has undone all of it: see [`crate::statement::deadlock`] |
//! | 1461 | a server with `max_prepared_stmt_count` statements | instead of preparing one | the connection closes those that nobody uses, and it is prepared once more |
//! | 1180 with `Not connected to Primary Component` in its text | a Galera node that leaves its component while it replicates a write set | the node has undone it; whether the others have got it is not told | the same |
//!
//! 1290 is raised for other options too (INTO OUTFILE), and by routines that have done something before. So it counts
//! only for statements that are undone as a whole, and only at a server that was to write: on a reader it is the answer
//! to the statement.
//!
//! That a commit which ended with 3100 was there afterwards was seen on MySQL 9.7: a primary without a majority gives up
//! after `group_replication_unreachable_majority_timeout`, and the majority that comes back finds the transaction among
//! what it has received. 3101 is another matter: the group has decided against the transaction, on every member alike,
//! and its SQLSTATE (40000) says so.

use weir_protocol::error;
use weir_protocol::ok::ErrPacket;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind, Uses};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::{Group, Pools};
use crate::server::errors::{is_cut_off, is_handing_over, is_read_only, is_wsrep_refusal};
use crate::session::Session;
use crate::session::execution::Refusal;

impl Session {
    /// Nothing holds it but a transaction, on its present lease.
    fn is_in_transaction_only(&self) -> bool {
        self.pins.pins() == Pins::TRANSACTION && self.stay.detour.is_none()
    }
}

impl Context {
    /// Whether a session's statement may run at another server in place of this one.
    pub(crate) fn can_move(&self, session: &Session) -> bool {
        (session.pins.is_empty() || session.is_in_transaction_only())
            && !session.execution.plan.statement().multi
            && session.input.upload.is_none()
            && session.execution.tries.attempts <= self.snapshot.variables.connect_retries_on_failure
            && session.execution.plan.kind() != CommandKind::Reset
    }
}

impl Pools {
    /// What is to become of a statement that a server answers with an error; nothing if its client gets the error.
    pub(crate) fn refusal(
        &self,
        ctx: &Context,
        session: &Session,
        key: ConnectionKey,
        payload: &[u8],
    ) -> Option<Refusal> {
        if !self.connections[key].replies.reply.is_done() {
            return None;
        }
        let err = ErrPacket::parse(payload).ok()?;
        if session.execution.plan.kind() == CommandKind::Prepare
            && self.connections[key].can_make_room(err.code)
        {
            return Some(Refusal::StatementsFull);
        }
        let group = self.groups.get(&session.execution.hostgroup)?;
        if group.is_replicated && is_cut_off(err.code, err.message) {
            return Some(Refusal::OutcomeUnknown);
        }
        let is_in_transaction = session.is_in_transaction_only();
        let can_move = ctx.can_move(session);
        let is_writers = group.reader_hostgroup.is_some();
        if err.code == error::LOCK_DEADLOCK.code && may_repeat(ctx, session, group) {
            return Some(Refusal::Undone);
        }
        let may_move_in_part = session.pins.is_empty() || is_in_transaction;
        if may_move_in_part
            && group.is_replicated
            && session.execution.plan.runs_others(session.tracked.is_text_certain)
            && is_wsrep_refusal(err.code, err.message)
        {
            Some(Refusal::LeftAmid)
        } else if session.execution.reply.is_answering {
            // With a part of its answer out, or a file taken, it can't run once more.
            None
        } else if can_move && group.is_replicated && is_wsrep_refusal(err.code, err.message) {
            Some(Refusal::LeftCluster)
        } else if can_move
            && group.is_replicated
            && !is_in_transaction
            && session.execution.plan.is_one_statement()
            && is_handing_over(err.code, err.message)
        {
            Some(Refusal::HandsOver)
        } else if can_move
            && is_writers
            && session.execution.plan.is_undone_as_a_whole()
            && is_read_only(err.code, err.message)
        {
            let ends_another = is_in_transaction && session.execution.plan.commits_first();
            Some(if ends_another { Refusal::ReadOnlyAmid } else { Refusal::ReadOnly })
        } else {
            None
        }
    }
}

/// Whether a session's statement, which its server says to have undone, may be run again: its client has seen nothing of it,
/// and it was a transaction of its own, or one of a transaction that can run again with it.
fn may_repeat(ctx: &Context, session: &Session, group: &Group) -> bool {
    let execution = &session.execution;
    let is_untouched = session.stay.detour.is_none()
        && session.input.upload.is_none()
        && !execution.reply.is_answering
        && !execution.text.wants_cursor
        && !execution.has_announced
        && !execution.kill.deadline_passed;
    let ends = execution.plan.statement().kind == Kind::Commit && execution.plan.is_undone_as_a_whole();
    let is_of_transaction = session.can_replay(ctx) && (session.is_statement_undone_by_server() || ends);
    u32::from(execution.tries.repeats) < group.deadlock_retries
        && is_untouched
        && (is_of_transaction || session.is_transaction_of_its_own())
}

impl Session {
    /// Whether its statement was a transaction of its own, and leaves nothing in its session when it fails.
    pub(crate) fn is_transaction_of_its_own(&self) -> bool {
        let plan = &self.execution.plan;
        let changes_rows_only = plan.is_undone_as_a_whole() && !plan.commits_first() && !plan.is_boundary();
        // The first of several rows has changed what it asks for.
        let is_same_again = !(plan.statement().uses.contains(Uses::LAST_INSERT_ID)
            && plan.statement().effects.contains(Effects::LAST_INSERT_ID_SET));
        let is_alone = self.pins.is_empty() || self.is_wrapped();
        changes_rows_only && is_same_again && is_alone && self.transaction.is_autocommit
    }
}
