//! Tests components that both call themselves Primary, and views whose members don't tell their addresses.

use super::*;

/// The three nodes, with the first one as the writer.
pub(super) fn started() -> World {
    let mut world = World::new(policy(WriterReads::No));
    for index in 0..3 {
        world.see(index, Ok(synced(index)));
    }
    world.decide();
    assert_eq!(world.writer(), Some(0));
    world
}

/// A view of these nodes.
pub(super) fn in_view(world: &mut World, nodes: &[usize], conf_id: u64) {
    for (place, index) in nodes.iter().enumerate() {
        world.see_changed(*index, |state| {
            state.cluster_conf_id = conf_id;
            state.cluster_size = u32::try_from(nodes.len()).unwrap();
            state.members = nodes.iter().map(|node| format!("{}:3306", NODES[*node])).collect();
            state.local_index = u32::try_from(place).ok();
        });
    }
}

/// The nodes without an address that tells them apart.
pub(super) fn auto(world: &mut World, nodes: &[usize], conf_id: u64) {
    in_view(world, nodes, conf_id);
    for seen in &mut world.seen {
        if let Some(ServerState::Galera(state)) = &mut seen.state {
            state.members.iter_mut().for_each(|member| "AUTO".clone_into(member));
        }
    }
}

pub(super) fn settle(world: &mut World, look: impl Fn(&mut World)) {
    for _ in 0..40 {
        world.pass(100);
        look(world);
        world.decide();
    }
}

pub(super) fn reason(world: &World, index: usize) -> String {
    let place =
        world.roles.places.iter().find(|place| place.endpoint == node(index) && place.role == Role::Offline);
    place.map(|place| place.reason.to_string()).unwrap_or_default()
}

#[test]
fn a_minority_that_was_bootstrapped_gets_nothing_while_the_majority_goes_on() {
    let mut world = started();
    // The third node was made Primary alone, in a view that the others, still in theirs, know nothing of.
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        in_view(world, &[0, 1], 3);
        for index in [0, 1] {
            world.see(index, Ok(synced(index)));
        }
    });
    assert_eq!(world.writer(), Some(0));
    assert!(
        reason(&world, 2).starts_with("split brain: Primary in a component of its own (view 4, 1 members)")
    );
    // The others have their new view, too, which has the same number.
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        in_view(world, &[0, 1], 4);
    });
    assert_eq!(world.writer(), Some(0));
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    // Together again.
    settle(&mut world, |world| in_view(world, &[0, 1, 2], 5));
    assert_eq!((world.writer(), reason(&world, 2)), (Some(0), String::new()));
}

#[test]
fn of_two_that_both_go_on_without_quorum_the_one_with_the_writer_counts() {
    let mut world = started();
    world.rows.retain(|row| row.endpoint != node(2));
    settle(&mut world, |world| in_view(world, &[0, 1], 4));
    settle(&mut world, |world| {
        auto(world, &[1], 5);
        auto(world, &[0], 5);
    });
    assert_eq!(world.writer(), Some(0));
    assert!(reason(&world, 1).starts_with("split brain"), "{}", reason(&world, 1));
    // Who does not know the last writer trusts neither.
    world.roles = Roles::default();
    settle(&mut world, |world| {
        auto(world, &[1], 5);
        auto(world, &[0], 5);
    });
    assert_eq!(world.writer(), None);
}

/// Of three the third was made Primary apart, and is known for that.
pub(super) fn torn() -> World {
    let mut world = started();
    settle(&mut world, |world| {
        in_view(world, &[2], 4);
        in_view(world, &[0, 1], 4);
    });
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    world
}

/// Seen in the simulator: nodes that are to take no work did not count for their component, and that made Primary apart was
/// all that was left.
#[test]
fn a_component_is_there_as_long_as_any_of_its_nodes_is() {
    let mut world = torn();
    world.see_changed(1, |state| state.reject_queries = true);
    world.see(0, Err(refused()));
    world.decide();
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    assert_eq!(world.writer(), None);
}

