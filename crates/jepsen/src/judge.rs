//! Says which anomalies a run may have, and what was found in it.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_jepsen::checker::{Anomaly, AnomalyKind, Class, Findings, History, Outcome, Transaction};

use crate::guard::Guard;
use crate::place::{Isolation, PeerKind, Place};
use crate::run::{Mark, Seen, Setup};
use crate::timeline;
use crate::workload::Workload;

/// Memory may grow by so much from the first quarter of a run to its end.
const GROWTH_MAX: f64 = 1.25;
/// And by so much in any case, KiB: a short run is no proof.
const GROWTH_SLACK_KIB: u64 = 32 * 1024;

/// Errors that no session has asked for: a history with one is worth reading.
const ODD: [&str; 2] = ["READ ONLY transaction", "no answer within"];

/// What became of the transactions of a workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    /// Acknowledged.
    pub(crate) ok: u64,
    /// Certainly without effect.
    pub(crate) failed: u64,
    /// Nobody knows.
    pub(crate) unknown: u64,
}

/// A workload of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    /// Which one.
    pub(crate) workload: Workload,
    /// What became of its transactions.
    pub(crate) counts: Counts,
    /// What was found.
    pub(crate) findings: Findings,
    /// Classes that neither the servers' isolation nor what is switched off explains.
    pub(crate) unexpected: Vec<Class>,
    /// The history of each anomaly that is kept, in words.
    #[serde(skip)]
    pub(crate) shown: Vec<(Anomaly, Vec<String>)>,
    /// Everything, for who wants to look closer; only where something was found.
    #[serde(skip)]
    pub(crate) transactions: Vec<Transaction>,
}

/// A run.
#[derive(Debug, Serialize)]
pub(crate) struct Verdict {
    /// What it was.
    pub(crate) setup: Setup,
    /// Each workload.
    pub(crate) workloads: Vec<Judged>,
    /// What happened to servers and Weirs.
    pub(crate) marks: Vec<Mark>,
    /// How often each text of an error came.
    pub(crate) texts: BTreeMap<String, u64>,
    /// Memory of each Weir, KiB, once a second.
    pub(crate) rss_kib: Vec<Vec<u64>>,
    /// Statements and transactions of the application that were still open at the servers.
    pub(crate) left_over: Option<u64>,
    /// The picture of it.
    #[serde(skip)]
    pub(crate) timeline: String,
}

impl Verdict {
    /// Judges what was seen.
    pub(crate) fn of(setup: &Setup, seen: Seen) -> Verdict {
        let Seen { histories, mut diverged, marks, texts, rss_kib, left_over } = seen;
        let timeline = timeline::draw(&histories, &marks);
        let workloads = histories
            .into_iter()
            .map(|(workload, history)| {
                let mut findings = workload.check(&history, setup.order());
                findings.merge(diverged.remove(&workload).unwrap_or_default());
                judged(setup, workload, &history, findings)
            })
            .collect();
        Verdict { setup: setup.clone(), workloads, marks, texts, rss_kib, left_over, timeline }
    }

