//! Names the figures of a visit, and what is hoped for.

use std::collections::BTreeMap;

use serde::Serialize;

/// A figure of a visit. The order is that of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The load generator's own count over its own time.
    StatementsPerS,
    /// User and system time of the proxy's process, all threads, over the statements, µs.
    CpuUsPerStatement,
    /// The same of the proxy and the servers together: what TLS costs wherever it ends.
    AllCpuUsPerStatement,
    /// Median latency, ms.
    P50Ms,
    /// 99th percentile of the latency, ms: of a statement, or of sysbench's whole transaction.
    P99Ms,
    /// Transactions that sysbench had to repeat after deadlocks and the like.
    Repeated,
    /// Connections that were opened to the servers during the visit.
    ServerConnections,
    /// Growth of the proxy's resident memory over the number of clients, KiB.
    KibPerClient,
    /// CPU time of the proxy while nobody asks for anything, less that of one without clients, ms per second.
    IdleCpuMsPerS,
    /// Bytes that passed over the time it took, MiB/s.
    MibPerS,
    /// The proxy's CPU time for each GiB that passed, ms.
    CpuMsPerGib,
    /// The most that the proxy's resident memory grew during the visit, MiB.
    PeakGrowthMib,
    /// Statements that were answered by an error, and connections that were lost.
    Errors,
    /// Calls of the allocator.
    AllocationsPerStatement,
    /// From the start of the process to where it takes clients, ms.
    StartMs,
    /// The proxy's resident memory, MiB.
    MemoryMib,
    /// What it grew while statements of many digests ran, MiB.
    DigestsMib,
    /// The same for each of them, bytes.
    BytesPerDigest,
    /// Statements per second while each has a digest that was never seen before.
    NewDigestsPerS,
    /// All digests read at the admin port, ms.
    DigestsReadMs,
    /// The slowest answer of /metrics meanwhile, ms.
    ScrapeMsMax,
    /// The slowest answer of another admin connection meanwhile, ms.
    AdminMsMax,
    /// All digests read, which begin again, ms.
    DigestsResetMs,
    /// From sending LOAD MYSQL QUERY RULES TO RUNTIME to where all connections with traffic go by the new rule, ms.
    LoadSeenMs,
    /// From sending it to its answer, ms.
    LoadAnsweredMs,
    /// Statements per second, divided by those of a proxy with an ordinary configuration in the same round, or one at
    /// which nobody looks.
    SpeedToUsual,
    /// CPU time of the threads that serve clients over the statements, µs.
    WorkerCpuUsPerStatement,
    /// The same, divided by that of a proxy at which nobody looks.
    WorkerCpuToUsual,
    /// Tables of statistics and pages of metrics read.
    LooksPerS,
}

impl Metric {
    /// The column's heading.
    pub fn heading(self) -> &'static str {
        match self {
            Metric::StatementsPerS => "statements/s",
            Metric::CpuUsPerStatement => "CPU us/statement",
            Metric::AllCpuUsPerStatement => "with servers' CPU us",
            Metric::P50Ms => "p50 ms",
            Metric::P99Ms => "p99 ms",
            Metric::Repeated => "repeated",
            Metric::ServerConnections => "connections opened",
            Metric::KibPerClient => "KiB/client",
            Metric::IdleCpuMsPerS => "CPU ms/s",
            Metric::MibPerS => "MiB/s",
            Metric::CpuMsPerGib => "CPU ms/GiB",
            Metric::PeakGrowthMib => "memory growth MiB",
            Metric::Errors => "errors",
            Metric::AllocationsPerStatement => "allocations/statement",
            Metric::StartMs => "start ms",
            Metric::MemoryMib => "memory MiB",
            Metric::DigestsMib => "for digests MiB",
            Metric::BytesPerDigest => "bytes/digest",
            Metric::NewDigestsPerS => "new digests/s",
            Metric::DigestsReadMs => "digests read ms",
            Metric::ScrapeMsMax => "meanwhile /metrics ms",
            Metric::AdminMsMax => "meanwhile admin ms",
            Metric::DigestsResetMs => "digests reset ms",
            Metric::LoadSeenMs => "LOAD seen ms",
            Metric::LoadAnsweredMs => "LOAD answered ms",
            Metric::SpeedToUsual => "speed : usual",
            Metric::WorkerCpuUsPerStatement => "workers' CPU us",
            Metric::WorkerCpuToUsual => "workers' CPU : usual",
            Metric::LooksPerS => "looks/s",
        }
    }

    /// Decimals that are worth showing.
    pub fn decimals(self) -> usize {
        match self {
            Metric::CpuUsPerStatement | Metric::AllCpuUsPerStatement | Metric::PeakGrowthMib => 1,
            Metric::MemoryMib | Metric::DigestsMib => 1,
            Metric::LoadSeenMs | Metric::LoadAnsweredMs | Metric::WorkerCpuUsPerStatement => 1,
            Metric::P50Ms
            | Metric::P99Ms
            | Metric::KibPerClient
            | Metric::IdleCpuMsPerS
            | Metric::SpeedToUsual
            | Metric::WorkerCpuToUsual => 2,
            Metric::StatementsPerS
            | Metric::Repeated
            | Metric::ServerConnections
            | Metric::MibPerS
            | Metric::CpuMsPerGib
            | Metric::Errors
            | Metric::StartMs
            | Metric::BytesPerDigest
            | Metric::NewDigestsPerS
            | Metric::DigestsReadMs
            | Metric::ScrapeMsMax
            | Metric::AdminMsMax
            | Metric::DigestsResetMs
            | Metric::LooksPerS
            | Metric::AllocationsPerStatement => 0,
        }
    }

    /// Whether the ratio to the baseline's has a column of its own.
    pub fn has_ratio(self) -> bool {
        matches!(
            self,
            Metric::StatementsPerS
                | Metric::CpuUsPerStatement
                | Metric::AllCpuUsPerStatement
                | Metric::P99Ms
                | Metric::MibPerS
                | Metric::CpuMsPerGib
        )
    }
}

