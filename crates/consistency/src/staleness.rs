//! Counts stale reads of many sessions, at one level after the other, while the servers are troubled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use weir_lab::goals::GoalChecks;
use weir_lab::servers::RunningWeir;
use weir_lab::{Error, Moment};

use crate::args::Part;
use crate::disturbance::Disturbance;
use crate::history::{Acknowledged, Anomalies};
use crate::place::{Level, Place};
use crate::report::Finding;
use crate::session::{Counters, Kind, Seen, Session, Shared, make_sql};
use crate::stage::{Stage, progress};
use crate::weirs::{self, Variant};
use crate::writers::{Written, write};

/// Writers beside the sessions.
const WRITERS: usize = 3;
/// Before, between and after disturbances.
const QUIET: Duration = Duration::from_secs(1);
/// How often it is looked whether a run is over.
const LOOK: Duration = Duration::from_millis(20);

/// A level with so many sessions.
#[derive(Debug, Serialize)]
struct Run {
    level: Level,
    sessions: u32,
    seen: Seen,
    writes: u64,
    failed_writes: u64,
    took_s: f64,
    /// What was done to the servers, and what came of it if that is worth a note.
    disturbances: Vec<(Disturbance, Option<String>)>,
}

/// All levels and numbers of sessions.
pub(crate) fn measure(stage: &Stage<'_>) -> Result<Finding, Error> {
    let weirs: Vec<RunningWeir> =
        (0..stage.args.weirs).map(|_| weirs::start(stage, Variant::Plain)).collect::<Result<_, Error>>()?;
    let mut runs = Vec::new();
    for &sessions in &stage.scale.sessions {
        for &level in &stage.scale.levels {
            stage.stop.check()?;
            progress(&format!("{}: {sessions} sessions at {level}", stage.place));
            let run = run(stage, &weirs, level, sessions)?;
            let (checks, Anomalies { own, monotonic, global }) = run.seen.total();
            progress(&format!(
                "{checks} checks in {:.0} s: own {own}, monotonic {monotonic}, global {global}, errors {}",
                run.took_s, run.seen.errors
            ));
            runs.push(run);
        }
    }
    Ok(finding(stage, &runs))
}

fn run(stage: &Stage<'_>, weirs: &[RunningWeir], level: Level, sessions: u32) -> Result<Run, Error> {
    stage.servers.repair()?;
    weirs.iter().try_for_each(|weir| weirs::wait_ready(weir, stage))?;
    let first = weirs.first().ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
    let writer = first.writer()?.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))?;
    let has_beside = level == Level::Strict;
    let counters = Counters { sessions: sessions as usize, writers: WRITERS, has_beside };
    stage.make(writer, &make_sql(counters.len()))?;
    let shared = Shared {
        level,
        counters,
        acknowledged: Acknowledged::new(counters.len()),
        checks: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let begun = Moment::now();
    let account = level.account();
    let at = |number: usize| weirs.get(number % weirs.len()).unwrap_or(first);
    thread::scope(|scope| {
        let shared = &shared;
        let sessions_running: Vec<_> = (0..counters.sessions)
            .map(|number| {
                let session = Session::new(shared, at(number).address(), account, number);
                scope.spawn(move || session.work())
            })
            .collect();
        let mut writers_running: Vec<_> = (0..WRITERS)
            .map(|number| {
                let address = at(number).address();
                let counter = counters.sessions + number;
                scope.spawn(move || write(shared, account, counter, WRITERS + 1, || Ok(address)))
            })
            .collect();
        if has_beside {
            let address = move || beside(stage, first);
            writers_running
                .push(scope.spawn(move || write(shared, account, counters.beside(), WRITERS + 1, address)));
        }
        let disturbed = disturb_until_done(stage, first, shared);
        shared.is_over.store(true, Ordering::Relaxed);
        let mut seen = Seen::default();
        for session in sessions_running {
            seen.add(session.join().map_err(|_| Error::panicked("a session"))?);
        }
        let mut written = Written::default();
        for writer in writers_running {
            let Written { writes, errors } = writer.join().map_err(|_| Error::panicked("a writer"))?;
            written = Written { writes: written.writes + writes, errors: written.errors + errors };
        }
        let took_s = Moment::now().ms_since(begun) / 1000.0;
        let Written { writes, errors } = written;
        Ok(Run { level, sessions, seen, writes, failed_writes: errors, took_s, disturbances: disturbed? })
    })
}

/// A server that takes writes past Weir: on Galera another node than the writer.
fn beside(stage: &Stage<'_>, weir: &RunningWeir) -> Result<std::net::SocketAddrV4, Error> {
    let reader = match stage.place {
        Place::Galera => weir.readers()?.first().copied(),
        _ => None,
    };
    let server = reader.map_or_else(|| weir.writer(), |reader| Ok(Some(reader)))?;
    server.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))
}

