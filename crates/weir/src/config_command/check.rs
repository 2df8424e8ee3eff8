//! `weir config check` and `weir check`: faults of a configuration and, if asked for, what its servers lack.

use std::collections::BTreeSet;
use std::process::ExitCode;

use weir_config::Config;
use weir_control::{Examined, Remedy, examine};

use super::{CheckArgs, Finding};
use crate::server_tls::{ServerTlsError, ServersTls};
use crate::source::Source;

/// Exit status: the configuration is good, and something is missing on a server.
const LACKING: u8 = 3;

/// What was found, for scripts.
#[derive(serde::Serialize)]
struct Checked<'c> {
    good: bool,
    faults: Vec<Finding<'c>>,
    /// What has no effect.
    warnings: Vec<Finding<'c>>,
}

/// Prints all faults of a configuration; `cluster`: looks at the servers, too.
pub(crate) fn check(args: &CheckArgs) -> ExitCode {
    let path = args.config.display();
    let read = Source::read(&args.config);
    let (faults, warnings) = match &read {
        Ok(source) => (&[][..], source.warnings.as_slice()),
        Err(faults) => (faults.as_slice(), &[][..]),
    };
    if args.json {
        let checked =
            Checked { good: read.is_ok(), faults: Finding::of(faults), warnings: Finding::of(warnings) };
        println!("{}", serde_json::to_string_pretty(&checked).unwrap_or_default());
    } else {
        for fault in faults {
            eprintln!("{fault}");
        }
        for warning in warnings {
            eprintln!("{warning} (warning)");
        }
    }
    let Ok(source) = &read else { return ExitCode::FAILURE };
    if !args.json {
        println!("{path}: good ({})", source.summary());
    }
    if !args.cluster {
        return ExitCode::SUCCESS;
    }
    match look(&source.config) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir: TLS towards servers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn look(config: &Config) -> Result<ExitCode, ServerTlsError> {
    let tls = ServersTls::default().read(config)?;
    let examined = examine(config, &tls.for_monitor());
    let mut remedies = BTreeSet::new();
    for Examined { writer_hostgroup, server, findings } in &examined {
        if findings.is_empty() {
            println!("hostgroup {writer_hostgroup} {server}: nothing is missing");
        }
        for finding in findings {
            println!("hostgroup {writer_hostgroup} {server}: {}; without, {}", finding.what, finding.lost);
            remedies.extend(finding.remedy.as_ref().map(|remedy| advice(remedy, &server.to_string())));
        }
    }
    for remedy in &remedies {
        println!("\n{remedy}");
    }
    let is_good = examined.iter().all(|server| server.findings.is_empty());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(LACKING) })
}

fn advice(remedy: &Remedy, server: &str) -> String {
    match remedy {
        Remedy::ProviderOptions(options) => format!(
            "in my.cnf of {server}, added to what wsrep_provider_options says there (needs a restart):\n\
             [mysqld]\nwsrep_provider_options = \"{options}\""
        ),
        Remedy::Grant { privilege, user } => {
            format!(
                "on the cluster, if it can log in and lacks only this:\nGRANT {privilege} TO '{user}'@'...';"
            )
        }
    }
}
