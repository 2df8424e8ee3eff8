//! Carries out KILL: of statements whose client is gone or whose time is up, and of sessions by other clients.
//!
//! A KILL names a server's thread, and by the time it arrives the thread may run something else. So a connection
//! with a KILL under way is fenced: it runs nothing further until the server has confirmed the KILL.

use weir_protocol::error;

use crate::keys::SessionKey;
use crate::session::Session;
use crate::session::phase::Phase;
use crate::shared::{Asker, KillOutcome, Message, Victims};
use crate::worker::Worker;

impl Worker {
    /// KILL from a client of this worker or another.
    pub(crate) fn kill_asked(&mut self, victims: Victims, query_only: bool, user: &str, by: Asker) {
        if by.worker == self.ctx.worker {
            let outcome = self.kill_here(victims, query_only, user, Some(by.session));
            return self.kill_answered(by, outcome);
        }
        let outcome = self.kill_here(victims, query_only, user, None);
        self.ctx.shared.mailboxes[by.worker].send(Message::Killed { to: by, outcome });
    }

    /// KILL by an admin. False: nobody has this connection id.
    pub(crate) fn kill_by_admin(&mut self, session: u32, query_only: bool) -> bool {
        let victim = self.ctx.ids.get(&session).copied();
        if let Some(victim) = victim {
            self.strike(victim, query_only);
        }
        victim.is_some()
    }

    /// Another worker has answered.
    pub(crate) fn kill_answered(&mut self, to: Asker, outcome: KillOutcome) {
        if !self.sessions.is(to.session, to.socket) {
            return;
        }
        let Phase::Asking(asking) = &mut self.sessions[to.session].phase else { return };
        asking.due -= 1;
        asking.outcome = match (asking.outcome, outcome) {
            (KillOutcome::Killed(here), KillOutcome::Killed(there)) => KillOutcome::Killed(here + there),
            (KillOutcome::Unknown, outcome) => outcome,
            (outcome, _) => outcome,
        };
        let asking = *asking;
        if asking.due == 0 {
            self.pools.reply_killed(
                &mut self.ctx,
                &mut self.sessions[to.session],
                asking.victims,
                asking.outcome,
            );
            self.work(to.session).answered_here();
        }
    }

    /// Strikes sessions of this worker. A user may kill its own only: Weir knows no privileges. Who asks is among
    /// them where it meant itself, and ends with its reply.
    fn kill_here(
        &mut self,
        victims: Victims,
        query_only: bool,
        user: &str,
        asker: Option<SessionKey>,
    ) -> KillOutcome {
        let is_own =
            |session: &Session| session.account.as_ref().is_some_and(|account| account.user.username == user);
        let keys: Vec<SessionKey> = match victims {
            Victims::Session(id) => {
                let Some(key) = self.ctx.ids.get(&id).copied() else { return KillOutcome::Unknown };
                if !is_own(&self.sessions[key]) {
                    return KillOutcome::NotOwner;
                }
                vec![key]
            }
            Victims::OfUser => self.sessions.keys_of(is_own),
        };
        for key in &keys {
            match asker {
                // KILL QUERY of oneself interrupts the KILL itself (MariaDB 10.11), unless it names the user.
                Some(asker) if asker == *key => {
                    if query_only && victims != Victims::OfUser {
                        self.sessions[asker].execution.kill.is_interrupted = true;
                    }
                    self.sessions[asker].input.close_when_done |= !query_only;
                }
                _ => self.strike(*key, query_only),
            }
        }
        KillOutcome::Killed(keys.len() as u32)
    }

    fn strike(&mut self, victim: SessionKey, query_only: bool) {
        let session = &self.sessions[victim];
        if !query_only {
            tracing::info!(session = session.id, "session killed");
            self.work(victim).abandon();
            return self.work(victim).forget();
        }
        if let (Phase::Running, Some(lease)) = (&session.phase, session.lease()) {
            let execution = &mut self.sessions[victim].execution;
            execution.kill.is_killed_unsent = !execution.tries.is_sent;
            self.pools.kill_backend(&mut self.ctx, lease, true);
        } else if matches!(session.phase, Phase::Waiting(_) | Phase::Held) {
            self.pools.leave_queues(&self.sessions[victim]);
            self.pools.reply_error(
                &mut self.ctx,
                &mut self.sessions[victim],
                error::QUERY_INTERRUPTED,
                "Query execution was interrupted",
            );
            self.work(victim).answered_here();
        }
    }
}
