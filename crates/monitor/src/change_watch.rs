//! Watches a server for changes of its accounts and of the values that sessions begin with, so that no connection of
//! the data path lives on what was true when it was logged in. It needs no privilege:
//!
//! | what | how it is seen |
//! | --- | --- |
//! | accounts, rights, roles | the server counts the statements that change them (`Com_grant` and the like), also those that come by replication (seen on MariaDB 10.11, alone and on Galera, and MySQL 9.7) |
//! | defaults of sessions | the global values of all variables that a session has |
//!
//! On MariaDB SET PASSWORD counts as any other SET, and an account may change by time alone (a password expires): for
//! these there is `login_max_age_ms`.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_client::{Capabilities, Connection, Error, Options};
use weir_topology::session_variables::SEPARATOR;
use weir_topology::{ServerShared, SessionVariables};

/// A server is looked at once a second: with the first probe after this time, as those may come a tenth early.
const PAUSE: Duration = Duration::from_millis(800);
/// Counters of statements that change accounts, by all their names; each server has some of them.
const COUNTERS: &str = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_grant', 'Com_grant_role', 'Com_grant_roles', \
    'Com_revoke', 'Com_revoke_all', 'Com_revoke_role', 'Com_revoke_roles', 'Com_create_user', 'Com_alter_user', \
    'Com_alter_user_default_role', 'Com_drop_user', 'Com_rename_user', 'Com_set_password', 'Com_create_role', \
    'Com_drop_role', 'Com_install_plugin', 'Com_uninstall_plugin', 'Com_flush')";
const AUTOCOMMIT: &str = "SELECT @@global.autocommit";
/// MariaDB tells what a session has.
const NAMES_OF_SESSION: &str = "SELECT LOWER(variable_name) FROM information_schema.system_variables \
    WHERE variable_scope = 'SESSION' AND read_only = 'NO'";
/// MySQL has to be asked for each.
const NAMES: &str = "SHOW GLOBAL VARIABLES";
/// A Galera node that takes no statements now: it says nothing about a variable.
const NOT_PREPARED: u16 = 1047;

/// Not to be carried from connection to connection, even where the monitor's account may set them. A change of their global
/// values is seen all the same. (MariaDB's SET GLOBAL wsrep_on is one of the session that says it, too.)
const LEFT_OUT: [&str; 42] = [
    // Of a login, or of the schema.
    "character_set_client",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    "character_set_database",
    "collation_database",
    // They change by themselves, or hold for one statement.
    "timestamp",
    "rand_seed1",
    "rand_seed2",
    "insert_id",
    "last_insert_id",
    "identity",
    "pseudo_thread_id",
    "pseudo_slave_mode",
    "last_gtid",
    "gtid_seq_no",
    "gtid_next",
    "error_count",
    "warning_count",
    "in_transaction",
    "proxy_user",
    "external_user",
    "statement_id",
    "system_versioning_asof",
    "default_master_connection",
    // A view of wsrep_sync_wait.
    "wsrep_causal_reads",
    // They need a privilege.
    "binlog_annotate_row_events",
    "binlog_direct_non_transactional_updates",
    "binlog_format",
    "binlog_row_image",
    "debug",
    "debug_dbug",
    "enforce_storage_engine",
    "gtid_domain_id",
    "innodb_tmpdir",
    "log_disabled_statements",
    "server_id",
    "skip_replication",
    "skip_parallel_replication",
    "sql_log_bin",
    "sql_log_off",
    "wsrep_on",
];

/// The same of MySQL (9.7), where they need SESSION_VARIABLES_ADMIN.
const LEFT_OUT_OF_MYSQL: [&str; 23] = [
    "binlog_row_value_options",
    "binlog_rows_query_log_events",
    "binlog_transaction_compression",
    "binlog_transaction_compression_level_zstd",
    "bulk_insert_buffer_size",
    "character_set_filesystem",
    "connection_memory_chunk_size",
    "connection_memory_limit",
    "global_connection_memory_tracking",
    "histogram_generation_max_mem_size",
    "innodb_strict_mode",
    "internal_tmp_mem_storage_engine",
    "low_priority_updates",
    "max_delayed_threads",
    "max_error_count",
    "max_insert_delayed_threads",
    "min_examined_row_limit",
    "preload_buffer_size",
    "select_into_buffer_size",
    "select_into_disk_sync_delay",
    "sql_generate_invisible_primary_key",
    "sql_require_primary_key",
    "xa_detach_on_prepare",
];

