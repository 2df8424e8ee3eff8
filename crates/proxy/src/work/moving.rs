//! Moves sessions off their server with what they have there: when it has no part in their hostgroup any more, or is to
//! have none (a switchover, a drain, a failover).
//!
//! What lives on the connection is read between two statements, while no command of the session's is taken up, and set on
//! the connection that its next statement gets, in front of that. So it is in one place at a time: nothing can run on the
//! old connection after the reading, and nothing on the new one before the setting. What can't be read whole, or the
//! server will not take back, stays where it is.
//!
//! ```text
//! Idle (pinned) ── moves_away ─► Settling: names? values? are the literals read? ── leave ─► Idle (carried, no lease)
//!       ▲                          │ an obstacle                                               │ the next statement
//!       └──────── stay ────────────┘              Running (pinned) ◄── carried_set ── set_carried
//! ```
//!
//! Where a routine has run, which may have done anything, the connection is asked before whether it has left something
//! else than variables. What is carried is set by `statement::carried`.

use weir_protocol::ok::OkPacket;
use weir_protocol::status::StatusFlags;
use weir_session::login::BACKEND_CAPABILITIES;
use weir_session::pin::Pins;
use weir_session::remains;
use weir_session::user_variables::{
    self, NAMES_ON_MARIADB, NAMES_ON_MYSQL, Obstacle, Question, UserVariables,
};
use weir_topology::session_variables::{NULL, SEPARATOR};

use crate::keys::ConnectionKey;
use crate::pool::identity::IDENTITY_CAPABILITIES;
use crate::server::connection::{Expected, HiddenCode};
use crate::session::moving::{Asking, Carried, Moving, Step};
use crate::session::phase::Phase;
use crate::work::Work;

impl Work<'_> {
    /// Begins to read what an idle session has on its connection, if that is to be left. True if it has begun: the
    /// session's next command waits.
    pub(crate) fn moves_away(&mut self) -> bool {
        let session = &*self.session;
        let pins = session.pins.pins();
        let Some(lease) = session.lease().filter(|_| !pins.is_empty() && Pins::MOVABLE.contains(pins)) else {
            return false;
        };
        if !self.pools.is_left(lease) {
            return false;
        }
        let session = &*self.session;
        let connection = &self.pools.connections[lease];
        let is_quiet = connection.replies.expected.is_empty()
            && connection.kills_pending == 0
            && connection.discard_reason.is_none();
        let is_whole = session.stay.detour.is_none()
            && session.moving.is_none()
            && session.diagnostics.fetching == 0
            && session.farewell.owed_error.is_none()
            && !session.transaction.is_next_read_only;
        if !matches!(session.phase, Phase::Idle) || !is_quiet || !is_whole {
            return false;
        }
        if !session.diagnostics.retained.is_empty() {
            // The questions end it there.
            self.pools.save_diagnostics(self.ctx, self.session, lease);
        }
        self.session.phase = Phase::Settling;
        self.pools.connections[lease].settling.bytes.clear();
        if pins.contains(Pins::ROUTINE) {
            let is_mariadb = self.pools.connections[lease].access.greeted.is_mariadb;
            let text = if is_mariadb { remains::LOCKS_ON_MARIADB } else { remains::LOCKS_ON_MYSQL };
            self.ask_about_move(lease, text.as_bytes(), Vec::new(), Step::Locks);
        } else {
            self.ask_for_names(lease);
        }
        true
    }
}

