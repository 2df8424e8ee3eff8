//! Tests what is remembered of components that both call themselves Primary, and what a person decides about them.

use super::components::{auto, in_view, reason, settle, started, torn};
use super::*;

/// The first two nodes are lost, and the third one says that it is Primary alone.
fn lose_right_one(world: &mut World) {
    for index in [0, 1] {
        world.see(index, Err(refused()));
    }
    in_view(world, &[2], 4);
}

fn wish(world: &mut World, index: usize, wish: Wish) {
    world.rows.iter_mut().filter(|row| row.endpoint == node(index)).for_each(|row| row.wish = wish);
}

#[test]
fn a_component_that_has_had_fewer_views_is_known_for_one() {
    let mut world = started();
    settle(&mut world, |world| {
        in_view(world, &[0, 1], 6);
        world.see(2, Err(refused()));
    });
    settle(&mut world, |world| {
        in_view(world, &[0, 1], 6);
        in_view(world, &[2], 4);
    });
    assert!(reason(&world, 2).contains("beside the one that counts"), "{}", reason(&world, 2));
    settle(&mut world, lose_right_one);
    assert_eq!(world.picture(), "- - -");
    assert!(
        reason(&world, 2).contains("set all servers of the lost one OFFLINE_HARD"),
        "{}",
        reason(&world, 2)
    );
    // Their numbers were the same for a moment only.
    let mut world = started();
    for (time, right) in [(0, 4), (200, 4), (200, 5), (100, 6), (300, 6), (300, 6)] {
        world.pass(time);
        in_view(&mut world, &[0, 1], right);
        in_view(&mut world, &[2], 4);
        world.decide();
    }
    settle(&mut world, lose_right_one);
    assert_eq!(world.picture(), "- - -");
}

#[test]
fn a_component_that_was_out_is_remembered_while_no_node_works() {
    let looks: [fn(&mut World); 5] = [
        |world| world.see(2, Err(ProbeError::Timeout(800))),
        |world| world.see(2, Err(refused())),
        |world| world.see_changed(2, |state| state.maintenance = Maintenance::Wanted),
        |world| world.see_changed(2, |state| state.cluster_status = "non-Primary".to_owned()),
        |world| wish(world, 2, Wish::OfflineSoft),
    ];
    for (number, look) in looks.iter().enumerate() {
        let mut world = torn();
        settle(&mut world, lose_right_one);
        settle(&mut world, look);
        wish(&mut world, 2, Wish::Online);
        settle(&mut world, lose_right_one);
        settle(&mut world, lose_right_one);
        settle(&mut world, lose_right_one);
        assert_eq!(world.picture(), "- - -", "{number}");
        // The right one lives, and takes no work.
        settle(&mut world, |world| {
            in_view(world, &[1], 6);
            world.seen.iter_mut().for_each(|seen| {
                if let Some(ServerState::Galera(state)) = &mut seen.state {
                    state.reject_queries |= seen.endpoint == node(1);
                }
            });
            in_view(world, &[2], 4);
        });
        assert_eq!(world.picture(), "- - -", "{number}");
    }
}

/// As `pass`, but nobody is asked.
fn sleep(world: &mut World, ms: u64) {
    world.now = Millis(world.now.0 + ms);
}

#[test]
fn what_is_only_remembered_proves_nothing() {
    let mut world = started();
    world.rows.iter_mut().for_each(|row| row.weight = 1);
    // Weir was suspended, and the others were shut down meanwhile; their machines do not answer.
    sleep(&mut world, 60_000);
    for _ in 0..7 {
        sleep(&mut world, 100);
        in_view(&mut world, &[2], 5);
        world.decide();
    }
    for _ in 0..60 {
        sleep(&mut world, 100);
        for index in [0, 1] {
            world.see(index, Err(ProbeError::Timeout(800)));
        }
        in_view(&mut world, &[2], 5);
        world.decide();
    }
    assert_eq!(world.writer(), Some(2), "{}", reason(&world, 2));
}

