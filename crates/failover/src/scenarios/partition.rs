//! Breaks networks: two Weirs, and not all of them see the same.

use std::time::Duration;

use weir_lab::figures::Figures;
use weir_lab::goals::GoalChecks;
use weir_lab::record::Recording;
use weir_lab::{Error, Moment};

use crate::peer::{Peer, start_weir_in_network};
use crate::run::Run;
use crate::scenarios::Seen;
use crate::scenarios::writer_lost::{OWN_SHARE_MS, writer, writes_on, yes};
use crate::stage::{Finished, Stage};
use weir_lab::servers::Server;
use weir_lab::servers::network::Member;

/// Longer than statements are held (10 s by default), so that the error is seen.
const BROKEN: Duration = Duration::from_secs(16);
/// The longest until everybody is served after the end of it.
const RECOVERY_TIMEOUT_S: u64 = 60;
/// Galera's suspect_timeout, and time for the minority to see that it is one.
const NOTICED_MS: u64 = 6_000;
/// The proxy that sees too little.
const BLIND: u8 = 1;
/// The one that sees enough.
const SEEING: u8 = 2;

/// Two Weirs in front of one cluster, each with clients of its own; the second has the load, too.
struct Two {
    blind: Peer,
    blind_run: Run,
    seeing_run: Run,
    victim: Server,
    // Last: its clients end first.
    seeing: Peer,
}

impl Two {
    fn begin(stage: &Stage<'_>) -> Result<Two, Error> {
        stage.healthy()?;
        let blind = Peer::Weir(Box::new(start_weir_in_network(stage, BLIND)?));
        let seeing = Peer::Weir(Box::new(start_weir_in_network(stage, SEEING)?));
        let victim = writer(stage, &seeing)?;
        if writer(stage, &blind)? != victim {
            return Err(Error::Answer {
                what: "two Weirs, asked for the writer".to_owned(),
                answer: "do not agree".to_owned(),
            });
        }
        let blind_run = stage.run(&[&blind, &seeing], false)?;
        let seeing_run = stage.run(&[&seeing, &blind], true)?;
        Ok(Two { blind, blind_run, seeing_run, victim, seeing })
    }

    fn mark(&mut self, text: &str) -> Moment {
        self.seeing_run.mark(text);
        self.blind_run.mark(text)
    }

    /// Waits until everybody is served, and ends both runs.
    fn end(self, stage: &Stage<'_>, since: Moment) -> Result<Ended, Error> {
        let answered = [
            self.blind_run.wait_answers(stage, since, RECOVERY_TIMEOUT_S)?,
            self.seeing_run.wait_answers(stage, since, RECOVERY_TIMEOUT_S)?,
        ];
        stage.stop.sleep(stage.scale.settle)?;
        stage.cluster()?.repair()?;
        let (blind, seeing) = (stage.finish(self.blind_run)?, stage.finish(self.seeing_run)?);
        drop((self.blind, self.seeing));
        let (blind_figures, mut seeing_figures) = (blind.figures(), seeing.figures());
        if seeing_figures.own_share_ms.is_none() {
            seeing_figures.group_ms = None;
        }
        Ok(Ended { blind, blind_figures, seeing, seeing_figures, answered })
    }
}

struct Ended {
    blind: Finished,
    blind_figures: Figures,
    seeing: Finished,
    seeing_figures: Figures,
    answered: [bool; 2],
}

/// One Weir no longer reaches the writer, which everybody else does.
pub(super) fn path(stage: &Stage<'_>) -> Result<Vec<Seen>, Error> {
    let mut two = Two::begin(stage)?;
    let victim = two.victim.clone();
    let (proxy, server) = (Member::Proxy(BLIND), Member::Server(victim.index));
    let network = stage.network()?;
    let broken = two.mark(&format!("no path between Weir {BLIND} and {}", victim.name));
    network.break_path(proxy, server)?;
    stage.stop.sleep(BROKEN)?;
    let mended = two.mark("the path is mended");
    network.mend_path(proxy, server)?;
    let mut ended = two.end(stage, mended)?;
    for figures in [&mut ended.blind_figures, &mut ended.seeing_figures] {
        (figures.group_ms, figures.own_share_ms) = (None, None);
    }

    let mut blind = GoalChecks::new(stage.args.smoke);
    let others = writes_elsewhere(&ended.blind, &victim, broken, mended);
    blind.none("writes on another node than the other Weir's writer", others);
    let early = failures_until(&ended.blind.recording, broken.plus_ms(9_000));
    blind.none("errors outside transactions in the first 9 s", early);
    let told = ended.blind.recording.failures.iter().filter(|f| f.text.contains("hostgroup")).count();
    blind.must("the errors say why", told.to_string(), told > 0);
    blind.must("served again", yes(ended.answered[0]), ended.answered[0]);
    blind.data(&ended.blind_figures);
    let mut seeing = undisturbed(stage, &ended);
    let moved = writes_elsewhere(&ended.seeing, &victim, broken, mended);
    seeing.none("writes on another node", moved);
    Ok(seen(ended, blind, seeing))
}

