//! Reads everything on every server when all is well again, and compares the servers.

use std::collections::BTreeMap;

use weir_client::Connection;
use weir_jepsen::checker::{AnomalyKind, Class, Findings, History, Op};
use weir_lab::Error;

use crate::client::{options, values};
use crate::stage::Stage;
use crate::workload::Workload;

/// What a server has in a table: id and value of each row.
type Rows = Vec<(u64, String)>;

/// Adds the last reads to the histories, from the first server; the others must have the same.
pub(crate) fn read(
    stage: &Stage<'_>,
    histories: &mut BTreeMap<Workload, History>,
) -> Result<BTreeMap<Workload, Findings>, Error> {
    let mut diverged = BTreeMap::new();
    for (workload, history) in histories {
        let mut first: Option<(String, Rows)> = None;
        for server in stage.servers.awake() {
            let mut connection = Connection::connect(&options(server.address))?;
            if let Some(causal) = stage.servers.causal() {
                connection.query(causal)?;
            }
            let rows = rows(&mut connection, workload.table())?;
            match &first {
                None => first = Some((server.name, rows)),
                Some((name, expected)) if *expected != rows => {
                    let words = difference(name, expected, &server.name, &rows);
                    let findings: &mut Findings = diverged.entry(*workload).or_default();
                    findings.add(Class::of(AnomalyKind::Diverged), None, Vec::new(), words);
                }
                Some(_) => {}
            }
        }
        if let Some((_, rows)) = first {
            history.push_final(ops(*workload, &rows));
        }
    }
    Ok(diverged)
}

fn rows(connection: &mut Connection, table: &str) -> Result<Rows, Error> {
    let result = connection.query(&format!("SELECT id, v FROM {table} ORDER BY id"))?;
    let row = |(id, value): (&str, &str)| Some((id.parse().ok()?, value.to_owned()));
    Ok(result.pairs().filter_map(row).collect())
}

fn difference(one: &str, rows: &Rows, other: &str, others: &Rows) -> String {
    let at = rows.iter().zip(others).position(|(row, other)| row != other);
    let at = at.unwrap_or(rows.len().min(others.len()));
    format!(
        "{one} has {} rows and {other} has {}; the first difference: {:?} and {:?}",
        rows.len(),
        others.len(),
        rows.get(at),
        others.get(at)
    )
}

/// The rows as reads of the workload.
fn ops(workload: Workload, rows: &Rows) -> Vec<Op> {
    let number = |text: &String| text.parse().unwrap_or(0);
    match workload {
        Workload::ListAppend => {
            let list = |(key, text): &(u64, String)| Op::List { key: *key, found: Some(values(text)) };
            rows.iter().map(list).collect()
        }
        Workload::RwRegister | Workload::Register | Workload::Session => {
            let read = |(key, text): &(u64, String)| Op::Read { key: *key, found: Some(number(text)) };
            rows.iter().map(read).collect()
        }
        Workload::Bank => {
            let balances = rows.iter().map(|(_, text)| text.parse().unwrap_or(0)).collect();
            vec![Op::Balances { found: Some(balances) }]
        }
        Workload::Set => {
            let members = rows.iter().map(|(_, text)| number(text)).collect();
            vec![Op::Members { found: Some(members) }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_reads_and_differences_are_named() {
        let rows: Rows = vec![(0, "3,4,".to_owned()), (1, String::new())];
        assert_eq!(
            ops(Workload::ListAppend, &rows),
            [Op::List { key: 0, found: Some(vec![3, 4]) }, Op::List { key: 1, found: Some(Vec::new()) }]
        );
        let others: Rows = vec![(0, "3,".to_owned()), (1, String::new())];
        let words = difference("n1", &rows, "n2", &others);
        assert!(
            words.contains("n1 has 2 rows") && words.contains("\"3,4,\"") && words.contains("\"3,\""),
            "{words}"
        );
    }
}
