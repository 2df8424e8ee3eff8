//! Fetches diagnostics that only a session's last connection knows (warnings, LAST_INSERT_ID(), FOUND_ROWS()).
//!
//! They do not pin the session: the idle connection is marked, and whoever takes it first has them fetched into
//! the session that they belong to. So nothing is asked for as long as nobody else needs the connection, and
//! nothing is lost when somebody does.

use weir_sql::{Effects, Kind, Uses};

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::pool::turns::News;
use crate::server::connection::RetainedFor;
use crate::server::connections::Connections;
use crate::session::Session;
use crate::session::retained::Retained;

impl Pools {
    /// The lease is about to be released: what only it knows is marked on it.
    pub(crate) fn mark_retained(&mut self, ctx: &mut Context, session: &mut Session, key: ConnectionKey) {
        if session.diagnostics.retained.is_empty() {
            return;
        }
        if let Some(other) = session.diagnostics.retained_on
            && other != key
        {
            // Two connections know something: the older one is asked now.
            self.fetch_retained(ctx, session, other);
        }
        if session.diagnostics.retained.is_empty() {
            return;
        }
        session.diagnostics.retained_on = Some(key);
        let mark =
            RetainedFor { session: session.key, socket: session.socket, what: session.diagnostics.retained };
        self.connections[key].traces.retained_for = Some(mark);
    }

    /// The session wants back what it has on a connection.
    pub(crate) fn fetch_retained(&mut self, ctx: &mut Context, session: &mut Session, key: ConnectionKey) {
        let Some(asked) = self.connections.ask_for_retained(ctx, key, None) else { return };
        if asked.socket == session.socket {
            session.diagnostics.note_asked(&asked);
        } else {
            self.news.push_back(News::Asked(asked));
        }
    }

    /// A session takes an idle connection: diagnostics of another session on it are asked for first.
    pub(crate) fn take_over_retained(&mut self, ctx: &mut Context, taker: &mut Session, key: ConnectionKey) {
        let connection = &mut self.connections[key];
        taker.diagnostics.has_own_insert_id =
            connection.known.insert_id == Some(taker.diagnostics.last_insert_id);
        let Some(mark) = connection.traces.retained_for else { return };
        if mark.socket == taker.socket {
            connection.traces.retained_for = None;
            taker.diagnostics.retained_on = None;
            taker.diagnostics.has_own_insert_id |= mark.what.contains(Retained::INSERT_ID);
            return;
        }
        let id = taker.id_to_give(ctx);
        let Some(asked) = self.connections.ask_for_retained(ctx, key, id) else { return };
        taker.diagnostics.has_own_insert_id |= asked.gives_id;
        self.news.push_back(News::Asked(asked));
    }

    /// The holder's diagnostics are fetched from its own lease, on which a statement of Weir's is about to end them.
    pub(crate) fn save_diagnostics(&mut self, ctx: &mut Context, session: &mut Session, key: ConnectionKey) {
        self.mark_retained(ctx, session, key);
        self.fetch_retained(ctx, session, key);
    }

    /// What the lease knows of its session is fetched before a command that ends it there. True if it has to be waited for.
    pub(crate) fn saves_first(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
    ) -> bool {
        let ends = match session.execution.plan.kind() {
            // It stays over a reset, behind which the connection does not know it.
            CommandKind::Reset => Retained::FOUND_ROWS,
            // A query of Weir's own.
            CommandKind::Track => Retained::FOUND_ROWS | Retained::WARNINGS | Retained::INSERT_ID,
            // What ends the conditions is a query itself.
            _ if self.connections.needs_no_conditions(session, key) => Retained::FOUND_ROWS,
            _ => return false,
        };
        if !session.diagnostics.retained.intersects(ends) {
            return false;
        }
        self.save_diagnostics(ctx, session, key);
        // A number for which hardly anybody asks is not fetched but given up.
        !self.connections[key].replies.expected.is_empty()
    }

    /// Whether a statement has to wait for numbers that it needs from a connection other than its lease.
    pub(crate) fn waits_for_retained(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
    ) -> bool {
        if session.diagnostics.retained_on.is_none() && session.diagnostics.fetching == 0 {
            return false;
        }
        let mut needed = Retained::empty();
        needed.set(Retained::INSERT_ID, session.needs_insert_id(ctx));
        needed.set(Retained::FOUND_ROWS, self.needs_found_rows(ctx, session));
        needed.set(Retained::WARNINGS, session.executes_question());
        if needed.is_empty() {
            return false;
        }
        if let Some(retained_on) = session.diagnostics.retained_on
            && retained_on != key
            && session.diagnostics.retained.intersects(needed)
        {
            self.fetch_retained(ctx, session, retained_on);
        }
        session.diagnostics.fetching > 0
    }

