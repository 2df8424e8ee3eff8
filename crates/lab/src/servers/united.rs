//! Unites the servers of a run: a Galera cluster, a Group Replication group or a source with its replicas, as far as programs
//! that measure treat them alike.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Error, rows};
use weir_testkit::{Family, Galera, Mysql, TestkitError};

/// The longest that a group may take to be whole again: a member whose donor dies waits a minute before it asks another
/// (`group_replication_recovery_reconnect_interval`), and catches up with minutes of writes.
const GROUP_TIMEOUT: Duration = Duration::from_secs(240);

/// Running servers; they end with it.
#[derive(Debug)]
pub enum Servers {
    /// MariaDB Galera, n1 and following.
    Galera(Galera),
    /// MySQL Group Replication, m1 and following.
    Group(Mysql),
    /// MariaDB or MySQL with asynchronous replication, m1 and following: one of them writes, the others are its replicas.
    Replication(Mysql),
}

/// One of them, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Counted from 1.
    pub index: usize,
    /// n1, or m1.
    pub name: String,
    /// Where clients connect.
    pub address: SocketAddrV4,
    /// Whether its process runs and is not stopped by a signal.
    pub is_awake: bool,
}

impl Servers {
    /// The Galera cluster.
    pub fn galera(&self) -> Result<&Galera, Error> {
        match self {
            Servers::Galera(galera) => Ok(galera),
            Servers::Group(_) | Servers::Replication(_) => {
                Err(Error::Impossible("this is no Galera cluster".to_owned()))
            }
        }
    }

