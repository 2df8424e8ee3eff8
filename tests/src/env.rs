//! The environment that all cases share: one cluster, the weir binary, a directory.

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{
    Account, Family, Galera, GaleraOptions, Mysql, MysqlOptions, RunDir, TestkitError, Weir, WeirConfig,
    clean, not_run, preflight, weir_binary,
};

use crate::harness::CaseResult;
use crate::logs;

/// How long a schema may take to appear on all nodes.
const REPLICATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Packets beyond 16 MB are among what is tested; the servers' default is 16 MB.
const EXTRA_CNF: &str = "max_allowed_packet=128M";
/// MySQL's performance schema shows connection attributes. Nothing is measured, which keeps it small.
const MYSQL_CNF: &str = "performance-schema=ON\n\
    performance-schema-instrument='%=OFF'\n\
    performance-schema-digests-size=0\n\
    performance-schema-error-size=0\n\
    performance-schema-max-table-instances=0\n\
    performance-schema-events-statements-history-size=0\n\
    performance-schema-events-waits-history-size=0\n\
    performance-schema-events-stages-history-size=0\n\
    performance-schema-events-transactions-history-size=0";
/// How far the addresses of a case's own servers are from those of all cases.
const OWN_SERVERS: u32 = 5;
/// Names another first address than 127.0.0.31, for a second run at the same time.
const ADDRESS_VARIABLE: &str = "WEIR_TEST_ADDRESS";

/// The environment of all cases. Nothing is started before a case asks for it.
#[derive(Debug, Default)]
pub struct Env {
    dir: OnceLock<Result<RunDir, String>>,
    cluster: OnceLock<Result<Galera, String>>,
    mysql: OnceLock<Result<Mysql, String>>,
    /// How many starts of servers have begun.
    starts_wanted: AtomicU32,
    cancel: Arc<AtomicBool>,
    counter: AtomicU32,
}

