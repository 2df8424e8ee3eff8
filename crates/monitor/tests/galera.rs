//! The monitor on a real cluster: three MariaDB servers on loopback, killed, paused and written to.
//!
//! `cargo test -p weir-monitor --test galera -- --ignored`

#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_client::{Connection, Options};
use weir_config::Config;
use weir_monitor::{Monitor, monotonic_ns};
use weir_testkit::{Account, Galera, GaleraOptions};
use weir_topology::{Endpoint, Place, Reason, Role, Roles, ServerRegistry, Status};

/// Rounds of writing on one node and reading on another.
const ROUNDS: usize = 1000;

/// The cluster, its monitor, and all roles published so far.
struct World {
    cluster: Galera,
    registry: ServerRegistry,
    monitor: Monitor,
    published: Arc<Mutex<Vec<Arc<Roles>>>>,
}

impl World {
    fn start() -> Self {
        let options = GaleraOptions::new("control", Ipv4Addr::new(127, 0, 0, 51));
        let cluster = Galera::start(options).unwrap();
        // The documented minimum: an account without any privilege.
        cluster.node(1).root_query("CREATE USER bare@'%' IDENTIFIED BY 'bare'").unwrap();
        let registry = ServerRegistry::default();
        let published: Arc<Mutex<Vec<_>>> = Arc::default();
        let sink = published.clone();
        let monitor = Monitor::start(
            &config(&cluster, ""),
            "test",
            BTreeSet::new(),
            &Default::default(),
            &Default::default(),
            registry.clone(),
            move |roles| {
                sink.lock().unwrap().push(roles);
            },
        );
        let monitor = monitor.unwrap();
        monitor.serve();
        Self { cluster, registry, monitor, published }
    }

    fn endpoint(&self, node: usize) -> Endpoint {
        endpoint(&self.cluster, node)
    }

