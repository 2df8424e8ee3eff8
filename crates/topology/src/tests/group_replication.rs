//! Tests MySQL Group Replication: states, elections, partitions.

use super::*;

type Change = fn(&mut GroupState);

pub(super) const GROUP: &str = "5f0c6a4e-0000-11f1-a4d9-c66cc5a3980c";

pub(super) fn id(index: usize) -> String {
    format!("{index}{index}{index}{index}0000-e57f-11f1-a4d9-c66cc5a3980c")
}

/// A healthy member of a single-primary group of three whose primary is 0.
pub(super) fn member(index: usize) -> GroupState {
    GroupState {
        server_uuid: id(index),
        group_name: GROUP.to_owned(),
        single_primary: true,
        read_only: index != 0,
        view_prefix: "17321956281234567".to_owned(),
        view_number: 3,
        members: (0..NODES.len())
            .map(|index| GroupMember { id: id(index), state: MemberState::Online, is_primary: index == 0 })
            .collect(),
        certification_queue: 0,
        applier_queue: 0,
    }
}

/// The view that 1 and 2 form without 0.
fn next_view(state: &mut GroupState) {
    state.view_number = 4;
    state.members.remove(0);
}

/// The same with 1 as the primary; of itself it is writable.
fn elected(state: &mut GroupState) {
    next_view(state);
    state.members[0].is_primary = true;
    state.read_only = state.server_uuid != id(1);
}

fn multi_primary(state: &mut GroupState) {
    state.single_primary = false;
    state.read_only = false;
    state.members.iter_mut().for_each(|member| member.is_primary = true);
}

pub(super) fn group_policy(writer_reads: WriterReads) -> Policy {
    Policy { group_replication: vec![cluster_policy(writer_reads)], ..Policy::default() }
}

impl World {
    /// A group whose three members are healthy and decided once.
    pub(super) fn group(policy: Policy) -> Self {
        let mut world = Self::unseen(policy);
        world.see_all(|_| {});
        world
    }

    pub(super) fn see_member(&mut self, index: usize, change: impl FnOnce(&mut GroupState)) {
        let mut state = member(index);
        change(&mut state);
        self.see_state(index, Ok(state.into()));
    }

    fn see_all(&mut self, change: Change) {
        (0..NODES.len()).for_each(|index| self.see_member(index, change));
        self.decide();
    }

    fn reason(&self, hostgroup: u32) -> String {
        self.roles.hostgroup(hostgroup).first().map(|place| place.reason.to_string()).unwrap_or_default()
    }
}

#[test]
fn a_single_primary_group() {
    for (reads, picture) in
        [(WriterReads::No, "W R R"), (WriterReads::Yes, "WR R R"), (WriterReads::OnlyBackups, "W R R")]
    {
        let world = World::group(group_policy(reads));
        assert_eq!(world.picture(), picture, "{reads:?}");
        assert_eq!(world.reason(100), "the group's primary");
        assert_eq!(world.roles.groups[0].flavour, Flavour::GroupReplication);
    }
}

/// The weights of the rows don't make a secondary writer: the group chooses.
#[test]
fn weights_do_not_move_the_primary() {
    let mut world = World::unseen(group_policy(WriterReads::No));
    world.rows.push(row(2, 100, 20_000));
    world.see_all(|_| {});
    assert_eq!(world.writer(), Some(0));
}

#[test]
fn several_primaries() {
    let mut world = World::unseen(group_policy(WriterReads::No));
    world.see_all(multi_primary);
    assert_eq!(world.picture(), "W BR BR");
    assert_eq!(world.reason(100), "first choice with weight 10000");
    // The present one stays; when it goes, one that is not far behind takes over at once.
    world.rows.push(row(2, 100, 20_000));
    world.decide();
    assert_eq!(world.writer(), Some(0));
    world.rows.pop();
    world.see_state(0, Err(refused()));
    world.see_member(1, |state| {
        multi_primary(state);
        state.applier_queue = 101;
    });
    world.decide();
    assert_eq!(world.picture(), "- Br WR");
    assert_eq!(world.reason(100), "took over from 192.168.4.22:3306");
    world.policy.group_replication[0].max_writers = 3;
    world.see_all(multi_primary);
    assert_eq!(world.picture(), "WR WR WR", "writers read when nobody else does");
}

