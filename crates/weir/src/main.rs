//! `weir`: one MySQL service in front of a cluster of MySQL-family servers.

#![forbid(unsafe_code)]

mod files;
mod log;
mod rsa_key;
mod serve;
mod server_tls;
mod snapshot;
mod tls;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

const EXAMPLES: &str = "Examples:
  weir check -c weir.toml     look for faults in a configuration
  weir serve -c weir.toml     run the proxy
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

fn main() -> ExitCode {
    match Cli::parse().command {
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
