//! Finds cycles of dependencies between transactions, and names them.
//!
//! Nodes are transactions; behind them stand moments, which keep the order of the clock without an edge for each pair: a
//! transaction leads to the moment of its end, a moment to the next one, and the last moment before a transaction's
//! begin to it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::history::{Key, Transaction};

/// Edges that are looked at in one search for cycles, all components together.
const STEPS_MAX: usize = 60_000_000;
/// Cycles of one class that are looked for in one component.
const CYCLES_MAX: usize = 5;

/// Why one transaction comes before another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dependency {
    /// It wrote what the other one replaced.
    WriteWrite(Key),
    /// It wrote what the other one read.
    WriteRead(Key),
    /// It read what the other one replaced.
    ReadWrite(Key),
    /// It is the same session's, and earlier.
    Session,
    /// It was over when the other one began.
    RealTime,
}

impl Dependency {
    fn is_missed_write(self) -> bool {
        matches!(self, Dependency::ReadWrite(_))
    }

    fn is_within(self, order: Order) -> bool {
        match self {
            Dependency::Session => order >= Order::Session,
            Dependency::RealTime => order >= Order::RealTime,
            _ => true,
        }
    }

    fn words(self) -> String {
        match self {
            Dependency::WriteWrite(key) => format!("-ww({key})->"),
            Dependency::WriteRead(key) => format!("-wr({key})->"),
            Dependency::ReadWrite(key) => format!("-rw({key})->"),
            Dependency::Session => "-session->".to_owned(),
            Dependency::RealTime => "-realtime->".to_owned(),
        }
    }
}

/// Dependencies of transactions.
#[derive(Debug)]
pub struct Graph {
    edges: Vec<Vec<(usize, Dependency)>>,
    transactions: usize,
    steps_left: usize,
}

/// A cycle: each node, and the edge to the next one.
type Cycle = Vec<(usize, Dependency)>;
/// A node, and whether the edge to it missed a write, for whom that matters.
type State = (usize, bool);
/// Where a search came from.
type Came = HashMap<State, (State, Dependency)>;

impl Graph {
    /// So many transactions, without an edge.
    pub fn new(transactions: usize) -> Graph {
        Graph { edges: vec![Vec::new(); transactions], transactions, steps_left: STEPS_MAX }
    }

    /// `from` comes before `to`. Nothing comes before itself.
    pub fn add(&mut self, from: usize, to: usize, why: Dependency) {
        if from != to
            && let Some(edges) = self.edges.get_mut(from)
            && !edges.contains(&(to, why))
        {
            edges.push((to, why));
        }
    }

    /// Adds the order within sessions, of those transactions that have happened.
    pub fn add_sessions(&mut self, transactions: &[Transaction], has_happened: &[bool]) {
        let mut last: HashMap<u64, usize> = HashMap::new();
        for transaction in transactions.iter().filter(|t| has_happened.get(t.id) == Some(&true)) {
            if let Some(before) = last.insert(transaction.process, transaction.id) {
                self.add(before, transaction.id, Dependency::Session);
            }
        }
    }

    /// Adds the order of the clock, of those transactions that have happened.
    pub fn add_real_time(&mut self, transactions: &[Transaction], has_happened: &[bool]) {
        let happened = || transactions.iter().filter(|t| has_happened.get(t.id) == Some(&true));
        let mut ends: Vec<&Transaction> = happened().filter(|t| t.completed_ns < u64::MAX).collect();
        ends.sort_by_key(|transaction| transaction.completed_ns);
        let first = self.edges.len();
        self.edges.resize_with(first + ends.len(), Vec::new);
        for (at, transaction) in ends.iter().enumerate() {
            self.push(transaction.id, first + at, Dependency::RealTime);
            if at > 0 {
                self.push(first + at - 1, first + at, Dependency::RealTime);
            }
        }
        for transaction in happened() {
            let before = ends.partition_point(|other| other.completed_ns < transaction.invoked_ns);
            if before > 0 {
                self.push(first + before - 1, transaction.id, Dependency::RealTime);
            }
        }
    }

