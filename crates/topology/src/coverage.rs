//! Shares what a server is known to have applied, and who waits for it to have more, between the data path and the thread that
//! checks that.
//!
//! A *causality check* is a read that the server itself makes wait: it ends when the server has everything that was committed
//! in its cluster before the check began. One check serves everybody who waits for something older than its beginning, so
//! that it does not matter how many wait. (Consensus systems call that ReadIndex.) The data path says from which moment on a
//! check has to begin ([`Coverage::want`]); the checking thread begins the next one as soon as somebody wants one and the
//! server has had its pause, and tells when it has ended.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Called by the checking thread with the workers that wait, as a set of bits: worker n is bit n modulo 64.
pub(crate) type Listener = OnceLock<Box<dyn Fn(u64) + Send + Sync>>;
/// Wakes the checking thread.
type Alarm = Arc<dyn Fn() + Send + Sync>;

/// What a check is expected to take as long as none has ended, in nanoseconds.
const LATENCY_FIRST_NS: u64 = 1_000_000;
/// A new measurement counts for one part in so many.
const LATENCY_PARTS: u64 = 8;
/// A check that takes so many times as long as usual is late: nobody knows when it will end.
const LATE_FACTOR: u64 = 3;
/// None is late before this time, in nanoseconds.
const LATE_MIN_NS: u64 = 5_000_000;

/// See the module's text. All times are nanoseconds of CLOCK_BOOTTIME.
#[derive(Default)]
pub struct Coverage {
    /// Every write that any server of the cluster acknowledged before this moment is visible on this one. 0: nothing is known.
    /// It never goes back.
    covered_until_ns: AtomicU64,
    /// A check has to begin after this moment, for somebody waits.
    wanted_ns: AtomicU64,
    /// The last check began then.
    begun_ns: AtomicU64,
    /// The first check that has not ended began then; 0: all have ended.
    pending_since_ns: AtomicU64,
    /// No check begins before this moment.
    next_ns: AtomicU64,
    /// How long checks take, a moving average. 0: none has ended yet.
    latency_ns: AtomicU64,
    /// Nobody checks: the server does not do what its manual says, or the account may not. A number of [`Unchecked`].
    unchecked: AtomicU32,
    /// The workers whose sessions wait.
    waiting: AtomicU64,
    /// Checks that have ended.
    checks: AtomicU64,
    /// The thread that sleeps, by the number of its alarm; 0: none. While a thread that has been replaced comes to its end, there are
    /// two: the newer one counts.
    asleep: AtomicU64,
    alarms: AtomicU64,
    alarm: Mutex<Option<Alarm>>,
    listener: Arc<Listener>,
}

/// Why no checks are made on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unchecked {
    /// It has just been configured, is not a part of its cluster now, or its last check has failed.
    NotYet,
    /// A session of it does not wait although it is told to.
    DoesNotWait,
    /// Its source has no global transaction ids that could be waited for.
    NoPositions,
    /// The writer is read_only: another server may have become the writer, and nobody has told yet.
    WriterReadOnly,
    /// Its source has not got all that it has from it: the source was restored, or its binary log was reset.
    SourceWentBack,
}

impl Unchecked {
    const ALL: [Self; 5] =
        [Self::NotYet, Self::DoesNotWait, Self::NoPositions, Self::WriterReadOnly, Self::SourceWentBack];

    /// From 1 on.
    fn number(self) -> u32 {
        match self {
            Self::NotYet => 1,
            Self::DoesNotWait => 2,
            Self::NoPositions => 3,
            Self::WriterReadOnly => 4,
            Self::SourceWentBack => 5,
        }
    }

    /// Whether nothing will change it but another version or setting of the server.
    pub fn is_lasting(self) -> bool {
        matches!(self, Self::DoesNotWait | Self::NoPositions)
    }

