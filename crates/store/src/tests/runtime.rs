//! Checks the configuration in force, and which parts of it go where.

use weir_config::{Config, Strictness};

use super::*;

fn load(store: &mut Store, modules: &[Module]) -> Loaded {
    store.prepare_runtime(modules).unwrap()
}

fn version(store: &Store, module: Module) -> Version {
    store.versions().unwrap().into_iter().find(|version| version.module == module).unwrap()
}

#[test]
fn a_new_store_is_the_default_configuration() {
    let mut store = Store::in_memory().unwrap();
    let loaded = load(&mut store, &Module::ALL);
    assert_eq!((loaded.config.clone(), loaded.warnings.len()), (weir_config::Config::default(), 0));
    store.commit_runtime(loaded).unwrap();
    let count = |sql| names(&store, sql).len();
    assert_eq!(
        count("SELECT variable_name FROM runtime_global_variables"),
        count("SELECT variable_name FROM global_variables")
    );
    assert_eq!(count("SELECT name FROM runtime_checksums_values"), Module::ALL.len());
}

#[test]
fn a_module_is_loaded_beside_what_is_in_force_of_the_others() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    store
        .connection()
        .execute("INSERT INTO mysql_users (username, default_hostgroup) VALUES ('app', 100)", [])
        .unwrap();

    let loaded = load(&mut store, &[Module::MysqlUsers]);
    assert_eq!((loaded.config.users.len(), loaded.config.servers.len()), (1, 0));
    assert!(loaded.warnings[0].to_string().contains("hostgroup 100 has no server"), "{:?}", loaded.warnings);
    assert_eq!(names(&store, "SELECT username FROM runtime_mysql_users").len(), 0, "not before it is taken");
    store.commit_runtime(loaded).unwrap();
    assert_eq!(names(&store, "SELECT username FROM runtime_mysql_users"), ["app"]);

    let loaded = load(&mut store, &[Module::MysqlServers]);
    assert_eq!((loaded.config.users.len(), loaded.config.servers.len(), loaded.warnings.len()), (1, 1, 0));
}

#[test]
fn rules_that_stay_are_taken_over_and_what_is_to_be_told_of_them_is_told_again() {
    let rules = [Module::MysqlQueryRules];
    let insert = "INSERT INTO mysql_query_rules (rule_id, active, match_digest, cache_ttl, apply) VALUES \
                  (1, 1, '^a', NULL, 1), (2, 1, '^b', 1000, 1), (3, 1, '^c', NULL, 1), (4, 1, '^d', NULL, 1)";
    let change = "UPDATE mysql_query_rules SET match_digest = '^C', comment = 'new' WHERE rule_id = 3; \
                  DELETE FROM mysql_query_rules WHERE rule_id = 1; \
                  INSERT INTO mysql_query_rules (rule_id, active, match_digest) VALUES (7, 1, '^e')";
    let mut store = Store::in_memory().unwrap();
    store.connection().execute_batch(insert).unwrap();
    let loaded = load(&mut store, &rules);
    let told = |loaded: &Loaded| loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(told(&loaded), ["mysql_query_rules (2): cache_ttl: not built yet"]);
    store.commit_runtime(loaded).unwrap();
    store.connection().execute_batch(change).unwrap();
    let loaded = load(&mut store, &rules);

    let mut fresh = Store::in_memory().unwrap();
    fresh.connection().execute_batch(&format!("{insert}; {change}")).unwrap();
    let expected = load(&mut fresh, &rules);
    assert_eq!((&loaded.config, told(&loaded)), (&expected.config, told(&expected)));
    let patterns = loaded.config.query_rules.iter().map(|rule| rule.match_digest.as_deref());
    assert_eq!(patterns.collect::<Vec<_>>(), [Some("^b"), Some("^C"), Some("^d"), Some("^e")]);
    store.commit_runtime(loaded).unwrap();
    assert_eq!(
        names(&store, "SELECT match_digest FROM runtime_mysql_query_rules ORDER BY rule_id"),
        ["^b", "^C", "^d", "^e"]
    );
}