#[test]
fn a_node_that_goes_on_by_its_weight_is_the_cluster_once_the_others_know() {
    let mut world = started();
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        for index in [0, 1] {
            world.see(index, Ok(synced(index)));
        }
    });
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        for index in [0, 1] {
            world.see_changed(index, |state| state.cluster_status = "non-Primary".to_owned());
        }
    });
    assert_eq!(world.writer(), Some(2), "{}", reason(&world, 2));
}

/// Of two nodes each goes on alone; the third one was not there.
fn torn_pair() -> World {
    let mut world = started();
    world.rows.retain(|row| row.endpoint != node(2));
    world.seen.retain(|seen| seen.endpoint != node(2));
    settle(&mut world, |world| in_view(world, &[0, 1], 4));
    settle(&mut world, |world| {
        in_view(world, &[0], 5);
        in_view(world, &[1], 5);
    });
    assert_eq!((world.writer(), reason(&world, 1).is_empty()), (Some(0), false));
    world
}

#[test]
fn a_server_that_came_later_is_no_part_of_what_is_given_up() {
    let lose = |world: &mut World| {
        world.see(0, Err(refused()));
        in_view(world, &[1], 5);
    };
    let mut world = torn_pair();
    world.rows.push(row(2, 101, 1));
    world.see(2, Err(refused()));
    settle(&mut world, lose);
    assert_eq!(world.writer(), None);
    wish(&mut world, 0, Wish::OfflineHard);
    world.decide();
    assert_eq!(world.writer(), Some(1), "{}", reason(&world, 1));
    // Nor does it free the nodes that it joins.
    let mut world = torn_pair();
    world.rows.push(row(2, 101, 1));
    settle(&mut world, |world| {
        world.see(0, Err(refused()));
        in_view(world, &[1, 2], 6);
    });
    assert_eq!(world.writer(), None);
    settle(&mut world, |world| {
        world.see(0, Err(refused()));
        world.see(1, Err(refused()));
        in_view(world, &[2], 7);
    });
    assert_eq!(world.writer(), None, "{}", reason(&world, 2));
}

#[test]
fn a_component_that_lives_can_be_given_up() {
    let mut world = torn();
    let look = |world: &mut World| {
        in_view(world, &[2], 4);
        in_view(world, &[0, 1], 6);
    };
    settle(&mut world, look);
    wish(&mut world, 0, Wish::OfflineHard);
    settle(&mut world, look);
    assert_eq!(world.writer(), Some(1), "{}", world.picture());
    wish(&mut world, 1, Wish::OfflineHard);
    look(&mut world);
    world.decide();
    assert_eq!(world.writer(), Some(2), "{}", reason(&world, 2));
    // Who knows nothing is told so, too.
    let mut world = torn_pair();
    world.roles = Roles::default();
    settle(&mut world, |world| {
        in_view(world, &[0], 5);
        in_view(world, &[1], 5);
    });
    assert!(reason(&world, 1).contains("nobody knows which one counts"), "{}", reason(&world, 1));
    wish(&mut world, 0, Wish::OfflineHard);
    world.decide();
    assert_eq!(world.writer(), Some(1), "{}", reason(&world, 1));
}

#[test]
fn a_cluster_with_another_history_is_taken_from_its_first_node_if_the_others_are_out() {
    let mut world = started();
    let restored = |world: &mut World| {
        for index in [1, 2] {
            world.see(index, Err(refused()));
        }
        in_view(world, &[0], 1);
        for seen in &mut world.seen {
            if let Some(ServerState::Galera(state)) = &mut seen.state {
                "11111111-e57f-11f1-a4d9-c66cc5a3980c".clone_into(&mut state.cluster_state_uuid);
            }
        }
    };
    settle(&mut world, restored);
    assert!(reason(&world, 0).contains("another history"), "{}", reason(&world, 0));
    [1, 2].into_iter().for_each(|index| wish(&mut world, index, Wish::OfflineHard));
    settle(&mut world, restored);
    assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
}

