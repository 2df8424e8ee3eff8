//! Lists the rows of the report: what is measured, how it is set up, and what is hoped for.

use std::fmt;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::measure::{Goal, Metric};

/// One row, or group of rows, of the report. Each can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Row {
    /// oltp_point_select, text protocol
    PointSelect,
    /// oltp_point_select, prepared statements
    Prepared,
    /// oltp_read_only, text protocol
    ReadOnly,
    /// oltp_read_write, text protocol
    ReadWrite,
    /// oltp_point_select, clients use TLS
    Tls,
    /// oltp_point_select through the entry point for one server that writes
    Primary,
    /// oltp_point_select through the entry point for servers that read
    Replicas,
    /// A new connection for every statement
    Reconnect,
    /// Memory of clients that are logged in and idle
    IdleMemory,
    /// CPU time of clients that are logged in and idle
    IdleCpu,
    /// Many clients, few server connections, some of the clients active
    Crowd,
    /// One large result
    BigResult,
    /// One large LOAD DATA LOCAL INFILE
    LocalInfile,
    /// Calls of the allocator per statement in the steady state
    Allocations,
    /// Start, memory and speed with a very large configuration
    Scale,
    /// Point selects while somebody looks at statistics, and with the events log
    Watched,
}

/// How sysbench measures a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// One of sysbench's own workloads, or of the scripts that come with Weir.
    pub(crate) workload: Workload,
    /// Further arguments.
    pub(crate) extra: &'static [&'static str],
    /// Which servers stand behind the proxies.
    pub(crate) layout: Layout,
    /// Whether clients use TLS.
    pub(crate) tls: bool,
}

/// What sysbench runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// Installed with sysbench.
    Own(&'static str),
    /// Connect, one point select, disconnect.
    Reconnect,
}

/// Which servers stand behind the proxies, and how Weir sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The first node alone, everywhere.
    OneNode,
    /// Weir splits reads and writes over all nodes; the others use the first node.
    Split,
    /// Weir's listener with mode = "primary"; HAProxy with the other nodes as backups.
    Primary,
    /// Weir's listener with mode = "replicas"; HAProxy's turns between the second and the third node.
    Replicas,
    /// The first node with so many connections at most.
    Narrow(u32),
}

