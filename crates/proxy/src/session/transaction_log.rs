//! Keeps what an open transaction has done, so that it can be done again where its server is lost: the commands, the state
//! in which each ran, and a hash of what its client has got. What gives the same answers for a second time is, for its
//! client, the same transaction: see [`crate::statement::replay`].

use std::hash::{BuildHasher, Hasher};
use std::rc::Rc;

use foldhash::quality::{FoldHasher, RandomState};
use weir_protocol::charset;
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::ok::{ErrPacket, OkPacket};
use weir_protocol::response::{BrokenReply, Control, Step};
use weir_session::defaults::Defaults;
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::prepared::Prepared;
use weir_session::state::State;

use crate::keys::{Nanos, ServerIndex};
use crate::snapshot::ReplayTurn;

/// The log of one transaction. One that is over is used again for the next one, of whatever session.
#[derive(Default)]
pub(crate) struct TransactionLog {
    statements: Vec<LoggedStatement>,
    /// Their commands, one behind the other.
    bytes: Vec<u8>,
    /// Of the reply that comes in now.
    pub digest: ReplyDigest,
    /// Why the transaction can't be run again; none: it can.
    obstacle: Option<Obstacle>,
    /// Its server is gone: the next statement that is to be run again.
    pub replay: Option<Replay>,
    /// LAST_INSERT_ID() when it began; none if only its server knew it.
    pub begun_with_id: Option<u64>,
    /// What its servers write without transactions stays with them: no other server gets it.
    pub keeps_to_itself: bool,
    /// A write that was in flight does not run again on the same server: it may have written to a table without transactions
    /// there.
    pub is_careful: bool,
    /// What its session had begun with, on which the states of its statements are based.
    pub defaults: Option<Rc<Defaults>>,
    /// When its server was lost; 0: it was not.
    pub lost_at: Nanos,
    /// It has lost its server, or left it. What else interrupts it is a deadlock.
    pub has_left_server: bool,
    /// The server with which it was lost.
    pub lost_on: Option<ServerIndex>,
    /// That may be the writer still: its hostgroup was held.
    pub is_lost_in_hold: bool,
    /// It is about to run again, before others write.
    pub turn: Option<ReplayTurn>,
    /// It has been since it was interrupted, perhaps several times.
    pub has_had_turn: bool,
    /// How often it was begun again.
    pub attempts: u8,
    /// Where it was begun.
    pub hostgroup: u32,
    /// It was begun on a reader: nobody writes what it could be in the way of.
    pub is_on_reader: bool,
    /// How long it may become, as was said when it was begun; 0: the transaction does not run again.
    pub bytes_max: usize,
    /// The transaction writes a row of its own in front of its COMMIT, as was said when it was begun.
    pub marks_commits: bool,
    /// It has changed rows that are undone with it.
    pub has_written: bool,
    /// A statement of it may have changed anything.
    pub may_have_written: bool,
    /// The row of `weir.outcomes` that is its own until it is over.
    pub outcome_slot: Option<u32>,
    /// What it has written there.
    pub marker: Option<u64>,
    /// The server did not let it.
    pub is_marker_refused: bool,
    /// It is Weir's own, around a single write.
    pub wrapped: Option<Wrapped>,
}

/// A write with autocommit in a transaction of Weir's own: see [`crate::statement::wrapped_write`].
#[derive(Default)]
pub(crate) struct Wrapped {
    /// What the server has answered to it, which its client gets when it is committed.
    pub ok: Option<StatementOk>,
    /// From here on it may be committed.
    pub is_commit_sent: bool,
}

/// What an OK tells of its statement.
pub(crate) struct StatementOk {
    pub sequence: u8,
    pub affected_rows: u64,
    pub insert_id: u64,
    pub warnings: u16,
    pub info: Box<[u8]>,
}

