//! Puts things in order: evict, wait for the new view, clear the lists.

use weir_topology::{Endpoint, Millis};

use super::{Decision, Doubt, Eviction, Liveness, Membership, Node, decide};

/// For how long the survivors are asked again and again for the new view; then `evs.suspect_timeout` has acted.
const HASTE_MS: u64 = 3000;
/// When the lists are cleared although no new view came, longer than any `evs.inactive_timeout` that makes sense.
const GIVE_UP_MS: u64 = 15_000;
/// For how long entries that nobody seems to need any more are left alone, since another Weir may be at it.
const LEFT_OVER_MS: u64 = 5000;

/// How long each Weir that comes first has to act: the evict list then says that it has.
const RANK_MS: u64 = 100;

/// Decides what to do next about the dead nodes of one cluster; keeps what is under way.
#[derive(Debug, Default)]
pub struct Sequence {
    stage: Stage,
    /// Since when there are entries that this assistant has not made.
    left_over_since: Option<Millis>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// What to do now.
    pub act: Act,
    /// What people should know.
    pub note: Option<Note>,
}

/// The next action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Act {
    /// Nothing.
    #[default]
    Nothing,
    /// Ask these nodes, as soon as possible.
    Ask(Vec<Endpoint>),
    /// Set `evs.evict` to each victim's UUID on the evictor. If that fails, tell [`Sequence::not_done`].
    Evict(Eviction),
    /// Set `evs.evict` to nothing on these nodes.
    Clear(Vec<Endpoint>),
}

/// An event for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A member is dead and stays in the view until the cluster itself gives it up.
    Refrained(Doubt),
    /// The survivors have a view without the victims.
    NewView {
        /// So long after the eviction, in milliseconds.
        after_ms: u64,
    },
    /// No new view within a time in which there should have been one.
    NoNewView {
        /// So long after the eviction, in milliseconds.
        after_ms: u64,
    },
    /// All lists are empty again.
    Clean,
    /// Entries were found that an unfinished eviction has left behind; they are removed.
    LeftOver(Endpoint),
    /// A node that hung lives again, without its cluster: it has to be restarted.
    NeedsRestart(Endpoint),
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Ready,
    /// The evictor has been told.
    Evicted { eviction: Eviction, at: Millis, is_late: bool },
    /// The new view is there, and a victim hangs: as long as it may come back, the list keeps it out.
    Keeping { eviction: Eviction },
    /// The lists have to go; those of nodes that were asked before this moment are not known.
    Clearing { since: Millis },
}

impl Sequence {
    /// What to do, given what is known of all nodes of the cluster. `rank`: how many other Weirs come before this one;
    /// `keeps_hung`: whether lists are kept for nodes that hang.
    ///
    /// Several Weirs that know the same decide the same, and an eviction that is made twice on the same node is one.
    /// Their ranks only see to it that usually one is at work.
    pub fn step(&mut self, nodes: &[Node], rank: u32, keeps_hung: bool, now: Millis) -> Step {
        match &mut self.stage {
            Stage::Ready => self.ready(nodes, rank, keeps_hung, now),
            Stage::Evicted { .. } => self.evicted(nodes, now),
            Stage::Keeping { .. } => self.keeping(nodes, now),
            Stage::Clearing { since } => {
                let since = *since;
                self.clearing(nodes, since, now)
            }
        }
    }

    /// The eviction that was asked for has not been done: the evictor refused it.
    pub fn not_done(&mut self) {
        self.stage = Stage::Ready;
    }

    fn ready(&mut self, nodes: &[Node], rank: u32, keeps_hung: bool, now: Millis) -> Step {
        let listing: Vec<Endpoint> = living(nodes)
            .filter(|(_, seen)| !seen.evicted.is_empty())
            .map(|(node, _)| node.endpoint.clone())
            .collect();
        if let Some(first) = listing.first().cloned() {
            let since = *self.left_over_since.get_or_insert(now);
            let may_be_needed = keeps_hung && nodes.iter().any(is_silent);
            if !may_be_needed && (is_settled(nodes) || now.since(since) >= LEFT_OVER_MS) {
                self.stage = Stage::Clearing { since: now };
                return Step { act: Act::Clear(listing), note: Some(Note::LeftOver(first)) };
            }
        } else {
            self.left_over_since = None;
        }
        match decide(nodes) {
            Decision::Nothing => Step::default(),
            Decision::Ask(nodes) => Step { act: Act::Ask(nodes), note: None },
            Decision::Refrain(doubt) => Step { act: Act::Nothing, note: Some(Note::Refrained(doubt)) },
            Decision::Evict(eviction) if now.since(eviction.since) < RANK_MS * u64::from(rank) => {
                Step { act: Act::Nothing, note: Some(Note::Refrained(Doubt::NotFirst)) }
            }
            Decision::Evict(eviction) => {
                self.stage = Stage::Evicted { eviction: eviction.clone(), at: now, is_late: false };
                Step { act: Act::Evict(eviction), note: None }
            }
        }
    }

