//! Forms a Group Replication group with a single primary.

use std::fmt::Write as _;
use std::time::Duration;

use super::server::{MysqlServer, ServerConfig};
use super::{Mysql, REPLICATION};
use crate::process::poll_until;
use crate::{Account, TestkitError};

/// Any UUID, the same for all members.
pub(super) const GROUP_NAME: &str = "7d6b3c1a-5a0e-4f0e-9c58-2f1a6f0c9d01";
/// Members talk to each other on 127.0.0.1, the only loopback address that is one of an interface, as the server wants.
/// The port follows from the server's own address.
const FIRST_PORT: u32 = 20_000;
const PORTS: u32 = 10_000;
/// The longest a member may take to join, on a machine that is very busy.
const JOIN_TIMEOUT: Duration = Duration::from_secs(180);

/// Adds what makes servers members of one group.
pub(super) fn configure(configs: &mut [ServerConfig]) {
    let address =
        |config: &ServerConfig| format!("127.0.0.1:{}", FIRST_PORT + config.address.ip().to_bits() % PORTS);
    let seeds: Vec<String> = configs.iter().map(address).collect();
    let seeds = seeds.join(",");
    for config in configs {
        let own = address(config);
        // Members log in at each other without TLS, which releases before 9.7 do not by themselves.
        // A killed member is expelled 5 s after the last sign of life instead of 10. Before the user's lines, which win.
        let mut lines = format!(
            "\
performance-schema=ON
plugin-load-add=group_replication.so
loose-group-replication-group-name={GROUP_NAME}
loose-group-replication-local-address={own}
loose-group-replication-group-seeds={seeds}
loose-group-replication-start-on-boot=OFF
loose-group-replication-member-expel-timeout=0
loose-group-replication-recovery-reconnect-interval=1
loose-group-replication-recovery-get-public-key=ON
"
        );
        let _ = write!(lines, "{}", config.extra_cnf);
        config.extra_cnf = lines;
    }
}

impl Mysql {
    pub(super) fn set_up_group(&self) -> Result<(), TestkitError> {
        let Account { user, password } = REPLICATION;
        for server in &self.servers {
            server.root_query(&format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_USER = '{user}', SOURCE_PASSWORD = '{password}' \
                 FOR CHANNEL 'group_replication_recovery'"
            ))?;
        }
        let Account { user, .. } = Account::MONITOR;
        self.source().root_query(&format!(
            "SET GLOBAL group_replication_bootstrap_group = ON; START GROUP_REPLICATION; \
             SET GLOBAL group_replication_bootstrap_group = OFF; \
             GRANT SELECT ON performance_schema.replication_group_members TO {user}@'%'; \
             GRANT SELECT ON performance_schema.replication_group_member_stats TO {user}@'%'"
        ))?;
        self.servers.iter().skip(1).try_for_each(MysqlServer::join_group)
    }
}

impl MysqlServer {
    /// Joins the group, also after a restart, and waits until it is an ONLINE member.
    pub fn join_group(&self) -> Result<(), TestkitError> {
        // It catches up first, with what may be minutes of writes.
        self.root_query_within("START GROUP_REPLICATION", JOIN_TIMEOUT)?;
        let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
                     WHERE MEMBER_ID = @@GLOBAL.server_uuid";
        let joined =
            poll_until(JOIN_TIMEOUT, || self.root_query(state).is_ok_and(|rows| rows == [["ONLINE"]]));
        joined.map_err(|timeout_s| TestkitError::Timeout {
            what: format!("{} in its group", self.name()),
            timeout_s,
            details: String::new(),
        })
    }
}
