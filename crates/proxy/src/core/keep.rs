//! Diagnostics of a session that only its last connection knows (warnings, LAST_INSERT_ID(), FOUND_ROWS()).
//!
//! They do not pin the session: the idle connection is marked, and whoever takes it first has them fetched into
//! the session that they belong to. So nothing is asked for as long as nobody else needs the connection, and
//! nothing is lost when somebody does.

use weir_protocol::frame::{HEADER_LEN, Header};
use weir_protocol::response::Step;
use weir_protocol::wire::Reader;
use weir_sql::{Effects, Kind, Uses};

use super::Core;
use super::model::{BackendKey, Expected, Fetch, Keeps, Kept, SessionKey};

/// A SHOW WARNINGS result larger than this is not saved (64 rows of max_error_count are some 30 KB).
const WARNINGS_BYTES_MAX: usize = 128 << 10;

impl Core {
    /// What the reply tells about the diagnostics that a statement has left.
    pub(super) fn note_kept(&mut self, key: SessionKey, insert_id: u64, warnings: u16, has_rows: bool) {
        let statement = self.sessions[key].work.statement;
        // The id in an OK packet is not always LAST_INSERT_ID(): an explicit id is there, too. And an OK behind
        // rows has none.
        let is_hidden = statement.multi
            || statement.effects.contains(Effects::ROUTINE)
            || (statement.effects.contains(Effects::LAST_INSERT_ID_SET) && has_rows);
        if insert_id != 0 || is_hidden {
            self.keep_insert_id(key);
        }
        let session = &mut self.sessions[key];
        if warnings > 0 {
            session.keeps |= Keeps::WARNINGS;
            session.saved_warnings = None;
        }
        session.keeps.set(
            Keeps::FOUND_ROWS,
            statement.effects.contains(Effects::FOUND_ROWS_CALC)
                || (session.keeps.contains(Keeps::FOUND_ROWS) && !is_select(statement.kind)),
        );
    }

    /// Only the lease knows the session's LAST_INSERT_ID().
    pub(super) fn keep_insert_id(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.keeps |= Keeps::INSERT_ID;
        if let Some(lease) = session.lease {
            self.backends[lease].insert_id = None;
        }
    }

    /// A new statement begins: warnings of the one before are over, unless it asks for them or leaves them alone.
    pub(super) fn outdate_kept(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        let statement = session.work.statement;
        let leaves_warnings = statement.uses.intersects(Uses::DIAGNOSTICS)
            || matches!(
                statement.kind,
                Kind::Set
                    | Kind::Use
                    | Kind::Begin
                    | Kind::Commit
                    | Kind::Rollback
                    | Kind::Savepoint
                    | Kind::Empty
            );
        if leaves_warnings || (session.keeps.is_empty() && session.saved_warnings.is_none()) {
            return;
        }
        session.saved_warnings = None;
        session.keeps -= Keeps::WARNINGS;
        if is_select(statement.kind) && !statement.uses.contains(Uses::FOUND_ROWS) {
            session.keeps -= Keeps::FOUND_ROWS;
        }
        let keeps = session.keeps;
        if let Some(kept) = session.kept {
            if keeps.is_empty() {
                self.forget_kept(key);
            } else if let Some(mark) = &mut self.backends[kept].kept_for {
                mark.what = keeps;
            }
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
        let fetch = |core: &mut Self, what: Keeps, text: &[u8]| {
            let Kept { session, socket, .. } = kept;
            core.send_query(key, text);
            core.expect(
                key,
                Expected::Fetch(Fetch { session, socket, what, bytes: Vec::new(), is_too_long: false }),
            );
            let owner = &mut core.sessions[session];
            owner.fetching += 1;
            owner.keeps -= what;
        };
        // SHOW WARNINGS leaves the other two alone.
        if kept.what.contains(Keeps::WARNINGS) {
            fetch(self, Keeps::WARNINGS, b"SHOW WARNINGS");
        }
        let numbers = kept.what - Keeps::WARNINGS;
        if !numbers.is_empty() {
            fetch(self, numbers, b"SELECT LAST_INSERT_ID(), FOUND_ROWS()");
        }
    }

    /// Fetched diagnostics have come.
    pub(super) fn fetched(&mut self, key: BackendKey, fetch: Fetch) {
        if self.session_is(fetch.session, fetch.socket) {
            let session = &mut self.sessions[fetch.session];
            session.fetching -= 1;
            if fetch.what.contains(Keeps::WARNINGS) {
                session.saved_warnings = (!fetch.is_too_long).then(|| fetch.bytes.into());
            } else if let Some((insert_id, found_rows)) = last_numbers(&fetch.bytes) {
                if fetch.what.contains(Keeps::INSERT_ID) {
                    session.last_insert_id = insert_id;
                    // The taker's own id may have been set behind the question already.
                    self.backends[key].insert_id.get_or_insert(insert_id);
                }
                if fetch.what.contains(Keeps::FOUND_ROWS) {
                    session.found_rows = found_rows;
                }
            }
            self.runnable.push_back((fetch.session, fetch.socket));
        }
        self.go_on(key);
    }

    /// The session does not need its kept diagnostics any more.
    pub(super) fn forget_kept(&mut self, key: SessionKey) {
        let session = &mut self.sessions[key];
        session.keeps = Keeps::empty();
        if let Some(kept) = session.kept.take() {
            self.backends[kept].kept_for = None;
        }
    }

    /// A connection goes: what it knew is lost.
    pub(super) fn drop_kept(&mut self, key: BackendKey) {
        for expected in std::mem::take(&mut self.backends[key].expected) {
            if let Expected::Fetch(fetch) = expected
                && self.session_is(fetch.session, fetch.socket)
            {
                self.sessions[fetch.session].fetching -= 1;
                self.runnable.push_back((fetch.session, fetch.socket));
            }
        }
        if let Some(kept) = self.backends[key].kept_for.take()
            && self.session_is(kept.session, kept.socket)
        {
            let session = &mut self.sessions[kept.session];
            session.kept = None;
            session.keeps = Keeps::empty();
        }
    }
}

impl Fetch {
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

fn is_select(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::With | Kind::Values | Kind::Table)
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