/// What is in force and shown after each of some changes is what it is where nothing was in force before.
#[test]
fn users_that_stay_are_taken_over_and_what_is_in_force_is_as_if_all_were_read() {
    let users = [Module::MysqlUsers];
    let mut many = String::from("INSERT INTO mysql_users (username, password) VALUES ('first', 'x')");
    (0..40).for_each(|at| many += &format!(", ('app{at}', 'x')"));
    let changes = [
        many.as_str(),
        "UPDATE mysql_users SET password = 'y' WHERE username = 'app7'",
        "DELETE FROM mysql_users WHERE username = 'first'",
        // Nobody is told apart by place alone.
        "DELETE FROM mysql_users WHERE username = 'app5'; UPDATE mysql_users SET rowid = 7 WHERE username = 'app39'",
        "INSERT INTO mysql_users (username, frontend, backend) VALUES ('app1', 0, 0), ('new', 1, 1)",
        "REPLACE INTO mysql_users (username, comment) VALUES ('app2', 'other')",
        "UPDATE mysql_users SET comment = 'all'",
        "DELETE FROM mysql_users",
        "INSERT INTO mysql_users (username, backend) VALUES ('b', 0), ('a', 1)",
        "UPDATE mysql_users SET comment = 'once more' WHERE username = 'a'",
    ];
    let (mut store, mut all) = (Store::in_memory().unwrap(), String::new());
    for change in changes {
        all += &format!("{change};");
        store.connection().execute_batch(change).unwrap();
        let loaded = load(&mut store, &users);
        let mut fresh = Store::in_memory().unwrap();
        fresh.connection().execute_batch(&all).unwrap();
        let expected = load(&mut fresh, &users);
        let told = |loaded: &Loaded| loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!((&loaded.config, told(&loaded)), (&expected.config, told(&expected)), "{change}");
        store.commit_runtime(loaded).unwrap();
        fresh.commit_runtime(expected).unwrap();
        let shown = "SELECT rowid || username || coalesce(password, '') || frontend || comment FROM ";
        for table in ["intent.mysql_users", "runtime_mysql_users"] {
            let of = |store: &Store| names(store, &format!("{shown} {table} ORDER BY rowid"));
            assert_eq!(of(&store), names(&fresh, &format!("{shown} mysql_users ORDER BY rowid")), "{change}");
        }
        assert_eq!(
            version(&store, Module::MysqlUsers).checksum,
            version(&fresh, Module::MysqlUsers).checksum,
            "{change}"
        );
    }
}

#[test]
fn what_is_edited_while_a_configuration_is_taken_is_not_in_force() {
    let mut store = Store::in_memory().unwrap();
    let mut insert = String::from("INSERT INTO mysql_users (username, password) VALUES ('app', 'x')");
    (0..20).for_each(|at| insert += &format!(", ('app{at}', 'x')"));
    store.connection().execute_batch(&insert).unwrap();
    let loaded = load(&mut store, &[Module::MysqlUsers]);
    store.commit_runtime(loaded).unwrap();
    store.connection().execute_batch("DELETE FROM mysql_users WHERE username = 'app3'").unwrap();
    let loaded = load(&mut store, &[Module::MysqlUsers]);
    store.connection().execute_batch("UPDATE mysql_users SET password = 'z'").unwrap();
    store.commit_runtime(loaded).unwrap();
    let shown = names(
        &store,
        "SELECT DISTINCT password || (SELECT count(*) FROM runtime_mysql_users) FROM runtime_mysql_users",
    );
    assert_eq!(shown, ["x20"]);
    let loaded = load(&mut store, &[Module::MysqlUsers]);
    let passwords: Vec<_> = loaded.config.users.iter().map(|user| &user.password).collect();
    assert!(
        passwords
            .iter()
            .all(|password| **password == weir_config::Password::Clear(weir_config::Secret::new("z")))
    );
    store.commit_runtime(loaded).unwrap();
    assert_eq!(names(&store, "SELECT DISTINCT password FROM runtime_mysql_users"), ["z"]);
}