/// What a server does now, in the dress of a variable: no setting, and no reason to log in anew.
const CHANGING: &str = "gtid_owned";

/// The accounts and variables of a server, as last seen.
pub(crate) struct Watch {
    shared: Arc<ServerShared>,
    looked_at: Option<Instant>,
    counters: Option<String>,
    /// Of this version of the server.
    version: String,
    known: Option<Known>,
    learning: Option<JoinHandle<Option<Known>>>,
    /// How much of [`ServerShared::renewal`] this has seen or done.
    renewals: u64,
}

/// The variables of a server, and their global values.
struct Known {
    variables: Arc<SessionVariables>,
    globals: String,
}

impl Watch {
    pub(crate) fn new(shared: Arc<ServerShared>) -> Self {
        Self {
            shared,
            looked_at: None,
            counters: None,
            version: String::new(),
            known: None,
            learning: None,
            renewals: 0,
        }
    }

    /// Asks the server, if it is time. Faults are for the next look to find.
    pub(crate) fn look(&mut self, connection: &mut Connection, options: &Options) {
        // What is to be compared with ought to be there soon.
        let is_due = self.learning.is_some() || self.looked_at.is_none_or(|at| at.elapsed() >= PAUSE);
        if !is_due {
            return;
        }
        self.looked_at = Some(Instant::now());
        self.shared.note_query_attributes(connection.offers().contains(Capabilities::QUERY_ATTRIBUTES));
        if connection.server_version() != self.version {
            self.version = connection.server_version().to_owned();
            self.known = None;
        }
        self.take_learnt();
        self.renew_again();
        let looked = self.look_at_accounts(connection).and_then(|()| self.look_at_globals(connection));
        if let Err(error) = looked {
            tracing::debug!(server = %self.shared.endpoint, %error, "changes of accounts and defaults can't be detected");
        }
        if self.known.is_none() {
            self.learn(options);
        }
    }

    /// What a statement of a session has changed may have been changed back since, between two looks. Connections of that
    /// time have it still.
    fn renew_again(&mut self) {
        let renewals = self.shared.renewal();
        if self.renewals != renewals {
            self.renewals = renewals;
            self.renew();
        }
    }

    fn renew(&mut self) {
        self.renewals += 1;
        self.shared.renew();
    }

    fn look_at_accounts(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let result = connection.query(COUNTERS)?;
        let counters: Vec<String> = result.pairs().map(|(name, count)| format!("{name}={count}")).collect();
        let counters = counters.join(" ");
        if self.counters.as_ref() != Some(&counters) {
            // Also the first time: there may be connections from before.
            tracing::debug!(server = %self.shared.endpoint, counters, "accounts may have changed");
            self.renew();
            self.counters = Some(counters);
        }
        Ok(())
    }

    fn look_at_globals(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let autocommit = connection.query(AUTOCOMMIT)?;
        self.shared.note_autocommit(autocommit.first() != Some("0"));
        let Some(known) = &mut self.known else { return Ok(()) };
        let globals = match connection.query(known.variables.global_question()) {
            Ok(result) => result.first().unwrap_or_default().to_owned(),
            Err(error) => {
                // A plugin and its variables are gone: learn them anew.
                self.known = None;
                return Err(error);
            }
        };
        if globals != known.globals {
            let changed = changed_names(&known.variables, &known.globals, &globals);
            tracing::info!(
                server = %self.shared.endpoint,
                changed,
                "global variables have changed: connections are logged in anew before other sessions get them"
            );
            known.globals = globals;
            self.renew();
        }
        Ok(())
    }

