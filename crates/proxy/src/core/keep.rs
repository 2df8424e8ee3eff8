//! Diagnostics of a session that only its last connection knows (warnings, LAST_INSERT_ID(), FOUND_ROWS()).
//!
//! They do not pin the session: the idle connection is marked, and whoever takes it first has them fetched into
//! the session that they belong to. So nothing is asked for as long as nobody else needs the connection, and
//! nothing is lost when somebody does.

use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::ok::ErrPacket;
use weir_protocol::response::Step;
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind, Uses};

use super::Core;
use super::model::{
    BackendKey, Expected, Fetch, Keeps, Kept, Phase, SavedWarnings, Session, SessionKey, WorkKind,
};

/// A SHOW WARNINGS result larger than this is not saved (64 rows of max_error_count are some 30 KB).
const WARNINGS_BYTES_MAX: usize = 128 << 10;

impl Core {
    /// What the reply tells about the diagnostics that a statement has left.
    pub(super) fn note_kept(&mut self, key: SessionKey, insert_id: u64, warnings: u16, has_rows: bool) {
        let statement = self.sessions[key].work.statement;
        let is_hidden = self.sessions[key].runs_several() || statement.effects.contains(Effects::ROUTINE);
        // The id in an OK packet is not always LAST_INSERT_ID(): an explicit id is there, too. And an OK behind
        // rows has none.
        let has_hidden_id = statement.effects.contains(Effects::LAST_INSERT_ID_SET) && has_rows;
        if insert_id != 0 || has_hidden_id || statement.assigns_insert_id {
            self.sessions[key].is_insert_id_lost = false;
        }
        let is_assigned = statement.assigns_insert_id;
        if insert_id != 0 || has_hidden_id || is_hidden || is_assigned {
            self.keep_insert_id(key);
        }
        // MySQL's answer to COM_INIT_DB repeats the number of whatever statement ran last on the connection.
        let has_warned = warnings > 0 || self.sessions[key].work.has_warned;
        if has_warned && self.sessions[key].work.kind != WorkKind::InitDb {
            self.keep_warnings(key);
        } else if self.has_asked_conditions_away(key) {
            self.outdate(key, Keeps::WARNINGS);
            self.sessions[key].saved_warnings = None;
        }
    }

    /// Whether the session's statement has asked for `@@warning_count` or `@@error_count`, and so ended what they count, as
    /// every statement of MySQL (9.7) does but those that show it.
    fn has_asked_conditions_away(&self, key: SessionKey) -> bool {
        let work = &self.sessions[key].work;
        work.statement.uses.contains(Uses::DIAGNOSTICS)
            && matches!(work.kind, WorkKind::Query | WorkKind::Execute)
            && !matches!(
                work.statement.kind,
                Kind::ShowWarnings
                    | Kind::ShowErrors
                    | Kind::ShowCountWarnings
                    | Kind::ShowCountErrors
                    | Kind::GetDiagnostics
            )
            && !self.speaks_mariadb(key)
    }

    /// Only the lease knows the session's LAST_INSERT_ID(), unless it has been lost: then the lease may well have an
    /// older one.
    pub(super) fn keep_insert_id(&mut self, key: SessionKey) {
        if !self.sessions[key].is_insert_id_lost {
            self.keep_anew(key, Keeps::INSERT_ID);
        }
        if let Some(lease) = self.sessions[key].lease {
            self.backends[lease].insert_id = None;
        }
    }

    /// Only the lease knows the session's warnings, or its error.
    pub(super) fn keep_warnings(&mut self, key: SessionKey) {
        self.keep_anew(key, Keeps::WARNINGS);
        self.sessions[key].saved_warnings = None;
    }

    /// The lease has something new: what an older connection knows of the kind is outdated.
    pub(super) fn keep_anew(&mut self, key: SessionKey, what: Keeps) {
        self.outdate(key, what);
        self.sessions[key].keeps |= what;
    }

