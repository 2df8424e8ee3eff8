//! Checks the variables of the logs: faults, each with its message, and what correct ones become.

use std::path::Path;
use std::time::Duration;

use super::*;

const TABLE: &str = "[mysql_variables]\n";

#[test]
fn faults_of_logs() {
    let key = "mysql_variables";
    for (line, message) in [
        ("eventslog_filename = 5", "eventslog_filename: 5 is not a string"),
        ("eventslog_filename = \"/var/log/\"", "eventslog_filename: \"/var/log/\" is not the name of a file"),
        ("auditlog_filename = \"..\"", "auditlog_filename: \"..\" is not the name of a file"),
        ("eventslog_filesize = 1024", "eventslog_filesize: 1024 is out of range (1048576..1073741824)"),
        ("auditlog_filesize = 0", "auditlog_filesize: 0 is out of range (1048576..1073741824)"),
        ("slowlog_filesize = 0", "slowlog_filesize: 0 is out of range (1048576..1073741824)"),
        ("eventslog_default_log = 2", "eventslog_default_log: 2 is neither true nor false"),
        ("eventslog_rate_limit = 0", "eventslog_rate_limit: 0 is out of range (1..1000000)"),
        ("eventslog_format = 1", "eventslog_format: 1 (binary) is not built: only 2 (lines of JSON) is"),
        ("eventslog_format = 3", "eventslog_format: 3 is out of range (1..2)"),
        (
            "eventslog_buffer_max_query_length = 1",
            "eventslog_buffer_max_query_length: 1 is out of range (128..1048576)",
        ),
        ("long_query_time = -1", "long_query_time: -1 is out of range (0..1728000000)"),
    ] {
        assert_fault(TABLE, line, &format!("{key}.{message}"));
    }
    let both = "eventslog_filename = \"a\"\nauditlog_filename = \"a\"";
    assert_eq!(
        messages(&format!("{TABLE}{both}")),
        [
            "weir.toml:3: mysql_variables.auditlog_filename: is the file of eventslog_filename, too: give each log \
          its own"
        ]
    );
    let long = format!("{TABLE}slowlog_filename = \"{}\"", "x".repeat(241));
    assert_eq!(
        messages(&long),
        ["weir.toml:2: mysql_variables.slowlog_filename: a file's name has at most 240 bytes here"]
    );
}

#[test]
fn logs_are_off_unless_they_have_a_file() {
    let logs = |text: &str| parse(&format!("{TABLE}{text}"), "weir.toml").unwrap().variables.logs;
    let off = logs("");
    assert_eq!(off, LogVariables::default());
    assert_eq!(off, logs("eventslog_filename = \"\"\nauditlog_filename = \"\"\neventslog_format = 2"));
    let on = logs("eventslog_filename = \"events\"\neventslog_default_log = 1\nlong_query_time = 250");
    assert_eq!(on.eventslog_filename.as_deref(), Some(Path::new("events")));
    assert!(on.eventslog_default_log && on.slowlog_filename.is_none());
    assert_eq!(on.long_query_time, Duration::from_millis(250));
}
