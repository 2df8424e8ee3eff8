//! Kills writers, which come back, many times: with assisted eviction, and without.

use std::time::Duration;

use weir_lab::figures::{Figures, own_share_ms};
use weir_lab::goals::GoalChecks;
use weir_lab::log_watch::{LOST_QUORUM, VIEW};
use weir_lab::record::{Pause, Source};
use weir_lab::report::{Spread, percentile};
use weir_lab::servers::RunningWeir;
use weir_lab::{Error, Moment};
use weir_testkit::{Account, hostgroup};

use crate::load::Keys;
use crate::peer::{Peer, start_weir};
use crate::scenarios::rejoin::STALL_MS;
use crate::scenarios::writer_lost::writer;
use crate::scenarios::{Seen, story};
use crate::stage::{Finished, Stage, progress};

/// The longest that clients may have to wait after a kill.
const RECOVERY_TIMEOUT_S: u64 = 40;
/// The longest until Weir reads from the node again that has come back.
const READER_TIMEOUT_S: u64 = 60;
/// The value of `assist` that switches it off.
const OFF: &str = "off";
/// What Weir says when it can do it, and the longest until then.
const ASSIST_ON: &str = "assisted eviction is on";
const ASSIST_TIMEOUT_S: u64 = 30;
/// A recording holds so many cycles at most.
const BATCH: u32 = 20;
/// So many cycles show what it is without assisted eviction.
const CYCLES_WITHOUT_MAX: u32 = 10;
/// For so long after all are served again pauses still count; then the node is started. As long after it is back the next goes.
const CALM: Duration = Duration::from_secs(1);
/// Of so many kills and of so many returns, the slowest, it is told what servers and Weir said meanwhile.
const SLOWEST: usize = 3;
/// With assisted eviction: the median of the downtimes, and the longest, a five-nines day.
const MEDIAN_MS: f64 = 150.0;
const LONGEST_MS: f64 = 864.0;
/// Weir's own share, median.
const OWN_MS: f64 = 100.0;

/// One cycle, as it was marked.
#[derive(Debug)]
struct Cycle {
    victim: usize,
    killed: Moment,
    /// The victim is started, and everybody has been served for a while.
    started: Moment,
    /// Weir reads from the victim again.
    returned: Moment,
}

/// What all batches have shown.
#[derive(Debug, Default)]
struct Cycles {
    /// Write downtime of each, ascending at the end.
    stalls_ms: Vec<f64>,
    /// The slowest, slowest first, in words.
    slowest: Vec<(f64, String)>,
    /// The longest write stall while each node came back, and the slowest of them, as above.
    return_stalls_ms: Vec<f64>,
    slowest_returns: Vec<(f64, String)>,
    /// From each kill to the survivors' new view.
    views_ms: Vec<f64>,
    /// From there to the first acknowledged write.
    own_ms: Vec<f64>,
    figures: Figures,
    quorum_lost: usize,
    /// Nodes whose evict list was not empty after a cycle.
    left_in_lists: usize,
    named: Vec<String>,
    last: Option<Finished>,
}

pub(super) fn run(stage: &Stage<'_>) -> Result<Vec<Seen>, Error> {
    let mut seen = Vec::new();
    for assist in ["dead", OFF] {
        let mut cycles = Cycles::default();
        let wanted = match assist {
            OFF => stage.scale.cycles.min(CYCLES_WITHOUT_MAX),
            _ => stage.scale.cycles,
        };
        let mut left = wanted;
        while left > 0 {
            let count = left.min(BATCH);
            cycles.batch(stage, assist, count)?;
            left -= count;
            progress(&format!("  assist {assist}: {} of {wanted}: {}", wanted - left, cycles.so_far()));
        }
        seen.push(cycles.seen(stage, assist)?);
    }
    Ok(seen)
}