#[test]
fn the_writer_stays_beside_a_component_that_has_had_more_views() {
    let mut world = started();
    let look = |world: &mut World| {
        in_view(world, &[2], 9);
        // With an arbitrator, which has no address.
        in_view(world, &[0], 6);
        for seen in world.seen.iter_mut().filter(|seen| seen.endpoint == node(0)) {
            if let Some(ServerState::Galera(state)) = &mut seen.state {
                state.members.push(String::new());
                state.cluster_size = 2;
            }
        }
        world.see(1, Err(refused()));
    };
    settle(&mut world, look);
    assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    // Who has just started takes the larger one.
    let mut world = World::unseen(policy(WriterReads::No));
    settle(&mut world, |world| {
        in_view(world, &[0, 1], 6);
        in_view(world, &[2], 9);
    });
    assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
}

#[test]
fn the_first_writer_is_one_of_the_newest_view() {
    let mut world = World::unseen(policy(WriterReads::No));
    world.see(0, Ok(synced(0)));
    in_view(&mut world, &[1, 2], 4);
    world.decide();
    assert_eq!(world.writer(), Some(1), "{}", world.picture());
}

#[test]
fn a_node_that_is_listed_under_two_names_is_one() {
    let mut world = started();
    let look = |world: &mut World| {
        in_view(world, &[0, 1], 4);
        // The third name leads to the second node.
        in_view(world, &[2, 1], 4);
        let seen = world.seen.iter().find(|seen| seen.endpoint == node(1)).and_then(galera_state).cloned();
        let second = GaleraState {
            gcomm_uuid: "32906320-e5cf-11f1-bdad-26ac413a1cef".to_owned(),
            local_index: Some(1),
            members: (0..2).map(|index| format!("{}:3306", NODES[index])).collect(),
            ..seen.expect("it was seen")
        };
        for index in [1, 2] {
            world.see(index, Ok(second.clone()));
        }
        in_view(world, &[0], 4);
        world.see_changed(0, |state| {
            (state.cluster_conf_id, state.cluster_size, state.local_index) = (4, 2, Some(0));
            state.members.truncate(2);
        });
    };
    settle(&mut world, look);
    assert_eq!(
        (world.writer(), reason(&world, 1), reason(&world, 2)),
        (Some(0), String::new(), String::new())
    );
    assert_eq!(world.roles.groups[0].second_names, [(node(2), node(1))]);
    settle(&mut world, |world| {
        look(world);
        world.see(0, Err(refused()));
        for seen in &mut world.seen {
            if let Some(ServerState::Galera(state)) = &mut seen.state {
                (state.cluster_conf_id, state.cluster_size, state.local_index) = (5, 1, Some(0));
                state.members.retain(|member| member.starts_with(NODES[1]));
            }
        }
    });
    assert!(matches!(world.writer(), Some(1 | 2)), "{} {}", world.picture(), reason(&world, 1));
}

/// What this Weir has read of the agreement on a node.
fn read(world: &mut World, index: usize, asked_at: Millis, row: &EpochRow) {
    let own = InstanceRow {
        instance: "weir-1".into(),
        beat: asked_at.0,
        says: Announcement { epoch: row.epoch, lease_ms: 5_000, sees_writer: true, clear_of: 0 },
    };
    let other = InstanceRow { instance: "weir-2".into(), ..own.clone() };
    let seen = world.seen.iter_mut().find(|seen| seen.endpoint == node(index)).unwrap();
    let instances = vec![own, other];
    seen.epoch =
        Some(EpochRead { asked_at, row: Some(row.clone()), instances, drains: None, malformed: None });
}

fn epoch_row(epoch: u64, writer: usize, claimed_by: &str) -> EpochRow {
    EpochRow {
        epoch,
        version: 2 * epoch,
        writer: node(writer),
        writer_address: Some(node(writer).to_string()),
        claimed_by: claimed_by.into(),
        is_open: true,
        switching: None,
    }
}

