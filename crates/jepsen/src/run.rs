//! Leads a run: sessions on their own threads, faults meanwhile, reads after everything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_jepsen::checker::{Entry, Findings, History, Kind, Order};
use weir_lab::{Error, Moment, servers};
use weir_seeds::SplitMix;

use crate::client::{Client, Target};
use crate::final_reads;
use crate::guard::Guard;
use crate::nemesis::{self, Fault, Schedule};
use crate::peer::Peer;
use crate::place::{Isolation, Level, PeerKind, Place};
use crate::stage::{Stage, progress};
use crate::workload::{Generator, Supply, Workload};

/// After a connection that was lost or refused.
const PAUSE: Duration = Duration::from_millis(50);
/// At the end, when everything is well again.
const QUIET: Duration = Duration::from_secs(2);
/// How often memory is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Different texts of errors that are kept.
const TEXTS_MAX: usize = 40;
/// Rows per second of a run, for those workloads that leave their rows, and their least number.
const ROTATING_PER_S: u64 = 60;
const ROTATING_MIN: u64 = 2_000;

/// What distinguishes one run from another.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Setup {
    /// The servers.
    pub(crate) place: Place,
    /// Who stands in front of them.
    pub(crate) peer: PeerKind,
    /// Weir's consistency level.
    pub(crate) level: Level,
    /// Isolation of the transactions.
    pub(crate) isolation: Isolation,
    /// What is switched off.
    pub(crate) guard: Option<Guard>,
    /// What sessions do.
    pub(crate) workloads: Vec<Workload>,
    /// What happens meanwhile.
    pub(crate) faults: Vec<Fault>,
    /// How long.
    pub(crate) time: Duration,
}

impl Setup {
    /// The latest order that is looked at: what the level promises; of what promises nothing, everything.
    pub(crate) fn order(&self) -> Order {
        match (self.peer, self.guard) {
            (PeerKind::Weir, None) => self.level.order(),
            _ => Order::RealTime,
        }
    }
}

/// A fault, from its begin to its end.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Mark {
    /// Nanoseconds.
    pub(crate) from_ns: u64,
    /// Nanoseconds.
    pub(crate) to_ns: u64,
    /// Which one.
    pub(crate) fault: Fault,
    /// What was done, or why it was not.
    pub(crate) text: String,
}

/// Everything that was seen.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What sessions did.
    pub(crate) histories: BTreeMap<Workload, History>,
    /// Of the servers' data in the end.
    pub(crate) diverged: BTreeMap<Workload, Findings>,
    /// What happened to servers and Weirs.
    pub(crate) marks: Vec<Mark>,
    /// How often each text of an error came.
    pub(crate) texts: BTreeMap<String, u64>,
    /// Memory of each Weir, KiB, once a second.
    pub(crate) rss_kib: Vec<Vec<u64>>,
    /// Connections of the application that the servers had when all sessions had ended, and clients that Weirs counted.
    pub(crate) left_over: Option<u64>,
}

