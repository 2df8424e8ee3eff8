//! Tests `auto_failover`: what has to hold before a replica is made the writer, and who gets nothing afterwards.

use proptest::prelude::*;

use super::*;

const AFTER_MS: u64 = 5000;

/// What a probe has shown.
type Look = Result<ServerState, ProbeError>;

fn failover_policy() -> Policy {
    let mut policy = super::replication::replication_policy();
    policy.replication[0].failover_after_ms = Some(AFTER_MS);
    policy
}

fn writable(index: usize) -> ReplicaState {
    ReplicaState { read_only: Some(false), id: format!("id{index}"), ..ReplicaState::default() }
}

fn replica(index: usize, source: usize, link: Link) -> ReplicaState {
    let source = SourceLink { id: format!("id{source}"), endpoint: Some(node(source)), link };
    let lag = if link == Link::Up { Lag::Seconds(0) } else { Lag::Stopped };
    ReplicaState { read_only: Some(true), lag, source: Some(source), ..writable(index) }
}

/// Without a source.
fn read_only(index: usize) -> ReplicaState {
    ReplicaState { read_only: Some(true), ..writable(index) }
}

impl World {
    /// Node 0 is the source of the others, and they follow.
    fn failing_over() -> Self {
        let mut world = Self::unseen(failover_policy());
        world.see_servers([writable(0), replica(1, 0, Link::Up), replica(2, 0, Link::Up)]);
        world
    }

    fn see_servers(&mut self, states: [ReplicaState; 3]) {
        for (index, state) in states.into_iter().enumerate() {
            self.see_state(index, Ok(state.into()));
        }
        self.decide();
    }

    fn succession(&self) -> Succession {
        self.roles.groups[0].succession.clone().unwrap_or_default()
    }

