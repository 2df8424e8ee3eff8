//! Shuns servers to which connections fail although the monitor's own keep working, as ProxySQL does.

use std::sync::Arc;

use crate::{Millis, Policy};

/// Failures are counted within this time (ProxySQL's manual, `mysql-shun_on_failures`: errors in one second).
const WINDOW_MS: u64 = 1000;

/// The attempts of the data path to connect to one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connects {
    /// When the failures that are counted began.
    window: Millis,
    failures: u32,
    shun: Option<Shun>,
}

/// A server that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shun {
    /// Failures within a second that led to it, and those since.
    pub failures: u32,
    /// The last failure.
    pub cause: Arc<str>,
    /// When that was.
    pub failed_at: Millis,
    /// When the monitor has connected since, for the first time.
    accepted_at: Option<Millis>,
}

impl Connects {
    /// A connection of the data path has failed; enough of them within a second shun the server.
    pub fn failed(&mut self, now: Millis, cause: &str, policy: &Policy) {
        self.expire(now, policy);
        if let Some(shun) = &mut self.shun {
            shun.failures = shun.failures.saturating_add(1);
            shun.cause = cause.into();
            shun.failed_at = now;
            shun.accepted_at = None;
            return;
        }
        if self.failures == 0 || now.since(self.window) >= WINDOW_MS {
            self.window = now;
            self.failures = 0;
        }
        self.failures += 1;
        if self.failures >= policy.shun_on_failures.max(1) {
            let failures = std::mem::take(&mut self.failures);
            self.shun = Some(Shun { failures, cause: cause.into(), failed_at: now, accepted_at: None });
        }
    }

    /// The monitor has opened a connection of its own.
    pub fn accepted(&mut self, now: Millis) {
        if let Some(shun) = &mut self.shun {
            shun.accepted_at.get_or_insert(now);
        }
    }

    /// Why the server is shunned, if it is: until the recovery time is over *and* the monitor could connect.
    pub fn shun(&self, now: Millis, policy: &Policy) -> Option<&Shun> {
        let rests = |shun: &&Shun| now.since(shun.failed_at) < policy.shun_recovery_ms;
        self.shun.as_ref().filter(|shun| rests(shun) || shun.accepted_at.is_none())
    }

    /// Ends a shun whose time has come.
    pub fn expire(&mut self, now: Millis, policy: &Policy) {
        if self.shun(now, policy).is_none() {
            self.shun = None;
        }
    }

    /// Whether the monitor should find out if the server takes connections again.
    pub fn is_shunned(&self) -> bool {
        self.shun.is_some()
    }

    /// The server was out for another reason, and comes back by that one's rules.
    pub fn forget(&mut self) {
        *self = Self::default();
    }
}

impl Shun {
    /// Whether the server has taken the monitor's connection since the last failure: then it may serve before its
    /// time where nobody else does.
    pub fn takes_connections(&self) -> bool {
        self.accepted_at.is_some()
    }
}
