//! `weir`: one MySQL service in front of a cluster of MySQL-family servers.

#![forbid(unsafe_code)]

mod control;
mod files;
mod latest_roles;
mod log;
mod rsa_key;
mod serve;
mod server_tls;
mod snapshot;
mod stats;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  weir check -c weir.toml     look for faults in a configuration
  weir serve -c weir.toml     run the proxy
  weir stats digests -c weir.toml     what a running one has counted
  mariadb -h127.0.0.1 -P6033 -uapp -p     connect through it";

const SERVE_EXAMPLES: &str = "Examples:
  weir serve -c /etc/weir.toml
  weir serve -c weir.toml --log-format json --log-level weir_proxy=debug,info

Signals:
  SIGHUP    read the configuration again; a faulty one changes nothing
  SIGTERM   take no more clients, let running transactions end (drain_timeout_ms), exit; again: exit at once
  SIGINT    the same";

const CHECK_EXAMPLES: &str = "Examples:
  weir check -c /etc/weir.toml
  weir check -c weir.toml && systemctl reload weir

Exit status: 0 if the configuration is good, 1 if it has faults (each is printed with file, line and key).";

const STATS_EXAMPLES: &str = "Examples:
  weir stats digests -c /etc/weir.toml --top 20     the statements that took longest in all
  weir stats pool --datadir /var/lib/weir           connections and traffic by server
  weir stats servers -c /etc/weir.toml              who writes, who reads, and why
  weir stats errors -c /etc/weir.toml --json | jq 'select(.errno == 1062)'

Times are in microseconds, moments in seconds since 1970. Counters begin at the start of weir.
Exit status: 0 with a report, 1 if no weir runs with this datadir (or it is another user's), 2 for wrong use.";

/// One MySQL service in front of a cluster of MySQL-family servers
#[derive(Parser)]
#[command(name = "weir", version, after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the proxy
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Show what a running weir has counted
    #[command(after_help = STATS_EXAMPLES)]
    Stats(StatsArgs),
    /// Check a configuration and do nothing else
    #[command(after_help = CHECK_EXAMPLES)]
    Check(ConfigArgs),
}

#[derive(Args)]
struct ConfigArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Args)]
struct ServeArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// How log lines are written [default: text on a terminal and elsewhere]
    #[arg(long, value_enum, default_value_t)]
    log_format: log::Format,
    /// What is logged: error, warn, info, debug, trace, or per module as in weir_proxy=debug,info
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log_level: String,
}

#[derive(Args)]
struct StatsArgs {
    /// What to show
    #[arg(value_enum)]
    subject: control::Subject,
    #[command(flatten)]
    door: DoorArgs,
    /// One JSON object a line instead of a table
    #[arg(long)]
    json: bool,
    /// Only the first N rows
    #[arg(long, value_name = "N")]
    top: Option<usize>,
}

/// Which running weir is meant.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct DoorArgs {
    /// The configuration file that it was started with
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Its datadir
    #[arg(long, value_name = "DIR")]
    datadir: Option<PathBuf>,
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Stats(args) => show_stats(&args),
        Command::Check(args) => check(&args),
        Command::Serve(args) => {
            if let Err(error) = log::start(args.log_format, &args.log_level) {
                eprintln!("weir: {error}");
                return ExitCode::from(2);
            }
            match serve::serve(&args.config.config) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("weir: {error}");
                    ExitCode::FAILURE
                }
            }
        }
    }
}

fn show_stats(args: &StatsArgs) -> ExitCode {
    let datadir = match (&args.door.datadir, &args.door.config) {
        (Some(datadir), _) => datadir.clone(),
        (None, Some(path)) => match weir_config::load(path) {
            Ok(config) => config.datadir,
            Err(faults) => {
                for fault in faults {
                    eprintln!("{fault}");
                }
                return ExitCode::FAILURE;
            }
        },
        (None, None) => return ExitCode::from(2),
    };
    let shown = stats::Shown { json: args.json, top: args.top };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match stats::stats(&datadir, args.subject, shown, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(args: &ConfigArgs) -> ExitCode {
    match weir_config::load(&args.config) {
        Ok(config) => {
            println!(
                "{}: good ({} servers, {} users, {} galera hostgroups)",
                args.config.display(),
                config.servers.len(),
                config.users.len(),
                config.galera_hostgroups.len()
            );
            ExitCode::SUCCESS
        }
        Err(faults) => {
            for fault in faults {
                eprintln!("{fault}");
            }
            ExitCode::FAILURE
        }
    }
}
