//! Reads what the audit log is told.

use std::thread;

use weir_query_log::AuditKind;

use super::Rig;

#[test]
fn who_comes_and_what_is_changed_is_audited() {
    let rig = Rig::start();
    let mut admin = rig.admin();
    admin.query("SELECT 1").unwrap();
    admin.query("DELETE FROM mysql_users").unwrap();
    admin.query("SET mysql-max_connections=500").unwrap();
    admin.query("LOAD MYSQL USERS TO RUNTIME").unwrap();
    assert!(admin.query("KILL 8").is_err());
    admin.query("WITH x AS (SELECT 1) SELECT * FROM x").unwrap();
    admin.query("WITH replace AS (SELECT 1) SELECT * FROM replace").unwrap();
    admin.query("WITH x AS (SELECT 'app') DELETE FROM mysql_users WHERE username IN x").unwrap();
    assert!(admin.query("ATTACH DATABASE '/etc/passwd' AS x").is_err());
    assert!(admin.query("SELEC 1").is_err());
    let mut stats = rig.connect("stats", "look").unwrap();
    assert!(stats.query("DELETE FROM stats.stats_mysql_global").is_err());
    drop((admin, stats));
    assert!(rig.connect("admin", "wrong").is_err());
    let has_ended = |log: &[(AuditKind, [String; 3])]| {
        log.iter().filter(|line| line.0 == AuditKind::AdminClose).count() == 2
    };
    while !has_ended(&rig.notes.audited.lock().unwrap()) {
        thread::yield_now();
    }
    let log = rig.notes.audited.lock().unwrap().clone();
    let changes: Vec<_> = log.iter().filter(|line| line.0 == AuditKind::AdminChange).collect();
    let told: Vec<_> =
        changes.iter().map(|(_, [user, statement, extra])| (&**user, &**statement, &**extra)).collect();
    let expected = [
        ("admin", "DELETE FROM mysql_users", "OK, 0 rows"),
        ("admin", "SET mysql-max_connections=500", "OK, 1 rows"),
        ("admin", "LOAD MYSQL USERS TO RUNTIME", "OK, 0 rows"),
        ("admin", "KILL 8", "error 1094: Unknown thread id: 8"),
        ("admin", "WITH x AS (SELECT 'app') DELETE FROM mysql_users WHERE username IN x", "OK, 0 rows"),
        (
            "admin",
            "ATTACH DATABASE '/etc/passwd' AS x",
            "error 1227: ATTACH is not allowed at the admin port: its tables are fixed",
        ),
        (
            "stats",
            "DELETE FROM stats.stats_mysql_global",
            "error 1227: this account may only read: log in as one of admin-admin_credentials",
        ),
    ];
    assert_eq!(told, expected);
    let count = |kind| log.iter().filter(|line| line.0 == kind).count();
    assert_eq!((count(AuditKind::AdminConnectOk), count(AuditKind::AdminConnectErr)), (2, 1));
}
