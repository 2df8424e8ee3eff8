//! Declares the arguments of `weir init`, and those of `weir serve --cluster`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const INIT_EXAMPLES: &str = "Examples:
  weir init mysql://root@10.0.0.11 --dry-run          what is there, and what would be done
  weir init mysql://root@10.0.0.11 --user app         asks for both passwords, and before it changes anything
  weir init mysql://root@db1:3307 --password-file pw --user app:secret --yes -o /etc/weir.toml --systemd
  weir init 'mysql://root@db1/?ssl-mode=verify_identity&ssl-ca=/etc/ca.pem' --yes --json | jq -r '.next[]'

The address is mysql://ACCOUNT[:PASSWORD]@HOST[:PORT] of any server of the cluster; characters such as @ and / in it are
written %40 and %2F. Without a password there, it is that of --password-file, of MYSQL_PWD, or is asked for: other users of
this machine see arguments. ssl-mode is that of MySQL's clients; the default, preferred, encrypts where the server can.

The account is used here only. What Weir goes on with are accounts of its own, with random passwords and the least
privileges; each can be left out. A second run changes nothing, and takes up one that was cut off.

Exit status: 0 if all is done (with --dry-run: shown), 1 if not, 2 for wrong use, 3 if all is done and something is missing
on a server.";

#[derive(Args)]
pub(crate) struct InitArgs {
    /// A server of the cluster, and an account that may make accounts: mysql://ACCOUNT@HOST[:PORT]
    #[arg(value_name = "ADDRESS")]
    pub address: String,
    /// A file whose first line is the account's password
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// Give the password also to servers that others name, if they ask for it and ssl-mode does not verify them; ask hosts
    /// that read a binary log
    #[arg(long)]
    pub trust_peers: bool,
    /// Where the configuration is written [default: /etc/weir/weir.toml as root, else weir.toml]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Replace a configuration that is there; its passwords and users are kept
    #[arg(long)]
    pub force: bool,
    /// An application's account, which exists on the servers; can be given several times
    #[arg(long = "user", value_name = "NAME[:PASSWORD]")]
    pub users: Vec<String>,
    /// Use this account for the monitor as it is, instead of making one
    #[arg(long, value_name = "NAME[:PASSWORD]")]
    pub monitor: Option<String>,
    /// How the names of the accounts begin that are made
    #[arg(long, value_name = "TEXT", default_value = "weir_")]
    pub prefix: String,
    /// The host part of accounts, such as '10.0.0.%' for several Weirs [default: this host as the servers see it]
    #[arg(long = "account-host", value_name = "PATTERN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub account_hosts: Vec<String>,
    /// Make no account that evicts dead Galera nodes
    #[arg(long)]
    pub no_assist: bool,
    /// Make no account that moves the writer role of a group or of replicas
    #[arg(long)]
    pub no_switchover: bool,
    /// Let only those log in whom mysql_users names, not the servers' own accounts
    #[arg(long)]
    pub no_follow_accounts: bool,
    /// Give the monitor no privileges on the schema weir, in which several Weirs agree
    #[arg(long)]
    pub no_several_weirs: bool,
    /// Where Weir will keep its own files [default: /var/lib/weir as root, else weir-data beside the configuration]
    #[arg(short = 'D', long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,
    /// Where applications will connect [default: 0.0.0.0:6033]
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Where admins will connect; empty: nowhere [default: 127.0.0.1:6032]
    #[arg(long, value_name = "ADDRESS")]
    pub admin_listen: Option<String>,
    /// Also write a unit of systemd
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "/etc/systemd/system/weir.service")]
    pub systemd: Option<PathBuf>,
    /// Don't ask before anything is changed
    #[arg(short, long, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object; needs --yes or --dry-run
    #[arg(long)]
    pub json: bool,
}

/// What `weir serve --cluster` takes beside the address.
#[derive(Args)]
pub(crate) struct TrialArgs {
    /// Instead of a file: a server of a cluster, and an account of its servers, mysql://ACCOUNT[:PASSWORD]@HOST[:PORT];
    /// changes no account, and keeps the configuration in memory
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["initial", "reload", "config_mode"])]
    pub cluster: Option<String>,
    /// With --cluster: a file whose first line is the account's password
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub password_file: Option<PathBuf>,
    /// With --cluster: give the password also to servers that others name, as with `weir init`
    #[arg(long, requires = "cluster")]
    pub trust_peers: bool,
    /// With --cluster: an account that applications log in with [default: the one of ADDRESS]
    #[arg(long = "user", value_name = "NAME[:PASSWORD]", requires = "cluster")]
    pub users: Vec<String>,
    /// With --cluster: where applications connect
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6033", requires = "cluster")]
    pub listen: String,
    /// With --cluster: where admins connect, who can see the password of the account [default: nowhere]
    #[arg(long, value_name = "ADDRESS", default_value = "", hide_default_value = true, requires = "cluster")]
    pub admin_listen: String,
}