    /// Nothing of the kind is wanted any more.
    pub(super) fn outdate(&mut self, key: SessionKey, what: Keeps) {
        let what = if what.contains(Keeps::FOUND_ROWS) { what | Keeps::UNASKED } else { what };
        let session = &mut self.sessions[key];
        session.keeps -= what;
        let Some(kept) = session.kept else { return };
        if let Some(mark) = &mut self.backends[kept].kept_for {
            mark.what -= what;
            if mark.what.is_empty() {
                self.backends[kept].kept_for = None;
                self.sessions[key].kept = None;
            }
        }
    }

    /// A new statement begins: warnings of the one before are over, unless it asks for them or leaves them alone.
    pub(super) fn outdate_kept(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        if !session.keeps.contains(Keeps::WARNINGS) && session.saved_warnings.is_none() {
            return;
        }
        if !self.leaves_warnings(key) {
            self.outdate(key, Keeps::WARNINGS);
            self.sessions[key].saved_warnings = None;
        }
    }

    /// The session's statement is about to run on this connection. Where that may end older warnings or not, as several in one
    /// text and code may, and others have used the connection since, nobody knows them behind it.
    pub(super) fn lose_warnings_behind_code(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &self.sessions[holder];
        let has_some = session.keeps.contains(Keeps::WARNINGS) || session.saved_warnings.is_some();
        let runs_code = matches!(
            session.work.statement.kind,
            Kind::Call | Kind::Execute | Kind::ExecuteImmediate | Kind::Compound
        );
        let may_end = session.work.kind != WorkKind::Prepare && (session.runs_several() || runs_code);
        if has_some && may_end && !self.has_own_conditions(key, holder) {
            self.outdate(holder, Keeps::WARNINGS);
            self.sessions[holder].saved_warnings = Some(Box::default());
        }
    }

    /// Whether the session's statement leaves older warnings where they are, as those do on MariaDB (10.11) that use
    /// no table and raise none.
    pub(super) fn leaves_warnings(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let statement = session.work.statement;
        if session.runs_several() {
            // Not if one of them changes rows. Else the connection has the answer.
            let kinds = || weir_sql::kinds(self.statement_text(key), session.dialect);
            return self.speaks_mariadb(key) && !kinds().into_iter().any(Kind::may_run_triggers);
        }
        if (session.work.kind.is_harmless()
            && !matches!(session.work.kind, WorkKind::Prepare | WorkKind::FieldList))
            || session.work.kind == WorkKind::InitDb
            || statement.uses.intersects(Uses::DIAGNOSTICS)
        {
            return true;
        }
        // MySQL (9.7) clears them at every other statement.
        self.kind_leaves_warnings(key) && self.speaks_mariadb(key)
    }

    /// Whether statements of this kind leave older warnings where they are (MariaDB 10.11).
    pub(super) fn kind_leaves_warnings(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        match session.work.statement.kind {
            Kind::Empty
            | Kind::Use
            | Kind::SetTransaction
            | Kind::SetRole
            | Kind::Begin
            | Kind::StartTransactionReadOnly
            | Kind::Commit
            | Kind::Rollback
            | Kind::RollbackTo
            | Kind::Savepoint
            | Kind::ReleaseSavepoint
            | Kind::UnlockTables
            | Kind::Deallocate
            | Kind::Kill
            | Kind::XaStart
            | Kind::XaEnd
            | Kind::XaPrepare
            | Kind::XaCommit
            | Kind::XaRollback
            | Kind::XaRecover
            | Kind::RenameUser
            | Kind::SetPassword
            | Kind::Help
            | Kind::Flush
            | Kind::BackupStage => true,
            Kind::Select
            | Kind::With
            | Kind::Values
            | Kind::Do
            | Kind::Set
            | Kind::SetStatement
            | Kind::Explain => !self.may_use_tables(key),
            Kind::Create
            | Kind::CreateRoutine
            | Kind::Alter
            | Kind::Drop
            | Kind::Grant
            | Kind::Revoke
            | Kind::Show
            | Kind::Prepare => weir_sql::opens_no_table(self.statement_text(key), session.dialect),
            // Who knows what they run; the connection has the answer.
            Kind::Call | Kind::Execute | Kind::ExecuteImmediate | Kind::Compound => true,
            _ => false,
        }
    }

