//! Runs one server of Oracle MySQL or MariaDB.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Family, Programs};
use crate::process::{Process, client_rows, log_tail, poll_until, run_checked};
use crate::{Account, TestkitError};

/// The longest a statement of ours may take.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest a clean shutdown may take.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_TAIL_LINES: usize = 25;

/// Everything that differs between servers.
#[derive(Debug, Clone)]
pub(super) struct ServerConfig {
    pub(super) family: Family,
    /// 1 for the source.
    pub(super) index: usize,
    /// The directory of all servers.
    pub(super) dir: PathBuf,
    /// Where clients connect.
    pub(super) address: SocketAddrV4,
    pub(super) extra_cnf: String,
}

impl ServerConfig {
    /// `DIR/mN` for the data, `DIR/mN.SUFFIX` for everything else of the server.
    pub(super) fn file(&self, suffix: &str) -> PathBuf {
        self.dir.join(format!("m{}{suffix}", self.index))
    }

    /// The text of the server's my.cnf.
    fn render(&self, run_as_mysql: bool) -> String {
        let mut text = String::from("[mysqld]\n");
        if run_as_mysql {
            text.push_str("user=mysql\n");
        }
        // Writing to a String can't fail.
        let _ = write!(
            text,
            "\
datadir={data}
socket={socket}
pid-file={pid}
log-error={log}
bind-address={ip}
port={port}
report-host={ip}
skip-name-resolve=ON
local-infile=ON
max-connections=1000
server-id={server_id}
log-bin=bin
sync-binlog=0
performance-schema=OFF
innodb-buffer-pool-size=64M
innodb-flush-log-at-trx-commit=0
innodb-doublewrite=OFF
innodb-use-native-aio=OFF
{family}{extra}
",
            data = self.file("").display(),
            socket = self.file(".sock").display(),
            pid = self.file(".pid").display(),
            log = self.file(".err").display(),
            ip = self.address.ip(),
            port = self.address.port(),
            server_id = self.address.ip().to_bits() & 0xFFFF,
            family = self.family.cnf(self),
            extra = self.extra_cnf,
        );
        text
    }
}

/// One server.
#[derive(Debug)]
pub struct MysqlServer {
    config: ServerConfig,
    programs: Arc<Programs>,
    process: Mutex<Option<Arc<Process>>>,
}

impl MysqlServer {
    pub(super) fn new(config: ServerConfig, programs: Arc<Programs>) -> MysqlServer {
        MysqlServer { config, programs, process: Mutex::new(None) }
    }

    /// m1 for the source.
    pub fn name(&self) -> String {
        format!("m{}", self.config.index)
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

    /// The certificate of the authority that signed the server's own: made by the server at its first start.
    pub fn ca_path(&self) -> PathBuf {
        self.data_dir().join("ca.pem")
    }

    /// The server's process, for its id, memory and CPU time; `None` if it does not run.
    pub fn process(&self) -> Option<Arc<Process>> {
        self.slot().clone().filter(|process| process.exit_status().is_none())
    }

    /// Runs statements as root and returns the rows of all results, as the text the `mysql` client prints:
    /// NULL as "NULL"; tab, newline and backslash within values escaped with a backslash.
    pub fn root_query(&self, sql: &str) -> Result<Vec<Vec<String>>, TestkitError> {
        self.root_query_within(sql, QUERY_TIMEOUT)
    }

    /// The same for statements that may take longer.
    pub(super) fn root_query_within(
        &self,
        sql: &str,
        timeout: Duration,
    ) -> Result<Vec<Vec<String>>, TestkitError> {
        let mut command = Command::new(&self.programs.client);
        command.arg("-uroot").arg("-S").arg(self.socket()).arg("--default-character-set=utf8mb4");
        client_rows(&self.name(), &mut command, sql, timeout)
    }

    /// Clean shutdown (SIGTERM), waiting for its end.
    pub fn stop(&self) -> Result<(), TestkitError> {
        self.running()?.terminate(STOP_TIMEOUT)?;
        *self.slot() = None;
        Ok(())
    }

    /// Kills the server (SIGKILL), as a crash would.
    pub fn kill(&self) -> Result<(), TestkitError> {
        self.running()?.kill();
        *self.slot() = None;
        Ok(())
    }

    /// Starts a server again that was stopped or killed, and waits until it answers.
    pub fn start(&self) -> Result<(), TestkitError> {
        self.spawn()?;
        self.wait_ready(super::START_TIMEOUT, &AtomicBool::new(false))
    }

    /// Logs in on the Unix socket.
    pub(super) fn remember_password(&self, account: Account) -> Result<(), TestkitError> {
        let Account { user, password } = account;
        let mut command = Command::new(&self.programs.client);
        command.arg(format!("-u{user}")).arg(format!("-p{password}")).arg("-S").arg(self.socket());
        run_checked(&format!("a login as {user}"), command.args(["-e", "DO 0"]), QUERY_TIMEOUT)?;
        Ok(())
    }

    pub(super) fn data_dir(&self) -> PathBuf {
        self.config.file("")
    }

    /// Starts the server without waiting for it.
    pub(super) fn spawn(&self) -> Result<(), TestkitError> {
        if self.process().is_some() {
            return Err(TestkitError::Options(format!("{} is running already", self.name())));
        }
        let (cnf, log_path, tmp) = (self.config.file(".cnf"), self.log_path(), self.config.file(".tmp"));
        fs::create_dir_all(&tmp).map_err(TestkitError::io(format!("make {}", tmp.display())))?;
        self.programs.user.own(&tmp)?;
        fs::write(&cnf, self.config.render(self.programs.user.switched))
            .map_err(TestkitError::io(format!("write {}", cnf.display())))?;
        // What the server prints before it opens its own log, such as a wrong option, belongs there too.
        self.programs.user.make_log(&log_path)?;
        let mut command = Command::new(&self.programs.server);
        command.arg(format!("--defaults-file={}", cnf.display()));
        let process = Process::spawn_logged(&self.label(), &mut command, &log_path)?;
        *self.slot() = Some(Arc::new(process));
        Ok(())
    }

    /// Waits until the server answers.
    pub(super) fn wait_ready(&self, timeout: Duration, cancel: &AtomicBool) -> Result<(), TestkitError> {
        let process = self.slot().clone().ok_or_else(|| TestkitError::NotRunning(self.label()))?;
        let mut answers = false;
        let waited = poll_until(timeout, || {
            answers = self.socket().exists() && self.root_query("DO 0").is_ok();
            answers || process.exit_status().is_some() || cancel.load(Ordering::Relaxed)
        });
        if answers {
            return Ok(());
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(TestkitError::Cancelled);
        }
        let log_tail = log_tail(&self.log_path(), LOG_TAIL_LINES);
        Err(match (process.exit_status(), waited) {
            (Some(status), _) => {
                TestkitError::ServerExited { name: self.label(), status: status.to_string(), log_tail }
            }
            (None, waited) => TestkitError::Timeout {
                what: format!("an answer of {}", self.label()),
                timeout_s: waited.err().unwrap_or_default(),
                details: format!("; the end of its log:\n{log_tail}"),
            },
        })
    }

    fn running(&self) -> Result<Arc<Process>, TestkitError> {
        self.process().ok_or_else(|| TestkitError::NotRunning(self.label()))
    }

    fn label(&self) -> String {
        format!("server {} ({})", self.name(), self.addr())
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
