//! Checks passwords where that would hold a worker up: one thread does it, one password after the other, so that a
//! flood of logins costs at most one core, and no other client's statement waits.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use weir_session::login::{Check, PasswordResult};

use crate::outbox::SocketId;
use crate::shared::{Message, Shared};

/// Checks that wait; one more login is refused. At some milliseconds each that is about the time that a login may
/// take.
const QUEUE_MAX: usize = 1024;

/// A check and who wants to know.
#[derive(Debug)]
struct Job {
    worker: usize,
    socket: SocketId,
    check: Box<Check>,
}

/// A worker's way to the thread that checks passwords. The thread ends with the last of them.
#[derive(Clone, Debug)]
pub struct Verifier {
    jobs: SyncSender<Job>,
}

impl Verifier {
    /// Starts the thread; answers go to the mailboxes of `shared`.
    ///
    /// # Errors
    /// When the system gives no more threads.
    pub fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (jobs, inbox) = sync_channel::<Job>(QUEUE_MAX);
        std::thread::Builder::new().name("passwords".into()).spawn(move || {
            for job in inbox {
                let verdict = job.check.run();
                if let Some(mailbox) = shared.mailboxes.get(job.worker) {
                    mailbox.send(Message::Checked(job.socket, verdict));
                }
            }
        })?;
        Ok(Self { jobs })
    }

    /// Has a password checked; the answer comes as [`Message::Checked`]. `Some` if it is here already: too many
    /// wait.
    pub fn check(&self, worker: usize, socket: SocketId, check: Box<Check>) -> Option<PasswordResult> {
        self.jobs.try_send(Job { worker, socket, check }).is_err().then_some(PasswordResult::Busy)
    }
}
