//! Serves the control socket: a thread takes clients, and one for each of them answers: an order takes as long as it
//! takes, and nobody who asks for something else waits for it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::Mode;
use rustix::process::umask;
use weir_operations::SwitchoverOrder;
use weir_statistics::Statistics;
use weir_topology::NoEndpoint;

use super::{
    Action, Answer, ControlError, GRACE_MS_MAX, Orders, REQUEST_BYTES_MAX, Request, order, socket_path,
};
use crate::takeover::{self, Seal};

/// A client that does not say or take anything for so long is left.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// A request must be there after this time, however slowly its bytes come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// More clients at a time are answered one after the other.
const CLIENTS_MAX: usize = 32;
/// How often it is looked at the end whether all have their answers.
const FINISH_PAUSE: Duration = Duration::from_millis(5);
/// After a failed accept (no descriptors are left, mostly) it is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: UnixListener,
    /// The file's inode: a Weir that comes after this one may have put its own there. None: another process's.
    inode: Mutex<Option<u64>>,
    end: Arc<End>,
    clients: Arc<AtomicUsize>,
}

/// How the thread that answers learns of its end.
#[derive(Debug)]
struct End {
    has_come: AtomicBool,
    waker: OwnedFd,
}

impl Control {
    /// Listens in `datadir`. A file that a Weir has left which runs no more is replaced.
    ///
    /// # Errors
    /// When another Weir listens there, something else is in the way, or the system refuses.
    pub(crate) fn listen(datadir: &Path) -> Result<Self, ControlError> {
        let path = socket_path(datadir);
        let failed = |error| ControlError::Io { path: path.clone(), error };
        fs::create_dir_all(datadir).map_err(failed)?;
        clear_the_way(&path)?;
        let listener = listen_privately(&path).map_err(failed)?;
        let control = Self::new(&path, listener).map_err(failed)?;
        control.own();
        Ok(control)
    }

    /// The socket that another process listens on, and whose file stays that process's until [`Control::own`].
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub(crate) fn adopt(datadir: &Path, listener: OwnedFd) -> Result<Self, ControlError> {
        let path = socket_path(datadir);
        let failed = |error| ControlError::Io { path: path.clone(), error };
        Self::new(&path, listener.into()).map_err(failed)
    }

    fn new(path: &Path, listener: UnixListener) -> io::Result<Self> {
        // Another process may take the client that this one was woken for.
        listener.set_nonblocking(true)?;
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let end = Arc::new(End { has_come: AtomicBool::new(false), waker });
        let clients = Arc::default();
        Ok(Self { path: path.into(), listener, inode: Mutex::new(None), end, clients })
    }

    /// The file goes with this process.
    pub(crate) fn own(&self) {
        let inode = fs::symlink_metadata(&self.path).ok().map(|file| file.ino());
        *self.inode.lock().unwrap_or_else(PoisonError::into_inner) = inode;
    }

    /// The socket, for a process that takes over.
    ///
    /// # Errors
    /// When the system gives no descriptor.
    pub(crate) fn takeover_socket(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }

    /// The socket and its file are another process's: takes no more clients.
    pub(crate) fn let_go(&self) {
        *self.inode.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.end.has_come.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.end.waker, &1u64.to_ne_bytes());
    }

    /// Begins to answer, those too who have come already.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub(crate) fn start(&self, statistics: Statistics, orders: Orders, seal: Seal) -> io::Result<()> {
        let (listener, end) = (self.listener.try_clone()?, self.end.clone());
        let context = RequestContext { statistics, orders, seal, clients: self.clients.clone() };
        thread::Builder::new().name("control".into()).spawn(move || serve(&listener, &end, &context))?;
        Ok(())
    }

    /// Waits until those who have asked have their answers, but not for long.
    pub(crate) fn finish(&self) {
        let until = Instant::now() + CLIENT_TIMEOUT;
        while self.clients.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            thread::sleep(FINISH_PAUSE);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let inode = *self.inode.get_mut().unwrap_or_else(PoisonError::into_inner);
        if inode.is_some() && fs::symlink_metadata(&self.path).ok().map(|file| file.ino()) == inode {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn clear_the_way(path: &Path) -> Result<(), ControlError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(ControlError::Io { path: path.into(), error }),
        Ok(file) if !file.file_type().is_socket() => return Err(ControlError::NoSocket(path.into())),
        Ok(_) => {}
    }
    if UnixStream::connect(path).is_ok() {
        return Err(ControlError::InUse(path.into()));
    }
    fs::remove_file(path).map_err(|error| ControlError::Io { path: path.into(), error })
}