#[test]
fn a_secondarys_states() {
    let own = |state: &mut GroupState, word| state.members[1].state = word;
    type Row<'a> = (&'a dyn Fn(&mut GroupState), &'a str, &'a str);
    let table: &[Row<'_>] = &[
        (&|s| own(s, MemberState::Recovering), "W - R", "its state in the group is RECOVERING"),
        (&|s| own(s, MemberState::Error), "W - R", "its state in the group is ERROR"),
        (&|s| own(s, MemberState::Offline), "W - R", "its state in the group is OFFLINE"),
        (&|s| s.members.clear(), "W - R", "not a member of a group"),
        (&|s| s.view_number = 0, "W - R", "not a member of a group"),
        (
            &|s| {
                s.members[0].state = MemberState::Unreachable;
                s.members[2].state = MemberState::Unreachable;
            },
            "W - R",
            "without quorum, it does not reach 2 of 3 members of the group",
        ),
        (&|s| s.members[0].state = MemberState::Unreachable, "W R R", "healthy"),
        (&|s| s.group_name = "other".into(), "W - R", "in another group, other 17321956281234567"),
        (&|s| s.view_prefix = "9".into(), "W - R", &format!("in another group, {GROUP} 9")),
        (&|s| s.applier_queue = 10, "W R R", "healthy"),
        (&|s| s.applier_queue = 11, "W r R", "11 transactions behind, more than 10"),
        (
            &|s| {
                s.certification_queue = 6;
                s.applier_queue = 6;
            },
            "W r R",
            "12 transactions behind, more than 10",
        ),
    ];
    for (change, picture, reason) in table {
        let mut world = World::group(group_policy(WriterReads::No));
        world.see_member(1, change);
        world.decide();
        assert_eq!(world.picture(), *picture, "{reason}");
        let place = world.roles.places.iter().rfind(|place| place.endpoint == node(1));
        assert_eq!(place.map(|place| place.reason.to_string()).as_deref(), Some(*reason));
    }
}

#[test]
fn a_killed_primary() {
    let mut world = World::group(group_policy(WriterReads::No));
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "- R R");
    assert_eq!(world.roles.groups[0].hold.as_ref().map(|hold| &*hold.lost), Some(&[node(0)][..]));
    assert_eq!(
        world.roles.explain(100),
        "hostgroup 100: 192.168.4.22:3306: connection refused; 192.168.4.23:3306: waits until the group has another \
         primary than 192.168.4.22:3306; 192.168.4.233:3306: waits until the group has another primary than \
         192.168.4.22:3306"
    );
    // Weir never chooses in the group's place, however long it takes.
    world.pass(60_000);
    world.decide();
    assert_eq!(world.writer(), None);
    world.see_member(2, elected);
    world.decide();
    assert_eq!(world.writer(), None, "the primary itself has not said so");
    // Elected, but still read_only, then with work of before: both mean to wait.
    world.see_member(1, |state| {
        elected(state);
        state.read_only = true;
    });
    world.decide();
    assert!(world.roles.explain(100).contains("192.168.4.23:3306: read_only"));
    world.see_member(1, |state| {
        elected(state);
        state.applier_queue = 7;
    });
    world.decide();
    assert!(
        world.roles.explain(100).contains("new primary, which still has to apply 7 earlier transactions")
    );
    world.see_member(1, elected);
    world.decide();
    assert_eq!(world.picture(), "- W R");
    assert_eq!(world.reason(100), "took over from 192.168.4.22:3306");
    assert_eq!(world.roles.groups[0].hold, None);
    // Its backlog matters no more, and the old primary is a reader when it is back.
    for index in 0..3 {
        world.see_member(index, |state| {
            state.view_number = 6;
            state.members.iter_mut().for_each(|member| member.is_primary = member.id == id(1));
            state.read_only = index != 1;
            state.applier_queue = 5;
        });
    }
    world.decide();
    assert_eq!(world.picture(), "R W R");
    assert_eq!(world.reason(100), "took over from 192.168.4.22:3306");
}

