//! Plays through the articles' set-up: hostgroups 100, 101, 102 and 9101, the preferred writer with weight 10000 and as
//! a reader with 100, the others with 10000 as readers only, and no node read_only. What happens to it, and who has
//! which role then.

use super::*;

const ALL: [WriterReads; 3] = [WriterReads::No, WriterReads::Yes, WriterReads::OnlyBackups];

/// What happens, and the picture with writer_is_also_reader 0 or 2, and 1.
type Event = (fn(&mut World), &'static str, &'static str);

const EVENTS: &[Event] = &[
    (|_| {}, "W BR BR", "WR BR BR"),
    (|w| w.see_changed(0, |s| s.read_only = true), "R W BR", "R WR BR"),
    (|w| w.see_changed(0, |s| s.maintenance = Maintenance::Wanted), "- W BR", "- WR BR"),
    (|w| w.see_changed(0, |s| s.local_state = LocalState::Donor), "R W BR", "R WR BR"),
    (|w| w.see_changed(0, |s| s.desync = true), "r W BR", "r WR BR"),
    (|w| w.see_changed(1, |s| s.local_state = LocalState::Donor), "W R BR", "WR R BR"),
    (|w| w.see_changed(1, |s| s.read_only = true), "W R BR", "WR R BR"),
    (|w| (1..3).for_each(|index| w.see_changed(index, |s| s.read_only = true)), "W R R", "WR R R"),
    (|w| (1..3).for_each(|index| w.see_changed(index, |s| s.desync = true)), "WR r r", "WR r r"),
    (|w| (1..3).for_each(|index| w.see(index, Err(refused()))), "WR - -", "WR - -"),
    // Everybody is behind: everybody serves.
    (|w| (0..3).for_each(|index| w.see_changed(index, |s| s.local_recv_queue = 50)), "WR BR BR", "WR BR BR"),
    // Without quorum nobody does anything, not even as the last one.
    (
        |w| (0..3).for_each(|index| w.see_changed(index, |s| s.cluster_status = "non-Primary".into())),
        "- - -",
        "- - -",
    ),
];

#[test]
fn who_has_which_role() {
    for (number, (happen, spared, reading)) in EVENTS.iter().enumerate() {
        for reads in ALL {
            let mut world = World::new(policy(reads));
            happen(&mut world);
            world.decide();
            let picture = if reads == WriterReads::Yes { reading } else { spared };
            assert_eq!(world.picture(), *picture, "event {number}, {reads:?}");
            let weights: Vec<(u32, u32)> = world
                .roles
                .places
                .iter()
                .filter(|place| place.role == Role::Reader)
                .map(|place| (place.weight, if place.endpoint == node(0) { 100 } else { 10_000 }))
                .collect();
            assert!(
                weights.iter().all(|(weight, own)| weight == own),
                "event {number}, {reads:?}: {weights:?}"
            );
        }
    }
}

/// "192.168.4.23 is the first failover, 192.168.4.233 the last chance."
#[test]
fn who_comes_after_the_preferred_writer() {
    for reads in ALL {
        let mut world = World::new(policy(reads));
        for (lost, next) in [(0, 1), (1, 2)] {
            world.see_changed(lost, |state| state.maintenance = Maintenance::Shutdown);
            world.decide();
            assert_eq!(world.writer(), Some(next));
        }
        // And nobody's sessions are cut because the preferred one is back.
        world.see(0, Ok(synced(0)));
        world.pass(3_600_000);
        world.decide();
        assert_eq!(world.writer(), Some(2));
    }
}

/// The readers' hostgroup is not empty while a node works, whatever happens to the nodes one after the other.
#[test]
fn the_readers_are_never_none_while_a_node_works() {
    for reads in ALL {
        for first in EVENTS {
            for second in EVENTS {
                let mut world = World::new(policy(reads));
                for (happen, ..) in [first, second] {
                    happen(&mut world);
                    world.decide();
                    world.pass(5000);
                    world.decide();
                    let works = world.roles.places.iter().any(|place| place.role != Role::Offline);
                    let mut readers = world.roles.hostgroup(101).iter();
                    let reads_one = readers.any(|place| place.status == Status::Online);
                    assert_eq!(works, reads_one, "{reads:?}: {}", world.picture());
                }
            }
        }
    }
}

/// A desynced or a slow node that comes and goes moves the writer role at most once.
#[test]
fn a_writer_that_is_desynced_again_and_again_does_not_get_the_role_back() {
    let mut world = World::new(policy(WriterReads::No));
    let mut changes = 0;
    for round in 0..20 {
        world.see_changed(0, |state| state.desync = round % 2 == 0);
        let before = world.writer();
        world.decide();
        changes += u32::from(world.writer() != before);
        world.pass(500);
    }
    assert_eq!(changes, 1);
}