/// The writer and one Weir are cut off from the two other nodes and the other Weir.
pub(super) fn partition(stage: &Stage<'_>) -> Result<Vec<Seen>, Error> {
    let mut two = Two::begin(stage)?;
    let victim = two.victim.clone();
    let minority = [Member::Proxy(BLIND), Member::Server(victim.index)];
    let network = stage.network()?;
    // The commands may wait for a while until they do something.
    network.cut_off(&minority)?;
    let cut = two.mark(&format!("{} and Weir {BLIND} are cut off", victim.name));
    stage.stop.sleep(BROKEN)?;
    let joined = two.mark("the network is whole again");
    network.join(&minority)?;
    let mut ended = two.end(stage, joined)?;
    // The view of the majority is none of the minority's.
    (ended.blind_figures.group_ms, ended.blind_figures.own_share_ms) = (None, None);

    let mut blind = GoalChecks::new(stage.args.smoke);
    let noticed = cut.plus_ms(NOTICED_MS);
    let answers = |writes: bool, from: Moment| {
        let samples = ended.blind.recording.samples.iter();
        samples.filter(|s| s.stream.writes() == writes && s.sent > from && s.done < joined).count()
    };
    blind.none("writes acknowledged by the minority", answers(true, cut));
    blind.none("reads answered by the minority once it knows that it is one", answers(false, noticed));
    let told = ended.blind.recording.failures.iter().filter(|f| f.text.contains("hostgroup")).count();
    blind.must("the errors say why", told.to_string(), told > 0);
    blind.must("served again", yes(ended.answered[0]), ended.answered[0]);
    blind.data(&ended.blind_figures);
    let mut seeing = GoalChecks::new(stage.args.smoke);
    seeing.must("every client is served", yes(ended.answered[1]), ended.answered[1]);
    seeing.none("errors outside transactions", ended.seeing_figures.outside);
    seeing.data(&ended.seeing_figures);
    seeing.own_share(&ended.seeing_figures, OWN_SHARE_MS);
    let late = writes_on(&ended.seeing, &victim, cut.plus_ms(NOTICED_MS));
    seeing.none("writes on the node that was cut off", late);
    Ok(seen(ended, blind, seeing))
}

/// The goals of a Weir whose own view of the servers is as it was.
fn undisturbed(stage: &Stage<'_>, ended: &Ended) -> GoalChecks {
    let mut goals = GoalChecks::new(stage.args.smoke);
    goals.undisturbed(&ended.seeing_figures);
    goals
}

fn seen(ended: Ended, blind: GoalChecks, seeing: GoalChecks) -> Vec<Seen> {
    vec![
        Seen::new(ended.blind, ended.blind_figures, blind).variant("cut off"),
        Seen::new(ended.seeing, ended.seeing_figures, seeing).variant("the other one"),
    ]
}

/// Acknowledged writes between two moments that another server than `server` has executed.
fn writes_elsewhere(finished: &Finished, server: &Server, from: Moment, to: Moment) -> usize {
    let samples = finished.recording.samples.iter();
    let writes = samples.filter(|s| s.stream.writes() && s.sent > from && s.done < to);
    let node = |stream: u8, number: u64| {
        finished.rows.get(&weir_lab::record::RowId { stream, number }).map(|row| usize::from(row.node))
    };
    writes.filter(|s| node(s.stream.number(), s.number).is_some_and(|node| node != server.index)).count()
}

fn failures_until(recording: &Recording, moment: Moment) -> usize {
    let outside = |failure: &&weir_lab::record::Failure| failure.kind == weir_lab::record::Kind::Outside;
    recording.failures.iter().filter(outside).filter(|failure| failure.at < moment).count()
}
