//! Starts servers that are no Galera cluster, and a Weir whose way to their writer breaks.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};

use weir_testkit::{Family, Mysql, MysqlServer, OUTCOMES_TABLE, Weir, WeirConfig, hostgroup};
use weir_tests::{CaseResult, Cut, Env, Forwarder, ensure, eventually};

use super::Broken;
use crate::admin::Admin;
use crate::replication::{PATIENCE, id, weir_with, writer};

/// Where transactions are carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// MySQL Group Replication with one primary.
    Group,
    /// A source and its replica.
    Mysql,
    Mariadb,
}

impl Kind {
    /// The first server writes; `weir.outcomes` is there.
    pub(crate) fn start(self, env: &Env, cnf: &str) -> Result<Mysql, Box<dyn Error>> {
        let (family, servers) = match self {
            Self::Group => (Family::Mysql, 3),
            Self::Mysql => (Family::Mysql, 2),
            Self::Mariadb => (Family::Mariadb, 2),
        };
        let servers = env.own_servers_with(family, servers, self.is_group(), cnf)?;
        servers.source().root_query(OUTCOMES_TABLE)?;
        servers.wait_replicated()?;
        Ok(servers)
    }

    pub(crate) fn is_group(self) -> bool {
        self == Self::Group
    }

    /// Has a server refuse writes, or take them again.
    pub(crate) fn set_read_only(self, server: &MysqlServer, is_on: bool) -> CaseResult {
        let sql = match (self, is_on) {
            (Self::Mariadb, true) => "SET GLOBAL read_only = ON",
            (Self::Mariadb, false) => "SET GLOBAL read_only = OFF",
            (_, true) => "SET GLOBAL super_read_only = ON",
            (_, false) => "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF",
        };
        server.root_query(sql)?;
        Ok(())
    }

    /// The replica becomes the source, or the group chooses another primary.
    pub(crate) fn promote(self, servers: &Mysql) -> CaseResult {
        let sql = match self {
            Self::Group => return Ok(()),
            Self::Mysql => "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF",
            Self::Mariadb => "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = OFF",
        };
        servers.server(2).root_query(sql)?;
        Ok(())
    }
}

/// Gives the table t a row that has the same number wherever it is written.
pub(crate) fn insert(id: u32, word: &str) -> String {
    format!("INSERT INTO t (id, word) VALUES ({id}, '{word}')")
}

/// Waits until Weir knows what the servers' sessions begin with: a transaction of before that runs again on no other
/// connection.
pub(crate) fn wait_known(weir: &Weir, servers: &Mysql) -> CaseResult {
    eventually("Weir knows the servers' variables", PATIENCE, || {
        Ok(weir.log().matches("session variables have been read").count() >= servers.servers().len())
    })
}

/// A Weir whose way to the writer, which is the first server, breaks, and a schema of its own with the table t.
pub(crate) fn cutting(
    env: &Env,
    (kind, servers): (Kind, &Mysql),
    cut: Cut,
    (outcome, replay): (&str, &str),
    configure: impl FnOnce(&mut WeirConfig),
) -> Result<Broken, Box<dyn Error>> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let schema = format!("cut_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let table = "t (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(20))";
    servers.source().root_query(&format!("CREATE DATABASE {schema}; CREATE TABLE {schema}.{table}"))?;
    servers.wait_replicated()?;
    let way = SocketAddrV4::new(Ipv4Addr::LOCALHOST, env.free_address()?.port());
    let forwarder = Forwarder::start_with_cut(way, servers.source().addr(), cut)?;
    let admin = env.free_address()?;
    let weir = weir_with(env, servers, kind.is_group(), |config| {
        let rows = config.document_mut()["mysql_servers"].as_array_of_tables_mut();
        if let Some(first) = rows.and_then(|rows| rows.get_mut(0)) {
            first["hostname"] = toml_edit::value(way.ip().to_string());
            first["port"] = toml_edit::value(i64::from(way.port()));
        }
        let row = [
            ("hostgroup_id", hostgroup::WRITER.into()),
            ("transaction_replay", replay.into()),
            ("deadlock_retries", 5.into()),
            ("commit_outcome", outcome.into()),
        ];
        config.push("weir_hostgroups", &row);
        config.variable("monitor_read_only_interval", 100).variable("monitor_read_only_timeout", 300);
        config.admin(admin).variable("threads", 1);
        configure(config);
    })?;
    let first = id(servers, 1)?;
    eventually("the first server writes", PATIENCE, || Ok(writer(&weir)? == first))?;
    wait_known(&weir, servers)?;
    ensure!(forwarder.cuts() == 0, "the way was cut before");
    Ok((weir, forwarder, Admin::at(admin), schema))
}
