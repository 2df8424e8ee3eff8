//! Asynchronous replication: Weir itself tells the servers which of them writes, with an account that may do it. The steps
//! are [`weir_topology::procedure`]'s; here is what they are done with.

pub(super) mod server;

use std::time::Duration;

use weir_config::MysqlServer;
use weir_monitor::monotonic_ns;
use weir_topology::procedure::{self, Login, Moved, Surroundings};
use weir_topology::{Endpoint, Millis, ReadOnlyCheck};

use self::server::ReplicationServer;
use super::account::is_there;
use super::{Operator, Plan};
use crate::control::Steps;

/// A switchover that is ready, and then one that was made.
pub(super) enum Mover {
    Ready(Box<procedure::Switchover<ReplicationServer>>),
    Moved(Moved<ReplicationServer>),
    Ended,
}

/// What a procedure needs of Weir.
pub(in super::super) struct Around<'o> {
    operator: &'o Operator,
    hostgroup: u32,
    steps: Option<&'o Steps>,
}

impl Operator {
    /// Surroundings of a procedure with the servers of a cluster.
    pub(in super::super) fn around<'o>(&'o self, hostgroup: u32, steps: Option<&'o Steps>) -> Around<'o> {
        Around { operator: self, hostgroup, steps }
    }

    /// Logs in everywhere, and sees whether the target can follow and the account may do everything.
    pub(super) fn replication_mover(&self, plan: &Plan<'_>) -> Result<Mover, String> {
        let hostgroup = plan.wanted.writer_hostgroup;
        let row = self.config.replication_hostgroups.iter().find(|row| row.writer_hostgroup == hostgroup);
        if row
            .is_some_and(|row| matches!(row.check_type, ReadOnlyCheck::InnodbReadOnly | ReadOnlyCheck::Both))
        {
            return Err("check_type looks at innodb_read_only, which no statement can set".to_owned());
        }
        let wanted = procedure::Plan {
            writer_hostgroup: hostgroup,
            from: plan.from.clone(),
            to: plan.to.clone(),
            members: self.counted(hostgroup),
            instance: self.instance.to_string(),
        };
        let mut around = self.around(hostgroup, Some(plan.steps));
        procedure::Switchover::prepare(&mut around, wanted).map(Box::new).map(Mover::Ready)
    }

    /// Rows of the servers of a cluster.
    pub(super) fn rows_of(&self, hostgroup: u32) -> impl Iterator<Item = &MysqlServer> {
        let cluster = self.config.clusters().find(|cluster| cluster.writer_hostgroup == hostgroup);
        let ids: Vec<u32> = cluster.map(|cluster| cluster.hostgroups().collect()).unwrap_or_default();
        self.config.servers.iter().filter(move |row| ids.contains(&row.hostgroup_id))
    }

    /// Moves the role while statements are held. On failure everything is undone that can be.
    pub(super) fn move_replication(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), String> {
        let Mover::Ready(ready) = std::mem::replace(mover, Mover::Ended) else { return Ok(()) };
        match ready.make(&mut self.around(plan.wanted.writer_hostgroup, Some(plan.steps))) {
            Ok(moved) => {
                *mover = Mover::Moved(moved);
                // It is the writer, whenever that is seen: statements wait for as long.
                if let Err(cause) = self.wait_writer(plan, &plan.to) {
                    tracing::warn!(hostgroup = plan.wanted.writer_hostgroup, "{cause}");
                    plan.steps.tell(cause);
                }
                Ok(())
            }
            Err(undone) if undone.is_as_before => match self.wait_writer(plan, &plan.from) {
                Ok(()) => Err(undone.cause),
                Err(error) => Err(format!("{}; {error}", undone.cause)),
            },
            Err(undone) => Err(undone.cause),
        }
    }

    /// What is left to do once the role has moved. Returns what could not be done.
    pub(super) fn follow_new_source(&self, plan: &Plan<'_>, mover: Mover) -> Vec<String> {
        let Mover::Moved(moved) = mover else { return Vec::new() };
        plan.steps.tell(format!("{} takes writes; {} replicates from it", plan.to, plan.from));
        moved.finish(&mut self.around(plan.wanted.writer_hostgroup, Some(plan.steps)))
    }
}

impl Surroundings for Around<'_> {
    type Server = ReplicationServer;

    fn connect(&mut self, server: &Endpoint) -> Result<ReplicationServer, String> {
        ReplicationServer::connect(server, &self.operator.account_at(self.hostgroup, server))
    }

    fn is_there(&mut self, server: &Endpoint) -> bool {
        is_there(&self.operator.account_at(self.hostgroup, server))
    }

    fn now(&mut self) -> Millis {
        Millis(monotonic_ns() / 1_000_000)
    }

    fn sleep(&mut self, time: Duration) -> Result<(), String> {
        self.operator.look_again_after(time)
    }

    fn tell(&mut self, step: String) {
        match self.steps {
            Some(steps) => steps.tell(step),
            None => tracing::warn!(hostgroup = self.hostgroup, "{step}"),
        }
    }

    fn login(&mut self, source: &Endpoint) -> Login {
        let options = self.operator.account_at(self.hostgroup, source);
        let is_tls = options.tls.is_some();
        match self.operator.config.topology_of(self.hostgroup).replication_account {
            Some(own) => Login { user: own.username, password: own.password.expose().to_owned(), is_tls },
            None => Login { user: options.user, password: options.password, is_tls },
        }
    }
}
