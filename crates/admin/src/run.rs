//! Understands statements and does them.

mod config;
mod load_save;
mod show;
mod statement;

use weir_protocol::error;
use weir_store::{Layer, Store, Value};
use weir_topology::Endpoint;

use crate::audit;
use crate::command::{self, Assignment, Checksum, Command, Fixed, Proxy, Scope, Weir};
use crate::engine::EngineCommand;
use crate::error::SqlError;
use crate::limits::STATEMENT_TIMEOUT;
use crate::login::Rights;
use crate::reply::{Done, Reply, RowFormat, Rows};
use crate::session::{Session, Warning};
use crate::sqlite::Policy;

impl Session {
    /// Does what a statement says.
    pub(crate) fn statement(
        &mut self,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let command = self.understand(text).inspect_err(|error| self.keep_error(error))?;
        self.carry_out(command, text, parameters, format)
    }

    /// COM_INIT_DB: as USE.
    pub(crate) fn init_db(&mut self, schema: &str) -> Result<(), SqlError> {
        self.carry_out(Command::Use(schema.to_owned()), "", &[], RowFormat::Text).map(|_| ())
    }

    fn carry_out(
        &mut self,
        command: Command,
        text: &str,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let is_about_warnings =
            matches!(command, Command::Show(command::Show::Warnings | command::Show::CountWarnings));
        if !is_about_warnings {
            self.warnings.clear();
        }
        let is_show = matches!(command, Command::Show(_) | Command::Sql(_));
        let is_change = audit::is_change(&command);
        self.changes_rows = false;
        // Of SQL it is known later.
        let may_run = if is_change { self.shared.shutdown.check_change() } else { Ok(()) };
        let reply = may_run.and_then(|()| self.obey_command(command, parameters, format));
        if is_change || self.changes_rows {
            self.client.tell_change(&*self.shared.engine, &self.user, self.channel, text, &reply);
            self.shared.response_cache().clear();
        }
        if let (Err(error), true) = (&reply, self.warnings.is_empty() || is_show) {
            self.keep_error(error);
        }
        reply
    }

    /// Columns and parameters of a statement that is to be prepared.
    pub(crate) fn outline(&mut self, text: &str) -> Result<(Vec<String>, usize), SqlError> {
        match self.understand(text)? {
            Command::Sql(sql) => self.outline_sql(&sql),
            Command::Show(show) => match self.show_sql(&show)? {
                Some(query) => self.outline_query(&query),
                None => Ok((Vec::new(), 0)),
            },
            _ => Ok((Vec::new(), 0)),
        }
    }

    /// What is refused for what it is gets into the audit log as what is tried and fails.
    fn understand(&mut self, text: &str) -> Result<Command, SqlError> {
        let understood = command::parse(text);
        if let Err(error) = &understood
            && audit::is_attempt(error)
        {
            let refused = Err(error.clone());
            self.client.tell_change(&*self.shared.engine, &self.user, self.channel, text, &refused);
        }
        understood
    }

    fn obey_command(
        &mut self,
        command: Command,
        parameters: &[Value],
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        match command {
            Command::Sql(sql) => self.sql(&sql, parameters, format),
            Command::Show(show) => self.show(&show, format),
            Command::Fixed(fixed) => self.fixed(fixed, format),
            Command::LoadUser(name) => self.load_user(&name),
            Command::Set(assignments) => self.set(&assignments),
            Command::Use(schema) => {
                self.use_schema(&schema)?;
                done("")
            }
            Command::Kill { thread_id, query_only } => self.kill(thread_id, query_only),
            Command::Truncate { schema, table } => self.truncate(schema.as_deref(), &table),
            Command::SaveConfig(path) => self.save_config(&path),
            Command::Transaction { is_rollback } => {
                if is_rollback && self.has_written {
                    self.warn("each statement took effect at once: nothing was rolled back");
                }
                self.has_written = false;
                done("")
            }
            Command::Weir(weir) => self.weir(weir, format),
            Command::Nothing => done(""),
        }
    }

    fn fixed(&mut self, fixed: Fixed, format: RowFormat) -> Result<Reply, SqlError> {
        match fixed {
            Fixed::Move(way) => {
                self.needs_admin()?;
                self.go(way)
            }
            Fixed::Proxy(proxy) => {
                self.needs_admin()?;
                self.proxy(proxy)
            }
            Fixed::Checksum(checksum) => self.checksum(checksum, format),
            Fixed::ConfigFile => {
                self.needs_admin()?;
                let text = self.config_text()?;
                let mut rows = Rows::new(vec!["Data".to_owned()], format, self.shared.memory.budget());
                rows.push_texts(&[&text])?;
                Ok(Reply::Rows(rows.into()))
            }
        }
    }

    fn proxy(&mut self, proxy: Proxy) -> Result<Reply, SqlError> {
        use std::sync::atomic::Ordering;
        let command = match proxy {
            Proxy::ReadOnly | Proxy::ReadWrite => {
                self.shared.is_read_only.store(proxy == Proxy::ReadOnly, Ordering::Relaxed);
                return done("");
            }
            Proxy::FlushQueryCache => {
                self.warn("there is no query cache: nothing to flush");
                return done("");
            }
            Proxy::FlushConfigDb => {
                let store = self.shared.store();
                store.check_seal().map_err(|sealed| SqlError::other(sealed.to_string()))?;
                let flushed = store.connection().execute_batch("VACUUM disk");
                return flushed.map_err(|error| SqlError::other(error.to_string())).and_then(|()| done(""));
            }
            Proxy::Restart => {
                return Err(SqlError::other(
                    "Weir does not restart itself: run weir serve --takeover, which replaces this process without refusing a connection",
                ));
            }
            Proxy::Pause => EngineCommand::Pause,
            Proxy::Resume => EngineCommand::Resume,
            Proxy::Shutdown => EngineCommand::Shutdown,
            Proxy::Kill => EngineCommand::Kill,
            Proxy::FlushLogs => EngineCommand::FlushLogs,
            Proxy::ReloadTls => EngineCommand::ReloadTls,
        };
        self.command(command)
    }

