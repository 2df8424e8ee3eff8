//! Troubles nodes that are not lost but should be spared: a donor, a desynced one, one whose applier stands still, one that is
//! read-only, one that is drained.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use weir_lab::Error;
use weir_lab::goals::GoalChecks;

use crate::peer::PeerKind;
use crate::run::Run;
use crate::scenarios::Seen;
use crate::scenarios::reader_maintenance::order;
use crate::scenarios::writer_lost::writer;
use crate::stage::Stage;
use weir_lab::servers::{RunningWeir, Server};

/// How long each state lasts.
const STATE: Duration = Duration::from_secs(3);
/// How long a reader's applier stands still: flow control stops the whole cluster's writes with it.
const STORM: Duration = Duration::from_millis(1500);
/// How often the readers are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// The longest that a role may take to move in good order.
const MOVE_TIMEOUT_S: u64 = 30;
/// In good order the role moves when the writer becomes read-only, when it is drained, and when it is the donor.
const WRITERS_MAX: usize = 3;

pub(super) fn run(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(PeerKind::Weir)?;
    let weir = peer.weir().ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
    let stop = AtomicBool::new(false);
    let (done, empty) = thread::scope(|scope| {
        let looker = scope.spawn(|| times_without_readers(weir, &stop));
        let done = all_states(stage, &peer, weir, &mut run);
        stop.store(true, Ordering::Relaxed);
        (done, looker.join().unwrap_or(usize::MAX))
    });
    done?;
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    let mut figures = finished.figures();
    (figures.group_ms, figures.own_share_ms) = (None, None);
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.undisturbed(&figures);
    goals.none("looks at the readers that found none", empty);
    let moves = figures.writers.unwrap_or(0);
    goals.must(
        format!("the writer's role moves <= {WRITERS_MAX} times"),
        moves.to_string(),
        moves <= WRITERS_MAX,
    );
    Ok(Seen::new(finished, figures, goals))
}

fn all_states(
    stage: &Stage<'_>,
    peer: &crate::peer::Peer,
    weir: &RunningWeir,
    run: &mut Run,
) -> Result<(), Error> {
    let servers = stage.servers()?;
    let reader = |writer: &Server| {
        let other = servers.all().into_iter().rfind(|server| server.index != writer.index);
        other.ok_or_else(|| Error::Impossible("no reader".to_owned()))
    };
    let target = reader(&writer(stage, peer)?)?;
    run.mark(format!("{} is desynced", target.name));
    servers.root_query(target.index, "SET GLOBAL wsrep_desync = ON")?;
    stage.stop.sleep(STATE)?;
    servers.root_query(target.index, "SET GLOBAL wsrep_desync = OFF")?;

    run.mark(format!("{}'s applier stands still", target.name));
    let seconds = STORM.as_secs_f64();
    servers.root_query(
        target.index,
        &format!("FLUSH TABLES WITH READ LOCK; SELECT SLEEP({seconds}); UNLOCK TABLES"),
    )?;
    run.mark("it goes on");
    stage.stop.sleep(STATE)?;

    let old = writer(stage, peer)?;
    run.mark(format!("{} becomes read-only", old.name));
    servers.root_query(old.index, "SET GLOBAL read_only = ON")?;
    wait_moved(stage, weir, &old)?;
    servers.root_query(old.index, "SET GLOBAL read_only = OFF")?;
    stage.stop.sleep(STATE)?;

    let old = writer(stage, peer)?;
    run.mark(format!("the writer {} is drained", old.name));
    order(weir, &["drain", &old.address.to_string()])?;
    wait_moved(stage, weir, &old)?;
    order(weir, &["undrain", &old.address.to_string()])?;
    stage.stop.sleep(STATE)?;

    let target = reader(&writer(stage, peer)?)?;
    servers.stop(target.index)?;
    // Without it the node gets everything anew, and its donor is busy for longer.
    let state = servers.dir().join(&target.name).join("grastate.dat");
    fs::remove_file(&state).map_err(Error::io(format!("remove {}", state.display())))?;
    run.mark(format!("{} starts and needs a donor", target.name));
    stage.cluster()?.start_node(target.index)?;
    servers.number(target.index)?;
    run.mark(format!("{} is Synced", target.name));
    stage.stop.sleep(STATE)
}

fn wait_moved(stage: &Stage<'_>, weir: &RunningWeir, old: &Server) -> Result<(), Error> {
    stage.stop.wait("another writer", MOVE_TIMEOUT_S, || {
        Ok(weir.writer()?.is_some_and(|writer| writer != old.address))
    })
}

/// How often Weir had no reader when it was asked.
fn times_without_readers(weir: &RunningWeir, stop: &AtomicBool) -> usize {
    let mut empty = 0;
    while !stop.load(Ordering::Relaxed) {
        empty += usize::from(weir.readers().is_ok_and(|readers| readers.is_empty()));
        thread::sleep(LOOK);
    }
    empty
}
