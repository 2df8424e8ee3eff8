//! Plans what is done: which accounts on which server, which files with which content. Changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_config::{AdminAccount, Config, MysqlUser, OwnAccount, Password, Secret};
use weir_discovery::creation::Origin;
use weir_discovery::{
    AdminCredentials, AdminWish, AppUser, Dialling, Places, Proposal, Server, Trust, Wishes, config_text,
    hostgroup, service_unit,
};
use weir_topology::Endpoint;

use super::args::InitArgs;
use super::finder::{ClusterFinder, Found};
use super::{InitError, places, terminal};

/// Characters of a password that is made.
const PASSWORD_CHARS: usize = 32;
/// What it is made of: nothing that has to be quoted anywhere.
const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// A password has one of each, as servers may ask for (validate_password, simple_password_check).
const NEEDED: [&[u8]; 4] =
    [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz", b"0123456789", b"-_.+"];

/// What is to be done.
pub(super) struct Plan {
    pub proposal: Proposal,
    /// The server on which accounts are made, and how to log in there; none if none are made.
    pub origin: Option<(Endpoint, Dialling)>,
    /// The accounts that are there already, of those that are wanted.
    pub existing: BTreeSet<(String, String)>,
    /// Accounts of the servers that may be applications'.
    pub other_accounts: Vec<String>,
    /// What the account may not do that was given: there is nothing but a look.
    pub lacks: Option<String>,
    /// Weir's own files, where they are not in the default place.
    pub datadir: Option<PathBuf>,
    /// That directory was made, and is the unit's account's.
    pub is_datadir_made: bool,
    /// The configuration.
    pub file: PathBuf,
    pub text: String,
    /// The same without passwords.
    pub shown_text: String,
    /// Whether the file is there, and as it is to be.
    pub is_written: bool,
    /// The unit, and whether it is there as it is to be.
    pub unit: Option<(PathBuf, String, bool)>,
    /// How to log in at each server with each account that is made, or with the monitor's.
    pub logins: Vec<(Endpoint, Dialling)>,
    /// The same for the applications' accounts, which may not be meant for this host.
    pub user_logins: Vec<(Endpoint, Dialling)>,
}

impl Plan {
    pub(super) fn new(args: &InitArgs, finder: &ClusterFinder, found: &Found) -> Result<Self, InitError> {
        let file = places::config_file(args);
        let old = OldFile::read(&file)?;
        let wishes = wishes(args, finder, &old)?;
        let mut failure = None;
        let mut secret = || {
            password().unwrap_or_else(|error| {
                failure = Some(error);
                Secret::new("")
            })
        };
        let proposal = Proposal::new(&found.findings, &found.cluster, &wishes, &mut secret)?;
        if let Some(error) = failure {
            return Err(InitError::Random(error));
        }
        let Accounts { origin, existing, others: other_accounts, lacks } =
            accounts(args, finder, found, &proposal, &wishes.known_passwords)?;
        let datadir = places::datadir(args, &file)?;
        let places = Places {
            datadir: datadir.as_deref(),
            listen: args.listen.as_deref(),
            admin_listen: args.admin_listen.as_deref(),
        };
        let text = config_text(&proposal, places);
        weir_config::parse(&text, &file.display().to_string()).map_err(InitError::Invalid)?;
        let is_written = old.text.as_deref() == Some(&text);
        if old.text.is_some() && !is_written && !args.force && !args.dry_run {
            return Err(InitError::FileExists(file));
        }
        let shown_text = config_text(&proposal.masked(), places);
        let unit = unit(args, &file, datadir.as_deref())?;
        let (logins, user_logins) = logins(finder, found, &proposal)?;
        Ok(Self {
            proposal,
            origin,
            existing,
            other_accounts,
            lacks,
            datadir,
            is_datadir_made: false,
            file,
            text,
            shown_text,
            is_written,
            unit,
            logins,
            user_logins,
        })
    }

    /// Whether there is anything to ask for.
    pub(super) fn changes_something(&self) -> bool {
        !self.is_written
            || self.makes_accounts()
            || self.unit.as_ref().is_some_and(|(.., is_written)| !is_written)
    }

    /// Whether an account is missing.
    pub(super) fn makes_accounts(&self) -> bool {
        let is_missing =
            |user: &str, host: &String| !self.existing.contains(&(user.to_owned(), host.clone()));
        self.proposal.accounts.iter().any(|plan| plan.hosts.iter().any(|host| is_missing(&plan.user, host)))
    }
}

/// A configuration that an earlier run has made, or has begun to.
#[derive(Default)]
pub(super) struct OldFile {
    /// The file's text; none if there is none.
    text: Option<String>,
    /// The passwords of Weir's own accounts.
    passwords: BTreeMap<String, Secret>,
    /// The applications' accounts.
    users: Vec<AppUser>,
    /// The accounts of the admin port, where none has a password that everybody knows.
    admin: AdminCredentials,
}

impl OldFile {
    /// Reads the file, and what a run that was cut off has left beside it.
    fn read(file: &Path) -> Result<Self, InitError> {
        let failed = |cause| InitError::File { path: file.to_owned(), cause };
        // A device may have no end.
        if std::fs::metadata(file).is_ok_and(|there| !there.is_file()) {
            return Err(failed(std::io::Error::other("is there, and is no regular file")));
        }
        let text = match std::fs::read_to_string(file) {
            Ok(text) => Some(text),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => None,
            Err(cause) => return Err(failed(cause)),
        };
        let mut old = Self { text, ..Self::default() };
        if let Some(text) = &old.text {
            let config = weir_config::parse(text, &file.display().to_string());
            old.take(&config.map_err(|faults| InitError::OldFile { path: file.to_owned(), faults })?);
        }
        // It may have been cut off, too.
        let Some(config) = begun_by_this_user(file).and_then(|text| weir_config::parse(&text, "").ok())
        else {
            return Ok(old);
        };
        if old.text.is_none() {
            old.take(&config);
        } else {
            // What the file says counts, and accounts that it does not have may have been made.
            let of_file = std::mem::replace(&mut old.passwords, passwords(&config));
            old.passwords.extend(of_file);
        }
        Ok(old)
    }

    fn take(&mut self, config: &Config) {
        self.passwords = passwords(config);
        self.users = config.users.iter().map(|row| user(row)).collect();
        self.admin = admin_credentials(config);
    }
}

/// What a run that was cut off has left beside a file: nobody else's, in directories to which everybody may write.
fn begun_by_this_user(file: &Path) -> Option<String> {
    let begun = new_file(file);
    let found = std::fs::symlink_metadata(&begun).ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw() && found.mode() & 0o077 == 0;
    (found.is_file() && is_own).then(|| std::fs::read_to_string(&begun).ok())?
}

/// Those of the admin port, unless one has a password that everybody knows.
fn admin_credentials(config: &Config) -> AdminCredentials {
    let of = |accounts: &[AdminAccount]| {
        let is_chosen = !accounts.is_empty() && !accounts.iter().any(AdminAccount::is_default);
        let text = |account: &AdminAccount| format!("{}:{}", account.username, account.password.expose());
        is_chosen.then(|| Secret::new(accounts.iter().map(text).collect::<Vec<_>>().join(";")))
    };
    let variables = &config.admin;
    AdminCredentials { admin: of(&variables.admin_credentials), stats: of(&variables.stats_credentials) }
}

/// Where the configuration is until its accounts are made, and then replaces the old one.
pub(super) fn new_file(file: &Path) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(".init");
    name.into()
}

