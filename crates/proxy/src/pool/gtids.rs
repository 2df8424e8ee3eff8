//! Asks whether a server has executed the transaction that a statement names (`min_gtid`), and who may have it soon.
//!
//! What servers have executed the monitor finds out ([`weir_topology::ExecutedGtids`]). Those who wait for it are parked like
//! all that find no server; they look again as soon as there is more.

use weir_topology::Unchecked;

use crate::keys::{Nanos, ServerIndex};
use crate::plan::requirements::{GroupFacts, Requirements};
use crate::pool::pools::{Pool, Pools};

/// So long a statement waits for a reader to have its transaction, before it may go to the writer: what was written a moment
/// ago is read from readers all the same.
pub(crate) const READERS_WAIT_NS: Nanos = 10_000_000;

impl Pool {
    /// Whether the server is not known to have the transaction that a statement names. Where checks of causality tell, it is
    /// a matter of [`Pool::must_cover`].
    pub(crate) fn lacks_gtid(&self, wanted: &Requirements) -> bool {
        let gtids = &self.server.shared.gtids;
        wanted.min_gtid().is_some_and(|gtid| !gtids.is_told_by_checks() && !gtids.has(gtid))
    }

    /// The moment that the server, which is `at` this place, has to cover for a statement; none if it need not.
    pub(crate) fn must_cover(
        &self,
        wanted: &Requirements,
        at: ServerIndex,
        group: GroupFacts,
    ) -> Option<Nanos> {
        self.or_acknowledged(wanted, wanted.must_cover(at, self.as_known(group)))
    }

    /// The same over a connection that was opened at this moment.
    pub(crate) fn must_cover_over(
        &self,
        wanted: &Requirements,
        at: ServerIndex,
        opened_at: Nanos,
        group: GroupFacts,
    ) -> Option<Nanos> {
        self.or_acknowledged(wanted, wanted.must_cover_over(at, opened_at, self.as_known(group)))
    }

    /// What is known of a hostgroup by now: writes on their way to the writer before were acknowledged later.
    fn as_known(&self, group: GroupFacts) -> GroupFacts {
        let shared = &self.server.shared;
        let since = group.sole_writer_since.map(|since| since.max(shared.parted_write_ns()));
        let is_uncheckable = shared.coverage.unchecked().is_some_and(Unchecked::is_lasting);
        GroupFacts { sole_writer_since: since, is_uncheckable, ..group }
    }

    fn or_acknowledged(&self, wanted: &Requirements, moment: Option<Nanos>) -> Option<Nanos> {
        match wanted.gtid_acknowledged_by() {
            0 => moment,
            acknowledged if self.server.shared.gtids.is_told_by_checks() => moment.max(Some(acknowledged)),
            _ => moment,
        }
    }

    /// Why a server that lacks a statement's transaction gets no such statement, for people.
    pub(crate) fn why_no_gtid(&self, wanted: &Requirements) -> Option<String> {
        let gtid = wanted.min_gtid().filter(|_| self.lacks_gtid(wanted))?;
        let endpoint = &self.server.endpoint;
        Some(match self.server.shared.gtids.why_unknown() {
            Some(why) => format!("{endpoint}: {} (min_gtid={gtid})", why.as_str()),
            None => format!("{endpoint}: has not executed min_gtid={gtid}"),
        })
    }
}

impl Pools {
    /// A statement waits for servers of these hostgroups to have its transaction.
    pub(crate) fn want_gtid(&mut self, worker: usize, wanted: &Requirements, groups: [Option<u32>; 2]) {
        if wanted.min_gtid().is_none() {
            return;
        }
        self.awaits_gtid = true;
        for group in groups.into_iter().flatten().filter_map(|id| self.groups.get(&id)) {
            for member in &group.members {
                let pool = &self.servers[member.server];
                if pool.lacks_gtid(wanted) {
                    pool.server.shared.gtids.want(worker);
                }
            }
        }
    }

    /// Whether no reader of a hostgroup has the statement's transaction, and one that could have it soon takes statements.
    pub(crate) fn may_have_gtid_soon(&self, now: Nanos, wanted: &Requirements, readers: u32) -> bool {
        let Some(group) = self.groups.get(&readers).filter(|_| wanted.min_gtid().is_some()) else {
            return false;
        };
        let members = group.members.iter().map(|member| (member, &self.servers[member.server]));
        let mut serving =
            members.filter(|(member, pool)| pool.takes_statements(now, wanted, member, false)).peekable();
        serving.peek().is_some() && serving.all(|(_, pool)| pool.lacks_gtid(wanted))
    }
}
