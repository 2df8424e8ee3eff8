//! Starts child processes, and ends them by the id they were started with, never by name.

use std::fs::{self, File};
use std::io::Read;
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::TestkitError;

/// How often a condition is looked at again while waiting for it.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The longest that the threads of a process may take to stop.
const PAUSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A running child process; dropping it kills it (SIGKILL) and reaps it.
///
/// All methods take `&self`, so that a server can be shared by tests in several threads.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    started: Instant,
    child: Mutex<Child>,
}

impl Process {
    /// Starts `command` in a process group of its own, so that a Ctrl-C at the terminal reaches only us.
    /// `name` is what errors call it.
    pub fn spawn(name: impl Into<String>, command: &mut Command) -> Result<Process, TestkitError> {
        use std::os::unix::process::CommandExt;
        let name = name.into();
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(TestkitError::io(format!("start {name}")))?;
        Ok(Process { name, pid: child.id(), started, child: Mutex::new(child) })
    }

    /// The same with everything that it prints at the end of the file `log`, which is made if it is not there.
    pub fn spawn_logged(name: &str, command: &mut Command, log: &Path) -> Result<Process, TestkitError> {
        let doing = || TestkitError::io(format!("write {}", log.display()));
        let file = File::options().append(true).create(true).open(log).map_err(doing())?;
        let stdout = file.try_clone().map_err(doing())?;
        Process::spawn(name, command.stdout(stdout).stderr(file))
    }

    /// The same, and waits until it accepts connections at `listen`.
    pub fn serve(
        name: &str,
        command: &mut Command,
        listen: SocketAddrV4,
        log: &Path,
        timeout: Duration,
    ) -> Result<Process, TestkitError> {
        let process = Process::spawn_logged(name, command, log)?;
        wait_for_port(listen, &process, log, timeout)?;
        Ok(process)
    }

    /// What errors call this process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id; it stays reserved until the process has been waited for.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The exit status if the process has ended.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Sends a signal. A process that has ended already is an error, never a signal to a stranger.
    pub fn signal(&self, signal: Signal) -> Result<(), TestkitError> {
        let mut child = self.child();
        if child.try_wait().ok().flatten().is_some() {
            return Err(TestkitError::NotRunning(self.name.clone()));
        }
        send(self.pid, signal).map_err(TestkitError::io(format!("signal {}", self.name)))
    }

    /// Stops the process without ending it (SIGSTOP), and waits until each of its threads has stopped: on a busy machine
    /// they go on for a moment.
    pub fn pause(&self) -> Result<(), TestkitError> {
        self.signal(Signal::STOP)?;
        poll_until(PAUSE_TIMEOUT, || self.is_stopped()).map_err(|timeout_s| TestkitError::Timeout {
            what: format!("the stop of {}", self.name),
            timeout_s,
            details: String::new(),
        })
    }

    /// Whether each thread is in the state "stopped" (proc(5): `stat`, the field behind the name in parentheses).
    fn is_stopped(&self) -> bool {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.pid)) else { return false };
        threads.flatten().all(|thread| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Waits for the end of the process; `None` if it still runs after `timeout`.
    pub fn wait_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            let status = self.exit_status();
            if status.is_some() || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Asks the process to end (SIGTERM, after SIGCONT in case it is stopped) and waits for it.
    pub fn terminate(&self, timeout: Duration) -> Result<ExitStatus, TestkitError> {
        self.signal(Signal::CONT)?;
        self.signal(Signal::TERM)?;
        self.wait_exit(timeout).ok_or_else(|| TestkitError::Timeout {
            what: format!("the end of {} after SIGTERM", self.name),
            timeout_s: timeout.as_secs_f64(),
            details: String::new(),
        })
    }

    /// Kills the process (SIGKILL) and reaps it; a process that has ended already is fine.
    pub fn kill(&self) {
        let mut child = self.child();
        // Both fail only when the process is gone, which is what is wanted.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end and returns what it printed; kills it after `timeout`.
pub(crate) fn output_within(
    name: &str,
    command: &mut Command,
    timeout: Duration,
) -> Result<Output, TestkitError> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(TestkitError::io(format!("start {name}")))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let deadline = Instant::now() + timeout;
    // A client's answer takes a few milliseconds, so the first looks are close together.
    let mut pause = Duration::from_millis(1);
    let status = loop {
        match child.try_wait().map_err(TestkitError::io(format!("wait for {name}")))? {
            Some(status) => break status,
            None if Instant::now() < deadline => thread::sleep(pause),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(TestkitError::Timeout {
                    what: format!("the end of {name}"),
                    timeout_s: timeout.as_secs_f64(),
                    details: String::new(),
                });
            }
        }
        pause = (pause * 2).min(POLL_INTERVAL);
    };
    let join = |reader: thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Output { status, stdout: join(stdout), stderr: join(stderr) })
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Runs `command` and fails with the end of its output unless it exits with 0.
pub(crate) fn run_checked(
    name: &str,
    command: &mut Command,
    timeout: Duration,
) -> Result<String, TestkitError> {
    let output = output_within(name, command, timeout)?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let shown = if stderr.trim().is_empty() { &stdout } else { stderr.as_ref() };
    Err(TestkitError::ProgramFailed {
        program: name.to_owned(),
        status: output.status.to_string(),
        output: tail(shown, 15),
    })
}

