//! Chooses the readers of a cluster of which every healthy member can read.

use crate::member::{self, Member, healthy};
use crate::{ClusterPolicy, Endpoint, Place, Reason, Role, Status, Wish, WriterReads};

/// What a flavour thinks of healthy members with states `S` that are to read.
pub(crate) trait Reading<S> {
    /// The places of these writers, and of members that could take their place.
    fn writers_and_backups(&self, writers: &[Endpoint]) -> Vec<Place>;

    /// Why a member should not read while others can.
    fn too_slow(&self, member: &Member<'_, S>, state: &S) -> Option<Reason>;

    /// Why a member reads that is not too slow.
    fn healthy(&self, state: &S) -> Reason;

    /// Why a member reads although it is too slow: all are.
    fn only_reader(&self, state: &S) -> Reason;

    /// Why members nearer to Weir should read in its place.
    fn too_far(&self, _state: &S) -> Option<Reason> {
        None
    }
}

/// The places of all members: as writers and their backups, as readers, and out of service.
pub(crate) fn all_places<S>(
    members: &[Member<'_, S>],
    writers: &[Endpoint],
    policy: &ClusterPolicy,
    reading: &impl Reading<S>,
) -> Vec<Place> {
    let mut all = reading.writers_and_backups(writers);
    all.extend(places(members, writers, policy, reading));
    all.extend(member::offline(members, policy.offline_hostgroup));
    all
}

/// The places in the reader hostgroup. It is never empty while there is a healthy member that is wanted there: while
/// fewer than `readers_min` read, the next best kind of members does, too.
fn places<S>(
    members: &[Member<'_, S>],
    writers: &[Endpoint],
    policy: &ClusterPolicy,
    reading: &impl Reading<S>,
) -> Vec<Place> {
    let hostgroup = policy.reader_hostgroup;
    let wanted: Vec<_> = healthy(members)
        .filter(|(member, _)| member.wish_in(hostgroup) == Wish::Online)
        .map(|(member, state)| {
            let is_spared = policy.writer_reads != WriterReads::Yes && writers.contains(member.endpoint);
            let hindrance = reading.too_slow(member, state).or_else(|| reading.too_far(state));
            (member, state, Suit::of(hindrance.as_ref(), is_spared), hindrance)
        })
        .collect();
    let mut suits: Vec<Suit> = wanted.iter().map(|(_, _, suit, _)| *suit).collect();
    suits.sort_unstable();
    let worst = worst_needed(&suits, policy.choices.readers_min);
    let mut places = Vec::new();
    for (member, state, suit, hindrance) in wanted {
        let is_writer = writers.contains(member.endpoint);
        let is_best = suits.first() == Some(&suit);
        let needed = |hindrance| {
            let readers_min = policy.choices.readers_min;
            Reason::NeededReader { despite: Box::new(hindrance), readers_min }
        };
        let (reason, status) = match hindrance {
            _ if suit > worst && policy.writer_reads != WriterReads::Yes && is_writer => continue,
            Some(reason @ Reason::Desynced) if suit > worst => (reason, Status::OfflineSoft),
            Some(reason) if suit > worst => (reason, Status::Shunned),
            Some(_) if suit > Suit::Writer && is_best => (reading.only_reader(state), Status::Online),
            Some(hindrance) => (needed(hindrance), Status::Online),
            None if suit == Suit::Writer && is_best => (Reason::WriterIsOnlyReader, Status::Online),
            None if suit == Suit::Writer => (needed(Reason::WriterStandsAside), Status::Online),
            None if is_writer => (Reason::WriterReads, Status::Online),
            None => (reading.healthy(state), Status::Online),
        };
        places.push(Place { status, ..member.place(hostgroup, Role::Reader, reason) });
    }
    places.extend(healthy(members).filter_map(|(member, _)| member.unwished_place(hostgroup, Role::Reader)));
    places
}

/// The suitability of a member as a reader, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Suit {
    Well,
    OtherSegment,
    /// A writer that is to be spared.
    Writer,
    Donor,
    Behind,
    Desynced,
}

impl Suit {
    fn of(hindrance: Option<&Reason>, is_spared: bool) -> Self {
        let suit = match hindrance {
            None => Self::Well,
            Some(Reason::OtherSegment { .. }) => Self::OtherSegment,
            Some(Reason::DonorStandsAside) => Self::Donor,
            Some(Reason::Desynced) => Self::Desynced,
            Some(_) => Self::Behind,
        };
        if is_spared { suit.max(Self::Writer) } else { suit }
    }
}

/// The worst kind that reads: the first at which enough do. `suits` are sorted.
fn worst_needed(suits: &[Suit], readers_min: u32) -> Suit {
    let needed = usize::try_from(readers_min.max(1)).unwrap_or(usize::MAX);
    suits.get(needed - 1).or(suits.last()).copied().unwrap_or(Suit::Well)
}
