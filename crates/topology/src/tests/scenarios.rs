//! Plays scenarios over time: failover, hysteresis, components, returns.

use super::*;

/// The view that the survivors form without node 0.
pub(super) fn next_view(state: &mut GaleraState) {
    state.cluster_conf_id = 4;
    state.cluster_size = 2;
    state.members.retain(|member| !member.starts_with("192.168.4.22:"));
    state.local_index = state.local_index.map(|index| index - 1);
}

#[test]
fn a_killed_writer() {
    let mut world = World::new(policy(WriterReads::No));
    world.see(0, Err(refused()));
    world.decide();
    // The survivors still call themselves Primary and Synced in the old view: hold.
    assert_eq!(world.picture(), "- BR BR");
    assert_eq!(
        world.roles.explain(100),
        "hostgroup 100: 192.168.4.22:3306: connection refused; 192.168.4.23:3306: waits until the cluster has removed \
         192.168.4.22:3306; 192.168.4.233:3306: waits until the cluster has removed 192.168.4.22:3306"
    );
    world.pass(2000);
    world.see_changed(2, next_view);
    world.decide();
    assert_eq!(world.picture(), "- BR BR", "the better of two may only be the later one to say so");
    world.see_changed(1, next_view);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    assert_eq!(
        world.roles.hostgroup(100)[0].to_string(),
        "hostgroup 100 192.168.4.23:3306: writer: took over from 192.168.4.22:3306"
    );
    // It comes back: failback is never, and it is a backup writer with its weight of 100 as a reader.
    world.pass(60_000);
    for index in 0..3 {
        world.see_changed(index, |s| s.cluster_conf_id = 5);
    }
    world.decide();
    assert_eq!(world.picture(), "BR W BR");
    assert_eq!(world.roles.hostgroup(101)[0].weight, 100);
    assert_eq!(world.roles.hostgroup(100)[0].reason.to_string(), "took over from 192.168.4.22:3306");
}

#[test]
fn a_new_view_that_still_has_the_writer_confirms_nothing() {
    let mut world = World::new(policy(WriterReads::No));
    world.see(0, Err(refused()));
    world.see_changed(1, |s| s.cluster_conf_id = 4);
    world.see_changed(2, |s| s.cluster_conf_id = 4);
    world.decide();
    assert_eq!(world.writer(), None);
    // Where the nodes don't tell their addresses, a newer view must be smaller by as many as are lost.
    let mut world = World::new(policy(WriterReads::No));
    let auto = |conf_id: u64| {
        move |s: &mut GaleraState| {
            s.cluster_size = if conf_id == 3 { 3 } else { 2 };
            s.members = vec!["AUTO".into(); s.cluster_size as usize];
            s.cluster_conf_id = conf_id;
        }
    };
    for index in 0..3 {
        world.see_changed(index, auto(3));
    }
    world.decide();
    world.see(0, Err(refused()));
    world.decide();
    assert_eq!(world.writer(), None);
    world.see_changed(2, auto(4));
    world.decide();
    assert_eq!(world.writer(), None);
    // The other one is slow to report the new view.
    world.pass(200);
    world.decide();
    assert_eq!(world.writer(), Some(2));
}

#[test]
fn a_writer_that_only_weir_does_not_reach() {
    let mut world = World::new(policy(WriterReads::No));
    world.see(0, Err(refused()));
    world.decide();
    world.pass(world.policy.galera[0].choices.unconfirmed_failover_ms - 1);
    world.decide();
    assert_eq!(world.writer(), None);
    world.pass(1);
    world.decide();
    assert_eq!(world.writer(), Some(1));
    assert_eq!(
        world.roles.hostgroup(100)[0].reason.to_string(),
        "took over from 192.168.4.22:3306, which can't be reached although the cluster still has it"
    );
}

#[test]
fn a_writer_that_returns_during_the_hold_goes_on() {
    let mut world = World::new(policy(WriterReads::No));
    world.see(0, Err(refused()));
    world.decide();
    world.pass(500);
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    assert_eq!(world.roles.hostgroup(100)[0].reason, Reason::StaysWriter);
}

