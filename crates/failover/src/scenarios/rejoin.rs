//! Brings a killed node back under load: another one gives it what it has missed.

use std::time::Duration;

use weir_lab::Error;
use weir_lab::goals::GoalChecks;
use weir_lab::log_watch::DONOR;
use weir_lab::record::{Pause, Source};
use weir_lab::servers::RunningWeir;

use crate::peer::PeerKind;
use crate::scenarios::writer_lost::writer;
use crate::scenarios::{Seen, story};
use crate::stage::Stage;

/// How long it is away.
const AWAY: Duration = Duration::from_secs(10);
/// The longest that writes may stall meanwhile.
pub(super) const STALL_MS: f64 = 200.0;

pub(super) fn run(stage: &Stage<'_>) -> Result<Seen, Error> {
    stage.healthy()?;
    let peer = crate::peer::Peer::start(PeerKind::Weir, stage)?;
    // The writer's failover is another scenario: here a reader goes before the run, and misses what follows.
    let victim = writer(stage, &peer)?;
    let servers = stage.servers()?;
    let reader = servers.all().into_iter().rfind(|server| server.index != victim.index);
    let reader = reader.ok_or_else(|| Error::Impossible("no reader".to_owned()))?;
    servers.kill(reader.index)?;
    let mut run = stage.run(&[&peer], true)?;
    stage.stop.sleep(AWAY)?;
    // As an operator does: the writer is not to be the donor.
    let donors = peer.weir().map(RunningWeir::donors).transpose()?.unwrap_or_default();
    let writes = writer(stage, &peer)?;
    let started = run.mark(format!("start of {}", reader.name));
    stage.cluster()?.start_node_from(reader.index, &donors)?;
    let synced = run.mark(format!("{} is Synced", reader.name));
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    let mut figures = finished.figures();
    (figures.group_ms, figures.own_share_ms) = (None, None);
    let stall = finished.recording.pauses(true, started, finished.recording.ended);
    let longest = Pause::longest(&stall);
    let stall_ms = longest.map_or(f64::INFINITY, |pause| pause.ms());
    let story = story(&finished.recording, started, longest);

    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.undisturbed(&figures);
    goals.within("longest write stall", stall_ms, STALL_MS);
    let was_donor = finished.recording.marks.iter().any(|mark| {
        matches!(mark.source, Source::Server(n) if usize::from(n) == writes.index)
            && mark.at >= started
            && mark.text == DONOR
    });
    goals.must("the writer is not the donor", if was_donor { "it was" } else { "it was not" }, !was_donor);
    let took = synced.ms_since(started) / 1000.0;
    Ok(Seen::new(finished, figures, goals)
        .note(format!("{} was Synced {took:.1} s after its start.", reader.name))
        .note(story))
}
