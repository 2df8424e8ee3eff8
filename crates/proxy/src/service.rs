//! The data plane as a whole: its listeners and its workers' threads.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustls::ServerConfig;

use crate::core::Core;
use crate::driver::epoll::{Driver, now};
use crate::shared::{Message, Shared, Suspicion};
use crate::snapshot::Snapshot;

/// Clients that wait to be accepted.
const BACKLOG: i32 = 4096;

/// Why the data plane could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error("can't listen on {addr}: {error}{}", hint(.error))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// Threads, descriptors or randomness are not to be had.
    #[error("can't start a worker: {0}")]
    Worker(#[from] io::Error),
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another program listens there: stop it, or set another address in mysql_variables.interfaces)"
        }
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root or CAP_NET_BIND_SERVICE)",
        _ => "",
    }
}

/// Running workers. Dropping it does not stop them: see [`Service::stop`] and [`Service::drain`].
#[derive(Debug)]
pub struct Service {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    listening: Vec<SocketAddr>,
}

impl Service {
    /// Listens on `interfaces` and starts `workers` threads. `report` takes the endpoints of servers with which
    /// something seems to be wrong; it must not block.
    ///
    /// # Errors
    /// When an address is taken or the system gives no more threads or descriptors.
    pub fn start(
        interfaces: &[SocketAddr],
        workers: usize,
        snapshot: &Arc<Snapshot>,
        tls: Option<Arc<ServerConfig>>,
        report: Suspicion,
    ) -> Result<Self, StartError> {
        let mut listeners = Vec::new();
        for addr in interfaces {
            listeners.push(listen(*addr).map_err(|error| StartError::Listen { addr: *addr, error })?);
        }
        let listening = listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let (shared, inboxes) = Shared::new(workers, report)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (worker, inbox) in inboxes.into_iter().enumerate() {
            let mut seed = [0; 32];
            getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
            let own = listeners.iter().map(TcpListener::try_clone).collect::<io::Result<Vec<_>>>()?;
            let (shared, snapshot, tls, stop) = (shared.clone(), snapshot.clone(), tls.clone(), stop.clone());
            let thread = std::thread::Builder::new().name(format!("worker-{worker}")).spawn(move || {
                // Sessions share what is counted without atomics, so they are born on their worker's thread.
                let core = Core::new(worker, shared.clone(), snapshot, seed, now());
                Driver::new(worker, core, shared, inbox, own, tls)?.run(&stop)
            })?;
            threads.push(thread);
        }
        Ok(Self { shared, stop, threads, listening })
    }

    /// The addresses listened on, with the ports that the system chose.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// A handle to publish snapshots with.
    pub fn publisher(&self) -> Publisher {
        Publisher { shared: self.shared.clone() }
    }

    /// Takes no more clients and lets the running transactions end; returns when that is done.
    pub fn drain(self) -> io::Result<()> {
        self.shared.broadcast(|| Message::Drain);
        self.join()
    }

    /// Ends at once: sessions are cut off.
    pub fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        self.shared.broadcast(|| Message::Wake);
        self.join()
    }

    fn join(self) -> io::Result<()> {
        for thread in self.threads {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a worker has panicked")))?;
        }
        Ok(())
    }
}

/// Gives the workers new snapshots.
#[derive(Clone, Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
}

impl Publisher {
    /// From now on the workers go by this snapshot.
    pub fn publish(&self, snapshot: &Arc<Snapshot>) {
        self.shared.broadcast(|| Message::Snapshot(snapshot.clone()));
    }

    /// Clients connected now.
    pub fn clients(&self) -> u32 {
        self.shared.clients.load(Ordering::Relaxed)
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