/// Troubles the servers, each trouble once at least, until enough was checked.
fn disturb_until_done(
    stage: &Stage<'_>,
    weir: &RunningWeir,
    shared: &Shared,
) -> Result<Vec<(Disturbance, Option<String>)>, Error> {
    let end = Instant::now() + stage.scale.time_max;
    let is_done = || shared.checks.load(Ordering::Relaxed) >= stage.scale.checks || Instant::now() > end;
    let all = stage.args.disturbances(stage.place);
    let mut happened = Vec::new();
    for disturbance in all.iter().cycle() {
        if happened.len() >= all.len() && is_done() {
            break;
        }
        stage.stop.sleep(QUIET)?;
        happened.push((*disturbance, disturbance.happen(stage, weir)?));
    }
    if !happened.is_empty() {
        stage.stop.sleep(QUIET)?;
    }
    while !is_done() {
        stage.stop.sleep(LOOK)?;
    }
    Ok(happened)
}

fn finding(stage: &Stage<'_>, runs: &[Run]) -> Finding {
    let mut goals = GoalChecks::new(stage.args.smoke);
    let mut notes = Vec::new();
    for run in runs {
        judge(stage, run, &mut goals, &mut notes);
    }
    let mut table =
        vec![["level", "sessions", "checks", "own", "monotonic", "global"].map(str::to_owned).to_vec()];
    if let Some(headings) = table.first_mut() {
        headings.extend(Kind::ALL.map(|kind| kind.heading().to_owned()));
        headings.extend(["errors", "checks/s", "writes/s", "disturbances"].map(str::to_owned));
    }
    table.extend(runs.iter().map(cells));
    Finding {
        part: Part::Staleness,
        place: stage.place,
        remark: format!(
            "Sessions over {} Weir(s). own, monotonic, global: reads with less than their session had written, or had \
             read before, or than was acknowledged to anybody. The columns after them: stale reads by the level's own \
             measure (at eventual by that of session) of all reads of a kind.",
            stage.args.weirs
        ),
        left_columns: 1,
        table,
        figures: json!(runs),
        checks: goals.checks,
        notes,
    }
}

fn judge(stage: &Stage<'_>, run: &Run, goals: &mut GoalChecks, notes: &mut Vec<String>) {
    let (checks, anomalies) = run.seen.total();
    let name = format!("{}, {} sessions", run.level, run.sessions);
    let none = |goals: &mut GoalChecks, what: &str, count: u64| {
        goals.none(&format!("{what} at {name}"), usize::try_from(count).unwrap_or(usize::MAX));
    };
    if run.level.is_monotonic() {
        none(goals, "reads without their session's own writes", anomalies.own);
        none(goals, "reads that go back in time", anomalies.monotonic);
    }
    if run.level.is_global() {
        none(goals, "reads without what was acknowledged", anomalies.global);
    }
    if !run.level.is_monotonic() {
        // Alone a session goes back in time seldom; what others write is behind in any case.
        let stale = anomalies.own + anomalies.monotonic + anomalies.global;
        match stage.args.smoke {
            true if stale == 0 => {
                notes.push(format!(
                    "{name}: no stale read in {checks}: this run does not show that one is found"
                ));
            }
            true => {}
            false => goals.must(format!("some stale reads at {name}"), stale.to_string(), stale > 0),
        }
    }
    if run.disturbances.is_empty() {
        none(goals, "errors", run.seen.errors);
    }
    if !stage.args.smoke {
        let wanted = stage.scale.checks;
        goals.must(format!("{wanted} checks at {name}"), checks.to_string(), checks >= wanted);
    }
    notes.extend(run.seen.named.iter().map(|named| format!("{name}: {named}.")));
    notes.extend(run.seen.texts.iter().map(|(text, times)| format!("{name}: {times} x {text}.")));
    for (disturbance, said) in &run.disturbances {
        notes.extend(said.as_ref().map(|said| format!("{name}: {disturbance}: {said}.")));
    }
}

fn cells(run: &Run) -> Vec<String> {
    let (checks, anomalies) = run.seen.total();
    let per_second = |count: u64| format!("{:.0}", count as f64 / run.took_s.max(0.001));
    let mut cells = vec![run.level.to_string(), run.sessions.to_string(), checks.to_string()];
    cells.extend([anomalies.own, anomalies.monotonic, anomalies.global].map(|count| count.to_string()));
    cells.extend(Kind::ALL.map(|kind| {
        let Some((checks, anomalies)) = run.seen.kinds.get(&kind) else { return "-".to_owned() };
        format!("{} of {checks}", anomalies.measured_at(run.level))
    }));
    cells.push((run.seen.errors + run.failed_writes).to_string());
    cells.extend([per_second(checks), per_second(run.writes), run.disturbances.len().to_string()]);
    cells
}
