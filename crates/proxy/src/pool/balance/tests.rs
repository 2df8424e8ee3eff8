//! Checks that shares follow weights: a slow server gets less, one that can't serve nothing, one that comes back little
//! at first.

use proptest::prelude::*;

use super::*;

const SECOND: Nanos = 1_000_000_000;

fn members(weights: &[u32]) -> Vec<GroupMember> {
    weights.iter().enumerate().map(|(at, weight)| GroupMember::new(at, *weight, Health::Good)).collect()
}

fn any_balancing() -> impl Strategy<Value = Balancing> {
    prop::sample::select(vec![Balancing::Weighted, Balancing::LeastInFlight, Balancing::Latency])
}

/// Statements one after the other; returns how many each member got.
fn sequence(
    members: &mut [GroupMember],
    balancing: Balancing,
    count: usize,
    load: impl Fn(usize) -> Option<Load>,
) -> Vec<usize> {
    let mut dice = Dice::new(7);
    let mut counts = vec![0; members.len()];
    for _ in 0..count {
        if let Some(at) = choose(members, balancing, SECOND, &mut dice, |member| load(member.server)) {
            counts[at] += 1;
        }
    }
    counts
}

/// Statements arrive at a steady pace and each member takes its own time for one; returns how many each got.
fn simulate(weights: &[u32], service_us: &[u64], pause_us: u64, balancing: Balancing) -> Vec<usize> {
    const COUNT: usize = 4000;
    let mut members = members(weights);
    let mut dice = Dice::new(3);
    let mut latency = vec![Latency::default(); weights.len()];
    let mut under_way: Vec<Vec<Nanos>> = vec![Vec::new(); weights.len()];
    let mut counts = vec![0; weights.len()];
    let mut now = SECOND;
    for _ in 0..COUNT {
        now += pause_us * 1000;
        for at in 0..weights.len() {
            under_way[at].retain(|end| {
                if *end <= now {
                    latency[at].observe(service_us[at] * 1000, *end);
                }
                *end > now
            });
        }
        let load = |member: &GroupMember| {
            let in_flight = under_way[member.server].len() as u32;
            Some(Load { in_flight, latency_us: latency[member.server].now_us(now), is_full: false })
        };
        let at = choose(&mut members, balancing, now, &mut dice, load).expect("all can serve");
        under_way[at].push(now + service_us[at] * 1000);
        counts[at] += 1;
    }
    counts
}

proptest! {
    #[test]
    fn shares_follow_weights(
        weights in prop::collection::vec(1..50u32, 1..6),
        balancing in any_balancing(),
        latency_us in 0..5000u64,
    ) {
        let rounds = 40;
        let total: u32 = weights.iter().sum();
        let load = Load { in_flight: 0, latency_us, is_full: false };
        let counts = sequence(&mut members(&weights), balancing, rounds * total as usize, |_| Some(load));
        for (count, weight) in counts.iter().zip(&weights) {
            prop_assert_eq!(*count, rounds * *weight as usize, "{:?} for {:?}", counts, weights);
        }
    }

    #[test]
    fn one_that_cannot_serve_gets_nothing(
        weights in prop::collection::vec(0..5u32, 2..6),
        dead in prop::collection::vec(any::<bool>(), 6),
        balancing in any_balancing(),
    ) {
        let load = |at: usize| (!dead[at]).then_some(Load::default());
        let counts = sequence(&mut members(&weights), balancing, 100, load);
        let lives = (0..weights.len()).any(|at| !dead[at]);
        prop_assert_eq!(counts.iter().sum::<usize>(), if lives { 100 } else { 0 });
        for (at, count) in counts.iter().enumerate() {
            prop_assert!(!dead[at] || *count == 0);
        }
    }

    #[test]
    fn a_slow_server_gets_less(
        slower in 3..50u64,
        weight in 1..5u32,
        balancing in prop::sample::select(vec![Balancing::LeastInFlight, Balancing::Latency]),
    ) {
        // 1 ms against some, with about two statements under way on the fast one alone.
        let counts = simulate(&[weight, weight], &[1000, 1000 * slower], 500, balancing);
        prop_assert!(counts[1] * 3 < counts[0] * 2, "{counts:?} at {slower}");
        prop_assert!(counts[1] > 0, "its recovery would never be noticed");
        let even = simulate(&[weight, weight], &[1000, 1000], 500, balancing);
        prop_assert!(even[0].abs_diff(even[1]) < 400, "{even:?}");
    }

    #[test]
    fn nothing_overflows(
        weights in prop::collection::vec(prop::sample::select(vec![0, 1, 10_000_000]), 1..5),
        in_flight in prop::sample::select(vec![0, 1, u32::MAX]),
        latency_us in prop::sample::select(vec![0, 1, u64::MAX]),
        balancing in any_balancing(),
    ) {
        let load = |at: usize| Some(if at == 0 { Load { in_flight, latency_us, is_full: false } } else { Load::default() });
        let counts = sequence(&mut members(&weights), balancing, 50, load);
        prop_assert_eq!(counts.iter().sum::<usize>(), 50);
    }

    #[test]
    fn a_mean_stays_within_what_was_seen(
        steps in prop::collection::vec((0..10 * SECOND, 0..100 * SECOND), 1..50),
    ) {
        let mut latency = Latency::default();
        let mut now = SECOND;
        let mut most = 0;
        for (took, pause) in steps {
            now += pause;
            latency.observe(took, now);
            most = most.max(took / 1000).min(LATENCY_MAX_US);
            prop_assert!(latency.now_us(now) <= most);
            prop_assert!(latency.now_us(now) >= (took / 1000).min(LATENCY_MAX_US), "a peak counts at once");
            prop_assert!(latency.now_us(now + 10 * SECOND) <= latency.now_us(now) / 2 + 1, "it fades");
        }
    }
}

