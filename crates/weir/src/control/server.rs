//! The server's side: a thread of its own, which answers one request after the other.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Mode;
use rustix::process::umask;
use weir_topology::NoEndpoint;

use super::{
    Answer, ControlError, Deed, GRACE_MS_MAX, Orders, REQUEST_BYTES_MAX, Reporter, Request, Switchover,
    order, socket_path,
};

/// A client that does not say or take anything for so long is left.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// A request must be there after this time, however slowly its bytes come.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failed accept (no descriptors are left, mostly) it is tried again after this pause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The socket; dropping it removes the file.
#[derive(Debug)]
pub(crate) struct Control {
    path: PathBuf,
    listener: UnixListener,
    /// The file's inode: a Weir that comes after this one may have put its own there.
    inode: Option<u64>,
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
        let inode = fs::symlink_metadata(&path).ok().map(|file| file.ino());
        Ok(Self { path, listener, inode })
    }

    /// Begins to answer, those too who have come already.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub(crate) fn start(&self, reporter: Reporter, orders: Orders) -> io::Result<()> {
        let listener = self.listener.try_clone()?;
        thread::Builder::new().name("control".into()).spawn(move || serve(&listener, &reporter, &orders))?;
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).ok().map(|file| file.ino()) == self.inode {
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

fn serve(listener: &UnixListener, reporter: &Reporter, orders: &Orders) {
    for client in listener.incoming() {
        match client {
            // Whatever is wrong with a client is its own affair.
            Ok(client) => drop(serve_client(client, reporter, orders)),
            Err(error) => {
                tracing::warn!(%error, "the control socket took no client");
                thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// One request, one answer, and before it the steps of what takes time.
fn serve_client(mut client: UnixStream, reporter: &Reporter, orders: &Orders) -> io::Result<()> {
    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let answer = match read_line(&mut client)? {
        Some(line) => match serde_json::from_slice::<Request>(&line) {
            // Steps that nobody hears change nothing.
            Ok(request) => {
                answer(request, reporter, orders, |step| drop(put(&mut client, &Answer::Step { step })))
            }
            Err(error) => Answer::Refused { error: format!("no request: {error}") },
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

fn answer(request: Request, reporter: &Reporter, orders: &Orders, step: impl FnMut(String)) -> Answer {
    let deed = match request {
        Request::Report(subject) => return Answer::Report(reporter.report(subject)),
        Request::Status {} => return Answer::Status(reporter.status()),
        Request::Drain(server) => server.parse().map(Deed::Drain),
        Request::Undrain(server) => server.parse().map(Deed::Undrain),
        Request::Switchover { hostgroup, to, force, dry_run, grace_ms } => {
            let to = to.map(|to| to.parse()).transpose();
            let grace_ms = grace_ms.map(|grace_ms| grace_ms.min(GRACE_MS_MAX));
            to.map(|to| {
                Deed::Switchover(Switchover { writer_hostgroup: hostgroup, to, force, dry_run, grace_ms })
            })
        }
    };
    let done = deed.map_err(|error: NoEndpoint| error.to_string()).and_then(|deed| order(orders, deed, step));
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
