//! What `weir_topology` says of readers: how many, which segment, donors.

use super::*;

fn with(choices: Choices) -> World {
    let mut wanted = policy(WriterReads::No);
    wanted.galera[0].choices = choices;
    World::new(wanted)
}

fn readers_min(readers_min: u32) -> World {
    with(Choices { readers_min, ..Choices::default() })
}

fn reason(world: &World, index: usize) -> Option<String> {
    world.roles.reason_in(101, &node(index)).map(ToString::to_string)
}

#[test]
fn the_writer_fills_up_the_readers() {
    assert_eq!(readers_min(2).picture(), "W BR BR");
    let mut world = readers_min(3);
    assert_eq!(world.picture(), "WR BR BR");
    assert_eq!(reason(&world, 0).as_deref(), Some("reads although it is the writer: fewer than 3 others do"));
    let mut two = readers_min(2);
    two.see(1, Err(refused()));
    two.decide();
    assert_eq!(two.picture(), "WR - BR");
    two.see(1, Ok(synced(1)));
    two.decide();
    assert_eq!(two.picture(), "W BR BR", "and stops as soon as it need not");
    // Nobody is left who could fill up: all read.
    world.see(1, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "WR - BR");
}

#[test]
fn those_behind_read_before_there_are_too_few() {
    let mut world = readers_min(2);
    world.see_changed(1, |state| state.local_recv_queue = 50);
    world.decide();
    assert_eq!(world.picture(), "WR Br BR", "the writer is better than one that is behind");
    world.see_changed(2, |state| state.local_recv_queue = 50);
    world.decide();
    assert_eq!(world.picture(), "WR BR BR", "but one reader is too few");
    assert_eq!(
        reason(&world, 1).as_deref(),
        Some("reads although recv_queue 50 is more than 5: fewer than 2 others do")
    );
}

#[test]
fn readers_of_the_preferred_segment() {
    let mut world = with(Choices { reader_segment: Some(1), ..Choices::default() });
    assert_eq!(world.picture(), "W BR BR", "nobody is in it");
    world.see_changed(1, |state| state.segment = 1);
    world.decide();
    assert_eq!(world.picture(), "W BR Br");
    assert_eq!(reason(&world, 2).as_deref(), Some("it is in segment 0, not in 1"));
    world.see(1, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "W - BR", "a far reader is better than the writer");
    assert_eq!(
        reason(&world, 2).as_deref(),
        Some("reads although it is in segment 0, not in 1: fewer than 1 others do")
    );
}

#[test]
fn a_donor_stands_aside() {
    let mut world = with(Choices { donor_reads: DonorReads::AsLastResort, ..Choices::default() });
    world.see_changed(1, |state| state.local_state = LocalState::Donor);
    world.decide();
    assert_eq!(world.picture(), "W r BR");
    assert_eq!(reason(&world, 1).as_deref(), Some("it is a donor"));
    world.see(2, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "WR r -");
    world.rows.retain(|row| row.endpoint != node(0) || row.hostgroup != 101);
    world.rows[0].wish = Wish::OfflineHard;
    world.decide();
    assert_eq!(world.picture(), "- WR -", "the last one reads and writes");
}