#[test]
fn single_timeouts_change_nothing() {
    let mut world = World::new(policy(WriterReads::No));
    for timeouts in 1..=3 {
        let fault =
            if timeouts == 2 { ProbeError::Busy("too many".into()) } else { ProbeError::Timeout(800) };
        world.see(0, Err(fault));
        world.decide();
        assert_eq!(world.picture(), if timeouts < 3 { "W BR BR" } else { "- BR BR" });
    }
    assert_eq!(world.roles.hostgroup(9101)[0].reason.to_string(), "3 probes in a row without an answer");
    assert_eq!(world.roles.hostgroup(9101)[0].status, Status::OfflineSoft);
}

#[test]
fn a_server_that_was_lost_by_its_silence_is_believed_after_a_moment() {
    let mut world = World::new(policy(WriterReads::No));
    for _ in 0..3 {
        world.see(0, Err(ProbeError::Timeout(800)));
    }
    world.decide();
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.picture(), "- BR BR");
    assert_eq!(world.roles.hostgroup(9101)[0].reason.to_string(), "answers again after a long silence");
    world.pass(1000);
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    // A process that has been started since is another one.
    for _ in 0..3 {
        world.see(0, Err(ProbeError::Timeout(800)));
    }
    world.see(0, Err(refused()));
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
}

#[test]
fn a_candidate_that_does_not_answer_just_now_is_no_next_writer() {
    let mut world = World::new(policy(WriterReads::No));
    world.see(0, Err(refused()));
    world.see(1, Err(ProbeError::Timeout(800)));
    world.see_changed(2, next_view);
    world.pass(200);
    world.decide();
    assert_eq!(world.picture(), "- BR W");
}

#[test]
fn a_hung_node_is_waited_for_until_the_others_go_on_without_it() {
    let mut world = World::new(policy(WriterReads::No));
    let hang = |world: &mut World| {
        for index in [0, 2] {
            world.see(index, Err(ProbeError::Timeout(800)));
        }
    };
    (0..3).for_each(|_| hang(&mut world));
    world.decide();
    // What they were asked may still be answered.
    let statuses = |world: &World| {
        let places = world.roles.hostgroup(9101).iter();
        places.map(|place| place.status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&world), [Status::OfflineSoft, Status::OfflineSoft]);
    // The next view is without the first, and still has the third.
    world.see_changed(1, next_view);
    hang(&mut world);
    world.decide();
    assert_eq!(statuses(&world), [Status::OfflineHard, Status::OfflineSoft]);
    assert_eq!(
        world.roles.hostgroup(9101)[0].reason.to_string(),
        "it does not answer, and view 4 of the cluster is without it"
    );
}

#[test]
fn a_hung_writer_is_given_up_with_the_first_view_without_it() {
    let mut world = World::new(policy(WriterReads::No));
    world.pass(900);
    world.see(0, Err(ProbeError::Timeout(800)));
    world.decide();
    assert_eq!(world.picture(), "W BR BR", "one silence is nothing");
    world.pass(1200);
    (1..3).for_each(|index| world.see_changed(index, next_view));
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    let hung = &world.roles.hostgroup(9101)[0];
    assert_eq!((hung.status, hung.reason.to_string().as_str()), (Status::OfflineHard, NOT_IN_VIEW));
}

const NOT_IN_VIEW: &str = "it does not answer, and view 4 of the cluster is without it";

/// A node that says that it is in the older view may just not have said otherwise yet.
#[test]
fn a_node_that_answers_is_not_given_up_for_a_view_without_it() {
    let mut world = World::new(policy(WriterReads::No));
    (1..3).for_each(|index| world.see_changed(index, next_view));
    world.decide();
    world.pass(100);
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    world.pass(1000);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
}

