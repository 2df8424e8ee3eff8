//! Runs whole worlds around the real decision, in virtual time: servers that die, hang, are cut off, join and are set up
//! wrongly, a network that loses and delays, and one to three Weirs with clocks of their own. What a Weir decides is
//! decided by [`weir_topology::roles`] itself; the rest of the world is modelled. After every step the rules of the
//! crate are looked at from outside, knowing the truth.
//!
//! Kinds: Galera, in those with odd numbers with an epoch (where 8 divides the next number, with the rows of a hundred
//! Weirs that are gone); the same with several writers, or one that takes its
//! role back (from 1000000 on); groups (from 2000000 on); replication (from 3000000 on), and the same with
//! `auto_failover` (from 4000000 on), and with switchovers that are ordered of several Weirs at once (from 5000000 on);
//! Galera again, with parts of the cluster that are made Primary while the others go on (from 6000000 on), and are lost then (from 6500000 on); replication
//! with names of servers that lead elsewhere from a moment on (from 7000000 on).
//! There what Weirs do with the servers is real, too: each procedure runs on a thread of its own, question by question.
//!
//! Rules are broken on purpose ([`breach`]), at the moments in which they matter (`follow/auto_failover/strikes.rs`); and one
//! thing goes wrong at each question of a move ([`fault`]).
//!
//! A seed is a world. `WEIR_SIM_SEED=n cargo test -p weir-topology --test sim one_world -- --nocapture` runs one and
//! prints the end of its story, `WEIR_SIM_BREACH=rule` breaks that rule in it; `WEIR_SIM_WORLDS=n` and `WEIR_SIM_FIRST=n` run
//! others than the usual ones.

mod breach;
mod chaos;
mod check;
mod cluster;
mod epoch_tables;
mod fault;
mod follow;
mod group;
mod node;
mod queue;
mod random;
mod split_brain;
mod stage;
mod strikes;
mod watch;
mod weir;
mod world;

use std::thread;

