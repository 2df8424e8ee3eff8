//! Takes a server out of service and in again (`weir drain`, `weir undrain`): if it is the writer, its role leaves first.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weir_config::ServerStatus;
use weir_topology::{DrainRow, Endpoint, Flavour, Group, InstanceId, Reason};

use crate::error::{DrainError, SwitchoverError};
use crate::operation_runner::OperationRunner;
use crate::peer_agreement::another_switchover;
use crate::progress::Progress;
use crate::switchover::SwitchoverOrder;

/// How long it may take until the other Weirs can read that a server leaves.
const TOLD_WAIT: Duration = Duration::from_secs(5);

/// How often the removal of rows is asked for, until they are gone.
const RELEASE_EVERY: Duration = Duration::from_secs(1);
/// How long a cluster may take that is to have a writer again.
const WRITER_WAIT: Duration = Duration::from_secs(3);

/// Another Weir that wants a server out.
struct Opponent {
    hostgroup: u32,
    instance: InstanceId,
    /// It has been heard of lately.
    is_live: bool,
}

/// How a server stops being a cluster's writer whose role a switchover has not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Another one writes.
    Already,
    /// Another one can write, and does as soon as this one is drained.
    ByDrain,
    Never,
}

impl OperationRunner {
    /// Takes a server out. When this returns, all workers go by it. The role of a writer moves first, while statements
    /// wait.
    ///
    /// # Errors
    /// Why it was not; then everything is as before.
    pub(crate) fn drain_server(
        &self,
        endpoint: &Endpoint,
        progress: &Progress,
    ) -> Result<String, DrainError> {
        self.is_configured(endpoint)?;
        let is_new = !self.context.drained.all().contains(endpoint);
        let written = self.with_writer(endpoint);
        if is_new {
            self.is_no_target(endpoint)?;
            self.move_writer_role(endpoint, progress)?;
        }
        let done = self.set_drained(endpoint, true, "drained: it gets no new work")?;
        self.tell_others(endpoint, progress);
        if is_new {
            // Announced just now, by a Weir that could not know yet.
            if let Err(cause) = self.is_no_target(endpoint) {
                self.set_drained(endpoint, false, "not drained: it is about to be the writer")?;
                return Err(cause);
            }
            self.keep_a_writer(endpoint, &written)?;
            // Those that a switchover which was given up has left there, or brought back.
            self.context.proxy.move_writers(endpoint);
        }
        Ok(done)
    }

    /// Whether no other Weir is about to make the server the writer.
    fn is_no_target(&self, endpoint: &Endpoint) -> Result<(), DrainError> {
        let roles = self.context.roles.latest();
        for group in &roles.groups {
            if let Some(cause) = another_switchover(group, &self.context.instance)
                && matches!(&cause, SwitchoverError::AnotherSwitchover { to, .. } if to == endpoint)
            {
                return Err(DrainError::BecomesWriter {
                    server: endpoint.clone(),
                    hostgroup: group.writer_hostgroup,
                    cause: Box::new(cause),
                });
            }
        }
        Ok(())
    }

    /// The Galera clusters of a server that have a writer. There nothing but what users want keeps a node from writing.
    fn with_writer(&self, endpoint: &Endpoint) -> Vec<u32> {
        let roles = self.context.roles.latest();
        let groups = roles.groups.iter().filter(|group| group.flavour == Flavour::Galera);
        let groups = groups.filter(|group| !group.writers.is_empty());
        let groups = groups.map(|group| group.writer_hostgroup);
        groups.filter(|hostgroup| self.is_member(*hostgroup, endpoint)).collect()
    }

    /// Two Weirs whose users drain different servers at the same moment can leave a cluster without anybody who may write:
    /// then this server stays in.
    fn keep_a_writer(&self, endpoint: &Endpoint, clusters: &[u32]) -> Result<(), DrainError> {
        let until = Instant::now() + WRITER_WAIT;
        loop {
            let roles = self.context.roles.latest();
            let groups = roles.groups.iter().filter(|group| clusters.contains(&group.writer_hostgroup));
            let Some(group) = groups.into_iter().find(|group| group.writers.is_empty()) else {
                return Ok(());
            };
            if Instant::now() >= until {
                let because = |(server, why): &(Endpoint, Reason)| format!("{server}: {why}");
                let others = group.cannot_write.iter().filter(|(server, _)| server != endpoint);
                let reasons: Vec<String> = others.map(because).collect();
                self.set_drained(endpoint, false, "not drained: without it there is no writer")?;
                return Err(DrainError::LastWriter {
                    server: endpoint.clone(),
                    hostgroup: group.writer_hostgroup,
                    reasons: reasons.join(", "),
                });
            }
            self.look_again()?;
        }
    }