/// How far a transaction has been run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// LAST_INSERT_ID() is what it was when the transaction began.
    pub is_begun: bool,
    /// The next statement.
    pub next: usize,
    /// How far that is, where it gives an AUTO_INCREMENT value.
    pub numbering: Numbering,
    /// The server has answered it with an error of the moment: it may succeed later, or elsewhere.
    pub rejected: Option<Rejected>,
    /// It has ended with an error.
    pub has_failed: bool,
    /// The code of the last error; 0: there was none.
    pub refused_with: u16,
    /// What is to be known before anything runs again: whether it has been committed.
    pub inquiry: Inquiry,
    /// What the server has answered to the last question for a number.
    pub number: Option<u64>,
    /// Whether LAST_INSERT_ID() is what it was, where that was not known when the transaction began.
    pub id: InsertId,
}

/// What is known of LAST_INSERT_ID() while a transaction runs again.
///
/// An OK does not tell whether its id is the last one that was given: an explicit one is told, too. If it is the last one on
/// the next connection, it was on the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum InsertId {
    /// Nothing.
    #[default]
    Unknown,
    /// The server is asked for it.
    Asked,
    /// It is the same.
    Same,
}

/// An error that says nothing of the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It met another one's locks.
    Deadlock,
    /// The server takes no statements now.
    ByServer,
}

/// How far the question is whether a transaction was committed: see [`crate::statement::commit_outcome`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inquiry {
    /// There is none: it was not.
    #[default]
    None,
    /// A transaction of Weir's is to begin: what it does late, on a connection that was given up, goes with that.
    Begin,
    /// It is to be made sure that it can't be committed any more, if it is not.
    Bar,
    /// Its row is to be read.
    Read,
    /// What was done for that is to be committed.
    Commit,
    /// The answer holds.
    Told,
}

/// How a statement comes to the AUTO_INCREMENT value that it gave first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Nothing is done for it yet.
    #[default]
    Free,
    /// A savepoint is set in front of it. If it gives another value, it is taken back to that.
    Saved,
    /// It is taken back; the value is to be set.
    TakenBack,
    /// The value is set for it.
    Forced,
    /// It has run with that; what it has not used must not hit another one.
    Used,
}

/// A statement of a transaction.
pub(crate) struct LoggedStatement {
    start: usize,
    end: usize,
    /// The state in which it ran.
    pub state: Rc<State>,
    /// An execution of this, with these types of its parameters.
    pub execution: Option<LoggedExecution>,
    /// Of its reply.
    pub digest: u64,
    /// The AUTO_INCREMENT value that it has given to its row; 0 for none.
    pub insert_id: u64,
    pub traits: Traits,
}

/// What of a statement matters to those behind it, and to its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traits {
    /// It asks for LAST_INSERT_ID().
    pub asks_for_id: bool,
    /// It may have run code that no text shows.
    pub has_hidden_code: bool,
    /// What LAST_INSERT_ID() probably is after it; 0: what it was before.
    pub leaves_id: u64,
}

/// What a COM_STMT_EXECUTE refers to.
#[derive(Clone)]
pub(crate) struct LoggedExecution {
    pub prepared: Rc<Prepared>,
    pub params: u16,
    pub types: Option<Rc<[u8]>>,
}

/// Why a transaction can't be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// A statement did something that is not undone with the transaction, or that no text shows.
    Statement,
    /// It has changed tables without transactions.
    NonTransactionalTable,
    /// A statement asked for what another one outside the transaction has left behind.
    EarlierStatement,
    /// An INSERT of several rows had them numbered: nobody but its server knows which numbers all of them have.
    SeveralIds,
    /// Its isolation level, or its access mode, was announced by a statement before it.
    Announced,
    /// It is longer than its log may become.
    TooLong,
    /// Its client had a part of an answer.
    HalfAnswered,
    /// It was run again too often.
    TooManyAttempts,
    /// A statement gave another answer when it ran again.
    Different,
}

