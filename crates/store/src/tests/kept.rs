//! Edits rows before a LOAD, whichever and however: it gives what reading all rows gives, and shares what has not
//! changed.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use weir_config::{Config, ConfigError};

use super::*;

const USERS: Module = Module::MysqlUsers;
const RULES: Module = Module::MysqlQueryRules;
const TABLES: [(Module, &str); 2] = [(USERS, "mysql_users"), (RULES, "mysql_query_rules")];
const CASES: u32 = 128;

/// What somebody does.
#[derive(Clone, Debug)]
enum Step {
    /// A statement. One that breaks a constraint changes nothing.
    Edit(String),
    /// Rows between layers, or of a file.
    Copy(Module, Layer, Layer),
    Replace(Module),
    /// A table that shows something is filled.
    Fill,
    /// LOAD ... TO RUNTIME; what is done between the check and the end of it; whether the running Weir takes it.
    Load(Vec<Module>, Option<String>, bool),
    /// LOAD MYSQL USER ... TO RUNTIME.
    LoadUser(String),
}

/// Few of them, so that many edits meet.
fn user() -> impl Strategy<Value = String> {
    (0..8).prop_map(|at| format!("user{at}"))
}

fn edit_of_users() -> impl Strategy<Value = String> {
    let word = select(vec!["INSERT", "INSERT OR IGNORE", "REPLACE"]);
    let password = || select(vec!["NULL", "'a'", "'b'", "'*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9'"]);
    prop_oneof![
        6 => (word, user(), password(), 0..10, 0..10).prop_map(|(word, user, password, front, back)| {
            let (front, back) = (u8::from(front > 0), u8::from(back > 0));
            format!(
                "{word} INTO mysql_users (username, password, frontend, backend) VALUES ('{user}', {password}, {front}, {back})"
            )
        }),
        4 => (user(), password())
            .prop_map(|(user, password)| format!("UPDATE mysql_users SET password = {password} WHERE username = '{user}'")),
        2 => (user(), user()).prop_map(|(user, other)| {
            format!("UPDATE OR REPLACE mysql_users SET username = '{other}' WHERE username = '{user}'")
        }),
        2 => (user(), 1..20).prop_map(|(user, rowid)| {
            format!("UPDATE OR REPLACE mysql_users SET rowid = {rowid} WHERE username = '{user}'")
        }),
        3 => user().prop_map(|user| format!("DELETE FROM mysql_users WHERE username = '{user}'")),
        1 => Just("UPDATE mysql_users SET comment = comment || 'x'".to_owned()),
        1 => Just("UPDATE mysql_users SET comment = comment".to_owned()),
        1 => Just("DELETE FROM mysql_users".to_owned()),
        1 => Just("INSERT OR IGNORE INTO mysql_users SELECT * FROM disk.mysql_users".to_owned()),
        // Refused when it is loaded.
        1 => Just("REPLACE INTO mysql_users (username) VALUES ('')".to_owned()),
        3 => Just("DELETE FROM mysql_users WHERE username = ''".to_owned()),
    ]
}

fn edit_of_rules() -> impl Strategy<Value = String> {
    let word = select(vec!["INSERT", "INSERT OR IGNORE", "REPLACE"]);
    let pattern = || select(vec!["NULL", "'^a'", "'^b.*c'", "'(?=d)'"]);
    let modifiers = select(vec!["'CASELESS'", "'GLOBAL'", "NULL"]);
    prop_oneof![
        6 => (word, 1..9, pattern(), modifiers, any::<bool>()).prop_map(|(word, id, pattern, modifiers, active)| {
            format!(
                "{word} INTO mysql_query_rules (rule_id, active, match_digest, re_modifiers) VALUES ({id}, {active}, {pattern}, {modifiers})"
            )
        }),
        4 => (1..9, pattern()).prop_map(|(id, pattern)| {
            format!("UPDATE mysql_query_rules SET match_digest = {pattern} WHERE rule_id = {id}")
        }),
        2 => (1..9, 1..12).prop_map(|(id, other)| {
            format!("UPDATE OR REPLACE mysql_query_rules SET rule_id = {other} WHERE rule_id = {id}")
        }),
        1 => Just("UPDATE mysql_query_rules SET rule_id = rule_id + 20".to_owned()),
        1 => Just("UPDATE mysql_query_rules SET active = NOT active".to_owned()),
        3 => (1..9).prop_map(|id| format!("DELETE FROM mysql_query_rules WHERE rule_id = {id}")),
        1 => Just("DELETE FROM mysql_query_rules".to_owned()),
        1 => Just("INSERT OR REPLACE INTO mysql_query_rules SELECT * FROM disk.mysql_query_rules".to_owned()),
        // There is something to tell of it each time.
        2 => (1..9).prop_map(|id| format!("UPDATE mysql_query_rules SET cache_ttl = 1000 WHERE rule_id = {id}")),
        // Refused when it is loaded.
        1 => Just("UPDATE mysql_query_rules SET match_digest = '(' WHERE rule_id = 3".to_owned()),
        3 => Just("UPDATE mysql_query_rules SET match_digest = '^a' WHERE match_digest = '('".to_owned()),
    ]
}

