//! Runs `weir config check` and `weir check`: finds faults of a configuration and, if asked for, what its servers
//! lack.

use std::collections::BTreeSet;
use std::process::ExitCode;

use weir_config::Config;
use weir_monitor::{Reach, Remedy, Risk, ServerCheck, examine};

use super::{CheckArgs, Finding};
use crate::config_file::Source;
use crate::server_tls::ServersTls;

/// Exit status: the configuration is good, and something is missing on a server.
const LACKING: u8 = 3;
/// Exit status: it has faults, or a file that it names is no good.
const FAULTY: u8 = 1;

/// What was found, for scripts.
#[derive(serde::Serialize)]
struct Checked<'c> {
    /// Whether nothing is wrong, with the servers neither if they were looked at: exit status 0.
    good: bool,
    faults: Vec<Finding<'c>>,
    /// What has no effect.
    warnings: Vec<Finding<'c>>,
    /// With --cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<Cluster>,
}

/// What was found on the servers, for scripts.
#[derive(serde::Serialize)]
struct Cluster {
    /// Why none was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    servers: Vec<CheckedServer>,
    /// What to do, once each.
    remedies: BTreeSet<String>,
}

#[derive(serde::Serialize)]
struct CheckedServer {
    writer_hostgroup: u32,
    server: String,
    missing: Vec<Missing>,
    /// Settings with which data may be lost or mixed up, whatever a proxy does. They are no fault of the configuration.
    risks: Vec<RiskySetting>,
}

#[derive(serde::Serialize)]
struct RiskySetting {
    setting: String,
    effect: &'static str,
    remedy: &'static str,
}

#[derive(serde::Serialize)]
struct Missing {
    what: String,
    /// What does not work without.
    lost: &'static str,
}

impl Cluster {
    fn exit_status(&self) -> u8 {
        match &self.error {
            Some(_) => FAULTY,
            None if self.servers.iter().any(|server| !server.missing.is_empty()) => LACKING,
            None => 0,
        }
    }
}

/// Prints all faults of a configuration; `cluster`: looks at the servers, too.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    let read = Source::read(&args.config);
    let (faults, warnings) = match &read {
        Ok(source) => (&[][..], source.warnings.as_slice()),
        Err(faults) => (faults.as_slice(), &[][..]),
    };
    if !args.json {
        for fault in faults {
            eprintln!("{fault}");
        }
        for warning in warnings {
            eprintln!("{warning} (warning)");
        }
        if let Ok(source) = &read {
            println!("{}: good ({})", args.config.display(), source.summary());
        }
    }
    let cluster = read.as_ref().ok().filter(|_| args.cluster).map(|source| look(&source.config));
    let status = match (&read, &cluster) {
        (Err(_), _) => FAULTY,
        (Ok(_), Some(cluster)) => cluster.exit_status(),
        (Ok(_), None) => 0,
    };
    if args.json {
        let good = status == 0;
        let checked = Checked { good, faults: Finding::of(faults), warnings: Finding::of(warnings), cluster };
        println!("{}", serde_json::to_string_pretty(&checked).unwrap_or_default());
    } else if let Some(cluster) = &cluster {
        show(cluster);
    }
    ExitCode::from(status)
}

fn show(cluster: &Cluster) {
    if let Some(error) = &cluster.error {
        eprintln!("weir: {error}");
    }
    for CheckedServer { writer_hostgroup, server, missing, risks } in &cluster.servers {
        if missing.is_empty() {
            println!("hostgroup {writer_hostgroup} {server}: nothing is missing");
        }
        for Missing { what, lost } in missing {
            println!("hostgroup {writer_hostgroup} {server}: {what}; without it, {lost}");
        }
        for RiskySetting { setting, effect, remedy } in risks {
            println!("hostgroup {writer_hostgroup} {server}: risk: {setting}: {effect}; set {remedy}");
        }
    }
    for remedy in &cluster.remedies {
        println!("\n{remedy}");
    }
}

fn look(config: &Config) -> Cluster {
    let reach = match ServersTls::default().read(config) {
        Ok(tls) => Reach { tls: tls.for_monitor(), ..Reach::default() },
        Err(error) => {
            let error = Some(format!("TLS towards servers: {error}"));
            return Cluster { error, servers: Vec::new(), remedies: BTreeSet::new() };
        }
    };
    let mut cluster = Cluster { error: None, servers: Vec::new(), remedies: BTreeSet::new() };
    for ServerCheck { writer_hostgroup, server, findings, risks } in examine(config, &reach) {
        let server = server.to_string();
        let remedies = findings.iter().filter_map(|finding| finding.remedy.as_ref());
        cluster.remedies.extend(remedies.map(|remedy| advice(remedy, &server)));
        let missing = findings.into_iter().map(|finding| Missing { what: finding.what, lost: finding.lost });
        let risks = risks.into_iter().map(|Risk { setting, effect, remedy }| RiskySetting {
            setting,
            effect,
            remedy,
        });
        let (missing, risks) = (missing.collect(), risks.collect());
        cluster.servers.push(CheckedServer { writer_hostgroup, server, missing, risks });
    }
    cluster
}

fn advice(remedy: &Remedy, server: &str) -> String {
    match remedy {
        Remedy::ProviderOptions(options) => format!(
            "in my.cnf of {server}, in addition to its present wsrep_provider_options (needs a restart):\n\
             [mysqld]\nwsrep_provider_options = \"{options}\""
        ),
        Remedy::Grant { privilege, user } => {
            format!(
                "on the cluster, if the account exists and lacks only this:\nGRANT {privilege} TO '{user}'@'...';"
            )
        }
    }
}