#[test]
fn ten_times_slower_keeps_about_a_hundredth_of_its_turns() {
    let load = |at: usize| Some(Load { latency_us: if at == 0 { 10_000 } else { 1000 }, ..Load::default() });
    let counts = sequence(&mut members(&[1, 1, 1]), Balancing::Latency, 30_000, load);
    assert!((20..400).contains(&counts[0]), "{counts:?}");
    assert!(counts[1].abs_diff(counts[2]) < 1500, "{counts:?}");
}

#[test]
fn classes_come_before_shares() {
    let load = |_| Some(Load::default());
    let mut three = members(&[1, 1, 1]);
    three[0].health = Health::Slow;
    assert_eq!(sequence(&mut three, Balancing::Weighted, 100, load), [0, 50, 50]);
    three[1].health = Health::Shunned;
    three[2].weight = 0;
    assert_eq!(sequence(&mut three, Balancing::Weighted, 100, load), [100, 0, 0], "slow before weight 0");
    let gone = |at: usize| (at != 0).then(Load::default);
    assert_eq!(sequence(&mut three, Balancing::Weighted, 100, gone), [0, 0, 100], "weight 0 before shunned");
    let gone = |at: usize| (at == 1).then(Load::default);
    assert_eq!(sequence(&mut three, Balancing::Weighted, 100, gone), [0, 100, 0], "the last resort");
    let full = |at: usize| Some(Load { is_full: at != 1, ..Load::default() });
    let mut three = members(&[5, 1, 5]);
    assert_eq!(
        sequence(&mut three, Balancing::Weighted, 100, full),
        [0, 100, 0],
        "others have connections left"
    );
}

#[test]
fn a_server_that_comes_back_is_not_stampeded() {
    for balancing in [Balancing::Weighted, Balancing::LeastInFlight, Balancing::Latency] {
        let mut two = members(&[1, 1]);
        two[1].returned_at = SECOND;
        two[1].slow_start = 5 * SECOND;
        let mut dice = Dice::new(1);
        let mut shares = Vec::new();
        for second in 0..6 {
            let mut count = 0;
            for step in 0..1000 {
                let now = SECOND + second * SECOND + step * 1_000_000;
                let at = choose(&mut two, balancing, now, &mut dice, |_| Some(Load::default()));
                count += usize::from(at == Some(1));
            }
            shares.push(count);
        }
        assert!(shares[0] < 150, "{balancing:?}: {shares:?}");
        assert!(shares.windows(2).all(|pair| pair[0] < pair[1] + 20), "{balancing:?}: {shares:?}");
        assert!((480..=520).contains(&shares[5]), "{balancing:?}: {shares:?}");
    }
}

#[test]
fn statements_in_flight_are_shared_by_weight() {
    let counts = simulate(&[3, 1], &[20_000, 20_000], 500, Balancing::LeastInFlight);
    assert!((2800..3200).contains(&counts[0]), "{counts:?}");
}
