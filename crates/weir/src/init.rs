//! Runs `weir init`: from the address of one server to a configuration in front of its whole cluster.
//!
//! ```text
//! ClusterFinder::find   asks the server and all that it leads to; what it is, or why Weir can't stand in front of it
//! Plan::new             accounts, files and what is in them; nothing has been changed yet
//! shown, and agreed to  on a terminal by a y, elsewhere by --yes
//! apply                 FILE.new with the passwords, then the accounts, then FILE; a run that was cut off is taken up again
//! look                  the file is read, each account logs in at each server, and what is missing there is told
//! ```

mod apply;
mod args;
mod finder;
mod places;
mod plan;
mod report;
mod terminal;
mod trial;

use std::path::PathBuf;
use std::process::ExitCode;

use weir_config::ConfigError;
use weir_discovery::creation::CreationError;
use weir_discovery::{ProposalError, Refusal, UrlError, WalkError};

pub(crate) use self::args::{INIT_EXAMPLES, InitArgs, TrialArgs};
pub(crate) use self::trial::{Datadir, Trial};

use crate::server_tls::ServerTlsError;

use self::finder::ClusterFinder;
use self::plan::Plan;
use self::report::Report;

/// Exit status: done, and something is missing on a server.
const LACKING: u8 = 3;
/// Exit status: wrong use.
const WRONG_USE: u8 = 2;

/// Why nothing was done, or not all.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InitError {
    #[error("{0}")]
    Url(#[from] UrlError),
    #[error("--user {0:?}: {1}")]
    User(String, &'static str),
    #[error("--monitor: {0}")]
    Monitor(&'static str),
    #[error(transparent)]
    Walk(#[from] WalkError),
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Proposal(#[from] ProposalError),
    #[error("{}", of_creation(.0))]
    Creation(#[from] CreationError),
    #[error(
        "{account} may not make accounts (it lacks {}): log in with an account that may, such as root, \
         or make the accounts yourself (weir init --dry-run shows the statements) and name the monitor's with --monitor", lacks.join(", ")
    )]
    LacksPrivileges { account: String, lacks: Vec<&'static str> },
    #[error("{}: {cause}", path.display())]
    File { path: PathBuf, cause: std::io::Error },
    #[error("{}: exists, and says something else; --force replaces it, -o FILE writes another one", .0.display())]
    FileExists(PathBuf),
    #[error("{}: can't be taken over: {}", path.display(), faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    OldFile { path: PathBuf, faults: Vec<ConfigError> },
    #[error("the configuration that was made is not valid, which is a fault of Weir's:\n{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid(Vec<ConfigError>),
    #[error("nobody is there to be asked: --yes goes on without, --dry-run only shows")]
    NobodyToAsk,
    #[error(
        "no password of {0}, and no terminal to ask for it: give --password-file FILE or MYSQL_PWD; for an account without \
         one, mysql://ACCOUNT:@HOST"
    )]
    NoPassword(String),
    #[error("TLS towards servers: {0}")]
    Tls(#[from] ServerTlsError),
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl InitError {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Url(_) | Self::User(..) | Self::Monitor(_) | Self::NobodyToAsk | Self::NoPassword(_) => {
                ExitCode::from(WRONG_USE)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

/// With what to do about it.
fn of_creation(error: &CreationError) -> String {
    match error {
        CreationError::Exists { user, .. } => format!(
            "{error}: remove it (DROP USER), choose other names (--prefix), or keep it: the monitor's with \
             --monitor {user}:PASSWORD; a configuration that has the password is taken over with -o FILE"
        ),
        CreationError::Statement { removal, .. } if !removal.is_empty() => {
            format!(
                "{error}\nwhat was made before is removed by:\n{}\nor made whole by running this again",
                removal.join("\n")
            )
        }
        CreationError::Arrival { .. } => format!(
            "{error}\nThe accounts are there, and the configuration is written. Does the server replicate accounts (mysql.*)?"
        ),
        _ => error.to_string(),
    }
}

/// Runs the command.
pub(crate) fn init(args: &InitArgs) -> ExitCode {
    run(args).unwrap_or_else(|error| {
        let lines: Vec<String> = error.to_string().lines().map(report::printable).collect();
        eprintln!("weir: {}", lines.join("\n"));
        error.exit_code()
    })
}

fn run(args: &InitArgs) -> Result<ExitCode, InitError> {
    let finder = ClusterFinder::new(&args.address, args.password_file.as_deref(), args.trust_peers)?;
    let found = finder.find()?;
    let mut plan = Plan::new(args, &finder, &found)?;
    let mut report = Report::new(&found, &plan);
    let shows = !args.json;
    if shows {
        print!("{}", report.found_text());
        print!("{}", report.plan_text());
    }
    if !args.dry_run && plan.changes_something() {
        if !args.yes && !terminal::agrees(shows)? {
            println!("nothing was changed");
            return Ok(ExitCode::FAILURE);
        }
        report.created = apply::apply(&mut plan, args)?;
    }
    if !args.dry_run {
        report.is_done = true;
        apply::look(&plan, &mut report)?;
        report.next = places::next_steps(&plan, args);
    }
    if shows {
        print!("{}", report.done_text());
    } else {
        println!("{}", report.json());
    }
    Ok(if report.missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(LACKING) })
}
