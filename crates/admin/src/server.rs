//! Runs the admin port: listening sockets, and a thread for each connection.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use weir_protocol::error::CON_COUNT_ERROR;
use weir_protocol::frame;
use weir_protocol::ok::ErrPacket;
use weir_store::Store;

use crate::digest_db::{DigestDb, Refreshed};
use crate::engine::Engine;
use crate::limits::{CONNECTIONS_MAX, LOGINS_MAX, Memory, PACKET_TIMEOUT, SQLITE_BYTES_MAX};
use crate::listener::{Bound, ListenError, Listening, TakeoverSocket};
use crate::login::Accounts;
use crate::response_cache::{CROWD_MIN, ResponseCache};
use crate::session;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::sqlite::{SharedFacts, attach_information_schema, register};
use crate::wire::{Socket, Wire};

/// Why the admin interface can't start.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// An address can't be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Accounts and addresses don't go together.
    #[error("{0}")]
    Settings(String),
    /// The database refuses what the interface needs.
    #[error("admin interface: {0}")]
    Database(#[from] rusqlite::Error),
    /// No threads.
    #[error("admin interface: {0}")]
    Io(#[from] io::Error),
}

/// The running admin interface. Dropping it closes its sockets and ends its sessions.
#[derive(Debug)]
pub struct Admin {
    pub(crate) shared: Arc<AdminShared>,
}

/// The state that all sessions share.
pub(crate) struct AdminShared {
    pub engine: Arc<dyn Engine>,
    pub memory: Memory,
    pub facts: SharedFacts,
    /// PROXYSQL READONLY
    pub is_read_only: AtomicBool,
    store: Arc<Mutex<Store>>,
    /// Held by who loads to runtime: one at a time. Taken before the store.
    loading: Mutex<()>,
    /// When which table of the engine's was last read into the store; held by who reads and until its statement has
    /// run. Taken before the store.
    refreshed: Mutex<Refreshed>,
    /// For digests. Taken before the store.
    pub digest_db: DigestDb,
    /// Held for a moment, and no other lock is taken meanwhile.
    response_cache: Mutex<ResponseCache>,
    accounts: RwLock<Accounts>,
    tls: Option<Arc<ServerConfig>>,
    listening: Mutex<Vec<Listening>>,
    connections: Mutex<HashMap<u32, Socket>>,
    logins: AtomicUsize,
    last_id: AtomicU32,
    /// How it ends where another process goes on.
    pub shutdown: Shutdown,
}

impl std::fmt::Debug for AdminShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminShared")
    }
}

/// A lock that nothing breaks: what it protects is whole between any two statements.
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sockets that listen, and whose clients wait until they are served.
#[derive(Debug, Default)]
pub struct AdminSockets {
    bound: Vec<Bound>,
    /// Those of another process that are not wanted here.
    spare: Vec<Bound>,
}

impl AdminSockets {
    /// Listens on the addresses of `settings`.
    ///
    /// # Errors
    /// When an address can't be had, or default passwords would be open to the network.
    pub fn open(settings: &Settings) -> Result<Self, AdminError> {
        Self::adopt(settings, Vec::new())
    }

    /// Listens on the addresses of `settings`, by the sockets that another process has `handed` over where there are
    /// any. Files of Unix sockets stay that process's until [`AdminSockets::own`].
    ///
    /// # Errors
    /// As [`AdminSockets::open`], or when a Unix socket's file is gone.
    pub fn adopt(settings: &Settings, handed: Vec<TakeoverSocket>) -> Result<Self, AdminError> {
        settings.check().map_err(AdminError::Settings)?;
        let mut spare = handed.into_iter().map(Bound::adopt).collect::<Result<Vec<_>, _>>()?;
        let mut bound = Vec::with_capacity(settings.interfaces.len());
        for address in &settings.interfaces {
            bound.push(match spare.iter().position(|handed| handed.is(address)) {
                Some(at) => spare.swap_remove(at),
                None => Bound::bind(address)?,
            });
        }
        Ok(Self { bound, spare })
    }