/// Nobody else may connect, from the file's first moment on.
fn listen_privately(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::RWXG | Mode::RWXO | Mode::XUSR);
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

/// Everything that requests are answered with.
#[derive(Clone)]
struct RequestContext {
    statistics: Statistics,
    orders: Orders,
    seal: Seal,
    clients: Arc<AtomicUsize>,
}

/// A client that is being served.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn serve(listener: &UnixListener, end: &End, context: &RequestContext) {
    loop {
        let mut wanted = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(end.waker.as_fd(), PollFlags::IN),
        ];
        let _ = poll(&mut wanted, None);
        if end.has_come.load(Ordering::Relaxed) {
            return;
        }
        match listener.accept() {
            Ok((client, _)) => serve_apart(client, context),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => {
                tracing::warn!(%error, "the control socket can't accept a client");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// On a thread of its own, as long as there are not too many. Whatever is wrong with a client is its own affair.
fn serve_apart(client: UnixStream, context: &RequestContext) {
    let count = context.clients.fetch_add(1, Ordering::Relaxed);
    let served = Served(context.clients.clone());
    if count >= CLIENTS_MAX {
        return drop(serve_client(client, context));
    }
    let own = context.clone();
    let thread = thread::Builder::new().name("control client".into()).spawn(move || {
        drop(serve_client(client, &own));
        drop(served);
    });
    if let Err(error) = thread {
        // The client reads the end of the connection.
        tracing::warn!(%error, "can't start a thread for a client of the control socket");
    }
}

/// One request, one answer, and before it the steps of what takes time.
fn serve_client(mut client: UnixStream, context: &RequestContext) -> io::Result<()> {
    let RequestContext { statistics, orders, seal, .. } = context;
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let answer = match read_line(&mut client)? {
        Some(line) => match serde_json::from_slice::<Request>(&line) {
            // The thread that answers has others to answer meanwhile.
            Ok(Request::Takeover { version }) => {
                takeover::converse(client, version, orders.clone(), seal.clone());
                return Ok(());
            }
            // Steps that nobody hears change nothing.
            Ok(request) => {
                answer(request, statistics, orders, |step| drop(put(&mut client, &Answer::Step { step })))
            }
            Err(error) => Answer::Refused { error: format!("not a valid request: {error}") },
        },
        None => Answer::Refused { error: format!("a request has at most {REQUEST_BYTES_MAX} bytes") },
    };
    put(&mut client, &answer)
}

fn put(client: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    client.write_all(&line)
}

fn answer(request: Request, statistics: &Statistics, orders: &Orders, step: impl FnMut(String)) -> Answer {
    let action = match request {
        Request::Report(subject) => return Answer::Report(subject.report(statistics)),
        Request::Status {} => return Answer::Status(statistics.status()),
        Request::TopData {} => return Answer::TopData { top_data: Box::new(statistics.top_data()) },
        Request::Drain(server) => server.parse().map(Action::Drain),
        Request::Undrain(server) => server.parse().map(|server| Action::Undrain { server, force: false }),
        Request::UndrainByForce(server) => {
            server.parse().map(|server| Action::Undrain { server, force: true })
        }
        Request::Takeover { .. } => return Answer::Refused { error: "not a question".to_owned() },
        Request::Switchover { hostgroup, to, force, dry_run, grace_ms } => {
            let to = to.map(|to| to.parse()).transpose();
            let grace_ms = grace_ms.map(|grace_ms| grace_ms.min(GRACE_MS_MAX));
            to.map(|to| {
                Action::Switchover(SwitchoverOrder {
                    to,
                    force,
                    dry_run,
                    grace_ms,
                    ..SwitchoverOrder::of(hostgroup)
                })
            })
        }
    };
    let done =
        action.map_err(|error: NoEndpoint| error.to_string()).and_then(|action| order(orders, action, step));
    match done {
        Ok(done) => Answer::Done { done },
        Err(error) => Answer::Refused { error },
    }
}

/// The bytes up to the end of the line; `None` if there are too many.
fn read_line(client: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + REQUEST_TIMEOUT;
    let mut line = Vec::new();
    let mut buffer = [0; 512];
    while Instant::now() < until {
        let count = client.read(&mut buffer)?;
        if let Some(end) = buffer[..count].iter().position(|&byte| byte == b'\n') {
            line.extend_from_slice(&buffer[..end]);
            return Ok(Some(line));
        }
        line.extend_from_slice(&buffer[..count]);
        if line.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        if count == 0 {
            return Ok(Some(line));
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}