    fn waits_for(&self) -> String {
        self.roles.groups[0].waits_for.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// The source is gone, and the replicas are seen so from now on, for as long as it takes.
    fn lose_source(&mut self, fault: ProbeError, replicas: [Option<ReplicaState>; 2]) {
        for _ in 0..7 {
            self.see_state(0, Err(fault.clone()));
            for (index, state) in replicas.iter().enumerate() {
                let state = state.clone().map(ServerState::from).ok_or_else(refused);
                self.see_state(index + 1, state);
            }
            self.decide();
            self.pass(AFTER_MS / 3);
        }
        self.decide();
    }
}

#[test]
fn a_lost_source_is_given_up_after_a_while() {
    let mut world = World::failing_over();
    assert_eq!(world.picture(), "W R R");
    for index in 1..3 {
        world.see_state(index, Ok(replica(index, 0, Link::Down).into()));
    }
    world.see_state(0, Err(refused()));
    world.decide();
    assert_eq!((world.picture().as_str(), world.succession().due), ("- R R", None));
    assert!(world.waits_for().contains("waits a moment for 192.168.4.22:3306"), "{}", world.waits_for());
    world.pass(AFTER_MS - 1);
    world.decide();
    assert_eq!(world.succession().due, None);
    world.pass(1);
    world.decide();
    assert_eq!(world.succession().due, Some(node(0)));
    // The third one did not hear of it in time.
    world.see_state(1, Ok(replica(1, 0, Link::Up).into()));
    world.decide();
    assert_eq!(world.succession().due, None);
    assert_eq!(
        world.waits_for(),
        "waits for 192.168.4.22:3306: 1 servers report that they can't connect to it, 2 are needed for a failover"
    );
}

/// An answer tells how it was when the question was put: a Weir that was stopped reads it late, and does not know what
/// others have done since. Nor is it younger for time-outs after it.
#[test]
fn answers_count_from_when_they_were_asked_for() {
    for timeouts in 0..2 {
        let mut world = World::failing_over();
        let asked_at = world.now;
        world.now = Millis(asked_at.0 + AFTER_MS - ReplicationPolicy::LEASE_MS);
        let answers = [writable(0), replica(1, 0, Link::Up), replica(2, 0, Link::Up)];
        for (seen, answer) in world.seen.iter_mut().zip(answers) {
            *seen = Observation::after(Some(seen), &seen.endpoint, world.now, Ok(answer.into()))
                .with_question(asked_at);
            for _ in 0..timeouts {
                let silent = Err(ProbeError::Timeout(800));
                *seen = Observation::after(Some(seen), &seen.endpoint, world.now, silent);
            }
        }
        world.decide();
        assert_eq!(world.writer(), Some(0), "it is just young enough");
        world.now.0 += 1;
        world.decide();
        assert_eq!(world.writer(), None);
    }
}

#[test]
fn what_forbids_a_failover() {
    let down = |index| Some(replica(index, 0, Link::Down));
    let timeout = || ProbeError::Timeout(800);
    let elsewhere = Some(Endpoint::new("elsewhere", 3306));
    let source = SourceLink { id: "id7".to_owned(), endpoint: elsewhere, link: Link::Down };
    let astray = ReplicaState { source: Some(source), ..replica(2, 0, Link::Down) };
    let cases = [
        ("all hold", refused(), [down(1), down(2)], true),
        ("silence is as good", timeout(), [down(1), down(2)], true),
        ("one replica hears it", refused(), [down(1), Some(replica(2, 0, Link::Up))], false),
        ("one was stopped by a person", refused(), [down(1), Some(replica(2, 0, Link::Idle))], false),
        ("one tries for the first time", refused(), [down(1), Some(replica(2, 0, Link::Trying))], false),
        ("one is not seen", refused(), [down(1), None], false),
        ("this Weir sees nobody", timeout(), [None, None], false),
        ("only this Weir's way is broken", timeout(), [1, 2].map(|at| Some(replica(at, 0, Link::Up))), false),
        ("it answers with an error", ProbeError::Refused("denied".to_owned()), [down(1), down(2)], false),
        ("it has no room for connections", ProbeError::Busy("full".to_owned()), [down(1), down(2)], false),
        ("somebody has made one writable", refused(), [Some(writable(1)), down(2)], false),
        ("one replicates from another that does", refused(), [down(1), Some(replica(2, 1, Link::Up))], true),
        ("one has lost another source", refused(), [down(1), Some(astray)], false),
        ("one replicates from nobody", refused(), [down(1), Some(read_only(2))], false),
    ];
    for (what, fault, replicas, due) in cases {
        let mut world = World::failing_over();
        world.lose_source(fault, replicas);
        assert_eq!(world.succession().due.is_some(), due, "{what}");
    }
}

#[test]
fn a_source_that_the_user_took_out_is_not_replaced() {
    let mut world = World::failing_over();
    world.rows.iter_mut().filter(|row| row.endpoint == node(0)).for_each(|row| row.wish = Wish::OfflineSoft);
    world.lose_source(refused(), [1, 2].map(|index| Some(replica(index, 0, Link::Down))));
    assert_eq!(world.succession().due, None);
}

#[test]
fn a_writer_that_was_never_seen_is_not_replaced() {
    let mut world = World::unseen(failover_policy());
    world.lose_source(refused(), [1, 2].map(|index| Some(replica(index, 0, Link::Down))));
    assert_eq!(world.succession().due, None);
}

#[test]
fn two_servers_are_too_few_and_go_by_read_only_alone() {
    let mut world = World::unseen(failover_policy());
    world.rows.retain(|row| row.endpoint != node(2));
    world.see_state(0, Ok(writable(0).into()));
    world.see_state(1, Ok(replica(1, 0, Link::Down).into()));
    world.decide();
    assert_eq!(world.picture(), "W R ");
    assert_eq!(world.roles.groups[0].succession, None);
}

/// The other half of the rule: whoever may have been replaced elsewhere gets no writes.
#[test]
fn a_writer_needs_more_than_half_of_the_servers() {
    let up = |index| Ok(replica(index, 0, Link::Up).into());
    let cases: [(&str, [Look; 2], bool); 6] = [
        ("one other is enough", [up(1), Err(refused())], true),
        ("all others are gone", [Err(refused()), Err(refused())], false),
        ("the others can't connect", [1, 2].map(|at| Ok(replica(at, 0, Link::Down).into())), false),
        ("they try for the first time", [1, 2].map(|at| Ok(replica(at, 0, Link::Trying).into())), false),
        ("a person has stopped them", [1, 2].map(|at| Ok(replica(at, 0, Link::Idle).into())), true),
        ("they have no source any more", [1, 2].map(|at| Ok(read_only(at).into())), false),
    ];
    for (what, others, writes) in cases {
        let mut world = World::failing_over();
        for (index, other) in others.into_iter().enumerate() {
            world.see_state(index + 1, other);
        }
        world.decide();
        assert_eq!(world.writer() == Some(0), writes, "{what}");
        let refusal = "get their data from it; auto_failover needs 2";
        assert_eq!(
            world.roles.explain(100).contains(refusal),
            !writes,
            "{what}: {}",
            world.roles.explain(100)
        );
    }
    let mut world = World::failing_over();
    world.see_servers([writable(0), replica(1, 0, Link::Down), replica(2, 0, Link::Down)]);
    assert_eq!(world.succession().unconnected, [node(1), node(2)], "they are to try again");
}

/// Whatever this Weir knew before, and whoever it sees first.
#[test]
fn an_old_source_that_comes_back_writable_gets_nothing() {
    for mut world in [World::failing_over(), World::unseen(failover_policy())] {
        world.see_servers([writable(0), writable(1), replica(2, 1, Link::Up)]);
        assert_eq!(world.picture(), "- W R");
        let reason = "not read_only, but the others replicate from 192.168.4.23:3306: it gets no work until it does, too";
        assert!(world.roles.explain(100).contains(reason), "{}", world.roles.explain(100));
        assert_eq!(world.succession().returned, [node(0)]);
        // The next writer is lost, too: what it alone has is not in the old one.
        world.see_state(1, Err(refused()));
        world.see_state(2, Ok(replica(2, 1, Link::Down).into()));
        world.decide();
        assert_eq!(world.writer(), None);
        world.see_servers([replica(0, 1, Link::Up), writable(1), replica(2, 1, Link::Up)]);
        assert_eq!(world.picture(), "R W R");
        assert_eq!((world.succession().returned, world.succession().deposed), (vec![], vec![]));
    }
    let mut world = World::unseen(failover_policy());
    world.see_state(0, Ok(writable(0).into()));
    world.see_state(2, Ok(replica(2, 1, Link::Up).into()));
    world.decide();
    assert_eq!(world.writer(), None, "the one that the other replicates from is not seen");
}

#[test]
fn an_old_source_that_comes_back_read_only_is_told_of_the_new_one() {
    let mut world = World::failing_over();
    world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.picture(), "- W R", "what it has may be old");
    assert_eq!(world.succession().returned, [node(0)]);
    let mut world = World::unseen(failover_policy());
    world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.succession().returned, [], "a person may be at work there");
}