/// group_replication_set_as_primary(): no member leaves, no view changes.
#[test]
fn the_group_moves_its_primary() {
    let mut world = World::group(group_policy(WriterReads::No));
    let moved = |state: &mut GroupState| {
        state.members.iter_mut().for_each(|member| member.is_primary = member.id == id(2));
        state.read_only = state.server_uuid != id(2);
    };
    world.see_member(0, |state| state.read_only = true);
    world.decide();
    assert_eq!(world.picture(), "R R R");
    assert!(world.roles.groups[0].hold.is_some());
    world.see_member(2, moved);
    world.see_member(0, moved);
    world.decide();
    assert_eq!(world.picture(), "R R W");
}

/// A planned change: the group can make any secondary its primary; where all are primaries, Weir chooses.
#[test]
fn who_can_be_the_next_primary() {
    let mut world = World::group(group_policy(WriterReads::No));
    assert_eq!(world.roles.groups[0].successors, [node(1), node(2)]);
    world.policy.switches = vec![Switch {
        writer_hostgroup: 100,
        from: node(0),
        to: node(1),
        step: SwitchStep::Move,
        ordered_at: 0,
    }];
    world.decide();
    assert_eq!(world.picture(), "W R R", "only the group moves its primary");
    world.see_member(1, |state| state.members[1].state = MemberState::Recovering);
    world.decide();
    assert_eq!(world.roles.groups[0].successors, [node(2)]);

    let mut world = World::group(group_policy(WriterReads::No));
    (0..3).for_each(|index| world.see_member(index, multi_primary));
    world.decide();
    assert_eq!(world.roles.groups[0].successors, [node(1), node(2)]);
    world.policy.switches = vec![Switch {
        writer_hostgroup: 100,
        from: node(0),
        to: node(2),
        step: SwitchStep::Move,
        ordered_at: 0,
    }];
    world.decide();
    assert_eq!(world.writer(), Some(2));
    world.policy.switches = Vec::new();
    world.decide();
    assert_eq!(world.writer(), Some(2), "failback is never");
}

/// Observations of different moments may show two: nobody writes until they are of one.
#[test]
fn two_servers_that_call_themselves_primary() {
    let mut world = World::group(group_policy(WriterReads::No));
    let also = |state: &mut GroupState| {
        state.members[1].is_primary = true;
        state.read_only = false;
    };
    world.see_member(1, also);
    world.decide();
    assert_eq!(world.writer(), None);
    assert!(world.roles.explain(100).contains("192.168.4.23:3306 reports that it is primary, too"));
    // One of them has not noticed that the group went on without it.
    world.see_member(1, elected);
    world.see_member(2, elected);
    world.decide();
    assert_eq!(world.picture(), "- W R");
    assert_eq!(world.reason(9101), "no member of the group's view 4");
}

#[test]
fn a_primary_cut_off_with_the_minority() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    // Suspected by the others before it knows, and without quorum when it does.
    let lost_sight = |state: &mut GroupState| state.members[0].state = MemberState::Unreachable;
    world.see_member(1, lost_sight);
    world.decide();
    assert_eq!(world.picture(), "WR R R", "the doubt of one is not that of most");
    world.see_member(2, lost_sight);
    world.decide();
    assert_eq!(world.picture(), "- R R");
    assert_eq!(world.reason(9101), "most other members of the group do not reach it");
    world.see_member(0, |state| {
        (1..3).for_each(|other| state.members[other].state = MemberState::Unreachable);
    });
    world.decide();
    assert_eq!(world.reason(9101), "without quorum, it does not reach 2 of 3 members of the group");
    world.see_member(1, elected);
    world.see_member(2, elected);
    world.decide();
    assert_eq!(world.picture(), "- WR R");
}