/// One run.
pub(crate) fn run(stage: &Stage<'_>, setup: &Setup) -> Result<Seen, Error> {
    stage.servers.repair()?;
    let sessions = stage.args.sessions as usize;
    let of_each = sessions.div_ceil(setup.workloads.len().max(1)) as u64;
    let rotating = (setup.time.as_secs() * ROTATING_PER_S).max(ROTATING_MIN);
    stage.make_tables(&setup.workloads, rotating, of_each)?;
    let setting = setup.guard.and_then(Guard::server_setting);
    setting.map_or(Ok(()), |(off, _)| stage.on_each(off))?;
    let mut peer = Peer::start(setup, stage)?;
    let targets: Vec<Target> =
        (0..sessions).map(|n| peer.target(n, setup, stage)).collect::<Result<_, Error>>()?;
    let supplies: Vec<Supply> = setup.workloads.iter().map(|_| Supply::new(rotating)).collect();
    // What is lost in a crash was written last: there has to be much of it.
    let rate = if setup.guard == Some(Guard::FlushLog) { 0 } else { stage.args.rate };
    let shared = Shared { is_over: AtomicBool::new(false), rate, sessions };
    let seed = stage.args.seed;
    let outcome = thread::scope(|scope| {
        let shared = &shared;
        let running: Vec<_> = (targets.iter().enumerate())
            .filter_map(|(n, target)| {
                let at = n % setup.workloads.len();
                let (workload, supply) = (*setup.workloads.get(at)?, supplies.get(at)?);
                // Those of a workload are spread over the targets, whatever both numbers are.
                let number = (n / setup.workloads.len()) as u64;
                let target = targets.get((at + n / setup.workloads.len()) % targets.len()).unwrap_or(target);
                let generator = Generator::new(workload, supply, seed + at as u64, number, of_each)
                    .only_begin(setup.guard.is_some_and(Guard::has_only_begin));
                let session = Session::new(shared, target, workload, generator, n as u64);
                Some((workload, scope.spawn(move || session.work())))
            })
            .collect();
        let troubled = trouble(stage, setup, &mut peer);
        shared.is_over.store(true, Ordering::Relaxed);
        let mut histories: BTreeMap<Workload, History> = BTreeMap::new();
        let mut texts = BTreeMap::new();
        for (workload, session) in running {
            let seen = session.join().map_err(|_| Error::panicked("a session"))?;
            histories.entry(workload).or_default().entries.extend(seen.entries);
            for (text, times) in seen.texts {
                if texts.len() < TEXTS_MAX || texts.contains_key(&text) {
                    *texts.entry(text).or_default() += times;
                }
            }
        }
        troubled.map(|troubled| (histories, texts, troubled))
    });
    setting.map_or(Ok(()), |(_, on)| stage.on_each(on))?;
    let (mut histories, texts, (marks, rss_kib)) = outcome?;
    let diverged = final_reads::read(stage, &mut histories)?;
    let left_over = left_over(stage, &peer)?;
    Ok(Seen { histories, diverged, marks, texts, rss_kib, left_over })
}

/// Connections of the application that are more than each Weir keeps for later: there must be none once sessions have gone.
fn left_over(stage: &Stage<'_>, peer: &Peer) -> Result<Option<u64>, Error> {
    if peer.slots().is_empty() {
        return Ok(None);
    }
    let mut busy = 0;
    for server in stage.servers.awake() {
        let sql = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                   WHERE USER = 'app' AND COMMAND <> 'Sleep' AND COMMAND <> 'Daemon'";
        let rows = stage.servers.root_query(server.index, sql)?;
        busy += rows.concat().concat().parse::<u64>().unwrap_or(0);
        // A transaction that nobody ends keeps its locks.
        let sql = "SELECT COUNT(*) FROM information_schema.INNODB_TRX t JOIN information_schema.PROCESSLIST p \
                   ON p.ID = t.trx_mysql_thread_id WHERE p.USER = 'app'";
        let rows = stage.servers.root_query(server.index, sql)?;
        busy += rows.concat().concat().parse::<u64>().unwrap_or(0);
    }
    Ok(Some(busy))
}

type Troubled = (Vec<Mark>, Vec<Vec<u64>>);

