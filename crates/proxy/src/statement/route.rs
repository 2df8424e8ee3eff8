//! Routes a statement by the query rules and its own hints, before anything else is done with it.

use std::rc::Rc;
use std::sync::Arc;

use weir_protocol::error::{self, ServerError};
use weir_protocol::frame::HEADER_LEN;
use weir_protocol::ok::{OK_HEADER, OkPacket};
use weir_routing::{Facts, Hints, Multiplex, Router};
use weir_session::pin::Pins;
use weir_session::prepared::Prepared;

use crate::context::Context;
use crate::keys::Nanos;
use crate::plan::execution_plan::CommandKind;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::session::text::COMMAND_BYTES_KEPT;
use crate::snapshot::Snapshot;
use crate::work::Work;

/// What ProxySQL answers with a rule's error_msg: ER_NOT_ALLOWED_COMMAND.
const NOT_ALLOWED: ServerError = ServerError { code: 1148, sqlstate: *b"42000" };

const NS_PER_MS: Nanos = 1_000_000;

/// Whether a statement goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Routed {
    /// Its decision is made; its text may have been replaced.
    GoesOn,
    /// It has been answered, or its session is over.
    Ended,
}

impl Work<'_> {
    /// Decides about the text of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox, or about an execution of
    /// `prepared`. A text that rules replace is replaced in the inbox, so that whoever looks at it afterwards sees
    /// what will be sent.
    pub(crate) fn route(&mut self, prepared: Option<&Rc<Prepared>>) -> Routed {
        let session = &mut *self.session;
        let decided = session.place.decided.take();
        if session.is_bound() && decided.is_none() {
            return Routed::GoesOn; // where it came in has decided
        }
        let text = match prepared {
            Some(prepared) => prepared.text(),
            None => session.text(),
        };
        let hints = Hints::of(text, session.tracked.dialect);
        session.execution.min_gtid = hints.min_gtid.map(Box::new);
        if let Some(decision) = decided {
            // The same command, looked at anew.
            session.execution.plan = session.execution.plan.decided(*decision);
            return Routed::GoesOn;
        }
        if self.ctx.router.rules().is_empty() && hints == Hints::default() {
            return self.decided();
        }
        self.ctx.statistics.totals.gtids_malformed += u64::from(hints.has_bad_gtid);
        let scope = self.session.scope_of(self.ctx);
        let session = &mut *self.session;
        let statement = match prepared {
            Some(prepared) => prepared.text(),
            None => session.text(),
        };
        let flag_in = session.place.next_flag_in;
        let known = prepared.map(|prepared| prepared.digest_text.borrow());
        let (digest_text, digest) = match (session.execution.digest, &known) {
            (Some(digest), Some(text)) => (&***text, digest),
            // Made from this very text a moment ago.
            (Some(digest), None) => (self.ctx.digester.text(), digest),
            (None, _) => {
                let digest = self.ctx.digester.digest(statement);
                (digest.text, digest.hash)
            }
        };
        let facts = Facts { statement, digest_text, digest, flag_in };
        let random = &mut self.ctx.random;
        let verdict = self.ctx.router.decide(scope, &facts, hints, &mut || random.next());
        session.place.next_flag_in = verdict.decision.next_flag_in.unwrap_or(0);
        session.execution.plan = session.execution.plan.decided(verdict.decision);
        if prepared.is_some() {
            // What was to be replaced was replaced in the text that was prepared.
            return self.decided();
        }
        match verdict.rewritten {
            _ if verdict.is_too_long => self.refuse_rewrite(),
            Some(text) if text.len() >= COMMAND_BYTES_KEPT || self.session.input.upload.is_some() => {
                self.refuse_rewrite()
            }
            Some(text) => {
                self.session.input.replace_text(&text);
                self.decided()
            }
            None => self.decided(),
        }
    }

    /// Answers what rules answer, and notes how long the statement is to be held.
    fn decided(&mut self) -> Routed {
        let default_delay = self.ctx.snapshot.variables.default_query_delay.as_nanos() as Nanos;
        let session = &mut *self.session;
        let decision = session.execution.plan.decision();
        // An OK is no answer to a PREPARE: what is prepared is answered when it is executed.
        let ok = decision.ok.filter(|_| session.execution.plan.kind() != CommandKind::Prepare);
        if let Some(rule) = ok {
            self.session.reply_ok_message(self.ctx, rule);
            self.answered_here();
            return Routed::Ended;
        }
        if let Some(rule) = decision.error {
            let message = self.ctx.router.error_message(rule).to_owned();
            self.answer_error(NOT_ALLOWED, &message);
            return Routed::Ended;
        }
        session.execution.record.held_for_ns =
            default_delay + Nanos::from(decision.delay_ms.unwrap_or(0)) * NS_PER_MS;
        Routed::GoesOn
    }

    fn refuse_rewrite(&mut self) -> Routed {
        let message = "A query rule's replace_pattern applies to a statement that is too long for it, or makes it so \
                       (1 MB)";
        if self.session.input.upload.is_some() {
            self.fail_session(error::NET_PACKET_TOO_LARGE, message);
        } else {
            self.answer_error(error::NET_PACKET_TOO_LARGE, message);
        }
        Routed::Ended
    }
}