    /// The session's statement asks for diagnostics, and not the lease where it will run knows them but a connection
    /// that the session had before: they are fetched first, and then the statement is begun again.
    pub(crate) fn fetches_from_elsewhere(&mut self, ctx: &mut Context, session: &mut Session) -> bool {
        let uses = session.execution.plan.statement().uses;
        let mut wanted = Retained::empty();
        wanted.set(Retained::WARNINGS, uses.contains(Uses::DIAGNOSTICS));
        wanted.set(Retained::FOUND_ROWS, uses.contains(Uses::FOUND_ROWS));
        let Some(retained_on) = session
            .diagnostics
            .retained_on
            .filter(|retained_on| session.lease().is_some_and(|lease| lease != *retained_on))
        else {
            return false;
        };
        if !self.connections[retained_on].traces.retained_for.is_some_and(|mark| mark.what.intersects(wanted))
        {
            return false;
        }
        self.fetch_retained(ctx, session, retained_on);
        session.begin_again(ctx);
        true
    }
}

impl Session {
    /// The LAST_INSERT_ID() that its statement needs on the connection that it takes, if it needs it and it is known.
    fn id_to_give(&self, ctx: &Context) -> Option<u64> {
        let is_elsewhere =
            self.diagnostics.fetching > 0 || self.diagnostics.retained.contains(Retained::INSERT_ID);
        let needs = self.needs_insert_id(ctx) && !self.diagnostics.has_own_insert_id;
        (needs && !is_elsewhere && !self.diagnostics.is_insert_id_lost)
            .then_some(self.diagnostics.last_insert_id)
    }
}

impl Session {
    /// Whether LAST_INSERT_ID() must be the session's where its statement runs.
    pub(crate) fn needs_insert_id(&self, ctx: &Context) -> bool {
        let may_ask = ctx.snapshot.variables.reset_after_hidden_code
            && self.execution.plan.statement().hidden_code
            && matches!(self.execution.plan.kind(), CommandKind::Query | CommandKind::Execute);
        may_ask || self.depends_on_insert_id()
    }

    /// LAST_INSERT_ID() for a statement that asks for it, itself or by its triggers, or may change it, on a connection where it
    /// is not this session's.
    pub(crate) fn insert_id_to_set(&self, ctx: &Context) -> Option<u64> {
        let is_due = self.needs_insert_id(ctx) && !self.diagnostics.has_own_insert_id;
        is_due.then_some(self.diagnostics.last_insert_id)
    }
}

impl Pools {
    /// What the reply tells about the diagnostics that a statement has left.
    pub(crate) fn note_retained(
        &mut self,
        ctx: &Context,
        session: &mut Session,
        insert_id: u64,
        warnings: u16,
        has_rows: bool,
    ) {
        let statement = session.execution.plan.statement();
        let is_hidden = session.runs_several() || statement.effects.contains(Effects::ROUTINE);
        // The id in an OK packet is not always LAST_INSERT_ID(): an explicit id is there, too. And an OK behind
        // rows has none.
        let has_hidden_id = statement.effects.contains(Effects::LAST_INSERT_ID_SET) && has_rows;
        if insert_id != 0 || has_hidden_id || statement.assigns_insert_id {
            session.diagnostics.is_insert_id_lost = false;
        }
        let is_assigned = statement.assigns_insert_id;
        if insert_id != 0 || has_hidden_id || is_hidden || is_assigned {
            self.connections.retain_insert_id(session);
        }
        // MySQL's answer to COM_INIT_DB repeats the number of whatever statement ran last on the connection.
        let has_warned = warnings > 0 || session.execution.reply.has_warned;
        if has_warned && session.execution.plan.kind() != CommandKind::InitDb {
            self.connections.retain_warnings(session);
        } else if self.has_asked_conditions_away(ctx, session) {
            self.connections.drop_outdated(session, Retained::WARNINGS);
            session.diagnostics.saved_warnings = None;
        }
    }

    /// Whether the session's statement has asked for `@@warning_count` or `@@error_count`, and so ended what they count, as
    /// every statement of MySQL (9.7) does but those that show it.
    fn has_asked_conditions_away(&self, ctx: &Context, session: &Session) -> bool {
        session.execution.plan.asks_without_showing() && !self.speaks_mariadb(ctx, session)
    }

    /// A new statement begins: warnings of the one before are over, unless it asks for them or leaves them alone.
    pub(crate) fn outdate_warnings(&mut self, ctx: &Context, session: &mut Session) {
        if !session.diagnostics.retained.contains(Retained::WARNINGS)
            && session.diagnostics.saved_warnings.is_none()
        {
            return;
        }
        if !self.leaves_warnings(ctx, session) {
            self.connections.drop_outdated(session, Retained::WARNINGS);
            session.diagnostics.saved_warnings = None;
        }
    }

