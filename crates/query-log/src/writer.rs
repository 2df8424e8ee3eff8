//! Runs the thread that writes.

use std::io;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::file::{LogFile, Outcome};
use crate::line::{Clocks, put_audit, put_statement};
use crate::record::Record;
use crate::{Answer, Log, Order, QueryLogs, Settings};

/// How long a record waits at most before it is written.
const ROUND: Duration = Duration::from_millis(100);
/// Lines that are left out are told of in Weir's own log so often.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The running thread.
#[derive(Debug)]
pub struct Writer {
    query_logs: QueryLogs,
    thread: JoinHandle<()>,
}

impl Writer {
    pub(crate) fn start(query_logs: QueryLogs) -> io::Result<Self> {
        let (to, ready) = channel();
        let own = query_logs.clone();
        let thread = std::thread::Builder::new().name("query log".into()).spawn(move || {
            // Orders are heard only when it is known whom to wake.
            let _ = own.inner.writer.set(std::thread::current());
            let _ = to.send(());
            WriterThread::new(own).run();
        })?;
        let _ = ready.recv();
        Ok(Self { query_logs, thread })
    }

    /// Writes what is there and ends.
    pub fn stop(self) {
        self.query_logs.order(Order::Stop);
        let _ = self.thread.join();
    }
}

struct WriterThread {
    query_logs: QueryLogs,
    files: [Option<LogFile>; 3],
    /// Those that were added for an order that is not carried out yet.
    added: [bool; 3],
    spare: Vec<u8>,
    /// Lines that were dropped, as far as they have been told of: by whom ever they were, and by the files' own.
    known: [u64; 3],
    told: [u64; 3],
    tell_at: Option<Instant>,
}

impl WriterThread {
    fn new(query_logs: QueryLogs) -> Self {
        Self {
            query_logs,
            files: Default::default(),
            added: [false; 3],
            spare: Vec::new(),
            known: [0; 3],
            told: [0; 3],
            tell_at: None,
        }
    }

    fn run(mut self) {
        loop {
            let orders = std::mem::take(
                &mut *self.query_logs.inner.orders.lock().unwrap_or_else(PoisonError::into_inner),
            );
            // Who gives an order does not wait: what is logged behind it may be there already.
            for order in &orders {
                if let Order::Take(settings, _) = order {
                    self.add(settings);
                }
            }
            self.write_all();
            for order in orders {
                match order {
                    Order::Take(settings, Answer(then)) => then(self.take(settings)),
                    Order::Flush(Answer(then)) => then(self.begin_next()),
                    Order::Stop => return,
                }
            }
            self.tell();
            // Whatever waited for something in an answer may have used up the wake-up of an order that came meanwhile.
            if self.has_orders() {
                continue;
            }
            if self.files.iter().any(Option::is_some) {
                std::thread::park_timeout(ROUND);
            } else {
                std::thread::park();
            }
        }
    }