/// A hung member is kept until its group has gone on without it; then its connections are let go.
#[test]
fn a_hung_primary() {
    let mut world = World::group(group_policy(WriterReads::No));
    for _ in 0..3 {
        world.see_state(0, Err(ProbeError::Timeout(800)));
    }
    world.decide();
    assert_eq!(world.picture(), "- R R");
    let status = |world: &World| world.roles.hostgroup(9101)[0].status;
    assert_eq!(status(&world), Status::OfflineSoft, "it may go on");
    (1..3).for_each(|index| world.see_member(index, elected));
    world.decide();
    assert_eq!(world.picture(), "- W R");
    assert_eq!(status(&world), Status::OfflineHard);
    assert_eq!(world.reason(9101), "does not answer, and is no member of the group's view 4 any more");
    // It wakes up and does not know yet.
    world.see_member(0, |_| {});
    world.decide();
    assert_eq!(world.picture(), "- W R");
    assert_eq!(world.reason(9101), "no member of the group's view 4");
}

/// Half is not more than half: of a group of two nobody goes on when they lose each other.
#[test]
fn half_of_a_group_has_no_quorum() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    world.rows.retain(|row| row.endpoint != node(2));
    for index in 0..2 {
        world.see_member(index, |state| {
            state.members.pop();
            state.members[1 - index].state = MemberState::Unreachable;
        });
    }
    world.decide();
    assert_eq!(world.picture(), "- - ");
    assert_eq!(world.reason(9101), "without quorum, it does not reach 1 of 2 members of the group");
}

/// A primary that bootstraps a group of its own after its crash (`group_replication_bootstrap_group` left ON).
#[test]
fn a_group_bootstrapped_beside_the_others() {
    let alone = |state: &mut GroupState| {
        state.view_prefix = "17400000000000000".to_owned();
        state.view_number = 1;
        state.members.truncate(1);
    };
    let mut world = World::group(group_policy(WriterReads::Yes));
    world.see_member(0, alone);
    world.decide();
    assert_eq!(world.writer(), None, "also before the others know that it is gone");
    world.see_member(1, elected);
    world.see_member(2, elected);
    world.decide();
    assert_eq!(world.picture(), "- WR R");
    // Without a memory most servers count; of two equal groups none.
    world.roles = Roles::default();
    world.decide();
    assert_eq!(world.picture(), "- WR R");
    world.roles = Roles::default();
    world.see_state(2, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(world.reason(9101), "servers report different groups");
    // When all others are out of sight, the new group is the group for those who never knew another.
    world.see_state(1, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "WR - -");
}

/// The others are without quorum, or out of sight: they may go on any moment, without the one that was started apart.
#[test]
fn a_group_bootstrapped_while_the_others_have_no_quorum() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    world.see_member(2, |state| {
        (state.view_prefix, state.view_number) = ("17400000000000000".to_owned(), 1);
        state.members.retain(|member| member.id == id(2));
        (state.members[0].is_primary, state.read_only) = (true, false);
    });
    world.see_member(1, |state| {
        state.members[0].state = MemberState::Unreachable;
        state.members[2].state = MemberState::Unreachable;
    });
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!(world.picture(), "- - -");
    let apart = world.roles.hostgroup(9101).last().map(|place| place.reason.clone());
    assert!(matches!(apart, Some(Reason::OtherGroup { .. })), "{apart:?}");
    // The last other one says that it is in no group: this one was made on purpose.
    world.see_member(0, |state| *state = GroupState { server_uuid: id(0), ..GroupState::default() });
    world.decide();
    assert_eq!(world.picture(), "- - -", "one still waits for its group");
    world.see_member(1, |state| *state = GroupState { server_uuid: id(1), ..GroupState::default() });
    world.decide();
    assert!(world.writer().is_some());
}

