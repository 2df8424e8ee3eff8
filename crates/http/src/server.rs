//! Runs the thread that serves HTTP, and tells it other addresses, and the end, while it runs.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::AbortHandle;
use tower::ServiceExt;

use crate::Source;
use crate::access::Access;
use crate::routes::{Peer, RequestContext, router};
use crate::sockets::{Bound, HttpSockets};

/// Connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: u32 = 256;
/// A request's head must be there after this time; an idle connection is closed after it, too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's head has at most so many bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// No connection is older, so that nobody holds one by reading slowly. Who asks every second connects anew each time.
const CONNECTION_AGE_MAX: Duration = Duration::from_secs(60);
/// After a failed accept (no descriptors are left, mostly) it is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The addresses to listen on, and the rules of access.
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
    /// By wanted address.
    bound: HashMap<SocketAddr, Bound>,
}

/// An order to the thread.
enum Change {
    Options {
        /// Listen there, too.
        new: Vec<(SocketAddr, TcpListener)>,
        /// Listen there no more.
        gone: Vec<SocketAddr>,
        access: Access,
    },
    /// Take no more clients, and answer when those who are there have their answers.
    Finish(SyncSender<()>),
}

impl Http {
    /// Begins to serve who comes to `sockets`, which were opened for the same addresses.
    ///
    /// # Errors
    /// When an address can't be listened on, or the system gives no thread.
    pub fn start(options: Options, sockets: HttpSockets, source: Arc<dyn Source>) -> Result<Self, HttpError> {
        let (changes, inbox) = mpsc::unbounded_channel();
        let mut http = Self { options: Options::default(), changes, bound: HashMap::new() };
        http.go_by(options, sockets)?;
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
        self.go_by(options, HttpSockets::default())
    }

    fn go_by(&mut self, options: Options, mut sockets: HttpSockets) -> Result<(), HttpError> {
        let (mut new, mut fresh) = (Vec::new(), HashMap::new());
        for address in &options.addresses {
            if !self.bound.contains_key(address) && !fresh.contains_key(address) {
                let bound = sockets.take(*address)?;
                new.push((*address, bound.listener.try_clone()?));
                fresh.insert(*address, bound);
            }
        }
        let is_wanted = |address: &SocketAddr| options.addresses.contains(address);
        let gone =
            self.bound.extract_if(|address, _| !is_wanted(address)).map(|(address, _)| address).collect();
        self.bound.extend(fresh);
        // The thread ends after this only.
        let _ = self.changes.send(Change::Options { new, gone, access: options.access.clone() });
        self.options = options;
        Ok(())
    }

    /// Where it listens, with the ports that the system chose.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.bound.values().map(|bound| bound.at)
    }

    /// All sockets by the addresses that were asked for, for a process that takes over.
    ///
    /// # Errors
    /// When the system gives no more descriptors.
    pub fn takeover_sockets(&self) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
        let hand =
            |(address, bound): (&SocketAddr, &Bound)| Ok((*address, bound.listener.try_clone()?.into()));
        self.bound.iter().map(hand).collect()
    }

    /// Takes no more clients: another process does, by the same sockets. Those who are here get the answer to what they
    /// have asked, or are about to ask, and are to connect again then.
    pub fn let_go(&mut self) -> Finish {
        self.bound.clear();
        let (sender, done) = sync_channel(1);
        let _ = self.changes.send(Change::Finish(sender));
        Finish(done)
    }
}

/// The last connections of a server that has let go of its sockets: see [`Http::let_go`].
#[derive(Debug)]
pub struct Finish(Receiver<()>);

impl Finish {
    /// Waits until all have their answers, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        // The server may have ended: then nobody is left.
        let _ = self.0.recv_timeout(limit);
    }
}

/// The state that all connections share.
#[derive(Clone)]
struct ServerState {
    router: Router,
    places: Arc<Semaphore>,
    /// True: this is the end, each connection's next answer is its last one.
    is_ending: watch::Receiver<bool>,
}

/// The thread: takes changes until nobody can send any.
fn serve(runtime: &Runtime, mut inbox: mpsc::UnboundedReceiver<Change>, source: Arc<dyn Source>) {
    let context = Arc::new(RequestContext::new(source, Access::default()));
    let (end, is_ending) = watch::channel(false);
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let state = ServerState { router: router(&context), places, is_ending };
    let mut listening: HashMap<SocketAddr, AbortHandle> = HashMap::new();
    runtime.block_on(async {
        while let Some(change) = inbox.recv().await {
            match change {
                Change::Options { new, gone, access } => {
                    context.set_access(access);
                    for task in gone.iter().filter_map(|address| listening.remove(address)) {
                        task.abort();
                    }
                    for (address, listener) in new {
                        match tokio::net::TcpListener::from_std(listener) {
                            Ok(listener) => {
                                let task = tokio::spawn(accept(listener, state.clone()));
                                listening.insert(address, task.abort_handle());
                            }
                            Err(error) => {
                                tracing::error!(%address, %error, "can't serve HTTP on this address")
                            }
                        }
                    }
                }
                Change::Finish(done) => {
                    listening.drain().for_each(|(_, task)| task.abort());
                    let _ = end.send(true);
                    let places = state.places.clone();
                    tokio::spawn(async move {
                        let _ = places.acquire_many(CONNECTIONS_MAX).await;
                        let _ = done.send(());
                    });
                }
            }
        }
    });
}

async fn accept(listener: tokio::net::TcpListener, state: ServerState) {
    loop {
        // Nobody closes the semaphore.
        let Ok(place) = state.places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, peer)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    serve_client(client, Peer(peer.ip()), state).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a client for HTTP");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whatever is wrong with a client is its own affair.
async fn serve_client(client: TcpStream, peer: Peer, state: ServerState) {
    let ServerState { router, mut is_ending, .. } = state;
    let has_asked = Arc::new(AtomicBool::new(false));
    let (asks, ends) = (has_asked.clone(), is_ending.clone());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        asks.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(peer);
        let (answer, ends) = (router.clone().oneshot(request.map(Body::new)), ends.clone());
        async move {
            let mut answer = answer.await?;
            if *ends.borrow() {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(client), service);
    let serving = async {
        let mut connection = pin!(connection);
        let mut end = pin!(is_ending.wait_for(|is_ending| *is_ending));
        let is_over = poll_fn(|context| match connection.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => end.as_mut().poll(context).map(|_| false),
        });
        if is_over.await {
            return;
        }
        // Who has not asked anything yet is about to.
        if has_asked.load(Ordering::Relaxed) {
            connection.as_mut().graceful_shutdown();
        }
        let _ = connection.await;
    };
    let _ = tokio::time::timeout(CONNECTION_AGE_MAX, serving).await;
}