#[test]
fn warnings_are_of_what_is_loaded() {
    let mut store = Store::in_memory().unwrap();
    store
        .connection()
        .execute_batch(
            "INSERT INTO mysql_users (username, default_hostgroup) VALUES ('app', 100); \
             INSERT INTO mysql_query_rules (rule_id, active, destination_hostgroup, apply) VALUES (1, 1, 200, 1); \
             INSERT INTO mysql_galera_hostgroups (writer_hostgroup, backup_writer_hostgroup, reader_hostgroup, \
                 offline_hostgroup) VALUES (300, 301, 302, 303); \
             UPDATE global_variables SET variable_value = 'latin1' WHERE variable_name = 'mysql-default_charset'",
        )
        .unwrap();
    let loaded = load(&mut store, &Module::ALL);
    assert_eq!(loaded.warnings.len(), 4, "{:?}", loaded.warnings);
    store.commit_runtime(loaded).unwrap();

    let mut told = |module| {
        let warnings = load(&mut store, &[module]).warnings;
        warnings.into_iter().map(|warning| warning.key).collect::<Vec<_>>()
    };
    let (user, rule) =
        ("mysql_users (app): default_hostgroup", "mysql_query_rules (1): destination_hostgroup");
    assert_eq!(told(Module::MysqlUsers), [user]);
    assert_eq!(told(Module::MysqlQueryRules), [rule]);
    assert_eq!(told(Module::MysqlVariables), ["mysql-default_charset"]);
    assert_eq!(told(Module::AdminVariables), [""; 0]);
    assert_eq!(told(Module::Scheduler), [""; 0]);
    // Others refer to servers.
    let mut of_servers = told(Module::MysqlServers);
    of_servers.sort();
    assert_eq!(of_servers, ["mysql_galera_hostgroups (300)", rule, user]);
}

#[test]
fn the_module_of_a_message_is_that_of_its_table_or_variable() {
    for (about, module) in [
        ("mysql_servers (100, db1, 3306): port", Some(Module::MysqlServers)),
        ("weir_hostgroups (1)", Some(Module::MysqlServers)),
        ("weir_listeners[0].address", Some(Module::MysqlVariables)),
        ("mysql-threads takes effect at the next start", Some(Module::MysqlVariables)),
        ("admin-web_port", Some(Module::AdminVariables)),
        ("global_variables", None),
        ("", None),
    ] {
        assert_eq!(Module::of(about), module, "{about}");
    }
}

#[test]
fn a_faulty_row_changes_nothing() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    let loaded = load(&mut store, &Module::ALL);
    store.commit_runtime(loaded).unwrap();
    insert_server(&store, "db 2");
    insert_server(&store, "db:3");
    let faults = store.prepare_runtime(&[Module::MysqlServers]).unwrap_err();
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        faults,
        [
            "mysql_servers (100, db 2, 3306): hostname: \"db 2\" is not a host name or address",
            "mysql_servers (100, db:3, 3306): hostname: \"db:3\" is not a host name or address (the port is a key of \
             its own)",
        ]
    );
    assert_eq!(names(&store, "SELECT hostname FROM runtime_mysql_servers"), ["db1"]);
}

#[test]
fn what_is_observed_is_shown_and_never_becomes_what_is_wanted() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    let loaded = load(&mut store, &Module::ALL);
    store.commit_runtime(loaded).unwrap();
    let mut observed: Vec<Value> =
        table(MAIN, "runtime_mysql_servers").unwrap().columns.iter().map(|_| Value::Integer(0)).collect();
    observed[1] = Value::Text("db1".to_owned());
    observed[4] = Value::Text("SHUNNED".to_owned());
    store.put(MAIN, "runtime_mysql_servers", vec![observed]).unwrap();
    store.save_runtime_to_memory(&[Module::MysqlServers]).unwrap();
    assert_eq!(names(&store, "SELECT status FROM runtime_mysql_servers"), ["SHUNNED"]);
    assert_eq!(names(&store, "SELECT status FROM mysql_servers"), ["ONLINE"]);
    assert!(matches!(
        store.copy(Module::MysqlServers, Layer::Memory, Layer::Runtime),
        Err(StoreError::IntoRuntime)
    ));
}