    /// The process that the sockets come from has let go of them: those that are not wanted are closed, and their files
    /// removed.
    pub fn own(&mut self) {
        self.bound.iter().chain(&self.spare).for_each(Bound::own);
        self.spare.clear();
    }
}

impl Admin {
    /// Serves who comes to `sockets`, which were opened for the same `settings`. `tls` as at the data port; none if it
    /// is switched off.
    ///
    /// # Errors
    /// When the database can't be used for it, or the system gives no threads.
    pub fn start(
        settings: &Settings,
        sockets: AdminSockets,
        tls: Option<Arc<ServerConfig>>,
        store: Arc<Mutex<Store>>,
        engine: Arc<dyn Engine>,
    ) -> Result<Self, AdminError> {
        let facts = SharedFacts::default();
        {
            let store = held(&store);
            attach_information_schema(store.connection())?;
            register(store.connection(), &facts)?;
            // Of all connections of the process. Nothing is written to files that nobody asked for.
            store.connection().pragma_update(None, "hard_heap_limit", SQLITE_BYTES_MAX)?;
            store.connection().pragma_update(None, "temp_store", "MEMORY")?;
        }
        let shared = AdminShared {
            engine,
            memory: Memory::default(),
            facts,
            is_read_only: AtomicBool::new(false),
            store,
            loading: Mutex::default(),
            refreshed: Mutex::default(),
            digest_db: DigestDb::default(),
            response_cache: Mutex::default(),
            accounts: RwLock::default(),
            tls,
            listening: Mutex::default(),
            connections: Mutex::default(),
            logins: AtomicUsize::new(0),
            last_id: AtomicU32::new(0),
            shutdown: Shutdown::default(),
        };
        let shared = Arc::new(shared);
        shared.go_by(settings, sockets.bound)?;
        Ok(Self { shared })
    }

    /// Listens on the addresses of other settings that are new, for [`Admin::apply`].
    ///
    /// # Errors
    /// As [`AdminSockets::open`].
    pub fn sockets(&self, settings: &Settings) -> Result<AdminSockets, AdminError> {
        Ok(AdminSockets { bound: self.shared.bind(settings)?, spare: Vec::new() })
    }

    /// Goes by other settings from now on, for which the `sockets` were opened. Sessions stay.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn apply(&self, settings: &Settings, sockets: AdminSockets) -> Result<(), AdminError> {
        self.shared.go_by(settings, sockets.bound)
    }

    /// Nobody else puts anything in force as long as this is held; to be taken before the store.
    pub fn loading(&self) -> MutexGuard<'_, ()> {
        self.shared.loading()
    }

    /// All sockets, for a process that takes over.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn takeover_sockets(&self) -> io::Result<Vec<TakeoverSocket>> {
        held(&self.shared.listening).iter().map(Listening::takeover_socket).collect()
    }

    /// Another process has the sockets: no more clients are taken, and those who are there are to connect again. See
    /// [`Shutdown`] for how they learn of it.
    pub fn let_go(&self) {
        self.shared.shutdown.begin();
        let mut listening = held(&self.shared.listening);
        listening.iter().for_each(Listening::leave_file);
        listening.clear();
    }

    /// Waits after [`Admin::let_go`] until nobody is left whom the end would hurt, at most for `limit`.
    pub fn finish(&self, limit: Duration) {
        let shared = &self.shared;
        shared.shutdown.wait(limit, || held(&shared.connections).is_empty());
    }

    /// Closes its sockets, removes their files, and ends its sessions, whoever else has a part in it.
    pub fn close(&self) {
        held(&self.shared.listening).clear();
        for socket in held(&self.shared.connections).values() {
            socket.close();
        }
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> Vec<String> {
        held(&self.shared.listening).iter().map(Listening::to_string).collect()
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        self.close();
    }
}

impl AdminShared {
    pub(crate) fn is_read_only(&self) -> bool {
        self.is_read_only.load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Store> {
        held(&self.store)
    }

    pub(crate) fn loading(&self) -> MutexGuard<'_, ()> {
        held(&self.loading)
    }