fn passwords(config: &Config) -> BTreeMap<String, Secret> {
    let topology = config.topology_of(hostgroup::WRITER);
    let variables = &config.variables;
    let own = [&topology.assist_account, &topology.switchover_account, &topology.replication_account];
    let own = own.into_iter().flatten();
    let mut known: BTreeMap<String, Secret> =
        own.map(|OwnAccount { username, password }| (username.clone(), password.clone())).collect();
    // The default of a file that names none: nobody has made that account.
    let default = Config::default().variables;
    let monitor = (&variables.monitor_username, &variables.monitor_password);
    if monitor != (&default.monitor_username, &default.monitor_password) {
        known.insert(monitor.0.clone(), monitor.1.clone());
    }
    known
}

/// As it stands in the file: in clear, or one of the forms of a hash.
fn user(user: &MysqlUser) -> AppUser {
    let password = match &user.password {
        Password::Clear(password) | Password::Sha2Hash(password) => password.clone(),
        Password::NativeHash(hash) => {
            let digits: String = hash.iter().map(|byte| format!("{byte:02X}")).collect();
            Secret::new(format!("*{digits}"))
        }
    };
    AppUser { name: user.username.clone(), password }
}

fn wishes(args: &InitArgs, finder: &ClusterFinder, old: &OldFile) -> Result<Wishes, InitError> {
    let known = |name: &str| {
        let user = old.users.iter().find(|user| user.name == name).map(|user| user.password.clone());
        user.or_else(|| old.passwords.get(name).cloned())
    };
    let monitor = match &args.monitor {
        None => Trust::Make,
        Some(text) => {
            let (user, password) = account(text);
            if user.is_empty() {
                return Err(InitError::Monitor("the account has no name"));
            }
            let password =
                password.or_else(|| known(user)).map_or_else(|| asked(user), |password| Ok(Some(password)));
            let password = password?.ok_or(InitError::Monitor("its password is not known: NAME:PASSWORD"))?;
            Trust::Use { user: user.to_owned(), password, is_trial: false }
        }
    };
    let mut users = if args.users.is_empty() { old.users.clone() } else { Vec::new() };
    for text in &args.users {
        users.push(app_user(text, &known)?);
    }
    Ok(Wishes {
        monitor,
        prefix: args.prefix.clone(),
        assist: !args.no_assist,
        switchover: !args.no_switchover,
        several_weirs: !args.no_several_weirs,
        account_hosts: args.account_hosts.clone(),
        known_passwords: old.passwords.clone(),
        users,
        follows_accounts: !args.no_follow_accounts,
        admin: AdminWish { has_port: args.admin_listen.as_deref() != Some(""), known: old.admin.clone() },
        ssl_mode: finder.url.ssl_mode,
        ssl_ca: finder.url.ssl_ca.clone(),
    })
}