fn leadership(world: &World) -> Leadership {
    world.roles.groups[0].leadership.clone().unwrap()
}

#[test]
fn a_claim_in_a_component_of_its_own_is_not_followed_and_said() {
    // A switchover that is announced meanwhile is another one's.
    let elsewhere = [(1, "weir-2"), (2, "weir-3")];
    let others = elsewhere.map(|(to, by)| Some(Switching { to: node(to), by: by.into() }));
    for switching in [None].into_iter().chain(others) {
        claim_in_a_component_of_its_own(switching);
    }
}

fn claim_in_a_component_of_its_own(switching: Option<Switching>) {
    let mut world = World::unseen(policy(WriterReads::No));
    world.policy.epoch = Some(EpochPolicy::new("weir-1"));
    let first = EpochRow { switching, ..epoch_row(1, 0, "weir-1") };
    settle(&mut world, |world| {
        in_view(world, &[0, 1, 2], 3);
        let now = world.now;
        (0..3).for_each(|index| read(world, index, now, &first));
    });
    assert_eq!(world.writer(), Some(0));
    // The third node goes on alone (pc.ignore_sb), and the other Weir, which sees only that, claims it. Its tables are read
    // before it was asked in which view it is.
    world.pass(50);
    let (asked_at, claimed) = (world.now, epoch_row(2, 2, "weir-2"));
    sleep(&mut world, 10);
    read(&mut world, 2, Millis(asked_at.0 + 5), &claimed);
    world.decide();
    assert_eq!(world.writer(), Some(0));
    for _ in 0..30 {
        world.pass(50);
        in_view(&mut world, &[0, 1], 4);
        in_view(&mut world, &[2], 4);
        let now = world.now;
        read(&mut world, 2, now, &claimed);
        (0..2).for_each(|index| read(&mut world, index, now, &first));
        world.decide();
        assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
    }
    assert!(reason(&world, 2).contains("the Weir weir-2 WRITES THERE, to"), "{}", reason(&world, 2));
}

#[test]
fn a_node_that_has_joined_again_is_back_though_it_alone_is_in_sight() {
    let mut world = torn();
    settle(&mut world, |world| {
        in_view(world, &[0, 1, 2], 7);
        for index in [0, 1] {
            world.see(index, Err(ProbeError::Timeout(800)));
        }
    });
    assert!(world.writer().is_none() || reason(&world, 2).is_empty(), "{}", reason(&world, 2));
    assert_eq!(reason(&world, 2), "");
}

/// Seen in the simulator: a node was in its next view a moment before the writer was gone, and nobody knew any more which of
/// two components it had been in.
#[test]
fn a_node_that_is_in_the_next_view_first_is_still_of_the_component_that_counts() {
    let mut world = started();
    settle(&mut world, |world| auto(world, &[0, 1, 2], 3));
    auto(&mut world, &[0, 1], 4);
    world.see_changed(2, |state| state.cluster_status = "non-Primary".to_owned());
    world.decide();
    auto(&mut world, &[2], 4);
    world.decide();
    world.pass(400);
    auto(&mut world, &[1], 5);
    world.decide();
    world.pass(200);
    world.see(0, Err(refused()));
    world.decide();
    settle(&mut world, |world| {
        auto(world, &[1], 5);
        auto(world, &[2], 4);
    });
    assert_eq!(world.writer(), Some(1), "{}", reason(&world, 1));
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
}

/// Seen in the simulator: the third server joined one of two components between which nobody could choose, which made that
/// the larger one; and the other one wrote.
#[test]
fn of_two_that_nobody_could_tell_apart_the_one_that_grows_counts() {
    let mut world = World::unseen(policy(WriterReads::No));
    settle(&mut world, |world| {
        auto(world, &[0], 5);
        auto(world, &[1], 5);
        world.see(2, Err(refused()));
    });
    assert!(reason(&world, 0).contains("nobody knows which one counts"), "{}", reason(&world, 0));
    settle(&mut world, |world| {
        auto(world, &[1, 2], 6);
        world.see(2, Err(refused()));
        auto(world, &[0], 5);
    });
    assert_eq!(world.writer(), Some(1), "{}", reason(&world, 1));
    assert!(reason(&world, 0).starts_with("split brain"), "{}", reason(&world, 0));
}