#[test]
fn a_module_is_loaded_without_reading_the_others_again() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    let sql = "INSERT INTO mysql_users (username, default_hostgroup) VALUES ('app', 100); \
               INSERT INTO mysql_query_rules (rule_id, active, match_digest, destination_hostgroup) VALUES (1, 1, '^SELECT', 100)";
    store.connection().execute_batch(sql).unwrap();
    let first = load(&mut store, &Module::ALL);
    let config = first.config.clone();
    store.commit_runtime(first).unwrap();
    store.connection().execute_batch("DELETE FROM mysql_users; DELETE FROM mysql_servers").unwrap();
    let loaded = load(&mut store, &[Module::MysqlServers]);
    assert!(loaded.config.servers.is_empty());
    assert!(std::sync::Arc::ptr_eq(&loaded.config.users, &config.users));
    assert!(std::sync::Arc::ptr_eq(&loaded.config.rules, &config.rules));
    let warnings: Vec<String> = loaded.warnings.iter().map(|warning| warning.key.clone()).collect();
    let wanted = ["mysql_query_rules (1): destination_hostgroup", "mysql_users (app): default_hostgroup"];
    assert_eq!(warnings, wanted, "they are told of where they are missed, by their keys");
    store.commit_runtime(loaded).unwrap();
    let users = load(&mut store, &[Module::MysqlUsers]);
    assert!(users.config.users.is_empty());
    assert_eq!(users.config.query_rules, config.query_rules);
}

#[test]
fn of_what_is_not_loaded_no_row_is_read_and_what_it_refers_to_is_still_known() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    let sql = "INSERT INTO mysql_users (username, default_hostgroup) VALUES ('app', 100); \
               INSERT INTO scheduler (id, filename, interval_ms) VALUES (1, '/bin/true', 1000); \
               UPDATE global_variables SET variable_value = 'false' WHERE variable_name = 'mysql-have_ssl'; \
               UPDATE global_variables SET variable_value = '1' WHERE variable_name = 'admin-read_only'";
    store.connection().execute_batch(sql).unwrap();
    let first = load(&mut store, &Module::ALL);
    let config = first.config.clone();
    store.commit_runtime(first).unwrap();
    let tables = "DELETE FROM intent.mysql_servers; DELETE FROM intent.mysql_users; DELETE FROM intent.scheduler; \
                  DELETE FROM intent.global_variables";
    store.connection().execute_batch(tables).unwrap();
    for module in [Module::MysqlQueryRules, Module::MysqlUsers, Module::ProxysqlServers] {
        let loaded = load(&mut store, &[module]);
        assert_eq!((&loaded.config, loaded.warnings.len()), (&config, 0), "{module:?}");
    }
    // Two modules have their variables in one table.
    let change = "UPDATE global_variables SET variable_value = '0' WHERE variable_name = 'admin-read_only'; \
                  UPDATE global_variables SET variable_value = 'true' WHERE variable_name = 'mysql-have_ssl'";
    store.connection().execute_batch(change).unwrap();
    let loaded = load(&mut store, &[Module::MysqlVariables]).config;
    assert!(loaded.variables.have_ssl && loaded.admin == config.admin);
    let loaded = load(&mut store, &[Module::AdminVariables]).config;
    assert!(!loaded.variables.have_ssl && loaded.admin != config.admin);
    // Nobody with use_ssl could log in: variables and users are checked together whichever is loaded.
    store.connection().execute_batch("UPDATE mysql_users SET use_ssl = 1").unwrap();
    let told = |loaded: &Loaded| loaded.warnings.iter().map(|told| told.key.clone()).collect::<Vec<_>>();
    let loaded = load(&mut store, &[Module::MysqlUsers]);
    assert_eq!(told(&loaded), ["mysql_users (app): use_ssl"]);
}