/// Seen in the simulator: with the next view the numbers of both said nothing any more, and the smaller one was read from.
#[test]
fn a_node_known_for_another_component_stays_out_whatever_numbers_the_views_have() {
    let mut world = torn();
    // The writer leaves in order.
    world.see(0, Err(refused()));
    in_view(&mut world, &[1], 5);
    world.decide();
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    // It is silent for long.
    for _ in 0..5 {
        world.see(2, Err(ProbeError::Timeout(800)));
        world.decide();
    }
    settle(&mut world, |world| {
        in_view(world, &[1], 5);
        in_view(world, &[2], 4);
    });
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    // It has joined again.
    settle(&mut world, |world| {
        in_view(world, &[1, 2], 6);
    });
    assert_eq!((world.writer(), reason(&world, 2)), (Some(1), String::new()));
}

/// Seen in the simulator: in the moment before it was taken out a Weir read the tables of the agreement there, and wrote by an
/// epoch that was over.
#[test]
fn a_node_that_was_out_gets_no_role_in_a_component_of_its_own_for_a_moment() {
    let mut world = started();
    in_view(&mut world, &[0, 1], 4);
    world.see_changed(2, |state| state.cluster_status = "non-Primary".to_owned());
    world.decide();
    world.see_changed(2, |state| state.cluster_status = "Primary".to_owned());
    in_view(&mut world, &[2], 4);
    world.decide();
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
}

/// Seen in the simulator: the component that had been out became the cluster when the right one was lost, and what had been
/// acknowledged there since was gone.
#[test]
fn a_component_that_was_out_is_not_the_cluster_when_the_right_one_is_lost() {
    let mut world = torn();
    let lose = |world: &mut World| {
        world.see(0, Err(refused()));
        world.see_changed(1, |state| state.cluster_status = "non-Primary".to_owned());
        in_view(world, &[2], 4);
    };
    settle(&mut world, lose);
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
    assert_eq!(world.picture(), "- - -");
    // A person gives up the writer, and all that was lost with it.
    let mut given_up = torn();
    settle(&mut given_up, lose);
    for index in [0, 1] {
        let rows = given_up.rows.iter_mut().filter(|row| row.endpoint == node(index));
        rows.for_each(|row| row.wish = Wish::OfflineHard);
    }
    settle(&mut given_up, lose);
    assert_eq!(given_up.writer(), Some(2));
    // Or has a server of it join the other.
    settle(&mut world, |world| {
        world.see(0, Err(refused()));
        in_view(world, &[1, 2], 5);
    });
    assert!(matches!(world.writer(), Some(1 | 2)), "{}", world.picture());
}

/// Seen in the simulator: a Weir that had been stopped saw the survivor first, beside what it remembered of the others.
#[test]
fn a_component_beside_one_that_is_only_remembered_is_the_cluster_once_that_is_gone() {
    let mut world = started();
    world.pass(5000);
    in_view(&mut world, &[2], 5);
    world.decide();
    for index in [0, 1] {
        world.see(index, Err(refused()));
    }
    settle(&mut world, |world| {
        in_view(world, &[2], 5);
        for index in [0, 1] {
            world.see(index, Err(refused()));
        }
    });
    assert_eq!(world.writer(), Some(2), "{}", reason(&world, 2));
}

/// Seen in the simulator: with the writer's node on its way back, nobody knew any more which of two components had it.
#[test]
fn a_writer_that_joins_again_still_tells_which_component_counts() {
    let mut world = started();
    world.rows.retain(|row| row.endpoint != node(2));
    settle(&mut world, |world| auto(world, &[0, 1], 4));
    for index in [0, 1] {
        world.see_changed(index, |state| state.cluster_status = "non-Primary".to_owned());
    }
    world.decide();
    world.see_changed(0, |state| state.local_state = LocalState::Joined);
    world.decide();
    settle(&mut world, |world| {
        auto(world, &[1], 5);
        auto(world, &[0], 5);
    });
    assert_eq!(world.writer(), Some(0));
    assert!(reason(&world, 1).starts_with("split brain"), "{}", reason(&world, 1));
}

/// Seen in the simulator: as long as one of them did not answer, no node of a cluster that counts its views anew was believed.
#[test]
fn views_that_count_anew_are_believed_though_one_of_their_nodes_is_silent() {
    let mut world = started();
    settle(&mut world, |world| {
        world.see(2, Err(refused()));
        in_view(world, &[0, 1], 2);
        world.see(1, Err(ProbeError::Timeout(800)));
    });
    assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
}

