//! Hands over to a new process: the old process's side, a thread per conversation, which asks the main thread.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustix::net::sockopt;
use weir_operations::Progress;

use super::Ask;
use super::PredecessorState;
use super::Say;
use super::Seal;
use super::Socket;
use super::message_stream::MessageStream;
use crate::control::{Action, Order, Orders};

/// A new process reads its configuration, finds the servers and learns the roles in this time, or is given up.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// A line is taken within this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A conversation's request to the main thread.
#[derive(Debug)]
pub(crate) enum TakeoverRequest {
    /// Change nothing from now on.
    Begin(ReplySender<PredecessorState>),
    /// All listening sockets.
    Sockets(ReplySender<Vec<Socket>>),
    /// Let go of them, and drain. The process that has them is told to the service manager.
    LetGo { pid: i32, done: ReplySender<()> },
    /// The new process has ended: go on.
    GoOn,
}

/// The way of an answer to the conversation.
#[derive(Debug)]
pub(crate) struct ReplySender<T>(SyncSender<Result<T, String>>);

impl<T> ReplySender<T> {
    /// Nobody may be waiting any more.
    pub(crate) fn answer(self, answer: Result<T, String>) {
        let _ = self.0.try_send(answer);
    }
}

/// Leads a conversation to its end, on a thread of its own.
pub(crate) fn converse(stream: UnixStream, version: String, orders: Orders, seal: Seal) {
    let spawned = std::thread::Builder::new().name("takeover".into()).spawn(move || {
        if let Err(error) = lead(stream, &version, &orders, &seal) {
            tracing::warn!(%error, "a takeover was aborted: this process continues");
        }
    });
    if let Err(error) = spawned {
        tracing::error!(%error, "can't start a thread for a takeover");
    }
}

fn lead(stream: UnixStream, version: &str, orders: &Orders, seal: &Seal) -> io::Result<()> {
    let mut line = MessageStream::new(stream, WRITE_TIMEOUT)?;
    let peer = sockopt::socket_peercred(line.stream())?;
    if peer.uid != rustix::process::geteuid() {
        return line.put(&Say::Error("this weir belongs to another user".to_owned()));
    }
    let pid = peer.pid.as_raw_nonzero().get();
    let state = match ask(orders, TakeoverRequest::Begin) {
        Ok(state) => state,
        Err(cause) => return line.put(&Say::Error(cause)),
    };
    // The new process reads what is saved when it hears of the beginning. Nobody else is led before this one goes on.
    seal(true);
    tracing::info!(pid, version, "a new process is about to take over: changes are refused meanwhile");
    let done = go_through(&mut line, pid, state, orders);
    if !matches!(done, Ok(true)) {
        seal(false);
        tell(orders, TakeoverRequest::GoOn);
    }
    done.map(drop)
}

/// True when the new process has taken over.
fn go_through(
    line: &mut MessageStream,
    pid: i32,
    state: PredecessorState,
    orders: &Orders,
) -> io::Result<bool> {
    line.put(&Say::Begin(state))?;
    loop {
        match line.next(START_TIMEOUT)? {
            None => {
                tracing::warn!(pid, "the new process has exited before it was ready: this one continues");
                return Ok(false);
            }
            Some(Ask::Sockets {}) => match ask(orders, TakeoverRequest::Sockets) {
                Ok(sockets) => send(line, sockets)?,
                Err(cause) => line.put(&Say::Error(cause))?,
            },
            Some(Ask::Ready {}) => {
                return match ask(orders, |done| TakeoverRequest::LetGo { pid, done }) {
                    Ok(()) => {
                        // Nobody may be there any more to hear it.
                        let _ = line.put(&Say::Done {});
                        Ok(true)
                    }
                    Err(cause) => line.put(&Say::Error(cause)).map(|()| false),
                };
            }
        }
    }
}

fn send(line: &mut MessageStream, sockets: Vec<Socket>) -> io::Result<()> {
    let count = sockets.len();
    for Socket { name, socket } in sockets {
        line.put_with(&Say::Socket { name }, &socket)?;
    }
    line.put(&Say::Sockets { count })
}

/// Waits for the main thread, which may be in the middle of a switchover.
fn ask<T>(orders: &Orders, request: impl FnOnce(ReplySender<T>) -> TakeoverRequest) -> Result<T, String> {
    let (sender, answer) = sync_channel(1);
    tell(orders, request(ReplySender(sender)));
    answer.recv().unwrap_or_else(|_| Err("it is ending".to_owned()))
}

fn tell(orders: &Orders, request: TakeoverRequest) {
    orders(Order { action: Action::TakeOver(request), progress: Progress::unheard() });
}
