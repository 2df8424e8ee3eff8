//! Lays out rows of cells, the first of them headings, as text.

use std::fmt::Write as _;

/// Between two columns.
const GAP: &str = "  ";

/// For a terminal: the first `left` columns to the left, everything else to the right of its column.
pub fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, &width))| match column < left {
                true => format!("{cell:<width$}"),
                false => format!("{cell:>width$}"),
            })
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// As Markdown has them.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let mut text = String::new();
    for (i, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        // Writing to a String can't fail.
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if i == 0 {
            let _ = writeln!(text, "|{}", " --- |".repeat(row.len()));
        }
    }
    text
}

/// The same with a capital at the begin, but for the name of a program or workload, which has a `_`.
pub fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) if !text.split(' ').next().unwrap_or_default().contains('_') => {
            first.to_uppercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<String>> {
        [["what", "ms"], ["a|b", "10.5"]].map(|row| row.map(str::to_owned).to_vec()).to_vec()
    }

    #[test]
    fn columns_are_aligned_and_bars_in_cells_are_none() {
        assert_eq!(aligned(&rows(), 1), "what    ms\na|b   10.5\n");
        assert_eq!(markdown(&rows()), "| what | ms |\n| --- | --- |\n| a\\|b | 10.5 |\n");
    }

    #[test]
    fn titles_begin_with_a_capital_but_for_names() {
        assert_eq!(capitalised("planned switchovers"), "Planned switchovers");
        assert_eq!(capitalised("oltp_read_only, text protocol"), "oltp_read_only, text protocol");
        assert_eq!(capitalised(""), "");
    }
}
