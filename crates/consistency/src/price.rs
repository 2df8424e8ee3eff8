//! Measures what levels cost: the same mixed load by each way in turn, and ratios to `eventual` within a round.

use serde::Serialize;
use serde_json::json;
use weir_lab::Error;
use weir_lab::goals::GoalChecks;
use weir_lab::report::Spread;
use weir_lab::servers::RunningWeir;

use crate::args::Part;
use crate::load::LoadSeen;
use crate::place::{Level, Place, Setting, Way};
use crate::report::Finding;
use crate::split::one_load;
use crate::stage::{Stage, progress};
use crate::weirs::{self, Variant};

/// What `session` may cost of all statements, and `global` of reads and of writes.
const SESSION_MIN: f64 = 0.98;
const GLOBAL_READS_MIN: f64 = 0.96;
const GLOBAL_WRITES_MIN: f64 = 0.98;

/// One way, a figure for each round.
#[derive(Debug, Serialize)]
struct Visits {
    way: Way,
    rounds: Vec<LoadSeen>,
}

/// A figure of each round, divided by that of another way in the same round.
fn ratio(visits: &Visits, others: &Visits, figure: fn(&LoadSeen) -> f64) -> Option<f64> {
    let pairs = visits.rounds.iter().zip(&others.rounds);
    Spread::of_ratios(pairs.map(|(seen, other)| (figure(seen), figure(other)))).map(|spread| spread.median)
}

fn median(visits: &Visits, figure: impl Fn(&LoadSeen) -> f64) -> f64 {
    Spread::of(visits.rounds.iter().map(figure)).map_or(0.0, |spread| spread.median)
}

/// All ways, in rounds.
pub(crate) fn measure(stage: &Stage<'_>) -> Result<Finding, Error> {
    stage.servers.repair()?;
    let mut ways = vec![Way::At(Level::Eventual), Way::At(Level::Session), Way::At(Level::Global)];
    ways.extend(match stage.place {
        Place::Galera => vec![Way::Servers(Setting::SyncWait1), Way::Servers(Setting::SyncWait3)],
        Place::Group => vec![Way::Servers(Setting::Before)],
        Place::MariadbReplication | Place::MysqlReplication => Vec::new(),
    });
    let mut weirs: Vec<(Variant, RunningWeir)> = Vec::new();
    for variant in ways.iter().map(|way| Variant::of(*way)) {
        if weirs.iter().all(|(other, _)| *other != variant) {
            weirs.push((variant, weirs::start(stage, variant)?));
        }
    }
    let mut all: Vec<Visits> = ways.iter().map(|way| Visits { way: *way, rounds: Vec::new() }).collect();
    for round in 1..=stage.scale.rounds {
        for visits in &mut all {
            let way = visits.way;
            progress(&format!("{}: round {round}, {way}", stage.place));
            let weir = weirs.iter().find(|(variant, _)| *variant == Variant::of(way));
            let (_, weir) = weir.ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
            visits.rounds.push(one_load(stage, weir, way, stage.scale.price_sessions, &stage.stop)?);
        }
    }
    Ok(finding(stage, &all))
}

fn finding(stage: &Stage<'_>, all: &[Visits]) -> Finding {
    let mut goals = GoalChecks::new(stage.args.smoke);
    let headings = [
        "reads",
        "statements/s",
        "ratio",
        "reads/s",
        "ratio",
        "writes/s",
        "ratio",
        "read p99 ms",
        "write p99 ms",
        "errors",
    ];
    let mut table = vec![headings.map(str::to_owned).to_vec()];
    if let Some(base) = all.first() {
        table.extend(all.iter().map(|visits| cells(visits, base)));
        for visits in all {
            judge(visits, base, &mut goals);
        }
    }
    let errors = all.iter().filter_map(|visits| {
        let error = visits.rounds.iter().find_map(|seen| seen.first_error.as_ref())?;
        Some(format!("{}: {error}.", visits.way))
    });
    Finding {
        part: Part::Price,
        place: stage.place,
        remark: format!(
            "{} sessions, {} rounds of {} s; medians, and medians of the ratios to eventual in the same round.",
            stage.scale.price_sessions,
            stage.scale.rounds,
            stage.scale.time.as_secs()
        ),
        left_columns: 1,
        table,
        figures: json!(all),
        checks: goals.checks,
        notes: errors.collect(),
    }
}

fn judge(visits: &Visits, base: &Visits, goals: &mut GoalChecks) {
    let mut at_least = |what: &str, figure: fn(&LoadSeen) -> f64, min: f64| {
        if let Some(ratio) = ratio(visits, base, figure) {
            let goal = format!("{what} at {} >= {:.0} % of eventual", visits.way, 100.0 * min);
            goals.must(goal, format!("{:.1} %", 100.0 * ratio), ratio >= min);
        }
    };
    match visits.way {
        Way::At(Level::Session) => at_least("statements/s", |seen| seen.statements_per_s, SESSION_MIN),
        Way::At(Level::Global) => {
            at_least("reads/s", |seen| seen.reads_per_s, GLOBAL_READS_MIN);
            at_least("writes/s", |seen| seen.writes_per_s, GLOBAL_WRITES_MIN);
        }
        _ => {}
    }
}

fn cells(visits: &Visits, base: &Visits) -> Vec<String> {
    let mut cells = vec![visits.way.to_string()];
    let figures: [fn(&LoadSeen) -> f64; 3] =
        [|seen| seen.statements_per_s, |seen| seen.reads_per_s, |seen| seen.writes_per_s];
    for figure in figures {
        cells.push(format!("{:.0}", median(visits, figure)));
        cells.push(ratio(visits, base, figure).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")));
    }
    cells.push(format!("{:.2}", median(visits, |seen| seen.read_ms[1])));
    cells.push(format!("{:.2}", median(visits, |seen| seen.write_ms[1])));
    cells.push(visits.rounds.iter().map(|seen| seen.errors).sum::<u64>().to_string());
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_lab::goals::GoalOutcome;

    fn visits(way: Way, figures: &[f64]) -> Visits {
        let seen = |figure: &f64| LoadSeen {
            statements_per_s: *figure,
            reads_per_s: figure / 2.0,
            writes_per_s: figure / 2.0,
            read_ms: [1.0, 2.0],
            write_ms: [1.0, 2.0],
            by_server: [].into(),
            errors: 1,
            first_error: None,
        };
        Visits { way, rounds: figures.iter().map(seen).collect() }
    }

    #[test]
    fn the_price_is_the_median_of_the_ratios_within_a_round() {
        let base = visits(Way::At(Level::Eventual), &[100.0, 50.0, 200.0]);
        let session = visits(Way::At(Level::Session), &[99.0, 49.5, 100.0]);
        assert_eq!(cells(&session, &base)[..3], ["session", "99", "0.990"]);
        let mut goals = GoalChecks::new(false);
        judge(&session, &base, &mut goals);
        judge(&visits(Way::At(Level::Global), &[90.0, 45.0, 180.0]), &base, &mut goals);
        let outcomes: Vec<GoalOutcome> = goals.checks.iter().map(|check| check.outcome).collect();
        assert_eq!(outcomes, [GoalOutcome::Met, GoalOutcome::Missed, GoalOutcome::Missed]);
    }
}