    fn push(&mut self, from: usize, to: usize, why: Dependency) {
        if let Some(edges) = self.edges.get_mut(from) {
            edges.push((to, why));
        }
    }

    fn from(&self, node: usize) -> &[(usize, Dependency)] {
        self.edges.get(node).map_or(&[], Vec::as_slice)
    }

    /// Names all components with cycles, by the data alone and by each order up to `order`.
    pub fn report(mut self, transactions: &[Transaction], order: Order, findings: &mut Findings) {
        let mut told: HashSet<(AnomalyKind, usize)> = HashSet::new();
        for order in [Order::Data, Order::Session, Order::RealTime].into_iter().filter(|o| *o <= order) {
            for component in self.components(order) {
                self.report_component(&component, order, transactions, &mut told, findings);
                if self.steps_left == 0 {
                    let size = component.len();
                    findings.undecided.push(format!(
                        "the search for cycles gave up after {STEPS_MAX} steps, in a component of {size}"
                    ));
                    return;
                }
            }
        }
    }

    fn report_component(
        &mut self,
        component: &[usize],
        order: Order,
        transactions: &[Transaction],
        told: &mut HashSet<(AnomalyKind, usize)>,
        findings: &mut Findings,
    ) {
        let members: HashSet<usize> = component.iter().copied().collect();
        for kind in Search::KINDS {
            for cycle in self.cycles(&members, component, order, kind) {
                // Without the order's own edges, or as another kind, it was told before.
                let mut is_new = |(node, _): &(usize, Dependency)| told.insert((kind, *node));
                if order_of(&cycle) != order || kind_of(&cycle) != kind || !cycle.iter().any(&mut is_new) {
                    continue;
                }
                let ids: Vec<usize> =
                    cycle.iter().map(|(node, _)| *node).filter(|node| *node < self.transactions).collect();
                let words = self.words(&cycle, transactions);
                findings.add(Class { kind, order }, key_of(&cycle), ids, words);
            }
        }
    }

    /// `T1 -ww(3)-> T2 -rw(4)-> T1`, without the moments.
    fn words(&self, cycle: &Cycle, transactions: &[Transaction]) -> String {
        let mut text = String::new();
        let mut first = None;
        for (node, why) in cycle {
            if *node < self.transactions {
                first = first.or(transactions.get(*node).map(|t| t.id));
                text.push_str(&format!("T{node} {} ", why.words()));
            }
        }
        text.push_str(&first.map_or_else(String::new, |id| format!("T{id}")));
        text
    }

    /// Some cycles of a kind within a component.
    fn cycles(
        &mut self,
        members: &HashSet<usize>,
        component: &[usize],
        order: Order,
        kind: AnomalyKind,
    ) -> Vec<Cycle> {
        let (mut found, transactions) = (Vec::new(), self.transactions);
        for &node in component.iter().filter(|node| **node < transactions) {
            let edges: Vec<(usize, Dependency)> = self.from(node).to_vec();
            for (to, why) in edges {
                if !members.contains(&to) || !Search::begins(kind, why, order) {
                    continue;
                }
                let search = Search { members, order, kind };
                if let Some(rest) = self.way(&search, to, node) {
                    let mut cycle = vec![(node, why)];
                    cycle.extend(rest);
                    found.push(cycle);
                    if found.len() >= CYCLES_MAX {
                        return found;
                    }
                }
                if self.steps_left == 0 {
                    return found;
                }
            }
        }
        found
    }