impl Work<'_> {
    fn ask_for_unreported(&mut self, lease: ConnectionKey) {
        let server = self.pools.connections[lease].server;
        let Some(variables) = self.pools.servers[server].server.shared.session_variables() else {
            return self.stay("the monitor does not know yet which session variables its server has");
        };
        let text = variables.session_question().to_owned();
        self.ask_about_move(lease, text.as_bytes(), Vec::new(), Step::Unreported(variables));
    }

    fn ask_for_names(&mut self, lease: ConnectionKey) {
        let session = &*self.session;
        let connection = &self.pools.connections[lease];
        // Code that no text shows may have set others.
        let has_hidden = connection.traces.hidden_code_of != HiddenCode::None
            || session.pins.pins().contains(Pins::ROUTINE);
        let is_told = !has_hidden && !connection.access.greeted.is_mariadb;
        let told = session.pins.variables().filter(|_| is_told).map(<[_]>::to_vec);
        if let Some(names) = told {
            return self.ask_for_values(lease, names);
        }
        let text = if connection.access.greeted.is_mariadb { NAMES_ON_MARIADB } else { NAMES_ON_MYSQL };
        self.ask_about_move(lease, text.as_bytes(), Vec::new(), Step::Names);
    }

    fn ask_for_values(&mut self, lease: ConnectionKey, names: Vec<Vec<u8>>) {
        let session = &*self.session;
        if !session.tracked.is_text_certain {
            return self.stay(&Obstacle::Name.to_string());
        }
        if names.is_empty() && session.pins.pins().contains(Pins::USER_VARIABLE) {
            return self.stay(&Obstacle::Hidden.to_string());
        }
        if names.is_empty() {
            return self.leave(lease, names, &UserVariables::default());
        }
        match Question::about(&names, session.tracked.dialect.lead_bytes) {
            Ok(question) => {
                let text = question.text();
                self.ask_about_move(lease, &text, names, Step::Values(question));
            }
            Err(obstacle) => self.stay(&obstacle.to_string()),
        }
    }

    fn ask_about_move(&mut self, lease: ConnectionKey, text: &[u8], names: Vec<Vec<u8>>, step: Step) {
        self.session.moving = Some(Box::new(Moving::Asking(Asking { names, step, refusal: None })));
        self.pools.connections[lease].send_query(self.ctx, text);
        // Some have several rows.
        self.pools.connections[lease].known.found_rows = None;
        self.pools.connections[lease].expect(self.ctx, Expected::Moving);
    }

    /// The server does not answer a question.
    pub(crate) fn moving_refused(&mut self, code: u16, text: &str) {
        if let Some(Moving::Asking(asking)) = self.session.moving.as_deref_mut() {
            asking.refusal = Some(format!("error {code}: {text}"));
        }
    }

    /// The end of an answer. No question begins a transaction; if one has, the session keeps it.
    pub(crate) fn moving_ok(&mut self, ok: &OkPacket<'_>) {
        if ok.status.contains(StatusFlags::IN_TRANS) {
            self.session.take_status(ok.status, self.ctx.now);
            self.moving_refused(0, "a transaction is open");
        }
    }

    /// An answer is complete.
    pub(crate) fn moving_answered(&mut self, lease: ConnectionKey) {
        let bytes = std::mem::take(&mut self.pools.connections[lease].settling.bytes);
        let Some(Moving::Asking(asking)) = self.session.moving.take().map(|moving| *moving) else {
            return;
        };
        if let Some(refusal) = asking.refusal {
            return self.stay(&refusal);
        }
        let Asking { names, step, .. } = asking;
        match step {
            Step::Locks => match remains::check_locks(&bytes) {
                Ok(()) => {
                    let is_mariadb = self.pools.connections[lease].access.greeted.is_mariadb;
                    let text = if is_mariadb { remains::MADE_ON_MARIADB } else { remains::MADE_ON_MYSQL };
                    self.ask_about_move(lease, text.as_bytes(), Vec::new(), Step::Made);
                }
                Err(remains) => self.stay(&remains.to_string()),
            },
            Step::Made => match remains::check_made(&bytes) {
                Ok(()) => self.ask_for_unreported(lease),
                Err(remains) => self.stay(&remains.to_string()),
            },
            Step::Unreported(variables) => {
                let connection = &self.pools.connections[lease];
                let marks = (SEPARATOR, NULL);
                let names = variables.names();
                match remains::check_variables(names, &bytes, marks, &connection.defaults, &connection.state)
                {
                    Ok(()) => self.ask_for_names(lease),
                    Err(remains) => self.stay(&remains.to_string()),
                }
            }
            Step::Names => match user_variables::names(&bytes) {
                Ok(names) => self.ask_for_values(lease, names),
                Err(obstacle) => self.stay(&obstacle.to_string()),
            },
            Step::Values(question) => {
                let identity = self.pools.identities.0[self.pools.connections[lease].identity].capabilities;
                let capabilities = BACKEND_CAPABILITIES | (identity & IDENTITY_CAPABILITIES);
                match question.answered(&bytes, capabilities) {
                    Ok(variables) => {
                        let text = variables.rehearsal();
                        self.ask_about_move(lease, &text, names, Step::Rehearsal(variables));
                    }
                    Err(obstacle) => self.stay(&obstacle.to_string()),
                }
            }
            Step::Rehearsal(variables) => self.leave(lease, names, &variables),
        }
    }

    /// The session leaves its connection, which is wiped.
    fn leave(&mut self, lease: ConnectionKey, names: Vec<Vec<u8>>, variables: &UserVariables) {
        let connection = &self.pools.connections[lease];
        let session = &mut *self.session;
        let pins = session.pins.pins();
        let hostgroup = (!session.is_pinned_to_reader()).then_some(connection.hostgroup);
        if !variables.is_empty() {
            let carried = Carried { set: variables.set(), names, hostgroup };
            session.moving = Some(Box::new(Moving::Carried(carried)));
        }
        session.pins.clear();
        let server = &self.pools.servers[connection.server].server.endpoint;
        tracing::debug!(session = session.id, server, pins = pins.words(), "a session leaves its server");
        self.ctx.statistics.totals.sessions_moved += 1;
        self.pools.detach(self.ctx, self.session);
        self.pools.recycle(self.ctx, lease, pins);
        self.hear();
        self.rest();
    }

    /// The session has to stay where it is, at least until it has set something else.
    fn stay(&mut self, obstacle: &str) {
        let session = &mut *self.session;
        let pins = session.pins.pins().words();
        tracing::info!(
            session = session.id,
            pins,
            obstacle,
            "a pinned session can't be moved off its server"
        );
        session.moving = Some(Box::new(Moving::Stays(obstacle.to_owned())));
        self.ctx.statistics.totals.sessions_not_moved += 1;
        self.rest();
    }

    /// The session takes commands again.
    fn rest(&mut self) {
        let session = &mut *self.session;
        session.phase = Phase::Idle;
        let socket = session.socket;
        self.ctx.out.pause(socket, false);
        self.ctx.runnable.push_back((self.session.key, socket));
    }
}
