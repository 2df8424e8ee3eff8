//! Wakes the thread of a causal probe: somebody waits for a check, or it has to end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use weir_topology::ServerShared;

/// What such a thread waits with, for the server that it checks.
pub(crate) struct Alarm {
    eventfd: Arc<OwnedFd>,
    number: u64,
    pub(crate) shared: Arc<ServerShared>,
}

impl Alarm {
    /// From now on [`weir_topology::Coverage::want`] wakes the thread that waits with this one.
    pub(crate) fn of(shared: Arc<ServerShared>) -> io::Result<Self> {
        let eventfd = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let rung = eventfd.clone();
        let number = shared.coverage.set_alarm(move || {
            let _ = rustix::io::write(&*rung, &1_u64.to_ne_bytes());
        });
        Ok(Self { eventfd, number, shared })
    }

    /// Waits until one of `connections` has something to read, a check is wanted, or the time is over. Which of them have?
    pub(crate) fn wait<C: AsFd>(&self, connections: &[C], timeout: Duration) -> Vec<bool> {
        let coverage = &self.shared.coverage;
        // While a check is wanted, whoever else wants one need not ring.
        coverage.falls_asleep(self.number);
        let mut waited: Vec<PollFd<'_>> = Vec::with_capacity(connections.len() + 1);
        waited.extend(connections.iter().map(|connection| PollFd::new(connection, PollFlags::IN)));
        waited.push(PollFd::new(&*self.eventfd, PollFlags::IN));
        // Interrupted or not: what is there is seen the next time.
        let _ = poll(&mut waited, Timespec::try_from(timeout).ok().as_ref());
        let mut speak: Vec<bool> = waited.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(waited);
        coverage.wakes_up(self.number);
        if speak.pop() == Some(true) {
            let _ = rustix::io::read(&*self.eventfd, &mut [0; 8]);
        }
        speak
    }
}