    /// The shortest way that a search may go; the state of each step says whether the one before missed a write.
    fn way(&mut self, search: &Search<'_>, from: usize, to: usize) -> Option<Cycle> {
        let begin = (from, search.kind == AnomalyKind::GNonadjacent);
        let mut came: Came = HashMap::new();
        let mut open = VecDeque::from([begin]);
        while let Some(state @ (node, after_missed)) = open.pop_front() {
            let edges = self.edges.get(node).map_or(&[][..], Vec::as_slice);
            for &(next, why) in edges {
                self.steps_left = self.steps_left.saturating_sub(1);
                if !search.goes(why, after_missed) || !search.members.contains(&next) {
                    continue;
                }
                let next_state = (next, search.kind == AnomalyKind::GNonadjacent && why.is_missed_write());
                if next == to && !(search.kind == AnomalyKind::GNonadjacent && why.is_missed_write()) {
                    return Some(backwards(&came, begin, state, why));
                }
                if next_state != begin && !came.contains_key(&next_state) {
                    came.insert(next_state, (state, why));
                    open.push_back(next_state);
                }
            }
            if self.steps_left == 0 {
                return None;
            }
        }
        None
    }

    /// Strongly connected components of more than one node (Tarjan), without recursion.
    fn components(&self, order: Order) -> Vec<Vec<usize>> {
        const NONE: usize = usize::MAX;
        let count = self.edges.len();
        let (mut index, mut low, mut on_stack) = (vec![NONE; count], vec![0; count], vec![false; count]);
        let (mut stack, mut next, mut found) = (Vec::new(), 0, Vec::new());
        for root in 0..count {
            if index[root] != NONE {
                continue;
            }
            let mut calls = vec![(root, 0)];
            while let Some((node, at)) = calls.pop() {
                if at == 0 {
                    (index[node], low[node], on_stack[node]) = (next, next, true);
                    next += 1;
                    stack.push(node);
                }
                let edges = self.from(node);
                let mut at = at;
                let mut child = None;
                while let Some(&(to, why)) = edges.get(at) {
                    at += 1;
                    if !why.is_within(order) {
                        continue;
                    }
                    if index[to] == NONE {
                        child = Some(to);
                        break;
                    }
                    if on_stack[to] {
                        low[node] = low[node].min(index[to]);
                    }
                }
                if let Some(to) = child {
                    calls.extend([(node, at), (to, 0)]);
                    continue;
                }
                if low[node] == index[node] {
                    let begin = stack.iter().rposition(|other| *other == node).unwrap_or(0);
                    let component = stack.split_off(begin);
                    component.iter().for_each(|other| on_stack[*other] = false);
                    if component.len() > 1 {
                        found.push(component);
                    }
                }
                if let Some(&(parent, _)) = calls.last() {
                    low[parent] = low[parent].min(low[node]);
                }
            }
        }
        found
    }
}

/// What a search for one kind of cycle may use.
struct Search<'a> {
    members: &'a HashSet<usize>,
    order: Order,
    kind: AnomalyKind,
}

impl Search<'_> {
    /// The worst first.
    const KINDS: [AnomalyKind; 5] = [
        AnomalyKind::G0,
        AnomalyKind::G1c,
        AnomalyKind::GSingle,
        AnomalyKind::GNonadjacent,
        AnomalyKind::G2Item,
    ];

    /// The edge that makes a cycle one of this kind.
    fn begins(kind: AnomalyKind, why: Dependency, order: Order) -> bool {
        why.is_within(order)
            && match kind {
                AnomalyKind::G0 => matches!(why, Dependency::WriteWrite(_)),
                AnomalyKind::G1c => matches!(why, Dependency::WriteRead(_)),
                _ => why.is_missed_write(),
            }
    }

    fn goes(&self, why: Dependency, after_missed: bool) -> bool {
        why.is_within(self.order)
            && match self.kind {
                AnomalyKind::G0 => !matches!(why, Dependency::WriteRead(_) | Dependency::ReadWrite(_)),
                AnomalyKind::G1c | AnomalyKind::GSingle => !why.is_missed_write(),
                AnomalyKind::GNonadjacent => !(after_missed && why.is_missed_write()),
                _ => true,
            }
    }
}

