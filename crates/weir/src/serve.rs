//! `weir serve`: wires configuration, monitor and workers together, and obeys signals.

mod entry;
mod failback;
mod handover;
mod intake;
mod leaving;
mod office;
mod pause;
pub(crate) mod peers;
mod reload;
mod switchover;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use weir_cluster::Cluster;
use weir_config::{Config, ConfigError};
use weir_control::Monitor;
use weir_http::HttpError;
use weir_proxy::service::{Publisher, Service, StartError};
use weir_proxy::shared::{Drain, Report};
use weir_topology::{Roles, ServerRegistry};

use self::entry::Entry;
use self::failback::Failbacks;
use self::handover::{Handover, UNDER_WAY};
pub(crate) use self::intake::Intake;
use self::intake::Offer;
use self::reload::Reloader;
use crate::control::{Control, ControlError, Deed, Order, Orders, Reporter};
use crate::drained::{Drained, DrainedError};
use crate::historian;
use crate::in_force::InForce;
use crate::latest_roles::LatestRoles;
use crate::logs;
use crate::notify;
use crate::program::Program;
use crate::rsa_key::{self, RsaKeyError};
use crate::scheduler::Scheduler;
use crate::server_tls::ServerTlsError;
use crate::snapshot::{Snapshots, Unresolved};
use crate::source::Source;
use crate::startup::{self, Origin, Start, StartupError};
use crate::tables::Sources;
use crate::takeover::{Predecessor, TakeoverError};
use crate::tally::Tally;
use crate::tls::{Tls, TlsError};
use crate::topology_log::TopologyLog;
use crate::web::{Web, WebSource};

