//! Takes the command line apart.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum, value_parser};
use weir_fidelity::{IoDriver, Pattern, server_cnf};
use weir_lab::Stop;
use weir_lab::servers::ServerArgs;
use weir_testkit::{Family, MysqlOptions};

/// Plays all ways to change a session x all that can be changed, at a server and through Weir with one connection, and
/// compares what every session sees.
#[derive(Debug, Clone, Parser)]
#[command(name = "weir-fidelity", version)]
pub(crate) struct Args {
    /// Cells to play, as in call/role, call, /role or trigger*/session_track* [default: all]
    #[arg(long, value_delimiter = ',', value_name = "WAY/STATE")]
    pub(crate) only: Vec<Pattern>,
    /// Whose server
    #[arg(long, value_enum, default_value_t = Server::Mariadb)]
    server: Server,
    /// What Weir reads and writes sockets with
    #[arg(long, value_enum, default_value_t = IoDriver::Epoll)]
    pub(crate) io: IoDriver,
    /// Whether Weir resets connections after statements that may have run hidden code (its variable of this name)
    #[arg(long)]
    pub(crate) reset_after_hidden_code: bool,
    /// How many Weirs play at a time
    #[arg(long, value_parser = value_parser!(u8).range(1..=32), default_value_t = 6, value_name = "N")]
    stages: u8,
    /// Write everything that was found to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Keep what is wrong so far in this file while it runs
    #[arg(long, value_name = "FILE")]
    pub(crate) list: Option<PathBuf>,
    /// The address of the server and of the Weirs
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.71")]
    pub(crate) address: Ipv4Addr,
    #[command(flatten)]
    pub(crate) servers: ServerArgs,
}

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Server {
    /// The system's MariaDB
    Mariadb,
    /// Oracle MySQL, from scripts/get-mysql
    Mysql,
}

impl Args {
    /// The server to start.
    pub(crate) fn server_options(&self, stop: &Stop) -> MysqlOptions {
        let family = match self.server {
            Server::Mariadb => Family::Mariadb,
            Server::Mysql => Family::Mysql,
        };
        MysqlOptions {
            purpose: "fidelity".to_owned(),
            family,
            servers: 1,
            first_address: self.address,
            extra_cnf: server_cnf(family).to_owned(),
            keep: self.servers.keep,
            progress: |line| eprintln!("{line}"),
            cancel: stop.flag(),
            ..MysqlOptions::tests()
        }
    }

    pub(crate) fn stages(&self) -> usize {
        usize::from(self.stages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["weir-fidelity"].iter().chain(words))
    }

    #[test]
    fn the_defaults_are_all_of_it_on_mariadb() {
        let args = parse(&[]).unwrap();
        assert!(args.only.is_empty());
        assert_eq!((args.server, args.io), (Server::Mariadb, IoDriver::Epoll));
    }

    #[test]
    fn cells_are_named_and_nonsense_is_refused() {
        let args = parse(&["--only", "call/role,/schema", "--server", "mysql", "--io", "io_uring"]).unwrap();
        assert_eq!(args.only.len(), 2);
        assert_eq!((args.server, args.io), (Server::Mysql, IoDriver::IoUring));
        for words in [["--server", "oracle"], ["--io", "kqueue"], ["--only", "a/b/c"], ["--stages", "0"]] {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
