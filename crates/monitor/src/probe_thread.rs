//! Runs the thread that probes one server again and again.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_topology::{Endpoint, ServerShared};

use crate::causal_probe::alarm::Alarm;
use crate::causal_probe::{self, Standing, Told};
use crate::change_watch::Watch;
use crate::gtid_watch;
use crate::probe::Probe;
use crate::probe_log::ProbeLog;
use crate::server_check::RiskWatch;
use crate::settings::{Kind, ProbeSettings};
use crate::topology_thread::Event;

/// The pause between probes while the cluster is about to form a new view.
const HURRY_PAUSE: Duration = Duration::from_millis(10);
/// The pause varies by this share of it, so that the probes of many Weirs don't fall together.
const JITTER_PERCENT: u64 = 10;

/// A server without a cluster that has been dead for a while is looked at after this share of that time...
const REST_SHARE: u32 = 10;
/// ... and after this time at the latest, if its interval is not longer.
const REST_MAX: Duration = Duration::from_secs(10);

/// An order to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Look at once.
    Now,
    /// End.
    End,
}

/// A running probe and, in a cluster, its causal probe; and the thread that knows which transactions the server has executed.
pub(crate) struct ProbeHandle {
    pub(crate) generation: u64,
    pub(crate) settings: ProbeSettings,
    /// Where the server stands in its cluster; read by the causal probe.
    pub(crate) standing: Arc<Standing>,
    /// Whether connections of the data path fail; read by the probe.
    pub(crate) shunned: Arc<AtomicBool>,
    orders: Sender<Order>,
    causal_orders: Option<Sender<Order>>,
    gtid_orders: Option<Sender<Order>>,
    shared: Arc<ServerShared>,
    threads: Vec<JoinHandle<()>>,
}

impl ProbeHandle {
    pub(crate) fn start(
        endpoint: &Endpoint,
        generation: u64,
        settings: ProbeSettings,
        shared: Arc<ServerShared>,
        events: SyncSender<Event>,
        hurry: Arc<AtomicBool>,
        log: Arc<ProbeLog>,
    ) -> io::Result<Self> {
        let standing = Arc::new(Standing::default());
        let causal_events = events.clone();
        let (orders, inbox) = channel();
        let watch = Watch::new(shared.clone());
        let probe = Probe::new(settings.kind, settings.options.clone());
        let interval = settings.interval;
        let server = endpoint.clone();
        let shunned = Arc::new(AtomicBool::new(false));
        let kind = settings.kind;
        let flags = Flags { hurry: hurry.clone(), shunned: shunned.clone(), log, kind, interval };
        let thread = thread::Builder::new().name(format!("probe {endpoint}"));
        let mut threads = vec![thread.spawn(move || {
            run(probe, watch, server, generation, &inbox, &events, &flags);
        })?];
        let mut causal_orders = None;
        if settings.kind != Kind::Ping {
            let (orders, inbox) = channel();
            let (kind, options, standing) = (settings.kind, settings.options.clone(), standing.clone());
            let told = Told { events: causal_events, generation, endpoint: endpoint.clone(), last: None };
            let alarm = Alarm::of(shared.clone())?;
            let thread = thread::Builder::new().name(format!("causal {endpoint}"));
            threads.push(thread.spawn(move || {
                causal_probe::run(kind, options, &alarm, &standing, told, &hurry, &inbox);
            })?);
            causal_orders = Some(orders);
        }
        let gtid_orders = watch_gtids(endpoint, &settings, &shared, &mut threads)?;
        Ok(Self {
            generation,
            settings,
            standing,
            shunned,
            orders,
            causal_orders,
            gtid_orders,
            shared,
            threads,
        })
    }