    /// For messages: what is wrong with the server.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotYet => "no causality check of it has ended yet",
            Self::DoesNotWait => {
                "its sessions do not wait as they are told to, so nobody can tell how fresh it is"
            }
            Self::NoPositions => {
                "its source has no global transaction ids, so nobody can tell how fresh it is"
            }
            Self::WriterReadOnly => "the writer has become read_only, and another server may write by now",
            Self::SourceWentBack => {
                "it has transactions of its source that the source does not have: that one was restored, or RESET MASTER was run"
            }
        }
    }
}

impl fmt::Debug for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coverage")
            .field("covered_until_ns", &self.covered_until_ns)
            .field("wanted_ns", &self.wanted_ns)
            .field("begun_ns", &self.begun_ns)
            .finish_non_exhaustive()
    }
}

impl Coverage {
    pub(crate) fn telling(listener: Arc<Listener>) -> Self {
        let unchecked = AtomicU32::new(Unchecked::NotYet.number());
        Self { listener, unchecked, ..Self::default() }
    }

    /// Whether what was acknowledged at this moment is certainly visible here.
    pub fn covers(&self, moment_ns: u64) -> bool {
        self.covered_until_ns.load(Ordering::SeqCst) > moment_ns
    }

    /// Up to which moment the server certainly has everything; 0: nothing is known.
    pub fn covered_until_ns(&self) -> u64 {
        self.covered_until_ns.load(Ordering::Relaxed)
    }

    /// A session of this worker waits until [`Coverage::covers`] the moment. It has to look once more afterwards: it may do
    /// so already.
    pub fn want(&self, moment_ns: u64, worker: usize) {
        self.waiting.fetch_or(1 << (worker % 64), Ordering::SeqCst);
        self.wanted_ns.fetch_max(moment_ns, Ordering::SeqCst);
        if self.asleep.load(Ordering::SeqCst) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            self.wake_checker();
        }
    }

    /// Wakes the checking thread, if it sleeps.
    pub fn wake_checker(&self) {
        let alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(alarm) = alarm {
            alarm();
        }
    }

    /// How long it is likely to take until the moment is covered, in nanoseconds. None: nobody checks. 0 only if it is covered:
    /// no estimate is as good as that.
    pub fn expected_wait_ns(&self, moment_ns: u64, now_ns: u64) -> Option<u64> {
        if self.covers(moment_ns) {
            return Some(0);
        }
        if self.unchecked.load(Ordering::Relaxed) != 0 {
            return None;
        }
        let latency = match self.latency_ns.load(Ordering::Relaxed) {
            0 => LATENCY_FIRST_NS,
            latency => latency,
        };
        let age = |since: u64| now_ns.saturating_sub(since);
        let pending = self.pending_since_ns.load(Ordering::Relaxed);
        let until_next = self.next_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        let (wait, late) = if pending == 0 {
            (until_next + latency, 0)
        } else {
            let is_late = age(pending) > (LATE_FACTOR * latency).max(LATE_MIN_NS);
            let begun = self.begun_ns.load(Ordering::Relaxed);
            let rest = latency.saturating_sub(age(begun)).max(latency / 4);
            let wait = if begun > moment_ns { rest } else { rest.max(until_next) + latency };
            (wait, if is_late { age(pending) } else { 0 })
        };
        Some(wait.max(late).max(1))
    }

    /// Why nobody checks, if nobody does.
    pub fn unchecked(&self) -> Option<Unchecked> {
        let number = usize::try_from(self.unchecked.load(Ordering::Relaxed)).ok()?;
        number.checked_sub(1).and_then(|at| Unchecked::ALL.get(at).copied())
    }

    /// How long checks take, in nanoseconds; 0: none has ended.
    pub fn latency_ns(&self) -> u64 {
        self.latency_ns.load(Ordering::Relaxed)
    }

    /// Checks that have ended.
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }
}

/// For the checking thread.
impl Coverage {
    /// The thread is woken in this way from now on. Gives the number of the alarm, greater than those before.
    pub fn set_alarm(&self, alarm: impl Fn() + Send + Sync + 'static) -> u64 {
        let mut place = self.alarm.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(alarm));
        self.alarms.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether somebody waits for a check that has not begun yet.
    pub fn is_wanted(&self) -> bool {
        let wanted = self.wanted_ns.load(Ordering::SeqCst);
        wanted != 0 && wanted >= self.begun_ns.load(Ordering::Relaxed) && !self.covers(wanted)
    }

