//! Decides whom to evict, and where.

use std::fmt;

use weir_topology::{Endpoint, Millis};

use super::{Membership, Obstacle};

/// A node of a Galera cluster, as whoever keeps a connection to it knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where clients connect.
    pub endpoint: Endpoint,
    /// Whether it lives.
    pub liveness: Liveness,
    /// What it said last; none if it never answered.
    pub last: Option<Membership>,
    /// What speaks against evicting anybody from its cluster, beside [`Membership::obstacles`].
    pub obstacles: Vec<Obstacle>,
}

/// Whether a node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// Nobody knows: a lost connection, silence.
    Unknown,
    /// It answers.
    Alive,
    /// Its process is gone: its connections broke, and both its ports refuse new ones. A time-out proves nothing.
    Dead {
        /// When that was proven.
        since: Millis,
    },
    /// It holds its connections and answers nothing, and the user wants it evicted for that.
    Hung {
        /// When it had been silent for long enough.
        since: Millis,
    },
}

/// The decision about dead nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: every member of the view lives, as far as anybody knows.
    Nothing,
    /// The living have to be asked first: what they said last they said before the death.
    Ask(Vec<Endpoint>),
    /// Nothing, for this reason.
    Refrain(Doubt),
    /// Evict.
    Evict(Eviction),
}

/// Members of one view that are to be put out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The node to be told.
    pub evictor: Endpoint,
    /// Who is to go.
    pub victims: Vec<Victim>,
    /// Who stays, the evictor too.
    pub survivors: Vec<Endpoint>,
    /// When the last of the victims was known to be dead.
    pub since: Millis,
    /// The history of the view.
    pub history: String,
    /// The view's number.
    pub view: u64,
}

/// A dead member of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The node.
    pub endpoint: Endpoint,
    /// The group's name for it.
    pub uuid: String,
}

/// Why nothing is done about a dead node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// Another Weir in front of this cluster comes first; if it does nothing, this one does.
    NotFirst,
    /// Something speaks against it in general.
    Obstacle(Endpoint, Obstacle),
    /// The survivors are not of one view.
    ViewsDiffer,
    /// A member is neither known to live nor to be dead, or is not in the configuration.
    MembersUnaccounted {
        /// Members that are known.
        known: usize,
        /// Members of the view.
        size: u32,
    },
    /// A member was giving or getting a state transfer, or is not yet done with one.
    NotSynced(Endpoint),
    /// An earlier eviction is not over.
    ListNotEmpty(Endpoint),
    /// One node would be left.
    OneLeft,
    /// The survivors are no majority.
    NoMajority {
        /// What they weigh.
        survivors: u32,
        /// What the view weighs.
        view: u32,
    },
    /// The weights of the members are not that of the view: somebody is changing them.
    WeightsDiffer,
    /// The group's name for the node is not known.
    NoUuid(Endpoint),
}

/// Decides from facts alone what to do about dead members.
///
/// The evictor is the survivor with the lowest UUID, which speaks for the group when it forms a view: a survivor that is
/// told of the eviction by another marks the victim inactive, the evictor itself does not, so with any other evictor
/// their messages differ for a whole retransmission period.
pub fn decide(nodes: &[Node]) -> Decision {
    let survivors: Vec<(&Node, &Membership)> = nodes.iter().filter_map(living_member).collect();
    let dead = nodes.iter().filter_map(|node| match node.liveness {
        Liveness::Dead { since } | Liveness::Hung { since } => Some((node, node.last.as_ref()?, since)),
        _ => None,
    });
    let is_member =
        |last: &Membership| survivors.iter().any(|(_, seen)| last.is_primary && seen.is_in_view_of(last));
    let dead: Vec<(&Node, &Membership, Millis)> = dead.filter(|(_, last, _)| is_member(last)).collect();
    let Some(since) = dead.iter().map(|(_, _, since)| *since).max() else { return Decision::Nothing };
    let unasked: Vec<Endpoint> = survivors
        .iter()
        .filter(|(_, seen)| seen.asked_at < since)
        .map(|(node, _)| node.endpoint.clone())
        .collect();
    if !unasked.is_empty() {
        return Decision::Ask(unasked);
    }
    match doubt(&survivors, &dead) {
        Some(doubt) => Decision::Refrain(doubt),
        None => eviction(&survivors, &dead, since),
    }
}

