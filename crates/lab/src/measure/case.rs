//! Makes figures of visits.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::{Goal, Metric, Sample};
use crate::report::Spread;

/// Who is compared with whom, by the names of the peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// Whose goals they are.
    pub subject: &'static str,
    /// Whose figures the others' are divided by.
    pub baseline: &'static str,
    /// The baseline as it is written in a text.
    pub title: &'static str,
}

/// One case of a row, as in "64 threads": every peer's visits.
#[derive(Debug, Clone)]
pub struct Case<Row> {
    /// Of which row of the report.
    pub row: Row,
    /// What distinguishes it within the row.
    pub name: String,
    /// What is hoped for.
    pub goals: Vec<Goal>,
    /// In the order of the visits of the first round.
    pub peers: Vec<PeerSamples>,
}

/// What one peer did in a case.
#[derive(Debug, Clone)]
pub struct PeerSamples {
    /// Its name.
    pub peer: String,
    /// One entry per round, in order.
    pub rounds: Vec<Sample>,
}

impl<Row> Case<Row> {
    /// One without figures.
    pub fn new<'p>(
        row: Row,
        name: &str,
        goals: Vec<Goal>,
        peers: impl IntoIterator<Item = &'p str>,
    ) -> Case<Row> {
        let samples = |peer: &str| PeerSamples { peer: peer.to_owned(), rounds: Vec::new() };
        Case { row, name: name.to_owned(), goals, peers: peers.into_iter().map(samples).collect() }
    }

    /// Visits every peer once, by its place in the case; another one comes first each round, so that who comes after whom
    /// does not matter.
    ///
    /// # Errors
    /// The first of a visit; what was measured before stays.
    pub fn visit_all<E>(
        &mut self,
        round: u32,
        mut visit: impl FnMut(usize, &str) -> Result<Sample, E>,
    ) -> Result<(), E> {
        for at in visiting_order(self.peers.len(), round as usize) {
            let Some(samples) = self.peers.get_mut(at) else { continue };
            samples.rounds.push(visit(at, &samples.peer)?);
        }
        Ok(())
    }
}

fn visiting_order(peers: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..peers).map(move |at| (at + round) % peers)
}

/// The figures of one case.
#[derive(Debug, Clone, serde::Serialize)]
pub struct CaseFigures<Row> {
    /// Of which row.
    pub row: Row,
    /// What distinguishes it within the row.
    pub case: String,
    /// One entry per peer.
    pub peers: Vec<PeerFigures>,
    /// What was hoped for, and what came of it.
    pub goals: Vec<GoalCheck>,
}

/// A peer's figures over all rounds of a case.
#[derive(Debug, Clone)]
pub struct PeerFigures {
    /// Its name.
    pub peer: String,
    /// Middle and ends of every metric.
    pub figures: BTreeMap<Metric, Spread>,
    /// The same divided by the baseline's of the same round; empty if that was not measured, and for itself.
    pub ratios: BTreeMap<Metric, Spread>,
    /// The visits themselves.
    pub rounds: Vec<Sample>,
    baseline: &'static str,
}

/// A goal and the subject's figure for it.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct GoalCheck {
    /// What was hoped for.
    pub goal: Goal,
    /// The median of the figures or ratios.
    pub value: f64,
    /// Whether it is reached.
    pub is_met: bool,
}

impl<Row> CaseFigures<Row> {
    /// Works out medians, ratios and goals.
    pub fn new(case: Case<Row>, comparison: Comparison) -> CaseFigures<Row> {
        let baseline = case.peers.iter().find(|samples| samples.peer == comparison.baseline);
        let figures = |samples| PeerFigures::new(samples, baseline, comparison);
        let peers: Vec<PeerFigures> = case.peers.iter().map(figures).collect();
        let subject = peers.iter().find(|figures| figures.peer == comparison.subject);
        let goals = subject
            .map(|subject| case.goals.iter().filter_map(|goal| GoalCheck::new(*goal, subject)).collect())
            .unwrap_or_default();
        CaseFigures { row: case.row, case: case.name, peers, goals }
    }

    /// A peer's figures.
    pub fn peer(&self, name: &str) -> Option<&PeerFigures> {
        self.peers.iter().find(|figures| figures.peer == name)
    }
}

impl GoalCheck {
    /// `None` if the metric was not measured.
    fn new(goal: Goal, subject: &PeerFigures) -> Option<GoalCheck> {
        let spreads = if goal.is_ratio { &subject.ratios } else { &subject.figures };
        let value = spreads.get(&goal.metric)?.median;
        Some(GoalCheck { goal, value, is_met: goal.is_met_by(value) })
    }
}

impl PeerFigures {
    fn new(samples: &PeerSamples, baseline: Option<&PeerSamples>, comparison: Comparison) -> PeerFigures {
        let metrics: BTreeSet<Metric> = samples.rounds.iter().flat_map(Sample::metrics).collect();
        let figures = metrics.iter().filter_map(|&metric| {
            let spread = Spread::of(samples.rounds.iter().filter_map(|sample| sample.value(metric)));
            Some((metric, spread?))
        });
        let baseline = baseline.filter(|_| samples.peer != comparison.baseline);
        let ratios = metrics.iter().filter_map(|&metric| {
            // Paired by round before gaps are dropped.
            let pairs = samples.rounds.iter().zip(&baseline?.rounds);
            let pairs = pairs.filter_map(|(mine, its)| mine.value(metric).zip(its.value(metric)));
            Some((metric, Spread::of_ratios(pairs)?))
        });
        PeerFigures {
            peer: samples.peer.clone(),
            figures: figures.collect(),
            ratios: ratios.collect(),
            rounds: samples.rounds.clone(),
            baseline: comparison.baseline,
        }
    }
}

/// `peer`, `figures`, `to_BASELINE` for the ratios, and `rounds`.
impl Serialize for PeerFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(4))?;
        map.serialize_entry("peer", &self.peer)?;
        map.serialize_entry("figures", &self.figures)?;
        map.serialize_entry(&format!("to_{}", self.baseline), &self.ratios)?;
        map.serialize_entry("rounds", &self.rounds)?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD_AND_NEW: Comparison = Comparison { subject: "new", baseline: "old", title: "the old one" };

    #[test]
    fn every_peer_comes_first_in_turn_and_none_is_left_out() {
        let orders: Vec<Vec<usize>> = (0..4).map(|round| visiting_order(3, round).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
    }

    #[test]
    fn a_gap_in_one_round_does_not_shift_the_pairs() {
        let cpu = |cpu| Sample::default().with_some(Metric::CpuUsPerStatement, cpu);
        let mut case = Case::new("row", "case", Vec::new(), ["old", "new"]);
        for (round, figures) in [[Some(10.0), None], [Some(20.0), Some(10.0)]].into_iter().enumerate() {
            let visit = |at: usize, _: &str| Ok::<_, ()>(cpu(figures[at]));
            case.visit_all(u32::try_from(round).unwrap(), visit).unwrap();
        }
        let figures = CaseFigures::new(case, OLD_AND_NEW);
        let ratio = figures.peer("new").unwrap().ratios[&Metric::CpuUsPerStatement];
        assert!((ratio.median - 0.5).abs() < 1e-9);
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!(json["peers"][1]["to_old"]["cpu_us_per_statement"]["median"], 0.5);
    }
}
