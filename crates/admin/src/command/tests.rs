//! Checks how commands are read.

use proptest::prelude::*;
use weir_protocol::error;
use weir_store::Module;

use super::*;

fn moved(text: &str) -> (Module, Place, Place) {
    match parse(text) {
        Ok(Command::Fixed(Fixed::Move(way))) => (way.module, way.from, way.to),
        other => panic!("{text}: {other:?}"),
    }
}

fn message(text: &str) -> String {
    parse(text).unwrap_err().message
}

const NAMES: [(&str, Module); 9] = [
    ("MYSQL SERVERS", Module::MysqlServers),
    ("MYSQL USERS", Module::MysqlUsers),
    ("MYSQL QUERY RULES", Module::MysqlQueryRules),
    ("MYSQL VARIABLES", Module::MysqlVariables),
    ("MYSQL FIREWALL", Module::MysqlFirewall),
    ("ADMIN VARIABLES", Module::AdminVariables),
    ("SCHEDULER", Module::Scheduler),
    ("PROXYSQL SERVERS", Module::ProxysqlServers),
    ("RESTAPI", Module::Restapi),
];

#[test]
fn every_spelling_of_load_and_save_goes_the_way_that_proxysql_s_goes() {
    use Place::{Disk, File, Memory, Runtime};
    let ways = [
        ("LOAD", &["TO RUNTIME", "TO RUN", "FROM MEMORY", "FROM MEM"][..], Memory, Runtime),
        ("LOAD", &["TO MEMORY", "TO MEM", "FROM DISK"], Disk, Memory),
        ("LOAD", &["FROM CONFIG"], File, Memory),
        ("SAVE", &["TO MEMORY", "TO MEM", "FROM RUNTIME", "FROM RUN"], Runtime, Memory),
        ("SAVE", &["TO DISK", "FROM MEMORY", "FROM MEM"], Memory, Disk),
    ];
    for (name, module) in NAMES {
        for (verb, directions, from, to) in ways {
            for direction in directions {
                let text = format!("{verb} {name} {direction}");
                for spelled in [
                    text.clone(),
                    text.to_lowercase(),
                    format!("  /* x */{}  ;\n", text.replace(' ', "\n\t")),
                ] {
                    assert_eq!(moved(&spelled), (module, from, to), "{spelled}");
                }
            }
        }
    }
}

#[test]
fn ways_that_proxysql_does_not_have_are_syntax_errors() {
    for text in ["SAVE MYSQL USERS TO RUNTIME", "LOAD MYSQL USERS", "LOAD MYSQL USERS TO", "LOAD TO RUNTIME"]
    {
        assert_eq!(parse(text).unwrap_err().error, error::PARSE_ERROR, "{text}");
    }
}

#[test]
fn the_nearest_command_is_suggested() {
    for (typed, meant) in [
        ("LOAD MYSQL USER TO RUNTIME", "LOAD MYSQL USERS TO RUNTIME"),
        ("load mysql servers to runtme;", "LOAD MYSQL SERVERS TO RUNTIME"),
        ("SAVE MYSQL QUERY RULE TO DISK", "SAVE MYSQL QUERY RULES TO DISK"),
        ("PROXYSQL PAUZE", "PROXYSQL PAUSE"),
        ("SHOW TABELS", "SHOW TABLES"),
        ("SHOW PROMETEUS METRICS", "SHOW PROMETHEUS METRICS"),
        ("CHECKSUM MYSQL USER", "CHECKSUM MYSQL USERS"),
        ("WEIR SWITCHOVR HOSTGROUP 10", "WEIR SWITCHOVER HOSTGROUP"),
        ("SELEKT 1", "SELECT"),
    ] {
        assert!(message(typed).contains(&format!("did you mean \"{meant}\"")), "{typed}: {}", message(typed));
    }
    assert!(message("HELLO WORLD").contains("no admin command starts with this"));
    assert!(message(&"x".repeat(100_000)).len() <= 512);
}

