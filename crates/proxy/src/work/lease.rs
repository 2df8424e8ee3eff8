//! Ends leases: a session leaves its connection, which goes to the next as it is, is made fit for it, or is closed.

use weir_session::pin::Pins;

use crate::context::Context;
use crate::keys::ConnectionKey;
use crate::pool::pools::Pools;
use crate::server::connection::{DiscardReason, Expected};
use crate::session::Session;
use crate::session::bonds::Lease;
use crate::session::execution::{Ending, Settle};
use crate::session::phase::Phase;
use crate::session::retained::Retained;
use crate::work::Work;

impl Pools {
    /// A session leaves its lease behind, in order, unless a pin holds it.
    pub(crate) fn release_if_free(&mut self, ctx: &mut Context, session: &mut Session) {
        if session.pins.is_empty() {
            self.release(ctx, session);
        }
    }

    /// A session leaves its lease behind, in order.
    pub(crate) fn release(&mut self, ctx: &mut Context, session: &mut Session) {
        let Some(lease) = self.detach(ctx, session) else { return };
        ctx.statistics.totals.pool_returns += 1;
        self.offer(ctx, lease);
    }

    /// A session leaves a lease that goes on as it is: what only that knows of the session is marked on it. Every lease
    /// ends either here, or with [`Session::lose_lease`], or with its session.
    pub(crate) fn detach(&mut self, ctx: &mut Context, session: &mut Session) -> Option<ConnectionKey> {
        let lease = session.lease()?;
        self.mark_retained(ctx, session, lease);
        session.lease = None;
        self.connections[lease].holder = None;
        Some(lease)
    }
}

impl Work<'_> {
    /// The client is gone, or has to go: its lease is rolled back, its statement killed.
    pub(crate) fn abandon(&mut self) {
        self.pools.leave_queues(self.session);
        self.pools.connections.forget_retained(self.session);
        self.abandon_lease();
        if self.session.recall_lease(self.ctx) {
            self.abandon_lease();
        }
    }

    /// The same for the lease alone.
    pub(crate) fn abandon_lease(&mut self) {
        let session = &mut *self.session;
        let Some(Lease { on: lease, .. }) = session.lease.take() else { return };
        let pins = session.pins.pins();
        let is_running = matches!(session.phase, Phase::Running);
        let is_flowing = session.input.upload.as_ref().is_some_and(|upload| upload.is_flowing);
        let is_uploading = is_running && (is_flowing || session.input.infile.is_some());
        self.pools.connections[lease].holder = None;
        if is_uploading {
            // The server waits for the rest of a command, or of a file, that will never come.
            return self.pools.discard(self.ctx, lease, Some(DiscardReason::ClientGone));
        }
        // However it is given back: what it may have is to be proven gone.
        self.pools.connections[lease].traces.is_suspect |= pins.intersects(Pins::OPAQUE);
        let expected = &self.pools.connections[lease].replies.expected;
        let owes_answer = expected.iter().any(|e| {
            matches!(
                e,
                Expected::Relay(_) | Expected::Prepare(_) | Expected::Replay | Expected::CommitWrapped
            )
        });
        let outlives_reset = pins.intersects(Pins::OUTLIVE_RESET);
        let is_asked_for_collation = matches!(expected.back(), Some(Expected::Settle(Settle::Collation)));
        if is_asked_for_collation && expected.len() == 1 && !outlives_reset {
            // The client has its answer, and Weir will have its own in a moment: see `finish_abandoned`. After an
            // error nothing of the kind: then not even the connection's schema is known.
        } else if owes_answer {
            self.pools.connections[lease].discard_reason = Some(DiscardReason::ClientGone);
            let socket = self.pools.connections[lease].socket;
            self.ctx.out.pause(socket, false);
            if self.ctx.snapshot.variables.kill_backend_connection_when_disconnect {
                self.pools.kill_backend(self.ctx, lease, false);
            }
        } else if pins.is_empty() && self.pools.connections[lease].replies.expected.is_empty() {
            self.pools.offer(self.ctx, lease);
            self.hear();
        } else if self.pools.connections[lease].replies.expected.is_empty() {
            self.pools.recycle(self.ctx, lease, pins);
            self.hear();
        } else {
            self.pools.connections[lease].discard_reason = Some(DiscardReason::ClientGone);
        }
    }

    /// The read is over, however it ended: its connection is given back, and the lease is the session's again.
    pub(crate) fn end_detour(&mut self) {
        let leaves_warnings = self.pools.leaves_warnings(self.ctx, self.session);
        let session = &mut *self.session;
        let Some(mut detour) = session.stay.detour.take() else { return };
        let pins = session.pins.pins();
        if session.diagnostics.retained.contains(Retained::WARNINGS) || !leaves_warnings {
            detour.retained -= Retained::WARNINGS;
        }
        let has_rows = matches!(session.execution.ending, Ending::Ok { has_rows: true, .. });
        if session.diagnostics.retained.contains(Retained::FOUND_ROWS) || has_rows {
            detour.retained -= Retained::FOUND_ROWS;
        }
        if let Some(other) = self.pools.detach(self.ctx, self.session) {
            if pins.is_empty() {
                // The session asks the lease from now on: what the other connection knows is fetched at once.
                self.pools.fetch_retained(self.ctx, self.session, other);
                self.pools.offer(self.ctx, other);
                self.hear();
            } else {
                // A read does not do that.
                tracing::warn!(
                    session = self.session.id,
                    pins = pins.words(),
                    "a read of a detour changed session state on the other server: that state is dropped"
                );
                self.pools.recycle(self.ctx, other, pins);
            }
        }
        self.session.take_back(self.ctx, *detour);
    }
}

impl Work<'_> {
    /// The lease is thrown away, with whatever was begun on it.
    pub(crate) fn discard_lease(&mut self, key: ConnectionKey) {
        self.pools.connections[key].holder = None;
        self.pools.discard(self.ctx, key, Some(DiscardReason::Rejected));
        self.hear();
        self.lose_what_lease_knew();
        self.session.lose_lease();
    }

    /// What only the lease knew is lost, also where another connection still knows something of its session.
    pub(crate) fn lose_what_lease_knew(&mut self) {
        let Some(other) = self.session.diagnostics.retained_on else { return };
        let known = self.pools.connections.get(other).and_then(|other| other.traces.retained_for);
        let known = known.filter(|mark| mark.socket == self.session.socket);
        let known = known.map_or(Retained::empty(), |mark| mark.what);
        let diagnostics = &mut self.session.diagnostics;
        diagnostics.lose(diagnostics.retained - known);
        diagnostics.retained &= known;
    }

    /// The session's transaction is over, or undone.
    pub(crate) fn forget_transaction(&mut self) {
        let session = &mut *self.session;
        session.pins.remove(Pins::TRANSACTION | Pins::SAVEPOINT);
        session.transaction.is_read_only = false;
        self.pools.end_log(session);
    }

    /// A command ends before the write is committed that it was: nothing of that is to be there.
    pub(crate) fn leave_wrapped(&mut self) {
        if !self.session.is_wrapped() {
            return;
        }
        if let Some(lease) = self.session.lease() {
            self.discard_lease(lease);
        }
        self.forget_transaction();
    }
}

impl Session {
    /// A session's lease is gone, and with it what only the lease knew.
    pub(crate) fn lose_lease(&mut self) {
        self.lease = None;
        self.forget_questions();
        if self.diagnostics.retained_on.is_none() {
            self.diagnostics.lose(self.diagnostics.retained);
            self.diagnostics.retained = Retained::empty();
        }
    }
}
