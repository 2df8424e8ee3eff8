//! Kills two of three nodes at once: nobody is left who may serve. Then they come back.

use std::time::Duration;

use weir_lab::Error;
use weir_lab::goals::GoalChecks;
use weir_lab::log_watch::LOST_QUORUM;

use crate::peer::PeerKind;
use crate::scenarios::Seen;
use crate::scenarios::writer_lost::{writer, yes};
use crate::stage::Stage;

/// Longer than statements are held (10 s by default), so that the error is seen.
const DOWN: Duration = Duration::from_secs(15);
/// Statements are held for so long at least before they fail.
const HELD_MS: f64 = 9_000.0;
/// A probe's interval, and the time that its answer may take.
const NOTICED_MS: u64 = 1_500;
/// The longest from the nodes' start to the first answers.
const BACK_TIMEOUT_S: u64 = 60;

pub(super) fn run(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(PeerKind::Weir)?;
    let victim = writer(stage, &peer)?;
    let servers = stage.servers()?;
    let other = servers.all().into_iter().rfind(|server| server.index != victim.index);
    let other = other.ok_or_else(|| Error::Impossible("no second node".to_owned()))?;
    let event = run.mark(format!("SIGKILL of {} and {}", victim.name, other.name));
    servers.kill(victim.index)?;
    servers.kill(other.index)?;
    stage.stop.sleep(DOWN)?;
    let started = run.mark("both are started again");
    for index in [victim.index, other.index] {
        stage.cluster()?.spawn_node(index)?;
    }
    let answered = run.wait_answers(stage, started, BACK_TIMEOUT_S)?;
    stage.stop.sleep(stage.scale.settle)?;
    // The rows are looked for on all three, which Galera may need a moment for.
    servers.repair()?;
    let finished = stage.finish(run)?;
    let mut figures = finished.figures();
    (figures.group_ms, figures.own_share_ms) = (None, None);

    let mut goals = GoalChecks::new(stage.args.smoke);
    let is_clear = |text: &str| text.contains("hostgroup");
    let outside: Vec<_> = (finished.recording.failures.iter())
        .filter(|failure| failure.kind == weir_lab::record::Kind::Outside)
        .collect();
    let early = outside.iter().filter(|failure| failure.at.ms_since(event) < HELD_MS).count();
    goals.none(&format!("errors outside transactions in the first {} s", HELD_MS / 1000.0), early);
    let obscure = outside.iter().filter(|failure| !is_clear(&failure.text)).count();
    goals.none("later errors that do not say which hostgroup has no server", obscure);
    // Until the survivor knows that it is alone, it may read.
    let mut marks = finished.recording.marks.iter();
    let alone = marks.find(|mark| mark.at > event && mark.text.starts_with(LOST_QUORUM));
    let alone = alone.map_or(event, |mark| mark.at).plus_ms(NOTICED_MS);
    let samples = finished.recording.samples.iter();
    let answers = samples.filter(|sample| sample.sent > alone && sample.done < started);
    goals.none("statements that the node without quorum answered", answers.count());
    goals.must("served again by itself", yes(answered), answered);
    goals.data(&figures);
    Ok(Seen::new(finished, figures, goals))
}
