//! Takes the main thread's part when a new process takes over from this one: see [`crate::takeover`].

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use weir_config::{Assist, WeirTopology};
use weir_proxy::service::Service;

use super::Server;
use crate::notify;
use crate::takeover::{
    ADMIN, CONTROL, HTTP, LISTENER, PredecessorState, ReplySender, Socket, TakeoverRequest,
};

/// Why nothing is changed at the moment.
pub(super) const UNDER_WAY: &str = "a new process is about to take over from this one";

/// The progress of a takeover of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TakeoverState {
    #[default]
    None,
    /// A new process starts up.
    Begun,
    /// It has the sockets.
    Done,
}

impl Server {
    pub(super) fn obey_successor(&mut self, request: TakeoverRequest, service: &mut Service) {
        match (request, self.takeover) {
            (TakeoverRequest::Begin(call), TakeoverState::None) => match self.operations.suspend() {
                Err(name) => {
                    call.answer(Err(format!("a {name} is under way: try again when it has ended")));
                }
                Ok(()) => {
                    self.takeover = TakeoverState::Begun;
                    call.answer(Ok(self.state()));
                }
            },
            (TakeoverRequest::Begin(call), _) => call.answer(Err(UNDER_WAY.to_owned())),
            (TakeoverRequest::Sockets(call), TakeoverState::Begun) => {
                call.answer(self.sockets(service).map_err(|error| error.to_string()));
            }
            (TakeoverRequest::LetGo { pid, done }, TakeoverState::Begun) => self.let_go(pid, done, service),
            (TakeoverRequest::GoOn, TakeoverState::Begun) => {
                self.takeover = TakeoverState::None;
                self.operations.resume();
            }
            (TakeoverRequest::Sockets(_) | TakeoverRequest::LetGo { .. } | TakeoverRequest::GoOn, _) => {}
        }
    }

    fn state(&self) -> PredecessorState {
        let roles = self.roles.latest();
        let writers = roles.groups.iter().map(|group| {
            (group.writer_hostgroup, group.writers.iter().map(ToString::to_string).collect::<Vec<_>>())
        });
        PredecessorState { version: env!("CARGO_PKG_VERSION").to_owned(), writers: writers.collect() }
    }

    fn sockets(&self, service: &Service) -> std::io::Result<Vec<Socket>> {
        let mut sockets = vec![Socket { name: CONTROL.to_owned(), socket: self.control.takeover_socket()? }];
        let mut add = |kind: &str, address: &dyn Display, socket: OwnedFd| {
            sockets.push(Socket { name: format!("{kind}{address}"), socket });
        };
        for handed in service.takeover_sockets()? {
            add(LISTENER, &handed.address, handed.socket);
        }
        for handed in self.admin.takeover_sockets()? {
            add(ADMIN, &handed.address, handed.socket);
        }
        for (address, socket) in self.web.takeover_sockets()? {
            add(HTTP, &address, socket);
        }
        Ok(sockets)
    }

    /// From here on the datadir and everything in it is the new process's.
    fn let_go(&mut self, pid: i32, done: ReplySender<()>, service: &mut Service) {
        self.takeover = TakeoverState::Done;
        // No program runs twice at a time. Clients are still taken meanwhile.
        self.scheduler.stop();
        self.history = None;
        self.proxy_sync = None;
        self.member_watch = None;
        self.reloader = None;
        self.admin.let_go();
        self.last_answers = Some(self.web.let_go());
        service.let_go();
        self.control.let_go();
        self.pid_file.let_go();
        self.log.end();
        self.monitor.is_followed();
        tracing::info!(pid, clients = self.publisher.clients(), "taken over by a new process: draining");
        done.answer(Ok(()));
        notify::followed_by(pid);
        self.leave_evictions();
    }

    /// Dead nodes are the new process's business.
    fn leave_evictions(&mut self) {
        let config = &self.config;
        let of = |hostgroup| WeirTopology { assist: Assist::Off, ..config.topology_of(hostgroup) };
        let rows = config.clusters().map(|cluster| of(cluster.writer_hostgroup)).collect();
        self.config.weir_topology = rows;
        let config = self.config.clone();
        self.apply(&config);
    }

    /// SIGUSR2: starts this program again, as it is on disk now, to take over.
    pub(super) fn start_successor(&self) {
        if self.takeover != TakeoverState::None {
            return tracing::warn!("no new process is started: {UNDER_WAY}");
        }
        let mut command = Command::new(&self.program.path);
        command.args(&self.program.arguments).stdin(Stdio::null());
        let path = self.program.path.display();
        match command.spawn() {
            Ok(mut child) => {
                tracing::info!(%path, pid = child.id(), "a new process is started to take over");
                let wait = move || match child.wait() {
                    Ok(status) if status.success() => {}
                    Ok(status) => tracing::error!(%status, "the new process has ended"),
                    Err(error) => tracing::error!(%error, "the new process can't be found"),
                };
                // It is this process's child until one of both ends.
                let spawned = std::thread::Builder::new().name("successor".into()).spawn(wait);
                drop(spawned);
            }
            Err(error) => tracing::error!(%path, %error, "a new process can't be started"),
        }
    }
}
