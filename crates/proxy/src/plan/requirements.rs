//! States what a statement needs of its server and its connection: taken from its session once, when it looks for them,
//! as one value that nothing changes. What follows from that is decided by functions of nothing else.

use weir_sql::{Kind, Uses};
use weir_topology::Gtid;

use crate::keys::{Nanos, ServerIndex};
use crate::plan::execution_plan::ExecutionPlan;

/// What a session brings along to its statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// Where the statement goes: the hostgroup of writers.
    pub hostgroup: u32,
    /// It has diagnostics that a connection knows, or has to be told.
    pub has_diagnostics: bool,
    /// It runs in a transaction, which it begins if there is none: autocommit is off.
    pub is_in_transaction: bool,
    /// A transaction runs again in front of it.
    pub replays: bool,
    /// A read of it begins no transaction, or one that a reader may have.
    pub may_read_on_reader: bool,
    /// SET TRANSACTION READ ONLY is to be sent in front.
    pub announces_read_only: bool,
    /// A reader could not take on its state.
    pub writer_only: bool,
    /// When its last write was answered, which the server has to cover; 0 for none.
    pub must_see: Nanos,
    /// The server that took its last write, which covers it.
    pub written_on: ServerIndex,
    /// When its last read was answered: the server must have what that has shown; 0 for none.
    pub seen_at: Nanos,
    /// The server that was read.
    pub seen_on: ServerIndex,
    /// Everything that anybody had acknowledged before this moment has to be there; 0 for nothing.
    pub told_at: Nanos,
    /// The transaction that its server must have executed.
    pub min_gtid: Option<Gtid>,
    /// When the statement came.
    pub came_at: Nanos,
    /// A connection was offered to it that was opened at this moment, later than anything is known of its server: what is known
    /// of any from before may be of another one in its place; 0 for none.
    pub proven_after: Nanos,
    /// Until then it may wait for a reader to be fresh enough.
    pub waits_until: Nanos,
    /// It has read at the same reader for long enough: another one may have its turn.
    pub may_change_reader: bool,
    /// Its reads have to be served by the writer.
    pub reads_on_writer: bool,
    /// The server on which the statement's connection was lost last.
    pub lost_on: Option<ServerIndex>,
    /// Until then that one is avoided even where no other is left.
    pub lost_until: Nanos,
}

/// What of a hostgroup decides how fresh its members are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupFacts {
    /// Its members replicate from each other: they may lack what others have.
    pub is_replicated: bool,
    /// It has one member, which has taken the writes of its cluster since then.
    pub sole_writer_since: Option<Nanos>,
    /// Its members take the writes of their cluster. Else they read what others have written.
    pub takes_writes: bool,
    /// Nobody will ever tell what the server has: see [`weir_topology::Unchecked::is_lasting`].
    pub is_uncheckable: bool,
}

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirements {
    from: Circumstances,
    asks_connection: bool,
    may_leave_writer: bool,
    binds_to_writer: bool,
    may_have_effects: bool,
    leaves_nothing: bool,
    changes_rows: bool,
}

impl Requirements {
    /// Those of a statement, as it is planned, of such a session.
    pub(crate) fn new(plan: &ExecutionPlan, from: Circumstances) -> Self {
        const OF_CONNECTION: Uses = Uses::LAST_INSERT_ID.union(Uses::DIAGNOSTICS).union(Uses::FOUND_ROWS);
        let statement = plan.statement();
        // A transaction that runs again in front of it writes.
        let asks_connection =
            statement.uses.intersects(OF_CONNECTION) && from.has_diagnostics && !from.replays;
        // Where a rule or a hint sends a statement, it goes.
        let may_leave_writer = plan.decision().hostgroup.is_none()
            && plan.is_read()
            && from.may_read_on_reader
            && !from.writer_only
            && !from.reads_on_writer
            // What was announced is sent in front, and may outlast a read that uses no table.
            && (!from.announces_read_only || plan.begins_read_only())
            && !asks_connection;
        let only_shows = matches!(
            statement.kind,
            Kind::ShowWarnings | Kind::ShowErrors | Kind::ShowCountWarnings | Kind::ShowCountErrors
        ) && !statement.multi;
        Self {
            from,
            asks_connection,
            may_leave_writer,
            // What was announced must not bind the session to a reader.
            binds_to_writer: from.announces_read_only,
            may_have_effects: plan.may_have_effects() || from.replays,
            leaves_nothing: (plan.is_read() || only_shows) && !from.replays,
            changes_rows: plan.changes_rows(),
        }
    }

