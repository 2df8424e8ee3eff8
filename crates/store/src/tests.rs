//! Tests layers, tables, upgrades and damage.

use std::os::unix::fs::PermissionsExt;

use weir_config::{Cell, TableRow, TableRows};

use super::*;

mod kept;
mod runtime;

fn names(store: &Store, sql: &str) -> Vec<String> {
    let mut statement = store.connection().prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

fn insert_server(store: &Store, hostname: &str) {
    store
        .connection()
        .execute("INSERT INTO mysql_servers (hostgroup_id, hostname) VALUES (100, ?1)", [hostname])
        .unwrap();
}

#[test]
fn all_tables_are_there_in_their_schemas() {
    let store = Store::in_memory().unwrap();
    for table in tables() {
        let sql = format!("SELECT * FROM {}.{}", table.schema, table.name);
        let statement = store.connection().prepare(&sql).unwrap();
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        assert_eq!(statement.column_names(), columns, "{}", table.name);
    }
    assert!(table("MAIN", "Runtime_MySQL_Servers").is_some_and(TableDef::is_runtime));
    assert!(table(STATS, "stats_mysql_query_digest_reset").is_some());
}

#[test]
fn a_row_has_proxysql_s_defaults() {
    let store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    store
        .connection()
        .execute("INSERT INTO mysql_query_rules (match_digest) VALUES ('^SELECT')", [])
        .unwrap();
    let rows = store.rows(Layer::Memory).unwrap();
    let [server] = rows.of("mysql_servers") else { panic!("one server") };
    for (column, value) in [
        ("port", 3306.into()),
        ("weight", 1.into()),
        ("status", "ONLINE".into()),
        ("max_connections", 1000.into()),
    ] {
        assert_eq!(server.get(column), Some(&value), "{column}");
    }
    let [rule] = rows.of("mysql_query_rules") else { panic!("one rule") };
    assert_eq!(rule.get("rule_id"), Some(&Cell::Integer(1)));
    assert_eq!(rule.get("re_modifiers"), Some(&"CASELESS".into()));
    assert_eq!(rule.get("cache_ttl"), None);
}

#[test]
fn constraints_hold() {
    let store = Store::in_memory().unwrap();
    for bad in [
        "INSERT INTO mysql_servers (hostname, port) VALUES ('db1', 70000)",
        "INSERT INTO mysql_servers (hostname, status) VALUES ('db1', 'AWAY')",
        "INSERT INTO mysql_galera_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, \
         offline_hostgroup) VALUES (1, 2, 1, 4)",
        "INSERT INTO mysql_users (username, attributes) VALUES ('app', '{')",
        "INSERT INTO mysql_query_rules (replace_pattern) VALUES ('x')",
        "INSERT INTO scheduler (interval_ms, filename) VALUES (99, '/bin/true')",
    ] {
        let fault = store.connection().execute(bad, []).unwrap_err().to_string();
        assert!(fault.contains("CHECK constraint failed"), "{bad}: {fault}");
    }
}

#[test]
fn what_was_saved_is_there_again_and_what_was_not_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let datadir = dir.path().join("weir");
    {
        let Opened { mut store, is_new, notes } = Store::open(&datadir).unwrap();
        assert!(is_new && notes.is_empty() && store.is_persistent());
        insert_server(&store, "db1");
        store.copy(Module::MysqlServers, Layer::Memory, Layer::Disk).unwrap();
        insert_server(&store, "db2");
        store.connection().execute("INSERT INTO mysql_users (username) VALUES ('app')", []).unwrap();
    }
    let mode = std::fs::metadata(datadir.join(DATABASE_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let Opened { mut store, is_new, .. } = Store::open(&datadir).unwrap();
    assert!(!is_new);
    assert_eq!(store.rows(Layer::Memory).unwrap().of("mysql_servers").len(), 0);
    store.copy_all(&Module::ALL, Layer::Disk, Layer::Memory).unwrap();
    let rows = store.rows(Layer::Memory).unwrap();
    assert_eq!(rows.of("mysql_servers").len(), 1);
    assert_eq!(rows.of("mysql_users").len(), 0);
}

#[test]
fn nothing_is_written_before_a_store_is_settled() {
    let dir = tempfile::tempdir().unwrap();
    let there = || {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    };
    let saved = |file: &str| {
        let database = rusqlite::Connection::open(dir.path().join(file)).unwrap();
        let names = "SELECT group_concat(hostname) FROM mysql_servers";
        database.query_row(names, [], |row| row.get::<_, String>(0)).unwrap()
    };
    for (server, files) in
        [("db1", vec!["weir.db", "weir_stats.db"]), ("db2", vec!["weir.db", "weir.db.bak", "weir_stats.db"])]
    {
        let before = there();
        let mut store = Store::unsettled(dir.path()).unwrap();
        insert_server(&store, server);
        assert_eq!(there(), before);
        // Of a process that ended in the middle.
        std::fs::write(dir.path().join("weir.db.new"), "half").unwrap();
        assert_eq!(store.settle().unwrap(), [""; 0]);
        assert!(store.is_persistent());
        drop(store);
        assert_eq!(
            (there(), saved("weir.db").as_str()),
            (files.iter().map(ToString::to_string).collect(), server)
        );
    }
    assert_eq!(saved("weir.db.bak"), "db1");
    let mode = std::fs::metadata(dir.path().join(DATABASE_FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // What is saved later goes to the same file.
    let mut store = Store::unsettled(dir.path()).unwrap();
    store.settle().unwrap();
    insert_server(&store, "db3");
    store.copy(Module::MysqlServers, Layer::Memory, Layer::Disk).unwrap();
    assert_eq!(saved("weir.db"), "db3");
}

#[test]
fn modules_with_variables_leave_each_other_s_alone() {
    let mut store = Store::in_memory().unwrap();
    let mut rows = TableRows::new();
    rows.push_variable("mysql-threads", "2");
    rows.push_variable("admin-read_only", "false");
    store.replace(&[Module::MysqlVariables, Module::AdminVariables], &rows).unwrap();
    store.copy(Module::AdminVariables, Layer::Memory, Layer::Disk).unwrap();
    let saved = "SELECT DISTINCT substr(variable_name, 1, 5) FROM disk.global_variables";
    assert_eq!(names(&store, saved), ["admin"]);
    store.copy(Module::MysqlVariables, Layer::Memory, Layer::Disk).unwrap();
    let threads = "SELECT variable_value FROM disk.global_variables WHERE variable_name = 'mysql-threads'";
    assert_eq!(names(&store, threads), ["2"]);
}

#[test]
fn rows_of_a_file_take_the_file_s_names_and_faults_name_the_row() {
    let mut store = Store::in_memory().unwrap();
    let server = |port: i64| -> TableRow {
        [("address".into(), "db1".into()), ("hostgroup".into(), 7.into()), ("port".into(), port.into())]
            .into()
    };
    let mut rows = TableRows::new();
    rows.push("mysql_servers", server(3307));
    store.replace(&[Module::MysqlServers], &rows).unwrap();
    assert_eq!(names(&store, "SELECT hostgroup_id || hostname || port FROM mysql_servers"), ["7db13307"]);

    rows.push("mysql_servers", server(70_000));
    let fault = store.replace(&[Module::MysqlServers], &rows).unwrap_err().to_string();
    assert!(fault.starts_with("mysql_servers (7, db1, 70000): CHECK constraint failed"), "{fault}");
    assert_eq!(names(&store, "SELECT hostname FROM mysql_servers").len(), 1, "all or nothing");

    rows.set("mysql_servers", vec![[("colour".into(), "red".into())].into()]);
    let fault = store.replace(&[Module::MysqlServers], &rows).unwrap_err().to_string();
    assert_eq!(fault, "mysql_servers has no column colour");
}

#[test]
fn a_checksum_is_of_the_rows_and_not_of_their_order() {
    let (mut one, mut other) = (Store::in_memory().unwrap(), Store::in_memory().unwrap());
    for (store, hosts) in [(&mut one, ["db1", "db2"]), (&mut other, ["db2", "db1"])] {
        hosts.iter().for_each(|host| insert_server(store, host));
    }
    let sum = |store: &Store| store.checksum(Module::MysqlServers, Layer::Memory).unwrap();
    assert_eq!(sum(&one), sum(&other));
    other.connection().execute("UPDATE mysql_servers SET weight = 2 WHERE hostname = 'db1'", []).unwrap();
    assert_ne!(sum(&one), sum(&other));
    assert_ne!(one.table_checksum("mysql_servers", Layer::Memory).unwrap(), 0);
    assert!(one.table_checksum("runtime_mysql_servers", Layer::Memory).is_err());
}

#[test]
fn statistics_are_put_and_configuration_is_not() {
    let mut store = Store::in_memory().unwrap();
    let row = || vec![Value::Text("Uptime".into()), Value::Text("5".into())];
    store.put(STATS, "stats_mysql_global", vec![row(), row()]).unwrap();
    store.put(STATS, "stats_mysql_global", vec![row()]).unwrap();
    assert_eq!(names(&store, "SELECT Variable_Value FROM stats.stats_mysql_global"), ["5"]);
    assert!(matches!(store.put(MAIN, "mysql_users", Vec::new()), Err(StoreError::NoTable(_))));
    assert!(matches!(store.put(DISK, "mysql_users", Vec::new()), Err(StoreError::NoTable(_))));
    assert!(matches!(
        store.put(STATS, "stats_mysql_global", vec![vec![Value::Null]]),
        Err(StoreError::Row { .. })
    ));
}

#[test]
fn a_table_of_an_older_format_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(DATABASE_FILE);
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch(
            "CREATE TABLE mysql_servers (hostgroup_id INT, hostname VARCHAR, port INT, gone INT);
             INSERT INTO mysql_servers VALUES (3, 'db1', 3307, 1)",
        )
        .unwrap();
    let Opened { store, is_new, .. } = Store::open(dir.path()).unwrap();
    assert!(!is_new);
    assert_eq!(
        names(&store, "SELECT hostname || port || max_connections FROM disk.mysql_servers"),
        ["db133071000"]
    );
}

#[test]
fn values_that_mean_something_else_now_are_converted() {
    let dir = tempfile::tempdir().unwrap();
    rusqlite::Connection::open(dir.path().join(DATABASE_FILE))
        .unwrap()
        .execute_batch(
            "CREATE TABLE weir_hostgroups (hostgroup_id INT, transaction_replay_max_bytes INT, comment VARCHAR);
             INSERT INTO weir_hostgroups VALUES (1, 0, 'off'), (2, 100, 'short'), (3, 5000, 'kept')",
        )
        .unwrap();
    let Opened { store, .. } = Store::open(dir.path()).unwrap();
    let sql = "SELECT comment || ' ' || transaction_replay || ' ' || transaction_replay_max_bytes FROM disk.weir_hostgroups";
    assert_eq!(names(&store, sql), ["off off 65536", "short safe 1024", "kept safe 5000"]);
}

#[test]
fn a_damaged_database_is_told_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(DATABASE_FILE);
    let garbage = vec![b'x'; 8192];
    std::fs::write(&path, &garbage).unwrap();
    let fault = Store::open(dir.path()).unwrap_err();
    assert!(matches!(fault, StoreError::Damaged { .. }), "{fault}");
    assert!(fault.to_string().contains("move it away"), "{fault}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
}

#[test]
fn pages_that_are_overwritten_are_found() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let path = dir.path().join(DATABASE_FILE);
    let mut bytes = std::fs::read(&path).unwrap();
    // All but the first page, which says how many there are.
    bytes.iter_mut().skip(4096).for_each(|byte| *byte = 0x5a);
    std::fs::write(&path, &bytes).unwrap();
    let fault = Store::open(dir.path()).unwrap_err();
    assert!(matches!(fault, StoreError::Damaged { .. }), "{fault}");
}

#[test]
fn a_database_of_a_newer_weir_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    let path = dir.path().join(DATABASE_FILE);
    rusqlite::Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    let fault = Store::open(dir.path()).unwrap_err().to_string();
    assert!(fault.contains("is of format 99, and this Weir knows 1"), "{fault}");
}

#[test]
fn damaged_statistics_are_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    drop(Store::open(dir.path()).unwrap());
    std::fs::write(dir.path().join(STATS_FILE), vec![b'x'; 8192]).unwrap();
    let Opened { notes, .. } = Store::open(dir.path()).unwrap();
    assert!(notes.iter().any(|note| note.contains("statistics start from zero")), "{notes:?}");
    assert!(dir.path().join(format!("{STATS_FILE}.damaged")).exists());
}

#[test]
fn history_is_kept_in_the_datadir_also_of_a_store_in_memory() {
    let datadir = tempfile::tempdir().unwrap();
    let with_history = || {
        let mut store = Store::in_memory().unwrap();
        let note = store.keep_history(datadir.path()).unwrap();
        (store, note)
    };
    let (store, note) = with_history();
    assert_eq!(note, None);
    store.connection().execute("INSERT INTO stats_history.system_cpu VALUES (5, 6, 7)", []).unwrap();
    drop(store);
    let (store, _) = with_history();
    assert_eq!(names(&store, "SELECT CAST(tms_utime AS TEXT) FROM stats_history.system_cpu"), ["6"]);
    drop(store);
    std::fs::write(
        datadir.path().join(STATS_FILE),
        "no database at all, but some text of more than 16 bytes",
    )
    .unwrap();
    let (store, note) = with_history();
    assert!(note.is_some_and(|note| note.contains("weir_stats.db.damaged")));
    assert!(names(&store, "SELECT CAST(tms_utime AS TEXT) FROM stats_history.system_cpu").is_empty());
}
