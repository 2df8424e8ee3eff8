//! Counts of a worker's dealings with each server, and what a session is to the statistics.

use std::rc::Rc;

use weir_session::state::State;

use crate::stats::{CallerId, Histogram};

/// A session's number in the statistics, with the schema for which it holds.
#[derive(Debug)]
pub(crate) struct KnownCaller {
    pub(crate) state: Rc<State>,
    pub(crate) id: CallerId,
}

/// Hostgroups of one server that are counted apart. Only many reloads can bring more: those count for the first.
const HOSTGROUPS_MAX: usize = 64;

/// This worker's dealings with a server, by the hostgroup for which it was used.
#[derive(Debug, Default)]
pub(crate) struct PoolCounts(Vec<ServerCounts>);

/// This worker's dealings with a server for one hostgroup.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerCounts {
    pub hostgroup: u32,
    pub opened: u64,
    pub failed: u64,
    pub open_max: u32,
    pub queries: u64,
    pub gtid_queries: u64,
    pub bytes_sent: u64,
    pub bytes_received: u64,
    pub latency: Histogram,
    pub latency_sum_us: u64,
}

impl PoolCounts {
    /// Those of a hostgroup, which begin with the first call.
    pub(crate) fn of(&mut self, hostgroup: u32) -> &mut ServerCounts {
        let known = self.0.iter().position(|counts| counts.hostgroup == hostgroup);
        let at = known.unwrap_or_else(|| {
            if self.0.len() >= HOSTGROUPS_MAX {
                return 0;
            }
            self.0.push(ServerCounts { hostgroup, ..ServerCounts::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &ServerCounts> {
        self.0.iter()
    }

    /// Everything begins again.
    pub(crate) fn begin_again(&mut self) {
        for counts in &mut self.0 {
            *counts = ServerCounts { hostgroup: counts.hostgroup, ..ServerCounts::default() };
        }
    }
}
