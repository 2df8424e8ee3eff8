//! Checks rows of `weir_topology`.

use weir_topology::{Choices, DonorReads, EpochUse, Failback};

use super::*;
use crate::{Assist, WeirTopology};

const ROW: &str = "[[weir_topology]]\nwriter_hostgroup = 0\n";
const GROUP: &str = "[[mysql_group_replication_hostgroups]]\nwriter_hostgroup = 0\nbackup_writer_hostgroup = 2\n\
                     reader_hostgroup = 1\noffline_hostgroup = 9\n";
const REPLICATION: &str = "[[mysql_replication_hostgroups]]\nwriter_hostgroup = 0\nreader_hostgroup = 1\n";

#[test]
fn faults_of_weir_topology() {
    let start = format!("{SERVER}{GALERA}{ROW}");
    for (line, message) in [
        ("failback = \"always\"", "failback: unknown word \"always\" (one of: never, drained, immediate)"),
        ("failback = true", "failback: true is not a string"),
        ("min_uptime_s = -1", "min_uptime_s: -1 is out of range (0..86400)"),
        ("prefer_segment = 256", "prefer_segment: 256 is out of range (0..255)"),
        ("min_readers = 0", "min_readers: 0 is out of range (1..1000)"),
        ("donor = \"raed\"", "donor: unknown word \"raed\", did you mean \"read\"?"),
        ("slow_start_ms = 600001", "slow_start_ms: 600001 is out of range (0..600000)"),
        ("hold_timeout_ms = 0", "hold_timeout_ms: 0 is out of range (1..3600000)"),
        ("max_held = 0", "max_held: 0 is out of range (1..1000000)"),
        ("retry_buffer_bytes = 262145", "retry_buffer_bytes: 262145 is out of range (0..262144)"),
        ("drain_grace_ms = \"5s\"", "drain_grace_ms: \"5s\" is not an integer"),
        ("switchover_pin_grace_ms = 30001", "switchover_pin_grace_ms: 30001 is out of range (0..30000)"),
        ("unconfirmed_failover_ms = 999", "unconfirmed_failover_ms: 999 is out of range (1000..3600000)"),
        ("epoch = \"on\"", "epoch: unknown word \"on\" (one of: auto, required, optional)"),
        ("assist = \"on\"", "assist: unknown word \"on\" (one of: off, dead, hung)"),
        ("assist_username = \"\"", "assist_username: is empty"),
        ("assist_password = \"x\"", "assist_password: needs assist_username"),
        ("assist_password = 1", "assist_password: an integer is not a string"),
        ("auto_failover = true", "auto_failover: applies to rows of mysql_replication_hostgroups only"),
        ("fail_back = \"never\"", "fail_back: unknown key, did you mean \"failback\"?"),
    ] {
        assert_fault(&start, line, &format!("weir_topology[0].{message}"));
    }
}

#[test]
fn a_row_is_of_one_cluster() {
    let other = ROW.replace("= 0", "= 1");
    assert_eq!(
        messages(&format!("{SERVER}{GALERA}{other}")),
        [
            "weir.toml:9: weir_topology[0].writer_hostgroup: hostgroup 1 is not the writer_hostgroup of a cluster"
        ]
    );
    assert_eq!(
        messages(&format!("{SERVER}{GALERA}{ROW}{ROW}")),
        ["weir.toml:11: weir_topology[1].writer_hostgroup: hostgroup 0 is already there (line 9)"]
    );
    assert_eq!(
        messages("[[weir_topology]]\n"),
        ["weir.toml:1: weir_topology[0].writer_hostgroup: is missing"]
    );
}