    fn has_orders(&self) -> bool {
        !self.query_logs.inner.orders.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Logs that are switched on have their files from now on.
    fn add(&mut self, settings: &Settings) {
        for ((file, wanted), added) in self.files.iter_mut().zip(&settings.files).zip(&mut self.added) {
            if file.is_none() && wanted.is_some() {
                *file = wanted.clone().map(LogFile::new);
                *added = true;
            }
        }
    }

    fn take(&mut self, settings: Settings) -> Vec<String> {
        let audits = settings.files.get(Log::Audit as usize).is_some_and(Option::is_some);
        self.query_logs.inner.audits.store(audits, Ordering::Relaxed);
        let mut faults = Vec::new();
        for ((file, wanted), log) in self.files.iter_mut().zip(settings.files).zip(Log::ALL) {
            let is_as_before = file.as_ref().map(LogFile::settings) == wanted.as_ref();
            if is_as_before && !std::mem::take(&mut self.added[log as usize]) {
                continue;
            }
            if !is_as_before {
                *file = wanted.map(LogFile::new);
            }
            if let Some(Err(fault)) =
                file.as_mut().map(|file| file.open().map_err(|error| describe(log, file, &error)))
            {
                faults.push(fault);
            }
        }
        faults
    }

    fn begin_next(&mut self) -> Vec<String> {
        let files = self.files.iter_mut().zip(Log::ALL).filter_map(|(file, log)| Some((file.as_mut()?, log)));
        let begin = |(file, log): (&mut LogFile, Log)| {
            file.begin_next().err().map(|error| describe(log, file, &error))
        };
        files.filter_map(begin).collect()
    }

    /// Writes what waits in all slots.
    fn write_all(&mut self) {
        let clocks = Clocks::now();
        let mut outcomes = [Outcome::default(); 3];
        self.note_gaps();
        for slot in 0..self.query_logs.inner.slots.len() {
            let Some(waiting) = self.query_logs.inner.slots.get(slot) else { continue };
            let bytes = waiting.take(std::mem::take(&mut self.spare));
            let mut rest = &bytes[..];
            while let Some(record) = Record::take(&mut rest) {
                self.write(&record, clocks, &mut outcomes);
            }
            self.spare = bytes;
        }
        for ((log, file), outcome) in Log::ALL.into_iter().zip(&mut self.files).zip(&mut outcomes) {
            if let Some(file) = file {
                file.write(outcome);
            }
            self.query_logs.inner.written[log as usize].fetch_add(outcome.written, Ordering::Relaxed);
            self.query_logs.drop_lines(log.bit(), outcome.lost);
            // The file knows of those itself.
            self.known[log as usize] += outcome.lost;
        }
    }

    fn write(&mut self, record: &Record<'_>, clocks: Clocks, outcomes: &mut [Outcome; 3]) {
        let logs = match record {
            Record::Statement(statement) => statement.logs(),
            Record::Audit(_) => Log::Audit.bit(),
        };
        for ((log, file), outcome) in Log::ALL.into_iter().zip(&mut self.files).zip(outcomes) {
            let Some(file) = file.as_mut().filter(|_| logs & log.bit() != 0) else { continue };
            file.append(outcome, |out| match record {
                Record::Statement(statement) => put_statement(out, statement, clocks),
                Record::Audit(event) => put_audit(out, event, clocks),
            });
        }
    }

    /// Files tell of what was left out before it came to them.
    fn note_gaps(&mut self) {
        for (log, file) in Log::ALL.into_iter().zip(&mut self.files) {
            let dropped = self.query_logs.inner.dropped[log as usize].load(Ordering::Relaxed);
            let known = &mut self.known[log as usize];
            if let Some(file) = file {
                file.note_lost(dropped.saturating_sub(*known));
            }
            *known = dropped;
        }
    }

    fn tell(&mut self) {
        let counts = self.query_logs.counts().map(|counts| counts.dropped);
        if counts == self.told || self.tell_at.is_some_and(|at| Instant::now() < at) {
            return;
        }
        for (log, (dropped, told)) in Log::ALL.into_iter().zip(counts.iter().zip(self.told)) {
            let lines = dropped.saturating_sub(told);
            if lines > 0 {
                tracing::warn!(
                    log = log.word(),
                    lines,
                    "lines of a log were dropped: the buffer or the disk is full"
                );
            }
        }
        self.told = counts;
        self.tell_at = Some(Instant::now() + TELL_EVERY);
    }
}

fn describe(log: Log, file: &LogFile, error: &io::Error) -> String {
    format!("the {} log can't be written to {}: {error}", log.word(), file.settings().base.display())
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::channel;

    use super::*;
    use crate::{AuditEvent, Counts, FileSettings, Statement};

    fn settings(dir: &Path) -> Settings {
        let file = |name| Some(FileSettings { base: dir.join(name), bytes_max: 1 << 20, files_max: 0 });
        Settings { files: [file("events"), file("slow"), file("audit")] }
    }

    fn take(query_logs: &QueryLogs, settings: Settings) -> Vec<String> {
        let (to, faults) = channel();
        query_logs.take(settings, move |told| to.send(told).unwrap());
        faults.recv().unwrap()
    }

    fn flush(query_logs: &QueryLogs) -> Vec<String> {
        let (to, faults) = channel();
        query_logs.flush(move |told| to.send(told).unwrap());
        faults.recv().unwrap()
    }

    /// A disk that hangs, here in the answer to an order, is waited for by nobody; what comes meanwhile is written later.
    #[test]
    fn who_gives_orders_does_not_wait_for_the_disk() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(1);
        let writer = query_logs.start().unwrap();
        let (hangs, is_hanging) = channel();
        let (goes_on, may_go_on) = channel::<()>();
        query_logs.flush(move |_| {
            hangs.send(()).unwrap();
            may_go_on.recv().unwrap();
        });
        is_hanging.recv().unwrap();
        let (to, taken) = channel();
        query_logs.take(settings(dir.path()), move |faults| to.send(faults).unwrap());
        let mut feed = query_logs.feed(0);
        feed.statement(&statement(b"one", false));
        drop(feed);
        query_logs.flush(|_| {});
        assert!(taken.try_recv().is_err());
        goes_on.send(()).unwrap();
        assert_eq!(taken.recv().unwrap(), [""; 0]);
        writer.stop();
        assert_eq!(lines(&dir.path().join("events.00000001"))[0]["query"], "one");
        assert_eq!(query_logs.counts()[0], Counts { written: 1, dropped: 0 });
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn statement(query: &[u8], is_slow: bool) -> Statement<'_> {
        Statement { is_event: true, is_slow, query, ..Statement::default() }
    }

