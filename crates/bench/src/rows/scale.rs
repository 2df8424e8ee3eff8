//! A Weir with a very large configuration, beside one with an ordinary one.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use weir_testkit::{WeirConfig, hostgroup};

use super::load;
use crate::bench::{Bench, empty_case, progress};
use crate::client::Login;
use crate::error::BenchError;
use crate::metric::{Goal, Metric, Sample};
use crate::peer::Peer;
use crate::results::Case;
use crate::row::Row;

/// sysbench's connections.
const THREADS: u32 = 16;
/// Clients that run statements of different digests.
const CALLERS: u32 = 8;
/// What the address of a further server begins with. Nobody listens there: each is probed in vain.
const NOBODY: [u8; 2] = [127, 66];
/// Where the further servers are, which no statement goes to.
const ELSEWHERE: i64 = 5000;
/// Until all servers have been probed once.
const SETTLE: Duration = Duration::from_secs(2);
const START_MS_MAX: f64 = 2000.0;
/// Less than this part of the ordinary one's throughput is more than noise.
const SPEED_MIN: f64 = 0.95;

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    rules: u32,
    servers: u32,
    users: u32,
}

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Case>, BenchError> {
    let large = if bench.args.smoke {
        Size { rules: 100, servers: 10, users: 500 }
    } else {
        Size { rules: 10_000, servers: 1_000, users: 50_000 }
    };
    let usual = Size { rules: 1, servers: 0, users: 0 };
    let (peer, figures) = start(bench, usual)?;
    let (large_peer, large_figures) = start(bench, large)?;
    let before_mib = memory_mib(&large_peer)?;
    run_digests(bench, large_peer.addr, bench.scale.digests)?;
    let large_figures = large_figures.with(Metric::DigestsMib, memory_mib(&large_peer)? - before_mib);
    let case =
        |size, goals, peer| empty_case(Row::Scale, &name(bench, size), goals, std::slice::from_ref(peer));
    let goals =
        vec![Goal::at_most(Metric::StartMs, START_MS_MAX), Goal::at_least(Metric::SpeedToUsual, SPEED_MIN)];
    let mut usual_case = case(usual, Vec::new(), &peer);
    let mut large_case = case(large, goals, &large_peer);
    for round in 0..bench.scale.rounds {
        let mut speed = 0.0;
        bench.rounds(&mut usual_case, std::slice::from_ref(&peer), round, |peer| {
            let sample = load::point_select(bench, peer, THREADS)?;
            speed = sample.value(Metric::StatementsPerS).unwrap_or_default();
            Ok(sample.and(&figures))
        })?;
        bench.rounds(&mut large_case, std::slice::from_ref(&large_peer), round, |peer| {
            let sample = load::point_select(bench, peer, THREADS)?;
            let ratio = sample.value(Metric::StatementsPerS).unwrap_or_default() / speed;
            Ok(sample.and(&large_figures).with(Metric::SpeedToUsual, ratio))
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

/// Starts a Weir of this size; how long until it took clients, and its memory then.
fn start(bench: &Bench<'_>, size: Size) -> Result<(Peer, Sample), BenchError> {
    let Size { rules, servers, users } = size;
    progress(&format!("starting Weir with {rules} rules, {servers} more servers, {users} more users"));
    let begun = Instant::now();
    let (peer, took) = bench.weir_with("scale", |config| fill(config, size))?;
    let written = begun.elapsed().saturating_sub(took);
    progress(&format!(
        "took clients after {} ms; writing the file took {} ms",
        took.as_millis(),
        written.as_millis()
    ));
    bench.sleep(SETTLE)?;
    let sample = Sample::default()
        .with(Metric::StartMs, took.as_secs_f64() * 1000.0)
        .with(Metric::MemoryMib, memory_mib(&peer)?);
    Ok((peer, sample))
}

/// The first rule is the one that the measured statements match; the others, servers and users are somebody else's.
fn fill(config: &mut WeirConfig, size: Size) {
    let rule = |id: u32, pattern: String| {
        vec![
            ("rule_id", i64::from(id).into()),
            ("active", 1.into()),
            ("match_digest", pattern.into()),
            ("destination_hostgroup", hostgroup::WRITER.into()),
            ("apply", 1.into()),
        ]
    };
    config.push("mysql_query_rules", &rule(1, "^SELECT c FROM sbtest".to_owned()));
    for id in 2..=size.rules {
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

/// Runs so many statements of different digests.
fn run_digests(bench: &Bench<'_>, addr: SocketAddrV4, digests: u32) -> Result<(), BenchError> {
    progress(&format!("running statements of {digests} digests"));
    let doing = || BenchError::client("a statement of its own digest".to_owned());
    thread::scope(|scope| {
        let run = |caller: u32| {
            let mut client = Login::new(addr).connect().map_err(doing())?;
            for digest in (caller..digests).step_by(CALLERS as usize) {
                if digest % 1024 == caller {
                    bench.check_cancel()?;
                }
                client
                    .query(&format!("SELECT id AS digest_{digest} FROM sbtest1 WHERE id = 1"))
                    .map_err(doing())?;
            }
            Ok(())
        };
        let callers: Vec<_> = (0..CALLERS).map(|caller| scope.spawn(move || run(caller))).collect();
        callers.into_iter().try_for_each(|caller| caller.join().unwrap_or(Err(BenchError::Interrupted)))
    })
}

fn memory_mib(peer: &Peer) -> Result<f64, BenchError> {
    let kib = peer.process().map(|process| process.rss_kib()).transpose()?;
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
