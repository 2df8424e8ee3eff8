//! Brings configuration that is loaded to runtime on one proxy to the others (ProxySQL's cluster of proxies).
//!
//! Each proxy looks at the `runtime_checksums_values` of the others in `proxysql_servers`, through their admin
//! interfaces. Where a module differs, the later one wins: the higher epoch, and of two with the same epoch the higher
//! checksum ([`versions`]). It is fetched whole, checked as any other, put in force and saved. Nobody sends anything.
//!
//! - An epoch is made by LOAD ... TO RUNTIME and goes with the configuration; it is later than all that its proxy knew
//!   of. What a proxy has only read at its start has the epoch with which it was saved, or none, and what has none is
//!   never fetched. So a proxy that was away catches up, and a new one does not win with its defaults.
//! - Configuration has passwords in it: proxies speak TLS with each other, unless `admin-cluster_ssl_mode` says
//!   otherwise, and one that offers none is asked nothing.
//! - What is observed is no configuration: the servers that are fetched are those that were loaded.
//! - What is of one machine stays there: addresses to listen on, threads, files ([`weir_config::Variable::is_local`]).

mod peer;
mod stats_tables;
mod version_choice;

use std::collections::HashMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_client::Tls;
use weir_config::{ClusterVariables, Strictness, TableRows, read_rows};
use weir_store::{Layer, Module, Store, StoreError, Version};
use weir_topology::Endpoint;

use crate::peer::Peer;
use crate::version_choice::{Order, VersionChoice};

/// Puts a module of another proxy in force: its rows, their epoch, and whether they are saved. Comes back with
/// warnings, or with why nothing has changed.
pub type Take = dyn Fn(Module, TableRows, u64, bool) -> Result<Vec<String>, Vec<String>> + Send;

/// Makes TLS towards a proxy; none: in clear. Reads files, or says what is wrong with them.
pub type Encrypt = dyn Fn(&Endpoint, &ClusterVariables) -> Result<Option<Tls>, String> + Send + Sync;

/// How often the settings are looked at while there is nobody to look at.
const ALONE: Duration = Duration::from_secs(1);

/// The thread that looks at the others. Dropping it ends it, after what it is at.
#[derive(Debug)]
pub struct ProxySync {
    /// Closed by dropping it.
    _stop: mpsc::Sender<()>,
}

impl ProxySync {
    /// Begins to look, as soon as `proxysql_servers` and `admin-cluster_username` in force say where and as whom.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn start(store: Arc<Mutex<Store>>, take: Box<Take>, encrypt: Box<Encrypt>) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let mut sync = SyncThread {
            store,
            take,
            encrypt,
            settings: None,
            peers: Vec::new(),
            versions: VersionChoice::default(),
            looks: 0,
        };
        std::thread::Builder::new().name("proxy sync".to_owned()).spawn(move || {
            let mut pause = Duration::ZERO;
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                pause = sync.turn();
            }
        })?;
        Ok(Self { _stop: stop })
    }
}

/// The settings of the cluster in force, and the versions that they were read at.
struct Settings {
    versions: Vec<Version>,
    variables: ClusterVariables,
}

struct SyncThread {
    store: Arc<Mutex<Store>>,
    take: Box<Take>,
    encrypt: Box<Encrypt>,
    settings: Option<Settings>,
    peers: Vec<Peer>,
    versions: VersionChoice,
    looks: u64,
}