    /// Whether the session's statement may use a table.
    fn may_use_tables(&self, key: SessionKey) -> bool {
        weir_sql::may_use_tables(self.statement_text(key), self.sessions[key].dialect)
    }

    /// The text of the session's statement, also of one that was prepared.
    pub(super) fn statement_text(&self, key: SessionKey) -> &[u8] {
        match &self.sessions[key].work.prepared {
            Some(prepared) => prepared.text(),
            None => self.text(key),
        }
    }

    /// The lease is about to be released: what only it knows is marked on it.
    pub(super) fn keep(&mut self, key: BackendKey, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        if session.keeps.is_empty() {
            return;
        }
        if let Some(other) = session.kept
            && other != key
        {
            // Two connections know something: the older one is asked now.
            self.fetch_kept(other, SessionKey::MAX);
        }
        let session = &mut self.sessions[holder];
        if session.keeps.is_empty() {
            return;
        }
        let socket = session.socket;
        session.kept = Some(key);
        self.backends[key].kept_for = Some(Kept { session: holder, socket, what: session.keeps });
    }

    /// `taker` takes an idle connection: diagnostics of another session on it are fetched first.
    pub(super) fn fetch_kept(&mut self, key: BackendKey, taker: SessionKey) {
        let insert_id = self.backends[key].insert_id;
        if let Some(session) = self.sessions.get_mut(taker) {
            session.has_own_insert_id = insert_id == Some(session.last_insert_id);
        }
        let Some(kept) = self.backends[key].kept_for.take() else { return };
        if !self.session_is(kept.session, kept.socket) {
            return;
        }
        self.sessions[kept.session].kept = None;
        if kept.session == taker {
            self.sessions[taker].has_own_insert_id |= kept.what.contains(Keeps::INSERT_ID);
            return;
        }
        let fetch = |core: &mut Self, what: Keeps, text: &[u8], gives_id: bool| {
            let Kept { session, socket, .. } = kept;
            core.send_query(key, text);
            let encoding = core.results_on(key);
            let fetch =
                Fetch { session, socket, what, bytes: Vec::new(), is_too_long: false, encoding, gives_id };
            core.expect(key, Expected::Fetch(fetch));
            let owner = &mut core.sessions[session];
            owner.fetching += 1;
            owner.keeps -= what;
        };
        // SHOW WARNINGS leaves the other two alone.
        if kept.what.contains(Keeps::WARNINGS) {
            fetch(self, Keeps::WARNINGS, b"SHOW WARNINGS", false);
        }
        let mut numbers = kept.what - Keeps::WARNINGS;
        if numbers.contains(Keeps::UNASKED) {
            numbers -= Keeps::FOUND_ROWS | Keeps::UNASKED;
            let owner = &mut self.sessions[kept.session];
            owner.keeps -= Keeps::FOUND_ROWS | Keeps::UNASKED;
            owner.found_rows = None;
        }
        if !numbers.is_empty() {
            // MySQL raises a warning for FOUND_ROWS(): it is asked for only where it is wanted.
            let rows = if numbers.contains(Keeps::FOUND_ROWS) { "FOUND_ROWS()" } else { "0" };
            // As binary strings: results may be in a character set that does not write digits as ASCII does.
            let text = format!(
                "SELECT CAST(CONVERT(LAST_INSERT_ID() USING latin1) AS BINARY), \
                 CAST(CONVERT({rows} USING latin1) AS BINARY)"
            );
            match self.id_to_give(taker) {
                None => fetch(self, numbers, text.as_bytes(), false),
                Some(id) => {
                    // Columns are evaluated from left to right (MariaDB 10.11, MySQL 9): one statement asks for the
                    // one session's id and gives the other one's to the connection.
                    fetch(self, numbers, format!("{text}, LAST_INSERT_ID({id})").as_bytes(), true);
                    self.backends[key].insert_id = Some(id);
                    self.sessions[taker].has_own_insert_id = true;
                }
            }
        }
    }