    /// The thread with this alarm is about to sleep until it is woken. False if it must not: a check is wanted.
    pub fn falls_asleep(&self, alarm: u64) -> bool {
        self.asleep.fetch_max(alarm, Ordering::SeqCst);
        let may_sleep = !self.is_wanted();
        if !may_sleep {
            self.wakes_up(alarm);
        }
        may_sleep
    }

    /// The thread is awake, and will look itself. What another one does is not touched.
    pub fn wakes_up(&self, alarm: u64) {
        let _ = self.asleep.compare_exchange(alarm, 0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// A check begins at this moment; `oldest_ns` is when the first began that has not ended.
    pub fn check_begins(&self, moment_ns: u64, oldest_ns: u64) {
        self.begun_ns.fetch_max(moment_ns, Ordering::SeqCst);
        self.pending_since_ns.store(oldest_ns, Ordering::Relaxed);
    }

    /// The next check begins no sooner than at this moment.
    pub fn note_next(&self, moment_ns: u64) {
        self.next_ns.store(moment_ns, Ordering::Relaxed);
    }

    /// The first check that has not ended began then; 0: there is none.
    pub fn note_pending(&self, oldest_ns: u64) {
        self.pending_since_ns.store(oldest_ns, Ordering::Relaxed);
    }

    /// A check that began at `moment_ns` has ended now.
    pub fn check_ends(&self, moment_ns: u64, now_ns: u64) {
        let took = now_ns.saturating_sub(moment_ns).max(1);
        let before = self.latency_ns.load(Ordering::Relaxed);
        let latency = if before == 0 { took } else { before - before / LATENCY_PARTS + took / LATENCY_PARTS };
        self.latency_ns.store(latency.max(1), Ordering::Relaxed);
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.cover_until(moment_ns);
    }

    /// Everything acknowledged before this moment is visible here. Those who wait are told.
    pub fn cover_until(&self, moment_ns: u64) {
        self.covered_until_ns.fetch_max(moment_ns, Ordering::SeqCst);
        self.unchecked.store(0, Ordering::Relaxed);
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let workers = self.waiting.swap(0, Ordering::SeqCst);
        if let Some(listener) = self.listener.get() {
            listener(workers);
        }
    }

    /// Nobody checks, for this reason.
    pub fn note_unchecked(&self, why: Unchecked) {
        self.unchecked.store(why.number(), Ordering::Relaxed);
        // Who waits here has to go elsewhere.
        let workers = self.waiting.swap(0, Ordering::SeqCst);
        if let (true, Some(listener)) = (workers != 0, self.listener.get()) {
            listener(workers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_next_check_is_for_all_who_want_one_that_begins_later() {
        let coverage = Coverage::default();
        assert!(!coverage.is_wanted());
        coverage.want(5 * MS, 0);
        assert!(coverage.is_wanted());
        coverage.check_begins(6 * MS, 6 * MS);
        assert!(!coverage.is_wanted(), "the one under way will do");
        coverage.want(6 * MS, 1);
        assert!(coverage.is_wanted(), "it began too early for this one");
        coverage.check_ends(6 * MS, 8 * MS);
        assert!(coverage.covers(5 * MS) && !coverage.covers(6 * MS) && coverage.is_wanted());
        coverage.check_begins(8 * MS, 8 * MS);
        coverage.check_ends(8 * MS, 9 * MS);
        assert!(coverage.covers(6 * MS) && !coverage.is_wanted());
    }

    #[test]
    fn workers_that_wait_are_told_once() {
        let listener: Arc<Listener> = Arc::default();
        let told = Arc::new(AtomicU64::new(0));
        let hears = told.clone();
        let _ = listener.set(Box::new(move |workers| hears.store(workers, Ordering::SeqCst)));
        let coverage = Coverage::telling(listener);
        coverage.want(1, 3);
        coverage.want(2, 65);
        coverage.cover_until(10);
        assert_eq!(told.swap(0, Ordering::SeqCst), 0b1010);
        coverage.cover_until(11);
        assert_eq!(told.load(Ordering::SeqCst), 0, "nobody waits any more");
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_and_none_falls_asleep_while_it_is_wanted() {
        let coverage = Coverage::default();
        let rung = Arc::new(AtomicU64::new(0));
        let bell = rung.clone();
        let alarm = coverage.set_alarm(move || {
            bell.fetch_add(1, Ordering::SeqCst);
        });
        assert!(coverage.falls_asleep(alarm));
        coverage.want(5, 0);
        coverage.want(6, 0);
        assert_eq!(rung.load(Ordering::SeqCst), 1, "once is enough");
        assert!(!coverage.falls_asleep(alarm));
        coverage.check_begins(7, 7);
        assert!(coverage.falls_asleep(alarm));
    }

    /// A reload has replaced it, and it still waits for an answer meanwhile.
    #[test]
    fn a_thread_that_ends_late_does_not_keep_the_next_one_asleep() {
        let coverage = Coverage::default();
        let rung = Arc::new(AtomicU64::new(0));
        let before = coverage.set_alarm(|| {});
        let bell = rung.clone();
        let now = coverage.set_alarm(move || {
            bell.fetch_add(1, Ordering::SeqCst);
        });
        for moment in [5, 15, 25] {
            match moment {
                5 => assert!(coverage.falls_asleep(before) && coverage.falls_asleep(now)),
                _ => assert!(coverage.falls_asleep(now) && coverage.falls_asleep(before)),
            }
            coverage.wakes_up(before);
            coverage.want(moment, 0);
            assert_eq!(rung.swap(0, Ordering::SeqCst), 1, "{moment}");
            coverage.check_begins(moment + 1, moment + 1);
        }
    }

    /// One that was the source of others answered itself at once, and is asked as a replica now.
    #[test]
    fn however_fast_checks_are_nothing_is_covered_before_one_has_ended() {
        let coverage = Coverage::default();
        for moment in [MS, 2 * MS, 3 * MS] {
            coverage.check_begins(moment, 0);
            coverage.check_ends(moment, moment);
        }
        coverage.check_begins(5 * MS, 5 * MS);
        assert_eq!(coverage.latency_ns(), 1);
        for now in [5 * MS, 6 * MS, 9 * MS] {
            assert!(coverage.expected_wait_ns(4 * MS, now) > Some(0), "at {now}");
        }
    }

    #[test]
    fn how_long_a_wait_is_expected_to_take() {
        let coverage = Coverage::default();
        assert_eq!(coverage.expected_wait_ns(1, 10), Some(LATENCY_FIRST_NS));
        coverage.check_begins(10 * MS, 10 * MS);
        coverage.check_ends(10 * MS, 12 * MS);
        coverage.note_pending(0);
        assert_eq!(coverage.expected_wait_ns(9 * MS, 20 * MS), Some(0));
        assert_eq!(coverage.expected_wait_ns(15 * MS, 20 * MS), Some(2 * MS));
        coverage.check_begins(20 * MS, 20 * MS);
        assert_eq!(coverage.expected_wait_ns(15 * MS, 21 * MS), Some(MS), "one is under way");
        assert_eq!(coverage.expected_wait_ns(20 * MS, 21 * MS), Some(3 * MS), "another has to follow");
        coverage.note_next(25 * MS);
        assert_eq!(coverage.expected_wait_ns(20 * MS, 21 * MS), Some(6 * MS), "not before its time");
        assert_eq!(coverage.expected_wait_ns(15 * MS, 60 * MS), Some(40 * MS), "it is late");
        coverage.note_unchecked(Unchecked::NoPositions);
        assert_eq!(coverage.expected_wait_ns(70 * MS, 80 * MS), None);
        assert_eq!(coverage.unchecked(), Some(Unchecked::NoPositions));
    }
}