/// Troubles servers and Weirs until the time is over, and makes everything well again.
fn trouble(stage: &Stage<'_>, setup: &Setup, peer: &mut Peer) -> Result<Troubled, Error> {
    let end = Instant::now() + setup.time;
    let mut random = SplitMix::new(stage.args.seed);
    let mut faults = setup.faults.clone();
    faults.retain(|fault| setup.peer == PeerKind::Weir || !fault.needs_weir());
    let mut schedule = Schedule::new(faults);
    let (mut marks, mut rss_kib) = (Vec::new(), vec![Vec::new(); peer.slots().len()]);
    loop {
        let interval = setup.guard.and_then(Guard::interval).unwrap_or(stage.args.interval);
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let quiet = Duration::from_millis(random.within(interval_ms / 2..interval_ms * 3 / 2 + 1));
        let next = Instant::now() + quiet;
        while Instant::now() < next.min(end) {
            stage.stop.sleep(LOOK.min(next.min(end).saturating_duration_since(Instant::now())))?;
            look(peer, &mut rss_kib);
        }
        let Some(fault) = schedule.next(&mut random).filter(|_| Instant::now() < end) else {
            if Instant::now() >= end {
                break;
            }
            continue;
        };
        let from_ns = Moment::now().0;
        let text = match fault.happen(stage, peer, &mut random) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                nemesis::heal(stage)?;
                format!("failed: {error}")
            }
            Ok(text) => text,
        };
        // A server that was started again has what its file says.
        let setting = setup.guard.and_then(Guard::server_setting);
        setting.map_or(Ok(()), |(off, _)| stage.on_each(off))?;
        if fault != Fault::Lag {
            progress(&format!("{fault}: {text}"));
        }
        marks.push(Mark { from_ns, to_ns: Moment::now().0, fault, text });
    }
    nemesis::heal(stage)?;
    peer.wait_ready(stage)?;
    stage.stop.sleep(QUIET)?;
    look(peer, &mut rss_kib);
    Ok((marks, rss_kib))
}

/// Notes each Weir's memory; one that is being restarted has none.
fn look(peer: &Peer, rss_kib: &mut [Vec<u64>]) {
    for (slot, seen) in peer.slots().iter().zip(rss_kib) {
        let kib = slot.weir().and_then(|weir| servers::usage(weir.process()).rss_kib());
        seen.extend(kib.ok());
    }
}

/// What all sessions share.
#[derive(Debug)]
struct Shared {
    is_over: AtomicBool,
    rate: u32,
    sessions: usize,
}

/// What one session did.
#[derive(Debug, Default)]
struct Done {
    entries: Vec<Entry>,
    texts: BTreeMap<String, u64>,
}

/// One client: a connection after the other, a transaction after the other.
struct Session<'a> {
    shared: &'a Shared,
    target: &'a Target,
    workload: Workload,
    generator: Generator<'a>,
    process: u64,
    client: Option<Client>,
    done: Done,
}

impl<'a> Session<'a> {
    fn new(
        shared: &'a Shared,
        target: &'a Target,
        workload: Workload,
        generator: Generator<'a>,
        process: u64,
    ) -> Session<'a> {
        Session { shared, target, workload, generator, process, client: None, done: Done::default() }
    }

    fn work(mut self) -> Done {
        let pace = match self.shared.rate {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(self.shared.sessions as f64 / f64::from(rate)),
        };
        let mut next = Instant::now();
        while !self.shared.is_over.load(Ordering::Relaxed) {
            self.step();
            // What could not be sent in time is left out.
            next = (next + pace).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        self.done
    }

    fn step(&mut self) {
        if self.client.is_none() {
            match Client::open(self.target) {
                Ok(client) => self.client = Some(client),
                Err(error) => {
                    self.note(format!("login: {error}"));
                    thread::sleep(PAUSE);
                    return;
                }
            }
        }
        let Some(client) = self.client.as_mut() else { return };
        let (style, mut ops) = self.generator.next();
        let invoke = Entry {
            process: self.process,
            kind: Kind::Invoke,
            at_ns: Moment::now().0,
            ops: ops.clone(),
            error: None,
            is_final: false,
        };
        let outcome = client.run(self.workload, style, &mut ops);
        let at_ns = Moment::now().0;
        self.generator.saw(&ops);
        let (kind, error, is_lost) = match outcome {
            Ok(()) => (Kind::Ok, None, false),
            Err(failed) => (failed.kind, Some(failed.text), failed.is_lost),
        };
        if let Some(text) = &error {
            self.note(text.clone());
        }
        let answer = Entry { kind, at_ns, ops, error, ..invoke.clone() };
        self.done.entries.extend([invoke, answer]);
        if is_lost {
            // Whatever comes now is another session's.
            self.client = None;
            self.process += self.shared.sessions as u64;
        }
    }

    fn note(&mut self, text: String) {
        if self.done.texts.len() < TEXTS_MAX || self.done.texts.contains_key(&text) {
            *self.done.texts.entry(text).or_default() += 1;
        }
    }
}
