//! Checks what the history's database keeps.

use std::cell::Cell;

use weir_store::{STATS_FILE, Store};

use super::*;
use crate::history_writer::Unwritten;

/// Numbers that grow by one with each call.
#[derive(Default)]
struct Growing(Cell<u64>);

impl Growing {
    fn next(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }
}

impl Figures for Growing {
    fn global(&self) -> Vec<(&'static str, u64)> {
        let value = self.next();
        vec![
            ("Questions", value * 10),
            ("Client_Connections_connected", value),
            ("MyHGM_myconnpoll_get", value),
        ]
    }

    fn connection_pool(&self) -> Rows {
        let mut row = vec![Value::Integer(1), Value::Text("db1".to_owned()), Value::Integer(3306)];
        row.push(Value::Text("ONLINE".to_owned()));
        row.extend((0..10).map(Value::Integer));
        vec![row]
    }

    fn cpu_ticks(&self) -> (u64, u64) {
        (self.next(), 7)
    }

    fn memory_bytes(&self) -> (u64, u64, u64) {
        (1000, self.next(), 3000)
    }
}

/// Digests that took 50 and 5.
fn digests() -> Rows {
    let row = |sum_time: i64| {
        let mut row = vec![Value::Integer(1)];
        row.extend((0..5).map(|_| Value::Text("x".to_owned())));
        row.extend([1, 2, 3, sum_time, 1, 1, 0, 0].map(Value::Integer));
        row
    };
    vec![row(50), row(5)]
}

fn history() -> (tempfile::TempDir, History) {
    let datadir = tempfile::tempdir().expect("a directory");
    drop(Store::open(datadir.path()).expect("a store"));
    let history = History::open(&datadir.path().join(STATS_FILE)).expect("the file");
    (datadir, history)
}

fn numbers(history: &History, query: &str) -> Vec<Vec<i64>> {
    let mut statement = history.connection.prepare(query).expect("a query");
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|at| row.get(at)).collect()).expect("rows");
    rows.collect::<Result<_, _>>().expect("numbers")
}

#[test]
fn every_subject_has_its_rows() {
    let (_datadir, mut history) = history();
    let figures = Growing::default();
    for subject in Subject::ALL {
        history.record(subject, 1_000_000, &figures).expect("a row");
        history.record(subject, 1_000_060, &figures).expect("a row");
    }
    for at_s in [1_000_000, 1_000_060] {
        history.record_digests(at_s, &digests()).expect("rows");
    }
    assert_eq!(
        numbers(&history, "SELECT timestamp, Questions, Client_Connections_connected FROM mysql_connections"),
        [[1_000_000, 10, 1], [1_000_060, 20, 2]]
    );
    assert_eq!(numbers(&history, "SELECT count(*) FROM myhgm_connections"), [[2]]);
    assert_eq!(numbers(&history, "SELECT tms_utime, tms_stime FROM system_cpu"), [[3, 7], [4, 7]]);
    assert_eq!(
        numbers(&history, "SELECT allocated, resident, mapped FROM system_memory")[0],
        [1000, 5, 3000]
    );
    assert_eq!(numbers(&history, "SELECT count(*) FROM history_stats_mysql_connection_pool"), [[2]]);
    assert_eq!(
        numbers(&history, "SELECT sum_time FROM history_mysql_query_digest WHERE dump_time = 1000060"),
        [[50], [5]]
    );
    assert_eq!(
        numbers(
            &history,
            "SELECT CAST(variable_value AS INT) FROM history_mysql_status_variables \
             JOIN history_mysql_status_variables_lookup USING (variable_id) WHERE variable_name = 'Questions'"
        ),
        [[10], [20]]
    );
}

