//! Makes data directories once per machine and copies them to every server of every run.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::TestkitError;
use crate::process::start_time_ticks;
use crate::run_dir::{ROOT, ServerUser};

/// A copy under way is called so, with the id of the process that makes it.
const PARTIAL: &str = "partial-";

/// A data directory in the cache, or the place where it will be.
#[derive(Debug)]
pub(crate) struct Template {
    path: PathBuf,
    /// Files of a data directory that a copy must not have, or need not.
    left_out: &'static [&'static str],
}

impl Template {
    /// The template of this `kind` of server; its name changes with everything that its `content` depends on.
    pub(crate) fn new(
        kind: &str,
        content: impl Hash,
        left_out: &'static [&'static str],
    ) -> Result<Template, TestkitError> {
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        Ok(Template { path: cache_dir()?.join(format!("{kind}-{:016x}", hasher.finish())), left_out })
    }

    /// Whether this machine has it.
    pub(crate) fn exists(&self) -> bool {
        self.path.is_dir()
    }

    /// Keeps a copy of `data_dir`, the directory of a server that was shut down cleanly, and removes the original.
    pub(crate) fn take(&self, data_dir: &Path) -> Result<(), TestkitError> {
        let cache = self.path.parent().unwrap_or(Path::new(ROOT));
        // Complete or absent: the copy gets its name when it is whole. Another run may have been faster.
        remove_dead_partials(cache);
        let partial = cache.join(format!("{PARTIAL}{}", std::process::id()));
        self.copy(data_dir, &partial)?;
        if fs::rename(&partial, &self.path).is_err() {
            let _ = fs::remove_dir_all(&partial);
        }
        fs::remove_dir_all(data_dir).map_err(TestkitError::io(format!("remove {}", data_dir.display())))
    }

    /// Makes `data_dir`, owned by the servers' user, from the template.
    pub(crate) fn copy_to(&self, data_dir: &Path) -> Result<(), TestkitError> {
        self.copy(&self.path, data_dir)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), TestkitError> {
        let user = ServerUser::current()?;
        let doing = || TestkitError::io(format!("copy {} to {}", from.display(), to.display()));
        fs::create_dir(to).map_err(doing())?;
        user.own(to)?;
        for entry in fs::read_dir(from).map_err(doing())? {
            let entry = entry.map_err(doing())?;
            if self.left_out.iter().any(|name| entry.file_name() == *name) {
                continue;
            }
            let target = to.join(entry.file_name());
            if entry.file_type().map_err(doing())?.is_dir() {
                self.copy(&entry.path(), &target)?;
            } else {
                fs::copy(entry.path(), &target).map_err(doing())?;
                user.own(&target)?;
            }
        }
        Ok(())
    }
}

/// Where what is made or unpacked once per machine is kept: one directory per user, since what another one made could
/// not be read, or not be trusted.
///
/// # Errors
/// If it can't be made, or belongs to another user.
pub fn cache_dir() -> Result<PathBuf, TestkitError> {
    let uid = rustix::process::geteuid().as_raw();
    let name = if uid == 0 { "weir-cache".to_owned() } else { format!("weir-cache-{uid}") };
    let path = Path::new(ROOT).join(name);
    let doing = || TestkitError::io(format!("make {}", path.display()));
    match fs::create_dir(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(doing()(error)),
        _ => {}
    }
    let meta = fs::symlink_metadata(&path).map_err(doing())?;
    if !meta.is_dir() || meta.uid() != uid {
        return Err(TestkitError::Options(format!("{} belongs to another user: remove it", path.display())));
    }
    Ok(path)
}

/// Copies that nobody will finish any more.
fn remove_dead_partials(cache: &Path) {
    let Ok(entries) = fs::read_dir(cache) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PARTIAL)?.parse().ok());
        if pid.is_some_and(|pid| start_time_ticks(pid).is_none()) {
            // The worst that can happen is that it stays.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
