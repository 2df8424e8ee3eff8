//! Asks the server, behind a statement, for what its reply did not tell.

use weir_protocol::error::{LOCK_DEADLOCK, ServerError};
use weir_protocol::frame;
use weir_protocol::ok::{OkPacket, SessionTrack};
use weir_protocol::status::StatusFlags;
use weir_protocol::wire::Reader;
use weir_session::pin::Pins;
use weir_sql::Kind;

use crate::context::{CharsetAndCollation, Context, NamesOnServer};
use crate::keys::ConnectionKey;
use crate::plan::execution_plan::CommandKind;
use crate::pool::pools::Pools;
use crate::server::connection::{Access, DiscardReason, Expected, ServerConnection, Settling, Traces};
use crate::server::errors::is_wsrep_refusal;
use crate::server::fetch::last_packet;
use crate::session::Session;
use crate::session::execution::{Ending, Settle};
use crate::session::phase::Phase;
use crate::work::Work;

/// As binary strings: results may be in a character set that does not write ASCII as such.
const COLLATION: &[u8] = b"SELECT CAST(CONVERT(@@session.character_set_connection USING latin1) AS BINARY), \
    CAST(CONVERT(@@session.collation_connection USING latin1) AS BINARY)";

/// Variables that say which character set or collation a name means (MariaDB: `utf8` is utf8mb3 or utf8mb4).
const DECIDING: [&str; 3] = ["old_mode", "character_set_collations", "default_collation_for_utf8mb4"];

/// ER_CANT_CHANGE_TX_CHARACTERISTICS: a transaction is open, and was not touched.
const TRANSACTION_IN_PROGRESS: u16 = 1568;

/// So often a server may refuse to answer what Weir asks after a statement (a Galera abort makes it refuse once).
const SETTLE_REFUSALS_MAX: u8 = 3;

/// Of an answer no more is kept: 64 conditions are some 30 KB.
const ANSWER_BYTES_MAX: usize = 128 << 10;

/// SET statements whose effect on the collation is remembered.
const COLLATIONS_MAX: usize = 256;

