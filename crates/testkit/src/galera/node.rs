//! Runs one node of a Galera cluster.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::check_cancel;
use super::config::NodeConfig;
use crate::TestkitError;
use crate::preflight;
use crate::process::{Process, client_rows, log_tail, run_checked};
use crate::run_dir::ServerUser;
use crate::versions;

/// The longest a statement of ours may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// InnoDB goes through its log first: on a machine that is busy with a load that takes a while.
const RECOVER_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest a clean shutdown may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a starting node is asked for its state.
const STATE_POLL_INTERVAL: Duration = Duration::from_millis(40);
const LOG_TAIL_LINES: usize = 25;

/// The programs of a MariaDB Galera node.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) client: PathBuf,
    pub(super) install_db: PathBuf,
    pub(super) provider: PathBuf,
    pub(super) user: ServerUser,
}

impl Programs {
    pub(super) fn find() -> Result<Programs, TestkitError> {
        // Full state transfers need it; the server would say so only in its log.
        preflight::program("rsync", "rsync")?;
        Ok(Programs {
            server: versions::mariadb("mariadbd", "mariadb-server")?,
            client: versions::mariadb("mariadb", "mariadb-client")?,
            install_db: versions::mariadb("mariadb-install-db", "mariadb-server")?,
            provider: versions::galera()?,
            user: ServerUser::current()?,
        })
    }
}

/// One server of a cluster.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    programs: Arc<Programs>,
    process: Mutex<Option<Arc<Process>>>,
    paused: AtomicBool,
}

impl Node {
    pub(super) fn new(config: NodeConfig, programs: Arc<Programs>) -> Node {
        Node { config, programs, process: Mutex::new(None), paused: AtomicBool::new(false) }
    }

    /// 1 for n1.
    pub fn index(&self) -> usize {
        self.config.index
    }

    /// The server's own name (`wsrep_node_name`).
    pub fn name(&self) -> String {
        self.config.name()
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddrV4 {
        self.config.address
    }

    /// The Unix socket, on which root needs no password.
    pub fn socket(&self) -> PathBuf {
        self.config.file(".sock")
    }

    /// The server's error log.
    pub fn log_path(&self) -> PathBuf {
        self.config.file(".err")
    }

    /// Whether the server's process runs (a paused one does).
    pub fn is_running(&self) -> bool {
        self.process().is_some()
    }

    /// Whether [`Node::pause`] stopped the process.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// The server's process, for its id, memory and CPU time.
    pub fn process(&self) -> Option<Arc<Process>> {
        self.slot().clone().filter(|process| process.exit_status().is_none())
    }

    /// Runs statements as root and returns the rows of all results, as the text the `mariadb` client prints:
    /// NULL as "NULL"; tab, newline and backslash within values escaped with a backslash.
    pub fn root_query(&self, sql: &str) -> Result<Vec<Vec<String>>, TestkitError> {
        let mut command = Command::new(&self.programs.client);
        command.arg("--no-defaults").arg("-uroot").arg("-S").arg(self.socket());
        client_rows(&self.name(), &mut command, sql, QUERY_TIMEOUT)
    }

    /// One global status variable, as in `status("wsrep_cluster_size")`.
    pub fn status(&self, variable: &str) -> Result<String, TestkitError> {
        let rows = self.root_query(&format!("SHOW GLOBAL STATUS LIKE '{variable}'"))?;
        rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).ok_or_else(|| {
            TestkitError::Options(format!("{} has no status variable {variable}", self.name()))
        })
    }

    /// Clean shutdown (SIGTERM), waiting for its end; the node leaves the cluster in good order.
    pub fn stop(&self) -> Result<(), TestkitError> {
        self.running()?.terminate(STOP_TIMEOUT)?;
        self.forget();
        Ok(())
    }

    /// Kills the server (SIGKILL), as a crash would.
    pub fn kill(&self) -> Result<(), TestkitError> {
        self.running()?.kill();
        self.forget();
        Ok(())
    }