impl Cycles {
    fn batch(&mut self, stage: &Stage<'_>, assist: &str, count: u32) -> Result<(), Error> {
        let servers = stage.healthy()?;
        let weir = start_weir(stage, |config| {
            let Account { user, password } = Account::APP;
            let row = [
                ("writer_hostgroup", hostgroup::WRITER.into()),
                ("assist", assist.into()),
                ("assist_username", user.into()),
                ("assist_password", password.into()),
            ];
            // An account without eviction would be refused.
            let wanted = if assist == OFF { 2 } else { row.len() };
            config.push("weir_topology", row.get(..wanted).unwrap_or_default());
        })?;
        if assist != OFF {
            stage.stop.wait("assisted eviction to be on", ASSIST_TIMEOUT_S, || {
                Ok(weir.times_logged(ASSIST_ON) > 0)
            })?;
        }
        let peer = Peer::Weir(Box::new(weir));
        let mut run = stage.run(&[&peer], true)?;
        let mut kills: Vec<Cycle> = Vec::new();
        for _ in 0..count {
            let victim = writer(stage, &peer)?;
            let event = run.mark(format!("SIGKILL of {}", victim.name));
            servers.kill(victim.index)?;
            if !run.wait_answers(stage, event, RECOVERY_TIMEOUT_S)? {
                self.named.push(format!("After the kill of {} some client was not served.", victim.name));
            }
            stage.stop.sleep(CALM)?;
            let started = run.mark(format!("start of {}", victim.name));
            let donors = peer.weir().map(RunningWeir::donors).transpose()?.unwrap_or_default();
            stage.cluster()?.start_node_from(victim.index, &donors)?;
            servers.number(victim.index)?;
            stage.stop.wait("the node reads again", READER_TIMEOUT_S, || {
                let weir = peer.weir().ok_or_else(|| Error::Impossible("no Weir".to_owned()))?;
                Ok(weir.readers()?.contains(&victim.address))
            })?;
            kills.push(Cycle { victim: victim.index, killed: event, started, returned: Moment::now() });
            // The next kill's pause is none of this return's.
            stage.stop.sleep(CALM)?;
            for server in servers.all() {
                let list = stage.cluster()?.node(server.index).status("wsrep_evs_evict_list")?;
                self.left_in_lists += usize::from(!list.trim().is_empty());
            }
        }
        let finished = stage.finish(run)?;
        self.add(finished, &kills);
        Ok(())
    }

    fn add(&mut self, finished: Finished, kills: &[Cycle]) {
        let recording = &finished.recording;
        for &Cycle { victim, killed: event, started: until, returned } in kills {
            let pauses = recording.pauses(true, event, until);
            let longest = Pause::longest(&pauses);
            let stall_ms = longest.map_or(f64::INFINITY, |pause| pause.ms());
            self.stalls_ms.push(stall_ms);
            self.slowest.push((stall_ms, story(recording, event, longest)));
            let stalls = recording.pauses(true, until, returned);
            let longest = Pause::longest(&stalls);
            let stall_ms = longest.map_or(0.0, |pause| pause.ms());
            self.return_stalls_ms.push(stall_ms);
            self.slowest_returns.push((stall_ms, story(recording, until, longest)));
            let mut views = recording.marks.iter().filter(|mark| {
                matches!(mark.source, Source::Server(n) if usize::from(n) != victim)
                    && mark.at >= event
                    && mark.text.starts_with(VIEW)
            });
            if let Some(view) = views.next() {
                self.views_ms.push(view.at.ms_since(event));
                self.own_ms.push(own_share_ms(view.at, &pauses));
            }
            // A node that starts is alone for a moment; what counts are the others.
            let lost = recording.marks.iter().filter(|mark| {
                matches!(mark.source, Source::Server(n) if usize::from(n) != victim)
                    && mark.at >= event
                    && mark.at <= until
                    && mark.text.starts_with(LOST_QUORUM)
            });
            self.quorum_lost += usize::from(lost.count() > 0);
        }
        for told in [&mut self.slowest, &mut self.slowest_returns] {
            told.sort_by(|a, b| b.0.total_cmp(&a.0));
            told.truncate(SLOWEST);
        }
        self.figures.add(&finished.figures());
        self.named.extend(finished.audit.named.iter().cloned());
        self.last = Some(finished);
    }