impl Work<'_> {
    pub(crate) fn settle_ok(&mut self, key: ConnectionKey, settle: Settle, ok: &OkPacket<'_>) {
        let session = &mut *self.session;
        match settle {
            Settle::Status => {
                let was_read_only =
                    session.transaction.is_read_only && session.pins.pins().contains(Pins::TRANSACTION);
                session.take_status(ok.status, self.ctx.now);
                let connection = &mut self.pools.connections[key];
                if was_read_only
                    && !session.pins.pins().contains(Pins::TRANSACTION)
                    && !connection.access.greeted.is_mariadb
                {
                    // Where an error has ended such a transaction, the connection refuses writes with 1792 until a ROLLBACK
                    // comes, and shows it nowhere (seen on MySQL 9.7).
                    connection.discard_reason = Some(DiscardReason::Stale);
                }
            }
            Settle::Pending => {
                session.take_status(ok.status, self.ctx.now);
                session.pins.remove(Pins::UNKNOWN_AFTER_ERROR);
                self.pools.take_pending(self.ctx, self.session, key, ok);
            }
            Settle::Undone => {
                session.take_status(ok.status, self.ctx.now);
                session.pins.remove(Pins::NEXT_TRANSACTION);
            }
            Settle::Tracking => {
                session.take_status(ok.status, self.ctx.now);
                self.pools.connections[key].traces.check_reports(self.session, ok);
            }
            // A trigger's own 1213 (SIGNAL) has undone nothing but its statement.
            Settle::Conditions | Settle::ConditionCount if ok.status.contains(StatusFlags::IN_TRANS) => {
                if let Some(deadlock) = &mut session.execution.reply.deadlock {
                    deadlock.is_open = true;
                }
            }
            Settle::Collation | Settle::Conditions | Settle::ConditionCount | Settle::Nothing => {}
        }
    }

    /// The server can't answer (Galera's 1213 for the next command of any kind): once more.
    ///
    /// In a transaction that 1213 was for the client, whose next command gets it.
    pub(crate) fn settle_refused(&mut self, key: ConnectionKey, error: ServerError, text: &str) {
        let connection = &mut self.pools.connections[key];
        if error.code == TRANSACTION_IN_PROGRESS {
            return self.session.pins.insert(Pins::TRANSACTION);
        }
        connection.settling.again = true;
        connection.settling.is_rejected |= is_wsrep_refusal(error.code, text.as_bytes());
        let session = &mut *self.session;
        let is_told = session.execution.reply.deadlock.is_some();
        if error.code == LOCK_DEADLOCK.code && session.pins.pins().contains(Pins::TRANSACTION) && !is_told {
            self.pools.end_log(session);
            session.farewell.owed_error = Some(Box::new((error, text.into())));
        }
    }

    /// An answer is complete.
    pub(crate) fn settled(&mut self, key: ConnectionKey, settle: Settle) {
        if matches!(settle, Settle::Conditions | Settle::ConditionCount) {
            return self.left_told(key, settle);
        }
        let is_refused = self.pools.connections[key].settling.again;
        match settle {
            // Its other half, now that it is certain that no transaction is open.
            Settle::Pending if self.pools.connections[key].access.greeted.is_mariadb && !is_refused => {
                let is_open = self.session.pins.pins().contains(Pins::TRANSACTION);
                return if is_open {
                    self.settle_down()
                } else {
                    self.pools.connections[key].ask(self.ctx, Settle::Undone)
                };
            }
            Settle::Undone => return, // the last answer is still to come
            _ => {}
        }
        let bytes = std::mem::take(&mut self.pools.connections[key].settling.bytes);
        let is_rejected = std::mem::take(&mut self.pools.connections[key].settling.is_rejected);
        if std::mem::take(&mut self.pools.connections[key].settling.again) {
            if is_rejected && matches!(settle, Settle::Pending | Settle::Tracking) {
                return self.rejected_settling(key);
            }
            self.pools.connections[key].settling.refusals += 1;
            if self.pools.connections[key].settling.refusals < SETTLE_REFUSALS_MAX {
                let settle = if settle == Settle::Tracking { Settle::Pending } else { settle };
                return self.pools.connections[key].ask(self.ctx, settle);
            }
            // No answer is to be had: the session keeps the connection, of which nothing is known.
            self.pools.connections[key].settling.refusals = 0;
            self.session.pins.insert(Pins::UNREADABLE_VARIABLE);
            return self.settle_down();
        }
        self.pools.connections[key].settling.refusals = 0;
        if settle == Settle::Collation {
            match last_row(&bytes) {
                Some((charset, collation)) => {
                    self.pools.connections[key].remember_collation(
                        self.ctx,
                        self.session,
                        &charset,
                        &collation,
                    );
                    self.pools.connections[key].take_collation(self.ctx, self.session, &charset, &collation);
                }
                None => self.session.pins.insert(Pins::UNREADABLE_VARIABLE),
            }
        } else if self.session.execution.reply.charset_reported {
            // Before the error, as the first of several statements.
            return self.pools.connections[key].ask(self.ctx, Settle::Collation);
        } else if settle == Settle::Status && self.session.pins.pins() == Pins::UNKNOWN_AFTER_ERROR {
            // Now that it is known that no transaction is open.
            return self.pools.connections[key].ask(self.ctx, Settle::Pending);
        }
        self.settle_down();
    }
}

/// The two columns of the last row of a reply's data packets.
pub(crate) fn last_row(bytes: &[u8]) -> Option<(String, String)> {
    let mut reader = Reader::new(last_packet(bytes)?);
    let mut column = || String::from_utf8(reader.lenenc_bytes().ok()?.to_vec()).ok();
    Some((column()?, column()?))
}