/// The figures of one visit.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Sample(BTreeMap<Metric, f64>);

impl Sample {
    /// The same with one figure more.
    #[must_use]
    pub fn with(mut self, metric: Metric, value: f64) -> Sample {
        self.0.insert(metric, value);
        self
    }

    /// The same with one figure more if there is one.
    #[must_use]
    pub fn with_some(self, metric: Metric, value: Option<f64>) -> Sample {
        match value {
            Some(value) => self.with(metric, value),
            None => self,
        }
    }

    /// The same with all figures of another.
    #[must_use]
    pub fn and(mut self, other: &Sample) -> Sample {
        self.0.extend(&other.0);
        self
    }

    /// A figure, if it was measured.
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.0.get(&metric).copied()
    }

    /// What was measured, in the order of the columns.
    pub fn metrics(&self) -> impl Iterator<Item = Metric> {
        self.0.keys().copied()
    }

    /// For the progress line: "9000 statements/s, 12.3 CPU us/statement".
    pub fn line(&self) -> String {
        let figure = |(metric, value): (&Metric, &f64)| {
            format!("{value:.decimals$} {}", metric.heading(), decimals = metric.decimals())
        };
        self.0.iter().map(figure).collect::<Vec<_>>().join(", ")
    }
}

/// A bound for the median of a peer's figures, or of their ratio to the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Goal {
    /// Of what.
    pub metric: Metric,
    /// Whether the bound is for the ratio to the baseline's figure of the same round.
    pub is_ratio: bool,
    /// How much.
    pub bound: Bound,
}

/// One end of what is good.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Goal {
    /// At most so many times the baseline's figure.
    pub fn ratio_at_most(metric: Metric, bound: f64) -> Goal {
        Goal { metric, is_ratio: true, bound: Bound::AtMost(bound) }
    }

    /// At least so many times the baseline's figure.
    pub fn ratio_at_least(metric: Metric, bound: f64) -> Goal {
        Goal { metric, is_ratio: true, bound: Bound::AtLeast(bound) }
    }

    /// At least so much.
    pub fn at_least(metric: Metric, bound: f64) -> Goal {
        Goal { metric, is_ratio: false, bound: Bound::AtLeast(bound) }
    }

    /// At most so much.
    pub fn at_most(metric: Metric, bound: f64) -> Goal {
        Goal { metric, is_ratio: false, bound: Bound::AtMost(bound) }
    }

    /// Whether a figure reaches it.
    pub fn is_met_by(self, value: f64) -> bool {
        match self.bound {
            Bound::AtMost(bound) => value <= bound,
            Bound::AtLeast(bound) => value >= bound,
        }
    }

    /// As in "CPU us/statement <= 0.85 x HAProxy's"; `baseline` is the baseline's title.
    pub fn text(self, baseline: &str) -> String {
        let (sign, bound) = match self.bound {
            Bound::AtMost(bound) => ("<=", bound),
            Bound::AtLeast(bound) => (">=", bound),
        };
        let of = if self.is_ratio { format!(" x {baseline}'s") } else { String::new() };
        let bound = if self.is_ratio { format!("{bound:.2}") } else { bound.to_string() };
        format!("{} {sign} {bound}{of}", self.metric.heading())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_say_what_they_want_and_judge_by_it() {
        let goal = Goal::ratio_at_most(Metric::CpuUsPerStatement, 0.85);
        assert_eq!(goal.text("HAProxy"), "CPU us/statement <= 0.85 x HAProxy's");
        assert!(goal.is_met_by(0.85) && !goal.is_met_by(0.86));
        let goal = Goal::ratio_at_least(Metric::StatementsPerS, 1.3);
        assert!(goal.is_met_by(1.31) && !goal.is_met_by(1.2));
        assert_eq!(Goal::at_most(Metric::KibPerClient, 4.0).text("HAProxy"), "KiB/client <= 4");
    }

    #[test]
    fn a_progress_line_has_the_figures_in_the_order_of_the_columns() {
        let sample = Sample::default().with(Metric::P99Ms, 1.234).with(Metric::StatementsPerS, 9000.4);
        assert_eq!(sample.line(), "9000 statements/s, 1.23 p99 ms");
        assert_eq!(sample.value(Metric::Errors), None);
    }
}
