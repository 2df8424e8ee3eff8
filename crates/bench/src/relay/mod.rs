//! Relays as the peer `relay`: forwards TCP with io_uring and looks at nothing, neither a packet's border nor a byte. What it costs
//! is about what Weir would cost on this machine if its work on statements were free.
//!
//! It is a process of its own (`weir-bench relay`), so that its CPU time is told from the benchmark's.

mod worker;

use std::env;
use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Parser, value_parser};
use rustix::process::{Signal, set_parent_process_death_signal};
use weir_lab::Error;
use weir_testkit::Process;
use weir_uring::Ring;

use crate::bench::progress;
use worker::{Mailbox, Worker};

/// Until it takes clients.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// A server that has not answered by then is none.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two attempts to take a client where the system had none to give, as when files have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Forwards TCP and looks at nothing.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
pub(crate) struct Options {
    /// Where clients connect
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddrV4,
    /// The servers, which take turns
    #[arg(long, value_delimiter = ',', required = true, value_name = "LIST")]
    pub(crate) to: Vec<SocketAddrV4>,
    /// Threads that forward
    #[arg(long, value_parser = value_parser!(u16).range(1..=256), value_name = "N")]
    pub(crate) threads: u16,
}

impl Options {
    /// As on the command line, behind the program's name.
    pub(crate) fn words(&self) -> Vec<String> {
        let to: Vec<String> = self.to.iter().map(ToString::to_string).collect();
        let (listen, threads) = (self.listen.to_string(), self.threads.to_string());
        let words = ["relay", "--listen", &listen, "--to", &to.join(","), "--threads", &threads];
        words.map(str::to_owned).to_vec()
    }

    /// Starts it as a process and waits until it takes clients. The log goes into `dir`.
    pub(crate) fn start(&self, dir: &Path) -> Result<Process, Error> {
        let log_path = dir.join("relay.log");
        let program = env::current_exe().map_err(Error::io("find weir-bench itself"))?;
        let mut command = Command::new(program);
        command.args(self.words());
        Ok(Process::serve("relay", &mut command, self.listen, &log_path, START_TIMEOUT)?)
    }
}

/// Whether io_uring is to be had here.
pub(crate) fn check() -> io::Result<()> {
    worker::ring().map(drop)
}

/// Relays until it is killed, or whoever started it has ended.
pub(crate) fn run(options: &Options) -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Error::io("end with the benchmark")(error))?;
    let doing = || Error::io(format!("listen at {}", options.listen));
    let listener = TcpListener::bind(options.listen).map_err(doing())?;
    let doing = || Error::io("relay with io_uring");
    let mailboxes = start_workers(options.threads).map_err(doing())?;
    serve(&listener, &options.to, &mailboxes).map_err(doing())
}

/// A thread for each, with a ring that is made there: the kernel lets nobody else use it.
fn start_workers(threads: u16) -> io::Result<Vec<Mailbox>> {
    let start = |number: u16| {
        let (mailbox, letters) = worker::mailbox()?;
        let (ready, is_ready) = mpsc::channel();
        thread::Builder::new().name(format!("relay-{number}")).spawn(move || {
            let ring: io::Result<Ring> = worker::ring();
            let mut worker = match ring.and_then(|ring| Worker::new(ring, letters)) {
                Ok(worker) => worker,
                Err(error) => return drop(ready.send(Err(error))),
            };
            if ready.send(Ok(())).is_ok()
                && let Err(error) = worker.run()
            {
                progress(&format!("relay: worker {number} has ended: {error}"));
            }
        })?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(mailbox)
    };
    (1..=threads).map(start).collect()
}

/// Gives each client a server connection and both to a worker.
fn serve(listener: &TcpListener, servers: &[SocketAddrV4], workers: &[Mailbox]) -> io::Result<()> {
    let mut turn = 0;
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(_) => {
                thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let (server, worker) = places(turn, servers.len(), workers.len());
        let (server, worker) = (servers[server], &workers[worker]);
        turn += 1;
        // A client whose server can't be reached sees its connection end; one that has gone meanwhile does not care.
        let (Ok(server), Ok(())) = (connect(server), client.set_nodelay(true)) else { continue };
        worker.post([client, server])?;
    }
}

/// Which server and which worker get a client. Both take turns, the workers once for each turn of the servers, so that
/// each worker has the same share of every server's clients.
fn places(turn: usize, servers: usize, workers: usize) -> (usize, usize) {
    (turn % servers, turn / servers % workers)
}

fn connect(server: SocketAddrV4) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
