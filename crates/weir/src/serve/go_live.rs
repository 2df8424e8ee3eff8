//! Lets clients in, and begins what they need not wait for: statistics, logs, HTTP, the admin port, the scheduler.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use weir_admin::AdminSockets;
use weir_config::{Config, InForce};
use weir_discovery::{Difference, KnownDifferences, MemberWatch};
use weir_monitor::ServerAddresses;
use weir_operations::{Context, DrainedServers, Operations, UnfinishedSwitchovers};
use weir_proxy::service::{Publisher, Service};
use weir_proxy_sync::ProxySync;
use weir_query_log::Writer;
use weir_statistics::{HistoryWriter, RunningState, Statistics, StatsCollector};
use weir_topology::Endpoint;

use super::preparation::{BoundSockets, Pending, Prepared};
use super::reload::Reloader;
use super::running_proxy::RunningProxy;
use super::takeover::TakeoverState;
use super::{ConfigSender, Event, ServeError, Server, admin_setup, log_listeners, orders_to};
use crate::addresses::Names;
use crate::control::Control;
use crate::followed_servers::followed_servers;
use crate::logs;
use crate::notify;
use crate::pid_file::PidFile;
use crate::program::Program;
use crate::server_tls::towards_proxy;
use crate::startup::Origin;
use crate::watched_members::WatchedMembers;
use weir_scheduler::Scheduler;
use weir_web::{Web, WebSource};

/// How long clients are kept waiting for the accounts of the servers at the start.
const ACCOUNTS_WAIT: Duration = Duration::from_secs(5);
/// How often it is looked whether there are servers to ask.
const ACCOUNTS_PAUSE: Duration = Duration::from_millis(50);

/// A Weir that takes clients.
pub(super) struct Started {
    pub server: Server,
    pub service: Service,
    /// The thread that writes the events, slow and audit log; it is stopped last.
    pub log_writer: Writer,
}

/// Takes clients, and begins everything else. No other process listens at the sockets any more.
pub(super) fn start(
    prepared: Prepared,
    pending: Pending,
    sockets: BoundSockets,
    control: Control,
    origin: &Origin,
    program: Program,
    events: &Sender<Event>,
) -> Result<Started, ServeError> {
    let BoundSockets { mut service, mut admin, web } = sockets;
    let pid_file = let_clients_in(&prepared, pending, &mut service, &mut admin, origin)?;
    let publisher = service.publisher();
    let in_force = InForce::new(&prepared.config);
    let discovered = KnownDifferences::default();
    let of_state = (in_force.clone(), discovered.clone());
    let Counting { log_writer, statistics } = Counting::begin(&prepared, &publisher, of_state)?;
    let Prepared { config, store, tls, names, .. } = &prepared;
    let shown = WebSource::new(statistics.clone());
    let web = Web::start(config, web, shown.clone())?;
    control.start(statistics.clone(), orders_to(events), admin_setup::seal(store))?;
    let history = HistoryWriter::start(&config.datadir.join(weir_store::STATS_FILE), statistics.clone())?;
    let engine = admin_setup::engine(origin, events, &publisher, &statistics, names, shown, tls.clone());
    let admin = admin_setup::open(config, admin, tls.as_ref(), store.clone(), engine)?;
    let proxy_sync = ProxySync::start(store.clone(), Box::new(admin.taker()), Box::new(towards_proxy))?;
    let members = WatchedMembers::new(in_force.clone(), Box::new(admin.server_adder()));
    let member_watch = MemberWatch::start(members, discovered)?;
    let scheduler = Scheduler::start(config)?;
    let config_sender = ConfigSender::new(events.clone(), &config.datadir, names);
    let reloader = Reloader::start(origin.clone(), store.clone(), config_sender, admin.clone())?;
    notify::ready();
    // Those that were decided so far, which nobody has followed yet.
    let _ = events.send(Event::Roles);
    let is_elsewhere = events.clone();
    names.watch(move || drop(is_elsewhere.send(Event::Addresses)))?;
    let operations = operations(&prepared, &publisher, events);
    operations.announce_failovers();
    let server = Server {
        reloader: Some(reloader),
        proxy_sync: Some(proxy_sync),
        member_watch: Some(member_watch),
        history: Some(history),
        admin,
        config: prepared.config,
        in_force,
        snapshots: prepared.snapshots,
        roles: prepared.roles,
        accounts: prepared.accounts,
        names: prepared.names,
        published: Arc::default(),
        log: prepared.log,
        drained: prepared.drained,
        epochs: prepared.epochs,
        operations,
        publisher,
        collector: statistics.collector,
        web,
        last_answers: None,
        monitor: prepared.monitor,
        scheduler,
        tls: prepared.tls,
        is_paused: false,
        control,
        pid_file,
        takeover: TakeoverState::default(),
        program,
    };
    Ok(Started { server, service, log_writer })
}