    /// Whether LAST_INSERT_ID() must be the session's where its statement runs.
    pub(super) fn needs_insert_id(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let may_ask = self.snapshot.variables.reset_after_hidden_code
            && session.work.statement.hidden_code
            && matches!(session.work.kind, WorkKind::Query | WorkKind::Execute);
        may_ask || session.depends_on_insert_id()
    }

    /// The LAST_INSERT_ID() that the taker's statement needs on its connection, if it needs it and it is known.
    fn id_to_give(&self, taker: SessionKey) -> Option<u64> {
        let session = self.sessions.get(taker)?;
        let is_elsewhere = session.fetching > 0 || session.keeps.contains(Keeps::INSERT_ID);
        let needs = self.needs_insert_id(taker) && !session.has_own_insert_id;
        (needs && !is_elsewhere && !session.is_insert_id_lost).then_some(session.last_insert_id)
    }

    /// The question was refused. What was to give the taker its id has not done so, and it is given on its own, unless
    /// the statement that needs it is under way already.
    pub(super) fn fetch_refused(&mut self, key: BackendKey, error: ServerError, text: &str) {
        let backend = &mut self.backends[key];
        let Some(Expected::Fetch(fetch)) = backend.expected.front() else { return };
        let (owner, gives_id) = (fetch.session, fetch.gives_id);
        if backend.holder == Some(owner) {
            return self.saving_refused(key, owner, error, text);
        }
        if !gives_id {
            return;
        }
        backend.insert_id = None;
        let Some(holder) = backend.holder else { return };
        self.sessions[holder].has_own_insert_id = false;
        if self.sessions[holder].work.is_sent {
            self.insert_id_refused(key, error, text);
        }
    }

    /// The same on the holder's own lease. In a transaction it may be Galera's 1213, which was meant for the client: for
    /// the statement that is about to be sent, else for the next one.
    fn saving_refused(&mut self, key: BackendKey, holder: SessionKey, error: ServerError, text: &str) {
        let session = &mut self.sessions[holder];
        if error.code != error::LOCK_DEADLOCK.code || !session.pins.pins().contains(Pins::TRANSACTION) {
            return;
        }
        if matches!(session.phase, Phase::Running) && !session.work.is_sent {
            return self.refused_in_front(key, holder, error, text);
        }
        session.owed_error = Some(Box::new((error, text.into())));
    }

    /// The holder's diagnostics are fetched from its own lease, on which a statement of Weir's is about to end them.
    pub(super) fn save_diagnostics(&mut self, key: BackendKey, holder: SessionKey) {
        self.keep(key, holder);
        self.fetch_kept(key, SessionKey::MAX);
    }

    /// What the lease knows of its session is fetched before a command that ends it there. True if it has to be waited for.
    pub(super) fn saves_first(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        let ends = match session.work.kind {
            // It stays over a reset, behind which the connection does not know it.
            WorkKind::Reset => Keeps::FOUND_ROWS,
            // A query of Weir's own.
            WorkKind::Track => Keeps::FOUND_ROWS | Keeps::WARNINGS | Keeps::INSERT_ID,
            // What ends the conditions is a query itself.
            _ if self.needs_no_conditions(key, holder) => Keeps::FOUND_ROWS,
            _ => return false,
        };
        if !session.keeps.intersects(ends) {
            return false;
        }
        self.save_diagnostics(key, holder);
        // A number for which hardly anybody asks is not fetched but given up.
        !self.backends[key].expected.is_empty()
    }