    fn roles(&self) -> Arc<Roles> {
        self.published.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn online(&self, hostgroup: u32) -> Vec<Endpoint> {
        let roles = self.roles();
        let online = |place: &&Place| place.status == Status::Online;
        roles.hostgroup(hostgroup).iter().filter(online).map(|place| place.endpoint.clone()).collect()
    }

    /// Waits until the roles are as wanted, and gives the time that took.
    fn until(&self, what: &str, within: Duration, wanted: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !wanted(self) {
            assert!(start.elapsed() < within, "not within {within:?}: {what}; now {:#?}", self.roles());
            std::thread::sleep(Duration::from_millis(1));
        }
        println!("{:>8.1} ms  {what}", start.elapsed().as_secs_f64() * 1e3);
        start.elapsed()
    }

    fn connect(&self, node: usize) -> Connection {
        let endpoint = self.endpoint(node);
        let Account { user, password } = Account::APP;
        Connection::connect(&Options::new(&endpoint.host, endpoint.port, user, password)).unwrap()
    }
}

fn endpoint(cluster: &Galera, node: usize) -> Endpoint {
    let address = cluster.node(node).addr();
    Endpoint::new(&address.ip().to_string(), address.port())
}

fn config(cluster: &Galera, more: &str) -> Config {
    let row = |node: usize, hostgroup: u32, weight: u32| {
        let Endpoint { host, port } = endpoint(cluster, node);
        format!(
            "[[mysql_servers]]\nhostname = \"{host}\"\nport = {port}\nhostgroup = {hostgroup}\nweight = {weight}\n"
        )
    };
    let text = [
        row(1, 100, 10_000),
        row(1, 101, 100),
        row(2, 101, 10_000),
        row(3, 101, 10_000),
        "[[mysql_galera_hostgroups]]\nwriter_hostgroup = 100\nbackup_writer_hostgroup = 102\nreader_hostgroup = 101\n\
         offline_hostgroup = 9101\nmax_transactions_behind = 10\n[mysql_variables]\nmonitor_username = \"bare\"\n\
         monitor_password = \"bare\"\n"
            .to_owned(),
        more.to_owned(),
    ];
    weir_config::parse(&text.concat(), "test.toml").unwrap()
}

#[test]
#[ignore = "starts three MariaDB servers"]
fn the_monitor_on_a_cluster() {
    let world = World::start();
    world.until("all have roles", Duration::from_secs(5), |world| {
        world.online(100) == [world.endpoint(1)]
            && world.online(101) == [world.endpoint(2), world.endpoint(3)]
    });
    assert!(world.roles().server_version.as_deref().unwrap().contains("MariaDB"));
    covered_reads_are_never_stale(&world);
    nothing_is_published_while_nothing_changes(&world);
    a_paused_reader(&world);
    maintenance(&world);
    one_that_does_not_serve_says_nothing(&world);
    a_killed_writer(&world);
    let start = Instant::now();
    world.monitor.stop();
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    println!("{:>8.1} ms  stop", start.elapsed().as_secs_f64() * 1e3);
}

/// What the data path relies on: as soon as a reader covers the moment at which a write was acknowledged, every
/// session there sees it, without any wait of its own. Under load, which gives the appliers something to do.
fn covered_reads_are_never_stale(world: &World) {
    world.connect(1).query("CREATE TABLE test.c (id INT PRIMARY KEY, v BIGINT NOT NULL)").unwrap();
    world.connect(1).query("INSERT INTO test.c SELECT seq, 0 FROM test.seq_0_to_999").unwrap();
    let end = AtomicBool::new(false);
    let (mut waits_us, mut stale_at_once, mut stale_when_covered) = (Vec::new(), 0, 0);
    std::thread::scope(|scope| {
        for load in 0..3 {
            let (mut connection, end) = (world.connect(1), &end);
            scope.spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    let (low, high) = (1 + load * 300, 300 + load * 300);
                    connection
                        .query(&format!("UPDATE test.c SET v = v + 1 WHERE id BETWEEN {low} AND {high}"))
                        .unwrap();
                }
            });
        }
        let mut writer = world.connect(1);
        let mut readers = [world.connect(2), world.connect(3)];
        let shared = [2, 3].map(|node| world.registry.server(&world.endpoint(node)));
        for round in 1..=ROUNDS {
            writer.query(&format!("UPDATE test.c SET v = {round} WHERE id = 0")).unwrap();
            let acknowledged_ns = monotonic_ns();
            let (reader, shared) = (&mut readers[round % 2], &shared[round % 2]);
            let mut fresh = || {
                let result = reader.query("SELECT v FROM test.c WHERE id = 0").unwrap();
                result.first() == Some(round.to_string().as_str())
            };
            // To see that there is something to be protected from.
            stale_at_once += usize::from(!fresh());
            while !shared.covers(acknowledged_ns) {
                std::thread::sleep(Duration::from_micros(100));
                assert!(monotonic_ns() - acknowledged_ns < 10_000_000_000, "not covered for 10 s");
            }
            waits_us.push((monotonic_ns() - acknowledged_ns) / 1000);
            stale_when_covered += usize::from(!fresh());
        }
        end.store(true, Ordering::Relaxed);
    });
    waits_us.sort_unstable();
    println!(
        "{ROUNDS} writes: {stale_at_once} reads stale at once, {stale_when_covered} when covered; covered after \
         median {} us, 99% {} us, max {} us",
        waits_us[ROUNDS / 2],
        waits_us[ROUNDS * 99 / 100],
        waits_us[ROUNDS - 1]
    );
    assert_eq!(stale_when_covered, 0);
}

fn nothing_is_published_while_nothing_changes(world: &World) {
    std::thread::sleep(Duration::from_millis(500));
    let before = world.published.lock().unwrap().len();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(world.published.lock().unwrap().len(), before);
}

fn a_paused_reader(world: &World) {
    let shared = world.registry.server(&world.endpoint(3));
    world.cluster.node(3).pause().unwrap();
    let paused_ns = monotonic_ns();
    world.until("a paused reader is offline", Duration::from_secs(8), |world| {
        world.online(101) == [world.endpoint(2)]
    });
    assert!(!shared.covers(paused_ns), "a paused server covers nothing");
    world.cluster.node(3).resume().unwrap();
    world.until("and back", Duration::from_secs(30), |world| {
        world.online(101) == [world.endpoint(2), world.endpoint(3)]
    });
    world.until("and covers what was written meanwhile", Duration::from_secs(10), |_| {
        shared.covers(paused_ns)
    });
}

