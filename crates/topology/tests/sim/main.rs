//! Whole worlds around the real decision, in virtual time: servers that die, hang, are cut off, join and are set up
//! wrongly, a network that loses and delays, and one to three Weirs with clocks of their own. What a Weir decides is
//! decided by [`weir_topology::roles`] itself; the rest of the world is modelled. After every step the rules of the
//! crate are looked at from outside, knowing the truth.
//!
//! Five kinds: Galera, in those with odd numbers with an epoch; the same with several writers, or one that takes its
//! role back (from 1000000 on); groups (from 2000000 on); replication (from 3000000 on), and the same with
//! `auto_failover` (from 4000000 on), and with switchovers that are ordered of several Weirs at once (from 5000000 on).
//! There what Weirs do with the servers is real, too: each procedure runs on a thread of its own, question by question.
//!
//! A seed is a world. `WEIR_SIM_SEED=n cargo test -p weir-topology --test sim one_world -- --nocapture` runs one and
//! prints the end of its story; `WEIR_SIM_WORLDS=n` and `WEIR_SIM_FIRST=n` run others than the usual ones.

mod accord;
mod breach;
mod chaos;
mod check;
mod cluster;
mod follow;
mod group;
mod node;
mod queue;
mod random;
mod stage;
mod strikes;
mod watch;
mod weir;
mod world;

use std::thread;

use breach::{Breach, Trial};
use stage::{CHOOSING, FAILOVERS, Failure, GROUPS, REPLICAS, SWITCHOVERS, Tally, run};

/// Worlds in which something was found once; they come first.
///
/// - 24: a node that was started as a cluster of its own became the writer while the others had lost their quorum.
/// - 229: where nodes tell no addresses, any new view deposed a writer that another Weir still reached.
/// - 230: a node that did not answer just then became the writer.
/// - 1000005, 1000183: a Weir that knew a writer only by its epoch, and did not reach it, took any view for one without
///   it, and claimed another although a second Weir reached it. Where a heavier writer takes its role back at once,
///   clients waited for the claim, up to 5 s, instead of going on at the present one.
/// - 2000002: a member that had been stopped or cut off was believed in a view that the group had left long ago.
/// - 2000028: a server that was bootstrapped as a group of its own became the writer while the others had no quorum.
/// - 4773: a lease that was given in the history of a node that had been started apart was used in the cluster's.
/// - 16731: a Weir that had been cut off published a writer, and moved the role there from the one that another Weir had
///   chosen meanwhile.
/// - 2001899: a group that was made anew with all its servers was not believed while one of two could be reached.
/// - 4000785, 4002024, 4002451: after a restart of everything a writer that had been replaced got the role back from a Weir
///   that had never seen it beside the next one.
const KEPT: [u64; 13] = [
    24, 229, 230, 4773, 16_731, 1_000_005, 1_000_183, 2_000_002, 2_000_028, 2_001_899, 4_000_785, 4_002_024,
    4_002_451,
];
/// Steps of one world. In those with odd numbers the Weirs agree on an epoch, which takes more.
const STEPS: u64 = 4000;
const STEPS_AGREEING: u64 = 16_000;
/// A lost source is waited for before it is replaced.
const STEPS_FAILING_OVER: u64 = 40_000;
/// Worlds of a usual run, of each kind: a million and a quarter steps together.
const WORLDS: u64 = 64;
const CHOOSING_WORLDS: u64 = 24;
const GROUP_WORLDS: u64 = 60;
const REPLICA_WORLDS: u64 = 40;
const FAILOVER_WORLDS: u64 = 40;
const SWITCHOVER_WORLDS: u64 = 40;
/// Worlds in which a broken rule must show, and their steps: a hold in which probes hurry takes many.
const WORLDS_PER_BREACH: usize = 100;
const STEPS_PER_BREACH: u64 = 16_000;

fn steps_of(seed: u64) -> u64 {
    match seed {
        FAILOVERS.. => STEPS_FAILING_OVER,
        ..GROUPS if seed % 2 == 1 => STEPS_AGREEING,
        _ => STEPS,
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// The same world again, with its story.
fn story(failure: &Failure) -> String {
    let seed = failure.seed;
    let lines = match run(seed, failure.step, Trial::Plain, true) {
        Err(again) => again.trace.join("\n"),
        Ok(_) => "(it does not happen again: the world does not follow from its seed)".to_owned(),
    };
    format!(
        "{lines}\n\nworld {seed}, step {}: {}\nagain: WEIR_SIM_SEED={seed} cargo test -p weir-topology --test sim \
         one_world -- --nocapture",
        failure.step, failure.what
    )
}

/// Runs worlds on a few threads and adds up what was seen.
fn run_all(seeds: &[u64]) -> Result<Tally, Failure> {
    let threads = thread::available_parallelism().map_or(2, usize::from).min(8);
    let share = |offset: usize| {
        let mut sum = Tally::default();
        for seed in seeds.iter().skip(offset).step_by(threads) {
            sum = sum.plus(&run(*seed, steps_of(*seed), Trial::Plain, false)?);
        }
        Ok(sum)
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|offset| scope.spawn(move || share(offset))).collect();
        let mut sum = Tally::default();
        for handle in handles {
            sum = sum.plus(&handle.join().expect("a world panicked")?);
        }
        Ok(sum)
    })
}

