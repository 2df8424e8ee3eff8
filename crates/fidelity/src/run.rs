//! Plays all cells that are asked for, several stages at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::Error;
use weir_testkit::Mysql;

use crate::comparison::{Comparison, Finding, Outcome, Scene};
use crate::report::{Cell, Report};
use crate::server_setup::PreparedServer;
use crate::session_view::{Looker, Looks, Value};
use crate::stage::{Plan, Play, Side, Stage, who};
use crate::state::{State, catalogue as states};
use crate::variables::discover;
use crate::way::{Script, Way, catalogue as ways};
use crate::{Options, Pattern, limits};

/// Cells with differences are played so often again, to tell what happens each time from what happened once.
const AGAIN: usize = 2;
/// A play in which A itself got no connection in time says nothing, unless that is so each time.
const LATE: usize = 8;
const LATE_PAUSE: Duration = Duration::from_millis(100);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Plays at the first of these servers, which must not have been played at before.
///
/// # Errors
/// If a server or Weir does not do what every cell needs. A Weir that does something wrong is no error.
pub fn run(mysql: &Mysql, options: &Options) -> Result<Report, Error> {
    let begun = Instant::now();
    let family = mysql.family();
    let prepared = PreparedServer::lay(mysql, options.stages.max(1))?;
    let (server, first) = (mysql.source(), &prepared.names[0]);
    let variables = discover(server.addr(), family, &who(first, Looker::A), first)?;
    let looks = Looks::new(&variables);
    let mut all = states(family);
    all.extend(variables.settings.iter().cloned().map(State::variable));
    let ways = ways(family);
    let is_wanted = |way: &Way, state: &State| {
        options.only.is_empty()
            || options.only.iter().any(|only: &Pattern| only.matches(way.name, &state.name))
    };
    all.retain(|state| ways.iter().any(|way| is_wanted(way, state)));
    if all.is_empty() {
        return Err(Error::Failed("no cell has such a name".to_owned()));
    }
    let plan = Plan {
        server,
        family,
        version: &prepared.version,
        binary: &options.binary,
        dir: &options.dir,
        address: options.address,
        io: options.io,
        reset_after_hidden_code: options.reset_after_hidden_code,
        control: &prepared.control,
    };
    let progress = Progress {
        next: AtomicUsize::new(0),
        cells: Mutex::new(Vec::new()),
        spoke: Mutex::new(begun),
        begun,
    };
    let mut own = Vec::new();
    let play = |names: &crate::names::Names| -> Result<_, Error> {
        let mut stage = Stage::new(plan, names.clone(), &looks)?;
        loop {
            let place = progress.next.fetch_add(1, Ordering::Relaxed);
            let Some(state) = all.get(place) else { break };
            let wanted: Vec<Way> = ways.iter().copied().filter(|way| is_wanted(way, state)).collect();
            play_state(&mut stage, (state, place), &wanted, &progress, options)?;
            progress.progress(all.len(), options)?;
        }
        Ok(stage.masks)
    };
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = prepared.names.iter().map(|names| scope.spawn(|| play(names))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut first = None;
    for result in results {
        match result.unwrap_or_else(|_| Err(Error::panicked("a stage"))) {
            Ok(masks) => {
                own = masks.into_iter().map(|(label, value)| format!("{label}: {value:?}")).collect()
            }
            Err(error) => {
                // Where the server has gone, only one of them was the one that it could not bear.
                (options.progress)(&error.to_string());
                first = first.or(Some(error));
            }
        }
    }
    if let Some(error) = first {
        return Err(error);
    }
    let cells = progress.cells.into_inner().unwrap_or_else(PoisonError::into_inner);
    let order: Vec<&str> = ways.iter().map(|way| way.name).collect();
    let mut report = Report::new(&prepared.version, options, cells, &order);
    report.own = own;
    report.unsettable = variables.unsettable;
    report.seconds = begun.elapsed().as_secs_f64();
    options.found(&report.cells)?;
    Ok(report)
}

/// What stages share.
struct Progress {
    next: AtomicUsize,
    cells: Mutex<Vec<Cell>>,
    spoke: Mutex<Instant>,
    begun: Instant,
}

impl Progress {
    fn progress(&self, states: usize, options: &Options) -> Result<(), Error> {
        let mut spoke = self.spoke.lock().unwrap_or_else(PoisonError::into_inner);
        if spoke.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        *spoke = Instant::now();
        let cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = cells.iter().filter(|cell| cell.outcome == Outcome::Wrong).count();
        let states_done = self.next.load(Ordering::Relaxed).min(states);
        let seconds = self.begun.elapsed().as_secs();
        (options.progress)(&format!(
            "{seconds} s: {states_done} of {states} states, {} cells, {wrong} wrong",
            cells.len()
        ));
        options.found(&cells)
    }
}

fn play_state(
    stage: &mut Stage<'_>,
    (state, place): (&State, usize),
    ways: &[Way],
    progress: &Progress,
    options: &Options,
) -> Result<(), Error> {
    // What the same sessions see at the server if A does nothing.
    let mut fresh = Vec::new();
    for play in Play::ALL {
        fresh.push((play, stage.play(Side::Direct, play, state, &[])?));
    }
    for (number, way) in ways.iter().enumerate() {
        options.stop.check()?;
        let plays =
            if state.setting.is_some() { Play::some(place + number).to_vec() } else { Play::ALL.to_vec() };
        let cell = play_cell(stage, state, way, &fresh, &plays)
            .map_err(|error| during(error, &format!("{}/{}", way.name, state.name)))?;
        progress.cells.lock().unwrap_or_else(PoisonError::into_inner).push(cell);
    }
    Ok(())
}

/// Says which cell it was.
fn during(error: Error, cell: &str) -> Error {
    match error {
        Error::Interrupted => error,
        error => Error::Answer { what: cell.to_owned(), answer: error.to_string() },
    }
}

fn play_cell(
    stage: &mut Stage<'_>,
    state: &State,
    way: &Way,
    fresh: &[(Play, Vec<Scene>)],
    plays: &[Play],
) -> Result<Cell, Error> {
    let mut limit = None;
    let cell = |outcome, limit, findings, once| Cell {
        way: way.name,
        state: state.name.clone(),
        outcome,
        limit,
        findings,
        once,
    };
    let Some(script) = way.script(state) else { return Ok(cell(Outcome::Na, None, vec![], vec![])) };
    if !stage.set_up(&script)? {
        return Ok(cell(Outcome::Na, None, vec![], vec![]));
    }
    let mut once: Vec<Finding> = Vec::new();
    for attempt in 0..=AGAIN {
        let mut findings = compare(stage, state, &script, fresh, plays)?;
        limit = limits::explain((way.name, state), &stage.plan, &mut findings).or(limit);
        let outcome = findings.iter().map(|finding| finding.outcome).max().unwrap_or(Outcome::Same);
        if outcome >= Outcome::Limit {
            stage.recover()?;
        }
        match outcome {
            // Once more, on a connection that nobody has used. That one is late once is the machine's doing.
            Outcome::Wrong if attempt == 0 => {
                once = findings;
                once.retain(|finding| finding.outcome != Outcome::Wrong || !finding.is_late);
            }
            Outcome::Wrong => return Ok(cell(outcome, limit, findings, vec![])),
            _ if once.is_empty() || attempt == AGAIN => return Ok(cell(outcome, limit, findings, once)),
            _ => {}
        }
    }
    Ok(cell(Outcome::Same, None, vec![], once))
}

fn compare(
    stage: &mut Stage<'_>,
    state: &State,
    script: &Script,
    fresh: &[(Play, Vec<Scene>)],
    plays: &[Play],
) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    for play in plays {
        let direct = stage.play(Side::Direct, *play, state, &script.steps)?;
        let mut weir = stage.play(Side::Weir, *play, state, &script.steps)?;
        // On a machine that is busy elsewhere A's own connection may be late.
        for _ in 0..LATE {
            if !is_late(&weir) {
                break;
            }
            thread::sleep(LATE_PAUSE);
            weir = stage.play(Side::Weir, *play, state, &script.steps)?;
        }
        let idle = fresh.iter().find(|(other, _)| other == play);
        let fresh = idle.map(|(_, scenes)| scenes.as_slice()).unwrap_or_default();
        let comparison = Comparison { state, fresh, masks: &stage.masks };
        findings.extend(comparison.compare(&direct, &weir));
    }
    Ok(findings)
}

fn is_late(scenes: &[Scene]) -> bool {
    let waits = |scene: &Scene| scene.seen.iter().any(|(_, value)| *value == Value::Waits);
    scenes.iter().any(|scene| scene.who == Looker::A && waits(scene))
}
