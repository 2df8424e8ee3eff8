//! Read-only transactions: a reader may have them as a whole.
//!
//! All of such a transaction runs on the server where it began, which refuses writes in it (1792). But MariaDB ends it,
//! as any transaction, with a statement that commits implicitly, and runs that: DDL, BEGIN, LOCK TABLES and the like.
//! So on a reader Weir commits first, and the statement goes where it would go without a transaction.

use weir_protocol::capability::Capabilities;
use weir_protocol::error;
use weir_session::pin::Pins;
use weir_sql::{Access, Effects, Kind};

use super::Core;
use super::local::Outcome;
use super::model::{BackendKey, Expected, Phase, Session, SessionKey, WorkKind};

/// What would hold a session on its reader beyond the transaction, or do there what nobody can see.
const HOLDING: Effects = Effects::USER_VARIABLE
    .union(Effects::TEMPORARY_TABLE_CREATED)
    .union(Effects::LOCK_ACQUIRED)
    .union(Effects::TEXT_PREPARE)
    .union(Effects::HANDLER_OPENED)
    .union(Effects::ROLE_CHANGED)
    .union(Effects::SEQUENCE)
    .union(Effects::ROUTINE)
    .union(Effects::ONE_SHOT)
    .union(Effects::UNREADABLE_VARIABLE)
    .union(Effects::UNTRACKED)
    .union(Effects::UNKNOWN);

/// What a statement on a reader's lease may do that is no read.
enum OnReader {
    /// The server knows what to do with it.
    Stays,
    /// It would end the transaction and go on as a write.
    Leaves,
    /// It would hold the session on the reader.
    Holds,
    /// There is no transaction that protects the reader.
    Unprotected,
}

impl Core {
    /// SET TRANSACTION READ ONLY with nothing else: it becomes part of the statement that begins the transaction.
    pub(super) fn announces_read_only(&mut self, key: SessionKey) -> Option<Outcome> {
        let session = &self.sessions[key];
        if session.work.statement.kind != Kind::SetTransaction
            || session.lease.is_some()
            || session.track.is_some()
            || !has_words(self.text(key), &["SET", "TRANSACTION", "READ", "ONLY"])
        {
            return None;
        }
        self.outdate_kept(key);
        self.sessions[key].is_next_read_only = true;
        self.sessions[key].row_count = 0;
        self.reply_ok(key);
        Some(Outcome::Answered)
    }

    /// Looks whether the session's statement begins a transaction that a reader may have.
    pub(super) fn plan_read_only(&mut self, key: SessionKey) {
        let session = &self.sessions[key];
        let statement = session.work.statement;
        if session.upload.is_some() || statement.multi || !session.is_text_certain {
            return;
        }
        let is_plain_begin = statement.kind == Kind::Begin && !has_word(self.text(key), "WRITE");
        if is_plain_begin && session.is_next_read_only {
            let has_snapshot = has_word(self.text(key), "SNAPSHOT");
            let text: &[u8] = match has_snapshot {
                true => b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
                false => b"START TRANSACTION READ ONLY",
            };
            let work = &mut self.sessions[key].work;
            work.statement.kind = Kind::StartTransactionReadOnly;
            work.rewritten = Some(text.to_vec());
        }
        let session = &mut self.sessions[key];
        let begins = session.work.statement.kind == Kind::StartTransactionReadOnly
            || (is_plain_begin && session.begins_read_only());
        if matches!(session.work.statement.kind, Kind::StartTransactionReadOnly | Kind::Begin) {
            // What was announced is in the statement, or the statement says otherwise.
            session.is_next_read_only = false;
        }
        if begins && session.lease.is_none() && !self.has_read_only_on_writer(key) {
            let work = &mut self.sessions[key].work;
            work.begins_read_only = true;
            work.is_read = true;
        }
    }