impl Env {
    /// The Galera cluster of three nodes.
    pub fn cluster(&self) -> Result<&Galera, String> {
        let start = || {
            self.starts_wanted.fetch_add(1, Ordering::Relaxed);
            let tests = GaleraOptions::tests();
            let options = GaleraOptions {
                first_address: first_address(tests.first_address)?,
                extra_cnf: EXTRA_CNF.to_owned(),
                progress: |line| eprintln!("{line}"),
                keep: keeps(),
                cancel: Arc::clone(&self.cancel),
                ..tests
            };
            Galera::start(options).map_err(|error| format!("no cluster: {error}"))
        };
        self.cluster.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// Oracle MySQL: a source and a replica.
    pub fn mysql(&self) -> Result<&Mysql, String> {
        let start = || {
            self.starts_wanted.fetch_add(1, Ordering::Relaxed);
            let options = MysqlOptions {
                first_address: beside(first_address(GaleraOptions::tests().first_address)?),
                extra_cnf: format!("{EXTRA_CNF}\n{MYSQL_CNF}"),
                progress: |line| eprintln!("{line}"),
                keep: keeps(),
                cancel: Arc::clone(&self.cancel),
                ..MysqlOptions::tests()
            };
            Mysql::start(&options).map_err(|error| format!("no MySQL: {error}"))
        };
        self.mysql.get_or_init(start).as_ref().map_err(Clone::clone)
    }

    /// MySQL servers of a case's own, away from all others: a group, or a source and its replicas. Dropping them ends
    /// them; a case that starts some runs alone.
    pub fn own_mysql(&self, servers: u8, group: bool) -> Result<Mysql, String> {
        self.own_servers(Family::Mysql, servers, group)
    }

    /// The same of either family.
    pub fn own_servers(&self, family: Family, servers: u8, group: bool) -> Result<Mysql, String> {
        self.own_servers_with(family, servers, group, "")
    }

    /// The same with further lines for their my.cnf.
    pub fn own_servers_with(
        &self,
        family: Family,
        servers: u8,
        group: bool,
        cnf: &str,
    ) -> Result<Mysql, String> {
        let first = beside(first_address(GaleraOptions::tests().first_address)?);
        let options = MysqlOptions {
            purpose: "mysqlown".to_owned(),
            family,
            servers,
            group,
            extra_cnf: cnf.to_owned(),
            first_address: Ipv4Addr::from_bits(first.to_bits() + OWN_SERVERS),
            progress: |line| eprintln!("{line}"),
            keep: keeps(),
            cancel: Arc::clone(&self.cancel),
            ..MysqlOptions::tests()
        };
        Mysql::start(&options).map_err(|error| format!("no servers: {error}"))
    }

    /// A directory for files of the cases and logs of the Weirs.
    pub fn dir(&self) -> Result<&Path, String> {
        let dir = self.dir.get_or_init(|| RunDir::create("e2e", keeps()).map_err(|error| error.to_string()));
        dir.as_ref().map(RunDir::path).map_err(Clone::clone)
    }

    /// A Weir of the case's own in front of the cluster, on a free port; `change` may change its configuration.
    pub fn weir(&self, change: impl FnOnce(&mut WeirConfig)) -> Result<Weir, String> {
        let mut config = WeirConfig::for_cluster(self.cluster()?, self.free_address()?);
        change(&mut config);
        self.weir_with(&config)
    }

    /// A Weir with a configuration that need not know the cluster.
    pub fn weir_with(&self, config: &WeirConfig) -> Result<Weir, String> {
        let text = |error: TestkitError| error.to_string();
        let number = self.next_number();
        let mut config = config.clone();
        // Both I/O drivers have to do, io_uring where the kernel allows it.
        if !config.has_variable("io_driver") {
            config.variable("io_driver", if number.is_multiple_of(2) { "auto" } else { "epoll" });
        }
        let (dir, name) = (self.dir()?, format!("weir-{number}"));
        logs::of_this_case(dir.join(format!("{name}.log")));
        let weir = Weir::start(&weir_binary().map_err(text)?, &config, dir, &name).map_err(text)?;
        if let Some(line) = weir.log().lines().find(|line| line.contains("io_uring is not available")) {
            let why = line.split_once("error=").map_or(line, |(_, why)| why);
            not_run("end-to-end cases with io_uring (with epoll instead)", why);
        }
        Ok(weir)
    }

    /// An address of 127.0.0.1 that nobody uses.
    pub fn free_address(&self) -> Result<SocketAddrV4, String> {
        preflight::free_address(Ipv4Addr::LOCALHOST).map_err(|error| error.to_string())
    }

    /// Makes a schema for one case, and returns its name when all nodes have it.
    pub fn schema(&self) -> Result<String, String> {
        let name = format!("case_{}", self.next_number());
        let text = |error: TestkitError| error.to_string();
        let cluster = self.cluster()?;
        cluster.node(1).root_query(&format!("CREATE DATABASE {name}")).map_err(text)?;
        let deadline = Instant::now() + REPLICATION_TIMEOUT;
        for node in cluster.nodes() {
            while node.root_query(&format!("SHOW DATABASES LIKE '{name}'")).map_err(text)?.is_empty() {
                if Instant::now() > deadline {
                    return Err(format!("{} still has no schema {name}", node.name()));
                }
                thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(name)
    }

    /// Makes an account of the case's own, with all rights, so that its connections can be told from others'.
    pub fn account(&self) -> Result<Account, String> {
        let name = format!("user_{}", self.next_number());
        let cluster = self.cluster()?;
        let sql = format!("CREATE USER {name}@'%' IDENTIFIED BY '{name}'; GRANT ALL ON *.* TO {name}@'%'");
        cluster.node(1).root_query(&sql).map_err(|error| error.to_string())?;
        self.wait_applied()?;
        // Accounts hold words that live as long as the program, as the constant ones do.
        let word: &'static str = name.leak();
        Ok(Account { user: word, password: word })
    }

    /// Removes what Weirs of earlier cases have agreed on. A killed one leaves its lease behind, for minutes if it was alone, and
    /// one that does not know its writer waits for that.
    pub fn forget_epochs(&self) -> Result<(), String> {
        let sql = "DROP TABLE IF EXISTS weir.topology, weir.instances, weir.drains";
        self.cluster()?.node(1).root_query(sql).map_err(|error| error.to_string())?;
        self.wait_applied()
    }

    /// Waits until every node has applied what was written to any of them.
    pub fn wait_applied(&self) -> Result<(), String> {
        for node in self.cluster()?.nodes() {
            let wait = "SET wsrep_sync_wait = 1; SELECT COUNT(*) FROM mysql.global_priv";
            node.root_query(wait).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Brings every node back, if there is a cluster at all.
    pub fn repair_cluster(&self) -> CaseResult {
        if let Some(Ok(cluster)) = self.cluster.get() {
            cluster.repair()?;
        }
        Ok(())
    }

    /// Copies logs and configurations out of the directories that are about to be removed, to `to`, which is
    /// emptied before.
    pub fn save_logs(&self, to: &Path) {
        let _ = fs::remove_dir_all(to);
        let copied = fs::create_dir_all(to).and_then(|()| {
            self.dirs().into_iter().try_fold(0, |count, from| Ok(count + copy_logs(from, to)?))
        });
        match copied {
            Ok(0) => {}
            Ok(_) => eprintln!("logs of the servers: {}", to.display()),
            Err(error) => eprintln!("the servers' logs could not be saved in {}: {error}", to.display()),
        }
    }

    /// Ends all servers and removes their files, from a signal handler's thread.
    pub fn abort(&self) {
        self.cancel.store(true, Ordering::Relaxed);
        // A start that is under way ends soon, and cleans up after itself.
        let deadline = Instant::now() + Duration::from_secs(10);
        let started = || u32::from(self.cluster.get().is_some()) + u32::from(self.mysql.get().is_some());
        while started() < self.starts_wanted.load(Ordering::Relaxed) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
        for dir in self.dirs() {
            clean(dir);
        }
    }

    /// Whether [`Env::abort`] has been called: then that thread ends the program.
    pub fn is_aborted(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// The directories of everything that has been started.
    fn dirs(&self) -> Vec<&Path> {
        let own = self.dir.get().and_then(|dir| dir.as_ref().ok()).map(RunDir::path);
        let cluster = self.cluster.get().and_then(|cluster| cluster.as_ref().ok()).map(Galera::dir);
        let mysql = self.mysql.get().and_then(|mysql| mysql.as_ref().ok()).map(Mysql::dir);
        [own, cluster, mysql].into_iter().flatten().collect()
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.counter.fetch_add(1, Ordering::Relaxed)
    }
}

fn first_address(default: Ipv4Addr) -> Result<Ipv4Addr, String> {
    match env::var(ADDRESS_VARIABLE) {
        Ok(text) => text.parse().map_err(|_| format!("{ADDRESS_VARIABLE}={text}: not an IPv4 address")),
        Err(_) => Ok(default),
    }
}

/// MySQL's servers have the addresses of the nodes with another second byte: 127.1.0.31 and following.
fn beside(address: Ipv4Addr) -> Ipv4Addr {
    Ipv4Addr::from_bits(address.to_bits() | 1 << 16)
}

fn keeps() -> bool {
    env::var_os("WEIR_TEST_KEEP").is_some_and(|value| value != "0")
}

fn copy_logs(from: &Path, to: &Path) -> std::io::Result<u32> {
    let mut count = 0;
    for entry in fs::read_dir(from)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| ["log", "err", "toml", "cnf"].iter().any(|wanted| e == *wanted)) {
            fs::copy(&path, to.join(entry.file_name()))?;
            count += 1;
        }
    }
    Ok(count)
}
