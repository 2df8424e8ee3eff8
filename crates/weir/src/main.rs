//! Reads the command line of `weir`, one MySQL service in front of a cluster of MySQL-family servers, and runs its
//! commands.

#![forbid(unsafe_code)]

mod addresses;
mod config_command;
mod config_file;
mod control;
mod difference;
mod donor;
mod drain;
mod engine;
mod epoch_file;
mod followed_servers;
mod init;
mod instance;
mod log;
mod logs;
mod manual;
mod notify;
mod pid_file;
mod program;
mod rsa_key;
mod serve;
mod server_tls;
mod shell_completions;
mod snapshot;
mod startup;
mod stats;
mod status;
mod supervision;
mod takeover;
mod tls;
mod topology_log;
mod user_directory;
mod watched_members;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use serde_json::json;
use weir_topology::Endpoint;

use crate::config_command::{CheckArgs, ConfigCommand};
use crate::config_file::Source;
use crate::control::{ControlClient, ControlClientError, Request};
use crate::init::{InitArgs, TrialArgs};
use crate::startup::{Beginning, ConfigMode};

const EXAMPLES: &str = "Examples:
  weir init mysql://root@10.0.0.11      find the cluster, make accounts, write weir.toml
  weir check -c weir.toml     check a configuration
  weir serve -c weir.toml     run the proxy
  weir status -c weir.toml    which server writes, which ones read, and why
  weir stats digests -c weir.toml     statistics of a running weir
  weir drain db2:3306 -c weir.toml    drain a server: its work may finish
  mariadb -h127.0.0.1 -P6033 -uapp -p     connect through it";

const SERVE_EXAMPLES: &str = "Examples:
  weir serve -c /etc/weir/weir.toml
  weir serve -c /etc/proxysql.cnf --datadir /var/lib/weir     ProxySQL's own file
  weir serve -c /etc/weir/weir.toml --config-mode file     the file counts, not the database
  weir serve -c weir.toml --log-format json --log-level weir_proxy=debug,info
  weir serve -c /etc/weir/weir.toml --takeover     take over from the running weir, which drains
  weir serve --cluster mysql://root@10.0.0.11     a first try: no file, no new account, on 127.0.0.1:6033

The configuration is the file's at the first start, and is saved to datadir/weir.db; from then on the database wins,
and the log names what differs from the file. --initial, --reload and --config-mode=file let the file win.

Signals:
  SIGHUP    read the file again, into memory and runtime; a file with errors changes nothing
  SIGUSR1   start the next files of the events, slow and audit log
  SIGUSR2   start this program again, as it is on disk now, to take over (upgrade)
  SIGTERM   accept no more clients, let transactions finish (drain_timeout_ms), exit; again: exit at once
  SIGINT    the same

Exit status: 0 after a signal, 1 if it could not start, 2 for wrong use.";

const CHECK_EXAMPLES: &str = "Examples:
  weir check -c /etc/weir/weir.toml
  weir check -c weir.toml && systemctl reload weir
  weir check -c weir.toml --cluster     also what privileges and options the servers lack; changes nothing

Exit status: 0 if the configuration is valid, 1 if it has errors (each is printed with file, line and key), 2 for wrong
use, 3 if something is missing on a server.";

const STATS_EXAMPLES: &str = "Examples:
  weir stats digests -c /etc/weir/weir.toml --top 20     the statements with the greatest total time
  weir stats pool --datadir /var/lib/weir                connections and traffic by server
  weir stats servers -c /etc/weir/weir.toml              which server writes, which ones read, and why
  weir stats errors -c /etc/weir/weir.toml --json | jq 'select(.errno == 1062)'

Durations are in microseconds, points in time in seconds since 1970. Counters start from zero with weir.
Exit status: 0 with a report, 1 if no weir runs with this datadir (or it belongs to another user), 2 for wrong use.";

const STATUS_EXAMPLES: &str = "Examples:
  weir status -c /etc/weir/weir.toml
  weir status --datadir /var/lib/weir --json | jq -r '.clusters[].writers[]'
  weir status -c /etc/weir/weir.toml --log 50     the last changes of roles, also of a weir that has exited

Exit status: 0 if every cluster takes writes, 3 if one has no writer or this weir sends it no writes, 1 if no weir runs
with this datadir (or it belongs to another user), 2 for wrong use.";