    /// Gives an order; one that has ended doesn't hear it.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        if order == Order::End
            && let Some(orders) = &self.causal_orders
        {
            let _ = orders.send(order);
            self.shared.coverage.wake_checker();
        }
        if order == Order::End
            && let Some(orders) = &self.gtid_orders
        {
            let _ = orders.send(order);
            self.shared.gtids.wake();
        }
    }

    /// Waits for the threads, which have been told to end. One that hangs on a silent server is left alone: it ends by
    /// its own time-out.
    pub(crate) fn join_until(self, deadline: Instant) {
        for thread in self.threads {
            while !thread.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Begins to find out which transactions the server has executed, where its causality checks do not tell enough.
fn watch_gtids(
    endpoint: &Endpoint,
    settings: &ProbeSettings,
    shared: &Arc<ServerShared>,
    threads: &mut Vec<JoinHandle<()>>,
) -> io::Result<Option<Sender<Order>>> {
    let is_told_by_checks = settings.kind == Kind::Galera && settings.gtid_port.is_none();
    shared.gtids.set_told_by_checks(is_told_by_checks);
    if is_told_by_checks {
        return Ok(None);
    }
    let (orders, inbox) = channel();
    let (options, port, shared) = (settings.options.clone(), settings.gtid_port, shared.clone());
    let bell = gtid_watch::Bell::of(&shared)?;
    let thread = thread::Builder::new().name(format!("gtid {endpoint}"));
    threads.push(thread.spawn(move || gtid_watch::run(options, port, &shared, &bell, &inbox))?);
    Ok(Some(orders))
}

/// What a probe goes by besides its orders, and where it tells more than the topology thread needs.
struct Flags {
    hurry: Arc<AtomicBool>,
    shunned: Arc<AtomicBool>,
    /// Where its looks are noted, and as what.
    log: Arc<ProbeLog>,
    kind: Kind,
    interval: Duration,
}

fn run(
    mut probe: Probe,
    mut watch: Watch,
    endpoint: Endpoint,
    generation: u64,
    orders: &Receiver<Order>,
    events: &SyncSender<Event>,
    flags: &Flags,
) {
    let interval = flags.interval;
    let mut risks = RiskWatch::new(endpoint.clone());
    let mut dead_since = None;
    loop {
        let look = Box::new(probe.look(flags.shunned.load(Ordering::Relaxed)));
        flags.log.record(&endpoint, flags.kind, &look);
        let answers = look.result.is_ok();
        let version = probe.version().map(str::to_owned);
        let event = Event::Observed { endpoint: endpoint.clone(), generation, look, version };
        if events.send(event).is_err() {
            return;
        }
        if answers {
            // Behind the event: no role is to wait for it.
            probe.watch(&mut watch);
            if flags.kind != Kind::Ping {
                probe.watch_risks(&mut risks);
            }
        }
        dead_since = if answers { None } else { dead_since.or(Some(Instant::now())) };
        // The new view comes from those that answer.
        let in_hurry = answers && flags.hurry.load(Ordering::Relaxed);
        let pause = match dead_since {
            _ if in_hurry => HURRY_PAUSE.min(interval),
            Some(since) if flags.kind == Kind::Ping => jittered(rest(interval, since.elapsed())),
            _ => jittered(interval),
        };
        if !wait(orders, pause) {
            return;
        }
    }
}

/// The pause before the next look at a server that has been dead for so long. Looking at hundreds of them every second
/// would take more than all that live.
fn rest(interval: Duration, dead_for: Duration) -> Duration {
    interval.max((dead_for / REST_SHARE).min(REST_MAX))
}

/// Waits for the pause or for an order that ends it; false if it is time to end.
pub(crate) fn wait(orders: &Receiver<Order>, pause: Duration) -> bool {
    match orders.recv_timeout(pause) {
        Ok(Order::Now) => {
            // Several orders are one.
            !orders.try_iter().any(|order| order == Order::End)
        }
        Ok(Order::End) | Err(RecvTimeoutError::Disconnected) => false,
        Err(RecvTimeoutError::Timeout) => true,
    }
}

/// Whether a thread that sleeps in another way has to end.
pub(crate) fn ends(orders: &Receiver<Order>) -> bool {
    loop {
        match orders.try_recv() {
            Ok(Order::Now) => {}
            Ok(Order::End) | Err(TryRecvError::Disconnected) => return true,
            Err(TryRecvError::Empty) => return false,
        }
    }
}

/// `interval`, up to a share longer or shorter.
fn jittered(interval: Duration) -> Duration {
    // Each RandomState has another key, which makes its hash of anything a random number.
    let random = RandomState::new().hash_one(0_u8);
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    interval * u32::try_from(percent).unwrap_or(100) / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_its_share_and_varies() {
        let interval = Duration::from_millis(1000);
        let pauses: Vec<Duration> = (0..200).map(|_| jittered(interval)).collect();
        assert!(pauses.iter().all(|pause| (900..=1100).contains(&pause.as_millis())));
        assert!(pauses.iter().any(|pause| *pause != pauses[0]));
    }

    #[test]
    fn who_is_dead_for_long_is_looked_at_less_often_within_bounds() {
        let s = Duration::from_secs;
        assert_eq!(rest(s(1), Duration::ZERO), s(1));
        assert_eq!(rest(s(1), s(9)), s(1));
        assert_eq!(rest(s(1), s(50)), s(5));
        assert_eq!(rest(s(1), s(100_000)), s(10));
        assert_eq!(rest(s(60), s(100_000)), s(60));
    }

    #[test]
    fn orders_end_a_pause() {
        let (sender, orders) = channel();
        sender.send(Order::Now).unwrap();
        assert!(wait(&orders, Duration::from_secs(60)));
        assert!(wait(&orders, Duration::from_millis(1)));
        sender.send(Order::Now).unwrap();
        sender.send(Order::End).unwrap();
        assert!(!wait(&orders, Duration::from_secs(60)));
        drop(sender);
        assert!(!wait(&orders, Duration::from_secs(60)));
    }
}
