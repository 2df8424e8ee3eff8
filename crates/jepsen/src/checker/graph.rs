//! Finds cycles of dependencies between transactions, and names them.
//!
//! Nodes are transactions; behind them stand moments, which keep the order of the clock without an edge for each pair: a
//! transaction leads to the moment of its end, a moment to the next one, and the last moment before a transaction's
//! begin to it.

use std::collections::{HashMap, HashSet, VecDeque};

use super::anomaly::{AnomalyKind, Class, Findings, Order};
use super::history::{Key, Transaction};

/// Edges that are looked at in one search for cycles.
const STEPS_MAX: usize = 50_000_000;
/// Cycles of one class that are looked for.
const CYCLES_MAX: usize = 40;

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
}

/// A cycle: each node, and the edge to the next one.
type Cycle = Vec<(usize, Dependency)>;

impl Graph {
    /// So many transactions, without an edge.
    pub fn new(transactions: usize) -> Graph {
        Graph { edges: vec![Vec::new(); transactions], transactions }
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

    /// Names the cycles, by the data alone and by each order up to `order`.
    pub fn report(self, transactions: &[Transaction], order: Order, findings: &mut Findings) {
        let mut search = Search {
            graph: &self,
            came: vec![(0, 0, Dependency::RealTime); self.edges.len() * 2],
            searches: 0,
            steps_left: STEPS_MAX,
            told: HashSet::new(),
        };
        for order in [Order::Data, Order::Session, Order::RealTime].into_iter().filter(|o| *o <= order) {
            search.report(order, transactions, findings);
        }
        if search.steps_left == 0 {
            findings.undecided.push(format!("the search for cycles gave up after {STEPS_MAX} steps"));
        }
    }

    /// `T1 -ww(3)-> T2 -rw(4)-> T1`, without the moments.
    fn words(&self, cycle: &Cycle) -> String {
        let mut text = String::new();
        let is_transaction = |node: &usize| *node < self.transactions;
        for (node, why) in cycle.iter().filter(|(node, _)| is_transaction(node)) {
            text.push_str(&format!("T{node} {} ", why.words()));
        }
        let first = cycle.iter().map(|(node, _)| *node).find(is_transaction);
        text.push_str(&first.map_or_else(String::new, |id| format!("T{id}")));
        text
    }

    /// For each node the number of its component among the edges that are wanted; an edge never leads to a component
    /// with a greater number.
    fn components(&self, order: Order, is_wanted: impl Fn(Dependency) -> bool) -> Vec<usize> {
        components(self.edges.len(), |node, at| {
            let &(to, why) = self.from(node).get(at)?;
            Some((why.is_within(order) && is_wanted(why)).then_some(to))
        })
    }

    /// The same of nodes with a state, twice the node and one more after a missed write, where no two missed writes
    /// follow each other.
    fn components_of_states(&self, order: Order) -> Vec<usize> {
        components(self.edges.len() * 2, |state, at| {
            let &(to, why) = self.from(state / 2).get(at)?;
            let is_missed = why.is_missed_write();
            let goes = why.is_within(order) && !(is_missed && state % 2 == 1);
            Some(goes.then_some(to * 2 + usize::from(is_missed)))
        })
    }
}

/// Strongly connected components (Tarjan), without recursion: `edge` gives a node's edges one by one, and `Some(None)` for
/// one that does not count.
fn components(count: usize, edge: impl Fn(usize, usize) -> Option<Option<usize>>) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let (mut index, mut low, mut component) = (vec![NONE; count], vec![0; count], vec![NONE; count]);
    let (mut stack, mut next, mut found) = (Vec::new(), 0, 0);
    for root in 0..count {
        if index[root] != NONE {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some((node, mut at)) = calls.pop() {
            if at == 0 && index[node] == NONE {
                (index[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
            }
            let mut child = None;
            while let Some(to) = edge(node, at) {
                at += 1;
                let Some(to) = to else { continue };
                if index[to] == NONE {
                    child = Some(to);
                    break;
                }
                if component[to] == NONE {
                    low[node] = low[node].min(index[to]);
                }
            }
            if let Some(to) = child {
                calls.extend([(node, at), (to, 0)]);
                continue;
            }
            if low[node] == index[node] {
                while let Some(other) = stack.pop() {
                    component[other] = found;
                    if other == node {
                        break;
                    }
                }
                found += 1;
            }
            if let Some(&(parent, _)) = calls.last() {
                low[parent] = low[parent].min(low[node]);
            }
        }
    }
    component
}

/// A search for cycles, with its memory of where it came from.
struct Search<'a> {
    graph: &'a Graph,
    /// For each state: in which search it was reached, from which state, and why.
    came: Vec<(u32, usize, Dependency)>,
    searches: u32,
    steps_left: usize,
    told: HashSet<(AnomalyKind, usize)>,
}

/// The worst first.
const KINDS: [AnomalyKind; 5] =
    [AnomalyKind::G0, AnomalyKind::G1c, AnomalyKind::GSingle, AnomalyKind::GNonadjacent, AnomalyKind::G2Item];

impl Search<'_> {
    fn report(&mut self, order: Order, transactions: &[Transaction], findings: &mut Findings) {
        for kind in KINDS {
            let found = self.cycles(order, kind);
            for cycle in found {
                let mut is_new = |(node, _): &(usize, Dependency)| self.told.insert((kind, *node));
                if !cycle.iter().any(&mut is_new) {
                    continue;
                }
                let is_transaction =
                    |node: &usize| transactions.is_empty() || *node < self.graph.transactions;
                let ids = cycle.iter().map(|(node, _)| *node).filter(is_transaction).collect();
                findings.add(Class { kind, order }, key_of(&cycle), ids, self.graph.words(&cycle));
            }
        }
    }

    /// Some cycles of a kind that need this order: where components say that there are any.
    fn cycles(&mut self, order: Order, kind: AnomalyKind) -> Vec<Cycle> {
        let graph = self.graph;
        let missed = Dependency::is_missed_write;
        let is_read = |why: Dependency| matches!(why, Dependency::WriteRead(_));
        // No way leads to a component with a greater number: what is below the end is not looked at.
        let rank = match kind {
            AnomalyKind::G0 => graph.components(order, |why| !missed(why) && !is_read(why)),
            AnomalyKind::G1c | AnomalyKind::GSingle => graph.components(order, |why| !missed(why)),
            AnomalyKind::GNonadjacent => graph.components_of_states(order),
            _ => graph.components(order, |_| true),
        };
        let states = (kind == AnomalyKind::GSingle).then(|| graph.components_of_states(order));
        let mut found: Vec<Cycle> = Vec::new();
        for node in 0..graph.transactions {
            for &(to, why) in graph.from(node) {
                let is_begin = why.is_within(order)
                    && match kind {
                        AnomalyKind::G0 => matches!(why, Dependency::WriteWrite(_)),
                        AnomalyKind::G1c => is_read(why),
                        _ => missed(why),
                    };
                let is_in_one = match (kind, &states) {
                    (AnomalyKind::GNonadjacent, _) => rank[node * 2] == rank[to * 2 + 1],
                    (_, Some(states)) => states[node * 2] == states[to * 2 + 1] && rank[to] >= rank[node],
                    _ => rank[node] == rank[to],
                };
                if !is_begin || !is_in_one || self.steps_left == 0 {
                    continue;
                }
                let Some(rest) = self.way(order, kind, &rank, to, node) else { continue };
                let mut cycle = vec![(node, why)];
                cycle.extend(rest);
                // Without the order's own edges, or as another kind, it is told elsewhere.
                if order_of(&cycle) == order && kind_of(&cycle) == kind {
                    found.push(cycle);
                    if found.len() >= CYCLES_MAX {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// The shortest way that a cycle of this kind may go on.
    fn way(
        &mut self,
        order: Order,
        kind: AnomalyKind,
        rank: &[usize],
        from: usize,
        to: usize,
    ) -> Option<Cycle> {
        self.searches += 1;
        let graph = self.graph;
        let has_states = kind == AnomalyKind::GNonadjacent;
        let state_of = |node: usize, is_missed: bool| node * 2 + usize::from(has_states && is_missed);
        let rank_of = |state: usize| rank[if has_states { state } else { state / 2 }];
        let (begin, end) = (state_of(from, true), state_of(to, false));
        self.came[begin].0 = self.searches;
        let mut open = VecDeque::from([begin]);
        while let Some(state) = open.pop_front() {
            for &(next, why) in graph.from(state / 2) {
                self.steps_left = self.steps_left.saturating_sub(1);
                let is_missed = why.is_missed_write();
                let goes = why.is_within(order)
                    && match kind {
                        AnomalyKind::G0 => !is_missed && !matches!(why, Dependency::WriteRead(_)),
                        AnomalyKind::G1c | AnomalyKind::GSingle => !is_missed,
                        AnomalyKind::GNonadjacent => !(is_missed && state % 2 == 1),
                        _ => true,
                    };
                let next = state_of(next, is_missed);
                if !goes || rank_of(next) < rank_of(end) {
                    continue;
                }
                if next == end {
                    return Some(self.backwards(begin, state, why));
                }
                if self.came[next].0 != self.searches {
                    self.came[next] = (self.searches, state, why);
                    open.push_back(next);
                }
            }
            if self.steps_left == 0 {
                return None;
            }
        }
        None
    }

    /// The way that was found, from its begin on.
    fn backwards(&self, begin: usize, last: usize, why: Dependency) -> Cycle {
        let mut way = vec![(last / 2, why)];
        let mut at = last;
        while at != begin {
            let (_, before, why) = self.came[at];
            way.push((before / 2, why));
            at = before;
        }
        way.reverse();
        way
    }
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