impl Session {
    fn set_names_text(&self) -> Option<&[u8]> {
        let statement = self.execution.plan.statement();
        if self.execution.plan.kind() != CommandKind::Query || statement.kind != Kind::Set || statement.multi
        {
            return None;
        }
        let text = self
            .input
            .inbox
            .get(frame::HEADER_LEN + 1..self.input.command_bytes.min(self.input.inbox.len()))?;
        let starts = text.len() < 100 && text.get(..10)?.eq_ignore_ascii_case(b"SET NAMES ");
        let is_plain = starts
            && !text.contains(&b',')
            && !text.to_ascii_lowercase().windows(7).any(|word| word == b"default");
        is_plain.then_some(text)
    }
}

impl ServerConnection {
    pub(crate) fn ask(&mut self, ctx: &mut Context, settle: Settle) {
        match settle {
            Settle::Nothing => return,
            Settle::Collation => {
                self.send_query(ctx, COLLATION);
            }
            Settle::Conditions => self.send_query(ctx, b"SHOW WARNINGS"),
            Settle::ConditionCount => self.send_query(ctx, b"SHOW COUNT(*) WARNINGS"),
            // Only an OK that reports a change of its own brings out what is pending, and that change must not be one of the
            // session's state, which it would hide (seen on MariaDB 10.11). MySQL (9.7) tells it in any OK.
            Settle::Pending if self.access.greeted.is_mariadb => {
                self.send_query(ctx, b"SET TRANSACTION READ WRITE");
            }
            Settle::Undone | Settle::Tracking => {
                // Whatever completion_type says.
                self.send_query(ctx, b"ROLLBACK AND NO CHAIN NO RELEASE");
                self.expect(ctx, Expected::Settle(Settle::Undone));
                self.send_query(ctx, b"SET SESSION sql_mode=@@session.sql_mode");
                return self.expect(ctx, Expected::Settle(Settle::Tracking));
            }
            Settle::Pending | Settle::Status => {
                let socket = self.socket;
                if let Some(buffer) = ctx.out.buffer(socket) {
                    weir_protocol::command::put_ping(buffer);
                }
            }
        }
        self.expect(ctx, Expected::Settle(settle));
    }

    pub(crate) fn what_to_settle(&mut self, ctx: &mut Context, session: &mut Session) -> Settle {
        let pins = session.pins.pins();
        let may_have_ended =
            session.execution.plan.kind() != CommandKind::Prepare || pins.contains(Pins::TRANSACTION);
        if matches!(session.execution.ending, Ending::Err(_)) && may_have_ended {
            // Where other reasons hold the session anyway, the pending changes can wait as well.
            let is_only_unknown = pins == Pins::UNKNOWN_AFTER_ERROR;
            let asks_at_once = is_only_unknown && self.access.may_ask_for_pending(session);
            return if asks_at_once { Settle::Pending } else { Settle::Status };
        }
        if session.execution.reply.charset_reported {
            if let Some(known) = self.known_collation(ctx, session) {
                self.take_collation(ctx, session, &known.0, &known.1);
                return Settle::Nothing;
            }
            return Settle::Collation;
        }
        if pins == Pins::UNKNOWN_AFTER_ERROR { Settle::Pending } else { Settle::Nothing }
    }

    /// The session's command ends with an error that has been queued, and that may have ended its transaction: Galera's
    /// 1213 meets commands of any kind.
    pub(crate) fn settle_after_error(&mut self, ctx: &mut Context, session: &mut Session) {
        session.phase = Phase::Settling;
        self.ask(ctx, Settle::Status);
    }

    fn take_collation(&mut self, ctx: &mut Context, session: &mut Session, charset: &str, collation: &str) {
        let state = self
            .state
            .with_variable("character_set_connection", charset)
            .with_variable("collation_connection", collation);
        let state = ctx.interner.intern(state);
        self.state = state.clone();
        session.set_state(ctx, state);
    }

