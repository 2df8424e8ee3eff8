//! Runs Weir itself as a child process, with a configuration made for a test.

use std::env;
use std::fs::{self, File};
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

use crate::process::{Process, log_tail, poll_until};
use crate::{Account, Galera, OwnResolver, Signal, TestkitError, preflight};

const START_TIMEOUT: Duration = Duration::from_secs(15);
/// A process that takes over learns the roles before.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(60);

/// The hostgroups that [`WeirConfig::for_cluster`] sets up.
pub mod hostgroup {
    /// Writes and everything that is no plain read; the users' default.
    pub const WRITER: i64 = 100;
    /// Nodes that could write.
    pub const BACKUP_WRITER: i64 = 101;
    /// Plain reads.
    pub const READER: i64 = 102;
    /// Nodes that can't serve.
    pub const OFFLINE: i64 = 9101;
}

/// The table of `commit_outcome = 'marker'`, as the guide has it (docs/guide/replay.md).
pub const OUTCOMES_TABLE: &str = "CREATE DATABASE IF NOT EXISTS weir; \
    CREATE TABLE IF NOT EXISTS weir.outcomes (owner BIGINT UNSIGNED NOT NULL, slot INT UNSIGNED NOT NULL, \
    number BIGINT UNSIGNED NOT NULL, written_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE \
    CURRENT_TIMESTAMP, PRIMARY KEY (owner, slot)) ENGINE = InnoDB";

/// A Weir configuration: a TOML document with the tables that nearly every test needs, open to any change.
#[derive(Debug, Clone)]
pub struct WeirConfig {
    listen: SocketAddrV4,
    document: DocumentMut,
    arguments: Vec<String>,
}

impl WeirConfig {
    /// Listens on `listen`, has no servers and no users.
    pub fn new(listen: SocketAddrV4) -> WeirConfig {
        // A restart goes by the file that the last reload has written.
        let arguments = vec!["--config-mode=file".to_owned()];
        let mut config = WeirConfig { listen, document: DocumentMut::new(), arguments };
        config.variable("interfaces", listen.to_string());
        // Many run on one machine.
        config.admin_variable("mysql_ifaces", "");
        config
    }

    /// Has COMMITs looked for whose server is lost, and long transactions run again. The servers need [`OUTCOMES_TABLE`].
    pub fn marks_commits(&mut self, hostgroup: i64) -> &mut Self {
        let row = [
            ("hostgroup_id", hostgroup.into()),
            ("transaction_replay_max_bytes", (256 << 10).into()),
            ("commit_outcome", "marker".into()),
        ];
        self.push("weir_hostgroups", &row)
    }

    /// Has an admin port, which others of this machine don't.
    pub fn admin(&mut self, listen: SocketAddrV4) -> &mut Self {
        self.admin_variable("mysql_ifaces", listen.to_string())
    }

    /// Sets an `admin_variables` entry.
    pub fn admin_variable(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        let table = self.document.entry("admin_variables").or_insert(Item::Table(Table::new()));
        if let Some(table) = table.as_table_mut() {
            table.insert(name, Item::Value(value.into()));
        }
        self
    }

    /// Read/write split over all nodes of `cluster`, one writer, for the users app, app2 and limited.
    pub fn for_cluster(cluster: &Galera, listen: SocketAddrV4) -> WeirConfig {
        let servers: Vec<SocketAddrV4> = cluster.nodes().iter().map(|node| node.addr()).collect();
        WeirConfig::for_servers(&servers, listen)
    }

    /// As [`WeirConfig::for_cluster`], for any Galera servers.
    pub fn for_servers(servers: &[SocketAddrV4], listen: SocketAddrV4) -> WeirConfig {
        let mut config = WeirConfig::new(listen);
        for server in servers {
            config.server(*server, hostgroup::WRITER, &[]);
        }
        config.push(
            "mysql_galera_hostgroups",
            &[
                ("writer_hostgroup", hostgroup::WRITER.into()),
                ("backup_writer_hostgroup", hostgroup::BACKUP_WRITER.into()),
                ("reader_hostgroup", hostgroup::READER.into()),
                ("offline_hostgroup", hostgroup::OFFLINE.into()),
                ("active", 1.into()),
                ("max_writers", 1.into()),
                ("writer_is_also_reader", 0.into()),
            ],
        );
        for account in [Account::APP, Account::APP2, Account::LIMITED] {
            config.user(account, hostgroup::WRITER, &[]);
        }
        config.monitor(Account::MONITOR);
        config
    }