    /// The directory of their data and logs.
    pub fn dir(&self) -> &Path {
        match self {
            Servers::Galera(galera) => galera.dir(),
            Servers::Group(mysql) | Servers::Replication(mysql) => mysql.dir(),
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<Server> {
        match self {
            Servers::Galera(galera) => {
                let server = |node: &weir_testkit::Node| Server {
                    index: node.index(),
                    name: node.name(),
                    address: node.addr(),
                    is_awake: node.is_running() && !node.is_paused(),
                };
                galera.nodes().iter().map(server).collect()
            }
            Servers::Group(mysql) | Servers::Replication(mysql) => {
                let server = |(server, index): (&weir_testkit::MysqlServer, usize)| Server {
                    index,
                    name: server.name(),
                    address: server.addr(),
                    is_awake: server.process().is_some(),
                };
                mysql.servers().iter().zip(1..).map(server).collect()
            }
        }
    }

    /// The member of a group that calls itself the primary.
    pub fn primary(&self) -> Option<Server> {
        let sql = "SELECT MEMBER_ROLE FROM performance_schema.replication_group_members \
                   WHERE MEMBER_ID = @@GLOBAL.server_uuid";
        let is_primary =
            |server: &Server| self.root_query(server.index, sql).is_ok_and(|rows| rows == [["PRIMARY"]]);
        self.awake().into_iter().find(is_primary)
    }

    /// Those that run.
    pub fn awake(&self) -> Vec<Server> {
        self.all().into_iter().filter(|server| server.is_awake).collect()
    }

    /// The one with this address.
    pub fn at(&self, address: SocketAddrV4) -> Result<Server, Error> {
        let server = self.all().into_iter().find(|server| server.address == address);
        server.ok_or_else(|| Error::Impossible(format!("{address} is none of the servers")))
    }

    /// Its error log.
    pub fn log_path(&self, index: usize) -> PathBuf {
        match self {
            Servers::Galera(galera) => galera.node(index).log_path(),
            Servers::Group(mysql) | Servers::Replication(mysql) => mysql.server(index).log_path(),
        }
    }

    /// Statements as root on one of them.
    pub fn root_query(&self, index: usize, sql: &str) -> Result<Vec<Vec<String>>, TestkitError> {
        match self {
            Servers::Galera(galera) => galera.node(index).root_query(sql),
            Servers::Group(mysql) | Servers::Replication(mysql) => mysql.server(index).root_query(sql),
        }
    }

    /// What a session says to see everything that was committed before; with asynchronous replication nothing helps but
    /// [`Servers::wait_alike`].
    pub fn causal(&self) -> Option<&'static str> {
        match self {
            Servers::Galera(_) => Some("SET SESSION wsrep_sync_wait = 15"),
            Servers::Group(_) => Some("SET SESSION group_replication_consistency = 'BEFORE'"),
            Servers::Replication(_) => None,
        }
    }

    /// Waits until the replicas of a source have everything that it has.
    pub fn wait_alike(&self) -> Result<(), Error> {
        match self {
            Servers::Galera(_) | Servers::Group(_) => Ok(()),
            Servers::Replication(mysql) => Ok(mysql.wait_replicated_from(self.source()?.index)?),
        }
    }

    /// The server that is not read-only.
    fn source(&self) -> Result<Server, Error> {
        let writes = |server: &Server| {
            self.root_query(server.index, "SELECT @@GLOBAL.read_only").is_ok_and(|rows| rows == [["0"]])
        };
        let source = self.awake().into_iter().find(writes);
        source.ok_or_else(|| Error::Impossible("every server is read_only".to_owned()))
    }

    /// Those of which the first that does not refuse it makes a table for all.
    pub fn makers(&self) -> Result<Vec<Server>, Error> {
        match self {
            Servers::Galera(_) | Servers::Group(_) => Ok(self.awake()),
            // root may write on a replica, too, and nobody else would get it.
            Servers::Replication(_) => Ok(vec![self.source()?]),
        }
    }

    /// Starts one that was stopped or killed, and waits until it has joined the others.
    pub fn start(&self, index: usize) -> Result<(), Error> {
        match self {
            Servers::Galera(galera) => galera.start_node(index)?,
            Servers::Group(_) => self.repair()?,
            // It goes on as a replica, and read_only, by its my.cnf.
            Servers::Replication(mysql) => mysql.server(index).start()?,
        }
        self.number(index)
    }

    /// SIGTERM, and waits for the end.
    pub fn stop(&self, index: usize) -> Result<(), TestkitError> {
        match self {
            Servers::Galera(galera) => galera.node(index).stop(),
            Servers::Group(mysql) | Servers::Replication(mysql) => mysql.server(index).stop(),
        }
    }

    /// SIGKILL.
    pub fn kill(&self, index: usize) -> Result<(), TestkitError> {
        match self {
            Servers::Galera(galera) => galera.node(index).kill(),
            Servers::Group(mysql) | Servers::Replication(mysql) => mysql.server(index).kill(),
        }
    }

    /// Everything runs, is well, and has its own number in the table `node`.
    pub fn repair(&self) -> Result<(), Error> {
        match self {
            Servers::Galera(galera) => galera.repair()?,
            Servers::Group(group) => repair_group(group)?,
            Servers::Replication(mysql) => {
                let away = mysql.servers().iter().filter(|server| server.process().is_none());
                away.into_iter().try_for_each(weir_testkit::MysqlServer::start)?;
                self.wait_alike()?;
            }
        }
        self.all().iter().try_for_each(|server| self.number(server.index))
    }

    /// Writes a server's number into its own table `node`, and nobody else's.
    pub fn number(&self, index: usize) -> Result<(), Error> {
        let causal = self.causal().map(|causal| format!("{causal}; ")).unwrap_or_default();
        self.root_query(index, &format!("{causal}SELECT COUNT(*) FROM {}.node", rows::SCHEMA))?;
        let sql = match self {
            Servers::Galera(_) => rows::node_sql(index, "wsrep_on = OFF"),
            // read_only does not bind root.
            Servers::Replication(mysql) if mysql.family() == Family::Mariadb => {
                rows::node_sql(index, "sql_log_bin = OFF")
            }
            Servers::Group(_) | Servers::Replication(_) => {
                let is_read_only = self.root_query(index, "SELECT @@GLOBAL.super_read_only")?;
                let alone = rows::node_sql(index, "sql_log_bin = OFF");
                match is_read_only.concat().concat() == "1" {
                    false => alone,
                    true => {
                        format!("SET GLOBAL super_read_only = OFF; {alone}; SET GLOBAL super_read_only = ON")
                    }
                }
            }
        };
        self.root_query(index, &sql)?;
        Ok(())
    }
}

/// Members that are down are started and join; one that its group has expelled joins again.
fn repair_group(group: &Mysql) -> Result<(), Error> {
    for server in group.servers() {
        // One that was told to end may still be about it, and let nobody in.
        if server.process().is_some() && server.root_query("SELECT 1").is_err() {
            server.kill()?;
        }
        if server.process().is_none() {
            server.start()?;
        }
        let state = server.root_query(
            "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
             WHERE MEMBER_ID = @@GLOBAL.server_uuid",
        )?;
        match state.concat().concat().as_str() {
            "ONLINE" => {}
            "RECOVERING" => wait_online(server)?,
            _ => {
                server.root_query("STOP GROUP_REPLICATION")?;
                server.join_group()?;
            }
        }
    }
    Ok(())
}

fn wait_online(server: &weir_testkit::MysqlServer) -> Result<(), Error> {
    let deadline = std::time::Instant::now() + GROUP_TIMEOUT;
    let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                 WHERE MEMBER_ID = @@GLOBAL.server_uuid";
    while server.root_query(state)?.concat().concat() != "ONLINE" {
        if std::time::Instant::now() > deadline {
            let what = format!("{} in its group", server.name());
            return Err(Error::Timeout { what, timeout_s: GROUP_TIMEOUT.as_secs() });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
