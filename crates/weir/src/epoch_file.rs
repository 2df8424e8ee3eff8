//! Keeps in a file on which clusters' writers this Weir has agreed with others, so that after a restart it sends no
//! write there before it has read the epoch again, whatever keeps it from that.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use weir_config::private_file;
use weir_topology::Roles;

/// A larger file is none of Weir's.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Their writer hostgroups, and the file.
#[derive(Clone, Debug)]
pub(crate) struct EpochFile {
    path: PathBuf,
    known: Arc<Mutex<BTreeSet<u32>>>,
}

/// The file can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {cause} (remove it if this Weir is the only one in front of its clusters)", path.display())]
pub(crate) struct EpochFileError {
    path: PathBuf,
    cause: String,
}

impl EpochFile {
    /// What earlier runs have left in `datadir`.
    ///
    /// # Errors
    /// When there is a file that can't be understood.
    pub(crate) fn load(datadir: &Path) -> Result<Self, EpochFileError> {
        let path = datadir.join("epochs.json");
        let fault = |cause: String| EpochFileError { path: path.clone(), cause };
        let text = match std::fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "[]".to_owned(),
            Err(error) => return Err(fault(error.to_string())),
            Ok(file) if file.len() > FILE_BYTES_MAX => return Err(fault("too large".to_owned())),
            Ok(_) => std::fs::read_to_string(&path).map_err(|error| fault(error.to_string()))?,
        };
        let known = serde_json::from_str(&text).map_err(|error| fault(error.to_string()))?;
        Ok(Self { path, known: Arc::new(Mutex::new(known)) })
    }

    /// All of them.
    pub(crate) fn known(&self) -> BTreeSet<u32> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the clusters whose epoch is in force. The file is written by a thread of its own: a disk that hangs holds
    /// up no role.
    pub(crate) fn note(&self, roles: &Roles) {
        let in_force = roles
            .groups
            .iter()
            .filter(|group| group.leadership.as_ref().is_some_and(|leadership| leadership.row.is_some()));
        let in_force: BTreeSet<u32> = in_force.map(|group| group.writer_hostgroup).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if in_force.is_subset(&known) {
            return;
        }
        known.extend(in_force);
        let (path, text) = (self.path.clone(), serde_json::to_string(&*known).unwrap_or_default());
        let write = move || {
            if let Err(error) = private_file::replace(&path, &text) {
                tracing::error!(path = %path.display(), %error, "the clusters with an epoch can't be saved");
            }
        };
        if let Err(cause) = thread::Builder::new().name("epochs".to_owned()).spawn(write) {
            tracing::error!(%cause, "can't start a thread");
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_topology::{Endpoint, EpochRow, Group, Leadership};

    use super::*;

    #[test]
    fn what_has_been_agreed_on_once_is_known_to_the_next_run() {
        let dir = std::env::temp_dir().join(format!("weir-epochs-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let epochs = EpochFile::load(&dir).unwrap();
        assert!(epochs.known().is_empty());
        let row = EpochRow {
            epoch: 1,
            version: 1,
            writer: Endpoint::new("db1", 3306),
            writer_address: None,
            claimed_by: "a".into(),
            is_open: true,
            switching: None,
        };
        let with = |row| Leadership { row, ..Leadership::default() };
        let group = |id, leadership| Group { writer_hostgroup: id, leadership, ..Group::default() };
        let groups = vec![group(10, Some(with(Some(row)))), group(20, Some(with(None))), group(30, None)];
        epochs.note(&Roles { groups, ..Roles::default() });
        assert_eq!(epochs.known(), BTreeSet::from([10]));
        let saved = || EpochFile::load(&dir).is_ok_and(|epochs| epochs.known() == BTreeSet::from([10]));
        while !saved() {
            thread::yield_now();
        }
        std::fs::write(dir.join("epochs.json"), "{").unwrap();
        assert!(EpochFile::load(&dir).unwrap_err().to_string().contains("epochs.json: "));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
