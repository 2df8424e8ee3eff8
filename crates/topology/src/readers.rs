//! Who reads in a cluster of which every healthy member can.

use crate::member::{Member, healthy};
use crate::{ClusterPolicy, Endpoint, Place, Reason, Role, Status, Wish, WriterReads};

/// What a flavour thinks of healthy members with states `S` that are to read.
pub(crate) trait Reading<S> {
    /// Why a member should not read while others can.
    fn too_slow(&self, member: &Member<'_, S>, state: &S) -> Option<Reason>;

    /// Why a member reads that is not too slow.
    fn healthy(&self, state: &S) -> Reason;

    /// Why a member reads although it is too slow: all are.
    fn only_reader(&self, state: &S) -> Reason;
}

/// The places in the reader hostgroup. It is never empty while there is a healthy member that is wanted there.
pub(crate) fn places<S>(
    members: &[Member<'_, S>],
    writers: &[Endpoint],
    policy: &ClusterPolicy,
    reading: &impl Reading<S>,
) -> Vec<Place> {
    let hostgroup = policy.reader_hostgroup;
    let spared =
        |member: &Member<'_, S>| policy.writer_reads != WriterReads::Yes && writers.contains(member.endpoint);
    let wanted: Vec<_> = healthy(members)
        .filter(|(member, _)| member.wish_in(hostgroup) == Wish::Online)
        .map(|(member, state)| (member, state, reading.too_slow(member, state)))
        .collect();
    let all_slow = wanted.iter().all(|(_, _, slow)| slow.is_some());
    let spare_writers = wanted.iter().any(|(member, _, slow)| slow.is_none() && !spared(member));
    let mut places = Vec::new();
    for (member, state, slow) in wanted {
        let (reason, status) = match slow {
            Some(_) if all_slow => (reading.only_reader(state), Status::Online),
            Some(_) if spared(member) && spare_writers => continue,
            Some(reason @ Reason::Desynced) => (reason, Status::OfflineSoft),
            Some(reason) => (reason, Status::Shunned),
            None if spared(member) && spare_writers => continue,
            None if spared(member) => (Reason::WriterIsOnlyReader, Status::Online),
            None if writers.contains(member.endpoint) => (Reason::WriterReads, Status::Online),
            None => (reading.healthy(state), Status::Online),
        };
        places.push(Place { status, ..member.place(hostgroup, Role::Reader, reason) });
    }
    places.extend(healthy(members).filter_map(|(member, _)| member.unwished_place(hostgroup, Role::Reader)));
    places
}