fn edit() -> impl Strategy<Value = String> {
    prop_oneof![edit_of_users(), edit_of_rules()]
}

fn step() -> impl Strategy<Value = Step> {
    let module = || select(vec![USERS, RULES]);
    let layers = [
        (Layer::Memory, Layer::Disk),
        (Layer::Disk, Layer::Memory),
        (Layer::Runtime, Layer::Memory),
        (Layer::Runtime, Layer::Disk),
    ];
    let modules = select(vec![vec![USERS], vec![RULES], vec![USERS, RULES], Module::ALL.to_vec()]);
    prop_oneof![
        12 => edit().prop_map(Step::Edit),
        1 => (module(), select(layers.to_vec())).prop_map(|(module, (from, to))| Step::Copy(module, from, to)),
        1 => module().prop_map(Step::Replace),
        1 => Just(Step::Fill),
        6 => (modules, proptest::option::weighted(0.2, edit()), proptest::bool::weighted(0.85))
            .prop_map(|(modules, meanwhile, is_taken)| Step::Load(modules, meanwhile, is_taken)),
        1 => user().prop_map(Step::LoadUser),
    ]
}

/// The rows of a table with their `rowid`s.
type Dump = BTreeSet<Vec<String>>;

fn dump(store: &Store, table: &str) -> Dump {
    let mut statement = store.connection().prepare(&format!("SELECT rowid, * FROM {table}")).unwrap();
    let columns = statement.column_count();
    let row = |row: &rusqlite::Row<'_>| {
        (0..columns).map(|at| row.get(at).map(|value: Value| format!("{value:?}"))).collect()
    };
    statement.query_map([], row).unwrap().map(Result::unwrap).collect()
}

/// The same wherever the rows stand.
fn values(dump: &Dump) -> Vec<&[String]> {
    let mut rows: Vec<_> = dump.iter().map(|row| &row[1..]).collect();
    rows.sort();
    rows
}

type Outcome = Result<(Config, Vec<String>), Vec<String>>;

fn texts(told: &[ConfigError]) -> Vec<String> {
    told.iter().map(ToString::to_string).collect()
}

/// What comes of it where nothing is known of what is in force.
fn read_all(store: &mut Store, prepare: impl FnOnce(&Store) -> Result<Loaded, Vec<ConfigError>>) -> Outcome {
    let known = store.in_force.take();
    let loaded = prepare(store);
    store.in_force = known;
    loaded.map(|loaded| (loaded.config, texts(&loaded.warnings))).map_err(|faults| texts(&faults))
}

/// Rows that are the same in `main` as in force have not been read again; but for those of which there is something to tell.
fn check_sharing(store: &Store, loaded: &Config, modules: &[Module]) {
    let Some(before) = &store.in_force else { return };
    for (module, table) in TABLES.into_iter().filter(|(module, _)| modules.contains(module)) {
        let names = |schema: &str| {
            let (key, silent) = match module {
                USERS => ("username", "frontend = 1 AND backend = 1"),
                _ => ("CAST(rule_id AS TEXT)", "cache_ttl IS NULL"),
            };
            names(store, &format!("SELECT {key} FROM {schema}.{table} WHERE {silent} ORDER BY {key}"))
        };
        let (edited, in_force) = (dump(store, table), dump(store, &format!("intent.{table}")));
        let same: BTreeSet<&String> = edited.intersection(&in_force).map(|row| &row[0]).collect();
        let rowid = |schema: &str, name: &str| {
            let key = if module == USERS { "username" } else { "rule_id" };
            let sql = format!(
                "SELECT rowid FROM {schema}.{table} WHERE {key} = ?1 AND rowid IN (SELECT max(rowid) FROM {schema}.{table} WHERE {key} = ?1)"
            );
            store
                .connection()
                .query_row(&sql, [name], |row| row.get(0).map(|id: Value| format!("{id:?}")))
                .unwrap()
        };
        for name in names("main").iter().filter(|name| same.contains(&rowid("main", name))) {
            let is_shared = match module {
                USERS => {
                    let of =
                        |config: &Config| config.users.iter().find(|user| user.username == *name).cloned();
                    of(before).zip(of(loaded)).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
                }
                _ => {
                    let of = |config: &Config| {
                        config.query_rules.iter().find(|rule| rule.rule_id.to_string() == *name).cloned()
                    };
                    of(before).zip(of(loaded)).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
                }
            };
            assert!(is_shared, "{table} {name} was read again");
        }
    }
}