    /// One hostgroup of plain servers, for the user app.
    pub fn for_plain_servers(servers: &[SocketAddrV4], listen: SocketAddrV4) -> WeirConfig {
        let mut config = WeirConfig::new(listen);
        for server in servers {
            config.server(*server, hostgroup::WRITER, &[]);
        }
        config.user(Account::APP, hostgroup::WRITER, &[]).monitor(Account::MONITOR);
        config
    }

    /// Read/write split over the members of a Group Replication group, for the user app.
    pub fn for_group(servers: &[SocketAddrV4], listen: SocketAddrV4) -> WeirConfig {
        let row = [
            ("writer_hostgroup", hostgroup::WRITER.into()),
            ("backup_writer_hostgroup", hostgroup::BACKUP_WRITER.into()),
            ("reader_hostgroup", hostgroup::READER.into()),
            ("offline_hostgroup", hostgroup::OFFLINE.into()),
        ];
        let mut config = WeirConfig::for_plain_servers(servers, listen);
        config.push("mysql_group_replication_hostgroups", &row);
        config
    }

    /// Read/write split over a source and its replicas, for the user app. The source reads where nobody else can.
    pub fn for_replication(servers: &[SocketAddrV4], listen: SocketAddrV4) -> WeirConfig {
        let row =
            [("writer_hostgroup", hostgroup::WRITER.into()), ("reader_hostgroup", hostgroup::READER.into())];
        let mut config = WeirConfig::for_plain_servers(servers, listen);
        config.push("mysql_replication_hostgroups", &row).variable("monitor_writer_is_also_reader", false);
        config
    }

    /// Names the account that looks at the servers.
    pub fn monitor(&mut self, account: Account) -> &mut Self {
        self.variable("monitor_username", account.user).variable("monitor_password", account.password)
    }

    /// Adds a row of `mysql_servers`; `more` are further columns.
    pub fn server(&mut self, server: SocketAddrV4, hostgroup: i64, more: &[(&str, Value)]) -> &mut Self {
        let mut row: Vec<(&str, Value)> = vec![
            ("hostgroup_id", hostgroup.into()),
            ("hostname", server.ip().to_string().into()),
            ("port", i64::from(server.port()).into()),
        ];
        row.extend_from_slice(more);
        self.push("mysql_servers", &row)
    }

    /// Adds a row of `mysql_users`; `more` are further columns.
    pub fn user(&mut self, account: Account, hostgroup: i64, more: &[(&str, Value)]) -> &mut Self {
        let mut row: Vec<(&str, Value)> = vec![
            ("username", account.user.into()),
            ("password", account.password.into()),
            ("default_hostgroup", hostgroup.into()),
        ];
        row.extend_from_slice(more);
        self.push("mysql_users", &row)
    }

    /// Sets a column of a user that was added.
    pub fn user_column(&mut self, user: &str, column: &str, value: impl Into<Value>) -> &mut Self {
        let rows = self.document.get_mut("mysql_users").and_then(Item::as_array_of_tables_mut);
        let is_wanted = |row: &&mut Table| row.get("username").and_then(Item::as_str) == Some(user);
        if let Some(row) = rows.and_then(|rows| rows.iter_mut().find(is_wanted)) {
            row.insert(column, Item::Value(value.into()));
        }
        self
    }

    /// Sets a column of all servers that were added.
    pub fn server_column(&mut self, column: &str, value: impl Into<Value>) -> &mut Self {
        let (rows, value) = (self.document.get_mut("mysql_servers"), value.into());
        for row in rows.and_then(Item::as_array_of_tables_mut).into_iter().flat_map(ArrayOfTables::iter_mut) {
            row.insert(column, Item::Value(value.clone()));
        }
        self
    }

    /// Sets a `mysql_variables` entry.
    pub fn variable(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        let table = self.document.entry("mysql_variables").or_insert(Item::Table(Table::new()));
        if let Some(table) = table.as_table_mut() {
            table.insert(name, Item::Value(value.into()));
        }
        self
    }

    /// Whether a variable of `mysql_variables` is set.
    pub fn has_variable(&self, name: &str) -> bool {
        self.document.get("mysql_variables").is_some_and(|table| table.get(name).is_some())
    }

