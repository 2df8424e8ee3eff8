//! Kills Weir under load, and starts it again at once; another one stands beside it.

use weir_lab::Error;
use weir_lab::goals::GoalChecks;
use weir_lab::record::Pause;
use weir_testkit::Process;

use crate::peer::{Peer, PeerKind, restart_weir};
use crate::scenarios::Seen;
use crate::scenarios::writer_lost::yes;
use crate::stage::Stage;

/// The longest that clients of the killed one may need to be served again.
const RECOVERY_TIMEOUT_S: u64 = 30;
/// The longest pause of the other one's clients: the machine starts a program meanwhile.
const OTHERS_PAUSE_MS: f64 = 200.0;

pub(super) fn run(stage: &Stage<'_>) -> Result<Vec<Seen>, Error> {
    stage.healthy()?;
    let (first, second) = (Peer::start(PeerKind::Weir, stage)?, Peer::start(PeerKind::Weir, stage)?);
    let mut beside = stage.run(&[&second, &first], false)?;
    let mut run = stage.run(&[&first, &second], true)?;
    let Peer::Weir(weir) = first else { return Err(Error::Impossible("no Weir".to_owned())) };
    let event = run.mark("SIGKILL of the first Weir");
    beside.mark("SIGKILL of the other Weir");
    Process::kill(weir.process());
    let weir = restart_weir(*weir, stage)?;
    run.mark("it is started again");
    let answered = run.wait_answers(stage, event, RECOVERY_TIMEOUT_S)?;
    stage.stop.sleep(stage.scale.settle)?;
    let (finished, beside) = (stage.finish(run)?, stage.finish(beside)?);
    drop(weir);
    let (mut figures, mut others) = (finished.figures(), beside.figures());
    for figures in [&mut figures, &mut others] {
        (figures.group_ms, figures.own_share_ms) = (None, None);
    }
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.must("every client is served again", yes(answered), answered);
    goals.data(&figures);
    let mut second = GoalChecks::new(stage.args.smoke);
    second.none("errors outside transactions", others.outside);
    second.none("errors in transactions", others.inside);
    second.none("unknown", others.unknown);
    second.data(&others);
    let pause = beside.recording.pauses(true, event, event.plus_ms(3_000));
    second.within("write pause", Pause::longest(&pause).map_or(f64::INFINITY, |p| p.ms()), OTHERS_PAUSE_MS);
    Ok(vec![
        Seen::new(finished, figures, goals).variant("the killed one"),
        Seen::new(beside, others, second).variant("the other one"),
    ])
}