    /// Takes a server in again. When this returns, all workers go by it. With `force` also where Weirs want it out that
    /// have not been heard of lately.
    ///
    /// # Errors
    /// Why it was not.
    pub(crate) fn undrain_server(&self, endpoint: &Endpoint, force: bool) -> Result<String, DrainError> {
        // One that has left the configuration must not be out when it is back.
        if !self.context.drained.all().contains(endpoint) {
            self.is_configured(endpoint)?;
        }
        let done = self.set_drained(endpoint, false, "not drained: it gets work again")?;
        let names = |others: &[Opponent]| {
            let names: Vec<String> = others.iter().map(|other| other.instance.to_string()).collect();
            names.join(", ")
        };
        let mut rows =
            self.context.config.servers.iter().filter(|row| row.endpoint() == *endpoint).peekable();
        if rows.peek().is_some() && rows.all(|row| row.status == ServerStatus::OfflineSoft) {
            return Err(DrainError::OfflineSoft(endpoint.clone()));
        }
        let server = endpoint.clone();
        let (live, gone): (Vec<Opponent>, Vec<Opponent>) =
            self.lasting_opponents(endpoint)?.into_iter().partition(|other| other.is_live);
        if !live.is_empty() {
            return Err(DrainError::WantedOut { server, names: names(&live) });
        }
        if gone.is_empty() {
            return Ok(done);
        }
        if !force {
            return Err(DrainError::WantedOutInSilence { server, names: names(&gone) });
        }
        self.release(endpoint)?;
        Ok(format!("{endpoint} gets work again, although {} has drained it", names(&gone)))
    }

    /// Has the rows removed by which Weirs want a server out that are no more.
    fn release(&self, endpoint: &Endpoint) -> Result<(), DrainError> {
        let until = Instant::now() + TOLD_WAIT;
        let mut asked_at: Option<Instant> = None;
        loop {
            let gone = self.opponents(endpoint);
            if gone.iter().all(|other| other.is_live) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(DrainError::RowsRemain(endpoint.clone()));
            }
            if asked_at.is_none_or(|at| at.elapsed() >= RELEASE_EVERY) {
                asked_at = Some(Instant::now());
                let hostgroups: BTreeSet<u32> = gone.iter().map(|other| other.hostgroup).collect();
                for hostgroup in hostgroups {
                    let rows = gone.iter().filter(|other| other.hostgroup == hostgroup && !other.is_live);
                    let rows = rows.map(|other| (endpoint.clone(), other.instance.clone())).collect();
                    self.context.reporter.release(hostgroup, rows);
                }
            }
            self.look_again()?;
        }
    }

    /// The other Weirs that want a server out, and go on doing so: one from which this one has just taken over, or whose
    /// user lets the server in at the same moment, takes its row back.
    fn lasting_opponents(&self, endpoint: &Endpoint) -> Result<Vec<Opponent>, DrainError> {
        let until = Instant::now() + TOLD_WAIT;
        loop {
            let opponents = self.opponents(endpoint);
            if !opponents.iter().any(|other| other.is_live) || Instant::now() >= until {
                return Ok(opponents);
            }
            self.look_again()?;
        }
    }

    /// The other Weirs that want a server out.
    fn opponents(&self, endpoint: &Endpoint) -> Vec<Opponent> {
        let mut opponents = Vec::new();
        for group in &self.context.roles.latest().groups {
            let Some(leadership) = &group.leadership else { continue };
            let rows = leadership.drains.iter().flatten();
            let rows = rows.filter(|row| row.server == *endpoint && row.wants_out);
            opponents.extend(rows.filter(|row| row.instance != self.context.instance).map(|row| Opponent {
                hostgroup: group.writer_hostgroup,
                instance: row.instance.clone(),
                is_live: leadership.live.contains(&row.instance),
            }));
        }
        opponents
    }

    /// Waits until the other Weirs in front of the server's clusters can know that it leaves, and says where they can't.
    fn tell_others(&self, endpoint: &Endpoint, progress: &Progress) {
        let clusters = self.context.config.clusters().map(|cluster| cluster.writer_hostgroup);
        let clusters: Vec<u32> = clusters.filter(|hostgroup| self.is_member(*hostgroup, endpoint)).collect();
        for hostgroup in &clusters {
            if !self.shares_drains(*hostgroup) {
                progress.tell(format!(
                    "other Weirs in front of hostgroup {hostgroup} are not informed: if there are any, run `weir drain` there, too (docs: several Weirs)"
                ));
            }
        }
        let until = Instant::now() + TOLD_WAIT;
        let is_told = |hostgroup: u32| {
            let is_own = |row: &DrainRow| row.instance == self.context.instance && row.wants_out;
            !self.shares_drains(hostgroup) || self.drains_of(endpoint).iter().any(is_own)
        };
        while !clusters.iter().all(|hostgroup| is_told(*hostgroup)) {
            if Instant::now() >= until || self.look_again().is_err() {
                return progress.tell("the other Weirs do not know yet: see `weir status`".to_owned());
            }
        }
    }

    fn is_member(&self, hostgroup: u32, endpoint: &Endpoint) -> bool {
        let ids = self.context.config.hostgroups_of(endpoint);
        let mut clusters =
            self.context.config.clusters().filter(|cluster| cluster.writer_hostgroup == hostgroup);
        clusters.any(|cluster| cluster.hostgroups().any(|id| ids.contains(&id)))
    }

    fn shares_drains(&self, hostgroup: u32) -> bool {
        let roles = self.context.roles.latest();
        let leadership = roles.group(hostgroup).and_then(|group| group.leadership.as_ref());
        leadership.is_some_and(|leadership| leadership.drains.is_some())
    }

    /// What the Weirs have said of a server that leaves.
    fn drains_of(&self, endpoint: &Endpoint) -> Vec<DrainRow> {
        let roles = self.context.roles.latest();
        let leaderships = roles.groups.iter().filter_map(|group| group.leadership.as_ref());
        let rows = leaderships.filter_map(|leadership| leadership.drains.as_ref()).flatten();
        rows.filter(|row| row.server == *endpoint).cloned().collect()
    }

    fn is_configured(&self, endpoint: &Endpoint) -> Result<(), DrainError> {
        let is_known = self.context.config.servers.iter().any(|row| row.endpoint() == *endpoint);
        if is_known { Ok(()) } else { Err(DrainError::NotConfigured(endpoint.clone())) }
    }

    /// Moves the writer role away from a server wherever it has it alone. Where Galera's sessions keep the server for
    /// longer than a switchover waits, the next writer takes over beside them: nothing is lost, but a transaction that
    /// ends on the old one may meet with a conflict (error 1213).
    fn move_writer_role(&self, endpoint: &Endpoint, progress: &Progress) -> Result<(), DrainError> {
        let roles = self.context.roles.latest();
        for hostgroup in roles.groups.iter().map(|group| group.writer_hostgroup) {
            // As it is by then: another cluster's role has moved first.
            let roles = self.context.roles.latest();
            let group = roles.group(hostgroup).filter(|group| group.writers == [endpoint.clone()]);
            let Some(group) = group else { continue };
            let stays = |cause| DrainError::StaysWriter {
                server: endpoint.clone(),
                hostgroup,
                cause: Box::new(cause),
            };
            if let Some(cause) = another_switchover(group, &self.context.instance) {
                return Err(stays(cause));
            }
            let order = SwitchoverOrder { from: Some(endpoint.clone()), ..SwitchoverOrder::of(hostgroup) };
            match self
                .switchover(&order, progress)
                .map_err(|cause| (self.is_left(hostgroup, endpoint), cause))
            {
                Ok(done) => progress.tell(done),
                // Somebody else has moved the role meanwhile.
                Err((Left::Already, cause)) => progress.tell(cause.to_string()),
                Err((Left::ByDrain, cause)) => {
                    let cause = cause.to_string();
                    tracing::warn!(hostgroup, %endpoint, cause, "drained writer: the next one takes over while its sessions finish");
                    progress.tell(format!(
                        "{cause}; the next writer takes over while the remaining sessions finish"
                    ));
                }
                Err((Left::Never, cause)) => return Err(stays(cause)),
            }
        }
        Ok(())
    }

    fn is_left(&self, hostgroup: u32, endpoint: &Endpoint) -> Left {
        is_left(self.context.roles.latest().group(hostgroup), endpoint)
    }

    fn set_drained(&self, endpoint: &Endpoint, is_drained: bool, words: &str) -> Result<String, DrainError> {
        let changes = self
            .context
            .drained
            .set(endpoint, is_drained)
            .map_err(|cause| DrainError::Unsaved { datadir: self.context.config.datadir.clone(), cause })?;
        if changes {
            tracing::info!(server = %endpoint, is_drained, "a server was drained or undrained by command");
            let change = if is_drained { "drain" } else { "undrain" };
            self.context.proxy.log_change(None, change, format!("{endpoint} is {words}"));
            self.context.proxy.apply_drained()?;
            self.context.proxy.settle();
        }
        Ok(format!("{endpoint} is {words}{}", if changes { "" } else { " (as before)" }))
    }
}