    #[test]
    fn each_log_gets_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(2);
        let writer = query_logs.start().unwrap();
        assert_eq!(take(&query_logs, settings(dir.path())), [""; 0]);
        let mut feeds = [query_logs.feed(0), query_logs.feed(1)];
        for (feed, query) in feeds.iter_mut().zip([b"one", b"two"]) {
            feed.statement(&statement(query, query == b"two"));
            feed.flush();
        }
        query_logs.audit(&AuditEvent { username: b"admin", ..AuditEvent::default() });
        assert_eq!(flush(&query_logs), [""; 0]);
        // What comes after the flush is in the next file.
        feeds[0].statement(&statement(b"three", false));
        drop(feeds);
        writer.stop();
        let events = lines(&dir.path().join("events.00000001"));
        let queries: Vec<_> = events.iter().map(|line| line["query"].as_str().unwrap()).collect();
        assert_eq!(queries, ["one", "two"]);
        assert_eq!(lines(&dir.path().join("slow.00000001"))[0]["query"], "two");
        assert_eq!(lines(&dir.path().join("audit.00000001"))[0]["username"], "admin");
        assert_eq!(lines(&dir.path().join("events.00000002"))[0]["query"], "three");
        let counts = |written| Counts { written, dropped: 0 };
        assert_eq!(query_logs.counts(), [counts(3), counts(1), counts(1)]);
    }

    #[test]
    fn what_was_logged_before_the_start_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(1);
        let mut feed = query_logs.feed(0);
        feed.statement(&statement(b"early", false));
        feed.flush();
        query_logs.take(settings(dir.path()), |faults| assert_eq!(faults, [""; 0]));
        query_logs.start().unwrap().stop();
        assert_eq!(lines(&dir.path().join("events.00000001"))[0]["query"], "early");
    }

    #[test]
    fn a_full_buffer_drops_and_counts() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(1);
        let mut feed = query_logs.feed(0);
        let query = vec![b'x'; 100_000];
        for _ in 0..30 {
            feed.statement(&statement(&query, false));
            feed.flush();
        }
        // A mebibyte in the slot, another in the feed.
        assert_eq!(query_logs.counts()[0], Counts { written: 0, dropped: 10 });
        let writer = query_logs.start().unwrap();
        take(&query_logs, settings(dir.path()));
        for _ in 0..2 {
            feed.statement(&statement(b"one", false));
            feed.flush();
            flush(&query_logs);
        }
        writer.stop();
        assert_eq!(query_logs.counts()[0].dropped, 10);
    }

    #[test]
    fn a_missing_directory_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let query_logs = QueryLogs::new(0);
        let writer = query_logs.start().unwrap();
        let faults = take(&query_logs, settings(&dir.path().join("missing")));
        assert_eq!(faults.len(), 3);
        let base = dir.path().join("missing/events");
        let expected = format!(
            "the events log can't be written to {}: No such file or directory (os error 2)",
            base.display()
        );
        assert_eq!(faults[0], expected);
        query_logs.audit(&AuditEvent::default());
        writer.stop();
        assert_eq!(query_logs.counts()[2], Counts { written: 0, dropped: 1 });
    }
}
