//! Troubles servers and Weirs while sessions run. Each trouble is over when its function returns.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use weir_lab::Error;
use weir_lab::servers::network::Member;
use weir_lab::servers::{RunningWeir, Server, Servers};
use weir_seeds::SplitMix;
use weir_testkit::Signal;

use crate::peer::Peer;
use crate::place::Place;
use crate::stage::Stage;

/// A server is away for so long, milliseconds.
const AWAY_MS: std::ops::Range<u64> = 500..4_000;
/// A paused or cut off one: from less than its cluster takes to give it up to more.
const SILENT_MS: std::ops::Range<u64> = 1_000..9_000;
/// Attempts to make everything well, and the time between them.
const HEALS: u32 = 5;
const HEAL_PAUSE: Duration = Duration::from_secs(3);
/// How long a reader applies nothing, seconds.
const LOCK_S: f64 = 0.3;
/// How long a switchover lets transactions end, milliseconds.
const GRACE_MS: &str = "2000";

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// SIGKILL of the writer, or now and then of a reader; it comes back.
    Kill,
    /// SIGTERM of it.
    Term,
    /// SIGSTOP of it, and after a while SIGCONT.
    Pause,
    /// SIGKILL of most servers at once.
    Several,
    /// SIGKILL of all servers at once (Galera); the one whose data goes furthest begins anew.
    All,
    /// A server is cut off from all others and from Weir (network namespaces).
    Partition,
    /// A server is cut off, and another one is killed meanwhile.
    PartitionKill,
    /// FLUSH TABLES WITH READ LOCK on a reader for 300 ms: it applies nothing meanwhile.
    Lag,
    /// `weir switchover`.
    Switchover,
    /// SIGKILL of a Weir, which is started again.
    WeirRestart,
    /// A Weir reads a changed configuration.
    Reload,
    /// Nothing.
    None,
}

impl Fault {
    /// Whether it can be done to such servers.
    pub(crate) fn suits(self, place: Place) -> bool {
        match self {
            Fault::None => false,
            Fault::All => place != Place::Group,
            // The network has three places for servers.
            Fault::Partition | Fault::PartitionKill => place == Place::Galera,
            // A group that has lost its majority waits for its administrator.
            Fault::Several => place != Place::Group,
            _ => true,
        }
    }

    /// Whether it needs network namespaces.
    pub(crate) fn cuts_links(self) -> bool {
        matches!(self, Fault::Partition | Fault::PartitionKill)
    }

    /// Whether it needs a Weir.
    pub(crate) fn needs_weir(self) -> bool {
        matches!(self, Fault::Switchover | Fault::WeirRestart | Fault::Reload)
    }

    /// Does it and undoes it; what was done, in words.
    pub(crate) fn happen(
        self,
        stage: &Stage<'_>,
        peer: &mut Peer,
        random: &mut SplitMix,
    ) -> Result<String, Error> {
        match self {
            Fault::Kill | Fault::Term => {
                let victim = victim(stage, peer, random)?;
                match self {
                    Fault::Term => stage.servers.stop(victim.index)?,
                    _ => stage.servers.kill(victim.index)?,
                }
                let away = rest(stage, random, AWAY_MS);
                // A member that has much to catch up takes longer than a statement may: it is waited for.
                stage.servers.start(victim.index).or_else(|_| heal(stage))?;
                away.map(|ms| format!("{}, back after {ms} ms", victim.name))
            }
            Fault::Pause => pause(stage, peer, random),
            Fault::Several | Fault::All => several(stage, peer, random, self == Fault::All),
            Fault::Partition | Fault::PartitionKill => {
                partition(stage, peer, random, self == Fault::PartitionKill)
            }
            Fault::Lag => {
                let writer = writer(stage, peer)?;
                let readers: Vec<Server> = stage
                    .servers
                    .awake()
                    .into_iter()
                    .filter(|server| Some(server) != writer.as_ref())
                    .collect();
                let reader = readers.get(random.below(readers.len()));
                let reader = reader.ok_or_else(|| Error::Impossible("there is no reader".to_owned()))?;
                let sql = format!("FLUSH TABLES WITH READ LOCK; DO SLEEP({LOCK_S}); UNLOCK TABLES");
                stage.servers.root_query(reader.index, &sql)?;
                Ok(reader.name.clone())
            }
            Fault::Switchover => switch_over(peer, random),
            Fault::WeirRestart => {
                let (k, slot) = pick_slot(peer, random)?;
                slot.restart()?;
                Ok(format!("Weir {k}"))
            }
            Fault::Reload => {
                let number = random.within(0..1000).cast_signed();
                let (k, slot) = pick_slot(peer, random)?;
                slot.reload(number)?;
                Ok(format!("Weir {k}"))
            }
            Fault::None => Ok(String::new()),
        }
    }
}