    fn weir(&mut self, weir: Weir, format: RowFormat) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        self.command(match weir {
            Weir::Drain(server) => EngineCommand::Drain(server),
            Weir::Undrain { server, force } => EngineCommand::Undrain { server, force },
            Weir::Switchover { hostgroup, to, dry_run: true, .. } => {
                return self.plan_switchover(hostgroup, to, format);
            }
            Weir::Switchover { hostgroup, to, force, dry_run: false } => {
                EngineCommand::Switchover { hostgroup, to, force }
            }
        })
    }

    fn plan_switchover(
        &mut self,
        hostgroup: u32,
        to: Option<Endpoint>,
        format: RowFormat,
    ) -> Result<Reply, SqlError> {
        let plan = self.shared.engine.plan_switchover(hostgroup, to).map_err(SqlError::other)?;
        let columns = ["hostgroup", "writer", "next_writer", "sessions"].map(str::to_owned);
        let mut rows = Rows::new(columns.to_vec(), format, self.shared.memory.budget());
        let (writer, next_writer) = (plan.writer.to_string(), plan.next_writer.to_string());
        rows.push_texts(&[&hostgroup.to_string(), &writer, &next_writer, &plan.sessions])?;
        Ok(Reply::Rows(rows.into()))
    }

    fn command(&mut self, command: EngineCommand) -> Result<Reply, SqlError> {
        tracing::info!(user = self.user, ?command, "admin command");
        let info = self.shared.engine.command(command).map_err(SqlError::other)?;
        done(&info)
    }

    fn checksum(&mut self, checksum: Checksum, format: RowFormat) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        let layer = if checksum.on_disk { Layer::Disk } else { Layer::Memory };
        let sum = self.shared.store().table_checksum(checksum.table, layer);
        let sum = sum.map_err(|error| SqlError::other(error.to_string()))?;
        let columns = vec!["table".to_owned(), "checksum".to_owned()];
        let mut rows = Rows::new(columns, format, self.shared.memory.budget());
        rows.push_texts(&[checksum.table, &format!("0x{sum:016X}")])?;
        Ok(Reply::Rows(rows.into()))
    }

    fn kill(&mut self, thread_id: u64, query_only: bool) -> Result<Reply, SqlError> {
        self.needs_admin()?;
        if self.shared.engine.kill(thread_id, query_only) {
            return done("");
        }
        Err(SqlError::new(error::NO_SUCH_THREAD, format!("Unknown thread id: {thread_id}")))
    }

    fn set(&mut self, assignments: &[Assignment]) -> Result<Reply, SqlError> {
        let mut affected_rows = 0;
        for assignment in assignments {
            match assignment.scope {
                Scope::Configuration => {
                    affected_rows += self.set_variable(&assignment.name, &assignment.value)?
                }
                Scope::Session if is_of_drivers(&assignment.name) => {}
                Scope::Session => self.warn(format!(
                    "{} has no effect on the admin interface (variables of Weir begin with mysql- or admin-)",
                    assignment.name
                )),
            }
        }
        Ok(Reply::Done(Done { affected_rows, info: String::new() }))
    }

    pub(crate) fn needs_admin(&self) -> Result<(), SqlError> {
        match self.rights {
            Rights::Admin => Ok(()),
            Rights::Stats => Err(SqlError::denied(
                "this account may only look at statistics: log in as one of admin-admin_credentials",
            )),
        }
    }

    pub(crate) fn policy(&self, store: &Store) -> Policy {
        let seal = store.check_seal().err().map(|sealed| sealed.to_string());
        let is_read_only = self.shared.is_read_only();
        Policy { rights: self.rights, is_read_only, seal, patience: STATEMENT_TIMEOUT }
    }

    /// So that SHOW WARNINGS shows it too.
    fn keep_error(&mut self, error: &SqlError) {
        self.warnings.clear();
        let warning = Warning { level: "Error", code: error.error.code, message: error.message.clone() };
        self.warnings.push(warning);
    }
}

pub(crate) fn done(info: &str) -> Result<Reply, SqlError> {
    Ok(Reply::Done(Done { affected_rows: 0, info: info.to_owned() }))
}

/// What drivers set when they connect and that changes nothing anybody sees here.
fn is_of_drivers(name: &str) -> bool {
    let known = [
        "names",
        "autocommit",
        "sql_mode",
        "sql_auto_is_null",
        "sql_select_limit",
        "sql_safe_updates",
        "sql_quote_show_create",
        "net_write_timeout",
        "net_read_timeout",
        "wait_timeout",
        "interactive_timeout",
        "time_zone",
        "transaction_isolation",
        "tx_isolation",
        "max_statement_time",
        "max_execution_time",
        "lock_wait_timeout",
        "log_slow_filter",
        "profiling",
        "query_cache_type",
    ];
    name.starts_with("character_set_") || name.starts_with("collation_") || known.contains(&name)
}