#[test]
fn some_keys_are_for_some_clusters_only() {
    let start = format!("{SERVER}{GROUP}{ROW}");
    assert_eq!(messages(&format!("{start}min_readers = 2\n")), [""; 0]);
    let table = "does not apply to a row of mysql_group_replication_hostgroups";
    assert_fault(&start, "assist = \"off\"", &format!("weir_topology[0].assist: {table}"));
    let start = format!("{SERVER}{REPLICATION}{ROW}");
    let table = "does not apply to a row of mysql_replication_hostgroups";
    assert_fault(&start, "min_readers = 2", &format!("weir_topology[0].min_readers: {table}"));
    assert_fault(&start, "failback = \"never\"", &format!("weir_topology[0].failback: {table}"));
    let message = "weir_topology[0].replication_password: needs replication_username";
    assert_fault(&start, "replication_password = \"x\"", message);
    assert_eq!(messages(&format!("{start}auto_failover = 1\n")), [""; 0]);
    assert_eq!(messages(&format!("{start}auto_discover = \"tell\"\n")), [""; 0]);
    let follow = messages(&format!("{start}auto_discover = \"follow\"\n"));
    assert!(
        follow.len() == 1 && follow[0].contains("does not apply to a row of mysql_replication"),
        "{follow:?}"
    );
    let innodb = format!("{SERVER}{REPLICATION}check_type = \"innodb_read_only\"\n{ROW}");
    let message = "weir_topology[0].auto_failover: can't be where check_type uses innodb_read_only, which no statement can set";
    assert_fault(&innodb, "auto_failover = true", message);
    let accounts =
        "switchover_username = \"mover\"\nreplication_username = \"replica\"\nreplication_password = \"p\"\n";
    let row = parse(&format!("{start}{accounts}"), "weir.toml").unwrap().topology_of(0);
    assert_eq!(row.switchover_account.map(|account| account.username), Some("mover".to_owned()));
    assert_eq!(row.replication_account.map(|account| account.username), Some("replica".to_owned()));
    let start = format!("{SERVER}{GALERA}{ROW}");
    let table = "does not apply to a row of mysql_galera_hostgroups";
    for key in ["switchover_username", "replication_username"] {
        assert_fault(&start, &format!("{key} = \"x\""), &format!("weir_topology[0].{key}: {table}"));
    }
}

#[test]
fn what_a_row_becomes() {
    let all = "failback = \"drained\"\nmin_uptime_s = 5\nprefer_segment = 2\nmin_readers = 3\ndonor = \"avoid\"\n\
               slow_start_ms = 0\nhold_timeout_ms = 30000\nmax_held = 7\nretry_buffer_bytes = 4096\n\
               drain_grace_ms = 60000\nswitchover_pin_grace_ms = 500\nunconfirmed_failover_ms = 2000\n\
               epoch = \"required\"\n\
               assist = \"hung\"\nassist_username = \"evictor\"\nassist_password = \"secret\"\n";
    let config = parse(&format!("{SERVER}{GALERA}{ROW}{all}"), "weir.toml").unwrap();
    let row = config.topology_of(0);
    let choices = Choices {
        failback: Failback::Drained,
        uptime_min_ms: 5000,
        reader_segment: Some(2),
        readers_min: 3,
        donor_reads: DonorReads::AsLastResort,
        unconfirmed_failover_ms: 2000,
        epoch: EpochUse::Required,
    };
    assert_eq!(config.policy().galera[0].choices, choices);
    assert_eq!((row.slow_start, row.hold_timeout), (Duration::ZERO, Some(Duration::from_secs(30))));
    assert_eq!((row.held_max, row.retry_buffer_bytes), (7, 4096));
    assert_eq!(row.drain_grace, Some(Duration::from_secs(60)));
    assert_eq!((row.switchover_pin_grace, row.assist), (Duration::from_millis(500), Assist::Hung));
    let account = row.assist_account.unwrap();
    assert_eq!((account.username.as_str(), account.password.expose()), ("evictor", "secret"));
    let config = parse(&format!("{SERVER}{GALERA}"), "weir.toml").unwrap();
    assert_eq!(config.topology_of(0), WeirTopology::of(0));
    assert_eq!(config.policy().galera[0].choices, Choices::default());
}