const TOP_EXAMPLES: &str = "Examples:
  weir top -c /etc/weir/weir.toml
  weir top --datadir /var/lib/weir --interval-ms 500
  weir top -c /etc/weir/weir.toml --once --columns 160     one picture as text

Keys: Tab pane, s sort, r reverse, / filter, p pause, z zoom, h help, q quit.
Exit status: 0, 1 if no weir runs with this datadir (or it belongs to another user), 2 for wrong use.";

const DRAIN_EXAMPLES: &str = "Examples:
  weir drain 10.0.0.12:3306 -c /etc/weir/weir.toml && ssh 10.0.0.12 systemctl stop mariadb
  weir drain 10.0.0.12:3306 --datadir /var/lib/weir --timeout-s 30
  weir undrain 10.0.0.12:3306 -c /etc/weir/weir.toml

The server gets no new work; running statements, transactions and pinned sessions may finish. If it is the writer, the
role moves first, as by `weir switchover`. It stays drained over reloads and restarts of weir, until `weir undrain`.
Exit status: 0 when nothing runs there any more, 3 if something still does after --timeout-s, or may do so because another
Weir has not answered or is not heard of any more, 1 for an error, 2 for wrong use.";

const UNDRAIN_EXAMPLES: &str = "Examples:
  weir undrain 10.0.0.12:3306 -c /etc/weir/weir.toml
  weir undrain 10.0.0.12:3306 --datadir /var/lib/weir

The server gets work again as soon as the monitor finds it healthy. A server that another Weir
has drained stays out until `weir undrain` there; --force lets it in if that Weir no longer exists.
Exit status: 0 if it is not drained any more, 1 for an error, 2 for wrong use.";

const SWITCHOVER_EXAMPLES: &str = "Examples:
  weir switchover 10 -c /etc/weir/weir.toml --dry-run
  weir switchover 10 -c /etc/weir/weir.toml --to 10.0.0.12:3306
  weir switchover 10 -c /etc/weir/weir.toml --grace-ms 5000 --force

New statements wait, transactions end, the next writer applies everything, then it gets the role and the statements
run there. If sessions still hold the old writer after --grace-ms, it stays the writer (or with --force they are closed).
Sessions of other Weirs have the longer of --grace-ms and 2 s. Ctrl-C ends this command, not the switchover.
Exit status: 0 when the writer has moved (with --dry-run: could), 1 if not (everything is as before), 2 for wrong use.";

const DONOR_EXAMPLES: &str = "\
Examples:
  weir donor 10 -c /etc/weir/weir.toml
  mariadbd --wsrep-sst-donor=\"$(weir donor 10 -c /etc/weir/weir.toml)\"

Prints the best wsrep_sst_donor for a joining node: the names of all possible donors
except the writer, each followed by a comma, as in n3,n2, - the last comma lets the
cluster choose if none of them can. An empty line: only the writer could be the donor.
Exit status: 0, 1 if there is no such cluster or no weir runs with this datadir, 2 for wrong use.";

/// One MySQL service in front of a cluster of MySQL-family servers
#[derive(Parser)]
#[command(name = "weir", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find the cluster of a server, make accounts there, write a configuration
    #[command(after_help = init::INIT_EXAMPLES)]
    Init(InitArgs),
    /// Run the proxy
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show what a running weir has counted
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Show which server writes, which ones read, and why
    #[command(after_help = STATUS_EXAMPLES)]
    Status(StatusArgs),
    /// Show servers, hottest statements and sessions, live
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Drain a server: give it no new work, and wait until nothing runs there
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Undrain a server: give it work again
    #[command(after_help = UNDRAIN_EXAMPLES)]
    Undrain(UndrainArgs),
    /// Print the donors for a Galera node that is about to start
    #[command(after_help = DONOR_EXAMPLES)]
    Donor(DonorArgs),
    /// Move the writer role to another server
    #[command(after_help = SWITCHOVER_EXAMPLES)]
    Switchover(SwitchoverArgs),
    /// The same as `weir config check`
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Check, compare, convert and import configurations
    #[command(subcommand, after_help = config_command::EXAMPLES)]
    Config(ConfigCommand),
    /// Print completions of the command line for a shell
    #[command(after_help = shell_completions::EXAMPLES)]
    Completions(shell_completions::CompletionsArgs),
    /// Write the manual pages
    #[command(after_help = manual::EXAMPLES)]
    Manual(manual::ManualArgs),
}