/// A node that lives and is in the Primary component.
fn living_member(node: &Node) -> Option<(&Node, &Membership)> {
    let seen = node.last.as_ref().filter(|seen| node.liveness == Liveness::Alive && seen.is_primary)?;
    Some((node, seen))
}

fn eviction(
    survivors: &[(&Node, &Membership)],
    dead: &[(&Node, &Membership, Millis)],
    since: Millis,
) -> Decision {
    let Some((evictor, seen)) = survivors.iter().min_by_key(|(_, seen)| &seen.uuid) else {
        return Decision::Nothing;
    };
    let victim = |(node, last, _): &(&Node, &Membership, Millis)| Victim {
        endpoint: node.endpoint.clone(),
        uuid: last.uuid.clone(),
    };
    Decision::Evict(Eviction {
        evictor: evictor.endpoint.clone(),
        victims: dead.iter().map(victim).collect(),
        survivors: survivors.iter().map(|(node, _)| node.endpoint.clone()).collect(),
        since,
        history: seen.history.clone(),
        view: seen.view,
    })
}

/// What speaks against it.
fn doubt(survivors: &[(&Node, &Membership)], dead: &[(&Node, &Membership, Millis)]) -> Option<Doubt> {
    let (_, first) = survivors.first()?;
    let members = || {
        let dead = dead.iter().map(|(node, last, _)| (*node, *last));
        survivors.iter().copied().chain(dead)
    };
    if survivors.iter().any(|(_, seen)| !seen.is_in_view_of(first) || seen.size != first.size) {
        return Some(Doubt::ViewsDiffer);
    }
    let known = survivors.len() + dead.len();
    if usize::try_from(first.size) != Ok(known) {
        return Some(Doubt::MembersUnaccounted { known, size: first.size });
    }
    for (node, seen) in members() {
        if let Some(obstacle) = node.obstacles.iter().cloned().chain(seen.obstacles()).next() {
            return Some(Doubt::Obstacle(node.endpoint.clone(), obstacle));
        }
        if !seen.is_synced {
            return Some(Doubt::NotSynced(node.endpoint.clone()));
        }
        if !seen.has_uuid() {
            return Some(Doubt::NoUuid(node.endpoint.clone()));
        }
    }
    if let Some((node, _)) = survivors.iter().find(|(_, seen)| !seen.evicted.is_empty()) {
        return Some(Doubt::ListNotEmpty(node.endpoint.clone()));
    }
    if survivors.len() < 2 {
        return Some(Doubt::OneLeft);
    }
    let weigh = |seen: &Membership| u64::from(seen.provider.weight);
    let majority: u64 = survivors.iter().map(|(_, seen)| weigh(seen)).sum();
    let all: u64 = members().map(|(_, seen)| weigh(seen)).sum();
    if survivors.iter().any(|(_, seen)| u64::from(seen.weight) != all) {
        return Some(Doubt::WeightsDiffer);
    }
    let shown = |weight| u32::try_from(weight).unwrap_or(u32::MAX);
    (2 * majority <= all).then_some(Doubt::NoMajority { survivors: shown(majority), view: shown(all) })
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFirst => f.write_str("another Weir comes first"),
            Self::Obstacle(node, obstacle) => write!(f, "{node}: {obstacle}"),
            Self::ViewsDiffer => f.write_str("the survivors' views differ"),
            Self::MembersUnaccounted { known, size } => {
                write!(f, "only {known} of the view's {size} members are known to be alive or dead")
            }
            Self::NotSynced(node) => write!(f, "{node} is not Synced"),
            Self::ListNotEmpty(node) => write!(f, "the evict list of {node} is not empty"),
            Self::OneLeft => f.write_str("only one node would be left"),
            Self::NoMajority { survivors, view } => {
                write!(f, "the survivors have weight {survivors} of {view}, which is no majority")
            }
            Self::WeightsDiffer => f.write_str("the members' weights do not add up to their view's"),
            Self::NoUuid(node) => write!(f, "the UUID of {node} in its group is not known"),
        }
    }
}
