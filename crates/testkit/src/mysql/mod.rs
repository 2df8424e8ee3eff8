//! Runs servers on loopback, of Oracle MySQL or of MariaDB without Galera: one, a source and its replicas, or with
//! MySQL a Group Replication group.

mod family;
mod group;
mod lag;
mod router;
mod server;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use family::Family;
pub use router::{MysqlRouter, MysqlRouterOptions};
pub use server::MysqlServer;

use crate::run_dir::{ROOT, RunDir, ServerUser};
use crate::{Account, TestkitError, preflight};
use server::ServerConfig;

/// A server of a small test database needs about this much, with a performance schema that measures nothing, MiB.
const SERVER_MEMORY_MIB: u64 = 380;
/// Data and redo log of a server with a small test database, MiB.
const SERVER_DISK_MIB: u64 = 400;
/// The longest a server may take to start, on a machine that is very busy.
const START_TIMEOUT: Duration = Duration::from_secs(180);
/// The longest a data directory may take to be made.
const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest a replica may take to catch up.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(20);
/// The accounts that applications use.
const ACCOUNTS: [Account; 4] = [Account::APP, Account::APP2, Account::LIMITED, Account::MONITOR];
/// For replicas only.
const REPLICATION: Account = Account { user: "replication", password: "replication" };

/// What servers to start, and where.
#[derive(Debug, Clone)]
pub struct MysqlOptions {
    /// Part of the directory's name, `/var/tmp/weir-PURPOSE-PID`: lower-case letters.
    pub purpose: String,
    /// Whose servers.
    pub family: Family,
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
    /// Where that directory is, instead of `/var/tmp`; the servers' user must be able to reach it.
    pub root: PathBuf,
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
            family: Family::Mysql,
            servers: 2,
            first_address: Ipv4Addr::new(127, 1, 0, 31),
            port: 3306,
            group: false,
            extra_cnf: String::new(),
            root: PathBuf::from(ROOT),
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
            family: self.family,
            index: usize::from(i) + 1,
            dir: dir.to_owned(),
            address: SocketAddrV4::new(
                Ipv4Addr::from_bits(self.first_address.to_bits() + u32::from(i)),
                self.port,
            ),
            extra_cnf: self.extra_cnf.clone(),
        };
        let mut configs: Vec<ServerConfig> = (0..self.servers).map(config).collect();
        if self.group && self.family != Family::Mysql {
            return Err(TestkitError::Options("only MySQL has Group Replication".to_owned()));
        }
        if self.group {
            group::configure(&mut configs);
        }
        Ok(configs)
    }
}

/// A family's programs: MySQL's are those that `scripts/get-mysql` unpacks.
#[derive(Debug)]
struct Programs {
    server: PathBuf,
    client: PathBuf,
    /// Makes a data directory; MySQL's server does that itself.
    install_db: Option<PathBuf>,
    user: ServerUser,
}

/// Running servers. Dropping it kills them and, unless `keep` was asked for, removes their data.
#[derive(Debug)]
pub struct Mysql {
    // Dropped in this order: first the servers, then their directory.
    servers: Vec<MysqlServer>,
    dir: RunDir,
    family: Family,
}

impl Mysql {
    /// Checks programs, ports, memory and disk, then starts the servers and waits until replication runs.
    ///
    /// All accounts of [`Account`] exist; their passwords are for caching_sha2_password, the only plugin that MySQL 9
    /// has built in. Each has logged in once, so that the servers take a proof instead of the password itself. The first start on a machine initialises a data directory and keeps it under
    /// /var/tmp/weir-cache, later ones copy it (1 to 2 s).
    pub fn start(options: &MysqlOptions) -> Result<Mysql, TestkitError> {
        let family = options.family;
        let programs = Arc::new(family.programs()?);
        // Removes what a crashed run left running, so it comes before the ports are looked at.
        let dir = RunDir::create_in(&options.root, &options.purpose, options.keep)?;
        let configs = options.configs(dir.path())?;
        check_machine(&options.root, &configs)?;
        let servers: Vec<MysqlServer> =
            configs.into_iter().map(|config| MysqlServer::new(config, Arc::clone(&programs))).collect();
        let template = family.template(&programs, dir.path(), &servers, options.progress)?;
        let mysql = Mysql { servers, dir, family };
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
        if family == Family::Mysql {
            ACCOUNTS.into_iter().try_for_each(|account| mysql.remember_password(account))?;
        }
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

    /// Whose servers these are.
    pub fn family(&self) -> Family {
        self.family
    }

    /// All servers, the source first.
    pub fn servers(&self) -> &[MysqlServer] {
        &self.servers
    }

    /// The servers' directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Logs in at each MySQL server over its Unix socket, where a password may be sent as it is: from then on the server
    /// knows a hash that lets clients of this account log in without TLS.
    pub fn remember_password(&self, account: Account) -> Result<(), TestkitError> {
        self.servers.iter().try_for_each(|server| server.remember_password(account))
    }

    /// Waits until every other server has what the first one has now.
    pub fn wait_replicated(&self) -> Result<(), TestkitError> {
        self.wait_replicated_from(1)
    }

    /// Waits until every other server that runs has what server `index` has now.
    pub fn wait_replicated_from(&self, index: usize) -> Result<(), TestkitError> {
        let rows = self.server(index).root_query(self.family.position())?;
        let position = rows.first().and_then(|row| row.first()).cloned().unwrap_or_default();
        let others = self.servers.iter().zip(1..).filter(|(_, at)| *at != index);
        for (replica, _) in others.filter(|(replica, _)| replica.process().is_some()) {
            let timeout_s = REPLICATION_TIMEOUT.as_secs();
            let wait = format!("SELECT {}('{position}', {timeout_s})", self.family.wait_function());
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
        for replica in self.servers.iter().skip(1) {
            replica.root_query(&self.family.replicate_from(source))?;
        }
        if self.servers.len() > 1 {
            self.source().root_query("CREATE DATABASE replicated; DROP DATABASE replicated")?;
        }
        self.wait_replicated()
    }
}

fn check_machine(root: &Path, configs: &[ServerConfig]) -> Result<(), TestkitError> {
    for config in configs {
        preflight::port_is_free(config.address)?;
    }
    let count = configs.len() as u64;
    preflight::memory(&format!("{count} servers"), count * SERVER_MEMORY_MIB)?;
    preflight::disk(root, count * SERVER_DISK_MIB)
}