/// A Weir whose start may fail yet leaves nothing in the cluster; one that serves does, until it stops.
fn one_that_does_not_serve_says_nothing(world: &World) {
    world
        .cluster
        .node(1)
        .root_query("CREATE USER agrees@'%' IDENTIFIED BY 'bare'; GRANT ALL ON weir.* TO agrees@'%'")
        .unwrap();
    let mut config = config(&world.cluster, "");
    config.variables.monitor_username = "agrees".to_owned();
    let (published, roles) = channel();
    let publish = move |roles| published.send(roles).unwrap_or_default();
    let nothing = (Default::default(), Default::default());
    let monitor = Monitor::start(
        &config,
        "serves",
        BTreeSet::new(),
        &nothing.0,
        &nothing.1,
        ServerRegistry::default(),
        publish,
    )
    .unwrap();
    let is_seen = |roles: &Arc<Roles>| roles.places.iter().all(|place| place.reason != Reason::NotObserved);
    while !is_seen(&roles.recv_timeout(Duration::from_secs(10)).unwrap()) {}
    // Long enough for what is written every tenth of a second.
    std::thread::sleep(Duration::from_secs(1));
    let rows =
        || world.cluster.node(2).root_query("SET wsrep_sync_wait = 1; SELECT instance FROM weir.instances");
    assert!(rows().is_err(), "it has made the table: {:?}", rows());
    monitor.serve();
    let start = Instant::now();
    while !rows().is_ok_and(|rows| rows == [["serves"]]) {
        assert!(start.elapsed() < Duration::from_secs(10), "no row: {:?}", rows());
    }
    monitor.stop();
    assert!(rows().unwrap().is_empty(), "its row is left: {:?}", rows());
}

/// The user takes the preferred reader out, and changes the account on the way: all probes are started again.
fn maintenance(world: &World) {
    let reload = config(&world.cluster, "monitor_connect_timeout = 700\n");
    let mut drained = reload.clone();
    drained.servers.iter_mut().filter(|server| server.endpoint() == world.endpoint(2)).for_each(|server| {
        server.status = weir_config::ServerStatus::OfflineSoft;
    });
    world.monitor.apply(&drained, &Default::default(), &Default::default());
    world.until("OFFLINE_SOFT is applied", Duration::from_secs(2), |world| {
        world.online(101) == [world.endpoint(3)] && world.online(100) == [world.endpoint(1)]
    });
    world.monitor.apply(&reload, &Default::default(), &Default::default());
    world.until("ONLINE is applied", Duration::from_secs(2), |world| {
        world.online(101) == [world.endpoint(2), world.endpoint(3)]
    });
}

fn a_killed_writer(world: &World) {
    let killed = Instant::now();
    world.cluster.node(1).kill().unwrap();
    world.monitor.reporter().suspect(&world.endpoint(1));
    world.until("a killed writer: hold", Duration::from_secs(2), |world| world.online(100).is_empty());
    assert!(
        world.roles().explain(100).contains("waits until the cluster has removed"),
        "{}",
        world.roles().explain(100)
    );
    // The stall is the cluster's until it has formed its next view; what comes after it is Weir's.
    let mut survivor = world.connect(2);
    let mut view = || survivor.query("SHOW GLOBAL STATUS LIKE 'wsrep_cluster_conf_id'").unwrap();
    let before = view();
    while view() == before {
        assert!(killed.elapsed() < Duration::from_secs(15), "no new view");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("{:>8.1} ms  the cluster's next view", killed.elapsed().as_secs_f64() * 1e3);
    let own = world.until("the next writer", Duration::from_secs(5), |world| !world.online(100).is_empty());
    assert!(own < Duration::from_millis(500), "{own:?} after the cluster was ready");
    let writer = world.online(100);
    assert_ne!(writer, [world.endpoint(1)]);
    // The data path may write there at once.
    let node = if writer == [world.endpoint(2)] { 2 } else { 3 };
    world.connect(node).query("UPDATE test.c SET v = 7 WHERE id = 0").unwrap();
    let acknowledged_ns = monotonic_ns();
    world.cluster.start_node(1).unwrap();
    world.until("the old writer reads", Duration::from_secs(30), |world| {
        // A donor gives the writer's role to the other one.
        let writer = world.online(100);
        world.online(101).contains(&world.endpoint(1)) && writer.len() == 1 && writer != [world.endpoint(1)]
    });
    let shared = world.registry.server(&world.endpoint(1));
    world.until("and covers the writes of the time without it", Duration::from_secs(10), |_| {
        shared.covers(acknowledged_ns)
    });
    assert_eq!(world.connect(1).query("SELECT v FROM test.c WHERE id = 0").unwrap().first(), Some("7"));
    let roles = world.roles();
    let place = roles.hostgroup(101).iter().find(|place| place.endpoint == world.endpoint(1)).unwrap();
    assert_eq!((place.role, place.weight), (Role::Reader, 100));
}