impl Obstacle {
    /// Why the transaction is lost, for its client.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Statement => "it had a statement that must not run twice",
            Self::NonTransactionalTable => "it changed a table without transactions",
            Self::EarlierStatement => "it used what an earlier statement had left",
            Self::SeveralIds => "it had several AUTO_INCREMENT values given by one statement",
            Self::Announced => "SET TRANSACTION stood in front of it",
            Self::TooLong => {
                "replay is off for it (transaction_replay, weir_replay), or it is longer than transaction_replay_max_bytes"
            }
            Self::HalfAnswered => "a part of an answer had been sent",
            Self::TooManyAttempts => "it was lost again and again",
            Self::Different => "a statement had another answer when it was run again",
        }
    }
}

/// Capacity that a log keeps for the next transaction, bytes and statements.
const BYTES_KEPT: usize = 4 << 10;
const STATEMENTS_KEPT: usize = 64;

impl TransactionLog {
    /// The transaction is over.
    pub(crate) fn clear(&mut self) {
        self.statements.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
        self.statements.shrink_to(STATEMENTS_KEPT);
        (self.obstacle, self.replay, self.attempts, self.defaults) = (None, None, 0, None);
        (self.has_written, self.may_have_written, self.is_careful) = (false, false, false);
        (self.outcome_slot, self.marker, self.is_marker_refused, self.wrapped) = (None, None, false, None);
        (self.bytes_max, self.marks_commits) = (0, false);
        (self.lost_at, self.lost_on, self.has_left_server) = (0, None, false);
        (self.turn, self.has_had_turn, self.is_lost_in_hold) = (None, false, false);
    }

    pub(crate) fn obstacle(&self) -> Option<Obstacle> {
        self.obstacle
    }

    /// It can't be run again from here on. What it had done is not needed any more.
    pub(crate) fn block(&mut self, obstacle: Obstacle) {
        if self.obstacle.is_none() {
            self.statements = Vec::new();
            self.bytes = Vec::new();
            self.obstacle = Some(obstacle);
        }
    }

    /// Adds the statement that has just been answered; `put` appends its command.
    pub(crate) fn add(
        &mut self,
        state: Rc<State>,
        execution: Option<LoggedExecution>,
        (insert_id, traits): (u64, Traits),
        bytes_max: usize,
        put: impl FnOnce(&mut Vec<u8>),
    ) {
        if self.obstacle.is_some() {
            return;
        }
        let start = self.bytes.len();
        put(&mut self.bytes);
        if self.bytes.len() + self.statements.len() * size_of::<LoggedStatement>() > bytes_max {
            return self.block(Obstacle::TooLong);
        }
        let (end, digest) = (self.bytes.len(), self.digest.value());
        self.statements.push(LoggedStatement { start, end, state, execution, digest, insert_id, traits });
    }

    /// The value of LAST_INSERT_ID() that was told last, before this statement: of AUTO_INCREMENT, or of a sequence by
    /// `UPDATE ... SET id = LAST_INSERT_ID(id + 1)`.
    pub(crate) fn told_before(&self, index: usize) -> Option<u64> {
        let before = self.statements.get(..index).unwrap_or(&self.statements);
        before.iter().rev().map(|statement| statement.traits.leaves_id).find(|id| *id != 0)
    }

    /// LAST_INSERT_ID() to begin again with. Where only the lost server knew it, a number that nobody is told: what is the
    /// last one told is then one of the transaction's, not what another session has left on the next connection.
    pub(crate) fn insert_id_at_begin(&self) -> Option<u64> {
        self.begun_with_id.or_else(|| self.told_before(usize::MAX).map(|_| 0))
    }

    pub(crate) fn statement(&self, index: usize) -> Option<&LoggedStatement> {
        self.statements.get(index)
    }

    /// The packets of a statement's command.
    pub(crate) fn command(&self, index: usize) -> &[u8] {
        let statement = self.statements.get(index);
        statement.and_then(|statement| self.bytes.get(statement.start..statement.end)).unwrap_or_default()
    }
}

/// The end of a column's definition: collation, length, type, flags, decimals, and two bytes that say nothing (protocol page
/// "Column Definition").
const FIXED_FIELDS_BYTES: usize = 12;