#[test]
fn of_two_components_only_the_primary_one() {
    let mut world = World::new(policy(WriterReads::No));
    // The writer is alone on its side.
    world.see_changed(0, |s| {
        s.cluster_status = "non-Primary".into();
        s.cluster_conf_id = u64::MAX;
    });
    world.see_changed(1, next_view);
    world.see_changed(2, next_view);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    // A node that stays in the old view for long is in the other component, whatever it says.
    let mut world = World::new(policy(WriterReads::No));
    world.see_changed(1, |s| s.cluster_conf_id = 4);
    world.see_changed(0, |s| s.cluster_conf_id = 4);
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    world.pass(1000);
    world.decide();
    assert_eq!(world.picture(), "W BR -");
    assert_eq!(
        world.roles.hostgroup(9101)[0].reason.to_string(),
        "still in view 3 of the cluster, others are in 4"
    );
}

#[test]
fn the_writers_history_counts_else_that_of_most() {
    let mut world = World::new(policy(WriterReads::No));
    world.see_changed(1, |s| s.cluster_state_uuid = "other".into());
    world.see_changed(2, |s| s.cluster_state_uuid = "other".into());
    world.decide();
    assert_eq!(world.picture(), "WR - -");
    world.roles = Roles::default();
    world.decide();
    assert_eq!(world.picture(), "- W BR");
}

#[test]
fn a_node_that_was_started_as_a_cluster_of_its_own() {
    // Though it was the writer, and though for a moment no other works.
    let mut world = World::new(policy(WriterReads::No));
    world.see_changed(0, |s| s.cluster_state_uuid = "other".into());
    world.see_changed(1, next_view);
    world.see_changed(2, next_view);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    for index in [1, 2] {
        world.see_changed(index, |s| s.cluster_status = "non-Primary".into());
    }
    world.decide();
    world.pass(60_000);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    // Two of three: the cluster was made anew.
    world.see_changed(2, |s| s.cluster_state_uuid = "other".into());
    world.decide();
    assert_eq!(world.picture(), "W - BR");
}

#[test]
fn a_stopped_node_goes_on_in_its_old_view() {
    let mut world = World::new(policy(WriterReads::No));
    for _ in 0..3 {
        world.see(0, Err(ProbeError::Timeout(800)));
    }
    world.see_changed(1, next_view);
    world.see_changed(2, next_view);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    world.pass(5000);
    for index in [1, 2] {
        world.see(index, Err(refused()));
    }
    world.decide();
    world.see(0, Ok(synced(0)));
    world.decide();
    world.pass(1000);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(
        world.roles.hostgroup(9101)[0].reason.to_string(),
        "still in view 3 of the cluster, others are in 4"
    );
}

#[test]
fn a_reader_returns_at_half_the_limit() {
    let mut world = World::new(policy(WriterReads::No));
    for (queue, picture) in [
        (10, "W BR BR"),
        (11, "W Br BR"),
        (10, "W Br BR"),
        (6, "W Br BR"),
        (5, "W BR BR"),
        (9, "W BR BR"),
        (4000, "W Br BR"),
        (0, "W BR BR"),
    ] {
        world.see_changed(1, |s| s.local_recv_queue = queue);
        world.decide();
        assert_eq!(world.picture(), picture, "recv_queue {queue}");
    }
}

#[test]
fn all_nodes_gone_and_back() {
    let mut world = World::new(policy(WriterReads::No));
    for index in 0..3 {
        world.see(index, Err(refused()));
    }
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert!(world.roles.explain(101).contains("192.168.4.233:3306: connection refused"));
    // A new start of the cluster counts views from 1 again; believed after a moment, for so does a node that was
    // stopped and goes on in its old view.
    world.pass(60_000);
    world.see_changed(2, |s| s.cluster_conf_id = 1);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    world.pass(2999);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    world.pass(1);
    world.decide();
    assert_eq!(world.picture(), "- - WR");
    world.see_changed(0, |s| s.cluster_conf_id = 2);
    world.see_changed(2, |s| s.cluster_conf_id = 2);
    world.decide();
    assert_eq!(world.picture(), "BR - W");
}

#[test]
fn old_observations_say_nothing() {
    let mut world = World::new(policy(WriterReads::No));
    world.now = Millis(world.now.0 + world.policy.observation_age_max_ms + 1);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(world.roles.hostgroup(9101)[0].reason.to_string(), "last probed 10001 ms ago");
}