/// Makes everything well again, whatever was going on. Members that are about to join by themselves take no orders.
pub(crate) fn heal(stage: &Stage<'_>) -> Result<(), Error> {
    for _ in 1..HEALS {
        match heal_once(stage) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(_) => stage.stop.sleep(HEAL_PAUSE)?,
            Ok(()) => return Ok(()),
        }
    }
    heal_once(stage)
}

fn heal_once(stage: &Stage<'_>) -> Result<(), Error> {
    if let Some(network) = &stage.network {
        let all: Vec<Member> =
            stage.servers.all().iter().map(|server| Member::Server(server.index)).collect();
        network.join(&all)?;
    }
    match &stage.servers {
        Servers::Galera(galera) if galera.nodes().iter().all(|node| !node.is_running()) => {
            galera.start_all_after_crash()?;
        }
        Servers::Group(group) => {
            for process in group.servers().iter().filter_map(weir_testkit::MysqlServer::process) {
                process.signal(Signal::CONT)?;
            }
        }
        _ => {}
    }
    stage.servers.repair()
}

fn rest(stage: &Stage<'_>, random: &mut SplitMix, range_ms: std::ops::Range<u64>) -> Result<u64, Error> {
    let ms = random.within(range_ms);
    stage.stop.sleep(Duration::from_millis(ms)).map(|()| ms)
}

/// Mostly the writer.
fn victim(stage: &Stage<'_>, peer: &Peer, random: &mut SplitMix) -> Result<Server, Error> {
    let all = stage.servers.awake();
    let any = random.below(all.len());
    let writer = match random.percent(70) {
        true => writer(stage, peer)?,
        false => None,
    };
    let nobody = || Error::Impossible("no server runs".to_owned());
    writer.or_else(|| all.get(any).cloned()).ok_or_else(nobody)
}

fn writer(stage: &Stage<'_>, peer: &Peer) -> Result<Option<Server>, Error> {
    let weir = peer.slots().first().map(|slot| slot.weir()).transpose()?;
    match weir.map(RunningWeir::writer).transpose()?.flatten() {
        Some(address) => Ok(Some(stage.servers.at(address)?)),
        None if matches!(stage.servers, Servers::Group(_)) => Ok(stage.servers.primary()),
        None => Ok(stage.servers.awake().into_iter().next()),
    }
}

fn pause(stage: &Stage<'_>, peer: &Peer, random: &mut SplitMix) -> Result<String, Error> {
    let victim = victim(stage, peer, random)?;
    let process = match &stage.servers {
        Servers::Galera(galera) => {
            galera.node(victim.index).pause()?;
            None
        }
        Servers::Group(mysql) | Servers::Replication(mysql) => mysql.server(victim.index).process(),
    };
    process.as_ref().map_or(Ok(()), |process| process.pause())?;
    let silent = rest(stage, random, SILENT_MS);
    process.map_or(Ok(()), |process| process.signal(Signal::CONT))?;
    // It may have to join again.
    heal(stage)?;
    silent.map(|ms| format!("{} for {ms} ms", victim.name))
}

