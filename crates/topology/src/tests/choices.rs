//! Tests the settings of `weir_topology` for readers: how many, which segment, donors.

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

/// Node 0 has the greatest weight, and was away.
fn after_a_failover(failback: Failback) -> World {
    let mut world = with(Choices { failback, uptime_min_ms: 60_000, ..Choices::default() });
    world.see_changed(0, |state| state.maintenance = Maintenance::Wanted);
    world.decide();
    assert_eq!(world.writer(), Some(1));
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.writer(), Some(1));
    world
}

fn proposed(world: &World) -> Option<&Endpoint> {
    world.roles.group(100)?.failback.as_ref()
}

#[test]
fn failback_never() {
    let mut world = after_a_failover(Failback::Never);
    world.pass(3_600_000);
    world.decide();
    assert_eq!((world.writer(), proposed(&world)), (Some(1), None));
}

#[test]
fn failback_immediate_after_the_least_time_up() {
    let mut world = after_a_failover(Failback::Immediate);
    world.pass(59_999);
    world.decide();
    assert_eq!(world.writer(), Some(1));
    // Away for a moment: its time begins anew.
    world.see_changed(0, |state| state.ready = false);
    world.decide();
    world.see(0, Ok(synced(0)));
    world.decide();
    world.pass(59_999);
    world.decide();
    assert_eq!(world.writer(), Some(1));
    world.pass(1);
    world.decide();
    assert_eq!(world.writer(), Some(0));
    let reason = world.roles.reason_in(100, &node(0)).map(ToString::to_string);
    assert_eq!(reason.as_deref(), Some("took over from 192.168.4.23:3306, which has a smaller weight"));
    world.pass(3_600_000);
    world.decide();
    assert_eq!(world.writer(), Some(0), "the other is no heavier");
}

#[test]
fn failback_drained_asks_for_a_switchover() {
    let mut world = after_a_failover(Failback::Drained);
    world.pass(59_999);
    world.decide();
    assert_eq!(proposed(&world), None);
    world.pass(1);
    world.decide();
    assert_eq!((world.writer(), proposed(&world)), (Some(1), Some(&node(0))), "the writer stays until then");
    world.policy.switches = vec![Switch {
        writer_hostgroup: 100,
        from: node(1),
        to: node(0),
        step: SwitchStep::Move,
        ordered_at: 0,
    }];
    world.decide();
    world.policy.switches = Vec::new();
    assert_eq!((world.writer(), proposed(&world)), (Some(0), None));
    // By hand to the lighter one: it lasts for the least time up.
    world.policy.switches = vec![Switch {
        writer_hostgroup: 100,
        from: node(0),
        to: node(2),
        step: SwitchStep::Move,
        ordered_at: 0,
    }];
    world.decide();
    world.policy.switches = Vec::new();
    world.pass(59_999);
    world.decide();
    assert_eq!((world.writer(), proposed(&world)), (Some(2), None));
    world.pass(1);
    world.decide();
    assert_eq!(proposed(&world), Some(&node(0)));
}

#[test]
fn equal_weights_are_no_reason_to_move() {
    let mut world = after_a_failover(Failback::Immediate);
    world.rows.push(row(1, 100, 10_000));
    world.pass(3_600_000);
    world.decide();
    assert_eq!(world.writer(), Some(1));
}

#[test]
fn flow_control_for_long() {
    let mut world = with(Choices::default());
    let paused = |permille: u16| move |state: &mut GaleraState| state.flow_control_paused_permille = permille;
    world.see_changed(1, paused(950));
    world.decide();
    assert_eq!(world.picture(), "W BR BR", "for a moment");
    world.pass(1999);
    world.see_changed(1, paused(460));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    world.pass(1);
    world.decide();
    assert_eq!(world.picture(), "W Br BR", "it has not got better than half");
    assert_eq!(reason(&world, 1).as_deref(), Some("flow control paused it for 46% of the time"));
    world.see_changed(1, paused(450));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    // A storm holds up all: nothing moves.
    for _ in 0..5 {
        (0..3).for_each(|index| world.see_changed(index, paused(990)));
        world.decide();
        assert_eq!(world.picture(), "W BR BR");
        world.pass(1000);
    }
}