/// The group was made anew on a server that can't be reached from here; of one that can the view is told.
#[test]
fn a_new_group_that_has_most_servers_is_believed_whoever_tells_of_it() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    for index in [0, 1] {
        world.see_state(index, Err(refused()));
    }
    let made_anew = |state: &mut GroupState| {
        (state.view_prefix, state.view_number) = ("17400000000000000".to_owned(), 2);
        state.members.retain(|member| member.id == id(2));
    };
    world.see_member(2, made_anew);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    world.see_member(2, |state| {
        made_anew(state);
        state.members.push(GroupMember { id: id(0), ..state.members[0].clone() });
    });
    world.decide();
    assert_eq!(world.picture(), "- - R");
}

/// What the newest view was is not forgotten when nobody is left who tells of it.
#[test]
fn a_member_that_comes_back_alone_in_an_old_view() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    world.see_state(0, Err(refused()));
    (1..3).for_each(|index| world.see_member(index, elected));
    world.decide();
    assert_eq!(world.picture(), "- WR R");
    world.pass(2000);
    (1..3).for_each(|index| world.see_state(index, Err(refused())));
    world.decide();
    world.see_member(0, |_| {});
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(world.reason(9101), "still in view 3 of the cluster, others are in 4");
}

/// Members forced with group_replication_force_members on both sides of a partition.
#[test]
fn one_view_with_two_memberships() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    let forced = |state: &mut GroupState| {
        state.view_number = 4;
        state.members.truncate(1);
    };
    world.see_member(0, forced);
    world.see_member(1, elected);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(world.reason(9101), "servers report different groups");
    world.see_member(2, elected);
    world.decide();
    assert_eq!(world.picture(), "- WR R");
}

#[test]
fn a_member_in_an_old_view() {
    let mut world = World::group(group_policy(WriterReads::No));
    let newer = |state: &mut GroupState| state.view_number = 4;
    world.see_member(0, newer);
    world.see_member(1, newer);
    world.decide();
    assert_eq!(world.picture(), "W R R");
    world.pass(1000);
    world.decide();
    assert_eq!(world.picture(), "W R -");
    assert_eq!(world.reason(9101), "still in view 3 of the cluster, others are in 4");
}

#[test]
fn a_secondary_returns_at_half_the_limit() {
    let mut world = World::group(group_policy(WriterReads::No));
    for (queue, picture) in [(10, "W R R"), (11, "W r R"), (6, "W r R"), (5, "W R R"), (10, "W R R")] {
        world.see_member(1, |state| state.applier_queue = queue);
        world.decide();
        assert_eq!(world.picture(), picture, "{queue}");
    }
    world.see_all(|state| state.applier_queue = 4000);
    assert_eq!(world.picture(), "WR R R", "the last readers never leave for being slow");
    assert_eq!(world.reason(101), "4000 transactions behind, but no other reader is better");
}

#[test]
fn wishes_of_the_user() {
    let mut world = World::group(group_policy(WriterReads::Yes));
    world.rows[0].wish = Wish::OfflineSoft;
    world.decide();
    assert_eq!(world.picture(), "R R R", "the group's primary is not wanted as writer");
    world.rows[1].wish = Wish::OfflineSoft;
    world.decide();
    assert_eq!(world.picture(), "- R R");
    assert_eq!(world.roles.groups[0].hold, None, "nobody waits for what the user has taken away");
    assert!(
        world
            .roles
            .explain(100)
            .contains("192.168.4.22:3306: taken out: drained, or OFFLINE_SOFT in mysql_servers")
    );
}

