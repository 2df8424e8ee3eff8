//! Seeded simulations of a worker: clients and servers as models, a network that delivers bytes in pieces, late
//! or never. Whatever happens, each client must get the replies to its own statements in order, each statement
//! must run in the state that its session has set, no write may run twice, and at the end nothing may be left
//! over.
//!
//! A failure prints its seed: `SIM_SEED=<seed> cargo test -p weir-proxy --test sim <name>` repeats it.
//! `SIM_RUNS=<n>` makes each test try so many seeds, `SIM_FROM=<seed>` others, and `SIM_TRACE=1` tells what happens.

#![allow(clippy::unwrap_used)]

/// Tells what happens, with `SIM_TRACE=1`.
macro_rules! trace {
    ($($arg:tt)*) => {
        if crate::traces() {
            eprintln!($($arg)*);
        }
    };
}

mod client;
mod cluster;
mod random;
mod reply;
mod script;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod token;
mod world;

use script::Rules;
use world::World;

/// Seeds that each test tries.
const RUNS: u64 = 60;

pub(crate) fn traces() -> bool {
    static TRACES: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    *TRACES.get_or_init(|| std::env::var_os("SIM_TRACE").is_some())
}

const CALM: Rules = Rules {
    loses_connections: false,
    kills: false,
    may_starve: false,
    is_replicated: false,
    marks_commits: false,
    is_careful: false,
    users_decide: false,
    retry_buffer_bytes: 0,
    leaves_transactions: false,
    aborts: false,
    turns_away: false,
    reloads: false,
    drains: false,
    long_writes: 0,
    vanish_percent: 0,
    sleeps: false,
    workers: 1,
    max_connections: 4,
    clients: 8,
    statements: 40,
    kilobytes: 20,
};

