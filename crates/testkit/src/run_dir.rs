//! Makes the directory of one run, and removes what a crashed run left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::TestkitError;
use crate::preflight::processes;
use crate::process::{POLL_INTERVAL, send, start_time_ticks};

/// Where runs live unless another place is asked for: the user `mysql` must reach it, which rules out a home directory.
pub const ROOT: &str = "/var/tmp";
/// Names the process that a run belongs to: "PID STARTTIME".
const OWNER_FILE: &str = "owner";
/// The programs of ours that may have a run's directory on their command line.
const PROGRAMS: [&str; 6] = ["mariadbd", "mysqld", "rsync", "haproxy", "weir", "sysbench"];
/// The shells that run Galera's state transfer script, which starts an rsync of its own a moment later.
const SHELLS: [&str; 3] = ["sh", "bash", "wsrep_sst_rsync"];
const TRANSFER_SCRIPT: &str = "wsrep_sst_";

/// `/var/tmp/weir-PURPOSE-PID`, or the same elsewhere: data, logs and configuration of the servers of one run.
///
/// Dropping it ends every server that has the directory on its command line, and removes the directory.
/// A run that was killed can't do that, so [`RunDir::create`] does it for the dead runs of the same purpose:
/// it knows them by a file that names their process and its start time.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    keep: bool,
}

impl RunDir {
    /// Cleans up dead runs of this purpose and makes the directory of this one. With `keep` it is left in place
    /// at the end, for a look at the logs, and later runs leave it alone.
    pub fn create(purpose: &str, keep: bool) -> Result<RunDir, TestkitError> {
        RunDir::create_in(Path::new(ROOT), purpose, keep)
    }

    /// The same in another directory than [`ROOT`], which the servers' user must be able to reach.
    pub fn create_in(root: &Path, purpose: &str, keep: bool) -> Result<RunDir, TestkitError> {
        fs::create_dir_all(root).map_err(TestkitError::io(format!("make {}", root.display())))?;
        remove_dead_runs(root, purpose);
        let pid = std::process::id();
        // A process may have several directories of one purpose, one after the other or at once.
        for attempt in 0..100 {
            let suffix = if attempt == 0 { String::new() } else { format!("-{attempt}") };
            let path = root.join(format!("weir-{purpose}-{pid}{suffix}"));
            match fs::create_dir(&path) {
                Ok(()) => return RunDir { path, keep }.initialised(pid),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(TestkitError::Io {
                        doing: format!("make {}", path.display()),
                        source: error,
                    });
                }
            }
        }
        let first = root.join(format!("weir-{purpose}-{pid}"));
        Err(TestkitError::Options(format!("{} and 99 like it exist: remove them", first.display())))
    }

    fn initialised(self, pid: u32) -> Result<RunDir, TestkitError> {
        let owner = format!("{pid} {}\n", start_time_ticks(pid).unwrap_or(0));
        fs::write(self.path.join(OWNER_FILE), owner)
            .map_err(TestkitError::io(format!("write {}", self.path.display())))?;
        ServerUser::current()?.own(&self.path)?;
        Ok(self)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.keep {
            end_programs(&self.path);
            let _ = fs::remove_file(self.path.join(OWNER_FILE));
        } else {
            clean(&self.path);
        }
    }
}

/// Ends (SIGKILL) the servers that have `dir` on their command line, waits for that, and removes `dir`.
///
/// For signal handlers that can't wait for destructors; [`RunDir`] does the same when dropped.
pub fn clean(dir: &Path) {
    end_programs(dir);
    // A server's last child may still write a file: try again for a moment, then leave it to the next run.
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => thread::sleep(POLL_INTERVAL),
            _ => return,
        }
    }
}

fn remove_dead_runs(root: &Path, purpose: &str) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let prefix = format!("weir-{purpose}-");
    for entry in entries.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix));
        if ours && owned_by_us(&entry.path()) && owner_is_dead(&entry.path()) {
            clean(&entry.path());
        }
    }
}

/// Others can write to /var/tmp too; what they put there is none of our business.
fn owned_by_us(dir: &Path) -> bool {
    let Ok(user) = ServerUser::current() else { return false };
    fs::symlink_metadata(dir).is_ok_and(|m| m.is_dir() && m.uid() == user.uid)
}

fn owner_is_dead(dir: &Path) -> bool {
    // No such file: not a run of ours, or one that was kept on purpose.
    let Ok(owner) = fs::read_to_string(dir.join(OWNER_FILE)) else { return false };
    let mut fields = owner.split_whitespace();
    let pid: Option<u32> = fields.next().and_then(|f| f.parse().ok());
    let started: Option<u64> = fields.next().and_then(|f| f.parse().ok());
    match (pid, started) {
        (Some(pid), Some(started)) => start_time_ticks(pid) != Some(started),
        _ => false,
    }
}