#[test]
fn the_same_again_is_no_new_version() {
    let mut store = Store::in_memory().unwrap();
    let loaded = load(&mut store, &Module::ALL);
    store.commit_runtime(loaded).unwrap();
    let first = version(&store, Module::MysqlServers);
    assert_eq!(first.version, 1);
    let loaded = load(&mut store, &[Module::MysqlServers]);
    store.commit_runtime(loaded).unwrap();
    assert_eq!(version(&store, Module::MysqlServers), first);
    insert_server(&store, "db1");
    let loaded = load(&mut store, &[Module::MysqlServers]);
    store.commit_runtime(loaded).unwrap();
    let second = version(&store, Module::MysqlServers);
    assert!(second.version == 2 && second.epoch > first.epoch && second.checksum != first.checksum);
    assert_eq!(version(&store, Module::MysqlUsers).version, 1);
}

#[test]
fn what_was_saved_is_as_old_after_a_restart_as_before() {
    let dir = tempfile::tempdir().unwrap();
    let epoch = 1_000_000;
    {
        let mut store = Store::open(dir.path()).unwrap().store;
        insert_server(&store, "db1");
        let loaded = load(&mut store, &Module::ALL);
        store.commit_runtime_of(loaded, epoch).unwrap();
        store.copy_all(&Module::ALL, Layer::Memory, Layer::Disk).unwrap();
    }
    let mut store = Store::open(dir.path()).unwrap().store;
    store.copy_all(&Module::ALL, Layer::Disk, Layer::Memory).unwrap();
    store.connection().execute("INSERT INTO mysql_users (username) VALUES ('app')", []).unwrap();
    let loaded = load(&mut store, &Module::ALL);
    store.commit_runtime(loaded).unwrap();
    assert_eq!(version(&store, Module::MysqlServers).epoch, epoch);
    assert_eq!(version(&store, Module::MysqlUsers).epoch, 0, "nobody has ever loaded it");
    store.connection().execute("UPDATE mysql_users SET active = 0", []).unwrap();
    let loaded = load(&mut store, &[Module::MysqlUsers]);
    store.commit_runtime(loaded).unwrap();
    assert!(version(&store, Module::MysqlUsers).epoch > epoch);
}

#[test]
fn another_proxy_s_rows_keep_what_is_of_this_machine() {
    let (mut here, mut there) = (Store::in_memory().unwrap(), Store::in_memory().unwrap());
    for (store, threads, packet, address) in
        [(&mut here, "2", "8192", "/run/here"), (&mut there, "3", "16384", "/run/there")]
    {
        let mut rows = TableRows::new();
        rows.push_variable("mysql-threads", threads);
        rows.push_variable("mysql-max_allowed_packet", packet);
        rows.push("weir_listeners", [("address".into(), address.into())].into());
        store.replace(&[Module::MysqlVariables], &rows).unwrap();
        let loaded = load(store, &Module::ALL);
        store.commit_runtime(loaded).unwrap();
    }
    let module = Module::MysqlVariables;
    let told = version(&there, module).checksum;
    assert_ne!(version(&here, module).checksum, told);
    // As they are fetched: the table has the other module's variables, too.
    let rows = there.rows(Layer::Runtime).unwrap();
    assert_eq!(checksum_of_rows(module, &rows), told);
    let loaded = here.prepare_foreign(module, &rows).unwrap();
    let variables = &loaded.config.variables;
    assert_eq!((variables.threads, variables.max_allowed_packet), (2, 16384));
    assert_eq!(loaded.config.weir_listeners[0].address.to_string(), "/run/here");
    here.commit_runtime_of(loaded, 77).unwrap();
    let version = version(&here, module);
    assert_eq!((version.epoch, version.checksum), (77, told));
    here.raise_epoch(module, 99).unwrap();
    here.raise_epoch(module, 88).unwrap();
    assert_eq!(self::version(&here, module).epoch, 99);
}