/// `NAME[:PASSWORD]`.
fn account(text: &str) -> (&str, Option<Secret>) {
    match text.split_once(':') {
        Some((name, password)) => (name, Some(Secret::new(password))),
        None => (text, None),
    }
}

/// An application's account, with a password that is there, is known, or is asked for.
pub(super) fn app_user(text: &str, known: &dyn Fn(&str) -> Option<Secret>) -> Result<AppUser, InitError> {
    let (name, password) = account(text);
    if name.is_empty() {
        // What stands behind the colon is a password.
        return Err(InitError::User(String::new(), "the account has no name"));
    }
    let password = match password.or_else(|| known(name)) {
        Some(password) => password,
        None => asked(name)?
            .ok_or_else(|| InitError::User(name.to_owned(), "its password is not known: NAME:PASSWORD"))?,
    };
    Ok(AppUser { name: name.to_owned(), password })
}

fn asked(name: &str) -> Result<Option<Secret>, InitError> {
    Ok(terminal::password(name)?.map(Secret::new))
}

/// A random password.
pub(super) fn password() -> Result<Secret, getrandom::Error> {
    let mut bytes = [0_u8; 4 * PASSWORD_CHARS];
    loop {
        getrandom::fill(&mut bytes)?;
        let alphabet = [ALPHABET, NEEDED[3]].concat();
        // Of 66 characters, out of 256 numbers: those above the last whole multiple are drawn again.
        let whole = 256 - 256 % alphabet.len();
        let chars = bytes.iter().filter(|byte| usize::from(**byte) < whole).take(PASSWORD_CHARS);
        let text: String = chars
            .filter_map(|byte| alphabet.get(usize::from(*byte) % alphabet.len()))
            .map(|c| char::from(*c))
            .collect();
        let has_all = NEEDED.iter().all(|needed| text.bytes().any(|byte| needed.contains(&byte)));
        if text.len() == PASSWORD_CHARS && has_all && !text.starts_with(['-', '+', '.', '_']) {
            return Ok(Secret::new(text));
        }
    }
}

/// Where accounts are made, which of them are there, and which others.
#[derive(Default)]
struct Accounts {
    origin: Option<(Endpoint, Dialling)>,
    existing: BTreeSet<(String, String)>,
    others: Vec<String>,
    lacks: Option<String>,
}

fn accounts(
    args: &InitArgs,
    finder: &ClusterFinder,
    found: &Found,
    proposal: &Proposal,
    known: &BTreeMap<String, Secret>,
) -> Result<Accounts, InitError> {
    let Some(server) = found.cluster.origin(&found.findings).filter(|_| !proposal.accounts.is_empty()) else {
        return Ok(Accounts::default());
    };
    let lacks = server.facts.account.grants.lacks_for_accounts();
    let dialling = dialling(finder, server, &finder.url.user, finder.password())?;
    if !lacks.is_empty() {
        let lacking = InitError::LacksPrivileges { account: server.facts.account.name.clone(), lacks };
        if !args.dry_run {
            return Err(lacking);
        }
        let origin = Some((server.endpoint.clone(), dialling));
        return Ok(Accounts { origin, lacks: Some(lacking.to_string()), ..Accounts::default() });
    }
    let mut origin = Origin::connect(&server.endpoint, dialling.clone())?;
    let existing = origin.existing(&proposal.accounts)?;
    origin.check_known(&proposal.accounts, &existing, |user| known.contains_key(user))?;
    let is_own = |name: &String| proposal.accounts.iter().any(|plan| plan.user == *name);
    let others = origin.other_accounts().into_iter().filter(|name| !is_own(name) && *name != finder.url.user);
    Ok(Accounts {
        origin: Some((server.endpoint.clone(), dialling)),
        existing,
        others: others.collect(),
        lacks: None,
    })
}

