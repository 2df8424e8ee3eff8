//! Gathers the data of `weir top` in the running Weir.

use std::collections::BTreeMap;

use weir_proxy::stats::{DigestSum, ReadCounts, ReportPart, SessionRow};
use weir_top::{Cluster, Digest, Reads, Server, Session, TopData};

use crate::statistics::Statistics;
use crate::stats_collector::clock;
use crate::status::{ClusterStatus, ServerStatus};
use crate::top_sessions::first_sessions;
use crate::worker_sums::{pool_sums, read_sums, total_sums};

/// Rows of the digests that ran lately, and of those that took longest in all.
const DIGESTS_MAX: usize = 200;
/// What ran in so many seconds ran lately.
const LATELY_S: u64 = 10;
/// Sessions that are told.
const SESSIONS_MAX: usize = 500;
/// So much of a text is told.
const TEXT_BYTES_MAX: usize = 400;

impl Statistics {
    /// Everything that `weir top` shows, of now.
    pub fn top_data(&self) -> TopData {
        let totals = total_sums(&self.collector.report(ReportPart::Totals));
        let status = self.status();
        let workers = self.collector.report(ReportPart::Servers);
        let pools = pool_sums(&workers);
        let coverage = |server: &str| {
            workers.first().and_then(|worker| worker.coverage.iter().find(|row| row.endpoint == server))
        };
        let reads = read_sums(&workers);
        let server = |row: &ServerStatus| {
            let coverage = coverage(&row.server);
            let pool = pools.get(&(row.hostgroup, row.server.clone()));
            Server {
                hostgroup: row.hostgroup,
                server: row.server.clone(),
                role: row.role.clone(),
                status: row.status.clone(),
                reason: if row.is_drained { "drained".to_owned() } else { row.reason.clone() },
                used: pool.map_or(0, |pool| pool.used),
                free: pool.map_or(0, |pool| pool.free),
                queries: pool.map_or(0, |pool| pool.latency.count()),
                sum_us: pool.map_or(0, |pool| pool.latency_sum_us),
                p95_us: pool.map_or(0, |pool| pool.latency.quantile_us(0.95)),
                lag_us: coverage.and_then(|row| row.age_ns).map(|age_ns| age_ns / 1000),
                unchecked: coverage.and_then(|row| row.unchecked).map_or("", |why| why.as_str()).to_owned(),
            }
        };
        let digests = self.collector.digests(|sums| {
            let mut rows = sums.hottest(clock().unix_s.saturating_sub(LATELY_S), DIGESTS_MAX);
            for row in sums.hottest(0, DIGESTS_MAX) {
                if !rows.iter().any(|known| is_same(known, &row)) {
                    rows.push(row);
                }
            }
            rows.iter().map(digest).collect()
        });
        let sessions = self.collector.sessions();
        TopData {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            at_ms: u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            clients: totals.clients_now,
            busy: totals.busy_now,
            transactions: totals.transactions_now,
            server_connections: totals.server_connections_now,
            questions: totals.questions,
            clusters: status.clusters.iter().map(|row| cluster(row, &reads)).collect(),
            servers: status.servers.iter().map(server).collect(),
            digests,
            sessions: first_sessions(&sessions, SESSIONS_MAX).into_iter().map(session).collect(),
        }
    }
}

fn cluster(cluster: &ClusterStatus, reads: &BTreeMap<u32, ReadCounts>) -> Cluster {
    Cluster {
        writer_hostgroup: cluster.writer_hostgroup,
        writers: cluster.writers.clone(),
        trouble: (!cluster.takes_writes()).then(|| cluster.why_no_writer()),
        reads: reads.get(&cluster.writer_hostgroup).map(|counts| Reads {
            at_once: counts.at_once,
            waited: counts.waited,
            on_writer: counts.on_writer,
            timed_out: counts.timed_out,
            wait_p50_us: counts.waits.quantile_us(0.5),
        }),
    }
}

fn is_same(one: &DigestSum<'_>, other: &DigestSum<'_>) -> bool {
    (one.digest, one.hostgroup, one.caller) == (other.digest, other.hostgroup, other.caller)
}

fn digest(row: &DigestSum<'_>) -> Digest {
    Digest {
        digest: format!("0x{:016X}", row.digest),
        hostgroup: row.hostgroup,
        username: text(&row.caller.username),
        schemaname: text(&row.caller.schemaname),
        client_address: row.caller.client_address.to_string(),
        count: row.count,
        sum_us: row.sum_us,
        p95_us: row.quantile_us(0.95),
        text: text(row.text),
    }
}

fn session(row: &SessionRow) -> Session {
    Session {
        id: row.id,
        username: row.username.clone().unwrap_or_default(),
        client: row.peer.ip().map_or_else(|| "localhost".to_owned(), |ip| ip.to_string()),
        hostgroup: row.hostgroup,
        server: row.server.clone(),
        command: row.command.to_owned(),
        is_busy: row.phase != "idle" && row.phase != "login",
        since_ms: row.since_ns / 1_000_000,
        pins: row.pins.clone(),
        text: text(&row.text),
    }
}

/// The beginning of what a client has sent.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_BYTES_MAX)]).into_owned()
}