#[derive(Args)]
#[command(group(clap::ArgGroup::new("from").required(true).args(["config", "cluster"])))]
struct ServeArgs {
    /// The configuration file: weir.toml, or ProxySQL's proxysql.cnf
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    trial: TrialArgs,
    /// Where Weir keeps its own files [default: from the configuration file, else /var/lib/weir; with --cluster a
    /// temporary directory]
    #[arg(short = 'D', long, value_name = "DIR")]
    datadir: Option<PathBuf>,
    /// Where the process id is written [default: weir.pid in the datadir]
    #[arg(short, long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Where the configuration is kept
    #[arg(long, value_enum, default_value_t)]
    config_mode: ConfigMode,
    /// Set the database aside, and create a new one from the file
    #[arg(long, conflicts_with_all = ["reload", "config_mode"])]
    initial: bool,
    /// Override the database with the rows and variables of the file, and save the result
    #[arg(long, conflicts_with = "config_mode")]
    reload: bool,
    /// The format of log lines
    #[arg(long, value_enum, default_value_t)]
    log_format: log::Format,
    /// What is logged: error, warn, info, debug, trace, or per module as in weir_proxy=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
    /// Take over the listening sockets of the running weir with the same datadir, which then drains; without one, start
    /// as usual
    #[arg(long)]
    takeover: bool,
}

#[derive(Args)]
struct StatsArgs {
    /// What to show
    #[arg(value_enum)]
    subject: control::Subject,
    #[command(flatten)]
    target: TargetArgs,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Only the first N rows
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

#[derive(Args)]
struct StatusArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// One JSON object instead of tables; with --log one a line
    #[arg(long)]
    json: bool,
    /// The last N changes of roles, and why, instead of the current state [default N: 20]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20")]
    log: Option<usize>,
}

#[derive(Args)]
struct TopArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The refresh interval
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,
    /// Print one frame and exit
    #[arg(long)]
    once: bool,
    /// Width of the frame in columns
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u16).range(20..=500), requires = "once")]
    columns: u16,
    /// Height of the frame in lines
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(10..=500), requires = "once")]
    lines: u16,
}