fn run(name: &str, rules: &Rules) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let from = number("SIM_FROM").unwrap_or(0);
            from..from + number("SIM_RUNS").unwrap_or(RUNS)
        }
    };
    for seed in seeds {
        let told = format!("SIM_SEED={seed} cargo test -p weir-proxy --test sim {name}");
        let result = std::panic::catch_unwind(|| World::new(seed, rules.clone()).run());
        match result {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => panic!("{told}\n{fault}"),
            Err(panic) => {
                eprintln!("{told}");
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[test]
fn sessions_share_connections() {
    run("sessions_share_connections", &CALM);
}

#[test]
fn fewer_connections_than_sessions() {
    run(
        "fewer_connections_than_sessions",
        &Rules { max_connections: 1, sleeps: true, may_starve: true, ..CALM },
    );
}

#[test]
fn clients_vanish() {
    run("clients_vanish", &Rules { vanish_percent: 60, sleeps: true, ..CALM });
}

#[test]
fn clients_kill_each_other() {
    let rules = Rules { kills: true, sleeps: true, vanish_percent: 20, may_starve: true, ..CALM };
    run("clients_kill_each_other", &rules);
}

#[test]
fn servers_break() {
    let rules = Rules { loses_connections: true, sleeps: true, may_starve: true, vanish_percent: 20, ..CALM };
    run("servers_break", &rules);
}

#[test]
fn readers_follow_a_writer() {
    run("readers_follow_a_writer", &Rules { is_replicated: true, sleeps: true, vanish_percent: 10, ..CALM });
}

#[test]
fn readers_follow_a_writer_and_break() {
    let rules = Rules {
        is_replicated: true,
        loses_connections: true,
        may_starve: true,
        kills: true,
        sleeps: true,
        vanish_percent: 30,
        ..CALM
    };
    run("readers_follow_a_writer_and_break", &rules);
}

#[test]
fn results_are_held_back_and_servers_break() {
    let rules = Rules {
        is_replicated: true,
        retry_buffer_bytes: 6_000,
        loses_connections: true,
        may_starve: true,
        kills: true,
        aborts: true,
        turns_away: true,
        reloads: true,
        sleeps: true,
        vanish_percent: 30,
        workers: 2,
        ..CALM
    };
    run("results_are_held_back_and_servers_break", &rules);
}

/// Nobody is told that nobody knows of his COMMIT, unless the writer can't be reached for too long.
#[test]
fn commits_are_known_when_servers_break() {
    let rules = Rules {
        is_replicated: true,
        marks_commits: true,
        loses_connections: true,
        may_starve: true,
        aborts: true,
        sleeps: true,
        vanish_percent: 30,
        ..CALM
    };
    run("commits_are_known_when_servers_break", &rules);
}

#[test]
fn commits_are_known_where_users_want_it() {
    let rules = Rules {
        is_replicated: true,
        marks_commits: true,
        users_decide: true,
        loses_connections: true,
        may_starve: true,
        aborts: true,
        reloads: true,
        sleeps: true,
        vanish_percent: 30,
        workers: 2,
        ..CALM
    };
    run("commits_are_known_where_users_want_it", &rules);
}

#[test]
fn commits_are_known_or_not_when_everything_breaks() {
    let rules = Rules {
        is_replicated: true,
        marks_commits: true,
        loses_connections: true,
        may_starve: true,
        kills: true,
        aborts: true,
        turns_away: true,
        reloads: true,
        sleeps: true,
        vanish_percent: 30,
        workers: 2,
        ..CALM
    };
    run("commits_are_known_or_not_when_everything_breaks", &rules);
}

#[test]
fn reads_leave_transactions() {
    let rules = Rules {
        is_replicated: true,
        leaves_transactions: true,
        sleeps: true,
        may_starve: true,
        vanish_percent: 20,
        ..CALM
    };
    run("reads_leave_transactions", &rules);
}

#[test]
fn reads_leave_transactions_and_everything_breaks() {
    let rules = Rules {
        is_replicated: true,
        leaves_transactions: true,
        loses_connections: true,
        kills: true,
        aborts: true,
        turns_away: true,
        may_starve: true,
        sleeps: true,
        vanish_percent: 30,
        workers: 2,
        max_connections: 3,
        ..CALM
    };
    run("reads_leave_transactions_and_everything_breaks", &rules);
}

#[test]
fn two_workers_share_max_connections() {
    let rules =
        Rules { workers: 2, max_connections: 3, may_starve: true, vanish_percent: 20, sleeps: true, ..CALM };
    run("two_workers_share_max_connections", &rules);
}

#[test]
fn two_workers_take_turns_with_one_connection() {
    let rules = Rules { workers: 2, max_connections: 1, may_starve: true, sleeps: true, ..CALM };
    run("two_workers_take_turns_with_one_connection", &rules);
}

#[test]
fn two_workers_and_broken_servers() {
    let rules = Rules {
        workers: 2,
        max_connections: 2,
        loses_connections: true,
        kills: true,
        may_starve: true,
        sleeps: true,
        vanish_percent: 30,
        ..CALM
    };
    run("two_workers_and_broken_servers", &rules);
}

#[test]
fn transactions_are_aborted_and_statements_turned_away() {
    let rules = Rules { aborts: true, turns_away: true, is_replicated: true, may_starve: true, ..CALM };
    run("transactions_are_aborted_and_statements_turned_away", &rules);
}

#[test]
fn transactions_are_aborted_on_two_writers() {
    let rules = Rules { aborts: true, kills: true, sleeps: true, may_starve: true, ..CALM };
    run("transactions_are_aborted_on_two_writers", &rules);
}

#[test]
fn configurations_come() {
    let rules =
        Rules { reloads: true, workers: 2, may_starve: true, sleeps: true, vanish_percent: 10, ..CALM };
    run("configurations_come", &rules);
}

#[test]
fn everybody_drains() {
    let rules = Rules { drains: true, workers: 2, may_starve: true, sleeps: true, ..CALM };
    run("everybody_drains", &rules);
}

#[test]
fn long_writes_flow_through() {
    let rules = Rules { long_writes: 8, clients: 3, statements: 25, vanish_percent: 30, ..CALM };
    run("long_writes_flow_through", &Rules { loses_connections: true, may_starve: true, ..rules });
}

#[test]
fn long_results_to_slow_clients() {
    run("long_results_to_slow_clients", &Rules { kilobytes: 900, clients: 4, vanish_percent: 10, ..CALM });
}
