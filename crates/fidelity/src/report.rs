//! Makes the matrix: tables for people, everything for programs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use weir_lab::report::aligned;

use crate::comparison::{Finding, Outcome};
use crate::{IoDriver, Options, limits};

/// Counts up when a field changes its meaning.
const FORMAT: u32 = 3;
/// Pieces of evidence that are printed for a cell; the JSON has all.
const EVIDENCE_MAX: usize = 3;

/// One way to one state.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// How.
    pub way: &'static str,
    /// What.
    pub state: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What explains the differences, or some of them ([`crate::limits`]).
    pub(crate) limit: Option<&'static str>,
    /// The differences.
    pub(crate) findings: Vec<Finding>,
    /// Differences that were there once and not when the cell was played again on a connection of its own: another cell
    /// has left something behind that its own looks do not show, or it depends on the moment.
    pub(crate) once: Vec<Finding>,
}

impl Cell {
    /// `way/state: evidence`.
    fn line(&self, findings: &[Finding]) -> String {
        let wrong: Vec<&str> = findings
            .iter()
            .filter(|finding| finding.outcome == Outcome::Wrong)
            .map(|finding| finding.text.as_str())
            .collect();
        let shown = wrong.iter().take(EVIDENCE_MAX).copied().collect::<Vec<_>>().join("\n    ");
        let more = match wrong.len().saturating_sub(EVIDENCE_MAX) {
            0 => String::new(),
            more => format!("\n    and {more} more"),
        };
        format!("{}/{}\n    {shown}{more}", self.way, self.state)
    }
}

/// Everything that was played.
#[derive(Debug, Serialize)]
pub struct Report {
    format: u32,
    server: String,
    io: IoDriver,
    reset_after_hidden_code: bool,
    /// How long it took.
    pub(crate) seconds: f64,
    /// What a session of Weir shows of itself that a server's doesn't, without anybody's doing.
    pub(crate) own: Vec<String>,
    /// Variables of the session that can't be set.
    pub(crate) unsettable: Vec<String>,
    /// All cells, by way and state.
    pub cells: Vec<Cell>,
}

impl Report {
    pub(crate) fn new(server: &str, options: &Options, mut cells: Vec<Cell>, ways: &[&str]) -> Report {
        let place = |cell: &Cell| ways.iter().position(|way| *way == cell.way);
        cells.sort_by(|a, b| place(a).cmp(&place(b)).then_with(|| a.state.cmp(&b.state)));
        Report {
            format: FORMAT,
            server: server.to_owned(),
            io: options.io,
            reset_after_hidden_code: options.reset_after_hidden_code,
            seconds: 0.0,
            own: Vec::new(),
            unsettable: Vec::new(),
            cells,
        }
    }

    /// Whether nobody saw anything wrong that no limit explains, not even once.
    pub fn is_good(&self) -> bool {
        self.cells.iter().all(|cell| cell.outcome != Outcome::Wrong && cell.once.is_empty())
    }

    /// The cells that are wrong, with what was seen; and those that were once.
    pub fn wrong(&self) -> String {
        wrong(&self.cells)
    }

    /// Tables by way and by state, and the sum.
    pub fn summary(&self) -> String {
        let all = OutcomeCounts::of(self.cells.iter());
        let mut text = self.table("way", |cell| cell.way.to_owned(), |_| true);
        text.push('\n');
        // Hundreds of variables are alike.
        let is_special = |counts: &OutcomeCounts| counts.wrong + counts.limit + counts.refused > 0;
        text += &self.table("state", |cell| cell.state.clone(), is_special);
        text.push('\n');
        for limit in &limits::ALL {
            let cells = self.cells.iter().filter(|cell| cell.limit == Some(limit.name)).count();
            let _ = writeln!(text, "limit \"{}\", {cells} cells: {}", limit.name, limit.why);
        }
        let _ = write!(
            text,
            "\n{} on {}{}: {} cells in {:.0} s: {} the same, {} the same while others wait, {} refused; {} do not \
             apply\n{} wrong, {} wrong once, {} explained limits\n",
            self.server,
            self.io.name(),
            if self.reset_after_hidden_code { " with reset_after_hidden_code" } else { "" },
            self.cells.len(),
            self.seconds,
            all.same,
            all.waits,
            all.refused,
            all.na,
            all.wrong,
            self.cells.iter().filter(|cell| !cell.once.is_empty()).count(),
            all.limit,
        );
        text
    }

    fn table(
        &self,
        what: &str,
        key: impl Fn(&Cell) -> String,
        is_shown: impl Fn(&OutcomeCounts) -> bool,
    ) -> String {
        let mut keys: Vec<String> = Vec::new();
        let mut all_counts: BTreeMap<String, OutcomeCounts> = BTreeMap::new();
        for cell in &self.cells {
            let key = key(cell);
            if !all_counts.contains_key(&key) {
                keys.push(key.clone());
            }
            all_counts.entry(key).or_default().add(cell);
        }
        let mut rows =
            vec![[what, "same", "waits", "refused", "limit", "WRONG", "n/a"].map(str::to_owned).to_vec()];
        let mut others = (0, OutcomeCounts::default());
        for key in keys {
            let counts = all_counts.remove(&key).unwrap_or_default();
            if is_shown(&counts) {
                rows.push(counts.row(&key));
            } else {
                others.0 += 1;
                others.1 = others.1.plus(&counts);
            }
        }
        if others.0 > 0 {
            rows.push(others.1.row(&format!("{} others", others.0)));
        }
        aligned(&rows, 1)
    }
}

/// See [`Report::wrong`].
pub(crate) fn wrong(cells: &[Cell]) -> String {
    let mut text = String::new();
    for cell in cells.iter().filter(|cell| cell.outcome == Outcome::Wrong) {
        // Writing to a String can't fail.
        let _ = writeln!(text, "WRONG {}", cell.line(&cell.findings));
    }
    for cell in cells.iter().filter(|cell| !cell.once.is_empty()) {
        let _ = writeln!(text, "ONCE {}", cell.line(&cell.once));
    }
    text
}

/// How many cells of each outcome.
#[derive(Debug, Clone, Default)]
struct OutcomeCounts {
    same: usize,
    waits: usize,
    refused: usize,
    limit: usize,
    wrong: usize,
    na: usize,
}

impl OutcomeCounts {
    fn of<'a>(cells: impl Iterator<Item = &'a Cell>) -> OutcomeCounts {
        let mut counts = OutcomeCounts::default();
        cells.for_each(|cell| counts.add(cell));
        counts
    }

    fn add(&mut self, cell: &Cell) {
        *match cell.outcome {
            Outcome::Na => &mut self.na,
            Outcome::Same => &mut self.same,
            Outcome::Waits => &mut self.waits,
            Outcome::Refused => &mut self.refused,
            Outcome::Limit => &mut self.limit,
            Outcome::Wrong => &mut self.wrong,
        } += 1;
    }

    fn plus(&self, other: &OutcomeCounts) -> OutcomeCounts {
        OutcomeCounts {
            same: self.same + other.same,
            waits: self.waits + other.waits,
            refused: self.refused + other.refused,
            limit: self.limit + other.limit,
            wrong: self.wrong + other.wrong,
            na: self.na + other.na,
        }
    }

    fn row(&self, name: &str) -> Vec<String> {
        let numbers = [self.same, self.waits, self.refused, self.limit, self.wrong, self.na];
        std::iter::once(name.to_owned()).chain(numbers.map(|number| number.to_string())).collect()
    }
}