    /// Whether a statement has to wait for numbers that it needs from a connection other than its lease.
    pub(super) fn waits_for_kept(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        if session.kept.is_none() && session.fetching == 0 {
            return false;
        }
        let mut needed = Keeps::empty();
        needed.set(Keeps::INSERT_ID, self.needs_insert_id(holder));
        needed.set(Keeps::FOUND_ROWS, self.needs_found_rows(holder));
        needed.set(Keeps::WARNINGS, session.executes_question());
        if needed.is_empty() {
            return false;
        }
        if let Some(kept) = session.kept
            && kept != key
            && session.keeps.intersects(needed)
        {
            self.fetch_kept(kept, SessionKey::MAX);
        }
        self.sessions[holder].fetching > 0
    }

    /// The session's statement asks for diagnostics, and not the lease where it will run knows them but a connection
    /// that the session had before: they are fetched first, and then the statement is begun again.
    pub(super) fn fetches_from_elsewhere(&mut self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        let uses = session.work.statement.uses;
        let mut wanted = Keeps::empty();
        wanted.set(Keeps::WARNINGS, uses.contains(Uses::DIAGNOSTICS));
        wanted.set(Keeps::FOUND_ROWS, uses.contains(Uses::FOUND_ROWS));
        let Some(kept) = session.kept.filter(|kept| session.lease.is_some_and(|lease| lease != *kept)) else {
            return false;
        };
        if !self.backends[kept].kept_for.is_some_and(|mark| mark.what.intersects(wanted)) {
            return false;
        }
        self.fetch_kept(kept, SessionKey::MAX);
        self.begin_again(key);
        true
    }

    /// Fetched diagnostics have come.
    pub(super) fn fetched(&mut self, key: BackendKey, fetch: Fetch) {
        if self.session_is(fetch.session, fetch.socket) {
            self.out.pause(fetch.socket, false);
            let session = &mut self.sessions[fetch.session];
            session.fetching -= 1;
            if fetch.what.contains(Keeps::WARNINGS) {
                let mut packets = if fetch.has_rows() { fetch.bytes } else { Vec::new() };
                packets.shrink_to_fit();
                session.saved_warnings = Some(Box::new(SavedWarnings { packets, encoding: fetch.encoding }));
            } else if let Some((insert_id, found_rows)) = last_numbers(&fetch.bytes) {
                if fetch.what.contains(Keeps::INSERT_ID) {
                    session.last_insert_id = insert_id;
                    session.is_insert_id_lost = false;
                    if let Some(lease) = session.lease {
                        session.has_own_insert_id = self.backends[lease].insert_id == Some(insert_id);
                    }
                    // The taker's own id may have been set behind the question already.
                    self.backends[key].insert_id.get_or_insert(insert_id);
                }
                if fetch.what.contains(Keeps::FOUND_ROWS) {
                    session.found_rows = Some(found_rows);
                }
            } else {
                session.is_insert_id_lost |= fetch.what.contains(Keeps::INSERT_ID);
                if fetch.what.contains(Keeps::FOUND_ROWS) {
                    session.found_rows = None;
                }
            }
            self.runnable.push_back((fetch.session, fetch.socket));
        }
        self.go_on(key);
    }

    /// The session does not need its kept diagnostics any more.
    pub(super) fn forget_kept(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        if session.keeps.contains(Keeps::FOUND_ROWS) {
            session.found_rows = None;
        }
        session.keeps = Keeps::empty();
        if let Some(kept) = session.kept.take() {
            self.backends[kept].kept_for = None;
        }
    }

