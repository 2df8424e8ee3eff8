//! Relays TCP connections and delays every byte: distance between two programs of one machine.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::Error;

/// How often it is looked whether somebody connects, or the relay ends.
const LOOK: Duration = Duration::from_millis(5);
/// Pieces on their way in one direction of a connection; whoever sends more has to wait.
const PIECES_MAX: usize = 4096;
/// The largest piece.
const PIECE_BYTES: usize = 64 * 1024;

/// Takes connections at one address and passes their bytes to another. Dropped, it takes no more; the connections that
/// are there end when one of their ends does.
#[derive(Debug)]
pub struct Relay {
    is_over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Relay {
    /// Bytes come out `delay` after they went in, in both directions. Its sockets are in the network namespace of the
    /// calling thread.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub fn start(listen: SocketAddrV4, target: SocketAddrV4, delay: Duration) -> Result<Relay, Error> {
        let listening = TcpListener::bind(listen).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listening.map_err(Error::io(format!("listen on {listen}")))?;
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let accepting = thread::spawn(move || {
            while !flag.load(Ordering::Relaxed) {
                match listener.accept() {
                    // Without a target the client finds its connection closed.
                    Ok((client, _)) => drop(thread::spawn(move || connect(&client, target, delay))),
                    Err(_) => thread::sleep(LOOK),
                }
            }
        });
        Ok(Relay { is_over, accepting: Some(accepting) })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            // It does not panic.
            let _ = accepting.join();
        }
    }
}

/// Passes on what both sides say, until both have ended.
fn connect(client: &TcpStream, target: SocketAddrV4, delay: Duration) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let server = TcpStream::connect(target)?;
    for stream in [client, &server] {
        stream.set_nodelay(true)?;
    }
    pass(client.try_clone()?, server.try_clone()?, delay);
    pass(server, client.try_clone()?, delay);
    Ok(())
}

/// One direction, in two threads.
fn pass(from: TcpStream, to: TcpStream, delay: Duration) {
    let (pieces, arriving) = sync_channel(PIECES_MAX);
    thread::spawn(move || take(from, &pieces, delay));
    thread::spawn(move || give(to, &arriving));
}

type Piece = (Instant, Vec<u8>);

fn take(mut from: TcpStream, pieces: &SyncSender<Piece>, delay: Duration) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let piece = buffer.get(..read).unwrap_or_default().to_vec();
        if pieces.send((Instant::now() + delay, piece)).is_err() {
            break;
        }
    }
}

fn give(mut to: TcpStream, arriving: &Receiver<Piece>) {
    for (due, piece) in arriving {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            // Whoever sends is told by the reset.
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn free() -> (TcpListener, SocketAddrV4) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { panic!("not IPv4") };
        (listener, address)
    }

    #[test]
    fn bytes_come_later_in_both_directions_and_in_order() {
        let (server, target) = free();
        let (_, listen) = free();
        let relay = Relay::start(listen, target, Duration::from_millis(20)).unwrap();
        let mut client = TcpStream::connect(listen).unwrap();
        let (mut served, _) = server.accept().unwrap();
        let begun = Instant::now();
        client.write_all(b"one ").unwrap();
        client.write_all(b"two").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut heard = String::new();
        served.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "one two");
        assert!(begun.elapsed() >= Duration::from_millis(20));
        served.write_all(b"three").unwrap();
        drop(served);
        heard.clear();
        client.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "three");
        assert!(begun.elapsed() >= Duration::from_millis(40));
        drop(relay);
        assert!(TcpStream::connect(listen).is_err());
    }

    #[test]
    fn who_connects_to_nobody_finds_the_connection_closed() {
        let (_, target) = free();
        let (_, listen) = free();
        let _relay = Relay::start(listen, target, Duration::ZERO).unwrap();
        let mut client = TcpStream::connect(listen).unwrap();
        assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    }
}