fn is_left(group: Option<&Group>, endpoint: &Endpoint) -> Left {
    match group {
        Some(group) if !group.writers.is_empty() && !group.writers.contains(endpoint) => Left::Already,
        // As it is by then: the last other one may have left meanwhile.
        Some(group) if group.flavour == Flavour::Galera && !group.successors.is_empty() => Left::ByDrain,
        _ => Left::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_writes_no_more_does_not_stay_the_writer() {
        let server = |host: &&str| Endpoint::new(host, 3306);
        let left = |flavour, writers: &[&str], successors: &[&str]| {
            let writers = writers.iter().map(server).collect();
            let successors = successors.iter().map(server).collect();
            is_left(Some(&Group { flavour, writers, successors, ..Group::default() }), &server(&"a"))
        };
        assert_eq!(left(Flavour::Replication, &["b"], &[]), Left::Already);
        assert_eq!(left(Flavour::Galera, &["b"], &["a"]), Left::Already);
        assert_eq!(left(Flavour::Galera, &["a"], &["b"]), Left::ByDrain);
        assert_eq!(left(Flavour::Replication, &["a"], &["b"]), Left::Never);
        assert_eq!(left(Flavour::Galera, &["a"], &[]), Left::Never);
        assert_eq!(left(Flavour::Galera, &[], &[]), Left::Never);
    }
}