    /// A connection goes: what it knew is lost.
    pub(super) fn drop_kept(&mut self, key: BackendKey) {
        let server = self.backends[key].server;
        for expected in std::mem::take(&mut self.backends[key].expected) {
            self.servers[server].running -= u32::from(expected.is_statement());
            if let Expected::Fetch(fetch) = expected
                && self.session_is(fetch.session, fetch.socket)
            {
                self.out.pause(fetch.socket, false);
                let session = &mut self.sessions[fetch.session];
                session.fetching -= 1;
                session.lose(fetch.what);
                self.runnable.push_back((fetch.session, fetch.socket));
            }
        }
        if let Some(kept) = self.backends[key].kept_for.take()
            && self.session_is(kept.session, kept.socket)
        {
            let session = &mut self.sessions[kept.session];
            session.kept = None;
            session.keeps = Keeps::empty();
            session.lose(kept.what);
        }
    }

    /// A session's lease is gone, and with it what only the lease knew.
    pub(super) fn lose_lease(&mut self, holder: SessionKey) {
        let session = &mut self.sessions[holder];
        session.lease = None;
        if session.kept.is_none() {
            session.lose(session.keeps);
            session.keeps = Keeps::empty();
        }
    }

    /// Refuses a statement that asks for a number that nobody knows any more: an older one would pass for it.
    pub(super) fn refuses_lost(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &self.sessions[holder];
        let work = &session.work;
        let asks = |uses| {
            work.statement.uses.contains(uses) && !work.statement.multi && work.kind != WorkKind::Prepare
        };
        let message = if session.is_insert_id_lost && asks(Uses::LAST_INSERT_ID) {
            "LAST_INSERT_ID() is not known any more: the connection that knew it is gone"
        } else if asks(Uses::FOUND_ROWS)
            && session.found_rows.is_none()
            && !self.has_own_found_rows(key, holder)
        {
            "FOUND_ROWS() is not known: the connection that knew it is gone, or was another one before a statement \
             that may have run a query or not"
        } else if session.asks_for_copied_conditions() && !self.has_own_conditions(key, holder) {
            "another session has used the connection: ask for warnings in a statement that is not prepared"
        } else if self.asks_for_lost_row_count(key, holder) {
            "another session has used the connection: ask for ROW_COUNT() in a statement that is not prepared"
        } else {
            return false;
        };
        if session.upload.is_some() {
            self.fail_session(holder, error::UNKNOWN_ERROR, message);
        } else {
            self.refuse(holder, message);
            self.answered_here(holder);
            self.release_if_free(holder);
        }
        true
    }
}

impl Session {
    /// The connection that knew this is gone.
    fn lose(&mut self, what: Keeps) {
        self.is_insert_id_lost |= what.contains(Keeps::INSERT_ID);
        if what.contains(Keeps::FOUND_ROWS) {
            self.found_rows = None;
        }
        if what.contains(Keeps::WARNINGS) {
            self.saved_warnings = Some(Box::default());
        }
    }
}

impl Fetch {
    /// Whether all the rows are there: too many are not kept, and the server may have refused to show them.
    fn has_rows(&self) -> bool {
        !self.is_too_long && self.bytes.get(HEADER_LEN) != Some(&ErrPacket::HEADER)
    }

    /// Takes a piece of the reply.
    pub(super) fn take(&mut self, step: Step, bytes: &[u8]) {
        let wanted = self.what.contains(Keeps::WARNINGS) || matches!(step, Step::Pass(_));
        if wanted && self.bytes.len() + bytes.len() <= WARNINGS_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
        } else if wanted {
            self.is_too_long = true;
        }
    }
}

/// The two numbers of the last row among these packets.
fn last_numbers(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut rest = bytes;
    let mut row = None;
    while let Some(header) = Header::parse(rest) {
        let end = HEADER_LEN + header.len;
        row = rest.get(HEADER_LEN..end);
        rest = rest.get(end..)?;
    }
    let mut reader = Reader::new(row?);
    let mut number = || std::str::from_utf8(reader.lenenc_bytes().ok()?).ok()?.parse().ok();
    Some((number()?, number()?))
}
