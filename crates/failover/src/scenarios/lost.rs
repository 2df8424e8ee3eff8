//! The writer goes: in good order, or not.

use weir_testkit::{Node, TestkitError};

use crate::error::FailoverError;
use crate::peer::{Peer, PeerKind};
use crate::scenarios::Seen;
use crate::stage::Stage;
use crate::trial::{Figures, Judge};

/// The longest that clients may have to wait for answers.
const RECOVERY_TIMEOUT_S: u64 = 40;
/// An orderly leave is over within this.
const TERMINATED_PAUSE_MS: f64 = 1000.0;
/// Weir's own part of a failover, from the group's new view on.
pub(super) const OWN_SHARE_MS: f64 = 100.0;

/// SIGTERM: the node says goodbye to its cluster.
pub(super) fn terminated(stage: &Stage<'_>, peer: PeerKind) -> Result<Seen, FailoverError> {
    gone(stage, peer, "SIGTERM", Node::stop)
}

/// SIGKILL: nobody says anything.
pub(super) fn killed(stage: &Stage<'_>, peer: PeerKind) -> Result<Seen, FailoverError> {
    gone(stage, peer, "SIGKILL", Node::kill)
}

fn gone(
    stage: &Stage<'_>,
    kind: PeerKind,
    signal: &str,
    go: fn(&Node) -> Result<(), TestkitError>,
) -> Result<Seen, FailoverError> {
    let (peer, mut run) = stage.begin(kind)?;
    let victim = writer(stage, &peer)?;
    let event = run.mark(format!("{signal} of {}", victim.name()));
    go(victim)?;
    let answered = run.wait_answers(stage, event, RECOVERY_TIMEOUT_S)?;
    stage.pause(stage.scale.settle)?;
    let table = run.table().to_owned();
    let recording = run.finish()?;
    let audit = stage.audit(&table, &recording)?;
    let figures = Figures::of(&recording, &audit, stage.scale.load.threads);
    let mut notes = audit.named;
    if !answered {
        notes.push(format!("After {RECOVERY_TIMEOUT_S} s there were probes without an answer."));
    }
    let mut judge = Judge::new(stage.args.smoke);
    if kind == PeerKind::Weir {
        judge.must("every client is served again", if answered { "yes" } else { "no" }, answered);
        judge.none("errors outside transactions", figures.outside);
        judge.data(&figures);
        if signal == "SIGTERM" {
            judge.within("write pause", figures.write_pause_ms, TERMINATED_PAUSE_MS);
        } else {
            judge.within(
                "write pause after the new view",
                figures.own_share_ms.unwrap_or(f64::INFINITY),
                OWN_SHARE_MS,
            );
        }
    }
    Ok(Seen { variant: String::new(), recording, figures, checks: judge.checks, notes })
}

/// The node that gets the writes: Weir says it, HAProxy's first one is the first.
pub(super) fn writer<'s>(stage: &'s Stage<'_>, peer: &Peer) -> Result<&'s Node, FailoverError> {
    let cluster = stage.cluster()?;
    let address = match peer.weir() {
        Some(weir) => weir.writer()?,
        None => Some(cluster.node(1).addr()),
    };
    let node = cluster.nodes().iter().find(|node| Some(node.addr()) == address);
    node.ok_or_else(|| FailoverError::Impossible(format!("the writer is {address:?}")))
}
