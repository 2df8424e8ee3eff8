//! Runs the programs of `scheduler` at their interval, never the same one twice at a time.
//!
//! ```text
//! main ── take, stop ──► scheduler ── starts ──► run ID ── one thread for each program that runs
//!                            ▲                      │
//!                            └──────── ended ───────┘
//! ```

mod output;
mod run;

use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use weir_config::{Config, Job};

/// What is asked to end has this time to do so before it is killed.
const GRACE: Duration = Duration::from_secs(1);
/// More programs do not run at a time: further ones are left out until one has ended.
const RUNNING_MAX: usize = 100;
/// With nothing to do.
const FOREVER: Duration = Duration::from_secs(86_400);

/// The running scheduler.
#[derive(Debug)]
pub struct Scheduler {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Order {
    /// From now on these, each of which may take so long.
    Take(Vec<Job>, Duration),
    /// A program has ended.
    Ended(u32),
    Stop,
}

/// The process groups of what runs now, by the rows' ids. One is in here as long as its number can't be another's.
type Running = Arc<Mutex<BTreeMap<u32, Pid>>>;

impl Scheduler {
    /// Begins to run the programs of this configuration.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(config: &Config) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let state = SchedulerThread {
            orders: orders.clone(),
            jobs: BTreeMap::new(),
            busy: BTreeMap::new(),
            running: Running::default(),
            timeout: config.admin.scheduler_timeout_ms,
        };
        let thread = std::thread::Builder::new().name("scheduler".into()).spawn(move || state.run(&inbox))?;
        let scheduler = Self { orders, thread: Some(thread) };
        scheduler.take(config);
        Ok(scheduler)
    }

    /// Goes by this configuration from now on. Rows that have not changed keep their time; what runs goes on.
    pub fn take(&self, config: &Config) {
        // It lives as long as this.
        let _ = self.orders.send(Order::Take(config.scheduler.clone(), config.admin.scheduler_timeout_ms));
    }

    /// Runs nothing more, and ends what runs.
    pub fn stop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct SchedulerThread {
    orders: Sender<Order>,
    jobs: BTreeMap<u32, Turn>,
    /// Rows whose program runs, rows that are gone too; whether a turn was left out since.
    busy: BTreeMap<u32, bool>,
    running: Running,
    timeout: Duration,
}

struct Turn {
    row: Job,
    due: Instant,
}

impl SchedulerThread {
    fn run(mut self, inbox: &Receiver<Order>) {
        loop {
            let now = Instant::now();
            let due = self.jobs.values().map(|job| job.due).min();
            let wait = due.map_or(FOREVER, |due| due.saturating_duration_since(now));
            match inbox.recv_timeout(wait) {
                Ok(Order::Take(rows, timeout)) => self.take(rows, timeout),
                Ok(Order::Ended(id)) => drop(self.busy.remove(&id)),
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => return self.end(inbox),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.start_due(Instant::now());
        }
    }

    fn take(&mut self, rows: Vec<Job>, timeout: Duration) {
        self.timeout = timeout;
        let now = Instant::now();
        let mut known = std::mem::take(&mut self.jobs);
        for row in rows.into_iter().filter(|row| row.active) {
            let same = known.remove(&row.id).filter(|job| job.row == row);
            let due = same.map_or(now + row.interval, |job| job.due);
            self.jobs.insert(row.id, Turn { row, due });
        }
    }

    fn start_due(&mut self, now: Instant) {
        for job in self.jobs.values_mut().filter(|job| job.due <= now) {
            job.due += job.row.interval;
            if job.due <= now {
                job.due = now + job.row.interval; // the machine was away: no turns are made up for
            }
            let (id, filename) = (job.row.id, job.row.filename.display());
            if let Some(is_told) = self.busy.get_mut(&id) {
                if !std::mem::replace(is_told, true) {
                    tracing::warn!(id, %filename, "scheduler: still running, turn skipped");
                }
                continue;
            }
            if self.busy.len() >= RUNNING_MAX {
                tracing::warn!(
                    id,
                    %filename,
                    RUNNING_MAX,
                    "scheduler: too many programs are running, turn skipped"
                );
                continue;
            }
            let (row, running, orders) = (job.row.clone(), self.running.clone(), self.orders.clone());
            let timeout = self.timeout;
            let started = std::thread::Builder::new().name(format!("run {id}")).spawn(move || {
                run::run(&row, timeout, &running);
                // The scheduler may have ended.
                let _ = orders.send(Order::Ended(id));
            });
            match started {
                Ok(_) => drop(self.busy.insert(id, false)),
                Err(error) => tracing::error!(id, %filename, %error, "scheduler: can't be run"),
            }
        }
    }

    /// Ends what runs: asks, and after a moment makes it.
    fn end(mut self, inbox: &Receiver<Order>) {
        for signal in [Signal::TERM, Signal::KILL] {
            if self.busy.is_empty() {
                return;
            }
            for group in self.running.lock().unwrap_or_else(PoisonError::into_inner).values() {
                // It may have ended a moment ago.
                let _ = kill_process_group(*group, signal);
            }
            let until = Instant::now() + GRACE;
            while !self.busy.is_empty() {
                match inbox.recv_timeout(until.saturating_duration_since(Instant::now())) {
                    Ok(Order::Ended(id)) => drop(self.busy.remove(&id)),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }
    }
}
