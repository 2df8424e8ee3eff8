//! Weirs in front of Oracle MySQL, and what their cases need.

use weir_testkit::{Account, TestkitError, Weir, WeirConfig};

use crate::Env;
use crate::narrow::{wait_ready, wait_variables};

/// The hostgroups of [`Env::mysql_weir`], as ProxySQL's users number them.
pub mod mysql_hostgroup {
    /// The source; the users' default.
    pub const WRITER: i64 = 10;
    /// The replica.
    pub const READER: i64 = 20;
}

impl Env {
    /// A Weir with one worker in front of MySQL that opens at most `connections_max` connections to each server. It
    /// returns when statements can run.
    pub fn mysql_weir(&self, connections_max: i64) -> Result<Weir, String> {
        self.mysql_weir_with(connections_max, |_| {})
    }

    /// As [`Env::mysql_weir`], with further changes to the configuration.
    pub fn mysql_weir_with(
        &self,
        connections_max: i64,
        change: impl FnOnce(&mut WeirConfig),
    ) -> Result<Weir, String> {
        let mysql = self.mysql()?;
        let mut config = WeirConfig::new(self.free_address()?);
        for (at, server) in mysql.servers().iter().enumerate() {
            let hostgroup = if at == 0 { mysql_hostgroup::WRITER } else { mysql_hostgroup::READER };
            config.server(server.addr(), hostgroup, &[("max_connections", connections_max.into())]);
        }
        for account in [Account::APP, Account::APP2, Account::LIMITED] {
            config.user(account, mysql_hostgroup::WRITER, &[]);
        }
        config.variable("server_version", mysql_version(self)?);
        config.variable("threads", 1);
        // Every connection stays open when it is idle, also the only one.
        config.variable("free_connections_pct", 100);
        change(&mut config);
        let weir = self.weir_with(&config)?;
        wait_ready(&weir).map_err(|error| format!("{error}\n{}", weir.log()))?;
        wait_variables(&weir, mysql.servers().len())?;
        Ok(weir)
    }

    /// Makes a schema for one case on MySQL, and returns its name when the replica has it, too.
    pub fn mysql_schema(&self) -> Result<String, String> {
        let name = format!("case_{}", self.next_number());
        let text = |error: TestkitError| error.to_string();
        let mysql = self.mysql()?;
        mysql.source().root_query(&format!("CREATE DATABASE {name}")).map_err(text)?;
        mysql.wait_replicated().map_err(text)?;
        Ok(name)
    }
}

/// What the servers call themselves.
fn mysql_version(env: &Env) -> Result<String, String> {
    let rows = env.mysql()?.source().root_query("SELECT VERSION()").map_err(|error| error.to_string())?;
    Ok(rows.into_iter().flatten().next().unwrap_or_default())
}