    fn io_driver(&self) -> Option<Value> {
        self.document.get("mysql_variables")?.get("io_driver")?.as_value().cloned()
    }

    /// Adds a row to a table of tables.
    pub fn push(&mut self, table: &str, row: &[(&str, Value)]) -> &mut Self {
        let rows = self.document.entry(table).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        if let Some(rows) = rows.as_array_of_tables_mut() {
            rows.push(row.iter().map(|(name, value)| (*name, Item::Value(value.clone()))).collect());
        }
        self
    }

    /// Further arguments of `weir serve`, in place of those that let the file win over a database.
    pub fn arguments(&mut self, arguments: &[&str]) -> &mut Self {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    /// The document, for everything else.
    pub fn document_mut(&mut self) -> &mut DocumentMut {
        &mut self.document
    }

    /// Where it listens.
    pub fn listen(&self) -> SocketAddrV4 {
        self.listen
    }

    /// The text of the file. `datadir` is set unless the document has one.
    pub fn render(&self, datadir: &Path) -> String {
        let mut document = self.document.clone();
        // A top-level key must stand before the first table, wherever it was inserted; toml_edit sees to that.
        document.entry("datadir").or_insert(Item::Value(datadir.display().to_string().into()));
        document.to_string()
    }
}

/// The weir binary: `WEIR_BIN`, or the one in the target directory that the running program is in.
pub fn weir_binary() -> Result<PathBuf, TestkitError> {
    if let Some(path) = env::var_os("WEIR_BIN") {
        let path = PathBuf::from(path);
        if path.is_file() {
            return Ok(path);
        }
        return Err(TestkitError::Options(format!("WEIR_BIN={}: no such file", path.display())));
    }
    let program = env::current_exe().map_err(TestkitError::io("find the running program".to_owned()))?;
    // target/debug/weir-demo, target/debug/deps/e2e-0123, target/debug/examples/galera
    let candidates: Vec<PathBuf> = program.ancestors().skip(1).take(2).map(|dir| dir.join("weir")).collect();
    candidates.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        let wanted = candidates.last().map(|path| path.display().to_string()).unwrap_or_default();
        TestkitError::Options(format!("there is no {wanted}: run `cargo build -p weir` or set WEIR_BIN"))
    })
}

/// A running Weir; dropping it kills it.
#[derive(Debug)]
pub struct Weir {
    process: Process,
    listen: SocketAddrV4,
    config_path: PathBuf,
    log_path: PathBuf,
    datadir: PathBuf,
    arguments: Vec<String>,
    /// What it was started with, if that was said.
    io_driver: Option<Value>,
}

impl Weir {
    /// Writes `DIR/NAME.toml`, starts `weir serve -c` with it and waits until it accepts connections.
    /// What it prints goes to `DIR/NAME.log`.
    pub fn start(binary: &Path, config: &WeirConfig, dir: &Path, name: &str) -> Result<Weir, TestkitError> {
        preflight::port_is_free(config.listen())?;
        Weir::run(Command::new(binary), config, dir, name)
    }