/// Why `serve` ends with a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("the configuration has faults:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Config(Vec<ConfigError>),
    #[error(transparent)]
    Startup(#[from] StartupError),
    #[error(transparent)]
    Server(#[from] Unresolved),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error("TLS towards servers: {0}")]
    ServerTls(#[from] ServerTlsError),
    #[error("RSA key for caching_sha2_password: {0}")]
    RsaKey(#[from] RsaKeyError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error("control socket: {0}")]
    Control(#[from] ControlError),
    #[error(transparent)]
    Admin(#[from] weir_admin::AdminError),
    #[error(transparent)]
    Store(#[from] weir_store::StoreError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("drained servers: {0}")]
    Drained(#[from] DrainedError),
    #[error("this Weir's name, in the datadir: {0}")]
    Instance(std::io::Error),
    #[error("takeover: {0}")]
    Takeover(#[from] TakeoverError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// What the main thread waits for.
enum Event {
    /// There are other roles.
    Roles,
    /// Somebody at the control socket wants something done.
    Order(Order),
    /// Another thread has a configuration to go by.
    Offer(Offer),
    Signal(i32),
    /// The workers have ended.
    Ended(std::io::Result<()>),
}

/// Runs until a signal ends it. With `takeover` it goes on in the place of the Weir that runs with the same datadir.
pub(crate) fn serve(origin: &Origin, takeover: bool) -> Result<(), ServeError> {
    let program = Program::this()?;
    // Whoever sees the control socket may send signals.
    let (events, inbox) = channel();
    watch_signals(events.clone())?;
    let mut source = Source::read(&origin.path).map_err(ServeError::Config)?;
    let datadir = origin.datadir(&source);
    let predecessor = if takeover { Predecessor::greet(&datadir)? } else { None };
    if predecessor.is_some() {
        // From here on nobody changes anything.
        source = Source::read(&origin.path).map_err(ServeError::Config)?;
    }
    // Before the database is touched, and anything is said in this Weir's name: a datadir serves one Weir.
    let mut entry = Entry::begin(&datadir, predecessor)?;
    let Start { config, store } = startup::start(origin, &source, &datadir)?;
    drop(source);
    let store = Arc::new(Mutex::new(store));
    let tls = Tls::new(&config)?;
    let registry = ServerRegistry::default();
    let mut snapshots = Snapshots::new(registry.clone());
    snapshots.addresses = Snapshots::resolve(&config)?;
    snapshots.compile_rules(&config);
    snapshots.rsa_key = rsa_key::rsa_key(&config)?;
    snapshots.servers_tls = snapshots.servers_tls.read(&config)?;
    let (log, unopened_log) = TopologyLog::new(&config);
    let drained = Drained::load(&config.datadir)?;
    log_drained(&drained);
    snapshots.instance = entry.instance().into();
    let roles = LatestRoles::default();
    let publish = publish(roles.clone(), log.clone(), events.clone());
    let servers_tls = snapshots.servers_tls.for_monitor();
    let monitor = Monitor::start(&config, entry.instance(), &drained.all(), &servers_tls, registry, publish)?;
    entry.follow(&monitor, &roles, &inbox)?;
    let snapshot = snapshots.build(&config, &roles.latest());
    let workers = config.variables.threads.max(1) as usize;
    let is_takeover = entry.has_predecessor();
    // Whoever gets through to the data port finds the admin port, too.
    let doors = if is_takeover { None } else { Some(office::doors(&config)?) };
    let (listeners, report) = (entry.listeners()?, report(&monitor));
    let server_tls = tls.as_ref().map(|tls| tls.config.clone());
    let mut service =
        Service::prepare(listeners, &config.listeners(), workers, &snapshot, server_tls, report)?;
    let control = entry.take_over()?;
    log.event(None, "start", format!("weir {}", env!("CARGO_PKG_VERSION")));
    unopened_log.open(&config.datadir)?;
    let doors = doors.unwrap_or_else(|| office::doors_of_predecessor(&config));
    service.open()?;
    tracing::info!(workers, io_driver = service.io_driver(), version = env!("CARGO_PKG_VERSION"), "started");
    log_listeners(&service);
    let publisher = service.publisher();
    let tally = Arc::new(Tally::new(publisher.clone(), config.variables.query_digests_max as usize));
    tally.start()?;
    let journal = publisher.journal().start()?;
    logs::apply(publisher.journal(), &config);
    let reporter = Reporter {
        started: Instant::now(),
        tally: tally.clone(),
        journal: publisher.journal().clone(),
        roles: roles.clone(),
        drained: drained.clone(),
    };
    let shown = WebSource::new(reporter.clone(), monitor.probe_log(), &config);
    let start_web = if is_takeover { Web::start_after_predecessor } else { Web::start };
    let web = start_web(&config, shown.clone())?;
    control.start(reporter, orders_to(&events))?;
    let in_force = InForce::new(&config);
    let sources = Arc::new(Sources {
        journal: publisher.journal().clone(),
        tally: tally.clone(),
        roles: roles.clone(),
        in_force: in_force.clone(),
        probes: monitor.probe_log(),
        started: Instant::now(),
    });
    historian::start(&config.datadir.join(weir_store::STATS_FILE), &sources)?;
    let engine = office::engine(origin, &events, &publisher, &sources, shown);
    let admin = office::open(&config, doors, tls.as_ref(), store.clone(), engine)?;
    let cluster = Cluster::start(store.clone(), Box::new(admin.taker()))?;
    let scheduler = Scheduler::start(&config)?;
    let reloader = Reloader::start(origin.clone(), Arc::clone(&store), Intake(events.clone()), admin)?;
    notify::ready();
    // Those that were decided so far, which nobody has followed yet.
    let _ = events.send(Event::Roles);
    let server = Server {
        reloader: Some(reloader),
        config,
        in_force,
        sources: Some(sources),
        snapshots,
        roles,
        published: Arc::default(),
        log,
        drained,
        failbacks: Failbacks::default(),
        publisher,
        tally,
        web,
        monitor,
        scheduler,
        tls,
        is_paused: false,
        control,
        handover: Handover::default(),
        program,
    };
    let ended = server.run(service, &events, &inbox);
    drop(cluster);
    journal.stop();
    ended
}

/// What the monitor does with roles that it has decided, on its own thread.
fn publish(roles: LatestRoles, log: TopologyLog, events: Sender<Event>) -> impl Fn(Arc<Roles>) + Send {
    move |decided| {
        log.roles(&decided);
        roles.set(decided);
        // The main thread outlives the monitor.
        let _ = events.send(Event::Roles);
    }
}

/// What the workers tell the monitor.
fn report(monitor: &Monitor) -> weir_proxy::shared::Reporter {
    let reporter = monitor.reporter();
    Box::new(move |report: Report<'_>| {
        let Ok(endpoint) = report.endpoint().parse() else { return };
        match report {
            Report::Suspect(_) => reporter.suspect(&endpoint),
            Report::ConnectFailed { cause, .. } => reporter.connect_failed(&endpoint, cause),
        }
    })
}

struct Server {
    /// It has the admin interface, too; none when they are another process's.
    reloader: Option<Reloader>,
    config: Config,
    in_force: InForce,
    /// What statistics are made of; none when another process keeps their history.
    sources: Option<Arc<Sources>>,
    snapshots: Snapshots,
    roles: LatestRoles,
    /// The roles that the workers go by.
    published: Arc<Roles>,
    log: TopologyLog,
    drained: Drained,
    failbacks: Failbacks,
    publisher: Publisher,
    tally: Arc<Tally>,
    web: Web,
    monitor: Monitor,
    scheduler: Scheduler,
    tls: Option<Tls>,
    /// No new clients are taken, by an admin's will.
    is_paused: bool,
    control: Control,
    handover: Handover,
    program: Program,
}

impl Server {
    fn run(
        mut self,
        mut service: Service,
        events: &Sender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<(), ServeError> {
        while let Some(event) = self.next_event(inbox) {
            match event {
                Event::Roles => {
                    self.publish();
                    self.fail_back();
                }
                Event::Order(order) => self.obey(order, &mut service),
                Event::Offer(offer) => self.consider(offer, &mut service),
                Event::Signal(SIGHUP) => self.reloader.iter().for_each(Reloader::reload),
                Event::Signal(SIGUSR1) => logs::rotate(self.publisher.journal()),
                Event::Signal(SIGUSR2) => self.start_successor(),
                Event::Signal(signal) => {
                    tracing::info!(signal, clients = self.publisher.clients(), "draining");
                    notify::stopping();
                    break;
                }
                Event::Ended(result) => return Ok(result?),
            }
            if self.handover == Handover::Done {
                break;
            }
        }
        self.drain(service, events, inbox)
    }

    /// The next event; meanwhile what is due is done. None when nobody is left who could tell something.
    fn next_event(&mut self, inbox: &Receiver<Event>) -> Option<Event> {
        loop {
            let Some(due) = self.failbacks.next() else { return inbox.recv().ok() };
            match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => self.fail_back(),
                event => return event.ok(),
            }
        }
    }

    /// Lets the workers end; roles still change meanwhile, and a signal while it is known that this ends is the end.
    fn drain(
        mut self,
        service: Service,
        events: &Sender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<(), ServeError> {
        self.web.leave();
        let ended = events.clone();
        let mut is_told = self.handover != Handover::Done;
        let drain = if is_told { Drain::Stop } else { Drain::HandedOver };
        std::thread::Builder::new().name("drain".into()).spawn(move || {
            let _ = ended.send(Event::Ended(service.drain(drain)));
        })?;
        // Whoever takes over from this Weir has a scheduler of its own.
        self.scheduler.stop();
        for event in inbox {
            match event {
                Event::Roles => self.publish(),
                // Whoever ordered is told that by the end of the channel.
                Event::Order(_) | Event::Offer(_) | Event::Signal(SIGHUP | SIGUSR2) => {}
                Event::Signal(SIGUSR1) => logs::rotate(self.publisher.journal()),
                // A service manager that stops both processes does not mean that nobody may finish.
                Event::Signal(_) if !is_told => is_told = true,
                Event::Signal(signal) => {
                    tracing::warn!(signal, clients = self.publisher.clients(), "ending at once");
                    return Ok(());
                }
                Event::Ended(result) => {
                    self.monitor.stop();
                    tracing::info!("drained");
                    return Ok(result?);
                }
            }
        }
        Ok(())
    }

    /// Publishes new roles, if there are any, while something else keeps this thread busy.
    fn follow_roles(&mut self) {
        if !Arc::ptr_eq(&self.published, &self.roles.latest()) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let before = std::mem::replace(&mut self.published, self.roles.latest());
        let snapshot = self.snapshots.build(&self.config, &self.published);
        self.publisher.publish(&snapshot);
        self.follow_epoch(&before);
    }

    fn obey(&mut self, order: Order, service: &mut Service) {
        let Order { deed, steps } = order;
        let done = match deed {
            Deed::HandOver(wish) => return self.obey_successor(wish, service),
            _ if self.handover != Handover::None => Err(UNDER_WAY.to_owned()),
            Deed::Drain(endpoint) => self.drain_server(&endpoint, &steps),
            Deed::Undrain(endpoint) => self.undrain_server(&endpoint),
            Deed::Switchover(switchover) => self.switchover(&switchover, &steps),
            Deed::Pause => self.pause(true, service),
            Deed::Resume => self.pause(false, service),
            Deed::ReloadTls => self.reload_tls(),
        };
        steps.end(done);
    }

    /// The monitor goes by this configuration from now on.
    fn apply(&self, config: &Config) {
        self.monitor.apply(config, &self.drained.all(), &self.snapshots.servers_tls.for_monitor());
    }
}

/// The way to this thread for who wants something done.
fn orders_to(events: &Sender<Event>) -> Orders {
    let events = events.clone();
    Arc::new(move |order| drop(events.send(Event::Order(order))))
}

fn log_drained(drained: &Drained) {
    for server in drained.all() {
        tracing::info!(%server, "is drained since an earlier run: `weir undrain` ends that");
    }
}

fn log_listeners(service: &Service) {
    for listener in service.listening() {
        let (address, mode) = (&listener.address, listener.mode.word());
        tracing::info!(%address, mode, "listening");
    }
}

fn watch_signals(events: Sender<Event>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}
