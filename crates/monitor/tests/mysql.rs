//! The monitor on real MySQL servers: a Group Replication group of three, and a source with a replica.
//!
//! `cargo test -p weir-monitor --test mysql -- --ignored`

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_client::{Connection, Options};
use weir_monitor::{Monitor, monotonic_ns};
use weir_testkit::{Account, Mysql, MysqlOptions};
use weir_topology::{Endpoint, Roles, ServerRegistry, Status};

/// Rounds of writing at the writer and reading elsewhere.
const ROUNDS: usize = 100;
/// What takes the servers or the machine long; nothing is measured.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers, their monitor, and the roles published last.
struct World {
    mysql: Mysql,
    registry: ServerRegistry,
    roles: Arc<Mutex<Arc<Roles>>>,
    _monitor: Monitor,
}

impl World {
    fn start(options: MysqlOptions, tables: &str) -> Self {
        let mysql = Mysql::start(&options).unwrap();
        let Account { user, password } = Account::MONITOR;
        let mut text = format!(
            "[mysql_variables]\nmonitor_username = \"{user}\"\nmonitor_password = \"{password}\"\n{tables}"
        );
        for server in mysql.servers() {
            let (host, port) = (server.addr().ip().to_string(), server.addr().port());
            text += &format!("[[mysql_servers]]\nhostgroup_id = 100\nhostname = \"{host}\"\nport = {port}\n");
            text += if options.group { "" } else { "max_replication_lag = 5\n" };
        }
        let config = weir_config::parse(&text, "test.toml").unwrap();
        let registry = ServerRegistry::default();
        let roles: Arc<Mutex<Arc<Roles>>> = Arc::default();
        let sink = roles.clone();
        let publish = move |roles| *sink.lock().unwrap() = roles;
        let monitor = Monitor::start(
            &config,
            "test",
            BTreeSet::new(),
            &Default::default(),
            &Default::default(),
            registry.clone(),
            publish,
        );
        Self { mysql, registry, roles, _monitor: monitor.unwrap() }
    }

    fn roles(&self) -> Arc<Roles> {
        self.roles.lock().unwrap().clone()
    }

    fn endpoint(&self, server: usize) -> Endpoint {
        let address = self.mysql.server(server).addr();
        Endpoint::new(&address.ip().to_string(), address.port())
    }

    /// The servers, counted from 1, that take work in a hostgroup.
    fn online(&self, hostgroup: u32) -> Vec<usize> {
        let roles = self.roles();
        let is_online = |server: &usize| {
            let endpoint = self.endpoint(*server);
            roles
                .hostgroup(hostgroup)
                .iter()
                .any(|place| place.endpoint == endpoint && place.status == Status::Online)
        };
        (1..=self.mysql.servers().len()).filter(is_online).collect()
    }

    fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !wanted(self) {
            assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}; now {:#?}", self.roles());
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("{:>8.1} ms  {what}", start.elapsed().as_secs_f64() * 1e3);
    }

    fn connect(&self, server: usize) -> Connection {
        let endpoint = self.endpoint(server);
        let Account { user, password } = Account::APP;
        Connection::connect(&Options::new(&endpoint.host, endpoint.port, user, password)).unwrap()
    }

    /// Whoever says that it covers a write shows it.
    fn covered_reads_are_fresh(&self, writer: usize) {
        let mut writing = self.connect(writer);
        writing.query("CREATE TABLE IF NOT EXISTS test.c (id INT PRIMARY KEY, v INT NOT NULL)").unwrap();
        writing.query("REPLACE INTO test.c VALUES (0, 0)").unwrap();
        let servers = 1..=self.mysql.servers().len();
        let mut others: Vec<_> = servers
            .map(|server| (self.registry.server(&self.endpoint(server)), self.connect(server)))
            .collect();
        for round in 1..=ROUNDS {
            writing.query(&format!("UPDATE test.c SET v = {round} WHERE id = 0")).unwrap();
            let acknowledged_ns = monotonic_ns();
            for (shared, reading) in &mut others {
                let start = Instant::now();
                while !shared.covers(acknowledged_ns) {
                    assert!(start.elapsed() < PATIENCE, "{} does not cover a write", shared.endpoint);
                    std::thread::sleep(Duration::from_millis(1));
                }
                let read = reading.query("SELECT v FROM test.c WHERE id = 0").unwrap();
                assert_eq!(read.first(), Some(&*round.to_string()), "{}", shared.endpoint);
            }
        }
    }
}

