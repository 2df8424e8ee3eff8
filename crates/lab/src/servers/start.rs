//! Starts servers that are to bear load and failures: a Galera cluster, a group, a source with its replicas.

use std::net::Ipv4Addr;
use std::path::Path;

use weir_testkit::{Account, Family, Galera, GaleraOptions, Mysql, MysqlOptions, TestkitError};

use crate::{Error, Stop};

/// Of a group, and of a source with its replicas.
const SERVERS: u8 = 3;
/// As for servers with load: with the small log that suits tests InnoDB stops every write now and then, for a second and
/// more, until it has written enough of its pages.
const SERVER_SETTINGS: &str =
    "innodb_buffer_pool_size=256M\ninnodb_log_file_size=256M\ninnodb_io_capacity=1000";
/// The group's timings: a killed node is given up after 2 s. What is in front of it can't be faster by itself.
const PROVIDER_OPTIONS: &str = "evs.inactive_check_period=PT0.1S;evs.keepalive_period=PT0.1S;\
    evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.join_retrans_period=PT0.1S;evs.install_timeout=PT4S";
/// A server that comes back is a replica, and replicas apply as fast as the source writes.
const MARIADB_REPLICATION: &str = "read_only=ON\nslave_parallel_threads=4\nslave_parallel_mode=optimistic";
const MYSQL_REPLICATION: &str = "read_only=ON\nreplica_parallel_workers=4";
/// For the tables by which several Weirs agree, and tell each other what they do.
const OWN_TABLES: &str = "SELECT, INSERT, UPDATE, DELETE, CREATE ON weir.*";

/// For whom servers are started, and where.
#[derive(Debug, Clone)]
pub struct Start<'a> {
    /// Whose they are, a part of directories' names: lower-case letters.
    pub purpose: &'a str,
    /// The first Galera node's address; the others have the addresses after it. Groups and replicas have
    /// addresses of their own beside them.
    pub address: Ipv4Addr,
    /// Where they keep their data.
    pub data_dir: &'a Path,
    /// Keep that.
    pub keep: bool,
    /// Called with a line for everything that takes a moment.
    pub progress: fn(&str),
    /// Ends the start.
    pub stop: &'a Stop,
}

impl Start<'_> {
    /// A cluster of three nodes; `change` may change its options.
    pub fn galera(&self, change: impl FnOnce(&mut GaleraOptions)) -> Result<Galera, Error> {
        let mut options = GaleraOptions {
            keep: self.keep,
            progress: self.progress,
            cancel: self.stop.flag(),
            extra_cnf: SERVER_SETTINGS.to_owned(),
            provider_options: PROVIDER_OPTIONS.to_owned(),
            root: self.data_dir.to_owned(),
            group_priority: true,
            ..GaleraOptions::new(self.purpose, self.address)
        };
        change(&mut options);
        let cluster = Galera::start(options)?;
        cluster.node(1).root_query(&grant(OWN_TABLES))?;
        Ok(cluster)
    }

    /// A group of three MySQL servers.
    pub fn group(&self) -> Result<Mysql, Error> {
        (self.progress)("starting a group of three MySQL servers");
        let group = start_mysql(&MysqlOptions { group: true, ..self.mysql_options("gr", 1) })?;
        // For `weir switchover`: the monitor's account asks the group for another primary.
        let privileges = grant("GROUP_REPLICATION_ADMIN, PROCESS ON *.*");
        group.source().root_query(&format!("{privileges}; {}", grant(OWN_TABLES)))?;
        Ok(group)
    }

    /// A source that takes writes and two replicas.
    pub fn replication(&self, family: Family) -> Result<Mysql, Error> {
        let (offset, settings, writable, privileges) = match family {
            Family::Mariadb => (
                2,
                format!("{SERVER_SETTINGS}\n{MARIADB_REPLICATION}"),
                "SET GLOBAL read_only = OFF",
                "READ_ONLY ADMIN, REPLICATION SLAVE ADMIN, REPLICA MONITOR, RELOAD",
            ),
            Family::Mysql => (
                3,
                MYSQL_REPLICATION.to_owned(),
                "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF",
                "SYSTEM_VARIABLES_ADMIN, REPLICATION_SLAVE_ADMIN, REPLICATION CLIENT, RELOAD",
            ),
        };
        (self.progress)("starting a source and two replicas");
        let options = MysqlOptions { family, extra_cnf: settings, ..self.mysql_options("ar", offset) };
        let mysql = start_mysql(&options)?;
        // For `weir switchover`.
        let privileges = grant(&format!("{privileges} ON *.*"));
        mysql.source().root_query(&format!("{writable}; {privileges}; {}", grant(OWN_TABLES)))?;
        Ok(mysql)
    }

    /// Those of servers at the addresses `offset` networks further on.
    fn mysql_options(&self, suffix: &str, offset: u32) -> MysqlOptions {
        MysqlOptions {
            purpose: format!("{}{suffix}", self.purpose),
            servers: SERVERS,
            first_address: Ipv4Addr::from_bits(self.address.to_bits() | offset << 16),
            root: self.data_dir.to_owned(),
            keep: self.keep,
            progress: self.progress,
            cancel: self.stop.flag(),
            ..MysqlOptions::tests()
        }
    }
}

/// Without MySQL's programs it can't be done here.
fn start_mysql(options: &MysqlOptions) -> Result<Mysql, Error> {
    Mysql::start(options).map_err(|error| match error {
        error @ TestkitError::NoMysql { .. } => Error::Impossible(error.to_string()),
        error => error.into(),
    })
}

/// The monitor's account may do that.
fn grant(privileges: &str) -> String {
    let Account { user, .. } = Account::MONITOR;
    format!("GRANT {privileges} TO {user}@'%'")
}
