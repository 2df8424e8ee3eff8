//! End-to-end tests: what a user of Weir sees, against real servers.
//!
//! `cargo build -p weir && cargo test -p weir-tests [NAME PART] [-- --list | --exact | --test-threads N]`
//!
//! One Galera cluster serves all cases; it is started when the first case asks for it. Cases that stop or kill nodes
//! run alone, after all others. `WEIR_BIN` names another weir binary than the one built beside this program,
//! `WEIR_TEST_KEEP=1` keeps the servers' data, and `WEIR_TEST_ADDRESS=127.0.0.61` puts the nodes elsewhere than on
//! 127.0.0.31 and following, for a second run at the same time. MySQL's servers have the same addresses in 127.1.0.0/16.

mod aborted;
mod accounts;
mod admin;
mod auto_failover;
mod cli;
mod client_addresses;
mod commands;
mod commit_outcome;
mod completion;
mod consistency_variables;
mod deadlocks;
mod diagnostics;
mod discovery;
mod disk;
mod drain;
mod drivers;
mod entry_points;
mod eviction;
mod failover_basic;
mod fake_server;
mod fidelity;
mod followed_accounts;
mod galera;
mod group_failures;
mod group_switchover;
mod guide;
mod hostile;
mod http;
mod init;
mod isolation;
mod listeners;
mod login;
mod logs;
mod min_gtid;
mod moving;
mod mysql;
mod names;
mod persistent_connections;
mod pins;
mod plans;
mod policies;
mod pool;
mod prepared;
mod property;
mod proxies;
mod proxy_header;
mod query_rules;
mod reload;
mod replay;
mod replication;
mod replication_recovery;
mod replication_switchover;
mod results;
mod scheduler;
mod server_tls;
mod servers;
mod session_state;
mod several;
mod several_weirs;
mod silent;
mod split_brain;
mod splitting;
mod startup;
mod statistics;
mod stats;
mod streaming;
mod switchover;
mod takeover;
mod terminal;
mod tracking;
mod transaction_settings;
mod two_clusters;
mod vanish;
mod wire;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use weir_tests::{Case, Env, clean_up_when_interrupted, run};

/// Every module's cases. A new module adds its line here.
fn cases() -> Vec<Case> {
    [
        aborted::trials(),
        accounts::trials(),
        admin::trials(),
        auto_failover::trials(),
        cli::trials(),
        client_addresses::trials(),
        commands::trials(),
        commit_outcome::trials(),
        completion::trials(),
        consistency_variables::trials(),
        deadlocks::trials(),
        diagnostics::trials(),
        discovery::trials(),
        disk::trials(),
        drain::trials(),
        drivers::trials(),
        entry_points::trials(),
        eviction::trials(),
        failover_basic::trials(),
        fake_server::trials(),
        fidelity::trials(),
        followed_accounts::trials(),
        galera::trials(),
        group_failures::trials(),
        group_switchover::trials(),
        guide::trials(),
        hostile::trials(),
        http::trials(),
        init::trials(),
        isolation::trials(),
        listeners::trials(),
        login::trials(),
        logs::trials(),
        min_gtid::trials(),
        moving::trials(),
        mysql::trials(),
        names::trials(),
        persistent_connections::trials(),
        pins::trials(),
        plans::trials(),
        policies::trials(),
        pool::trials(),
        prepared::trials(),
        property::trials(),
        proxies::trials(),
        proxy_header::trials(),
        query_rules::trials(),
        reload::trials(),
        replay::trials(),
        replication::trials(),
        replication_recovery::trials(),
        replication_switchover::trials(),
        results::trials(),
        scheduler::trials(),
        server_tls::trials(),
        servers::trials(),
        several::trials(),
        several_weirs::trials(),
        silent::trials(),
        session_state::trials(),
        split_brain::trials(),
        splitting::trials(),
        startup::trials(),
        statistics::trials(),
        stats::trials(),
        streaming::trials(),
        switchover::trials(),
        takeover::trials(),
        terminal::trials(),
        tracking::trials(),
        transaction_settings::trials(),
        two_clusters::trials(),
        vanish::trials(),
        wire::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn main() -> ExitCode {
    let env = Arc::new(Env::default());
    clean_up_when_interrupted(&env);
    let conclusion = run(cases(), &env);
    if conclusion.has_failed() {
        env.save_logs(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2e-logs"));
    }
    drop(env);
    conclusion.exit_code()
}