    /// Where it goes, unless a reader takes it.
    pub(crate) fn hostgroup(&self) -> u32 {
        self.from.hostgroup
    }

    /// It asks for something that the connection which the session had before knows best.
    pub(crate) fn asks_connection(&self) -> bool {
        self.asks_connection
    }

    /// A reader may take it.
    pub(crate) fn may_leave_writer(&self) -> bool {
        self.may_leave_writer
    }

    /// It may not run on a reader even if the session's diagnostics are there.
    pub(crate) fn binds_to_writer(&self) -> bool {
        self.binds_to_writer
    }

    /// It leaves nothing behind on a server, so that a reader may have it.
    pub(crate) fn leaves_nothing(&self) -> bool {
        self.leaves_nothing
    }

    /// Whether it may be sent to a server now: what may have effects only to one that surely is the writer still.
    pub(crate) fn may_be_sent(&self, is_surely_writer: impl FnOnce() -> bool) -> bool {
        !self.may_have_effects || is_surely_writer()
    }

    /// The moment that a server has to cover for it; none if this one need not. Also for writes: a writer that has just taken
    /// over may not have applied the session's last one yet.
    ///
    /// - What a session has read elsewhere may be there before it is at the server that has committed it: that one still has to
    ///   make it visible (seen on Galera).
    /// - What anybody has been acknowledged was not acknowledged by the writer of now for certain: another one may have been
    ///   it, and a rule may have sent a write elsewhere.
    /// - A statement that changes rows waits for the locks of what its server commits, others do not. What others have
    ///   committed, before it became the only writer, locks nothing there. And what reads behind it in a transaction
    ///   waits for nothing.
    /// - Where nobody can tell what the only writer has, nothing better than it can be waited for; but to hold the session
    ///   where its own writes are.
    pub(crate) fn must_cover(&self, server: ServerIndex, group: GroupFacts) -> Option<Nanos> {
        self.must_cover_over(server, 0, group)
    }

    /// The same over a connection that was opened at this moment.
    ///
    /// What was seen of a server before that may have been another one's: a replica was restored from a backup, or another
    /// machine has its address. A check that has begun later has asked the one to which the connection leads, as both live.
    /// Writers are not held to that: what a restored one does not have is lost, and waiting would not bring it back.
    pub(crate) fn must_cover_over(
        &self,
        server: ServerIndex,
        opened_at: Nanos,
        group: GroupFacts,
    ) -> Option<Nanos> {
        let Circumstances { must_see, written_on, seen_at, seen_on, told_at, proven_after, .. } = self.from;
        let since = if group.takes_writes { 0 } else { opened_at.max(proven_after) };
        let has = |at: ServerIndex, moment: Nanos| at == server && since <= moment;
        let own = if has(written_on, must_see) { 0 } else { must_see };
        let locks = self.changes_rows && !self.from.is_in_transaction;
        let locks_since = match group.sole_writer_since {
            Some(_) if group.is_uncheckable && self.changes_rows => Some(0),
            since => since.filter(|_| locks),
        };
        let is_nobody_to_tell = group.is_uncheckable && group.sole_writer_since.is_some();
        let seen = if has(seen_on, seen_at) || is_nobody_to_tell { 0 } else { seen_at };
        let [seen, told] = [seen, told_at].map(|at| locks_since.map_or(at, |since| at.min(since)));
        let moment = own.max(seen).max(told);
        (group.is_replicated && moment != 0).then(|| moment.max(since))
    }

    /// The transaction that its server must have executed (`min_gtid`).
    pub(crate) fn min_gtid(&self) -> Option<&Gtid> {
        self.from.min_gtid.as_ref()
    }

    /// The same as a moment that a server has to cover of which checks tell: its client knows of the transaction, so it was
    /// acknowledged before the statement came.
    pub(crate) fn gtid_acknowledged_by(&self) -> Nanos {
        if self.from.min_gtid.is_some() { self.from.came_at } else { 0 }
    }

    /// Until when it may wait for a reader to be fresh enough.
    pub(crate) fn waits_until(&self) -> Nanos {
        self.from.waits_until
    }

    /// Whether another reader may have its turn, although that has to be checked first.
    pub(crate) fn may_change_reader(&self) -> bool {
        self.from.may_change_reader
    }

