//! Virtual time and the one queue of everything that is going to happen.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use weir_topology::{EpochRead, Millis, ProbeError, ServerState};

use crate::chaos::Action;
use crate::follow::Turn;

/// Microseconds since the world began.
pub(crate) type Time = u64;

/// One millisecond of [`Time`].
pub(crate) const MS: Time = 1000;

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The next disturbance.
    Chaos,
    /// A person looks whether the cluster needs help.
    Operator,
    /// Something is done to the world.
    Act(Action),
    /// The nodes look who reaches whom.
    Regroup,
    /// A node installs a view.
    Install { node: usize, life: u32, view: usize },
    /// A joiner looks for a donor.
    Join { node: usize, life: u32, transfer: u32 },
    /// A state transfer ends.
    Transferred { joiner: (usize, u32, u32), donor: (usize, u32, u32) },
    /// A node has caught up.
    Synced { node: usize, life: u32, transfer: u32 },
    /// A probe reaches its node.
    Asked { weir: usize, life: u32, node: usize, probe: u64, deadline: Time },
    /// A probe ends.
    Answered { weir: usize, life: u32, node: usize, probe: u64, result: Box<Result<ServerState, ProbeError>> },
    /// A probe is due.
    Probe { weir: usize, life: u32, node: usize, turn: u64 },
    /// A Weir decides although it has heard nothing.
    Tick { weir: usize, life: u32 },
    /// A client of a Weir writes.
    Client { weir: usize, life: u32 },
    /// A write reaches its node.
    Written { write: usize },
    /// A write's answer reaches its Weir: whether it was committed, or the connection broke.
    Replied { write: usize, reply: Reply },
    /// A Weir reads the tables of the agreement.
    ReadDue { weir: usize, life: u32, node: usize },
    /// The read reaches its node, or waits there.
    ReadAsked { weir: usize, life: u32, node: usize, asked_at: Millis, deadline: Time },
    /// The read ends.
    Read { weir: usize, life: u32, node: usize, read: Box<EpochRead> },
    /// A stopped Weir goes on.
    Continue { weir: usize, life: u32 },
    /// A killed Weir is started.
    Restart { weir: usize },
    /// The next step of what a Weir does with servers.
    NextStep { weir: usize, life: u32 },
    /// Something of a group's or of replication's own.
    Turn(Turn),
}

/// What became of a write, as its Weir hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Acknowledged,
    Refused,
    Broken,
}

impl Event {
    /// Whether it is about a client of a Weir, and not about what the Weir decides.
    pub(crate) fn is_clients(&self) -> bool {
        matches!(self, Self::Client { .. })
    }

    /// The Weir whose process handles the event, and in which life; the event waits while that is stopped.
    pub(crate) fn handled_by(&self) -> Option<(usize, u32)> {
        match self {
            Self::Answered { weir, life, .. }
            | Self::Probe { weir, life, .. }
            | Self::Tick { weir, life }
            | Self::ReadDue { weir, life, .. }
            | Self::Read { weir, life, .. }
            | Self::NextStep { weir, life }
            | Self::Client { weir, life } => Some((*weir, *life)),
            _ => None,
        }
    }
}

struct Entry {
    at: Time,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Events by time; those of one moment in the order in which they were added.
#[derive(Default)]
pub(crate) struct Queue {
    entries: BinaryHeap<Reverse<Entry>>,
    added: u64,
}

impl Queue {
    pub(crate) fn add(&mut self, at: Time, event: Event) {
        self.added += 1;
        self.entries.push(Reverse(Entry { at, order: self.added, event }));
    }

    pub(crate) fn next(&mut self) -> Option<(Time, Event)> {
        self.entries.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
