//! Chooses where files go, and names the next commands.

use std::path::{Path, PathBuf};

use super::args::InitArgs;
use super::plan::Plan;

/// Root's configuration.
const ROOTS_FILE: &str = "/etc/weir/weir.toml";
/// Everybody else's, where they are.
const OWN_FILE: &str = "weir.toml";
/// Weir's own files, beside that.
const OWN_DATADIR: &str = "weir-data";
/// The account under which the unit runs Weir.
pub(super) const SERVICE_USER: &str = "weir";

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where the configuration goes.
pub(super) fn config_file(args: &InitArgs) -> PathBuf {
    let default = || PathBuf::from(if is_root() { ROOTS_FILE } else { OWN_FILE });
    args.out.clone().unwrap_or_else(default)
}

/// `datadir` of the file; none: the default.
pub(super) fn datadir(args: &InitArgs, file: &Path) -> std::io::Result<Option<PathBuf>> {
    match &args.datadir {
        Some(datadir) => std::path::absolute(datadir).map(Some),
        None if is_root() => Ok(None),
        None => {
            let file = std::path::absolute(file)?;
            Ok(Some(file.parent().unwrap_or(Path::new("/")).join(OWN_DATADIR)))
        }
    }
}

/// The ids of the account under which the unit runs Weir, if there is such an account.
pub(super) fn service_ids() -> Option<(u32, u32)> {
    let accounts = std::fs::read_to_string("/etc/passwd").ok()?;
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        if name == SERVICE_USER { Some((uid.parse().ok()?, gid.parse().ok()?)) } else { None }
    })
}

/// What the user does next.
pub(super) fn next_steps(plan: &Plan, args: &InitArgs) -> Vec<String> {
    let file = quoted(&plan.file);
    let mut steps = Vec::new();
    match &args.systemd {
        None => steps.push(format!("weir serve -c {file} --config-mode=file")),
        Some(unit) => {
            if service_ids().is_none() {
                let user = SERVICE_USER;
                steps.push(format!(
                    "useradd --system --home-dir /var/lib/weir --shell /usr/sbin/nologin {user} && chown {user}: {file}"
                ));
            }
            if let Some(datadir) = plan.datadir.as_ref().filter(|_| !plan.is_datadir_made) {
                let datadir = quoted(datadir);
                steps.push(format!("install -d -o {SERVICE_USER} -g {SERVICE_USER} -m 750 {datadir}"));
            }
            let name = unit.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            steps.push(format!("systemctl daemon-reload && systemctl enable --now {name}"));
        }
    }
    let listen = args.listen.clone().unwrap_or_else(|| "0.0.0.0:6033".to_owned());
    let first = listen.split(';').next().unwrap_or_default().trim();
    let place = match first.rsplit_once(':') {
        Some(("0.0.0.0", port)) => format!("-h127.0.0.1 -P{port}"),
        Some((host, port)) => format!("-h{} -P{port}", host.trim_matches(['[', ']'])),
        None => format!("-S {first}"),
    };
    match plan.proposal.users.first() {
        Some(user) => steps.push(format!("mariadb {place} -u{} -p", user.name)),
        None if plan.proposal.follows_accounts => steps.push(format!("mariadb {place} -uUSER -p")),
        None => steps.push(format!(
            "weir init ... --force --user NAME, with an application's account{}: nobody can log in at Weir yet",
            hint(&plan.other_accounts)
        )),
    }
    steps
}

/// The most accounts that are named.
const NAMED_MAX: usize = 10;

/// Some of the servers' accounts.
fn hint(accounts: &[String]) -> String {
    let named: Vec<&str> = accounts.iter().take(NAMED_MAX).map(String::as_str).collect();
    let more = if accounts.len() > NAMED_MAX { " ..." } else { "" };
    if named.is_empty() { String::new() } else { format!(" (there are {}{more})", named.join(", ")) }
}

/// A path in a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
