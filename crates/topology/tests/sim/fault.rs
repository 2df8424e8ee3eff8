//! Worlds in which the writer is moved once, and one thing goes wrong: at each question that Weirs put to servers from
//! then on, one after the other.

use crate::queue::{MS, Time};

/// When the writer is moved.
pub(crate) const MOVED_AT: Time = 6000 * MS;
/// When somebody mends everything after that.
pub(crate) const MENDED_AT: Time = 35_000 * MS;
/// When it is over at the latest; else after so many looks at a quiet world.
pub(crate) const ENDED_AT: Time = 150_000 * MS;
pub(crate) const LOOKS: u64 = 40;

/// Where in the world what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) moved: Moved,
    /// Before which question of all that are put after the move has begun; counted from 1.
    pub(crate) before: u32,
    pub(crate) blow: Blow,
}

/// Why the writer is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// A Weir is ordered to make another server the writer.
    InOrder,
    /// Two are, each another one.
    InOrderTwice,
    /// It dies.
    Lost,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The Weir that asks dies, and is started again.
    WeirDies,
    /// It is stopped for longer than any lease.
    WeirIsStopped,
    /// The server that is asked dies, and is started again.
    ServerDies,
    /// It is stopped, and goes on: then it does what it was asked.
    ServerIsStopped,
    /// It does what it is asked, and the answer is lost.
    AnswerIsLost,
    /// The Weir does not reach it for a while.
    QuestionIsLost,
    /// It and the Weir are parted from all others.
    AreParted,
}

impl Moved {
    pub(crate) const ALL: [Self; 3] = [Self::InOrder, Self::InOrderTwice, Self::Lost];
}

impl Blow {
    pub(crate) const ALL: [Self; 7] = [
        Self::WeirDies,
        Self::WeirIsStopped,
        Self::ServerDies,
        Self::ServerIsStopped,
        Self::AnswerIsLost,
        Self::QuestionIsLost,
        Self::AreParted,
    ];
}
