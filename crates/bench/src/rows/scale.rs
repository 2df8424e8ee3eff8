//! Measures a Weir with a very large configuration, beside one with an ordinary one.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use weir_lab::client::Client;
use weir_lab::measure::{Goal, Metric, Sample};
use weir_lab::{ClientError, Error, Usage};
use weir_testkit::{WeirConfig, hostgroup};

use super::watched::open_doors;
use super::{digests, load};
use crate::bench::{Bench, admin_login, empty_case, login, progress};
use crate::peer::{Peer, free_address};
use crate::report::Case;
use crate::row::Row;

/// sysbench's connections.
const THREADS: u32 = 16;
/// What the address of a further server begins with. Nobody listens there: each is probed in vain.
const NOBODY: [u8; 2] = [127, 66];
/// Where the further servers are, which no statement goes to.
const ELSEWHERE: i64 = 5000;
/// Until all servers have been probed once.
const SETTLE: Duration = Duration::from_secs(2);
const START_MS_MAX: f64 = 2000.0;
/// A LOAD takes effect on live traffic within this time.
const LOAD_SEEN_MS_MAX: f64 = 100.0;
/// Connections that are kept and that must all go by a new rule.
const KEPT: u32 = 8;
/// Statements of these connections: a rule that is not active yet answers them with an error.
const PROBE: &str = "SELECT id AS probe FROM sbtest1 WHERE id = 1";
/// Nobody waits longer for a rule.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Less than this part of the ordinary one's throughput is more than noise.
const SPEED_MIN: f64 = 0.95;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    rules: u32,
    servers: u32,
    users: u32,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Case>, Error> {
    let large = if bench.args.smoke {
        Size { rules: 100, servers: 10, users: 500 }
    } else {
        Size { rules: 10_000, servers: 1_000, users: 50_000 }
    };
    let usual = Size { rules: 1, servers: 0, users: 0 };
    let (peer, figures) = start(bench, usual)?;
    let (large_peer, large_figures) = start(bench, large)?;
    let (peer, admin, _) = peer;
    let (large_peer, large_admin, web) = large_peer;
    let large_figures =
        large_figures.and(&digests::run(bench, &large_peer)?).and(&digests::read(large_admin, web)?);
    let case =
        |size, goals, peer| empty_case(Row::Scale, &name(bench, size), goals, std::slice::from_ref(peer));
    let seen = Goal::at_most(Metric::LoadSeenMs, LOAD_SEEN_MS_MAX);
    let goals = vec![
        Goal::at_most(Metric::StartMs, START_MS_MAX),
        Goal::at_least(Metric::SpeedToUsual, SPEED_MIN),
        seen,
    ];
    let mut usual_case = case(usual, vec![seen], &peer);
    let mut large_case = case(large, goals, &large_peer);
    for round in 0..bench.scale.rounds {
        let mut speed = 0.0;
        bench.rounds(&mut usual_case, std::slice::from_ref(&peer), round, |peer| {
            let sample = load::point_select(bench, peer, THREADS)?;
            speed = sample.value(Metric::StatementsPerS).unwrap_or_default();
            Ok(sample.and(&figures).and(&load_rules(peer.addr, admin)?))
        })?;
        bench.rounds(&mut large_case, std::slice::from_ref(&large_peer), round, |peer| {
            let sample = load::point_select(bench, peer, THREADS)?;
            let ratio = sample.value(Metric::StatementsPerS).unwrap_or_default() / speed;
            let sample = sample.and(&large_figures).and(&load_rules(peer.addr, large_admin)?);
            let sample = sample.with(Metric::SpeedToUsual, ratio);
            // Until then all of them are there.
            let is_last = round + 1 == bench.scale.rounds;
            Ok(if is_last { sample.and(&digests::begin_again(large_admin)?) } else { sample })
        })?;
    }
    Ok(vec![usual_case, large_case])
}

fn name(bench: &Bench<'_>, size: Size) -> String {
    let Size { rules, servers, users } = size;
    match users {
        0 => "one of each".to_owned(),
        _ => format!("{rules} rules, {servers} servers, {users} users, {} digests", bench.scale.digests),
    }
}

/// A Weir, its admin port and its port for HTTP.
type Large = (Peer, SocketAddrV4, SocketAddrV4);

/// Starts a Weir of this size; how long until it took clients, and its memory then.
fn start(bench: &Bench<'_>, size: Size) -> Result<(Large, Sample), Error> {
    let Size { rules, servers, users } = size;
    progress(&format!("starting Weir with {rules} rules, {servers} more servers, {users} more users"));
    let begun = Instant::now();
    let (admin, web) = (free_address()?, free_address()?);
    let (peer, took) = bench.weir_with("scale", |config| {
        open_doors(config, admin, web);
        fill(config, size);
    })?;
    let written = begun.elapsed().saturating_sub(took);
    progress(&format!(
        "took clients after {} ms; writing the file took {} ms",
        took.as_millis(),
        written.as_millis()
    ));
    bench.stop.sleep(SETTLE)?;
    let sample = Sample::default()
        .with(Metric::StartMs, took.as_secs_f64() * 1000.0)
        .with(Metric::MemoryMib, memory_mib(&peer)?);
    Ok(((peer, admin, web), sample))
}