use breach::{Breach, Trial};
use fault::{Blow, Fault, Moved};
use stage::{
    CHOOSING, COMPONENTS, FAILOVERS, Failure, GROUPS, LOST_PARTS, NAMES, REPLICAS, SWITCHOVERS, Tally, run,
};

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
/// - 2009220: a group's new primary was written to before it had applied what it had received, where the user had taken
///   the former one out.
/// - 4007361: replicas that replicated from the next writer already counted as votes against the lost one for a Weir that
///   could not reach that writer, and made another.
/// - 3003105, 3009851: a writer that had been replaced while it was away, and was back, not read_only, was written to as soon
///   as its successor did not answer for a moment.
/// - 6000021: nodes that were to take no work did not count for their component, so that one that was made Primary apart was
///   all that was left. 6000348: with the next view the numbers of both said nothing of that any more. 6000522: nor after a
///   silence. 6000153: until it was taken out a Weir read the tables of the agreement there. 6002027: it became the cluster
///   when the right one was lost. 6006247: a Weir that was just started took the row in its tables for a proof that the
///   writer was there. 6008648: a writer that joined again had been forgotten, and neither of two components counted. 6000943: a node that had joined again
///   stayed out where the others were not in sight.
/// - 6506262: a node that was in its next view a moment before the writer was gone did not count for the component of that any
///   more; nobody could choose then, and when the third one joined it, the other one wrote. 6503073: a node that had been out of
///   sight before the split, and was with those that went on apart, made them the cluster when it was in sight again. 6505841: a
///   node that outweighed the others was taken for one that went on apart, while those were at odds with each other. 6507309:
///   where nodes tell no addresses, one of another component filled a view of the same number, so that the writer had no room
///   there. 6507349: in a component that took the place of a lost one a Weir wrote by the lease of that. 6501071: a Weir
///   that had just started stayed with the component that answered first. 6510319: one that was started when only a node apart
///   was in sight wrote by the lease of that in the cluster; and was to know at once that the node was started anew.
///   6515269: where nodes tell no addresses, one that was cut off and did not know it yet was not the one that was missing in the
///   next view.
/// - 183: a node that had answered once after a long silence was trusted a second later, though it had not answered again.
/// - 7678: a Weir that had been stopped took a component for a second one, beside what it remembered of the others.
/// - 8653: as long as one of them did not answer, no node of a cluster that counts its views anew was believed.
///
/// And those in which the model asked for too much:
///
/// - 2000567, 2004029: a member that had just lost one of its group, and did not know it yet, was to know that it had no
///   quorum.
/// - 3000108: replicas said of nobody that they replicate from it, also when a person had decided so.
/// - 3000359, 3002521: a writer that had come back, not read_only, after another had taken its place, was to be written to.
/// - 5003223: a writer that was replaced came back, and counted its successor, which was read_only since its own restart, and
///   the replicas of that for itself. 5000562, 4000556: the worlds said so, too.
/// - 5001997: a statement of a switchover that a server read late was taken for nobody's.
/// - 5001946: a Weir that could not finish a switchover had the locks nearly all the time.
/// - 5005062: a failover waited for a replica that applied slowly, and had no time left when that was done.
/// - 1005931: an epoch was opened since the cluster went on without the former writer, which then came back.
/// - 1009053: a switchover went on when another Weir had moved the role meanwhile.
/// - 7635: a writer hung when it had been claimed, before that Weir, or another one, had heard that it was.
/// - 5008054: a Weir did not count a former writer for its successor, as it had seen it in no such role.
const KEPT: [u64; 53] = [
    24, 183, 229, 230, 4773, 7635, 7678, 8653, 16_731, 1_000_005, 1_000_183, 1_005_931, 1_009_053, 2_000_002,
    2_000_028, 2_000_567, 2_001_899, 2_004_029, 2_009_220, 3_000_108, 3_000_359, 3_002_521, 3_003_105,
    3_009_851, 4_000_556, 4_000_785, 4_002_024, 4_002_451, 4_007_361, 5_000_562, 5_001_946, 5_001_997,
    5_003_223, 5_003_476, 5_004_451, 5_005_062, 5_008_054, 6_000_021, 6_000_153, 6_000_348, 6_000_522,
    6_000_943, 6_002_027, 6_006_247, 6_008_648, 6_501_071, 6_503_073, 6_505_841, 6_506_262, 6_507_309,
    6_507_349, 6_510_319, 6_515_269,
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
const COMPONENT_WORLDS: u64 = 40;
const LOST_PART_WORLDS: u64 = 40;
const NAME_WORLDS: u64 = 40;
/// Worlds in which a broken rule must show, and their steps: a hold in which probes hurry takes many, and a lost source is
/// waited for.
const WORLDS_PER_BREACH: usize = 100;
const STEPS_PER_BREACH: u64 = 16_000;

/// Steps of a world in which one thing goes wrong, and how far such questions are apart in a usual run.
const STEPS_PER_FAULT: u64 = 100_000;
const QUESTIONS_APART: u32 = 6;

fn steps_with(breach: Breach) -> u64 {
    if breach == Breach::FailoverTakesNoLock { STEPS_FAILING_OVER } else { STEPS_PER_BREACH }
}

fn steps_of(seed: u64) -> u64 {
    match seed {
        FAILOVERS..COMPONENTS => STEPS_FAILING_OVER,
        ..GROUPS | COMPONENTS..NAMES if seed % 2 == 1 => STEPS_AGREEING,
        _ => STEPS,
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// The same world again, with its story.
fn story(failure: &Failure, trial: Trial) -> String {
    let seed = failure.seed;
    let lines = match run(seed, failure.step, trial, true) {
        Err(again) => again.trace.join("\n"),
        Ok(_) => "(it does not happen again: the world does not follow from its seed)".to_owned(),
    };
    format!(
        "{lines}\n\nworld {seed}, step {}: {} ({trial:?})\nagain: WEIR_SIM_SEED={seed} cargo test -p weir-topology --test sim \
         one_world -- --nocapture",
        failure.step, failure.what
    )
}

/// Runs worlds on a few threads and adds up what was seen. All of them run, whatever is wrong in one.
fn run_all(seeds: &[u64]) -> Tally {
    let threads = thread::available_parallelism().map_or(2, usize::from).min(8);
    let share = |offset: usize| {
        let (mut sum, mut failures) = (Tally::default(), Vec::new());
        for seed in seeds.iter().skip(offset).step_by(threads) {
            match run(*seed, steps_of(*seed), Trial::Plain, false) {
                Ok(tally) => sum = sum.plus(&tally),
                Err(failure) => {
                    println!("world {seed}, step {}: {}", failure.step, failure.what);
                    failures.push(failure);
                }
            }
        }
        (sum, failures)
    };
    let (mut sum, mut failures) = (Tally::default(), Vec::new());
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|offset| scope.spawn(move || share(offset))).collect();
        for handle in handles {
            let (tally, mut failed) = handle.join().expect("a world panicked");
            sum = sum.plus(&tally);
            failures.append(&mut failed);
        }
    });
    let Some(shortest) = failures.iter().min_by_key(|failure| failure.step) else { return sum };
    let list: Vec<String> =
        failures.iter().map(|failure| format!("{}: {}", failure.seed, failure.what)).collect();
    panic!(
        "{}\n{} of {} worlds break a rule; above is the one that takes the fewest steps:\n{}",
        story(shortest, Trial::Plain),
        list.len(),
        seeds.len(),
        list.join("\n")
    );
}

