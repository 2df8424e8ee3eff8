//! Gives the admin interface access to the running Weir: what it may change, and show.

use std::sync::Arc;
use std::sync::mpsc::channel;

use signal_hook::consts::{SIGTERM, SIGUSR1};
use weir_admin::{Engine, EngineCommand, Rows, SwitchoverPlan};
use weir_config::{Config, ConfigError, TableRows};
use weir_http::{Format, metrics_text};
use weir_operations::SwitchoverOrder;
use weir_proxy::service::Publisher;
use weir_query_log::AuditEvent;
use weir_statistics::Statistics;
use weir_topology::Endpoint;

use crate::config_command;
use crate::control::{Action, Orders, order};
use crate::serve::ConfigSender;
use crate::startup::Origin;
use crate::tls::{NO_TLS, Tls};
use weir_web::WebSource;

/// The running Weir, as admin threads see it.
pub(crate) struct RunningWeir {
    pub config_sender: ConfigSender,
    pub orders: Orders,
    pub publisher: Publisher,
    /// What tables are filled with.
    pub statistics: Statistics,
    /// None if it is switched off.
    pub tls: Option<Tls>,
    /// What metrics are made of.
    pub shown: Arc<WebSource>,
    /// As if the process had got this signal.
    pub signal: Box<dyn Fn(i32) + Send + Sync>,
    /// Where the configuration comes from.
    pub origin: Origin,
}

impl Engine for RunningWeir {
    fn apply(&self, config: &Config) -> Result<Vec<String>, Vec<String>> {
        self.config_sender.take(config.clone())
    }

    fn rows(&self, table: &str, take: &mut dyn FnMut(Rows<'_>)) {
        self.statistics.rows(table, take);
    }

    fn rows_and_reset(&self, table: &str, take: &mut dyn FnMut(Rows<'_>)) {
        self.statistics.rows_and_reset(table, take);
    }

    fn kill(&self, thread_id: u64, query_only: bool) -> bool {
        u32::try_from(thread_id).is_ok_and(|session| self.publisher.kill(session, query_only))
    }

    fn audit(&self, event: &AuditEvent<'_>) {
        self.publisher.query_logs().audit(event);
    }

    fn command(&self, command: EngineCommand) -> Result<String, String> {
        let action = match command {
            EngineCommand::Shutdown => {
                (self.signal)(SIGTERM);
                return Ok("draining".to_owned());
            }
            EngineCommand::Kill => {
                // The second one is the end.
                (self.signal)(SIGTERM);
                (self.signal)(SIGTERM);
                return Ok("ending".to_owned());
            }
            EngineCommand::FlushLogs => {
                (self.signal)(SIGUSR1);
                return Ok(String::new());
            }
            EngineCommand::Pause => Action::Pause,
            EngineCommand::Resume => Action::Resume,
            EngineCommand::ReloadTls => {
                // A disk may hang: this thread can wait for it.
                let tls = self.tls.as_ref().ok_or(NO_TLS)?;
                let certificate = tls.read(&self.statistics.state.config());
                Action::ReloadTls(certificate.map_err(|error| error.to_string())?)
            }
            EngineCommand::Drain(server) => Action::Drain(server),
            EngineCommand::Undrain { server, force } => Action::Undrain { server, force },
            EngineCommand::Switchover { hostgroup, to, force } => {
                Action::Switchover(SwitchoverOrder { to, force, ..SwitchoverOrder::of(hostgroup) })
            }
        };
        let mut steps = Vec::new();
        let done = order(&self.orders, action, |step| steps.push(step));
        let told = |last: String| steps.iter().cloned().chain([last]).collect::<Vec<_>>().join("; ");
        done.map(told).map_err(told)
    }

    fn plan_switchover(&self, hostgroup: u32, to: Option<Endpoint>) -> Result<SwitchoverPlan, String> {
        let (sender, plan) = channel();
        let wanted =
            SwitchoverOrder { to, dry_run: true, tell: Some(sender), ..SwitchoverOrder::of(hostgroup) };
        let told = order(&self.orders, Action::Switchover(wanted), |_| {})?;
        let weir_operations::SwitchoverPlan { writer, next_writer, sessions } =
            plan.try_recv().map_err(|_| told)?;
        Ok(SwitchoverPlan { writer, next_writer, sessions })
    }

    fn file_rows(&self) -> Result<TableRows, Vec<String>> {
        let faults = |faults: Vec<ConfigError>| faults.iter().map(ToString::to_string).collect::<Vec<_>>();
        Ok(self.origin.read().map_err(faults)?.rows)
    }

    fn config_text(&self, rows: &TableRows) -> Result<String, String> {
        config_command::as_cnf(rows).map_err(|error| error.to_string())
    }

    fn metrics_text(&self) -> Result<String, String> {
        Ok(metrics_text(&*self.shown, Format::Prometheus))
    }
}
