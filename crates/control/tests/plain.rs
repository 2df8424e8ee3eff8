//! The monitor on servers of plain hostgroups that are not there, silent, or only half a server.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail as the test does")]

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use weir_control::Monitor;
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
    let (published, roles) = channel();
    let publish = move |roles| published.send(roles).unwrap_or_default();
    let (drained, tls) = (Default::default(), Default::default());
    let started =
        Monitor::start(&config, "test", BTreeSet::new(), &drained, &tls, ServerRegistry::default(), publish);
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