    /// The names of all classes found.
    pub(crate) fn classes(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.workloads.iter().flat_map(|judged| judged.findings.names()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// Of the classes that show that a guard is off, those that were found.
    pub(crate) fn guard_found(&self, guard: Guard) -> Vec<String> {
        let wanted = guard.anomalies();
        self.classes().into_iter().filter(|name| wanted.contains(&name.as_str())).collect()
    }

    /// What was missed, in words; nothing of what promises nothing.
    pub(crate) fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if let Some(guard) = self.setup.guard {
            if self.guard_found(guard).is_empty() {
                missed.push(format!(
                    "without this guard one of {} was to be found",
                    guard.anomalies().join(", ")
                ));
            }
            return missed;
        }
        for judged in &self.workloads {
            if judged.counts.ok == 0 {
                missed.push(format!("{}: no transaction was acknowledged", judged.workload));
            }
        }
        if self.setup.peer != PeerKind::Weir {
            return missed;
        }
        for judged in &self.workloads {
            for class in &judged.unexpected {
                let count = judged.findings.counts.get(class).copied().unwrap_or(0);
                missed.push(format!("{}: {count} x {class}", judged.workload));
            }
        }
        if let Some(left) = self.left_over.filter(|left| *left > 0) {
            missed.push(format!("{left} statements or transactions of the application are still open"));
        }
        missed.extend(
            (1..).zip(&self.rss_kib).filter_map(|(k, kib)| growth(kib).map(|how| format!("Weir {k}: {how}"))),
        );
        missed
    }
}

/// More memory in the end than after the first quarter.
fn growth(rss_kib: &[u64]) -> Option<String> {
    let quarter = rss_kib.get(..=rss_kib.len() / 4)?.iter().max()?;
    let last = rss_kib.last()?;
    let is_more = *last as f64 > *quarter as f64 * GROWTH_MAX && *last > quarter + GROWTH_SLACK_KIB;
    is_more.then(|| format!("its memory grew from {quarter} to {last} KiB"))
}

fn judged(setup: &Setup, workload: Workload, history: &History, findings: Findings) -> Judged {
    let transactions = history.transactions();
    let count = |outcome| transactions.iter().filter(|t| t.outcome == outcome && !t.is_final).count() as u64;
    let counts =
        Counts { ok: count(Outcome::Ok), failed: count(Outcome::Fail), unknown: count(Outcome::Unknown) };
    let begin_ns = transactions.first().map_or(0, |t| t.invoked_ns);
    let line = |id: &usize| {
        let transaction = transactions.get(*id)?;
        let ms = |ns: u64| ns.saturating_sub(begin_ns) as f64 / 1e6;
        let end = match transaction.completed_ns {
            u64::MAX => "?".to_owned(),
            end => format!("{:.1}", ms(end)),
        };
        let error = transaction.error.as_ref().map(|text| format!(" [{text}]")).unwrap_or_default();
        let text: String = transaction.to_string().chars().take(600).collect();
        Some(format!("{:.1}..{end} ms  {text}{error}", ms(transaction.invoked_ns)))
    };
    let shown = findings
        .anomalies
        .iter()
        .map(|anomaly| (anomaly.clone(), anomaly.transactions.iter().filter_map(line).collect()))
        .collect();
    let unexpected: Vec<Class> =
        findings.counts.keys().copied().filter(|class| !may_be(*class, setup)).collect();
    let is_odd = transactions
        .iter()
        .any(|t| t.error.as_deref().is_some_and(|text| ODD.iter().any(|odd| text.contains(odd))));
    let transactions = if findings.counts.is_empty() && !is_odd { Vec::new() } else { transactions };
    Judged { workload, counts, findings, unexpected, shown, transactions }
}

/// Whether the servers' isolation allows an anomaly.
fn may_be(class: Class, setup: &Setup) -> bool {
    match (setup.isolation, setup.place) {
        (Isolation::Serializable, _) => false,
        // Snapshot isolation: write skew.
        (Isolation::RepeatableRead, Place::Galera | Place::Galera5) => class.kind == AnomalyKind::G2Item,
        // MySQL lets a transaction replace what it has not seen.
        (Isolation::RepeatableRead, Place::Group) => matches!(
            class.kind,
            AnomalyKind::G2Item
                | AnomalyKind::GSingle
                | AnomalyKind::GNonadjacent
                | AnomalyKind::LostUpdate
                | AnomalyKind::Internal
                | AnomalyKind::WrongTotal
                | AnomalyKind::NegativeBalance
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_jepsen::checker::{Kind, Op};

    use super::*;
    use crate::place::Level;

    fn setup(peer: PeerKind, guard: Option<Guard>) -> Setup {
        Setup {
            place: Place::Galera,
            peer,
            level: Level::Global,
            isolation: Isolation::RepeatableRead,
            guard,
            workloads: vec![Workload::ListAppend],
            faults: Vec::new(),
            time: Duration::from_secs(1),
        }
    }

    fn missed(setup: &Setup, transactions: &[Vec<Op>]) -> Vec<String> {
        let mut history = History::default();
        for (process, ops) in (0..).zip(transactions) {
            history.push(process, process, 100, Kind::Ok, ops.clone());
        }
        let seen = Seen {
            histories: [(Workload::ListAppend, history)].into(),
            diverged: BTreeMap::new(),
            marks: Vec::new(),
            texts: BTreeMap::new(),
            rss_kib: Vec::new(),
            left_over: Some(0),
        };
        Verdict::of(setup, seen).missed()
    }

    fn list(key: u64, found: &[u64]) -> Op {
        Op::List { key, found: Some(found.to_vec()) }
    }

    fn append(key: u64, value: u64) -> Op {
        Op::Append { key, value }
    }

    #[test]
    fn write_skew_is_allowed_and_a_lost_update_is_not_but_for_who_promises_nothing() {
        let skew = [
            vec![list(1, &[]), append(2, 1)],
            vec![list(2, &[]), append(1, 1)],
            vec![list(1, &[1]), list(2, &[1])],
        ];
        assert!(missed(&setup(PeerKind::Weir, None), &skew).is_empty());
        let lost =
            [vec![list(1, &[]), append(1, 1)], vec![list(1, &[]), append(1, 2)], vec![list(1, &[1, 2])]];
        assert_eq!(missed(&setup(PeerKind::Weir, None), &lost).len(), 2);
        assert!(missed(&setup(PeerKind::Direct, None), &lost).is_empty());
        // With a guard off it has to be found.
        let guard = Some(Guard::SnapshotIsolation);
        assert!(missed(&setup(PeerKind::Weir, guard), &lost).is_empty());
        assert_eq!(missed(&setup(PeerKind::Weir, guard), &skew).len(), 1);
    }

    #[test]
    fn memory_that_grows_is_told() {
        assert_eq!(growth(&[100_000, 110_000, 105_000, 112_000]), None);
        assert!(growth(&[100_000, 110_000, 150_000, 190_000]).is_some());
        assert_eq!(growth(&[]), None);
    }
}
