//! Oracle MySQL servers on loopback: one, a source and its replicas, or a Group Replication group.

mod group;
mod server;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use server::MysqlServer;

use crate::process::run_checked;
use crate::run_dir::{ROOT, RunDir, ServerUser};
use crate::template::{Template, cache_dir};
use crate::{Account, TestkitError, preflight};
use server::ServerConfig;

/// A server of a small test database needs about this much, with a performance schema that measures nothing, MiB.
const SERVER_MEMORY_MIB: u64 = 380;
/// Data and redo log of a server with a small test database, MiB.
const SERVER_DISK_MIB: u64 = 400;
/// The longest a server may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest a data directory may take to be made.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest a replica may take to catch up.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(20);
/// Each server makes its own identity; the rest is faster made anew than copied.
const LEFT_OUT: [&str; 2] = ["auto.cnf", "ib_buffer_pool"];
/// The accounts that applications use.
const ACCOUNTS: [Account; 4] = [Account::APP, Account::APP2, Account::LIMITED, Account::MONITOR];
/// For replicas only.
const REPLICATION: Account = Account { user: "replication", password: "replication" };

/// What servers to start, and where.
#[derive(Debug, Clone)]
pub struct MysqlOptions {
    /// Part of the directory's name, `/var/tmp/weir-PURPOSE-PID`: lower-case letters.
    pub purpose: String,
    /// How many servers, 1..=9: the first is the source of all others.
    pub servers: u8,
    /// The first server's address; server N gets the N-1st address after it.
    pub first_address: Ipv4Addr,
    /// The port for clients, the same on all addresses.
    pub port: u16,
    /// The servers form a Group Replication group whose primary is the first, instead of replicating from it.
    pub group: bool,
    /// Further lines for every server's `[mysqld]` section; they win over the ones before.
    pub extra_cnf: String,
    /// Keep the directory with data and logs.
    pub keep: bool,
    /// Called with a line for everything that may take more than two seconds.
    pub progress: fn(&str),
    /// Raised by a signal handler to give up the start.
    pub cancel: Arc<AtomicBool>,
}

impl MysqlOptions {
    /// For the end-to-end tests: a source on 127.1.0.31 and a replica on the next address, port 3306.
    pub fn tests() -> MysqlOptions {
        MysqlOptions {
            purpose: "mysql".to_owned(),
            servers: 2,
            first_address: Ipv4Addr::new(127, 1, 0, 31),
            port: 3306,
            group: false,
            extra_cnf: String::new(),
            keep: false,
            progress: |_| {},
            cancel: Arc::default(),
        }
    }

    fn configs(&self, dir: &Path) -> Result<Vec<ServerConfig>, TestkitError> {
        if !(1..=9).contains(&self.servers) || !self.first_address.is_loopback() {
            let (servers, address) = (self.servers, self.first_address);
            return Err(TestkitError::Options(format!(
                "1 to 9 servers on loopback addresses can be started, not {servers} from {address} on"
            )));
        }
        let config = |i: u8| ServerConfig {
            index: usize::from(i) + 1,
            dir: dir.to_owned(),
            address: SocketAddrV4::new(
                Ipv4Addr::from_bits(self.first_address.to_bits() + u32::from(i)),
                self.port,
            ),
            extra_cnf: self.extra_cnf.clone(),
        };
        let mut configs: Vec<ServerConfig> = (0..self.servers).map(config).collect();
        if self.group {
            group::configure(&mut configs);
        }
        Ok(configs)
    }
}

/// The programs that `scripts/get-mysql` unpacks.
#[derive(Debug)]
struct Programs {
    server: PathBuf,
    client: PathBuf,
    user: ServerUser,
}

impl Programs {
    fn find() -> Result<Programs, TestkitError> {
        let bin = cache_dir()?.join("mysql").join("bin");
        let program = |name: &str| {
            let path = bin.join(name);
            if path.is_file() { Ok(path) } else { Err(TestkitError::NoMysql { path }) }
        };
        Ok(Programs { server: program("mysqld")?, client: program("mysql")?, user: ServerUser::current()? })
    }
}

/// Running servers. Dropping it kills them and, unless `keep` was asked for, removes their data.
#[derive(Debug)]
pub struct Mysql {
    // Dropped in this order: first the servers, then their directory.
    servers: Vec<MysqlServer>,
    dir: RunDir,
}

impl Mysql {
    /// Checks programs, ports, memory and disk, then starts the servers and waits until replication runs.
    ///
    /// All accounts of [`Account`] exist; their passwords are for caching_sha2_password, the only plugin that MySQL 9
    /// has built in. Each has logged in once, so that the servers take a proof instead of the password itself. The first start on a machine initialises a data directory and keeps it under
    /// /var/tmp/weir-cache, later ones copy it (1 to 2 s).
    pub fn start(options: &MysqlOptions) -> Result<Mysql, TestkitError> {
        let programs = Arc::new(Programs::find()?);
        // Removes what a crashed run left running, so it comes before the ports are looked at.
        let dir = RunDir::create(&options.purpose, options.keep)?;
        let configs = options.configs(dir.path())?;
        check_machine(&configs)?;
        let template = find_or_make(&programs, dir.path(), options.progress)?;
        let servers: Vec<MysqlServer> =
            configs.into_iter().map(|config| MysqlServer::new(config, Arc::clone(&programs))).collect();
        let mysql = Mysql { servers, dir };
        for server in &mysql.servers {
            template.copy_to(&server.data_dir())?;
            server.spawn()?;
        }
        for server in &mysql.servers {
            server.wait_ready(START_TIMEOUT, &options.cancel)?;
        }
        if options.group {
            mysql.set_up_group()?;
        } else {
            mysql.set_up_replication()?;
        }
        mysql.servers.iter().try_for_each(MysqlServer::remember_passwords)?;
        Ok(mysql)
    }