/// What is known of the rows in force is so.
fn check_sums(store: &mut Store, modules: &[Module]) {
    for module in modules {
        let sum = store.checksum(*module, Layer::Runtime).unwrap();
        let known = std::mem::take(&mut store.hashes);
        assert_eq!(store.checksum(*module, Layer::Runtime).unwrap(), sum, "{module:?}");
        store.hashes = known;
        let noted = store.versions().unwrap().into_iter().find(|version| version.module == *module);
        assert_eq!(noted.map(|version| version.checksum), Some(sum), "{module:?}");
    }
}

fn load(store: &mut Store, modules: &[Module], meanwhile: Option<&str>, is_taken: bool) {
    let in_force = TABLES.map(|(_, table)| dump(store, &format!("intent.{table}")));
    let wanted = TABLES.map(|(module, table)| match modules.contains(&module) {
        true => dump(store, table),
        false => dump(store, &format!("intent.{table}")),
    });
    let expected = read_all(store, |store| store.prepare_runtime(modules));
    let loaded = match (store.prepare_runtime(modules), expected) {
        (Ok(loaded), Ok(expected)) => {
            assert_eq!((&loaded.config, texts(&loaded.warnings)), (&expected.0, expected.1));
            check_sharing(store, &loaded.config, modules);
            Some(loaded).filter(|_| is_taken)
        }
        (Err(faults), Err(expected)) => {
            assert_eq!(texts(&faults), expected);
            None
        }
        (loaded, expected) => panic!("{loaded:?} in place of {expected:?}"),
    };
    if let Some(edit) = meanwhile {
        let _ = store.connection().execute_batch(edit);
    }
    let Some(loaded) = loaded else {
        assert_eq!(TABLES.map(|(_, table)| dump(store, &format!("intent.{table}"))), in_force);
        return;
    };
    store.commit_runtime(loaded).unwrap();
    for ((_, table), wanted) in TABLES.into_iter().zip(wanted) {
        for schema in ["intent.", "main.runtime_"] {
            let there = dump(store, &format!("{schema}{table}"));
            assert_eq!(values(&there), values(&wanted), "{schema}{table}");
        }
    }
    check_sums(store, modules);
}

fn load_user(store: &mut Store, name: &str) {
    let prepare = |store: &Store| {
        let nobody = || {
            vec![ConfigError { file: String::new(), line: 0, key: String::new(), reason: "nobody".into() }]
        };
        store.prepare_user(name)?.ok_or_else(nobody)
    };
    let expected = read_all(store, prepare);
    match (prepare(store), expected) {
        (Ok(loaded), Ok(expected)) => {
            assert_eq!((&loaded.config, texts(&loaded.warnings)), (&expected.0, expected.1));
            store.commit_runtime(loaded).unwrap();
            check_sums(store, &[USERS]);
            let rows = |schema: &str| {
                let sql = format!(
                    "SELECT concat_ws('|', username, password, frontend, backend, comment) FROM {schema}.mysql_users WHERE username = '{name}' ORDER BY 1"
                );
                names(store, &sql)
            };
            assert_eq!(rows("intent"), rows("main"));
        }
        (Err(faults), Err(expected)) => assert_eq!(texts(&faults), expected),
        (loaded, expected) => panic!("{loaded:?} in place of {expected:?}"),
    }
}

fn take(store: &mut Store, step: Step) {
    match step {
        Step::Edit(sql) => drop(store.connection().execute_batch(&sql)),
        Step::Copy(module, from, to) => store.copy(module, from, to).unwrap(),
        Step::Replace(module) => {
            let rows = store.rows_of(&[module], Layer::Runtime).unwrap();
            store.replace(&[module], &rows).unwrap();
        }
        Step::Fill => {
            let row = vec![Value::Text("Uptime".into()), Value::Text("5".into())];
            store.put(STATS, "stats_mysql_global", vec![row]).unwrap();
        }
        Step::Load(modules, meanwhile, is_taken) => load(store, &modules, meanwhile.as_deref(), is_taken),
        Step::LoadUser(name) => load_user(store, &name),
    }
}

/// Most rows stay, so that what has changed is put in force row by row.
const MANY: &str = "WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 140) \
                    INSERT INTO mysql_users (username, password) SELECT 'many' || i, 'x' FROM n; \
                    WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 140) \
                    INSERT INTO mysql_query_rules (rule_id, active, match_digest) SELECT i, 1, '^t' || i FROM n";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn a_load_gives_what_reading_all_rows_gives(
        has_many in any::<bool>(),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        let mut store = Store::in_memory().unwrap();
        if has_many {
            store.connection().execute_batch(MANY).unwrap();
        }
        load(&mut store, &Module::ALL, None, true);
        for step in steps {
            take(&mut store, step);
        }
        load(&mut store, &[USERS, RULES], None, true);
    }
}
