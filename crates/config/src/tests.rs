//! Checks the faults a user can make, each with the exact message; and what a correct file becomes.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod clusters;
mod listeners;
mod logs;
mod peers;
mod query_rules;
mod rows;
mod server_tls;
mod topology_table;
mod users;

fn messages(text: &str) -> Vec<String> {
    match parse(text, "weir.toml") {
        Ok(_) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

const SERVER: &str = "[[mysql_servers]]\nhostgroup_id = 0\nhostname = \"db1\"\n";
const USER: &str = "[[mysql_users]]\nusername = \"app\"\n";
const GALERA: &str = "[[mysql_galera_hostgroups]]\nwriter_hostgroup = 0\nbackup_writer_hostgroup = 2\n\
                      reader_hostgroup = 1\noffline_hostgroup = 9\n";

/// Checks a file made of a correct start and a line, of which the message names line and key.
fn assert_fault(start: &str, line: &str, message: &str) {
    let number = start.lines().count() + 1;
    assert_eq!(
        messages(&format!("{start}{line}\n")),
        [format!("weir.toml:{number}: {message}")],
        "for {line}"
    );
}

#[test]
fn faults_of_servers() {
    let key = "mysql_servers[0]";
    for (line, message) in [
        ("port = 70000", "port: 70000 is not a port (1..65535)"),
        ("port = 0", "port: 0 is not a port (1..65535)"),
        ("port = -1", "port: -1 is not a port (1..65535)"),
        ("port = \"3306\"", "port: \"3306\" is not an integer"),
        ("weight = \"heavy\"", "weight: \"heavy\" is not an integer"),
        ("weight = -5", "weight: -5 is out of range (0..10000000)"),
        ("weight = 1.5", "weight: 1.5 is not an integer"),
        ("wieght = 5", "wieght: unknown key, did you mean \"weight\"?"),
        ("colour = 5", "colour: unknown key"),
        ("max_connections = 1000001", "max_connections: 1000001 is out of range (0..1000000)"),
        ("status = \"online\"", "status: unknown word \"online\", did you mean \"ONLINE\"?"),
        (
            "status = \"SHUNNED\"",
            "status: unknown word \"SHUNNED\" (one of: ONLINE, OFFLINE_SOFT, OFFLINE_HARD)",
        ),
        ("status = 1", "status: 1 is not a string"),
        ("compression = 1", "compression: 1 is not built yet (only 0)"),
        ("max_replication_lag = -1", "max_replication_lag: -1 is out of range (0..126144000)"),
        ("use_ssl = 2", "use_ssl: 2 is neither true nor false"),
        ("max_latency_ms = -1", "max_latency_ms: -1 is out of range (0..2147483647)"),
        ("gtid_port = 3306", "gtid_port: 3306 is the server's own port"),
        ("gtid_port = 65536", "gtid_port: 65536 is out of range (0..65535)"),
        ("gtid_port = \"\"", "gtid_port: \"\" is not an integer"),
        ("hostgroup = 1", "hostgroup: is the same as hostgroup_id: give one of them"),
        ("address = \"db2\"", "address: is the same as hostname: give one of them"),
        ("comment = \"a\\u0000b\"", "comment: contains a zero byte"),
    ] {
        assert_fault(SERVER, line, &format!("{key}.{message}"));
    }
    for (host, reason) in [
        ("", "is empty"),
        ("db 1", "\"db 1\" is not a host name or address"),
        ("db1:3306", "\"db1:3306\" is not a host name or address (the port is a key of its own)"),
        ("/run/mysqld.sock", "\"/run/mysqld.sock\": connections to a server's Unix socket are not built yet"),
    ] {
        assert_fault(
            "[[mysql_servers]]\nhostgroup_id = 0\n",
            &format!("hostname = \"{host}\""),
            &format!("{key}.hostname: {reason}"),
        );
    }
    assert_eq!(
        messages("\n[[mysql_servers]]\nport = 1\n"),
        [
            "weir.toml:2: mysql_servers[0].hostgroup_id: is missing",
            "weir.toml:2: mysql_servers[0].hostname: is missing",
        ]
    );
    assert_eq!(
        messages(&format!("{SERVER}{SERVER}port = 3306\n")),
        ["weir.toml:4: mysql_servers[1]: db1:3306 is already in hostgroup 0 (line 1)"]
    );
    assert_eq!(
        messages("[mysql_servers]\nhostname = \"db1\"\n"),
        ["weir.toml:1: mysql_servers: is a list of rows: write [[mysql_servers]] above each"]
    );
}

#[test]
fn faults_of_galera_hostgroups() {
    let key = "mysql_galera_hostgroups[0]";
    let start = format!("{SERVER}{GALERA}");
    for (line, message) in [
        ("max_writers = 0", "max_writers: 0 is out of range (1..1000)"),
        ("writer_is_also_reader = 3", "writer_is_also_reader: 3 is not 0, 1 or 2"),
        ("writer_is_also_reader = true", "writer_is_also_reader: true is not 0, 1 or 2"),
        ("max_transactions_behind = -1", "max_transactions_behind: -1 is out of range (0..2147483647)"),
        ("max_writer = 1", "max_writer: unknown key, did you mean \"max_writers\"?"),
    ] {
        assert_fault(&start, line, &format!("{key}.{message}"));
    }
    assert_eq!(
        messages(&format!(
            "{SERVER}[[mysql_galera_hostgroups]]\nwriter_hostgroup = 0\nreader_hostgroup = 1\n"
        )),
        [
            "weir.toml:4: mysql_galera_hostgroups[0].backup_writer_hostgroup: is missing",
            "weir.toml:4: mysql_galera_hostgroups[0].offline_hostgroup: is missing",
        ]
    );
    assert_eq!(
        messages(&format!("{SERVER}{}", GALERA.replace("= 9", "= 1"))),
        [
            "weir.toml:4: mysql_galera_hostgroups[0].offline_hostgroup: 1 is already the reader_hostgroup of this row"
        ]
    );
    let second = "[[mysql_galera_hostgroups]]\nwriter_hostgroup = 10\nbackup_writer_hostgroup = 12\n\
                  reader_hostgroup = 1\noffline_hostgroup = 19\nactive = false\n";
    assert_eq!(
        messages(&format!("{SERVER}{GALERA}{second}")),
        [
            "weir.toml:9: mysql_galera_hostgroups[1].reader_hostgroup: 1 is already the reader_hostgroup of another \
             row (line 4)"
        ]
    );
    assert_eq!(
        messages(GALERA),
        ["weir.toml:1: mysql_galera_hostgroups[0]: no row of mysql_servers is in any of its hostgroups"]
    );
}

#[test]
fn faults_of_variables() {
    for (line, message) in [
        ("threads = 0", "threads: 0 is out of range (1..255)"),
        ("thread = 4", "thread: unknown key, did you mean \"threads\"?"),
        ("mysql-threads = 4", "mysql-threads: names have no mysql- prefix here: write threads"),
        ("mysql_threads = 4", "mysql_threads: names have no mysql- prefix here: write threads"),
        ("multiplexing = false", "multiplexing: false is not built yet (only true)"),
        ("interfaces = \"\"", "interfaces: is empty"),
        (
            "interfaces = \"6033\"",
            "interfaces: \"6033\" is neither an address and port such as 0.0.0.0:6033 nor the path of a socket",
        ),
        ("interfaces = \"0.0.0.0:0\"", "interfaces: \"0.0.0.0:0\" has no port"),
        ("interfaces = \"[::]:6033;[::]:6033\"", "interfaces: \"[::]:6033\" is there twice"),
        ("interfaces = \"/run/weir/\"", "interfaces: \"/run/weir/\" names a directory, not a socket"),
        ("interfaces = \"/run/w;/run/w\"", "interfaces: \"/run/w\" is there twice"),
        ("max_connections = 0", "max_connections: 0 is out of range (1..1000000)"),
        ("max_allowed_packet = 64", "max_allowed_packet: 64 is out of range (8192..1073741824)"),
        ("server_version = \"MariaDB\"", "server_version: \"MariaDB\" is not a version such as 8.0.36"),
        (
            "proxy_protocol_networks = \"10.0.0.0/33\"",
            "proxy_protocol_networks: \"10.0.0.0/33\" is no network such as 10.0.0.0/8, no address, and not \"*\" or \
             \"localhost\"",
        ),
        (
            "default_authentication_plugin = \"ed25519\"",
            "default_authentication_plugin: unknown word \"ed25519\" (one of: mysql_native_password, \
             caching_sha2_password)",
        ),
        (
            "default_authentication_plugin = \"caching_sha_password\"",
            "default_authentication_plugin: unknown word \"caching_sha_password\", did you mean \
             \"caching_sha2_password\"?",
        ),
        ("default_charset = \"utf16\"", "default_charset: other values than utf8mb4 are not built yet"),
        ("shun_on_failures = -1", "shun_on_failures: -1 is out of range (0..10000000)"),
        ("shun_recovery_time_sec = \"10\"", "shun_recovery_time_sec: \"10\" is not an integer"),
        ("connect_retries_delay = 10001", "connect_retries_delay: 10001 is out of range (0..10000)"),
        ("ping_timeout_server = 1", "ping_timeout_server: 1 is out of range (10..600000)"),
        ("init_connect = \"SET a='x\"", "init_connect: unterminated quote '"),
        ("init_connect = \"SET a=1 /*\"", "init_connect: unterminated comment"),
        (
            "throttle_connections_per_sec_to_hostgroup = 0",
            "throttle_connections_per_sec_to_hostgroup: 0 is out of range (1..1000000)",
        ),
        ("max_transaction_time = 1", "max_transaction_time: 1 is out of range (1000..1728000000)"),
        ("tls_cert_file = \"c.pem\"", "tls_cert_file: needs tls_key_file too"),
        ("tls_key_file = \"k.pem\"", "tls_key_file: needs tls_cert_file too"),
        ("monitor_username = \"\"", "monitor_username: is empty"),
        ("monitor_password = 1", "monitor_password: an integer is not a string"),
        ("free_connections_pct = 101", "free_connections_pct: 101 is out of range (0..100)"),
        ("query_digests = 1.5", "query_digests: 1.5 is neither true nor false"),
        ("query_digests_normalize_digest_text = true", "query_digests_normalize_digest_text: not built yet"),
        (
            "query_digests_max_digest_length = 15",
            "query_digests_max_digest_length: 15 is out of range (16..1048576)",
        ),
        (
            "query_digests_max_query_length = 0",
            "query_digests_max_query_length: 0 is out of range (16..1048576)",
        ),
        ("query_digests_grouping_limit = 0", "query_digests_grouping_limit: 0 is out of range (1..2089)"),
        ("query_digests_max = 10000001", "query_digests_max: 10000001 is out of range (0..10000000)"),
        (
            "query_digests_groups_grouping_limit = 2090",
            "query_digests_groups_grouping_limit: 2090 is out of range (0..2089)",
        ),
        ("ssl_p2s_cert = \"c.pem\"", "ssl_p2s_cert: needs ssl_p2s_key too"),
        (
            "ssl_p2s_crl = \"crl.pem\"",
            "ssl_p2s_crl: needs ssl_p2s_ca or ssl_p2s_capath: without authorities any certificate is accepted",
        ),
        ("connection_max_age_ms = 86400001", "connection_max_age_ms: 86400001 is out of range (0..86400000)"),
    ] {
        assert_fault("[mysql_variables]\n", line, &format!("mysql_variables.{message}"));
    }
    for (line, message) in [
        (
            "mysql_ifaces = \"6032\"",
            "mysql_ifaces: \"6032\" is neither an address and port such as 0.0.0.0:6033 nor the path of a socket",
        ),
        ("admin_credentials = \"geheim\"", "admin_credentials: account 1 is not user:password"),
        ("admin_credentials = \"a:b;:c\"", "admin_credentials: account 2 is not user:password"),
        ("admin_credentials = \"a:b;a:c\"", "admin_credentials: \"a\" is there twice"),
        ("stats_credentials = \"admin:x\"", "stats_credentials: \"admin\" is in admin_credentials, too"),
        ("refresh_interval = 1", "refresh_interval: not built yet"),
        ("cluster_check_interval_ms = 1", "cluster_check_interval_ms: 1 is out of range (10..300000)"),
        (
            "cluster_mysql_users_diffs_before_sync = 1001",
            "cluster_mysql_users_diffs_before_sync: 1001 is out of range (0..1000)",
        ),
        (
            "cluster_ssl_mode = \"VERIFY\"",
            "cluster_ssl_mode: unknown word \"VERIFY\" (one of: DISABLED, REQUIRED, VERIFY_CA, VERIFY_IDENTITY)",
        ),
        (
            "cluster_ssl_mode = \"verify_ca\"",
            "cluster_ssl_mode: needs cluster_ssl_ca too, which each proxy has for itself",
        ),
        ("stats_system_cpu = 301", "stats_system_cpu: 301 is out of range (0..300)"),
        ("web_port = 0", "web_port: 0 is out of range (1..65535)"),
        ("debug = true", "debug: not built yet"),
        ("web_enable = true", "web_enable: unknown key, did you mean \"web_enabled\"?"),
        ("web_ip = \"localhost\"", "web_ip: \"localhost\" is not an IP address"),
        ("web_metrics_public = 2", "web_metrics_public: 2 is neither true nor false"),
        ("admin-web_port = 6080", "admin-web_port: names have no admin- prefix here: write web_port"),
    ] {
        assert_fault("[admin_variables]\n", line, &format!("admin_variables.{message}"));
    }
    assert_eq!(
        messages("mysql_variables = 1"),
        ["weir.toml:1: mysql_variables: is a table: write [mysql_variables] above its variables"]
    );
}

#[test]
fn faults_of_hostgroups() {
    let start = format!("{SERVER}[[mysql_hostgroup_attributes]]\nhostgroup_id = 0\n");
    for (line, message) in [
        ("max_num_online_servers = -1", "max_num_online_servers: -1 is out of range (0..1000000)"),
        ("free_connections_pct = 101", "free_connections_pct: 101 is out of range (0..100)"),
        ("autocommit = 1", "autocommit: 1 is not built yet (only -1)"),
        ("multiplex = 2", "multiplex: 2 is neither true nor false"),
        ("connection_warming = 2", "connection_warming: 2 is neither true nor false"),
        ("throttle_connections_per_sec = 0", "throttle_connections_per_sec: 0 is out of range (1..1000000)"),
        ("init_connect = 1", "init_connect: 1 is not a string"),
        ("ignore_session_variables = '[]'", "ignore_session_variables: not built yet (only an empty string)"),
        ("hostgroup_settings = '{}'", "hostgroup_settings: not built yet (only an empty string)"),
        ("servers_defaults = '{}'", "servers_defaults: not built yet (only an empty string)"),
        ("warming = 1", "warming: unknown key"),
    ] {
        assert_fault(&start, line, &format!("mysql_hostgroup_attributes[0].{message}"));
    }
    let start = format!("{SERVER}[[weir_hostgroups]]\nhostgroup_id = 0\n");
    for (line, message) in [
        ("balancing = \"weight\"", "balancing: unknown word \"weight\", did you mean \"weighted\"?"),
        ("balancing = 1", "balancing: 1 is not a string"),
    ] {
        assert_fault(&start, line, &format!("weir_hostgroups[0].{message}"));
    }
    for table in ["mysql_hostgroup_attributes", "weir_hostgroups"] {
        let row = |id: u32| format!("[[{table}]]\nhostgroup_id = {id}\n");
        assert_eq!(
            messages(&format!("{SERVER}{}{}{}", row(0), row(7), row(0))),
            [
                format!("weir.toml:6: {table}[1].hostgroup_id: no server and no cluster is in hostgroup 7"),
                format!("weir.toml:8: {table}[2].hostgroup_id: hostgroup 0 is already there (line 4)"),
            ]
        );
        assert_eq!(
            messages(&format!("{SERVER}[[{table}]]\ncomment = \"x\"\n")),
            [format!("weir.toml:4: {table}[0].hostgroup_id: is missing")]
        );
    }
    let attributes = |id: u32, text: &str| {
        format!("[[mysql_hostgroup_attributes]]\nhostgroup_id = {id}\ninit_connect = \"{text}\"\n")
    };
    let both = format!("{SERVER}{GALERA}{}{}", attributes(0, "SET a=1"), attributes(1, "SET a=2"));
    assert_eq!(
        messages(&both),
        [
            "weir.toml:12: mysql_hostgroup_attributes[1].init_connect: connections to db1:3306 serve the hostgroups 0 \
          and 1, and the init_connect of these differs"
        ]
    );
}

#[test]
fn rows_of_hostgroups() {
    let text = format!(
        "{SERVER}[[mysql_hostgroup_attributes]]\nhostgroup_id = 0\ninit_connect = \"SET a=1; SET b=2\"\n\
         [[weir_hostgroups]]\nhostgroup_id = 0\nbalancing = \"latency\"\n"
    );
    let config = parse(&text, "weir.toml").unwrap();
    let row = config.attributes_of(0).unwrap();
    assert_eq!(row.init_connect, ["SET a=1", "SET b=2"]);
    assert_eq!((row.free_connections_pct, row.throttle_connections_per_sec), (10, 1_000_000));
    assert_eq!(config.weir_hostgroups[0].balancing, Balancing::Latency);
    assert!(config.attributes_of(1).is_none());
}

#[test]
fn a_shunned_server_rests_no_longer_than_a_statement_waits() {
    let policy = |text: &str| parse(&format!("[mysql_variables]\n{text}"), "weir.toml").unwrap().policy();
    let policies = [
        ("", 5, 9_000),
        ("shun_on_failures = 20", 11, 9_000),
        ("shun_on_failures = 0", 1, 9_000),
        ("connect_retries_on_failure = 0", 1, 9_000),
        ("shun_recovery_time_sec = 3", 5, 3_000),
        ("connect_timeout_server_max = 100", 5, 1_000),
        ("connect_timeout_server_max = 60000", 5, 10_000),
    ];
    for (text, failures, recovery_ms) in policies {
        let policy = policy(text);
        assert_eq!((policy.shun_on_failures, policy.shun_recovery_ms), (failures, recovery_ms), "{text}");
    }
}

#[test]
fn faults_of_the_file() {
    for (text, message) in [
        ("[[restapi_routes]]\nmethod = \"GET\"", "weir.toml:1: restapi_routes: not built yet"),
        ("errorlog = \"/var/log/x\"", "weir.toml:1: errorlog: not built yet"),
        (
            "[[mysql_server]]\nport = 1",
            "weir.toml:1: mysql_server: unknown key, did you mean \"mysql_servers\"?",
        ),
        ("\n\ndatadir = 5", "weir.toml:3: datadir: 5 is not a string"),
        ("datadir = \"\"", "weir.toml:1: datadir: is empty"),
    ] {
        assert_eq!(messages(text), [message]);
    }
    let syntax = messages("a = 1\nb = = 2\n");
    assert_eq!(syntax.len(), 1);
    assert!(syntax[0].starts_with("weir.toml:2: "), "{}", syntax[0]);
    let twice = messages("datadir = \"a\"\ndatadir = \"b\"\n");
    assert!(twice[0].starts_with("weir.toml:2: duplicate key"), "{}", twice[0]);
    let long = " ".repeat(FILE_SIZE_BYTES_MAX + 1);
    assert_eq!(messages(&long), ["weir.toml: longer than 67108864 bytes"]);
    let many = "[[mysql_servers]]\n".repeat(400);
    let many = messages(&many);
    assert_eq!((many.len(), many.last().map(String::as_str)), (501, Some("weir.toml: 300 more faults")));
    let missing = load("/nonexistent/weir.toml").unwrap_err();
    assert!(missing[0].to_string().starts_with("/nonexistent/weir.toml: can't be read: "));
}

#[test]
fn all_faults_at_once_by_line() {
    let text =
        "[mysql_variables]\nthreads = 0\n[[mysql_servers]]\nport = 0\nhostname = \"a\"\nhostgroup_id = -1\n";
    assert_eq!(
        messages(text),
        [
            "weir.toml:2: mysql_variables.threads: 0 is out of range (1..255)",
            "weir.toml:4: mysql_servers[0].port: 0 is not a port (1..65535)",
            "weir.toml:6: mysql_servers[0].hostgroup_id: -1 is out of range (0..2147483647)",
        ]
    );
}

#[test]
fn a_file_without_faults() {
    let text = r#"
        datadir = "/tmp/weir"
        mysql_query_rules = []
        mysql_users = [
            { username = "app", password = "app", default_hostgroup = 100, active = 1 },
            { username = "old", password = "*1975D095AC033CAF4E1BF94F7202A9BBFEEB66F1", default_hostgroup = 100 },
        ]
        [[mysql_servers]]
        address = "127.0.0.11"
        hostgroup = 100
        weight = 10000
        status = "OFFLINE_SOFT"
        use_ssl = 0
        [[mysql_galera_hostgroups]]
        writer_hostgroup = 100
        backup_writer_hostgroup = 102
        reader_hostgroup = 101
        offline_hostgroup = 9101
        writer_is_also_reader = 2
        [mysql_variables]
        threads = 3
        interfaces = "127.0.0.1:6033; [::1]:6033"
        wait_timeout = 1000
        use_tcp_keepalive = 0
        tcp_keepalive_time = 7200
        monitor_password = "geheim"
        query_digests_lowercase = false
        ssl_p2s_ca = ""
        connection_max_age_ms = 0
        tls_cert_file = "c.pem"
        tls_key_file = "k.pem"
        [admin_variables]
        web_enabled = 0
    "#;
    let config = parse(text, "weir.toml").unwrap();
    assert_eq!(config.datadir.to_str(), Some("/tmp/weir"));
    let [server] = config.servers.as_slice() else { panic!("one server") };
    assert_eq!((server.hostname.as_str(), server.port, server.hostgroup_id), ("127.0.0.11", 3306, 100));
    assert_eq!(
        (server.weight, server.status, server.max_connections),
        (10_000, ServerStatus::OfflineSoft, 1000)
    );
    assert_eq!(config.galera_hostgroups[0].writer_is_also_reader, WriterIsAlsoReader::BackupWriters);
    assert_eq!(config.variables.interfaces.len(), 2);
    assert_eq!(config.variables.wait_timeout, Duration::from_secs(1));
    let keepalive = (config.variables.use_tcp_keepalive, config.variables.tcp_keepalive_time);
    assert_eq!(keepalive, (false, Duration::from_secs(7200)));
    assert_eq!(config.users[0].password, Password::Clear(Secret::new("app")));
    assert!(matches!(config.users[1].password, Password::NativeHash([0x19, 0x75, ..])));
    let shown = format!("{config:?}");
    assert!(
        !shown.contains("geheim") && !shown.contains("\"app\\\"") && shown.contains("Clear(..)"),
        "{shown}"
    );
    assert_eq!(parse("", "weir.toml").unwrap(), Config::default());
}

#[test]
fn the_topology_rules_of_a_configuration() {
    let galera = GALERA.replace("offline", "max_writers = 2\nwriter_is_also_reader = 1\noffline");
    let config = parse(&format!("{SERVER}status = \"OFFLINE_HARD\"\n{galera}"), "weir.toml").unwrap();
    let policy = config.policy();
    assert_eq!((policy.galera[0].timeouts_max, policy.observation_age_max_ms), (3, 10_000));
    assert_eq!((policy.galera[0].max_writers, policy.galera[0].offline_hostgroup), (2, 9));
    assert_eq!(policy.galera[0].writer_reads, weir_topology::WriterReads::Yes);
    let intents = config.intents();
    assert_eq!((intents[0].endpoint.to_string().as_str(), intents[0].hostgroup), ("db1:3306", 0));
    assert_eq!(intents[0].wish, weir_topology::Wish::OfflineHard);
    let inactive = parse(&format!("{SERVER}{GALERA}active = 0\n"), "weir.toml").unwrap();
    assert!(inactive.policy().galera.is_empty());
}

#[test]
fn passwords_are_recognised_by_shape() {
    let sha2 = format!("$A$005${}", "s".repeat(63));
    assert!(matches!(Password::parse(&sha2), Ok(Password::Sha2Hash(_))));
    for clear in ["", "*", "*star", "$A", "$1$x", "*caffee"] {
        assert!(matches!(Password::parse(clear), Ok(Password::Clear(_))), "{clear}");
    }
}

#[test]
fn load_reads_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.toml");
    std::fs::write(&path, "[mysql_variables]\nthreads = 7\n").unwrap();
    assert_eq!(load(&path).unwrap().variables.threads, 7);
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(load(&path).unwrap_err()[0].to_string().contains("can't be read"));
}

/// Lines that meet in ways the parser must survive.
fn any_line() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "hostname",
        "port",
        "hostgroup_id",
        "weight",
        "username",
        "password",
        "threads",
        "interfaces",
        "x.y",
        "status",
        "mysql_servers",
        "writer_hostgroup",
        "writer_is_also_reader",
        "mysql-x",
        "datadir",
        "attributes",
    ]);
    let value = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        ".{0,12}".prop_map(|s| format!("{s:?}")),
        prop::sample::select(vec!["true", "[]", "{}", "[{}]", "1e400", "1979-05-27", "\"*\"", "\"ONLINE\""])
            .prop_map(str::to_owned),
    ];
    let header = prop::sample::select(vec![
        "[[mysql_servers]]",
        "[[mysql_users]]",
        "[[mysql_galera_hostgroups]]",
        "[[mysql_group_replication_hostgroups]]",
        "[[mysql_replication_hostgroups]]",
        "[mysql_variables]",
        "[admin_variables]",
        "[[mysql_query_rules]]",
        "[mysql_servers.x]",
    ]);
    prop_oneof![
        3 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => header.prop_map(str::to_owned),
        1 => ".{0,30}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        fuzzing::fuzz_config(text.as_bytes());
    }

    #[test]
    fn no_mixture_of_lines_makes_it_panic(lines in prop::collection::vec(any_line(), 0..12)) {
        fuzzing::fuzz_config(lines.join("\n").as_bytes());
    }
}

#[test]
fn the_fuzzers_corpus() {
    let corpus = weir_seeds::Corpus::of("config", b"[]{}=,.\"'#\n\\ 0-a\xFF");
    assert!(corpus.files() >= 3);
    // Reading a whole file takes long: not every beginning.
    corpus.beginnings_by(|len| len / 8 + 1, fuzzing::fuzz_config);
}

#[test]
fn secrets_are_known_by_their_names() {
    for name in ["mysql-monitor_password", "admin-admin_credentials", "admin-Web_Token", "password"] {
        assert!(crate::is_secret_name(name), "{name}");
    }
    assert!(!crate::is_secret_name("mysql-threads") && !crate::is_secret_name("username"));
}
