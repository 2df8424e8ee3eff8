//! Silences a server: whatever it sends and should get is lost, its connections stay open, and nobody says goodbye.

use std::time::Duration;

use weir_lab::goals::GoalChecks;
use weir_lab::{Error, Moment};

use crate::peer::{Peer, start_weir_in_network};
use crate::run::Run;
use crate::scenarios::Seen;
use crate::scenarios::writer_lost::{
    self, OWN_SHARE_MS, RECOVERY_TIMEOUT_S, SYNCED_TIMEOUT, reads_before_synced, writes_on, yes,
};
use crate::stage::{Finished, Stage};
use weir_lab::servers::Server;
use weir_lab::servers::network::Member;

/// Of the two proxies of the network, the one that takes part.
const PROXY: u8 = 1;
/// It stays silent for so long after everybody is served again.
const SILENT: Duration = Duration::from_secs(6);
/// Reads that have begun on a silent reader are run elsewhere when some looks at it were in vain.
const READ_PAUSE_MS: f64 = 4_000.0;

/// The writer falls silent.
pub(super) fn writer(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, run) = begin(stage)?;
    let victim = writer_lost::writer(stage, &peer)?;
    let Ended { finished, answered, silent, back } = silence(stage, run, &victim)?;
    let figures = finished.figures();
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.must("every client is served again", yes(answered), answered);
    goals.none("errors outside transactions", figures.outside);
    goals.data(&figures);
    goals.own_share(&figures, OWN_SHARE_MS);
    goals.none("writes on the old writer once it was silent", writes_on(&finished, &victim, silent));
    let early = reads_before_synced(&finished, &victim, back);
    goals.none("reads on the returning node before it was Synced", early);
    Ok(Seen::new(finished, figures, goals))
}

/// A reader falls silent. Its cluster commits nothing until it has given it up, so that writes wait, too.
pub(super) fn reader(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, run) = begin(stage)?;
    let writer = writer_lost::writer(stage, &peer)?;
    let victim = stage.servers()?.all().into_iter().rfind(|server| *server != writer);
    let victim = victim.ok_or_else(|| Error::Impossible("no reader".to_owned()))?;
    let Ended { finished, answered, back, .. } = silence(stage, run, &victim)?;
    let mut figures = finished.figures();
    (figures.group_ms, figures.own_share_ms) = (None, None);
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.must("every client is served again", yes(answered), answered);
    goals.none("errors outside transactions", figures.outside);
    goals.none("unknown", figures.unknown);
    goals.data(&figures);
    goals.within("read pause", figures.read_pause_ms, READ_PAUSE_MS);
    let early = reads_before_synced(&finished, &victim, back);
    goals.none("reads on the returning node before it was Synced", early);
    Ok(Seen::new(finished, figures, goals))
}

fn begin(stage: &Stage<'_>) -> Result<(Peer, Run), Error> {
    stage.healthy()?;
    let peer = Peer::Weir(Box::new(start_weir_in_network(stage, PROXY)?));
    let run = stage.run(&[&peer], true)?;
    Ok((peer, run))
}

struct Ended {
    finished: Finished,
    answered: bool,
    /// When its last word was certainly out.
    silent: Moment,
    back: Moment,
}

/// From a server's last word over its return to the end of the run.
fn silence(stage: &Stage<'_>, mut run: Run, victim: &Server) -> Result<Ended, Error> {
    let member = [Member::Server(victim.index)];
    let network = stage.network()?;
    // The command may wait for a while until it does something.
    network.cut_off(&member)?;
    let silent = run.mark(format!("{} has fallen silent", victim.name));
    let answered = run.wait_answers(stage, silent, RECOVERY_TIMEOUT_S)?;
    stage.stop.sleep(SILENT)?;
    let back = run.mark(format!("{} is heard again", victim.name));
    network.join(&member)?;
    stage.cluster()?.wait_synced(SYNCED_TIMEOUT)?;
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    Ok(Ended { finished, answered, silent, back })
}