    /// The server that takes writes.
    ///
    /// # Panics
    /// Never: there is always one.
    pub fn source(&self) -> &MysqlServer {
        self.server(1)
    }

    /// Server `index`, counted from 1; all but the first are read-only replicas of it.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn server(&self, index: usize) -> &MysqlServer {
        &self.servers[index - 1]
    }

    /// All servers, the source first.
    pub fn servers(&self) -> &[MysqlServer] {
        &self.servers
    }

    /// The servers' directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until every replica has what the source has now.
    pub fn wait_replicated(&self) -> Result<(), TestkitError> {
        let rows = self.source().root_query("SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')")?;
        let position = rows.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        for replica in self.servers.iter().skip(1) {
            let timeout_s = REPLICATION_TIMEOUT.as_secs();
            let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', {timeout_s})");
            if replica.root_query(&wait)? != [["0"]] {
                return Err(TestkitError::Timeout {
                    what: format!("{position} on {}", replica.name()),
                    timeout_s: REPLICATION_TIMEOUT.as_secs_f64(),
                    details: String::new(),
                });
            }
        }
        Ok(())
    }

    fn set_up_replication(&self) -> Result<(), TestkitError> {
        let source = self.source().addr();
        let Account { user, password } = REPLICATION;
        for replica in self.servers.iter().skip(1) {
            replica.root_query(&format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '{}', SOURCE_PORT = {}, SOURCE_USER = '{user}', \
                 SOURCE_PASSWORD = '{password}', SOURCE_SSL = 1, SOURCE_AUTO_POSITION = 1, \
                 SOURCE_CONNECT_RETRY = 1; START REPLICA; SET GLOBAL super_read_only = ON",
                source.ip(),
                source.port(),
            ))?;
        }
        if self.servers.len() > 1 {
            self.source().root_query("CREATE DATABASE replicated; DROP DATABASE replicated")?;
        }
        self.wait_replicated()
    }
}

fn check_machine(configs: &[ServerConfig]) -> Result<(), TestkitError> {
    for config in configs {
        preflight::port_is_free(config.address)?;
    }
    let count = configs.len() as u64;
    preflight::memory(&format!("{count} MySQL servers"), count * SERVER_MEMORY_MIB)?;
    preflight::disk(Path::new(ROOT), count * SERVER_DISK_MIB)
}

/// The template; makes it in `dir` if this machine has none yet.
fn find_or_make(programs: &Programs, dir: &Path, progress: fn(&str)) -> Result<Template, TestkitError> {
    let mut command = Command::new(&programs.server);
    let version = run_checked("mysqld --version", command.arg("--version"), START_TIMEOUT)?;
    let template = Template::new("mysql", (version, accounts_sql(), include_str!("mod.rs")), &LEFT_OUT)?;
    if template.exists() {
        return Ok(template);
    }
    progress("first start of MySQL on this machine: initialising a data directory (a few seconds, once)");
    let (data, accounts) = (dir.join("template"), dir.join("accounts.sql"));
    std::fs::write(&accounts, accounts_sql())
        .map_err(TestkitError::io(format!("write {}", accounts.display())))?;
    let mut initialize = Command::new(&programs.server);
    initialize.args([
        "--initialize-insecure",
        // Nothing that replicas would have to replay, so that all servers begin with the same data.
        "--skip-log-bin",
        "--innodb-redo-log-capacity=8M",
        "--innodb-buffer-pool-size=64M",
    ]);
    initialize.arg(format!("--datadir={}", data.display()));
    initialize.arg(format!("--init-file={}", accounts.display()));
    if programs.user.switched {
        initialize.arg("--user=mysql");
    }
    run_checked("mysqld --initialize-insecure", &mut initialize, INITIALIZE_TIMEOUT)?;
    template.take(&data)?;
    Ok(template)
}

/// Schemas and accounts, one statement per line as `--init-file` wants it. Names are fixed words, so nothing needs
/// quoting.
fn accounts_sql() -> String {
    let create = |account: Account, grants: &str| {
        let Account { user, password } = account;
        format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}';\nGRANT {grants} TO {user}@'%';\n")
    };
    [
        "CREATE DATABASE sbtest;\nCREATE DATABASE test;\nCREATE DATABASE limited;\n".to_owned(),
        create(Account::APP, "ALL ON *.*"),
        create(Account::APP2, "ALL ON *.*"),
        create(Account::LIMITED, "ALL ON limited.*"),
        create(Account::MONITOR, "REPLICATION CLIENT ON *.*"),
        create(REPLICATION, "REPLICATION SLAVE ON *.*"),
    ]
    .concat()
}