/// The first active rule is the one that the measured statements match; the others, servers and users are somebody else's.
fn fill(config: &mut WeirConfig, size: Size) {
    config.push(
        "mysql_query_rules",
        &[
            ("rule_id", 1.into()),
            ("match_digest", "^SELECT id AS probe".into()),
            ("error_msg", "the new rule".into()),
            ("apply", 1.into()),
        ],
    );
    let rule = |id: u32, pattern: String| {
        vec![
            ("rule_id", i64::from(id).into()),
            ("active", 1.into()),
            ("match_digest", pattern.into()),
            ("destination_hostgroup", hostgroup::WRITER.into()),
            ("apply", 1.into()),
        ]
    };
    config.push("mysql_query_rules", &rule(2, "^SELECT c FROM sbtest".to_owned()));
    for id in 3..=size.rules {
        config.push("mysql_query_rules", &rule(id, format!("^SELECT .* FROM shop_{id}.orders WHERE ")));
    }
    for at in 0..size.servers {
        let [high, low] = u16::try_from(at + 1).unwrap_or(u16::MAX).to_be_bytes();
        let address = SocketAddrV4::new(Ipv4Addr::new(NOBODY[0], NOBODY[1], high, low), 3306);
        config.server(address, ELSEWHERE + i64::from(at), &[]);
    }
    for at in 0..size.users {
        let name: String = format!("tenant_{at}");
        config.push(
            "mysql_users",
            &[
                ("username", name.clone().into()),
                ("password", name.into()),
                ("default_hostgroup", hostgroup::WRITER.into()),
            ],
        );
    }
}

/// Makes the first rule active: how long until all connections that are kept go by it, and until LOAD is answered.
fn load_rules(addr: SocketAddrV4, admin: SocketAddrV4) -> Result<Sample, Error> {
    let doing = || Error::client("LOAD MYSQL QUERY RULES");
    let mut admin = admin_login(admin).connect().map_err(doing())?;
    let kept: Result<Vec<Client>, ClientError> = (0..KEPT).map(|_| login(addr).connect()).collect();
    let mut kept = kept.map_err(doing())?;
    kept.iter_mut().try_for_each(|client| client.query(PROBE)).map_err(doing())?;
    let mut load = |active: u32| {
        admin.query(&format!("UPDATE mysql_query_rules SET active = {active} WHERE rule_id = 1"))?;
        let sent = Instant::now();
        admin.query("LOAD MYSQL QUERY RULES TO RUNTIME").map(|()| (sent, Instant::now()))
    };
    let (loaded, seen) = thread::scope(|scope| {
        let watchers: Vec<_> =
            kept.into_iter().map(|mut client| scope.spawn(move || until_refused(&mut client))).collect();
        let loaded = load(1);
        let seen: Result<Vec<Instant>, ClientError> = watchers
            .into_iter()
            .map(|watcher| watcher.join().unwrap_or(Err(ClientError::Protocol("a panic".to_owned()))))
            .collect();
        (loaded, seen)
    });
    let ((sent, answered), seen) = (loaded.map_err(doing())?, seen.map_err(doing())?);
    load(0).map_err(doing())?;
    let last = seen.into_iter().max().unwrap_or(answered);
    let ms = |moment: Instant| moment.saturating_duration_since(sent).as_secs_f64() * 1000.0;
    Ok(Sample::default().with(Metric::LoadSeenMs, ms(last)).with(Metric::LoadAnsweredMs, ms(answered)))
}

/// Sends one statement after the other until one is answered with an error.
fn until_refused(client: &mut Client) -> Result<Instant, ClientError> {
    let begun = Instant::now();
    while begun.elapsed() < LOAD_TIMEOUT {
        match client.query(PROBE) {
            Ok(()) => {}
            Err(ClientError::Server(..)) => return Ok(Instant::now()),
            Err(cause) => return Err(cause),
        }
    }
    Err(ClientError::Protocol("the new rule has no effect".to_owned()))
}

/// The process's resident memory.
pub(super) fn memory_mib(peer: &Peer) -> Result<f64, Error> {
    let kib = peer.usage().map(Usage::rss_kib).transpose()?;
    Ok(kib.unwrap_or_default() as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn weir_understands_a_large_configuration() {
        let mut config = WeirConfig::new(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6033));
        // The rules and users need somewhere to go.
        config.push(
            "mysql_servers",
            &[("hostname", "127.0.0.1".into()), ("hostgroup_id", hostgroup::WRITER.into())],
        );
        fill(&mut config, Size { rules: 300, servers: 300, users: 300 });
        let parsed = weir_config::parse(&config.render(Path::new("/var/tmp/x")), "scale.toml").unwrap();
        let counts = (parsed.query_rules.len(), parsed.servers.len(), parsed.users.len());
        assert_eq!(counts, (300, 301, 300));
    }
}