#[test]
fn without_a_majority_for_either_nobody_writes() {
    let mut world = World::unseen(failover_policy());
    world.see_servers([writable(0), writable(1), read_only(2)]);
    assert_eq!(world.writer(), None);
    world.see_servers([writable(0), writable(1), replica(2, 0, Link::Up)]);
    assert_eq!(world.writer(), Some(0));
}

/// A Weir that was stopped may have slept through a failover: what it saw before counts no longer than other Weirs wait
/// for one, less the time for which it sends writes by it.
#[test]
fn what_was_seen_long_ago_does_not_count() {
    let counts_ms = AFTER_MS - ReplicationPolicy::LEASE_MS;
    let mut world = World::failing_over();
    world.now = Millis(world.now.0 + counts_ms);
    world.decide();
    assert_eq!(world.picture(), "W R R");
    world.now = Millis(world.now.0 + 1);
    world.decide();
    assert_eq!((world.picture().as_str(), world.succession().due), ("- - -", None));
    // What they say again counts at once.
    world.see_servers([writable(0), replica(1, 0, Link::Up), replica(2, 0, Link::Up)]);
    assert_eq!(world.picture(), "W R R");
    // While probes have no answer, what was said before them grows old, too.
    for index in [1, 2, 1, 2] {
        world.see_state(index, Err(ProbeError::Timeout(800)));
    }
    world.now = Millis(world.now.0 + counts_ms);
    world.decide();
    assert_eq!(world.writer(), Some(0));
    world.now = Millis(world.now.0 + 1);
    world.decide();
    assert_eq!(world.writer(), None);
}