/// Seen in the simulator: a node that had been out of sight before the split, and was with those that went on apart, made
/// them the cluster when it was in sight again.
#[test]
fn a_node_out_of_sight_in_a_component_apart_does_not_free_it() {
    for tells_addresses in [true, false] {
        let view = if tells_addresses { in_view } else { auto };
        let mut world = started();
        settle(&mut world, |world| view(world, &[0, 1, 2], 3));
        settle(&mut world, |world| world.see(1, Err(ProbeError::Timeout(800))));
        let silent = world.seen.iter().find(|seen| seen.endpoint == node(1)).cloned().unwrap();
        let look = |world: &mut World| {
            view(world, &[0], 4);
            view(world, &[1, 2], 4);
            world.seen.retain(|seen| seen.endpoint != node(1));
            world.seen.push(Observation { at: world.now, ..silent.clone() });
        };
        settle(&mut world, look);
        assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
        assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
        settle(&mut world, |world| {
            world.see(0, Err(refused()));
            view(world, &[1, 2], 4);
        });
        assert_eq!(world.picture(), "- - -", "{tells_addresses}");
    }
}

/// Seen in the simulator: the writer's data was given up and its node had joined the others, whose tables had another row of
/// the same epoch; a Weir wrote by the one that it knew.
#[test]
fn what_was_agreed_on_in_a_component_that_is_given_up_is_over() {
    let torn = || {
        let mut world = started();
        world.policy.epoch = Some(EpochPolicy::new("weir-1"));
        settle(&mut world, |world| {
            in_view(world, &[2], 4);
            in_view(world, &[0, 1], 4);
            let now = world.now;
            (0..2).for_each(|index| read(world, index, now, &epoch_row(2, 0, "weir-1")));
        });
        assert_eq!(world.writer(), Some(0));
        settle(&mut world, lose_right_one);
        world
    };
    let looks: [fn(&mut World); 2] = [
        |world| in_view(world, &[0, 2], 5),
        |world| {
            lose_right_one(world);
            [0, 1].into_iter().for_each(|index| wish(world, index, Wish::OfflineHard));
        },
    ];
    for look in looks {
        let mut world = torn();
        look(&mut world);
        world.decide();
        assert_eq!((leadership(&world).row, leadership(&world).writes_until()), (None, Millis(0)));
        settle(&mut world, |world| {
            look(world);
            let now = world.now;
            read(world, 2, now, &epoch_row(2, 2, "weir-2"));
        });
        assert_eq!(world.writer(), Some(2), "{}", world.picture());
        assert_eq!(leadership(&world).row, Some(epoch_row(2, 2, "weir-2")));
    }
}

/// What was read of them is not forgotten while they are silent, and counts higher.
#[test]
fn what_was_read_of_servers_that_are_given_up_does_not_come_back() {
    let mut world = started();
    world.policy.epoch = Some(EpochPolicy::new("weir-1"));
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        in_view(world, &[0, 1], 4);
        let now = world.now;
        (0..2).for_each(|index| read(world, index, now, &epoch_row(2, 0, "weir-1")));
    });
    let given_up = |world: &mut World| {
        in_view(world, &[2], 5);
        for index in [0, 1] {
            world.see(index, Err(ProbeError::Timeout(800)));
            wish(world, index, Wish::OfflineHard);
        }
    };
    settle(&mut world, given_up);
    for _ in 0..4 {
        settle(&mut world, |world| {
            given_up(world);
            let now = world.now;
            read(world, 2, now, &epoch_row(1, 2, "weir-2"));
        });
        assert_eq!(leadership(&world).row, Some(epoch_row(1, 2, "weir-2")));
        assert_eq!(world.writer(), Some(2), "{}", world.picture());
    }
}

