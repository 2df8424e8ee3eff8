//! A way to a server that a test closes for one account and leaves open for the others.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where the user's name begins in the first packet of a client that does not ask for TLS: header, capabilities, packet
/// size, collation, filler (MySQL's protocol, `HandshakeResponse41`).
const USER_AT: usize = 4 + 4 + 4 + 1 + 23;

/// Passes connections on from one address to another. Those of accounts for which it is closed are cut, and new ones
/// end with their login. Dropping it closes it for all.
pub struct Gate {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_stopping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    closed_for: BTreeSet<String>,
    /// By account.
    streams: Vec<(String, TcpStream)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// Listens on `from`, where connections lead to `to`.
    pub fn start(from: SocketAddrV4, to: SocketAddrV4) -> io::Result<Gate> {
        let listener = TcpListener::bind(from)?;
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept_all(&listener, to, &shared))
        };
        Ok(Gate { shared, acceptor: Some(acceptor) })
    }

    /// Closes it for an account: its connections are cut.
    pub fn close_for(&self, user: &str) {
        let mut state = self.shared.state();
        state.closed_for.insert(user.to_owned());
        for (_, stream) in state.streams.iter().filter(|(owner, _)| owner == user) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Opens it again.
    pub fn open_for(&self, user: &str) {
        self.shared.state().closed_for.remove(user);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Ordering::Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for (_, stream) in self.shared.state().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept_all(listener: &TcpListener, to: SocketAddrV4, shared: &Arc<Shared>) {
    while !shared.is_stopping.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((client, _)) => {
                let shared = Arc::clone(shared);
                thread::spawn(move || drop(join(client, to, &shared)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(2)),
            Err(_) => return,
        }
    }
}

/// Passes a connection on until it ends.
fn join(mut client: TcpStream, to: SocketAddrV4, shared: &Shared) -> io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_nodelay(true)?;
    let mut server = TcpStream::connect(to)?;
    server.set_nodelay(true)?;
    let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || copy(back_from, back_to));
    let mut first = vec![0; 16 << 10];
    let count = client.read(&mut first)?;
    let user = first.get(USER_AT..count).unwrap_or_default();
    let user: Vec<u8> = user.iter().copied().take_while(|byte| *byte != 0).collect();
    let user = String::from_utf8_lossy(&user).into_owned();
    {
        let mut state = shared.state();
        if state.closed_for.contains(&user) {
            let _ = client.shutdown(Shutdown::Both);
            return server.shutdown(Shutdown::Both);
        }
        state.streams.push((user.clone(), client.try_clone()?));
        state.streams.push((user, server.try_clone()?));
    }
    server.write_all(first.get(..count).unwrap_or_default())?;
    copy(client, server);
    Ok(())
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(buffer.get(..count).unwrap_or_default()).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
