//! Makes a configuration in memory, for `weir serve --cluster`: one command in front of a cluster, which changes no account.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_config::Secret;
use weir_discovery::{AdminWish, AppUser, Places, Proposal, Trust, Wishes, config_text};

use super::args::TrialArgs;
use super::finder::ClusterFinder;
use super::plan::app_user;
use super::report::of_found;
use super::{InitError, plan};

/// A configuration that is in no file.
pub(crate) struct Trial {
    /// What it is called in messages.
    pub name: PathBuf,
    pub text: Arc<str>,
    pub datadir: Datadir,
}

/// Weir's own files.
pub(crate) enum Datadir {
    /// Where the user wants them.
    Given(PathBuf),
    /// Until the end.
    Temporary(PathBuf),
}

impl Datadir {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Given(path) | Self::Temporary(path) => path,
        }
    }
}

impl Drop for Datadir {
    fn drop(&mut self) {
        if let Self::Temporary(path) = self {
            // What is left there is of no use to anybody.
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

impl Trial {
    /// Finds the cluster at an address, and shows what is there.
    pub(crate) fn new(address: &str, args: &TrialArgs, datadir: Option<PathBuf>) -> Result<Self, InitError> {
        let finder = ClusterFinder::new(address, args.password_file.as_deref(), args.trust_peers)?;
        let found = finder.find()?;
        let own = AppUser { name: finder.url.user.clone(), password: finder.password().clone() };
        let known = |name: &str| (name == own.name).then(|| own.password.clone());
        let mut users = Vec::new();
        for text in &args.users {
            users.push(app_user(text, &known)?);
        }
        if users.is_empty() {
            users.push(own.clone());
        }
        let wishes = Wishes {
            monitor: Trust::Use { user: own.name, password: own.password, is_trial: true },
            prefix: String::new(),
            assist: false,
            switchover: false,
            several_weirs: false,
            account_hosts: Vec::new(),
            known_passwords: BTreeMap::new(),
            users,
            follows_accounts: true,
            // Whoever has an admin port asked for it, and is told of its default passwords by the log.
            admin: AdminWish::default(),
            ssl_mode: finder.url.ssl_mode,
            ssl_ca: finder.url.ssl_ca.clone(),
        };
        let proposal = Proposal::new(&found.findings, &found.cluster, &wishes, &mut || Secret::new(""))?;
        eprint!("{}", of_found(&found, &proposal));
        let datadir = match datadir {
            Some(path) => Datadir::Given(path),
            None => Datadir::Temporary(temporary_directory()?),
        };
        let places = Places {
            datadir: Some(datadir.path()),
            listen: Some(&args.listen),
            admin_listen: Some(&args.admin_listen),
        };
        let text = config_text(&proposal, places);
        let name = PathBuf::from(format!("--cluster {}", finder.url));
        weir_config::parse(&text, &name.display().to_string()).map_err(InitError::Invalid)?;
        Ok(Self { name, text: text.into(), datadir })
    }
}

/// A directory that only this user can look into.
fn temporary_directory() -> Result<PathBuf, InitError> {
    let random = plan::password().map_err(InitError::Random)?;
    let plain: String = random.expose().chars().filter(char::is_ascii_alphanumeric).take(12).collect();
    let path = std::env::temp_dir().join(format!("weir-{plain}"));
    let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
    made.map_err(|cause| InitError::File { path: path.clone(), cause })?;
    Ok(path)
}
