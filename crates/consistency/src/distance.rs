//! Puts the nodes of a Galera cluster some milliseconds away from each other.
//!
//! Nodes tell each other where they listen, so a relay at an address of its own would be passed by. Each node is in a
//! network namespace, and what its server's user sends to another node's group port is delivered in the namespace itself,
//! to a relay that listens at the other's address:
//!
//! ```text
//! server 1 ─► 10.213.0.12:4567, in the namespace of 1: the relay ─ later ─► 10.213.0.12:4567 of server 2
//! ```
//!
//! What goes to clients' ports goes its usual way.

use std::fs;
use std::net::SocketAddrV4;
use std::process::Command;
use std::thread;
use std::time::Duration;

use weir_lab::servers::network::{Network, enter};
use weir_lab::{Error, Relay};
use weir_testkit::Place;

/// Group messages and incremental state transfers.
const PORTS: [u16; 2] = [4567, 4568];
/// The user of the servers.
const USER: &str = "mysql";
/// Where the addresses of other nodes are one's own.
const TABLE: &str = "100";

/// The namespaces and their relays; removed with it, which has to be after the servers' end.
#[derive(Debug)]
pub(crate) struct Distance {
    _relays: Vec<Relay>,
    network: Network,
}

impl Distance {
    /// Makes it, and moves the calling thread into the namespace from which clients reach all servers.
    pub(crate) fn create(delay_ms: f64) -> Result<Distance, Error> {
        let delay = Duration::try_from_secs_f64(delay_ms / 1000.0)
            .map_err(|_| Error::Impossible(format!("no delay is {delay_ms} ms")))?;
        let network = Network::create()?;
        network.enter()?;
        let places = network.places();
        let user = user_id()?;
        let mut relays = Vec::new();
        for place in &places {
            redirect(place, &places, user)?;
            // Sockets are made in the namespace of their thread.
            let started = thread::scope(|scope| scope.spawn(|| relays_of(place, &places, delay)).join());
            relays.extend(started.unwrap_or_else(|_| Err(Error::panicked("a relay")))?);
        }
        Ok(Distance { _relays: relays, network })
    }

    /// Where the servers stand.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.network.places()
    }
}

/// What the servers' user sends from this place to another one's ports stays here. The others' addresses are here, too, so
/// that a relay can answer from them; everything else that is sent there goes its usual way.
fn redirect(place: &Place, places: &[Place], user: u32) -> Result<(), Error> {
    let ip = |arguments: &str| run("ip", &format!("-n {} {arguments}", place.namespace));
    // Local addresses come first otherwise.
    ip("rule add pref 2000 lookup local")?;
    ip("rule delete pref 0 lookup local")?;
    for other in places.iter().filter(|other| *other != place) {
        let address = other.address;
        ip(&format!("address add {address}/32 dev lo"))?;
        ip(&format!("route add local {address} dev lo src {} table {TABLE}", place.address))?;
        for port in PORTS {
            ip(&format!(
                "rule add pref 1000 uidrange {user}-{user} to {address} ipproto tcp dport {port} lookup {TABLE}"
            ))?;
        }
        ip(&format!("rule add pref 1001 to {address} lookup main"))?;
    }
    Ok(())
}

/// Relays that listen at the addresses of all others.
fn relays_of(place: &Place, places: &[Place], delay: Duration) -> Result<Vec<Relay>, Error> {
    enter(&place.namespace)?;
    // Nobody is to be told that the others' addresses are here.
    let setting = "/proc/sys/net/ipv4/conf/all/arp_ignore";
    fs::write(setting, "1").map_err(Error::io(format!("write {setting}")))?;
    let mut relays = Vec::new();
    for other in places.iter().filter(|other| *other != place) {
        for port in PORTS {
            let address = SocketAddrV4::new(other.address, port);
            relays.push(Relay::start(address, address, delay)?);
        }
    }
    Ok(relays)
}

fn user_id() -> Result<u32, Error> {
    let id = run("id", &format!("-u {USER}"))?;
    id.parse().map_err(|_| Error::Answer { what: format!("the id of {USER}"), answer: id })
}

fn run(program: &str, arguments: &str) -> Result<String, Error> {
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.map_err(Error::io(format!("run {program}")))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Answer { what: format!("{program} {arguments}"), answer: text(&output.stderr) }),
    }
}
