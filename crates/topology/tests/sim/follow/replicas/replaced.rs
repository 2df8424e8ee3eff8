//! Keeps what a Weir must know of sources that were replaced while they were away: such a one gets no write before
//! somebody has decided so, as long as another server of its line is there.

use weir_topology::{Link, ProbeError, ServerState};

use super::Replicas;
use crate::cluster::Context;
use crate::node::{NODES_MAX, endpoint, node_of};
use crate::queue::{MS, Time};
use crate::weir::Weir;

/// Who has answered for so long is known to be there, whatever a Weir heard of it before.
const KNOWN: Time = 5000 * MS;

/// What one Weir has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    life: u32,
    /// The writers of its last decision that had any.
    last: Vec<usize>,
    /// Former ones that were away when another one took their place, and that one.
    replaced: Vec<(usize, usize)>,
    /// Since when each server answers it at once.
    answers_since: [Option<Time>; NODES_MAX],
}

impl Replicas {
    /// Notes which servers answer.
    pub(super) fn look_at_lines(&mut self, now: Time) {
        let (servers, paths) = (&self.servers, &self.paths);
        for (line, paths) in self.lines.iter_mut().zip(paths) {
            for (node, server) in servers.iter().enumerate() {
                let is_clear = paths[node].works() && paths[node].delay == 0;
                let answers = is_clear && server.host.runs() && !server.host.busy;
                line.answers_since[node] = answers.then(|| line.answers_since[node].unwrap_or(now));
            }
        }
    }

    /// It is another server from now on.
    pub(super) fn forget_line(&mut self, node: usize) {
        for line in &mut self.lines {
            line.last.retain(|known| *known != node);
            line.replaced.retain(|(former, _)| *former != node);
            line.answers_since[node] = None;
        }
    }

    /// A Weir has decided: notes who was replaced before its eyes, and looks whether it writes to such a one.
    pub(super) fn note_replaced(&mut self, context: &mut Context, weir: &Weir) {
        let (now, count, check) = (context.now, self.servers.len(), self.check);
        let line = &mut self.lines[weir.index];
        if line.life != weir.life {
            (line.life, line.last, line.replaced) = (weir.life, Vec::new(), Vec::new());
        }
        let next = weir.writers.iter().find(|node| !line.last.contains(node)).copied();
        if let Some(next) = next {
            let is_away = |node: &&usize| !weir.writers.contains(node) && is_lost(weir, **node);
            line.replaced.extend(line.last.iter().filter(is_away).map(|former| (*former, next)));
        }
        let since = weir.awake_since.max(weir.wished_at);
        let is_there = |node: usize| {
            let answers = line.answers_since[node].map(|known| known.max(since));
            weir.wants(node) && answers.is_some_and(|known| now > known + KNOWN)
        };
        line.replaced.retain(|(former, _)| {
            let is_read_only = says(weir, *former, |state| state.is_read_only(check) != Ok(false));
            let follows = |node: usize| {
                says(weir, node, |state| {
                    let source = state.source.as_ref().filter(|source| source.link == Link::Up);
                    source.is_some_and(|source| source.endpoint == Some(endpoint(*former)))
                })
            };
            let others = || (0..count).filter(|node| node != former);
            !is_read_only && !others().any(follows) && others().any(is_there)
        });
        if let Some((former, next)) =
            line.replaced.iter().find(|(former, _)| weir.writers.contains(former)).copied()
        {
            let index = weir.index;
            context.fail(|| {
                format!("weir {index} writes to n{former} again, although n{next} has taken its place and nobody has decided so")
            });
        }
        if !weir.writers.is_empty() {
            line.last.clone_from(&weir.writers);
        }
    }
}

/// Whether a Weir has noticed that a server that it wants is away.
fn is_lost(weir: &Weir, node: usize) -> bool {
    let seen = weir.seen.iter().find(|seen| node_of(&seen.endpoint) == node);
    let is_silent = seen.is_some_and(|seen| u64::from(seen.timeouts) >= weir.settings.timeouts_max());
    let is_gone = seen.is_some_and(|seen| matches!(seen.fault, Some(ProbeError::Unreachable(_))));
    weir.wants(node) && (is_silent || is_gone)
}

/// What a server has said of itself last.
fn says(weir: &Weir, node: usize, is: impl Fn(&weir_topology::ReplicaState) -> bool) -> bool {
    let seen = weir.seen.iter().find(|seen| node_of(&seen.endpoint) == node);
    match seen.and_then(|seen| seen.state.as_ref()) {
        Some(ServerState::Replica(state)) => is(state),
        _ => false,
    }
}