impl Row {
    /// All rows, in the order of the report.
    pub(crate) fn all() -> &'static [Row] {
        Row::value_variants()
    }

    /// As `--only` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Row::PointSelect => "point-select",
            Row::Prepared => "prepared",
            Row::ReadOnly => "read-only",
            Row::ReadWrite => "read-write",
            Row::Tls => "tls",
            Row::Primary => "primary",
            Row::Replicas => "replicas",
            Row::Reconnect => "reconnect",
            Row::IdleMemory => "idle-memory",
            Row::IdleCpu => "idle-cpu",
            Row::Crowd => "crowd",
            Row::BigResult => "big-result",
            Row::LocalInfile => "local-infile",
            Row::Allocations => "allocations",
            Row::Scale => "scale",
            Row::Watched => "watched",
        }
    }

    /// For headings, and what has to be known about the comparison.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Row::PointSelect => "oltp_point_select, text protocol",
            Row::Prepared => "oltp_point_select, prepared statements",
            Row::ReadOnly => "oltp_read_only, text protocol",
            Row::ReadWrite => "oltp_read_write, text protocol",
            Row::Tls => {
                "oltp_point_select with TLS: it ends in Weir and in ProxySQL, behind HAProxy (which can't read MySQL's \
                 handshake) in the server"
            }
            Row::Primary => "oltp_point_select, entry point for the writer",
            Row::Replicas => "oltp_point_select, entry point for readers",
            Row::Reconnect => "a new connection for every point select",
            Row::IdleMemory => "memory of idle clients, each after one statement",
            Row::IdleCpu => "CPU time of idle clients",
            Row::Crowd => {
                "many clients over few server connections, some active (HAProxy needs a server connection for each)"
            }
            Row::BigResult => "one large result, rows of 1 kB",
            Row::LocalInfile => "one large LOAD DATA LOCAL INFILE, all lines skipped by the server",
            Row::Allocations => "calls of the allocator per statement in the steady state",
            Row::Scale => "a very large configuration, point selects that match its first rule",
            Row::Watched => "somebody looks: dashboards that read statistics, and the events log",
        }
    }

    /// How sysbench measures it; `None` if it does not.
    pub(crate) fn load(self) -> Option<Load> {
        let own =
            |name| Load { workload: Workload::Own(name), extra: &[], layout: Layout::OneNode, tls: false };
        let point_select = own("oltp_point_select");
        match self {
            Row::PointSelect => Some(point_select),
            Row::Prepared => Some(Load { extra: &["--db-ps-mode=auto"], ..point_select }),
            Row::ReadOnly => Some(own("oltp_read_only")),
            Row::ReadWrite => Some(own("oltp_read_write")),
            Row::Tls => Some(Load { extra: &["--mysql-ssl=on"], tls: true, ..point_select }),
            Row::Primary => Some(Load { layout: Layout::Primary, ..point_select }),
            Row::Replicas => Some(Load { layout: Layout::Replicas, ..point_select }),
            Row::Reconnect => Some(Load { workload: Workload::Reconnect, ..point_select }),
            Row::IdleMemory
            | Row::IdleCpu
            | Row::Crowd
            | Row::BigResult
            | Row::LocalInfile
            | Row::Allocations
            | Row::Scale
            | Row::Watched => None,
        }
    }

    /// Whether the bare relay is measured, too: where statements in clear are forwarded and nothing else is to be seen.
    pub(crate) fn has_relay(self) -> bool {
        matches!(self, Row::PointSelect | Row::ReadOnly | Row::ReadWrite | Row::Primary | Row::Replicas)
    }

    /// sysbench's connections if the command line names none.
    pub(crate) fn threads(self) -> &'static [u32] {
        match self {
            Row::Tls => &[64],
            Row::Reconnect => &[16, 64],
            _ => &[16, 64, 256],
        }
    }

    /// What is hoped for with so many connections.
    pub(crate) fn goals(self, threads: u32) -> Vec<Goal> {
        let cpu = |bound| Goal::ratio_at_most(Metric::CpuUsPerStatement, bound);
        let speed = |bound| Goal::ratio_at_least(Metric::StatementsPerS, bound);
        match self {
            Row::PointSelect => match threads {
                16 => vec![cpu(1.0), speed(1.0)],
                64 => vec![cpu(0.85), speed(1.0)],
                256 => vec![cpu(0.80), speed(1.0)],
                _ => Vec::new(),
            },
            Row::Prepared | Row::ReadOnly | Row::ReadWrite => vec![cpu(1.0)],
            Row::Primary | Row::Replicas => vec![cpu(0.85)],
            Row::Reconnect => vec![speed(1.3), Goal::at_most(Metric::ServerConnections, 0.0)],
            Row::Crowd => vec![Goal::at_most(Metric::Errors, 0.0)],
            Row::BigResult | Row::LocalInfile => vec![
                Goal::ratio_at_most(Metric::CpuMsPerGib, 1.2),
                Goal::at_most(Metric::PeakGrowthMib, FLAT_MIB),
            ],
            Row::IdleCpu => vec![Goal::at_most(Metric::IdleCpuMsPerS, IDLE_CPU_MS_PER_S)],
            Row::Allocations => vec![Goal::at_most(Metric::AllocationsPerStatement, 0.0)],
            Row::Tls | Row::IdleMemory | Row::Scale | Row::Watched => Vec::new(),
        }
    }
}

/// What counts as flat: buffers of a connection at each end, not the gigabyte, MiB.
const FLAT_MIB: f64 = 4.0;
/// What counts as no measurable CPU time; all clients together, ms per second.
const IDLE_CPU_MS_PER_S: f64 = 1.0;

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for row in Row::all() {
            assert_eq!(Row::from_str(row.name(), false), Ok(*row));
        }
    }

    #[test]
    fn the_relay_is_measured_where_it_can_be_compared() {
        let rows: Vec<Row> = Row::all().iter().copied().filter(|row| row.has_relay()).collect();
        assert_eq!(rows, [Row::PointSelect, Row::ReadOnly, Row::ReadWrite, Row::Primary, Row::Replicas]);
        assert!(rows.iter().all(|row| row.load().is_some_and(|load| !load.tls)));
    }

    #[test]
    fn the_more_clients_the_more_is_hoped_for() {
        let bound = |threads| Row::PointSelect.goals(threads)[0].text("HAProxy");
        assert!(bound(16).contains("<= 1.00"));
        assert!(bound(64).contains("<= 0.85"));
        assert!(bound(256).contains("<= 0.80"));
        assert!(Row::PointSelect.goals(7).is_empty());
    }
}