#[test]
fn changes_and_sameness() {
    let mut world = World::new(policy(WriterReads::No));
    let before = world.roles.clone();
    world.see_changed(1, |s| s.local_recv_queue = 3);
    world.decide();
    assert!(world.roles.same_as(&before) && world.roles.changes(&before).is_empty());
    world.see_changed(1, |s| s.cluster_status = "non-Primary".into());
    world.decide();
    assert!(!world.roles.same_as(&before));
    let lines: Vec<String> = world.roles.changes(&before).iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "hostgroup 9101 192.168.4.23:3306: offline: wsrep_cluster_status is non-Primary (OFFLINE_HARD)",
            "hostgroup 101 192.168.4.23:3306: no longer reader",
            "hostgroup 102 192.168.4.23:3306: no longer backup writer",
        ]
    );
}

#[test]
fn the_version_is_the_writers() {
    let mut world = World::new(policy(WriterReads::No));
    for (seen, version) in world.seen.iter_mut().zip(["10.11.1", "10.11.2", "10.11.3"]) {
        *seen = seen.clone().with_version(version);
    }
    world.decide();
    assert_eq!(world.roles.server_version.as_deref(), Some("10.11.1"));
}

/// The order in which the first probes end must not decide who writes.
#[test]
fn the_first_writer_is_chosen_when_all_have_been_seen() {
    let start = || {
        let mut world = World::new(policy(WriterReads::No));
        world.seen.clear();
        world.roles = Roles::default();
        world.decide();
        assert_eq!(world.picture(), "- - -");
        world.see(2, Ok(synced(2)));
        world.see(1, Ok(synced(1)));
        world.decide();
        assert_eq!(world.picture(), "- BR BR");
        assert!(world.roles.explain(100).contains("waits until every server has been probed once"));
        world
    };
    let mut world = start();
    world.see(0, Ok(synced(0)));
    world.decide();
    assert_eq!(world.picture(), "W BR BR");
    // One that does not answer has been looked at too.
    let mut world = start();
    world.see(0, Err(ProbeError::Timeout(600)));
    world.decide();
    assert_eq!(world.picture(), "- W BR");
    assert_eq!(world.roles.hostgroup(9101)[0].reason.to_string(), "1 probes in a row without an answer");
    // And nobody waits for ever.
    let mut world = start();
    world.pass(5000);
    world.decide();
    assert_eq!(world.picture(), "- W BR");
}

/// A node is away, and then the view has it again. Of the two others the later one in the view will send it its state.
fn rejoin_of(away: usize, change: impl Fn(usize, &mut GaleraState)) -> Option<Endpoint> {
    let mut world = World::new(policy(WriterReads::No));
    let stay: Vec<usize> = (0..3).filter(|index| *index != away).collect();
    for (conf_id, size) in [(4, 2), (5, 3)] {
        world.pass(1000);
        world.see(away, Err(refused()));
        for index in stay.clone() {
            world.see_changed(index, |s| {
                (s.cluster_conf_id, s.cluster_size, s.members) = (conf_id, size, Vec::new());
                change(index, s);
            });
        }
        world.decide();
    }
    world.roles.groups[0].yields_to.clone()
}

#[test]
fn a_writer_that_will_be_a_donor_gives_way_before() {
    // The writer is node 0, and the last node in the view sends.
    assert_eq!(rejoin_of(1, |_, _| {}), None);
    assert_eq!(rejoin_of(2, |_, _| {}), None);
    // It is the last, or keeps fewer transactions.
    let last = |index: usize, s: &mut GaleraState| s.local_index = (index == 0).then_some(2).or(Some(0));
    assert_eq!(rejoin_of(1, last), Some(node(2)));
    let fewest = |index: usize, s: &mut GaleraState| s.cached_downto = if index == 0 { 90 } else { 14 };
    assert_eq!(rejoin_of(2, fewest), Some(node(1)));
    // Not where the other can't send anyway, where it can't write, or a transfer runs already.
    let desynced = |index: usize, s: &mut GaleraState| {
        fewest(index, s);
        if index == 0 { s.desync = true } else { s.local_state = LocalState::Donor }
    };
    assert_eq!(rejoin_of(2, desynced), None);
    let read_only = |index: usize, s: &mut GaleraState| {
        fewest(index, s);
        s.read_only = index != 0;
    };
    assert_eq!(rejoin_of(2, read_only), None);
}

