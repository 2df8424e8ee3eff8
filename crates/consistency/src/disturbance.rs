//! Troubles the servers while reads are checked. Each trouble is over when its function returns.

use std::fmt;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::Error;
use weir_lab::servers::{RunningWeir, Server, Servers};

use crate::place::Place;
use crate::stage::Stage;
use crate::weirs;

/// How long an applier stands still for flow control, seconds.
const LOCK_S: f64 = 0.3;
/// How long a reader is desynced, or its applier stopped.
const AWAY: Duration = Duration::from_secs(1);
/// How long a killed writer is away.
const DEAD: Duration = Duration::from_secs(3);

/// What can be done to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturbance {
    /// FLUSH TABLES WITH READ LOCK for 300 ms on a reader: its applier stands still, and on Galera the writes of all wait.
    FlowControl,
    /// A Galera reader is desynced for a second, and stands still for a part of it.
    Desync,
    /// A Galera reader stops and comes back, and another node is its donor.
    Donor,
    /// A replica's applier is stopped for a second, on Galera and in a group by a lock.
    StoppedApplier,
    /// The writer role moves.
    Switchover,
    /// SIGKILL of the writer, which comes back.
    Failover,
    /// Nothing.
    None,
}

impl Disturbance {
    /// Whether it can be done to such servers.
    pub(crate) fn suits(self, place: Place) -> bool {
        match self {
            Disturbance::None => false,
            Disturbance::Desync | Disturbance::Donor => place == Place::Galera,
            // A source that is killed may take acknowledged writes with it: nobody can read them any more.
            Disturbance::Failover => !place.is_replication(),
            Disturbance::FlowControl | Disturbance::StoppedApplier | Disturbance::Switchover => true,
        }
    }

    /// Does it and undoes it; what was seen, in words, if it is worth a note.
    pub(crate) fn happen(self, stage: &Stage<'_>, weir: &RunningWeir) -> Result<Option<String>, Error> {
        match self {
            Disturbance::FlowControl => lock(stage, &reader(stage, weir)?, LOCK_S)?,
            Disturbance::Desync => desync(stage, &reader(stage, weir)?)?,
            Disturbance::Donor => donor(stage, &reader(stage, weir)?)?,
            Disturbance::StoppedApplier => stop_applier(stage, &reader(stage, weir)?)?,
            Disturbance::Switchover => return Ok(weirs::switch_over(weir)?.err()),
            Disturbance::Failover => return fail_over(stage, weir),
            Disturbance::None => {}
        }
        Ok(None)
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.to_possible_value();
        f.pad(word.as_ref().map_or("", |word| word.get_name()))
    }
}

/// One of the servers that read.
fn reader(stage: &Stage<'_>, weir: &RunningWeir) -> Result<Server, Error> {
    let readers = weir.readers()?;
    let first = readers.first().ok_or_else(|| Error::Impossible("there is no reader".to_owned()))?;
    stage.at(*first)
}

/// Nothing can be applied meanwhile.
fn lock(stage: &Stage<'_>, server: &Server, seconds: f64) -> Result<(), Error> {
    let sql = format!("FLUSH TABLES WITH READ LOCK; DO SLEEP({seconds}); UNLOCK TABLES");
    stage.servers.root_query(server.index, &sql)?;
    Ok(())
}

fn desync(stage: &Stage<'_>, server: &Server) -> Result<(), Error> {
    stage.servers.root_query(server.index, "SET GLOBAL wsrep_desync = ON")?;
    let locked = lock(stage, server, LOCK_S);
    let slept = stage.stop.sleep(AWAY);
    stage.servers.root_query(server.index, "SET GLOBAL wsrep_desync = OFF")?;
    locked.and(slept)
}

fn donor(stage: &Stage<'_>, server: &Server) -> Result<(), Error> {
    stage.servers.stop(server.index)?;
    stage.servers.start(server.index)
}

fn stop_applier(stage: &Stage<'_>, server: &Server) -> Result<(), Error> {
    let Servers::Replication(mysql) = &stage.servers else {
        return lock(stage, server, AWAY.as_secs_f64());
    };
    mysql.stop_applier(server.index)?;
    let slept = stage.stop.sleep(AWAY);
    mysql.start_applier(server.index)?;
    slept
}

/// Not while another server is still on its way back: the rest would be no majority.
fn fail_over(stage: &Stage<'_>, weir: &RunningWeir) -> Result<Option<String>, Error> {
    if weir.readers()?.len() + 1 < stage.servers.all().len() {
        return Ok(Some("left out: not all servers are back yet".to_owned()));
    }
    let writer = weir.writer()?.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))?;
    let writer = stage.at(writer)?;
    stage.servers.kill(writer.index)?;
    let slept = stage.stop.sleep(DEAD);
    match &stage.servers {
        // It is ONLINE when it has applied all that was written meanwhile: under full load that may take longer than the run.
        Servers::Group(group) => {
            group.server(writer.index).start()?;
            group.server(writer.index).root_query("START GROUP_REPLICATION")?;
        }
        Servers::Galera(_) | Servers::Replication(_) => stage.servers.start(writer.index)?,
    }
    slept.map(|()| None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_troubled_only_as_they_can_be() {
        let suiting = |place: Place| {
            let all = Disturbance::value_variants().iter().filter(|disturbance| disturbance.suits(place));
            all.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(suiting(Place::Galera), "flow-control desync donor stopped-applier switchover failover");
        assert_eq!(suiting(Place::Group), "flow-control stopped-applier switchover failover");
        assert_eq!(suiting(Place::MysqlReplication), "flow-control stopped-applier switchover");
    }
}
