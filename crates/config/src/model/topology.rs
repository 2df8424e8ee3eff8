//! Says the configuration in the words of those that go by it: the rules of topology, and the query rules.

use std::time::Duration;

use weir_routing::Options;
use weir_topology::{Choices, ClusterPolicy, Endpoint, Intent, Policy, ReplicationPolicy, Wish, WriterReads};

use crate::model::clusters::{ClusterHostgroup, ReplicationHostgroup, WriterIsAlsoReader};
use crate::model::config::Config;
use crate::model::mysql_variables::MysqlVariables;
use crate::model::servers::{MysqlServer, ServerStatus};

/// A probe this many times as late as it may be is no news any more.
const STALE_PROBES: u32 = 3;

impl Config {
    /// The rules by which roles are decided.
    pub fn policy(&self) -> Policy {
        let variables = &self.variables;
        let probes = [
            variables.monitor_galera_healthcheck_interval + variables.monitor_galera_healthcheck_timeout,
            variables.monitor_groupreplication_healthcheck_interval
                + variables.monitor_groupreplication_healthcheck_timeout,
            variables.monitor_read_only_interval + variables.monitor_read_only_timeout,
        ];
        let slowest = probes.into_iter().max().unwrap_or_default() + variables.monitor_connect_timeout;
        let defaults = Policy::default();
        let age_max_ms = millis(slowest * STALE_PROBES);
        let active = |rows: &[ClusterHostgroup], timeouts_max| -> Vec<ClusterPolicy> {
            let rows = rows.iter().filter(|row| row.active);
            rows.map(|row| cluster_policy(row, self.topology_of(row.writer_hostgroup).choices, timeouts_max))
                .collect()
        };
        let replication = |row: &ReplicationHostgroup| ReplicationPolicy {
            writer_hostgroup: row.writer_hostgroup,
            reader_hostgroup: row.reader_hostgroup,
            check: row.check_type,
            writer_reads: variables.monitor_writer_is_also_reader,
            lag_when_stopped_s: variables.monitor_slave_lag_when_null,
            timeouts_max: variables.monitor_read_only_max_timeout_count,
            failover_after_ms: self
                .topology_of(row.writer_hostgroup)
                .auto_failover
                .then(|| variables.failover_after_ms()),
        };
        Policy {
            galera: active(&self.galera_hostgroups, variables.monitor_galera_healthcheck_max_timeout_count),
            group_replication: active(
                &self.group_replication_hostgroups,
                variables.monitor_groupreplication_healthcheck_max_timeout_count,
            ),
            replication: self.replication_hostgroups.iter().map(replication).collect(),
            observation_age_max_ms: age_max_ms.max(defaults.observation_age_max_ms),
            ping_failures_max: variables.monitor_ping_max_failures,
            shun_on_failures: variables.failures_to_shun(),
            shun_recovery_ms: millis(variables.shun_recovery()),
            ..defaults
        }
    }

    /// The variables by which the rules are read.
    pub fn rule_options(&self) -> Options {
        Options {
            iterations: self.variables.query_processor_iterations,
            hint_order: self.variables.query_processor_first_comment_parsing,
        }
    }

    /// What the user wants of each server.
    pub fn intents(&self) -> Vec<Intent> {
        self.servers.iter().map(|server| intent(server, &self.variables)).collect()
    }
}

impl MysqlVariables {
    /// Failed connections within a second after which a server is shunned: as in ProxySQL never more than a statement's
    /// attempts.
    pub fn failures_to_shun(&self) -> u32 {
        self.shun_on_failures.min(self.connect_retries_on_failure.saturating_add(1)).max(1)
    }

    /// How long all conditions of a failover must hold before it begins: longer than another Weir with the same settings
    /// takes to find out that a server does not answer, and than that one may still send writes.
    fn failover_after_ms(&self) -> u64 {
        let pause = self.monitor_read_only_interval * 11 / 10;
        // A kept connection that turns out to be broken is replaced, and the question asked again.
        let look = self.monitor_connect_timeout + 2 * self.monitor_read_only_timeout;
        millis((pause + look) * self.monitor_read_only_max_timeout_count) + 2 * ReplicationPolicy::LEASE_MS
    }

    /// How long a shunned server rests: as in ProxySQL a second less than a statement waits, if it is not less anyway.
    fn shun_recovery(&self) -> Duration {
        let second = Duration::from_secs(1);
        let limit = self.connect_timeout_server_max.saturating_sub(second).max(second);
        self.shun_recovery_time_sec.min(limit)
    }
}

impl MysqlServer {
    /// Where the server is.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(&self.hostname, self.port)
    }
}

fn intent(server: &MysqlServer, variables: &MysqlVariables) -> Intent {
    Intent {
        endpoint: server.endpoint(),
        hostgroup: server.hostgroup_id,
        wish: match server.status {
            ServerStatus::Online => Wish::Online,
            ServerStatus::OfflineSoft => Wish::OfflineSoft,
            ServerStatus::OfflineHard => Wish::OfflineHard,
        },
        weight: server.weight,
        max_connections: server.max_connections,
        latency_max_us: 1000
            * match server.max_latency_ms {
                0 => millis(variables.default_max_latency_ms),
                limit_ms => u64::from(limit_ms),
            },
        lag_max_s: server.max_replication_lag,
    }
}

fn cluster_policy(row: &ClusterHostgroup, choices: Choices, timeouts_max: u32) -> ClusterPolicy {
    ClusterPolicy {
        writer_hostgroup: row.writer_hostgroup,
        backup_writer_hostgroup: row.backup_writer_hostgroup,
        reader_hostgroup: row.reader_hostgroup,
        offline_hostgroup: row.offline_hostgroup,
        max_writers: row.max_writers,
        writer_reads: match row.writer_is_also_reader {
            WriterIsAlsoReader::No => WriterReads::No,
            WriterIsAlsoReader::Yes => WriterReads::Yes,
            WriterIsAlsoReader::BackupWriters => WriterReads::OnlyBackups,
        },
        max_transactions_behind: row.max_transactions_behind,
        timeouts_max,
        choices,
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
