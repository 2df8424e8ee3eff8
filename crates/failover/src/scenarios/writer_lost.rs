//! Ends the writer: in good order, or not.

use std::time::Duration;

use weir_lab::goals::GoalChecks;
use weir_lab::log_watch::SYNCED;
use weir_lab::record::{RowId, Source};
use weir_lab::{Error, Moment};
use weir_testkit::Signal;

use crate::peer::{Peer, PeerKind};
use crate::scenarios::Seen;
use crate::stage::{Finished, Stage};
use weir_lab::servers::Server;

/// The longest that clients may have to wait for answers.
pub(super) const RECOVERY_TIMEOUT_S: u64 = 40;
/// An orderly leave is over within this.
const TERMINATED_PAUSE_MS: f64 = 1000.0;
/// Weir's own part of a failover, from the group's new view on.
pub(super) const OWN_SHARE_MS: f64 = 100.0;
/// A hung node stays hung for so long after the others serve again.
const HUNG: Duration = Duration::from_secs(6);
/// The longest that a node which goes on may take to be Synced again.
pub(super) const SYNCED_TIMEOUT: Duration = Duration::from_secs(60);

/// How a server goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// SIGTERM: it says goodbye to the others.
    Terminated,
    /// SIGKILL: nobody says anything.
    Killed,
}

/// The writer of a cluster, or the primary of a group, goes and stays away.
pub(super) fn gone(stage: &Stage<'_>, kind: PeerKind, end: End) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(kind)?;
    let victim = writer(stage, &peer)?;
    let servers = stage.servers()?;
    let event = match end {
        End::Terminated => {
            let event = run.mark(format!("SIGTERM of {}", victim.name));
            servers.stop(victim.index)?;
            event
        }
        End::Killed => {
            let event = run.mark(format!("SIGKILL of {}", victim.name));
            servers.kill(victim.index)?;
            event
        }
    };
    let answered = run.wait_answers(stage, event, RECOVERY_TIMEOUT_S)?;
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    let figures = finished.figures();
    let mut goals = GoalChecks::new(stage.args.smoke);
    if kind == PeerKind::Weir {
        goals.must("every client is served again", yes(answered), answered);
        goals.none("errors outside transactions", figures.outside);
        goals.data(&figures);
        match (end, servers) {
            // A group's own time is not Weir's.
            (End::Terminated, weir_lab::servers::Servers::Group(_)) => {
                let share = figures.own_share_ms.unwrap_or(figures.write_pause_ms);
                goals.within("write pause after the new primary", share, TERMINATED_PAUSE_MS);
            }
            (End::Terminated, _) => goals.within("write pause", figures.write_pause_ms, TERMINATED_PAUSE_MS),
            (End::Killed, _) => goals.own_share(&figures, OWN_SHARE_MS),
        }
    }
    Ok(Seen::new(finished, figures, goals))
}

/// SIGSTOP: its sockets stay open and nothing comes; later it goes on as if nothing had been.
pub(super) fn hung(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(PeerKind::Weir)?;
    let victim = writer(stage, &peer)?;
    let cluster = stage.cluster()?;
    let node = cluster.node(victim.index);
    let process = node.process().ok_or_else(|| Error::Impossible("the writer does not run".to_owned()))?;
    let event = run.mark(format!("SIGSTOP of {}", victim.name));
    node.pause()?;
    let answered = run.wait_answers(stage, event, RECOVERY_TIMEOUT_S)?;
    stage.stop.sleep(HUNG)?;
    let back = run.mark(format!("SIGCONT of {}", victim.name));
    // Not before its mark, and whatever the node thinks of itself.
    node.resume()?;
    let went_on = process.signal(Signal::CONT).is_ok();
    // It says Synced until it has seen that the others have gone on without it; they tell when it is back.
    cluster.wait_synced(SYNCED_TIMEOUT)?;
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    let figures = finished.figures();
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.must("every client is served again", yes(answered && went_on), answered && went_on);
    goals.none("errors outside transactions", figures.outside);
    goals.data(&figures);
    goals.own_share(&figures, OWN_SHARE_MS);
    let early = reads_before_synced(&finished, &victim, back);
    goals.none("reads on the returning node before it was Synced", early);
    goals.none("writes on the old writer after SIGSTOP", writes_on(&finished, &victim, event));
    Ok(Seen::new(finished, figures, goals))
}

/// Acknowledged writes that were begun after `moment` and executed by `server`.
pub(super) fn writes_on(finished: &Finished, server: &Server, moment: Moment) -> usize {
    let samples = finished.recording.samples.iter();
    let late = samples.filter(|sample| sample.stream.writes() && sample.sent > moment);
    let node = |stream: u8, number: u64| finished.rows.get(&RowId { stream, number }).map(|row| row.node);
    late.filter(|sample| node(sample.stream.number(), sample.number).map(usize::from) == Some(server.index))
        .count()
}

/// Reads that `server` has answered after `back` and before it called itself Synced again.
pub(super) fn reads_before_synced(finished: &Finished, server: &Server, back: Moment) -> usize {
    let recording = &finished.recording;
    let source = Source::Server(u8::try_from(server.index).unwrap_or(0));
    let said = |text: &str| {
        let mut marks = recording.marks.iter();
        marks.find(|m| m.source == source && m.at > back && m.text == text).map(|m| m.at)
    };
    let synced = said(SYNCED).unwrap_or(recording.ended);
    let reads = recording.samples.iter().filter(|sample| usize::from(sample.node) == server.index);
    reads.filter(|sample| sample.done > back && sample.done < synced).count()
}

/// The server that gets the writes: Weir says it; HAProxy's first one is the first; Router's is the primary.
pub(super) fn writer(stage: &Stage<'_>, peer: &Peer) -> Result<Server, Error> {
    let servers = stage.servers()?;
    let first = || servers.all().into_iter().next();
    let server = match peer {
        Peer::Weir(weir) => weir.writer()?.map(|address| servers.at(address)).transpose()?,
        Peer::HaProxy { .. } => first(),
        Peer::MysqlRouter(_) => servers.primary(),
    };
    server.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))
}

pub(super) fn yes(holds: bool) -> &'static str {
    if holds { "yes" } else { "no" }
}