    /// The same in a network namespace, which has to be reachable from the caller's.
    pub fn start_in(
        namespace: &str,
        binary: &Path,
        config: &WeirConfig,
        dir: &Path,
        name: &str,
    ) -> Result<Weir, TestkitError> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(binary);
        Weir::run(command, config, dir, name)
    }

    /// The same with what names mean to `resolver`.
    pub fn start_with_resolver(
        resolver: &OwnResolver,
        binary: &Path,
        config: &WeirConfig,
        dir: &Path,
        name: &str,
    ) -> Result<Weir, TestkitError> {
        preflight::port_is_free(config.listen())?;
        Weir::run(resolver.command(binary), config, dir, name)
    }

    /// Starts `weir serve` with a file that is there, of any form, and a data directory in `dir`.
    pub fn start_with_file(
        binary: &Path,
        file: &Path,
        listen: SocketAddrV4,
        dir: &Path,
        name: &str,
    ) -> Result<Weir, TestkitError> {
        preflight::port_is_free(listen)?;
        let (datadir, log_path) = (dir.join(format!("{name}-data")), dir.join(format!("{name}.log")));
        fs::create_dir_all(&datadir).map_err(TestkitError::io(format!("make {}", datadir.display())))?;
        make_log(&log_path)?;
        let arguments = vec!["--datadir".to_owned(), datadir.display().to_string()];
        let files = Files { config_path: file.to_owned(), log_path, datadir, arguments, io_driver: None };
        files.serve(Command::new(binary), name, listen)
    }

    fn run(command: Command, config: &WeirConfig, dir: &Path, name: &str) -> Result<Weir, TestkitError> {
        let datadir = dir.join(format!("{name}-data"));
        fs::create_dir_all(&datadir).map_err(TestkitError::io(format!("make {}", datadir.display())))?;
        let config_path = dir.join(format!("{name}.toml"));
        let log_path = dir.join(format!("{name}.log"));
        write_config(&config_path, config, &datadir)?;
        make_log(&log_path)?;
        let (arguments, io_driver) = (config.arguments.clone(), config.io_driver());
        let files = Files { config_path, log_path, datadir, arguments, io_driver };
        files.serve(command, name, config.listen())
    }

    /// Starts it again after its end, or after killing it, with the file and the arguments that it had. Its log goes on.
    pub fn restart(self, binary: &Path) -> Result<Weir, TestkitError> {
        let arguments = self.arguments.clone();
        self.restart_with(binary, arguments)
    }

    /// The same with other arguments.
    pub fn restart_with(self, binary: &Path, arguments: Vec<String>) -> Result<Weir, TestkitError> {
        let Weir { process, listen, config_path, log_path, datadir, io_driver, .. } = self;
        let name = process.name().to_owned();
        drop(process);
        let files = Files { config_path, log_path, datadir, arguments, io_driver };
        files.serve(Command::new(binary), &name, listen)
    }

    /// Starts a process that takes over from this one (`--takeover`), and waits until it has. It has the same datadir,
    /// this one's configuration file, which `config` is written to if there is one, and a log of its own.
    pub fn follow(&self, binary: &Path, config: Option<&WeirConfig>) -> Result<Weir, TestkitError> {
        let next = self.begin_follow(binary, config)?;
        let is_through = || next.log().contains("taken over: ") || next.process.exit_status().is_some();
        let waited = poll_until(FOLLOW_TIMEOUT, is_through);
        if let (Ok(()), None) = (waited, next.process.exit_status()) {
            return Ok(next);
        }
        Err(TestkitError::Timeout {
            what: format!("the takeover by {}", next.process.name()),
            timeout_s: FOLLOW_TIMEOUT.as_secs_f64(),
            details: format!("; the end of its log:\n{}", log_tail(&next.log_path, 15)),
        })
    }

    /// The same without waiting for anything.
    pub fn begin_follow(&self, binary: &Path, config: Option<&WeirConfig>) -> Result<Weir, TestkitError> {
        if let Some(config) = config {
            write_config(&self.config_path, config, &self.datadir)?;
        }
        let name = format!("{}+", self.process.name());
        let log_path = self.log_path.with_file_name(format!("{name}.log"));
        let mut command = Command::new(binary);
        command.args(["serve", "--takeover", "-c"]).arg(&self.config_path).args(&self.arguments);
        // Whoever follows looks into it for what this one says.
        make_log(&log_path)?;
        let process = Process::spawn_logged(&name, &mut command, &log_path)?;
        let listen = config.map_or(self.listen, WeirConfig::listen);
        let (config_path, datadir) = (self.config_path.clone(), self.datadir.clone());
        let arguments = self.arguments.clone();
        let io_driver = config.map_or(self.io_driver.clone(), WeirConfig::io_driver);
        Ok(Weir { process, listen, config_path, log_path, datadir, arguments, io_driver })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddrV4 {
        self.listen
    }

    /// Its process, for memory, CPU time and any signal.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The configuration file it was started with.
    pub fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// Its data directory: the certificate that it made is there.
    pub fn datadir(&self) -> &Path {
        &self.datadir
    }

    /// Everything it has printed so far.
    pub fn log(&self) -> String {
        fs::read(&self.log_path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Waits until its log contains `text`.
    pub fn wait_log(&self, text: &str, timeout: Duration) -> Result<(), TestkitError> {
        poll_until(timeout, || self.log().contains(text)).map_err(|timeout_s| TestkitError::Timeout {
            what: format!("the line {text:?} in the log of {}", self.process.name()),
            timeout_s,
            details: format!("; the end of its log:\n{}", log_tail(&self.log_path, 15)),
        })
    }

    /// Writes another configuration over the file and asks for a reload (SIGHUP). Returns at once. The I/O driver, which
    /// can't change then, stays what it was.
    pub fn reload(&self, config: &WeirConfig) -> Result<(), TestkitError> {
        let mut config = config.clone();
        if let Some(driver) = &self.io_driver {
            config.variable("io_driver", driver.clone());
        }
        write_config(&self.config_path, &config, &self.datadir)?;
        self.sighup()
    }

    /// Asks for a reload of the configuration file (SIGHUP).
    pub fn sighup(&self) -> Result<(), TestkitError> {
        self.process.signal(Signal::HUP)
    }

    /// Asks it to drain and end (SIGTERM). Returns at once.
    pub fn sigterm(&self) -> Result<(), TestkitError> {
        self.process.signal(Signal::TERM)
    }

    /// Waits for its end.
    pub fn wait_exit(&self, timeout: Duration) -> Result<ExitStatus, TestkitError> {
        let started = Instant::now();
        self.process.wait_exit(timeout).ok_or_else(|| TestkitError::Timeout {
            what: format!("the end of {}", self.process.name()),
            timeout_s: started.elapsed().as_secs_f64(),
            details: format!("; the end of its log:\n{}", log_tail(&self.log_path, 15)),
        })
    }
}

/// What a Weir is started with.
struct Files {
    config_path: PathBuf,
    log_path: PathBuf,
    datadir: PathBuf,
    arguments: Vec<String>,
    io_driver: Option<Value>,
}

impl Files {
    /// Starts a Weir and waits until it accepts connections.
    fn serve(self, mut command: Command, name: &str, listen: SocketAddrV4) -> Result<Weir, TestkitError> {
        let Files { config_path, log_path, datadir, arguments, io_driver } = self;
        command.arg("serve").arg("-c").arg(&config_path).args(&arguments);
        let process = Process::serve(name, &mut command, listen, &log_path, START_TIMEOUT)?;
        Ok(Weir { process, listen, config_path, log_path, datadir, arguments, io_driver })
    }
}

/// An empty log, whatever was there before.
fn make_log(path: &Path) -> Result<(), TestkitError> {
    File::create(path).map(drop).map_err(TestkitError::io(format!("write {}", path.display())))
}

fn write_config(path: &Path, config: &WeirConfig, datadir: &Path) -> Result<(), TestkitError> {
    fs::write(path, config.render(datadir)).map_err(TestkitError::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_reads_back_as_it_was_meant() {
        let mut config = WeirConfig::new("127.0.0.1:6033".parse().unwrap());
        config.variable("threads", 2);
        config.server("127.0.0.31:3306".parse().unwrap(), 100, &[("weight", 10.into())]);
        config.server("127.0.0.32:3306".parse().unwrap(), 100, &[]);
        config.user(Account { user: "a\"b", password: "c\\d" }, 100, &[("max_connections", 5.into())]);
        let text = config.render(Path::new("/var/tmp/x"));
        let read: DocumentMut = text.parse().unwrap();
        assert_eq!(read["datadir"].as_str(), Some("/var/tmp/x"));
        assert_eq!(read["mysql_variables"]["interfaces"].as_str(), Some("127.0.0.1:6033"));
        assert_eq!(read["mysql_variables"]["threads"].as_integer(), Some(2));
        assert_eq!(read["mysql_servers"][0]["weight"].as_integer(), Some(10));
        assert_eq!(read["mysql_servers"][1]["hostname"].as_str(), Some("127.0.0.32"));
        assert_eq!(read["mysql_users"][0]["username"].as_str(), Some("a\"b"));
        assert_eq!(read["mysql_users"][0]["password"].as_str(), Some("c\\d"));
    }

    #[test]
    fn weir_accepts_the_configuration_for_a_cluster() {
        let servers = ["127.0.0.31:3306".parse().unwrap(), "127.0.0.32:3306".parse().unwrap()];
        let config = WeirConfig::for_servers(&servers, "127.0.0.1:6033".parse().unwrap());
        let read = weir_config::parse(&config.render(Path::new("/var/tmp/x")), "weir.toml").unwrap();
        assert_eq!((read.servers.len(), read.users.len(), read.galera_hostgroups.len()), (2, 3, 1));
    }
}