/// Waits for the accounts of the servers, where they are followed: who comes before they are known is refused. After
/// [`ACCOUNTS_WAIT`] they may be.
pub(super) fn wait_for_accounts(prepared: &mut Prepared, service: &Service) {
    let Prepared { config, snapshots, roles, accounts, .. } = prepared;
    if !config.weir_hostgroups.iter().any(|row| row.follow_accounts) {
        return;
    }
    let until = Instant::now() + ACCOUNTS_WAIT;
    let is_known = loop {
        let latest = roles.latest();
        let servers = followed_servers(config, &latest, &snapshots.reach(), &snapshots.registry);
        if let Err(error) = accounts.follow(servers) {
            tracing::error!(%error, "the accounts of the servers are not followed: no thread for it");
            break false;
        }
        accounts.wait(ACCOUNTS_PAUSE);
        snapshots.take_accounts(config, accounts.latest());
        if snapshots.followed.values().all(|known| known.list.is_some()) {
            break true;
        }
        if Instant::now() >= until {
            break false;
        }
    };
    service.publisher().publish(&snapshots.build(config, &roles.latest()));
    if !is_known {
        tracing::warn!("clients are let in before the accounts of the servers are known");
    }
}

/// Opens the data port. Behind that the start has succeeded: what is new is saved, and other Weirs are told.
fn let_clients_in(
    prepared: &Prepared,
    pending: Pending,
    service: &mut Service,
    admin: &mut AdminSockets,
    origin: &Origin,
) -> Result<PidFile, ServeError> {
    let Prepared { config, store, snapshots, log, monitor, .. } = prepared;
    log.event(None, "start", format!("weir {}", env!("CARGO_PKG_VERSION")));
    pending.unopened_log.open(&config.datadir)?;
    admin.own();
    let pid_file = PidFile::write(origin.pidfile.as_deref(), &config.datadir);
    let waits = service.publisher();
    snapshots.registry.on_covered(move |workers| waits.covered(workers));
    service.open()?;
    pending.unsaved.save(&mut store.lock().unwrap_or_else(PoisonError::into_inner))?;
    monitor.serve();
    let (workers, io_driver) = (service.publisher().workers(), service.io_driver());
    tracing::info!(workers, io_driver, version = env!("CARGO_PKG_VERSION"), "started");
    log_listeners(service);
    if config.servers.is_empty() {
        let file = origin.path.display();
        tracing::warn!(%file, "no servers are configured, so nobody can log in: mysql_servers and mysql_users name them");
    }
    Ok(pid_file)
}

fn operations(prepared: &Prepared, publisher: &Publisher, events: &Sender<Event>) -> Operations {
    let Prepared { config, snapshots, log, drained, unfinished, roles, monitor, .. } = prepared;
    let proxy = RunningProxy { publisher: publisher.clone(), log: log.clone(), events: events.clone() };
    Operations::new(Context {
        config: Arc::new(config.clone()),
        reach: snapshots.reach(),
        instance: snapshots.instance.clone(),
        registry: snapshots.registry.clone(),
        roles: roles.clone(),
        drained: drained.clone(),
        unfinished: unfinished.clone(),
        planner: monitor.planner(),
        reporter: monitor.reporter(),
        proxy: Arc::new(proxy),
    })
}

/// The collector and the logs, and the statistics that show them.
struct Counting {
    log_writer: Writer,
    statistics: Statistics,
}

impl Counting {
    fn begin(
        prepared: &Prepared,
        publisher: &Publisher,
        (in_force, discovered): (InForce, KnownDifferences),
    ) -> Result<Self, ServeError> {
        let Prepared { config, snapshots, roles, names, drained, unfinished, monitor, .. } = prepared;
        let state = KnownState {
            in_force,
            names: names.clone(),
            drained: drained.clone(),
            unfinished: unfinished.clone(),
            discovered,
        };
        let digests_max = config.variables.query_digests_max as usize;
        let collector = Arc::new(StatsCollector::new(publisher.clone(), digests_max));
        collector.start()?;
        // The files are the writer's first order: traffic has begun, and what it logged before them would be lost.
        let files = logs::apply(publisher.query_logs(), config);
        let writer = publisher.query_logs().start()?;
        files.faults();
        let statistics = Statistics {
            collector,
            query_logs: publisher.query_logs().clone(),
            roles: roles.clone(),
            probes: monitor.probe_log(),
            registry: snapshots.registry.clone(),
            state: Arc::new(state),
            instance: snapshots.instance.clone(),
            started: Instant::now(),
        };
        Ok(Self { log_writer: writer, statistics })
    }
}

/// The state of this process that statistics show besides what is counted.
#[derive(Debug)]
struct KnownState {
    in_force: InForce,
    names: Names,
    drained: DrainedServers,
    unfinished: UnfinishedSwitchovers,
    discovered: KnownDifferences,
}

impl RunningState for KnownState {
    fn config(&self) -> Arc<Config> {
        self.in_force.config()
    }

    fn addresses(&self) -> ServerAddresses {
        self.names.all()
    }

    fn drained(&self) -> BTreeSet<Endpoint> {
        self.drained.all()
    }

    fn unfinished_switchovers(&self) -> BTreeMap<u32, String> {
        self.unfinished.all()
    }

    fn discovered(&self) -> BTreeMap<u32, Vec<(Endpoint, String)>> {
        let found = self.discovered.all().into_iter();
        let told =
            |found: Vec<Difference>| found.into_iter().map(|found| (found.server, found.text)).collect();
        found.map(|(hostgroup, found)| (hostgroup, told(found))).collect()
    }
}