impl SyncThread {
    /// Looks at all others once, and does what follows. How long to wait before the next time.
    fn turn(&mut self) -> Duration {
        if let Err(error) = self.read_settings() {
            tracing::warn!(%error, "cluster: the variables of the cluster can't be read");
            return ALONE;
        }
        let Some(settings) = &self.settings else { return ALONE };
        let variables = settings.variables.clone();
        if variables.username.is_empty() || self.peers.is_empty() {
            return ALONE;
        }
        let frequency = u64::from(variables.check_status_frequency);
        let with_status = frequency > 0 && self.looks.is_multiple_of(frequency);
        self.looks = self.looks.wrapping_add(1);
        let timeout = variables.check_interval.max(Duration::from_secs(1));
        std::thread::scope(|scope| {
            for peer in &mut self.peers {
                let (variables, encrypt) = (&variables, &*self.encrypt);
                scope.spawn(move || peer.look(variables, encrypt, timeout, with_status));
            }
        });
        if let Err(error) = self.follow(&variables).and_then(|()| self.show()) {
            tracing::warn!(%error, "cluster: the state of the other proxies can't be recorded");
        }
        variables.check_interval
    }

    fn follow(&mut self, variables: &ClusterVariables) -> Result<(), StoreError> {
        let own = held(&self.store).versions()?;
        let seen: Vec<&[Version]> = self.peers.iter().map(Peer::versions).collect();
        let (orders, same) = self.versions.choose(&own, &seen, &variables.modules);
        for (module, epoch) in same {
            held(&self.store).raise_epoch(module, epoch)?;
        }
        for order in orders {
            self.fetch(&order, variables);
        }
        Ok(())
    }

    fn fetch(&mut self, order: &Order, variables: &ClusterVariables) {
        let Order { module, from, epoch, checksum } = *order;
        let Some(peer) = self.peers.get_mut(from) else { return };
        let (name, endpoint) = (module.name(), peer.endpoint().to_string());
        let rows = match peer.fetch(module, checksum) {
            Ok(rows) => rows,
            Err(error) => {
                return tracing::warn!(module = name, from = endpoint, %error, "cluster: not fetched");
            }
        };
        let save = variables.modules.iter().find(|of| of.name == name).is_some_and(|of| of.save_to_disk);
        match (self.take)(module, rows, epoch, save) {
            Ok(warnings) => {
                tracing::info!(module = name, from = endpoint, epoch, "cluster: configuration applied");
                for warning in warnings {
                    tracing::warn!(
                        module = name,
                        from = endpoint,
                        warning,
                        "cluster: configuration applied, with a warning"
                    );
                }
            }
            Err(faults) => {
                // The same again would fail again: until the other has something else.
                self.versions.give_up(module, checksum);
                for fault in faults {
                    tracing::error!(
                        module = name,
                        from = endpoint,
                        fault,
                        "cluster: configuration rejected, nothing has changed"
                    );
                }
            }
        }
    }

    /// What is in force of admin variables and proxies, read again when one of them has changed.
    fn read_settings(&mut self) -> Result<(), StoreError> {
        let store = held(&self.store);
        let of_cluster = [Module::AdminVariables, Module::ProxysqlServers];
        let mut versions = store.versions()?;
        versions.retain(|version| of_cluster.contains(&version.module));
        if self.settings.as_ref().is_some_and(|settings| settings.versions == versions) {
            return Ok(());
        }
        let rows = store.rows_of(&of_cluster, Layer::Runtime)?;
        drop(store);
        // What is in force was checked when it was loaded.
        let Ok((config, _)) = read_rows(&rows, Strictness::Lenient) else { return Ok(()) };
        let mut known: HashMap<Endpoint, Peer> =
            self.peers.drain(..).map(|peer| (peer.endpoint().clone(), peer)).collect();
        self.peers = config
            .proxysql_servers
            .iter()
            .map(|row| {
                let mut peer = known.remove(&row.endpoint).unwrap_or_else(|| Peer::new(row.clone()));
                peer.row.clone_from(row);
                peer
            })
            .collect();
        self.settings = Some(Settings { versions, variables: config.admin.cluster });
        Ok(())
    }

    /// Fills `stats_proxysql_servers_...`.
    fn show(&self) -> Result<(), StoreError> {
        stats_tables::put(&mut held(&self.store), &self.peers, &self.versions)
    }
}

/// What the mutex protects is whole between any two statements, so nothing breaks it.
fn held(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}
