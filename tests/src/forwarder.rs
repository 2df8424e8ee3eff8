//! A port that leads to a server only when a test wants it to.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Passes connections on from one address to another; dropping it cuts them all and closes the port.
pub struct Forwarder {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    streams: Mutex<Vec<TcpStream>>,
}

impl Forwarder {
    /// Listens on `from`, where connections lead to `to` from now on.
    pub fn start(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Forwarder> {
        Self::start_with_delay(from, to, Duration::ZERO)
    }

    /// The same over a long way: whatever the server says arrives so much later.
    pub fn start_with_delay(from: SocketAddrV4, to: SocketAddrV4, delay: Duration) -> io::Result<Forwarder> {
        let listener = TcpListener::bind(from)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
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

fn accept_all(listener: &TcpListener, to: SocketAddrV4, delay: Duration, shared: &Shared) {
    while !shared.is_stopping.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => drop(join(client, to, delay, shared)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(2)),
            Err(_) => return,
        }
    }
}

fn join(client: TcpStream, to: SocketAddrV4, delay: Duration, shared: &Shared) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let server = TcpStream::connect(to)?;
    server.set_nodelay(true)?;
    let mut streams = shared.streams.lock().unwrap_or_else(PoisonError::into_inner);
    streams.push(client.try_clone()?);
    streams.push(server.try_clone()?);
    let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || copy(client, server, Duration::ZERO));
    thread::spawn(move || copy(back_from, back_to, delay));
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        thread::sleep(delay);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
