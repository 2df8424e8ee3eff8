//! The thread that serves HTTP, and how it is told other addresses while it runs.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tower::ServiceExt;

use crate::Source;
use crate::access::Access;
use crate::routes::{Desk, Peer, router};

/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
/// A request's head must be there after this time; an idle connection is closed after it, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's head has at most so many bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// No connection is older, so that nobody holds one by reading slowly. Who asks every second connects anew each time.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);
/// After a failed accept (no descriptors are left, mostly) it is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Where to listen, and who may see what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Each serves the same. None: nothing is served.
    pub addresses: Vec<SocketAddr>,
    /// Who may see what.
    pub access: Access,
}

/// Why HTTP can't be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// An address is taken, or not this machine's.
    #[error("can't listen for HTTP on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The system gives no thread or descriptor.
    #[error("HTTP: {0}")]
    Io(#[from] io::Error),
}

/// The server. Dropping it ends the thread and its connections.
#[derive(Debug)]
pub struct Http {
    options: Options,
    /// Closed to end the thread.
    changes: mpsc::UnboundedSender<Change>,
    /// By wanted address, the addresses with the ports that the system chose.
    bound: HashMap<SocketAddr, SocketAddr>,
}

/// What the thread is told.
struct Change {
    /// Listen there, too.
    new: Vec<(SocketAddr, TcpListener)>,
    /// Listen there no more.
    gone: Vec<SocketAddr>,
    access: Access,
}

impl Http {
    /// Begins to serve.
    ///
    /// # Errors
    /// When an address can't be listened on, or the system gives no thread.
    pub fn start(options: Options, source: Arc<dyn Source>) -> Result<Self, HttpError> {
        let (changes, inbox) = mpsc::unbounded_channel();
        let mut http = Self { options: Options::default(), changes, bound: HashMap::new() };
        http.apply(options)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name("http asks")
            .max_blocking_threads(1)
            .build()?;
        thread::Builder::new().name("http".into()).spawn(move || serve(&runtime, inbox, source))?;
        Ok(http)
    }

    /// Serves by these options from now on. Nothing changes after an error.
    ///
    /// # Errors
    /// When an address can't be listened on.
    pub fn apply(&mut self, options: Options) -> Result<(), HttpError> {
        if options == self.options {
            return Ok(());
        }
        let mut new = Vec::new();
        let mut bound = HashMap::new();
        for address in &options.addresses {
            if let Some(known) = self.bound.get(address) {
                bound.insert(*address, *known);
            } else if !bound.contains_key(address) {
                let (listener, at) =
                    listen(*address).map_err(|error| HttpError::Listen { address: *address, error })?;
                bound.insert(*address, at);
                new.push((*address, listener));
            }
        }
        let gone = self.bound.keys().filter(|address| !bound.contains_key(*address)).copied().collect();
        // The thread ends after this only.
        let _ = self.changes.send(Change { new, gone, access: options.access.clone() });
        (self.options, self.bound) = (options, bound);
        Ok(())
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.bound.values().copied()
    }
}

fn listen(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// The thread: takes changes until nobody can send any.
fn serve(runtime: &Runtime, mut inbox: mpsc::UnboundedReceiver<Change>, source: Arc<dyn Source>) {
    let desk = Arc::new(Desk::new(source, Access::default()));
    let router = router(&desk);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut listening: HashMap<SocketAddr, AbortHandle> = HashMap::new();
    runtime.block_on(async {
        while let Some(change) = inbox.recv().await {
            desk.set_access(change.access);
            for address in change.gone {
                if let Some(task) = listening.remove(&address) {
                    task.abort();
                }
            }
            for (address, listener) in change.new {
                match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => {
                        let task = tokio::spawn(accept(listener, router.clone(), places.clone()));
                        listening.insert(address, task.abort_handle());
                    }
                    Err(error) => tracing::error!(%address, %error, "HTTP is not served here"),
                }
            }
        }
    });
}

async fn accept(listener: tokio::net::TcpListener, router: Router, places: Arc<Semaphore>) {
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, peer)) => {
                let router = router.clone();
                tokio::spawn(async move {
                    serve_client(client, Peer(peer.ip()), router).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "no client could be accepted for HTTP");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whatever is wrong with a client is its own affair.
async fn serve_client(client: TcpStream, peer: Peer, router: Router) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.clone().oneshot(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(client), service);
    let _ = tokio::time::timeout(CONNECTION_AGE_MAX, connection).await;
}
