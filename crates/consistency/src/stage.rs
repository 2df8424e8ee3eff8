//! Starts the servers that the parts share, with accounts and tables.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU32, Ordering};

use weir_lab::report::Machine;
use weir_lab::rows;
use weir_lab::servers::{Server, Servers, Start};
use weir_lab::{Error, Stop};
use weir_testkit::{Account, Family};

use crate::args::{Args, Scale};
use crate::distance::Distance;
use crate::place::{Level, Place, WRITER_ONLY};

/// The schema of everything that is measured.
pub(crate) const SCHEMA: &str = "consistency";
/// Rows that only make work for the servers.
pub(crate) const BALLAST_ROWS: u64 = 2000;
/// The longest until all servers have the schema.
const SCHEMA_TIMEOUT_S: u64 = 60;
/// The replica that is late, and by how much.
const LATE: usize = 3;
const LATE_S: u32 = 1;

/// Running servers.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// What was asked for.
    pub(crate) args: &'a Args,
    /// How much of everything.
    pub(crate) scale: Scale,
    /// Raised by Ctrl-C.
    pub(crate) stop: Stop,
    /// Their kind.
    pub(crate) place: Place,
    // Dropped in this order: servers before the network that they are in.
    /// The servers.
    pub(crate) servers: Servers,
    _distance: Option<Distance>,
    next: AtomicU32,
}

impl<'a> Stage<'a> {
    /// Starts them.
    pub(crate) fn start(args: &'a Args, place: Place, stop: Stop) -> Result<Stage<'a>, Error> {
        let distance = args.delay_ms.map(|delay_ms| match place {
            Place::Galera => Distance::create(delay_ms),
            _ => Err(Error::Impossible("only Galera nodes can be put at a distance".to_owned())),
        });
        let distance = distance.transpose()?;
        let places = distance.as_ref().map(Distance::places).unwrap_or_default();
        let servers = start(args, place, &stop, places)?;
        let (scale, next) = (args.scale(), AtomicU32::new(1));
        let stage = Stage { args, scale, stop, place, servers, _distance: distance, next };
        stage.servers.root_query(1, &accounts_sql())?;
        stage.servers.root_query(1, &rows::schema_sql())?;
        stage.servers.root_query(1, &ballast_sql())?;
        // One is late, and has not even the schema yet.
        let count = format!("SELECT COUNT(*) FROM {SCHEMA}.ballast");
        let has_it = |server: &Server| stage.servers.root_query(server.index, &count).is_ok();
        stage.stop.wait("the schema on all servers", SCHEMA_TIMEOUT_S, || {
            Ok(stage.servers.all().iter().all(has_it))
        })?;
        stage.remember_passwords()?;
        stage.servers.repair()?;
        Ok(stage)
    }

    /// What it runs on.
    pub(crate) fn machine(&self) -> Result<Machine, Error> {
        let version = self.servers.root_query(1, "SELECT VERSION()")?.concat().concat();
        Ok(Machine::observe(&version, []))
    }

    /// A number that nothing else has.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The one with this address.
    pub(crate) fn at(&self, address: SocketAddrV4) -> Result<Server, Error> {
        self.servers.at(address)
    }

    /// Runs statements as root at the writer, and waits until all servers have what they made.
    pub(crate) fn make(&self, writer: SocketAddrV4, sql: &str) -> Result<(), Error> {
        let table = format!("{SCHEMA}.made_{}", self.number());
        let index = self.at(writer)?.index;
        self.servers.root_query(index, &format!("USE {SCHEMA}; {sql}; CREATE TABLE {table} (id INT)"))?;
        self.wait_everywhere(&table)
    }

    fn wait_everywhere(&self, table: &str) -> Result<(), Error> {
        let addresses: Vec<SocketAddrV4> = self.servers.awake().iter().map(|server| server.address).collect();
        rows::wait_for_table(&addresses, &Account::APP.into(), table)
    }

    /// MySQL's servers take a proof instead of the password itself once they have seen it.
    fn remember_passwords(&self) -> Result<(), Error> {
        match &self.servers {
            Servers::Group(mysql) | Servers::Replication(mysql) if mysql.family() == Family::Mysql => {
                users().try_for_each(|account| Ok(mysql.remember_password(account)?))
            }
            _ => Ok(()),
        }
    }
}

fn users() -> impl Iterator<Item = Account> {
    Level::ALL.map(Level::account).into_iter().chain([WRITER_ONLY])
}

/// Users that may do what applications may, and nothing that read_only does not bind.
fn accounts_sql() -> String {
    let user = |Account { user, password }| {
        format!(
            "CREATE USER {user}@'%' IDENTIFIED BY '{password}'; \
             GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, EXECUTE ON {SCHEMA}.* TO {user}@'%'; \
             GRANT SELECT ON {}.* TO {user}@'%'",
            rows::SCHEMA
        )
    };
    let users: Vec<String> = users().map(user).collect();
    format!("CREATE DATABASE {SCHEMA}; {}", users.join("; "))
}

fn ballast_sql() -> String {
    let rows: Vec<String> = (0..BALLAST_ROWS).map(|id| format!("({id}, 0, REPEAT('x', 100))")).collect();
    format!(
        "USE {SCHEMA}; \
         CREATE PROCEDURE put(IN of_counter INT, IN new BIGINT) MODIFIES SQL DATA \
         UPDATE counters SET v = GREATEST(v, new) WHERE counter = of_counter; \
         CREATE TABLE ballast (id INT PRIMARY KEY, n BIGINT NOT NULL, filler CHAR(100) NOT NULL); \
         INSERT INTO ballast VALUES {}",
        rows.join(", ")
    )
}

fn start(args: &Args, place: Place, stop: &Stop, places: Vec<weir_testkit::Place>) -> Result<Servers, Error> {
    let starter = Start {
        purpose: "consistency",
        address: args.address,
        data_dir: &args.data_dir,
        keep: args.servers.keep,
        progress,
        stop,
    };
    let family = match place {
        Place::Galera => return Ok(Servers::Galera(starter.galera(|options| options.places = places)?)),
        Place::Group => return Ok(Servers::Group(starter.group()?)),
        Place::MariadbReplication => Family::Mariadb,
        Place::MysqlReplication => Family::Mysql,
    };
    let mysql = starter.replication(family)?;
    progress(&format!("replica {LATE} is late from now on"));
    mysql.delay_replica(LATE, LATE_S)?;
    Ok(Servers::Replication(mysql))
}

/// A line for whoever waits.
pub(crate) fn progress(line: &str) {
    eprintln!("--- {line}");
}
