//! Measures where the reads of a mixed load go, and how fast that is.

use serde::Serialize;
use serde_json::json;
use weir_lab::goals::GoalChecks;
use weir_lab::servers::RunningWeir;
use weir_lab::{Error, Stop};

use crate::args::Part;
use crate::load::{self, LoadSeen};
use crate::place::{Level, Way};
use crate::report::Finding;
use crate::session::make_sql;
use crate::stage::{Stage, progress};
use crate::weirs::{self, Variant};

/// What is compared.
const WAYS: [Way; 4] = [Way::At(Level::Session), Way::Fastest, Way::At(Level::Eventual), Way::WriterOnly];
/// So many reads of a hundred shall be on readers, at `session` with `reads = spread`.
const READERS_PERCENT_MIN: f64 = 95.0;

/// A way with so many sessions.
#[derive(Debug, Serialize)]
struct Visit {
    way: Way,
    sessions: u32,
    readers_percent: f64,
    seen: LoadSeen,
}

/// All ways and numbers of sessions.
pub(crate) fn measure(stage: &Stage<'_>) -> Result<Finding, Error> {
    stage.servers.repair()?;
    let plain = weirs::start(stage, Variant::Plain)?;
    let fastest = weirs::start(stage, Variant::Fastest)?;
    let mut visits = Vec::new();
    for &sessions in &stage.scale.load_sessions {
        for way in WAYS {
            progress(&format!("{}: {sessions} sessions, {way}", stage.place));
            let weir = if way == Way::Fastest { &fastest } else { &plain };
            visits.push(visit(stage, weir, way, sessions)?);
        }
    }
    Ok(finding(stage, &visits))
}

fn visit(stage: &Stage<'_>, weir: &RunningWeir, way: Way, sessions: u32) -> Result<Visit, Error> {
    let seen = one_load(stage, weir, way, sessions, &stage.stop)?;
    let writer = weir.writer()?.map(|writer| stage.at(writer)).transpose()?;
    let readers_percent = writer.map_or(0.0, |writer| seen.readers_percent(writer.index));
    Ok(Visit { way, sessions, readers_percent, seen })
}

/// Makes the counters anew and runs the load for the stage's time.
pub(crate) fn one_load(
    stage: &Stage<'_>,
    weir: &RunningWeir,
    way: Way,
    sessions: u32,
    stop: &Stop,
) -> Result<LoadSeen, Error> {
    let writer = weir.writer()?.ok_or_else(|| Error::Impossible("there is no writer".to_owned()))?;
    stage.make(writer, &make_sql(sessions as usize))?;
    load::run(weir.address(), way.account(), sessions, stage.scale.time, stop)
}

fn finding(stage: &Stage<'_>, visits: &[Visit]) -> Finding {
    let mut goals = GoalChecks::new(stage.args.smoke);
    let of = |way: Way, sessions: u32| {
        visits.iter().find(|visit| visit.way == way && visit.sessions == sessions).map(|visit| &visit.seen)
    };
    for visit in visits.iter().filter(|visit| visit.way == Way::At(Level::Session)) {
        let sessions = visit.sessions;
        goals.must(
            format!("reads on readers >= {READERS_PERCENT_MIN:.0} % ({sessions} sessions at session)"),
            format!("{:.1} %", visit.readers_percent),
            visit.readers_percent >= READERS_PERCENT_MIN,
        );
        if let Some(writer_only) = of(Way::WriterOnly, sessions) {
            let (split, alone) = (visit.seen.statements_per_s, writer_only.statements_per_s);
            goals.must(
                format!("statements/s >= all on the writer ({sessions} sessions at session)"),
                format!("{split:.0} against {alone:.0}"),
                split >= alone,
            );
        }
    }
    let headings = [
        "reads",
        "sessions",
        "on readers %",
        "statements/s",
        "reads/s",
        "read p50 ms",
        "p99 ms",
        "writes/s",
        "write p50 ms",
        "p99 ms",
        "errors",
    ];
    let mut table = vec![headings.map(str::to_owned).to_vec()];
    table.extend(visits.iter().map(cells));
    let errors = visits.iter().filter_map(|visit| Some((visit, visit.seen.first_error.as_ref()?)));
    let notes = errors.map(|(visit, error)| format!("{}, {} sessions: {error}.", visit.way, visit.sessions));
    Finding {
        part: Part::Split,
        place: stage.place,
        remark: "Which server has answered, each read says itself.".to_owned(),
        left_columns: 1,
        table,
        figures: json!(visits),
        checks: goals.checks,
        notes: notes.collect(),
    }
}

fn cells(visit: &Visit) -> Vec<String> {
    let LoadSeen { statements_per_s, reads_per_s, writes_per_s, read_ms, write_ms, errors, .. } = &visit.seen;
    let whole = |figure: f64| format!("{figure:.0}");
    let ms = |figure: f64| format!("{figure:.2}");
    vec![
        visit.way.to_string(),
        visit.sessions.to_string(),
        format!("{:.1}", visit.readers_percent),
        whole(*statements_per_s),
        whole(*reads_per_s),
        ms(read_ms[0]),
        ms(read_ms[1]),
        whole(*writes_per_s),
        ms(write_ms[0]),
        ms(write_ms[1]),
        errors.to_string(),
    ]
}
