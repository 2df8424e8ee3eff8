//! Tells servers with asynchronous replication which of them writes, with an account that may do it. The steps are
//! [`weir_topology::procedure`]'s; here is what they are done with.

use std::time::Duration;

use weir_config::MysqlServer;
use weir_monitor::monotonic_ns;
use weir_topology::procedure::{self, Login, Moved, ServerError, Surroundings};
use weir_topology::{Endpoint, Millis, ReadOnlyCheck};

use super::Plan;
use crate::account::is_there;
use crate::error::{Ending, SwitchoverError};
use crate::operation_runner::OperationRunner;
use crate::progress::Progress;
use crate::replication_server::ReplicationServer;

/// A switchover that is ready, and then one that was made.
pub(super) enum Mover {
    Ready(Box<procedure::Switchover<ReplicationServer>>),
    Moved(Moved<ReplicationServer>),
    Ended,
}

/// What a procedure needs of Weir.
pub(crate) struct OperationSurroundings<'o> {
    runner: &'o OperationRunner,
    hostgroup: u32,
    progress: Option<&'o Progress>,
}

impl OperationRunner {
    /// Surroundings of a procedure with the servers of a cluster.
    pub(crate) fn surroundings<'o>(
        &'o self,
        hostgroup: u32,
        progress: Option<&'o Progress>,
    ) -> OperationSurroundings<'o> {
        OperationSurroundings { runner: self, hostgroup, progress }
    }

    /// The switchover to the target that was asked for, or to the first of all that can take over: how far a replica is behind
    /// and whether it replicates at all shows when it is asked.
    pub(super) fn first_fit(&self, plan: &mut Plan<'_>) -> Result<Mover, SwitchoverError> {
        if plan.order.to.is_some() {
            return self.replication_mover(plan);
        }
        let roles = self.context.roles.latest();
        let group = roles.group(plan.order.writer_hostgroup).ok_or(SwitchoverError::NotConfigured)?;
        let mut causes = Vec::new();
        for candidate in &group.successors {
            plan.to = candidate.clone();
            match self.replication_mover(plan) {
                Ok(mover) => return Ok(mover),
                Err(cause) => causes.push(cause),
            }
        }
        // Of several, each names its server.
        match <[SwitchoverError; 1]>::try_from(causes) {
            Ok([cause]) => Err(cause),
            Err(causes) => {
                let reasons: Vec<String> = causes.iter().map(ToString::to_string).collect();
                Err(SwitchoverError::NoTarget { reasons: reasons.join("; ") })
            }
        }
    }

    /// Logs in everywhere, and sees whether the target can follow and the account may do everything.
    fn replication_mover(&self, plan: &Plan<'_>) -> Result<Mover, SwitchoverError> {
        let hostgroup = plan.order.writer_hostgroup;
        let row =
            self.context.config.replication_hostgroups.iter().find(|row| row.writer_hostgroup == hostgroup);
        if row
            .is_some_and(|row| matches!(row.check_type, ReadOnlyCheck::InnodbReadOnly | ReadOnlyCheck::Both))
        {
            return Err(SwitchoverError::InnodbReadOnly);
        }
        let wanted = procedure::Plan {
            writer_hostgroup: hostgroup,
            from: plan.from.clone(),
            to: plan.to.clone(),
            members: self.counted(hostgroup),
            instance: self.context.instance.to_string(),
        };
        let mut around = self.surroundings(hostgroup, Some(plan.progress));
        let ready =
            procedure::Switchover::prepare(&mut around, wanted).map_err(SwitchoverError::Procedure)?;
        Ok(Mover::Ready(Box::new(ready)))
    }

    /// Rows of the servers of a cluster.
    pub(crate) fn rows_of(&self, hostgroup: u32) -> impl Iterator<Item = &MysqlServer> {
        let cluster = self.context.config.clusters().find(|cluster| cluster.writer_hostgroup == hostgroup);
        let ids: Vec<u32> = cluster.map(|cluster| cluster.hostgroups().collect()).unwrap_or_default();
        self.context.config.servers.iter().filter(move |row| ids.contains(&row.hostgroup_id))
    }

    /// Moves the role while statements are held. On failure everything is undone that can be.
    pub(super) fn move_replication(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), SwitchoverError> {
        let Mover::Ready(ready) = std::mem::replace(mover, Mover::Ended) else { return Ok(()) };
        match ready.make(&mut self.surroundings(plan.order.writer_hostgroup, Some(plan.progress))) {
            Ok(moved) => {
                *mover = Mover::Moved(moved);
                // It is the writer, whenever that is seen: statements wait for as long.
                if let Err(cause) = self.wait_writer(plan, &plan.to) {
                    tracing::warn!(hostgroup = plan.order.writer_hostgroup, "{cause}");
                    plan.progress.tell(cause.to_string());
                }
                Ok(())
            }
            Err(undone) if undone.is_as_before => match self.wait_writer(plan, &plan.from) {
                Ok(()) => Err(SwitchoverError::Procedure(undone.cause)),
                Err(then) => Err(SwitchoverError::Returning { cause: undone.cause, then: Box::new(then) }),
            },
            Err(undone) => Err(SwitchoverError::Procedure(undone.cause)),
        }
    }

    /// What is left to do once the role has moved. Returns what could not be done.
    pub(super) fn follow_new_source(&self, plan: &Plan<'_>, mover: Mover) -> Vec<String> {
        let Mover::Moved(moved) = mover else { return Vec::new() };
        plan.progress.tell(format!("{} takes writes; {} replicates from it", plan.to, plan.from));
        moved.finish(&mut self.surroundings(plan.order.writer_hostgroup, Some(plan.progress)))
    }
}

impl Surroundings for OperationSurroundings<'_> {
    type Server = ReplicationServer;

    fn connect(&mut self, server: &Endpoint) -> Result<ReplicationServer, ServerError> {
        ReplicationServer::connect(server, &self.runner.account_at(self.hostgroup, server))
    }

    fn is_there(&mut self, server: &Endpoint) -> bool {
        is_there(&self.runner.account_at(self.hostgroup, server))
    }

    fn now(&mut self) -> Millis {
        Millis(monotonic_ns() / 1_000_000)
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Ending> {
        self.runner.look_again_after(time)
    }

    fn tell(&mut self, step: String) {
        match self.progress {
            Some(progress) => progress.tell(step),
            None => tracing::warn!(hostgroup = self.hostgroup, "{step}"),
        }
    }

    fn login(&mut self, source: &Endpoint) -> Login {
        let options = self.runner.account_at(self.hostgroup, source);
        let is_tls = options.tls.is_some();
        match self.runner.context.config.topology_of(self.hostgroup).replication_account {
            Some(own) => Login { user: own.username, password: own.password.expose().to_owned(), is_tls },
            None => Login { user: options.user, password: options.password, is_tls },
        }
    }
}