/// `weir switchover`: the third server still replicates from the old writer when the next one is made writable.
#[test]
fn a_switchover_goes_through() {
    let mut world = World::failing_over();
    world.see_servers([read_only(0), read_only(1), replica(2, 0, Link::Up)]);
    assert_eq!((world.writer(), world.succession().due), (None, None));
    world.see_servers([read_only(0), writable(1), replica(2, 0, Link::Up)]);
    assert_eq!(world.writer(), Some(1));
}

/// A former writer that came back without a source may lack what was written since: it serves no reads, also while its
/// successor is away.
#[test]
fn what_has_parted_from_the_last_writer_does_not_read_while_that_is_away() {
    let mut world = World::failing_over();
    world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.picture(), "- W R");
    world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
    for away in [read_only(1), replica(1, 2, Link::Trying)] {
        world.see_servers([read_only(0), away, replica(2, 1, Link::Up)]);
        assert_eq!(world.picture(), "- R R");
    }
    // Nor does its replica.
    world.see_servers([read_only(0), read_only(1), replica(2, 0, Link::Up)]);
    assert_eq!(world.picture(), "- R -");
    world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.picture(), "- W R");
    // Whoever replicated from it may take its place.
    world.see_servers([read_only(0), read_only(1), read_only(2)]);
    assert_eq!(world.picture(), "- R R");
}