impl Context {
    /// New rules: what was remembered, and what sessions know of their place in them, is over. Roles that change
    /// leave the rules alone. False if they are the same.
    pub(crate) fn take_rules(&mut self, snapshot: &Arc<Snapshot>) -> bool {
        if Arc::ptr_eq(self.router.rules(), &snapshot.rules) {
            return false;
        }
        self.router = Router::new(&snapshot.rules);
        self.statistics.rules.begin_again();
        self.told_given_up = 0;
        true
    }
}

impl Work<'_> {
    /// The time of a statement that was held is over.
    pub(crate) fn end_hold(&mut self) {
        if matches!(self.session.phase, Phase::Held) {
            self.start();
        }
    }
}

impl Session {
    /// The text of the COM_QUERY or COM_STMT_PREPARE at the front of the inbox.
    fn text(&self) -> &[u8] {
        self.input
            .inbox
            .get(HEADER_LEN + 1..self.input.command_bytes.min(self.input.inbox.len()))
            .unwrap_or_default()
    }

    /// The pin of rules with multiplex 0 and 1, once the statement has run.
    pub(crate) fn apply_multiplex(&mut self) {
        match self.execution.plan.decision().multiplex {
            Some(Multiplex::Off) => self.pins.insert(Pins::QUERY_RULE),
            Some(Multiplex::On) => self.pins.remove(Pins::QUERY_RULE),
            Some(Multiplex::NotForVariables) | None => {}
        }
    }
}

impl Context {
    /// Once a second at most: what comments say in vain; a pattern that reaches its limits costs time, and its rule does not match.
    pub(crate) fn tell_given_up(&mut self) {
        let malformed = self.statistics.totals.gtids_malformed;
        let times = malformed - std::mem::replace(&mut self.told_malformed_gtids, malformed);
        if times > 0 {
            tracing::warn!(times, "comments had a min_gtid that is no transaction's id: it was ignored");
        }
        let given_up = self.router.patterns_given_up();
        let times = given_up - std::mem::replace(&mut self.told_given_up, given_up);
        if times > 0 {
            tracing::warn!(times, "patterns of query rules reached their limits: their rules did not match");
        }
    }
}

impl Session {
    fn reply_ok_message(&mut self, ctx: &mut Context, rule: u16) {
        self.diagnostics.row_count = 0;
        let info = ctx.router.ok_message(rule).as_bytes();
        let ok = OkPacket { info, ..OkPacket::new(OK_HEADER, self.status()) };
        let capabilities = self.capabilities;
        let mut sequence = self.input.upload.as_ref().map_or(0, |upload| upload.sequence).wrapping_add(1);
        if let Some(buffer) = ctx.out.buffer(self.socket) {
            weir_protocol::frame::packet(buffer, &mut sequence, |out| ok.write(capabilities, out));
        }
    }

    /// Holds a statement for the time that a rule, a hint or mysql-default_query_delay gives. True if it was held
    /// already, or need not be.
    pub(crate) fn has_been_held(&mut self, ctx: &mut Context) -> bool {
        let delay = std::mem::take(&mut self.execution.record.held_for_ns);
        if delay == 0 {
            return true;
        }
        self.phase = Phase::Held;
        let socket = self.socket;
        ctx.timers.hold(self.key, socket, ctx.now + delay);
        false
    }
}