    /// Whether a read of the session may go to a reader although it begins a transaction (autocommit=0).
    pub(super) fn may_begin_on_reader(&self, key: SessionKey) -> bool {
        let session = &self.sessions[key];
        session.work.begins_read_only || (session.begins_read_only() && !self.has_read_only_on_writer(key))
    }

    /// SET TRANSACTION READ ONLY was answered by Weir and something else than BEGIN follows: now it is sent.
    pub(super) fn put_announced(&mut self, key: BackendKey, holder: SessionKey) -> bool {
        let session = &mut self.sessions[holder];
        if !session.is_next_read_only {
            return false;
        }
        session.is_next_read_only = false;
        session.work.has_announced = !session.pins.pins().contains(Pins::NEXT_TRANSACTION);
        session.pins.insert(Pins::NEXT_TRANSACTION);
        self.send_query(key, b"SET TRANSACTION READ ONLY");
        self.expect(key, Expected::Sync(None));
        true
    }

    /// The session's command is no read, and its lease leads to a reader. True if it may run there; otherwise
    /// everything has been seen to.
    pub(super) fn may_run_on_reader(&mut self, key: SessionKey, lease: BackendKey) -> bool {
        match self.sessions[key].on_reader() {
            // Who changes the same rows does not meet these locks, on the writer.
            OnReader::Stays if self.may_lock_rows(key) => self.refuse_holding(key, lease),
            OnReader::Stays => return true,
            OnReader::Leaves => {
                self.sessions[key].phase = Phase::Running;
                self.send_query(lease, b"COMMIT AND NO CHAIN NO RELEASE");
                self.expect(lease, Expected::Leave);
            }
            OnReader::Holds => self.refuse_holding(key, lease),
            OnReader::Unprotected => {
                let session = &self.sessions[key];
                let endpoint = &self.servers[self.backends[lease].server].server.endpoint;
                let message = format!(
                    "The session is pinned to the reader {endpoint} ({}), where nothing may be written: \
                     COM_RESET_CONNECTION or a new connection ends that",
                    session.pins.pins().words()
                );
                self.fail_session(key, error::UNKNOWN_ERROR, &message);
            }
        }
        false
    }

    /// Rolls the transaction back as a server does that has to (1213: the application begins again), and keeps the
    /// user's further read-only transactions on the writer.
    fn refuse_holding(&mut self, key: SessionKey, lease: BackendKey) {
        let endpoint = self.servers[self.backends[lease].server].server.endpoint.clone();
        let user = self.user_of(key).to_owned();
        let message = format!(
            "This read-only transaction ran on the reader {endpoint}, and the statement would have held the session \
             there for longer, or have locked rows there only: it is rolled back. From now on read-only transactions of user '{user}' run on the \
             writer; try restarting transaction"
        );
        tracing::info!(user, endpoint, "read-only transactions go to the writer from now on");
        self.read_only_on_writer.insert(user);
        let session = &mut self.sessions[key];
        let may_go = session.pins.pins() == Pins::TRANSACTION;
        if !may_go {
            self.refuse(key, &message);
            return self.answered_here(key);
        }
        session.pins.remove(Pins::TRANSACTION);
        session.is_read_only = false;
        session.is_pinned_to_reader = false;
        self.lose_lease(key);
        self.backends[lease].holder = None;
        self.recycle(lease, Pins::TRANSACTION);
        self.reply_error(key, error::LOCK_DEADLOCK, &message);
        self.answered_here(key);
    }

    /// The COMMIT in front of a statement that ends a read-only transaction has been answered. Should it have failed,
    /// nothing is lost but the connection.
    pub(super) fn left_reader(&mut self, key: BackendKey) {
        let Some(holder) = self.backends[key].holder else { return self.go_on(key) };
        self.detach(holder);
        let session = &mut self.sessions[holder];
        session.is_pinned_to_reader = false;
        session.is_read_only = false;
        session.pins.remove(Pins::TRANSACTION);
        session.phase = Phase::Waiting(self.now);
        self.offer(key);
        self.acquire(holder);
    }