/// The definition at the front, with its header; none if it is not whole.
fn split_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let &[a, b, c, _] = bytes.first_chunk::<HEADER_LEN>()?;
    let len = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
    bytes.split_at_checked(HEADER_LEN + len).filter(|_| len >= FIXED_FIELDS_BYTES)
}

/// So many bytes are hashed at once.
const BLOCK: usize = 64;

/// A hash of a reply as its client sees it: rows byte by byte, an OK by what it tells of the statement, an error by its code and
/// text. Status flags and what servers report of their sessions differ between servers, and are left out. In how many pieces the
/// bytes come does not matter.
pub(crate) struct ReplyDigest {
    hasher: FoldHasher<'static>,
    /// The begin of the next block.
    tail: [u8; BLOCK],
    filled: usize,
    /// Definitions of columns come, not rows.
    is_in_definitions: bool,
    /// A result has begun.
    pub has_result: bool,
    random: RandomState,
}

impl Default for ReplyDigest {
    fn default() -> Self {
        let random = RandomState::default();
        Self {
            hasher: random.build_hasher(),
            tail: [0; BLOCK],
            filled: 0,
            is_in_definitions: false,
            has_result: false,
            random,
        }
    }
}

impl ReplyDigest {
    /// For the next reply.
    pub(crate) fn restart(&mut self) {
        self.hasher = self.random.build_hasher();
        self.filled = 0;
        (self.is_in_definitions, self.has_result) = (false, false);
    }

