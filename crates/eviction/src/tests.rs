//! Tests each condition of an eviction, the order of its steps, and what must hold whatever the nodes say.

use weir_topology::{Endpoint, Millis};

use super::*;

const HISTORY: &str = "1a354d38-e5a0-11f1-88e8-56b99f329594";

fn endpoint(index: usize) -> Endpoint {
    Endpoint::new(&format!("10.0.0.{index}"), 3306)
}

/// The UUIDs are ordered as the indices.
fn uuid(index: usize) -> String {
    format!("{index:08x}-e5cf-11f1-bdad-26ac413a1cef")
}

fn membership(index: usize, size: usize, asked_at: u64) -> Membership {
    let count = u32::try_from(size).unwrap();
    let provider = Provider {
        version: "26.4.23(r1)".to_owned(),
        weight: 1,
        inactive_check_ms: Some(100),
        keepalive_ms: Some(100),
        join_retrans_ms: Some(100),
        suspect_ms: Some(2000),
        inactive_ms: Some(4000),
        install_ms: Some(4000),
        ..Provider::default()
    };
    Membership {
        asked_at: Millis(asked_at),
        uuid: uuid(index),
        is_connected: true,
        is_primary: true,
        is_synced: true,
        history: HISTORY.to_owned(),
        view: 7,
        size: count,
        weight: count,
        evicted: Default::default(),
        provider,
    }
}

/// Nodes 1..=size that live and were asked at 100.
fn cluster(size: usize) -> Vec<Node> {
    let node = |index| Node {
        endpoint: endpoint(index),
        liveness: Liveness::Alive,
        last: Some(membership(index, size, 100)),
        obstacles: Vec::new(),
    };
    (1..=size).map(node).collect()
}

fn die(nodes: &mut [Node], index: usize, since: u64) {
    nodes[index - 1].liveness = Liveness::Dead { since: Millis(since) };
}

fn last(nodes: &mut [Node], index: usize) -> &mut Membership {
    nodes[index - 1].last.as_mut().unwrap()
}

/// Three nodes of which one has died before the others were asked.
fn one_dead(index: usize) -> Vec<Node> {
    let mut nodes = cluster(3);
    die(&mut nodes, index, 100);
    nodes
}

fn evicted(decision: Decision) -> Eviction {
    match decision {
        Decision::Evict(eviction) => eviction,
        other => panic!("{other:?}"),
    }
}

