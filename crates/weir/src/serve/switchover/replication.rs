//! Asynchronous replication: Weir itself tells the servers which of them writes, with an account that may do it.
//!
//! ```text
//! held:      old writer read_only ─► target has its position ─► target stops replicating, and writes ─► seen by the monitor
//! released:  the target forgets its source; other replicas and the old writer replicate from the target
//! ```
//!
//! Each step that is done while statements are held has its reverse; if one fails, those before it are undone in turn.
//! What comes after the release changes no role: where it fails the answer says what is left to do.

pub(super) mod server;

use std::thread::sleep;
use std::time::{Duration, Instant};

use weir_config::MysqlServer;
use weir_topology::{Endpoint, ReadOnlyCheck};

use self::server::{Login, ReplicationServer, Source};
use super::{LOOK_EVERY, Operator, Plan};

/// How long the target may take to apply what it has.
const CATCH_UP_WAIT: Duration = Duration::from_secs(5);
/// How long a new replica may take to connect to its source.
const CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Connections to all servers that are told something, with an account that may.
pub(super) struct Mover {
    from: ReplicationServer,
    to: ReplicationServer,
    /// How the target replicated.
    source: Source,
    /// The other replicas of the old writer.
    replicas: Vec<ReplicationServer>,
    login: Login,
    /// What the user has to see to.
    left: Vec<String>,
}

/// What was done while statements are held, as far as it can be undone.
#[derive(Clone, Copy, Debug)]
enum Done {
    OldIsReadOnly,
    TargetStopped,
    TargetWrites,
}

impl Operator {
    /// Logs in everywhere, and sees whether the target can follow and the account may do everything.
    pub(super) fn replication_mover(&self, plan: &Plan<'_>) -> Result<Mover, String> {
        let hostgroup = plan.wanted.writer_hostgroup;
        let row = self.config.replication_hostgroups.iter().find(|row| row.writer_hostgroup == hostgroup);
        if row
            .is_some_and(|row| matches!(row.check_type, ReadOnlyCheck::InnodbReadOnly | ReadOnlyCheck::Both))
        {
            return Err("check_type looks at innodb_read_only, which no statement can set".to_owned());
        }
        let mut from = ReplicationServer::connect(&plan.from, &self.account_at(hostgroup, &plan.from))?;
        let mut to = ReplicationServer::connect(&plan.to, &self.account_at(hostgroup, &plan.to))?;
        from.check_privileges()?;
        to.check_privileges()?;
        if !from.sources()?.is_empty() {
            return Err(format!("{} replicates from another server itself", plan.from));
        }
        let source = match <[Source; 1]>::try_from(to.sources()?) {
            Ok([source]) if source.id == from.id && source.is_fit => source,
            Ok([source]) if source.id == from.id => {
                let error = if source.error.is_empty() { "it does not run" } else { &source.error };
                return Err(format!("replication of {} without global positions, or: {error}", plan.to));
            }
            Ok(_) => return Err(format!("{} does not replicate from {}", plan.to, plan.from)),
            Err(sources) => {
                let count = sources.len();
                return Err(format!(
                    "{} replicates from {count} servers, not from {} alone",
                    plan.to, plan.from
                ));
            }
        };
        from.position()?;
        let (replicas, left) = self.other_replicas(plan, &from.id)?;
        let login = self.replication_login(hostgroup, &plan.from);
        Ok(Mover { from, to, source, replicas, login, left })
    }

    /// The other servers of the cluster that replicate from the old writer, and what is to be said of those that can't
    /// be asked.
    fn other_replicas(
        &self,
        plan: &Plan<'_>,
        source_id: &str,
    ) -> Result<(Vec<ReplicationServer>, Vec<String>), String> {
        let hostgroup = plan.wanted.writer_hostgroup;
        let rows = self.rows_of(hostgroup);
        let mut others: Vec<Endpoint> = rows.map(|row| row.endpoint()).collect();
        others.sort();
        others.dedup();
        others.retain(|server| *server != plan.from && *server != plan.to);
        let (mut replicas, mut left) = (Vec::new(), Vec::new());
        for other in others {
            match ReplicationServer::connect(&other, &self.account_at(hostgroup, &other)) {
                Ok(mut replica) => {
                    let sources = replica.sources()?;
                    if let [source] = &*sources
                        && source.id == source_id
                    {
                        replica.check_privileges()?;
                        replicas.push(replica);
                    } else {
                        left.push(format!("{other} replicates from elsewhere and is left alone"));
                    }
                }
                Err(error) => left.push(format!("{other} was not told of its new source ({error})")),
            }
        }
        Ok((replicas, left))
    }