    /// Finds out which variables the server has, on a connection and a thread of its own: on MySQL it takes a statement
    /// for each.
    fn learn(&mut self, options: &Options) {
        if self.learning.is_none() {
            let (options, shared) = (options.clone(), self.shared.clone());
            let thread = thread::Builder::new().name(format!("learn {}", shared.endpoint));
            self.learning = thread.spawn(move || learn(&options, &shared)).ok();
        }
    }

    fn take_learnt(&mut self) {
        if let Some(learnt) = self.learning.take_if(|learning| learning.is_finished()) {
            self.known = learnt.join().ok().flatten();
            if self.known.is_some() {
                // They were renewed when the variables were learnt.
                self.renewals += 1;
            }
        }
    }
}

fn learn(options: &Options, shared: &ServerShared) -> Option<Known> {
    match ask_for_variables(options) {
        Ok(known) => {
            let count = known.variables.names().len();
            shared.learn_session_variables(known.variables.clone());
            tracing::info!(server = %shared.endpoint, count, "session variables have been read");
            Some(known)
        }
        Err(error) => {
            tracing::debug!(server = %shared.endpoint, %error, "session variables can't be read");
            None
        }
    }
}

fn ask_for_variables(options: &Options) -> Result<Known, Error> {
    let mut connection = Connection::connect(options)?;
    let (names, left_out): (_, &[&str]) = match connection.query(NAMES_OF_SESSION) {
        Err(error) if !error.is_fatal() => (connection.query(NAMES)?, &LEFT_OUT_OF_MYSQL),
        names => (names?, &[]),
    };
    let names = (0..names.rows.len()).filter_map(|row| names.text(row, 0)).map(str::to_ascii_lowercase);
    let names = names.filter(|name| name != CHANGING);
    let (mut taken, mut watched) = (Vec::new(), Vec::new());
    for name in names {
        let is_taken = !is_left_out(&name) && !left_out.contains(&&*name);
        // Not a session's, not with this account, not to this value, or no plain name.
        if is_taken && takes(&mut connection, &format!("SET SESSION {name}=@@global.{name}"))? {
            taken.push(name);
        } else if takes(&mut connection, &format!("SELECT @@session.{name}, @@global.{name}"))? {
            watched.push(name);
        }
    }
    let variables =
        SessionVariables::new(taken.iter().map(String::as_str), watched.iter().map(String::as_str));
    let globals = connection.query(variables.global_question())?;
    Ok(Known { globals: globals.first().unwrap_or_default().to_owned(), variables: Arc::new(variables) })
}

/// Whether the server takes this statement.
fn takes(connection: &mut Connection, sql: &str) -> Result<bool, Error> {
    match connection.query(sql) {
        Ok(_) => Ok(true),
        Err(error) if error.code().is_some_and(|code| code != NOT_PREPARED) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name) || name.starts_with("session_track_")
}

/// For the log.
fn changed_names(variables: &SessionVariables, before: &str, now: &str) -> String {
    let values = |text: &str| text.split(char::from(SEPARATOR)).map(str::to_owned).collect::<Vec<_>>();
    let (before, now) = (values(before), values(now));
    let names = ["init_connect"].into_iter().chain(variables.global_names());
    let changed = names.enumerate().filter(|(at, _)| before.get(*at) != now.get(*at)).map(|(_, name)| name);
    changed.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_what_has_changed() {
        let variables = SessionVariables::new(["sql_mode", "time_zone"], ["wait_timeout"]);
        let changed = |before, now| changed_names(&variables, before, now);
        assert_eq!(
            changed("0\u{1}\u{1}SYSTEM\u{1}60", "0\u{1}ANSI\u{1}SYSTEM\u{1}5"),
            "sql_mode, wait_timeout"
        );
        assert_eq!(changed("0\u{1}\u{1}SYSTEM\u{1}60", "1\u{1}\u{1}SYSTEM\u{1}60"), "init_connect");
    }

    #[test]
    fn what_a_login_sets_is_left_out() {
        assert!(is_left_out("session_track_schema") && is_left_out("character_set_client"));
        assert!(!is_left_out("sql_mode") && !is_left_out("autocommit"));
    }
}
