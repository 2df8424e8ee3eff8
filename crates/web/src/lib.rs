//! Connects [`weir_http`] to this process: what it shows, and where.

mod buckets;
mod metrics;
mod pages;
mod process;
mod readiness;

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use weir_config::{AdminAccount, Config};
use weir_http::{
    Access, Account, Family, Finish, Http, HttpError, HttpSockets, Options, Page, Readiness, Source,
};
use weir_statistics::Statistics;

/// The server, for the thread that owns the configuration.
#[derive(Debug)]
pub struct Web {
    http: Http,
    source: Arc<WebSource>,
}

/// Knows whom to ask for what is shown.
#[derive(Debug)]
pub struct WebSource {
    statistics: Statistics,
    /// No client should be sent here any more.
    is_leaving: AtomicBool,
    /// No client is taken for now.
    is_paused: AtomicBool,
    limits: Mutex<Limits>,
}

/// The limits of the configuration that metrics show.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    clients_max: u32,
    wait_timeout_ms: u64,
}

impl Limits {
    fn of(config: &Config) -> Self {
        let wait_timeout = config.variables.wait_timeout.as_millis();
        Self {
            clients_max: config.variables.max_connections,
            wait_timeout_ms: u64::try_from(wait_timeout).unwrap_or(u64::MAX),
        }
    }
}

impl WebSource {
    /// Shows these statistics.
    pub fn new(statistics: Statistics) -> Arc<Self> {
        let limits = Mutex::new(Limits::of(&statistics.state.config()));
        Arc::new(Self {
            statistics,
            is_leaving: AtomicBool::default(),
            is_paused: AtomicBool::default(),
            limits,
        })
    }

    fn uptime_s(&self) -> f64 {
        self.statistics.started.elapsed().as_secs_f64()
    }

    fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Web {
    /// Listens where the configuration says so, and nowhere if it does not; by the sockets that another process has
    /// `handed` over, where there are any.
    ///
    /// # Errors
    /// When an address can't be listened on.
    pub fn sockets(config: &Config, handed: Vec<(SocketAddr, OwnedFd)>) -> Result<HttpSockets, HttpError> {
        HttpSockets::open(&options(config).addresses, handed)
    }

    /// Begins to serve who comes to the `sockets` of this configuration.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(config: &Config, sockets: HttpSockets, source: Arc<WebSource>) -> Result<Self, HttpError> {
        let http = Http::start(options(config), sockets, source.clone())?;
        let web = Self { http, source };
        web.log();
        Ok(web)
    }

    /// All sockets, for a process that takes over.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn takeover_sockets(&self) -> std::io::Result<Vec<(SocketAddr, OwnedFd)>> {
        self.http.takeover_sockets()
    }

    /// Takes no more clients: another process does, in this one's place.
    pub fn let_go(&mut self) -> Finish {
        self.http.let_go()
    }

    /// Goes by this configuration from now on. Nothing changes after an error.
    ///
    /// # Errors
    /// When an address can't be listened on.
    pub fn apply(&mut self, config: &Config) -> Result<(), HttpError> {
        let before: Vec<SocketAddr> = self.http.addresses().collect();
        self.http.apply(options(config))?;
        *self.source.limits.lock().unwrap_or_else(PoisonError::into_inner) = Limits::of(config);
        if !self.http.addresses().eq(before) {
            self.log();
        }
        Ok(())
    }

    /// From now on this Weir is not ready: it is ending.
    pub fn leave(&self) {
        self.source.is_leaving.store(true, Ordering::Relaxed);
    }

    /// Clients are not taken, or taken again, by an admin's will.
    pub fn pause(&self, is_paused: bool) {
        self.source.is_paused.store(is_paused, Ordering::Relaxed);
    }

    fn log(&self) {
        for address in self.http.addresses() {
            tracing::info!(%address, "serving HTTP");
        }
    }
}

/// Where HTTP is served and to whom, by the `admin-` variables.
fn options(config: &Config) -> Options {
    let admin = &config.admin;
    let at = |port: u16| SocketAddr::new(admin.web_ip, port);
    let web = admin.web_enabled.then(|| at(admin.web_port));
    let rest = admin.restapi_enabled.then(|| at(admin.restapi_port));
    let account = |account: &AdminAccount| Account {
        username: account.username.clone(),
        password: account.password.expose().to_owned(),
        is_well_known: account.is_default() && !admin.allow_default_credentials,
    };
    let accounts = admin.admin_credentials.iter().chain(&admin.stats_credentials);
    Options {
        addresses: web.into_iter().chain(rest).collect(),
        access: Access {
            accounts: accounts.map(account).collect(),
            token: admin.web_token.as_ref().map(|token| token.expose().to_owned()),
            metrics_are_public: admin.web_metrics_public,
        },
    }
}

impl Source for WebSource {
    fn ailments(&self) -> Vec<String> {
        if self.statistics.collector.is_answered() {
            return Vec::new();
        }
        vec!["a worker has not answered for seconds".to_owned()]
    }

    fn readiness(&self, hostgroup: Option<u32>) -> Readiness {
        let mut closed = Vec::new();
        if self.is_leaving.load(Ordering::Relaxed) {
            closed.push("weir is shutting down: no new clients are accepted".to_owned());
        }
        if self.is_paused.load(Ordering::Relaxed) {
            closed.push("paused by an admin: no new clients are accepted".to_owned());
        }
        readiness::readiness(
            &self.statistics.state.config(),
            &self.statistics.roles.latest(),
            closed,
            hostgroup,
        )
    }

    fn metrics(&self) -> Vec<Family> {
        metrics::families(self)
    }

    fn page(&self, page: Page, rows_max: usize) -> Value {
        pages::page(self, page, rows_max)
    }
}
