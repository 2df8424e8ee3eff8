//! Reads the file again at SIGHUP, to memory and to runtime. What was saved stays as it is.
//!
//! A thread of its own does it: it has to wait for the store, whose users may be waiting for the main thread.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use weir_admin::{Admin, AdminError, Settings};
use weir_config::ConfigError;
use weir_store::{Layer, Module, Store, StoreError};

use super::apply_config::{ConfigSender, Refusal};
use super::resources::Resources;
use crate::config_file::Source;
use crate::startup::{Origin, log_warnings};

/// Why the file was not taken.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error("the configuration has errors:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Config(Vec<ConfigError>),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error("{}", .0.join("; "))]
    Refused(Vec<String>),
    #[error("this needs a restart")]
    NeedsRestart(&'static str),
}

impl From<Refusal> for ReloadError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NeedsRestart(what) => Self::NeedsRestart(what),
            Refusal::Faults(faults) => Self::Refused(faults),
        }
    }
}

/// Reads the file again when it is told to.
pub(super) struct Reloader(Sender<()>);

impl Reloader {
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(
        origin: Origin,
        store: Arc<Mutex<Store>>,
        config_sender: ConfigSender,
        admin: Arc<Admin>,
    ) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let reload = Reload { origin, store, config_sender, admin };
        std::thread::Builder::new().name("reload".into()).spawn(move || {
            while inbox.recv().is_ok() {
                reload.run();
            }
        })?;
        Ok(Self(orders))
    }

    pub(super) fn reload(&self) {
        // The thread outlives this one.
        let _ = self.0.send(());
    }
}

struct Reload {
    origin: Origin,
    store: Arc<Mutex<Store>>,
    config_sender: ConfigSender,
    admin: Arc<Admin>,
}

impl Reload {
    fn run(&self) {
        match self.take() {
            Ok(()) => tracing::info!(path = %self.origin.path.display(), "configuration applied"),
            Err(ReloadError::NeedsRestart(what)) => tracing::error!(
                what,
                "configuration rejected: this needs a restart; the previous one stays in force"
            ),
            Err(error) => {
                tracing::error!(%error, "configuration rejected: the previous one stays in force");
            }
        }
    }

    /// Whole or not at all, in memory as at runtime.
    fn take(&self) -> Result<(), ReloadError> {
        let source = self.origin.read().map_err(ReloadError::Config)?;
        log_warnings(&source.warnings);
        // Before the store is taken, for which admins would wait meanwhile.
        let resources = self.config_sender.gather(&source.config);
        let _one_at_a_time = self.admin.loading();
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        let before = store.rows(Layer::Memory)?;
        store.replace(&Module::ALL, &source.rows)?;
        let taken = self.load(&mut store, &source, resources);
        if taken.is_err() {
            store.replace(&Module::ALL, &before)?;
        }
        taken
    }

    fn load(&self, store: &mut Store, source: &Source, resources: Resources) -> Result<(), ReloadError> {
        let loaded = store.prepare_runtime(&Module::ALL).map_err(ReloadError::Config)?;
        log_warnings(&loaded.warnings);
        let mut config = loaded.config.clone();
        config.datadir = self.origin.datadir(source);
        let settings = Settings::from(&config.admin);
        let sockets = self.admin.sockets(&settings)?;
        self.config_sender.reload(config, resources)?;
        store.commit_runtime(loaded)?;
        self.admin.apply(&settings, sockets)?;
        Ok(())
    }
}