/// Seen in the simulator: a Weir that had been started when only a node apart was in sight wrote by the lease of that as soon as
/// it saw the cluster.
#[test]
fn what_was_agreed_on_does_not_count_in_a_component_that_has_not_followed() {
    for (nodes, knows_all) in [([2].as_slice(), true), ([0, 1, 2].as_slice(), false)] {
        let mut world = World::unseen(policy(WriterReads::No));
        world.policy.epoch = Some(EpochPolicy::new("weir-1"));
        let known = epoch_row(2, 2, "weir-1");
        settle(&mut world, |world| {
            [0, 1].into_iter().for_each(|index| world.see(index, Err(ProbeError::Timeout(800))));
            world.see_changed(2, |state| {
                state.cluster_conf_id = 4;
                state.cluster_size = u32::try_from(nodes.len()).unwrap();
                state.members = nodes.iter().map(|index| node(*index).to_string()).collect();
                state.local_index = u32::try_from(nodes.len() - 1).ok();
            });
            let now = world.now;
            read(world, 2, now, &known);
        });
        assert_eq!(world.writer(), Some(2));
        world.see(2, Err(refused()));
        world.decide();
        in_view(&mut world, &[0, 1], 6);
        world.decide();
        assert_eq!(leadership(&world).row, Some(known).filter(|_| !knows_all));
        assert_eq!(leadership(&world).writes_until() == Millis(0), knows_all);
    }
}

/// The lost component had come further than the other one: its reads have the greater numbers, and stay where nobody reads
/// again.
#[test]
fn what_was_read_in_a_component_that_is_given_up_does_not_come_back() {
    let silent = |world: &mut World| {
        [0, 1].into_iter().for_each(|index| world.see(index, Err(ProbeError::Timeout(800))));
        in_view(world, &[2], 4);
    };
    // Given up by a person, silent or alive; or silent, and the writer's node has joined the other one.
    let looks: [fn(&mut World); 3] = [
        |world| {
            [0, 1].into_iter().for_each(|index| world.see(index, Err(ProbeError::Timeout(800))));
            in_view(world, &[2], 4);
            [0, 1].into_iter().for_each(|index| wish(world, index, Wish::OfflineHard));
        },
        |world| {
            in_view(world, &[0, 1], 4);
            in_view(world, &[2], 4);
            [0, 1].into_iter().for_each(|index| wish(world, index, Wish::OfflineHard));
        },
        |world| {
            world.see(1, Err(ProbeError::Timeout(800)));
            in_view(world, &[0, 2], 5);
        },
    ];
    for (number, look) in looks.into_iter().enumerate() {
        let mut world = started();
        world.policy.epoch = Some(EpochPolicy::new("weir-1"));
        settle(&mut world, |world| {
            in_view(world, &[2], 4);
            in_view(world, &[0, 1], 4);
            let now = world.now;
            (0..2).for_each(|index| read(world, index, now, &epoch_row(2, 0, "weir-1")));
        });
        settle(&mut world, silent);
        assert_eq!(world.writer(), None, "{number}");
        settle(&mut world, |world| {
            look(world);
            let now = world.now;
            read(world, 2, now, &epoch_row(1, 2, "weir-2"));
        });
        assert_eq!(leadership(&world).row, Some(epoch_row(1, 2, "weir-2")), "{number}");
        assert_eq!((world.writer(), leadership(&world).deposed), (Some(2), None), "{number}");
        // Nothing has been read for long, and then a server is let in that has not been asked since.
        wish(&mut world, 1, Wish::Online);
        world.pass(10_000);
        world.decide();
        assert_eq!(leadership(&world).row, Some(epoch_row(1, 2, "weir-2")), "{number}");
        assert!(leadership(&world).writes_until() < world.now, "{number}");
    }
}
