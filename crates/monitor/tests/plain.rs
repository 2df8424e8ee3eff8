//! The monitor on servers of plain hostgroups that are not there, silent, or only half a server.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use weir_client::Address;
use weir_config::Config;
use weir_monitor::{Monitor, Reach};
use weir_topology::{Endpoint, Roles, ServerRegistry, Status};

/// A monitor of one server, and the roles that it publishes.
fn monitor(address: SocketAddr, probe_every_ms: u32) -> (Monitor, Receiver<Arc<Roles>>) {
    let text = format!(
        "[[mysql_servers]]\nhostname = \"{}\"\nport = {}\nhostgroup = 5\n[mysql_variables]\n\
         monitor_galera_healthcheck_interval = {probe_every_ms}\nmonitor_connect_timeout = 100\n",
        address.ip(),
        address.port()
    );
    let config = weir_config::parse(&text, "test.toml").unwrap();
    start(&config, &Reach::default())
}

fn start(config: &Config, reach: &Reach) -> (Monitor, Receiver<Arc<Roles>>) {
    let (published, roles) = channel();
    let publish = move |roles| published.send(roles).unwrap_or_default();
    let (drained, registry) = (BTreeSet::new(), ServerRegistry::default());
    let started = Monitor::start(config, "test", BTreeSet::new(), &drained, reach, registry, publish);
    (started.unwrap(), roles)
}

fn next(roles: &Receiver<Arc<Roles>>) -> (Status, String) {
    let roles = roles.recv_timeout(Duration::from_secs(5)).unwrap();
    let place = &roles.hostgroup(5)[0];
    (place.status, place.reason.to_string())
}

#[test]
fn a_server_that_is_not_there_is_shunned() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (monitor, roles) = monitor(address, 20);
    assert_eq!(next(&roles).0, Status::Online, "given the benefit of the doubt");
    let (status, reason) = next(&roles);
    assert_eq!(status, Status::Shunned);
    assert!(reason.contains("refused"), "{reason}");
    monitor.stop();
    assert!(roles.try_recv().is_err(), "published once");
}

#[test]
fn a_silent_server_is_shunned_after_three_timeouts_and_does_not_delay_the_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let start = Instant::now();
    let (monitor, roles) = monitor(listener.local_addr().unwrap(), 20);
    assert_eq!(next(&roles).0, Status::Online);
    let (status, reason) = next(&roles);
    assert_eq!((status, reason.as_str()), (Status::Shunned, "3 probes in a row without an answer"));
    assert!(start.elapsed() >= Duration::from_millis(300));
    let end = Instant::now();
    monitor.stop();
    assert!(end.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_report_has_the_server_probed_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (monitor, roles) = monitor(address, 600_000);
    assert_eq!(next(&roles).0, Status::Online);
    // The first probe times out at 100 ms and proves nothing; the next would come in ten minutes.
    let _first = listener.accept().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    drop(listener);
    monitor.reporter().suspect(&Endpoint::new("127.0.0.1", address.port()));
    assert_eq!(next(&roles).0, Status::Shunned);
    monitor.stop();
}

/// Where the name of a server says, whatever its name means to this machine.
fn at(address: Address) -> Reach {
    Reach { addresses: [(Endpoint::new("db.invalid", 3306), address)].into(), ..Reach::default() }
}

#[test]
fn what_was_seen_at_another_address_does_not_count() {
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = "[[mysql_servers]]\nhostname = \"db.invalid\"\nhostgroup = 5\n\
                [mysql_variables]\nmonitor_connect_timeout = 100\n";
    let config = weir_config::parse(text, "test.toml").unwrap();
    let nowhere = at(Address::Unresolved("no such name".into()));
    let (monitor, roles) = start(&config, &nowhere);
    assert_eq!(next(&roles).0, Status::Online, "given the benefit of the doubt");
    assert_eq!(next(&roles), (Status::Shunned, "name does not resolve: no such name".to_owned()));
    // It has been found; of what is there nothing is known, as at the start.
    for (address, fault) in [(refusing, "refused"), (silent.local_addr().unwrap(), "without an answer")] {
        monitor.apply(&config, &Default::default(), &at(Address::At(address)));
        assert_eq!(next(&roles).0, Status::Online, "{address}");
        let (status, reason) = next(&roles);
        assert!(status == Status::Shunned && reason.contains(fault), "{address}: {reason}");
    }
    // The same address again changes nothing.
    monitor.apply(&config, &Default::default(), &at(Address::At(silent.local_addr().unwrap())));
    monitor.stop();
    assert!(roles.try_recv().is_err(), "published once each");
}