    fn so_far(&self) -> String {
        let Figures { outside, inside, deadlocks, unknown, lost, doubled, .. } = self.figures;
        let Spread { median, max, .. } =
            Spread::of(self.stalls_ms.iter().copied()).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
        let slowest = self.slowest.first().map_or("", |(_, story)| story);
        let returns = self.return_stalls();
        format!(
            "write downtime {median:.0} ms (median), {max:.0} ms at most, {outside} errors, {inside} in \
             transactions, {deadlocks} deadlocks, {unknown} unknown, {lost} lost, {doubled} twice, {} \
             without quorum, {} in lists; {returns}; {slowest}",
            self.quorum_lost, self.left_in_lists
        )
    }

    /// How long nobody wrote while the nodes came back, in words.
    fn return_stalls(&self) -> String {
        let mut stalls = self.return_stalls_ms.clone();
        stalls.sort_by(f64::total_cmp);
        let [median, p99, longest] = [50.0, 99.0, 100.0].map(|p| percentile(&stalls, p).unwrap_or_default());
        let above = stalls.iter().filter(|&&ms| ms > STALL_MS).count();
        format!(
            "while the nodes came back the longest write stalls were {median:.0} ms (median), {p99:.0} ms (99th percentile), \
             {longest:.0} ms (longest), {above} above {STALL_MS} ms"
        )
    }

    fn seen(mut self, stage: &Stage<'_>, assist: &str) -> Result<Seen, Error> {
        let finished = self.last.take().ok_or_else(|| Error::Impossible("no cycles".to_owned()))?;
        self.stalls_ms.sort_by(f64::total_cmp);
        let Spread { median, max, min } = Spread::of(self.stalls_ms.iter().copied())
            .ok_or_else(|| Error::Impossible("no cycles".to_owned()))?;
        let mut goals = GoalChecks::new(stage.args.smoke);
        goals.none("errors outside transactions", self.figures.outside);
        if stage.scale.load.keys == Keys::Own {
            goals.none("errors in transactions", self.figures.inside);
        }
        if stage.args.replay {
            goals.none("unknown", self.figures.unknown);
        }
        goals.none("acknowledged rows lost", self.figures.lost);
        goals.none("rows written twice", self.figures.doubled);
        goals.none("refused rows that are there", self.figures.refused_and_there);
        goals.none("cycles in which survivors lost their quorum", self.quorum_lost);
        goals.none("evict lists with an entry after a cycle", self.left_in_lists);
        if assist != OFF {
            goals.within("write downtime, median", median, MEDIAN_MS);
            goals.within("write downtime, longest", max, LONGEST_MS);
        }
        let own = Spread::of(self.own_ms.iter().copied());
        let own = own.unwrap_or(Spread { median: f64::INFINITY, min: 0.0, max: f64::INFINITY });
        goals.within("from the survivors' new view to the first write, median", own.median, OWN_MS);
        let p99 = percentile(&self.stalls_ms, 99.0).unwrap_or_default();
        let view = Spread::of(self.views_ms.iter().copied()).map_or(0.0, |views| views.median);
        let note = format!(
            "{} cycles: write downtime {min:.0} ms at least, median {median:.0} ms, 99th percentile {p99:.0} ms, longest \
             {max:.0} ms; the survivors' new view came after {view:.0} ms (median), the first write {:.0} ms later (median; longest \
             {:.0} ms). The time-line shows the last {BATCH} at most.",
            self.stalls_ms.len(),
            own.median,
            own.max
        );
        let returns = format!("Of {} returns: {}.", self.return_stalls_ms.len(), self.return_stalls());
        let mut figures = self.figures;
        (figures.group_ms, figures.own_share_ms) = (None, None);
        figures.write_pause_ms = max;
        let mut seen =
            Seen::new(finished, figures, goals).variant(&format!("assist {assist}")).note(note).note(returns);
        seen.notes.extend(self.slowest.into_iter().chain(self.slowest_returns).map(|(_, story)| story));
        seen.notes.extend(self.named.into_iter().take(5));
        Ok(seen)
    }
}