#[test]
fn the_first_primary_is_taken_when_all_have_been_seen() {
    let mut world = World::unseen(group_policy(WriterReads::No));
    world.see_member(0, |_| {});
    world.see_member(1, |_| {});
    world.decide();
    assert_eq!(world.writer(), None);
    assert!(
        world.roles.explain(100).contains("192.168.4.22:3306: waits until every server has been probed once")
    );
    world.see_state(2, Err(ProbeError::Timeout(600)));
    world.decide();
    assert_eq!(world.picture(), "W R -");
    let mut world = World::unseen(group_policy(WriterReads::No));
    world.see_member(0, |_| {});
    world.decide();
    world.pass(5000);
    world.decide();
    assert_eq!(world.writer(), Some(0));
}

/// After a reload a server may belong to another kind of cluster; what was seen for the old kind says nothing.
#[test]
fn states_and_memories_of_another_flavour() {
    let mut world = World::new(policy(WriterReads::No));
    assert_eq!(world.writer(), Some(0));
    world.policy = group_policy(WriterReads::No);
    world.decide();
    assert_eq!(world.picture(), "- - -");
    assert_eq!(world.reason(9101), "not probed yet");
    assert_eq!(world.roles.groups[0].hold, None);
    world.see_all(|_| {});
    assert_eq!(world.reason(100), "the group's primary");
}

fn rows_of_a_probe() -> Vec<MemberRow<'static>> {
    let row = |id, state, role| MemberRow {
        id,
        state,
        role,
        view_id: "17321956281234567:12",
        certification_queue: "1",
        applier_queue: "2",
    };
    vec![row("aaaa", "ONLINE", "SECONDARY"), row("BBBB", "Online", "PRIMARY"), row("cccc", "UNREACHABLE", "")]
}

const VARIABLES: [(&str, &str); 5] = [
    ("server_uuid", "AAAA"),
    ("group_replication_group_name", "5F0C"),
    ("group_replication_single_primary_mode", "ON"),
    ("read_only", "OFF"),
    ("super_read_only", "ON"),
];

#[test]
fn a_state_read_from_a_server() {
    let state = GroupState::from_rows(VARIABLES, rows_of_a_probe());
    assert!(state.is_online() && state.has_quorum() && state.single_primary && state.read_only);
    assert_eq!(state.history(), "5f0c 17321956281234567");
    assert_eq!((state.view_number, state.transactions_behind(), state.unreachable()), (12, 3, 1));
    assert!(state.member("bbbb").is_some_and(|member| member.is_primary));
}

#[test]
fn a_state_that_makes_no_sense_is_never_good() {
    type Spoil = fn(&mut Vec<MemberRow<'static>>);
    let table: &[Spoil] = &[
        |rows| rows.clear(),
        |rows| rows[0].view_id = "",
        |rows| rows[0].view_id = "17321956281234567:0",
        |rows| rows[0].view_id = "17321956281234567:-1",
        |rows| rows[0].view_id = ":3",
        |rows| rows[0].state = "ONLINE?",
        |rows| rows[0].id = "dddd",
        |rows| rows[1].id = "",
        |rows| rows[1].id = "aaaa",
        |rows| rows[2].id = "aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa0000aaaa00000",
        |rows| (0..40).for_each(|_| rows.push(rows[1])),
    ];
    for (number, spoil) in table.iter().enumerate() {
        let mut rows = rows_of_a_probe();
        spoil(&mut rows);
        let state = GroupState::from_rows(VARIABLES, rows);
        assert!(!(state.is_online() && state.has_quorum()), "row {number}");
    }
    let mut rows = rows_of_a_probe();
    rows[0].applier_queue = "many";
    let state = GroupState::from_rows([("server_uuid", "aaaa")], rows);
    assert!(state.read_only && state.single_primary && !state.is_online(), "what is not said is not assumed");
    assert_eq!(state.transactions_behind(), u32::MAX);
    assert_eq!(
        GroupState::from_rows([], []),
        GroupState { single_primary: true, read_only: true, ..Default::default() }
    );
}
