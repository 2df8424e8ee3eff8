//! Plays planned changes of several Weirs in front of servers with asynchronous replication, in virtual time: switchovers
//! that any of them is ordered to make, writers that a user of one takes out, Weirs that are killed, ended and started,
//! reads and writes that take their time. What a Weir decides is decided by [`weir_topology::roles`] itself; what
//! surrounds it (who writes what into the tables, the steps of a switchover) is modelled.
//!
//! Rules, looked at after every step:
//! 1. nobody's transaction is on the old writer when a switchover makes it read_only: it would end with an error;
//! 2. a writer that one Weir's user takes out is out at every other Weir, too, and comes back at every one;
//! 3. at the end nobody holds, nothing is announced, and everybody names the same writer.
//!
//! Each rule is broken on purpose, and that must be noticed. `WEIR_SIM_WORLDS=n cargo test -p weir-topology --test
//! agreement` plays more worlds.

mod weir;
mod world;

use world::{Breach, World};

/// How many worlds, each of some switchovers.
const WORLDS: u64 = 60;

fn worlds() -> u64 {
    std::env::var("WEIR_SIM_WORLDS").ok().and_then(|number| number.parse().ok()).unwrap_or(WORLDS)
}

#[test]
fn no_transaction_meets_a_planned_change_whoever_makes_it() {
    let (mut moved, mut taken_out) = (0, 0);
    for seed in 0..worlds() {
        let mut world = World::of_seed(seed, None);
        if let Err(what) = world.play() {
            panic!("world {seed}: {what}\n{}", world.story());
        }
        moved += world.moved;
        taken_out += world.taken_out;
    }
    println!("{moved} switchovers made, {taken_out} times a writer was taken out");
    assert!(moved >= worlds() && taken_out >= worlds() / 2, "{moved} switchovers, {taken_out} writers out");
}

#[test]
fn what_is_left_out_is_noticed() {
    for breach in [
        Breach::NobodyIsWaitedFor,
        Breach::NotAnnounced,
        Breach::ClearWhileWriting,
        Breach::NotHeldForOthers,
        Breach::DrainsOfWritersUntold,
        Breach::AskedForEver,
        Breach::AnnouncedBefore,
    ] {
        let play = |seed| World::of_seed(seed, Some(breach)).play().err().map(|what| (seed, what));
        let (seed, what) = (0..2_000).find_map(play).unwrap_or_else(|| panic!("{breach:?} goes unnoticed"));
        println!("{breach:?}: world {seed}: {what}");
    }
}
