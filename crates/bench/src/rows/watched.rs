//! Measures what dashboards that read statistics, and the events log, cost clients.

use std::net::SocketAddrV4;

use weir_lab::Error;
use weir_lab::measure::{Goal, Metric, Sample};
use weir_testkit::WeirConfig;

use super::load;
use crate::bench::{Bench, empty_case};
use crate::dashboards::Dashboards;
use crate::peer::{Peer, free_address};
use crate::report::Case;
use crate::row::Row;

/// sysbench's connections.
const THREADS: u32 = 16;
/// Connections that read statistics.
const CONNECTIONS: u32 = 100;
/// What a worker may spend more on a statement while somebody looks at statistics.
const WORKER_CPU_MAX: f64 = 1.05;

pub(super) fn measure(bench: &Bench<'_>) -> Result<Vec<Case>, Error> {
    let connections = if bench.args.smoke { 5 } else { CONNECTIONS };
    let (admin, web) = (free_address()?, free_address()?);
    let (peer, _) = bench.weir_with("watched", |config| open_doors(config, admin, web))?;
    let dashboards = Dashboards { admin, web, connections };
    let log = bench.cluster.dir().join("events.log");
    let (logging, _) = bench.weir_with("logging", |config| {
        config.variable("eventslog_filename", log.display().to_string());
        config.variable("eventslog_default_log", 1);
    })?;
    let goals = vec![Goal::at_most(Metric::WorkerCpuToUsual, WORKER_CPU_MAX)];
    let case = |name: &str, goals, peer| empty_case(Row::Watched, name, goals, std::slice::from_ref(peer));
    let mut alone = case("nobody looks", Vec::new(), &peer);
    let name = format!("/metrics every second, {connections} admin connections");
    let mut watched = case(&name, goals, &peer);
    let mut logged = case("events log", Vec::new(), &logging);
    for round in 0..bench.scale.rounds {
        let mut usual = Sample::default();
        bench.rounds(&mut alone, std::slice::from_ref(&peer), round, |peer| {
            usual = visit(bench, peer)?;
            Ok(usual.clone())
        })?;
        bench.rounds(&mut watched, std::slice::from_ref(&peer), round, |peer| {
            let (sample, looks) = dashboards.during(|| visit(bench, peer))?;
            let looks = looks as f64 / f64::from(bench.scale.seconds);
            Ok(beside(sample, &usual).with(Metric::LooksPerS, looks))
        })?;
        bench.rounds(&mut logged, std::slice::from_ref(&logging), round, |peer| {
            Ok(beside(visit(bench, peer)?, &usual))
        })?;
    }
    Ok(vec![alone, watched, logged])
}

pub(super) fn open_doors(config: &mut WeirConfig, admin: SocketAddrV4, web: SocketAddrV4) {
    config.admin(admin);
    config.admin_variable("web_enabled", true);
    config.admin_variable("web_ip", web.ip().to_string());
    config.admin_variable("web_port", i64::from(web.port()));
    config.admin_variable("web_metrics_public", true);
}

/// One visit of point selects, with the CPU time of the threads that serve clients.
fn visit(bench: &Bench<'_>, peer: &Peer) -> Result<Sample, Error> {
    let workers = || peer.usage().map(|usage| usage.cpu_time_of("worker-")).transpose();
    let before = workers()?.unwrap_or_default();
    let sample = load::point_select(bench, peer, THREADS)?;
    let took = workers()?.unwrap_or_default().saturating_sub(before);
    let seconds = f64::from(bench.scale.seconds);
    let statements = sample.value(Metric::StatementsPerS).unwrap_or_default() * seconds;
    Ok(sample.with(Metric::WorkerCpuUsPerStatement, took.as_secs_f64() * 1e6 / statements.max(1.0)))
}

/// The same with what it is to the usual one of the same round.
fn beside(sample: Sample, usual: &Sample) -> Sample {
    let ratio = |metric| Some(sample.value(metric)? / usual.value(metric).filter(|usual| *usual > 0.0)?);
    let (speed, cpu) = (ratio(Metric::StatementsPerS), ratio(Metric::WorkerCpuUsPerStatement));
    sample.with_some(Metric::SpeedToUsual, speed).with_some(Metric::WorkerCpuToUsual, cpu)
}