    /// Bytes that the client gets as they are.
    fn take(&mut self, mut bytes: &[u8]) {
        if self.filled > 0 {
            let (more, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.tail[self.filled..self.filled + more.len()].copy_from_slice(more);
            self.filled += more.len();
            bytes = rest;
            if self.filled < BLOCK {
                return;
            }
            self.hasher.write(&self.tail);
            self.filled = 0;
        }
        let mut blocks = bytes.chunks_exact(BLOCK);
        for block in &mut blocks {
            self.hasher.write(block);
        }
        let rest = blocks.remainder();
        self.tail[..rest.len()].copy_from_slice(rest);
        self.filled = rest.len();
    }

    /// A piece of a reply.
    pub(crate) fn take_step(&mut self, step: Step, bytes: &[u8]) -> Result<(), BrokenReply> {
        let payload = bytes.get(HEADER_LEN..).unwrap_or_default();
        match step {
            Step::Pass(_) if self.is_in_definitions => self.take_definitions(bytes),
            Step::Pass(_) => self.take(bytes),
            Step::Control(Control::ColumnCount, _) => {
                (self.is_in_definitions, self.has_result) = (true, true);
                self.take(bytes);
            }
            Step::Control(Control::Ok | Control::ResultEnd, _) => {
                let ok =
                    OkPacket::parse(payload, BACKEND_CAPABILITIES).map_err(|_| BrokenReply::Malformed)?;
                self.take_ok(&ok);
            }
            Step::Control(Control::Err, _) => {
                let err = ErrPacket::parse(payload).map_err(|_| BrokenReply::Malformed)?;
                self.take(b"error");
                self.take(&err.code.to_le_bytes());
                // Of a duplicate key it names the key.
                self.take(err.message);
            }
            Step::Control(Control::PrepareOk | Control::LocalInfile, _) => {}
            Step::ColumnsEnd => self.is_in_definitions = false,
            Step::Done | Step::NeedMore => {}
        }
        Ok(())
    }

    /// Definitions of columns. Of the collation that results have only the character set counts: SET NAMES ... COLLATE and
    /// single assignments make the same variables, and different ids.
    fn take_definitions(&mut self, mut bytes: &[u8]) {
        while let Some((packet, rest)) = split_packet(bytes) {
            let at = packet.len() - FIXED_FIELDS_BYTES;
            let (names, fields) = packet.split_at(at);
            self.take(names);
            match fields.split_first_chunk::<2>() {
                Some((id, fields)) => {
                    let collation = charset::by_id(u16::from_le_bytes(*id));
                    self.take(collation.map_or(&id[..], |collation| collation.charset.as_bytes()));
                    self.take(fields);
                }
                None => self.take(fields),
            }
            bytes = rest;
        }
        // A part of one that is too long to be kept whole.
        self.take(bytes);
    }

    /// The end of a reply, or of one of its results.
    fn take_ok(&mut self, ok: &OkPacket<'_>) {
        self.take(&ok.affected_rows.to_le_bytes());
        self.take(&ok.last_insert_id.to_le_bytes());
        self.take(&ok.warnings.to_le_bytes());
        self.take(ok.info);
    }

    /// The hash so far.
    fn value(&self) -> u64 {
        let mut hasher = self.hasher.clone();
        hasher.write(&self.tail[..self.filled]);
        hasher.write_usize(self.filled);
        hasher.finish()
    }

    /// Whether the reply that has come is that of a statement that ran before.
    pub(crate) fn is_of(&self, statement: &LoggedStatement) -> bool {
        self.value() == statement.digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_has_one_hash_however_it_comes() {
        let bytes: Vec<u8> = (0..1000_u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut digest = ReplyDigest::default();
        digest.take(&bytes);
        let whole = digest.value();
        for piece in [1, 3, 63, 64, 65, 500] {
            digest.restart();
            bytes.chunks(piece).for_each(|piece| digest.take(piece));
            assert_eq!(digest.value(), whole, "pieces of {piece}");
        }
        for cut in [0, 1, 64, 999] {
            digest.restart();
            digest.take(&bytes[..cut]);
            assert_ne!(digest.value(), whole, "the first {cut}");
        }
        let mut changed = bytes.clone();
        changed[500] ^= 1;
        digest.restart();
        digest.take(&changed);
        assert_ne!(digest.value(), whole);
    }

    /// Of a column `c`: a definition, or a row that looks like one.
    fn definition(collation: u8) -> Vec<u8> {
        let names =
            [&b"\x03def\x00\x00\x00\x01c\x00\x0c"[..], &[collation, 0, 80, 0, 0, 0, 0xFD, 0, 0, 0, 0, 0]]
                .concat();
        [&[names.len() as u8, 0, 0, 2], &names[..]].concat()
    }

    #[test]
    fn of_a_columns_collation_only_the_character_set_counts() {
        let mut digest = ReplyDigest::default();
        let mut hashed = |collations: [u8; 2], is_definition: bool| {
            digest.restart();
            digest.take_step(Step::Control(Control::ColumnCount, 5), &[1, 0, 0, 1, 2]).unwrap();
            if !is_definition {
                digest.take_step(Step::ColumnsEnd, &[]).unwrap();
            }
            let bytes = collations.map(definition).concat();
            digest.take_step(Step::Pass(bytes.len()), &bytes).unwrap();
            digest.value()
        };
        let (general, unicode, latin1) = (45, 224, 8);
        assert_eq!(hashed([general, general], true), hashed([unicode, general], true));
        assert_ne!(hashed([general, general], true), hashed([general, latin1], true));
        assert_ne!(hashed([general, general], false), hashed([unicode, general], false));
    }

    #[test]
    fn a_log_has_a_limit_and_what_blocks_it_stays() {
        let mut log = TransactionLog::default();
        let state = Rc::new(State::default());
        for _ in 0..10 {
            log.add(state.clone(), None, (0, Traits::default()), 2000, |out| out.extend_from_slice(&[1; 50]));
        }
        assert_eq!((log.command(9).len(), log.obstacle()), (50, None));
        log.add(state.clone(), None, (0, Traits::default()), 2000, |out| out.extend_from_slice(&[1; 1500]));
        assert_eq!((log.obstacle(), log.statement(0).is_none()), (Some(Obstacle::TooLong), true));
        log.block(Obstacle::Statement);
        assert_eq!(log.obstacle(), Some(Obstacle::TooLong));
        log.clear();
        assert_eq!(log.obstacle(), None);
    }
}
