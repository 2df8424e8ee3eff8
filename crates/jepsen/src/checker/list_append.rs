//! Checks lists to which transactions append: each read shows the order of the versions, and with it every dependency.
//!
//! A list that was read is a prefix of every longer one. The writer of a value comes before that of the next one (ww) and
//! before whoever read it as the last one (wr), who comes before the writer of the next one (rw).

use std::collections::{BTreeMap, HashMap, HashSet};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::graph::{Dependency, Graph};
use super::history::{History, Key, Op, Outcome, Transaction, UNWRITTEN, Value};
use super::versions::{Replacements, Version, Writers};

/// Judges a history. `order` is the latest order that the transactions' own is to agree with.
pub fn check(history: &History, order: Order) -> Findings {
    let transactions = history.transactions();
    let mut findings = Findings::default();
    let writers = Writers::of(&transactions, &mut findings);
    let lists = Lists::of(&transactions, &mut findings);
    let happened = writers.happened(&transactions, &lists.seen, &mut findings);
    let mut graph = Graph::new(transactions.len());
    for (key, list) in &lists.longest {
        let known: Vec<usize> =
            list.iter().filter_map(|value| Some(writers.find((*key, *value))?.transaction)).collect();
        for pair in known.windows(2) {
            if let [before, after] = *pair {
                graph.add(before, after, Dependency::WriteWrite(*key));
            }
        }
    }
    let odd = lists.odd(&writers, &transactions);
    let mut replacements = Replacements::default();
    for transaction in transactions.iter().filter(|t| happened.get(t.id) == Some(&true)) {
        let mut reader = Reader {
            transaction,
            transactions: &transactions,
            writers: &writers,
            lists: &lists,
            odd: &odd,
            graph: &mut graph,
            replacements: &mut replacements,
            findings: &mut findings,
        };
        reader.judge();
    }
    replacements.report(&mut findings);
    lists.report_lost(&transactions, &mut findings);
    if order >= Order::Session {
        graph.add_sessions(&transactions, &happened);
    }
    if order >= Order::RealTime {
        graph.add_real_time(&transactions, &happened);
    }
    graph.report(&transactions, order, &mut findings);
    findings
}

/// The lists that were read.
struct Lists {
    /// The longest one of each key.
    longest: BTreeMap<Key, Vec<Value>>,
    /// Those that were read after everything.
    last: BTreeMap<Key, HashSet<Value>>,
    /// Everything that is in one of them.
    seen: HashSet<Version>,
}

impl Lists {
    fn of(transactions: &[Transaction], findings: &mut Findings) -> Lists {
        let mut lists = Lists { longest: BTreeMap::new(), last: BTreeMap::new(), seen: HashSet::new() };
        let answered = || transactions.iter().filter(|t| t.outcome == Outcome::Ok);
        for transaction in answered() {
            for (key, list) in transaction.ops.iter().filter_map(list_of) {
                let longest = lists.longest.entry(key).or_default();
                if list.len() > longest.len() {
                    list.clone_into(longest);
                }
                if transaction.is_final {
                    lists.last.entry(key).or_default().extend(list);
                }
            }
        }
        let (mut told, mut checked) = (HashSet::new(), HashSet::new());
        for transaction in answered() {
            for (key, list) in transaction.ops.iter().filter_map(list_of) {
                let longest = lists.longest.get(&key).map_or(&[][..], Vec::as_slice);
                let is_longest = list.len() == longest.len() && checked.insert(key);
                if longest.get(..list.len()) != Some(list) {
                    let words = format!("{list:?} is no beginning of {longest:?}");
                    findings.add(
                        Class::of(AnomalyKind::IncompatibleOrder),
                        Some(key),
                        vec![transaction.id],
                        words,
                    );
                    lists.seen.extend(list.iter().map(|value| (key, *value)));
                } else if !is_longest {
                    // What is true of the longest one is true of its beginnings.
                    continue;
                }
                let mut values = HashSet::new();
                if let Some(twice) = list.iter().find(|value| !values.insert(**value))
                    && told.insert((key, *twice))
                {
                    let words = format!("{twice} is more than once in {key}: {list:?}");
                    findings.add(Class::of(AnomalyKind::Duplicate), Some(key), vec![transaction.id], words);
                }
            }
        }
        for (key, list) in &lists.longest {
            lists.seen.extend(list.iter().map(|value| (*key, *value)));
        }
        lists
    }

    /// Places in the longest lists of values that nobody can have written.
    fn odd(&self, writers: &Writers, transactions: &[Transaction]) -> HashMap<Key, Vec<usize>> {
        let mut odd: HashMap<Key, Vec<usize>> = HashMap::new();
        for (key, list) in &self.longest {
            for (at, value) in list.iter().enumerate() {
                let writer =
                    writers.find((*key, *value)).and_then(|writer| transactions.get(writer.transaction));
                if writer.is_none_or(|writer| writer.outcome == Outcome::Fail) {
                    odd.entry(*key).or_default().push(at);
                }
            }
        }
        odd
    }