    fn evicted(&mut self, nodes: &[Node], now: Millis) -> Step {
        let Stage::Evicted { eviction, at, is_late } = &mut self.stage else { return Step::default() };
        let after_ms = now.since(*at);
        let survivors = || living(nodes).filter(|(node, _)| eviction.survivors.contains(&node.endpoint));
        let has_new_view = |seen: &Membership| {
            seen.is_primary && seen.history == eviction.history && seen.view > eviction.view
        };
        let is_done = survivors().next().is_some() && survivors().all(|(_, seen)| has_new_view(seen));
        if is_done || after_ms >= GIVE_UP_MS {
            let note = if is_done { Note::NewView { after_ms } } else { Note::NoNewView { after_ms } };
            let survivors: Vec<Endpoint> = survivors().map(|(node, _)| node.endpoint.clone()).collect();
            let victims = nodes.iter().filter(|node| eviction.has_victim(node));
            if is_done && victims.into_iter().any(is_silent) {
                self.stage = Stage::Keeping { eviction: eviction.clone() };
                return Step { act: Act::Nothing, note: Some(note) };
            }
            self.stage = Stage::Clearing { since: now };
            return Step { act: Act::Clear(survivors), note: Some(note) };
        }
        if after_ms < HASTE_MS {
            return Step { act: Act::Ask(eviction.survivors.clone()), note: None };
        }
        let note = (!*is_late).then_some(Note::NoNewView { after_ms });
        *is_late = true;
        Step { act: Act::Nothing, note }
    }

    fn keeping(&mut self, nodes: &[Node], now: Millis) -> Step {
        let Stage::Keeping { eviction } = &self.stage else { return Step::default() };
        let mut victims = nodes.iter().filter(|node| eviction.has_victim(node));
        let is_over = |node: &Node| match node.liveness {
            Liveness::Dead { .. } => true,
            Liveness::Alive => node.last.as_ref().is_some_and(|seen| !seen.is_connected),
            Liveness::Unknown | Liveness::Hung { .. } => false,
        };
        if !victims.clone().all(is_over) {
            return Step::default();
        }
        let alive = victims.find(|node| node.liveness == Liveness::Alive).map(|node| node.endpoint.clone());
        let survivors = eviction.survivors.clone();
        self.stage = Stage::Clearing { since: now };
        Step { act: Act::Clear(survivors), note: alive.map(Note::NeedsRestart) }
    }

    /// Lists are cleared until all nodes that live say that theirs is empty.
    fn clearing(&mut self, nodes: &[Node], since: Millis, now: Millis) -> Step {
        let endpoints = |wanted: fn(&Membership, Millis) -> bool| -> Vec<Endpoint> {
            let wanted = living(nodes).filter(|(_, seen)| wanted(seen, since));
            wanted.map(|(node, _)| node.endpoint.clone()).collect()
        };
        let unasked = endpoints(|seen, since| seen.asked_at <= since);
        if !unasked.is_empty() {
            return Step { act: Act::Ask(unasked), note: None };
        }
        let full = endpoints(|seen, _| !seen.evicted.is_empty());
        if full.is_empty() {
            self.stage = Stage::Ready;
            self.left_over_since = None;
            return Step { act: Act::Nothing, note: Some(Note::Clean) };
        }
        self.stage = Stage::Clearing { since: now };
        Step { act: Act::Clear(full), note: None }
    }
}

impl Eviction {
    fn has_victim(&self, node: &Node) -> bool {
        self.victims.iter().any(|victim| victim.endpoint == node.endpoint)
    }
}

fn living(nodes: &[Node]) -> impl Iterator<Item = (&Node, &Membership)> {
    nodes
        .iter()
        .filter(|node| node.liveness == Liveness::Alive)
        .filter_map(|node| Some((node, node.last.as_ref()?)))
}

fn is_silent(node: &Node) -> bool {
    matches!(node.liveness, Liveness::Unknown | Liveness::Hung { .. })
}

/// Whether the cluster has formed a view of nodes that live, all known, none of them evicted: nothing is under way.
fn is_settled(nodes: &[Node]) -> bool {
    let members = || living(nodes).filter(|(_, seen)| seen.is_primary);
    let Some((_, first)) = members().next() else { return false };
    let is_evicted = |uuid: &String| living(nodes).any(|(_, seen)| seen.evicted.contains(uuid));
    members().all(|(_, seen)| seen.is_in_view_of(first) && !is_evicted(&seen.uuid))
        && usize::try_from(first.size) == Ok(members().count())
}
