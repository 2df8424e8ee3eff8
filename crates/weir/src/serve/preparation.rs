//! Sets up everything that may fail before clients are let in: after a failure nothing has happened.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use weir_accounts::AccountWatch;
use weir_admin::Settings;
use weir_config::Config;
use weir_monitor::{LatestRoles, Monitor, ServerAddresses};
use weir_operations::{DrainedServers, UnfinishedSwitchovers};
use weir_proxy::service::Service;
use weir_proxy::shared::Report;
use weir_store::Store;
use weir_topology::{Roles, ServerRegistry};

use super::inheritance::Inheritance;
use super::{Event, ServeError};
use crate::addresses::{self, LIMIT, Names};
use crate::config_file::Source;
use crate::epoch_file::EpochFile;
use crate::rsa_key;
use crate::snapshot::Snapshots;
use crate::startup::{self, Origin, Start, Unsaved};
use crate::supervision;
use crate::tls::Tls;
use crate::topology_log::{TopologyLog, Unopened};
use weir_web::Web;

/// The configuration that has won, and all that is made of it without a socket that listens.
pub(super) struct Prepared {
    pub config: Config,
    pub store: Arc<Mutex<Store>>,
    pub tls: Option<Tls>,
    pub snapshots: Snapshots,
    pub log: TopologyLog,
    pub drained: DrainedServers,
    pub unfinished: UnfinishedSwitchovers,
    pub epochs: EpochFile,
    pub roles: LatestRoles,
    /// It follows nobody yet.
    pub accounts: AccountWatch,
    pub names: Names,
    /// It looks at the servers already.
    pub monitor: Monitor,
}

/// What is done when clients are let in, for it leaves a trace.
pub(super) struct Pending {
    pub unsaved: Unsaved,
    pub unopened_log: Unopened,
}

impl Prepared {
    /// The datadir is this Weir's, or its predecessor's, which changes nothing any more.
    pub(super) fn new(
        origin: &Origin,
        source: &Source,
        inherited: &Inheritance,
        events: &Sender<Event>,
    ) -> Result<(Self, Pending), ServeError> {
        let Start { config, store, unsaved } = startup::start(origin, source, inherited.datadir())?;
        let tls = Tls::new(&config)?;
        let registry = ServerRegistry::default();
        let names = Names::new();
        let snapshots = snapshots(&config, registry.clone(), inherited.instance(), &names)?;
        let (log, unopened_log) = TopologyLog::new(&config);
        addresses::announce(&log, &ServerAddresses::new(), &snapshots.addresses);
        let drained = DrainedServers::load(&config.datadir)?;
        for server in drained.all() {
            tracing::info!(%server, "server is still drained from an earlier run; to use it again: weir undrain");
        }
        let roles = LatestRoles::default();
        let epochs = EpochFile::load(&config.datadir)?;
        let publish = publish(roles.clone(), log.clone(), events.clone());
        let reach = snapshots.reach();
        let (known, drained_now) = (epochs.known(), drained.all());
        let monitor =
            Monitor::start(&config, inherited.instance(), known, &drained_now, &reach, registry, publish)?;
        let store = Arc::new(Mutex::new(store));
        let of_accounts = events.clone();
        let accounts = AccountWatch::new(move || drop(of_accounts.send(Event::Accounts)));
        let pending = Pending { unsaved, unopened_log };
        let unfinished = UnfinishedSwitchovers::default();
        let prepared = Self {
            config,
            store,
            tls,
            snapshots,
            log,
            drained,
            unfinished,
            epochs,
            roles,
            accounts,
            names,
            monitor,
        };
        Ok((prepared, pending))
    }
}

fn snapshots(
    config: &Config,
    registry: ServerRegistry,
    instance: &str,
    names: &Names,
) -> Result<Snapshots, ServeError> {
    let mut snapshots = Snapshots::new(registry);
    names.look_up(config, LIMIT);
    snapshots.addresses = names.known(config, &ServerAddresses::new());
    names.follow(config, &snapshots.addresses);
    snapshots.take_rules(config);
    snapshots.rsa_key = rsa_key::rsa_key(config, &config.datadir)?;
    snapshots.servers_tls = snapshots.servers_tls.read(config)?;
    snapshots.instance = instance.into();
    Ok(snapshots)
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

/// Every socket listens or is a predecessor's that does, and nobody is served yet.
pub(super) struct BoundSockets {
    pub service: Service,
    pub admin: weir_admin::AdminSockets,
    pub web: weir_http::HttpSockets,
}

impl BoundSockets {
    /// The data port comes last: who gets through to it finds the admin port and HTTP, too.
    pub(super) fn open(prepared: &mut Prepared, inherited: &mut Inheritance) -> Result<Self, ServeError> {
        let config = &prepared.config;
        let snapshot = prepared.snapshots.build(config, &prepared.roles.latest());
        let admin = weir_admin::AdminSockets::adopt(&Settings::from(&config.admin), inherited.admin()?)?;
        let web = Web::sockets(config, inherited.http()?)?;
        let workers = config.variables.threads.max(1) as usize;
        let tls = prepared.tls.as_ref().map(|tls| tls.config.clone());
        let (listeners, wanted) = (inherited.listeners()?, config.listeners());
        let service =
            Service::prepare(listeners, &wanted, workers, &snapshot, tls, report(&prepared.monitor))?;
        Ok(Self { service, admin, web })
    }
}

/// What the workers tell.
fn report(monitor: &Monitor) -> weir_proxy::shared::Reporter {
    let reporter = monitor.reporter();
    Box::new(move |report: Report<'_>| match report {
        Report::Suspect(endpoint) => endpoint.parse().iter().for_each(|server| reporter.suspect(server)),
        Report::ConnectFailed { endpoint, cause } => {
            endpoint.parse().iter().for_each(|server| reporter.connect_failed(server, cause));
        }
        Report::WorkerEnded { worker, cause } => supervision::end(&format!("worker-{worker}"), cause),
    })
}