    /// What was acknowledged and is not there in the end.
    fn report_lost(&self, transactions: &[Transaction], findings: &mut Findings) {
        for transaction in transactions.iter().filter(|t| t.outcome == Outcome::Ok) {
            for op in &transaction.ops {
                let Op::Append { key, value } = op else { continue };
                if self.last.get(key).is_some_and(|list| !list.contains(value)) {
                    let words = format!("{value} was appended to {key}, acknowledged, and is not there");
                    findings.add(Class::of(AnomalyKind::Lost), Some(*key), vec![transaction.id], words);
                }
            }
        }
    }
}

fn list_of(op: &Op) -> Option<(Key, &[Value])> {
    match op {
        Op::List { key, found: Some(list) } => Some((*key, list)),
        _ => None,
    }
}

/// A transaction's reads, one after the other.
struct Reader<'a> {
    transaction: &'a Transaction,
    transactions: &'a [Transaction],
    writers: &'a Writers,
    lists: &'a Lists,
    /// Places in the longest lists of values whose writer has failed, or of which there is none.
    odd: &'a HashMap<Key, Vec<usize>>,
    graph: &'a mut Graph,
    replacements: &'a mut Replacements,
    findings: &'a mut Findings,
}

/// What a transaction knows of a list.
#[derive(Default)]
struct Known {
    /// The list as others left it, once it was read.
    others: Option<Vec<Value>>,
    own: Vec<Value>,
    /// Whether it was read before the first append.
    was_read_first: bool,
}

impl Reader<'_> {
    fn judge(&mut self) {
        let mut known: HashMap<Key, Known> = HashMap::new();
        for op in &self.transaction.ops {
            match op {
                Op::Append { key, value } => known.entry(*key).or_default().own.push(*value),
                Op::List { key, found: Some(list) } => {
                    let known = known.entry(*key).or_default();
                    if let Err(words) = known.read(list) {
                        self.findings.add(
                            Class::of(AnomalyKind::Internal),
                            Some(*key),
                            vec![self.transaction.id],
                            words,
                        );
                    }
                }
                _ => {}
            }
        }
        let mut known: Vec<(Key, Known)> = known.into_iter().collect();
        known.sort_by_key(|(key, _)| *key);
        for (key, known) in known {
            if let Some(others) = &known.others {
                self.depend(key, others);
                if known.was_read_first && !known.own.is_empty() {
                    let version = (key, others.last().copied().unwrap_or(UNWRITTEN));
                    self.replacements.note(version, self.transaction.id);
                }
            }
        }
    }

    /// On those whose values were read, and of whoever wrote the next one.
    fn depend(&mut self, key: Key, others: &[Value]) {
        let longest = self.lists.longest.get(&key).map_or(&[][..], Vec::as_slice);
        let is_beginning = longest.get(..others.len()) == Some(others);
        let odd = self.odd.get(&key).map_or(&[][..], Vec::as_slice);
        for (at, value) in others.iter().enumerate() {
            let is_newest = at + 1 == others.len();
            // Of most values it was found out before that nothing is wrong with them.
            if is_beginning && !is_newest && (odd.is_empty() || !odd.contains(&at)) {
                continue;
            }
            self.writers.judge(self.transaction, (key, *value), is_newest, self.transactions, self.findings);
        }
        let id = self.transaction.id;
        let writer = |value: &Value| Some(self.writers.find((key, *value))?.transaction);
        if let Some(before) = others.last().and_then(writer) {
            self.graph.add(before, id, Dependency::WriteRead(key));
        }
        if is_beginning && let Some(after) = longest.get(others.len()).and_then(writer) {
            self.graph.add(id, after, Dependency::ReadWrite(key));
        }
    }
}