#[test]
fn show_has_many_forms() {
    let show = |text: &str| match parse(text) {
        Ok(Command::Show(show)) => show,
        other => panic!("{text}: {other:?}"),
    };
    let like = |pattern: &str| Filter::Like(pattern.to_owned());
    let of = |schema: Option<&str>, is_full, filter| Show::Tables {
        schema: schema.map(str::to_owned),
        is_full,
        filter,
    };
    assert_eq!(show("SHOW TABLES"), of(None, false, Filter::None));
    assert_eq!(show("show full tables from `stats` like 'x%'"), of(Some("stats"), true, like("x%")));
    assert_eq!(show("SHOW VARIABLES"), Show::Variables(Variables::All, Filter::None));
    assert_eq!(
        show("SHOW GLOBAL VARIABLES LIKE \"mysql-%\""),
        Show::Variables(Variables::All, like("mysql-%"))
    );
    assert_eq!(show("SHOW ADMIN VARIABLES"), Show::Variables(Variables::Admin, Filter::None));
    assert_eq!(show("SHOW MYSQL VARIABLES"), Show::Variables(Variables::Mysql, Filter::None));
    assert_eq!(show("SHOW MYSQL STATUS"), Show::Status(Filter::None));
    assert_eq!(show("SHOW GLOBAL STATUS"), Show::Status(Filter::None));
    assert_eq!(show("SHOW FULL PROCESSLIST"), Show::ProcessList { is_full: true });
    let any = Filter::Any(vec!["a".into(), "b".into(), "c".into()]);
    let text = "SHOW VARIABLES WHERE Variable_name = 'a' OR variable_name IN ('b', 'c')";
    assert_eq!(show(text), Show::Variables(Variables::All, any));
    let table =
        |schema: Option<&str>| Show::CreateTable { schema: schema.map(str::to_owned), table: "t".into() };
    assert_eq!(show("SHOW CREATE TABLE t\\G"), table(None));
    assert_eq!(show("SHOW CREATE TABLE disk.t"), table(Some("disk")));
    for text in ["DESC t", "DESCRIBE t", "EXPLAIN t", "SHOW COLUMNS FROM t", "SHOW FIELDS IN t"] {
        assert!(matches!(show(text), Show::Columns { is_full: false, .. }), "{text}");
    }
    assert!(parse("SHOW TABLES FROM").is_err() && parse("SHOW TABLES x").is_err());
}