    /// `SET NAMES` with the same words gives the same collation on the same server, unless one of the variables says
    /// otherwise that tell which collation or character set a name means, set by the session or what it began with.
    /// Anything else is asked for.
    fn known_collation(&self, ctx: &Context, session: &Session) -> Option<CharsetAndCollation> {
        ctx.learnt.collations.get(&self.meaning_of_names(session)?).cloned()
    }

    fn remember_collation(&self, ctx: &mut Context, session: &Session, charset: &str, collation: &str) {
        if ctx.learnt.collations.len() < COLLATIONS_MAX
            && let Some(names) = self.meaning_of_names(session)
        {
            ctx.learnt.collations.insert(names, (charset.into(), collation.into()));
        }
    }

    fn meaning_of_names(&self, session: &Session) -> Option<NamesOnServer> {
        let text: Box<[u8]> = session.set_names_text()?.into();
        let begun_with = session.tracked.defaults.as_ref()?.variables();
        let value =
            |name| session.tracked.state.variable(name).or_else(|| begun_with.variable(name)).map(Box::from);
        let decides: [Option<Box<str>>; 3] = DECIDING.map(value);
        // Where none is known, the server's own values decide, which may be others at any time.
        decides.iter().any(Option::is_some).then_some((self.server, text, decides))
    }
}

impl Pools {
    /// What had changed before the error and is reported only now. The statement's text does not tell what of it has been
    /// done, so nothing explains it.
    fn take_pending(
        &mut self,
        ctx: &mut Context,
        session: &mut Session,
        key: ConnectionKey,
        ok: &OkPacket<'_>,
    ) {
        let is_over = session.execution.plan.statement().kind == Kind::SetStatement;
        let has_own_change = ok
            .session_tracks()
            .flatten()
            .any(|entry| matches!(entry, SessionTrack::TransactionCharacteristics(_)));
        let is_silent = self.connections[key].access.greeted.is_mariadb
            && self.connections[key].traces.is_tracked
            && !has_own_change;
        match self.take_entries(ctx, session, key, ok) {
            // Not even its own change is reported, so nothing is: tracking has been switched off.
            Ok(_) if is_silent => {
                self.connections[key].traces.is_tracked = false;
                session.pins.insert(Pins::STATE_CHANGE);
            }
            Ok(reported) if !reported.is_change() => {}
            // Its own variables are back, which the server still tells.
            Ok(reported) if is_over && !reported.schema => self.connections[key].traces.is_suspect = true,
            Ok(_) => session.pins.insert(Pins::STATE_CHANGE),
            Err(_) => session.pins.insert(Pins::UNKNOWN_AFTER_ERROR),
        }
    }
}

impl Traces {
    /// The server was asked to set a variable, and must say so in every way: what says nothing has been switched off, and
    /// so may have hidden anything.
    pub(crate) fn check_reports(&mut self, session: &mut Session, ok: &OkPacket<'_>) {
        let says =
            |wanted: fn(&SessionTrack<'_>) -> bool| ok.session_tracks().flatten().any(|entry| wanted(&entry));
        let is_told = says(|entry| matches!(entry, SessionTrack::SystemVariable { .. }))
            && says(|entry| matches!(entry, SessionTrack::StateChange(true)));
        if self.is_tracked && !is_told {
            self.is_tracked = false;
            session.pins.insert(Pins::STATE_CHANGE);
        }
    }
}

impl Access {
    /// Whether what is pending may be asked for before the server has told its status: MariaDB's question ends with a
    /// ROLLBACK, so it must be certain that no transaction is open.
    pub(crate) fn may_ask_for_pending(&self, session: &Session) -> bool {
        !self.greeted.is_mariadb || (session.transaction.is_autocommit && !session.runs_several())
    }
}

impl Settling {
    /// A row of an answer. Of conditions there may be many.
    pub(crate) fn settle_row(&mut self, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() <= ANSWER_BYTES_MAX {
            self.bytes.extend_from_slice(bytes);
        }
    }
}
