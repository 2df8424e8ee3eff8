//! Runs `weir serve`: wires configuration, monitor and workers together, and obeys signals.

mod address_changes;
mod admin_orders;
mod admin_setup;
mod apply_config;
mod go_live;
mod inheritance;
mod preparation;
mod reload;
mod resources;
mod running_proxy;
mod takeover;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;
use weir_accounts::AccountWatch;
use weir_admin::Admin;
use weir_config::{Config, ConfigError, InForce};
use weir_discovery::MemberWatch;
use weir_http::{Finish, HttpError};
use weir_monitor::{LatestRoles, Monitor};
use weir_operations::{DrainedServers, DrainedServersError, Notice, Operations};
use weir_proxy::service::{Publisher, Service, StartError};
use weir_proxy::shared::Drain;
use weir_proxy_sync::ProxySync;
use weir_statistics::{HistoryWriter, StatsCollector};
use weir_topology::Roles;

use self::apply_config::ConfigOffer;
use self::go_live::Started;
use self::inheritance::Inheritance;
use self::preparation::{BoundSockets, Prepared};
use self::reload::Reloader;
use self::running_proxy::Request;
use self::takeover::{TakeoverState, UNDER_WAY};
use crate::addresses::Names;
use crate::control::{Action, Control, ControlError, Order, Orders};
use crate::epoch_file::{EpochFile, EpochFileError};
use crate::followed_servers::followed_servers;
use crate::instance;
use crate::logs;
use crate::notify;
use crate::pid_file::PidFile;
use crate::program::Program;
use crate::rsa_key::RsaKeyError;
use crate::server_tls::ServerTlsError;
use crate::snapshot::Snapshots;
use crate::startup::{Origin, StartupError};
use crate::supervision;
use crate::takeover::TakeoverError;
use crate::tls::{Tls, TlsError};
use crate::topology_log::TopologyLog;
use weir_scheduler::Scheduler;
use weir_web::Web;

pub(crate) use self::apply_config::ConfigSender;

/// How long those are waited for at the end who came to the admin port or to HTTP before another process took over.
const LAST_ANSWERS_WAIT: Duration = Duration::from_secs(10);