fn unit(
    args: &InitArgs,
    file: &Path,
    datadir: Option<&Path>,
) -> Result<Option<(PathBuf, String, bool)>, InitError> {
    let Some(path) = &args.systemd else { return Ok(None) };
    let (program, file) = (std::env::current_exe()?, std::path::absolute(file)?);
    for path in [Some(&*program), Some(&*file), datadir].into_iter().flatten() {
        if path.to_string_lossy().contains(char::is_control) {
            let cause = std::io::Error::other("a unit can't name it: it has a control character");
            return Err(InitError::File { path: path.to_owned(), cause });
        }
    }
    let text = service_unit(&program, &file, datadir);
    let is_written = std::fs::read_to_string(path).is_ok_and(|there| there == text);
    if path.exists() && !is_written && !args.force && !args.dry_run {
        return Err(InitError::FileExists(path.clone()));
    }
    Ok(Some((path.clone(), text, is_written)))
}

/// At each server with each of Weir's accounts, and with each of the applications'.
#[expect(clippy::type_complexity, reason = "two fields of the plan")]
fn logins(
    finder: &ClusterFinder,
    found: &Found,
    proposal: &Proposal,
) -> Result<(Vec<(Endpoint, Dialling)>, Vec<(Endpoint, Dialling)>), InitError> {
    // Replicas log in with that for replication, from wherever they are.
    let own = proposal.accounts.iter().filter(|plan| !plan.is_for_servers());
    let mut own: Vec<AppUser> =
        own.map(|plan| AppUser { name: plan.user.clone(), password: plan.password.clone() }).collect();
    if !own.contains(&proposal.monitor) {
        own.push(proposal.monitor.clone());
    }
    let mut both = (Vec::new(), Vec::new());
    for (_, server) in found.cluster.servers(&found.findings) {
        for user in &own {
            both.0.push((server.endpoint.clone(), dialling(finder, server, &user.name, &user.password)?));
        }
        // Nobody logs in with a hash.
        let is_clear = |user: &&AppUser| !user.password.expose().starts_with(['*', '$']);
        for user in proposal.users.iter().filter(is_clear) {
            both.1.push((server.endpoint.clone(), dialling(finder, server, &user.name, &user.password)?));
        }
    }
    Ok(both)
}

/// What could be dialled to ask the server can be again.
fn dialling(
    finder: &ClusterFinder,
    server: &Server,
    user: &str,
    password: &Secret,
) -> Result<Dialling, InitError> {
    let dialling = finder.dialling_as(&server.endpoint, user, password);
    dialling.map_err(|reason| {
        InitError::Walk(weir_discovery::WalkError::Start { endpoint: server.endpoint.clone(), reason })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_without_a_name_does_not_show_its_password() {
        let error = app_user(":s3cret", &|_| None).unwrap_err().to_string();
        assert!(error.contains("no name") && !error.contains("s3cret"), "{error}");
    }

    #[test]
    fn the_password_of_a_monitor_that_a_file_does_not_name_is_not_known() {
        let of = |text: &str| passwords(&weir_config::parse(text, "weir.toml").unwrap());
        assert!(!of("datadir = \"/tmp\"\n").contains_key("monitor"));
        let own = of("mysql_variables = { monitor_username = \"m\", monitor_password = \"p\" }\n");
        assert_eq!(own.get("m").map(Secret::expose), Some("p"));
    }

    #[test]
    fn passwords_are_long_and_have_something_of_everything() {
        let first = password().unwrap();
        assert_eq!(first.expose().len(), PASSWORD_CHARS);
        assert_ne!(first, password().unwrap());
        for _ in 0..200 {
            let text = password().unwrap();
            assert!(NEEDED.iter().all(|needed| text.expose().bytes().any(|byte| needed.contains(&byte))));
            assert!(text.expose().starts_with(|c: char| c.is_ascii_alphanumeric()));
        }
    }
}