/// After a restart of everything the writer is read_only and has no source, and its predecessor may be writable: what
/// has no source stands for nobody that has been replaced.
#[test]
fn a_writer_that_was_replaced_needs_replicas_to_write_again() {
    let mut world = World::failing_over();
    world.see_servers([writable(0), writable(1), replica(2, 1, Link::Up)]);
    world.see_servers([writable(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.writer(), Some(1));
    world.see_servers([writable(0), read_only(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.writer(), None);
    world.see_servers([writable(0), read_only(1), replica(2, 0, Link::Up)]);
    assert_eq!(world.writer(), Some(0));
}

/// The same where this Weir began when the former writer was gone already, whether it has seen it beside the present one
/// or not.
#[test]
fn a_writer_that_was_replaced_before_this_weir_began_needs_replicas_too() {
    for is_seen_beside in [true, false] {
        let mut world = World::unseen(failover_policy());
        world.see_state(0, Err(refused()));
        world.see_state(1, Ok(writable(1).into()));
        world.see_state(2, Ok(replica(2, 1, Link::Up).into()));
        world.decide();
        assert_eq!(world.writer(), Some(1));
        if is_seen_beside {
            world.see_servers([writable(0), writable(1), replica(2, 1, Link::Up)]);
            world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
            assert_eq!(
                world.succession().returned,
                [node(0)],
                "whoever made it read_only may have died then"
            );
        }
        world.see_servers([writable(0), read_only(1), replica(2, 1, Link::Up)]);
        assert_eq!(world.writer(), None);
        world.see_servers([read_only(0), writable(1), replica(2, 1, Link::Up)]);
        assert_eq!(world.writer(), Some(1));
    }
}

/// A Weir that sees too few servers to go by the next writer has learnt of it all the same.
#[test]
fn a_writer_that_few_are_seen_to_have_left_needs_replicas_too() {
    let rows: Vec<Intent> =
        (0..4).map(|index| Intent { endpoint: server(index), ..row(0, 101, 1) }).collect();
    let decide = |states: [Option<ReplicaState>; 4], before: &Roles| {
        let look = |(index, state): (usize, Option<ReplicaState>)| {
            let result = state.map(ServerState::from).ok_or_else(refused);
            Observation::after(None, &server(index), Millis(1000), result)
        };
        let seen: Vec<Observation> = states.into_iter().enumerate().map(look).collect();
        roles(&failover_policy(), &rows, &seen, before, Millis(1000))
    };
    let follows = |index, source| Some(replica(index, source, Link::Up));
    let begun = [Some(writable(0)), follows(1, 0), follows(2, 0), follows(3, 0)];
    let begun = decide(begun, &Roles::default());
    assert_eq!(begun.groups[0].writers, [server(0)]);
    let nobody: [Endpoint; 0] = [];
    let missed = decide([None, Some(writable(1)), follows(2, 1), None], &begun);
    assert_eq!(missed.groups[0].writers, nobody, "two of four are no majority");
    let restarted = [Some(writable(0)), Some(read_only(1)), follows(2, 1), follows(3, 1)];
    assert_eq!(decide(restarted.clone(), &missed).groups[0].writers, nobody);
    assert_eq!(decide(restarted, &begun).groups[0].writers, nobody, "also for who has seen nothing of it");
    // And where nobody is there any more who replicates from it.
    let rest = [Some(writable(0)), Some(read_only(1)), follows(2, 0), None];
    assert_eq!(decide(rest, &begun).groups[0].writers, nobody, "two of four are no majority");
}

/// Everything was started again, and a replica is the one that does not begin read_only; also for a Weir that begins then.
#[test]
fn a_replica_that_is_writable_after_a_restart_of_everything_is_the_writer() {
    for mut world in [World::failing_over(), World::unseen(failover_policy())] {
        let heir = ReplicaState { read_only: Some(false), ..replica(1, 0, Link::Up) };
        world.see_servers([read_only(0), heir.clone(), replica(2, 0, Link::Up)]);
        assert_eq!(world.writer(), Some(1));
        world.see_servers([read_only(0), writable(1), replica(2, 0, Link::Up)]);
        assert_eq!(world.writer(), Some(1), "and when it has been told to replicate no more");
    }
}

/// A replica that is kept from work still says whether it has lost its source.
#[test]
fn a_drained_replica_has_a_vote() {
    let mut world = World::failing_over();
    let drained = Intent { endpoint: node(2), wish: Wish::OfflineSoft, ..row(2, 101, 1) };
    world.rows.retain(|row| row.endpoint != node(2));
    world.rows.push(drained);
    world.decide();
    assert_eq!(world.picture(), "W R -");
    world.lose_source(refused(), [Some(replica(1, 0, Link::Down)), Some(replica(2, 0, Link::Down))]);
    assert_eq!(world.succession().due, Some(node(0)));
    // It stands for a writer, too, and nothing is done with it.
    world.see_servers([writable(0), writable(1), replica(2, 1, Link::Up)]);
    assert_eq!(world.picture(), "- WR -");
    world.see_servers([writable(0), writable(1), read_only(2)]);
    assert_eq!(world.writer(), None, "two that are writable, and none has two of three");
    world.see_servers([read_only(0), writable(1), replica(2, 0, Link::Down)]);
    assert_eq!(world.succession().unconnected, []);
}

/// A replica that could not be seen for a moment is the next writer in a planned change all the same.
#[test]
fn a_follower_that_was_not_seen_at_last_may_be_next() {
    let mut world = World::failing_over();
    world.see_state(1, Err(refused()));
    world.decide();
    world.see_servers([read_only(0), read_only(1), replica(2, 0, Link::Up)]);
    world.see_servers([read_only(0), writable(1), replica(2, 0, Link::Up)]);
    assert_eq!(world.writer(), Some(1));
}

fn server(index: usize) -> Endpoint {
    Endpoint::new(&format!("db{index}"), 3306)
}

/// What a Weir decides that sees these servers, of which the first was the writer before.
fn decide(states: &[ReplicaState], seen: &[bool]) -> Group {
    let intents: Vec<Intent> =
        (0..states.len()).map(|index| Intent { endpoint: server(index), ..row(0, 101, 1) }).collect();
    let mut policy = failover_policy();
    policy.replication[0].failover_after_ms = Some(0);
    let look = |state: Option<&ReplicaState>, index: usize| {
        let result = state.cloned().map(ServerState::from).ok_or_else(refused);
        Observation::after(None, &server(index), Millis(1000), result)
    };
    let well = |(index, state): (usize, &ReplicaState)| {
        let source = SourceLink { id: "id0".to_owned(), endpoint: Some(server(0)), link: Link::Up };
        let source = (index > 0).then_some(source);
        let begun = ReplicaState { read_only: Some(index > 0), source, ..state.clone() };
        look(Some(&begun), index)
    };
    let begun: Vec<Observation> = states.iter().enumerate().map(well).collect();
    let previous = roles(&policy, &intents, &begun, &Roles::default(), Millis(1000));
    assert_eq!(previous.groups[0].writers, [server(0)]);
    let now = |(index, state): (usize, &ReplicaState)| look(Some(state).filter(|_| seen[index]), index);
    let observations: Vec<Observation> = states.iter().enumerate().map(now).collect();
    roles(&policy, &intents, &observations, &previous, Millis(1000)).groups.remove(0)
}

/// Whether a server is writable, and from whom it replicates over which link.
type Said = (bool, Option<(usize, usize)>);

/// Mostly the first one.
fn any_source() -> impl Strategy<Value = usize> {
    (0..8_usize).prop_map(|number| number.saturating_sub(4))
}

proptest! {
    /// Whatever the servers say, and whomever two Weirs see of them: a writer that one of them may replace is not
    /// written to by the other, and where all replicas have a source they do not write to different ones.
    #[test]
    fn two_weirs_never_disagree(
        servers in prop::collection::vec(
            (prop::bool::weighted(0.3), prop::option::weighted(0.8, (any_source(), 0..4_usize))), 3..8),
        sights in prop::collection::vec((prop::bool::weighted(0.8), prop::bool::weighted(0.8)), 8),
    ) {
        let links = [Link::Up, Link::Down, Link::Trying, Link::Idle];
        let state = |(index, (writable, source)): (usize, &Said)| {
            let source = source.filter(|(of, _)| *of != index).map(|(of, link)| SourceLink {
                id: format!("id{of}"),
                endpoint: Some(server(of)),
                link: links[link],
            });
            ReplicaState {
                read_only: Some(!writable),
                source,
                id: format!("id{index}"),
                ..ReplicaState::default()
            }
        };
        let states: Vec<ReplicaState> = servers.iter().enumerate().map(state).collect();
        let sight = |which: fn(&(bool, bool)) -> bool| sights.iter().map(which).collect::<Vec<_>>();
        let (one, two) = (decide(&states, &sight(|both| both.0)), decide(&states, &sight(|both| both.1)));
        prop_assert!(one.writers.len() <= 1 && two.writers.len() <= 1);
        let due = one.succession.and_then(|succession| succession.due);
        prop_assert!(due.is_none_or(|lost| !two.writers.contains(&lost)));
        // A read_only server without a source stands for whomever it is seen with.
        let stands_for_any = states.iter().any(|state| state.read_only == Some(true) && state.source.is_none());
        let same = one.writers.is_empty() || two.writers.is_empty() || one.writers == two.writers;
        prop_assert!(same || stands_for_any);
    }
}
