//! Does what was planned, and looks at the result.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::thread;

use weir_config::{Config, private_file};
use weir_discovery::Dialling;
use weir_discovery::creation::{CreationError, Origin, await_login, log_in};
use weir_monitor::{Finding, NOT_EVICTED, Reach, Remedy, ServerCheck, examine};
use weir_topology::Endpoint;

use super::args::InitArgs;
use super::plan::{Plan, new_file};
use super::report::{Login, Report};
use super::{InitError, places};
use crate::config_file::Source;
use crate::server_tls::ServersTls;

/// How many servers are asked at a time.
const AT_A_TIME: usize = 16;

/// Makes accounts and files, and returns what was made. The passwords are on the disk before the accounts are: a run that
/// is cut off anywhere can be taken up again.
pub(super) fn apply(plan: &mut Plan, args: &InitArgs) -> Result<Vec<String>, InitError> {
    let mut created = Vec::new();
    let begun = new_file(&plan.file);
    if !plan.is_written {
        make_directory(&plan.file)?;
        // What is there now stays until the accounts are made, and can still be read if that fails.
        private_file::replace(&begun, &plan.text).map_err(failed(&begun))?;
    }
    // What can't be written is known before there are accounts.
    if let Some((path, text, false)) = &plan.unit {
        make_directory(path)?;
        std::fs::write(path, text).map_err(failed(path))?;
        created.push(path.display().to_string());
    }
    if let Some((server, dialling)) = plan.origin.clone().filter(|_| !plan.proposal.accounts.is_empty()) {
        let mut origin = Origin::connect(&server, dialling)?;
        let made = origin.make(&plan.proposal.accounts, &plan.existing)?;
        created.extend(made.iter().map(|(user, host)| format!("'{user}'@'{host}' on {server}")));
    }
    if !plan.is_written {
        private_file::replace(&plan.file, &plan.text).map_err(failed(&plan.file))?;
        std::fs::remove_file(&begun).map_err(failed(&begun))?;
        created.push(plan.file.display().to_string());
    }
    if args.systemd.is_some() && places::is_root() {
        hand_over(&plan.file)?;
        // One that is there is somebody's.
        if let Some(datadir) = plan.datadir.as_ref().filter(|datadir| !datadir.exists())
            && let Some((uid, gid)) = places::service_ids()
        {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o750).create(datadir);
            made.map_err(failed(datadir))?;
            std::os::unix::fs::lchown(datadir, Some(uid), Some(gid)).map_err(failed(datadir))?;
            plan.is_datadir_made = true;
        }
    }
    Ok(created)
}

/// The unit runs Weir under an account of its own, which has to read the file.
fn hand_over(file: &Path) -> Result<(), InitError> {
    let Some((uid, gid)) = places::service_ids() else { return Ok(()) };
    std::os::unix::fs::chown(file, Some(uid), Some(gid)).map_err(failed(file))
}

fn make_directory(file: &Path) -> Result<(), InitError> {
    match file.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists()) {
        Some(dir) => std::fs::create_dir_all(dir).map_err(failed(dir)),
        None => Ok(()),
    }
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> InitError {
    let path = path.to_owned();
    move |cause| InitError::File { path: path.clone(), cause }
}

/// Reads the configuration as `weir serve` will, has every account log in at every server, and asks the servers what is
/// missing there.
pub(super) fn look(plan: &Plan, report: &mut Report) -> Result<(), InitError> {
    let source = Source::read(&plan.file).map_err(InitError::Invalid)?;
    report.summary = source.summary();
    for (server, dialling, arrived) in all_log_in(&plan.logins) {
        arrived?;
        report.logins.push(Login { server: server.to_string(), user: dialling.options.user });
    }
    for (server, finding) in findings(&source.config)? {
        let Finding { what, lost, remedy } = finding;
        let text = format!("{server}: {what}; without it, {lost}");
        match remedy {
            // Told with what there is to do.
            Some(Remedy::ProviderOptions(_)) => {}
            _ if lost == NOT_EVICTED => report.limits.push(text),
            _ => report.missing.push(text),
        }
    }
    for (server, dialling) in &plan.user_logins {
        if let Err(cause) = log_in(dialling) {
            let user = &dialling.options.user;
            let text = format!("{server}: {user} can't log in: {cause}");
            if !report.missing.iter().any(|missing| missing.contains(&format!(": {user} can't log in"))) {
                report.missing.push(text);
            }
        }
    }
    Ok(())
}

fn all_log_in(logins: &[(Endpoint, Dialling)]) -> Vec<(Endpoint, Dialling, Result<(), CreationError>)> {
    let mut ended = Vec::with_capacity(logins.len());
    for part in logins.chunks(AT_A_TIME) {
        thread::scope(|scope| {
            let tries: Vec<_> =
                part.iter().map(|(server, dialling)| scope.spawn(|| await_login(server, dialling))).collect();
            for ((server, dialling), tried) in part.iter().zip(tries) {
                if let Ok(arrived) = tried.join() {
                    ended.push((server.clone(), dialling.clone(), arrived));
                }
            }
        });
    }
    ended
}

/// What `weir check --cluster` finds. Risks were told with what was found before.
fn findings(config: &Config) -> Result<Vec<(Endpoint, Finding)>, InitError> {
    let tls = ServersTls::default().read(config)?;
    let reach = Reach { tls: tls.for_monitor(), ..Reach::default() };
    let of_server = |ServerCheck { server, findings, .. }: ServerCheck| {
        findings.into_iter().map(move |finding| (server.clone(), finding))
    };
    Ok(examine(config, &reach).into_iter().flat_map(of_server).collect())
}
