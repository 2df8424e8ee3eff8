//! Peers that vanish without a word: TCP keepalive, as the kernel has it for Weir's connections.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use weir_testkit::{WeirConfig, weir_binary};
use weir_tests::{Case, CaseResult, Env, Session, ensure, eventually};

pub(super) fn trials() -> Vec<Case> {
    vec![Case::parallel("vanish::silent_peers_are_asked_whether_they_are_there", silent_peers_are_asked)]
}

const PATIENCE: Duration = Duration::from_secs(20);
/// A time that no other Weir of these tests has.
const TIME_SEC: u64 = 1000;
/// What proc_net_tcp(5) counts time in, per second.
const TICKS: u64 = 100;

/// An IPv4 connection of this machine, as /proc/net/tcp tells of it.
struct Connection {
    local: SocketAddrV4,
    remote: SocketAddrV4,
    /// When the peer is asked, in ticks from now; none without keepalive.
    asked_in: Option<u64>,
}

/// All that are established.
fn connections() -> Result<Vec<Connection>, Box<dyn std::error::Error>> {
    let address = |field: &str| -> Option<SocketAddrV4> {
        let (ip, port) = field.split_once(':')?;
        // The bytes of the address lie in memory as in a packet.
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        Some(SocketAddrV4::new(ip, u16::from_str_radix(port, 16).ok()?))
    };
    let connection = |line: &str| -> Option<Connection> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, remote, "01", _, timer, ..] = fields.as_slice() else { return None };
        let (kind, when) = timer.split_once(':')?;
        let asked_in = u64::from_str_radix(when, 16).ok().filter(|_| kind == "02");
        Some(Connection { local: address(local)?, remote: address(remote)?, asked_in })
    };
    Ok(fs::read_to_string("/proc/net/tcp")?.lines().filter_map(connection).collect())
}

/// Whether the peer is asked after [`TIME_SEC`] of silence, and not after a shorter time.
fn is_asked(connection: &Connection) -> bool {
    connection.asked_in.is_some_and(|ticks| ticks > TIME_SEC * TICKS / 2 && ticks <= TIME_SEC * TICKS)
}

/// Waits until Weir's end of the session's connection is as wanted.
fn wait_client(session: &mut Session, what: &str, is_wanted: impl Fn(&Connection) -> bool) -> CaseResult {
    let socket = session.raw().packets().socket();
    let (client, weir) = (socket.local_addr()?, socket.peer_addr()?);
    eventually(what, PATIENCE, || {
        let all = connections()?;
        let own = all.iter().find(|one| (one.local.into(), one.remote.into()) == (weir, client));
        Ok(own.is_some_and(&is_wanted))
    })
}

fn silent_peers_are_asked(env: &Env) -> CaseResult {
    let writer = env.cluster()?.node(1).addr();
    for driver in ["epoll", "auto"] {
        let mut config = WeirConfig::for_servers(&[writer], env.free_address()?);
        config.variable("io_driver", driver);
        config.variable("tcp_keepalive_time", i64::try_from(TIME_SEC)?);
        let first = env.weir_with(&config)?;
        let mut session = Session::open(first.addr(), "test")?;
        session.value("SELECT 1")?;
        wait_client(&mut session, &format!("{driver}: the client is asked"), is_asked)?;
        eventually(&format!("{driver}: the server is asked"), PATIENCE, || {
            Ok(connections()?.iter().any(|one| one.remote == writer && is_asked(one)))
        })?;
        // The listening socket is another process's by birth.
        let second = first.follow(&weir_binary()?, None)?;
        let mut session = Session::open(second.addr(), "test")?;
        session.value("SELECT 1")?;
        wait_client(&mut session, &format!("{driver}: the client is asked after a takeover"), is_asked)?;
        config.variable("use_tcp_keepalive", false);
        second.reload(&config)?;
        let mut later = Session::open(second.addr(), "test")?;
        later.value("SELECT 1")?;
        wait_client(&mut later, &format!("{driver}: nobody is asked"), |one| one.asked_in.is_none())?;
        ensure!(session.value("SELECT 1")? == "1", "the session before the reload");
    }
    Ok(())
}