/// Most of them, the writer too, or all.
fn several(stage: &Stage<'_>, peer: &Peer, random: &mut SplitMix, has_all: bool) -> Result<String, Error> {
    let writer = writer(stage, peer)?;
    let mut servers = stage.servers.awake();
    servers.sort_by_key(|server| Some(server) != writer.as_ref());
    let count = if has_all { servers.len() } else { servers.len() / 2 + 1 };
    servers.truncate(count);
    servers.iter().try_for_each(|server| stage.servers.kill(server.index))?;
    let away = rest(stage, random, AWAY_MS);
    heal(stage)?;
    let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    away.map(|ms| format!("{}, back after {ms} ms", names.join(", ")))
}

fn partition(stage: &Stage<'_>, peer: &Peer, random: &mut SplitMix, has_kill: bool) -> Result<String, Error> {
    let network = stage.network.as_ref();
    let network = network.ok_or_else(|| Error::Impossible("the servers are on loopback".to_owned()))?;
    let victim = victim(stage, peer, random)?;
    let member = [Member::Server(victim.index)];
    network.cut_off(&member)?;
    let mut words = format!("{} is cut off", victim.name);
    if has_kill {
        rest(stage, random, AWAY_MS)?;
        let other = stage.servers.awake().into_iter().find(|server| *server != victim);
        if let Some(other) = other {
            stage.servers.kill(other.index)?;
            words.push_str(&format!(", {} is killed", other.name));
        }
    }
    let silent = rest(stage, random, SILENT_MS);
    heal(stage)?;
    silent.map(|ms| format!("{words}, for {ms} ms"))
}

fn switch_over(peer: &mut Peer, random: &mut SplitMix) -> Result<String, Error> {
    let (_, slot) = pick_slot(peer, random)?;
    let told = slot.weir()?.tell(&["switchover", &RunningWeir::hostgroup(), "--grace-ms", GRACE_MS])?;
    let end = told.text.lines().last().unwrap_or_default();
    Ok(if told.succeeded { end.to_owned() } else { format!("refused: {end}") })
}

fn pick_slot<'p>(
    peer: &'p mut Peer,
    random: &mut SplitMix,
) -> Result<(usize, &'p mut crate::peer::Slot), Error> {
    let slots = peer.slots_mut();
    let at = random.below(slots.len());
    let slot = slots.get_mut(at).ok_or_else(|| Error::Impossible("there is no Weir".to_owned()))?;
    Ok((at + 1, slot))
}

/// The faults in an order that the seed decides, each as often as any other.
#[derive(Debug)]
pub(crate) struct Schedule {
    faults: Vec<Fault>,
    left: Vec<Fault>,
}

impl Schedule {
    /// Of these.
    pub(crate) fn new(faults: Vec<Fault>) -> Schedule {
        Schedule { faults, left: Vec::new() }
    }

    /// The next one.
    pub(crate) fn next(&mut self, random: &mut SplitMix) -> Option<Fault> {
        if self.left.is_empty() {
            self.left.clone_from(&self.faults);
        }
        (!self.left.is_empty()).then(|| self.left.swap_remove(random.below(self.left.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_the_schedule_and_every_fault_comes() {
        let faults = vec![Fault::Kill, Fault::Pause, Fault::Switchover];
        let drawn = |seed| {
            let (mut schedule, mut random) = (Schedule::new(faults.clone()), SplitMix::new(seed));
            (0..30).filter_map(|_| schedule.next(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert_eq!(drawn(1).iter().filter(|fault| **fault == Fault::Kill).count(), 10);
        assert_eq!(Schedule::new(Vec::new()).next(&mut SplitMix::new(1)), None);
    }

    #[test]
    fn servers_are_troubled_only_as_they_can_be() {
        assert!(Fault::Partition.suits(Place::Galera) && !Fault::Partition.suits(Place::Galera5));
        assert!(!Fault::All.suits(Place::Group) && Fault::Kill.suits(Place::Group));
    }
}
