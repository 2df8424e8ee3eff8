//! Orders planned switchovers, one after the other.

use std::time::Duration;

use weir_lab::goals::GoalChecks;
use weir_lab::log_watch::VIEW;
use weir_lab::record::{Pause, Recording};
use weir_lab::report::percentile;
use weir_lab::{Error, Moment};

use crate::peer::PeerKind;
use crate::scenarios::Seen;
use crate::stage::{Stage, progress};
use weir_lab::servers::{RunningWeir, Servers};

/// Between two switchovers.
const GAP: Duration = Duration::from_millis(500);
/// Statements that were held are answered a moment after the order has come back.
const AFTERMATH_MS: u64 = 150;
/// The longest pause that 99 of 100 switchovers may make.
const PAUSE_P99_MS: f64 = 100.0;
/// The longest until another server can be the writer.
const TARGET_TIMEOUT_S: u64 = 30;
/// Transactions in progress are waited for so long, else the switchover is undone.
const GRACE_MS: &str = "5000";

/// On Galera or on a group.
pub(super) fn run(stage: &Stage<'_>) -> Result<Seen, Error> {
    let (peer, mut run) = stage.begin(PeerKind::Weir)?;
    let weir = peer.weir().ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
    let hostgroup = RunningWeir::hostgroup();
    let count = stage.scale.switchovers;
    let (mut spans, mut undone) = (Vec::new(), Vec::new());
    for number in 1..=count {
        let mut said = String::new();
        let could = stage.stop.wait("a target for the next switchover", TARGET_TIMEOUT_S, || {
            let told = weir.tell(&["switchover", &hostgroup, "--dry-run"])?;
            said = told.text;
            Ok(told.succeeded)
        });
        if let Err(Error::Timeout { what, .. }) = could {
            return Err(Error::Answer { what, answer: said });
        }
        could?;
        let from = run.mark(format!("switchover {number}"));
        let told = weir.tell(&["switchover", &hostgroup, "--grace-ms", GRACE_MS])?;
        spans.push((from, Moment::now().plus_ms(AFTERMATH_MS)));
        if !told.succeeded {
            undone.push(told.text.replace('\n', " "));
        }
        if number % 10 == 0 {
            progress(&format!("  {number} of {count}"));
        }
        stage.stop.sleep(GAP)?;
    }
    stage.stop.sleep(stage.scale.settle)?;
    let finished = stage.finish(run)?;
    let mut figures = finished.figures();
    // Each member of the cluster stays where it is: there is no new view.
    (figures.group_ms, figures.own_share_ms) = (None, None);

    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.must(
        format!("{count} switchovers done"),
        (spans.len() - undone.len()).to_string(),
        undone.is_empty(),
    );
    goals.undisturbed(&figures);
    let pauses = sorted_pauses(&finished.recording, &spans);
    match stage.servers()? {
        Servers::Galera(_) | Servers::Replication(_) => {
            let p99 = percentile(&pauses, 99.0).unwrap_or(f64::INFINITY);
            goals.within("write pause, 99th percentile", p99, PAUSE_P99_MS);
        }
        // A group's own time, which is most of it, is not Weir's.
        Servers::Group(_) => {
            let shares = shares_after_view(&finished.recording, &spans);
            let p99 = percentile(&shares, 99.0).unwrap_or(f64::INFINITY);
            goals.within("write pause after the new primary, 99th percentile", p99, PAUSE_P99_MS);
        }
    }
    let mut notes = vec![format!(
        "Pauses of {} switchovers: median {:.0} ms, 90th percentile {:.0} ms, longest {:.0} ms; times of the same length \
         without a switchover: median {:.0} ms, longest {:.0} ms.",
        pauses.len(),
        percentile(&pauses, 50.0).unwrap_or_default(),
        percentile(&pauses, 90.0).unwrap_or_default(),
        pauses.last().copied().unwrap_or_default(),
        percentile(&calm_pauses(&finished.recording, &spans), 50.0).unwrap_or_default(),
        calm_pauses(&finished.recording, &spans).last().copied().unwrap_or_default(),
    )];
    notes.extend(undone.into_iter().take(5).map(|text| format!("Undone: {text}")));
    notes.extend(finished.audit.named);
    Ok(Seen { variant: String::new(), recording: finished.recording, figures, checks: goals.checks, notes })
}

/// The longest pause of each switchover, ascending.
pub(super) fn sorted_pauses(recording: &Recording, spans: &[(Moment, Moment)]) -> Vec<f64> {
    let longest = |&(from, to): &(Moment, Moment)| Pause::longest(&recording.pauses(true, from, to));
    let mut pauses: Vec<f64> = spans.iter().filter_map(longest).map(|pause| pause.ms()).collect();
    pauses.sort_by(f64::total_cmp);
    pauses
}

/// From the new primary's word to the first answer after it, for each switchover; ascending.
fn shares_after_view(recording: &Recording, spans: &[(Moment, Moment)]) -> Vec<f64> {
    let share = |&(from, to): &(Moment, Moment)| {
        let mut marks = recording.marks.iter();
        let view = marks.find(|mark| mark.at >= from && mark.at <= to && mark.text.starts_with(VIEW))?;
        let pauses = recording.pauses(true, view.at, view.at);
        Some(pauses.iter().map(|pause| pause.to.ms_since(view.at)).fold(0.0, f64::max))
    };
    let mut shares: Vec<f64> = spans.iter().filter_map(share).collect();
    shares.sort_by(f64::total_cmp);
    shares
}

/// Times as long as the first switchover before all of them: what the machine does by itself. Ascending.
pub(super) fn calm_pauses(recording: &Recording, spans: &[(Moment, Moment)]) -> Vec<f64> {
    let Some(&(first, end)) = spans.first() else { return Vec::new() };
    let length_ms = (end.ms_since(first) as u64).max(1);
    let begun = recording.begun.plus_ms(500);
    let calm = (1..=20)
        .map(|n| (first.minus_ms((n + 1) * length_ms), first.minus_ms(n * length_ms)))
        .filter(|(from, _)| *from > begun);
    let mut pauses: Vec<f64> = calm.map(|(from, to)| recording.longest_within(true, from, to)).collect();
    pauses.sort_by(f64::total_cmp);
    pauses
}