#[derive(Args)]
struct DrainArgs {
    /// HOST:PORT as in mysql_servers
    server: Endpoint,
    #[command(flatten)]
    target: TargetArgs,
    /// How long to wait until nothing runs there
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout_s: u64,
    /// One JSON object at the end; progress still goes to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct DonorArgs {
    /// The writer hostgroup of the cluster
    hostgroup: u32,
    #[command(flatten)]
    target: TargetArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct SwitchoverArgs {
    /// The writer hostgroup of the cluster
    hostgroup: u32,
    #[command(flatten)]
    target: TargetArgs,
    /// The next writer [default: the best candidate]
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<Endpoint>,
    /// Close the sessions that would still write to the old writer after the grace, instead of giving up
    #[arg(long)]
    force: bool,
    /// Only show what would be done
    #[arg(long)]
    dry_run: bool,
    /// How long transactions and pins on the old writer are waited for; statements are held meanwhile [default: the
    /// cluster's switchover_pin_grace_ms, 1000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(..=control::GRACE_MS_MAX))]
    grace_ms: Option<u64>,
    /// One JSON object at the end; progress still goes to standard error
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct UndrainArgs {
    /// HOST:PORT as in mysql_servers
    server: Endpoint,
    /// Undrain even if the Weir that drained the server no longer exists
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Which running weir is meant.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct TargetArgs {
    /// The configuration file that it was started with
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Its datadir
    #[arg(long, value_name = "DIR")]
    datadir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Stats(args) => at(&args.target, |client| show_stats(&args, client)),
        Command::Status(args) => at(&args.target, |client| match args.log {
            Some(count) => status::log(client, count, args.json),
            None => status::status(client, args.json),
        }),
        Command::Top(args) => at(&args.target, |client| show_top(&args, client)),
        Command::Drain(args) => {
            at(&args.target, |client| drain::drain(client, &args.server, args.timeout_s, args.json))
        }
        Command::Donor(args) => at(&args.target, |client| donor::donor(client, args.hostgroup, args.json)),
        Command::Switchover(args) => at(&args.target, |client| switch(client, &args)),
        Command::Undrain(args) => {
            at(&args.target, |client| drain::undrain(client, &args.server, args.force, args.json))
        }
        Command::Init(args) => init::init(&args),
        Command::Check(args) => config_command::check(&args),
        Command::Config(command) => config_command::run(&command),
        Command::Completions(args) => shell_completions::print(&args, Cli::command()),
        Command::Manual(args) => manual::write(&args, Cli::command()),
        Command::Serve(args) => {
            if let Err(error) = log::start(args.log_format, &args.log_level) {
                eprintln!("weir: {error}");
                return ExitCode::from(2);
            }
            serve(args)
        }
    }
}

fn serve(args: ServeArgs) -> ExitCode {
    let takeover = args.takeover;
    let failed = |error: &dyn std::fmt::Display| {
        eprintln!("weir: {error}");
        ExitCode::FAILURE
    };
    // A directory of its own is there until the end.
    let (origin, _datadir) = match args.origin() {
        Ok(origin) => origin,
        Err(error) => return failed(&error),
    };
    serve::serve(&origin, takeover).map_or_else(|error| failed(&error), |()| ExitCode::SUCCESS)
}

impl ServeArgs {
    fn origin(self) -> Result<(startup::Origin, Option<init::Datadir>), init::InitError> {
        let Self { config, trial, datadir, pidfile, config_mode: mode, initial, reload, .. } = self;
        if let Some(address) = &trial.cluster {
            let init::Trial { name: path, text, datadir } = init::Trial::new(address, &trial, datadir)?;
            let (mode, beginning) = (ConfigMode::File, Beginning::AsSaved);
            let own = Some(datadir.path().to_owned());
            let origin = startup::Origin { path, text: Some(text), datadir: own, pidfile, mode, beginning };
            return Ok((origin, Some(datadir)));
        }
        let beginning = match (initial, reload) {
            (true, _) => Beginning::Initial,
            (false, true) => Beginning::Reload,
            (false, false) => Beginning::AsSaved,
        };
        let path = config.unwrap_or_default();
        Ok((startup::Origin { path, text: None, datadir, pidfile, mode, beginning }, None))
    }
}

fn show_stats(args: &StatsArgs, client: &ControlClient) -> Result<ExitCode, ControlClientError> {
    let shown = stats::Shown { json: args.json, top: args.top };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    stats::stats(client, args.subject, shown, &mut out).map(|()| ExitCode::SUCCESS)
}

fn show_top(args: &TopArgs, client: &ControlClient) -> Result<ExitCode, ControlClientError> {
    let own = ControlClient::new(client.datadir());
    let fetch: weir_top::Fetch = Box::new(move || own.top_data().map_err(|error| error.to_string()));
    let interval = Duration::from_millis(args.interval_ms);
    if args.once {
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        weir_top::once(fetch, interval, (args.columns, args.lines), &mut out)?;
    } else {
        weir_top::watch(fetch, interval)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn switch(client: &ControlClient, args: &SwitchoverArgs) -> Result<ExitCode, ControlClientError> {
    let request = Request::Switchover {
        hostgroup: args.hostgroup,
        to: args.to.as_ref().map(ToString::to_string),
        force: args.force,
        dry_run: args.dry_run,
        grace_ms: args.grace_ms,
    };
    let message = client.order(&request, |step| eprintln!("{step}"))?;
    if args.json {
        println!("{}", json!({ "hostgroup": args.hostgroup, "dry_run": args.dry_run, "message": message }));
    } else {
        println!("{message}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Does something with a running weir, by its control socket.
fn at(
    args: &TargetArgs,
    action: impl FnOnce(&ControlClient) -> Result<ExitCode, ControlClientError>,
) -> ExitCode {
    let datadir = match (&args.datadir, &args.config) {
        (Some(datadir), _) => datadir.clone(),
        (None, Some(path)) => match Source::read(path) {
            Ok(source) => source.datadir(),
            Err(faults) => {
                for fault in faults {
                    eprintln!("{fault}");
                }
                return ExitCode::FAILURE;
            }
        },
        (None, None) => return ExitCode::from(2),
    };
    action(&ControlClient::new(&datadir)).unwrap_or_else(|error| {
        eprintln!("weir: {error}");
        ExitCode::FAILURE
    })
}