#[test]
fn hours_and_days_follow_when_they_are_over_and_old_rows_go() {
    let (_datadir, mut history) = history();
    let figures = Growing::default();
    let begin = 100 * DAY_S;
    for minute in 0..120 {
        history.record(Subject::Connections, begin + minute * 60, &figures).expect("a row");
        history.record(Subject::Cpu, begin + minute * 60, &figures).expect("a row");
    }
    let hours = "SELECT timestamp, Questions, Client_Connections_connected FROM mysql_connections_hour";
    history.tidy(begin + HOUR_S - 1).expect("nothing yet");
    assert!(numbers(&history, hours).is_empty());
    history.tidy(begin + 2 * HOUR_S).expect("two hours");
    // The numbers grow by two a minute: two subjects.
    let (first, second) = (begin as i64, (begin + HOUR_S) as i64);
    assert_eq!(numbers(&history, hours), [[first, 1190, 60], [second, 2390, 180]]);
    assert_eq!(numbers(&history, "SELECT tms_utime FROM system_cpu_hour"), [[120], [240]]);
    assert_eq!(numbers(&history, "SELECT count(*) FROM history_mysql_status_variables_hour"), [[6]]);
    assert!(numbers(&history, "SELECT * FROM mysql_connections_day").is_empty());
    history.tidy(begin + 2 * HOUR_S).expect("nothing to do");
    history.tidy(begin + DAY_S).expect("a day");
    assert_eq!(
        numbers(
            &history,
            "SELECT timestamp, Questions, Client_Connections_connected FROM mysql_connections_day"
        ),
        [[first, 2390, 120]]
    );
    history.tidy(begin + 8 * DAY_S).expect("a week");
    assert_eq!(numbers(&history, "SELECT count(*) FROM mysql_connections"), [[0]]);
    assert_eq!(numbers(&history, "SELECT count(*) FROM mysql_connections_hour"), [[2]]);
    history.tidy(begin + 400 * DAY_S).expect("a year");
    assert_eq!(numbers(&history, "SELECT count(*) FROM mysql_connections_hour"), [[0]]);
    assert_eq!(numbers(&history, "SELECT count(*) FROM mysql_connections_day"), [[1]]);
}

#[test]
fn what_was_recorded_is_there_for_the_next_process() {
    let (datadir, mut history) = history();
    history.record(Subject::Memory, 5, &Growing::default()).expect("a row");
    // Not closed in order: as after a kill.
    std::mem::forget(history);
    let again = History::open(&datadir.path().join(STATS_FILE)).expect("the file");
    assert_eq!(numbers(&again, "SELECT timestamp FROM system_memory"), [[5]]);
}

#[test]
fn digests_that_find_the_disk_full_wait_and_are_written_whole() {
    let (_datadir, mut history) = history();
    let count = |history: &History| numbers(history, "SELECT count(*) FROM history_mysql_query_digest")[0][0];
    let row = |at: i64| {
        let mut row = digests().remove(0);
        row[3] = Value::Text(format!("0x{at:016X}"));
        row
    };
    let mut unwritten = Unwritten(Some((7, (0..5000).map(row).collect())));
    // A file that may not grow is to SQLite what a full disk is.
    let pages = numbers(&history, "PRAGMA page_count")[0][0];
    let limit = |history: &History, pages: i64| numbers(history, &format!("PRAGMA max_page_count = {pages}"));
    limit(&history, pages + 4);
    for _ in 0..2 {
        let refusal = unwritten.write(&mut history).expect_err("a full disk");
        assert_eq!(refusal.sqlite_error_code(), Some(rusqlite::ErrorCode::DiskFull));
        assert!(unwritten.0.as_ref().is_some_and(|(at_s, rows)| (*at_s, rows.len()) == (7, 5000)));
        assert_eq!(count(&history), 0, "all or none");
    }
    limit(&history, i64::from(u32::MAX) - 1);
    unwritten.write(&mut history).expect("there is room again");
    assert_eq!((unwritten.0.is_none(), count(&history)), (true, 5000));
    unwritten.write(&mut history).expect("nothing to do");
    assert_eq!(count(&history), 5000);
}
