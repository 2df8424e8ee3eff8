//! Checks clusters with Group Replication and with asynchronous replication.

use super::*;

const GROUP: &str = "[[mysql_group_replication_hostgroups]]\nwriter_hostgroup = 0\nbackup_writer_hostgroup = 2\n\
                     reader_hostgroup = 1\noffline_hostgroup = 9\n";
const REPLICATION: &str = "[[mysql_replication_hostgroups]]\nwriter_hostgroup = 0\nreader_hostgroup = 1\n";

#[test]
fn faults_of_group_replication_hostgroups() {
    let start = format!("{SERVER}{GROUP}");
    for (line, message) in [
        ("max_writers = 0", "max_writers: 0 is out of range (1..1000)"),
        ("writer_is_also_reader = 3", "writer_is_also_reader: 3 is not 0, 1 or 2"),
        ("check_type = \"read_only\"", "check_type: unknown key"),
    ] {
        assert_fault(&start, line, &format!("mysql_group_replication_hostgroups[0].{message}"));
    }
    assert_eq!(
        messages(&format!("{SERVER}[[mysql_group_replication_hostgroups]]\nwriter_hostgroup = 0\n")),
        [
            "weir.toml:4: mysql_group_replication_hostgroups[0].backup_writer_hostgroup: is missing",
            "weir.toml:4: mysql_group_replication_hostgroups[0].reader_hostgroup: is missing",
            "weir.toml:4: mysql_group_replication_hostgroups[0].offline_hostgroup: is missing",
        ]
    );
}

#[test]
fn faults_of_replication_hostgroups() {
    let key = "mysql_replication_hostgroups[0]";
    let start = format!("{SERVER}{REPLICATION}");
    for (line, message) in [
        ("check_type = \"readonly\"", "check_type: unknown word \"readonly\", did you mean \"read_only\"?"),
        ("check_type = 1", "check_type: 1 is not a string"),
        ("max_writers = 1", "max_writers: unknown key"),
        ("active = true", "active: unknown key"),
    ] {
        assert_fault(&start, line, &format!("{key}.{message}"));
    }
    assert_eq!(
        messages(&format!("{SERVER}{}", REPLICATION.replace("= 1", "= 0"))),
        [
            "weir.toml:4: mysql_replication_hostgroups[0].reader_hostgroup: 0 is already the writer_hostgroup of this row"
        ]
    );
    assert_eq!(
        messages(REPLICATION),
        ["weir.toml:1: mysql_replication_hostgroups[0]: no row of mysql_servers is in any of its hostgroups"]
    );
}

#[test]
fn a_hostgroup_belongs_to_one_cluster() {
    let other = SERVER.replace("= 0", "= 5").replace("db1", "db2");
    let second = REPLICATION.replace("= 1", "= 9").replace("= 0", "= 5");
    assert_eq!(
        messages(&format!("{SERVER}{GROUP}{second}{other}")),
        [
            "weir.toml:9: mysql_replication_hostgroups[0].reader_hostgroup: 9 is already the offline_hostgroup of \
             another row (line 4)"
        ]
    );
    let galera = GALERA.replace("= ", "= 1");
    let second = "[[mysql_servers]]\nhostgroup_id = 10\nhostname = \"db1\"\n";
    assert_eq!(
        messages(&format!("{SERVER}{second}{GROUP}{galera}")),
        ["weir.toml:4: mysql_servers[1].hostgroup_id: db1:3306 is in a cluster of \
             mysql_group_replication_hostgroups and in one of mysql_galera_hostgroups"]
    );
}

#[test]
fn a_server_of_two_clusters_is_worth_a_warning() {
    let second = REPLICATION.replace("= 1", "= 6").replace("= 0", "= 5");
    let again = SERVER.replace("= 0", "= 5");
    let text = format!("{SERVER}{again}{REPLICATION}{second}");
    let (_, rows) = parse_with_rows(&text, "weir.toml").unwrap();
    let (_, warnings) = read_rows(&rows, Strictness::Lenient).unwrap();
    let told: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    let known = "db1:3306 is also a server of the cluster with writer hostgroup 0";
    assert!(told.len() == 1 && told[0].contains(known), "{told:?}");
}

#[test]
fn a_lag_is_limited_with_replication_only() {
    let limited = format!("{SERVER}max_replication_lag = 5\n");
    assert_eq!(
        messages(&limited),
        ["weir.toml:1: mysql_servers[0].max_replication_lag: 5 is not built yet for servers outside \
             mysql_replication_hostgroups (only 0)"]
    );
    assert_eq!(messages(&format!("{limited}{REPLICATION}")), [""; 0]);
}

#[test]
fn what_a_correct_file_becomes() {
    let check = "check_type = \"read_only|innodb_read_only\"\n";
    let variables = "[mysql_variables]\nmonitor_slave_lag_when_null = 7\nmonitor_writer_is_also_reader = false\n\
                     monitor_read_only_max_timeout_count = 4\n";
    let text = format!("{SERVER}max_replication_lag = 5\n{REPLICATION}{check}{variables}");
    let config = parse(&text, "weir.toml").unwrap();
    let policy = config.policy();
    assert_eq!(
        policy.replication,
        [weir_topology::ReplicationPolicy {
            writer_hostgroup: 0,
            reader_hostgroup: 1,
            check: weir_topology::ReadOnlyCheck::Either,
            writer_reads: false,
            lag_when_stopped_s: 7,
            timeouts_max: 4,
            failover_after_ms: None,
        }]
    );
    assert_eq!(config.intents()[0].lag_max_s, 5);
    assert_eq!(config.hostgroups_of(&config.servers[0].endpoint()).into_iter().collect::<Vec<_>>(), [0, 1]);
    let config = parse(&format!("{SERVER}{GROUP}"), "weir.toml").unwrap();
    assert_eq!(config.policy().group_replication[0].backup_writer_hostgroup, 2);
    assert!(config.policy().galera.is_empty());
    let inactive = parse(&format!("{SERVER}{GROUP}active = false\n"), "weir.toml").unwrap();
    assert!(inactive.policy().group_replication.is_empty() && inactive.clusters().count() == 0);
}
