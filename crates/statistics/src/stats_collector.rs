//! Collects what all workers have counted, for the control socket, the admin interface and metrics.
//!
//! However many ask, the workers are asked for the same thing a few times a second at most. Who comes while others wait
//! gets the same answer as they; nobody gets one that is older than the question.

mod digest_rows;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use weir_proxy::io::now;
use weir_proxy::service::Publisher;
use weir_proxy::snapshot::Users;
use weir_proxy::stats::{Clock, DigestSums, DigestTable, ReportPart, SessionRow, WorkerReport};

/// The workers are not asked for the same thing more often.
const PAUSE: Duration = Duration::from_millis(50);
/// How often tables of digests that are full are taken from the workers.
const FULL_TABLES_INTERVAL: Duration = Duration::from_millis(250);

/// The workers' counters, added up.
#[derive(Debug)]
pub struct StatsCollector {
    publisher: Publisher,
    /// How many digests there is room for. Who changes it does not wait for who reads them all.
    digests_max: AtomicUsize,
    /// Held by who reads all digests, and by who has them begin again. Taken before them.
    reading: Mutex<()>,
    digests: Mutex<Digests>,
    /// Statements that are in no row of the digests, ever.
    digests_dropped: AtomicU64,
    commands: Mutex<Fresh<Vec<WorkerReport>>>,
    errors: Mutex<Fresh<Vec<WorkerReport>>>,
    servers: Mutex<Fresh<Vec<WorkerReport>>>,
    rules: Mutex<Fresh<Vec<WorkerReport>>>,
    totals: Mutex<Fresh<Vec<WorkerReport>>>,
    statements: Mutex<Fresh<Vec<WorkerReport>>>,
    free_connections: Mutex<Fresh<Vec<WorkerReport>>>,
    sessions: Mutex<Fresh<Sessions>>,
}

/// By worker.
pub type Sessions = Vec<(usize, Vec<SessionRow>)>;

#[derive(Debug)]
struct Digests {
    sums: DigestSums,
    asked: Option<Instant>,
    /// Whether it was logged that statements are left out.
    is_loss_told: bool,
}

/// The last answer, and when it was asked for.
#[derive(Debug)]
struct Fresh<T>(Option<(Instant, Arc<T>)>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl StatsCollector {
    /// Nothing yet; room for so many digests.
    pub fn new(publisher: Publisher, digests_max: usize) -> Self {
        Self {
            publisher,
            digests_max: AtomicUsize::new(digests_max),
            reading: Mutex::default(),
            digests: Mutex::new(Digests::new(digests_max)),
            digests_dropped: AtomicU64::new(0),
            commands: Mutex::default(),
            errors: Mutex::default(),
            servers: Mutex::default(),
            rules: Mutex::default(),
            totals: Mutex::default(),
            statements: Mutex::default(),
            free_connections: Mutex::default(),
            sessions: Mutex::default(),
        }
    }

    /// Begins to take in what workers hand over unasked.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        let collector = Arc::downgrade(self);
        thread::Builder::new().name("statistics".into()).spawn(move || {
            while let Some(collector) = collector.upgrade() {
                collector.take_full_tables(&mut lock(&collector.digests));
                drop(collector);
                thread::sleep(FULL_TABLES_INTERVAL);
            }
        })?;
        Ok(())
    }

    /// Room for so many digests.
    pub fn limit_digests(&self, digests_max: usize) {
        self.digests_max.store(digests_max, Ordering::Relaxed);
    }

    /// Reads the digests of now.
    pub fn digests<R>(&self, read: impl FnOnce(&DigestSums) -> R) -> R {
        let asked = Instant::now();
        let mut digests = lock(&self.digests);
        if digests.asked.is_none_or(|at| at < asked) {
            pause_since(digests.asked);
            digests.asked = Some(Instant::now());
            let reports = self.publisher.report(ReportPart::Digests);
            self.add(&mut digests, reports);
        }
        read(&digests.sums)
    }

    /// Statements that are in no row of the digests, since the start.
    pub fn digests_dropped(&self) -> u64 {
        self.digests_dropped.load(Ordering::Relaxed)
    }

    /// The digests up to now, which begin again.
    pub fn take_digests(&self) -> DigestSums {
        let _nobody_reads = lock(&self.reading);
        let mut digests = lock(&self.digests);
        let reports = self.publisher.report_and_begin_again(ReportPart::Digests);
        let running = self.add(&mut digests, reports);
        digests.is_loss_told = false;
        digests.sums.begin_again(running)
    }

    /// Adds what workers have handed over, and tells the digests of statements that run.
    fn add(&self, digests: &mut Digests, reports: Vec<WorkerReport>) -> Vec<u64> {
        // A worker puts a full table down before it answers.
        self.take_full_tables(digests);
        let mut running = Vec::new();
        for report in reports {
            self.add_table(digests, report.digests);
            running.extend(report.running);
        }
        running
    }

    fn take_full_tables(&self, digests: &mut Digests) {
        let rows_max = self.digests_max.load(Ordering::Relaxed);
        digests.is_loss_told &= rows_max <= digests.sums.len();
        digests.sums.limit(rows_max);
        for table in self.publisher.full_tables() {
            self.add_table(digests, table);
        }
    }

    fn add_table(&self, digests: &mut Digests, table: DigestTable) {
        let dropped = digests.add(table);
        self.digests_dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// What the workers say of now, of what is counted or there.
    pub fn report(&self, part: ReportPart) -> Arc<Vec<WorkerReport>> {
        let fresh = match part {
            ReportPart::Commands => &self.commands,
            ReportPart::Errors => &self.errors,
            ReportPart::Servers => &self.servers,
            ReportPart::Rules => &self.rules,
            ReportPart::Totals => &self.totals,
            ReportPart::Statements => &self.statements,
            ReportPart::FreeConnections => &self.free_connections,
            // Not for sharing: the first is handed over, the others are asked for by those who need them at once.
            ReportPart::Digests | ReportPart::Writing | ReportPart::Sessions(_) => {
                return Arc::new(self.publisher.report(part));
            }
        };
        answer(fresh, || self.publisher.report(part))
    }

    /// The same, and the counters begin again.
    pub fn take(&self, part: ReportPart) -> Vec<WorkerReport> {
        self.publisher.report_and_begin_again(part)
    }

    /// The users, with how many clients each has now.
    pub fn users(&self) -> Arc<Users> {
        self.publisher.users()
    }

    /// All sessions.
    pub fn sessions(&self) -> Arc<Sessions> {
        answer(&self.sessions, || self.publisher.sessions())
    }

    /// Clients connected now.
    pub fn clients(&self) -> u32 {
        self.publisher.clients()
    }

    /// Whether all workers answer.
    pub fn is_answered(&self) -> bool {
        self.publisher.settle()
    }

    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.publisher.workers()
    }
}