/// The way that was found, from its begin on.
fn backwards(came: &Came, begin: State, last: State, why: Dependency) -> Cycle {
    let mut way = vec![(last.0, why)];
    let mut at = last;
    while at != begin {
        let Some(&(before, why)) = came.get(&at) else { break };
        way.push((before.0, why));
        at = before;
    }
    way.reverse();
    way
}

/// What a cycle is called.
fn kind_of(cycle: &Cycle) -> AnomalyKind {
    let missed: Vec<bool> = cycle.iter().map(|(_, why)| why.is_missed_write()).collect();
    let has_read = cycle.iter().any(|(_, why)| matches!(why, Dependency::WriteRead(_)));
    let next = missed.iter().cycle().skip(1);
    let has_two_in_a_row = missed.iter().zip(next).any(|(one, other)| *one && *other);
    match missed.iter().filter(|is_missed| **is_missed).count() {
        0 if has_read => AnomalyKind::G1c,
        0 => AnomalyKind::G0,
        1 => AnomalyKind::GSingle,
        _ if has_two_in_a_row => AnomalyKind::G2Item,
        _ => AnomalyKind::GNonadjacent,
    }
}

/// The latest order that a cycle needs.
fn order_of(cycle: &Cycle) -> Order {
    let orders = cycle.iter().map(|(_, why)| match why {
        Dependency::RealTime => Order::RealTime,
        Dependency::Session => Order::Session,
        _ => Order::Data,
    });
    orders.max().unwrap_or(Order::Data)
}

fn key_of(cycle: &Cycle) -> Option<Key> {
    cycle.iter().find_map(|(_, why)| match why {
        Dependency::WriteWrite(key) | Dependency::WriteRead(key) | Dependency::ReadWrite(key) => Some(*key),
        Dependency::Session | Dependency::RealTime => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(edges: &[(usize, usize, Dependency)], order: Order) -> Vec<String> {
        let mut graph = Graph::new(5);
        edges.iter().for_each(|&(from, to, why)| graph.add(from, to, why));
        let mut findings = Findings::default();
        graph.report(&[], order, &mut findings);
        findings.names()
    }

    #[test]
    fn cycles_have_the_names_of_adya_and_elle() {
        use Dependency::{ReadWrite, Session, WriteRead, WriteWrite};
        let (ww, wr, rw) = (WriteWrite(1), WriteRead(1), ReadWrite(1));
        let data = |edges: &[(usize, usize, Dependency)]| names(edges, Order::Data);
        assert_eq!(data(&[(0, 1, ww), (1, 0, ww)]), ["G0"]);
        assert_eq!(data(&[(0, 1, wr), (1, 0, ww)]), ["G1c"]);
        assert_eq!(data(&[(0, 1, rw), (1, 0, wr)]), ["G-single"]);
        assert_eq!(data(&[(0, 1, rw), (1, 0, rw)]), ["G2-item"]);
        // Long fork: two readers miss what the other one has seen.
        assert_eq!(data(&[(0, 1, rw), (1, 2, wr), (2, 3, rw), (3, 0, wr)]), ["G-nonadjacent"]);
        assert!(data(&[(0, 1, ww), (1, 2, wr), (0, 2, rw)]).is_empty());
        // An order is only looked at if it is asked for.
        let stale = [(0, 1, rw), (1, 0, Session)];
        assert!(data(&stale).is_empty());
        assert_eq!(names(&stale, Order::Session), ["G-single-session"]);
    }

    #[test]
    fn three_missed_writes_in_a_row_and_one_alone_are_write_skew() {
        let rw = Dependency::ReadWrite(1);
        assert_eq!(names(&[(0, 1, rw), (1, 2, rw), (2, 0, rw)], Order::Data), ["G2-item"]);
    }
}