#[test]
fn an_ordinary_change_of_the_view_is_no_split() {
    let mut world = started();
    // The third node is cut off and says for a while that it is in the old view.
    settle(&mut world, |world| {
        in_view(world, &[0, 1], 4);
        world.see(2, Ok(synced(2)));
    });
    assert_eq!(world.writer(), Some(0));
    assert!(reason(&world, 2).contains("still in view 3"), "{}", reason(&world, 2));
    // Two leave in order, one after the other.
    settle(&mut world, |world| in_view(world, &[0], 6));
    assert_eq!(world.writer(), Some(0));
}

#[test]
fn without_addresses_a_newer_view_confirms_a_loss_only_if_it_has_no_room_for_the_writer() {
    let mut world = started();
    settle(&mut world, |world| auto(world, &[0, 1, 2], 3));
    // Only the way to the writer is broken, and a node that Weir does not know has joined.
    world.see(0, Err(refused()));
    for index in [1, 2] {
        world.see_changed(index, |state| {
            (state.cluster_conf_id, state.cluster_size) = (4, 4);
            state.members = vec!["AUTO".to_owned(); 4];
        });
    }
    world.pass(500);
    world.decide();
    assert_eq!(world.writer(), None, "the writer may be in that view");
    // It is gone: all members of the newest view are known.
    auto(&mut world, &[1, 2], 5);
    world.pass(500);
    auto(&mut world, &[1, 2], 5);
    world.decide();
    assert!(matches!(world.writer(), Some(1 | 2)), "{:?}", world.writer());
}

/// Seen in the simulator: a Weir that had been stopped counted a node that went on apart for one of the view, as that had the
/// same number, and moved the writer away.
#[test]
fn without_addresses_a_node_of_another_component_does_not_fill_the_view() {
    let mut world = started();
    settle(&mut world, |world| auto(world, &[0, 1, 2], 3));
    auto(&mut world, &[2], 4);
    auto(&mut world, &[0, 1], 4);
    world.see(0, Err(refused()));
    world.decide();
    assert_eq!(world.writer(), None, "the writer may be in that view");
    auto(&mut world, &[0, 1], 4);
    world.decide();
    assert_eq!(world.writer(), Some(0));
}

/// Seen in the simulator: a node that outweighs the others went on, and those had lost each other, too, so that they did not
/// find out for a while; the writer was one of them.
#[test]
fn a_node_that_outweighs_the_others_is_the_cluster_before_they_know() {
    let look = |world: &mut World, total: u32, weight: u32| {
        for index in [0, 1] {
            world.see_changed(index, |state| state.cluster_weight = total);
        }
        in_view(world, &[2], 4);
        for seen in world.seen.iter_mut().filter(|seen| seen.endpoint == node(2)) {
            if let Some(ServerState::Galera(state)) = &mut seen.state {
                state.cluster_weight = weight;
            }
        }
    };
    let mut world = started();
    settle(&mut world, |world| look(world, 5, 3));
    assert_eq!(world.writer(), Some(2), "{}", reason(&world, 2));
    assert!(reason(&world, 0).contains("still in view 3"), "{}", reason(&world, 0));
    // Half of the weight is not enough.
    let mut world = started();
    settle(&mut world, |world| look(world, 4, 2));
    assert_eq!(world.writer(), Some(0), "{}", reason(&world, 0));
    assert!(reason(&world, 2).starts_with("split brain"), "{}", reason(&world, 2));
}

/// Seen in the simulator: a node had been cut off and did not know it yet, so that the new view, which was smaller by one, had
/// no room for a writer that only this Weir did not reach.
#[test]
fn without_addresses_a_node_in_the_view_before_may_be_the_one_that_is_missing() {
    let mut world = started();
    settle(&mut world, |world| auto(world, &[0, 1, 2], 3));
    world.see(0, Err(refused()));
    world.decide();
    world.pass(world.policy.galera[0].choices.unconfirmed_failover_ms);
    world.see_changed(1, |state| {
        (state.cluster_conf_id, state.cluster_size) = (4, 2);
        state.members = vec!["AUTO".to_owned(); 2];
    });
    world.decide();
    let writer = &world.roles.hostgroup(100)[0];
    assert_eq!(writer.endpoint, node(1));
    assert!(writer.reason.to_string().ends_with("although the cluster still has it"), "{}", writer.reason);
}