#[test]
fn a_million_steps_keep_the_rules() {
    let first = number("WEIR_SIM_FIRST", 0);
    let worlds = number("WEIR_SIM_WORLDS", WORLDS);
    let seeds: Vec<u64> = KEPT.into_iter().chain(first..first + worlds).collect();
    let tally = run_all(&seeds);
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
    let tally = run_all(&seeds);
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
fn split_brains_keep_the_rules() {
    keep_the_rules(COMPONENTS, COMPONENT_WORLDS);
}

#[test]
fn lost_parts_keep_the_rules() {
    keep_the_rules(LOST_PARTS, LOST_PART_WORLDS);
}

#[test]
fn names_that_move_keep_the_rules() {
    keep_the_rules(NAMES, NAME_WORLDS);
}

#[test]
fn one_world() {
    let Ok(seed) = std::env::var("WEIR_SIM_SEED") else { return };
    let seed = seed.parse().expect("WEIR_SIM_SEED is a number");
    // With WEIR_SIM_BREACH that rule is broken in it, with WEIR_SIM_KEPT as well it is only provoked.
    let is_kept = std::env::var("WEIR_SIM_KEPT").is_ok();
    let trial = match Breach::wanted().as_slice() {
        [breach] if is_kept => Trial::Provoked(*breach),
        [breach] => Trial::Broken(*breach),
        _ => Trial::Plain,
    };
    if let Err(failure) = run(seed, number("WEIR_SIM_STEPS", steps_of(seed)), trial, false) {
        panic!("{}", story(&failure, trial));
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
    let all = Breach::wanted();
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
    let mut broken =
        seeds.filter_map(|seed| run(seed, steps_with(breach), Trial::Broken(breach), false).err());
    let is_fine = |failure: &Failure| run(failure.seed, failure.step, Trial::Provoked(breach), false).is_ok();
    let Some(failure) = broken.find(is_fine) else {
        panic!("{breach:?} was not noticed in {WORLDS_PER_BREACH} worlds");
    };
    println!("{breach:?}: world {}, step {}: {}", failure.seed, failure.step, failure.what);
}

/// One thing goes wrong before each question that Weirs put to servers while the writer moves, one after the other: the
/// procedure itself, what undoes or finishes it, and what is taken back.
#[test]
fn what_goes_wrong_at_any_question_of_a_move_is_recovered_from() {
    let every = if std::env::var("WEIR_SIM_WORLDS").is_ok() { 1 } else { QUESTIONS_APART };
    let seeds = |moved| match moved {
        Moved::Lost => [FAILOVERS, FAILOVERS + 2],
        // Without `auto_failover`, and with it.
        Moved::InOrder | Moved::InOrderTwice => [SWITCHOVERS, SWITCHOVERS + 2],
    };
    let all = || {
        let of = move |moved| seeds(moved).into_iter().map(move |seed| (moved, seed));
        Moved::ALL
            .into_iter()
            .flat_map(of)
            .flat_map(|(moved, seed)| Blow::ALL.map(|blow| (moved, seed, blow)))
    };
    let threads = thread::available_parallelism().map_or(2, usize::from).min(8);
    let share = |offset: usize| {
        for (at, (moved, seed, blow)) in all().enumerate().skip(offset).step_by(threads) {
            // Each blow at questions of its own, so that most are met by some.
            let first = u32::try_from(at).unwrap_or(0) % every + 1;
            let befores = (first..).step_by(usize::try_from(every).unwrap_or(1));
            let has_struck = |before: &u32| strikes(seed, Fault { moved, before: *before, blow });
            let count = befores.take_while(has_struck).count();
            println!("{moved:?}, {blow:?}, world {seed}: {count} questions");
            assert!(count * usize::try_from(every).unwrap_or(1) > 15, "the writer was not moved");
        }
    };
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|offset| scope.spawn(move || share(offset))).collect();
        handles.into_iter().for_each(|handle| handle.join().expect("a rule is broken"));
    });
}

/// Whether a fault has struck: there were so many questions.
fn strikes(seed: u64, fault: Fault) -> bool {
    match run(seed, STEPS_PER_FAULT, Trial::Fault(fault), false) {
        Ok(tally) if tally.faults == 0 => false,
        Ok(tally) => {
            assert!(tally.quiet_checks >= fault::LOOKS, "{fault:?}, world {seed}: it never gets quiet");
            true
        }
        Err(failure) => panic!("{fault:?}: {}", story(&failure, Trial::Fault(fault))),
    }
}
