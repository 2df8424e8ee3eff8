//! What a statement asks of the server where it runs, and of the connection: taken from its session once, when it looks for them, in one
//! value that nothing changes. What follows from that is decided by functions of nothing else.

use weir_sql::{Kind, Uses};

use crate::keys::{Nanos, ServerIndex};
use crate::plan::execution_plan::ExecutionPlan;

/// What a session brings along to its statement.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    /// Where the statement goes: the hostgroup of writers.
    pub hostgroup: u32,
    /// It has diagnostics that a connection knows, or has to be told.
    pub has_diagnostics: bool,
    /// A read of it begins no transaction, or one that a reader may have.
    pub may_read_on_reader: bool,
    /// SET TRANSACTION READ ONLY is to be sent in front.
    pub announces_read_only: bool,
    /// A reader could not take on its state.
    pub writer_only: bool,
    /// The moment that the server has to cover; 0 for none.
    pub must_see: Nanos,
    /// The server that took its last write, which covers it.
    pub written_on: ServerIndex,
    /// The server on which the statement's connection was lost last.
    pub lost_on: Option<ServerIndex>,
    /// Until then that one is avoided even where no other is left.
    pub lost_until: Nanos,
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
}

impl Requirements {
    /// Those of a statement, as it is planned, of such a session.
    pub(crate) fn new(plan: &ExecutionPlan, from: Circumstances) -> Self {
        const OF_CONNECTION: Uses = Uses::LAST_INSERT_ID.union(Uses::DIAGNOSTICS).union(Uses::FOUND_ROWS);
        let statement = plan.statement();
        let asks_connection = statement.uses.intersects(OF_CONNECTION) && from.has_diagnostics;
        // Where a rule or a hint sends a statement, it goes.
        let may_leave_writer = plan.decision().hostgroup.is_none()
            && plan.is_read()
            && from.may_read_on_reader
            && !from.writer_only
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
            may_have_effects: plan.may_have_effects(),
            leaves_nothing: plan.is_read() || only_shows,
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

    /// The moment that a server has to cover for it; none if this one, of a cluster with replicas or not, need not. Also for
    /// writes: a writer that has just taken over may not have applied the session's last one yet.
    pub(crate) fn must_cover(&self, server: ServerIndex, is_replicated: bool) -> Option<Nanos> {
        let Circumstances { must_see, written_on, .. } = self.from;
        (is_replicated && must_see != 0 && written_on != server).then_some(must_see)
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
        may_read_on_reader: true,
        announces_read_only: false,
        writer_only: false,
        must_see: 0,
        written_on: ServerIndex::MAX,
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

    #[test]
    fn a_server_that_took_the_write_covers_it() {
        let wrote = Circumstances { must_see: 5, written_on: 2, ..READING };
        let wanted = Requirements::new(&plan("SELECT a FROM t"), wrote);
        assert_eq!((wanted.must_cover(1, true), wanted.must_cover(2, true)), (Some(5), None));
        assert_eq!(wanted.must_cover(1, false), None);
        assert_eq!(Requirements::new(&plan("SELECT a FROM t"), READING).must_cover(1, true), None);
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
