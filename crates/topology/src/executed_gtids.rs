//! Shares which transactions a server has executed, by their ids, and who waits for one, between the data path and the thread
//! that finds that out.
//!
//! Only statements that name an id (`min_gtid`) look at it. Whoever finds that the server does not have it says so
//! ([`ExecutedGtids::want`]); that wakes the thread if it has to ask the server, and the worker is told when there are more.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::coverage::Listener;
use crate::gtid::{Gtid, GtidFault, GtidSet, Uuid};

type Alarm = Arc<dyn Fn() + Send + Sync>;

/// See the module's text.
#[derive(Default)]
pub struct ExecutedGtids {
    known: RwLock<Known>,
    /// Causality checks tell instead: what has been acknowledged to anybody is there when a check has ended that began later.
    is_told_by_checks: AtomicBool,
    /// The workers whose sessions wait.
    waiting: AtomicU64,
    /// Somebody waits, and the thread has not heard of it yet.
    is_wanted: AtomicBool,
    alarm: Mutex<Option<Alarm>>,
    listener: Arc<Listener>,
}

#[derive(Default)]
struct Known {
    set: Option<GtidSet>,
    events: u64,
    why_unknown: WhyUnknown,
}

/// Why nobody knows what a server has executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhyUnknown {
    /// It has not told yet, or its last answer was lost.
    #[default]
    NotYet,
    /// It gives its transactions no ids.
    NoGtids,
    /// Its set is larger than what Weir keeps, or is not understood.
    Unreadable,
}

/// What is shown of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GtidsShown {
    /// The set, as text.
    pub executed: String,
    /// How often something was added to it.
    pub events: u64,
}

impl ExecutedGtids {
    pub(crate) fn telling(listener: Arc<Listener>) -> Self {
        Self { listener, ..Self::default() }
    }

    /// Whether the server is known to have executed the transaction.
    pub fn has(&self, gtid: &Gtid) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.set.as_ref().is_some_and(|set| set.has(gtid))
    }

    /// Whether its ids tell nothing that its causality checks do not tell.
    pub fn is_told_by_checks(&self) -> bool {
        self.is_told_by_checks.load(Ordering::Relaxed)
    }

    /// A session of this worker waits until there are more. It has to look once more afterwards.
    pub fn want(&self, worker: usize) {
        self.waiting.fetch_or(1 << (worker % 64), Ordering::SeqCst);
        if !self.is_wanted.swap(true, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Why it is not known what the server has executed; none if it is.
    pub fn why_unknown(&self) -> Option<WhyUnknown> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.set.is_none().then_some(known.why_unknown)
    }

    /// What is known, for people.
    pub fn shown(&self) -> Option<GtidsShown> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.set.as_ref().map(|set| GtidsShown { executed: set.to_string(), events: known.events })
    }
}

/// For the thread that finds out.
impl ExecutedGtids {
    /// The thread is woken in this way from now on.
    pub fn set_alarm(&self, alarm: impl Fn() + Send + Sync + 'static) {
        *self.alarm.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(alarm));
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        let alarm = self.alarm.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(alarm) = alarm {
            alarm();
        }
    }

    /// See [`ExecutedGtids::is_told_by_checks`].
    pub fn set_told_by_checks(&self, is_told: bool) {
        self.is_told_by_checks.store(is_told, Ordering::Relaxed);
    }

    /// Whether somebody has begun to wait since the last call.
    pub fn takes_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::SeqCst)
    }

    /// The server has executed this and nothing else. Whether that is new.
    pub fn replace(&self, set: GtidSet) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.set.as_ref() == Some(&set) {
            return false;
        }
        known.events += u64::from(known.set.is_some());
        known.set = Some(set);
        drop(known);
        self.tell();
        true
    }

    /// The server has executed this, too.
    ///
    /// # Errors
    /// The set would be too large, and nothing more is added.
    pub fn add(&self, more: &[(Uuid, u64, u64)]) -> Result<(), GtidFault> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.events += more.len() as u64;
        let set = known.set.get_or_insert_default();
        let added = more.iter().try_for_each(|(source, from, to)| set.insert(*source, *from, *to).map(drop));
        drop(known);
        self.tell();
        added
    }

    /// Nobody knows any more what it has executed.
    pub fn forget(&self, why: WhyUnknown) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.set = None;
        known.why_unknown = why;
    }

    fn tell(&self) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let workers = self.waiting.swap(0, Ordering::SeqCst);
        if let Some(listener) = self.listener.get() {
            listener(workers);
        }
    }
}

impl WhyUnknown {
    /// For messages: what is wrong with the server.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotYet => "it has not told yet which transactions it has executed",
            Self::NoGtids => "it gives its transactions no global transaction ids",
            Self::Unreadable => "its set of executed transactions is too large, or is not understood",
        }
    }
}

impl fmt::Debug for ExecutedGtids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutedGtids").field("shown", &self.shown()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    #[test]
    fn who_waits_wakes_the_thread_and_is_told_of_more() {
        let listener: Arc<Listener> = Arc::default();
        let (told, rung) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let hears = told.clone();
        let _ = listener.set(Box::new(move |workers| hears.store(workers, Ordering::SeqCst)));
        let gtids = ExecutedGtids::telling(listener);
        let bell = rung.clone();
        gtids.set_alarm(move || {
            bell.fetch_add(1, Ordering::SeqCst);
        });
        let gtid = Gtid::parse(format!("{SOURCE}:4").as_bytes()).unwrap();
        assert!(!gtids.has(&gtid) && gtids.why_unknown() == Some(WhyUnknown::NotYet));
        gtids.want(1);
        gtids.want(3);
        assert_eq!(rung.load(Ordering::SeqCst), 1, "once is enough");
        assert!(gtids.takes_wanted() && !gtids.takes_wanted());
        let set = |text: String| GtidSet::parse(text.as_bytes()).unwrap();
        gtids.replace(set(format!("{SOURCE}:1-3")));
        assert_eq!(told.swap(0, Ordering::SeqCst), 0b1010);
        gtids.want(0);
        gtids.replace(set(format!("{SOURCE}:1-3")));
        assert_eq!(told.load(Ordering::SeqCst), 0, "there is no more");
        gtids.add(&[(Uuid::parse(SOURCE.as_bytes()).unwrap(), 4, 4)]).unwrap();
        assert!(gtids.has(&gtid) && told.load(Ordering::SeqCst) == 1);
        let shown = GtidsShown { executed: format!("{SOURCE}:1-4"), events: 1 };
        assert_eq!(gtids.shown(), Some(shown));
        gtids.forget(WhyUnknown::NoGtids);
        assert!(!gtids.has(&gtid) && gtids.shown().is_none());
    }
}