    /// Whether the session's statement leaves older warnings where they are, as those do on MariaDB (10.11) that use
    /// no table and raise none.
    pub(crate) fn leaves_warnings(&self, ctx: &Context, session: &Session) -> bool {
        let statement = session.execution.plan.statement();
        if session.runs_several() {
            // Not if one of them changes rows. Else the connection has the answer.
            let kinds = || weir_sql::kinds(session.statement_text(), session.tracked.dialect);
            return self.speaks_mariadb(ctx, session) && !kinds().into_iter().any(Kind::may_run_triggers);
        }
        if (session.execution.plan.kind().is_harmless()
            && !matches!(session.execution.plan.kind(), CommandKind::Prepare | CommandKind::FieldList))
            || session.execution.plan.kind() == CommandKind::InitDb
            || statement.uses.intersects(Uses::DIAGNOSTICS)
        {
            return true;
        }
        // MySQL (9.7) clears them at every other statement.
        session.kind_leaves_warnings() && self.speaks_mariadb(ctx, session)
    }
}

impl Connections {
    /// Only the lease knows the session's LAST_INSERT_ID(), unless it has been lost: then the lease may well have an
    /// older one.
    pub(crate) fn retain_insert_id(&mut self, session: &mut Session) {
        if !session.diagnostics.is_insert_id_lost {
            self.retain_anew(session, Retained::INSERT_ID);
        }
        if let Some(lease) = session.lease() {
            self[lease].known.insert_id = None;
        }
    }

    /// Only the lease knows the session's warnings, or its error.
    pub(crate) fn retain_warnings(&mut self, session: &mut Session) {
        self.retain_anew(session, Retained::WARNINGS);
        session.diagnostics.saved_warnings = None;
    }

    /// The lease has something new: what an older connection knows of the kind is outdated.
    pub(crate) fn retain_anew(&mut self, session: &mut Session, what: Retained) {
        self.drop_outdated(session, what);
        session.diagnostics.retained |= what;
    }

    /// Whether not this connection, but another one still knows that of the session's last statements.
    pub(crate) fn is_retained_elsewhere(
        &self,
        session: &Session,
        key: ConnectionKey,
        what: Retained,
    ) -> bool {
        session.diagnostics.retained_on.is_some_and(|retained_on| {
            let mark = &self[retained_on].traces.retained_for;
            retained_on != key && mark.as_ref().is_some_and(|mark| mark.what.contains(what))
        })
    }

    /// Nothing of the kind is wanted any more.
    pub(crate) fn drop_outdated(&mut self, session: &mut Session, what: Retained) {
        let what = if what.contains(Retained::FOUND_ROWS) { what | Retained::UNASKED } else { what };
        session.diagnostics.retained -= what;
        let Some(retained_on) = session.diagnostics.retained_on else { return };
        if let Some(mark) = &mut self[retained_on].traces.retained_for {
            mark.what -= what;
            if mark.what.is_empty() {
                self[retained_on].traces.retained_for = None;
                session.diagnostics.retained_on = None;
            }
        }
    }

    /// The session's statement is about to run on this connection. Where that may end older warnings or not, as several in one
    /// text and code may, and others have used the connection since, nobody knows them behind it.
    pub(crate) fn lose_warnings_behind_code(&mut self, session: &mut Session, key: ConnectionKey) {
        let has_some = session.diagnostics.retained.contains(Retained::WARNINGS)
            || session.diagnostics.saved_warnings.is_some();
        let may_end = session.execution.plan.may_end_conditions(session.runs_several());
        if has_some && may_end && !self.has_own_conditions(session, key) {
            self.drop_outdated(session, Retained::WARNINGS);
            session.diagnostics.saved_warnings = Some(Box::default());
        }
    }

    /// The session does not need its kept diagnostics any more.
    pub(crate) fn forget_retained(&mut self, session: &mut Session) {
        if session.diagnostics.retained.contains(Retained::FOUND_ROWS) {
            session.diagnostics.found_rows = None;
        }
        session.diagnostics.retained = Retained::empty();
        if let Some(retained_on) = session.diagnostics.retained_on.take() {
            self[retained_on].traces.retained_for = None;
        }
    }

    /// Why a statement that is about to run on this connection can't have the number or the conditions that it asks for: nobody
    /// knows them any more, and older ones would pass for them.
    pub(crate) fn what_is_lost(&self, session: &Session, key: ConnectionKey) -> Option<&'static str> {
        let asks = |uses| session.execution.plan.asks_for(uses);
        if session.diagnostics.is_insert_id_lost && asks(Uses::LAST_INSERT_ID) {
            Some("LAST_INSERT_ID() is lost: the connection that knew it is gone")
        } else if asks(Uses::FOUND_ROWS)
            && session.diagnostics.found_rows.is_none()
            && !self.has_own_found_rows(session, key)
        {
            Some(
                "FOUND_ROWS() is not known: the connection that knew it is gone, or was another one before a statement \
                 that may have run a query or not",
            )
        } else if session.asks_for_copied_conditions() && !self.has_own_conditions(session, key) {
            Some(
                "another session has used the connection: ask for warnings in a statement that is not prepared",
            )
        } else if self[key].known.asks_for_lost_row_count(session) {
            Some(
                "another session has used the connection: ask for ROW_COUNT() in a statement that is not prepared",
            )
        } else {
            None
        }
    }
}