    /// Rows of the servers of a cluster.
    pub(super) fn rows_of(&self, hostgroup: u32) -> impl Iterator<Item = &MysqlServer> {
        let cluster = self.config.clusters().find(|cluster| cluster.writer_hostgroup == hostgroup);
        let ids: Vec<u32> = cluster.map(|cluster| cluster.hostgroups().collect()).unwrap_or_default();
        self.config.servers.iter().filter(move |row| ids.contains(&row.hostgroup_id))
    }

    /// Whom a former writer logs in as at the next one.
    pub(super) fn replication_login(&self, hostgroup: u32, server: &Endpoint) -> Login {
        let options = self.account_at(hostgroup, server);
        match self.config.topology_of(hostgroup).replication_account {
            Some(own) => Login { user: own.username, password: own.password.expose().to_owned() },
            None => Login { user: options.user, password: options.password },
        }
    }

    /// Moves the role while statements are held. On failure everything is undone.
    pub(super) fn move_replication(&self, plan: &Plan<'_>, mover: &mut Mover) -> Result<(), String> {
        let mut done = Vec::new();
        let moved = self.move_read_only(plan, mover, &mut done);
        let Err(cause) = moved else { return Ok(()) };
        let undone = undo(mover, &done);
        if !done.is_empty() && undone.is_empty() {
            self.wait_writer(plan, &plan.from).map_err(|error| format!("{cause}; {error}"))?;
        }
        let left: String = undone.iter().map(|error| format!("; not undone: {error}")).collect();
        Err(format!("{cause}{left}"))
    }

    fn move_read_only(&self, plan: &Plan<'_>, mover: &mut Mover, done: &mut Vec<Done>) -> Result<(), String> {
        plan.steps.tell(format!("{} is made read_only", plan.from));
        // Also if it fails: the answer may be lost.
        done.push(Done::OldIsReadOnly);
        mover.from.set_read_only(true)?;
        plan.steps.tell(format!("waiting until {} has applied everything", plan.to));
        let position = mover.from.position()?;
        mover.to.wait_for(&position, CATCH_UP_WAIT)?;
        done.push(Done::TargetStopped);
        mover.to.stop_replication()?;
        if mover.from.position()? != position {
            return Err(format!(
                "somebody still writes to {} beside Weir, although it is read_only",
                plan.from
            ));
        }
        done.push(Done::TargetWrites);
        mover.to.set_read_only(false)?;
        self.wait_writer(plan, &plan.to)
    }

    /// What is left to do once the role has moved. Returns what could not be done.
    pub(super) fn follow_new_source(plan: &Plan<'_>, mover: Mover) -> Vec<String> {
        plan.steps.tell(format!("{} takes writes; the others replicate from it", plan.to));
        mover.repoint(plan)
    }
}

/// Undoes what was done, the last first; returns what could not be undone.
fn undo(mover: &mut Mover, done: &[Done]) -> Vec<String> {
    let reverse = |done: &Done| match done {
        Done::TargetWrites => mover.to.set_read_only(true),
        Done::TargetStopped => mover.to.start_replication(),
        Done::OldIsReadOnly => mover.from.set_read_only(false),
    };
    done.iter().rev().map(reverse).filter_map(Result::err).collect()
}

impl Mover {
    fn repoint(mut self, plan: &Plan<'_>) -> Vec<String> {
        let mut left = std::mem::take(&mut self.left);
        left.extend(self.to.forget_source().err());
        for replica in &mut self.replicas {
            left.extend(replica.follow(&plan.to).err());
        }
        let begun = self.from.become_replica(&plan.to, &self.login, self.source.is_tls);
        match begun.and_then(|()| wait_connected(&mut self.from)) {
            Ok(()) => {}
            Err(error) => {
                left.push(format!("{} is read_only and does not replicate yet: {error}", plan.from))
            }
        }
        left
    }
}

/// Waits until a new replica gets something from its source.
pub(super) fn wait_connected(replica: &mut ReplicationServer) -> Result<(), String> {
    let until = Instant::now() + CONNECT_WAIT;
    loop {
        let sources = replica.sources()?;
        match sources.first() {
            Some(source) if source.is_fit => return Ok(()),
            Some(source) if Instant::now() >= until => return Err(source.error.clone()),
            None => return Err("it has no source".to_owned()),
            Some(_) => sleep(LOOK_EVERY * 10),
        }
    }
}
