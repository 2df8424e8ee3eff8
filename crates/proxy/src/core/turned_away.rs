//! Statements that a server turns away before it does anything with them: another server may take them.
//!
//! | error | who | when |
//! | --- | --- | --- |
//! | 1047 with WSREP in its text | a Galera node outside its component | before any statement, in a transaction too, which is lost then; any other 1047 means something else |
//! | 1290 with `read-only` in its text | a writer that has been made read_only | before a statement that would write; or when such a statement, begun before, is about to commit, which undoes it as a whole |
//!
//! 1290 is raised for other options too (INTO OUTFILE), and by routines that have done something before. So it counts
//! only for statements that are undone as a whole, and only at a server that was to write: on a reader it is the answer
//! to the statement.

use weir_protocol::error;
use weir_protocol::ok::ErrPacket;
use weir_session::pin::Pins;
use weir_sql::{Effects, Kind};

use super::Core;
use super::model::{BackendKey, Phase, Poison, Session, SessionKey, WorkKind};

/// ER_OPTION_PREVENTS_STATEMENT; the text names the option.
const OPTION_PREVENTS: u16 = 1290;

impl Core {
    /// Whether a server has turned a statement away, and another may take it, or the session can go on without the
    /// transaction that the server has lost.
    pub(super) fn is_turned_away(&self, key: BackendKey, holder: SessionKey, payload: &[u8]) -> bool {
        let session = &self.sessions[holder];
        let is_in_transaction = session.pins.pins() == Pins::TRANSACTION && session.aside.is_none();
        let can_move = (session.pins.is_empty() || is_in_transaction)
            && !session.work.is_answering
            && !session.work.statement.multi
            && session.upload.is_none()
            && session.work.attempts <= self.snapshot.variables.connect_retries_on_failure
            && session.work.kind != WorkKind::Reset;
        let Some(group) = self.groups.get(&session.work.hostgroup).filter(|_| can_move) else { return false };
        let is_refusal = |err: ErrPacket<'_>| {
            let is_writers = group.reader_hostgroup.is_some();
            (group.is_replicated && is_wsrep_refusal(err.code, err.message))
                || (is_writers
                    && !is_in_transaction
                    && is_undone_as_a_whole(session)
                    && is_read_only(err.code, err.message))
        };
        ErrPacket::parse(payload).is_ok_and(is_refusal) && self.backends[key].reply.is_done()
    }

    /// A server takes no statements although it is in the hostgroup: the work goes to another one, and this one is
    /// left alone until the monitor has had a look.
    pub(super) fn turned_away(&mut self, key: BackendKey, holder: SessionKey) {
        let server = self.backends[key].server;
        self.suspect(server);
        if self.sessions[holder].pins.pins().contains(Pins::TRANSACTION) {
            return self.transaction_turned_away(key, holder);
        }
        self.keep(key, holder);
        let session = &mut self.sessions[holder];
        session.lease = None;
        session.work.attempts += 1;
        session.phase = Phase::Waiting(self.now);
        self.backends[key].holder = None;
        self.offer(key);
        self.acquire(holder);
    }

    /// A node that has left its component can't commit what was begun there, and has not begun to: the transaction ends
    /// with its connection, and the session goes on where statements are taken.
    fn transaction_turned_away(&mut self, key: BackendKey, holder: SessionKey) {
        let backend = &mut self.backends[key];
        backend.holder = None;
        let endpoint = self.servers[backend.server].server.endpoint.clone();
        self.discard(key, Some(Poison::LeftCluster));
        self.lose_lease(holder);
        let session = &mut self.sessions[holder];
        session.pins.remove(Pins::TRANSACTION);
        session.is_read_only = false;
        let message = format!(
            "{endpoint} has left its cluster, the transaction is rolled back; try restarting transaction"
        );
        self.reply_error(holder, error::LOCK_DEADLOCK, &message);
        self.answered_here(holder);
    }
}

/// Whether an error says that a Galera node takes no statements.
pub(super) fn is_wsrep_refusal(code: u16, message: &[u8]) -> bool {
    code == error::UNKNOWN_COM_ERROR.code && contains(message, b"WSREP")
}

/// Whether an error says that a server is read_only or super_read_only.
fn is_read_only(code: u16, message: &[u8]) -> bool {
    code == OPTION_PREVENTS && contains(message, b"read-only")
}

/// Whether a statement that fails has left nothing behind, neither in tables nor in its session.
fn is_undone_as_a_whole(session: &Session) -> bool {
    let statement = session.work.statement;
    let is_whole = matches!(
        statement.kind,
        Kind::Insert
            | Kind::Replace
            | Kind::Update
            | Kind::Delete
            | Kind::With
            | Kind::CreateTable
            | Kind::CreateView
            | Kind::AlterTable
            | Kind::DropTable
            | Kind::Truncate
            | Kind::RenameTable
    );
    let leaves = Effects::LAST_INSERT_ID_SET | Effects::TABLE_DROPPED;
    is_whole
        && matches!(session.work.kind, WorkKind::Query | WorkKind::Execute)
        && (statement.effects - leaves).is_empty()
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_errors_say_read_only() {
        // As MySQL 9.7 and MariaDB 10.11 put it.
        let mysql = "The MySQL server is running with the --super-read-only option so it cannot execute this statement";
        let mariadb =
            "The MariaDB server is running with the --read-only option so it cannot execute this statement";
        let outfile = "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement";
        assert!(is_read_only(1290, mysql.as_bytes()) && is_read_only(1290, mariadb.as_bytes()));
        assert!(!is_read_only(1290, outfile.as_bytes()) && !is_read_only(1792, mysql.as_bytes()));
        assert!(is_wsrep_refusal(1047, b"WSREP has not yet prepared node for application use"));
        assert!(!is_wsrep_refusal(1047, b"Unknown command"));
    }
}
