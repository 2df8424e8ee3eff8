//! Records the changes of roles, and why, in `datadir/topology.log`, over restarts: one JSON object a line.
//!
//! A thread of its own writes. Whoever tells it something never waits: what finds no room, or no disk, is left out and
//! counted, and the next line that can be written says how much. The file is renamed to `topology.log.1` when it is
//! full, so that there are never more than two.

mod entry;
mod file;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use weir_config::Config;
use weir_topology::{Endpoint, Roles};

pub(crate) use entry::Entry;
pub(crate) use file::last_entries;

/// The most decisions that wait to be written.
const NOTES_MAX: usize = 256;

/// The way to the log. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct TopologyLog {
    notes: SyncSender<(SystemTime, Note)>,
    left_out: Arc<AtomicU64>,
    clusters: Arc<Mutex<BTreeMap<u32, u32>>>,
    /// Another process writes the file.
    has_ended: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Note {
    Roles(Arc<Roles>),
    Event(Box<Entry>),
}

/// A log that nothing is written to yet.
#[derive(Debug)]
pub(crate) struct Unopened {
    log: TopologyLog,
    notes: Receiver<(SystemTime, Note)>,
}

impl TopologyLog {
    /// What is told from now on is kept for when it is opened.
    pub(crate) fn new(config: &Config) -> (Self, Unopened) {
        let (sender, notes) = sync_channel(NOTES_MAX);
        let log = Self {
            notes: sender,
            left_out: Arc::default(),
            clusters: Arc::default(),
            has_ended: Arc::default(),
        };
        log.know_clusters(config);
        (log.clone(), Unopened { log, notes })
    }

    /// Which hostgroups belong together, for what is told from now on.
    pub(crate) fn know_clusters(&self, config: &Config) {
        let known = config
            .clusters()
            .flat_map(|cluster| cluster.hostgroups().map(move |id| (id, cluster.writer_hostgroup)));
        *self.clusters.lock().unwrap_or_else(PoisonError::into_inner) = known.collect();
    }

    /// Other roles have been decided.
    pub(crate) fn roles(&self, roles: &Arc<Roles>) {
        self.tell(Note::Roles(roles.clone()));
    }

    /// Somebody has done something to a cluster.
    pub(crate) fn event(&self, cluster: Option<u32>, change: &str, reason: String) {
        self.tell(Note::Event(Box::new(Entry::event(cluster, change, reason))));
    }

    /// Something has happened to a server.
    pub(crate) fn server_event(&self, server: &Endpoint, change: &str, reason: String) {
        let entry = Entry { server: Some(server.to_string()), ..Entry::event(None, change, reason) };
        self.tell(Note::Event(Box::new(entry)));
    }

    /// Nothing more is written from here: the file is another process's.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn tell(&self, note: Note) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        if let Err(TrySendError::Full(_)) = self.notes.try_send((SystemTime::now(), note)) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Unopened {
    /// Begins to write, also what has been told before.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn open(self, datadir: &Path) -> std::io::Result<()> {
        let mut file = file::LogFile::new(datadir);
        let Self { log, notes } = self;
        let (left_out, clusters) = (log.left_out.clone(), log.clusters.clone());
        // The thread ends with the last of those who tell it something; it must not be one of them.
        drop(log);
        std::thread::Builder::new().name("topology log".into()).spawn(move || {
            let mut previous = Arc::new(Roles::default());
            for (at, note) in notes {
                let mut entries = match note {
                    Note::Roles(roles) => {
                        let clusters = clusters.lock().unwrap_or_else(PoisonError::into_inner).clone();
                        let entries = entry::changes(&roles, &previous, &clusters);
                        previous = roles;
                        entries
                    }
                    Note::Event(event) => vec![*event],
                };
                entries.iter_mut().for_each(|entry| entry.time = entry::time(at));
                file.append(&entries, left_out.swap(0, Ordering::Relaxed));
            }
        })?;
        Ok(())
    }
}
