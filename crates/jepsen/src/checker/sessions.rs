//! Checks what sessions are promised: they see their own writes, and never an older state than before. Every row has one
//! writer, whose values only grow.

use std::collections::{BTreeMap, HashMap};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::history::{History, Key, Op, Outcome, Transaction, Value};

/// Judges a history by sessions, and by what was acknowledged to anybody before a read began if `order` is that of the
/// clock.
pub fn check(history: &History, order: Order) -> Findings {
    let transactions = history.transactions();
    let mut findings = Findings::default();
    let acknowledged = acknowledged(&transactions);
    let mut sessions: HashMap<u64, Session> = HashMap::new();
    for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Ok) {
        let session = sessions.entry(transaction.process).or_default();
        for op in &transaction.ops {
            match op {
                Op::Write { key, value } => drop(session.written.insert(*key, (*value, transaction.id))),
                Op::Read { key, found: Some(value) } => {
                    session.judge(transaction, *key, *value, &mut findings);
                    if order == Order::RealTime || transaction.is_final {
                        judge_clock(transaction, (*key, *value), &acknowledged, &mut findings);
                    }
                }
                _ => {}
            }
        }
    }
    findings
}

/// What a session has written and seen, and where.
#[derive(Debug, Default)]
struct Session {
    written: HashMap<Key, (Value, usize)>,
    seen: HashMap<Key, (Value, usize)>,
}

impl Session {
    fn judge(&mut self, reader: &Transaction, key: Key, value: Value, findings: &mut Findings) {
        let mut add = |kind, before: usize, words| {
            let class = Class { kind, order: Order::Session };
            findings.add(class, Some(key), vec![before, reader.id], words);
        };
        if let Some((own, id)) = self.written.get(&key).filter(|(own, _)| value < *own) {
            add(AnomalyKind::OwnWriteMissed, *id, format!("{key} is {value} after its own {own}"));
        }
        let (seen, id) = self.seen.entry(key).or_insert((value, reader.id));
        if value < *seen {
            add(AnomalyKind::NonMonotonic, *id, format!("{key} is {value} after {seen}"));
        } else {
            (*seen, *id) = (value, reader.id);
        }
    }
}

/// For each row the ends of its writes, and the greatest value that was acknowledged by then.
type Acknowledged = BTreeMap<Key, Vec<(u64, Value, usize)>>;

fn acknowledged(transactions: &[Transaction]) -> Acknowledged {
    let mut all = Acknowledged::new();
    for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Ok) {
        for op in &transaction.ops {
            if let Op::Write { key, value } = op {
                let write = (transaction.completed_ns, *value, transaction.id);
                all.entry(*key).or_default().push(write);
            }
        }
    }
    for writes in all.values_mut() {
        writes.sort_unstable();
        let mut greatest = (0, 0);
        for (_, value, id) in writes {
            greatest = greatest.max((*value, *id));
            (*value, *id) = greatest;
        }
    }
    all
}

fn judge_clock(
    reader: &Transaction,
    (key, value): (Key, Value),
    acknowledged: &Acknowledged,
    findings: &mut Findings,
) {
    let writes = acknowledged.get(&key).map_or(&[][..], Vec::as_slice);
    let before = writes.partition_point(|(end, ..)| *end < reader.invoked_ns);
    let newest = before.checked_sub(1).and_then(|at| writes.get(at));
    if let Some((_, newest, id)) = newest.filter(|(_, newest, _)| value < *newest) {
        let class = match reader.is_final {
            true => Class::of(AnomalyKind::Lost),
            false => Class { kind: AnomalyKind::Stale, order: Order::RealTime },
        };
        let words = format!("{key} is {value}, and {newest} was acknowledged before");
        findings.add(class, Some(key), vec![*id, reader.id], words);
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    fn names(order: Order, operations: &[(u64, Op)]) -> Vec<String> {
        let mut history = History::default();
        for (at, (process, op)) in (0..).zip(operations) {
            history.push(*process, at * 10, at * 10 + 5, Kind::Ok, vec![op.clone()]);
        }
        check(&history, order).names()
    }

    fn write(value: Value) -> Op {
        Op::Write { key: 1, value }
    }

    fn read(value: Value) -> Op {
        Op::Read { key: 1, found: Some(value) }
    }

    #[test]
    fn sessions_see_their_own_writes_and_do_not_go_back() {
        let own = [(1, write(1)), (1, read(0))];
        assert_eq!(names(Order::Session, &own), ["own-write-missed-session"]);
        let back = [(1, write(1)), (2, read(1)), (2, read(0))];
        assert_eq!(names(Order::Session, &back), ["non-monotonic-read-session"]);
        let good = [(1, write(1)), (2, read(0)), (2, read(1)), (1, read(1)), (1, write(2)), (3, read(1))];
        assert!(names(Order::Session, &good).is_empty());
        // That of the second session, and that of the third.
        assert_eq!(names(Order::RealTime, &good), ["stale-read-realtime"]);
    }

    #[test]
    fn a_read_at_the_same_time_as_a_write_may_miss_it() {
        let mut history = History::default();
        history.push(1, 0, 20, Kind::Ok, vec![write(1)]);
        history.push(2, 10, 30, Kind::Ok, vec![read(0)]);
        assert!(check(&history, Order::RealTime).names().is_empty());
        let mut lost = history.clone();
        lost.push_final(vec![read(0)]);
        assert_eq!(check(&lost, Order::Session).names(), ["lost"]);
        history.push(2, 40, 50, Kind::Ok, vec![read(0)]);
        assert_eq!(check(&history, Order::RealTime).names(), ["stale-read-realtime"]);
    }
}
