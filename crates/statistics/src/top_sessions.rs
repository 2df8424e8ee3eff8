//! Picks the first rows of many, without sorting all of them.

use std::cmp::Reverse;

use weir_proxy::stats::SessionRow;

/// Sessions: busy ones first, then pinned ones, each from the longest on.
pub fn first_sessions(workers: &[(usize, Vec<SessionRow>)], rows_max: usize) -> Vec<&SessionRow> {
    let rows: Vec<&SessionRow> = workers.iter().flat_map(|(_, rows)| rows).collect();
    first(rows, rows_max, |row| (row.phase == "idle", row.pins.is_empty(), Reverse(row.since_ns), row.id))
}

fn first<T, K: Ord>(mut rows: Vec<T>, rows_max: usize, key: impl Fn(&T) -> K) -> Vec<T> {
    if rows_max < rows.len() {
        rows.select_nth_unstable_by_key(rows_max, &key);
        rows.truncate(rows_max);
    }
    rows.sort_by_key(key);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many() {
        let rows = vec![5, 3, 9, 1, 7];
        assert_eq!(first(rows.clone(), 2, |row| Reverse(*row)), [9, 7]);
        assert_eq!(first(rows.clone(), 5, |row| *row), [1, 3, 5, 7, 9]);
        assert_eq!(first(rows.clone(), 9, |row| *row), [1, 3, 5, 7, 9]);
        assert_eq!(first(rows, 0, |row| *row), Vec::<i32>::new());
    }
}
