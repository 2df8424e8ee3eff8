//! Shows three Galera nodes, Weir in front of them, a load, and two nodes that are stopped meanwhile (`make demo`).
//!
//! It shows what the applications notice of that, and checks at the end that no acknowledged write is lost or there
//! twice. Everything runs on loopback and is gone afterwards.

mod accidents;
mod ledger;
mod load;
mod servers;
mod stats;
mod view;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use weir_lab::rows::Ledger;
use weir_lab::{Error, Stop, exit_status};
use weir_testkit::{
    Galera, GaleraOptions, OUTCOMES_TABLE, Weir, WeirConfig, hostgroup, preflight, weir_binary,
};

use accidents::Accidents;
use load::Load;
use servers::ServerWatch;
use stats::Stats;
use view::{Screen, View};

/// Where applications connect; the users' usual port for it.
const LISTEN: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 6033);
/// How often the live view is drawn anew.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Parser)]
#[command(about = "Three Galera nodes, Weir and a load; two nodes are stopped meanwhile")]
struct Arguments {
    /// Leave cluster and Weir running afterwards, until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Connections that write and read
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    writers: u32,
    /// Connections that only read
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    readers: u32,
}

fn main() -> ExitCode {
    exit_status("demo", run(&Arguments::parse()).map(|()| true))
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let stop = Stop::on_signals()?;
    let started = Instant::now();
    let binary = weir_binary()?;
    preflight::port_is_free(LISTEN)?;
    let cluster = Galera::start(GaleraOptions {
        progress: |line| println!("{line}"),
        cancel: stop.flag(),
        ..GaleraOptions::demo()
    })?;
    println!("starting Weir on {LISTEN}");
    let mut config = WeirConfig::for_cluster(&cluster, LISTEN);
    // Transactions whose node stops go on at the next writer.
    config.marks_commits(hostgroup::WRITER);
    cluster.node(1).root_query(OUTCOMES_TABLE)?;
    let weir = Weir::start(&binary, &config, cluster.dir(), "weir")?;
    println!(
        "ready after {:.1} s; configuration: {}",
        started.elapsed().as_secs_f64(),
        weir.config_path().display()
    );
    println!();

    let ledger = show(arguments, &cluster, &stop)?;
    stop.check()?;
    println!("{}", ledger::verify(&cluster, &ledger)?);
    show_commands(arguments.keep)?;
    if arguments.keep {
        println!("cluster and Weir keep running until Ctrl-C");
        while !stop.is_raised() {
            thread::sleep(Duration::from_millis(100));
        }
    }
    println!("stopping everything");
    Ok(())
}

/// Runs the load, the accidents and the view side by side; returns what was written.
fn show(arguments: &Arguments, cluster: &Galera, stop: &Stop) -> Result<Ledger, Error> {
    ledger::create_table(LISTEN)?;
    let stats = Stats::new();
    let watch = ServerWatch::new(cluster);
    let accidents = Accidents::default();
    let finished = Stop::default();
    thread::scope(|scope| {
        let load = Load { server: LISTEN, stats: &stats, finished: &finished };
        let workers = load.spawn(scope, arguments.writers, arguments.readers);
        scope.spawn(|| watch.run(cluster, &finished));
        let script = scope.spawn(|| accidents.play(cluster, &watch, &stats, stop));
        let view = View {
            listen: LISTEN,
            connections: arguments.writers + arguments.readers,
            stats: &stats,
            watch: &watch,
            accidents: &accidents,
        };
        let mut screen = Screen::new();
        while !script.is_finished() {
            thread::sleep(REDRAW_INTERVAL);
            screen.draw(&view);
        }
        finished.raise();
        let ledgers = workers.into_iter().filter_map(|worker| worker.join().ok());
        let ledger = ledgers.fold(Ledger::default(), Ledger::and);
        let played = script.join().unwrap_or_else(|_| Err(Error::panicked("the script")));
        screen.finish(&view);
        played.map(|()| ledger)
    })
}

/// Prints commands that work as they stand: the first is run to make sure.
fn show_commands(keep: bool) -> Result<(), Error> {
    let connect = format!("mariadb -h{} -P{} -uapp -papp --skip-ssl test", LISTEN.ip(), LISTEN.port());
    let checked = format!("{connect} -e 'SELECT COUNT(*) FROM {}'", ledger::TABLE);
    let output =
        Command::new("sh").args(["-c", &checked]).output().map_err(Error::io("run the mariadb client"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Error::Failed(format!("`{checked}` failed: {said}")));
    }
    println!();
    println!("{}", if keep { "Connect with:" } else { "To connect yourself, run `make demo KEEP=1`, then:" });
    println!("  {connect}");
    println!("  {checked}");
    Ok(())
}
