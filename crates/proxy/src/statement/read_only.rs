//! Keeps a read-only transaction on one server, which may be a reader.
//!
//! All of such a transaction runs on the server where it began, which refuses writes in it (1792). But MariaDB ends it,
//! as any transaction, with a statement that commits implicitly, and runs that: DDL, BEGIN, LOCK TABLES and the like.
//! So on a reader Weir commits first, and the statement goes where it would go without a transaction.

use weir_protocol::capability::Capabilities;
use weir_protocol::error;
use weir_session::pin::Pins;
use weir_sql::{Access, Effects, Kind};

use crate::answers::own_replies::Outcome;
use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::Expected;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session::text::has_word;
use crate::work::Work;

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

impl Work<'_> {
    /// The session's command is no read, and its lease leads to a reader. True if it may run there; otherwise
    /// everything has been seen to.
    pub(crate) fn may_run_on_reader(&mut self, lease: ConnectionKey) -> bool {
        match self.session.on_reader() {
            // Who changes the same rows does not meet these locks, on the writer.
            OnReader::Stays if self.session.may_lock_rows() => self.refuse_holding(lease),
            OnReader::Stays => return true,
            OnReader::Leaves => {
                self.session.phase = Phase::Running;
                self.pools.connections[lease].send_query(self.ctx, b"COMMIT AND NO CHAIN NO RELEASE");
                self.pools.connections[lease].expect(self.ctx, Expected::Leave);
            }
            OnReader::Holds => self.refuse_holding(lease),
            OnReader::Unprotected => {
                let session = &*self.session;
                let endpoint = &self.pools.servers[self.pools.connections[lease].server].server.endpoint;
                let message = format!(
                    "The session is pinned to the reader {endpoint} ({}), where nothing may be written: \
                     COM_RESET_CONNECTION or a new connection ends that",
                    session.pins.pins().words()
                );
                self.fail_session(error::UNKNOWN_ERROR, &message);
            }
        }
        false
    }

    /// Rolls the transaction back as a server does that has to (1213: the application begins again), and keeps the
    /// user's further read-only transactions on the writer.
    fn refuse_holding(&mut self, lease: ConnectionKey) {
        let endpoint = self.pools.servers[self.pools.connections[lease].server].server.endpoint.clone();
        let user = self.session.user_of().to_owned();
        let message = format!(
            "This read-only transaction ran on the reader {endpoint}, and the statement would have held the session \
             there for longer, or have locked rows there only: it is rolled back. From now on read-only transactions of user '{user}' run on the \
             writer; try restarting transaction"
        );
        tracing::info!(user, endpoint, "read-only transactions go to the writer from now on");
        self.ctx.learnt.read_only_on_writer.insert(user);
        let session = &mut *self.session;
        let may_go = session.pins.pins() == Pins::TRANSACTION;
        if !may_go {
            return self.answer_error(error::UNKNOWN_ERROR, &message);
        }
        self.forget_transaction();
        self.session.lose_lease();
        self.pools.connections[lease].holder = None;
        self.pools.recycle(self.ctx, lease, Pins::TRANSACTION);
        self.hear();
        self.answer_error(error::LOCK_DEADLOCK, &message);
    }

    /// The COMMIT in front of a statement that ends a read-only transaction has been answered. Should it have failed,
    /// nothing is lost but the connection.
    pub(crate) fn left_reader(&mut self, key: ConnectionKey) {
        self.pools.detach(self.ctx, self.session);
        let session = &mut *self.session;
        session.transaction.is_read_only = false;
        session.pins.remove(Pins::TRANSACTION);
        session.phase = Phase::waiting(self.ctx.now);
        self.pools.offer(self.ctx, key);
        self.hear();
        self.acquire();
    }
}

impl Session {
    fn on_reader(&self) -> OnReader {
        let statement = self.execution.plan.statement();
        match self.execution.plan.kind() {
            CommandKind::Query | CommandKind::Execute => {}
            // A reset ends what holds the session here.
            CommandKind::Reset => return OnReader::Stays,
            _ if self.transaction.is_read_only => return OnReader::Stays,
            _ => return OnReader::Unprotected,
        }
        if !self.transaction.is_read_only {
            return OnReader::Unprotected;
        }
        let may_hide_more = self.input.upload.is_some()
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

impl Session {
    /// Whether a read of the session may go to a reader although it begins a transaction (autocommit=0).
    pub(crate) fn may_begin_on_reader(&self, ctx: &Context) -> bool {
        self.execution.plan.begins_read_only()
            || (self.tracked.begins_read_only() && !self.has_read_only_on_writer(ctx))
    }

    fn has_read_only_on_writer(&self, ctx: &Context) -> bool {
        ctx.learnt.read_only_on_writer.contains(self.user_of())
    }

    fn user_of(&self) -> &str {
        self.account.as_ref().map_or("", |account| &account.user.username)
    }
}

impl Session {
    /// Looks whether the session's statement begins a transaction that a reader may have.
    pub(crate) fn plan_read_only(&mut self, ctx: &Context) {
        let statement = self.execution.plan.statement();
        if self.input.upload.is_some() || statement.multi || !self.tracked.is_text_certain {
            return;
        }
        let is_plain_begin = statement.kind == Kind::Begin && !has_word(self.command_text(), "WRITE");
        if is_plain_begin && self.transaction.is_next_read_only {
            let has_snapshot = has_word(self.command_text(), "SNAPSHOT");
            let text: &[u8] = match has_snapshot {
                true => b"START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
                false => b"START TRANSACTION READ ONLY",
            };
            self.execution.plan = self.execution.plan.as_read_only_begin();
            self.execution.text.rewritten = Some(text.to_vec());
        }
        let begins = self.execution.plan.statement().kind == Kind::StartTransactionReadOnly
            || (is_plain_begin && self.tracked.begins_read_only());
        if matches!(self.execution.plan.statement().kind, Kind::StartTransactionReadOnly | Kind::Begin) {
            // What was announced is in the statement, or the statement says otherwise.
            self.transaction.is_next_read_only = false;
        }
        if begins && self.lease().is_none() && !self.is_to_replay() && !self.has_read_only_on_writer(ctx) {
            self.execution.plan = self.execution.plan.beginning_on_reader();
        }
    }

    /// Whether a query may have FOR UPDATE, FOR SHARE or LOCK IN SHARE MODE, none of which a sure read has.
    fn may_lock_rows(&self) -> bool {
        let statement = self.execution.plan.statement();
        let is_query = matches!(statement.kind, Kind::Select | Kind::With | Kind::Values | Kind::Table);
        let text = self.statement_text();
        is_query && statement.access != Access::Read && (has_word(text, "UPDATE") || has_word(text, "SHARE"))
    }
}

impl Pools {
    /// SET TRANSACTION READ ONLY with nothing else: it becomes part of the statement that begins the transaction.
    pub(crate) fn announces_read_only(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
    ) -> Option<Outcome> {
        if session.execution.plan.statement().kind != Kind::SetTransaction
            || session.lease().is_some()
            || session.is_to_replay()
            || session.track.is_some()
            || !has_words(session.command_text(), &["SET", "TRANSACTION", "READ", "ONLY"])
        {
            return None;
        }
        self.outdate_warnings(ctx, session);
        session.transaction.is_next_read_only = true;
        session.diagnostics.row_count = 0;
        session.reply_ok(ctx);
        Some(Outcome::Answered)
    }
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
