//! Gives operations what they need of the running proxy: asks the workers, and the main thread for what only that
//! changes.

use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};

use weir_operations::{Ending, Notice, Proxy, WritingSessions};
use weir_proxy::service::Publisher;
use weir_proxy::stats::{ReportPart, WorkerReport};
use weir_topology::Endpoint;

use super::{Event, Server};
use crate::topology_log::TopologyLog;

/// The proxy, for operations.
pub(super) struct RunningProxy {
    pub publisher: Publisher,
    pub log: TopologyLog,
    pub events: Sender<Event>,
}

/// An operation's request to the main thread. `done` is dropped when it has been published.
pub(super) enum Request {
    /// Statements of a cluster's writer wait, or no longer.
    Hold { hostgroup: u32, because: Option<String>, done: Sender<()> },
    /// Other servers are drained.
    Drained { done: Sender<()> },
}

impl RunningProxy {
    /// Asks the main thread for something; returns when it has been published.
    fn ask(&self, request: impl FnOnce(Sender<()>) -> Request) -> Result<(), Ending> {
        let (done, is_done) = channel();
        self.events.send(Event::Request(request(done))).map_err(|_| Ending)?;
        // Ends when the sender is dropped.
        let _ = is_done.recv();
        Ok(())
    }

    /// What all workers say; none if one does not answer.
    fn report(&self, part: ReportPart) -> Option<Vec<WorkerReport>> {
        // Not by the collector of statistics: it may tell what it has heard a moment ago.
        let reports = self.publisher.report(part);
        (reports.len() >= self.publisher.workers()).then_some(reports)
    }
}

impl Proxy for RunningProxy {
    fn hold(&self, hostgroup: u32, because: Option<String>) -> Result<(), Ending> {
        self.ask(|done| Request::Hold { hostgroup, because, done })
    }

    fn apply_drained(&self) -> Result<(), Ending> {
        self.ask(|done| Request::Drained { done })
    }

    fn settle(&self) -> bool {
        self.publisher.settle()
    }

    fn move_writers(&self, server: &Endpoint) {
        self.publisher.move_writers(&server.to_string());
    }

    fn close_writers(&self, server: &Endpoint) {
        self.publisher.cut_writers(&server.to_string());
    }

    fn writing(&self, server: &Endpoint) -> Option<Vec<WritingSessions>> {
        let server = server.to_string();
        let rows = self.report(ReportPart::Writing)?.into_iter().flat_map(|worker| worker.writing);
        let rows = rows.filter(|row| row.endpoint == server);
        Some(rows.map(|row| WritingSessions { because: row.because, sessions: row.sessions }).collect())
    }

    fn connected(&self, servers: &BTreeSet<Endpoint>) -> Option<Vec<(Endpoint, u64)>> {
        let reports = self.report(ReportPart::Servers)?;
        let used = |server: &Endpoint| {
            let name = server.to_string();
            let rows = reports.iter().flat_map(|report| &report.servers);
            rows.filter(|row| row.endpoint == name).map(|row| row.used).sum()
        };
        Some(servers.iter().map(|server| (server.clone(), used(server))).collect())
    }

    fn log_change(&self, writer_hostgroup: Option<u32>, change: &str, reason: String) {
        self.log.event(writer_hostgroup, change, reason);
    }

    fn notify(&self, notice: Notice) {
        let _ = self.events.send(Event::Operation(notice));
    }
}

impl Server {
    /// Does what only this thread does.
    pub(super) fn oblige(&mut self, request: Request) {
        match request {
            Request::Hold { hostgroup, because, done } => {
                self.set_held(hostgroup, because);
                drop(done);
            }
            Request::Drained { done } => {
                let config = self.config.clone();
                self.apply(&config);
                self.publish();
                drop(done);
            }
        }
    }

    /// An operation has something to tell.
    pub(super) fn take_notice(&mut self, notice: Notice) {
        for hostgroup in self.operations.take(notice) {
            self.set_held(hostgroup, None);
        }
    }

    fn set_held(&mut self, hostgroup: u32, because: Option<String>) {
        let before = match because {
            Some(because) => self.snapshots.held.insert(hostgroup, because),
            None => self.snapshots.held.remove(&hostgroup),
        };
        if before.as_ref() != self.snapshots.held.get(&hostgroup) {
            self.publish();
        }
    }
}
