//! The servers that both twins end at.

use std::error::Error;
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use weir_testkit::wire::Login;
use weir_testkit::{Account, MysqlServer, Node, TestkitError, Weir};
use weir_tests::{Env, Session, eventually};

/// Connections of Weir's to each server: fewer than sessions.
const CONNECTIONS_MAX: i64 = 3;
/// How long a statement waits for one of them, milliseconds.
const PATIENCE_MS: i64 = 150;
/// What a server tells a transaction that it has rolled back.
const LOCK_DEADLOCK: u16 = 1213;

/// A family of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// MariaDB with Galera: reads go to another node than writes.
    Galera,
    /// One MySQL server.
    Mysql,
}

/// The servers that a Weir leads to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target<'a> {
    /// Two nodes.
    Galera {
        /// Takes what is no plain read.
        writer: &'a Node,
        /// Takes plain reads.
        reader: &'a Node,
    },
    /// The source alone.
    Mysql(&'a MysqlServer),
}

/// A read-only transaction on a reader refuses, once per user, what would hold it there, and that is the one thing in
/// which Weir means to differ. After that refusal such transactions run on the writer.
fn keep_read_only_on_writer(weir: &Weir) -> Result<(), Box<dyn Error>> {
    for account in [Account::APP, Account::APP2] {
        let mut session = Session::with(weir.addr(), &Login::new(account).schema("test"))?;
        eventually("a reader has refused to be held", Duration::from_secs(60), || {
            session.query("START TRANSACTION READ ONLY")?.done()?;
            let is_refused = session.query("SET @x = 1")?.error() == Some(LOCK_DEADLOCK);
            session.query("ROLLBACK")?.done()?;
            session.reset()?.done()?;
            Ok(is_refused)
        })?;
    }
    Ok(())
}

impl<'a> Target<'a> {
    /// A Weir in front of servers of this family, and those servers.
    pub(super) fn start(env: &'a Env, family: Family) -> Result<(Weir, Target<'a>), Box<dyn Error>> {
        let impatient = |config: &mut weir_testkit::WeirConfig| {
            config.variable("connect_timeout_server_max", PATIENCE_MS);
        };
        if family == Family::Mysql {
            let weir = env.mysql_weir_with(CONNECTIONS_MAX, impatient)?;
            return Ok((weir, Target::Mysql(env.mysql()?.source())));
        }
        let weir = env.narrow_weir_with(&[1, 2], CONNECTIONS_MAX, impatient)?;
        let name = Session::open(weir.addr(), "test")?.value("SELECT @@wsrep_node_name")?;
        keep_read_only_on_writer(&weir)?;
        let cluster = env.cluster()?;
        let (writer, reader) = if name == "n1" {
            (cluster.node(1), cluster.node(2))
        } else {
            (cluster.node(2), cluster.node(1))
        };
        Ok((weir, Target::Galera { writer, reader }))
    }

    pub(super) fn family(self) -> Family {
        match self {
            Target::Galera { .. } => Family::Galera,
            Target::Mysql(_) => Family::Mysql,
        }
    }

    /// Where writes go.
    pub(super) fn writer_addr(self) -> SocketAddrV4 {
        match self {
            Target::Galera { writer, .. } => writer.addr(),
            Target::Mysql(server) => server.addr(),
        }
    }

    /// Runs statements at the writer, as root.
    pub(super) fn root_query(self, sql: &str) -> Result<Vec<Vec<String>>, TestkitError> {
        match self {
            Target::Galera { writer, .. } => writer.root_query(sql),
            Target::Mysql(server) => server.root_query(sql),
        }
    }

    /// Waits until the reader has all that was written.
    pub(super) fn wait_reader(self) -> Result<(), TestkitError> {
        let Target::Galera { reader, .. } = self else { return Ok(()) };
        let mut session = Session::open(reader.addr(), "test")?;
        session.run("SET SESSION wsrep_sync_wait = 1")?;
        session.run("SELECT 1 FROM information_schema.SCHEMATA LIMIT 1")?;
        Ok(())
    }

    /// Has every server write down what it is sent; returns name and file of each.
    pub(super) fn start_logs(self) -> Result<Vec<(String, PathBuf)>, TestkitError> {
        let set = |file: &PathBuf| {
            format!("SET GLOBAL general_log_file = '{}'; SET GLOBAL general_log = ON", file.display())
        };
        let node = |node: &Node| {
            let file = node.log_path().with_extension("general");
            node.root_query(&set(&file))?;
            Ok((node.name(), file))
        };
        match self {
            Target::Galera { writer, reader } => [writer, reader].into_iter().map(node).collect(),
            Target::Mysql(server) => {
                let file = server.log_path().with_extension("general");
                server.root_query(&set(&file))?;
                Ok(vec![(server.name(), file)])
            }
        }
    }

    /// Ends what [`Target::start_logs`] began.
    pub(super) fn stop_logs(self) -> Result<(), TestkitError> {
        if let Target::Galera { reader, .. } = self {
            reader.root_query("SET GLOBAL general_log = OFF")?;
        }
        self.root_query("SET GLOBAL general_log = OFF")?;
        Ok(())
    }
}