#[test]
#[ignore = "starts three MySQL servers"]
fn a_group() {
    let options = MysqlOptions {
        purpose: "controlgroup".to_owned(),
        servers: 3,
        group: true,
        first_address: Ipv4Addr::new(127, 0, 0, 61),
        ..MysqlOptions::tests()
    };
    let table = "[[mysql_group_replication_hostgroups]]\nwriter_hostgroup = 100\nbackup_writer_hostgroup = 102\n\
                 reader_hostgroup = 101\noffline_hostgroup = 9101\n";
    let world = World::start(options, table);
    world.until("the primary writes, the others read", |world| {
        world.online(100) == [1] && world.online(101) == [2, 3]
    });
    world.covered_reads_are_fresh(1);
    let root = |server: usize, sql: &str| world.mysql.server(server).root_query(sql).unwrap();
    let uuid = root(2, "SELECT @@GLOBAL.server_uuid").concat().concat();
    root(1, &format!("SELECT group_replication_set_as_primary('{uuid}')"));
    world.until("the group has moved its primary", |world| {
        world.online(100) == [2] && world.online(101) == [1, 3]
    });
    world.covered_reads_are_fresh(2);
    root(3, "STOP GROUP_REPLICATION");
    world.until("a member that has left", |world| world.online(101) == [1]);
    world.until("for the reason that its server tells", |world| {
        let roles = world.roles();
        let reason = roles.hostgroup(9101).first().map(|place| place.reason.to_string());
        reason.as_deref() == Some("its state in the group is OFFLINE")
    });
    world.mysql.server(3).join_group().unwrap();
    world.until("and is back", |world| world.online(101) == [1, 3]);
    world.mysql.server(2).kill().unwrap();
    world.until("a killed primary: hold", |world| world.online(100).is_empty());
    assert!(world.roles().group(100).unwrap().hold.is_some());
    world.until("the next primary", |world| world.online(100).len() == 1);
    let writer = world.online(100)[0];
    assert_ne!(writer, 2);
    world.covered_rest(writer);
    world.mysql.server(2).start().unwrap();
    world.mysql.server(2).join_group().unwrap();
    world.until("the old primary reads", |world| world.online(101).contains(&2));
    world.covered_reads_are_fresh(writer);
}

impl World {
    /// The survivors are written to and covered at once.
    fn covered_rest(&self, writer: usize) {
        self.connect(writer).query("UPDATE test.c SET v = -1 WHERE id = 0").unwrap();
        let acknowledged_ns = monotonic_ns();
        for server in self.online(101) {
            let shared = self.registry.server(&self.endpoint(server));
            self.until("a survivor covers", |_| shared.covers(acknowledged_ns));
            let read = self.connect(server).query("SELECT v FROM test.c WHERE id = 0").unwrap();
            assert_eq!(read.first(), Some("-1"));
        }
    }
}

#[test]
#[ignore = "starts two MySQL servers"]
fn a_source_and_a_replica() {
    let options = MysqlOptions {
        purpose: "controlreplica".to_owned(),
        first_address: Ipv4Addr::new(127, 0, 0, 65),
        ..MysqlOptions::tests()
    };
    let table = "monitor_writer_is_also_reader = false\n\
                 [[mysql_replication_hostgroups]]\nwriter_hostgroup = 100\nreader_hostgroup = 101\n";
    let world = World::start(options, table);
    world.until("the source writes, the replica reads", |world| {
        world.online(100) == [1] && world.online(101) == [2]
    });
    world.covered_reads_are_fresh(1);
    let root = |server: usize, sql: &str| world.mysql.server(server).root_query(sql).unwrap();
    root(2, "STOP REPLICA SQL_THREAD");
    world.until("a replica that stands still does not read", |world| world.online(101) == [1]);
    world.connect(1).query("UPDATE test.c SET v = -1 WHERE id = 0").unwrap();
    let acknowledged_ns = monotonic_ns();
    let replica = world.registry.server(&world.endpoint(2));
    root(2, "START REPLICA SQL_THREAD");
    world.until("and is back", |world| world.online(101) == [2]);
    world.until("and covers what was written meanwhile", |_| replica.covers(acknowledged_ns));
    root(1, "SET GLOBAL super_read_only = ON");
    world.until("no writer: hold", |world| world.online(100).is_empty());
    assert!(world.roles().group(100).unwrap().hold.is_some());
    root(2, "STOP REPLICA; SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF");
    world.until("the new writer", |world| world.online(100) == [2]);
    let acknowledged_ns = monotonic_ns();
    world.until("has all there is", |_| replica.covers(acknowledged_ns));
    let source = world.registry.server(&world.endpoint(1));
    std::thread::sleep(Duration::from_millis(300));
    world.connect(2).query("UPDATE test.c SET v = -2 WHERE id = 0").unwrap();
    let acknowledged_ns = monotonic_ns();
    // The old source replicates from nobody, so it never gets the write.
    std::thread::sleep(Duration::from_secs(2));
    assert!(!source.covers(acknowledged_ns));
    root(1, "SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF");
    world.until("two writers", |world| world.online(100) == [1, 2]);
    let reason = world.roles().hostgroup(100)[0].reason.to_string();
    assert!(reason.contains("both are writers"), "{reason}");
}