#[test]
fn a_million_steps_keep_the_rules() {
    let first = number("WEIR_SIM_FIRST", 0);
    let worlds = number("WEIR_SIM_WORLDS", WORLDS);
    let seeds: Vec<u64> = KEPT.into_iter().chain(first..first + worlds).collect();
    let tally = match run_all(&seeds) {
        Ok(tally) => tally,
        Err(failure) => panic!("{}", story(&failure)),
    };
    println!("{tally:?}");
    assert!(
        tally.steps >= worlds * STEPS && tally.steps >= WORLDS.min(worlds) * 5000,
        "a world ended early: {tally:?}"
    );
    // A world without events would keep all rules.
    assert!(
        tally.moves > worlds && tally.acknowledged > 20 * worlds && tally.quiet_checks > worlds,
        "{tally:?}"
    );
}

/// Worlds of one kind, whose seeds begin at `first`.
fn keep_the_rules(first: u64, usual: u64) {
    let first = first + number("WEIR_SIM_FIRST", 0);
    let worlds = number("WEIR_SIM_WORLDS", usual);
    let seeds: Vec<u64> = (first..first + worlds).collect();
    let tally = run_all(&seeds).unwrap_or_else(|failure| panic!("{}", story(&failure)));
    println!("{tally:?}");
    assert!(4 * tally.moves > worlds && tally.quiet_checks > worlds, "{tally:?}");
}

#[test]
fn several_writers_and_failback_keep_the_rules() {
    keep_the_rules(CHOOSING, CHOOSING_WORLDS);
}

#[test]
fn groups_keep_the_rules() {
    keep_the_rules(GROUPS, GROUP_WORLDS);
}

#[test]
fn replication_keeps_the_rules() {
    keep_the_rules(REPLICAS, REPLICA_WORLDS);
}

#[test]
fn auto_failover_keeps_the_rules() {
    keep_the_rules(FAILOVERS, FAILOVER_WORLDS);
}

#[test]
fn switchovers_keep_the_rules() {
    keep_the_rules(SWITCHOVERS, SWITCHOVER_WORLDS);
}

#[test]
fn one_world() {
    let Ok(seed) = std::env::var("WEIR_SIM_SEED") else { return };
    let seed = seed.parse().expect("WEIR_SIM_SEED is a number");
    if let Err(failure) = run(seed, number("WEIR_SIM_STEPS", steps_of(seed)), Trial::Plain, false) {
        panic!("{}", story(&failure));
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in 0..3 {
        let one = run(seed, 2000, Trial::Plain, false).map(|tally| format!("{tally:?}"));
        let two = run(seed, 2000, Trial::Plain, true).map(|tally| format!("{tally:?}"));
        assert_eq!(one.map_err(|failure| failure.step), two.map_err(|failure| failure.step));
    }
}

#[test]
fn every_rule_that_is_broken_is_noticed() {
    let threads = thread::available_parallelism().map_or(2, usize::from).min(Breach::ALL.len());
    // One of them alone: WEIR_SIM_BREACH=SwitchoverTakesNoLock
    let wanted = std::env::var("WEIR_SIM_BREACH").ok();
    let is_wanted = |breach: &Breach| wanted.as_ref().is_none_or(|wanted| *wanted == format!("{breach:?}"));
    let all: Vec<Breach> = Breach::ALL.into_iter().filter(is_wanted).collect();
    let share =
        |offset: usize| all.iter().skip(offset).step_by(threads).for_each(|breach| break_rule(*breach));
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|offset| scope.spawn(move || share(offset))).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("a rule can be broken unnoticed"));
    });
}

/// Looks for a world in which the broken rule shows, and which is fine if the rule is kept.
fn break_rule(breach: Breach) {
    let seeds = breach.seeds().take(WORLDS_PER_BREACH);
    let mut broken = seeds.filter_map(|seed| run(seed, STEPS_PER_BREACH, Trial::Broken(breach), false).err());
    let is_fine = |failure: &Failure| run(failure.seed, failure.step, Trial::Provoked(breach), false).is_ok();
    let Some(failure) = broken.find(is_fine) else {
        panic!("{breach:?} was not noticed in {WORLDS_PER_BREACH} worlds");
    };
    println!("{breach:?}: world {}, step {}: {}", failure.seed, failure.step, failure.what);
}
