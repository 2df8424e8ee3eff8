//! Keeps the servers that `weir drain` has taken out. They stay out until `weir undrain`, also over reloads and restarts.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use weir_config::private_file;
use weir_topology::Endpoint;

/// A larger file is none of Weir's.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The set, for all threads, and its file.
#[derive(Clone, Debug)]
pub struct DrainedServers {
    path: PathBuf,
    set: Arc<Mutex<BTreeSet<Endpoint>>>,
}

/// The file can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause} (remove it if no server is to stay drained)", path.display())]
pub struct DrainedServersError {
    path: PathBuf,
    cause: String,
}

impl DrainedServers {
    /// What an earlier run has left in `datadir`.
    ///
    /// # Errors
    /// When there is a file that can't be understood: a server that somebody works on must not get work by mistake.
    pub fn load(datadir: &Path) -> Result<Self, DrainedServersError> {
        let path = datadir.join("drained.json");
        let fault = |cause: String| DrainedServersError { path: path.clone(), cause };
        let text = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "[]".to_owned(),
            Err(error) => return Err(fault(error.to_string())),
            Ok(file) if file.len() > FILE_BYTES_MAX => return Err(fault("too large".to_owned())),
            Ok(_) => std::fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?,
        };
        let names: Vec<String> = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        let parsed = names.iter().map(|name| name.parse()).collect::<Result<BTreeSet<Endpoint>, _>>();
        let set = parsed.map_err(|error| fault(error.to_string()))?;
        Ok(Self { path, set: Arc::new(Mutex::new(set)) })
    }

    /// All of them.
    pub fn all(&self) -> BTreeSet<Endpoint> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes a server out, or in again. False if it is so already.
    ///
    /// # Errors
    /// When the file can't be written; then nothing has changed.
    pub fn set(&self, endpoint: &Endpoint, is_drained: bool) -> io::Result<bool> {
        let mut next = self.all();
        let changes = if is_drained { next.insert(endpoint.clone()) } else { next.remove(endpoint) };
        if changes {
            let names: Vec<String> = next.iter().map(ToString::to_string).collect();
            private_file::replace(&self.path, &serde_json::to_string(&names)?)?;
            *self.set.lock().unwrap_or_else(PoisonError::into_inner) = next;
        }
        Ok(changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_outlives_the_run() {
        let dir = std::env::temp_dir().join(format!("weir-drained-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (one, two) = (Endpoint::new("db1", 3306), Endpoint::new("::1", 3307));
        let drained = DrainedServers::load(&dir).unwrap();
        assert!(drained.set(&one, true).unwrap() && drained.set(&two, true).unwrap());
        assert!(!drained.set(&two, true).unwrap(), "it was drained already");
        assert!(drained.set(&one, false).unwrap());
        assert_eq!(DrainedServers::load(&dir).unwrap().all(), BTreeSet::from([two]));
        for broken in ["", "{}", "[1]", r#"["db1"]"#] {
            std::fs::write(dir.join("drained.json"), broken).unwrap();
            assert!(DrainedServers::load(&dir).is_err(), "{broken}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