fn end_programs(dir: &Path) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let running: Vec<u32> = processes().into_iter().filter(|&pid| belongs_to(pid, dir)).collect();
        if running.is_empty() || Instant::now() > deadline {
            return;
        }
        for pid in running {
            // Fails only if the process has just ended.
            let _ = send(pid, Signal::KILL);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn belongs_to(pid: u32, dir: &Path) -> bool {
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mentions = |needle: &str| command_line.windows(needle.len()).any(|w| w == needle.as_bytes());
    // An editor that shows one of the logs is not ours to kill.
    let is_ours =
        PROGRAMS.contains(&comm.trim()) || (SHELLS.contains(&comm.trim()) && mentions(TRANSFER_SCRIPT));
    is_ours && mentions(&format!("{}/", dir.display()))
}

/// The user that the servers run as: `mysql` when we are root (mariadbd refuses to run as root), else we.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerUser {
    pub(crate) uid: u32,
    gid: u32,
    /// Whether we are root, and files must be given away.
    pub(crate) switched: bool,
}

impl ServerUser {
    pub(crate) fn current() -> Result<ServerUser, TestkitError> {
        let uid = rustix::process::geteuid().as_raw();
        if uid != 0 {
            return Ok(ServerUser { uid, gid: rustix::process::getegid().as_raw(), switched: false });
        }
        let passwd =
            fs::read_to_string("/etc/passwd").map_err(TestkitError::io("read /etc/passwd".to_owned()))?;
        let missing = || TestkitError::MissingProgram {
            program: "the user mysql".to_owned(),
            package: "mariadb-server",
        };
        let line = passwd.lines().find(|line| line.starts_with("mysql:")).ok_or_else(missing)?;
        let fields: Vec<&str> = line.split(':').collect();
        let number = |i: usize| fields.get(i).and_then(|f| f.parse().ok()).ok_or_else(missing);
        Ok(ServerUser { uid: number(2)?, gid: number(3)?, switched: true })
    }

    /// A log that a server can go on with; what is in it stays.
    pub(crate) fn make_log(self, path: &Path) -> Result<(), TestkitError> {
        let opened = fs::File::options().create(true).append(true).open(path);
        opened.map_err(TestkitError::io(format!("open {}", path.display())))?;
        self.own(path)
    }

    /// Gives a file or directory to the servers' user.
    pub(crate) fn own(self, path: &Path) -> Result<(), TestkitError> {
        if !self.switched {
            return Ok(());
        }
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(TestkitError::io(format!("give {} to the servers' user", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_dead_runs_directory_and_servers_are_removed_and_a_living_one_is_not() {
        let living = RunDir::create("testkit-unit", false).unwrap();
        let dead = Path::new(ROOT).join("weir-testkit-unit-0");
        fs::create_dir_all(&dead).unwrap();
        ServerUser::current().unwrap().own(&dead).unwrap();
        // A program with the right name and the directory on its command line.
        let program = dead.join("weir");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut left_over = Command::new(&program).arg("60").spawn().unwrap();
        // The system tells that a program runs a moment before it shows its name and command line.
        while !belongs_to(left_over.id(), &dead) {
            thread::sleep(POLL_INTERVAL);
        }
        // Last, for another run of this test may tidy up, too. Process 1 exists, but did not start then.
        fs::write(dead.join(OWNER_FILE), "1 18446744073709551615").unwrap();

        let next = RunDir::create("testkit-unit", false).unwrap();
        assert!(!dead.exists());
        assert!(!left_over.wait().unwrap().success());
        assert!(living.path().exists() && next.path() != living.path());
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }

    #[test]
    fn a_run_may_live_elsewhere_and_dead_ones_are_removed_there() {
        let root = RunDir::create("testkit-root", false).unwrap();
        let dead = root.path().join("weir-testkit-elsewhere-0");
        fs::create_dir(&dead).unwrap();
        ServerUser::current().unwrap().own(&dead).unwrap();
        fs::write(dead.join(OWNER_FILE), "1 18446744073709551615").unwrap();
        let elsewhere = RunDir::create_in(root.path(), "testkit-elsewhere", false).unwrap();
        assert!(elsewhere.path().starts_with(root.path()) && !dead.exists());
    }

    #[test]
    fn a_kept_directory_survives() {
        let kept = RunDir::create("testkit-keep", true).unwrap();
        let path = kept.path().to_owned();
        drop(kept);
        assert!(path.exists() && !owner_is_dead(&path));
        fs::remove_dir_all(&path).unwrap();
    }
}