impl Digests {
    /// Nothing yet; room for so many.
    fn new(rows_max: usize) -> Self {
        Self { sums: DigestSums::new(rows_max), asked: None, is_loss_told: false }
    }

    /// Adds a worker's table. Gives the number of statements that are in no row; the first ones are told of in the log.
    fn add(&mut self, table: DigestTable) -> u64 {
        let before = self.sums.dropped();
        self.sums.add(table, &clock());
        let dropped = self.sums.dropped() - before;
        if dropped > 0 && !std::mem::replace(&mut self.is_loss_told, true) {
            let rows = self.sums.len();
            match self.sums.is_full() {
                true => tracing::warn!(
                    rows,
                    "the table of digests is full (mysql-query_digests_max): statements with new digests are only counted, in weir_digests_dropped, until the table is reset or its limit raised"
                ),
                false => tracing::warn!(
                    rows,
                    "too many new digests, users or schemas at a time: some statements are only counted, in weir_digests_dropped"
                ),
            }
        }
        dropped
    }
}

/// An answer to a question that was asked after this call.
fn answer<T>(fresh: &Mutex<Fresh<T>>, ask: impl FnOnce() -> T) -> Arc<T> {
    let asked = Instant::now();
    let mut fresh = lock(fresh);
    if let Some((at, answer)) = &fresh.0
        && *at >= asked
    {
        return answer.clone();
    }
    pause_since(fresh.0.as_ref().map(|(at, _)| *at));
    let at = Instant::now();
    let answer = Arc::new(ask());
    fresh.0 = Some((at, answer.clone()));
    answer
}

/// Waits until the pause after the last question is over.
fn pause_since(last: Option<Instant>) {
    if let Some(last) = last {
        thread::sleep(PAUSE.saturating_sub(last.elapsed()));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clocks of now.
pub(crate) fn clock() -> Clock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Clock { unix_s: since.map_or(0, |since| since.as_secs()), now: now() }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn many_questions_at_a_time_are_few_for_the_workers() {
        let (fresh, asked) = (Mutex::new(Fresh::default()), AtomicU32::new(0));
        let together = Barrier::new(20);
        thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    together.wait();
                    let before = asked.load(Ordering::SeqCst);
                    let answer = answer(&fresh, || asked.fetch_add(1, Ordering::SeqCst) + 1);
                    assert!(*answer > before, "an answer to an older question");
                });
            }
        });
        // All come at once or nearly so; on a busy machine some come later.
        assert!(asked.load(Ordering::SeqCst) <= 20);
    }

    #[test]
    fn every_question_after_an_answer_is_asked_anew() {
        let (fresh, asked) = (Mutex::new(Fresh::default()), AtomicU32::new(0));
        let next = || *answer(&fresh, || asked.fetch_add(1, Ordering::SeqCst) + 1);
        assert_eq!((next(), next(), next()), (1, 2, 3));
    }
}