#[test]
fn set_takes_what_proxysql_takes() {
    let set = |text: &str| match parse(text) {
        Ok(Command::Set(assignments)) => {
            let pair = |a: Assignment| (a.name, a.value, a.scope == Scope::Configuration);
            assignments.into_iter().map(pair).collect::<Vec<_>>()
        }
        other => panic!("{text}: {other:?}"),
    };
    let one = |name: &str, value: &str, is_ours| vec![(name.to_owned(), value.to_owned(), is_ours)];
    assert_eq!(set("SET mysql-max_connections=100"), one("mysql-max_connections", "100", true));
    assert_eq!(set("SET admin-admin_credentials='a:b;c:d'"), one("admin-admin_credentials", "a:b;c:d", true));
    assert_eq!(set("set mysql-interfaces = 0.0.0.0:6033"), one("mysql-interfaces", "0.0.0.0:6033", true));
    assert_eq!(set("SET @@mysql-threads:=4"), one("mysql-threads", "4", true));
    assert_eq!(set("SET GLOBAL mysql-threads=4;"), one("mysql-threads", "4", true));
    assert_eq!(set("SET @@session.autocommit = ON"), one("autocommit", "ON", false));
    assert_eq!(set("SET SESSION sql_mode = CONCAT(@@sql_mode, ',X')").len(), 1);
    assert_eq!(set("SET NAMES utf8mb4 COLLATE utf8mb4_bin"), one("names", "", false));
    // MariaDB Connector/J
    let list = set("SET sql_mode=CONCAT(@@sql_mode,',STRICT_TRANS_TABLES'),time_zone='+00:00',NAMES utf8mb4");
    let names: Vec<_> = list.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["sql_mode", "time_zone", "names"]);
    assert_eq!(set("SET a=1, mysql-b='x,y'").len(), 2);
    for text in ["SET", "SET x", "SET = 1", "SET mysql-x 5", "SET mysql-x='a' 'b'"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn weir_s_own_verbs() {
    let server: Endpoint = "db2:3306".parse().unwrap();
    let weir = |text: &str| parse(text).unwrap();
    assert_eq!(weir("WEIR DRAIN 'db2:3306'"), Command::Weir(Weir::Drain(server.clone())));
    let undrain = |force| Command::Weir(Weir::Undrain { server: server.clone(), force });
    assert_eq!(weir("weir undrain \"db2:3306\";"), undrain(false));
    assert_eq!(weir("WEIR UNDRAIN 'db2:3306' FORCE"), undrain(true));
    let all = Weir::Switchover { hostgroup: 10, to: Some(server), force: true, dry_run: true };
    assert_eq!(weir("WEIR SWITCHOVER HOSTGROUP 10 TO 'db2:3306' FORCE DRY RUN"), Command::Weir(all));
    let least = Weir::Switchover { hostgroup: 10, to: None, force: false, dry_run: false };
    assert_eq!(weir("WEIR SWITCHOVER HOSTGROUP 10"), Command::Weir(least));
    for text in ["WEIR DRAIN", "WEIR DRAIN 'db2'", "WEIR SWITCHOVER HOSTGROUP x", "WEIR DRAIN 'a:1' 'b:2'"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn the_rest_of_the_verbs() {
    assert_eq!(parse("KILL 5"), Ok(Command::Kill { thread_id: 5, query_only: false }));
    assert_eq!(parse("KILL CONNECTION 5;"), Ok(Command::Kill { thread_id: 5, query_only: false }));
    assert_eq!(parse("kill query 5"), Ok(Command::Kill { thread_id: 5, query_only: true }));
    assert_eq!(parse("USE `stats`"), Ok(Command::Use("stats".into())));
    assert_eq!(parse("/* only a comment */"), Ok(Command::Nothing));
    assert_eq!(parse("SAVE CONFIG TO FILE /tmp/a-b.cnf"), Ok(Command::SaveConfig("/tmp/a-b.cnf".into())));
    assert_eq!(parse("SELECT CONFIG INTO OUTFILE '/tmp/x y'"), Ok(Command::SaveConfig("/tmp/x y".into())));
    assert_eq!(parse("SELECT CONFIG FILE"), Ok(Command::Fixed(Fixed::ConfigFile)));
    for text in ["BEGIN", "START TRANSACTION", "COMMIT", "COMMIT AND NO CHAIN"] {
        assert_eq!(parse(text), Ok(Command::Transaction { is_rollback: false }), "{text}");
    }
    for text in
        ["ATTACH 'x' AS y", "DROP TABLE mysql_users", "CREATE TABLE t (a)", "VACUUM", "ALTER TABLE x ADD y"]
    {
        assert_eq!(parse(text).unwrap_err().error, error::SPECIFIC_ACCESS_DENIED, "{text}");
    }
    for (text, on_disk) in [("CHECKSUM MYSQL SERVERS", false), ("CHECKSUM DISK MYSQL SERVERS", true)] {
        let checksum = Checksum { table: "mysql_servers", on_disk };
        assert_eq!(parse(text), Ok(Command::Fixed(Fixed::Checksum(checksum))));
    }
}

#[test]
fn sql_is_put_into_sqlite_s_dialect() {
    let sql = |text: &str| match parse(text) {
        Ok(Command::Sql(sql)) => sql,
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(sql("SELECT  1 # one\n;").text, "SELECT 1");
    assert_eq!(sql("insert ignore into t values (1)").text, "insert OR IGNORE into t values (1)");
    assert_eq!(sql("SELECT ignore FROM t").text, "SELECT ignore FROM t");
    assert_eq!(sql(r"SELECT '\d+'").text, r"SELECT '\d+'");
    let variables = sql("SELECT @@version_comment LIMIT 1");
    assert_eq!(variables.text, "SELECT weir_variable('@@version_comment') LIMIT 1");
    let scoped = sql("select @@session.auto_increment_increment as a, @@mysql-threads, 'x@@y'");
    assert_eq!(scoped.system, ["@@session.auto_increment_increment", "@@mysql-threads"]);
    let update = "UPDATE global_variables SET variable_value='5' WHERE variable_name='mysql-threads'";
    assert_eq!(sql(update).variables, ["mysql-threads"]);
    let list = "UPDATE global_variables SET variable_value=1 WHERE `variable_name` IN ('a', 'b') AND 1='c'";
    assert_eq!(sql(list).variables, ["a", "b"]);
}

proptest! {
    #[test]
    fn nothing_that_is_typed_makes_it_panic(text: String) {
        let _ = parse(&text);
    }

    #[test]
    fn words_in_any_order_make_no_panic(words in proptest::collection::vec(
        prop_oneof!["LOAD|SAVE|SHOW|SET|WEIR|KILL|FROM|TO|LIKE|WHERE|TABLES|VARIABLES|CONFIG|IN|=|@@|\\.|-|,|'|`|\\(|\\)", "[a-z]{1,4}"],
        0..12,
    )) {
        let _ = parse(&words.join(" "));
    }
}
