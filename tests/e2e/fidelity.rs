//! A part of the matrix of `make fidelity`: ways to change a session x what can be changed.

use weir_fidelity::{IoDriver, Options, Outcome, Report, run, server_cnf};
use weir_testkit::{Family, weir_binary};
use weir_tests::{Case, CaseResult, Env, ensure};

/// Of each kind of way and of each kind of state some, so that it takes seconds.
const CELLS: [&str; 19] = [
    "plain/user-*",
    "plain/*transaction*",
    "call*/time_zone",
    "call*/schema",
    "compound*/schema",
    "execute-immediate/schema",
    "function*/temporary-table",
    "multi*/user-variable",
    "multi*/temporary-table",
    "prepare*/time_zone",
    "skipped*/transaction*",
    "executable*/time_zone",
    "committed/time_zone",
    "rolled-back/time_zone",
    "reset/found-rows",
    "plain/wsrep_causal_reads",
    "call*/session_track_schema",
    // MySQL has these.
    "plain/immediate_server_version",
    "ended/external_table_secondary_storage_engine",
];

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    vec![
        Case::serial("fidelity::nobody_sees_another_sessions_state_on_mariadb", mariadb),
        Case::serial("fidelity::nobody_sees_another_sessions_state_on_mysql", mysql),
    ]
}

fn mariadb(env: &Env) -> CaseResult {
    played(env, Family::Mariadb, IoDriver::Epoll)
}

fn mysql(env: &Env) -> CaseResult {
    played(env, Family::Mysql, IoDriver::IoUring)
}

fn played(env: &Env, family: Family, io: IoDriver) -> CaseResult {
    let server = env.own_servers_with(family, 1, false, server_cnf(family))?;
    let only: Result<Vec<_>, _> = CELLS.iter().map(|cell| cell.parse()).collect();
    let report = run(
        &server,
        &Options {
            only: only?,
            stages: 4,
            binary: weir_binary()?,
            dir: env.dir()?.to_owned(),
            address: *env.free_address()?.ip(),
            io,
            reset_after_hidden_code: false,
            progress: |_| {},
            list: None,
            stop: Default::default(),
        },
    )?;
    ensure!(has_played(&report), "next to nothing was played:\n{}", report.summary());
    ensure!(report.is_good(), "{}\n{}", report.wrong(), report.summary());
    Ok(())
}

/// That cells apply at all shows that the server did what they are about.
fn has_played(report: &Report) -> bool {
    report.cells.iter().filter(|cell| cell.outcome != Outcome::Na).count() > 40
}