#[test]
fn loaded_servers_are_shown_beside_the_observed_ones() {
    let mut store = Store::in_memory().unwrap();
    insert_server(&store, "db1");
    let loaded = load(&mut store, &Module::ALL);
    store.commit_runtime(loaded).unwrap();
    store.put(MAIN, "runtime_mysql_servers", Vec::new()).unwrap();
    assert_eq!(names(&store, "SELECT hostname FROM runtime_weir_loaded_servers"), ["db1"]);
}

#[test]
fn variables_that_are_not_given_have_their_defaults() {
    let mut store = Store::in_memory().unwrap();
    let mut rows = TableRows::new();
    rows.push_variable("mysql-threads", "2");
    store.replace(&[Module::MysqlVariables], &rows).unwrap();
    let value = |store: &Store, name: &str| {
        names(store, &format!("SELECT variable_value FROM global_variables WHERE variable_name = '{name}'"))
    };
    assert_eq!(value(&store, "mysql-threads"), ["2"]);
    assert_eq!(value(&store, "mysql-max_connections"), ["10000"]);
    assert_eq!(value(&store, "admin-web_port"), ["6080"]);
    store.replace(&[Module::MysqlVariables], &TableRows::new()).unwrap();
    assert_eq!(value(&store, "mysql-threads"), [weir_config::MysqlVariables::default().threads.to_string()]);
}

#[test]
fn every_column_is_known_to_who_reads_it() {
    for table in tables().iter().filter(|table| table.schema == MAIN && table.module.is_some()) {
        if table.name == GLOBAL_VARIABLES {
            continue;
        }
        let row: TableRow =
            table.columns.iter().map(|column| (column.name.into(), Cell::Integer(0))).collect();
        let mut rows = TableRows::new();
        rows.push(&table.name, row);
        let (Err(notes) | Ok((_, notes))) = weir_config::read_rows(&rows, Strictness::Lenient);
        let unknown: Vec<String> =
            notes.iter().map(ToString::to_string).filter(|note| note.contains("unknown key")).collect();
        assert_eq!(unknown, Vec::<String>::new(), "{}", table.name);
    }
}

/// A file leaves out what has its default.
#[test]
fn rows_of_a_file_mean_the_same_in_the_file_and_in_the_database() {
    let file = "[[mysql_servers]]\nhostname = 'db1'\nhostgroup_id = 0\n\
                [[mysql_users]]\nusername = 'plain'\n\
                [[mysql_users]]\nusername = 'whole'\npassword = 'x'\nactive = false\nuse_ssl = true\ndefault_schema = ''\n\
                max_connections = 7\nschema_locked = 1\nfast_forward = true\ntransaction_persistent = false\n\
                attributes = '{\"default-transaction_isolation\":\"READ COMMITTED\"}'\n\
                [[mysql_query_rules]]\nrule_id = 9\n\
                [[mysql_query_rules]]\nactive = true\nmatch_digest = '^a'\nre_modifiers = ''\nusername = ''\n\
                [[mysql_query_rules]]\nrule_id = 3\nactive = 1\nmatch_pattern = 'b'\nreplace_pattern = 'c'\napply = true\n";
    let (config, rows) = weir_config::parse_with_rows(file, "weir.toml").unwrap();
    let mut store = Store::in_memory().unwrap();
    store.replace(&Module::ALL, &rows).unwrap();
    let loaded = store.prepare_first(store.rows(Layer::Memory).unwrap(), &config).unwrap();
    let all = store.prepare_first(store.rows(Layer::Memory).unwrap(), &Config::default()).unwrap();
    assert_eq!((&loaded.config, loaded.warnings.len()), (&all.config, 0));
    let ids: Vec<u32> = loaded.config.query_rules.iter().map(|rule| rule.rule_id).collect();
    assert_eq!(ids, [3, 9, 10]);
    store.commit_runtime(loaded).unwrap();
    assert_eq!(names(&store, "SELECT username FROM intent.mysql_users"), ["plain", "whole"]);
    let again = load(&mut store, &Module::ALL);
    assert_eq!(again.config, all.config);
}