fn doubt(change: impl FnOnce(&mut Vec<Node>)) -> String {
    let mut nodes = one_dead(1);
    change(&mut nodes);
    match decide(&nodes) {
        Decision::Refrain(doubt) => doubt.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_survivor_with_the_lowest_uuid_is_told() {
    for (dead, evictor) in [(1, 2), (2, 1), (3, 1)] {
        let eviction = evicted(decide(&one_dead(dead)));
        assert_eq!(eviction.evictor, endpoint(evictor));
        assert_eq!(eviction.victims, [Victim { endpoint: endpoint(dead), uuid: uuid(dead) }]);
        assert_eq!(eviction.survivors.len(), 2);
        assert_eq!(eviction.view, 7);
    }
    // The UUID decides, not the address.
    let mut nodes = one_dead(1);
    last(&mut nodes, 2).uuid = uuid(9);
    assert_eq!(evicted(decide(&nodes)).evictor, endpoint(3));
}

#[test]
fn two_of_five_that_die_together_go_together() {
    let mut nodes = cluster(5);
    die(&mut nodes, 1, 90);
    die(&mut nodes, 4, 95);
    let eviction = evicted(decide(&nodes));
    assert_eq!((eviction.evictor, eviction.victims.len()), (endpoint(2), 2));
}

#[test]
fn nothing_happens_while_all_live_or_the_dead_are_out() {
    assert_eq!(decide(&cluster(3)), Decision::Nothing);
    // It has left the view, and only then died.
    let mut left = one_dead(1);
    for index in [2, 3] {
        last(&mut left, index).view = 8;
    }
    assert_eq!(decide(&left), Decision::Nothing);
    // It was in no group when it died.
    let mut apart = one_dead(1);
    last(&mut apart, 1).is_primary = false;
    assert_eq!(decide(&apart), Decision::Nothing);
    // Nobody knows what it was.
    let mut stranger = one_dead(1);
    stranger[0].last = None;
    assert_eq!(decide(&stranger), Decision::Nothing);
    assert_eq!(decide(&[]), Decision::Nothing);
}

#[test]
fn survivors_are_asked_after_the_death() {
    let mut nodes = one_dead(1);
    die(&mut nodes, 1, 101);
    assert_eq!(decide(&nodes), Decision::Ask(vec![endpoint(2), endpoint(3)]));
    last(&mut nodes, 3).asked_at = Millis(101);
    assert_eq!(decide(&nodes), Decision::Ask(vec![endpoint(2)]));
    last(&mut nodes, 2).asked_at = Millis(102);
    evicted(decide(&nodes));
}

/// Makes one condition fail.
type Spoil = fn(&mut Vec<Node>);

#[test]
fn every_doubt_has_its_words() {
    let cases: [(&str, Spoil); 13] = [
        ("the survivors' views differ", |nodes| last(nodes, 3).view = 8),
        ("only 2 of the view's 3 members are known to be alive or dead", |nodes| {
            nodes[1].liveness = Liveness::Unknown
        }),
        ("only 3 of the view's 4 members are known to be alive or dead", |nodes| {
            [2, 3].iter().for_each(|index| last(nodes, *index).size = 4);
        }),
        ("10.0.0.1:3306 is not Synced", |nodes| last(nodes, 1).is_synced = false),
        ("10.0.0.3:3306 is not Synced", |nodes| last(nodes, 3).is_synced = false),
        ("the evict list of 10.0.0.2:3306 is not empty", |nodes| {
            last(nodes, 2).evicted.insert(uuid(8));
        }),
        ("only one node would be left", |nodes| {
            nodes.truncate(2);
            last(nodes, 2).size = 2;
        }),
        ("the survivors have weight 2 of 4, which is no majority", |nodes| {
            last(nodes, 1).provider.weight = 2;
            [2, 3].iter().for_each(|index| last(nodes, *index).weight = 4);
        }),
        ("the members' weights do not add up to their view's", |nodes| last(nodes, 2).weight = 4),
        ("the UUID of 10.0.0.1:3306 in its group is not known", |nodes| last(nodes, 1).uuid.clear()),
        ("10.0.0.2:3306: pc.ignore_quorum or pc.ignore_sb is on", |nodes| {
            last(nodes, 2).provider.ignores_quorum = true;
        }),
        ("10.0.0.1:3306: evs.keepalive_period is PT1S, more than PT0.1S", |nodes| {
            last(nodes, 1).provider.keepalive_ms = Some(1000);
        }),
        ("10.0.0.3:3306: the account monitor may not set wsrep_provider_options (it needs SUPER)", |nodes| {
            nodes[2].obstacles.push(Obstacle::NoPrivilege { user: "monitor".to_owned() });
        }),
    ];
    for (words, change) in cases {
        assert_eq!(doubt(change), words);
    }
}

#[test]
fn a_hung_node_counts_as_dead_where_it_was_made_one() {
    let mut nodes = cluster(3);
    nodes[1].liveness = Liveness::Hung { since: Millis(90) };
    assert_eq!(evicted(decide(&nodes)).victims[0].endpoint, endpoint(2));
}

/// All live nodes have a newer view without the dead ones, and were asked at `asked_at`.
fn go_on(nodes: &mut [Node], asked_at: u64) {
    let size = nodes.iter().filter(|node| node.liveness == Liveness::Alive).count();
    for node in nodes.iter_mut().filter(|node| node.liveness == Liveness::Alive) {
        let seen = node.last.as_mut().unwrap();
        let count = u32::try_from(size).unwrap();
        (seen.view, seen.size, seen.weight, seen.asked_at) = (8, count, count, Millis(asked_at));
    }
}

fn asked(nodes: &mut [Node], asked_at: u64) {
    for seen in nodes.iter_mut().filter_map(|node| node.last.as_mut()) {
        seen.asked_at = Millis(asked_at);
    }
}

#[test]
fn from_the_death_to_the_last_empty_list() {
    let mut assistant = Sequence::default();
    let mut nodes = one_dead(1);
    let mut step = |nodes: &[Node], now| assistant.step(nodes, 0, false, Millis(now));
    assert!(matches!(step(&nodes, 100).act, Act::Evict(_)));
    let survivors = vec![endpoint(2), endpoint(3)];
    // The old view: once more. One list is full now, and nothing is cleared before the view.
    last(&mut nodes, 2).evicted.insert(uuid(1));
    assert_eq!(step(&nodes, 103).act, Act::Ask(survivors.clone()));
    last(&mut nodes, 2).view = 8;
    assert_eq!(step(&nodes, 106).act, Act::Ask(survivors.clone()), "one survivor is not all");
    go_on(&mut nodes, 110);
    last(&mut nodes, 3).evicted.insert(uuid(1));
    let new_view = step(&nodes, 112);
    assert_eq!(new_view.act, Act::Clear(survivors.clone()));
    assert_eq!(new_view.note, Some(Note::NewView { after_ms: 12 }));
    // What they said before they were cleared does not count.
    assert_eq!(step(&nodes, 113).act, Act::Ask(survivors));
    asked(&mut nodes, 114);
    last(&mut nodes, 2).evicted.clear();
    assert_eq!(step(&nodes, 115).act, Act::Clear(vec![endpoint(3)]));
    asked(&mut nodes, 116);
    last(&mut nodes, 3).evicted.clear();
    assert_eq!(step(&nodes, 117), Step { act: Act::Nothing, note: Some(Note::Clean) });
    assert_eq!(step(&nodes, 118), Step::default());
}

#[test]
fn no_view_comes() {
    let mut assistant = Sequence::default();
    let mut nodes = one_dead(1);
    let mut step = |nodes: &[Node], now| assistant.step(nodes, 0, false, Millis(now));
    assert!(matches!(step(&nodes, 100).act, Act::Evict(_)));
    last(&mut nodes, 2).evicted.insert(uuid(1));
    assert!(matches!(step(&nodes, 3099).act, Act::Ask(_)));
    let late = step(&nodes, 3100);
    assert_eq!(late, Step { act: Act::Nothing, note: Some(Note::NoNewView { after_ms: 3000 }) });
    assert_eq!(step(&nodes, 5000), Step::default(), "said once, and the list stays");
    assert!(matches!(step(&nodes, 15_100).act, Act::Clear(_)));
}

#[test]
fn a_refused_eviction_leaves_nothing_to_wait_for() {
    let mut assistant = Sequence::default();
    let nodes = one_dead(1);
    assert!(matches!(assistant.step(&nodes, 0, false, Millis(100)).act, Act::Evict(_)));
    assistant.not_done();
    assert!(matches!(assistant.step(&nodes, 0, false, Millis(101)).act, Act::Evict(_)));
}

#[test]
fn what_another_has_left_behind_is_cleared() {
    // The view without the victim is there: at once.
    let mut nodes = one_dead(1);
    go_on(&mut nodes, 120);
    last(&mut nodes, 3).evicted.insert(uuid(1));
    let mut assistant = Sequence::default();
    let step = assistant.step(&nodes, 0, false, Millis(121));
    assert_eq!(step.act, Act::Clear(vec![endpoint(3)]));
    assert_eq!(step.note, Some(Note::LeftOver(endpoint(3))));
    // The victim is still in the view: another may be about to see to it.
    let mut nodes = one_dead(1);
    last(&mut nodes, 2).evicted.insert(uuid(1));
    let mut assistant = Sequence::default();
    let doubt = Note::Refrained(Doubt::ListNotEmpty(endpoint(2)));
    assert_eq!(assistant.step(&nodes, 0, false, Millis(121)).note, Some(doubt));
    assert!(matches!(assistant.step(&nodes, 0, false, Millis(5121)).act, Act::Clear(_)));
}

#[test]
fn a_hung_victim_is_kept_out_until_it_is_dead_or_has_lost_its_cluster() {
    for ends_dead in [true, false] {
        let mut assistant = Sequence::default();
        let mut nodes = cluster(3);
        nodes[0].liveness = Liveness::Hung { since: Millis(100) };
        let mut step = |nodes: &[Node], now| assistant.step(nodes, 0, true, Millis(now));
        assert!(matches!(step(&nodes, 100).act, Act::Evict(_)));
        go_on(&mut nodes, 110);
        last(&mut nodes, 2).evicted.insert(uuid(1));
        let kept = step(&nodes, 112);
        assert_eq!((kept.act, kept.note), (Act::Nothing, Some(Note::NewView { after_ms: 12 })));
        assert_eq!(step(&nodes, 60_000), Step::default());
        // It goes on, and does not yet know that it is out.
        nodes[0].liveness = Liveness::Alive;
        assert_eq!(step(&nodes, 60_001), Step::default());
        if ends_dead {
            die(&mut nodes, 1, 60_002);
        } else {
            last(&mut nodes, 1).is_connected = false;
        }
        let step = step(&nodes, 60_003);
        assert!(matches!(step.act, Act::Clear(_)));
        assert_eq!(step.note, (!ends_dead).then(|| Note::NeedsRestart(endpoint(1))));
    }
}

#[test]
fn the_next_in_rank_acts_if_the_first_does_not() {
    let mut assistant = Sequence::default();
    let mut nodes = one_dead(1);
    let note = Some(Note::Refrained(Doubt::NotFirst));
    assert_eq!(assistant.step(&nodes, 2, false, Millis(299)), Step { act: Act::Nothing, note });
    assert!(matches!(assistant.step(&nodes, 2, false, Millis(300)).act, Act::Evict(_)));
    // The first has acted.
    last(&mut nodes, 2).evicted.insert(uuid(1));
    let note = Some(Note::Refrained(Doubt::ListNotEmpty(endpoint(2))));
    assert_eq!(Sequence::default().step(&nodes, 2, false, Millis(300)).note, note);
}

/// Whatever the nodes say: an eviction names only the proven dead, leaves a majority, and asks the group's speaker.
#[test]
fn whatever_the_nodes_say() {
    let mut numbers = weir_seeds::SplitMix::new(1);
    let mut random = |below: u64| numbers.within(0..below);
    let mut evictions = 0;
    for _ in 0..200_000 {
        let size = usize::try_from(2 + random(5)).unwrap();
        let mut nodes = cluster(size);
        for index in 1..=size {
            let seen = last(&mut nodes, index);
            seen.asked_at = Millis(99 + random(3));
            seen.uuid = uuid(usize::try_from(random(1000)).unwrap() * 10 + index);
            match random(60) {
                0 => seen.view = 6,
                1 => seen.is_synced = false,
                2 => seen.is_primary = false,
                3 => seen.size += 1,
                4 => seen.provider.weight = 2,
                5 => seen.evicted = [uuid(1)].into(),
                6 => seen.weight += 1,
                _ => {}
            }
            nodes[index - 1].liveness = match random(6) {
                0 => Liveness::Dead { since: Millis(99 + random(3)) },
                1 if random(4) == 0 => Liveness::Unknown,
                _ => Liveness::Alive,
            };
        }
        let Decision::Evict(eviction) = decide(&nodes) else { continue };
        evictions += 1;
        let of = |endpoint: &Endpoint| nodes.iter().find(|node| node.endpoint == *endpoint).unwrap();
        let seen = |endpoint: &Endpoint| of(endpoint).last.clone().unwrap();
        let dead = eviction.victims.iter().map(|victim| of(&victim.endpoint));
        assert!(dead.clone().all(|node| matches!(node.liveness, Liveness::Dead { .. })));
        let since = dead.map(|node| match node.liveness {
            Liveness::Dead { since } => since,
            _ => Millis(0),
        });
        let since = since.max().unwrap();
        let weight = |endpoint: &Endpoint| seen(endpoint).provider.weight;
        let stay: u32 = eviction.survivors.iter().map(weight).sum();
        let go: u32 = eviction.victims.iter().map(|victim| weight(&victim.endpoint)).sum();
        assert!(stay > go && eviction.survivors.len() >= 2);
        assert_eq!(seen(&eviction.evictor).weight, stay + go);
        for survivor in &eviction.survivors {
            let said = seen(survivor);
            assert!(of(survivor).liveness == Liveness::Alive && said.is_primary && said.evicted.is_empty());
            assert!(said.asked_at >= since && said.uuid >= seen(&eviction.evictor).uuid);
            assert_eq!(
                (said.view, usize::try_from(said.size).unwrap()),
                (eviction.view, eviction.survivors.len() + eviction.victims.len())
            );
        }
    }
    assert!(evictions > 5000, "only {evictions}");
}