    /// Whether a server is to be left out because the statement's connection was lost there: while there are others, and
    /// for a moment in any case.
    pub(crate) fn avoids(&self, server: ServerIndex, is_last_resort: bool, now: Nanos) -> bool {
        self.from.lost_on == Some(server) && (!is_last_resort || now < self.from.lost_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::execution_plan::CommandKind;
    use weir_routing::Decision;
    use weir_sql::{Access, Dialect};

    const READING: Circumstances = Circumstances {
        hostgroup: 1,
        has_diagnostics: false,
        is_in_transaction: false,
        replays: false,
        may_read_on_reader: true,
        announces_read_only: false,
        writer_only: false,
        must_see: 0,
        written_on: ServerIndex::MAX,
        seen_at: 0,
        seen_on: ServerIndex::MAX,
        told_at: 0,
        min_gtid: None,
        came_at: 0,
        proven_after: 0,
        waits_until: 0,
        may_change_reader: false,
        reads_on_writer: false,
        lost_on: None,
        lost_until: 0,
    };

    fn plan(text: &str) -> ExecutionPlan {
        let statement = weir_sql::scan(text.as_bytes(), Dialect::default());
        ExecutionPlan::default().with_statement(
            CommandKind::Query,
            statement,
            statement.access == Access::Read,
        )
    }

    #[test]
    fn only_a_sure_read_of_a_free_session_leaves_the_writer() {
        let leaves = |text, from| Requirements::new(&plan(text), from).may_leave_writer();
        assert!(leaves("SELECT a FROM t", READING));
        assert!(!leaves("UPDATE t SET a = 1", READING));
        for kept in [
            Circumstances { may_read_on_reader: false, ..READING },
            Circumstances { writer_only: true, ..READING },
            Circumstances { announces_read_only: true, ..READING },
        ] {
            assert!(!leaves("SELECT a FROM t", kept), "{kept:?}");
        }
        let sent = plan("SELECT a FROM t").decided(Decision { hostgroup: Some(7), ..Decision::default() });
        assert!(!Requirements::new(&sent, READING).may_leave_writer());
        let begins = plan("BEGIN").beginning_on_reader();
        let announced = Circumstances { announces_read_only: true, ..READING };
        assert!(Requirements::new(&begins, announced).may_leave_writer());
    }

    #[test]
    fn who_asks_for_diagnostics_goes_where_they_are() {
        let having = Circumstances { has_diagnostics: true, ..READING };
        let asks = |text, from| Requirements::new(&plan(text), from).asks_connection();
        assert!(asks("SELECT LAST_INSERT_ID()", having) && !asks("SELECT LAST_INSERT_ID()", READING));
        assert!(!asks("SELECT a FROM t", having));
        assert!(!Requirements::new(&plan("SELECT FOUND_ROWS() FROM t"), having).may_leave_writer());
        let leaves_nothing = |text| Requirements::new(&plan(text), having).leaves_nothing();
        assert!(leaves_nothing("SHOW WARNINGS") && leaves_nothing("SELECT 1"));
        assert!(!leaves_nothing("INSERT INTO t VALUES (LAST_INSERT_ID())"));
    }

    const READERS: GroupFacts = GroupFacts {
        is_replicated: true,
        sole_writer_since: None,
        takes_writes: false,
        is_uncheckable: false,
    };
    const WRITER: GroupFacts = GroupFacts { sole_writer_since: Some(3), takes_writes: true, ..READERS };

    #[test]
    fn a_server_that_took_the_write_covers_it() {
        let wrote = Circumstances { must_see: 5, written_on: 2, ..READING };
        let wanted = Requirements::new(&plan("SELECT a FROM t"), wrote);
        assert_eq!((wanted.must_cover(1, READERS), wanted.must_cover(2, READERS)), (Some(5), None));
        assert_eq!(wanted.must_cover(1, GroupFacts { is_replicated: false, ..READERS }), None);
        assert_eq!(Requirements::new(&plan("SELECT a FROM t"), READING).must_cover(1, READERS), None);
    }

    #[test]
    fn what_was_seen_is_not_unseen_elsewhere() {
        let saw = Circumstances { must_see: 5, written_on: 0, seen_at: 9, seen_on: 2, ..READING };
        let of = |text| Requirements::new(&plan(text), saw);
        let read = of("SELECT a FROM t");
        assert_eq!((read.must_cover(1, READERS), read.must_cover(2, READERS)), (Some(9), Some(5)));
        assert_eq!(read.must_cover(0, WRITER), Some(9), "a reader may be ahead of the writer");
        assert_eq!(of("BEGIN").must_cover(0, WRITER), Some(9));
        let change = of("UPDATE t SET a = 1");
        assert_eq!(change.must_cover(0, WRITER), Some(3), "it waits for the locks of what came later");
        let in_transaction = Circumstances { is_in_transaction: true, ..saw };
        let change = Requirements::new(&plan("UPDATE t SET a = 1"), in_transaction);
        assert_eq!(change.must_cover(0, WRITER), Some(9), "reads behind it do not");
        let uncheckable = GroupFacts { is_uncheckable: true, ..WRITER };
        assert_eq!([read.must_cover(0, uncheckable), change.must_cover(0, uncheckable)], [None, None]);
        let one_of_several = GroupFacts { sole_writer_since: None, ..WRITER };
        assert_eq!(of("UPDATE t SET a = 1").must_cover(0, one_of_several), Some(9));
    }

    #[test]
    fn what_is_known_of_a_server_is_not_known_of_the_next_one_in_its_place() {
        let saw = Circumstances { must_see: 5, written_on: 1, seen_at: 9, seen_on: 1, ..READING };
        let read = Requirements::new(&plan("SELECT a FROM t"), saw);
        let over = |opened_at, group| read.must_cover_over(1, opened_at, group);
        assert_eq!((over(4, READERS), over(5, READERS)), (None, None));
        assert_eq!(over(7, READERS), Some(7), "it has written there before");
        assert_eq!(over(12, READERS), Some(12), "and read");
        assert_eq!(over(12, WRITER), None);
        assert_eq!(read.must_cover_over(2, 12, READERS), Some(12));
        let offered = Requirements::new(&plan("SELECT a FROM t"), Circumstances { proven_after: 20, ..saw });
        assert_eq!((offered.must_cover(1, READERS), offered.must_cover(1, WRITER)), (Some(20), None));
        let fresh = Requirements::new(&plan("SELECT a FROM t"), READING);
        assert_eq!(fresh.must_cover_over(1, 12, READERS), None, "it has to see nothing");
    }

    #[test]
    fn what_anybody_was_acknowledged_has_to_be_at_the_writer_too() {
        let told = Circumstances { told_at: 7, ..READING };
        let of = |text| Requirements::new(&plan(text), told);
        let read = of("SELECT a FROM t");
        assert_eq!((read.must_cover(1, READERS), read.must_cover(0, WRITER)), (Some(7), Some(7)));
        let change = of("UPDATE t SET a = 1");
        assert_eq!(change.must_cover(0, WRITER), Some(3), "what others took before it became the writer");
        let later = GroupFacts { sole_writer_since: Some(9), ..WRITER };
        assert_eq!(change.must_cover(0, later), Some(7));
    }

    #[test]
    fn a_named_transaction_was_acknowledged_before_the_statement_came() {
        let came = Circumstances { came_at: 7, ..READING };
        let of = |from| Requirements::new(&plan("SELECT a FROM t"), from);
        assert_eq!((of(came).min_gtid(), of(came).gtid_acknowledged_by()), (None, 0));
        let gtid = Gtid::parse(b"0-1-5");
        let named = of(Circumstances { min_gtid: gtid, ..came });
        assert_eq!((named.min_gtid(), named.gtid_acknowledged_by()), (gtid.as_ref(), 7));
        assert_eq!(named.must_cover(1, READERS), None, "where ids tell, no check has to");
    }

    #[test]
    fn only_what_may_have_effects_needs_a_sure_writer() {
        let may = |text, is_sure| Requirements::new(&plan(text), READING).may_be_sent(|| is_sure);
        assert!(may("UPDATE t SET a = 1", true) && !may("UPDATE t SET a = 1", false));
        assert!(may("SELECT a FROM t", false) && may("ROLLBACK", false));
    }

    #[test]
    fn the_server_that_was_lost_is_the_last_to_be_tried() {
        let lost = Circumstances { lost_on: Some(3), lost_until: 100, ..READING };
        let wanted = Requirements::new(&plan("SELECT a FROM t"), lost);
        assert!(wanted.avoids(3, false, 1000) && wanted.avoids(3, true, 99));
        assert!(!wanted.avoids(3, true, 100) && !wanted.avoids(2, false, 0));
    }
}