    pub(crate) fn refreshed(&self) -> MutexGuard<'_, Refreshed> {
        held(&self.refreshed)
    }

    pub(crate) fn response_cache(&self) -> MutexGuard<'_, ResponseCache> {
        held(&self.response_cache)
    }

    /// Whether more sessions are here than people look at.
    pub(crate) fn is_crowded(&self) -> bool {
        held(&self.connections).len() > CROWD_MIN
    }

    pub(crate) fn accounts(&self) -> Accounts {
        self.accounts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.tls.clone()
    }

    /// Takes the addresses that are new; they are served once [`AdminShared::go_by`] is called.
    pub(crate) fn bind(&self, settings: &Settings) -> Result<Vec<Bound>, AdminError> {
        settings.check().map_err(AdminError::Settings)?;
        let listening = held(&self.listening);
        let fresh = settings.interfaces.iter().filter(|address| !listening.iter().any(|old| old.is(address)));
        Ok(fresh.map(Bound::bind).collect::<Result<_, _>>()?)
    }

    /// Serves what was bound, and listens no more where it is not wanted.
    pub(crate) fn go_by(self: &Arc<Self>, settings: &Settings, bound: Vec<Bound>) -> Result<(), AdminError> {
        *self.accounts.write().unwrap_or_else(PoisonError::into_inner) = settings.accounts();
        self.is_read_only.store(settings.is_read_only, Ordering::Relaxed);
        // Whoever waits at a new address finds the new accounts.
        let fresh = bound
            .into_iter()
            .map(|bound| {
                let shared = self.clone();
                bound.serve(move |socket| shared.receive(socket))
            })
            .collect::<io::Result<Vec<_>>>()?;
        let mut listening = held(&self.listening);
        listening.retain(|old| settings.interfaces.iter().any(|address| old.is(address)));
        for listener in &fresh {
            tracing::info!(address = %listener, "admin interface listening");
        }
        listening.extend(fresh);
        drop(listening);
        settings.warn();
        Ok(())
    }

    /// A client has connected.
    fn receive(self: &Arc<Self>, socket: Socket) {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let has_room = {
            let mut connections = held(&self.connections);
            let has_room = connections.len() < CONNECTIONS_MAX
                && self.logins.load(Ordering::Relaxed) < LOGINS_MAX
                && !connections.contains_key(&id);
            match socket.try_clone() {
                Ok(handle) if has_room => connections.insert(id, handle).is_none(),
                _ => false,
            }
        };
        if !has_room {
            return turn_away(socket);
        }
        self.logins.fetch_add(1, Ordering::Relaxed);
        let connection = ConnectionGuard { shared: self.clone(), id, is_in: false };
        let shared = self.clone();
        let thread = std::thread::Builder::new().name(format!("admin {id}"));
        let spawned = thread.spawn(move || {
            let mut connection = connection;
            let host = socket.peer().map(|peer| peer.ip());
            let mut wire = Wire::new(socket);
            // Whatever is wrong with a connection is its own affair.
            let _ = session::serve(&shared, &mut wire, id, host, || connection.is_in());
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "can't start a thread for an admin connection");
        }
    }
}

/// A connection that is counted; no more when dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    shared: Arc<AdminShared>,
    id: u32,
    is_in: bool,
}

impl ConnectionGuard {
    /// It has logged in.
    pub(crate) fn is_in(&mut self) {
        if !std::mem::replace(&mut self.is_in, true) {
            self.shared.logins.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.is_in();
        held(&self.shared.connections).remove(&self.id);
    }
}

/// Says that there is no room, if the client's buffer takes it at once.
fn turn_away(socket: Socket) {
    let (mut out, mut sequence) = (Vec::new(), 0);
    let error = ErrPacket { sqlstate: None, ..ErrPacket::new(CON_COUNT_ERROR, b"Too many connections") };
    frame::packet(&mut out, &mut sequence, |out| error.write(out));
    let _ = Wire::new(socket).write(&out, PACKET_TIMEOUT);
}
