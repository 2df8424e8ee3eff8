//! Runs one program once.

use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use weir_config::Job;

use super::output::Output;
use super::{GRACE, Running};

/// So often it is looked whether the program has ended, where the kernel has no better way (before Linux 5.3).
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Runs a program to its end, and tells the log of what it says and how it ended.
pub(super) fn run(row: &Job, timeout: Duration, running: &Running) {
    let started = Instant::now();
    let (id, filename) = (row.id, row.filename.display().to_string());
    let ended = start(row, running).and_then(|run| run.follow(started + timeout));
    let took_ms = started.elapsed().as_millis();
    match ended {
        Err(error) => tracing::error!(id, %filename, %error, "scheduler: can't be run"),
        Ok(End::TimedOut) => {
            let timeout_ms = timeout.as_millis();
            tracing::warn!(
                id,
                %filename,
                timeout_ms,
                "scheduler: killed, it took longer than scheduler_timeout_ms"
            );
        }
        Ok(End::Exited(status)) => match (status.code(), status.signal()) {
            (Some(0), _) => tracing::debug!(id, %filename, took_ms, "scheduler: ended well"),
            (Some(code), _) => tracing::warn!(id, %filename, took_ms, code, "scheduler: ended with an error"),
            (None, signal) => tracing::warn!(id, %filename, took_ms, signal, "scheduler: ended by a signal"),
        },
    }
}

enum End {
    Exited(ExitStatus),
    TimedOut,
}

struct Run<'a> {
    row: &'a Job,
    running: &'a Running,
    child: Child,
    pipe: PipeReader,
    output: Output<'a>,
}

/// No shell, an empty environment and no input, as ProxySQL starts programs; a process group of its own, so that what it
/// starts can be ended with it.
fn start<'a>(row: &'a Job, running: &'a Running) -> io::Result<Run<'a>> {
    let (pipe, out) = io::pipe()?;
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    let mut command = Command::new(&row.filename);
    command.args(&row.arguments).env_clear().process_group(0);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    // From here on its group can be ended: nobody may look at the list before it is in there.
    let mut groups = running.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.spawn()?;
    if let Some(pid) = pid_of(&child) {
        groups.insert(row.id, pid);
    }
    drop(groups);
    Ok(Run { row, running, child, pipe, output: Output::new(row) })
}

impl Run<'_> {
    fn follow(mut self, deadline: Instant) -> io::Result<End> {
        if let Some(status) = self.until(deadline)? {
            return Ok(End::Exited(status));
        }
        for signal in [Signal::TERM, Signal::KILL] {
            if let Some(pid) = pid_of(&self.child) {
                // It may have ended a moment ago.
                let _ = kill_process_group(pid, signal);
            }
            if self.until(Instant::now() + GRACE)?.is_some() {
                return Ok(End::TimedOut);
            }
        }
        // A process that the kernel can't kill hangs in a driver or a file system: its turn goes on until it is gone.
        tracing::warn!(id = self.row.id, filename = %self.row.filename.display(), "scheduler: can't be killed");
        self.child.wait()?;
        self.forget();
        Ok(End::TimedOut)
    }

    /// Passes on what the program says until it has ended, or this time has come.
    fn until(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        let handle = pid_of(&self.child).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            let is_open = self.read()?;
            if let Some(status) = self.has_ended()? {
                self.read()?;
                self.output.end();
                return Ok(Some(status));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let wait = if handle.is_some() { left } else { left.min(LOOK_AGAIN) };
            let mut waits_for = Vec::with_capacity(2);
            if is_open {
                waits_for.push(PollFd::new(&self.pipe, PollFlags::IN));
            }
            if let Some(handle) = &handle {
                waits_for.push(PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN));
            }
            let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
            match poll(&mut waits_for, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Once it is waited for, its number may become another's: it leaves the list first.
    fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        let mut groups = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.child.try_wait()?;
        if status.is_some() {
            groups.remove(&self.row.id);
        }
        Ok(status)
    }

    fn forget(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.row.id);
    }

    /// What the program has said so far; false when it will say nothing more.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => self.output.take(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}
