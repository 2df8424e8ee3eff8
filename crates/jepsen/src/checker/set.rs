//! Checks a set to which members are added: what was acknowledged is there in the end, and everything that is there was added.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::history::{History, Op, Outcome, Transaction, Value};

/// Judges a history. Reads before the end must hold what was acknowledged before they began if `order` is that of the
/// clock, and what their own session has added if it is that of sessions.
pub fn check(history: &History, order: Order) -> Findings {
    let transactions = history.transactions();
    let mut findings = Findings::default();
    let adds: BTreeMap<Value, &Transaction> =
        transactions.iter().flat_map(|t| t.ops.iter().filter_map(move |op| Some((added(op)?, t)))).collect();
    for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Ok) {
        for op in &transaction.ops {
            if let Op::Members { found: Some(found) } = op {
                judge(transaction, found, &adds, &mut findings);
            }
        }
    }
    if order > Order::Data {
        report_missed(&transactions, &adds, order, &mut findings);
    }
    let last = transactions.iter().rfind(|t| t.is_final).and_then(members);
    if let Some(last) = last {
        resolve(&last, &adds, &mut findings);
    }
    findings
}

fn added(op: &Op) -> Option<Value> {
    match op {
        Op::Add { value } => Some(*value),
        _ => None,
    }
}

fn members(transaction: &Transaction) -> Option<HashSet<Value>> {
    transaction.ops.iter().find_map(|op| match op {
        Op::Members { found: Some(found) } => Some(found.iter().copied().collect()),
        _ => None,
    })
}

/// What is there twice, or should not be there.
fn judge(
    reader: &Transaction,
    found: &[Value],
    adds: &BTreeMap<Value, &Transaction>,
    findings: &mut Findings,
) {
    let mut times: HashMap<Value, usize> = HashMap::new();
    found.iter().for_each(|value| *times.entry(*value).or_default() += 1);
    let mut times: Vec<(Value, usize)> = times.into_iter().collect();
    times.sort_unstable();
    for (value, times) in times {
        let mut add = |kind, with: Option<&Transaction>, words| {
            let ids = with.map(|t| t.id).into_iter().chain([reader.id]).collect();
            findings.add(Class::of(kind), Some(value), ids, words);
        };
        let writer = adds.get(&value).copied();
        if times > 1 {
            add(AnomalyKind::Duplicate, writer, format!("{value} is there {times} times"));
        }
        match writer {
            None => add(AnomalyKind::Unwritten, None, format!("nobody has added {value}")),
            Some(t) if t.outcome == Outcome::Fail => {
                add(AnomalyKind::G1a, writer, format!("the addition of {value} has failed"));
            }
            Some(_) => {}
        }
    }
}

/// What a read missed that was there before it began, or that its session has added.
fn report_missed(
    transactions: &[Transaction],
    adds: &BTreeMap<Value, &Transaction>,
    order: Order,
    findings: &mut Findings,
) {
    for reader in transactions.iter().filter(|t| t.outcome == Outcome::Ok && !t.is_final) {
        let Some(found) = members(reader) else { continue };
        for (value, writer) in adds.iter().filter(|(value, _)| !found.contains(value)) {
            if writer.outcome != Outcome::Ok || !writer.precedes(reader) {
                continue;
            }
            let with = vec![writer.id, reader.id];
            if writer.process == reader.process {
                let words = format!("{value} was added by the session itself before");
                let class = Class { kind: AnomalyKind::OwnWriteMissed, order: Order::Session };
                findings.add(class, Some(*value), with, words);
            } else if order == Order::RealTime {
                let words = format!("{value} was acknowledged before the read began");
                let class = Class { kind: AnomalyKind::Stale, order: Order::RealTime };
                findings.add(class, Some(*value), with, words);
            }
        }
    }
}

/// What is missing in the end, and what became of the unknown ones.
fn resolve(last: &HashSet<Value>, adds: &BTreeMap<Value, &Transaction>, findings: &mut Findings) {
    for (value, writer) in adds {
        match (writer.outcome, last.contains(value)) {
            (Outcome::Ok, false) => findings.add(
                Class::of(AnomalyKind::Lost),
                Some(*value),
                vec![writer.id],
                format!("{value} was added, acknowledged, and is not there"),
            ),
            (Outcome::Unknown, true) => findings.unknown_done += 1,
            (Outcome::Unknown, false) => findings.unknown_not_done += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    fn members(found: &[Value]) -> Vec<Op> {
        vec![Op::Members { found: Some(found.to_vec()) }]
    }

    fn additions() -> History {
        let mut history = History::default();
        for (value, kind) in [(1, Kind::Ok), (2, Kind::Info), (3, Kind::Info), (4, Kind::Fail)] {
            history.push(value, value * 10, value * 10 + 5, kind, vec![Op::Add { value }]);
        }
        history
    }

    fn names(last: &[Value]) -> Vec<String> {
        let mut history = additions();
        history.push_final(members(last));
        check(&history, Order::RealTime).names()
    }

    #[test]
    fn acknowledged_members_are_there_failed_ones_are_not_and_unknown_ones_may_be() {
        let mut history = additions();
        history.push_final(members(&[2, 1]));
        let good = check(&history, Order::RealTime);
        assert!(good.names().is_empty());
        assert_eq!((good.unknown_done, good.unknown_not_done), (1, 1));
        assert_eq!(names(&[2, 3]), ["lost"]);
        assert_eq!(names(&[1, 4]), ["G1a"]);
        assert_eq!(names(&[1, 1]), ["duplicate"]);
        assert_eq!(names(&[1, 9]), ["unwritten"]);
    }

    #[test]
    fn reads_that_miss_members_are_stale_by_the_clock_or_by_their_session() {
        let missed = |process, order| {
            let mut history = additions();
            history.push(process, 100, 110, Kind::Ok, members(&[]));
            history.push_final(members(&[1]));
            check(&history, order).names()
        };
        assert_eq!(missed(7, Order::RealTime), ["stale-read-realtime"]);
        assert!(missed(7, Order::Session).is_empty());
        assert_eq!(missed(1, Order::Session), ["own-write-missed-session"]);
    }
}