/// Why `serve` ends with a failure.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    #[error("the configuration has errors:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Config(Vec<ConfigError>),
    #[error(transparent)]
    Startup(#[from] StartupError),
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
    Drained(#[from] DrainedServersError),
    #[error("agreement with other Weirs: {0}")]
    EpochFile(#[from] EpochFileError),
    #[error("this Weir's name, in the datadir: {0}")]
    Instance(std::io::Error),
    #[error("takeover: {0}")]
    Takeover(#[from] TakeoverError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// An event of the main thread.
enum Event {
    /// There are other roles.
    Roles,
    /// The servers have other accounts, or they can't be read any more.
    Accounts,
    /// Servers are at other addresses.
    Addresses,
    /// Somebody at the control socket wants something done.
    Order(Order),
    /// Another thread has a configuration to go by.
    ConfigOffer(ConfigOffer),
    /// An operation wants something of this thread.
    Request(Request),
    /// An operation has something to tell.
    Operation(Notice),
    Signal(i32),
    /// The workers have ended.
    Ended(std::io::Result<()>),
}

/// Runs until a signal ends it. With `takeover` it goes on in the place of the Weir that runs with the same datadir.
///
/// ```text
/// Inheritance::begin      the datadir is this Weir's, or a predecessor's that changes nothing any more
/// Prepared::new           the configuration, and all that is made of it; the monitor looks at the servers
/// Inheritance::follow     a predecessor's writers are known, and its sockets are here
/// BoundSockets::open      every socket listens: the admin port, HTTP, then the data port; nobody is served
/// wait_for_accounts       it is known who may log in, where that is up to the servers
/// Inheritance::take_over  nothing can fail any more: the predecessor lets go
/// go_live::start          clients are let in at the data port; what is new is saved, other Weirs are told; the rest follows
/// Server::run             events, one after the other
/// ```
pub(crate) fn serve(origin: &Origin, takeover: bool) -> Result<(), ServeError> {
    supervision::watch();
    let program = Program::this()?;
    // Whoever sees the control socket may send signals.
    let (events, inbox) = channel();
    watch_signals(events.clone())?;
    let (mut inherited, source) = Inheritance::begin(origin, takeover)?;
    let (mut prepared, pending) = Prepared::new(origin, &source, &inherited, &events)?;
    drop(source);
    inherited.follow(&prepared.monitor, &prepared.roles, &inbox)?;
    let sockets = BoundSockets::open(&mut prepared, &mut inherited)?;
    go_live::wait_for_accounts(&mut prepared, &sockets.service);
    let control = inherited.take_over()?;
    let Started { server, service, log_writer } =
        go_live::start(prepared, pending, sockets, control, origin, program, &events)?;
    let admin = server.admin.clone();
    let ended = server.run(service, &events, &inbox);
    // The thread that reloads may have it a moment longer than this process lasts.
    admin.close();
    log_writer.stop();
    ended
}

struct Server {
    /// This one and the next three: none when they are another process's business.
    reloader: Option<Reloader>,
    proxy_sync: Option<ProxySync>,
    member_watch: Option<MemberWatch>,
    history: Option<HistoryWriter>,
    admin: Arc<Admin>,
    config: Config,
    in_force: InForce,
    snapshots: Snapshots,
    roles: LatestRoles,
    accounts: AccountWatch,
    names: Names,
    /// The roles that the workers go by.
    published: Arc<Roles>,
    log: TopologyLog,
    drained: DrainedServers,
    epochs: EpochFile,
    operations: Operations,
    publisher: Publisher,
    collector: Arc<StatsCollector>,
    web: Web,
    /// HTTP's, when another process has its sockets.
    last_answers: Option<Finish>,
    monitor: Monitor,
    scheduler: Scheduler,
    tls: Option<Tls>,
    /// No new clients are accepted, by an admin's will.
    is_paused: bool,
    control: Control,
    pid_file: PidFile,
    takeover: TakeoverState,
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
                    // Of many changes that came together the last one has been followed with the first.
                    self.follow_roles();
                    self.operations.see_to_clusters();
                }
                Event::Accounts => self.publish(),
                Event::Request(request) => {
                    self.oblige(request);
                    self.operations.see_to_clusters();
                }
                Event::Operation(notice) => {
                    self.take_notice(notice);
                    self.operations.see_to_clusters();
                }
                Event::Addresses => self.follow_addresses(),
                Event::Order(order) => self.obey(order, &mut service),
                Event::ConfigOffer(offer) => self.consider(offer, &mut service),
                Event::Signal(SIGHUP) => self.reloader.iter().for_each(Reloader::reload),
                Event::Signal(SIGUSR1) => logs::rotate(self.publisher.query_logs()),
                Event::Signal(SIGUSR2) => self.start_successor(),
                Event::Signal(signal) => {
                    tracing::info!(signal, clients = self.publisher.clients(), "draining");
                    notify::stopping();
                    break;
                }
                Event::Ended(result) => return Ok(result?),
            }
            if self.takeover == TakeoverState::Done {
                break;
            }
        }
        self.drain(service, events, inbox)
    }

    /// The next event; meanwhile what is due is done. None when nobody is left who could tell something.
    fn next_event(&mut self, inbox: &Receiver<Event>) -> Option<Event> {
        loop {
            let Some(due) = self.operations.next() else { return inbox.recv().ok() };
            match inbox.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => self.operations.see_to_clusters(),
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
        self.operations.end();
        let ended = events.clone();
        let mut is_told = self.takeover != TakeoverState::Done;
        let drain = if is_told { Drain::Stop } else { Drain::Takeover };
        let (admin, last_answers) = (self.admin.clone(), self.last_answers.take());
        std::thread::Builder::new().name("drain".into()).spawn(move || {
            let result = service.drain(drain);
            if let Some(last_answers) = last_answers {
                // Who had connected just before another process took over gets an answer.
                last_answers.wait(LAST_ANSWERS_WAIT);
                admin.finish(LAST_ANSWERS_WAIT);
            }
            let _ = ended.send(Event::Ended(result));
        })?;
        // Whoever takes over from this Weir has a scheduler of its own.
        self.scheduler.stop();
        let mut workers_ended = None;
        for event in inbox {
            match event {
                Event::Roles => self.follow_roles(),
                Event::Accounts => self.publish(),
                Event::Request(request) => self.oblige(request),
                Event::Operation(notice) => self.take_notice(notice),
                Event::Addresses => self.follow_addresses(),
                // Whoever ordered is told that by the end of the channel.
                Event::Order(_) | Event::ConfigOffer(_) | Event::Signal(SIGHUP | SIGUSR2) => {}
                Event::Signal(SIGUSR1) => logs::rotate(self.publisher.query_logs()),
                // A service manager that stops both processes does not mean that nobody may finish.
                Event::Signal(_) if !is_told => is_told = true,
                Event::Signal(signal) => {
                    tracing::warn!(signal, clients = self.publisher.clients(), "exiting at once");
                    return Ok(());
                }
                Event::Ended(result) => workers_ended = Some(result),
            }
            // What was begun with servers is brought to an end, or undone.
            if workers_ended.is_some() && self.operations.any().is_none() {
                break;
            }
        }
        self.control.finish();
        self.monitor.stop();
        tracing::info!("drained");
        Ok(workers_ended.unwrap_or(Ok(()))?)
    }

    /// Publishes new roles, if there are any.
    fn follow_roles(&mut self) {
        if !Arc::ptr_eq(&self.published, &self.roles.latest()) {
            self.publish();
        }
    }

    fn publish(&mut self) {
        let before = std::mem::replace(&mut self.published, self.roles.latest());
        self.take_name();
        self.snapshots.take_accounts(&self.config, self.accounts.latest());
        let snapshot = self.snapshots.build(&self.config, &self.published);
        self.publisher.publish(&snapshot);
        self.follow_accounts();
        self.epochs.note(&self.published);
        self.note_silent();
        self.operations.follow_epochs(&before, &self.published);
    }

    /// Has the accounts followed of the servers that work now.
    fn follow_accounts(&mut self) {
        let (reach, registry) = (self.snapshots.reach(), &self.snapshots.registry);
        let servers = followed_servers(&self.config, &self.published, &reach, registry);
        if let Err(error) = self.accounts.follow(servers) {
            tracing::error!(%error, "the accounts of the servers are not followed: no thread for it");
        }
    }

    /// Goes by the name that the monitor has taken, also at the next start.
    fn take_name(&mut self) {
        let Some(name) = self.published.renamed.clone().filter(|name| *name != self.snapshots.instance)
        else {
            return;
        };
        self.snapshots.instance = name.clone();
        self.operations.rename(name.clone());
        if self.takeover != TakeoverState::Done {
            instance::save(&self.config.datadir, &name);
        }
    }

    fn obey(&mut self, order: Order, service: &mut Service) {
        let Order { action, progress } = order;
        let done = match action {
            Action::TakeOver(request) => return self.obey_successor(request, service),
            _ if self.takeover != TakeoverState::None => Err(UNDER_WAY.to_owned()),
            Action::Drain(server) => return self.operations.drain(server, progress),
            Action::Undrain { server, force } => return self.operations.undrain(server, force, progress),
            Action::Switchover(order) => return self.operations.switchover(order, progress),
            Action::Pause => self.pause(true, service),
            Action::Resume => self.pause(false, service),
            Action::ReloadTls(certificate) => self.reload_tls(certificate),
        };
        progress.end(done);
    }

    /// The monitor and the operations go by this configuration from now on.
    fn apply(&mut self, config: &Config) {
        let reach = self.snapshots.reach();
        self.monitor.apply(config, &self.drained.all(), &reach);
        self.operations.configure(config, reach);
    }
}

/// The way to this thread for who wants something done.
fn orders_to(events: &Sender<Event>) -> Orders {
    let events = events.clone();
    Arc::new(move |order| drop(events.send(Event::Order(order))))
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