    /// Whether a query may have FOR UPDATE, FOR SHARE or LOCK IN SHARE MODE, none of which a sure read has.
    fn may_lock_rows(&self, key: SessionKey) -> bool {
        let statement = self.sessions[key].work.statement;
        let is_query = matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table);
        let text = self.statement_text(key);
        is_query && statement.access != Access::Read && (has_word(text, "UPDATE") || has_word(text, "SHARE"))
    }

    fn has_read_only_on_writer(&self, key: SessionKey) -> bool {
        self.read_only_on_writer.contains(self.user_of(key))
    }

    fn user_of(&self, key: SessionKey) -> &str {
        self.sessions[key].account.as_ref().map_or("", |account| &account.user.username)
    }
}

impl Session {
    /// Transactions of this session are read-only unless they say otherwise: SET SESSION TRANSACTION READ ONLY.
    fn begins_read_only(&self) -> bool {
        ["tx_read_only", "transaction_read_only"]
            .iter()
            .any(|name| self.state.variable(name).is_some_and(|value| matches!(value, "ON" | "1")))
    }

    fn on_reader(&self) -> OnReader {
        let statement = self.work.statement;
        match self.work.kind {
            WorkKind::Query | WorkKind::Execute => {}
            // A reset ends what holds the session here.
            WorkKind::Reset => return OnReader::Stays,
            _ if self.is_read_only => return OnReader::Stays,
            _ => return OnReader::Unprotected,
        }
        if !self.is_read_only {
            return OnReader::Unprotected;
        }
        let may_hide_more = self.upload.is_some()
            || (statement.multi && self.capabilities.contains(Capabilities::MULTI_STATEMENTS));
        if may_hide_more || statement.effects.intersects(HOLDING) {
            return OnReader::Holds;
        }
        let is_only_in_transaction = self.pins.pins() == Pins::TRANSACTION;
        match statement.kind {
            Kind::Select
            | Kind::With
            | Kind::Values
            | Kind::Table
            | Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::LoadData
            | Kind::Do
            | Kind::Set
            | Kind::SetTransaction
            | Kind::Use
            | Kind::Commit
            | Kind::Rollback
            | Kind::RollbackTo
            | Kind::Savepoint
            | Kind::ReleaseSavepoint
            | Kind::Deallocate
            | Kind::Show
            | Kind::ShowWarnings
            | Kind::ShowErrors
            | Kind::ShowCountWarnings
            | Kind::ShowCountErrors
            | Kind::GetDiagnostics
            | Kind::Explain
            | Kind::Help
            | Kind::Signal
            | Kind::Resignal
            | Kind::Empty => OnReader::Stays,
            _ if is_only_in_transaction => OnReader::Leaves,
            _ => OnReader::Unprotected,
        }
    }
}

/// Whether a text is these words and nothing else but a `;`.
fn has_words(text: &[u8], words: &[&str]) -> bool {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let mut found = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.iter().all(|word| found.next().is_some_and(|found| found.eq_ignore_ascii_case(word.as_bytes())))
        && found.next().is_none()
}

/// Whether a word stands somewhere in a text, perhaps in a comment.
fn has_word(text: &[u8], word: &str) -> bool {
    text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .any(|found| found.eq_ignore_ascii_case(word.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::{has_word, has_words};

    #[test]
    fn words_are_told_apart() {
        let words = ["SET", "TRANSACTION", "READ", "ONLY"];
        for text in ["SET TRANSACTION READ ONLY", "set  transaction\nread only ; "] {
            assert!(has_words(text.as_bytes(), &words), "{text}");
        }
        for text in ["SET TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE", "SET TRANSACTION READ", ""] {
            assert!(!has_words(text.as_bytes(), &words), "{text}");
        }
        assert!(has_word(b"START TRANSACTION READ/**/write", "WRITE"));
        assert!(!has_word(b"START TRANSACTION /* rewritten */", "WRITE"));
    }
}