/// Has the `mysql` or `mariadb` client run statements; the rows of all results, as the text that it prints.
pub(crate) fn client_rows(
    server: &str,
    client: &mut Command,
    sql: &str,
    timeout: Duration,
) -> Result<Vec<Vec<String>>, TestkitError> {
    client.args(["--batch", "--skip-column-names", "-e", sql]);
    let text = run_checked(&format!("a statement on {server}"), client, timeout)?;
    Ok(text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect())
}

/// Waits until `condition` holds; fails with the seconds waited.
pub(crate) fn poll_until(timeout: Duration, mut condition: impl FnMut() -> bool) -> Result<(), f64> {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > timeout {
            return Err(started.elapsed().as_secs_f64());
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Waits until `process` accepts connections at `address`; fails with the end of its log if it ends before.
pub(crate) fn wait_for_port(
    address: SocketAddrV4,
    process: &Process,
    log: &Path,
    timeout: Duration,
) -> Result<(), TestkitError> {
    let mut exited = None;
    let accepts = || {
        exited = process.exit_status();
        exited.is_some() || TcpStream::connect(address).is_ok()
    };
    let waited = poll_until(timeout, accepts);
    if let Some(status) = exited {
        return Err(TestkitError::ServerExited {
            name: process.name().to_owned(),
            status: status.to_string(),
            log_tail: log_tail(log, 15),
        });
    }
    waited.map_err(|timeout_s| TestkitError::Timeout {
        what: format!("{} accepting connections at {address}", process.name()),
        timeout_s,
        details: format!("; the end of its log:\n{}", log_tail(log, 15)),
    })
}

/// The last `lines_max` lines of a text.
pub(crate) fn tail(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

/// The last lines of a log file, or why they can't be shown.
pub(crate) fn log_tail(path: &Path, lines_max: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => tail(&String::from_utf8_lossy(&bytes), lines_max),
        Err(error) => format!("(no log: {}: {error})", path.display()),
    }
}

pub(crate) fn send(pid: u32, signal: Signal) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(kill_process(pid, signal)?)
}

/// When a process was started, in clock ticks after boot: with the process id it names a process for good.
pub(crate) fn start_time_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): starttime is field 22.
    stat_fields(&stat).get(19)?.parse().ok()
}

/// The fields of /proc/PID/stat from the third on: the second, the name, may itself contain spaces.
fn stat_fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ended_by_its_id_and_reaped() {
        let process = Process::spawn("sleep", Command::new("sleep").arg("60")).unwrap();
        assert!(process.exit_status().is_none());
        let status = process.terminate(Duration::from_secs(5)).unwrap();
        assert!(!status.success());
        assert!(matches!(process.signal(Signal::TERM), Err(TestkitError::NotRunning(_))));
    }

    #[test]
    fn dropping_kills_even_a_stopped_process() {
        let process = Process::spawn("sleep", Command::new("sleep").arg("60")).unwrap();
        let pid = process.pid();
        process.pause().unwrap();
        drop(process);
        assert_eq!(start_time_ticks(pid), None);
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_fails_is_quoted() {
        let hung = output_within("sleep", Command::new("sleep").arg("60"), Duration::from_millis(50));
        assert!(matches!(hung, Err(TestkitError::Timeout { .. })));
        let failed = run_checked(
            "sh",
            Command::new("sh").args(["-c", "echo why >&2; exit 3"]),
            Duration::from_secs(5),
        );
        let message = failed.unwrap_err().to_string();
        assert!(message.contains("exit status: 3") && message.ends_with("why"), "{message}");
    }

    #[test]
    fn stat_fields_survive_a_name_with_parentheses() {
        let fields = stat_fields("12 (a) b) c) S 1 2 3");
        assert_eq!(fields, ["S", "1", "2", "3"]);
    }

    #[test]
    fn the_tail_is_the_end() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
