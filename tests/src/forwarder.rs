//! A port that leads to a server only when a test wants it to, falls silent, keeps a statement back, or breaks in the
//! middle of an answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Passes connections on from one address to another; dropping it cuts them all and closes the port.
pub struct Forwarder {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// Where connections break: behind so many bytes of what the server says after a client has sent these bytes.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// In one piece of what a client sends.
    pub mark: &'static [u8],
    /// Bytes of the server that still pass; none: not even what the client has sent does.
    pub after_bytes: Option<usize>,
    /// From then on the way is whole.
    pub cuts_max: u32,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    is_silent: AtomicBool,
    cut: Option<Cut>,
    cuts: AtomicU32,
    is_holding: AtomicBool,
    held: AtomicU32,
    is_swallowing: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Forwarder {
    /// Listens on `from`, where connections lead to `to` from now on.
    pub fn start(from: impl Into<SocketAddr>, to: SocketAddrV4) -> io::Result<Forwarder> {
        Self::start_as(Shared::default(), from.into(), to, Duration::ZERO)
    }

    /// The same over a long way: whatever the server says arrives so much later.
    pub fn start_with_delay(from: SocketAddrV4, to: SocketAddrV4, delay: Duration) -> io::Result<Forwarder> {
        Self::start_as(Shared::default(), from.into(), to, delay)
    }

    /// The same with connections that break.
    pub fn start_with_cut(from: SocketAddrV4, to: SocketAddrV4, cut: Cut) -> io::Result<Forwarder> {
        Self::start_as(Shared { cut: Some(cut), ..Shared::default() }, from.into(), to, Duration::ZERO)
    }

    /// How many connections were cut.
    pub fn cuts(&self) -> u32 {
        self.shared.cuts.load(Ordering::Relaxed)
    }

    /// From now on what has the cut's bytes waits in front of the server, and whatever its client sends behind it; or
    /// that is over, and it goes on.
    pub fn hold(&self, is_holding: bool) {
        self.shared.is_holding.store(is_holding, Ordering::Relaxed);
    }

    /// How many pieces of what clients have sent had to wait.
    pub fn held(&self) -> u32 {
        self.shared.held.load(Ordering::Relaxed)
    }

    /// From now on what is cut off of answers is lost without the connection's end: that is left to the server.
    pub fn swallow(&self) {
        self.shared.is_swallowing.store(true, Ordering::Relaxed);
    }

    /// From now on nothing passes, either way, and no connection ends, as when a network loses every packet; or that
    /// is over, and what was sent meanwhile arrives.
    pub fn silence(&self, is_silent: bool) {
        self.shared.is_silent.store(is_silent, Ordering::Relaxed);
    }

    fn start_as(
        shared: Shared,
        from: SocketAddr,
        to: SocketAddrV4,
        delay: Duration,
    ) -> io::Result<Forwarder> {
        let listener = TcpListener::bind(from)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(shared);
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept_all(&listener, to, delay, &shared))
        };
        Ok(Forwarder { shared, acceptor: Some(acceptor) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// A piece with the cut's bytes waits as long as such are held.
    fn wait_held(&self) {
        if self.is_holding.load(Ordering::Relaxed) {
            self.held.fetch_add(1, Ordering::Relaxed);
        }
        while self.is_holding.load(Ordering::Relaxed) && !self.is_stopping.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether bytes may pass; waits as long as the way is silent.
    fn passes(&self) -> bool {
        while self.is_silent.load(Ordering::Relaxed) && !self.is_stopping.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(2));
        }
        !self.is_stopping.load(Ordering::Relaxed)
    }
}

fn accept_all(listener: &TcpListener, to: SocketAddrV4, delay: Duration, shared: &Arc<Shared>) {
    while shared.passes() {
        match listener.accept() {
            Ok((client, _)) => drop(join(client, to, delay, shared)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(2)),
            Err(_) => return,
        }
    }
}

fn join(client: TcpStream, to: SocketAddrV4, delay: Duration, shared: &Arc<Shared>) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let server = TcpStream::connect(to)?;
    server.set_nodelay(true)?;
    let mut streams = shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
    streams.push(client.try_clone()?);
    streams.push(server.try_clone()?);
    let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
    let is_marked = Arc::new(AtomicBool::new(false));
    let (there, back) = (Arc::clone(shared), Arc::clone(shared));
    let marked = Arc::clone(&is_marked);
    thread::spawn(move || ask(client, server, &there, &marked));
    thread::spawn(move || answer(back_from, back_to, delay, &back, &is_marked));
    Ok(())
}

fn ask(mut from: TcpStream, mut to: TcpStream, shared: &Shared, is_marked: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let bytes = &buffer[..count];
        if let Some(Cut { mark, after_bytes, cuts_max }) = shared.cut
            && bytes.windows(mark.len()).any(|window| window == mark)
        {
            shared.wait_held();
            if shared.cuts.load(Ordering::Relaxed) < cuts_max {
                is_marked.store(true, Ordering::Relaxed);
                if after_bytes.is_none() {
                    shared.cuts.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        if !shared.passes() || to.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}

fn answer(mut from: TcpStream, mut to: TcpStream, delay: Duration, shared: &Shared, is_marked: &AtomicBool) {
    let mut buffer = [0; 16 << 10];
    let mut left = shared.cut.and_then(|cut| cut.after_bytes).unwrap_or(usize::MAX);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        let is_counted = is_marked.load(Ordering::Relaxed);
        let passing = if is_counted { count.min(left) } else { count };
        if !shared.passes() || to.write_all(&buffer[..passing]).is_err() {
            break;
        }
        if is_counted {
            left -= passing;
        }
        if passing < count {
            shared.cuts.fetch_add(1, Ordering::Relaxed);
            if shared.is_swallowing.load(Ordering::Relaxed) {
                continue;
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