#[test]
fn a_joiner_is_told_donors_that_do_not_write() {
    let mut world = World::new(policy(WriterReads::No));
    let donors = |world: &World| world.roles.groups[0].donors.clone();
    // Node 0 writes, and node 1 would be next: it is spared.
    assert_eq!(donors(&world), ["n2", "n1"]);
    // Who can't write anyway is the best donor, and who sends already is none.
    world.see_changed(1, |s| s.read_only = true);
    world.decide();
    assert_eq!(donors(&world), ["n1", "n2"]);
    world.see_changed(1, |s| s.local_state = LocalState::Donor);
    world.decide();
    assert_eq!(donors(&world), ["n2"]);
    // A name with a comma would be two in the joiner's list; the dead are none.
    world.see_changed(1, |s| s.node_name = "a,b".to_owned());
    world.see(2, Err(refused()));
    world.decide();
    assert!(donors(&world).is_empty());
}

#[test]
fn a_writer_gives_way_to_a_joiner_once_and_not_for_a_dead_reader() {
    let fewest = |index: usize, s: &mut GaleraState| s.cached_downto = if index == 0 { 90 } else { 14 };
    let mut world = World::new(policy(WriterReads::No));
    // A reader has died, and the view still has it.
    world.see(2, Err(refused()));
    for index in [0, 1] {
        world.see_changed(index, |s| fewest(index, s));
    }
    world.decide();
    assert_eq!(world.roles.groups[0].yields_to, None);
    let see = |world: &mut World, conf_id, size| {
        world.see(2, Err(refused()));
        for index in [0, 1] {
            world.see_changed(index, |s| {
                (s.cluster_conf_id, s.cluster_size) = (conf_id, size);
                fewest(index, s);
            });
        }
        world.decide();
    };
    see(&mut world, 4, 2);
    assert_eq!(world.roles.groups[0].yields_to, None);
    see(&mut world, 5, 3);
    assert_eq!(world.roles.groups[0].yields_to, Some(node(1)));
    {
        // While the node joins, the other one comes to keep fewer.
        let mut world = World {
            roles: world.roles.clone(),
            seen: world.seen.clone(),
            ..World::unseen(world.policy.clone())
        };
        world.policy.switches = vec![Switch {
            writer_hostgroup: 100,
            from: node(0),
            to: node(1),
            step: SwitchStep::Move,
            ordered_at: 0,
        }];
        see(&mut world, 5, 3);
        world.policy.switches = Vec::new();
        for keeps in [[14, 90], [90, 14], [14, 90]] {
            for index in [0, 1] {
                world.see_changed(index, |s| {
                    (s.cluster_conf_id, s.cluster_size, s.cached_downto) = (5, 3, keeps[index]);
                });
            }
            world.decide();
            assert_eq!((world.writer(), &world.roles.groups[0].yields_to), (Some(1), &None));
        }
    }
    // Nobody has followed; then it is too late.
    world.pass(10_000);
    see(&mut world, 5, 3);
    assert_eq!(world.roles.groups[0].yields_to, None);
    // It comes, and goes without a word: the view still has it, and nobody joins.
    let mut world = World::new(policy(WriterReads::No));
    see(&mut world, 4, 2);
    for index in 0..3 {
        world.see_changed(index, |s| {
            s.cluster_conf_id = 5;
            fewest(index, s);
        });
    }
    world.decide();
    see(&mut world, 5, 3);
    assert_eq!(world.roles.groups[0].yields_to, None);
}

#[test]
fn the_history_stays_without_a_writer() {
    let mut world = World::new(policy(WriterReads::No));
    let history = synced(0).cluster_state_uuid;
    assert_eq!(world.roles.groups[0].history, history);
    (0..3)
        .for_each(|index| world.see_changed(index, |state| state.cluster_status = "non-Primary".to_owned()));
    world.decide();
    assert_eq!((world.writer(), &world.roles.groups[0].history), (None, &history));
    assert_eq!(World::unseen(policy(WriterReads::No)).roles.groups.len(), 0);
}
