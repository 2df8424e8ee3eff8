//! Writes Weir's logs in files of their own: events (statements), slow statements, audit.
//!
//! ```text
//! worker-0 ── Feed ──► slot ─┐
//! worker-1 ── Feed ──► slot ─┼─► thread "query log": JSON, masks, files
//! admin ── QueryLogs::audit ► ┘
//! ```
//!
//! Whoever has something to log never waits, nor allocates in the steady state: it copies its record into a buffer of
//! its own, and at the end of a batch into its slot, of which the writer takes the contents ten times a second. What
//! finds no room, or no disk, is left out and counted.

mod feed;
mod file;
mod line;
mod record;
mod writer;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Thread;

use rustix::time::{ClockId, clock_gettime};

pub use feed::Feed;
use feed::Slot;
pub use record::{AuditEvent, AuditKind, Command, Statement};
pub use writer::Writer;

/// One of the logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Statements that rules or the default want logged.
    Events,
    /// Statements that took long.
    Slow,
    /// Logins, their ends, changes at the admin interface.
    Audit,
}

impl Log {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Events, Self::Slow, Self::Audit];

    /// Its name, as reports show it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Slow => "slow",
            Self::Audit => "audit",
        }
    }

    /// Its bit in a record.
    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The files of each log; none: it is off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// By the logs' numbers.
    pub files: [Option<FileSettings>; 3],
}

/// The files of one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The files' name without the number.
    pub base: PathBuf,
    /// After so many bytes the next one begins.
    pub bytes_max: u64,
    /// So many of the newest are kept; 0: all.
    pub files_max: u32,
}

/// The numbers of a log's lines, written and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines in files.
    pub written: u64,
    /// Lines that found no room in a buffer, or none on the disk.
    pub dropped: u64,
}

/// The events, slow and audit log, as all threads reach them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct QueryLogs {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// One for each worker, and one for all others.
    slots: Vec<Slot>,
    written: [AtomicU64; 3],
    dropped: [AtomicU64; 3],
    /// There is an audit log.
    audits: AtomicBool,
    orders: Mutex<Vec<Order>>,
    writer: OnceLock<Thread>,
}

#[derive(Debug)]
enum Order {
    /// From now on these files. Faults are answered.
    Take(Settings, Answer),
    /// Everything that is there is to be written, and the next files begun.
    Flush(Answer),
    Stop,
}

/// What is done with the faults, on the thread that writes.
struct Answer(Box<dyn FnOnce(Vec<String>) + Send>);

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

impl QueryLogs {
    /// For so many workers. Nothing is written before [`QueryLogs::start`].
    pub fn new(workers: usize) -> Self {
        let inner = Inner {
            slots: (0..=workers).map(|_| Slot::default()).collect(),
            written: Default::default(),
            dropped: Default::default(),
            audits: AtomicBool::new(false),
            orders: Mutex::default(),
            writer: OnceLock::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A worker's end.
    pub fn feed(&self, worker: usize) -> Feed {
        Feed::new(self.clone(), worker)
    }

    /// Logs something that did not happen at a worker: what was done at the admin interface. It may be left out, as any
    /// other, but it never waits for a disk. Does nothing while there is no audit log.
    pub fn audit(&self, event: &AuditEvent<'_>) {
        if !self.inner.audits.load(Ordering::Relaxed) {
            return;
        }
        let mut feed = self.feed(self.inner.slots.len() - 1);
        feed.audit(event);
        feed.flush_blocking();
    }

    /// Starts the thread that writes. It begins with the orders that it finds, and then writes what it finds: what was
    /// logged before is lost unless [`QueryLogs::take`] came before, too.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(&self) -> std::io::Result<Writer> {
        Writer::start(self.clone())
    }

    /// Goes by these settings from now on; never waits. What can't be written to is told `then`, by the thread that
    /// writes; it is tried again, and what is lost meanwhile is counted.
    pub fn take(&self, settings: Settings, then: impl FnOnce(Vec<String>) + Send + 'static) {
        self.order(Order::Take(settings, Answer(Box::new(then))));
    }

    /// Writes what is there and begins the next files; never waits. What can't be written to is told `then`.
    pub fn flush(&self, then: impl FnOnce(Vec<String>) + Send + 'static) {
        self.order(Order::Flush(Answer(Box::new(then))));
    }

    /// What has become of each log's lines, by the logs' numbers.
    pub fn counts(&self) -> [Counts; 3] {
        std::array::from_fn(|log| Counts {
            written: self.inner.written[log].load(Ordering::Relaxed),
            dropped: self.inner.dropped[log].load(Ordering::Relaxed),
        })
    }

    fn order(&self, order: Order) {
        self.inner.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.wake();
    }

    fn wake(&self) {
        if let Some(writer) = self.inner.writer.get() {
            writer.unpark();
        }
    }

    /// Counts lines that are left out, of the logs of these bits.
    fn drop_lines(&self, logs: u8, lines: u64) {
        for log in Log::ALL.into_iter().filter(|log| logs & log.bit() != 0) {
            self.inner.dropped[log as usize].fetch_add(lines, Ordering::Relaxed);
        }
    }
}

/// Nanoseconds of CLOCK_BOOTTIME, the clock of all records.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
