//! Finds where the rows of unqualified INSERTs land, and their values.

use weir_lab::Error;

use crate::client::Client;
use crate::names::Names;
use crate::variables::rows;

/// Every schema that an INSERT might land in has a table `mark`.
const LETTERS: [char; 5] = ['a', 'b', 'c', 'd', 'o'];
/// Numbers may be lost where an INSERT was rolled back, or failed.
const GAP_MAX: i64 = 1000;

/// What has been seen of the tables.
#[derive(Debug)]
pub(crate) struct Marks {
    schemas: [String; 5],
    /// The highest id that has been seen in each.
    last: [i64; 5],
    /// Whether a row with id 0 has been seen: the one after MySQL's `SET_VAR(insert_id = ...)`.
    zero: [bool; 5],
    is_disordered: bool,
}

impl Marks {
    /// Of empty tables.
    pub(crate) fn new(names: &Names) -> Marks {
        let schemas = LETTERS.map(|letter| names.schema(letter));
        Marks { schemas, last: [0; 5], zero: [false; 5], is_disordered: true }
    }

    /// The rows that have come since the last call, as in "b: B"; the control sees also those that are not committed.
    pub(crate) fn found(&mut self, control: &mut Client) -> Result<String, Error> {
        let one = |at: usize| {
            let zero = if self.zero[at] { "" } else { " OR id = 0" };
            format!(
                "SELECT {at}, id, who, made < NOW() - INTERVAL 1 DAY OR made > NOW() + INTERVAL 1 DAY \
                 FROM {}.mark WHERE id > {}{zero}",
                self.schemas[at], self.last[at]
            )
        };
        let sql = (0..LETTERS.len()).map(one).collect::<Vec<_>>().join(" UNION ALL ");
        let mut texts = Vec::new();
        for row in rows(control, &sql)? {
            let [at, id, who, is_odd_time] = row.as_slice() else { continue };
            let (Ok(at), Ok(id)) = (at.parse::<usize>(), id.parse::<i64>()) else { continue };
            let (Some(last), Some(letter)) = (self.last.get_mut(at), LETTERS.get(at)) else { continue };
            self.zero[at] |= id == 0;
            let mut text = format!("{letter}: {who}");
            if id == 0 || id > *last + GAP_MAX {
                text += &format!(" with id {id}");
                self.is_disordered = true;
            }
            if is_odd_time != "0" {
                text += " at another time";
            }
            *last = (*last).max(id);
            texts.push(text);
        }
        Ok(texts.join(", "))
    }

    /// Whether numbers have been used that come later by themselves.
    pub(crate) fn is_disordered(&self) -> bool {
        self.is_disordered
    }

    /// What begins anew.
    pub(crate) fn sweep(&mut self) -> Vec<String> {
        (self.last, self.zero) = ([0; 5], [false; 5]);
        self.is_disordered = false;
        self.schemas.iter().map(|schema| format!("TRUNCATE TABLE {schema}.mark")).collect()
    }
}