impl Known {
    /// Takes a read in, or says why it can't be.
    fn read(&mut self, list: &[Value]) -> Result<(), String> {
        let Some(others) = &self.others else {
            let Some(before) = list.strip_suffix(self.own.as_slice()) else {
                return Err(format!("{list:?} does not end in its own {:?}", self.own));
            };
            self.others = Some(before.to_vec());
            self.was_read_first = self.own.is_empty();
            return Ok(());
        };
        match list.strip_prefix(others.as_slice()) == Some(self.own.as_slice()) {
            true => Ok(()),
            false => Err(format!("{list:?} is not {others:?} and its own {:?}", self.own)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::Kind;
    use super::*;

    fn append(key: Key, value: Value) -> Op {
        Op::Append { key, value }
    }

    fn list(key: Key, found: &[Value]) -> Op {
        Op::List { key, found: Some(found.to_vec()) }
    }

    /// Concurrent transactions of different sessions.
    fn names(transactions: &[(Kind, Vec<Op>)]) -> Vec<String> {
        let mut history = History::default();
        for (process, (kind, ops)) in (0..).zip(transactions) {
            history.push(process, process, 100 + process, *kind, ops.clone());
        }
        check(&history, Order::RealTime).names()
    }

    #[test]
    fn g0_is_two_writers_each_over_the_other() {
        let found = names(&[
            (Kind::Ok, vec![append(1, 1), append(2, 1)]),
            (Kind::Ok, vec![append(1, 2), append(2, 2)]),
            (Kind::Ok, vec![list(1, &[1, 2]), list(2, &[2, 1])]),
        ]);
        assert!(found.contains(&"G0".to_owned()), "{found:?}");
    }

    #[test]
    fn g1_is_reads_of_failed_intermediate_and_circular_writes() {
        let aborted = [(Kind::Fail, vec![append(1, 1)]), (Kind::Ok, vec![list(1, &[1])])];
        assert_eq!(names(&aborted), ["G1a"]);
        let intermediate = [
            (Kind::Ok, vec![append(1, 1), append(1, 2)]),
            (Kind::Ok, vec![list(1, &[1])]),
            (Kind::Ok, vec![list(1, &[1, 2])]),
        ];
        // The reader also comes before and after its writer.
        assert_eq!(names(&intermediate), ["G1b", "G-single"]);
        let circular =
            [(Kind::Ok, vec![append(1, 1), list(2, &[1])]), (Kind::Ok, vec![append(2, 1), list(1, &[1])])];
        assert_eq!(names(&circular), ["G1c"]);
    }

    #[test]
    fn lost_updates_and_read_skew_are_g_single() {
        let lost = [
            (Kind::Ok, vec![list(1, &[]), append(1, 1)]),
            (Kind::Ok, vec![list(1, &[]), append(1, 2)]),
            (Kind::Ok, vec![list(1, &[1, 2])]),
        ];
        assert_eq!(names(&lost), ["G-single", "lost-update"]);
        let skew = [
            (Kind::Ok, vec![append(1, 1), append(2, 1)]),
            (Kind::Ok, vec![list(1, &[]), list(2, &[1])]),
            (Kind::Ok, vec![list(1, &[1])]),
        ];
        assert_eq!(names(&skew), ["G-single"]);
    }

    #[test]
    fn write_skew_is_g2_item_and_a_long_fork_is_not() {
        let skew = [
            (Kind::Ok, vec![list(1, &[]), list(2, &[]), append(1, 1)]),
            (Kind::Ok, vec![list(1, &[]), list(2, &[]), append(2, 1)]),
            (Kind::Ok, vec![list(1, &[1]), list(2, &[1])]),
        ];
        assert_eq!(names(&skew), ["G2-item"]);
        let fork = [
            (Kind::Ok, vec![append(1, 1)]),
            (Kind::Ok, vec![append(2, 1)]),
            (Kind::Ok, vec![list(1, &[1]), list(2, &[])]),
            (Kind::Ok, vec![list(1, &[]), list(2, &[1])]),
        ];
        assert_eq!(names(&fork), ["G-nonadjacent"]);
    }

    #[test]
    fn single_reads_show_internal_duplicate_incompatible_and_unwritten() {
        assert_eq!(names(&[(Kind::Ok, vec![append(1, 1), list(1, &[])])]), ["internal"]);
        let moved = [(Kind::Ok, vec![append(1, 1)]), (Kind::Ok, vec![list(1, &[]), list(1, &[1])])];
        assert!(names(&moved).contains(&"internal".to_owned()));
        let twice = [(Kind::Ok, vec![append(1, 1)]), (Kind::Ok, vec![list(1, &[1, 1])])];
        assert_eq!(names(&twice), ["duplicate"]);
        let orders = [
            (Kind::Ok, vec![append(1, 1)]),
            (Kind::Ok, vec![append(1, 2)]),
            (Kind::Ok, vec![list(1, &[1, 2])]),
            (Kind::Ok, vec![list(1, &[2])]),
        ];
        assert!(names(&orders).contains(&"incompatible-order".to_owned()));
        assert_eq!(names(&[(Kind::Ok, vec![list(1, &[9])])]), ["unwritten"]);
    }

    #[test]
    fn unknown_appends_may_be_there_or_not_and_acknowledged_ones_must() {
        let mut history = History::default();
        history.push(1, 0, 1, Kind::Info, vec![append(1, 1)]);
        history.push(2, 0, 1, Kind::Info, vec![append(1, 2)]);
        history.push(3, 2, 3, Kind::Ok, vec![append(1, 3)]);
        history.push_final(vec![list(1, &[2, 3])]);
        let good = check(&history, Order::RealTime);
        assert!(good.names().is_empty(), "{good:?}");
        assert_eq!((good.unknown_done, good.unknown_not_done), (1, 1));
        history.push(4, 2, 3, Kind::Ok, vec![append(1, 4)]);
        assert_eq!(check(&history, Order::RealTime).names(), ["lost"]);
    }

    #[test]
    fn stale_reads_contradict_the_clock_and_their_session_alone() {
        let mut history = History::default();
        history.push(1, 0, 10, Kind::Ok, vec![append(1, 1)]);
        history.push(2, 20, 30, Kind::Ok, vec![list(1, &[])]);
        history.push(3, 40, 50, Kind::Ok, vec![list(1, &[1])]);
        assert_eq!(check(&history, Order::RealTime).names(), ["G-single-realtime"]);
        assert!(check(&history, Order::Session).names().is_empty());
        history.push(1, 20, 30, Kind::Ok, vec![list(1, &[])]);
        assert_eq!(check(&history, Order::Session).names(), ["G-single-session"]);
    }
}