    /// Stops the process without ending it (SIGSTOP), as a hung machine would: its sockets stay open.
    pub fn pause(&self) -> Result<(), TestkitError> {
        self.running()?.pause()?;
        self.paused.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets a paused process go on.
    pub fn resume(&self) -> Result<(), TestkitError> {
        self.running()?.signal(Signal::CONT)?;
        self.paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn has_group_priority(&self) -> bool {
        self.config.starter.is_some()
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.config.file("")
    }

    pub(super) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Starts the server without waiting for it; `bootstrap` makes it the first of a new cluster.
    pub(super) fn spawn(&self, bootstrap: bool) -> Result<(), TestkitError> {
        self.spawn_with(bootstrap, "")
    }

    /// The same, with the nodes that it wants as its donors (`wsrep_sst_donor`).
    pub(super) fn spawn_with(&self, bootstrap: bool, donors: &str) -> Result<(), TestkitError> {
        if self.is_running() {
            return Err(TestkitError::Options(format!("{} is running already", self.name())));
        }
        let cnf = self.write_config()?;
        let mut command = self.server_command(&cnf);
        if let Some(position) = self.position_after_crash(&cnf)? {
            command.arg(format!("--wsrep_start_position={position}"));
        }
        if !donors.is_empty() {
            command.arg(format!("--wsrep-sst-donor={donors}"));
        }
        if bootstrap {
            self.mark_safe_to_bootstrap()?;
            command.arg("--wsrep-new-cluster");
        }
        // What the server prints before it opens its own log, such as a wrong option, belongs there too.
        self.programs.user.make_log(&self.log_path())?;
        let process = Process::spawn_logged(&self.label(), &mut command, &self.log_path())?;
        *self.slot() = Some(Arc::new(process));
        self.paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the node is Synced in a cluster of `cluster_size` nodes.
    pub(super) fn wait_synced(
        &self,
        cluster_size: usize,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), TestkitError> {
        let started = Instant::now();
        let wanted = ["Synced".to_owned(), cluster_size.to_string(), "ON".to_owned()];
        loop {
            check_cancel(cancel)?;
            self.check_alive()?;
            let seen = self.wsrep_state();
            if seen.as_ref().is_ok_and(|state| *state == wanted) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(TestkitError::Timeout {
                    what: format!("{} Synced in a cluster of {cluster_size}", self.label()),
                    timeout_s: started.elapsed().as_secs_f64(),
                    details: match seen {
                        Ok(state) => format!(": state, size and wsrep_ready are {}", state.join(", ")),
                        Err(error) => format!(": {error}"),
                    },
                });
            }
            thread::sleep(STATE_POLL_INTERVAL);
        }
    }

    /// Local state, cluster size and readiness.
    fn wsrep_state(&self) -> Result<[String; 3], TestkitError> {
        if !self.socket().exists() {
            return Err(TestkitError::NotRunning(self.label()));
        }
        // The server returns them in the order of their names: size, state, ready.
        let rows = self.root_query(
            "SHOW GLOBAL STATUS WHERE Variable_name IN \
             ('wsrep_local_state_comment', 'wsrep_cluster_size', 'wsrep_ready')",
        )?;
        let value = |name: &str| {
            let row = rows.iter().find(|row| row.first().is_some_and(|n| n == name));
            row.and_then(|row| row.get(1)).cloned().unwrap_or_default()
        };
        Ok([value("wsrep_local_state_comment"), value("wsrep_cluster_size"), value("wsrep_ready")])
    }

    fn check_alive(&self) -> Result<(), TestkitError> {
        let process = self.slot().clone();
        let process = process.ok_or_else(|| TestkitError::NotRunning(self.label()))?;
        match process.exit_status() {
            None => Ok(()),
            Some(status) => Err(TestkitError::ServerExited {
                name: self.label(),
                status: status.to_string(),
                log_tail: log_tail(&self.log_path(), LOG_TAIL_LINES),
            }),
        }
    }

    fn write_config(&self) -> Result<PathBuf, TestkitError> {
        let path = self.config.file(".cnf");
        let text = self.config.render(&self.programs.provider, self.programs.user.switched);
        fs::write(&path, text).map_err(TestkitError::io(format!("write {}", path.display())))?;
        let tmp = self.config.file(".tmp");
        fs::create_dir_all(&tmp).map_err(TestkitError::io(format!("make {}", tmp.display())))?;
        self.programs.user.own(&tmp)?;
        Ok(path)
    }

    fn server_command(&self, cnf: &Path) -> Command {
        let namespace = self.config.namespace.as_deref();
        let entry = namespace.map(|namespace| ["ip", "netns", "exec", namespace]);
        // Each becomes the program that it starts, so that the process is the server.
        let before = entry.iter().flatten().chain(self.config.starter.into_iter().flatten());
        let mut words = before.map(OsStr::new).chain([self.programs.server.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        command.arg(format!("--defaults-file={}", cnf.display()));
        command
    }

    /// A crashed node's file has no position, though its data has one: without it the node would be sent all data
    /// again. `--wsrep-recover` makes the server look it up (the packaged service does the same).
    fn position_after_crash(&self, cnf: &Path) -> Result<Option<String>, TestkitError> {
        let state = fs::read_to_string(self.data_dir().join("grastate.dat")).unwrap_or_default();
        let crashed = state.lines().any(|line| line.split_whitespace().eq(["seqno:", "-1"]));
        if !crashed {
            return Ok(None);
        }
        let log = self.config.file(".recover");
        // The option --log-error of the file would swallow what is looked for.
        let mut command = self.server_command(cnf);
        command.arg("--wsrep-recover").arg(format!("--log-error={}", log.display()));
        let _ = fs::remove_file(&log);
        run_checked(&format!("mariadbd --wsrep-recover of {}", self.name()), &mut command, RECOVER_TIMEOUT)?;
        let text = fs::read(&log).map_err(TestkitError::io(format!("read {}", log.display())))?;
        let text = String::from_utf8_lossy(&text);
        let position = text.lines().rev().find_map(|line| line.split_once("Recovered position:"));
        Ok(position.map(|(_, position)| position.trim().to_owned()))
    }

    /// How far its data goes, also after a crash; -1 if that is not known.
    pub(super) fn last_seqno(&self) -> Result<i64, TestkitError> {
        let cnf = self.write_config()?;
        let seqno = match self.position_after_crash(&cnf)? {
            // UUID:SEQNO, and with wsrep_gtid_mode the GTID behind a comma.
            Some(position) => {
                let seqno = position.split_once(':').map(|(_, rest)| rest.split(',').next().unwrap_or(rest));
                seqno.and_then(|seqno| seqno.parse().ok())
            }
            None => {
                let state = fs::read_to_string(self.data_dir().join("grastate.dat")).unwrap_or_default();
                let seqno = state.lines().find_map(|line| line.strip_prefix("seqno:"));
                seqno.and_then(|seqno| seqno.trim().parse().ok())
            }
        };
        Ok(seqno.unwrap_or(-1))
    }

    /// Galera refuses to bootstrap from a node that was not the last one to leave; here the caller decides.
    fn mark_safe_to_bootstrap(&self) -> Result<(), TestkitError> {
        let path = self.data_dir().join("grastate.dat");
        let Ok(state) = fs::read_to_string(&path) else { return Ok(()) };
        let state = state.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        fs::write(&path, state).map_err(TestkitError::io(format!("write {}", path.display())))
    }

    fn running(&self) -> Result<Arc<Process>, TestkitError> {
        self.process().ok_or_else(|| TestkitError::NotRunning(self.label()))
    }

    fn forget(&self) {
        *self.slot() = None;
        self.paused.store(false, Ordering::Relaxed);
    }

    fn label(&self) -> String {
        format!("node {} ({})", self.name(), self.addr())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
