//! Sessions that do anything, in any order, see through Weir what they would see straight at the server.
//!
//! random sequences of statements run on several sessions at Weir, which share few connections, and on as many
//! straight at the writer (or at a MySQL server), in a copy of the schemas. Every answer is compared. `SEED` and `SEQUENCES` choose other or
//! more sequences; a failure prints the seed and the shortest sequence found that still fails.

mod generate;
mod target;
mod twins;

use std::time::{Duration, Instant};

use weir_tests::{Case, CaseResult, Env, ensure};

use generate::{Step, random, sequence};
use target::Family;
use twins::{Mismatch, Stage};

/// The default number of sequences, and of steps in each.
const SEQUENCES: u64 = 80;
const STEPS: usize = 40;
/// The time that a failing sequence is shortened for.
const SHRINK_TIME: Duration = Duration::from_secs(30);
/// A run with the default number of sequences is cut here on a slow machine.
const DEFAULT_TIME: Duration = Duration::from_secs(60);

/// The cases of this module.
pub(crate) fn trials() -> Vec<Case> {
    // Alone: global variables and positions that other cases move would show in the sessions' settings.
    vec![
        Case::serial("property::sessions_see_what_they_would_see_straight_at_the_server", |env| {
            same_as_straight(env, Family::Galera)
        }),
        Case::serial("property::sessions_see_what_they_would_see_straight_at_mysql", |env| {
            same_as_straight(env, Family::Mysql)
        }),
    ]
}

fn same_as_straight(env: &Env, family: Family) -> CaseResult {
    let wanted = number("SEQUENCES")?;
    let first = number("SEED")?.unwrap_or(1);
    let started = Instant::now();
    let mut stage = Stage::new(env, family)?;
    let mut statistics = (0, 0);
    for seed in first..first + wanted.unwrap_or(SEQUENCES) {
        let mut steps = sequence(&mut random(seed), STEPS);
        if family == Family::Mysql {
            steps.iter_mut().for_each(Step::adapt_to_mysql);
        }
        let played = stage.play(&steps).map_err(|error| format!("SEED={seed} SEQUENCES=1: {error}"));
        let (ran, mismatch) = played?;
        statistics = (statistics.0 + steps.len(), statistics.1 + ran);
        if let Some(mismatch) = mismatch {
            let (steps, mismatch) = shrink(&mut stage, steps, mismatch)?;
            let trace = stage.trace(&steps)?;
            return Err(report(seed, &steps, &mismatch, &trace).into());
        }
        if wanted.is_none() && started.elapsed() > DEFAULT_TIME {
            break;
        }
    }
    // Steps that no connection could be had for are skipped; they must not be many.
    let (steps, ran) = statistics;
    ensure!(ran * 10 >= steps * 9, "only {ran} of {steps} steps ran");
    Ok(())
}

fn number(variable: &str) -> Result<Option<u64>, String> {
    match std::env::var(variable) {
        Ok(text) => text.parse().map(Some).map_err(|error| format!("{variable}={text}: {error}")),
        Err(_) => Ok(None),
    }
}

/// Leaves out what a mismatch does not need: halves first, single steps last.
fn shrink(
    stage: &mut Stage<'_>,
    mut steps: Vec<Step>,
    mut mismatch: Mismatch,
) -> Result<(Vec<Step>, Mismatch), Box<dyn std::error::Error>> {
    let deadline = Instant::now() + SHRINK_TIME;
    steps.truncate(mismatch.at + 1);
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < steps.len() {
            if Instant::now() > deadline {
                return Ok((steps, mismatch));
            }
            let mut fewer = steps.clone();
            fewer.drain(start..(start + size).min(steps.len()));
            stage.renew()?;
            match stage.play(&fewer)?.1 {
                Some(found) => {
                    fewer.truncate(found.at + 1);
                    (steps, mismatch) = (fewer, found);
                }
                None => start += size,
            }
        }
        size /= 2;
    }
    Ok((steps, mismatch))
}

fn report(seed: u64, steps: &[Step], mismatch: &Mismatch, trace: &str) -> String {
    let lines: Vec<String> = steps.iter().map(|step| format!("  {step}")).collect();
    format!(
        "SEED={seed} SEQUENCES=1: the last of these steps differs\n{}\nthrough Weir: {}\nstraight:     {}\nstatements that the servers got:\n{trace}",
        lines.join("\n"),
        mismatch.through,
        mismatch.straight,
    )
}
